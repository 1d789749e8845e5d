//! The retention record of an archive: which blocks were deleted, the retention limits, and the geometry of
//! the ring.
//!
//! # Layout
//!
//! The record has two copies of 16 KiB at 16 and 32 KiB, in the header's place. They are written alternately:
//! generation `g` goes to copy `g % 2`. Deleted blocks are ranges of serials, which are never used again; the
//! range that begins with 0 is everything before the oldest block that counts. A ring that has been resized
//! has its [`Geometry`] here; everything before its base is deleted. Little-endian; the checksum is
//! CRC-64/NVME. In version 1 the head ended with 24 zeros at 72 and the ranges followed; such a ring is as
//! the header says and does not grow.
//!
//! # Why it is built so
//!
//! The recording of a camera never ends, so its oldest part is deleted without the rest. Ranges of blocks can
//! express that, numbers of recordings cannot. Places of deleted blocks may read as zeros. The newest block
//! is found all the same, because the ranges tell which serial was in each place last
//! ([`DeletedRanges::last_in_place`]).
//!
//! # Crash consistency
//!
//! A change takes these steps, each durable before the next:
//!
//! 1. Flush: the deleted blocks are durable, so no later block can get their serials.
//! 2. Write the older copy. A torn copy is damaged; then the other copy counts, and nothing has changed.
//! 3. Flush. The change takes effect.
//! 4. Discard the deleted blocks. Blocks that a crash leaves undiscarded are not played, and the ring
//!    overwrites them.
//!
//! A resize takes effect in step 3, too. Until then the writer uses no place that differs in the new
//! geometry. The volume grows before step 1 and shrinks after step 3, so it is never shorter than its ring.
//! Before it shrinks, the other copy is written as well, in steps 1 to 3: if one of them is damaged later,
//! the remaining one still has the current geometry.

use std::ops::Range;

use sched::units::{Bytes, Nanos};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::archive::block::{BLOCK_BYTES, FormatError, HEADER_BYTES, checksum};
use crate::archive::deleted_ranges::DeletedRanges;
use crate::archive::geometry::Geometry;
use crate::archive::locks::Lock;

/// Length of a copy.
pub const COPY_BYTES: usize = 16_384;

/// Offsets of the copies in the volume.
pub const COPIES_AT: [u64; 2] = [COPY_BYTES as u64, 2 * COPY_BYTES as u64];

const HEAD_BYTES: usize = 128;

/// Length of the head in version 1.
const HEAD_BYTES_1: usize = 96;

/// Version that is written. Version 2 added `base`, `blocks`, `grow_to` and `free`. A server that knows only version 1
/// must refuse it, as it would compute other places. Version 3 added the lock, at the end of a copy: a server that knows
/// only version 2 must refuse it, as it would record over the lock.
const VERSION: u32 = 3;

/// Length of a lock at the end of a copy.
const LOCK_BYTES: usize = 1_024;

/// Most ranges that fit in a copy.
pub const RANGES_MAX: usize = (COPY_BYTES - HEAD_BYTES) / size_of::<RawRange>();

const _: () = assert!(COPIES_AT[0] >= HEADER_BYTES as u64);
const _: () = assert!(COPIES_AT[1] + COPY_BYTES as u64 <= BLOCK_BYTES.start);

