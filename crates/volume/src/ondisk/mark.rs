//! The mark of the newest table: the generation of the volume table that was durable last.
//!
//! It is written when a table is durable, and before anything is overwritten that only the table
//! before needs. So a mark that is newer than both tables tells that the newest one is lost, even if no part
//! of the log behind it is found.

use sched::units::SECTOR_BYTES;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum_around;
use crate::limits::BLOCK_BYTES;
use crate::place::Uuid;

/// Its start on the table's disk, in sectors.
pub const MARK_AT: u64 = (32 << 10) / SECTOR_BYTES;

const MAGIC: [u8; 8] = *b"CLKWMARK";
const CHECKSUM_AT: usize = 8;

/// All that is not zero lies in one sector, which is written whole or not at all.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    checksum: U64,
    pool: Uuid,
    generation: U64,
    rest: [u8; BLOCK_BYTES as usize - 40],
}

const _: () = assert!(size_of::<Raw>() as u64 == BLOCK_BYTES);
const _: () =
    assert!(MARK_AT * SECTOR_BYTES + BLOCK_BYTES <= super::table::TABLES_AT[0] * SECTOR_BYTES);

/// The bytes of a mark: one block.
#[must_use]
pub fn encode(pool: &Uuid, generation: u64) -> Vec<u8> {
    let mut raw = Raw {
        magic: MAGIC,
        checksum: U64::ZERO,
        pool: *pool,
        generation: U64::new(generation),
        rest: [0; _],
    };
    raw.checksum = U64::new(checksum_around(raw.as_bytes(), CHECKSUM_AT));
    raw.as_bytes().to_vec()
}

/// The generation that a mark of `pool` names; `None`: there is none, or it is damaged.
#[must_use]
pub fn parse(bytes: &[u8], pool: &Uuid) -> Option<u64> {
    let (raw, _) = Raw::ref_from_prefix(bytes).ok()?;
    let is_whole = raw.magic == MAGIC
        && raw.pool == *pool
        && checksum_around(raw.as_bytes(), CHECKSUM_AT) == raw.checksum.get();
    is_whole.then(|| raw.generation.get())
}
