//! Rings that become longer and shorter, and are deleted from and recorded to, with a crash at every step: against a list
//! of what counts.

use std::collections::BTreeMap;
use std::convert::Infallible;

use super::*;
use crate::archive::retention_record::mend;

/// What a crash leaves of a copy that is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Crash {
    /// It was written, and nothing crashed.
    None,
    /// Nothing of it.
    Before,
    /// Half of it.
    Within,
    /// All of it, and nothing in memory.
    Behind,
    /// The same, and half of what is written again to the other copy.
    Again,
}

const CRASHES: [Crash; 5] = [
    Crash::None,
    Crash::Before,
    Crash::Within,
    Crash::Behind,
    Crash::Again,
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    /// A recording of so many blocks.
    Record(u64),
    Delete {
        newest: bool,
        crash: Crash,
    },
    /// To so many blocks, with so many more recorded before that is durable.
    Resize {
        blocks: u64,
        meanwhile: u64,
        crash: Crash,
    },
}

/// An archive as it is on a disk, and as it is in memory.
#[derive(Clone)]
struct Disk {
    header_blocks: u64,
    places: Vec<Option<Trailer>>,
    copies: [Option<RetentionRecord>; 2],
    kept: RetentionRecord,
    next: u64,
    number: u64,
    /// What counts: the recording of each serial.
    counts: BTreeMap<u64, u64>,
    pattern: Trailer,
}

impl Disk {
    fn new(blocks: u64) -> Self {
        Self {
            header_blocks: blocks,
            places: vec![None; blocks as usize],
            copies: [None, None],
            kept: RetentionRecord {
                archive: [1; 16],
                ..RetentionRecord::default()
            },
            next: 0,
            number: 0,
            counts: BTreeMap::new(),
            pattern: trailer(0, 1, 0),
        }
    }

    fn geometry(&self) -> Geometry {
        let header = Geometry::new(self.header_blocks);
        self.kept.geometry.unwrap_or(header)
    }

    /// Writes so many blocks of the recording that began with `first`.
    fn write(&mut self, first: u64, count: u64) {
        let geometry = self.geometry();
        for serial in self.next..self.next + count {
            let place = geometry.place(serial).unwrap() as usize;
            if let Some(before) = &self.places[place] {
                self.counts.remove(&before.serial);
            }
            let mut written = self.pattern;
            (written.serial, written.first) = (serial, first);
            (written.recording, written.begun_unix_ns) = (self.number, self.number);
            self.places[place] = Some(written);
            self.counts.insert(serial, self.number);
        }
        self.next += count;
    }

    /// Writes a copy; whether it counts.
    fn change(&mut self, mut changed: RetentionRecord, crash: Crash) -> bool {
        changed.generation += 1;
        let copy = (changed.generation % 2) as usize;
        match crash {
            Crash::Before => return false,
            Crash::Within => {
                self.copies[copy] = None;
                return false;
            }
            Crash::None | Crash::Behind | Crash::Again => {}
        }
        self.copies[copy] = Some(changed.clone());
        self.kept = changed;
        true
    }

