//! The index of a recording: it finds the block of each time, and the key frames.
//!
//! Serials are divided into groups of [`GROUP`]. The last block of each group, and the last of a recording,
//! has a *section*: a *record* for each block of the recording in that group, the *keys* (key frames of one
//! track that begin there), and the *directory* (begin times of the groups before it). The newest section
//! tells which group a time is in, and the section of that group tells the block and the packet. So any time
//! is found with one read and played with another. What is shown before the first key of a group begins with
//! a key of an earlier group; the section names that one, too.
//!
//! A section is written with the blocks that it is about and is as durable as these, so the two cannot
//! contradict each other. A section that is missing, as after a crash, is [rebuilt](crate::archive) in memory
//! from the entries of the group's blocks, by the same [`Indexer`] that makes it during the recording.
//!
//! # Layout
//!
//! ```text
//! section:  head | record | ... | key | ... | begin of the group before | of the one before that | ... | gap | ...
//! ```
//!
//! `parse` accepts arbitrary bytes without panicking.

mod indexer;
mod thinning;

use std::borrow::Cow;

use zerocopy::little_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::archive::block::{ENTRY_BYTES, FormatError, TRAILER_BYTES};
use crate::archive::gap::{Gap, GapCause};
pub use indexer::Indexer;
pub use thinning::KeyCoverage;

/// Most blocks that a section is about.
pub const GROUP: u64 = 64;

/// The last block of a group reserves this part of its size for the section.
const SECTION_PART: usize = 4;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHead {
    first: U64,
    frames: U64,
    records: U16,
    keys: U16,
    groups: U32,
    track: u8,
    flags: u8,
    /// Number of blocks from the last key before `first` to `first`; 0: unknown.
    before: U16,
    /// The first packet of that key in its block.
    before_packet: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRecord {
    media_ns: U64,
    arrival_ns: U64,
    frames: U32,
    packets: U32,
    bytes: U32,
    lost: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawKey {
    record: U16,
    end: U16,
    packet: U32,
    media_us: I32,
    bytes: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawGap {
    serial: U64,
    last_before_ns: U64,
    first_after_ns: U64,
    cause: u8,
    zeros: [u8; 7],
}

const HEAD_BYTES: usize = size_of::<RawHead>();
const RECORD_BYTES: usize = size_of::<RawRecord>();
const KEY_BYTES: usize = size_of::<RawKey>();
const GROUP_BYTES: usize = size_of::<U64>();
const GAP_BYTES: usize = size_of::<RawGap>();
const _: () = assert!(HEAD_BYTES == 32 && RECORD_BYTES == 32 && KEY_BYTES == 16 && GAP_BYTES == 32);

/// Keys were left out, for lack of room.
const FLAG_THINNED: u8 = 1;

/// With [`FLAG_THINNED`]: the first and the last key of each block are present.
const FLAG_ENDS: u8 = 2;

/// The section ends with gaps.
const FLAG_GAPS: u8 = 4;

/// Earlier gaps of the recording are not named.
const FLAG_EARLIER_GAPS: u8 = 8;

/// Most gaps that a section names. A group has fewer, so each section names more than its own.
pub const GAPS_MAX: usize = 256;

/// Gaps get at most this part of the room that records leave.
const GAPS_PART: usize = 4;

/// Summary of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// When its first packet is to be played, in nanoseconds of the recording's time.
    pub media_ns: u64,
    /// When its first packet arrived, in nanoseconds of the recording's time.
    pub arrival_ns: u64,
    /// Frames of the indexed track that begin in it.
    pub frames: u32,
    /// Number of packets.
    pub packets: u32,
    /// Bytes of the packets' bodies.
    pub bytes: u32,
    /// Packets that are missing before them.
    pub lost: u32,
}

/// A key frame: it can be decoded without other frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    /// Serial of the block that it begins in.
    pub serial: u64,
    /// Number of its first packet in that block.
    pub packet: u32,
    /// Serial of the block that it ends in; `None`: in a block after the section's.
    pub end: Option<u64>,
    /// When it is to be played, in nanoseconds of the recording's time.
    pub media_ns: u64,
    /// Bytes of its packets' bodies, as far as these are in the section's blocks.
    pub bytes: u32,
}

/// End of a frame, as far as a section tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameEnd {
    /// At the block of this serial at the latest, in which the next frame begins.
    By(u64),
    /// Unknown, because a block is damaged before it.
    Unknown,
    /// In a block after the section's.
    AfterSection,
}

