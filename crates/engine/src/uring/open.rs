//! Opening a disk and determining its properties.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use sched::units::{SECTOR_BYTES, SectorCount};

use crate::disk::Durability;

/// The purpose for which a disk is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reads and writes, while no one else uses the disk.
    Exclusive,
    /// Reads, while no one else uses the disk.
    ExclusiveReads,
    /// Reads, whoever else uses the disk.
    SharedReads,
}

impl Access {
    /// True if the disk may be written.
    pub(super) fn writes(self) -> bool {
        self == Self::Exclusive
    }

    fn is_exclusive(self) -> bool {
        self != Self::SharedReads
    }
}

/// The way transfers are carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TransferMode {
    /// By the ring.
    Ring,
    /// In the caller's thread, because the file is in memory; see the header of `uring`.
    Inline,
}

/// An open disk.
#[derive(Debug)]
pub(super) struct OpenDisk {
    pub(super) file: OwnedFd,
    pub(super) capacity: SectorCount,
    pub(super) block_bytes: u32,
    pub(super) durability: Durability,
    pub(super) mode: TransferMode,
    pub(super) is_device: bool,
    pub(super) access: Access,
    /// Deviations from what the schedule assumes, for the operator.
    pub(super) caveats: Vec<String>,
}

impl Drop for OpenDisk {
    /// Unlocks the file at once, even if its description is still shared, for example with a ring.
    fn drop(&mut self) {
        if !self.is_device && self.access.is_exclusive() {
            // If this fails, closing the file releases the lock.
            let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
        }
    }
}

/// File systems in memory, by their magic numbers (`linux/magic.h`).
const TMPFS_MAGIC: i64 = 0x0102_1994;
const RAMFS_MAGIC: i64 = 0x8584_58f6;

/// Opens a block device or file for `access`, with the `wanted` durability.
pub(super) fn open(
    path: &Path,
    wanted: Option<Durability>,
    access: Access,
) -> io::Result<OpenDisk> {
    let is_device = match FileType::from_raw_mode(rustix::fs::stat(path)?.st_mode) {
        FileType::BlockDevice => true,
        FileType::RegularFile => false,
        _ => {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "neither a block device nor a file",
            ));
        }
    };
    let mode = if !is_device && lives_in_memory(path)? {
        TransferMode::Inline
    } else {
        TransferMode::Ring
    };
    let (file, is_direct) = open_file(path, is_device, mode, access)?;
    let size = rustix::fs::seek(&file, SeekFrom::End(0))?;
    if size < SECTOR_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it has no sector",
        ));
    }
    let block_bytes = if is_device {
        rustix::fs::ioctl_blksszget(&file)?.max(SECTOR_BYTES as u32)
    } else {
        file_block_bytes(&file)
    };
    let cache = if is_device {
        Some(device_cache(file.as_fd())?)
    } else {
        None
    };
    let found = cache.map_or(Durability::Host, Cache::durability);
    let durability = match wanted {
        None => found,
        Some(wanted) => check_durability(wanted, found).map_err(unsupported)?,
    };
    let mut caveats = Vec::new();
    if mode == TransferMode::Ring && !is_direct {
        caveats.push(INDIRECT.to_owned());
    }
    if cache.is_some_and(Cache::is_flushed_by_each_write) {
        caveats.push(FLUSHED_BY_EACH_WRITE.to_owned());
    }
    Ok(OpenDisk {
        file,
        capacity: SectorCount(size / SECTOR_BYTES),
        block_bytes,
        durability,
        mode,
        is_device,
        access,
        caveats,
    })
}

/// The file, and true if its transfers bypass the host's cache.
fn open_file(
    path: &Path,
    is_device: bool,
    mode: TransferMode,
    access: Access,
) -> io::Result<(OwnedFd, bool)> {
    let direction = if access.writes() {
        OFlags::RDWR
    } else {
        OFlags::RDONLY
    };
    let flags = direction | OFlags::CLOEXEC;
    // On a block device, EXCL fails if another process has it open exclusively or a file system is mounted
    // from it.
    let flags = if is_device && access.is_exclusive() {
        flags | OFlags::EXCL
    } else {
        flags
    };
    let in_use = || io::Error::new(io::ErrorKind::ResourceBusy, "it is in use");
    let direct = if mode == TransferMode::Ring {
        OFlags::DIRECT
    } else {
        OFlags::empty()
    };
    let mut is_direct = mode == TransferMode::Ring;
    let file = match rustix::fs::open(path, flags | direct, Mode::empty()) {
        // The file system does not support direct I/O.
        Err(Errno::INVAL) if is_direct => {
            is_direct = false;
            rustix::fs::open(path, flags, Mode::empty())
        }
        other => other,
    }
    .map_err(|error| {
        if error == Errno::BUSY {
            in_use()
        } else {
            error.into()
        }
    })?;
    if !is_device && access.is_exclusive() {
        let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        locked.map_err(|error| {
            if error == Errno::WOULDBLOCK {
                in_use()
            } else {
                error.into()
            }
        })?;
    }
    Ok((file, is_direct))
}

fn lives_in_memory(path: &Path) -> io::Result<bool> {
    let kind = rustix::fs::statfs(path)?.f_type as i64;
    Ok(kind == TMPFS_MAGIC || kind == RAMFS_MAGIC)
}

/// The alignment of direct transfers of a file, if the file system reports it.
fn file_block_bytes(file: &OwnedFd) -> u32 {
    use rustix::fs::{AtFlags, StatxFlags};
    let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let align = stat
        .ok()
        .filter(|stat| stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
    align
        .map_or(0, |stat| stat.stx_dio_offset_align)
        .max(SECTOR_BYTES as u32)
}

/// The write cache of a device, as the host reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cache {
    is_volatile: bool,
    /// A single write can be forced to bypass the cache.
    has_fua: bool,
}

