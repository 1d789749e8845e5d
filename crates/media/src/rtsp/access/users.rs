//! The file of users: a line for each, as `htdigest` writes it.
//!
//! ```text
//! anna:clockwise:5c0f...   <- MD5 of anna:clockwise:PASSWORD, which is what Digest computes with
//! ```
//!
//! Who can read such a line can log in with it, so only the file's owner may. It is read again when it has changed and
//! somebody logs in.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The realm of all passwords: what `htdigest` is to be told, and what those are shown who are asked.
pub const REALM: &str = "clockwise";

/// The longest file of users.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What a server knows of a password: MD5 of `USER:REALM:PASSWORD`, as text.
pub(super) type Secret = [u8; 32];

/// Why there are no users.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    /// The file.
    #[error("the users of RTSP cannot be read from {0}: {1}")]
    File(PathBuf, io::Error),
    /// Others may see it.
    #[error(
        "{0} may be read or written by others than its owner (its mode is {1:04o}), and whoever reads it can log in"
    )]
    Open(PathBuf, u32),
    /// The host.
    #[error("the host has no random numbers to ask users with")]
    Random,
    /// A line of it.
    #[error("{0}, line {1}: {2}")]
    Line(PathBuf, usize, LineError),
    /// It is no text.
    #[error("{0} is no text")]
    Text(PathBuf),
    /// It is too long.
    #[error("{0} is longer than {FILE_BYTES_MAX} bytes")]
    Long(PathBuf),
}

/// What is wrong with a line; it is not repeated, as it is as good as a password.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LineError {
    /// It has other parts.
    #[error("it is not USER:{REALM}:HASH, as htdigest writes it")]
    Form,
    /// The name cannot come.
    #[error("a user's name has to be of ASCII characters that can be seen, and blanks")]
    Name,
    /// Another realm.
    #[error("its realm is not {REALM:?}, which its password was mixed with")]
    Realm,
    /// The hash.
    #[error("its last part is no MD5 sum, which has 32 digits from 0 to f")]
    Hash,
    /// Somebody is there twice.
    #[error("that user has a line already")]
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
    let hash: Secret = hash.as_bytes().try_into().map_err(|_| LineError::Hash)?;
    if !hash.iter().all(u8::is_ascii_hexdigit) {
        return Err(LineError::Hash);
    }
    Ok((
        name.to_owned(),
        hash.map(|digit| digit.to_ascii_lowercase()),
    ))
}

/// The users in a text; or the line that is none, and why.
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

/// What tells a file that was changed from one that was not.
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
    // A pipe of that name would be waited for, and is not what is meant.
    let is_file = std::fs::metadata(path).map_err(failed)?.is_file();
    if !is_file {
        return Err(failed(io::Error::other("it is no file")));
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

struct Known {
    users: ByName,
    /// Of the file that was read last, whether it made sense or not.
    stamp: Option<Stamp>,
}

/// The users of a file.
pub(super) struct Users {
    path: PathBuf,
    known: Mutex<Known>,
}

impl Users {
    /// # Errors
    /// When the file cannot be read, could be by others, or makes no sense.
    pub(super) fn open(path: &Path) -> Result<Self, UsersError> {
        let (users, stamp) = read(path)?;
        Ok(Self {
            path: path.to_owned(),
            known: Mutex::new(Known {
                users,
                stamp: Some(stamp),
            }),
        })
    }

    /// What is known of a user's password. A file that makes no sense any more is told of once, and those stay known
    /// who were.
    pub(super) fn secret(&self, user: &str) -> Option<Secret> {
        // What is in it was read as a whole.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let now = std::fs::metadata(&self.path).ok().map(|of| stamp(&of));
        if now != known.stamp {
            known.stamp = now;
            match read(&self.path) {
                Ok((users, stamp)) => {
                    tracing::info!(users = users.len(), "the users of RTSP have changed");
                    *known = Known {
                        users,
                        stamp: Some(stamp),
                    };
                }
                Err(error) => {
                    tracing::error!(%error, "the users of RTSP stay who they were: their file cannot be used");
                }
            }
        }
        known.users.get(user).copied()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const HASH: &str = "5C0f0000000000000000000000000001";

    pub(crate) fn write(path: &Path, text: &str, mode: u32) {
        // Another file, as editors and htdigest may do it.
        let beside = path.with_extension("new");
        std::fs::write(&beside, text).unwrap();
        std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(mode)).unwrap();
        std::fs::rename(&beside, path).unwrap();
    }

    #[test]
    fn lines_are_those_of_htdigest() {
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
    fn only_the_owner_may_read_it_and_changes_are_seen() {
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
