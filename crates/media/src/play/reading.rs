//! What a playback asks the disks for, and at which rate.

use std::collections::VecDeque;
use std::ops::Range;

use engine::buffer::Buffer;
use engine::clock;
use engine::stream::Wish;
use sched::units::Bytes;

use super::{Ask, Current, PlayError, Playback};
use crate::archive::block::{Block, Entry, Kind};
use crate::session::Scale;
use crate::session::demand::{LOOK_EVERY, Seen};

impl Playback<'_> {
    /// The first block is next if it has been read already: it is sent from the buffer that it was read into, which is one
    /// of those that blocks are read into, and is given back like them.
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

    /// A block is there, and what of it is to be sent is next.
    pub(super) fn begin_block(
        &mut self,
        (serial, key): Ask,
        buffer: Buffer,
    ) -> Result<(), PlayError> {
        let (archive, track) = (self.archive, self.manner.track);
        let within = self.within.take().filter(|(of, _)| *of == serial);
        let (skip, begins) = match (key, within) {
            (None, _) => (std::mem::take(&mut self.skip), false),
            (Some(key), None) if key.serial == serial => (key.packet as usize, true),
            (Some(_), None) => (0, false),
            (Some(_), Some((_, packet))) => (packet, true),
        };
        let read = buffer.with(|bytes| {
            let block = Block::parse(bytes).ok();
            let block = block.filter(|block| archive.is_of(&block.trailer, serial))?;
            let seen = Seen {
                arrival_ns: block.trailer.arrival_ns,
                media_ns: block.trailer.media_ns,
                packets: block.len() as u64,
                missing: 0,
            };
            let frame = key.map(|_| (track, begins));
            let is_taken = self.takes(&block);
            Some(is_taken.then(|| (packets_of(&block, skip, frame), seen)))
        })?;
        // What is of a recording that is not played is not missing.
        let is_left_out = matches!(read, Some(None));
        let (packets, seen) = read.flatten().unzip();
        if !is_left_out {
            self.note_read(seen, key.is_none());
        }
        self.current = Some(Current {
            serial,
            key,
            buffer,
            packets: packets.unwrap_or_default(),
        });
        Ok(())
    }

    /// A block was read, which is `None` if it was not what it should be.
    fn note_read(&mut self, seen: Option<Seen>, is_whole: bool) {
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

    /// Has the rate follow what is read, where all of it is.
    pub(super) fn negotiate(&mut self) {
        let speed = self.manner.speed;
        let Some((demand, negotiation)) = self.follows.as_mut().filter(|_| self.keys.is_none())
        else {
            return;
        };
        let now = clock::now();
        // What is reserved is more than what is played takes while it is read ahead.
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

    /// Whether the recording goes on.
    pub(super) fn is_live(&self) -> bool {
        self.archive.goes_on(&self.recording)
    }

    /// Asks for as many blocks as there are buffers and blocks.
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
                // It is gone since the recording was looked at.
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

    /// Whether the stream's range reaches so far. If not, it is made as long as the archive is, and whoever waits for the
    /// disks is woken when that is done.
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
        let wish = Wish {
            end: Some(Bytes(self.archive.range().end)),
            ..Wish::default()
        };
        self.change = Some(
            self.changer
                .clone()
                .begin(wish)
                .map_err(PlayError::Thread)?,
        );
        Ok(false)
    }

    /// The next block to be asked for, if there is one now.
    fn next_block(&mut self) -> Result<Option<Ask>, PlayError> {
        loop {
            let next = self.next_of_recording()?;
            if next.is_some() || !self.read_on() {
                return Ok(next);
            }
        }
    }

    /// The same of the recording that is read.
    fn next_of_recording(&mut self) -> Result<Option<Ask>, PlayError> {
        if self.is_passed {
            self.parts.clear();
            return Ok(None);
        }
        let (archive, reader) = (self.archive, &self.reader);
        let Some(keys) = &mut self.keys else {
            // What has been overwritten meanwhile is passed over.
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
            // It is where it was, when all of it has been sent.
            (self.next_ask, self.skip) = (key.serial, key.packet as usize);
            let blocks = key.serial..key.end.unwrap_or(key.serial) + 1;
            self.parts.extend(blocks.map(|serial| (serial, Some(key))));
        }
        Ok(self.parts.pop_front())
    }
}

/// The packets of a block, from one on; or those of a track's frame, which begins with it or goes on.
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
