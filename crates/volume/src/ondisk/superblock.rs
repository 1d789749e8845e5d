//! The superblock: which disk of which pool this is, and where the pool's volume table is.
//!
//! Two copies on each disk, in the first block and in the last. Identity and layout never change;
//! the generation grows each time the pool is started or stopped, and the owner is the start that
//! did that last.

use sched::units::{Bytes, SECTOR_BYTES, Sector, SectorCount};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Owner, checksum_around, first_owner};
use crate::limits::{BLOCK_BYTES, COUNTER_MAX, DISK_EXTENTS_MAX, DISKS_MAX, HEADER_BYTES};
use crate::place::{DiskNumber, Geometry, Uuid};

/// The version of the format that this crate writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 3;

/// The first version with an owner.
const VERSION_WITH_OWNER: u32 = 2;

const MAGIC: [u8; 8] = *b"CLKWPOOL";
const CHECKSUM_AT: usize = 16;

/// Magic, version and checksum stay at their offsets in every version to come. The fields that a start
/// changes lie in the first sector, which is written whole or not at all: no start leaves a torn copy.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    /// The first half of the owner.
    owner: [u8; 4],
    checksum: U64,
    generation: U64,
    pool: Uuid,
    disk: Uuid,
    number: U16,
    count: U16,
    extents: U32,
    extent_bytes: U64,
    sectors: U64,
    first_extent: U64,
    table_disk: U16,
    zero: [u8; 2],
    /// The second half of the owner.
    owner_2: [u8; 4],
    tables: [U64; 2],
    table_bytes: U64,
    disks: [Uuid; DISKS_MAX],
    rest: [u8; BLOCK_BYTES as usize - 128 - 16 * DISKS_MAX],
}

const _: () = assert!(size_of::<Raw>() as u64 == BLOCK_BYTES);
const _: () = assert!(std::mem::offset_of!(Raw, checksum) == CHECKSUM_AT);
const _: () = assert!(std::mem::offset_of!(Raw, owner_2) < SECTOR_BYTES as usize);

/// Contents of a superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// Grows each time the pool is started for writing, and each time it is stopped.
    pub generation: u64,
    /// The start that wrote it; before the first one, and in version 1, what [`first_owner`] says.
    pub owner: Owner,
    /// The pool.
    pub pool: Uuid,
    /// This disk's number.
    pub number: DiskNumber,
    /// The disk's size.
    pub sectors: SectorCount,
    /// The extents on it.
    pub extents: u32,
    /// The pool's extent size.
    pub geometry: Geometry,
    /// The disk that holds the volume table.
    pub table_disk: DiskNumber,
    /// The first sectors of the table's two copies.
    pub tables: [Sector; 2],
    /// The room for each copy.
    pub table_bytes: Bytes,
    /// The identities of the pool's disks, by number.
    pub disks: Vec<Uuid>,
}

/// Why a block is not a superblock.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SuperblockError {
    /// Not of this kind at all.
    #[error("no superblock")]
    NotOne,
    /// The checksum does not match.
    #[error("damaged superblock")]
    Damaged,
    /// Written by a later Clockwise.
    #[error("format version {0}, but this program knows versions up to {FORMAT_VERSION}")]
    Newer(u32),
    /// Intact and nonsense.
    #[error("impossible superblock: {0}")]
    Impossible(&'static str),
}

/// The last block of a disk of that size, where the second copy is.
#[must_use]
pub fn second_copy_at(sectors: SectorCount) -> Sector {
    let per_block = BLOCK_BYTES / SECTOR_BYTES;
    Sector((sectors.0 / per_block).saturating_sub(1) * per_block)
}

/// The extents that fit between a disk's header and its last block.
#[must_use]
pub fn extents_on(sectors: SectorCount, geometry: Geometry) -> u64 {
    let room = second_copy_at(sectors)
        .0
        .saturating_sub(HEADER_BYTES / SECTOR_BYTES);
    room / geometry.extent_sectors().0
}

impl Superblock {
    /// This disk's identity.
    #[must_use]
    pub fn disk(&self) -> Uuid {
        self.disks[usize::from(self.number.0)]
    }

