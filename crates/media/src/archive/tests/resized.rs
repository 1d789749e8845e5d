//! Rings that are resized, deleted from and recorded to, with a crash at every step, compared with a list of
//! the blocks that must remain.

use std::collections::BTreeMap;
use std::convert::Infallible;

use super::*;
use crate::archive::retention_record::mend;

/// State of a copy of the retention record after a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Crash {
    /// The copy is written; no crash.
    None,
    /// Nothing of the copy is written.
    BeforeWrite,
    /// Half of the copy is written.
    DuringWrite,
    /// The copy is written; the server's memory is lost.
    AfterWrite,
    /// The copy is written, and half of the second copy.
    DuringSecondWrite,
}

const CRASHES: [Crash; 5] = [
    Crash::None,
    Crash::BeforeWrite,
    Crash::DuringWrite,
    Crash::AfterWrite,
    Crash::DuringSecondWrite,
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    /// A recording of this many blocks.
    Record(u64),
    Delete {
        newest: bool,
        crash: Crash,
    },
    /// A resize to `blocks`, during which `meanwhile` blocks are recorded.
    Resize {
        blocks: u64,
        meanwhile: u64,
        crash: Crash,
    },
}

/// An archive on the disk and in memory.
#[derive(Clone)]
struct Disk {
    header_blocks: u64,
    places: Vec<Option<Trailer>>,
    copies: [Option<RetentionRecord>; 2],
    record: RetentionRecord,
    next: u64,
    number: u64,
    /// The recording of each block that must remain, by serial.
    expected: BTreeMap<u64, u64>,
    pattern: Trailer,
}

impl Disk {
    fn new(blocks: u64) -> Self {
        Self {
            header_blocks: blocks,
            places: vec![None; blocks as usize],
            copies: [None, None],
            record: RetentionRecord {
                archive: [1; 16],
                ..RetentionRecord::default()
            },
            next: 0,
            number: 0,
            expected: BTreeMap::new(),
            pattern: trailer(0, 1, 0),
        }
    }

    fn geometry(&self) -> Geometry {
        let header = Geometry::new(self.header_blocks);
        self.record.geometry.unwrap_or(header)
    }

    /// Writes blocks of the recording that began with `first`.
    fn write(&mut self, first: u64, count: u64) {
        let geometry = self.geometry();
        for serial in self.next..self.next + count {
            let place = geometry.place(serial).unwrap() as usize;
            if let Some(before) = &self.places[place] {
                self.expected.remove(&before.serial);
            }
            let mut written = self.pattern;
            (written.serial, written.first) = (serial, first);
            (written.recording, written.begun_unix_ns) = (self.number, self.number);
            self.places[place] = Some(written);
            self.expected.insert(serial, self.number);
        }
        self.next += count;
    }

    /// Writes a copy of the retention record. Returns true if it takes effect.
    fn change(&mut self, mut changed: RetentionRecord, crash: Crash) -> bool {
        changed.generation += 1;
        let copy = (changed.generation % 2) as usize;
        match crash {
            Crash::BeforeWrite => return false,
            Crash::DuringWrite => {
                self.copies[copy] = None;
                return false;
            }
            Crash::None | Crash::AfterWrite | Crash::DuringSecondWrite => {}
        }
        self.copies[copy] = Some(changed.clone());
        self.record = changed;
        true
    }