/// A section of the index.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Index {
    /// Serial of the block of the first record.
    pub first: u64,
    /// Frames of the track in the recording before that block, as far as they are known: a rebuilt section
    /// does not count groups before it whose sections are lost.
    pub frames: u64,
    /// The indexed track.
    pub track: u8,
    /// Serial and first packet of the last key before these blocks, if they are known.
    pub before: Option<(u64, u32)>,
    /// For each block up to the one with the section; a record without packets is of a block that is damaged
    /// or has gone.
    pub records: Vec<Record>,
    /// In the order in which they were recorded.
    pub keys: Vec<Key>,
    /// Completeness of `keys`.
    pub named: KeyCoverage,
    /// Begin times of earlier groups of the recording, the latest first, in nanoseconds of the recording's
    /// time.
    pub groups: Vec<u64>,
    /// The latest gaps of the recording up to the end of its blocks, in order.
    pub gaps: Vec<Gap>,
    /// True if the recording may have gaps before these.
    pub has_earlier_gaps: bool,
}

/// Bytes that are reserved for the section in a block of this size.
#[must_use]
pub fn section_bytes_max(block_bytes: usize) -> usize {
    block_bytes / SECTION_PART
}

/// Upper bound for the number of keys in a section, in a block of this size.
#[must_use]
pub fn keys_max(block_bytes: usize) -> usize {
    (block_bytes / KEY_BYTES).min(usize::from(u16::MAX))
}

/// True if a block is the last of its group.
#[must_use]
pub fn ends_group(serial: u64) -> bool {
    serial % GROUP == GROUP - 1
}

impl Index {
    /// Estimate of the bytes at the end of a block that include another section of the recording: for a block
    /// with as many packets as the fullest block here and a group with as many keys.
    #[must_use]
    pub fn tail_bytes_about(&self) -> u64 {
        let packets = self.records.iter().map(|record| record.packets).max();
        let keys = (self.keys.len() as u64 * GROUP).div_ceil(self.records.len().max(1) as u64);
        TRAILER_BYTES as u64
            + u64::from(packets.unwrap_or(0)) * ENTRY_BYTES as u64
            + HEAD_BYTES as u64
            + GROUP * RECORD_BYTES as u64
            + keys * KEY_BYTES as u64
            + (self.groups.len() * GROUP_BYTES + self.gaps.len() * GAP_BYTES) as u64
    }

