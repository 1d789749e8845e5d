//! Locks: ranges of the wall clock that retention never deletes.
//!
//! The blocks of a locked range are copied into a volume of their own, an archive that is not recorded to. So a lock is
//! never in the way of the ring, of its limits or of its length, and has all that a recording has. The price is space of
//! the pool and the time to copy, and what was overwritten before is not locked. The copy's retention record says that it
//! is a lock, and of what. Its header is written last: a crash before leaves a volume without recordings.

use std::ops::Range;

use engine::pool::{Placement, VolumeSpec};

use super::*;
use crate::archive::archives::{Archives, OpenError};
use crate::archive::block::rebrand;
use crate::archive::timeline::candidates;

/// Longest note, in bytes.
pub const NOTE_BYTES_MAX: usize = 512;

/// What a lock keeps, and why.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lock {
    /// The volume that it was copied from.
    pub volume: String,
    /// Serials of the blocks there.
    pub serials: Range<u64>,
    /// The locked times, in nanoseconds since 1970.
    pub unix_ns: Range<u64>,
    /// When it ends by itself, in nanoseconds since 1970.
    pub expires_unix_ns: Option<u64>,
    /// Why it was locked.
    pub note: String,
}

/// A lock and its volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockedCopy {
    /// Name of the volume with the copy.
    pub copy: String,
    /// What it keeps.
    pub lock: Lock,
    /// Bytes of its blocks.
    pub bytes: Bytes,
}

/// Reason why nothing is locked or unlocked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// An archive or the pool cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Nothing was recorded in the range.
    #[error("nothing was recorded in that time range in volume {0:?}")]
    Nothing(String),
    /// The note is too long.
    #[error("the note has {0} bytes; at most {NOTE_BYTES_MAX} are kept")]
    Note(usize),
    /// There is no such lock.
    #[error("volume {0:?} is not a lock")]
    NoLock(String),
}

impl From<ArchiveError> for LockError {
    fn from(error: ArchiveError) -> Self {
        Self::Open(error.into())
    }
}

impl Archive {
    /// The retention record of a volume, read without opening the archive; `None` if the volume has none.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read_record(
        client: &Client,
        volume: &Volume,
    ) -> Result<Option<RetentionRecord>, ArchiveError> {
        let head = volume.block_status(0..HEADER_BYTES as u64, 1);
        if head.first().is_none_or(|run| run.hole) {
            return Ok(None);
        }
        let bytes = Self::read_header(client, volume)?;
        let Ok(header) = Header::parse(&bytes) else {
            return Ok(None);
        };
        let reader = Reader {
            client,
            volume,
            header,
            geometry: Geometry::new(header.blocks),
        };
        Ok(Some(reader.retention_record()?.0))
    }

    /// The lock that this archive is, if it is one.
    #[must_use]
    pub fn lock(&self) -> Option<Lock> {
        self.retention_record().lock.clone()
    }

    /// Refuses a change of an archive that is a lock.
    pub(super) fn check_unlocked(&self, record: &RetentionRecord) -> Result<(), ArchiveError> {
        match &record.lock {
            Some(lock) => Err(ArchiveError::Locked {
                volume: self.volume.name().to_owned(),
                note: lock.note.clone(),
            }),
            None => Ok(()),
        }
    }

    /// The blocks from which a range of times is played.
    fn serials_at(
        &self,
        archives: &Archives,
        client: &Client,
        unix_ns: &Range<u64>,
    ) -> Result<Option<Range<u64>>, OpenError> {
        let mut serials: Option<Range<u64>> = None;
        for recording in candidates(&self.recordings(), unix_ns) {
            let extent = self.extent(client, &recording)?;
            let from = self.media_ns_at(client, &recording, unix_ns.start)?;
            let until = self.media_ns_at(client, &recording, unix_ns.end)?;
            if extent.end < from || until <= extent.start {
                continue;
            }
            let description = archives.describe(self, recording)?.description;
            let track = description.map_or(0, |of| of.video_track());
            let found = start::start_at(self, client, &recording, from, track.into(), None)?;
            // A packet of the range may be in the next block, because packets lie in the order of their arrival.
            let last = self.block_at(client, &recording, until)? + 1;
            let of = found.start.serial..(last + 1).min(recording.end);
            serials = Some(serials.map_or(of.clone(), |all| all.start..of.end.max(all.end)));
        }
        Ok(serials.filter(|of| !of.is_empty()))
    }

    /// Copies blocks into another volume. Returns the number of blocks that are damaged or overwritten.
    fn copy(&self, client: &Client, to: &Volume, lock: Lock) -> Result<u64, ArchiveError> {
        let serials = lock.serials.clone();
        let block_bytes = self.header.block_bytes;
        let failed = |error| ArchiveError::Io {
            volume: to.name().to_owned(),
            error,
        };
        let mut archive = [0; 16];
        let random = rustix::rand::getrandom(&mut archive, rustix::rand::GetRandomFlags::empty());
        debug_assert_eq!(random, Ok(16));
        let mut missing = 0;
        for (place, serial) in (1..).zip(serials.clone()) {
            match self.read_block(client, serial)? {
                Some(mut block) => {
                    rebrand(&mut block, archive);
                    let written = client.write_at(to, Bytes(place * block_bytes), &block);
                    written.map_err(failed)?;
                }
                None => missing += 1,
            }
        }
        let blocks = serials.end - serials.start;
        let mut record = RetentionRecord {
            archive,
            geometry: Some(Geometry {
                base: serials.start,
                blocks,
            }),
            lock: Some(lock),
            ..RetentionRecord::default()
        };
        record.gone.add(0..serials.start);
        for generation in 1..=2 {
            record.generation = generation;
            let written = client.write_at(to, record.offset(), &record.encode());
            written.map_err(failed)?;
        }
        let header = Header {
            archive,
            block_bytes,
            blocks,
        };
        client.flush(to).map_err(failed)?;
        let written = client.write_at(to, Bytes::ZERO, &header.encode());
        written.map_err(failed)?;
        client.flush(to).map_err(failed)?;
        Ok(missing)
    }
}

