//! The archives of a pool: opened when they are asked for, and each once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use engine::clock;
use engine::pool::{Pool, PoolError, Volume, VolumeInfo};
use engine::stream::Refusal;
use engine::volume_io::{Client, ClientOptions};
use sched::units::Bytes;

use crate::archive::block::Block;
use crate::archive::retention::RetentionSchedule;
use crate::archive::retention_record::{RetentionLimits, RetentionRecord};
use crate::archive::wall_clock;
use crate::archive::{Archive, ArchiveError, Before, Recording, Writing};
use crate::sdp::Description;
use crate::session::registry::SessionRegistry;

/// Blocks of a recording in which its description is looked for: any has it, and some may be damaged.
pub(crate) const DESCRIBED_WITHIN: usize = 4;

/// Of so many archives it is known which recordings they had when they were opened last. An archive that nobody uses is not
/// open, so that its volume can be deleted, and its recordings are not looked for anew each time that somebody comes.
const KNOWN_MAX: usize = 64;

/// Of so many recordings that have ended it is known what they consist of: who has a file of one by its segments asks for that
/// with each.
const DESCRIBED_MAX: usize = 64;

/// Why there is no archive.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The volume.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// What is in it.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// There is no such recording.
    #[error("volume {volume:?} has no recording {number}, or none any more")]
    NoRecording {
        /// Where.
        volume: String,
        /// Which.
        number: u64,
    },
    /// There is no memory to look.
    #[error(transparent)]
    Memory(#[from] Refusal),
}

/// What is open in a volume. It is locked while that is opened: two would both think that they know what is in it.
type Place = Arc<Mutex<Weak<Archive>>>;

/// What an archive had.
struct Known {
    volume: String,
    archive: [u8; 16],
    /// How often what is remembered in it had changed: what is older, as a volume that was restored, has other ones perhaps.
    generation: u64,
    before: Before,
}

/// A recording as it was when it ended: its archive, and itself.
type Ended = ([u8; 16], Recording);

/// The archives of a pool.
pub struct Archives {
    pool: Arc<Pool>,
    /// The size of the blocks of new archives.
    block: Bytes,
    /// Reads what is not played.
    client: Mutex<Option<Arc<Client>>>,
    /// By their volumes. Nobody waits for a disk who has locked it.
    places: Mutex<HashMap<String, Place>>,
    /// What archives had when they were opened last.
    known: Mutex<VecDeque<Known>>,
    /// What recordings consist of that have ended, the one that was asked for last behind the others.
    described: Mutex<VecDeque<(Ended, Description)>>,
    looks: Arc<RetentionSchedule>,
    registry: SessionRegistry,
    /// Whether somebody uses a volume as a disk: none of those becomes an archive.
    is_exported: fn(&VolumeInfo) -> bool,
}

/// A recording, and what it consists of.
#[derive(Clone, Debug)]
pub struct Described {
    /// Where it lies.
    pub recording: Recording,
    /// Its tracks; `None`: the blocks that could say are damaged.
    pub description: Option<Description>,
    /// How long it is, as much of it as is there, in nanoseconds.
    pub length_ns: u64,
    /// When it ends, in nanoseconds of its time.
    pub ends_ns: u64,
    /// Whether it goes on, or went on when it was looked up.
    pub is_recorded: bool,
}

