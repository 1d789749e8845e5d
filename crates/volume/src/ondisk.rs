//! The bytes on disk: superblock, volume table and its mark, log records.
//!
//! Every structure is a whole number of 4 KiB blocks, names its pool, and carries a CRC-64/NVME over
//! itself. All numbers are little-endian. The `parse` functions accept any bytes at all.

pub mod change;
pub mod mark;
pub mod payload;
pub mod record;
pub mod superblock;
pub mod table;
pub(crate) mod written;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::place::{DiskNumber, Place, Uuid};

/// Identity of a start of the pool: 64 random bits.
pub type Owner = [u8; 8];

/// The owner before a start has written anything: what records of version 1 have in the owner's place.
#[must_use]
pub fn first_owner(pool: &Uuid) -> Owner {
    let [.., a, b, c, d, e, f, g, h] = *pool;
    [a, b, c, d, e, f, g, h]
}

/// The checksum of `parts` one after the other.
pub(crate) fn checksum(parts: &[&[u8]]) -> u64 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
    for part in parts {
        digest.update(part);
    }
    digest.finalize()
}

/// A structure's checksum: over all of it, with the eight bytes at `field` taken as zero.
pub(crate) fn checksum_around(bytes: &[u8], field: usize) -> u64 {
    checksum(&[&bytes[..field], &[0; 8], &bytes[field + 8..]])
}

/// A disk's number that stands for no place.
const NO_DISK: DiskNumber = DiskNumber(u16::MAX);

/// A place in eight bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawPlace {
    disk: U16,
    /// Says in a node what is written of the extent; zero elsewhere.
    pub(crate) state: u8,
    zero: u8,
    extent: U32,
}

impl RawPlace {
    pub(crate) fn new(place: Place, state: u8) -> Self {
        let (disk, extent) = (U16::new(place.disk.0), U32::new(place.extent));
        Self {
            disk,
            state,
            zero: 0,
            extent,
        }
    }

    pub(crate) fn place(&self) -> Place {
        Place {
            disk: DiskNumber(self.disk.get()),
            extent: self.extent.get(),
        }
    }

    /// A place, or that there is none.
    pub(crate) fn new_option(place: Option<Place>) -> Self {
        let nowhere = Place {
            disk: NO_DISK,
            extent: 0,
        };
        Self::new(place.unwrap_or(nowhere), 0)
    }

    pub(crate) fn option(&self) -> Option<Place> {
        Some(self.place()).filter(|place| place.disk != NO_DISK)
    }
}

/// Place of a record: a block of a meta-extent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Position {
    /// The extent.
    pub place: Place,
    /// The block in it, from 0.
    pub block: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawPosition {
    place: RawPlace,
    block: U32,
}

impl RawPosition {
    pub(crate) fn new(position: Position) -> Self {
        Self {
            place: RawPlace::new(position.place, 0),
            block: U32::new(position.block),
        }
    }

    pub(crate) fn position(&self) -> Position {
        Position {
            place: self.place.place(),
            block: self.block.get(),
        }
    }
}

/// A fault of a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct PayloadError(pub &'static str);

fn take<T: FromBytes + Unaligned>(input: &mut &[u8]) -> Result<T, PayloadError> {
    let (value, rest) = T::read_from_prefix(input).map_err(|_| PayloadError("too short"))?;
    *input = rest;
    Ok(value)
}
