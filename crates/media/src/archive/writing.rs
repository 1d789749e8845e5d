//! A recording that is being made: which serials it has, and where they go.

use std::time::{Duration, Instant};

use super::*;

/// So long a writer waits at the end of the ring for what is being decided about it.
const LOOKED_AT_WITHIN: Duration = Duration::from_secs(1);

impl Archive {
    /// Takes the archive for a recording. Until it is dropped nobody else can have one made.
    ///
    /// # Errors
    /// When somebody else has.
    pub fn record(self: &Arc<Self>) -> Result<Writing, ArchiveError> {
        // While the ring becomes another one it is not known what has to be reserved.
        let kept = self.kept();
        let mut state = self.state();
        if state.is_recorded {
            return Err(ArchiveError::Busy(self.volume.name().to_owned()));
        }
        state.is_recorded = true;
        let last = state.recordings.last().map_or(0, |last| last.number);
        let number = last.max(state.last_number) + 1;
        state.number = number;
        state.forget(number);
        let first = state.next;
        drop(state);
        // Those that a recording before was told places of and has not written are its.
        self.writer().next = first;
        drop(kept);
        Ok(Writing {
            archive: Arc::clone(self),
            number,
            first,
            begun_unix_ns: 0,
            written: Vec::new(),
        })
    }
}

/// A recording that is being made.
#[derive(Debug)]
pub struct Writing {
    archive: Arc<Archive>,
    number: u64,
    first: u64,
    begun_unix_ns: u64,
    /// Blocks that are written behind one that is not.
    written: Vec<u64>,
}

impl Writing {
    /// Its archive.
    #[must_use]
    pub fn archive(&self) -> &Arc<Archive> {
        &self.archive
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The serial of its first block.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.first
    }

    /// It begins now, in nanoseconds since 1970 and by the clock that nobody sets, through a stream that is reserved for
    /// the archive's range. From now on the ring may become longer and shorter.
    pub fn begin(&mut self, now_unix_ns: u64, now: Time, recorder: Changer) {
        self.begun_unix_ns = now_unix_ns;
        let mut state = self.archive.state();
        state.begun = Some((self.number, now));
        state.recorder = Some(recorder);
        drop(state);
        if self.archive.retention().changes_length() {
            self.archive.look();
        }
    }

    /// When it began, in nanoseconds since 1970.
    #[must_use]
    pub fn begun_unix_ns(&self) -> u64 {
        self.begun_unix_ns
    }

    /// What says where its blocks go.
    #[must_use]
    pub fn placer(&self) -> Placer {
        Placer {
            archive: Arc::clone(&self.archive),
            first: self.first,
        }
    }

    /// What the index says of the blocks of a group that are full, the last of which is the last one that is.
    pub fn indexed(&self, index: Arc<Index>) {
        self.archive.keep_so_far(self.number, index);
    }

    /// So many blocks of it are on the disks, from the `index`th on: they can be played when those before them can.
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
        match state
            .recordings
            .last_mut()
            .filter(|last| last.number == self.number)
        {
            Some(last) => last.end = end,
            None => {
                // What has gone would be looked at by all who play, for as long as it is open.
                let mut recordings = std::mem::take(&mut state.recordings);
                recordings.retain(|of| state.there(of).is_some());
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

/// Says where the blocks of a recording go.
#[derive(Debug)]
pub struct Placer {
    archive: Arc<Archive>,
    first: u64,
}

impl Placer {
    /// The `index`th block is handed to the disks, and where in the archive's range it goes: what was there before
    /// is not touched from now on. Waits, where it would begin the ring again, while that is about to become another one,
    /// and for a moment while it is looked at whether it is to become longer.
    ///
    /// # Panics
    /// When the block is before the base of the ring, which cannot be: a ring is made another one only with a base up to
    /// which all blocks are written ([`resize`](Archive::resize)), and a recording begins behind those.
    pub fn place(&self, index: u64) -> Bytes {
        let (archive, serial) = (&self.archive, self.first + index);
        let mut writer = archive.writer();
        let until = Instant::now() + LOOKED_AT_WITHIN;
        let (place, is_due) = loop {
            let mut state = archive.state();
            let place = state.geometry.place(serial);
            let begins_again = place == Some(0) && serial > state.geometry.base;
            let left = until.saturating_duration_since(Instant::now());
            let waits = begins_again && writer.is_looked_at && !left.is_zero();
            let is_settled = writer.pending.is_none_or(|to| to.place(serial) == place);
            if is_settled && waits {
                drop(state);
                let looked = archive.settled.wait_timeout(writer, left);
                writer = looked.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            if is_settled {
                let is_due = state.look_at.is_some_and(|at| at <= serial);
                state.look_at.take_if(|_| is_due);
                break (place, is_due);
            }
            drop(state);
            let settled = archive.settled.wait(writer);
            writer = settled.unwrap_or_else(PoisonError::into_inner);
        };
        writer.next = serial + 1;
        writer.is_looked_at |= is_due;
        drop(writer);
        if is_due {
            archive.look();
        }
        let place = place.expect("a recording begins behind the base of its ring");
        Bytes(place * archive.header.block_bytes)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let mut state = self.archive.state();
        state.is_recorded = false;
        state.recorder = None;
        state.listeners.tell();
    }
}
