//! The kernel's requests to the mounted volumes.
//!
//! Nothing about a file is kept by the kernel (all times to live are zero), so that volumes which are made,
//! deleted, grown and shrunk are seen by whoever looks. Data is never in its page cache.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant, SystemTime};

use engine::clock;
use engine::volume_io::VolumeOp;
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use peers::log_throttle::Sparing;
use rustix::fs::{FallocateFlags, OFlags};
use sched::units::{Nanos, Time};

use super::Shared;
use super::files::{Opened, ROOT};
use crate::exports::requests::parts::PART_BYTES;
use crate::exports::requests::volumes::{Exported, OpenError, whole_blocks};

/// The kernel asks again each time.
const KEPT_FOR: Duration = Duration::ZERO;

/// The most requests that the kernel sends of those that nobody's thread waits in, such as of a loop device.
/// All volumes share it, so that it is as good as none.
const BACKGROUND_MAX: u16 = 4096;

/// The block size that the file system reports, in bytes.
const BLOCK_BYTES: u32 = 4096;

/// The unit of `st_blocks`, in bytes.
const STAT_BLOCK_BYTES: u64 = 512;

/// Names that are in every folder.
const DOTS: [&str; 2] = [".", ".."];

/// Files that could not be opened, in the log.
static REFUSED: Sparing = Sparing::few();

/// The file system.
pub(super) struct VolumesAsFiles {
    shared: Arc<Shared>,
    /// When it was mounted, by the pool's clock and by the host's.
    since: (Time, SystemTime),
    owner: (u32, u32),
    /// Folders that are open, and the names that each had when it was.
    folders: Mutex<HashMap<u64, Vec<String>>>,
    folder_numbers: AtomicU64,
    /// Dropped with all of this, when no thread takes requests any more. The last field, so that all else is gone
    /// by then.
    _alive: mpsc::Sender<()>,
}

impl VolumesAsFiles {
    pub(super) fn new(shared: Arc<Shared>, alive: mpsc::Sender<()>) -> Self {
        let user = rustix::process::geteuid().as_raw();
        let group = rustix::process::getegid().as_raw();
        Self {
            shared,
            since: (clock::now(), SystemTime::now()),
            owner: (user, group),
            folders: Mutex::default(),
            folder_numbers: AtomicU64::new(0),
            _alive: alive,
        }
    }

    fn folders(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Vec<String>>> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An instant by the host's clock as that was at the mount, so that it is the same whenever it is asked for.
    fn date_of(&self, at: Time) -> SystemTime {
        let (since, date) = self.since;
        let length = |nanos: Nanos| Duration::from_nanos(nanos.0);
        date + length(at.saturating_since(since)) - length(since.saturating_since(at))
    }

    /// Those of a volume, or of the folder.
    fn attributes(&self, number: u64, volume: Option<&Exported>) -> FileAttr {
        let (kind, perm, nlink) = match volume {
            None => (FileType::Directory, 0o700, 2),
            Some(_) => (FileType::RegularFile, 0o600, 1),
        };
        let changed = volume.map_or(self.since.1, |volume| self.date_of(volume.changed));
        let written = volume.map_or(0, |volume| volume.written_bytes);
        FileAttr {
            ino: INodeNo(number),
            size: volume.map_or(0, |volume| volume.size_bytes),
            blocks: written.div_ceil(STAT_BLOCK_BYTES),
            atime: changed,
            mtime: changed,
            ctime: changed,
            crtime: self.since.1,
            kind,
            perm,
            nlink,
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: BLOCK_BYTES,
            flags: 0,
        }
    }

    /// The attributes of the folder or of a volume that is there.
    fn attributes_of(&self, number: u64) -> Result<FileAttr, Errno> {
        if number == ROOT {
            return Ok(self.attributes(ROOT, None));
        }
        let name = self.shared.files.name_of(number).ok_or(Errno::ENOENT)?;
        let volume = self.shared.volumes.find(&name).ok_or(Errno::ENOENT)?;
        Ok(self.attributes(number, Some(&volume)))
    }

    /// The open volume, and its size and block size.
    fn opened(&self, number: INodeNo) -> Result<(Arc<Opened>, u64, u64), Errno> {
        let opened = self.shared.files.get(number.0).ok_or(Errno::EBADF)?;
        let block = opened.volume.alignment().0;
        let size = whole_blocks(opened.volume.size().0, block);
        Ok((opened, size, block))
    }

    fn flushed(&self, number: INodeNo, reply: ReplyEmpty) {
        match self.opened(number) {
            Ok((opened, ..)) => opened.lane().command(VolumeOp::Flush, 0..0, reply),
            Err(error) => reply.error(error),
        }
    }
}

/// The handle of a file that is open: whether for writing.
fn handle_of(flags: OpenFlags) -> FileHandle {
    FileHandle(u64::from(flags.acc_mode() != OpenAccMode::O_RDONLY))
}

fn is_writer(handle: FileHandle) -> bool {
    handle.0 != 0
}

/// Whether whoever has opened a file so waits for each write to be durable.
fn is_forced(flags: OpenFlags) -> bool {
    OFlags::from_bits_retain(flags.0 as u32).contains(OFlags::DSYNC)
}

/// Whether a volume's name can be a file's. All can that were given by this version.
fn is_file_name(volume: &Exported) -> bool {
    !DOTS.contains(&volume.name.as_str()) && !volume.name.contains(['/', '\0'])
}

/// The first byte from `from` on that is data, or in a hole.
fn next_of(opened: &Opened, from: u64, size: u64, is_hole: bool) -> Option<u64> {
    let block = opened.volume.alignment().0;
    let mut at = from / block * block;
    while at < size {
        // Two runs are of different kinds, unless somebody writes or discards meanwhile.
        let runs = opened.volume.block_status(at..size, 2);
        if let Some(run) = runs.iter().find(|run| run.hole == is_hole) {
            return Some(run.bytes.start.max(from));
        }
        at = runs.last()?.bytes.end;
    }
    None
}

impl Filesystem for VolumesAsFiles {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Each is granted or not: what is not there is slower, and no less right.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        let _ = config.set_max_background(BACKGROUND_MAX);
        let _ = config.set_max_write(PART_BYTES as u32);
        Ok(())
    }

