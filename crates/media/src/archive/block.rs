//! The bytes of a recording on its volume: an archive's header, and blocks that explain themselves.
//!
//! # Layout
//!
//! ```text
//! archive:  header (one block long) | block | block | ...            a ring
//! block:    bodies -> | text | free | index | <- entries | trailer
//! ```
//!
//! The *bodies* of packets lie back to back from the beginning of a block, as they were received. What is known of each
//! is in an *entry*; the first one is the last before the trailer, so that bodies and entries grow towards each other.
//! The *text* is the description of the recording (SDP). Some blocks have a section of the [*index*](crate::archive::index)
//! before the entries, so that it can be read alone with the trailer, which has a checksum of it. In blocks of the first
//! days, which have none, it is behind the text. The *trailer* is in the last 128 bytes.
//!
//! # Why so
//!
//! A block is written whole and can be understood alone: whatever is lost, every block that is there can be played, and
//! everything else that is kept about a recording can be made again from its blocks. An entry is read with the block
//! that it is about, so that a seek needs nothing else once it has the block.
//!
//! A *serial* counts the blocks of an archive from 0 and is never used twice; which place block `serial` is in says the
//! ring's [geometry](crate::archive::geometry). The newest block is where serials stop growing, and is found by bisection.
//!
//! # What is assumed of the medium
//!
//! A block that is being written when power fails may hold any mixture of old and new sectors: its checksums say so. A
//! flush makes what was written before it durable.
//!
//! All numbers are little-endian. Checksums are CRC-64/NVME. `parse` takes any bytes at all.

mod composer;
mod header;

use std::ops::Range;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use composer::{Composer, Seal};
pub use header::Header;

/// The version of the format that this program writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 1;

/// How long a trailer is.
pub const TRAILER_BYTES: usize = 128;

/// How long an entry is.
pub const ENTRY_BYTES: usize = 32;

/// The header of an archive is read and written in so many bytes.
pub const HEADER_BYTES: usize = 4_096;

/// The smallest and the largest block of an archive.
pub const BLOCK_BYTES: Range<u64> = 65_536..4 * 1_048_576 + 1;

const HEADER_MAGIC: [u8; 8] = *b"CLKWMEDA";
const TRAILER_MAGIC: [u8; 8] = *b"CLKWMEDB";

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTrailer {
    magic: [u8; 8],
    version: U32,
    flags: U32,
    /// Of this trailer, with this taken as zero.
    checksum: U64,
    /// Of everything before the trailer.
    content: U64,
    archive: [u8; 16],
    serial: U64,
    recording: U64,
    first: U64,
    begun_unix_ns: U64,
    arrival_ns: U64,
    media_ns: U64,
    bodies: U32,
    text: U32,
    entries: U32,
    index: U32,
    /// Of the section of the index; 0: there is none, or it is behind the text.
    section: U64,
    rest: [u8; 8],
}

const _: () = assert!(size_of::<RawTrailer>() == TRAILER_BYTES);

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    at: U32,
    len: U16,
    track: u8,
    kind: u8,
    arrival_us: U32,
    media_us: zerocopy::little_endian::I32,
    header: [u8; 12],
    lost: U32,
}

const _: () = assert!(size_of::<RawEntry>() == ENTRY_BYTES);

/// The block is the last of its recording, which was ended properly.
const FLAG_LAST: u32 = 1;

const KIND_RTP: u8 = 0;
const KIND_RTCP: u8 = 1;
const KIND_MASK: u8 = 0x0f;
const KIND_KEY: u8 = 0x40;
const KIND_FRAME: u8 = 0x80;

pub(crate) fn checksum(parts: &[&[u8]]) -> u64 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize()
}

/// The same of a section of the index, which is never 0.
fn section_checksum(section: &[u8]) -> u64 {
    checksum(&[section]).max(1)
}

/// Why bytes are not what they should be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FormatError {
    /// Not of this kind at all.
    #[error("nothing of the kind")]
    NotOne,
    /// A checksum does not match.
    #[error("damaged")]
    Damaged,
    /// Written by a later Clockwise.
    #[error("format version {0}, which is later than what this program knows")]
    Newer(u32),
    /// Intact and nonsense.
    #[error("impossible: {0}")]
    Impossible(&'static str),
}

fn check_version(version: u32) -> Result<(), FormatError> {
    match version {
        FORMAT_VERSION => Ok(()),
        0 => Err(FormatError::Impossible("version 0")),
        newer => Err(FormatError::Newer(newer)),
    }
}

