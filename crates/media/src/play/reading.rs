//! Blocks that a playback requests, and the rate that it reserves.

use std::collections::VecDeque;
use std::ops::Range;

use engine::buffer::Buffer;
use engine::clock;
use engine::stream::StreamChange;
use sched::units::Bytes;

use super::{BlockRequest, CurrentBlock, PlayError, Playback};
use crate::archive::block::{Block, Entry, Kind};
use crate::session::Scale;
use crate::session::demand::{BlockSample, LOOK_EVERY};

impl Playback<'_> {
    /// Takes the first block if the search for the beginning has read it. Its buffer is one of the stream's
    /// and is given back like the others.
    pub(super) fn take_first(&mut self) -> Result<bool, PlayError> {
        let Some((serial, buffer)) = self.first.take() else {
            return Ok(false);
        };
        let next = match self.beyond.take() {
            Some(next) => Some(next),
            None => self.next_block()?,
        };
        match next {
            Some(next) if next.0 == serial => {
                self.begin_block(next, buffer)?;
                Ok(true)
            }
            other => {
                self.beyond = other;
                self.reader.give_back(buffer);
                Ok(false)
            }
        }
    }

    /// Makes a block that has been read the current one.
    pub(super) fn begin_block(
        &mut self,
        (serial, key): BlockRequest,
        buffer: Buffer,
    ) -> Result<(), PlayError> {
        let (archive, track) = (self.archive, self.manner.track);
        let (skip, begins) = match key {
            None => (std::mem::take(&mut self.skip), false),
            Some(key) if key.serial == serial => (key.packet as usize, true),
            Some(_) => (0, false),
        };
        let read = buffer.with(|bytes| {
            let block = Block::parse(bytes).ok();
            let block = block.filter(|block| archive.is_of(&block.trailer, serial))?;
            let seen = BlockSample {
                arrival_ns: block.trailer.arrival_ns,
                media_ns: block.trailer.media_ns,
                packets: block.len() as u64,
                missing: 0,
            };
            let frame = key.map(|_| (track, begins));
            let is_taken = self.takes(&block);
            Some(is_taken.then(|| (packets_of(&block, skip, frame), seen)))
        })?;
        // A block of a recording that is not played is not missing.
        let is_left_out = matches!(read, Some(None));
        let (packets, seen) = read.flatten().unzip();
        if !is_left_out {
            self.note_read(seen, key.is_none());
        }
        self.current = Some(CurrentBlock {
            serial,
            buffer,
            packets: packets.unwrap_or_default(),
        });
        Ok(())
    }

    /// Counts a block that was read; `None` if it was damaged or overwritten.
    fn note_read(&mut self, seen: Option<BlockSample>, is_whole: bool) {
        self.seen = seen
            .map(|seen| (seen.arrival_ns, seen.media_ns))
            .or(self.seen);
        self.missing += u64::from(seen.is_none());
        let Some((demand, negotiation)) = &mut self.follows else {
            return;
        };
        if let Some(seen) = seen.filter(|_| is_whole) {
            demand.block(seen);
        }
        let buffers = self.reader.use_of_buffers();
        let missing = self.missing;
        negotiation.member().count(|counts| {
            counts.use_buffers(buffers);
            counts.lost = missing;
        });
    }

    /// Adapts the reserved rate to the blocks that are read, unless only key frames are.
    pub(super) fn negotiate(&mut self) {
        let speed = self.manner.speed;
        let Some((demand, negotiation)) = self.follows.as_mut().filter(|_| self.keys.is_none())
        else {
            return;
        };
        let now = clock::now();
        // While it reads ahead it has reserved more than playing takes.
        if now < self.look_at || self.reader.is_to_read_ahead() {
            return;
        }
        self.look_at = now.saturating_add(LOOK_EVERY);
        let as_it_was = |rate| speed.as_it_was(rate);
        if let Some(outcome) = negotiation.outcome() {
            if outcome.is_ok() {
                let rate = as_it_was(self.stream.rate());
                negotiation.member().promise(rate);
            }
            demand.answered(now, outcome.map_err(|fits| fits.map(as_it_was)));
        }
        let scale = self.manner.scale;
        if scale != Scale::ONE {
            return;
        }
        if let Some(rate) = demand.look(now, as_it_was(self.stream.rate()))
            && let Err(fits) = negotiation.ask(speed.of_rate(rate))
        {
            demand.answered(now, Err(fits));
        }
    }

    /// Returns true if the recording is still being made.
    pub(super) fn is_live(&self) -> bool {
        self.archive.goes_on(&self.recording)
    }

    /// Requests blocks while there are buffers and blocks.
    pub(super) fn ask(&mut self) -> Result<(), PlayError> {
        if let Some(now) = self.archive.recording(Some(self.recording.number)) {
            self.recording = now;
        }
        self.reader.more_follow(true);
        while self.asked.len() < self.reader.buffers() {
            let next = match self.beyond.take() {
                Some(next) => next,
                None => match self.next_block()? {
                    Some(next) => next,
                    None => {
                        self.reader.more_follow(false);
                        break;
                    }
                },
            };
            let Some(offset) = self.archive.offset(next.0) else {
                // It has been overwritten since the recording was looked up.
                self.missing += 1;
                continue;
            };
            if !self.reaches(offset)? {
                self.beyond = Some(next);
                break;
            }
            self.reader.ask(offset);
            self.asked.push_back(next);
        }
        Ok(())
    }

    /// Returns true if the reserved range includes the block at this offset. If not, begins to extend it to
    /// the end of the archive; the end of that wakes the thread.
    fn reaches(&mut self, offset: Bytes) -> Result<bool, PlayError> {
        if let Some(change) = &self.change {
            match change.take() {
                None => return Ok(false),
                Some(changed) => drop(changed?),
            }
            self.change = None;
        }
        let reserved = self.changer.range();
        let end = offset.get() + self.archive.header().block_bytes;
        if reserved.start + end <= reserved.end {
            return Ok(true);
        }
        let wish = StreamChange {
            end: Some(Bytes(self.archive.range().end)),
            ..StreamChange::default()
        };
        self.change = Some(
            self.changer
                .clone()
                .begin(wish)
                .map_err(PlayError::Thread)?,
        );
        Ok(false)
    }

    /// The next block to be requested, if there is one yet.
    fn next_block(&mut self) -> Result<Option<BlockRequest>, PlayError> {
        loop {
            let next = self.next_of_recording()?;
            if next.is_some() || !self.read_on() {
                return Ok(next);
            }
        }
    }

    /// The next block of the recording that is read.
    fn next_of_recording(&mut self) -> Result<Option<BlockRequest>, PlayError> {
        if self.is_passed {
            self.parts.clear();
            return Ok(None);
        }
        let (archive, reader) = (self.archive, &self.reader);
        let Some(keys) = &mut self.keys else {
            // Skips what has been overwritten.
            self.next_ask = self.next_ask.max(self.recording.first);
            let serial = self.next_ask;
            let is_there = serial < self.recording.end;
            self.next_ask += u64::from(is_there);
            return Ok(is_there.then_some((serial, None)));
        };
        if self.parts.is_empty()
            && let Some(key) = keys.next_key(|first, blocks| {
                reader.time_for(archive.offset(first).unwrap_or_default(), blocks)
            })?
        {
            // The position is that of the key frame until the next one is chosen.
            (self.next_ask, self.skip) = (key.serial, key.packet as usize);
            let blocks = key.serial..key.end.unwrap_or(key.serial) + 1;
            self.parts.extend(blocks.map(|serial| (serial, Some(key))));
        }
        Ok(self.parts.pop_front())
    }
}

/// The packets of a block from number `from` on. With `frame`, a track and whether the frame begins with that
/// packet, only the packets of that frame.
fn packets_of(
    block: &Block<'_>,
    from: usize,
    frame: Option<(u8, bool)>,
) -> VecDeque<(usize, Entry, Range<usize>)> {
    let mut packets = VecDeque::new();
    for number in from..block.len() {
        let Some((entry, body)) = block.packet(number) else {
            continue;
        };
        if let Some((track, begins)) = frame {
            if entry.track != track || entry.kind != Kind::Rtp {
                continue;
            }
            if entry.begins_frame && !(begins && packets.is_empty()) {
                break;
            }
        }
        packets.push_back((number, entry, body));
    }
    packets
}
