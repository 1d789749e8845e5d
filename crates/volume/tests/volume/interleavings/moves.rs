//! Moving against writing, reading and reaping; retiring.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use super::*;

/// A write that was answered is read afterwards, wherever the extent is by then.
#[test]
fn a_write_is_not_lost_to_a_move() {
    explore("a write and a move", 4, || {
        let world = World::new(&[[1, 2]]);
        let answered = Arc::new(AtomicBool::new(false));
        let writer = {
            let (world, answered) = (Arc::clone(&world), Arc::clone(&answered));
            move || answered.store(world.write(0, 0, 7).is_ok(), SeqCst)
        };
        let mover = {
            let world = Arc::clone(&world);
            move || {
                world.move_to(place(1));
            }
        };
        together([Box::new(writer), Box::new(mover)]);
        let expected = if answered.load(SeqCst) { 7 } else { 1 };
        assert_eq!(world.read(0), Ok([expected, 2]));
    });
}

/// A move beside an overwrite and a first write at once.
#[test]
fn two_writes_are_not_lost_to_a_move() {
    explore("two writes and a move", 2, || {
        let world = World::new(&[[1, 2]]);
        let answered = Arc::new([const { AtomicBool::new(false) }; 2]);
        let writer = |chunk: usize| {
            let (world, answered) = (Arc::clone(&world), Arc::clone(&answered));
            move || answered[chunk].store(world.write(chunk, 0, 7).is_ok(), SeqCst)
        };
        let mover = {
            let world = Arc::clone(&world);
            move || {
                world.move_to(place(1));
            }
        };
        together([Box::new(writer(0)), Box::new(writer(1)), Box::new(mover)]);
        let expected = [0, 1].map(|chunk| answered[chunk].load(SeqCst));
        assert_eq!(world.read(0), Ok([if expected[0] { 7 } else { 1 }, 2]));
        assert_eq!(world.read(1), Ok([if expected[1] { 7 } else { 0 }, 0]));
    });
}

/// A read never sees what another owner has, before or after, and sees what was there.
#[test]
fn a_place_is_not_given_away_under_a_read() {
    explore("a read, a move, a new owner", 3, || {
        let world = World::new(&[[1, 2]]);
        let reader = {
            let world = Arc::clone(&world);
            move || assert_eq!(world.read(0), Ok([1, 2]))
        };
        let mover = {
            let world = Arc::clone(&world);
            move || {
                assert!(world.move_to(place(1)));
                if world.reap(place(0)) {
                    assert!(world.move_to(place(2)));
                    world.reap(place(1));
                }
            }
        };
        together([Box::new(reader), Box::new(mover)]);
        assert!(!world.extent.lingers());
    });
}

/// There and back again: a read that has slept over two moves finds the place as it left it.
#[test]
fn a_read_may_sleep_over_two_moves() {
    explore("a read and a move there and back", 3, || {
        let world = World::new(&[[1, 2]]);
        let reader = {
            let world = Arc::clone(&world);
            move || {
                let read = world.read(1);
                assert!([Ok([0, 0]), Ok([7, 0])].contains(&read), "{read:x?}");
            }
        };
        let mover = {
            let world = Arc::clone(&world);
            move || {
                assert!(world.move_to(place(1)));
                assert_eq!(world.write(1, 0, 7), Ok(()));
                if world.reap(place(0)) {
                    assert!(world.move_to(place(0)));
                    world.reap(place(1));
                }
            }
        };
        together([Box::new(reader), Box::new(mover)]);
        assert_eq!(world.read(0), Ok([1, 2]));
        assert_eq!(world.read(1), Ok([7, 0]));
    });
}

/// A chunk that is written for the first time in the new place holds somebody else's data in the old.
#[test]
fn a_read_does_not_take_new_bits_for_the_old_place() {
    explore("a read, a first write and a move", 2, || {
        let world = World::new(&[[1, 2]]);
        let reader = {
            let world = Arc::clone(&world);
            move || {
                let read = world.read(1);
                assert!([Ok([0, 0]), Ok([7, 0])].contains(&read), "{read:x?}");
            }
        };
        let writer = {
            let world = Arc::clone(&world);
            move || {
                let _refused_while_frozen = world.write(1, 0, 7);
            }
        };
        let mover = {
            let world = Arc::clone(&world);
            move || {
                world.move_to(place(1));
            }
        };
        together([Box::new(reader), Box::new(writer), Box::new(mover)]);
    });
}

/// Nothing reaches an extent after it has been cut off and found quiet.
#[test]
fn a_retired_extent_is_left_alone() {
    explore("a write, a read and a deletion", 3, || {
        let world = World::new(&[[1, 2]]);
        let writer = {
            let world = Arc::clone(&world);
            move || assert_ne!(world.write(0, 0, 7), Err(Refused::Busy))
        };
        let reader = {
            let world = Arc::clone(&world);
            move || {
                let read = world.read(0);
                let may = [Ok([1, 2]), Ok([7, 2]), Err(Refused::Gone)];
                assert!(may.contains(&read), "{read:x?}");
            }
        };
        let reaped = Arc::new(AtomicBool::new(false));
        let control = {
            let (world, reaped) = (Arc::clone(&world), Arc::clone(&reaped));
            move || {
                world.extent.retire();
                reaped.store(world.reap(place(0)), SeqCst);
            }
        };
        together([Box::new(writer), Box::new(reader), Box::new(control)]);
        assert!(!world.extent.lingers());
        assert_eq!(world.write(0, 0, 8), Err(Refused::Gone));
        assert_eq!(world.read(0), Err(Refused::Gone));
        if reaped.load(SeqCst) {
            assert_eq!(
                *world.places[0].lock().unwrap(),
                [[FOREIGN; SECTORS]; CHUNKS]
            );
        }
    });
}

testkit::full! {
    "soak: one more preemption",
    a_write_is_not_lost_to_a_move => a_write_is_not_lost_to_a_move_full,
    two_writes_are_not_lost_to_a_move => two_writes_are_not_lost_to_a_move_full,
    a_place_is_not_given_away_under_a_read => a_place_is_not_given_away_under_a_read_full,
    a_read_may_sleep_over_two_moves => a_read_may_sleep_over_two_moves_full,
    a_read_does_not_take_new_bits_for_the_old_place => a_read_does_not_take_new_bits_for_the_old_place_full,
    a_retired_extent_is_left_alone => a_retired_extent_is_left_alone_full,
}
