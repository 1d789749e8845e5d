//! Writes against each other and against discards.

use std::sync::Arc;

use super::*;

/// Writes again and again as a parked request is tried again: whenever something has ended.
struct Turns {
    ended: shuttle::sync::Mutex<u64>,
    changed: shuttle::sync::Condvar,
}

impl Turns {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            ended: shuttle::sync::Mutex::new(0),
            changed: shuttle::sync::Condvar::new(),
        })
    }

    fn end(&self) {
        *self.ended.lock().unwrap() += 1;
        self.changed.notify_all();
    }

    /// Tries until it succeeds; between two tries something must have ended.
    fn until(&self, mut attempt: impl FnMut() -> bool) {
        loop {
            let before = *self.ended.lock().unwrap();
            if attempt() {
                return self.end();
            }
            let mut ended = self.ended.lock().unwrap();
            while *ended == before {
                ended = self.changed.wait(ended).unwrap();
            }
        }
    }
}

/// Both find the chunk unwritten and widen their sector to it; neither wipes the other's.
#[test]
fn two_first_writers_of_a_chunk() {
    explore("two first writers", 4, || {
        let world = World::new(&[]);
        let turns = Turns::new();
        let writer = |sector: usize| {
            let (world, turns) = (Arc::clone(&world), Arc::clone(&turns));
            move || turns.until(|| world.write(0, sector, 7 + sector as u64).is_ok())
        };
        together([Box::new(writer(0)), Box::new(writer(1))]);
        assert_eq!(world.read(0), Ok([7, 8]));
    });
}

/// A lost chunk is filled by a write of all of it. One of a part is refused, or comes after that.
#[test]
fn a_write_of_a_part_puts_no_zeros_into_a_lost_chunk() {
    explore("two writes to a lost chunk", 4, || {
        let world = World::new(&[[1, 2]]);
        world.extent.lose(&chunk(0));
        let part = Arc::new(Mutex::new(None));
        let in_part = {
            let (world, part) = (Arc::clone(&world), Arc::clone(&part));
            move || *part.lock().unwrap() = Some(world.write(0, 0, 7))
        };
        let whole = {
            let world = Arc::clone(&world);
            move || assert_eq!(world.write_whole(0, 8), Ok(()))
        };
        together([Box::new(in_part), Box::new(whole)]);
        let expected = match part.lock().unwrap().unwrap() {
            Ok(()) => [7, 8],
            Err(refused) => {
                assert_ne!(refused, Refused::Gone);
                [8, 8]
            }
        };
        assert_eq!(world.read(0), Ok(expected));
    });
}

/// A reader beside them sees zeros or what they wrote, never what was there before.
#[test]
fn a_reader_beside_first_writers() {
    explore("two first writers and a reader", 2, || {
        let world = World::new(&[]);
        let writer = |sector: usize| {
            let world = Arc::clone(&world);
            move || {
                let _refused_while_claimed = world.write(0, sector, 7 + sector as u64);
            }
        };
        let reader = {
            let world = Arc::clone(&world);
            move || {
                let read = world.read(0).unwrap();
                assert!(
                    [0, 7].contains(&read[0]) && [0, 8].contains(&read[1]),
                    "{read:x?}"
                );
            }
        };
        together([Box::new(writer(0)), Box::new(writer(1)), Box::new(reader)]);
    });
}

/// Discarded data stays discarded, whatever is written beside it at the same time.
#[test]
fn a_writer_and_a_discarder() {
    for written in [vec![], vec![[1, 2]]] {
        explore("two writes and a discard", 4, move || {
            let world = World::new(&written);
            let writer = {
                let world = Arc::clone(&world);
                move || {
                    world.write(0, 0, 7).unwrap();
                    world.write(0, 0, 8).unwrap();
                }
            };
            let discarder = {
                let world = Arc::clone(&world);
                move || {
                    world.extent.clear(&chunk(0));
                    let read = world.read(0).unwrap();
                    assert!([0, 7, 8].contains(&read[0]), "{read:x?}");
                    assert_eq!(read[1], 0, "discarded");
                }
            };
            together([Box::new(writer), Box::new(discarder)]);
            let read = world.read(0).unwrap();
            assert!([0, 8].contains(&read[0]) && read[1] == 0, "{read:x?}");
        });
    }
}

/// Nobody waits for ever: two writers of a chunk that try again when a write or the move has ended,
/// and a mover that looks again when a write has ended or was refused, for that was counted, too.
#[test]
fn everybody_gets_their_turn() {
    explore("two writers and a mover that wait", 1, || {
        let world = World::new(&[]);
        let (ended, counted_off) = (Turns::new(), Turns::new());
        let writer = |sector: usize| {
            let (world, ended, counted_off) = (
                Arc::clone(&world),
                Arc::clone(&ended),
                Arc::clone(&counted_off),
            );
            move || {
                ended.until(|| {
                    let done = world.write(0, sector, 7 + sector as u64).is_ok();
                    counted_off.end();
                    done
                });
            }
        };
        let mover = {
            let (world, ended, counted_off) = (
                Arc::clone(&world),
                Arc::clone(&ended),
                Arc::clone(&counted_off),
            );
            move || {
                world.extent.track();
                world.copy(&world.extent.take_pass(true), place(1));
                world.extent.freeze();
                counted_off.until(|| world.extent.writers() == 0);
                world.copy(&world.extent.take_pass(false), place(1));
                world.extent.switch(place(1));
                ended.end();
            }
        };
        together([Box::new(writer(0)), Box::new(writer(1)), Box::new(mover)]);
        assert_eq!(world.read(0), Ok([7, 8]));
    });
}

testkit::full! {
    "soak: one more preemption",
    two_first_writers_of_a_chunk => two_first_writers_of_a_chunk_full,
    a_reader_beside_first_writers => a_reader_beside_first_writers_full,
    a_writer_and_a_discarder => a_writer_and_a_discarder_full,
    everybody_gets_their_turn => everybody_gets_their_turn_full,
}
