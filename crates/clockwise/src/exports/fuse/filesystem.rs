//! The kernel's requests to the mounted volumes.
//!
//! The kernel caches neither names nor attributes (all times to live are zero), so that users see at once when a volume
//! is made, deleted, grown or shrunk. Data bypasses the page cache.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant, SystemTime};

use engine::clock;
use engine::volume_io::VolumeOp;
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use peers::log_throttle::SharedLogThrottle;
use rustix::fs::{FallocateFlags, OFlags};
use sched::units::{Nanos, Time};

use super::Shared;
use super::files::{OpenVolume, ROOT};
use crate::exports::requests::Durability;
use crate::exports::requests::transfer::PART_BYTES;
use crate::exports::requests::volumes::{ExportedVolume, OpenError, whole_blocks};

/// Time to live of names and attributes in the kernel.
const TIME_TO_LIVE: Duration = Duration::ZERO;

/// The most background requests of the kernel, such as those of a loop device. All volumes share this limit, so it is
/// high enough never to matter.
const BACKGROUND_MAX: u16 = 4096;

/// The block size that the file system reports, in bytes.
const BLOCK_BYTES: u32 = 4096;

/// The unit of `st_blocks`, in bytes.
const STAT_BLOCK_BYTES: u64 = 512;

/// Names in every directory.
const DOTS: [&str; 2] = [".", ".."];

/// Limits the log lines about files that cannot be opened.
static REFUSED: SharedLogThrottle = SharedLogThrottle::few();

pub(super) struct VolumesAsFiles {
    shared: Arc<Shared>,
    /// Time of the mount by the pool's clock and by the host's.
    mounted: (Time, SystemTime),
    owner: (u32, u32),
    /// The entries of each open directory at the time of its opening.
    directories: Mutex<HashMap<u64, Vec<String>>>,
    next_directory: AtomicU64,
    /// Dropped when no thread takes requests any more. It is the last field, so that the others are gone by then.
    _alive: mpsc::Sender<()>,
}

impl VolumesAsFiles {
    pub(super) fn new(shared: Arc<Shared>, alive: mpsc::Sender<()>) -> Self {
        let user = rustix::process::geteuid().as_raw();
        let group = rustix::process::getegid().as_raw();
        Self {
            shared,
            mounted: (clock::now(), SystemTime::now()),
            owner: (user, group),
            directories: Mutex::default(),
            next_directory: AtomicU64::new(0),
            _alive: alive,
        }
    }

    fn directories(&self) -> MutexGuard<'_, HashMap<u64, Vec<String>>> {
        self.directories
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Converts a time of the pool to a date. The date is relative to the mount, so that later changes of the host's
    /// clock do not change it.
    fn date_of(&self, at: Time) -> SystemTime {
        let (mounted, date) = self.mounted;
        let length = |nanos: Nanos| Duration::from_nanos(nanos.0);
        date + length(at.saturating_since(mounted)) - length(mounted.saturating_since(at))
    }

    /// The attributes of a volume, or of the directory.
    fn attributes(&self, inode: u64, volume: Option<&ExportedVolume>) -> FileAttr {
        let (kind, perm, nlink) = match volume {
            None => (FileType::Directory, 0o700, 2),
            Some(_) => (FileType::RegularFile, 0o600, 1),
        };
        let changed = volume.map_or(self.mounted.1, |volume| self.date_of(volume.changed));
        let written = volume.map_or(0, |volume| volume.written_bytes);
        FileAttr {
            ino: INodeNo(inode),
            size: volume.map_or(0, |volume| volume.size_bytes),
            blocks: written.div_ceil(STAT_BLOCK_BYTES),
            atime: changed,
            mtime: changed,
            ctime: changed,
            crtime: self.mounted.1,
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

    fn attributes_of(&self, inode: u64) -> Result<FileAttr, Errno> {
        if inode == ROOT {
            return Ok(self.attributes(ROOT, None));
        }
        let name = self.shared.files.name_of(inode).ok_or(Errno::ENOENT)?;
        let volume = self.shared.volumes.find(&name).ok_or(Errno::ENOENT)?;
        Ok(self.attributes(inode, Some(&volume)))
    }

    /// An open volume with its size and its block size in bytes.
    fn open_volume(&self, inode: INodeNo) -> Result<(Arc<OpenVolume>, u64, u64), Errno> {
        let open = self.shared.files.get(inode.0).ok_or(Errno::EBADF)?;
        let block = open.volume.alignment().0;
        let size = whole_blocks(open.volume.size().0, block);
        Ok((open, size, block))
    }

    fn flush_volume(&self, inode: INodeNo, reply: ReplyEmpty) {
        match self.open_volume(inode) {
            Ok((open, ..)) => open.queue().command(VolumeOp::Flush, 0..0, reply),
            Err(error) => reply.error(error),
        }
    }
}

/// The access mode of an open file, which is its handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Access {
    ReadOnly,
    Write,
}

impl Access {
    fn from_flags(flags: OpenFlags) -> Self {
        match flags.acc_mode() {
            OpenAccMode::O_RDONLY => Self::ReadOnly,
            _ => Self::Write,
        }
    }

