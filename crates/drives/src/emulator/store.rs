//! Data of an emulated drive: a sparse file, and a volatile cache if it has one.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use engine::disk::DiskIo;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::Errno;
use sched::request::Op;
use sched::units::{Bytes, SECTOR_BYTES, Sector, SectorCount};

use super::DriveOptions;

type SectorData = [u8; SECTOR_BYTES as usize];

/// Sectors that are in the drive and not on its medium.
struct VolatileCache {
    sectors: BTreeMap<u64, Box<SectorData>>,
    sectors_max: usize,
    random: Xoshiro256PlusPlus,
}

pub(super) struct Store {
    file: Arc<File>,
    sync: bool,
    cache: Option<VolatileCache>,
}

fn annotate(error: io::Error, path: &Path, what: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{what} {}: {error}", path.display()))
}

impl Store {
    pub(super) fn create(
        path: &Path,
        sectors: SectorCount,
        options: &DriveOptions,
    ) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            // The data of volumes are nobody's but the server's.
            .mode(0o600)
            .open(path)
            .map_err(|error| annotate(error, path, "cannot make the drive's file"))?;
        if let Err(error) = file.set_len(sectors.bytes().get()) {
            // Best effort: the error that is reported is the one that matters.
            let _ = std::fs::remove_file(path);
            let what = format!(
                "the host's file system takes no sparse file of {} bytes for",
                sectors.bytes().get()
            );
            return Err(annotate(error, path, &what));
        }
        Self::with(file, path, options)
    }

    pub(super) fn open(
        path: &Path,
        sectors: SectorCount,
        options: &DriveOptions,
    ) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map_err(|error| annotate(error, path, "cannot open the drive's file"))?;
        let (bytes, expected) = (file.metadata()?.len(), sectors.bytes().get());
        if bytes != expected {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "{} is not this drive: it has {}, the drive {}",
                    path.display(),
                    Bytes(bytes),
                    Bytes(expected)
                ),
            ));
        }
        Self::with(file, path, options)
    }

    fn with(file: File, path: &Path, options: &DriveOptions) -> io::Result<Self> {
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
            let what = match error {
                Errno::WOULDBLOCK => "another drive is running on",
                _ => "cannot lock",
            };
            annotate(error.into(), path, what)
        })?;
        let cache = options.volatile_cache.map(|size| VolatileCache {
            sectors: BTreeMap::new(),
            sectors_max: size.get() as usize,
            random: Xoshiro256PlusPlus::seed_from_u64(options.seed),
        });
        Ok(Self {
            file: Arc::new(file),
            sync: options.sync,
            cache,
        })
    }

    pub(super) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    pub(super) fn has_cache(&self) -> bool {
        self.cache.is_some()
    }

    /// Moves the first `count` sectors of a transfer.
    pub(super) fn transfer(&mut self, io: &DiskIo, count: SectorCount) -> io::Result<()> {
        if io.segments.size() == 0 || count.is_zero() {
            return Ok(());
        }
        let position = io.start.get() * SECTOR_BYTES;
        let part;
        let segments = if count == io.count {
            &io.segments
        } else {
            part = io
                .segments
                .slice(0..count.bytes().get() as usize)
                .map_err(io::Error::other)?;
            &part
        };
        match (io.op, &mut self.cache) {
            (Op::Read, cache) => {
                segments.read_from_file(&*self.file, position)?;
                let end = io.start.get() + count.get();
                let cached = cache
                    .iter()
                    .flat_map(|c| c.sectors.range(io.start.get()..end));
                for (sector, data) in cached {
                    let offset = (sector - io.start.get()) * SECTOR_BYTES;
                    segments.copy_from(offset as usize, &data[..]);
                }
                Ok(())
            }
            (Op::Write, None) => {
                segments.write_to_file(&*self.file, position)?;
                if self.sync {
                    self.file.sync_data()
                } else {
                    Ok(())
                }
            }
            (Op::Write, Some(cache)) => {
                for index in 0..count.get() {
                    let mut data = Box::new([0; SECTOR_BYTES as usize]);
                    segments.copy_to((index * SECTOR_BYTES) as usize, &mut data[..]);
                    cache.sectors.insert(io.start.get() + index, data);
                }
                while cache.sectors.len() > cache.sectors_max {
                    cache.destage_first(&self.file)?;
                }
                Ok(())
            }
        }
    }

    /// A forced write completes: what is cached of it goes to the medium.
    pub(super) fn force(&mut self, start: Sector, count: SectorCount) -> io::Result<()> {
        let Some(cache) = &mut self.cache else {
            return Ok(());
        };
        cache.destage(&self.file, start.get(), start.get() + count.get())?;
        if self.sync {
            self.file.sync_data()
        } else {
            Ok(())
        }
    }

    /// A drive that is shut down in order destages its cache, and lets go of its file: whoever
    /// still holds a control keeps it open, and another drive may want it.
    pub(super) fn shut_down(&mut self) -> io::Result<()> {
        let destaged = self.force(Sector(0), SectorCount(u64::MAX));
        rustix::fs::flock(&*self.file, FlockOperation::Unlock)?;
        destaged
    }

    /// The power fails: each cached sector is lost or kept.
    pub(super) fn power_cut(&mut self) -> io::Result<()> {
        let Some(cache) = &mut self.cache else {
            return Ok(());
        };
        let random = &mut cache.random;
        cache.sectors.retain(|_, _| random.next_u64() & 1 == 0);
        cache.destage(&self.file, 0, u64::MAX)
    }
}

impl VolatileCache {
    fn destage(&mut self, file: &File, start: u64, end: u64) -> io::Result<()> {
        while let Some((&sector, data)) = self.sectors.range(start..end).next() {
            write_sector(file, sector, data)?;
            self.sectors.remove(&sector);
        }
        Ok(())
    }

    fn destage_first(&mut self, file: &File) -> io::Result<()> {
        if let Some(entry) = self.sectors.first_entry() {
            write_sector(file, *entry.key(), entry.get())?;
            entry.remove();
        }
        Ok(())
    }
}

fn write_sector(file: &File, sector: u64, data: &SectorData) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, data, sector * SECTOR_BYTES)
}

/// Makes a hole in the file.
pub(super) fn punch(file: &File, start: Sector, count: SectorCount) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let (offset, length) = (start.get() * SECTOR_BYTES, count.bytes().get());
    Ok(rustix::fs::fallocate(file, flags, offset, length)?)
}

/// The room the file takes.
pub(super) fn host_bytes(file: &File) -> io::Result<u64> {
    // st_blocks counts units of 512 bytes, whatever the block size of the file system.
    Ok(file.metadata()?.blocks() * 512)
}
