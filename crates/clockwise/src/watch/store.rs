//! The file of a pool's histories.
//!
//! It is JSON with a version, see `docs/reference/service-times.md`. It is replaced in one step, so a crash leaves
//! the old file or the new one. A file that cannot be read is set aside; it never keeps the server from starting.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::history::History;

/// The version of the file's format.
const VERSION: u32 = 1;

/// No file is longer: all kinds of requests of a thousand disks take less.
const BYTES_MAX: u64 = 64 << 20;

/// The content of the file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stored {
    version: u32,
    /// The identity of the pool, in hexadecimal.
    pub(super) pool: String,
    pub(super) disks: Vec<History>,
}

impl Stored {
    pub(super) fn new(pool: String, disks: Vec<History>) -> Self {
        Self {
            version: VERSION,
            pool,
            disks,
        }
    }
}

/// The file of a pool in the folder of the server's state.
pub(super) fn path(folder: &Path, pool: &str) -> PathBuf {
    folder.join(format!("service-times-{pool}.json"))
}

/// Reads the histories of a pool. A file that is damaged or of another version is renamed, and the reason returned.
pub(super) fn read(path: &Path, pool: &str) -> (Vec<History>, Option<String>) {
    let problem = match parse(path, pool) {
        Ok(stored) => return (stored.map_or(Vec::new(), |stored| stored.disks), None),
        Err(problem) => problem,
    };
    let mut aside = path.as_os_str().to_owned();
    aside.push(".damaged");
    let aside = PathBuf::from(aside);
    let moved = match std::fs::rename(path, &aside) {
        Ok(()) => format!("it is kept as {}", aside.display()),
        Err(error) => format!("it cannot be renamed either: {error}"),
    };
    let text = format!(
        "the statistics of service times in {} cannot be used: {problem}; {moved}, and new ones begin",
        path.display()
    );
    (Vec::new(), Some(text))
}

fn parse(path: &Path, pool: &str) -> Result<Option<Stored>, String> {
    /// The part that all versions have.
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let mut bytes = Vec::new();
    let read = file.take(BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(format!("it has more than {BYTES_MAX} bytes"));
    }
    let broken = |error: serde_json::Error| format!("it is damaged: {error}");
    let Version { version } = serde_json::from_slice(&bytes).map_err(broken)?;
    if version != VERSION {
        return Err(format!(
            "it has version {version}, and this program knows version {VERSION}"
        ));
    }
    let stored: Stored = serde_json::from_slice(&bytes).map_err(broken)?;
    if stored.pool != pool {
        return Err(format!("it is of pool {}", stored.pool));
    }
    Ok(Some(stored))
}

/// Replaces the file, durably.
pub(super) fn write(path: &Path, stored: &Stored) -> io::Result<()> {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let folder = folder.unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut bytes = serde_json::to_vec_pretty(stored)?;
    bytes.push(b'\n');
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o640)
        .open(&temporary)?;
    let replaced = file
        .write_all(&bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&temporary, path));
    if let Err(error) = replaced {
        let _ = std::fs::remove_file(&temporary);
        return Err(error);
    }
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests;