/// What a trailer says of its block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trailer {
    /// Which archive it belongs to.
    pub archive: [u8; 16],
    /// Which block it is.
    pub serial: u64,
    /// Which recording it is of, from 1.
    pub recording: u64,
    /// The serial of that recording's first block.
    pub first: u64,
    /// When the recording began, in nanoseconds since 1970.
    pub begun_unix_ns: u64,
    /// When the first packet arrived, in nanoseconds from then.
    pub arrival_ns: u64,
    /// When the first packet is to be played, in nanoseconds of the recording.
    pub media_ns: u64,
    /// Whether the recording was ended with it.
    pub is_last: bool,
    bodies: u32,
    text: u32,
    entries: u32,
    index: u32,
    section: u64,
    content: u64,
}

impl Trailer {
    /// Where in a block of this size the section of the index is; empty: it has none.
    fn index_in(&self, block_bytes: usize) -> Range<usize> {
        let from = match self.section {
            0 => self.bodies as usize + self.text as usize,
            _ => {
                let behind = TRAILER_BYTES + self.entries as usize * ENTRY_BYTES;
                block_bytes - behind - self.index as usize
            }
        };
        from..from + self.index as usize
    }

    /// How many of the last bytes of a block have to be read for the section of the index alone; `None`: it has none that
    /// can be told from a damaged one.
    #[must_use]
    pub fn section_bytes(&self) -> Option<u64> {
        (self.section != 0).then_some(self.entries_bytes() + u64::from(self.index))
    }

    /// The section of the index in the last bytes of its block, at least [so many](Self::section_bytes).
    ///
    /// # Errors
    /// When it is damaged, or cannot be told from a damaged one.
    pub fn section<'a>(&self, last: &'a [u8]) -> Result<&'a [u8], FormatError> {
        let bytes = self.section_bytes().ok_or(FormatError::NotOne)?;
        let from = usize::try_from(bytes).ok();
        let from = from.and_then(|bytes| last.len().checked_sub(bytes));
        let from = from.ok_or(FormatError::NotOne)?;
        let section = &last[from..from + self.index as usize];
        match section_checksum(section) == self.section {
            true => Ok(section),
            false => Err(FormatError::Damaged),
        }
    }

    /// Whether it has a section of the index.
    #[must_use]
    pub fn has_section(&self) -> bool {
        self.index > 0
    }

    /// How many of the last bytes of a block have to be read for its entries alone.
    #[must_use]
    pub fn entries_bytes(&self) -> u64 {
        TRAILER_BYTES as u64 + u64::from(self.entries) * ENTRY_BYTES as u64
    }

    /// A packet by its number, and where in the block its body is, in the last bytes of the block; `None` where there is
    /// none or it makes no sense.
    fn packet(&self, last: &[u8], number: usize) -> Option<(Entry, Range<usize>)> {
        if number >= self.entries as usize {
            return None;
        }
        let at = last
            .len()
            .checked_sub(TRAILER_BYTES + (number + 1) * ENTRY_BYTES)?;
        let raw = RawEntry::read_from_bytes(&last[at..at + ENTRY_BYTES]).ok()?;
        let from = raw.at.get() as usize;
        let body = from..from + usize::from(raw.len.get());
        if body.end > self.bodies as usize {
            return None;
        }
        let kind = match raw.kind & KIND_MASK {
            KIND_RTP => Kind::Rtp,
            KIND_RTCP => Kind::Rtcp,
            _ => return None,
        };
        let after_us = u64::from(raw.arrival_us.get());
        let media_ns = i64::from(raw.media_us.get()) * 1_000;
        let entry = Entry {
            track: raw.track,
            kind,
            begins_frame: raw.kind & KIND_FRAME != 0,
            is_key: raw.kind & KIND_KEY != 0,
            arrival_ns: self.arrival_ns.saturating_add(after_us * 1_000),
            media_ns: self.media_ns.saturating_add_signed(media_ns),
            header: raw.header,
            lost: raw.lost.get(),
        };
        Some((entry, body))
    }

    /// All packets and how long their bodies are, in the last bytes of the block, at least [so many](Self::entries_bytes).
    /// What was not read the checksum of the block cannot be held against, so it is looked at whether they belong
    /// together: bodies lie back to back and are as long as the trailer says, and the first packet's times are the
    /// trailer's.
    ///
    /// # Errors
    /// When they do not, or there are none.
    pub fn packets(&self, last: &[u8]) -> Result<Vec<(Entry, usize)>, FormatError> {
        let mut packets = Vec::with_capacity((last.len() / ENTRY_BYTES).min(self.entries as usize));
        let mut bodies = 0;
        for number in 0..self.entries as usize {
            let (entry, body) = self.packet(last, number).ok_or(FormatError::Damaged)?;
            let begins = (self.arrival_ns, self.media_ns);
            let is_early = number == 0 && (entry.arrival_ns, entry.media_ns) != begins;
            if body.start != bodies || is_early {
                return Err(FormatError::Damaged);
            }
            bodies = body.end;
            packets.push((entry, body.len()));
        }
        match bodies == self.bodies as usize && !packets.is_empty() {
            true => Ok(packets),
            false => Err(FormatError::Damaged),
        }
    }

    /// What the last bytes of a block say. Of the rest of the block nothing is known then but how it is divided.
    ///
    /// # Errors
    /// When they are no trailer of a block of this size.
    pub fn parse(bytes: &[u8], block_bytes: u64) -> Result<Self, FormatError> {
        let (_, raw) = RawTrailer::read_from_suffix(bytes).map_err(|_| FormatError::NotOne)?;
        if raw.magic != TRAILER_MAGIC {
            return Err(FormatError::NotOne);
        }
        check_version(raw.version.get())?;
        let zeroed = RawTrailer {
            checksum: U64::ZERO,
            ..raw
        };
        if checksum(&[zeroed.as_bytes()]) != raw.checksum.get() {
            return Err(FormatError::Damaged);
        }
        let trailer = Self {
            archive: raw.archive,
            serial: raw.serial.get(),
            recording: raw.recording.get(),
            first: raw.first.get(),
            begun_unix_ns: raw.begun_unix_ns.get(),
            arrival_ns: raw.arrival_ns.get(),
            media_ns: raw.media_ns.get(),
            is_last: raw.flags.get() & FLAG_LAST != 0,
            bodies: raw.bodies.get(),
            text: raw.text.get(),
            entries: raw.entries.get(),
            index: raw.index.get(),
            section: raw.section.get(),
            content: raw.content.get(),
        };
        let room = block_bytes.saturating_sub(TRAILER_BYTES as u64);
        let used = u64::from(trailer.bodies)
            + u64::from(trailer.text)
            + u64::from(trailer.index)
            + u64::from(trailer.entries) * ENTRY_BYTES as u64;
        if used > room {
            return Err(FormatError::Impossible("more in it than there is room for"));
        }
        if trailer.first > trailer.serial || trailer.recording == 0 {
            return Err(FormatError::Impossible("a block before its recording"));
        }
        Ok(trailer)
    }
}

