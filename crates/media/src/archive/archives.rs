//! The archives of a pool. Each is opened on demand and shared while it is in use.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use engine::clock;
use engine::pool::{Pool, PoolError, Volume, VolumeInfo};
use engine::stream::Refusal;
use engine::volume_io::{Client, ClientOptions};
use sched::units::Bytes;

use crate::archive::block::Block;
use crate::archive::retention::RetentionSchedule;
use crate::archive::retention_record::{RetentionLimits, RetentionRecord};
use crate::archive::wall_clock;
use crate::archive::{
    ActiveRecording, Archive, ArchiveContents, ArchiveError, Recording, RecordingChange,
    RecordingListener,
};
use crate::live::LiveStreams;
use crate::sdp::Description;
use crate::session::registry::SessionRegistry;

/// Blocks of a recording that are tried for its description. Each block has it, but some may be damaged.
pub(crate) const DESCRIPTION_BLOCKS_MAX: usize = 4;

/// Archives whose contents are cached after they are closed. An unused archive is closed so that its volume
/// can be deleted; the cache saves a search when it is opened again.
const CACHED_ARCHIVES_MAX: usize = 64;

/// Ended recordings whose descriptions are cached: a player of HLS asks for one with each segment.
const CACHED_DESCRIPTIONS_MAX: usize = 64;

/// Reason why an archive or a recording cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The volume cannot be opened.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The archive cannot be opened, read or written.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The recording does not exist.
    #[error("volume {volume:?} has no recording {number}; it may have been deleted or overwritten")]
    NoRecording {
        /// Name of the volume.
        volume: String,
        /// Number of the recording.
        number: u64,
    },
    /// There is no memory for a client of the disks.
    #[error(transparent)]
    Memory(#[from] Refusal),
}

/// The open archive of a volume. Locked while it is opened, so that no volume is opened twice.
type ArchiveSlot = Arc<Mutex<Weak<Archive>>>;

/// Contents of an archive when it was opened last.
struct CachedArchive {
    volume: String,
    archive: [u8; 16],
    /// Generation of the retention record. A higher one than the volume has now means that the volume was
    /// restored from a copy, and the cached contents do not apply.
    generation: u64,
    contents: ArchiveContents,
}

/// An archive and a recording in it that has ended; the recording's `first` is 0.
type RecordingKey = ([u8; 16], Recording);

/// The archives of a pool.
pub struct Archives {
    pool: Arc<Pool>,
    /// Block size of new archives.
    block: Bytes,
    /// Reads without a deadline; made at first use.
    client: Mutex<Option<Arc<Client>>>,
    /// By volume. Not locked during reads of a disk.
    slots: Mutex<HashMap<String, ArchiveSlot>>,
    /// Ordered by when they were opened.
    cached: Mutex<VecDeque<CachedArchive>>,
    /// Descriptions of ended recordings, the most recently used last.
    descriptions: Mutex<VecDeque<(RecordingKey, Description)>>,
    schedule: Arc<RetentionSchedule>,
    registry: SessionRegistry,
    live: Arc<LiveStreams>,
    /// Gets each recording that begins or ends, if it is set.
    listener: OnceLock<Arc<RecordingListener>>,
    /// Returns true if a volume is exported as a disk; such a volume does not become an archive.
    is_exported: fn(&VolumeInfo) -> bool,
}

/// A recording with its description and times.
#[derive(Clone, Debug)]
pub struct RecordingInfo {
    /// The remaining part of the recording.
    pub recording: Recording,
    /// Its tracks; `None` if the blocks that were tried for them are damaged.
    pub description: Option<Description>,
    /// Duration of the remaining part, in nanoseconds.
    pub length_ns: u64,
    /// End in nanoseconds of the recording's time.
    pub ends_ns: u64,
    /// True if it is being recorded, or was when it was looked up.
    pub is_recorded: bool,
}

