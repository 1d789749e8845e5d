//! A file that a command writes. Its old content stays until new content is certain.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, FailureKind, host_failure, io_failure};

/// The target of bytes: a file, or standard output or standard error for `-`.
pub(in crate::cmd) struct Target {
    destination: Destination,
    path: PathBuf,
    /// True if the file was created for this and is still empty. Dropping the target removes it then.
    is_vacant: bool,
}

enum Destination {
    Standard(Box<dyn Write + Send>),
    File(File),
}

impl Target {
    /// Opens a file for writing, without changing it, or uses `standard` for `-`. A file that cannot be
    /// written is wrong input.
    pub(in crate::cmd) fn open(
        path: &Path,
        standard: impl Write + Send + 'static,
    ) -> Result<Self, Failure> {
        let (destination, is_vacant) = if path == Path::new("-") {
            (Destination::Standard(Box::new(standard)), false)
        } else {
            let (file, is_new) = open_or_create(path).map_err(|error| Failure {
                kind: FailureKind::BadInput,
                ..io_failure("write", path, &error)
            })?;
            (Destination::File(file), is_new)
        };
        Ok(Self {
            destination,
            path: path.to_owned(),
            is_vacant,
        })
    }

    /// The path as the user gave it.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The file, unless the path is `-`.
    pub(super) fn file(&self) -> Option<&File> {
        match &self.destination {
            Destination::Standard(_) => None,
            Destination::File(file) => Some(file),
        }
    }

    /// True if the path is `-`.
    pub(in crate::cmd) fn is_standard(&self) -> bool {
        matches!(self.destination, Destination::Standard(_))
    }

    /// True if its old content has to be removed: it is a regular file, not a device or a pipe.
    pub(super) fn has_content(&self) -> io::Result<bool> {
        match &self.destination {
            Destination::Standard(_) => Ok(false),
            Destination::File(file) => Ok(file.metadata()?.is_file()),
        }
    }

    /// Removes the old content. The file is kept from now on.
    pub(in crate::cmd) fn begin(&mut self) -> Result<(), Failure> {
        let emptied = match (self.has_content(), &self.destination) {
            (Ok(true), Destination::File(file)) => file.set_len(0),
            (has_content, _) => has_content.map(drop),
        };
        emptied.map_err(|error| self.failure("standard output", &error))?;
        self.is_vacant = false;
        Ok(())
    }

    /// The failure to write to it. `standard` is the name of what `-` means.
    pub(in crate::cmd) fn failure(&self, standard: &str, error: &io::Error) -> Failure {
        match &self.destination {
            Destination::Standard(_) => host_failure(&format!("write to {standard}"), error),
            Destination::File(_) => io_failure("write", &self.path, error),
        }
    }
}

/// Opens or creates a file. Returns true if it was created.
fn open_or_create(path: &Path) -> io::Result<(File, bool)> {
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(file) => Ok((file, true)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            // A dangling symbolic link exists, but its target does not.
            let mut options = OpenOptions::new();
            let options = options.write(true).create(true).truncate(false);
            Ok((options.open(path)?, false))
        }
        Err(error) => Err(error),
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.destination {
            Destination::Standard(to) => to.write(bytes),
            Destination::File(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.destination {
            Destination::Standard(to) => to.flush(),
            Destination::File(file) => file.flush(),
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Destination::File(file) = &self.destination
            && self.is_vacant
            && is_empty_file_at(file, &self.path)
        {
            // Another process may have removed it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// True if two handles are of the same regular file, where writes to one would overwrite those to the other.
/// A pipe or a terminal may be used twice.
pub(super) fn is_one_file(a: &File, b: &File) -> bool {
    let (Ok(a), Ok(b)) = (a.metadata(), b.metadata()) else {
        return false;
    };
    a.is_file() && (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// True if this file is still at this path and empty.
fn is_empty_file_at(file: &File, path: &Path) -> bool {
    let (Ok(ours), Ok(there)) = (file.metadata(), path.symlink_metadata()) else {
        return false;
    };
    (ours.dev(), ours.ino(), ours.len()) == (there.dev(), there.ino(), 0)
}