    fn apply(&mut self, action: Action) {
        match action {
            Action::Record(count) => {
                self.number += 1;
                self.write(self.next, count);
            }
            Action::Delete { newest, crash } => {
                let numbers = self.expected.values().copied();
                let number = if newest { numbers.max() } else { numbers.min() };
                let Some(number) = number else {
                    return;
                };
                let serials = self.expected.iter().filter(|(_, of)| **of == number);
                let serials: Vec<u64> = serials.map(|(serial, _)| *serial).collect();
                let mut changed = self.record.clone();
                changed.gone.add(0..self.geometry().oldest(self.next));
                changed.gone.add(serials[0]..serials[serials.len() - 1] + 1);
                if self.change(changed, crash) {
                    self.expected.retain(|_, of| *of != number);
                }
            }
            Action::Resize {
                blocks,
                meanwhile,
                crash,
            } => {
                let before = self.geometry();
                let Some(to) = before.resized(self.next, blocks) else {
                    return;
                };
                // The volume grows first.
                let long = self.places.len().max(blocks as usize);
                self.places.resize(long, None);
                let mut changed = self.record.clone();
                changed.geometry = Some(to);
                changed.gone.add(0..to.base.max(before.oldest(self.next)));
                // The writer goes on as long as both geometries agree.
                let agree =
                    (self.next..).take_while(|serial| before.place(*serial) == to.place(*serial));
                let meanwhile = agree.take(meanwhile as usize).count() as u64;
                if meanwhile > 0 {
                    self.number += 1;
                    self.write(self.next, meanwhile);
                }
                if self.change(changed, crash) {
                    self.expected.retain(|serial, _| *serial >= to.base);
                    let again = match crash {
                        Crash::None => Crash::None,
                        Crash::DuringSecondWrite => Crash::DuringWrite,
                        _ => Crash::BeforeWrite,
                    };
                    // The volume is cut when both copies have the geometry.
                    if self.change(self.record.clone(), again) {
                        self.places.truncate(blocks as usize);
                        self.assert_copies_agree();
                    }
                }
            }
        }
    }

    /// Either copy alone has the current geometry and deletes none of the expected blocks.
    fn assert_copies_agree(&self) {
        for copy in self.copies.iter() {
            let record = copy.as_ref().expect("both are there");
            let geometry = record.geometry.expect("it says so");
            assert_eq!(geometry, self.geometry());
            assert!(geometry.blocks <= self.places.len() as u64);
            for serial in self.expected.keys() {
                assert_eq!(record.gone.range_of(*serial), None);
            }
        }
    }

    /// Without either copy, the blocks of the current round have their places.
    fn assert_recoverable(&self, done: &[Action]) {
        let header = Header {
            archive: [1; 16],
            block_bytes: BLOCK_BYTES.start,
            blocks: self.header_blocks,
        };
        let any = |place: u64| Ok::<_, Infallible>(self.places[place as usize]);
        let room = self.places.len() as u64;
        let record = finding::recover_record(&header, room, any).unwrap();
        let geometry = record.geometry.unwrap_or(Geometry::new(header.blocks));
        assert!(geometry.blocks <= room && record.gone.first_kept(0) >= geometry.base);
        let start = self.geometry().round_start(self.next);
        for serial in self.expected.keys().filter(|serial| **serial >= start) {
            let place = self.geometry().place(*serial);
            assert_eq!(geometry.place(*serial), place, "{done:?}");
        }
    }

    /// Opening the archive finds the expected blocks and the next serial.
    fn assert_opens(&self, done: &[Action]) {
        self.assert_recoverable(done);
        let copies = self.copies.iter().flatten();
        let record = copies.max_by_key(|of| of.generation);
        let record = record.cloned().unwrap_or_else(|| RetentionRecord {
            archive: [1; 16],
            ..RetentionRecord::default()
        });
        assert_eq!(record, self.record, "{done:?}");
        assert!(record.gone.first_kept(0) >= self.geometry().base);
        let geometry = self.geometry();
        assert!(geometry.blocks <= self.places.len() as u64, "{done:?}");
        let read = |place: u64| {
            let found = self.places[place as usize];
            Ok::<_, Infallible>(found.filter(|of| geometry.place(of.serial) == Some(place)))
        };
        let serial = |place| {
            let found = read(place)?.map(|of| of.serial);
            Ok::<_, Infallible>(found.or_else(|| record.gone.last_in_place(place, &geometry)))
        };
        let newest = |cached| find_newest(&geometry, cached, serial).unwrap();
        let next = newest(None).map_or(0, |of| of + 1);
        let next = next.max(record.gone.end());
        for cached in 0..next + 2 {
            let again = newest(Some(cached)).map_or(0, |of| of + 1);
            let again = again.max(record.gone.end());
            assert_eq!(again, next, "{cached} was the newest, {done:?}");
        }
        assert_eq!(next, self.next, "{done:?}, {record:?}");
        let mut found = BTreeMap::new();
        for of in find_recordings(next, &geometry, &record.gone, &[], read).unwrap() {
            let first = record.gone.first_kept(of.first.max(geometry.oldest(next)));
            found.extend((first..of.end).map(|serial| (serial, of.number)));
        }
        assert_eq!(found, self.expected, "{done:?}, {record:?}");
    }
}