/// The guarded values are valid after a panic.
fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Archives {
    /// Manages the archives of a pool; new ones get blocks of `block` bytes. A blank volume for which
    /// `is_exported` returns true is not made an archive.
    #[must_use]
    pub fn new(pool: Arc<Pool>, block: Bytes, is_exported: fn(&VolumeInfo) -> bool) -> Self {
        Self {
            pool,
            block,
            client: Mutex::default(),
            slots: Mutex::default(),
            cached: Mutex::default(),
            descriptions: Mutex::default(),
            schedule: Arc::default(),
            registry: SessionRegistry::default(),
            live: Arc::default(),
            listener: OnceLock::new(),
            is_exported,
        }
    }

    /// Calls `listener` with each recording that begins or ends from now on, on the thread that records: it must not
    /// wait. Only the first call has an effect.
    pub fn listen(&self, listener: impl Fn(RecordingChange) + Send + Sync + 'static) {
        let _ = self.listener.set(Arc::new(listener));
    }

    /// The block size of new archives.
    #[must_use]
    pub fn new_block(&self) -> Bytes {
        self.block
    }

    /// The pool that the volumes belong to.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The retention thread's queue.
    #[must_use]
    pub fn looks(&self) -> &RetentionSchedule {
        &self.schedule
    }

    /// The sessions that record or play.
    #[must_use]
    pub fn registry(&self) -> &SessionRegistry {
        &self.registry
    }

    /// The streams that arrive now.
    #[must_use]
    pub fn live(&self) -> &Arc<LiveStreams> {
        &self.live
    }

    fn slot(&self, volume: &str) -> ArchiveSlot {
        let mut slots = locked(&self.slots);
        if let Some(slot) = slots.get(volume) {
            return Arc::clone(slot);
        }
        // A slot with one owner is not being opened: that takes another reference, which is made under this
        // lock.
        slots.retain(|_, slot| Arc::strong_count(slot) > 1 || locked(slot).strong_count() > 0);
        Arc::clone(slots.entry(volume.to_owned()).or_default())
    }

    /// The client for reads without a deadline.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn client(&self) -> Result<Arc<Client>, Refusal> {
        let mut slot = locked(&self.client);
        if let Some(client) = &*slot {
            return Ok(Arc::clone(client));
        }
        let client = self.pool.client("recordings", ClientOptions::default())?;
        Ok(Arc::clone(slot.insert(Arc::new(client))))
    }

    /// Takes the cached contents of the archive in a volume, if they apply to its retention record.
    fn take_cached(&self, volume: &str, record: &RetentionRecord) -> ArchiveContents {
        let mut cached = locked(&self.cached);
        let place = cached.iter().position(|of| of.volume == volume);
        let found = place.and_then(|place| cached.remove(place));
        let applies =
            |of: &CachedArchive| of.archive == record.archive && of.generation <= record.generation;
        let found = found.filter(applies);
        found.map(|of| of.contents).unwrap_or_default()
    }

    /// Opens the archive in a volume. With `creates` it is opened to be recorded to: a blank volume becomes an archive
    /// with blocks of that size, and an archive of an earlier version is upgraded.
    ///
    /// # Errors
    /// When the volume has no archive, or cannot be read or written.
    pub fn open(&self, volume: &str, creates: Option<Bytes>) -> Result<Arc<Archive>, OpenError> {
        let slot = self.slot(volume);
        let mut slot = locked(&slot);
        if let Some(open) = slot.upgrade() {
            if creates.is_some() {
                open.upgrade(&*self.client()?)?;
            }
            return Ok(open);
        }
        let opened = self.pool.open_volume_for(volume, "recordings")?;
        let client = self.client()?;
        let cached = |record: &RetentionRecord| self.take_cached(volume, record);
        let is_exported = (self.is_exported)(&self.pool.volume_info(volume)?);
        let archive = match creates {
            Some(_) if is_exported => match Archive::open_cached(&client, opened, cached) {
                Err(ArchiveError::Empty(volume)) => Err(ArchiveError::Exported(volume)),
                other => other,
            },
            Some(block) => Archive::open_or_create_cached(&client, opened, block, cached),
            None => Archive::open_cached(&client, opened, cached),
        };
        let mut archive = archive?;
        if creates.is_some() {
            archive.upgrade(&client)?;
        }
        archive.set_schedule(Arc::clone(&self.schedule));
        let mut cached = locked(&self.cached);
        if cached.len() == CACHED_ARCHIVES_MAX {
            cached.pop_front();
        }
        cached.push_back(CachedArchive {
            volume: volume.to_owned(),
            archive: archive.header().archive,
            generation: archive.generation(),
            contents: archive.contents(),
        });
        drop(cached);
        let archive = Arc::new(archive);
        *slot = Arc::downgrade(&archive);
        Ok(archive)
    }

    /// True while somebody records to the volume, plays from it or otherwise uses its archive.
    pub fn is_open(&self, volume: &str) -> bool {
        let slot = locked(&self.slots).get(volume).map(Arc::clone);
        slot.is_some_and(|slot| locked(&slot).strong_count() > 0)
    }

    /// True if a volume has an archive, even one without recordings. Other writes to the volume would destroy
    /// it.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn are_in(&self, volume: &Volume) -> Result<bool, OpenError> {
        if self.is_open(volume.name()) {
            return Ok(true);
        }
        Ok(Archive::is_archive(&*self.client()?, volume)?)
    }

    /// The recording with this number, and its archive.
    ///
    /// # Errors
    /// When the recording does not exist.
    pub fn recording(
        &self,
        volume: &str,
        number: u64,
    ) -> Result<(Arc<Archive>, Recording), OpenError> {
        let archive = self.open(volume, None)?;
        let recording = archive.recording(Some(number));
        let recording = recording.ok_or_else(|| OpenError::NoRecording {
            volume: volume.to_owned(),
            number,
        })?;
        Ok((archive, recording))
    }

    /// The description and the times of a recording.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn describe(
        &self,
        archive: &Archive,
        recording: Recording,
    ) -> Result<RecordingInfo, OpenError> {
        let client = self.client()?;
        let description = self.description(&client, archive, recording)?;
        let extent = archive.extent(&client, &recording)?;
        Ok(RecordingInfo {
            recording,
            description,
            length_ns: extent.end.saturating_sub(extent.start),
            ends_ns: extent.end,
            is_recorded: archive.went_on(&recording),
        })
    }

    /// The tracks of a recording; `None` if the blocks that were tried for them are damaged.
    fn description(
        &self,
        client: &Client,
        archive: &Archive,
        recording: Recording,
    ) -> Result<Option<Description>, OpenError> {
        if let Some(described) = archive.described(recording.number) {
            return Ok(Some(Description::clone(&described)));
        }
        // The key must not change when blocks are overwritten.
        let key = (
            archive.header().archive,
            Recording {
                first: 0,
                ..recording
            },
        );
        let cached = {
            let mut descriptions = locked(&self.descriptions);
            let place = descriptions.iter().position(|(of, _)| *of == key);
            place.and_then(|place| descriptions.remove(place))
        };
        let description = match cached {
            Some((_, description)) => Some(description),
            None => read_description(client, archive, recording)?,
        };
        // While it is recorded, the key changes with each block.
        if let Some(description) = description
            .as_ref()
            .filter(|_| !archive.went_on(&recording))
        {
            let mut descriptions = locked(&self.descriptions);
            descriptions.retain(|(of, _)| *of != key);
            if descriptions.len() == CACHED_DESCRIPTIONS_MAX {
                descriptions.pop_front();
            }
            descriptions.push_back((key, description.clone()));
        }
        Ok(description)
    }

    /// Describes all recordings of a volume, in order; none if the volume is blank. Each takes some reads. The active
    /// one is listed from its first key frame on, without blocks at first.
    /// The list ends early when `is_waited_for` returns false, as when the client has gone.
    ///
    /// # Errors
    /// When the volume has other content, or cannot be read.
    pub fn recordings(
        &self,
        volume: &str,
        is_waited_for: impl Fn() -> bool,
    ) -> Result<Vec<RecordingInfo>, OpenError> {
        let archive = match self.open(volume, None) {
            Err(OpenError::Archive(ArchiveError::Empty(_))) => return Ok(Vec::new()),
            other => other?,
        };
        let begun = self.begun_recording(&archive).map(Ok);
        let recordings = archive.recordings().into_iter();
        recordings
            .take_while(|_| is_waited_for())
            .map(|recording| self.describe(&archive, recording))
            .chain(begun)
            .collect()
    }

    /// The description and the times of a recording by its number, and its archive; also of the active one that has no
    /// block on the disks yet.
    ///
    /// # Errors
    /// When the recording does not exist or cannot be read.
    pub fn describe_number(
        &self,
        volume: &str,
        number: u64,
    ) -> Result<(Arc<Archive>, RecordingInfo), OpenError> {
        let archive = self.open(volume, None)?;
        let begun = self.begun_recording(&archive);
        if let Some(begun) = begun.filter(|of| of.recording.number == number) {
            return Ok((archive, begun));
        }
        let (archive, recording) = self.recording(volume, number)?;
        let info = self.describe(&archive, recording)?;
        Ok((archive, info))
    }

    /// The active recording of an archive, if it can be played live and nothing of it is on the disks yet.
    fn begun_recording(&self, archive: &Archive) -> Option<RecordingInfo> {
        let feed = self.live.get(archive.volume().name())?;
        let number = feed.recording().filter(|_| feed.has_picture())?;
        let next = archive.state().next;
        archive
            .recording(Some(number))
            .is_none()
            .then(|| RecordingInfo {
                recording: Recording {
                    number,
                    first: next,
                    end: next,
                    begun_unix_ns: feed.begun_unix_ns(),
                },
                description: Some(feed.description().clone()),
                length_ns: feed.newest_ns(),
                ends_ns: feed.newest_ns(),
                is_recorded: true,
            })
    }
}