    /// Its bytes: one block.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let [a, b, c, d, e, f, g, h] = self.owner;
        let mut disks = [[0; 16]; DISKS_MAX];
        disks[..self.disks.len()].copy_from_slice(&self.disks);
        let mut raw = Raw {
            magic: MAGIC,
            version: U32::new(FORMAT_VERSION),
            owner: [a, b, c, d],
            checksum: U64::ZERO,
            generation: U64::new(self.generation),
            pool: self.pool,
            disk: self.disk(),
            number: U16::new(self.number.0),
            count: U16::new(self.disks.len() as u16),
            extents: U32::new(self.extents),
            extent_bytes: U64::new(self.geometry.extent_bytes().0),
            sectors: U64::new(self.sectors.0),
            first_extent: U64::new(HEADER_BYTES / SECTOR_BYTES),
            table_disk: U16::new(self.table_disk.0),
            zero: [0; 2],
            owner_2: [e, f, g, h],
            tables: self.tables.map(|start| U64::new(start.0)),
            table_bytes: U64::new(self.table_bytes.0),
            disks,
            rest: [0; _],
        };
        raw.checksum = U64::new(checksum_around(raw.as_bytes(), CHECKSUM_AT));
        raw.as_bytes().to_vec()
    }

    /// Reads one from the first block of `bytes`.
    ///
    /// # Errors
    /// Says which way it is not one.
    pub fn parse(bytes: &[u8]) -> Result<Self, SuperblockError> {
        let Ok((raw, _)) = Raw::ref_from_prefix(bytes) else {
            return Err(SuperblockError::NotOne);
        };
        if raw.magic != MAGIC {
            return Err(SuperblockError::NotOne);
        }
        if checksum_around(raw.as_bytes(), CHECKSUM_AT) != raw.checksum.get() {
            return Err(SuperblockError::Damaged);
        }
        if raw.version.get() > FORMAT_VERSION {
            return Err(SuperblockError::Newer(raw.version.get()));
        }
        raw.decode().map_err(SuperblockError::Impossible)
    }
}

impl Raw {
    fn decode(&self) -> Result<Superblock, &'static str> {
        let geometry = Geometry::new(Bytes(self.extent_bytes.get())).ok_or("extent size")?;
        let (count, number) = (
            usize::from(self.count.get()),
            usize::from(self.number.get()),
        );
        if count == 0 || count > DISKS_MAX || number >= count {
            return Err("disk number or count");
        }
        if self.disks[number] != self.disk {
            return Err("the disk is not in its own list of disks");
        }
        if usize::from(self.table_disk.get()) >= count {
            return Err("the table's disk");
        }
        if self.generation.get() > COUNTER_MAX {
            return Err("the generation");
        }
        let sectors = SectorCount(self.sectors.get());
        let extents = u64::from(self.extents.get());
        if sectors.0 > u64::MAX / SECTOR_BYTES
            || extents > extents_on(sectors, geometry).min(DISK_EXTENTS_MAX)
        {
            return Err("more extents than the disk has room for");
        }
        if self.first_extent.get() != HEADER_BYTES / SECTOR_BYTES {
            return Err("the first extent's address");
        }
        let table_bytes = self.table_bytes.get();
        let outside = |start: &U64| {
            let start = start.get().checked_mul(SECTOR_BYTES);
            let end = start.and_then(|start| start.checked_add(table_bytes));
            end.is_none_or(|end| end > HEADER_BYTES || !end.is_multiple_of(BLOCK_BYTES))
        };
        if self.tables.iter().any(outside)
            || !table_bytes.is_multiple_of(BLOCK_BYTES)
            || table_bytes == 0
        {
            return Err("the tables' addresses");
        }
        let owner = if self.version.get() < VERSION_WITH_OWNER {
            first_owner(&self.pool)
        } else {
            let ([a, b, c, d], [e, f, g, h]) = (self.owner, self.owner_2);
            [a, b, c, d, e, f, g, h]
        };
        Ok(Superblock {
            generation: self.generation.get(),
            owner,
            pool: self.pool,
            number: DiskNumber(self.number.get()),
            sectors,
            extents: self.extents.get(),
            geometry,
            table_disk: DiskNumber(self.table_disk.get()),
            tables: [0, 1].map(|copy: usize| Sector(self.tables[copy].get())),
            table_bytes: Bytes(table_bytes),
            disks: self.disks[..count].to_vec(),
        })
    }
}
