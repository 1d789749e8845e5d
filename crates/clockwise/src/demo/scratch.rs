//! The demo's folder: whether there is room for it, and what a demo that was killed left there.
//!
//! A demo that is killed outright cannot take down its mounts and loop devices. Its folder has a
//! file that a living demo holds locked; the next demo takes what is not locked any more for what it
//! is, takes it down in the order in which it hangs together, and removes the folder.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use sched::units::Bytes;

use super::process::run;
use crate::failure::{Failure, io_failure};
use crate::quantity::Size;

/// Prefix of the folders of demos.
const PREFIX: &str = "clockwise-demo-";

/// The file in the folder that a living demo holds locked; kept data has none.
const LOCK: &str = "demo-is-running";

/// A file system with less than this to write to is full: what failed may have been larger than
/// what is left.
const FULL: Bytes = Bytes::from_mib(64);

/// A folder for the drives' data.
pub(super) struct Scratch {
    /// Removes the folder with this value, unless it is to be kept.
    temporary: Option<tempfile::TempDir>,
    path: PathBuf,
    _lock: File,
    /// Goes after what is in them.
    _made: MadeFolders,
}

/// Folders that were made for the demo's own, the innermost first; they go with it, unless something is in them.
struct MadeFolders(Vec<PathBuf>);

impl MadeFolders {
    /// Makes a folder and those that it is in.
    fn new(folder: &Path) -> Result<Self, Failure> {
        let folder =
            std::path::absolute(folder).map_err(|error| io_failure("find", folder, &error))?;
        let missing = folder.ancestors().take_while(|folder| !folder.exists());
        let made = Self(missing.map(Path::to_owned).collect());
        std::fs::create_dir_all(&folder)
            .map_err(|error| io_failure("make the folder", &folder, &error))?;
        Ok(made)
    }
}

impl Drop for MadeFolders {
    fn drop(&mut self) {
        for folder in &self.0 {
            // Kept files, or those of others, are in it.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

impl Scratch {
    /// A new folder in `parent`, or where there is usually room, which must have `needed` free.
    pub(super) fn new(parent: Option<&Path>, keep: bool, needed: Bytes) -> Result<Self, Failure> {
        let mut made = MadeFolders(Vec::new());
        let parent = match parent {
            Some(folder) => {
                made = MadeFolders::new(folder)?;
                std::path::absolute(folder).map_err(|error| io_failure("find", folder, &error))?
            }
            // /tmp may be in memory; sparse files of terabytes belong on a disk.
            None if Path::new("/var/tmp").is_dir() => PathBuf::from("/var/tmp"),
            None => std::env::temp_dir(),
        };
        clear_leftovers(&parent);
        check_room(&parent, needed)?;
        let folder = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(&parent)
            .map_err(|error| io_failure("make a folder in", &parent, &error))?;
        let lock = lock_new(folder.path())?;
        let path = folder.path().to_owned();
        let temporary = if keep {
            let _ = folder.keep();
            None
        } else {
            Some(folder)
        };
        Ok(Self {
            temporary,
            path,
            _lock: lock,
            _made: made,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Says of a failure that the folder's file system is full, where it is: what fails then is
    /// some write, and its error tells of an emulated drive.
    pub(super) fn explain(&self, failure: Failure) -> Failure {
        match free(&self.path) {
            Ok(free) if free < FULL => Failure {
                what: format!(
                    "{} is full ({} free): {}",
                    self.path.display(),
                    Size(free),
                    failure.what
                ),
                help: "free space there, or give another folder with --scratch".to_owned(),
                ..failure
            },
            _ => failure,
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        match self.temporary.take() {
            Some(folder) => {
                if let Err(error) = folder.close() {
                    tracing::error!("cannot remove {}: {error}", self.path.display());
                }
            }
            // A kept folder is told from one that a killed demo left.
            None => {
                let _ = std::fs::remove_file(self.path.join(LOCK));
            }
        }
    }
}

/// The lock of a folder that nobody else knows yet. The file is there under its name only when it
/// is locked, so that nobody takes the folder for one that was left.
fn lock_new(folder: &Path) -> Result<File, Failure> {
    let failed = |error: std::io::Error| io_failure("lock", folder, &error);
    let made = folder.join("demo-begins");
    let lock = File::create_new(&made).map_err(failed)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| failed(error.into()))?;
    std::fs::rename(&made, folder.join(LOCK)).map_err(failed)?;
    Ok(lock)
}

/// Free space on the file system of `folder`.
fn free(folder: &Path) -> Result<Bytes, Failure> {
    let room = rustix::fs::statvfs(folder)
        .map_err(|error| io_failure("look for room in", folder, &error.into()))?;
    Ok(Bytes(room.f_bavail.saturating_mul(room.f_frsize)))
}

fn check_room(parent: &Path, needed: Bytes) -> Result<(), Failure> {
    let free = free(parent)?;
    if free >= needed {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "{} has {} free, and the demo may write up to {}",
        parent.display(),
        Size(free),
        Size(needed)
    ))
    .help("give a folder with more free space with --scratch, or run the demo for fewer --seconds"))
}

/// The lock in a folder that was left by a demo of the same user. Anybody may have made something of
/// that name in a place that all may write to: it is opened as nothing that is somewhere else or that
/// one would wait for, and taken for a lock only if it is one.
fn lock_of_own(folder: &Path) -> Option<File> {
    let user = rustix::process::geteuid().as_raw();
    let place = folder.symlink_metadata().ok()?;
    if !place.is_dir() || place.uid() != user {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let lock = rustix::fs::open(folder.join(LOCK), flags, Mode::empty()).ok()?;
    let lock = File::from(lock);
    let file = lock.metadata().ok()?;
    (file.is_file() && file.uid() == user).then_some(lock)
}

/// Takes down and removes what demos of the same user left in `parent` that were killed.
fn clear_leftovers(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let folder = entry.path();
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let Some(lock) = lock_of_own(&folder) else {
            continue;
        };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        take_down(&folder);
        match std::fs::remove_dir_all(&folder) {
            Ok(()) => tracing::info!(
                "removed {}, left by a demo that was killed",
                folder.display()
            ),
            Err(error) => tracing::warn!(
                "{} was left by a demo that was killed and cannot be removed: {error}",
                folder.display()
            ),
        }
    }
}

/// Unmounts what is mounted under `folder` and lets go of its loop devices: first the file system,
/// then the device under it, then the file that the device is on.
fn take_down(folder: &Path) {
    let inside = |path: &str| Path::new(path).starts_with(folder);
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut mounted: Vec<(&str, &str)> = mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            Some((words.next()?, words.next()?))
        })
        .filter(|(place, _)| inside(place))
        .collect();
    mounted.reverse();
    let (fuse, others): (Vec<_>, Vec<_>) = mounted
        .into_iter()
        .partition(|(_, kind)| kind.starts_with("fuse"));
    // Each of these may be gone in the meantime, which is as good.
    for (place, _) in others {
        let _ = run("umount", ["--lazy", place]);
    }
    for device in std::fs::read_dir("/sys/block")
        .into_iter()
        .flatten()
        .flatten()
    {
        let backing = std::fs::read_to_string(device.path().join("loop/backing_file"));
        if backing.is_ok_and(|file| inside(file.trim_end())) {
            let device = format!("/dev/{}", device.file_name().to_string_lossy());
            let _ = run("losetup", ["--detach", &device]);
        }
    }
    for (place, _) in fuse {
        let _ = run("fusermount3", ["-u", "-z", place]);
    }
}

#[cfg(test)]
mod tests;
