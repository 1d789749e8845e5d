//! Listing the frames of a time span from the entries of their packets, without reading the bodies.

use super::*;
use crate::archive::block::{Entry, Kind};

/// A frame, and where it lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Number in the recording, from 0. `None` if no section of the index says how many frames precede it.
    pub number: Option<u64>,
    /// When it is to be played, in nanoseconds of the recording's time.
    pub media_ns: u64,
    /// When its first packet arrived, in nanoseconds of the recording's time.
    pub arrival_ns: u64,
    /// Serial of the block that it begins in.
    pub serial: u64,
    /// Number of its first packet in that block.
    pub packet: u32,
    /// Offset in that block of its first packet's body.
    pub offset: u64,
    /// Number of packets.
    pub packets: u32,
    /// Bytes of the packets' bodies.
    pub bytes: u64,
    /// True if it can be decoded without other frames.
    pub is_key: bool,
    /// Packets that are missing before or within it.
    pub lost: u64,
}

/// The content of the first block of a recording before a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lead {
    /// True if packets of the track precede it.
    pub has_track: bool,
    /// The earliest time of the block's packets, in nanoseconds of the recording's time.
    pub earliest_ns: Option<u64>,
}

/// Most frames that are listed at a time.
pub const FRAMES_MAX: usize = 100_000;

/// The frames of a time span.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Frames {
    /// Track of the frames.
    pub track: u8,
    /// In sending order.
    pub frames: Vec<Frame>,
    /// Number of blocks that are damaged or have gone.
    pub missing: u64,
    /// True if the list ended early, after more than [`FRAMES_MAX`] frames.
    pub are_too_many: bool,
}

impl Archive {
    /// The frames that begin in these blocks of a recording and are to be played in `times`, in nanoseconds
    /// of the recording's time. It takes a read for each block, two where packets are small, and reads on for
    /// the rest of the last frame.
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
        // A last frame that does not end within a group's length is cut there.
        let read_end = recording.end.min(serials.end.saturating_add(GROUP));
        for serial in serials.start..read_end {
            if all.frames.len() > FRAMES_MAX || serial >= serials.end && open.is_none() {
                break;
            }
            if number.is_none() {
                number = self.frames_before(client, recording, serial)?;
            }
            let Some(block) = self.packets(client, recording, serial)? else {
                all.missing += 1;
                (number, open) = (None, all.finish(open.take(), times));
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
                    open = all.finish(open.take(), times);
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
                        // The index has the time of the packet that begins the key, too.
                        (open.is_key, open.media_ns) = (true, entry.media_ns);
                    }
                    open.lost += u64::from(entry.lost);
                }
            }
        }
        all.finish(open, times);
        all.are_too_many = all.frames.len() > FRAMES_MAX;
        Ok(all)
    }

    /// The entries of a block's packets, read without the bodies; `None` if it is damaged or has gone.
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

    /// The content of the first block of a recording before a packet; `None` if it is damaged or has gone.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn lead(
        &self,
        client: &Client,
        recording: &Recording,
        packet: u32,
        track: u8,
    ) -> Result<Option<Lead>, ArchiveError> {
        let key = (recording.first, packet, track);
        let cached = self.state().cache(recording.number).lead;
        if let Some((_, lead)) = cached.filter(|(of, _)| *of == key) {
            return Ok(Some(lead));
        }
        let Some(entries) = self.entries(client, recording, recording.first)? else {
            return Ok(None);
        };
        let packets = (0..).zip(&entries);
        let packets = packets.filter(|(_, entry)| entry.kind == Kind::Rtp);
        let lead = Lead {
            has_track: packets
                .clone()
                .any(|(number, entry)| number < packet && entry.track == track),
            earliest_ns: packets.map(|(_, entry)| entry.media_ns).min(),
        };
        self.state().cache(recording.number).lead = Some((key, lead));
        Ok(Some(lead))
    }

    /// Number of frames in a recording before a block; `None` if no section of the index says so.
    fn frames_before(
        &self,
        client: &Client,
        recording: &Recording,
        serial: u64,
    ) -> Result<Option<u64>, ArchiveError> {
        let Some(index) = self.index_so_far_of(client, recording, serial)? else {
            return Ok(None);
        };
        // A section that was rebuilt without the section before it counts from 0, although it is not the
        // first.
        if index.frames == 0 && !self.is_first_block(client, serial, index.first)? {
            return Ok(None);
        }
        let before = (index.first..serial).zip(&index.records);
        let before = before.map(|(_, of)| u64::from(of.frames)).sum::<u64>();
        Ok(Some(index.frames + before))
    }

    /// True if `first` is the first block of the recording that the block `serial` is in.
    fn is_first_block(
        &self,
        client: &Client,
        serial: u64,
        first: u64,
    ) -> Result<bool, ArchiveError> {
        let trailer = self.trailer(client, serial)?;
        Ok(trailer.is_some_and(|of| of.first == first))
    }
}

impl Frames {
    /// Lists a frame if its time is in `times`. Returns `None`, the new open frame.
    fn finish(&mut self, frame: Option<Frame>, times: &std::ops::Range<u64>) -> Option<Frame> {
        self.frames
            .extend(frame.filter(|frame| times.contains(&frame.media_ns)));
        None
    }
}