    fn from_handle(handle: FileHandle) -> Self {
        match handle.0 {
            0 => Self::ReadOnly,
            _ => Self::Write,
        }
    }

    fn handle(self) -> FileHandle {
        FileHandle(u64::from(self == Self::Write))
    }
}

/// The durability of writes to a file that was opened with these flags.
fn durability_of(flags: OpenFlags) -> Durability {
    if OFlags::from_bits_retain(flags.0 as u32).contains(OFlags::DSYNC) {
        Durability::BeforeReply
    } else {
        Durability::AfterFlush
    }
}

/// Returns true if a volume's name can be a file name. This version gives no other names.
fn is_file_name(volume: &ExportedVolume) -> bool {
    !DOTS.contains(&volume.name.as_str()) && !volume.name.contains(['/', '\0'])
}

/// The content that a seek looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Content {
    Data,
    Hole,
}

/// The first byte at or after `from` with this content.
fn seek(open: &OpenVolume, from: u64, size: u64, content: Content) -> Option<u64> {
    let block = open.volume.alignment().0;
    let mut at = from / block * block;
    while at < size {
        // Two extents differ in content, unless another user writes or discards meanwhile.
        let extents = open.volume.block_status(at..size, 2);
        let is_wanted = |is_hole: bool| is_hole == (content == Content::Hole);
        if let Some(extent) = extents.iter().find(|extent| is_wanted(extent.hole)) {
            return Some(extent.bytes.start.max(from));
        }
        at = extents.last()?.bytes.end;
    }
    None
}