fn go(disk: &Disk, actions: &[Action], done: &mut Vec<Action>, steps: u32) {
    disk.assert_opens(done);
    if steps == 0 {
        return;
    }
    for action in actions {
        let mut changed = disk.clone();
        changed.apply(*action);
        done.push(*action);
        go(&changed, actions, done, steps - 1);
        done.pop();
    }
}

/// All sequences of two changes, a third that may crash, and two recordings after it, on rings of four to six
/// blocks that were recorded to once, more than once, in part or not at all.
#[test]
fn a_resized_ring_is_right_after_every_crash() {
    let resizes = |crashes: &'static [Crash]| {
        let all = (3..=8).flat_map(|blocks| [0, 2].map(|meanwhile| (blocks, meanwhile)));
        all.flat_map(move |(blocks, meanwhile)| {
            crashes.iter().map(move |crash| Action::Resize {
                blocks,
                meanwhile,
                crash: *crash,
            })
        })
    };
    let deletions = |crash| [true, false].map(|newest| Action::Delete { newest, crash });
    let mut whole: Vec<Action> = [1, 3].map(Action::Record).to_vec();
    whole.extend(deletions(Crash::None));
    whole.extend(resizes(&[Crash::None]));
    let mut last: Vec<Action> = resizes(&CRASHES).collect();
    last.extend(CRASHES.into_iter().flat_map(deletions));
    let after = [Action::Record(1), Action::Record(5)];
    fn through(
        disk: &Disk,
        whole: &[Action],
        last: &[Action],
        after: &[Action],
        done: &mut Vec<Action>,
        steps: u32,
    ) {
        disk.assert_opens(done);
        for action in last {
            let mut crashed = disk.clone();
            crashed.apply(*action);
            done.push(*action);
            go(&crashed, after, done, 2);
            done.pop();
        }
        if steps == 0 {
            return;
        }
        for action in whole {
            let mut changed = disk.clone();
            changed.apply(*action);
            done.push(*action);
            through(&changed, whole, last, after, done, steps - 1);
            done.pop();
        }
    }
    for blocks in 4..=6 {
        for recorded in [0, 2, blocks, blocks + 3, 2 * blocks] {
            let mut disk = Disk::new(blocks);
            disk.apply(Action::Record(recorded));
            through(&disk, &whole, &last, &after, &mut Vec::new(), 2);
        }
    }
}

/// A torn copy of a resize leaves the previous geometry.
#[test]
fn a_torn_resize_leaves_the_previous_geometry() {
    let mut record = RetentionRecord {
        archive: [1; 16],
        generation: 4,
        geometry: Some(Geometry { base: 0, blocks: 9 }),
        ..RetentionRecord::default()
    };
    let before = record.clone();
    record.generation += 1;
    record.geometry = Some(Geometry {
        base: 9,
        blocks: 20,
    });
    record.gone.add(0..9);
    let (old, new) = (before.encode(), record.encode());
    for sectors in 0..=COPY_BYTES / 512 {
        let mut torn = vec![0; COPY_BYTES];
        torn[..sectors * 512].copy_from_slice(&new[..sectors * 512]);
        let found = RetentionRecord::newest([1; 16], [&old, &torn]).unwrap();
        let is_whole = torn == new;
        assert_eq!(
            found,
            if is_whole {
                record.clone()
            } else {
                before.clone()
            }
        );
    }
    // A base after blocks that are not deleted is invalid.
    let mut wrong = record.encode();
    wrong[72] = 10;
    mend(&mut wrong);
    assert!(RetentionRecord::parse(&wrong).is_err());
}
