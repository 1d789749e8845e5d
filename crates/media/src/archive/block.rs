//! The on-disk bytes of an archive: its header, and self-describing blocks.
//!
//! # Layout
//!
//! ```text
//! archive:  header (one block long) | block | block | ...            a ring
//! block:    bodies -> | text | free | index | <- entries | trailer
//! ```
//!
//! The *bodies* of packets lie back to back from the start of a block, as they were received. An *entry*
//! holds the metadata of one packet. The first entry is next to the trailer, so bodies and entries grow
//! towards each other. The *text* is the description of the recording (SDP). Some blocks have a section of
//! the [*index*](crate::archive::index) before the entries, where it can be read together with the trailer
//! and without the rest of the block; the trailer has its checksum. Blocks of early versions have no such
//! checksum, and their section follows the text. The *trailer* is the last 128 bytes.
//!
//! # Why it is built so
//!
//! A block is written whole and can be understood alone. Every intact block can be played whatever else is
//! lost, and everything else that is stored about a recording can be rebuilt from its blocks. An entry lies
//! in the block of its packet, so a seek needs nothing else once it has the block.
//!
//! A *serial* counts the blocks of an archive from 0 and is never used twice. The
//! [geometry](crate::archive::geometry) of the ring maps a serial to a *place*, the position of a block in
//! the ring, from 0. Serials stop growing behind the newest block, so it is found by bisection.
//!
//! # Assumptions about the medium
//!
//! A block that is being written when power fails may hold any mixture of old and new sectors; its checksums
//! detect that. A flush makes all earlier writes durable.
//!
//! All numbers are little-endian. Checksums are CRC-64/NVME. `parse` accepts arbitrary bytes without
//! panicking.

mod composer;
mod header;

use std::ops::Range;

use crate::archive::gap::{GapBefore, GapCause};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use composer::{Composer, Seal};
pub use header::Header;

/// Format version of headers and trailers that this program writes, and the latest that it reads. Version 2 added to
/// trailers the gap before the block and why the recording ended; version 1 has zeros there.
pub const FORMAT_VERSION: u32 = 2;

/// Length of a trailer.
/// Length of a trailer.
pub const TRAILER_BYTES: usize = 128;

/// Length of an entry.
/// Length of an entry.
pub const ENTRY_BYTES: usize = 32;

/// Length of the header, which is read and written whole.
pub const HEADER_BYTES: usize = 4_096;

/// Sizes that a block may have; only powers of two are valid.
pub const BLOCK_BYTES: Range<u64> = 65_536..4 * 1_048_576 + 1;

const HEADER_MAGIC: [u8; 8] = *b"CLKWMEDA";
const TRAILER_MAGIC: [u8; 8] = *b"CLKWMEDB";

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTrailer {
    magic: [u8; 8],
    version: U32,
    flags: U32,
    /// Over this trailer, with this field as zero.
    checksum: U64,
    /// Over everything before the trailer.
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
    /// Over the section of the index; 0: there is none, or it follows the text (early versions).
    section: U64,
    /// The latest media time before the gap that precedes the block.
    last_before_ns: U64,
}

const _: () = assert!(size_of::<RawTrailer>() == TRAILER_BYTES);

impl RawTrailer {
    /// The flag, and the cause whose code is at this place of the flags.
    fn cause(&self, flag: u32, shift: u32) -> Option<GapCause> {
        let flags = self.flags.get();
        (flags & flag != 0).then(|| GapCause::of_code((flags >> shift) as u8))
    }

    fn gap(&self) -> Option<GapBefore> {
        let cause = self.cause(FLAG_GAP, GAP_SHIFT)?;
        Some(GapBefore {
            cause,
            last_before_ns: self.last_before_ns.get(),
        })
    }

    fn end(&self) -> Option<GapCause> {
        self.cause(FLAG_LAST, END_SHIFT)
    }
}

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

/// The block is the last of a recording that ended properly.
const FLAG_LAST: u32 = 1;

/// A gap precedes the block, or the recording is a continuation of an earlier one.
const FLAG_GAP: u32 = 2;

/// Place of the code of the cause of that gap.
const GAP_SHIFT: u32 = 8;

/// Place of the code of why the recording ended.
const END_SHIFT: u32 = 16;

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

/// Checksum of a section of the index. It is never 0, because 0 stands for no section.
fn section_checksum(section: &[u8]) -> u64 {
    checksum(&[section]).max(1)
}

/// Reason why bytes cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FormatError {
    /// The bytes have another magic number or length.
    #[error("not in the expected format")]
    NotOne,
    /// A checksum does not match.
    #[error("damaged")]
    Damaged,
    /// Written by a later version of Clockwise.
    #[error("format version {0} is later than this program supports")]
    Newer(u32),
    /// The checksum is right, but the values contradict each other.
    #[error("invalid: {0}")]
    Impossible(&'static str),
}

fn check_version(version: u32) -> Result<(), FormatError> {
    match version {
        1..=FORMAT_VERSION => Ok(()),
        0 => Err(FormatError::Impossible("version 0")),
        newer => Err(FormatError::Newer(newer)),
    }
}

/// The trailer of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trailer {
    /// Random identifier of the archive.
    pub archive: [u8; 16],
    /// Serial of the block.
    pub serial: u64,
    /// Number of the recording, from 1.
    pub recording: u64,
    /// The serial of that recording's first block.
    pub first: u64,
    /// When the recording began, in nanoseconds since 1970.
    pub begun_unix_ns: u64,
    /// When the first packet arrived, in nanoseconds since the recording began.
    pub arrival_ns: u64,
    /// When the first packet is to be played, in nanoseconds of the recording's time.
    pub media_ns: u64,
    /// The gap before the block, if it does not continue the one before.
    pub gap: Option<GapBefore>,
    /// Why the recording ended, if it ended properly with this block.
    pub end: Option<GapCause>,
    bodies: u32,
    text: u32,
    entries: u32,
    index: u32,
    section: u64,
    content: u64,
}