const MAGIC: [u8; 8] = *b"CLKWMEDK";

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHead {
    magic: [u8; 8],
    version: U32,
    ranges: U32,
    checksum: U64,
    archive: [u8; 16],
    generation: U64,
    last_number: U64,
    keep_ns: U64,
    keep_bytes: U64,
    base: U64,
    blocks: U64,
    grow_to: U64,
    free: U64,
    /// 1 if the copy ends with a lock.
    locks: U32,
    zeros: [u8; 20],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawLock {
    first: U64,
    end: U64,
    from_unix_ns: U64,
    until_unix_ns: U64,
    /// 0: it does not expire.
    expires_unix_ns: U64,
    volume_len: U16,
    note_len: U16,
    zeros: [u8; 4],
}

const _: () = assert!(size_of::<RawHead>() == HEAD_BYTES);

impl RawHead {
    /// Clears the fields that version 1 did not have: ranges are in their place.
    fn of_version_1(self) -> Self {
        Self {
            base: U64::ZERO,
            blocks: U64::ZERO,
            grow_to: U64::ZERO,
            free: U64::ZERO,
            locks: U32::ZERO,
            ..self
        }
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRange {
    start: U64,
    end: U64,
}

/// Limits of how much of the recordings is retained.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RetentionLimits {
    /// Blocks that ended longer ago are deleted; `None`: no limit.
    pub age: Option<Nanos>,
    /// The oldest blocks are deleted when there are more bytes of them; `None`: no limit but the volume's
    /// size.
    pub size: Option<Bytes>,
    /// Size up to which the volume grows before the oldest blocks are overwritten; `None`: it does not grow.
    pub grow_to: Option<Bytes>,
    /// Bytes of the pool that are left to other volumes: this volume does not grow into them, and gives back
    /// as much as is missing.
    pub free: Option<Bytes>,
}

impl RetentionLimits {
    /// True if the volume grows or shrinks by itself.
    #[must_use]
    pub fn changes_length(&self) -> bool {
        self.grow_to.is_some() || self.free.is_some()
    }
}

/// Data of an archive that is stored beside its blocks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RetentionRecord {
    /// Random identifier of the archive.
    pub archive: [u8; 16],
    /// Number of times that the record was written.
    pub generation: u64,
    /// Highest number of a deleted recording; later recordings get higher numbers.
    pub last_number: u64,
    /// The limits in force.
    pub keep: RetentionLimits,
    /// The blocks that were deleted.
    pub gone: DeletedRanges,
    /// The geometry of the ring; `None`: as the header says.
    pub geometry: Option<Geometry>,
    /// The lock that the archive is.
    pub lock: Option<Lock>,
}

impl RetentionRecord {
    /// Encodes a copy. The caller makes sure that there are at most [`RANGES_MAX`] ranges.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let head = RawHead {
            magic: MAGIC,
            version: U32::new(VERSION),
            ranges: U32::new(self.gone.0.len() as u32),
            checksum: U64::ZERO,
            archive: self.archive,
            generation: U64::new(self.generation),
            last_number: U64::new(self.last_number),
            keep_ns: U64::new(self.keep.age.map_or(0, Nanos::get)),
            keep_bytes: U64::new(self.keep.size.map_or(0, Bytes::get)),
            base: U64::new(self.geometry.map_or(0, |of| of.base)),
            blocks: U64::new(self.geometry.map_or(0, |of| of.blocks)),
            grow_to: U64::new(self.keep.grow_to.map_or(0, Bytes::get)),
            free: U64::new(self.keep.free.map_or(0, Bytes::get)),
            locks: U32::new(self.lock.is_some().into()),
            zeros: [0; 20],
        };
        let mut bytes = head.as_bytes().to_vec();
        for range in &self.gone.0 {
            let raw = RawRange {
                start: U64::new(range.start),
                end: U64::new(range.end),
            };
            bytes.extend_from_slice(raw.as_bytes());
        }
        bytes.resize(COPY_BYTES, 0);
        if let Some(lock) = &self.lock {
            encode_lock(lock, &mut bytes[COPY_BYTES - LOCK_BYTES..]);
        }
        mend(&mut bytes);
        bytes
    }

    /// Parses a copy.
    ///
    /// # Errors
    /// When it is not a copy, is damaged, or is of a later version.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let bytes = bytes.get(..COPY_BYTES).ok_or(FormatError::NotOne)?;
        let (head, _) = RawHead::read_from_prefix(bytes).map_err(|_| FormatError::NotOne)?;
        if head.magic != MAGIC {
            return Err(FormatError::NotOne);
        }
        let sum = checksum(&[&bytes[..16], &[0; 8], &bytes[24..]]);
        if sum != head.checksum.get() {
            return Err(FormatError::Damaged);
        }
        let (head, head_bytes) = match head.version.get() {
            1 => (head.of_version_1(), HEAD_BYTES_1),
            2 => (
                RawHead {
                    locks: U32::ZERO,
                    ..head
                },
                HEAD_BYTES,
            ),
            VERSION => (head, HEAD_BYTES),
            newer => return Err(FormatError::Newer(newer)),
        };
        let lock = match head.locks.get() {
            0 => None,
            1 => Some(parse_lock(&bytes[COPY_BYTES - LOCK_BYTES..])?),
            _ => return Err(FormatError::Impossible("more than one lock")),
        };
        let lock_bytes = if lock.is_some() { LOCK_BYTES } else { 0 };
        let rest = &bytes[head_bytes..COPY_BYTES - lock_bytes];
        let ranges = head.ranges.get() as usize;
        if ranges > rest.len() / size_of::<RawRange>() {
            return Err(FormatError::Impossible(
                "more ranges than a copy has room for",
            ));
        }
        let mut deleted = DeletedRanges::default();
        for raw in rest.chunks_exact(size_of::<RawRange>()).take(ranges) {
            let raw = RawRange::ref_from_bytes(raw).map_err(|_| FormatError::NotOne)?;
            let range = raw.start.get()..raw.end.get();
            let before = deleted.0.last().map_or(0, |of: &Range<u64>| of.end + 1);
            let touches = !deleted.0.is_empty() && range.start < before;
            if range.is_empty() || touches || range.end == u64::MAX {
                return Err(FormatError::Impossible("ranges out of order"));
            }
            deleted.0.push(range);
        }
        let some = |number: U64| Some(number.get()).filter(|number| *number > 0);
        let base = head.base.get();
        let geometry = some(head.blocks).map(|blocks| Geometry { base, blocks });
        if deleted.first_kept(0) < base {
            return Err(FormatError::Impossible(
                "base of the ring after a block that is not deleted",
            ));
        }
        Ok(Self {
            archive: head.archive,
            generation: head.generation.get(),
            last_number: head.last_number.get(),
            keep: RetentionLimits {
                age: some(head.keep_ns).map(Nanos),
                size: some(head.keep_bytes).map(Bytes),
                grow_to: some(head.grow_to).map(Bytes),
                free: some(head.free).map(Bytes),
            },
            gone: deleted,
            geometry,
            lock,
        })
    }

    /// True if both copies have the geometry of this record.
    #[must_use]
    pub fn is_geometry_in_both(&self, copies: [&[u8]; 2]) -> bool {
        copies.into_iter().all(|copy| {
            let record = Self::parse(copy).ok();
            let record = record.filter(|of| of.archive == self.archive);
            record.and_then(|record| record.geometry) == self.geometry
        })
    }

    /// The newer valid copy of an archive's record, or an empty record if neither copy was ever written.
    ///
    /// # Errors
    /// When a copy is of a later version, or both are damaged.
    pub fn newest(archive: [u8; 16], copies: [&[u8]; 2]) -> Result<Self, FormatError> {
        let mut newest: Option<Self> = None;
        let mut damaged = 0;
        for copy in copies {
            match Self::parse(copy) {
                Ok(record) => {
                    let is_newer = newest
                        .as_ref()
                        .is_none_or(|of| of.generation < record.generation);
                    if record.archive == archive && is_newer {
                        newest = Some(record);
                    }
                }
                // Never written: the place has what was there before the archive was made.
                Err(FormatError::NotOne) => {}
                Err(FormatError::Newer(version)) => return Err(FormatError::Newer(version)),
                Err(_) => damaged += 1,
            }
        }
        match newest {
            Some(newest) => Ok(newest),
            None if damaged == 2 => Err(FormatError::Damaged),
            None => Ok(Self {
                archive,
                ..Self::default()
            }),
        }
    }

    /// Offset of this generation's copy in the volume.
    #[must_use]
    pub fn offset(&self) -> Bytes {
        Bytes(COPIES_AT[(self.generation % 2) as usize])
    }
}

