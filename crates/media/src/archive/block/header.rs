//! The header of an archive, in the place of a block.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    BLOCK_BYTES, FORMAT_VERSION, FormatError, HEADER_BYTES, HEADER_MAGIC, check_version, checksum,
};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    version: U32,
    zero: U32,
    checksum: U64,
    archive: [u8; 16],
    block_bytes: U64,
    blocks: U64,
    rest: [u8; HEADER_BYTES - 56],
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);

/// What the header of an archive says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Which archive it is.
    pub archive: [u8; 16],
    /// How long blocks are, and the header's place.
    pub block_bytes: u64,
    /// How many blocks the ring has.
    pub blocks: u64,
}

impl Header {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut raw = RawHeader {
            magic: HEADER_MAGIC,
            version: U32::new(FORMAT_VERSION),
            zero: U32::ZERO,
            checksum: U64::ZERO,
            archive: self.archive,
            block_bytes: U64::new(self.block_bytes),
            blocks: U64::new(self.blocks),
            rest: [0; HEADER_BYTES - 56],
        };
        raw.checksum = U64::new(checksum(&[raw.as_bytes()]));
        raw.as_bytes().to_vec()
    }

    /// What the first bytes of a volume say.
    ///
    /// # Errors
    /// When they are no header.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let (raw, _) = RawHeader::read_from_prefix(bytes).map_err(|_| FormatError::NotOne)?;
        if raw.magic != HEADER_MAGIC {
            return Err(FormatError::NotOne);
        }
        check_version(raw.version.get())?;
        let zeroed = RawHeader {
            checksum: U64::ZERO,
            ..raw
        };
        if checksum(&[zeroed.as_bytes()]) != raw.checksum.get() {
            return Err(FormatError::Damaged);
        }
        let header = Self {
            archive: raw.archive,
            block_bytes: raw.block_bytes.get(),
            blocks: raw.blocks.get(),
        };
        let size = header.block_bytes;
        if !BLOCK_BYTES.contains(&size) || !size.is_power_of_two() {
            return Err(FormatError::Impossible("its block size is none"));
        }
        let end = header.blocks.checked_add(1);
        if header.blocks == 0 || end.and_then(|end| end.checked_mul(size)).is_none() {
            return Err(FormatError::Impossible("its number of blocks is none"));
        }
        Ok(header)
    }
}
