//! Finding the position from which a time of a recording can be decoded: a key frame.
//!
//! The [index](crate::archive::index) names it: the section about the time is read, and then the block to
//! begin with, which is played from the buffer it was read into. For the group that is being recorded the
//! section in the making is used. Without an index, the blocks themselves are searched.

use std::ops::Range;
use std::sync::Arc;

use engine::buffer::Buffer;
use engine::stream::Stream;
use engine::volume_io::Client;

use crate::archive::block::{Block, Entry, Kind};
use crate::archive::index::{GROUP, Index, Key, KeyCoverage};
use crate::archive::{Archive, ArchiveError, Recording};

/// Blocks before the wanted one that are searched for a key frame.
pub const KEY_BLOCKS_MAX: u64 = 16;

/// A position in a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Start {
    /// Serial of the block.
    pub serial: u64,
    /// Number of the packet in the block.
    pub packet: usize,
    /// Time of the packet, in nanoseconds of the recording's time.
    pub media_ns: u64,
}

impl From<Key> for Start {
    /// The beginning of a key frame.
    fn from(key: Key) -> Self {
        Self {
            serial: key.serial,
            packet: key.packet as usize,
            media_ns: key.media_ns,
        }
    }
}

/// A position in a recording of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Number of the recording.
    pub recording: u64,
    /// Position in the recording.
    pub start: Start,
}

/// A position to begin at, and its block if it was read to find the position.
#[derive(Debug, Default)]
pub struct Found {
    /// The position.
    pub start: Start,
    /// The block, in a buffer of the stream that is to play it.
    pub block: Option<Buffer>,
    /// True if it is the beginning of a key frame.
    pub is_key: bool,
}

impl Found {
    /// Calls `reader` with the position's block, which is read for the stream if that has not happened.
    /// `None` if the block is damaged or has gone.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn look_into<R>(
        &mut self,
        archive: &Archive,
        stream: &Stream,
        reader: impl FnOnce(&Block<'_>) -> R,
    ) -> Result<Option<R>, ArchiveError> {
        if self.block.is_none() {
            self.block = archive.read_block_for(stream, self.start.serial)?;
        }
        match &self.block {
            Some(block) => archive.with_block(block, reader),
            None => Ok(None),
        }
    }
}

impl From<Start> for Found {
    /// A position that is not known to be a key frame.
    fn from(start: Start) -> Self {
        Self {
            start,
            ..Self::default()
        }
    }
}

/// A search for a position in an archive's blocks.
#[derive(Clone, Copy)]
struct Search<'a> {
    archive: &'a Archive,
    client: &'a Client,
    /// The stream that is to play from the position; its buffers are used.
    stream: Option<&'a Stream>,
}

impl Search<'_> {
    /// Calls `find` with a block. Returns its result, and the buffer with the block if there is a stream.
    /// `None` if nothing is found, or the block is damaged or has gone.
    fn in_block<R>(
        &self,
        serial: u64,
        find: impl FnOnce(&Block<'_>) -> Option<R>,
    ) -> Result<Option<(R, Option<Buffer>)>, ArchiveError> {
        let Some(stream) = self.stream else {
            let bytes = self.archive.read_block(self.client, serial)?;
            let block = bytes.as_deref().and_then(|bytes| Block::parse(bytes).ok());
            return Ok(block.and_then(|of| find(&of)).map(|found| (found, None)));
        };
        let Some(buffer) = self.archive.read_block_for(stream, serial)? else {
            return Ok(None);
        };
        let found = self.archive.with_block(&buffer, find)?.flatten();
        Ok(found.map(|found| (found, Some(buffer))))
    }
}

/// The last key frame of a track up to a time of a recording. If the index names all keys, or the first and
/// the last one of each block, this reads the section of the index about the time, unless it is cached, and
/// the block to begin with at most. The block is read into a buffer of `stream`, if there is one.
///
/// If no key frame is found, the result is the start of the block with this time.
///
/// # Errors
/// When the recording cannot be read.
pub fn start_at(
    archive: &Archive,
    client: &Client,
    recording: &Recording,
    media_ns: u64,
    track: usize,
    stream: Option<&Stream>,
) -> Result<Found, ArchiveError> {
    let search = Search {
        archive,
        client,
        stream,
    };
    if let Some(found) = start_from_index(search, recording, media_ns, track)? {
        return Ok(found);
    }
    let wanted = archive.block_at(client, recording, media_ns)?;
    let earliest = wanted.saturating_sub(KEY_BLOCKS_MAX).max(recording.first);
    for serial in (earliest..=wanted).rev() {
        let found = search.in_block(serial, |block| key_before(block, media_ns, track))?;
        if let Some(((packet, media_ns), block)) = found {
            let start = Start {
                serial,
                packet,
                media_ns,
            };
            return Ok(Found {
                start,
                block,
                is_key: true,
            });
        }
    }
    let start = Start {
        serial: wanted,
        packet: 0,
        media_ns,
    };
    Ok(start.into())
}