/// Encodes a lock whose note is not too long.
fn encode_lock(lock: &Lock, to: &mut [u8]) {
    let raw = RawLock {
        first: U64::new(lock.serials.start),
        end: U64::new(lock.serials.end),
        from_unix_ns: U64::new(lock.unix_ns.start),
        until_unix_ns: U64::new(lock.unix_ns.end),
        expires_unix_ns: U64::new(lock.expires_unix_ns.unwrap_or(0)),
        volume_len: U16::new(lock.volume.len() as u16),
        note_len: U16::new(lock.note.len() as u16),
        zeros: [0; 4],
    };
    let text = lock.volume.bytes().chain(lock.note.bytes());
    let bytes = raw.as_bytes().iter().copied().chain(text);
    to.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
}

fn parse_lock(bytes: &[u8]) -> Result<Lock, FormatError> {
    let (raw, text) = RawLock::read_from_prefix(bytes).map_err(|_| FormatError::NotOne)?;
    let volume_end = usize::from(raw.volume_len.get());
    let note_end = volume_end + usize::from(raw.note_len.get());
    let part = |range: Range<usize>| {
        let text = text.get(range).map(String::from_utf8_lossy);
        text.map(String::from)
            .ok_or(FormatError::Impossible("lock with a text out of range"))
    };
    Ok(Lock {
        volume: part(0..volume_end)?,
        serials: raw.first.get()..raw.end.get(),
        unix_ns: raw.from_unix_ns.get()..raw.until_unix_ns.get(),
        expires_unix_ns: Some(raw.expires_unix_ns.get()).filter(|at| *at > 0),
        note: part(volume_end..note_end)?,
    })
}