    /// The serial after its last block.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.first + self.records.len() as u64
    }

    /// The record of a block; `None` if the section is not about this block, or the block is damaged.
    #[must_use]
    pub fn record_of(&self, serial: u64) -> Option<Record> {
        let place = usize::try_from(serial.checked_sub(self.first)?).ok()?;
        let record = self.records.get(place).copied();
        record.filter(|record| record.packets > 0)
    }

    /// Begin time of its first block.
    #[must_use]
    pub fn begins_ns(&self) -> u64 {
        self.records.first().map_or(0, |record| record.media_ns)
    }

    /// Serial of the last intact block that begins at or before this time; of the first intact block if none
    /// does.
    #[must_use]
    pub fn block_at(&self, media_ns: u64) -> u64 {
        let begun = self.records.iter();
        let begun = begun.take_while(|record| record.media_ns <= media_ns);
        let is_intact = |record: &Record| record.packets > 0;
        let last = self.records[..begun.count()].iter().rposition(is_intact);
        let found = last.or_else(|| self.records.iter().position(is_intact));
        self.first + found.unwrap_or(0) as u64
    }

    /// The key of the same frame as a key of another section.
    #[must_use]
    pub fn same_key(&self, key: &Key) -> Option<&Key> {
        let is_same = |of: &&Key| (of.serial, of.packet) == (key.serial, key.packet);
        self.keys.iter().find(is_same)
    }

    /// The end of a frame that is still open at the start of this block.
    #[must_use]
    pub fn frame_end_from(&self, serial: u64) -> FrameEnd {
        let blocks = self.records.iter().zip(self.first..);
        let mut from = blocks.skip_while(|(_, of)| *of < serial);
        match from.find(|(record, _)| record.frames > 0 || record.packets == 0) {
            Some((record, _)) if record.packets == 0 => FrameEnd::Unknown,
            Some((_, serial)) => FrameEnd::By(serial),
            None => FrameEnd::AfterSection,
        }
    }

    /// Number of frames of the track up to the end of its blocks.
    fn frames_end(&self) -> u64 {
        let records = self.records.iter();
        self.frames + records.map(|of| u64::from(of.frames)).sum::<u64>()
    }

    /// Serial and first packet of the last key up to the end of its blocks.
    fn last_key(&self) -> Option<(u64, u32)> {
        let last = self.keys.last().map(|key| (key.serial, key.packet));
        // Unless the last key of each block is present, the last key may have been left out.
        last.filter(|_| self.named != KeyCoverage::Some)
            .or(self.before.filter(|_| self.keys.is_empty()))
    }

    /// Continues the section of the group before: takes over its counts, its last key and its directory.
    pub fn follow(&mut self, before: &Self) {
        self.frames = before.frames_end();
        self.before = before.last_key();
        self.groups = std::iter::once(before.begins_ns())
            .chain(before.groups.iter().copied())
            .collect();
        let own = std::mem::take(&mut self.gaps);
        self.gaps = before.gaps.iter().copied().chain(own).collect();
        self.has_earlier_gaps = before.has_earlier_gaps;
        self.forget_early_gaps(GAPS_MAX);
    }

    /// Keeps the last gaps, at most this many.
    fn forget_early_gaps(&mut self, gaps_max: usize) {
        let excess = self.gaps.len().saturating_sub(gaps_max);
        self.gaps.drain(..excess);
        self.has_earlier_gaps |= excess > 0;
    }

    /// The last key at or before this time.
    #[must_use]
    pub fn key_at(&self, media_ns: u64) -> Option<&Key> {
        self.keys.iter().rev().find(|key| key.media_ns <= media_ns)
    }

    /// Encodes the section in at most `bytes_max` bytes; `None` if there is no room for its records. Keys and
    /// groups for which there is no room are left out.
    #[must_use]
    pub fn encode(&self, bytes_max: usize) -> Option<Vec<u8>> {
        let fixed = HEAD_BYTES + self.records.len() * RECORD_BYTES;
        let room = bytes_max.checked_sub(fixed)?;
        let gaps = self.gaps.len().min(room / GAPS_PART / GAP_BYTES);
        let room = room - gaps * GAP_BYTES;
        // Each of the two gets half of the room, and the rest of the other's half.
        let (keys_want, groups_want) =
            (self.keys.len() * KEY_BYTES, self.groups.len() * GROUP_BYTES);
        let groups = groups_want.min(room.saturating_sub(keys_want).max(room / 2)) / GROUP_BYTES;
        let keys = keys_want.min(room - groups * GROUP_BYTES) / KEY_BYTES;
        let keys = keys.min(usize::from(u16::MAX));
        let mut thinned = Cow::Borrowed(self);
        if keys < self.keys.len() {
            thinned.to_mut().thin(keys);
        }
        if gaps < self.gaps.len() {
            thinned.to_mut().forget_early_gaps(gaps);
        }
        let before = self.before.and_then(|(serial, packet)| {
            let back = self.first.checked_sub(serial)?;
            Some((u16::try_from(back).ok()?, packet))
        });
        let (before, before_packet) = before.unwrap_or_default();
        let head = RawHead {
            first: U64::new(self.first),
            frames: U64::new(self.frames),
            records: U16::new(self.records.len() as u16),
            keys: U16::new(keys as u16),
            groups: U32::new(groups as u32),
            track: self.track,
            flags: match thinned.named {
                KeyCoverage::All => 0,
                KeyCoverage::EndsOfBlocks => FLAG_THINNED | FLAG_ENDS,
                KeyCoverage::Some => FLAG_THINNED,
            } | thinned.gap_flags(),
            before: U16::new(before),
            before_packet: U32::new(before_packet),
        };
        let mut bytes = head.as_bytes().to_vec();
        for record in &self.records {
            let raw = RawRecord {
                media_ns: U64::new(record.media_ns),
                arrival_ns: U64::new(record.arrival_ns),
                frames: U32::new(record.frames),
                packets: U32::new(record.packets),
                bytes: U32::new(record.bytes),
                lost: U32::new(record.lost),
            };
            bytes.extend_from_slice(raw.as_bytes());
        }
        for key in &thinned.keys {
            bytes.extend_from_slice(self.raw_key(key).as_bytes());
        }
        for begin in &self.groups[..groups] {
            bytes.extend_from_slice(U64::new(*begin).as_bytes());
        }
        for gap in &thinned.gaps {
            let raw = RawGap {
                serial: U64::new(gap.serial),
                last_before_ns: U64::new(gap.last_before_ns),
                first_after_ns: U64::new(gap.first_after_ns),
                cause: gap.cause.code(),
                zeros: [0; 7],
            };
            bytes.extend_from_slice(raw.as_bytes());
        }
        Some(bytes)
    }

    fn gap_flags(&self) -> u8 {
        let named = if self.gaps.is_empty() { 0 } else { FLAG_GAPS };
        let earlier = if self.has_earlier_gaps {
            FLAG_EARLIER_GAPS
        } else {
            0
        };
        named | earlier
    }

    fn raw_key(&self, key: &Key) -> RawKey {
        let record = key.serial - self.first;
        let begins = self.records[record as usize].media_ns;
        let media_us = (i128::from(key.media_ns) - i128::from(begins)) / 1_000;
        let end = key.end.map(|end| (end - self.first) as u16);
        RawKey {
            record: U16::new(record as u16),
            end: U16::new(end.unwrap_or(u16::MAX)),
            packet: U32::new(key.packet),
            // Exact up to the range of an `i32`, which a block's entries keep to.
            media_us: I32::new(media_us.clamp(i32::MIN.into(), i32::MAX.into()) as i32),
            bytes: U32::new(key.bytes),
        }
    }

    /// Parses a section.
    ///
    /// # Errors
    /// When it is invalid.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let invalid = FormatError::Impossible;
        let (head, rest) = RawHead::read_from_prefix(bytes).map_err(|_| FormatError::NotOne)?;
        let records = usize::from(head.records.get());
        let keys = usize::from(head.keys.get());
        let groups = head.groups.get() as usize;
        let needed = groups
            .checked_mul(GROUP_BYTES)
            .and_then(|of| of.checked_add(records * RECORD_BYTES + keys * KEY_BYTES));
        let needed = needed.filter(|needed| *needed <= rest.len());
        let needed = needed.ok_or(invalid("index section of another length"))?;
        let (rest, of_gaps) = rest.split_at(needed);
        let has_gaps = head.flags & FLAG_GAPS != 0;
        if of_gaps.is_empty() == has_gaps || !of_gaps.len().is_multiple_of(GAP_BYTES) {
            return Err(invalid("index section of another length"));
        }
        if records == 0 || records > GROUP as usize {
            return Err(invalid("index section of too few or too many blocks"));
        }
        let first = head.first.get();
        if first.checked_add(GROUP).is_none() {
            return Err(invalid("index section with serials out of range"));
        }
        let before = match head.before.get() {
            0 => None,
            back => first.checked_sub(back.into()),
        };
        let (of_records, rest) = rest.split_at(records * RECORD_BYTES);
        let (of_keys, of_groups) = rest.split_at(keys * KEY_BYTES);
        let records: Vec<Record> = of_records
            .chunks_exact(RECORD_BYTES)
            .filter_map(|bytes| RawRecord::read_from_bytes(bytes).ok())
            .map(|raw| Record {
                media_ns: raw.media_ns.get(),
                arrival_ns: raw.arrival_ns.get(),
                frames: raw.frames.get(),
                packets: raw.packets.get(),
                bytes: raw.bytes.get(),
                lost: raw.lost.get(),
            })
            .collect();
        let keys: Option<Vec<Key>> = of_keys
            .chunks_exact(KEY_BYTES)
            .map(|bytes| key(&RawKey::read_from_bytes(bytes).ok()?, first, &records))
            .collect();
        Ok(Self {
            first,
            frames: head.frames.get(),
            track: head.track,
            before: before.map(|serial| (serial, head.before_packet.get())),
            keys: keys.ok_or(invalid("key frame of a block outside of the index section"))?,
            records,
            named: match (head.flags & FLAG_THINNED, head.flags & FLAG_ENDS) {
                (0, _) => KeyCoverage::All,
                (_, 0) => KeyCoverage::Some,
                _ => KeyCoverage::EndsOfBlocks,
            },
            groups: of_groups
                .chunks_exact(GROUP_BYTES)
                .filter_map(|bytes| U64::read_from_bytes(bytes).ok())
                .map(U64::get)
                .collect(),
            gaps: of_gaps
                .chunks_exact(GAP_BYTES)
                .filter_map(|bytes| RawGap::read_from_bytes(bytes).ok())
                .map(|raw| Gap {
                    serial: raw.serial.get(),
                    last_before_ns: raw.last_before_ns.get(),
                    first_after_ns: raw.first_after_ns.get(),
                    cause: GapCause::of_code(raw.cause),
                })
                .collect(),
            has_earlier_gaps: head.flags & FLAG_EARLIER_GAPS != 0,
        })
    }
}

fn key(raw: &RawKey, first: u64, records: &[Record]) -> Option<Key> {
    let (record, end) = (raw.record.get(), raw.end.get());
    let begins = records.get(usize::from(record))?.media_ns;
    let is_open = end == u16::MAX;
    if !is_open && (end < record || usize::from(end) >= records.len()) {
        return None;
    }
    Some(Key {
        serial: first + u64::from(record),
        packet: raw.packet.get(),
        end: (!is_open).then(|| first + u64::from(end)),
        media_ns: begins.checked_add_signed(i64::from(raw.media_us.get()) * 1_000)?,
        bytes: raw.bytes.get(),
    })
}

#[cfg(test)]
mod tests;