/// As [`start_at`], from the index alone; `None` if the index does not tell.
fn start_from_index(
    search: Search<'_>,
    recording: &Recording,
    media_ns: u64,
    track: usize,
) -> Result<Option<Found>, ArchiveError> {
    let Search {
        archive, client, ..
    } = search;
    let is_useful =
        |index: &Arc<Index>| usize::from(index.track) == track && index.named != KeyCoverage::Some;
    let index = archive.index_so_far_at(client, recording, media_ns)?;
    let Some(index) = index.filter(is_useful) else {
        return Ok(None);
    };
    if let Some(found) = last_key_of_group(search, recording, media_ns, &index)? {
        return Ok(Some(found));
    }
    if let Some(found) = key_before_group(search, recording, media_ns, &index)? {
        return Ok(Some(found));
    }
    let Some(before) = archive.index_before(client, recording, &index)? else {
        // There is no earlier block that can be read: begin with frames that cannot be decoded.
        let start = Start {
            serial: (index.block_at(media_ns)).clamp(recording.first, recording.end - 1),
            packet: 0,
            media_ns,
        };
        return Ok(Some(start.into()));
    };
    match Some(before).filter(is_useful) {
        Some(index) => last_key_of_group(search, recording, media_ns, &index),
        None => Ok(None),
    }
}

/// The last key frame up to a time among those of a section. If keys were left out there between two of the
/// same block, that block is searched.
fn last_key_of_group(
    search: Search<'_>,
    recording: &Recording,
    media_ns: u64,
    index: &Index,
) -> Result<Option<Found>, ArchiveError> {
    // A section in the making may be about blocks that are not on the disks yet.
    let is_candidate = |key: &Key| key.media_ns <= media_ns && key.serial < recording.end;
    let Some(number) = index.keys.iter().rposition(is_candidate) else {
        return Ok(None);
    };
    let key = &index.keys[number];
    let serial = key.serial;
    if serial < recording.first {
        return Ok(None);
    }
    let next = index.keys.get(number + 1);
    let next = next.filter(|next| next.serial == serial && index.named != KeyCoverage::All);
    if let Some(next) = next {
        let between = key.packet as usize..next.packet as usize;
        let find = |block: &Block<'_>| key_between(block, between, media_ns, index.track.into());
        if let Some(((packet, media_ns), block)) = search.in_block(serial, find)? {
            let start = Start {
                serial,
                packet,
                media_ns,
            };
            return Ok(Some(Found {
                start,
                block,
                is_key: true,
            }));
        }
    }
    Ok(Some(Found {
        start: Start::from(*key),
        block: None,
        is_key: true,
    }))
}

/// The last key frame before the group of a section. Its time is read from its block.
fn key_before_group(
    search: Search<'_>,
    recording: &Recording,
    media_ns: u64,
    index: &Index,
) -> Result<Option<Found>, ArchiveError> {
    let before = index
        .before
        .filter(|(serial, _)| *serial >= recording.first);
    let Some((serial, packet)) = before else {
        return Ok(None);
    };
    // A player needs the block; others need only its time, which an earlier section may have.
    let Search {
        archive, client, ..
    } = search;
    let last = recording.last_serial_of(serial / GROUP);
    if search.stream.is_none()
        && let Some(before) = archive.stored_section(client, recording, last)?
    {
        let mut keys = before.keys.iter();
        let key = keys.find(|of| (of.serial, of.packet) == (serial, packet));
        if let Some(key) = key.filter(|of| before.track == index.track && of.media_ns <= media_ns) {
            return Ok(Some(Found {
                start: Start::from(*key),
                block: None,
                is_key: true,
            }));
        }
    }
    let packet = packet as usize;
    let is_usable = |entry: &Entry| {
        entry.begins_frame && entry.track == index.track && entry.media_ns <= media_ns
    };
    let found = search.in_block(serial, |block| {
        let entry = block.packet(packet).map(|(entry, _)| entry);
        entry.filter(is_usable)
    })?;
    Ok(found.map(|(entry, block)| Found {
        start: Start {
            serial,
            packet,
            media_ns: entry.media_ns,
        },
        block,
        is_key: true,
    }))
}