impl Cache {
    /// From the device queue's `write_cache` and `fua`. An unknown cache is assumed to be volatile and
    /// without FUA.
    fn from_queue(write_cache: Option<&str>, fua: Option<&str>) -> Self {
        Self {
            is_volatile: write_cache.map(str::trim) != Some("write through"),
            has_fua: fua.map(str::trim) == Some("1"),
        }
    }

    /// The cheapest durability.
    fn durability(self) -> Durability {
        if self.is_volatile {
            Durability::Fua
        } else {
            Durability::WriteThrough
        }
    }

    /// True if the kernel turns a forced write into a write and a flush, which is slower and as durable.
    /// Because every write is forced, at most one write waits in the cache for each flush, unless others
    /// write to the drive.
    fn is_flushed_by_each_write(self) -> bool {
        self.is_volatile && !self.has_fua
    }
}

const INDIRECT: &str = "its file system has no direct I/O, so the host's cache lies between the scheduler and the disk";

const FLUSHED_BY_EACH_WRITE: &str = "it has a volatile write cache and no FUA, so each write is followed by a flush, which its profile may not include; turn the cache off (hdparm -W 0)";

fn device_cache(file: BorrowedFd<'_>) -> io::Result<Cache> {
    let device = rustix::fs::fstat(file)?.st_rdev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let folder = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let read_attribute = |name: &str| {
        // A partition uses its disk's queue.
        let queues = [folder.join("queue"), folder.join("../queue")];
        queues
            .iter()
            .find_map(|queue| fs::read_to_string(queue.join(name)).ok())
    };
    Ok(Cache::from_queue(
        read_attribute("write_cache").as_deref(),
        read_attribute("fua").as_deref(),
    ))
}

/// Checks a wanted durability against the one found; the error is the reason for a refusal.
fn check_durability(wanted: Durability, found: Durability) -> Result<Durability, &'static str> {
    match (wanted, found) {
        (Durability::WriteThrough, Durability::WriteThrough)
        | (Durability::Host, Durability::Host) => Ok(wanted),
        // A forced write also works where nothing is cached, and makes a file behave like a disk without a
        // cache.
        (Durability::Fua, _) => Ok(Durability::Fua),
        (Durability::WriteThrough, Durability::Fua) => Err(
            "it has a volatile write cache, so its writes are not written through; turn the cache off (hdparm -W 0), or use durability `fua`",
        ),
        (Durability::WriteThrough, Durability::Host) => {
            Err("it is a file behind the host's cache; use durability `host` or `fua`")
        }
        (Durability::Host, _) => Err(
            "it is a device: only its drive caches writes, and a flush of a drive's whole cache takes unbounded time; use durability `fua`",
        ),
    }
}

fn unsupported(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_cache_is_assumed_volatile_and_without_fua() {
        use Durability::{Fua, WriteThrough};
        for (write_cache, fua, durability, is_flushed) in [
            (Some("write through\n"), Some("0\n"), WriteThrough, false),
            (Some("write through\n"), Some("1\n"), WriteThrough, false),
            (Some("write back\n"), Some("1\n"), Fua, false),
            (Some("write back\n"), Some("0\n"), Fua, true),
            (Some("write back\n"), None, Fua, true),
            (None, None, Fua, true),
        ] {
            let cache = Cache::from_queue(write_cache, fua);
            assert_eq!(cache.durability(), durability, "{cache:?}");
            assert_eq!(cache.is_flushed_by_each_write(), is_flushed, "{cache:?}");
        }
    }

    #[test]
    fn wanted_durability_is_granted_or_refused_with_the_reason() {
        use Durability::{Fua, Host, WriteThrough};
        for (wanted, found) in [
            (WriteThrough, WriteThrough),
            (Fua, WriteThrough),
            (Fua, Fua),
            (Fua, Host),
            (Host, Host),
        ] {
            assert_eq!(check_durability(wanted, found), Ok(wanted), "{found:?}");
        }
        for (wanted, found, because) in [
            (WriteThrough, Fua, "volatile"),
            (WriteThrough, Host, "file"),
            (Host, Fua, "unbounded"),
            (Host, WriteThrough, "unbounded"),
        ] {
            let reason = check_durability(wanted, found).unwrap_err();
            assert!(reason.contains(because), "{reason}");
        }
    }

    #[test]
    fn paths_that_are_not_disks_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(open(folder.path(), None, Access::Exclusive).is_err());
        assert_eq!(
            open(&folder.path().join("none"), None, Access::Exclusive)
                .unwrap_err()
                .kind(),
            io::ErrorKind::NotFound
        );
        let small = folder.path().join("small");
        fs::write(&small, [0; 511]).unwrap();
        assert_eq!(
            open(&small, None, Access::Exclusive).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
    }

    #[test]
    fn a_file_has_one_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        fs::write(&path, vec![0; 4096]).unwrap();
        let first = open(&path, None, Access::Exclusive).unwrap();
        assert_eq!(first.capacity, SectorCount(8));
        for access in [Access::Exclusive, Access::ExclusiveReads] {
            let refused = open(&path, None, access).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy, "{access:?}");
        }
        assert!(open(&path, None, Access::SharedReads).is_ok());
        // The reader that shares it has not unlocked it.
        assert!(open(&path, None, Access::Exclusive).is_err());
        drop(first);
        assert!(open(&path, None, Access::Exclusive).is_ok());
    }
}