/// What is open is open after any panic.
fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Archives {
    /// None is open yet; new ones have blocks of this size. A volume that is blank and exported is not made an
    /// archive.
    #[must_use]
    pub fn new(pool: Arc<Pool>, block: Bytes, is_exported: fn(&VolumeInfo) -> bool) -> Self {
        Self {
            pool,
            block,
            client: Mutex::default(),
            places: Mutex::default(),
            known: Mutex::default(),
            described: Mutex::default(),
            looks: Arc::default(),
            registry: SessionRegistry::default(),
            is_exported,
        }
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// When which of them are looked at for what is too old.
    #[must_use]
    pub fn looks(&self) -> &RetentionSchedule {
        &self.looks
    }

    /// Who has something reserved for them.
    #[must_use]
    pub fn registry(&self) -> &SessionRegistry {
        &self.registry
    }

    /// Where a volume's archive is once it is open.
    fn place(&self, volume: &str) -> Place {
        let mut places = locked(&self.places);
        if let Some(place) = places.get(volume) {
            return Arc::clone(place);
        }
        // Nobody opens what nobody else holds, as that takes this lock.
        places.retain(|_, place| Arc::strong_count(place) > 1 || locked(place).strong_count() > 0);
        Arc::clone(places.entry(volume.to_owned()).or_default())
    }

    /// Reads what is not played, without a deadline.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn client(&self) -> Result<Arc<Client>, Refusal> {
        let mut kept = locked(&self.client);
        if let Some(client) = &*kept {
            return Ok(Arc::clone(client));
        }
        let client = self.pool.client("recordings", ClientOptions::default())?;
        Ok(Arc::clone(kept.insert(Arc::new(client))))
    }

    /// What the archive in a volume had when it was opened last.
    fn known(&self, volume: &str, kept: &RetentionRecord) -> Before {
        let mut known = locked(&self.known);
        let place = known.iter().position(|of| of.volume == volume);
        let found = place.and_then(|place| known.remove(place));
        let is_it = |of: &Known| of.archive == kept.archive && of.generation <= kept.generation;
        let found = found.filter(is_it);
        found.map(|of| of.before).unwrap_or_default()
    }

    /// The archive in a volume; with `creates` a blank volume is made one with blocks of that size.
    ///
    /// # Errors
    /// When there is none.
    pub fn open(&self, volume: &str, creates: Option<Bytes>) -> Result<Arc<Archive>, OpenError> {
        let place = self.place(volume);
        let mut place = locked(&place);
        if let Some(open) = place.upgrade() {
            return Ok(open);
        }
        let opened = self.pool.open_volume_for(volume, "recordings")?;
        let client = self.client()?;
        let known = |kept: &RetentionRecord| self.known(volume, kept);
        let is_exported = (self.is_exported)(&self.pool.volume_info(volume)?);
        let archive = match creates {
            Some(_) if is_exported => match Archive::open_again(&client, opened, known) {
                Err(ArchiveError::Empty(volume)) => Err(ArchiveError::Exported(volume)),
                other => other,
            },
            Some(block) => Archive::open_or_create_again(&client, opened, block, known),
            None => Archive::open_again(&client, opened, known),
        };
        let mut archive = archive?;
        archive.looked_at_by(Arc::clone(&self.looks));
        let mut known = locked(&self.known);
        if known.len() == KNOWN_MAX {
            known.pop_front();
        }
        known.push_back(Known {
            volume: volume.to_owned(),
            archive: archive.header().archive,
            generation: archive.generation(),
            before: archive.before(),
        });
        drop(known);
        let archive = Arc::new(archive);
        *place = Arc::downgrade(&archive);
        Ok(archive)
    }

    /// Whether somebody records or plays what is in a volume, or looks at it at this moment.
    pub fn is_open(&self, volume: &str) -> bool {
        let place = locked(&self.places).get(volume).map(Arc::clone);
        place.is_some_and(|place| locked(&place).strong_count() > 0)
    }

    /// Whether there are recordings in a volume, or were: whoever writes anything else there destroys them.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn are_in(&self, volume: &Volume) -> Result<bool, OpenError> {
        if self.is_open(volume.name()) {
            return Ok(true);
        }
        Ok(Archive::is_in(&*self.client()?, volume)?)
    }

    /// A recording by its number, and its archive.
    ///
    /// # Errors
    /// When there is none.
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

    /// What a recording consists of.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn describe(
        &self,
        archive: &Archive,
        recording: Recording,
    ) -> Result<Described, OpenError> {
        let client = self.client()?;
        let description = self.description(&client, archive, recording)?;
        let extent = archive.extent(&client, &recording)?;
        Ok(Described {
            recording,
            description,
            length_ns: extent.end.saturating_sub(extent.start),
            ends_ns: extent.end,
            is_recorded: archive.went_on(&recording),
        })
    }

    /// The tracks of a recording; `None`: the blocks that could say are damaged.
    fn description(
        &self,
        client: &Client,
        archive: &Archive,
        recording: Recording,
    ) -> Result<Option<Description>, OpenError> {
        // However much of it has been overwritten.
        let ended = (
            archive.header().archive,
            Recording {
                first: 0,
                ..recording
            },
        );
        let known = {
            let mut described = locked(&self.described);
            let place = described.iter().position(|(of, _)| *of == ended);
            place.and_then(|place| described.remove(place))
        };
        let description = match known {
            Some((_, description)) => Some(description),
            None => read_description(client, archive, recording)?,
        };
        // What goes on is another one with each block.
        if let Some(description) = description
            .as_ref()
            .filter(|_| !archive.went_on(&recording))
        {
            let mut described = locked(&self.described);
            described.retain(|(of, _)| *of != ended);
            if described.len() == DESCRIBED_MAX {
                described.pop_front();
            }
            described.push_back((ended, description.clone()));
        }
        Ok(description)
    }

    /// All recordings of a volume, in order; of one that nothing was written to, none. Each takes some reads, so it is less
    /// than all if somebody does not wait for them any more.
    ///
    /// # Errors
    /// When it holds something else, or cannot be read.
    pub fn recordings(
        &self,
        volume: &str,
        is_waited_for: impl Fn() -> bool,
    ) -> Result<Vec<Described>, OpenError> {
        let archive = match self.open(volume, None) {
            Err(OpenError::Archive(ArchiveError::Empty(_))) => return Ok(Vec::new()),
            other => other?,
        };
        let recordings = archive.recordings().into_iter();
        recordings
            .take_while(|_| is_waited_for())
            .map(|recording| self.describe(&archive, recording))
            .collect()
    }
}

