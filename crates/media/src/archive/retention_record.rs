//! What of an archive counts: what was deleted, how much of the rest is kept, and how long the ring is.
//!
//! # Layout
//!
//! Two copies lie in the header's place, 16 KiB each at 16 and 32 KiB, and are written in turn: generation `g` in copy
//! `g % 2`. Blocks that have been deleted are ranges of serials, which never come again; what is before the oldest block
//! that counts is the range that begins with 0. A ring that has become longer or shorter has a [`Geometry`] here; what is
//! before its base is gone. Little-endian; the checksum is CRC-64/NVME. Version 1 ended its head with 24 zeros at 72,
//! behind which the ranges began: its ring is as the header says, and nothing grows.
//!
//! # Why so
//!
//! A recording that a camera makes has no end, so its oldest part has to go without the rest: ranges of blocks say that,
//! and numbers of recordings do not. ConnectionLimits of deleted blocks may read as zeros. The newest block is found all the same:
//! a range tells what was in each of its places last ([`Gone::in_place`]).
//!
//! # What a crash leaves
//!
//! A change is made in these steps, each durable before the next:
//!
//! 1. Flush: the deleted blocks are all durable, so no block that is written later can have their serials.
//! 2. Write the older copy. Torn, it is damaged, and the other one counts: nothing was deleted.
//! 3. Flush, and only now is it said to be done.
//! 4. Discard. After a crash what is not discarded is not played either, and is overwritten in its turn.
//!
//! A ring becomes longer or shorter in step 3 as well. Until then the writer uses no place that is another one by the new
//! geometry. The volume is made longer before step 1 and shorter after step 3, so it is never too short. Before that the
//! other copy is written as well, in steps 1 to 3: with either of them damaged, the one that is left says how long the ring
//! is, and not how long it was.

use std::ops::Range;

use sched::units::{Bytes, Nanos};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::archive::block::{BLOCK_BYTES, FormatError, HEADER_BYTES, checksum};
use crate::archive::geometry::Geometry;

/// How long a copy is.
pub const COPY_BYTES: usize = 16_384;

/// Where in the archive the copies are.
pub const COPIES_AT: [u64; 2] = [COPY_BYTES as u64, 2 * COPY_BYTES as u64];

const HEAD_BYTES: usize = 128;

/// Version 1 had no more than this.
const HEAD_BYTES_1: usize = 96;

/// What is written. Earlier servers would take a ring of another length for what the header says, and refuse this.
const VERSION: u32 = 2;

/// The most ranges that a copy has room for.
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
    zeros: [u8; 24],
}

const _: () = assert!(size_of::<RawHead>() == HEAD_BYTES);

impl RawHead {
    /// What was not there in version 1 is nothing.
    fn of_version_1(self) -> Self {
        Self {
            base: U64::ZERO,
            blocks: U64::ZERO,
            grow_to: U64::ZERO,
            free: U64::ZERO,
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

/// Serials of blocks that do not count any more: ranges in order, which do not touch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Gone(Vec<Range<u64>>);

impl Gone {
    /// The ranges.
    #[must_use]
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.0
    }

    /// These as well.
    pub fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let touched = |of: &Range<u64>| of.start <= range.end && range.start <= of.end;
        let joined = self.0.iter().filter(|of| touched(of));
        let joined = joined.fold(range.clone(), |all, of| {
            all.start.min(of.start)..all.end.max(of.end)
        });
        self.0.retain(|of| !touched(of));
        let place = self.0.partition_point(|of| of.start < joined.start);
        self.0.insert(place, joined);
    }

    /// The range that a serial is in.
    #[must_use]
    pub fn range_of(&self, serial: u64) -> Option<&Range<u64>> {
        let place = self.0.partition_point(|of| of.end <= serial);
        self.0.get(place).filter(|of| of.contains(&serial))
    }

    /// The first serial from this one on that counts.
    #[must_use]
    pub fn after(&self, serial: u64) -> u64 {
        self.range_of(serial).map_or(serial, |range| range.end)
    }

    /// The serial after the last one that is gone.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.0.last().map_or(0, |range| range.end)
    }

    /// The last of them that was in a place of a ring.
    #[must_use]
    pub fn in_place(&self, place: u64, geometry: &Geometry) -> Option<u64> {
        let ranges = self.0.iter().rev();
        ranges
            .map(|range| geometry.last_in(place, range.start, range.end))
            .find_map(|found| found)
    }

    /// From which serial on there are no more than so many that count, if `next` is the next one.
    #[must_use]
    pub fn oldest_of(&self, next: u64, most: u64) -> u64 {
        let (mut at, mut left) = (next, most);
        for range in self.0.iter().rev() {
            let there = at.saturating_sub(range.end);
            if there >= left {
                break;
            }
            left -= there;
            at = range.start.min(at);
        }
        at.saturating_sub(left)
    }
}