impl Filesystem for VolumesAsFiles {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // The kernel may refuse any of these, which are only for speed.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        let _ = config.set_max_background(BACKGROUND_MAX);
        let _ = config.set_max_write(PART_BYTES as u32);
        Ok(())
    }

    /// The kernel sends no more requests, not even to close files.
    fn destroy(&mut self) {
        self.shared.session_ended();
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.to_str().filter(|_| parent.0 == ROOT);
        match name.and_then(|name| self.shared.volumes.find(name)) {
            Some(volume) => {
                let inode = self.shared.files.inode_of(&volume.name);
                let attributes = self.attributes(inode, Some(&volume));
                reply.entry(&TIME_TO_LIVE, &attributes, Generation(0));
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes_of(inode.0) {
            Ok(attributes) => reply.attr(&TIME_TO_LIVE, &attributes),
            Err(error) => reply.error(error),
        }
    }

    /// Ignores times, and accepts the present size. Refuses other changes.
    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
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
        match self.attributes_of(inode.0) {
            Ok(attributes)
                if size.is_some_and(|size| size != attributes.size)
                    || mode.is_some()
                    || user.is_some()
                    || group.is_some() =>
            {
                reply.error(Errno::EPERM);
            }
            Ok(attributes) => reply.attr(&TIME_TO_LIVE, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let shared = &self.shared;
        if shared.is_draining.load(Ordering::Acquire) {
            return reply.error(Errno::ESHUTDOWN);
        }
        let access = Access::from_flags(flags);
        match shared.files.open(inode.0, shared) {
            Ok(open) if access == Access::Write && open.volume.poisoned().is_some() => {
                shared.files.close(inode.0);
                reply.error(Errno::EROFS);
            }
            Ok(_) => reply.opened(
                access.handle(),
                FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
            ),
            Err(OpenError::Unknown(_)) => reply.error(Errno::ENOENT),
            Err(OpenError::Refused(reason)) => {
                if let Some(untold) = REFUSED.turn(Instant::now()) {
                    let volume = shared.files.name_of(inode.0);
                    tracing::warn!(volume, %reason, untold, "a file of the FUSE mount cannot be opened");
                }
                reply.error(Errno::ENOMEM);
            }
        }
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let (open, size, block) = match self.open_volume(inode) {
            Ok(open) => open,
            Err(error) => return reply.error(error),
        };
        let end = offset.saturating_add(u64::from(bytes)).min(size);
        if offset >= end {
            return reply.data(&[]);
        }
        // The first and the last block are read as a whole.
        let begin = offset / block * block;
        let range = begin..end.next_multiple_of(block);
        let (skip, bytes) = ((offset - begin) as usize, (end - offset) as usize);
        open.queue().read(range, skip, bytes, reply);
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (open, size, block) = match self.open_volume(inode) {
            Ok(open) => open,
            Err(error) => return reply.error(error),
        };
        // The kernel divides a long write at the pages of the user's memory. This writes the whole blocks of a piece
        // and reports their number, and the user continues after them.
        let whole = whole_blocks(data.len() as u64, block);
        if data.is_empty() {
            reply.written(0);
        } else if !offset.is_multiple_of(block) || whole == 0 {
            reply.error(Errno::EINVAL);
        } else if offset.checked_add(whole).is_none_or(|end| end > size) {
            reply.error(Errno::ENOSPC);
        } else {
            let data = &data[..whole as usize];
            open.queue()
                .write(offset, data, durability_of(flags), reply);
        }
    }

    /// Called when a descriptor of a file is closed.
    fn flush(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _: LockOwner,
        reply: ReplyEmpty,
    ) {
        match Access::from_handle(handle) {
            Access::Write => self.flush_volume(inode, reply),
            Access::ReadOnly => reply.ok(),
        }
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.flush_volume(inode, reply);
    }

    fn release(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.shared.files.close(inode.0);
        reply.ok();
    }

    fn fallocate(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let (open, size, block) = match self.open_volume(inode) {
            Ok(open) => open,
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
            // Volumes have all of their space allocated.
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
            open.queue().command(op, offset..end.min(size), reply);
        }
    }

    fn lseek(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        /// Values of lseek(2). The kernel handles the others.
        const SEEK_DATA: i32 = 3;
        const SEEK_HOLE: i32 = 4;
        let (open, size, _) = match self.open_volume(inode) {
            Ok(open) => open,
            Err(error) => return reply.error(error),
        };
        let from = u64::try_from(offset).ok().filter(|from| *from < size);
        let found = match (from, whence) {
            (Some(from), SEEK_DATA) => seek(&open, from, size, Content::Data),
            // The end of a file counts as a hole.
            (Some(from), SEEK_HOLE) => seek(&open, from, size, Content::Hole).or(Some(size)),
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
        let handle = self.next_directory.fetch_add(1, Ordering::Relaxed);
        self.directories().insert(handle, names);
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
        let directories = self.directories();
        let Some(names) = directories.get(&handle.0) else {
            return reply.error(Errno::EBADF);
        };
        for (index, name) in names.iter().enumerate().skip(offset as usize) {
            let (inode, kind) = match DOTS.contains(&name.as_str()) {
                true => (ROOT, FileType::Directory),
                false => (self.shared.files.inode_of(name), FileType::RegularFile),
            };
            if reply.add(INodeNo(inode), index as u64 + 1, kind, name) {
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
        self.directories().remove(&handle.0);
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

    // Only the control API makes and deletes volumes.

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
