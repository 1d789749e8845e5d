//! A file that a stream writes: what was in it stays until it is certain that the stream goes there.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, FailureKind, host_failure, io_failure};

/// Where bytes go: a file, or what `-` stands for.
pub(in crate::cmd) struct Target {
    to: To,
    path: PathBuf,
    /// Whether the file was made for this, and nothing has gone there: then it goes away again.
    is_vacant: bool,
}

enum To {
    Standard(Box<dyn Write + Send>),
    File(File),
}

impl Target {
    /// A file that can be written, with its content as it is, or for `-` what stands for it. What cannot
    /// be written is bad input.
    pub(in crate::cmd) fn open(
        path: &Path,
        standard: impl Write + Send + 'static,
    ) -> Result<Self, Failure> {
        let (to, is_vacant) = if path == Path::new("-") {
            (To::Standard(Box::new(standard)), false)
        } else {
            let (file, is_new) = open_or_make(path).map_err(|error| Failure {
                kind: FailureKind::BadInput,
                ..io_failure("write", path, &error)
            })?;
            (To::File(file), is_new)
        };
        Ok(Self {
            to,
            path: path.to_owned(),
            is_vacant,
        })
    }

    /// The file as it was named.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The file, unless it is what `-` stands for.
    pub(super) fn file(&self) -> Option<&File> {
        match &self.to {
            To::Standard(_) => None,
            To::File(file) => Some(file),
        }
    }

    /// Whether it is what `-` stands for.
    pub(in crate::cmd) fn is_standard(&self) -> bool {
        matches!(self.to, To::Standard(_))
    }

    /// Whether what was in it has to be taken away: it is a regular file, no device and no pipe.
    pub(super) fn has_content(&self) -> io::Result<bool> {
        match &self.to {
            To::Standard(_) => Ok(false),
            To::File(file) => Ok(file.metadata()?.is_file()),
        }
    }

    /// Takes away what was in it; from now on it is the stream's.
    pub(in crate::cmd) fn begin(&mut self) -> Result<(), Failure> {
        let emptied = match (self.has_content(), &self.to) {
            (Ok(true), To::File(file)) => file.set_len(0),
            (has_content, _) => has_content.map(drop),
        };
        emptied.map_err(|error| self.failure("standard output", &error))?;
        self.is_vacant = false;
        Ok(())
    }

    /// The failure of writing to it, where `standard` is what `-` stands for.
    pub(in crate::cmd) fn failure(&self, standard: &str, error: &io::Error) -> Failure {
        match &self.to {
            To::Standard(_) => host_failure(&format!("write to {standard}"), error),
            To::File(_) => io_failure("write", &self.path, error),
        }
    }
}

/// The file, and whether it was not there before.
fn open_or_make(path: &Path) -> io::Result<(File, bool)> {
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(file) => Ok((file, true)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            // A link to nowhere is there, and the file behind it is not.
            let mut options = OpenOptions::new();
            let options = options.write(true).create(true).truncate(false);
            Ok((options.open(path)?, false))
        }
        Err(error) => Err(error),
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.to {
            To::Standard(to) => to.write(bytes),
            To::File(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.to {
            To::Standard(to) => to.flush(),
            To::File(file) => file.flush(),
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let To::File(file) = &self.to
            && self.is_vacant
            && is_empty_file_at(file, &self.path)
        {
            // Somebody else may have taken it away.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Whether two files are one, in which what is written to one overwrites what is in the other: a pipe or
/// a terminal may be named twice.
pub(super) fn is_one_file(a: &File, b: &File) -> bool {
    let (Ok(a), Ok(b)) = (a.metadata(), b.metadata()) else {
        return false;
    };
    a.is_file() && (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Whether that file is at this path, and nobody else has written to it either.
fn is_empty_file_at(file: &File, path: &Path) -> bool {
    let (Ok(ours), Ok(there)) = (file.metadata(), path.symlink_metadata()) else {
        return false;
    };
    (ours.dev(), ours.ino(), ours.len()) == (there.dev(), there.ino(), 0)
}
