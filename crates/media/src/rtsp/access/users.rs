//! The users file: a line for each user, as `htdigest` writes it.
//!
//! ```text
//! anna:clockwise:5c0f...   <- MD5 of anna:clockwise:PASSWORD, from which Digest computes
//! ```
//!
//! Such a line is as good as the password, so only the file's owner may read the file. It is read again at a login
//! after it has changed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::secret::{REALM, Secret, parse_secret};

/// The longest users file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why the users cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    /// The file cannot be read.
    #[error("users file {0} cannot be read: {1}")]
    File(PathBuf, io::Error),
    /// Users other than its owner have access to it.
    #[error(
        "users file {0} is accessible to others than its owner (mode {1:04o}), and its contents are enough to log in: set mode 0600"
    )]
    Open(PathBuf, u32),
    /// A line is invalid.
    #[error("users file {0}, line {1}: {2}")]
    Line(PathBuf, usize, LineError),
    /// It is no UTF-8.
    #[error("users file {0} is not a text file")]
    Text(PathBuf),
    /// It is too long.
    #[error("users file {0} is longer than {FILE_BYTES_MAX} bytes")]
    Long(PathBuf),
}

/// Why a line is invalid. The message does not contain the line, which is as good as a password.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LineError {
    /// It does not have three parts.
    #[error("not of the form USER:{REALM}:HASH, as htdigest writes it")]
    Form,
    /// The name cannot be sent by a client.
    #[error("a user name may contain printable ASCII characters and blanks only")]
    Name,
    /// It has another realm.
    #[error("its realm is not {REALM:?}: write it with `htdigest FILE {REALM} USER`")]
    Realm,
    /// The last part is no hash.
    #[error("its last part is not an MD5 hash of 32 hexadecimal digits")]
    Hash,
    /// The user has two lines.
    #[error("the user has an earlier line already")]
    Twice,
}

type ByName = BTreeMap<String, Secret>;

fn line(text: &str) -> Result<(String, Secret), LineError> {
    let mut parts = text.split(':');
    let (Some(name), Some(realm), Some(hash), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(LineError::Form);
    };
    if name.is_empty() || !name.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Err(LineError::Name);
    }
    if realm != REALM {
        return Err(LineError::Realm);
    }
    let secret = parse_secret(hash).ok_or(LineError::Hash)?;
    Ok((name.to_owned(), secret))
}

/// Parses a users file.
///
/// # Errors
/// The number of the first invalid line, from 1, and the reason.
pub(crate) fn parse(text: &str) -> Result<ByName, (usize, LineError)> {
    let mut users = ByName::new();
    for (number, text) in text.lines().enumerate() {
        let text = text.trim_end();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let wrong = |error| (number + 1, error);
        let (name, secret) = line(text).map_err(wrong)?;
        if users.insert(name, secret).is_some() {
            return Err(wrong(LineError::Twice));
        }
    }
    Ok(users)
}

/// Device, inode, length, change time (s, ns) and mode of a file: another stamp means that the file has changed.
type Stamp = (u64, u64, u64, i64, i64, u32);

fn stamp(of: &std::fs::Metadata) -> Stamp {
    let (changed_s, changed_ns) = (of.ctime(), of.ctime_nsec());
    (
        of.dev(),
        of.ino(),
        of.len(),
        changed_s,
        changed_ns,
        of.mode(),
    )
}

fn read(path: &Path) -> Result<(ByName, Stamp), UsersError> {
    let failed = |error| UsersError::File(path.to_owned(), error);
    // Opening a pipe would block.
    let is_file = std::fs::metadata(path).map_err(failed)?.is_file();
    if !is_file {
        return Err(failed(io::Error::other("it is not a file")));
    }
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(UsersError::Open(path.to_owned(), mode));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(UsersError::Long(path.to_owned()));
    }
    let text = String::from_utf8(bytes).map_err(|_| UsersError::Text(path.to_owned()))?;
    let users =
        parse(&text).map_err(|(line, error)| UsersError::Line(path.to_owned(), line, error))?;
    Ok((users, stamp(&metadata)))
}

struct LoadedUsers {
    users: ByName,
    /// That of the file that was read last, valid or not.
    stamp: Option<Stamp>,
}

/// The users of a file.
pub(super) struct Users {
    path: PathBuf,
    loaded: Mutex<LoadedUsers>,
}

