//! Opening archives of all small sizes.

mod resized;

use std::collections::BTreeSet;
use std::convert::Infallible;

use super::*;
use crate::archive::block::{Composer, Seal};

/// A trailer as it is on a disk.
fn trailer(serial: u64, recording: u64, first: u64) -> Trailer {
    let size = BLOCK_BYTES.start as usize;
    let mut block = vec![0; size];
    let seal = Seal {
        archive: [1; 16],
        serial,
        recording,
        first,
        begun_unix_ns: recording,
        gap: None,
        end: None,
    };
    Composer::new(size, 0, 0).seal(&mut block, b"", b"", &seal);
    Trailer::parse(&block, BLOCK_BYTES.start).unwrap()
}

/// Recording and its first serial, for each serial: recordings of three blocks each, the second of five.
fn recording_of(serial: u64) -> (u64, u64) {
    match serial {
        0..3 => (1, 0),
        3..8 => (2, 3),
        later => ((later - 8) / 3 + 3, (later - 8) / 3 * 3 + 8),
    }
}

/// A ring in which the blocks before `next` were written, except those that are `unwritten`, where the
/// previous block stays, and one that is damaged.
struct Ring {
    places: Vec<Option<Trailer>>,
}

impl Ring {
    fn new(blocks: u64, next: u64, unwritten: &BTreeSet<u64>, damaged: Option<u64>) -> Self {
        let mut places = vec![None; blocks as usize];
        for serial in (0..next).filter(|serial| !unwritten.contains(serial)) {
            let (recording, first) = recording_of(serial);
            places[(serial % blocks) as usize] = Some(trailer(serial, recording, first));
        }
        if let Some(damaged) = damaged {
            places[(damaged % blocks) as usize] = None;
        }
        Self { places }
    }

    /// The serial of the next block and the recordings, as they are found on opening.
    fn opened(&self, deleted: &DeletedRanges) -> (u64, Vec<Recording>) {
        let blocks = self.places.len() as u64;
        let read = |place: u64| Ok::<_, Infallible>(self.places[place as usize]);
        let serial = |place| {
            let found = read(place)?.map(|of| of.serial);
            Ok::<_, Infallible>(
                found.or_else(|| deleted.last_in_place(place, &Geometry::new(blocks))),
            )
        };
        let found = find_newest(&Geometry::new(blocks), None, serial).unwrap();
        // A cached serial makes no difference.
        for cached in 0..found.map_or(0, |of| of + 3) {
            let again = find_newest(&Geometry::new(blocks), Some(cached), serial).unwrap();
            assert_eq!(again, found, "{blocks} blocks, {cached} was the newest");
        }
        let next = found.map_or(0, |of| of + 1).max(deleted.end());
        (
            next,
            find_recordings(next, &Geometry::new(blocks), deleted, &[], read).unwrap(),
        )
    }

    fn newest(&self) -> Option<u64> {
        self.opened(&DeletedRanges::default()).0.checked_sub(1)
    }
}

#[test]
fn the_newest_block_is_found_when_another_is_damaged() {
    for blocks in [4, 5, 7, 16, 33] {
        for next in 0..blocks * 5 / 2 {
            let whole = Ring::new(blocks, next, &BTreeSet::new(), None);
            let found = whole.newest();
            assert_eq!(
                found,
                next.checked_sub(1),
                "{blocks} blocks, {next} written"
            );
            for damaged in next.saturating_sub(blocks)..next.saturating_sub(1) {
                let ring = Ring::new(blocks, next, &BTreeSet::new(), Some(damaged));
                let found = ring.newest();
                assert_eq!(found, Some(next - 1), "{blocks}, {next}, {damaged} damaged");
            }
        }
    }
}

/// The last blocks before a crash may have been written in any order, each whole, not at all, or in part.
#[test]
fn blocks_written_in_order_are_found_after_a_crash() {
    for blocks in [8, 12, 19] {
        for flushed in 1..2 * blocks {
            for pattern in 0..3_u32.pow(4) {
                let state = |index: u64| pattern / 3_u32.pow(index as u32) % 3;
                let unwritten = (0..4).filter(|index| state(*index) == 1);
                let torn = (0..4).find(|index| state(*index) == 2);
                let unwritten = unwritten.map(|index| flushed + index).collect();
                let torn = torn.map(|index| flushed + index);
                let ring = Ring::new(blocks, flushed + 4, &unwritten, torn);
                let found = ring.newest();
                // At least the blocks up to the first unwritten one.
                let in_order = (0..4).take_while(|index| state(*index) == 0).count() as u64;
                let range = flushed - 1 + in_order..flushed + 4;
                assert!(
                    found.is_some_and(|found| range.contains(&found)),
                    "{blocks} blocks, {flushed} flushed, pattern {pattern}: {found:?}"
                );
            }
        }
    }
}