    fn apply(&mut self, action: Action) {
        match action {
            Action::Record(count) => {
                self.number += 1;
                self.write(self.next, count);
            }
            Action::Delete { newest, crash } => {
                let numbers = self.counts.values().copied();
                let number = if newest { numbers.max() } else { numbers.min() };
                let Some(number) = number else {
                    return;
                };
                let serials = self.counts.iter().filter(|(_, of)| **of == number);
                let serials: Vec<u64> = serials.map(|(serial, _)| *serial).collect();
                let mut changed = self.kept.clone();
                changed.gone.add(0..self.geometry().oldest(self.next));
                changed.gone.add(serials[0]..serials[serials.len() - 1] + 1);
                if self.change(changed, crash) {
                    self.counts.retain(|_, of| *of != number);
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
                // The volume is longer before anything else is.
                let long = self.places.len().max(blocks as usize);
                self.places.resize(long, None);
                let mut changed = self.kept.clone();
                changed.geometry = Some(to);
                changed.gone.add(0..to.base.max(before.oldest(self.next)));
                // The writer goes on as far as both agree.
                let agree =
                    (self.next..).take_while(|serial| before.place(*serial) == to.place(*serial));
                let meanwhile = agree.take(meanwhile as usize).count() as u64;
                if meanwhile > 0 {
                    self.number += 1;
                    self.write(self.next, meanwhile);
                }
                if self.change(changed, crash) {
                    self.counts.retain(|serial, _| *serial >= to.base);
                    let again = match crash {
                        Crash::None => Crash::None,
                        Crash::Again => Crash::Within,
                        _ => Crash::Before,
                    };
                    // The volume is cut when the other copy says so too.
                    if self.change(self.kept.clone(), again) {
                        self.places.truncate(blocks as usize);
                        self.bears_a_damaged_copy(before);
                    }
                }
            }
        }
    }

    /// Whichever copy is damaged, the other one says how long the ring is, and that as much counts as did.
    fn bears_a_damaged_copy(&self, before: Geometry) {
        for copy in self.copies.iter() {
            let kept = copy.as_ref().expect("both are there");
            let geometry = kept.geometry.expect("it says so");
            assert_eq!(geometry, self.geometry(), "{before:?}");
            assert!(geometry.blocks <= self.places.len() as u64);
            for serial in self.counts.keys() {
                assert_eq!(kept.gone.range_of(*serial), None);
            }
        }
    }

    /// Without any copy everything of the round that was written last is found, and the next serial.
    fn recovers(&self, done: &[Action]) {
        let header = Header {
            archive: [1; 16],
            block_bytes: BLOCK_BYTES.start,
            blocks: self.header_blocks,
        };
        let any = |place: u64| Ok::<_, Infallible>(self.places[place as usize]);
        let room = self.places.len() as u64;
        let kept = finding::recovered(&header, room, any).unwrap();
        let geometry = kept.geometry.unwrap_or(Geometry::new(header.blocks));
        assert!(geometry.blocks <= room && kept.gone.after(0) >= geometry.base);
        let start = self.geometry().round_start(self.next);
        for serial in self.counts.keys().filter(|serial| **serial >= start) {
            let place = self.geometry().place(*serial);
            assert_eq!(geometry.place(*serial), place, "{done:?}");
        }
    }

    /// What is found there by who opens it is what counts.
    fn agrees(&self, done: &[Action]) {
        self.recovers(done);
        let copies = self.copies.iter().flatten();
        let kept = copies.max_by_key(|of| of.generation);
        let kept = kept.cloned().unwrap_or_else(|| RetentionRecord {
            archive: [1; 16],
            ..RetentionRecord::default()
        });
        assert_eq!(kept, self.kept, "{done:?}");
        assert!(kept.gone.after(0) >= self.geometry().base);
        let geometry = self.geometry();
        assert!(geometry.blocks <= self.places.len() as u64, "{done:?}");
        let read = |place: u64| {
            let found = self.places[place as usize];
            Ok::<_, Infallible>(found.filter(|of| geometry.place(of.serial) == Some(place)))
        };
        let serial = |place| {
            let found = read(place)?.map(|of| of.serial);
            Ok::<_, Infallible>(found.or_else(|| kept.gone.in_place(place, &geometry)))
        };
        let newest_of = |known| newest(&geometry, known, serial).unwrap();
        let next = newest_of(None).map_or(0, |of| of + 1);
        let next = next.max(kept.gone.end());
        for known in 0..next + 2 {
            let again = newest_of(Some(known)).map_or(0, |of| of + 1);
            let again = again.max(kept.gone.end());
            assert_eq!(again, next, "{known} was the newest, {done:?}");
        }
        assert_eq!(next, self.next, "{done:?}, {kept:?}");
        let mut found = BTreeMap::new();
        for of in recordings(next, &geometry, &kept.gone, &[], read).unwrap() {
            let first = kept.gone.after(of.first.max(geometry.oldest(next)));
            found.extend((first..of.end).map(|serial| (serial, of.number)));
        }
        assert_eq!(found, self.counts, "{done:?}, {kept:?}");
    }
}

fn go(disk: &Disk, actions: &[Action], done: &mut Vec<Action>, steps: u32) {
    disk.agrees(done);
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

/// All sequences of two changes, a third that may crash, and two recordings behind it, on rings of four to six blocks that
/// have been recorded to once, more than once, in part or not at all.
#[test]
fn after_every_crash_a_resized_ring_has_what_counts_and_the_next_serial() {
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
        disk.agrees(done);
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

/// The copies say that as they were meant, whichever part of one was written.
#[test]
fn a_geometry_that_is_torn_is_the_one_before() {
    let mut kept = RetentionRecord {
        archive: [1; 16],
        generation: 4,
        geometry: Some(Geometry { base: 0, blocks: 9 }),
        ..RetentionRecord::default()
    };
    let before = kept.clone();
    kept.generation += 1;
    kept.geometry = Some(Geometry {
        base: 9,
        blocks: 20,
    });
    kept.gone.add(0..9);
    let (old, new) = (before.encode(), kept.encode());
    for sectors in 0..=COPY_BYTES / 512 {
        let mut torn = vec![0; COPY_BYTES];
        torn[..sectors * 512].copy_from_slice(&new[..sectors * 512]);
        let found = RetentionRecord::newest([1; 16], [&old, &torn]).unwrap();
        let is_whole = torn == new;
        assert_eq!(
            found,
            if is_whole {
                kept.clone()
            } else {
                before.clone()
            }
        );
    }
    // One that begins after something that counts makes no sense.
    let mut wrong = kept.encode();
    wrong[72] = 10;
    mend(&mut wrong);
    assert!(RetentionRecord::parse(&wrong).is_err());
}
