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

/// The header of an archive.
/// The header of an archive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Random identifier of the archive.
    pub archive: [u8; 16],
    /// Length of a block, and of the header's place.
    pub block_bytes: u64,
    /// Number of blocks in the ring when it was made.
    pub blocks: u64,
}

impl Header {
    /// Encodes the header.
    /// Encodes the header.
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

    /// True if the bytes begin with a header of the version that this program writes.
    #[must_use]
    pub fn is_of_this_version(bytes: &[u8]) -> bool {
        let raw = RawHeader::read_from_prefix(bytes);
        raw.is_ok_and(|(raw, _)| raw.version.get() == FORMAT_VERSION)
    }

    /// Parses the header at the start of a volume.
    ///
    /// # Errors
    /// When there is no valid header.
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
            return Err(FormatError::Impossible("block size out of range"));
        }
        let end = header.blocks.checked_add(1);
        if header.blocks == 0 || end.and_then(|end| end.checked_mul(size)).is_none() {
            return Err(FormatError::Impossible("number of blocks out of range"));
        }
        Ok(header)
    }
}