    /// The kernel sends nothing any more, not even that files are closed.
    fn destroy(&mut self) {
        self.shared.session_ended();
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.to_str().filter(|_| parent.0 == ROOT);
        match name.and_then(|name| self.shared.volumes.find(name)) {
            Some(volume) => {
                let number = self.shared.files.number_of(&volume.name);
                let attributes = self.attributes(number, Some(&volume));
                reply.entry(&KEPT_FOR, &attributes, Generation(0));
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes_of(number.0) {
            Ok(attributes) => reply.attr(&KEPT_FOR, &attributes),
            Err(error) => reply.error(error),
        }
    }

    /// Times are taken note of by nobody; a size may be set to what it is.
    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match self.attributes_of(number.0) {
            Ok(attributes)
                if size.is_some_and(|size| size != attributes.size)
                    || mode.is_some()
                    || user.is_some()
                    || group.is_some() =>
            {
                reply.error(Errno::EPERM);
            }
            Ok(attributes) => reply.attr(&KEPT_FOR, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let shared = &self.shared;
        if shared.is_draining.load(Ordering::Acquire) {
            return reply.error(Errno::ESHUTDOWN);
        }
        let handle = handle_of(flags);
        match shared.files.open(number.0, shared) {
            Ok(opened) if is_writer(handle) && opened.volume.poisoned().is_some() => {
                shared.files.close(number.0);
                reply.error(Errno::EROFS);
            }
            Ok(_) => reply.opened(
                handle,
                FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
            ),
            Err(OpenError::Unknown(_)) => reply.error(Errno::ENOENT),
            Err(OpenError::Refused(reason)) => {
                if let Some(untold) = REFUSED.turn(Instant::now()) {
                    let volume = shared.files.name_of(number.0);
                    tracing::warn!(volume, %reason, untold, "a file of the FUSE mount cannot be opened");
                }
                reply.error(Errno::ENOMEM);
            }
        }
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let (opened, size, block) = match self.opened(number) {
            Ok(opened) => opened,
            Err(error) => return reply.error(error),
        };
        let end = offset.saturating_add(u64::from(bytes)).min(size);
        if offset >= end {
            return reply.data(&[]);
        }
        // Of blocks that are asked for in part, all is read.
        let begin = offset / block * block;
        let range = begin..end.next_multiple_of(block);
        let (skip, bytes) = ((offset - begin) as usize, (end - offset) as usize);
        opened.lane().read(range, skip, bytes, reply);
    }

    fn write(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (opened, size, block) = match self.opened(number) {
            Ok(opened) => opened,
            Err(error) => return reply.error(error),
        };
        // A long write from memory that does not begin with a page is divided by the kernel at pages. The whole
        // blocks of a part are written and said to be, and whoever writes goes on behind them.
        let whole = whole_blocks(data.len() as u64, block);
        if data.is_empty() {
            reply.written(0);
        } else if !offset.is_multiple_of(block) || whole == 0 {
            reply.error(Errno::EINVAL);
        } else if offset.checked_add(whole).is_none_or(|end| end > size) {
            reply.error(Errno::ENOSPC);
        } else {
            let data = &data[..whole as usize];
            opened.lane().write(offset, data, is_forced(flags), reply);
        }
    }

    /// Each time a file that was open for writing is closed.
    fn flush(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        _: LockOwner,
        reply: ReplyEmpty,
    ) {
        if is_writer(handle) {
            self.flushed(number, reply);
        } else {
            reply.ok();
        }
    }

    fn fsync(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.flushed(number, reply);
    }

    fn release(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.shared.files.close(number.0);
        reply.ok();
    }

    fn fallocate(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let (opened, size, block) = match self.opened(number) {
            Ok(opened) => opened,
            Err(error) => return reply.error(error),
        };
        let mode = FallocateFlags::from_bits_retain(mode as u32);
        let zeroes = FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE;
        let is_zeroing = mode.intersects(zeroes);
        let end = offset.saturating_add(bytes);
        if !(zeroes | FallocateFlags::KEEP_SIZE).contains(mode) {
            reply.error(Errno::EOPNOTSUPP);
        } else if end > size && !mode.contains(FallocateFlags::KEEP_SIZE) {
            reply.error(Errno::ENOSPC);
        } else if !is_zeroing {
            // All of a volume has its place on the disks.
            reply.ok();
        } else if !offset.is_multiple_of(block) || !end.is_multiple_of(block) {
            reply.error(Errno::EINVAL);
        } else if offset >= size {
            reply.ok();
        } else {
            let op = VolumeOp::WriteZeroes {
                no_hole: false,
                durable: false,
            };
            opened.lane().command(op, offset..end.min(size), reply);
        }
    }

    fn lseek(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        /// As in lseek(2); the kernel deals with the others.
        const SEEK_DATA: i32 = 3;
        const SEEK_HOLE: i32 = 4;
        let (opened, size, _) = match self.opened(number) {
            Ok(opened) => opened,
            Err(error) => return reply.error(error),
        };
        let from = u64::try_from(offset).ok().filter(|from| *from < size);
        let found = match (from, whence) {
            (Some(from), SEEK_DATA) => next_of(&opened, from, size, false),
            // There is a hole behind the end.
            (Some(from), SEEK_HOLE) => next_of(&opened, from, size, true).or(Some(size)),
            (None, SEEK_DATA | SEEK_HOLE) => None,
            _ => return reply.error(Errno::EINVAL),
        };
        match found {
            Some(at) => reply.offset(at as i64),
            None => reply.error(Errno::ENXIO),
        }
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let volumes = self.shared.volumes.list().into_iter();
        let names = volumes.filter(is_file_name).map(|volume| volume.name);
        let names = DOTS.map(str::to_owned).into_iter().chain(names).collect();
        let handle = self.folder_numbers.fetch_add(1, Ordering::Relaxed);
        self.folders().insert(handle, names);
        reply.opened(FileHandle(handle), FopenFlags::empty());
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let folders = self.folders();
        let Some(names) = folders.get(&handle.0) else {
            return reply.error(Errno::EBADF);
        };
        for (index, name) in names.iter().enumerate().skip(offset as usize) {
            let (number, kind) = match DOTS.contains(&name.as_str()) {
                true => (ROOT, FileType::Directory),
                false => (self.shared.files.number_of(name), FileType::RegularFile),
            };
            if reply.add(INodeNo(number), index as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.folders().remove(&handle.0);
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let volumes = self.shared.volumes.list();
        let used: u64 = volumes.iter().map(|volume| volume.size_bytes).sum();
        let free = self.shared.volumes.pool().free().0;
        let blocks = |bytes: u64| bytes / u64::from(BLOCK_BYTES);
        let (all, free) = (blocks(used + free), blocks(free));
        let files = volumes.len() as u64;
        reply.statfs(all, free, free, files, 0, BLOCK_BYTES, 255, BLOCK_BYTES);
    }

    // Volumes are made and deleted by the control API alone.

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EPERM);
    }
}
