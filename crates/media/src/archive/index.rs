//! The index of a recording: where in it each time is, and where it can be decoded from.
//!
//! Serials are divided into groups of [`GROUP`]. The last block of each group, and the last of a recording, has a
//! section with a *record* for each block of the recording in that group, the *keys* among the frames of one track that
//! begin there, and the *directory*: when the groups before it begin. So whoever has the newest section of a recording
//! knows which group a time is in, and that group's section says which block and which packet: any time is found with
//! one read and played with another. What is shown before the first key of a group begins with one of an earlier group,
//! which the section names as well.
//!
//! It is written with the blocks that it is about and as durably; nothing has to be kept in step with them. A section
//! that is missing, as after a crash, is [rebuilt](crate::archive) in memory from the entries of its group's blocks,
//! which say the same: by the same [`Indexer`] that notes them while they are recorded.
//!
//! # Layout
//!
//! ```text
//! section:  head | record | record | ... | key | key | ... | begin of the group before | of the one before that | ...
//! ```
//!
//! `parse` takes any bytes at all.

mod indexer;
mod thinning;

use std::borrow::Cow;

use zerocopy::little_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::archive::block::{ENTRY_BYTES, FormatError, TRAILER_BYTES};
pub use indexer::Indexer;
pub use thinning::Named;

/// How many blocks a section is about at most.
pub const GROUP: u64 = 64;

/// At least the room for that part of a block is kept for the section in the last block of a group.
const PART_OF_BLOCK: usize = 4;

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
    /// So many blocks before `first` the last key before it begins; 0: that is not known.
    before: U16,
    /// The packet there that it begins with.
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

const HEAD_BYTES: usize = size_of::<RawHead>();
const RECORD_BYTES: usize = size_of::<RawRecord>();
const KEY_BYTES: usize = size_of::<RawKey>();
const GROUP_BYTES: usize = size_of::<U64>();
const _: () = assert!(HEAD_BYTES == 32 && RECORD_BYTES == 32 && KEY_BYTES == 16);

/// Keys were left out, for want of room.
const FLAG_THINNED: u8 = 1;

/// None that is the first or the last one of its block.
const FLAG_ENDS: u8 = 2;

/// What a block is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// When its first packet is to be played, in nanoseconds of the recording.
    pub media_ns: u64,
    /// When that came, in nanoseconds of the recording.
    pub arrival_ns: u64,
    /// Frames of the track that begin in it.
    pub frames: u32,
    /// Packets in it.
    pub packets: u32,
    /// Bytes of their bodies.
    pub bytes: u32,
    /// Packets that are missing before these.
    pub lost: u32,
}

/// A frame that can be decoded alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    /// The serial of the block that it begins in.
    pub serial: u64,
    /// The packet in it that it begins with.
    pub packet: u32,
    /// The serial of the block that it ends in; `None`: behind what the section is about.
    pub end: Option<u64>,
    /// When it is to be played, in nanoseconds of the recording.
    pub media_ns: u64,
    /// Bytes of its packets' bodies, as far as they are in what the section is about.
    pub bytes: u32,
}

/// Where a frame is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Over {
    /// By the block in which the next one begins.
    By(u64),
    /// Who knows: a block is damaged before that.
    Damaged,
    /// Behind what the section is about.
    Behind,
}

/// What a section says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Index {
    /// The serial of the block that the first record is about.
    pub first: u64,
    /// Frames of the track in the recording before that block, as far as they are known: those of groups before it whose
    /// sections are lost are not counted where this one is rebuilt.
    pub frames: u64,
    /// The track whose frames these are.
    pub track: u8,
    /// The block and the packet that the last key before these blocks begins with, if that is known.
    pub before: Option<(u64, u32)>,
    /// Of each block up to the one that the section is in; one without packets is damaged or gone.
    pub records: Vec<Record>,
    /// In the order in which they came.
    pub keys: Vec<Key>,
    /// Which keys these are.
    pub named: Named,
    /// When groups of the recording before this one begin, the last first, in nanoseconds of the recording.
    pub groups: Vec<u64>,
}

/// The longest section that is kept room for in a block of that size.
#[must_use]
pub fn section_bytes_max(block_bytes: usize) -> usize {
    block_bytes / PART_OF_BLOCK
}

/// As many keys as a section can have in a block of that size that has nothing else.
#[must_use]
pub fn keys_max(block_bytes: usize) -> usize {
    (block_bytes / KEY_BYTES).min(usize::from(u16::MAX))
}

/// Whether a block is the last of its group.
#[must_use]
pub fn ends_group(serial: u64) -> bool {
    serial % GROUP == GROUP - 1
}

impl Index {
    /// About how many of the last bytes of a block have to be read for another section of the recording: where that block
    /// has as many packets as the fullest one here, and its group's blocks as many keys as these.
    #[must_use]
    pub fn tail_bytes_about(&self) -> u64 {
        let packets = self.records.iter().map(|record| record.packets).max();
        let keys = (self.keys.len() as u64 * GROUP).div_ceil(self.records.len().max(1) as u64);
        TRAILER_BYTES as u64
            + u64::from(packets.unwrap_or(0)) * ENTRY_BYTES as u64
            + HEAD_BYTES as u64
            + GROUP * RECORD_BYTES as u64
            + keys * KEY_BYTES as u64
            + (self.groups.len() * GROUP_BYTES) as u64
    }

