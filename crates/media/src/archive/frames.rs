//! The frames of a time, one by one, as the entries of their packets say: of a block no more is read than these.

use super::*;
use crate::archive::block::{Entry, Kind};

/// A frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Its number in its recording, from 0, as far as those before it are known; `None`: no section says.
    pub number: Option<u64>,
    /// When it is to be played, in nanoseconds of the recording.
    pub media_ns: u64,
    /// When its first packet came, in nanoseconds of the recording.
    pub arrival_ns: u64,
    /// The serial of the block that it begins in.
    pub serial: u64,
    /// The packet in it that it begins with.
    pub packet: u32,
    /// Where in that block its first packet's body begins.
    pub offset: u64,
    /// Packets of it.
    pub packets: u32,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Whether it can be decoded alone.
    pub is_key: bool,
    /// Packets that are missing within it, and before it.
    pub lost: u64,
}

/// So many are listed at a time.
pub const FRAMES_MAX: usize = 100_000;

/// The frames of a time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Frames {
    /// Of which track.
    pub track: u8,
    /// In the order in which they were sent.
    pub frames: Vec<Frame>,
    /// Blocks that are damaged or gone.
    pub missing: u64,
    /// Whether there are more than [so many](FRAMES_MAX), and no more were looked for.
    pub are_too_many: bool,
}

impl Archive {
    /// The frames that begin in these blocks of a recording and are to be played in these times; a read for each block, a
    /// second one where its packets are small, and for the rest of the last frame.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn frames(
        &self,
        client: &Client,
        recording: &Recording,
        serials: std::ops::Range<u64>,
        times: &std::ops::Range<u64>,
    ) -> Result<Frames, ArchiveError> {
        let mut all = Frames::default();
        let Some(track) = self.track(client, recording, serials.clone())? else {
            all.missing = serials.count() as u64;
            return Ok(all);
        };
        all.track = track;
        let mut number = None;
        let mut open: Option<Frame> = None;
        // A frame of which nothing comes for long is over.
        let behind = recording.end.min(serials.end.saturating_add(GROUP));
        for serial in serials.start..behind {
            if all.frames.len() > FRAMES_MAX || serial >= serials.end && open.is_none() {
                break;
            }
            if number.is_none() {
                number = self.frames_before(client, recording, serial)?;
            }
            let Some(block) = self.packets(client, recording, serial)? else {
                all.missing += 1;
                (number, open) = (None, all.take(open.take(), times));
                continue;
            };
            let mut offset = 0;
            for (packet, (entry, len)) in (0..).zip(&block.packets) {
                let len = *len as u64;
                let begins_at = offset;
                offset += len;
                if entry.track != track || entry.kind != Kind::Rtp {
                    continue;
                }
                if entry.begins_frame {
                    open = all.take(open.take(), times);
                    if serial >= serials.end {
                        break;
                    }
                    open = Some(Frame {
                        number,
                        media_ns: entry.media_ns,
                        arrival_ns: entry.arrival_ns,
                        serial,
                        packet,
                        offset: begins_at,
                        packets: 0,
                        bytes: 0,
                        is_key: false,
                        lost: 0,
                    });
                    number = number.map(|number| number + 1);
                }
                if let Some(open) = &mut open {
                    open.packets += 1;
                    open.bytes += len;
                    if entry.is_key && !open.is_key {
                        // As the index has it.
                        (open.is_key, open.media_ns) = (true, entry.media_ns);
                    }
                    open.lost += u64::from(entry.lost);
                }
            }
        }
        all.take(open, times);
        all.are_too_many = all.frames.len() > FRAMES_MAX;
        Ok(all)
    }

    /// What is noted of the packets of a block, with no more of it read than that; `None`: it is damaged or gone.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn entries(
        &self,
        client: &Client,
        recording: &Recording,
        serial: u64,
    ) -> Result<Option<Vec<Entry>>, ArchiveError> {
        let block = self.packets(client, recording, serial)?;
        Ok(block.map(|of| of.packets.into_iter().map(|(entry, _)| entry).collect()))
    }

    /// How many frames of a recording are before a block, as its section of the index says.
    fn frames_before(
        &self,
        client: &Client,
        recording: &Recording,
        serial: u64,
    ) -> Result<Option<u64>, ArchiveError> {
        let Some(index) = self.index_so_far_of(client, recording, serial)? else {
            return Ok(None);
        };
        // One that was lost, and is rebuilt without one before it, says none.
        if index.frames == 0 && !self.begins_with(client, serial, index.first)? {
            return Ok(None);
        }
        let before = (index.first..serial).zip(&index.records);
        let before = before.map(|(_, of)| u64::from(of.frames)).sum::<u64>();
        Ok(Some(index.frames + before))
    }

    /// Whether the recording of a block began with that other one.
    fn begins_with(&self, client: &Client, serial: u64, first: u64) -> Result<bool, ArchiveError> {
        let trailer = self.trailer(client, serial)?;
        Ok(trailer.is_some_and(|of| of.first == first))
    }
}

impl Frames {
    /// One that is over, if it is of these times; none is open then.
    fn take(&mut self, frame: Option<Frame>, times: &std::ops::Range<u64>) -> Option<Frame> {
        self.frames
            .extend(frame.filter(|frame| times.contains(&frame.media_ns)));
        None
    }
}