/// The description in the last intact block of a recording.
fn read_description(
    client: &Client,
    archive: &Archive,
    recording: Recording,
) -> Result<Option<Description>, ArchiveError> {
    let last = (recording.first..recording.end).rev();
    for serial in last.take(DESCRIPTION_BLOCKS_MAX) {
        let bytes = archive.read_block(client, serial)?;
        let description = bytes
            .as_deref()
            .and_then(|bytes| Description::parse(Block::parse(bytes).ok()?.text()).ok());
        if description.is_some() {
            return Ok(description);
        }
    }
    Ok(None)
}

impl Archives {
    /// Deletes a recording and returns what it was.
    ///
    /// # Errors
    /// When it does not exist, is being recorded, or cannot be deleted durably.
    pub fn delete(&self, volume: &str, number: u64) -> Result<RecordingInfo, OpenError> {
        let archive = match self.open(volume, None) {
            Err(OpenError::Archive(ArchiveError::Empty(volume))) => {
                return Err(ArchiveError::NoSuch { volume, number }.into());
            }
            other => other?,
        };
        let client = self.client()?;
        if let Some(recording) = archive.recording(Some(number)) {
            self.check_not_locked(volume, &recording)?;
        }
        let described = archive.recording(Some(number));
        let described = described.map(|recording| self.describe(&archive, recording));
        let recording = archive.delete(&client, number)?;
        match described {
            Some(described) => described,
            None => self.describe(&archive, recording),
        }
    }

