//! The configuration to which disks are added, without a change of what it has.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sched::units::Bytes;

use super::candidate::Candidate;
use crate::config::Config;
use crate::failure::{Failure, SourceFile, io_failure};

/// The configuration of a host that has none.
const NEW: &str = "\
# Made by `clockwise init`. `clockwise serve --print-example` prints every key.

[server]
api = \"api.sock\"
state = \"state\"

[rtsp]
listen = \"127.0.0.1:8554\"
sources = \"state/sources.json\"

[http]
listen = \"127.0.0.1:8080\"
";

/// A disk to add.
#[derive(Clone, Debug)]
pub struct NewDisk {
    /// Its path.
    pub path: PathBuf,
    /// The size of a file.
    size: Option<Bytes>,
    /// The name of its profile's file.
    pub profile: Option<String>,
}

impl NewDisk {
    /// A drive.
    ///
    /// # Errors
    /// When its path cannot be made absolute.
    pub fn of_drive(path: &Path, profile: Option<String>) -> Result<Self, Failure> {
        let path = std::path::absolute(path).map_err(|error| io_failure("find", path, &error))?;
        Ok(Self {
            path,
            size: None,
            profile,
        })
    }

    fn text(&self) -> Result<String, Failure> {
        let path = self.path.to_str().ok_or_else(|| {
            Failure::bad_input(format!("{} is not UTF-8", self.path.display()))
                .help("give another path of it")
        })?;
        let kind = match self.size {
            Some(_) => "file",
            None => "block",
        };
        let mut text = format!("\n[[disk]]\npath = {}\nkind = \"{kind}\"\n", quoted(path));
        if let Some(size) = self.size {
            text += &format!("size = \"{}\"\n", exact(size));
        }
        if let Some(profile) = &self.profile {
            text += &format!("profile = {}\n", quoted(profile));
        }
        Ok(text)
    }
}

/// A size in the largest unit of which it is a whole number.
fn exact(size: Bytes) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];
    let whole = units
        .into_iter()
        .find(|(_, power)| size.get().is_multiple_of(1 << power));
    let (unit, power) = whole.unwrap_or(("B", 0));
    format!("{}{unit}", size.get() >> power)
}

/// A string of TOML. Its escapes are those of JSON, apart from one character.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text)
        .to_string()
        .replace('\u{7f}', "\\u007f")
}

/// A configuration without disks.
#[derive(Debug)]
pub struct ConfigFile {
    /// Its path, absolute.
    pub path: PathBuf,
    text: String,
}

impl ConfigFile {
    /// Reads a configuration that has no disks yet. One that does not exist is begun.
    ///
    /// # Errors
    /// When it cannot be read, is not valid, or has disks.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let path = std::path::absolute(path).map_err(|error| io_failure("find", path, &error))?;
        // A link stays one.
        let path = std::fs::canonicalize(&path).unwrap_or(path);
        let source = match path.try_exists() {
            Ok(false) => SourceFile {
                path: &path,
                text: NEW.to_owned(),
            },
            _ => SourceFile::read(&path)?,
        };
        let table: toml::Table = source
            .parse()
            .map_err(|draft| draft.help("correct the configuration; nothing is changed"))?;
        if table.contains_key("disk") {
            return Err(Failure::bad_input(format!("{} has disks already", path.display())).help(
                "if their pool is made, start the server: systemctl start clockwise; else `clockwise pool create` makes it; to begin anew, remove the [[disk]] sections first",
            ));
        }
        let text = source.text;
        Ok(Self { path, text })
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// The file for a drive's profile.
    #[must_use]
    pub fn profile_path(&self, drive: &Candidate) -> PathBuf {
        let last = drive.path.file_name().unwrap_or_default();
        self.folder()
            .join(format!("{}.toml", last.to_string_lossy()))
    }

    /// The name of the file of a drive's profile, if there is one.
    #[must_use]
    pub fn profile_of(&self, drive: &Candidate) -> Option<String> {
        let path = self.profile_path(drive);
        let name = path.file_name()?.to_str()?.to_owned();
        (path.exists() && path != self.path).then_some(name)
    }

