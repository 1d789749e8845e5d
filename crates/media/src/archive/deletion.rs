//! Deleting from an archive: single recordings, and blocks beyond the retention limits.
//!
//! The steps of a change and the effects of a crash are described in
//! [`retention_record`](super::retention_record).

use super::*;

impl Archive {
    /// True if a recording has remaining blocks.
    #[must_use]
    pub fn is_there(&self, number: u64) -> bool {
        let state = self.state();
        let place = state.recordings.partition_point(|of| of.number < number);
        let oldest = state.oldest();
        state
            .recordings
            .get(place)
            .filter(|of| of.number == number)
            .is_some_and(|of| state.deleted.first_kept(of.first.max(oldest)) < of.end)
    }

    /// The retention limits in force.
    #[must_use]
    pub fn retention(&self) -> RetentionLimits {
        self.retention_record().keep
    }

    /// Deletes a recording durably. Its players get a proper end.
    ///
    /// # Errors
    /// When it does not exist, is being recorded, or cannot be deleted durably.
    pub fn delete(&self, client: &Client, number: u64) -> Result<Recording, ArchiveError> {
        let mut record = self.retention_record();
        self.check_unlocked(&record)?;
        let volume = || self.volume.name().to_owned();
        let found = self.recording(Some(number));
        let state = self.state();
        if state.is_recorded && state.number == number {
            return Err(ArchiveError::StillRecorded {
                volume: volume(),
                number,
            });
        }
        let oldest = state.oldest();
        drop(state);
        let found = found.ok_or_else(|| ArchiveError::NoSuch {
            volume: volume(),
            number,
        })?;
        let mut changed = record.clone();
        changed.gone.add(0..oldest);
        changed.gone.add(found.first..found.end);
        changed.last_number = changed.last_number.max(number);
        self.write_record(client, &mut record, changed)?;
        self.discard(client, found.first..found.end);
        Ok(found)
    }

    /// Checks that the limits retain at least [`BLOCKS_MIN`] blocks of this size.
    ///
    /// # Errors
    /// When they do not.
    pub fn check_retention(
        volume: &str,
        keep: RetentionLimits,
        block: Bytes,
    ) -> Result<(), ArchiveError> {
        let least = Bytes(BLOCKS_MIN * block.get());
        match keep.size.is_some_and(|size| size < least) {
            true => Err(ArchiveError::SizeLimitTooSmall {
                volume: volume.to_owned(),
                least,
            }),
            false => Ok(()),
        }
    }

    /// Changes the retention limits durably. Raising a limit does not bring deleted blocks back.
    ///
    /// # Errors
    /// When the limits are too small, or cannot be written.
    pub fn set_retention(
        &self,
        client: &Client,
        keep: RetentionLimits,
    ) -> Result<(), ArchiveError> {
        Self::check_retention(self.volume.name(), keep, Bytes(self.header.block_bytes))?;
        let mut record = self.retention_record();
        self.check_unlocked(&record)?;
        let oldest = self.state().oldest();
        let mut changed = RetentionRecord {
            keep,
            ..record.clone()
        };
        changed.gone.add(0..oldest);
        self.write_record(client, &mut record, changed)
    }