/// The first packet and the time of a track's last key frame up to a time, in a block. Later frames are
/// ignored from the first packet on that is later than this time.
fn key_before(block: &Block<'_>, media_ns: u64, track: usize) -> Option<(usize, u64)> {
    let is_later = |number: &usize| {
        let entry = block.packet(*number);
        entry.is_some_and(|(entry, _)| is_rtp_of(&entry, track) && entry.media_ns > media_ns)
    };
    let later = (0..block.len()).find(is_later);
    key_between(block, 0..later.unwrap_or(block.len()), media_ns, track)
}

/// As [`key_before`], among these packets.
fn key_between(
    block: &Block<'_>,
    packets: Range<usize>,
    media_ns: u64,
    track: usize,
) -> Option<(usize, u64)> {
    let mut begins = None;
    let mut found = None;
    for number in packets {
        let Some((entry, _)) = block.packet(number) else {
            continue;
        };
        if !is_rtp_of(&entry, track) {
            continue;
        }
        if entry.begins_frame {
            begins = Some(number);
        }
        if entry.is_key
            && let Some(number) = begins.take()
            && entry.media_ns <= media_ns
        {
            found = Some((number, entry.media_ns));
        }
    }
    found
}

/// True if a packet is an RTP packet of the track.
fn is_rtp_of(entry: &Entry, track: usize) -> bool {
    usize::from(entry.track) == track && entry.kind == Kind::Rtp
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::block::{Composer, Seal};

    /// A block with key frames of track 1 of two packets each at these times in ms, and packets of other
    /// tracks between them.
    fn block_of(times_ms: &[u64]) -> Vec<u8> {
        let mut bytes = vec![0; 65_536];
        let mut composer = Composer::new(bytes.len(), 0, 0);
        for at_ms in times_ms {
            for (track, kind, begins_frame) in [
                (0, Kind::Rtp, true),
                (1, Kind::Rtp, true),
                (1, Kind::Rtcp, true),
                (1, Kind::Rtp, false),
            ] {
                let entry = Entry {
                    track,
                    kind,
                    begins_frame,
                    // The second packet of the frame is marked as the key.
                    is_key: !begins_frame,
                    arrival_ns: 0,
                    media_ns: at_ms * 1_000_000,
                    header: [0; 12],
                    lost: 0,
                };
                composer.push(&mut bytes, 1, &entry);
            }
        }
        let seal = Seal {
            archive: [1; 16],
            serial: 5,
            recording: 1,
            first: 0,
            begun_unix_ns: 0,
            gap: None,
            end: None,
        };
        composer.seal(&mut bytes, b"", b"", &seal);
        bytes
    }

    #[test]
    fn the_last_key_frame_of_the_track_up_to_a_time_is_found() {
        let bytes = block_of(&[100, 140, 180]);
        let block = Block::parse(&bytes).unwrap();
        let found = |at_ms: u64| key_before(&block, at_ms * 1_000_000, 1);
        assert_eq!(found(99), None);
        assert_eq!(found(100), Some((1, 100_000_000)));
        assert_eq!(found(179), Some((5, 140_000_000)));
        assert_eq!(found(9_999), Some((9, 180_000_000)));
    }

    /// The camera's clock was set back while it was recorded. Between the keys that begin with the packets 13
    /// and 21 the search finds the one that a full index would name.
    #[test]
    fn a_search_between_two_keys_ignores_packets_outside() {
        let bytes = block_of(&[100, 9_000, 9_040, 140, 180, 220, 150]);
        let block = Block::parse(&bytes).unwrap();
        let found = |at_ms: u64| key_between(&block, 13..21, at_ms * 1_000_000, 1);
        assert_eq!(found(140), Some((13, 140_000_000)));
        assert_eq!(found(200), Some((17, 180_000_000)));
        assert_eq!(found(9_999), Some((17, 180_000_000)));
        assert_eq!(found(139), None);
        assert_eq!(key_before(&block, 200_000_000, 1), Some((1, 100_000_000)));
    }
}
