//! Where playing begins, so that what is shown at a time can be decoded.
//!
//! The [index](crate::archive::index) says it: the section of the group that the time is in, and then the block to begin with, which
//! is played as it was read for that. Of a group that is being recorded who records knows it. What has no index is looked for
//! in the blocks themselves.

use std::ops::Range;
use std::sync::Arc;

use engine::buffer::Buffer;
use engine::stream::Stream;
use engine::volume_io::Client;

use crate::archive::block::{Block, Entry, Kind};
use crate::archive::index::{Index, Key, Named};
use crate::archive::{Archive, ArchiveError, Recording};

/// How far a frame that can be decoded alone is looked for before the one that is asked for, in blocks.
pub const KEY_BLOCKS_MAX: u64 = 16;

/// Where in a recording playing begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Start {
    /// The block.
    pub serial: u64,
    /// The packet in it.
    pub packet: usize,
    /// The time of the recording that this is.
    pub media_ns: u64,
}

impl From<Key> for Start {
    /// Where a key frame begins.
    fn from(key: Key) -> Self {
        Self {
            serial: key.serial,
            packet: key.packet as usize,
            media_ns: key.media_ns,
        }
    }
}

/// A place in one of a volume's recordings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The recording's number.
    pub recording: u64,
    /// Where in it.
    pub start: Start,
}

/// Where to begin, and the block that is there if it was read to find out.
#[derive(Debug, Default)]
pub struct Found {
    /// Where.
    pub start: Start,
    /// Its block, in a buffer of the stream that is to play it: it is sent from there.
    pub block: Option<Buffer>,
    /// Whether a key frame was found, with which it begins.
    pub is_key: bool,
}

impl Found {
    /// What its block says, which is read for the stream if it was not; `None`: it is damaged, or not there any more.
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
            self.block = archive.read_for(stream, self.start.serial)?;
        }
        match &self.block {
            Some(block) => archive.look_into(block, reader),
            None => Ok(None),
        }
    }
}

impl From<Start> for Found {
    /// Somewhere, as far as is known not at a key frame.
    fn from(start: Start) -> Self {
        Self {
            start,
            ..Self::default()
        }
    }
}

/// Where to begin is looked for in an archive's blocks.
#[derive(Clone, Copy)]
struct Look<'a> {
    archive: &'a Archive,
    client: &'a Client,
    /// Who is to play what is found.
    stream: Option<&'a Stream>,
}

impl Look<'_> {
    /// What is found in a block, which stays where it was read if somebody is to play it; `None`: nothing is, or the block
    /// is damaged, or not there any more.
    fn block<R>(
        &self,
        serial: u64,
        find: impl FnOnce(&Block<'_>) -> Option<R>,
    ) -> Result<Option<(R, Option<Buffer>)>, ArchiveError> {
        let Some(stream) = self.stream else {
            let bytes = self.archive.read_block(self.client, serial)?;
            let block = bytes.as_deref().and_then(|bytes| Block::parse(bytes).ok());
            return Ok(block.and_then(|of| find(&of)).map(|found| (found, None)));
        };
        let Some(buffer) = self.archive.read_for(stream, serial)? else {
            return Ok(None);
        };
        let found = self.archive.look_into(&buffer, find)?.flatten();
        Ok(found.map(|found| (found, Some(buffer))))
    }
}

