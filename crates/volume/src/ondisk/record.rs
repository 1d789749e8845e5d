//! A record of the metadata log: a header, a payload, zeros to the end of its last block.
//!
//! Records are numbered without a gap and chained: each holds the checksum of the one before it.
//! Only a record with the table's generation as its epoch, the next number and the right chain is
//! the next one. A record that an earlier run left at the same place, even with the same number, is not: its
//! epoch is older, or it was chained to a record that has since been overwritten.
//!
//! The records of one transaction are consecutive; the last carries [`COMMIT`]. Rolling forward takes
//! whole transactions only. Each record also has the number of its transaction's first record. All records
//! before that number were durable when the record was written. So if a record behind the end of the log has
//! a larger such number than the end, durable records are missing: the log is damaged, and has not ended
//! there.
//!
//! Each record also names the extent in which the log goes on after the extent that it is in. So the
//! loss of any one record, a link included, leaves another that leads to what follows.
//!
//! The owner tells records of this log from all others: it is random, and only the metadata holds it.
//! So data of a volume's user, or a copy from another pool, is not taken for this log.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::change::Change;
use super::{Owner, PayloadError, checksum_around};
use crate::limits::{BLOCK_BYTES, DISKS_MAX, RECORD_BLOCKS_MAX};
use crate::place::{DiskNumber, Geometry, Place, Uuid};

/// Flag of a transaction's last record.
pub const COMMIT: u8 = 1;

const MAGIC: [u8; 4] = *b"CLKR";
const CHECKSUM_AT: usize = 16;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 4],
    kind: u8,
    flags: u8,
    blocks: u8,
    /// The number of that disk and one; 0: no extent, as in version 1.
    next_disk: u8,
    length: U32,
    next_extent: U32,
    checksum: U64,
    previous: U64,
    pool: [u8; 8],
    owner: Owner,
    epoch: U64,
    sequence: U64,
    transaction: U64,
}

/// The most bytes of payload in a record.
pub const PAYLOAD_BYTES_MAX: usize = (RECORD_BLOCKS_MAX * BLOCK_BYTES) as usize - size_of::<Raw>();

/// Contents of a record's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The generation of the table that the log continues.
    pub epoch: u64,
    /// The owner of that table.
    pub owner: Owner,
    /// Its number.
    pub sequence: u64,
    /// The number of the first record of its transaction.
    pub transaction: u64,
    /// The checksum of the record before it; 0 for the first after a table.
    pub previous: u64,
    /// True if it ends its transaction.
    pub commit: bool,
    /// The extent in which the log goes on after the record's extent; absent in version 1.
    pub next: Option<Place>,
}

/// A record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The header.
    pub header: Header,
    /// Its checksum, to which the next is chained.
    pub checksum: u64,
    /// Number of blocks that it fills.
    pub blocks: u32,
    /// The change.
    pub change: Change,
}

/// Why bytes are not a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// Not of this kind, cut short, or of another pool.
    #[error("no record")]
    NotOne,
    /// The checksum does not match.
    #[error("damaged record")]
    Damaged,
    /// Intact and nonsense.
    #[error("impossible record: {0}")]
    Impossible(#[from] PayloadError),
}

/// The blocks that a record with a payload of `length` bytes fills.
#[must_use]
pub const fn blocks_for(length: usize) -> u32 {
    (size_of::<Raw>() + length).div_ceil(BLOCK_BYTES as usize) as u32
}

/// The part of its pool's identity that a record holds.
fn named(pool: &Uuid) -> [u8; 8] {
    let [a, b, c, d, e, f, g, h, ..] = *pool;
    [a, b, c, d, e, f, g, h]
}

const _: () = assert!(DISKS_MAX < u8::MAX as usize && RECORD_BLOCKS_MAX <= u8::MAX as u64);

impl Record {
    /// Number of blocks that the record in this block claims to fill, if a record begins here.
    #[must_use]
    pub fn length_in_blocks(block: &[u8]) -> Option<u32> {
        let (raw, _) = Raw::ref_from_prefix(block).ok()?;
        let blocks = u32::from(raw.blocks);
        let fits = raw.length.get() as usize <= PAYLOAD_BYTES_MAX
            && blocks_for(raw.length.get() as usize) == blocks;
        (raw.magic == MAGIC && fits).then_some(blocks)
    }

    /// Appends the bytes of a record of `pool` to `out`, whole blocks. Returns its checksum.
    ///
    /// # Panics
    /// When the payload is longer than [`PAYLOAD_BYTES_MAX`].
    pub fn encode(
        header: &Header,
        pool: &Uuid,
        change: &Change,
        geometry: Geometry,
        out: &mut Vec<u8>,
    ) -> u64 {
        let start = out.len();
        out.resize(start + size_of::<Raw>(), 0);
        change.encode(geometry, out);
        let length = out.len() - start - size_of::<Raw>();
        assert!(
            length <= PAYLOAD_BYTES_MAX,
            "a payload of {length} bytes does not fit in a record"
        );
        let raw = Raw {
            magic: MAGIC,
            kind: change.kind(),
            flags: if header.commit { COMMIT } else { 0 },
            blocks: blocks_for(length) as u8,
            next_disk: header.next.map_or(0, |next| next.disk.0 as u8 + 1),
            length: U32::new(length as u32),
            next_extent: U32::new(header.next.map_or(0, |next| next.extent)),
            checksum: U64::ZERO,
            previous: U64::new(header.previous),
            pool: named(pool),
            owner: header.owner,
            epoch: U64::new(header.epoch),
            sequence: U64::new(header.sequence),
            transaction: U64::new(header.transaction),
        };
        out[start..start + size_of::<Raw>()].copy_from_slice(raw.as_bytes());
        out.resize(
            start + blocks_for(length) as usize * BLOCK_BYTES as usize,
            0,
        );
        let sum = checksum_around(&out[start..], CHECKSUM_AT);
        out[start + CHECKSUM_AT..start + CHECKSUM_AT + 8].copy_from_slice(&sum.to_le_bytes());
        sum
    }

    /// Reads one of `pool` from the start of `bytes`.
    ///
    /// # Errors
    /// Says which way it is not one.
    pub fn parse(bytes: &[u8], pool: &Uuid, geometry: Geometry) -> Result<Self, RecordError> {
        let blocks = Self::length_in_blocks(bytes).ok_or(RecordError::NotOne)?;
        let bytes = bytes
            .get(..blocks as usize * BLOCK_BYTES as usize)
            .ok_or(RecordError::NotOne)?;
        let Ok((raw, payload)) = Raw::ref_from_prefix(bytes) else {
            return Err(RecordError::NotOne);
        };
        if raw.pool != named(pool) {
            return Err(RecordError::NotOne);
        }
        if checksum_around(bytes, CHECKSUM_AT) != raw.checksum.get() {
            return Err(RecordError::Damaged);
        }
        let next = raw.next_disk.checked_sub(1).map(|disk| Place {
            disk: DiskNumber(u16::from(disk)),
            extent: raw.next_extent.get(),
        });
        let change = Change::parse(raw.kind, &payload[..raw.length.get() as usize], geometry)?;
        Ok(Self {
            header: Header {
                epoch: raw.epoch.get(),
                owner: raw.owner,
                sequence: raw.sequence.get(),
                transaction: raw.transaction.get(),
                previous: raw.previous.get(),
                commit: raw.flags & COMMIT != 0,
                next,
            },
            checksum: raw.checksum.get(),
            blocks,
            change,
        })
    }
}