#[test]
fn recordings_are_listed_without_overwritten_blocks() {
    let blocks = 9;
    for next in 1..30_u64 {
        let ring = Ring::new(blocks, next, &BTreeSet::new(), None);
        let oldest = next.saturating_sub(blocks);
        let mut expected: Vec<Recording> = Vec::new();
        for serial in oldest..next {
            let (number, _) = recording_of(serial);
            match expected.last_mut().filter(|last| last.number == number) {
                Some(last) => last.end = serial + 1,
                None => expected.push(Recording {
                    number,
                    first: serial,
                    end: serial + 1,
                    begun_unix_ns: number,
                }),
            }
        }
        assert_eq!(
            ring.opened(&DeletedRanges::default()),
            (next, expected),
            "{next} written"
        );
    }
}

/// Deleted blocks are not found again, whether their places were discarded or not. All other blocks are
/// found, and the next serial is right.
#[test]
fn only_deleted_blocks_are_gone_after_a_restart() {
    for blocks in [4, 9, 16, 33] {
        for next in 1..blocks * 5 / 2 {
            let whole = Ring::new(blocks, next, &BTreeSet::new(), None);
            let (_, all) = whole.opened(&DeletedRanges::default());
            let oldest = next.saturating_sub(blocks);
            for pattern in 0..1_u32 << all.len().min(5) {
                for until in [0, oldest + 1, oldest + 2] {
                    let mut deleted = DeletedRanges::default();
                    deleted.add(0..until.min(next));
                    for (place, of) in all.iter().rev().enumerate() {
                        if pattern >> place & 1 == 1 {
                            deleted.add(of.first..of.end);
                        }
                    }
                    assert_reopened(&whole, next, &all, &deleted);
                }
            }
        }
    }
}

fn assert_reopened(whole: &Ring, next: u64, all: &[Recording], deleted: &DeletedRanges) {
    let blocks = whole.places.len() as u64;
    let left = |found: &[Recording]| -> Vec<(u64, u64, u64)> {
        let left = found.iter().filter_map(|of| {
            let first = deleted.first_kept(of.first);
            (first < of.end).then_some((of.number, first, of.end))
        });
        left.collect()
    };
    let mut places = whole.places.clone();
    for place in &mut places {
        *place = place.filter(|of| deleted.range_of(of.serial).is_none());
    }
    for ring in [
        Ring { places },
        Ring {
            places: whole.places.clone(),
        },
    ] {
        let (found_next, found) = ring.opened(deleted);
        assert_eq!(found_next, next, "{blocks} blocks, {deleted:?} deleted");
        assert_eq!(
            left(&found),
            left(all),
            "{blocks} blocks, {next}, {deleted:?}"
        );
    }
}

/// A ring that was recorded over deleted ranges: these do not mislead the search, whatever a crash has left
/// of the newest blocks.
#[test]
fn blocks_recorded_over_deleted_ones_are_found() {
    for blocks in [8, 12, 19] {
        for end in 1..2_u64 * blocks {
            let mut deleted = DeletedRanges::default();
            deleted.add(end.saturating_sub(3)..end);
            for next in end..end + 2 * blocks {
                for torn in [None, next.checked_sub(2), next.checked_sub(1)] {
                    let torn = torn.filter(|torn| *torn >= end);
                    let mut ring = Ring::new(blocks, next, &BTreeSet::new(), torn);
                    for place in &mut ring.places {
                        *place = place.filter(|of| deleted.range_of(of.serial).is_none());
                    }
                    let found = ring.opened(&deleted).0;
                    let expected = match torn {
                        Some(torn) if torn + 1 == next => next - 1,
                        _ => next,
                    };
                    assert_eq!(found, expected, "{blocks}, {deleted:?}, {next}, {torn:?}");
                }
            }
        }
    }
}

/// Cached contents give the same result as no cache, whatever was recorded, overwritten, deleted or damaged
/// since. If nothing was, opening takes one read.
#[test]
fn cached_contents_are_right_or_not_used() {
    let blocks = 19;
    for before in 0..3 * blocks {
        let old = Ring::new(blocks, before, &BTreeSet::new(), None);
        let (_, cached) = old.opened(&DeletedRanges::default());
        for next in before..before + 2 * blocks {
            for (count, is_damaged) in [(0, false), (0, true), (1, false), (4, true)] {
                let mut deleted = DeletedRanges::default();
                if let Some(last) = next.checked_sub(count).filter(|_| count > 0) {
                    deleted.add(recording_of(last).1..last + 1);
                }
                let damaged = next.checked_sub(1).filter(|_| is_damaged);
                let ring = Ring::new(blocks, next, &BTreeSet::new(), damaged);
                let geometry = Geometry::new(blocks);
                let find = |cached: &[Recording]| {
                    let mut reads = 0;
                    let read = |place: u64| {
                        reads += 1;
                        Ok::<_, Infallible>(ring.places[place as usize])
                    };
                    let found = find_recordings(next, &geometry, &deleted, cached, read).unwrap();
                    (found, reads)
                };
                let ((uncached, all), (found, reads)) = (find(&[]), find(&cached));
                let what = format!("{before} and {next}, {deleted:?}, {damaged:?}");
                assert_eq!(found, uncached, "{what}");
                assert!(reads <= all, "{what}");
                if next == before && count == 0 && !is_damaged {
                    assert!(reads <= 1, "{what}");
                }
            }
        }
    }
}
