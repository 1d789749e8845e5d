//! Marks against flushes: a flush that believes that there is nothing to make durable is right.

use std::sync::Arc;

use super::*;

/// The bits on the disk, under the lock of the pool.
type Committed = Arc<shuttle::sync::Mutex<ChunkSet>>;

impl World {
    /// The metadata's part of a flush, as [`volume::PoolState::settle`] does it.
    fn flush(&self, committed: &Committed) {
        let mark = self.shared.now();
        if self.shared.is_durable(mark) {
            return;
        }
        let mut committed = committed.lock().unwrap();
        let mark = self.shared.now();
        if self.shared.take().contains(&0) {
            *committed = self.extent.written();
        }
        self.shared.set_durable(mark);
    }
}

#[test]
fn write_answered_before_a_flush_is_durable_after_it() {
    explore("two writers that flush", 3, || {
        let world = World::new(&[]);
        let committed = Committed::default();
        let writer = |chunk: usize| {
            let (world, committed) = (Arc::clone(&world), Arc::clone(&committed));
            move || {
                world.write(chunk, 0, 7).unwrap();
                world.flush(&committed);
                assert!(committed.lock().unwrap().has(chunk as u32));
            }
        };
        together([Box::new(writer(0)), Box::new(writer(1))]);
    });
}

#[test]
fn discard_before_a_flush_stays_after_it() {
    explore("a discard and a write that flush", 3, || {
        let world = World::new(&[[1, 2]]);
        let committed = Committed::default();
        *committed.lock().unwrap() = world.extent.written();
        let discarder = {
            let (world, committed) = (Arc::clone(&world), Arc::clone(&committed));
            move || {
                world.extent.clear(&chunk(0));
                world.flush(&committed);
                assert!(!committed.lock().unwrap().has(0));
            }
        };
        let writer = {
            let (world, committed) = (Arc::clone(&world), Arc::clone(&committed));
            move || {
                world.write(1, 0, 7).unwrap();
                world.flush(&committed);
                assert!(committed.lock().unwrap().has(1));
            }
        };
        together([Box::new(discarder), Box::new(writer)]);
    });
}

/// A flush that has nothing of its own does not take another's mark for durable before its bits are.
#[test]
fn a_flush_beside_a_write_leaves_the_next_one_its_work() {
    explore("a write and two flushes", 3, || {
        let world = World::new(&[]);
        let committed = Committed::default();
        let writer = {
            let (world, committed) = (Arc::clone(&world), Arc::clone(&committed));
            move || {
                world.write(0, 0, 7).unwrap();
                world.flush(&committed);
                assert!(committed.lock().unwrap().has(0));
            }
        };
        let flusher = {
            let (world, committed) = (Arc::clone(&world), Arc::clone(&committed));
            move || world.flush(&committed)
        };
        together([Box::new(writer), Box::new(flusher)]);
    });
}

testkit::full! {
    "soak: one more preemption",
    write_answered_before_a_flush_is_durable_after_it => write_answered_before_a_flush_is_durable_after_it_full,
    discard_before_a_flush_stays_after_it => discard_before_a_flush_stays_after_it_full,
    a_flush_beside_a_write_leaves_the_next_one_its_work => a_flush_beside_a_write_leaves_the_next_one_its_work_full,
}