/// What the last blocks of a recording say of its tracks.
fn read_description(
    client: &Client,
    archive: &Archive,
    recording: Recording,
) -> Result<Option<Description>, ArchiveError> {
    let last = (recording.first..recording.end).rev();
    for serial in last.take(DESCRIBED_WITHIN) {
        let bytes = archive.read_block(client, serial)?;
        let said = bytes
            .as_deref()
            .and_then(|bytes| Description::parse(Block::parse(bytes).ok()?.text()).ok());
        if said.is_some() {
            return Ok(said);
        }
    }
    Ok(None)
}

impl Archives {
    /// Deletes a recording; what it was.
    ///
    /// # Errors
    /// When there is none of that number, it goes on, or that cannot be written.
    pub fn delete(&self, volume: &str, number: u64) -> Result<Described, OpenError> {
        let archive = match self.open(volume, None) {
            Err(OpenError::Archive(ArchiveError::Empty(volume))) => {
                return Err(ArchiveError::NoSuch { volume, number }.into());
            }
            other => other?,
        };
        let client = self.client()?;
        let described = archive.recording(Some(number));
        let described = described.map(|recording| self.describe(&archive, recording));
        let recording = archive.delete(&client, number)?;
        match described {
            Some(described) => described,
            None => self.describe(&archive, recording),
        }
    }

    /// Whether there is something in a volume that the server has to see to by itself.
    pub(crate) fn is_retained(&self, volume: &str) -> Result<bool, OpenError> {
        let opened = self.pool.open_volume_for(volume, "recordings")?;
        let client = self.client()?;
        let found = Archive::peek(&client, &opened)?;
        Ok(
            found
                .is_some_and(|(keep, is_deleted)| keep != RetentionLimits::default() || is_deleted),
        )
    }

    /// How much of what is recorded in a volume is kept.
    ///
    /// # Errors
    /// When nothing has been recorded there, or it cannot be read.
    pub fn retention(&self, volume: &str) -> Result<RetentionLimits, OpenError> {
        Ok(self.open(volume, None)?.retention())
    }

    /// Takes an archive for a recording, which is made longer before if it has little room and may be.
    ///
    /// # Errors
    /// When somebody else records there.
    pub fn record(&self, archive: &Arc<Archive>) -> Result<Writing, ArchiveError> {
        // What was made room for it is not cut again before it is known that somebody records.
        let _resizing = archive.resizing();
        self.make_room(archive);
        archive.record()
    }

    /// Changes how much of what is recorded in a volume is kept, also where nothing has been yet; how much it is then.
    ///
    /// # Errors
    /// When it holds something else, it is too little, or cannot be written; and when something would go at once by that,
    /// unless it is forced.
    pub fn set_retention(
        &self,
        volume: &str,
        is_forced: bool,
        change: impl Fn(RetentionLimits) -> RetentionLimits,
    ) -> Result<RetentionLimits, OpenError> {
        let archive = match self.open(volume, None) {
            Err(OpenError::Archive(ArchiveError::Empty(_))) => {
                // Nothing is made of it for what would be refused then.
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
            return Err(ArchiveError::WouldGo { volume, bytes }.into());
        }
        archive.set_retention(&client, keep)?;
        self.looks.look_at(volume);
        Ok(keep)
    }
}

impl std::fmt::Debug for Archives {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Archives").finish_non_exhaustive()
    }
}