impl Users {
    /// Reads a users file.
    ///
    /// # Errors
    /// When it cannot be read, is invalid, or is accessible to others than its owner.
    pub(super) fn open(path: &Path) -> Result<Self, UsersError> {
        let (users, stamp) = read(path)?;
        Ok(Self {
            path: path.to_owned(),
            loaded: Mutex::new(LoadedUsers {
                users,
                stamp: Some(stamp),
            }),
        })
    }

    /// The secret of a user. Reads the file again if it has changed; if that is invalid, logs that once and keeps
    /// the previous users.
    pub(super) fn secret(&self, user: &str) -> Option<Secret> {
        // It is valid after a panic: it is replaced as a whole.
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let now = std::fs::metadata(&self.path).ok().map(|of| stamp(&of));
        if now != loaded.stamp {
            loaded.stamp = now;
            match read(&self.path) {
                Ok((users, stamp)) => {
                    tracing::info!(users = users.len(), "users file read again");
                    *loaded = LoadedUsers {
                        users,
                        stamp: Some(stamp),
                    };
                }
                Err(error) => {
                    tracing::error!(%error, "users file invalid; keeping the previous one");
                }
            }
        }
        loaded.users.get(user).copied()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const HASH: &str = "5C0f0000000000000000000000000001";

    pub(crate) fn write(path: &Path, text: &str, mode: u32) {
        // A new file is renamed over the old one, as editors and htdigest do it.
        let beside = path.with_extension("new");
        std::fs::write(&beside, text).unwrap();
        std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(mode)).unwrap();
        std::fs::rename(&beside, path).unwrap();
    }

    #[test]
    fn lines_of_htdigest_are_parsed_and_others_refused() {
        let text = format!("# who\n\nanna:clockwise:{HASH}\r\nb \"c:clockwise:{HASH}\n");
        let users = parse(&text).unwrap();
        assert_eq!(users.keys().collect::<Vec<_>>(), ["anna", "b \"c"]);
        assert_eq!(users["anna"], *b"5c0f0000000000000000000000000001");
        for (wrong, error) in [
            ("anna", LineError::Form),
            (&format!("anna:clockwise:{HASH}:more"), LineError::Form),
            (&format!(":clockwise:{HASH}"), LineError::Name),
            (&format!("ann\u{e4}:clockwise:{HASH}"), LineError::Name),
            (&format!("anna:other:{HASH}"), LineError::Realm),
            ("anna:clockwise:5c0f", LineError::Hash),
            (&format!("anna:clockwise:g{}", &HASH[1..]), LineError::Hash),
            (
                &format!("anna:clockwise:{HASH}\nanna:clockwise:{HASH}"),
                LineError::Twice,
            ),
        ] {
            let lines = wrong.lines().count();
            assert_eq!(parse(wrong), Err((lines, error)), "{wrong}");
        }
    }

    #[test]
    fn users_file_of_the_owner_alone_is_read_again_when_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        assert!(matches!(Users::open(&path), Err(UsersError::File(..))));
        let text = |name: &str| format!("{name}:clockwise:{HASH}\n");
        for mode in [0o640, 0o604, 0o620] {
            write(&path, &text("a"), mode);
            let error = Users::open(&path).err().unwrap().to_string();
            assert!(error.contains(&format!("{mode:04o}")), "{error}");
            assert!(!error.contains(HASH));
        }
        assert!(matches!(
            Users::open(folder.path()),
            Err(UsersError::File(..))
        ));
        write(&path, &text("a"), 0o400);
        let users = Users::open(&path).unwrap();
        let known = || ["a", "b"].map(|name| users.secret(name).is_some());
        assert_eq!(known(), [true, false]);
        write(&path, &text("b"), 0o600);
        assert_eq!(known(), [false, true]);
        write(&path, "nonsense", 0o600);
        assert_eq!(known(), [false, true], "it stays as it was");
        write(&path, &text("a"), 0o644);
        assert_eq!(known(), [false, true], "it stays as it was");
        write(&path, &(text("a") + &text("b")), 0o600);
        assert_eq!(known(), [true, true]);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(known(), [true, true]);
        write(&path, &"#".repeat(FILE_BYTES_MAX as usize + 1), 0o600);
        assert!(matches!(Users::open(&path), Err(UsersError::Long(_))));
    }
}
