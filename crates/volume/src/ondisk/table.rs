//! The volume table: a checkpoint of the log. Where each volume's latest full node is, and where the
//! log goes on.
//!
//! Two copies; generation g is written to copy g mod 2, so the one before it stays intact.

use sched::units::SECTOR_BYTES;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Owner, Position, RawPlace, RawPosition, checksum_around, first_owner};
use crate::limits::{BLOCK_BYTES, COUNTER_MAX, HEADER_BYTES, VOLUMES_MAX};
use crate::place::{Place, Uuid, VolumeId};

/// The room for one copy.
pub const TABLE_BYTES: u64 = 480 << 10;

/// Starts of the copies on the first disk, in sectors.
pub const TABLES_AT: [u64; 2] = [
    (64 << 10) / SECTOR_BYTES,
    ((64 << 10) + TABLE_BYTES) / SECTOR_BYTES,
];

const HEADER_BYTES_2: usize = size_of::<RawHeader>() + size_of::<RawMore>();

const _: () = assert!(TABLES_AT[1] * SECTOR_BYTES + TABLE_BYTES <= HEADER_BYTES);
const _: () = assert!((HEADER_BYTES_2 + VOLUMES_MAX * size_of::<RawEntry>()) as u64 <= TABLE_BYTES);

const MAGIC: [u8; 8] = *b"CLKWTAB2";
/// Magic of version 1, whose header has no [`RawMore`].
const MAGIC_1: [u8; 8] = *b"CLKWTABL";
const CHECKSUM_AT: usize = 8;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    checksum: U64,
    pool: Uuid,
    generation: U64,
    pool_generation: U64,
    next_volume: U64,
    next_sequence: U64,
    log: RawPosition,
    list: RawPosition,
    list_sequence: U64,
    list_count: U32,
    count: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawMore {
    owner: Owner,
    next: RawPlace,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    volume: U64,
    sequence: U64,
    node: RawPosition,
    zero: U32,
}

/// Place of a full node, or of the list of grades and losses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Located {
    /// The record that begins it.
    pub position: Position,
    /// Number of that record, so that no other is taken for it.
    pub sequence: u64,
}

/// Contents of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// The pool.
    pub pool: Uuid,
    /// Counts checkpoints; records of the log that follows carry it as their epoch.
    pub generation: u64,
    /// The superblocks' generation when it was written; no disk may be behind it.
    pub pool_generation: u64,
    /// The start that wrote it; records of the log that follows carry it, too.
    pub owner: Owner,
    /// The number of the next volume.
    pub next_volume: u64,
    /// The number of the log's next record.
    pub next_sequence: u64,
    /// Position at which the log goes on.
    pub log: Position,
    /// The extent in which the log goes on after that one; absent in version 1.
    pub next: Option<Place>,
    /// Number of entries in the list of grades and losses, and its place, if there are any.
    pub list: Option<(u32, Located)>,
    /// The volumes and their nodes.
    pub nodes: Vec<(VolumeId, Located)>,
}

/// Why bytes are not a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TableError {
    /// Not of this kind, or of another pool.
    #[error("no table of this pool")]
    NotOne,
    /// The checksum does not match.
    #[error("damaged table")]
    Damaged,
}

impl Table {
    /// The bytes of a table whose first block is `block`, if it begins one.
    #[must_use]
    pub fn length(block: &[u8]) -> Option<usize> {
        let (raw, _) = RawHeader::ref_from_prefix(block).ok()?;
        let count = raw.count.get() as usize;
        let header = raw.header_bytes()?;
        (count <= VOLUMES_MAX).then(|| encoded_bytes(header, count))
    }