impl Trailer {
    /// True if the recording ended properly with this block.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.end.is_some()
    }

    /// Range of the index section in a block of this size; empty if it has none.
    fn index_in(&self, block_bytes: usize) -> Range<usize> {
        let from = match self.section {
            0 => self.bodies as usize + self.text as usize,
            _ => {
                let tail = TRAILER_BYTES + self.entries as usize * ENTRY_BYTES;
                block_bytes - tail - self.index as usize
            }
        };
        from..from + self.index as usize
    }

    /// Length of the block's tail that contains its index section; `None` if the block has no section with a
    /// checksum of its own.
    #[must_use]
    pub fn section_bytes(&self) -> Option<u64> {
        (self.section != 0).then_some(self.entries_bytes() + u64::from(self.index))
    }

    /// The index section in `last`, the last bytes of the block, of which there are at least
    /// [`section_bytes`](Self::section_bytes).
    ///
    /// # Errors
    /// When it is damaged or has no checksum of its own.
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

    /// True if the block has a section of the index.
    #[must_use]
    pub fn has_section(&self) -> bool {
        self.index > 0
    }

    /// Length of the block's tail that contains its entries.
    #[must_use]
    pub fn entries_bytes(&self) -> u64 {
        TRAILER_BYTES as u64 + u64::from(self.entries) * ENTRY_BYTES as u64
    }

    /// A packet's entry and the range of its body in the block, from `last`, the last bytes of the block.
    /// `None` if there is no packet of that number or its entry is invalid.
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

    /// The entry and the body length of each packet, from `last`, the last bytes of the block, of which there
    /// are at least [`entries_bytes`](Self::entries_bytes).
    ///
    /// The checksum of the block cannot be verified without the rest of it. So the entries are checked
    /// against each other and the trailer: bodies lie back to back and are as long as the trailer says, and
    /// the times of the first packet are those of the trailer.
    ///
    /// # Errors
    /// When the entries are inconsistent, or there are none.
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

    /// Parses the trailer at the end of `bytes`. The content of the block is not verified.
    ///
    /// # Errors
    /// When there is no valid trailer of a block of this size.
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
            gap: raw.gap(),
            end: raw.end(),
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
            return Err(FormatError::Impossible("content longer than the block"));
        }
        if trailer.first > trailer.serial || trailer.recording == 0 {
            return Err(FormatError::Impossible(
                "first block of the recording after this one, or recording number 0",
            ));
        }
        Ok(trailer)
    }
}

/// Kind of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// RTP: the entry has its fixed header, the body is the rest.
    Rtp,
    /// RTCP: the body is the whole packet.
    Rtcp,
}

/// Metadata of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Number of the track, from 0.
    pub track: u8,
    /// Kind of the packet.
    /// Kind of the packet.
    pub kind: Kind,
    /// True if a frame begins with this packet.
    pub begins_frame: bool,
    /// True if that frame can be decoded without any before it.
    pub is_key: bool,
    /// When it arrived, in nanoseconds of the recording's time.
    pub arrival_ns: u64,
    /// When it is to be played, in nanoseconds of the recording's time.
    pub media_ns: u64,
    /// The first twelve bytes of an RTP packet, as received.
    pub header: [u8; 12],
    /// Packets of the track that are missing before it.
    pub lost: u32,
}

/// A block whose checksums are right.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// The trailer at the end of the block.
    /// The trailer at the end of the block.
    pub trailer: Trailer,
    bytes: &'a [u8],
}

impl<'a> Block<'a> {
    /// Parses a whole block.
    ///
    /// # Errors
    /// When the bytes are not a block, or are damaged.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let trailer = Trailer::parse(bytes, bytes.len() as u64)?;
        let content = &bytes[..bytes.len() - TRAILER_BYTES];
        if checksum(&[content]) != trailer.content {
            return Err(FormatError::Damaged);
        }
        Ok(Self { trailer, bytes })
    }

    /// The whole block.
    /// The whole block.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The description of its recording (SDP).
    #[must_use]
    pub fn text(&self) -> &'a [u8] {
        let from = self.trailer.bodies as usize;
        &self.bytes[from..from + self.trailer.text as usize]
    }

    /// The section of the index; empty if the block has none.
    #[must_use]
    pub fn index(&self) -> &'a [u8] {
        &self.bytes[self.trailer.index_in(self.bytes.len())]
    }

    /// Number of packets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.trailer.entries as usize
    }

    /// True if there is no packet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.trailer.entries == 0
    }

    /// A packet's entry and the range of its body in the block. `None` if there is no packet of that number
    /// or its entry is invalid.
    #[must_use]
    pub fn packet(&self, number: usize) -> Option<(Entry, Range<usize>)> {
        self.trailer.packet(self.bytes, number)
    }
}

/// Makes a block one of another archive.
pub(crate) fn rebrand(block: &mut [u8], archive: [u8; 16]) {
    if let Some(at) = block.len().checked_sub(TRAILER_BYTES) {
        let trailer = &mut block[at..];
        trailer[32..48].copy_from_slice(&archive);
        trailer[16..24].fill(0);
        let sum = checksum(&[trailer]);
        trailer[16..24].copy_from_slice(&sum.to_le_bytes());
    }
}

/// For fuzzing: corrects the checksums of a header or a block, so that the bytes get past them.
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