/// Where to begin so that what is shown at that time can be decoded: at the last key frame of the track before it. The
/// section of the index that the time is in is read if it is not kept, and no more than the block to begin with, which the
/// index tells if it names all key frames, or the first and the last one of each block. Of a stream that is to play from
/// there a buffer has that block, if it was read.
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
    let look = Look {
        archive,
        client,
        stream,
    };
    if let Some(found) = indexed(look, recording, media_ns, track)? {
        return Ok(found);
    }
    let wanted = archive.block_at(client, recording, media_ns)?;
    let earliest = wanted.saturating_sub(KEY_BLOCKS_MAX).max(recording.first);
    for serial in (earliest..=wanted).rev() {
        let found = look.block(serial, |block| key_before(block, media_ns, track))?;
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

/// The same as far as the index says.
fn indexed(
    look: Look<'_>,
    recording: &Recording,
    media_ns: u64,
    track: usize,
) -> Result<Option<Found>, ArchiveError> {
    let Look {
        archive, client, ..
    } = look;
    let is_of_use =
        |index: &Arc<Index>| usize::from(index.track) == track && index.named != Named::Some;
    let index = archive.index_so_far_at(client, recording, media_ns)?;
    let Some(index) = index.filter(is_of_use) else {
        return Ok(None);
    };
    if let Some(found) = last_key(look, recording, media_ns, &index)? {
        return Ok(Some(found));
    }
    if let Some(found) = before(look, recording, media_ns, &index)? {
        return Ok(Some(found));
    }
    let Some(before) = archive.index_before(client, recording, &index)? else {
        // Nothing is before it, or nothing to be read: it begins with what cannot be decoded.
        let start = Start {
            serial: (index.block_at(media_ns)).clamp(recording.first, recording.end - 1),
            packet: 0,
            media_ns,
        };
        return Ok(Some(start.into()));
    };
    match Some(before).filter(is_of_use) {
        Some(index) => last_key(look, recording, media_ns, &index),
        None => Ok(None),
    }
}

/// The last key frame in the group of a section, up to that time. Where the section does not name all of them, and that may
/// be between two of one block that it names, its block tells.
fn last_key(
    look: Look<'_>,
    recording: &Recording,
    media_ns: u64,
    index: &Index,
) -> Result<Option<Found>, ArchiveError> {
    // What is being recorded may not have been written as far as is known of it.
    let is_it = |key: &Key| key.media_ns <= media_ns && key.serial < recording.end;
    let Some(number) = index.keys.iter().rposition(is_it) else {
        return Ok(None);
    };
    let key = &index.keys[number];
    let serial = key.serial;
    if serial < recording.first {
        return Ok(None);
    }
    let next = index.keys.get(number + 1);
    let next = next.filter(|next| next.serial == serial && index.named != Named::All);
    if let Some(next) = next {
        let between = key.packet as usize..next.packet as usize;
        let find = |block: &Block<'_>| key_between(block, between, media_ns, index.track.into());
        if let Some(((packet, media_ns), block)) = look.block(serial, find)? {
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

/// The last key frame before the group of a section, which its block says the time of.
fn before(
    look: Look<'_>,
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
    let packet = packet as usize;
    let is_it = |entry: &Entry| {
        entry.begins_frame && entry.track == index.track && entry.media_ns <= media_ns
    };
    let found = look.block(serial, |block| {
        let entry = block.packet(packet).map(|(entry, _)| entry);
        entry.filter(is_it)
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

/// The packet with which the last key frame of a track begins that is to be shown at this time or before, and when that is,
/// as far as packets come in the order of their times.
fn key_before(block: &Block<'_>, media_ns: u64, track: usize) -> Option<(usize, u64)> {
    let is_later = |number: &usize| {
        let entry = block.packet(*number);
        entry.is_some_and(|(entry, _)| is_of(&entry, track) && entry.media_ns > media_ns)
    };
    let later = (0..block.len()).find(is_later);
    key_between(block, 0..later.unwrap_or(block.len()), media_ns, track)
}

/// The same among the frames of these packets.
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
        if !is_of(&entry, track) {
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

/// Whether a packet is one of that track's.
fn is_of(entry: &Entry, track: usize) -> bool {
    usize::from(entry.track) == track && entry.kind == Kind::Rtp
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::block::{Composer, Seal};

    /// A block with key frames of track 1 of two packets each that have these times in ms, and others between them.
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
                    // It is known by its second packet.
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
            is_last: false,
        };
        composer.seal(&mut bytes, b"", b"", &seal);
        bytes
    }

    #[test]
    fn the_last_key_frame_up_to_a_time_is_found_by_the_packets_of_its_track() {
        let bytes = block_of(&[100, 140, 180]);
        let block = Block::parse(&bytes).unwrap();
        let found = |at_ms: u64| key_before(&block, at_ms * 1_000_000, 1);
        assert_eq!(found(99), None);
        assert_eq!(found(100), Some((1, 100_000_000)));
        assert_eq!(found(179), Some((5, 140_000_000)));
        assert_eq!(found(9_999), Some((9, 180_000_000)));
    }

    /// A camera's clock was set back while it was recorded: between the frames that the index names, which begin with the
    /// packets 13 and 21, that is found which the index would have named.
    #[test]
    fn what_came_before_and_behind_is_not_what_is_between() {
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