/// Corrects the checksum of a copy.
pub(crate) fn mend(bytes: &mut [u8]) {
    bytes[16..24].fill(0);
    let sum = checksum(&[bytes]);
    bytes[16..24].copy_from_slice(&sum.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(generation: u64) -> RetentionRecord {
        let mut deleted = DeletedRanges::default();
        deleted.add(0..5 + generation);
        deleted.add(100..100 + generation);
        RetentionRecord {
            archive: [9; 16],
            generation,
            last_number: 7,
            keep: RetentionLimits {
                age: Some(Nanos::from_secs(3)),
                size: None,
                grow_to: Some(Bytes(0xB0B0)),
                free: Some(Bytes(0xF0F0)),
            },
            gone: deleted,
            geometry: Some(Geometry {
                base: 5,
                blocks: 0xAB,
            }),
            lock: Some(Lock {
                volume: "cam".to_owned(),
                serials: 0x11..0x22,
                unix_ns: 0x33..0x44,
                expires_unix_ns: Some(0x55),
                note: "theft".to_owned(),
            }),
        }
    }

    /// After a torn write either the old or the new record counts.
    #[test]
    fn a_torn_write_leaves_the_old_or_the_new_record() {
        let mut disk = vec![0xEE; 2 * COPY_BYTES];
        let parsed = |disk: &[u8]| {
            let (first, second) = disk.split_at(COPY_BYTES);
            RetentionRecord::newest([9; 16], [first, second]).unwrap()
        };
        let mut before = RetentionRecord {
            archive: [9; 16],
            ..RetentionRecord::default()
        };
        assert_eq!(parsed(&disk), before);
        for generation in 1..6 {
            let after = record(generation);
            let bytes = after.encode();
            let at = (after.offset().get() - COPIES_AT[0]) as usize;
            for sectors in 0..=COPY_BYTES / 512 {
                // The sectors are written in order, backwards, or only every second one.
                for order in 0..3 {
                    let mut torn = disk.clone();
                    for sector in 0..COPY_BYTES / 512 {
                        let is_written = match order {
                            0 => sector < sectors,
                            1 => sector >= sectors,
                            _ => sector < sectors && sector % 2 == 0,
                        };
                        if is_written {
                            let of = sector * 512..(sector + 1) * 512;
                            torn[at..][of.clone()].copy_from_slice(&bytes[of]);
                        }
                    }
                    let found = parsed(&torn);
                    let is_whole = torn[at..at + COPY_BYTES] == bytes;
                    assert_eq!(
                        found,
                        if is_whole {
                            after.clone()
                        } else {
                            before.clone()
                        }
                    );
                    // The write is repeated over the torn copy.
                    torn[at..at + COPY_BYTES].copy_from_slice(&bytes);
                    assert_eq!(parsed(&torn), after);
                }
            }
            disk[at..at + COPY_BYTES].copy_from_slice(&bytes);
            before = after;
        }
        // A copy of another archive is ignored.
        let (first, second) = disk.split_at(COPY_BYTES);
        let other = RetentionRecord::newest([8; 16], [first, second]).unwrap();
        assert_eq!(
            (other.generation, other.gone),
            (0, DeletedRanges::default())
        );
        let mut damaged = disk.clone();
        damaged[40] ^= 1;
        damaged[COPY_BYTES + 40] ^= 1;
        let (first, second) = damaged.split_at(COPY_BYTES);
        assert_eq!(
            RetentionRecord::newest([9; 16], [first, second]),
            Err(FormatError::Damaged)
        );
    }

    #[test]
    fn a_full_list_of_ranges_is_read_as_it_was_written() {
        let mut full = record(3);
        full.geometry = None;
        full.lock = None;
        full.gone = DeletedRanges(
            (0..RANGES_MAX as u64)
                .map(|of| 3 * of..3 * of + 2)
                .collect(),
        );
        assert_eq!(RetentionRecord::parse(&full.encode()), Ok(full.clone()));
        for ranges in [[(1, 2), (5, 4)], [(3, 5), (5, 7)], [(8, 9), (1, 2)]] {
            full.gone = DeletedRanges(ranges.map(|(start, end)| start..end).to_vec());
            let error = RetentionRecord::parse(&full.encode())
                .unwrap_err()
                .to_string();
            assert!(error.contains("out of order"), "{error}");
        }
    }

    /// A copy as version 1 wrote it.
    #[test]
    fn copies_of_version_1_are_read() {
        let mut bytes = record(2).encode();
        bytes[8..12].copy_from_slice(&1_u32.to_le_bytes());
        bytes[72..96].fill(0);
        let ranges = bytes[HEAD_BYTES..HEAD_BYTES + 32].to_vec();
        bytes[HEAD_BYTES_1..HEAD_BYTES_1 + 32].copy_from_slice(&ranges);
        bytes[HEAD_BYTES_1 + 32..].fill(0);
        mend(&mut bytes);
        let mut expected = record(2);
        (expected.keep.grow_to, expected.keep.free) = (None, None);
        (expected.geometry, expected.lock) = (None, None);
        assert_eq!(RetentionRecord::parse(&bytes), Ok(expected));
    }

    /// A copy as version 2 wrote it.
    #[test]
    fn copies_of_version_2_are_read() {
        let mut expected = record(2);
        expected.lock = None;
        let mut bytes = expected.encode();
        bytes[8..12].copy_from_slice(&2_u32.to_le_bytes());
        mend(&mut bytes);
        assert_eq!(RetentionRecord::parse(&bytes), Ok(expected));
    }

    #[test]
    fn a_base_after_a_kept_block_is_refused() {
        let mut late = record(2);
        late.geometry = Some(Geometry { base: 8, blocks: 9 });
        let error = RetentionRecord::parse(&late.encode())
            .unwrap_err()
            .to_string();
        assert!(error.contains("not deleted"), "{error}");
    }

    #[test]
    fn encoded_bytes_match_the_format() {
        let bytes = record(2).encode();
        let lines = bytes[..160].chunks(16).map(|line| {
            let digits: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            digits.concat()
        });
        insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"));
        let lock = COPY_BYTES - LOCK_BYTES;
        assert!(bytes[160..lock].iter().all(|byte| *byte == 0));
        let parts = [0x11_u64, 0x22, 0x33, 0x44, 0x55]
            .map(u64::to_le_bytes)
            .concat();
        let wanted = [&parts[..], &[3, 0, 5, 0, 0, 0, 0, 0], b"camtheft"].concat();
        assert!(bytes[lock..].starts_with(&wanted));
    }
}
