//! Where playing begins, so that what is shown at a time can be decoded.
//!
//! The [index](super::index) says it: the section of the group that the time is in, and then the block to begin with, which
//! is played as it was read for that. Of a group that is being recorded who records knows it. What has no index is looked for
//! in the blocks themselves.

use std::sync::Arc;

use engine::buffer::Buffer;
use engine::front::Client;
use engine::stream::Stream;

use super::archive::{Archive, ArchiveError, Recording};
use super::block::{Block, Entry, Kind};
use super::index::{Index, Key, Named};

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
    fn from(start: Start) -> Self {
        Self { start, block: None }
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
/// section of the index that the time is in is read if it is not kept, and no more than the block to begin with, where the
/// index names all key frames. Of a stream that is to play from there a buffer has that block, if it was read.
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
            return Ok(Found { start, block });
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
    let index = match archive.index_at(client, recording, media_ns)? {
        Some(index) => Some(index),
        // Where the section of the group before is lost it says nothing of that.
        None => archive
            .so_far(recording)
            .filter(|index| index.begins_ns() <= media_ns || index.first <= recording.first),
    };
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
    let Key {
        serial,
        packet,
        media_ns: key_ns,
        ..
    } = index.keys[number];
    if serial < recording.first {
        return Ok(None);
    }
    let next = index.keys.get(number + 1);
    let is_between = index.named != Named::All && next.is_some_and(|next| next.serial == serial);
    if is_between {
        let track = usize::from(index.track);
        let found = look.block(serial, |block| key_before(block, media_ns, track))?;
        if let Some(((packet, media_ns), block)) = found {
            let start = Start {
                serial,
                packet,
                media_ns,
            };
            return Ok(Some(Found { start, block }));
        }
    }
    let start = Start {
        serial,
        packet: packet as usize,
        media_ns: key_ns,
    };
    Ok(Some(start.into()))
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
    }))
}

/// The packet with which the last key frame of a track begins that is to be shown at this time or before.
fn key_before(block: &Block<'_>, media_ns: u64, track: usize) -> Option<(usize, u64)> {
    let mut begins = None;
    let mut found = None;
    for number in 0..block.len() {
        let Some((entry, _)) = block.packet(number) else {
            continue;
        };
        if usize::from(entry.track) != track || entry.kind != Kind::Rtp {
            continue;
        }
        if entry.media_ns > media_ns {
            break;
        }
        if entry.begins_frame {
            begins = Some((number, entry.media_ns));
        }
        if entry.is_key && begins.is_some() {
            found = begins;
        }
    }
    found
}