/// A packet of which kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// RTP: its fixed header is in the entry, what follows that is the body.
    Rtp,
    /// RTCP, all of it the body.
    Rtcp,
}

/// What is known of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Of which track, from 0.
    pub track: u8,
    /// What it is.
    pub kind: Kind,
    /// Whether a frame begins with it.
    pub begins_frame: bool,
    /// Whether that frame can be decoded without any before it.
    pub is_key: bool,
    /// When it arrived, in nanoseconds of the recording.
    pub arrival_ns: u64,
    /// When it is to be played, in nanoseconds of the recording.
    pub media_ns: u64,
    /// The first twelve bytes of an RTP packet, as they came.
    pub header: [u8; 12],
    /// How many packets of the track are missing before it.
    pub lost: u32,
}

/// A block that is as it was written.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// What its trailer says.
    pub trailer: Trailer,
    bytes: &'a [u8],
}

impl<'a> Block<'a> {
    /// The bytes of a block.
    ///
    /// # Errors
    /// When they are none, or not as they were written.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let trailer = Trailer::parse(bytes, bytes.len() as u64)?;
        let content = &bytes[..bytes.len() - TRAILER_BYTES];
        if checksum(&[content]) != trailer.content {
            return Err(FormatError::Damaged);
        }
        Ok(Self { trailer, bytes })
    }

    /// All of its bytes.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The description of its recording.
    #[must_use]
    pub fn text(&self) -> &'a [u8] {
        let from = self.trailer.bodies as usize;
        &self.bytes[from..from + self.trailer.text as usize]
    }

    /// The section of the index that it has; empty if it has none.
    #[must_use]
    pub fn index(&self) -> &'a [u8] {
        &self.bytes[self.trailer.index_in(self.bytes.len())]
    }

    /// How many packets it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.trailer.entries as usize
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.trailer.entries == 0
    }

    /// A packet by its number, and where in the block its body is; `None` where there is none or it makes no sense.
    #[must_use]
    pub fn packet(&self, number: usize) -> Option<(Entry, Range<usize>)> {
        self.trailer.packet(self.bytes, number)
    }
}

/// Makes the checksums of bytes right that are to be taken for a header or a block, whatever else they say.
pub(crate) fn mend(bytes: &mut [u8]) {
    if let Some(header) = bytes
        .get_mut(..HEADER_BYTES)
        .filter(|head| head.starts_with(&HEADER_MAGIC))
    {
        header[16..24].fill(0);
        let sum = checksum(&[header]);
        header[16..24].copy_from_slice(&sum.to_le_bytes());
    }
    if let Some(at) = bytes.len().checked_sub(TRAILER_BYTES) {
        let (content, trailer) = bytes.split_at_mut(at);
        trailer[24..32].copy_from_slice(&checksum(&[content]).to_le_bytes());
        trailer[16..24].fill(0);
        let sum = checksum(&[trailer]);
        trailer[16..24].copy_from_slice(&sum.to_le_bytes());
    }
}

#[cfg(test)]
mod tests;