    /// Its bytes: whole blocks.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let nowhere = <RawPosition as zerocopy::FromZeros>::new_zeroed();
        let raw = RawHeader {
            magic: MAGIC,
            checksum: U64::ZERO,
            pool: self.pool,
            generation: U64::new(self.generation),
            pool_generation: U64::new(self.pool_generation),
            next_volume: U64::new(self.next_volume),
            next_sequence: U64::new(self.next_sequence),
            log: RawPosition::new(self.log),
            list: self
                .list
                .map_or(nowhere, |(_, at)| RawPosition::new(at.position)),
            list_sequence: U64::new(self.list.map_or(0, |(_, at)| at.sequence)),
            list_count: U32::new(self.list.map_or(0, |(count, _)| count)),
            count: U32::new(self.nodes.len() as u32),
        };
        let more = RawMore {
            owner: self.owner,
            next: RawPlace::new_option(self.next),
        };
        let length = encoded_bytes(HEADER_BYTES_2, self.nodes.len());
        let mut bytes = Vec::with_capacity(length);
        bytes.extend_from_slice(raw.as_bytes());
        bytes.extend_from_slice(more.as_bytes());
        for (volume, at) in &self.nodes {
            let (volume, sequence) = (U64::new(volume.0), U64::new(at.sequence));
            let entry = RawEntry {
                volume,
                sequence,
                node: RawPosition::new(at.position),
                zero: U32::ZERO,
            };
            bytes.extend_from_slice(entry.as_bytes());
        }
        bytes.resize(length, 0);
        let sum = checksum_around(&bytes, CHECKSUM_AT);
        bytes[CHECKSUM_AT..CHECKSUM_AT + 8].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads one of `pool` from the start of `bytes`.
    ///
    /// # Errors
    /// Not one of this pool, or damaged.
    pub fn parse(bytes: &[u8], pool: &Uuid) -> Result<Self, TableError> {
        let Ok((raw, _)) = RawHeader::ref_from_prefix(bytes) else {
            return Err(TableError::NotOne);
        };
        let Some(header) = raw.header_bytes().filter(|_| raw.pool == *pool) else {
            return Err(TableError::NotOne);
        };
        let length = Self::length(bytes).filter(|length| *length <= bytes.len());
        let bytes = &bytes[..length.ok_or(TableError::Damaged)?];
        if checksum_around(bytes, CHECKSUM_AT) != raw.checksum.get() {
            return Err(TableError::Damaged);
        }
        let (more, entries) =
            bytes[size_of::<RawHeader>()..].split_at(header - size_of::<RawHeader>());
        let more = RawMore::ref_from_bytes(more).ok();
        let Ok((entries, _)) =
            <[RawEntry]>::ref_from_prefix_with_elems(entries, raw.count.get() as usize)
        else {
            return Err(TableError::Damaged);
        };
        let counters = [
            &raw.generation,
            &raw.pool_generation,
            &raw.next_volume,
            &raw.next_sequence,
        ];
        if counters.iter().any(|counter| counter.get() > COUNTER_MAX)
            || entries
                .iter()
                .any(|entry| entry.sequence.get() > COUNTER_MAX)
        {
            return Err(TableError::Damaged);
        }
        let list = Located {
            position: raw.list.position(),
            sequence: raw.list_sequence.get(),
        };
        let node = |entry: &RawEntry| {
            let at = Located {
                position: entry.node.position(),
                sequence: entry.sequence.get(),
            };
            (VolumeId(entry.volume.get()), at)
        };
        Ok(Self {
            pool: raw.pool,
            generation: raw.generation.get(),
            pool_generation: raw.pool_generation.get(),
            owner: more.map_or_else(|| first_owner(pool), |more| more.owner),
            next_volume: raw.next_volume.get(),
            next_sequence: raw.next_sequence.get(),
            log: raw.log.position(),
            next: more.and_then(|more| more.next.option()),
            list: (raw.list_count.get() != 0).then(|| (raw.list_count.get(), list)),
            nodes: entries.iter().map(node).collect(),
        })
    }
}

impl RawHeader {
    /// Length of its version's header, if this is a table.
    fn header_bytes(&self) -> Option<usize> {
        match self.magic {
            MAGIC => Some(HEADER_BYTES_2),
            MAGIC_1 => Some(size_of::<Self>()),
            _ => None,
        }
    }
}

fn encoded_bytes(header: usize, count: usize) -> usize {
    let bytes = header + count * size_of::<RawEntry>();
    bytes.next_multiple_of(BLOCK_BYTES as usize)
}