    /// True if the retention thread has something to do in a volume.
    pub(crate) fn needs_retention(&self, volume: &str) -> Result<bool, OpenError> {
        let opened = self.pool.open_volume_for(volume, "recordings")?;
        let client = self.client()?;
        let found = Archive::read_record(&client, &opened)?;
        Ok(found.is_some_and(|record| {
            let expires = record
                .lock
                .is_some_and(|lock| lock.expires_unix_ns.is_some());
            let is_deleted = !record.gone.ranges().is_empty();
            record.keep != RetentionLimits::default() || is_deleted || expires
        }))
    }

    /// The retention limits of a volume.
    ///
    /// # Errors
    /// When the volume has no archive or cannot be read.
    pub fn retention(&self, volume: &str) -> Result<RetentionLimits, OpenError> {
        Ok(self.open(volume, None)?.retention())
    }

    /// Starts a recording in an archive. If there is little room and the limits allow it, the ring is made
    /// longer first.
    ///
    /// # Errors
    /// When something is already being recorded there.
    pub fn record(&self, archive: &Arc<Archive>) -> Result<ActiveRecording, ArchiveError> {
        // Held so that new room is not given back before the archive counts as recorded to.
        let _resizing = archive.resizing();
        self.make_room(archive);
        let recording = archive.record()?;
        Ok(match self.listener.get() {
            Some(listener) => recording.heard_by(listener),
            None => recording,
        })
    }

    /// Changes the retention limits of a volume, also of a blank one, and returns the new limits.
    ///
    /// # Errors
    /// When the volume has other content or cannot be written, or the limits are too small. Without
    /// `is_forced`, also when something would be deleted at once.
    pub fn set_retention(
        &self,
        volume: &str,
        is_forced: bool,
        change: impl Fn(RetentionLimits) -> RetentionLimits,
    ) -> Result<RetentionLimits, OpenError> {
        let archive = match self.open(volume, None) {
            Err(OpenError::Archive(ArchiveError::Empty(_))) => {
                // Check first: a volume must not become an archive for a change that is refused.
                Archive::check_retention(volume, change(RetentionLimits::default()), self.block)?;
                self.open(volume, Some(self.block))?
            }
            other => other?,
        };
        let client = self.client()?;
        let keep = change(archive.retention());
        let now = wall_clock::Instant {
            unix_ns: wall_clock::now_unix_ns(),
            at: clock::now(),
        };
        if !is_forced && let Some(bytes) = archive.would_go(&client, keep, now)? {
            let volume = volume.to_owned();
            return Err(ArchiveError::WouldDelete { volume, bytes }.into());
        }
        archive.set_retention(&client, keep)?;
        self.schedule.look_at(volume);
        Ok(keep)
    }
}

impl std::fmt::Debug for Archives {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Archives").finish_non_exhaustive()
    }
}