    /// Bytes that these limits would delete at once, beyond those that the current limits delete; `None` for
    /// none.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn would_go(
        &self,
        client: &Client,
        keep: RetentionLimits,
        now: wall_clock::Instant,
    ) -> Result<Option<Bytes>, ArchiveError> {
        let anyway = self.blocks_beyond_limits(client, self.retention(), now)?;
        let blocks = self.blocks_beyond_limits(client, keep, now)?;
        let blocks = blocks.saturating_sub(anyway);
        Ok((blocks > 0).then_some(Bytes(blocks * self.header.block_bytes)))
    }

    /// Number of remaining blocks that the limits would delete.
    fn blocks_beyond_limits(
        &self,
        client: &Client,
        keep: RetentionLimits,
        now: wall_clock::Instant,
    ) -> Result<u64, ArchiveError> {
        let by_age = match keep.age {
            Some(age) => self.first_within_age(client, now, age.get())?.0,
            None => 0,
        };
        let state = self.state();
        let by_size = blocks_max(keep, &self.header);
        let by_size = by_size.map_or(0, |max| state.deleted.oldest_within(state.next, max));
        let until = by_age.max(by_size);
        let remaining = state.recordings.iter().filter_map(|of| state.remaining(of));
        let blocks = remaining.map(|of| until.clamp(of.first, of.end) - of.first);
        Ok(blocks.sum())
    }

    /// Deletes the blocks beyond the retention limits. Returns the time at which the next block is too old,
    /// in nanoseconds since 1970, if it is known.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn expire(
        &self,
        client: &Client,
        now: wall_clock::Instant,
    ) -> Result<Option<u64>, ArchiveError> {
        let keep = self.retention();
        let mut next_ns = None;
        let mut until = 0;
        if let Some(age) = keep.age {
            let (serial, ends_ns) = self.first_within_age(client, now, age.get())?;
            until = serial;
            next_ns = ends_ns.map(|ends| ends.saturating_add(age.get()));
        }
        let mut record = self.retention_record();
        let state = self.state();
        let until = until.max(state.oldest());
        let overwritten = state.geometry.oldest(state.next);
        let number = state.recordings.last().map_or(0, |of| of.number);
        drop(state);
        let deleted_until = record.gone.first_kept(0);
        if until > deleted_until.max(overwritten) {
            let mut changed = record.clone();
            changed.gone.add(0..until);
            changed.last_number = changed.last_number.max(number);
            self.write_record(client, &mut record, changed)?;
            self.discard(client, deleted_until..until);
        }
        Ok(next_ns)
    }

    /// Discards all deleted blocks again. A crash may have come between deleting and discarding.
    pub fn discard_deleted(&self, client: &Client) {
        let ranges = self.retention_record().gone.ranges().to_vec();
        ranges
            .into_iter()
            .for_each(|range| self.discard(client, range));
    }

    /// The first block that ended less than `age_ns` ago, and when it ended, in nanoseconds since 1970. Times
    /// are corrected for a host clock that was wrong when they were recorded, see [`wall_clock`].
    fn first_within_age(
        &self,
        client: &Client,
        now: wall_clock::Instant,
        age_ns: u64,
    ) -> Result<(u64, Option<u64>), ArchiveError> {
        let (mut until, mut floor) = (0, 0);
        let earliest = now.unix_ns.saturating_sub(age_ns);
        let recordings = self.recordings();
        let last_begin = self.state().last_begin;
        for (place, recording) in recordings.iter().enumerate() {
            let serials = recording.first..recording.end;
            let mut last = None;
            // A damaged block has no time; the blocks before it ended a little earlier.
            for serial in serials.rev().take(LOOK_BEHIND as usize) {
                last = self.ends_unix_ns(client, recording, serial)?;
                if last.is_some() {
                    break;
                }
            }
            // Known only of the recording that was begun since the archive was opened: its start on the
            // monotonic clock tells how far ahead the host's clock was then, in nanoseconds.
            let start_ahead_ns = match last_begin {
                Some((number, at)) if number == recording.number => {
                    i128::from(recording.begun_unix_ns) - i128::from(now.unix_ns_at(at))
                }
                _ => 0,
            };
            let minus = |ends: u64, by: i128| {
                let ends = (i128::from(ends) - by).max(0);
                u64::try_from(ends).unwrap_or(u64::MAX)
            };
            let next = recordings.get(place + 1).map(|next| next.begun_unix_ns);
            let ahead_ns = last.map_or(start_ahead_ns, |ends| {
                let ends = minus(ends, start_ahead_ns);
                start_ahead_ns + wall_clock::ahead_ns(ends, floor, next, now.unix_ns)
            });
            let is_too_old = |ends: u64| minus(ends, ahead_ns) <= earliest;
            if let Some(ends) = last.filter(|ends| is_too_old(*ends)) {
                floor = minus(ends, ahead_ns);
                until = recording.end;
                continue;
            }
            let (mut from, mut to) = (recording.first, recording.end - 1);
            let mut ends = last;
            while from < to {
                let middle = from + (to - from) / 2;
                match self.ends_unix_ns(client, recording, middle)? {
                    Some(old) if is_too_old(old) => from = middle + 1,
                    recent => (to, ends) = (middle, recent),
                }
            }
            return Ok((from, ends.map(|ends| minus(ends, ahead_ns))));
        }
        Ok((until, None))
    }

    /// End time of a block in nanoseconds since 1970: when the first packet of the next block arrived, or
    /// else the last packet of this one. `None` if the block is damaged.
    fn ends_unix_ns(
        &self,
        client: &Client,
        recording: &Recording,
        serial: u64,
    ) -> Result<Option<u64>, ArchiveError> {
        let begun = recording.begun_unix_ns;
        if serial + 1 < recording.end
            && let Some(next) = self.trailer(client, serial + 1)?
        {
            return Ok(Some(begun.saturating_add(next.arrival_ns)));
        }
        let bytes = self.read_block(client, serial)?;
        let block = bytes.as_deref().and_then(|bytes| Block::parse(bytes).ok());
        let last = block.and_then(|block| {
            let packets = (0..block.len()).filter_map(|number| block.packet(number));
            packets.map(|(entry, _)| entry.arrival_ns).max()
        });
        Ok(last.map(|last| begun.saturating_add(last)))
    }

    /// Generation of the retention record, which grows with each change.
    pub(crate) fn generation(&self) -> u64 {
        self.retention_record().generation
    }

    /// Replaces the retention record durably, then applies it to the state: deleted ranges, limits and
    /// geometry.
    pub(super) fn write_record(
        &self,
        client: &Client,
        record: &mut RetentionRecord,
        mut changed: RetentionRecord,
    ) -> Result<(), ArchiveError> {
        if changed.gone.ranges().len() > RANGES_MAX {
            return Err(ArchiveError::TooManyGaps {
                volume: self.volume.name().to_owned(),
            });
        }
        changed.generation += 1;
        let written = client
            .flush(&self.volume)
            .and_then(|()| client.write_at(&self.volume, changed.offset(), &changed.encode()))
            .and_then(|()| client.flush(&self.volume));
        written.map_err(|error| ArchiveError::Io {
            volume: self.volume.name().to_owned(),
            error,
        })?;
        let mut writer = self.writer();
        let mut state = self.state();
        if writer.pending.take().is_some() {
            self.settled.notify_all();
        }
        if let Some(geometry) = changed.geometry {
            state.geometry = geometry;
        }
        // The other copy is the previous record.
        state.is_geometry_in_both_copies = record.geometry == changed.geometry;
        state.deleted = changed.gone.clone();
        state.blocks_max = blocks_max(changed.keep, &self.header);
        state.listeners.tell();
        *record = changed;
        Ok(())
    }

    /// Discards the places of these blocks, except places that have been reused or are about to be. If that
    /// fails, the blocks stay on the disks until they are overwritten.
    fn discard(&self, client: &Client, serials: std::ops::Range<u64>) {
        let block_bytes = self.header.block_bytes;
        let mut at = serials.start;
        while at < serials.end {
            // While this is locked, no place is handed to the writer and the geometry stays as it is.
            let writer = self.writer();
            let geometry = self.geometry();
            let from = at.max(geometry.oldest(writer.next));
            let place = geometry.place(from).unwrap_or_default();
            let round_end = from + (geometry.blocks - place);
            let end = serials.end.min(round_end).min(from + DISCARD_BLOCKS);
            if from < end {
                let offset = Bytes((place + 1) * block_bytes);
                let len = Bytes((end - from) * block_bytes);
                let request = VolumeRequest::command(&self.volume, VolumeOp::Discard, offset, len);
                let done = client.execute(request).map(|done| done.result);
                let failed = match done {
                    Ok(Ok(())) => None,
                    Ok(Err(error)) => Some(error.to_string()),
                    Err(error) => Some(error.to_string()),
                };
                if let Some(error) = failed {
                    let volume = self.volume.name();
                    tracing::warn!(volume, %error, "deleted blocks could not be discarded");
                    return;
                }
            }
            drop(writer);
            at = end;
        }
    }
}
