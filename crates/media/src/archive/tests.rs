//! Archives of all small sizes.

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
        is_last: false,
    };
    Composer::new(size, 0, 0).seal(&mut block, b"", b"", &seal);
    Trailer::parse(&block, BLOCK_BYTES.start).unwrap()
}

/// Recordings of three blocks each, the second of five.
fn of(serial: u64) -> (u64, u64) {
    match serial {
        0..3 => (1, 0),
        3..8 => (2, 3),
        later => ((later - 8) / 3 + 3, (later - 8) / 3 * 3 + 8),
    }
}

/// A ring to which blocks up to `next` were written, but for those that are missing: there what was before, or
/// nothing that can be read.
struct Ring {
    places: Vec<Option<Trailer>>,
}

impl Ring {
    fn new(blocks: u64, next: u64, unwritten: &BTreeSet<u64>, damaged: Option<u64>) -> Self {
        let mut places = vec![None; blocks as usize];
        for serial in (0..next).filter(|serial| !unwritten.contains(serial)) {
            let (recording, first) = of(serial);
            places[(serial % blocks) as usize] = Some(trailer(serial, recording, first));
        }
        if let Some(damaged) = damaged {
            places[(damaged % blocks) as usize] = None;
        }
        Self { places }
    }

    /// What is found when it is opened: the serial of the next block, and the recordings.
    fn opened(&self, gone: &Gone) -> (u64, Vec<Recording>) {
        let blocks = self.places.len() as u64;
        let read = |place: u64| Ok::<_, Infallible>(self.places[place as usize]);
        let serial = |place| {
            let found = read(place)?.map(|of| of.serial);
            Ok::<_, Infallible>(found.or_else(|| gone.in_place(place, &Geometry::new(blocks))))
        };
        let found = newest(&Geometry::new(blocks), None, serial).unwrap();
        // Whatever was the newest before.
        for known in 0..found.map_or(0, |of| of + 3) {
            let again = newest(&Geometry::new(blocks), Some(known), serial).unwrap();
            assert_eq!(again, found, "{blocks} blocks, {known} was the newest");
        }
        let next = found.map_or(0, |of| of + 1).max(gone.end());
        (
            next,
            recordings(next, &Geometry::new(blocks), gone, &[], read).unwrap(),
        )
    }

    fn newest(&self) -> Option<u64> {
        self.opened(&Gone::default()).0.checked_sub(1)
    }
}

#[test]
fn the_newest_block_is_found_whichever_one_is_damaged() {
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
fn after_a_crash_what_was_written_in_order_is_found() {
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
                // As far as they were written one after another, at least.
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
fn recordings_are_listed_as_far_as_they_are_there() {
    let blocks = 9;
    for next in 1..30_u64 {
        let ring = Ring::new(blocks, next, &BTreeSet::new(), None);
        let oldest = next.saturating_sub(blocks);
        let mut expected: Vec<Recording> = Vec::new();
        for serial in oldest..next {
            let (number, _) = of(serial);
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
            ring.opened(&Gone::default()),
            (next, expected),
            "{next} written"
        );
    }
}

/// What is deleted is not found again, whether its places were discarded or not, and everything else is: the newest block
/// too, and with it the serial that comes next.
#[test]
fn what_was_deleted_is_gone_after_a_restart_and_nothing_else_is() {
    for blocks in [4, 9, 16, 33] {
        for next in 1..blocks * 5 / 2 {
            let whole = Ring::new(blocks, next, &BTreeSet::new(), None);
            let (_, all) = whole.opened(&Gone::default());
            let oldest = next.saturating_sub(blocks);
            for pattern in 0..1_u32 << all.len().min(5) {
                for until in [0, oldest + 1, oldest + 2] {
                    let mut gone = Gone::default();
                    gone.add(0..until.min(next));
                    for (place, of) in all.iter().rev().enumerate() {
                        if pattern >> place & 1 == 1 {
                            gone.add(of.first..of.end);
                        }
                    }
                    reopened(&whole, next, &all, &gone);
                }
            }
        }
    }
}

fn reopened(whole: &Ring, next: u64, all: &[Recording], gone: &Gone) {
    let blocks = whole.places.len() as u64;
    let left = |found: &[Recording]| -> Vec<(u64, u64, u64)> {
        let left = found.iter().filter_map(|of| {
            let first = gone.after(of.first);
            (first < of.end).then_some((of.number, first, of.end))
        });
        left.collect()
    };
    let mut places = whole.places.clone();
    for place in &mut places {
        *place = place.filter(|of| gone.range_of(of.serial).is_none());
    }
    for ring in [
        Ring { places },
        Ring {
            places: whole.places.clone(),
        },
    ] {
        let (found_next, found) = ring.opened(gone);
        assert_eq!(found_next, next, "{blocks} blocks, {gone:?} gone");
        assert_eq!(left(&found), left(all), "{blocks} blocks, {next}, {gone:?}");
    }
}

/// A ring goes on over what was deleted: what is remembered of it misleads nobody, whatever a crash has left of the
/// newest blocks.
#[test]
fn what_is_recorded_over_deleted_blocks_is_found() {
    for blocks in [8, 12, 19] {
        for deleted in 1..2_u64 * blocks {
            let mut gone = Gone::default();
            gone.add(deleted.saturating_sub(3)..deleted);
            for next in deleted..deleted + 2 * blocks {
                for torn in [None, next.checked_sub(2), next.checked_sub(1)] {
                    let torn = torn.filter(|torn| *torn >= deleted);
                    let mut ring = Ring::new(blocks, next, &BTreeSet::new(), torn);
                    for place in &mut ring.places {
                        *place = place.filter(|of| gone.range_of(of.serial).is_none());
                    }
                    let found = ring.opened(&gone).0;
                    let expected = match torn {
                        Some(torn) if torn + 1 == next => next - 1,
                        _ => next,
                    };
                    assert_eq!(found, expected, "{blocks}, {gone:?}, {next}, {torn:?}");
                }
            }
        }
    }
}

/// Whatever was known of it before, and whatever has been recorded, overwritten, deleted or damaged since, the same is
/// found as if nothing were known; and where nothing was, with one read.
#[test]
fn what_was_known_of_an_archive_is_right_or_not_used() {
    let blocks = 19;
    for before in 0..3 * blocks {
        let old = Ring::new(blocks, before, &BTreeSet::new(), None);
        let (_, known) = old.opened(&Gone::default());
        for next in before..before + 2 * blocks {
            for (deleted, is_damaged) in [(0, false), (0, true), (1, false), (4, true)] {
                let mut gone = Gone::default();
                if let Some(last) = next.checked_sub(deleted).filter(|_| deleted > 0) {
                    gone.add(of(last).1..last + 1);
                }
                let damaged = next.checked_sub(1).filter(|_| is_damaged);
                let ring = Ring::new(blocks, next, &BTreeSet::new(), damaged);
                let geometry = Geometry::new(blocks);
                let find = |known: &[Recording]| {
                    let mut reads = 0;
                    let read = |place: u64| {
                        reads += 1;
                        Ok::<_, Infallible>(ring.places[place as usize])
                    };
                    let found = recordings(next, &geometry, &gone, known, read).unwrap();
                    (found, reads)
                };
                let ((anew, all), (found, reads)) = (find(&[]), find(&known));
                let what = format!("{before} and {next}, {gone:?}, {damaged:?}");
                assert_eq!(found, anew, "{what}");
                assert!(reads <= all, "{what}");
                if next == before && deleted == 0 && !is_damaged {
                    assert!(reads <= 1, "{what}");
                }
            }
        }
    }
}