/// How much of what is recorded is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RetentionLimits {
    /// What is older goes; `None`: nothing does for that.
    pub age: Option<Nanos>,
    /// The oldest goes when blocks come to more than that; `None`: when the volume is full.
    pub size: Option<Bytes>,
    /// Up to this the volume may grow instead of overwriting the oldest; `None`: it does not.
    pub grow_to: Option<Bytes>,
    /// So much of the pool is left to others: the volume does not grow beyond that, and gives back what is missing.
    pub free: Option<Bytes>,
}

impl RetentionLimits {
    /// Whether the volume grows or gives something back by itself.
    #[must_use]
    pub fn changes_length(&self) -> bool {
        self.grow_to.is_some() || self.free.is_some()
    }
}

/// What is remembered of an archive beside its blocks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RetentionRecord {
    /// Which archive.
    pub archive: [u8; 16],
    /// How often this was written.
    pub generation: u64,
    /// No later recording has this number or one before it.
    pub last_number: u64,
    /// How much is kept.
    pub keep: RetentionLimits,
    /// What was deleted.
    pub gone: Gone,
    /// The ring; `None`: it is as the header says.
    pub geometry: Option<Geometry>,
}

impl RetentionRecord {
    /// The bytes of its copy. There have to be no more ranges than it has [room](RANGES_MAX) for.
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
            zeros: [0; 24],
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
        mend(&mut bytes);
        bytes
    }

    /// What a copy says.
    ///
    /// # Errors
    /// When it is none.
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
            VERSION => (head, HEAD_BYTES),
            newer => return Err(FormatError::Newer(newer)),
        };
        let rest = &bytes[head_bytes..];
        let ranges = head.ranges.get() as usize;
        if ranges > rest.len() / size_of::<RawRange>() {
            return Err(FormatError::Impossible(
                "more ranges than there is room for",
            ));
        }
        let mut gone = Gone::default();
        for raw in rest.chunks_exact(size_of::<RawRange>()).take(ranges) {
            let raw = RawRange::ref_from_bytes(raw).map_err(|_| FormatError::NotOne)?;
            let range = raw.start.get()..raw.end.get();
            let before = gone.0.last().map_or(0, |of: &Range<u64>| of.end + 1);
            let touches = !gone.0.is_empty() && range.start < before;
            if range.is_empty() || touches || range.end == u64::MAX {
                return Err(FormatError::Impossible("ranges that are out of order"));
            }
            gone.0.push(range);
        }
        let some = |number: U64| Some(number.get()).filter(|number| *number > 0);
        let base = head.base.get();
        let geometry = some(head.blocks).map(|blocks| Geometry { base, blocks });
        if gone.after(0) < base {
            return Err(FormatError::Impossible("a ring that begins too late"));
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
            gone,
            geometry,
        })
    }

    /// Whether whichever of the two copies of its archive is damaged, the other one says that the ring is as it is here.
    #[must_use]
    pub fn is_ring_twice(&self, copies: [&[u8]; 2]) -> bool {
        copies.into_iter().all(|copy| {
            let kept = Self::parse(copy).ok();
            let kept = kept.filter(|of| of.archive == self.archive);
            kept.and_then(|kept| kept.geometry) == self.geometry
        })
    }

    /// What counts of the two copies of an archive; nothing is remembered where neither is one.
    ///
    /// # Errors
    /// When one is of a later version, or both are damaged.
    pub fn newest(archive: [u8; 16], copies: [&[u8]; 2]) -> Result<Self, FormatError> {
        let mut newest: Option<Self> = None;
        let mut damaged = 0;
        for copy in copies {
            match Self::parse(copy) {
                Ok(kept) => {
                    let is_newer = newest
                        .as_ref()
                        .is_none_or(|of| of.generation < kept.generation);
                    if kept.archive == archive && is_newer {
                        newest = Some(kept);
                    }
                }
                // What a blank volume held there before.
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

    /// Where its copy goes.
    #[must_use]
    pub fn at(&self) -> Bytes {
        Bytes(COPIES_AT[(self.generation % 2) as usize])
    }
}

/// Makes the checksum of a copy right.
pub(crate) fn mend(bytes: &mut [u8]) {
    bytes[16..24].fill(0);
    let sum = checksum(&[bytes]);
    bytes[16..24].copy_from_slice(&sum.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn serials(gone: &Gone) -> BTreeSet<u64> {
        gone.ranges().iter().cloned().flatten().collect()
    }

    /// Against sets of serials, which say what is meant.
    #[test]
    fn ranges_are_the_serials_that_were_added() {
        let mut rng = StdRng::seed_from_u64(11);
        for _ in 0..400 {
            let (mut gone, mut model) = (Gone::default(), BTreeSet::new());
            for _ in 0..rng.random_range(1..9) {
                let start = rng.random_range(0..40);
                let range = start..start + rng.random_range(0..9);
                gone.add(range.clone());
                model.extend(range);
                assert_eq!(serials(&gone), model);
                let apart = |pair: &[Range<u64>]| pair[0].end < pair[1].start;
                assert!(gone.ranges().windows(2).all(apart), "{gone:?}");
            }
            for serial in 0..60 {
                assert_eq!(gone.range_of(serial).is_some(), model.contains(&serial));
                let after = (serial..).find(|of| !model.contains(of));
                assert_eq!(Some(gone.after(serial)), after);
            }
            assert_eq!(gone.end(), model.last().map_or(0, |last| last + 1));
            for blocks in 1..12 {
                for place in 0..blocks {
                    let last = model.iter().rev().find(|of| **of % blocks == place);
                    assert_eq!(gone.in_place(place, &Geometry::new(blocks)), last.copied());
                }
            }
            for (next, most) in [(50, 3), (50, 20), (60, 60), (49, 0)] {
                let oldest = gone.oldest_of(next, most);
                let there = |from: u64| (from..next).filter(|of| !model.contains(of)).count();
                let is_oldest = oldest == 0 || there(oldest - 1) as u64 > most;
                // It is passed over what is gone, which makes no difference to what is there.
                let is_all = there(oldest) as u64 == most || there(0) == there(oldest);
                assert!(
                    there(oldest) as u64 <= most && (is_oldest || is_all),
                    "{gone:?}"
                );
            }
        }
    }

    fn kept(generation: u64) -> RetentionRecord {
        let mut gone = Gone::default();
        gone.add(0..5 + generation);
        gone.add(100..100 + generation);
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
            gone,
            geometry: Some(Geometry {
                base: 5,
                blocks: 0xAB,
            }),
        }
    }

    /// Whatever was written of it when the power failed, what was said before or what was to be said counts.
    #[test]
    fn a_change_that_is_torn_anywhere_is_made_or_not() {
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
            let after = kept(generation);
            let bytes = after.encode();
            let at = (after.at().get() - COPIES_AT[0]) as usize;
            for sectors in 0..=COPY_BYTES / 512 {
                // In order, backwards, and every second one.
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
                    // It is tried again over what is torn.
                    torn[at..at + COPY_BYTES].copy_from_slice(&bytes);
                    assert_eq!(parsed(&torn), after);
                }
            }
            disk[at..at + COPY_BYTES].copy_from_slice(&bytes);
            before = after;
        }
        // Another archive's, which was there before, says nothing.
        let (first, second) = disk.split_at(COPY_BYTES);
        let other = RetentionRecord::newest([8; 16], [first, second]).unwrap();
        assert_eq!((other.generation, other.gone), (0, Gone::default()));
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
    fn as_many_ranges_as_there_is_room_for_are_read_as_they_were_written() {
        let mut full = kept(3);
        full.geometry = None;
        full.gone = Gone(
            (0..RANGES_MAX as u64)
                .map(|of| 3 * of..3 * of + 2)
                .collect(),
        );
        assert_eq!(RetentionRecord::parse(&full.encode()), Ok(full.clone()));
        for ranges in [[(1, 2), (5, 4)], [(3, 5), (5, 7)], [(8, 9), (1, 2)]] {
            full.gone = Gone(ranges.map(|(start, end)| start..end).to_vec());
            let said = RetentionRecord::parse(&full.encode())
                .unwrap_err()
                .to_string();
            assert!(said.contains("out of order"), "{said}");
        }
    }

    /// As it was written before rings could change.
    #[test]
    fn copies_of_the_first_version_are_read_as_they_were_meant() {
        let mut bytes = kept(2).encode();
        bytes[8..12].copy_from_slice(&1_u32.to_le_bytes());
        bytes[72..96].fill(0);
        let ranges = bytes[HEAD_BYTES..HEAD_BYTES + 32].to_vec();
        bytes[HEAD_BYTES_1..HEAD_BYTES_1 + 32].copy_from_slice(&ranges);
        bytes[HEAD_BYTES_1 + 32..].fill(0);
        mend(&mut bytes);
        let mut expected = kept(2);
        (expected.keep.grow_to, expected.keep.free) = (None, None);
        expected.geometry = None;
        assert_eq!(RetentionRecord::parse(&bytes), Ok(expected));
    }

    #[test]
    fn a_ring_that_begins_where_something_counts_is_none() {
        let mut late = kept(2);
        late.geometry = Some(Geometry { base: 8, blocks: 9 });
        let said = RetentionRecord::parse(&late.encode())
            .unwrap_err()
            .to_string();
        assert!(said.contains("begins too late"), "{said}");
    }

    #[test]
    fn the_bytes_are_what_the_format_says() {
        let bytes = kept(2).encode();
        let lines = bytes[..160].chunks(16).map(|line| {
            let digits: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            digits.concat()
        });
        insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"));
        assert!(bytes[160..].iter().all(|byte| *byte == 0));
    }
}
