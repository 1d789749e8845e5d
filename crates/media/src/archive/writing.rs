//! The active recording: the serials of its blocks, and their places.

use std::time::{Duration, Instant};

use super::*;

/// Longest wait of a writer at the end of the ring for a check that may make it longer.
const CHECK_WAIT_MAX: Duration = Duration::from_secs(1);

impl Archive {
    /// Starts a recording. Until the result is dropped, no other recording can start in the archive.
    ///
    /// # Errors
    /// When a recording is being made.
    pub fn record(self: &Arc<Self>) -> Result<ActiveRecording, ArchiveError> {
        // Waits for a resize to end: the caller reserves a stream for the ring's range.
        let record = self.retention_record();
        self.check_unlocked(&record)?;
        let mut state = self.state();
        if state.is_recorded {
            return Err(ArchiveError::Busy(self.volume.name().to_owned()));
        }
        state.is_recorded = true;
        let last = state.recordings.last().map_or(0, |last| last.number);
        let number = last.max(state.last_number) + 1;
        state.number = number;
        state.forget(number);
        let follows = state.last_end.take();
        let first = state.next;
        drop(state);
        // A previous recording may have got places for later blocks and not have written them.
        self.writer().next = first;
        drop(record);
        Ok(ActiveRecording {
            archive: Arc::clone(self),
            number,
            first,
            begun_unix_ns: 0,
            written: Vec::new(),
            ends: VecDeque::new(),
            follows,
            end: GapCause::Server,
            announcement: None,
        })
    }
}

/// A recording that has begun or ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordingChange {
    /// Its volume.
    pub volume: String,
    /// Its number.
    pub number: u64,
    /// True if it has begun, false if it has ended.
    pub has_begun: bool,
}

/// Is called with each recording that begins or ends.
pub(super) type RecordingListener = dyn Fn(RecordingChange) + Send + Sync;

/// Tells a listener that a recording has begun. Dropping it tells the end.
struct Announcement {
    change: RecordingChange,
    listener: Arc<RecordingListener>,
}

impl Announcement {
    fn tell_begin(&mut self) {
        self.change.has_begun = true;
        (self.listener)(self.change.clone());
    }
}

impl std::fmt::Debug for Announcement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = f.debug_struct("Announcement");
        text.field("change", &self.change).finish_non_exhaustive()
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        if std::mem::take(&mut self.change.has_begun) {
            (self.listener)(self.change.clone());
        }
    }
}

/// Handle of the active recording. Dropping it ends the recording.
#[derive(Debug)]
pub struct ActiveRecording {
    archive: Arc<Archive>,
    number: u64,
    first: u64,
    begun_unix_ns: u64,
    /// Serials of written blocks that follow one that is not written yet.
    written: Vec<u64>,
    /// Serials and ends of blocks that cannot be read yet, in nanoseconds of the recording's time.
    ends: VecDeque<(u64, u64)>,
    /// Why the previous recording ended, if that is known.
    follows: Option<GapCause>,
    /// Why it ends.
    end: GapCause,
    /// Dropped after the end is in the archive's state.
    announcement: Option<Box<Announcement>>,
}

impl ActiveRecording {
    /// Has a listener called when it begins and ends.
    pub(super) fn heard_by(mut self, listener: &Arc<RecordingListener>) -> Self {
        self.announcement = Some(Box::new(Announcement {
            change: RecordingChange {
                volume: self.archive.volume.name().to_owned(),
                number: self.number,
                has_begun: false,
            },
            listener: Arc::clone(listener),
        }));
        self
    }

    /// The archive that it is recorded in.
    #[must_use]
    pub fn archive(&self) -> &Arc<Archive> {
        &self.archive
    }

    /// The recording's number.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Serial of its first block.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The recording begins at this time, in nanoseconds since 1970 and on the monotonic clock, through a
    /// stream that is reserved for the archive's range. From this call on, the ring may be resized.
    pub fn begin(&mut self, now_unix_ns: u64, now: Time, recorder: Changer) {
        self.begun_unix_ns = now_unix_ns;
        let mut state = self.archive.state();
        state.last_begin = Some((self.number, now));
        state.recorder = Some(recorder);
        drop(state);
        if self.archive.retention().changes_length() {
            self.archive.request_check();
        }
        if let Some(announcement) = &mut self.announcement {
            announcement.tell_begin();
        }
    }

    /// Start time in nanoseconds since 1970.
    #[must_use]
    pub fn begun_unix_ns(&self) -> u64 {
        self.begun_unix_ns
    }

    /// Why the previous recording of the archive ended; `None` if it ended before the archive was opened.
    #[must_use]
    pub fn follows(&self) -> Option<GapCause> {
        self.follows
    }

