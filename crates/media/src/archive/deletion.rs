//! What goes from an archive before it is overwritten: recordings that are deleted, and what is older or more than is to
//! be kept.
//!
//! The steps of a change, and what a crash between them leaves, are said in [`keeping`](crate::archive::keeping).

use super::*;

impl Archive {
    /// Whether something of a recording is there.
    #[must_use]
    pub fn is_there(&self, number: u64) -> bool {
        let state = self.state();
        let place = state.recordings.partition_point(|of| of.number < number);
        let oldest = state.oldest();
        state
            .recordings
            .get(place)
            .filter(|of| of.number == number)
            .is_some_and(|of| state.gone.after(of.first.max(oldest)) < of.end)
    }

    /// How much is kept.
    #[must_use]
    pub fn retention(&self) -> RetentionLimits {
        self.kept().keep
    }

    /// How much is kept in a volume, and whether something was deleted there, without opening the archive in it; `None`:
    /// there is none.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn peek(
        client: &Client,
        volume: &Volume,
    ) -> Result<Option<(RetentionLimits, bool)>, ArchiveError> {
        let head = volume.block_status(0..HEADER_BYTES as u64, 1);
        if head.first().is_none_or(|run| run.hole) {
            return Ok(None);
        }
        let bytes = Self::head(client, volume)?;
        let Ok(header) = Header::parse(&bytes) else {
            return Ok(None);
        };
        let reader = Reader {
            client,
            volume,
            header,
            geometry: Geometry::new(header.blocks),
        };
        let (kept, _) = reader.kept()?;
        Ok(Some((kept.keep, !kept.gone.ranges().is_empty())))
    }

    /// Deletes a recording: it is durable that it is gone when this returns. Who plays it has a proper end.
    ///
    /// # Errors
    /// When there is none of that number, it goes on, or that cannot be written.
    pub fn delete(&self, client: &Client, number: u64) -> Result<Recording, ArchiveError> {
        let mut kept = self.kept();
        let volume = || self.volume.name().to_owned();
        let found = self.recording(Some(number));
        let state = self.state();
        if state.is_recorded && state.number == number {
            return Err(ArchiveError::GoesOn {
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
        let mut changed = kept.clone();
        changed.gone.add(0..oldest);
        changed.gone.add(found.first..found.end);
        changed.last_number = changed.last_number.max(number);
        self.write(client, &mut kept, changed)?;
        self.discard(client, found.first..found.end);
        Ok(found)
    }

    /// Whether so little can be kept in blocks of that size.
    ///
    /// # Errors
    /// When it cannot.
    pub fn check_retention(
        volume: &str,
        keep: RetentionLimits,
        block: Bytes,
    ) -> Result<(), ArchiveError> {
        let least = Bytes(BLOCKS_MIN * block.get());
        match keep.size.is_some_and(|size| size < least) {
            true => Err(ArchiveError::LittleKept {
                volume: volume.to_owned(),
                least,
            }),
            false => Ok(()),
        }
    }

    /// Says how much is kept from now on. What has gone does not come back.
    ///
    /// # Errors
    /// When it is too little, or cannot be written.
    pub fn set_retention(
        &self,
        client: &Client,
        keep: RetentionLimits,
    ) -> Result<(), ArchiveError> {
        Self::check_retention(self.volume.name(), keep, Bytes(self.header.block_bytes))?;
        let mut kept = self.kept();
        let oldest = self.state().oldest();
        let mut changed = RetentionRecord {
            keep,
            ..kept.clone()
        };
        changed.gone.add(0..oldest);
        self.write(client, &mut kept, changed)
    }

    /// How much of what is there would go at once if so much were kept, beside what goes by what is kept now; `None`: nothing.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn would_go(
        &self,
        client: &Client,
        keep: RetentionLimits,
        now: wall_clock::Instant,
    ) -> Result<Option<Bytes>, ArchiveError> {
        let anyway = self.blocks_beyond(client, self.retention(), now)?;
        let blocks = self.blocks_beyond(client, keep, now)?;
        let blocks = blocks.saturating_sub(anyway);
        Ok((blocks > 0).then_some(Bytes(blocks * self.header.block_bytes)))
    }

    /// How many blocks are older or more than that.
    fn blocks_beyond(
        &self,
        client: &Client,
        keep: RetentionLimits,
        now: wall_clock::Instant,
    ) -> Result<u64, ArchiveError> {
        let by_age = match keep.age {
            Some(age) => self.younger(client, now, age.get())?.0,
            None => 0,
        };
        let state = self.state();
        let by_size = blocks_of(keep, &self.header);
        let by_size = by_size.map_or(0, |most| state.gone.oldest_of(state.next, most));
        let until = by_age.max(by_size);
        let there = state.recordings.iter().filter_map(|of| state.there(of));
        let blocks = there.map(|of| until.clamp(of.first, of.end) - of.first);
        Ok(blocks.sum())
    }

    /// Lets go of what is older or more than is kept now; when the next of it will be too old, in nanoseconds since 1970,
    /// if that is known.
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
            let (serial, ends_ns) = self.younger(client, now, age.get())?;
            until = serial;
            next_ns = ends_ns.map(|ends| ends.saturating_add(age.get()));
        }
        let mut kept = self.kept();
        let state = self.state();
        let until = until.max(state.oldest());
        let overwritten = state.geometry.oldest(state.next);
        let number = state.recordings.last().map_or(0, |of| of.number);
        drop(state);
        let was = kept.gone.after(0);
        if until > was.max(overwritten) {
            let mut changed = kept.clone();
            changed.gone.add(0..until);
            changed.last_number = changed.last_number.max(number);
            self.write(client, &mut kept, changed)?;
            self.discard(client, was..until);
        }
        Ok(next_ns)
    }

    /// Discards again what has been deleted: a crash may have come before it.
    pub fn discard_gone(&self, client: &Client) {
        let ranges = self.kept().gone.ranges().to_vec();
        ranges
            .into_iter()
            .for_each(|range| self.discard(client, range));
    }

    /// The first block that has ended since so long ago, and when it did.
    fn younger(
        &self,
        client: &Client,
        now: wall_clock::Instant,
        age_ns: u64,
    ) -> Result<(u64, Option<u64>), ArchiveError> {
        let (mut until, mut floor) = (0, 0);
        let earliest = now.unix_ns.saturating_sub(age_ns);
        let recordings = self.recordings();
        let begun_here = self.state().begun;
        for (place, recording) in recordings.iter().enumerate() {
            let serials = recording.first..recording.end;
            let mut last = None;
            // One that is damaged does not say; those before it end a little earlier.
            for serial in serials.rev().take(LOOK_BEHIND as usize) {
                last = self.ends_unix_ns(client, recording, serial)?;
                if last.is_some() {
                    break;
                }
            }
            // How much earlier it was than it says, by a clock that was set: of one that was begun here that is known.
            let said = match begun_here {
                Some((number, at)) if number == recording.number => {
                    i128::from(recording.begun_unix_ns) - i128::from(now.unix_ns_at(at))
                }
                _ => 0,
            };
            let less = |ends: u64, by: i128| {
                let ends = (i128::from(ends) - by).max(0);
                u64::try_from(ends).unwrap_or(u64::MAX)
            };
            let next = recordings.get(place + 1).map(|next| next.begun_unix_ns);
            let ahead = last.map_or(said, |ends| {
                said + wall_clock::ahead_ns(less(ends, said), floor, next, now.unix_ns)
            });
            let is_early = |ends: u64| less(ends, ahead) <= earliest;
            if let Some(ends) = last.filter(|ends| is_early(*ends)) {
                floor = less(ends, ahead);
                until = recording.end;
                continue;
            }
            let (mut from, mut to) = (recording.first, recording.end - 1);
            let mut ends = last;
            while from < to {
                let middle = from + (to - from) / 2;
                match self.ends_unix_ns(client, recording, middle)? {
                    Some(early) if is_early(early) => from = middle + 1,
                    late => (to, ends) = (middle, late),
                }
            }
            return Ok((from, ends.map(|ends| less(ends, ahead))));
        }
        Ok((until, None))
    }

    /// When the last packet of a block came, or the first one of the next; `None`: it is damaged.
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

    /// How often what is remembered has changed.
    pub(crate) fn generation(&self) -> u64 {
        self.kept().generation
    }

    /// Replaces what is remembered, durably, and with it the ring.
    pub(super) fn write(
        &self,
        client: &Client,
        kept: &mut RetentionRecord,
        mut changed: RetentionRecord,
    ) -> Result<(), ArchiveError> {
        if changed.gone.ranges().len() > RANGES_MAX {
            return Err(ArchiveError::Gaps {
                volume: self.volume.name().to_owned(),
            });
        }
        changed.generation += 1;
        let written = client
            .flush(&self.volume)
            .and_then(|()| client.write_at(&self.volume, changed.at(), &changed.encode()))
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
        // The copy that was not written is the one before.
        state.is_ring_twice = kept.geometry == changed.geometry;
        state.gone = changed.gone.clone();
        state.most = blocks_of(changed.keep, &self.header);
        state.listeners.tell();
        *kept = changed;
        Ok(())
    }

    /// Gives back what lies in the places of these serials, as far as nothing else does or is about to. What cannot be is
    /// overwritten in its turn.
    fn discard(&self, client: &Client, serials: std::ops::Range<u64>) {
        let block_bytes = self.header.block_bytes;
        let mut at = serials.start;
        while at < serials.end {
            // Nobody writes to these places meanwhile, and they are not other ones.
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