    /// A disk in a file of this size in the state folder.
    ///
    /// # Errors
    /// When the file exists, or the configuration is not valid.
    pub fn disk_file(&self, size: Bytes) -> Result<NewDisk, Failure> {
        let any = NewDisk {
            path: self.folder().join("disk-1.img"),
            size: Some(size),
            profile: None,
        };
        let (_, config) = self.with(std::slice::from_ref(&any))?;
        let path = config.state.join("disk-1.img");
        if path.exists() {
            return Err(Failure::bad_input(format!("{} exists", path.display()))
                .help("remove it if its data may be lost, or name it in the configuration"));
        }
        Ok(NewDisk { path, ..any })
    }

    /// The text and the configuration with these disks.
    ///
    /// # Errors
    /// When the configuration is not valid with them.
    pub fn with(&self, disks: &[NewDisk]) -> Result<(String, Config), Failure> {
        let mut text = self.text.trim_end().to_owned() + "\n";
        for disk in disks {
            text += &disk.text()?;
        }
        let source = SourceFile {
            path: &self.path,
            text,
        };
        // A place in a text that is not written would help nobody.
        let here = self.path.display().to_string();
        let config = Config::from_source(&source).map_err(|failure| Failure {
            place: failure.place.clone().filter(|place| place.file != here),
            ..failure
        })?;
        Ok((source.text, config))
    }

    /// Makes sure that nobody has changed the file since it was read.
    ///
    /// # Errors
    /// When somebody has.
    pub fn check_unchanged(&self) -> Result<(), Failure> {
        let now = match self.path.try_exists() {
            Ok(false) => NEW.to_owned(),
            _ => SourceFile::read(&self.path)?.text,
        };
        match now == self.text {
            true => Ok(()),
            false => Err(Failure::failed(format!(
                "{} was changed while this command waited",
                self.path.display()
            ))
            .help("give the command again: nothing in that file is replaced")),
        }
    }

    /// Makes the state folder of a configuration if it is new.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn make_state_folder(&self, config: &Config) -> Result<(), Failure> {
        std::fs::create_dir_all(&config.state)
            .map_err(|error| io_failure("make the folder", &config.state, &error))
    }

    /// Replaces the file at once. It keeps its owner and its permissions.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, text: &str) -> Result<(), Failure> {
        let beside = self.path.with_extension("toml.new");
        let written = self.write_beside(&beside, text);
        written.map_err(|error| {
            // The next attempt makes it again.
            let _ = std::fs::remove_file(&beside);
            let failure = io_failure("write the configuration to", &self.path, &error);
            let help = format!(
                "the pool is made; end the cause, and add to the configuration:\n{}",
                text.trim_start_matches(self.text.trim_end()).trim()
            );
            failure.help(help)
        })
    }

    fn write_beside(&self, beside: &Path, text: &str) -> std::io::Result<()> {
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o644);
        let mut file = options.open(beside)?;
        match std::fs::metadata(&self.path) {
            Ok(old) => {
                file.set_permissions(old.permissions())?;
                std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()))?;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(beside, &self.path)?;
        File::open(self.folder())?.sync_all()
    }
}

/// Gives a new file to the owner of its folder, as whom the service runs.
///
/// # Errors
/// When this user may not.
pub fn give_to_owner_of_folder(path: &Path) -> Result<(), Failure> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let given = std::fs::metadata(folder)
        .and_then(|of| std::os::unix::fs::chown(path, Some(of.uid()), Some(of.gid())));
    given.map_err(|error| io_failure("give to the owner of its folder", path, &error))
}

/// Lets all users read a profile, whatever the umask: the service runs as another user.
///
/// # Errors
/// When this user may not.
pub fn share(path: &Path) -> Result<(), Failure> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644))
        .map_err(|error| io_failure("set the permissions of", path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_exact() {
        for (bytes, text) in [(16 << 30, "16GiB"), (3 << 19, "1536KiB"), (1_000, "1000B")] {
            assert_eq!(exact(Bytes(bytes)), text);
            assert_eq!(crate::quantity::parse_size(text).unwrap(), Bytes(bytes));
        }
    }

    #[test]
    fn any_text_is_quoted() {
        for text in ["/dev/sdb", "a\"b\\c\n\t\u{1}\u{7f}\u{85}é", "''"] {
            let table: toml::Table = toml::from_str(&format!("x = {}", quoted(text))).unwrap();
            assert_eq!(table["x"].as_str(), Some(text));
        }
    }
}