    /// The recording ends for this reason.
    pub fn ends(&mut self, cause: GapCause) {
        self.end = cause;
    }

    /// Allocates the places of the recording's blocks.
    #[must_use]
    pub fn placer(&self) -> PlaceAllocator {
        PlaceAllocator {
            archive: Arc::clone(&self.archive),
            first: self.first,
        }
    }

    /// Sets the section in the making about the current group's full blocks.
    pub fn indexed(&self, index: Arc<Index>) {
        self.archive.set_so_far(self.number, index);
    }

    /// The block of this serial ends at a time, in nanoseconds of the recording's time.
    pub fn sealed(&mut self, serial: u64, ends_ns: u64) {
        self.ends.push_back((serial, ends_ns));
    }

    /// The blocks have this description from now on.
    pub fn describe(&self, description: &Arc<Description>) {
        let mut state = self.archive.state();
        let described = state.described.as_ref();
        let is_known = described
            .is_some_and(|(of, known)| *of == self.number && Arc::ptr_eq(known, description));
        if !is_known {
            state.described = Some((self.number, Arc::clone(description)));
        }
    }

    /// Notes that `count` blocks from the `index`th block of the recording on have been written. A block
    /// becomes readable when it and all blocks before it are written; it is durable after the next flush.
    pub fn written(&mut self, index: u64, count: u64) {
        let serial = self.first + index;
        self.written.extend(serial..serial + count);
        let mut state = self.archive.state();
        while let Some(place) = self.written.iter().position(|of| *of == state.next) {
            self.written.swap_remove(place);
            state.next += 1;
        }
        let end = state.next;
        if end == self.first {
            return;
        }
        while let Some((serial, ends_ns)) = self.ends.pop_front_if(|(of, _)| *of < end) {
            state.note_end(self.number, serial + 1, ends_ns);
        }
        match state
            .recordings
            .last_mut()
            .filter(|last| last.number == self.number)
        {
            Some(last) => last.end = end,
            None => {
                // Drop recordings that have gone, which lookups would otherwise pass each time.
                let mut recordings = std::mem::take(&mut state.recordings);
                recordings.retain(|of| state.remaining(of).is_some());
                recordings.push(Recording {
                    number: self.number,
                    first: self.first,
                    end,
                    begun_unix_ns: self.begun_unix_ns,
                });
                state.recordings = recordings;
            }
        }
        state.listeners.tell();
    }
}

/// Allocates the places of the active recording's blocks, in order.
#[derive(Debug)]
pub struct PlaceAllocator {
    archive: Arc<Archive>,
    first: u64,
}

impl PlaceAllocator {
    /// Allocates the place of the recording's `index`th block, which is then handed to the disks, and returns
    /// its offset in the archive's range. From this call on, the block that was there before counts as
    /// overwritten.
    ///
    /// Waits while a resize that moves this place becomes durable. At the end of the ring it also waits, for
    /// at most [`CHECK_WAIT_MAX`], for a check that may make the ring longer.
    ///
    /// # Panics
    /// If the block is before the base of the ring. This does not happen: a ring is resized only to a base up
    /// to which all blocks are written ([`resize`](Archive::resize)), and a recording begins after them.
    pub fn place(&self, index: u64) -> Bytes {
        let (archive, serial) = (&self.archive, self.first + index);
        let mut writer = archive.writer();
        let until = Instant::now() + CHECK_WAIT_MAX;
        let (place, is_check_due) = loop {
            let mut state = archive.state();
            let place = state.geometry.place(serial);
            let is_at_end = place == Some(0) && serial > state.geometry.base;
            let left = until.saturating_duration_since(Instant::now());
            let waits_for_check = is_at_end && writer.is_check_pending && !left.is_zero();
            let is_settled = writer.pending.is_none_or(|to| to.place(serial) == place);
            if is_settled && waits_for_check {
                drop(state);
                let checked = archive.settled.wait_timeout(writer, left);
                writer = checked.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            if is_settled {
                let is_check_due = state.check_at.is_some_and(|at| at <= serial);
                state.check_at.take_if(|_| is_check_due);
                break (place, is_check_due);
            }
            drop(state);
            let settled = archive.settled.wait(writer);
            writer = settled.unwrap_or_else(PoisonError::into_inner);
        };
        writer.next = serial + 1;
        writer.is_check_pending |= is_check_due;
        drop(writer);
        if is_check_due {
            archive.request_check();
        }
        let place = place.expect("a recording begins after the base of its ring");
        Bytes(place * archive.header.block_bytes)
    }
}

impl Drop for ActiveRecording {
    fn drop(&mut self) {
        let mut state = self.archive.state();
        state.is_recorded = false;
        state.recorder = None;
        if state.next > self.first {
            state.last_end = Some(self.end);
        }
        state.listeners.tell();
    }
}
