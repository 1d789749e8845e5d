//! Files with secrets, which only their owner may read.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Replaces a file durably. Only its owner may read it.
///
/// # Errors
/// When it cannot be written. The earlier file is then still there.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = temporary(path);
    // A file that an interrupted attempt left may have other permissions.
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    replace_by(&temporary, path, bytes).inspect_err(|_| {
        let _ = std::fs::remove_file(&temporary);
    })
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Writes `temporary` and renames it to `path`. If that fails, `temporary` may stay.
fn replace_by(temporary: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(temporary, path)?;
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_the_owner_may_read_it_and_a_failure_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secrets");
        std::fs::write(temporary(&path), "left over").unwrap();
        replace(&path, b"1").unwrap();
        replace(&path, b"2").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"2");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let taken = folder.path().join("taken");
        std::fs::create_dir(&taken).unwrap();
        replace(&taken, b"[]").unwrap_err();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
