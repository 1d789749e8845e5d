//! A block that is being filled.

use std::ops::Range;

use crate::archive::gap::{GapBefore, GapCause};
use zerocopy::IntoBytes as _;
use zerocopy::little_endian::{I32, U16, U32, U64};

use super::{
    END_SHIFT, ENTRY_BYTES, Entry, FLAG_GAP, FLAG_LAST, FORMAT_VERSION, GAP_SHIFT, KIND_FRAME,
    KIND_KEY, KIND_RTCP, KIND_RTP, Kind, RawEntry, RawTrailer, TRAILER_BYTES, TRAILER_MAGIC,
    checksum, section_checksum,
};

/// The fill state of a block.
#[derive(Clone, Debug)]
pub struct Composer {
    size: usize,
    text: usize,
    index: usize,
    bodies: usize,
    entries: usize,
    /// Arrival time and media time of the first entry.
    base: Option<(u64, u64)>,
    /// The latest media time, as its entry says it.
    ends_ns: u64,
}

/// Values of the trailer that are set when the block is sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seal {
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
    /// The gap before the block, if it does not continue the one before.
    pub gap: Option<GapBefore>,
    /// Why the recording ends, if it ends properly with this block.
    pub end: Option<GapCause>,
}

impl Seal {
    fn flags(&self) -> u32 {
        let of = |flag: u32, shift: u32, cause: Option<GapCause>| {
            cause.map_or(0, |cause| flag | u32::from(cause.code()) << shift)
        };
        let gap = self.gap.map(|gap| gap.cause);
        of(FLAG_GAP, GAP_SHIFT, gap) | of(FLAG_LAST, END_SHIFT, self.end)
    }
}

impl Composer {
    /// An empty block of `size` bytes that reserves `text` bytes for the description and `index` bytes for a
    /// section of the index.
    #[must_use]
    pub fn new(size: usize, text: usize, index: usize) -> Self {
        Self {
            size,
            text,
            index,
            bodies: 0,
            entries: 0,
            base: None,
            ends_ns: 0,
        }
    }

    /// True if it has no packet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// When its first packet arrived, in nanoseconds of the recording's time.
    #[must_use]
    pub fn begins_ns(&self) -> Option<u64> {
        self.base.map(|(arrival, _)| arrival)
    }

    /// The latest media time of its packets, in nanoseconds of the recording's time.
    #[must_use]
    pub fn ends_ns(&self) -> u64 {
        self.ends_ns
    }

    /// The range of the block that is free for the next body.
    #[must_use]
    pub fn room(&self) -> Range<usize> {
        let tail = TRAILER_BYTES + self.text + self.index + (self.entries + 1) * ENTRY_BYTES;
        self.bodies..self.size.saturating_sub(tail).max(self.bodies)
    }

    /// True if an entry can express these times relative to the first packet of the block.
    #[must_use]
    pub fn takes(&self, arrival_ns: u64, media_ns: u64) -> bool {
        self.base.is_none_or(|(arrival, media)| {
            let offset_us = (i128::from(media_ns) - i128::from(media)) / 1_000;
            (arrival_ns.saturating_sub(arrival) / 1_000) <= u64::from(u32::MAX)
                && i32::try_from(offset_us).is_ok()
        })
    }

    /// The time next to `media_ns` that an entry can express relative to the first packet of the block.
    #[must_use]
    pub fn nearest_media_ns(&self, media_ns: u64) -> u64 {
        const SPAN_NS: u64 = i32::MAX as u64 * 1_000;
        let (_, media) = self.base.unwrap_or((0, media_ns));
        media_ns.clamp(media.saturating_sub(SPAN_NS), media.saturating_add(SPAN_NS))
    }

    /// Adds the entry of a packet whose body of `len` bytes is at the start of [`room`](Self::room).
    ///
    /// # Panics
    /// When there is no room for it.
    pub fn push(&mut self, block: &mut [u8], len: usize, entry: &Entry) {
        assert!(len <= self.room().len() && len <= usize::from(u16::MAX));
        let (arrival, media) = *self.base.get_or_insert((entry.arrival_ns, entry.media_ns));
        let mut kind = match entry.kind {
            Kind::Rtp => KIND_RTP,
            Kind::Rtcp => KIND_RTCP,
        };
        kind |= if entry.begins_frame { KIND_FRAME } else { 0 };
        kind |= if entry.is_key { KIND_KEY } else { 0 };
        let media_us = (i128::from(entry.media_ns) - i128::from(media)) / 1_000;
        let said_ns = i128::from(media) + media_us * 1_000;
        self.ends_ns = self.ends_ns.max(u64::try_from(said_ns).unwrap_or(0));
        let raw = RawEntry {
            at: U32::new(self.bodies as u32),
            len: U16::new(len as u16),
            track: entry.track,
            kind,
            arrival_us: U32::new((entry.arrival_ns.saturating_sub(arrival) / 1_000) as u32),
            media_us: I32::new(media_us as i32),
            header: entry.header,
            lost: U32::new(entry.lost),
        };
        self.entries += 1;
        let at = self.size - TRAILER_BYTES - self.entries * ENTRY_BYTES;
        block[at..at + ENTRY_BYTES].copy_from_slice(raw.as_bytes());
        self.bodies += len;
    }

    /// The most bytes that a section of the index can have.
    #[must_use]
    pub fn index_room(&self) -> usize {
        let used = self.bodies + self.text + self.entries * ENTRY_BYTES + TRAILER_BYTES;
        self.size.saturating_sub(used)
    }

    /// Completes the block with its text, a section of the index (empty: none) and its trailer.
    ///
    /// # Panics
    /// When the text is longer than reserved, or there is no [room](Self::index_room) for the index.
    pub fn seal(self, block: &mut [u8], text: &[u8], index: &[u8], seal: &Seal) {
        assert!(text.len() <= self.text && index.len() <= self.index_room());
        let (arrival_ns, media_ns) = self.base.unwrap_or_default();
        let entries_at = self.size - TRAILER_BYTES - self.entries * ENTRY_BYTES;
        let text_end = self.bodies + text.len();
        block[self.bodies..text_end].copy_from_slice(text);
        let index_at = entries_at - index.len();
        block[text_end..index_at].fill(0);
        block[index_at..entries_at].copy_from_slice(index);
        let section = match index {
            [] => 0,
            index => section_checksum(index),
        };
        let (content, trailer) = block.split_at_mut(self.size - TRAILER_BYTES);
        let mut raw = RawTrailer {
            magic: TRAILER_MAGIC,
            version: U32::new(FORMAT_VERSION),
            flags: U32::new(seal.flags()),
            checksum: U64::ZERO,
            content: U64::new(checksum(&[content])),
            archive: seal.archive,
            serial: U64::new(seal.serial),
            recording: U64::new(seal.recording),
            first: U64::new(seal.first),
            begun_unix_ns: U64::new(seal.begun_unix_ns),
            arrival_ns: U64::new(arrival_ns),
            media_ns: U64::new(media_ns),
            bodies: U32::new(self.bodies as u32),
            text: U32::new(text.len() as u32),
            entries: U32::new(self.entries as u32),
            index: U32::new(index.len() as u32),
            section: U64::new(section),
            last_before_ns: U64::new(seal.gap.map_or(0, |gap| gap.last_before_ns)),
        };
        raw.checksum = U64::new(checksum(&[raw.as_bytes()]));
        trailer.copy_from_slice(raw.as_bytes());
    }
}