    /// The serial after the last block that it is about.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.first + self.records.len() as u64
    }

    /// What it says of a block; `None`: it is not about that, or the block was damaged.
    #[must_use]
    pub fn record_of(&self, serial: u64) -> Option<Record> {
        let place = usize::try_from(serial.checked_sub(self.first)?).ok()?;
        let record = self.records.get(place).copied();
        record.filter(|record| record.packets > 0)
    }

    /// When the first block that it is about begins.
    #[must_use]
    pub fn begins_ns(&self) -> u64 {
        self.records.first().map_or(0, |record| record.media_ns)
    }

    /// The serial of the last of its blocks that begins no later than that time; the first if none does. Those that are
    /// damaged are passed over.
    #[must_use]
    pub fn block_at(&self, media_ns: u64) -> u64 {
        let begun = self.records.iter();
        let begun = begun.take_while(|record| record.media_ns <= media_ns);
        let is_there = |record: &Record| record.packets > 0;
        let last = self.records[..begun.count()].iter().rposition(is_there);
        let found = last.or_else(|| self.records.iter().position(is_there));
        self.first + found.unwrap_or(0) as u64
    }

    /// The same frame as one that another section names, if this one does.
    #[must_use]
    pub fn named_again(&self, key: &Key) -> Option<&Key> {
        let is_it = |of: &&Key| (of.serial, of.packet) == (key.serial, key.packet);
        self.keys.iter().find(is_it)
    }

    /// What it says of the end of a frame that goes on in this block.
    #[must_use]
    pub fn over_by(&self, serial: u64) -> Over {
        let blocks = self.records.iter().zip(self.first..);
        let mut from = blocks.skip_while(|(_, of)| *of < serial);
        match from.find(|(record, _)| record.frames > 0 || record.packets == 0) {
            Some((record, _)) if record.packets == 0 => Over::Damaged,
            Some((_, serial)) => Over::By(serial),
            None => Over::Behind,
        }
    }

    /// The frames of the track up to the end of its blocks.
    fn frames_end(&self) -> u64 {
        let records = self.records.iter();
        self.frames + records.map(|of| u64::from(of.frames)).sum::<u64>()
    }

    /// The block and the packet that the last key up to the end of its blocks begins with.
    fn last_key(&self) -> Option<(u64, u32)> {
        let last = self.keys.last().map(|key| (key.serial, key.packet));
        // The very last one may be among those that were left out.
        last.filter(|_| self.named != Named::Some)
            .or(self.before.filter(|_| self.keys.is_empty()))
    }

    /// Takes what the section of the group before says.
    pub fn follow(&mut self, before: &Self) {
        self.frames = before.frames_end();
        self.before = before.last_key();
        self.groups = std::iter::once(before.begins_ns())
            .chain(before.groups.iter().copied())
            .collect();
    }

    /// The last key that is to be played no later than that time.
    #[must_use]
    pub fn key_at(&self, media_ns: u64) -> Option<&Key> {
        self.keys.iter().rev().find(|key| key.media_ns <= media_ns)
    }

    /// Its bytes, at most so many; `None` if that is too little for its records. As many keys and groups are left out as
    /// there is no room for.
    #[must_use]
    pub fn encode(&self, bytes_max: usize) -> Option<Vec<u8>> {
        let fixed = HEAD_BYTES + self.records.len() * RECORD_BYTES;
        let room = bytes_max.checked_sub(fixed)?;
        // Half of what is left is for each, and what one does not need is for the other.
        let (keys_want, groups_want) =
            (self.keys.len() * KEY_BYTES, self.groups.len() * GROUP_BYTES);
        let groups = groups_want.min(room.saturating_sub(keys_want).max(room / 2)) / GROUP_BYTES;
        let keys = keys_want.min(room - groups * GROUP_BYTES) / KEY_BYTES;
        let keys = keys.min(usize::from(u16::MAX));
        let mut thinned = Cow::Borrowed(self);
        if keys < self.keys.len() {
            thinned.to_mut().thin(keys);
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
                Named::All => 0,
                Named::EndsOfBlocks => FLAG_THINNED | FLAG_ENDS,
                Named::Some => FLAG_THINNED,
            },
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
        Some(bytes)
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
            // A block takes nothing that is further away.
            media_us: I32::new(media_us.clamp(i32::MIN.into(), i32::MAX.into()) as i32),
            bytes: U32::new(key.bytes),
        }
    }

    /// What the bytes of a section say.
    ///
    /// # Errors
    /// When they are none.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let impossible = FormatError::Impossible;
        let (head, rest) = RawHead::read_from_prefix(bytes).map_err(|_| FormatError::NotOne)?;
        let records = usize::from(head.records.get());
        let keys = usize::from(head.keys.get());
        let groups = head.groups.get() as usize;
        let needed = groups
            .checked_mul(GROUP_BYTES)
            .and_then(|of| of.checked_add(records * RECORD_BYTES + keys * KEY_BYTES));
        if needed != Some(rest.len()) {
            return Err(impossible("an index of another length"));
        }
        if records == 0 || records > GROUP as usize {
            return Err(impossible("an index of too few or too many blocks"));
        }
        let first = head.first.get();
        if first.checked_add(GROUP).is_none() {
            return Err(impossible("an index of blocks that there are not"));
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
            keys: keys.ok_or(impossible("a key frame of no block"))?,
            records,
            named: match (head.flags & FLAG_THINNED, head.flags & FLAG_ENDS) {
                (0, _) => Named::All,
                (_, 0) => Named::Some,
                _ => Named::EndsOfBlocks,
            },
            groups: of_groups
                .chunks_exact(GROUP_BYTES)
                .filter_map(|bytes| U64::read_from_bytes(bytes).ok())
                .map(U64::get)
                .collect(),
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