impl Archives {
    /// Locks a range of times: copies its blocks into a new volume. Returns the lock, and the number of blocks that
    /// were damaged or overwritten before they were copied.
    ///
    /// # Errors
    /// When nothing was recorded then, the pool has no room, or the copy fails.
    pub fn lock(
        &self,
        volume: &str,
        unix_ns: Range<u64>,
        note: String,
        expires_unix_ns: Option<u64>,
    ) -> Result<(LockedCopy, u64), LockError> {
        if note.len() > NOTE_BYTES_MAX {
            return Err(LockError::Note(note.len()));
        }
        let archive = self.open(volume, None)?;
        archive.check_unlocked(&archive.retention_record())?;
        let client = self.client().map_err(OpenError::from)?;
        let serials = archive.serials_at(self, &client, &unix_ns)?;
        let serials = serials.ok_or_else(|| LockError::Nothing(volume.to_owned()))?;
        let blocks = serials.end - serials.start;
        let copy = self.create_copy(volume, (blocks + 1) * archive.header().block_bytes)?;
        let lock = Lock {
            volume: volume.to_owned(),
            serials,
            unix_ns,
            expires_unix_ns,
            note,
        };
        let opened = self.pool().open_volume_for(&copy, "a lock");
        let opened = opened.map_err(OpenError::from)?;
        let copied = archive.copy(&client, &opened, lock.clone());
        drop(opened);
        if copied.is_err()
            && let Err(error) = self.pool().delete_volume(&copy)
        {
            tracing::warn!(volume = copy, %error, "a lock that failed could not be deleted");
        }
        let missing = copied?;
        if expires_unix_ns.is_some() {
            self.looks().look_at(&copy);
        }
        let bytes = Bytes(blocks * archive.header().block_bytes);
        Ok((LockedCopy { copy, lock, bytes }, missing))
    }

    /// Creates the volume of a lock, with the first free number.
    fn create_copy(&self, volume: &str, bytes: u64) -> Result<String, LockError> {
        let names: Vec<String> = self
            .pool()
            .volumes()
            .into_iter()
            .map(|of| of.name)
            .collect();
        let mut numbers = (1_u64..).map(|number| format!("{volume}.lock-{number}"));
        let name = numbers
            .find(|name| !names.contains(name))
            .unwrap_or_default();
        let spec = VolumeSpec {
            name: name.clone(),
            size: Bytes(bytes),
            placement: Placement::default(),
        };
        self.pool().create_volume(&spec).map_err(OpenError::from)?;
        Ok(name)
    }

    /// The lock that a volume is, if it is one.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn lock_of(&self, volume: &str) -> Result<Option<LockedCopy>, OpenError> {
        let opened = self.pool().open_volume_for(volume, "recordings")?;
        let record = Archive::read_record(&*self.client()?, &opened)?;
        let lock = record.and_then(|of| of.lock);
        Ok(lock.map(|lock| LockedCopy {
            copy: volume.to_owned(),
            bytes: opened.size(),
            lock,
        }))
    }

    /// All locks. A volume that cannot be read is left out.
    #[must_use]
    pub fn locks(&self) -> Vec<LockedCopy> {
        let volumes = self.pool().volumes().into_iter();
        volumes
            .filter_map(|of| self.lock_of(&of.name).ok().flatten())
            .collect()
    }

    /// Deletes a lock and its copy.
    ///
    /// # Errors
    /// When the volume is not a lock, or is in use.
    pub fn unlock(&self, copy: &str) -> Result<LockedCopy, LockError> {
        let lock = self.lock_of(copy)?;
        let lock = lock.ok_or_else(|| LockError::NoLock(copy.to_owned()))?;
        self.pool().delete_volume(copy).map_err(OpenError::from)?;
        Ok(lock)
    }

    /// Refuses to delete a recording of which a part is locked.
    pub(super) fn check_not_locked(
        &self,
        volume: &str,
        recording: &Recording,
    ) -> Result<(), ArchiveError> {
        let locks = self.locks().into_iter();
        let mut of_volume = locks.filter(|of| of.lock.volume == volume);
        let serials = recording.first..recording.end;
        let is_of = |of: &LockedCopy| {
            of.lock.serials.start < serials.end && serials.start < of.lock.serials.end
        };
        match of_volume.find(is_of) {
            Some(of) => Err(ArchiveError::Locked {
                volume: of.copy,
                note: of.lock.note,
            }),
            None => Ok(()),
        }
    }
}
