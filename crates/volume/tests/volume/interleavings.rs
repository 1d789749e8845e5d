//! The protocols of an extent under every interleaving that matters, by a model checker.
//!
//! The modules that share memory without a lock are compiled here once more, against the atomics of
//! `shuttle`: each operation on one is a point at which any other thread may go on. `shuttle` and
//! not `loom`, because every operation in these modules is sequentially consistent and relies on it
//! (raise mine, look at yours), which is just what `shuttle` explores, while `loom` takes such
//! operations for acquire and release and would report orders that cannot happen.
//!
//! Each scenario is explored exhaustively up to a number of preemptions ([`bounded`]). There is
//! nothing random in it. A failure prints the schedule.

#![allow(
    clippy::print_stdout,
    reason = "how many schedules were tried belongs in a test's output"
)]

/// The modules under test take their limits from here: sets of chunks and marks of one word, so that
/// each operation on one is a single step.
pub(crate) mod limits {
    pub(crate) use volume::limits::{
        CHUNK_BYTES_MIN, EXTENT_BYTES_MAX, EXTENT_BYTES_MIN, HEADER_BYTES,
    };
    pub(crate) const CHUNKS_PER_EXTENT_MAX: u64 = 64;
    pub(crate) const VOLUME_EXTENTS_MAX: u32 = 64;
    pub(crate) const MARK_WORDS: usize = 1;
}

pub(crate) mod sync {
    pub(crate) use shuttle::sync::atomic::{AtomicU32, AtomicU64};
}

pub(crate) mod error {
    pub(crate) use volume::Refused;
}

/// The modules under test, compiled with the atomics of `sync`.
#[path = "../../src"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the tests use a part of the library"
)]
mod under_test {
    pub(crate) mod chunks;
    pub(crate) mod dirty;
    pub(crate) mod extent;
    pub(crate) mod place;
}
pub(crate) use under_test::{chunks, dirty, extent, place};

mod bounded;
mod flushes;
mod moves;
mod writes;

use std::sync::{Arc, Mutex};

use chunks::ChunkSet;
use dirty::Shared;
use error::Refused;
use extent::Extent;
use place::{DiskNumber, Geometry, Place, VolumeId};
use sched::units::Bytes;

/// Data of another owner.
const FOREIGN: u64 = 0xdead;

const CHUNKS: usize = 2;
const SECTORS: usize = 2;

/// Runs a scenario under every schedule with at most so many preemptions; in full one
/// more.
fn explore(name: &str, preemptions: usize, scenario: impl Fn() + Send + Sync + 'static) {
    let preemptions = preemptions + usize::from(testkit::is_full());
    let scheduler = bounded::Bounded::new(preemptions);
    let schedules = shuttle::Runner::new(scheduler, shuttle::Config::new()).run(scenario);
    println!("{name}: {schedules} schedules with at most {preemptions} preemptions");
    assert!(schedules > 100, "nothing ran at the same time");
}

/// An extent of two chunks of two sectors, the three places that it may have, and what is on them.
struct World {
    extent: Arc<Extent>,
    shared: Arc<Shared>,
    places: [Mutex<[[u64; SECTORS]; CHUNKS]>; 3],
}

fn place(number: u32) -> Place {
    Place {
        disk: DiskNumber(0),
        extent: number,
    }
}

fn chunk(number: usize) -> ChunkSet {
    ChunkSet::of(number as u32..number as u32 + 1)
}

impl World {
    /// The extent lies in place 0; `written` is what is in its chunks that hold data.
    fn new(written: &[[u64; SECTORS]]) -> Arc<Self> {
        let geometry = Geometry::new(Bytes::from_kib(64)).unwrap();
        let shared = Arc::new(Shared::new(VolumeId(1), geometry));
        shared.make_room(1);
        let bits = ChunkSet::of(0..written.len() as u32);
        let extent = Extent::new(0, place(0), &bits, Arc::clone(&shared));
        let mut first = [[FOREIGN; SECTORS]; CHUNKS];
        first[..written.len()].copy_from_slice(written);
        let places = [
            first,
            [[FOREIGN; SECTORS]; CHUNKS],
            [[FOREIGN; SECTORS]; CHUNKS],
        ];
        Arc::new(Self {
            extent: Arc::new(extent),
            shared,
            places: places.map(Mutex::new),
        })
    }

    /// A request to a place: other threads may run before it, and it is atomic.
    fn disk<R>(&self, at: Place, request: impl FnOnce(&mut [[u64; SECTORS]; CHUNKS]) -> R) -> R {
        shuttle::thread::yield_now();
        request(&mut self.places[at.extent as usize].lock().unwrap())
    }

    /// Writes a sector, as [`volume::map`] does.
    fn write(&self, chunk: usize, sector: usize, stamp: u64) -> Result<(), Refused> {
        let range = chunk as u32..chunk as u32 + 1;
        let (place, guard) = self.extent.begin_write(range, 0..0)?;
        let first = guard.is_first(chunk as u32);
        self.disk(place, |chunks| {
            if first {
                chunks[chunk] = [0; SECTORS];
            }
            chunks[chunk][sector] = stamp;
        });
        guard.written();
        Ok(())
    }

    /// Replaces a chunk.
    fn write_whole(&self, chunk: usize, stamp: u64) -> Result<(), Refused> {
        let range = chunk as u32..chunk as u32 + 1;
        let (place, guard) = self.extent.begin_write(range.clone(), range)?;
        self.disk(place, |chunks| chunks[chunk] = [stamp; SECTORS]);
        guard.written();
        Ok(())
    }

    /// Reads a chunk, as [`volume::map`] does.
    fn read(&self, chunk: usize) -> Result<[u64; SECTORS], Refused> {
        let (place, content, guard) = self.extent.begin_read()?;
        assert!(content.lost.is_empty());
        let read = if content.written.has(chunk as u32) {
            self.disk(place, |chunks| chunks[chunk])
        } else {
            [0; SECTORS]
        };
        drop(guard);
        Ok(read)
    }

    fn copy(&self, set: &ChunkSet, to: Place) {
        let from = self.extent.place();
        for chunk in (0..CHUNKS).filter(|chunk| set.has(*chunk as u32)) {
            let data = self.disk(from, |chunks| chunks[chunk]);
            self.disk(to, |chunks| chunks[chunk] = data);
        }
    }

    /// Moves the extent as the engine does, in the fewest passes: `true` when it is done, `false` if
    /// a write was in the way.
    fn move_to(&self, to: Place) -> bool {
        let extent = &self.extent;
        extent.track();
        self.copy(&extent.take_pass(true), to);
        extent.freeze();
        if extent.writers() > 0 {
            extent.untrack();
            return false;
        }
        self.copy(&extent.take_pass(false), to);
        assert!(extent.touched().is_empty() && extent.writers() == 0);
        extent.switch(to);
        true
    }

    /// Another owner gets `left`, unless requests may be on their way to it.
    fn reap(&self, left: Place) -> bool {
        let free = !self.extent.lingers();
        if free {
            self.disk(left, |chunks| *chunks = [[FOREIGN; SECTORS]; CHUNKS]);
        }
        free
    }
}

/// Runs threads at the same time, to their ends.
fn together<const N: usize>(threads: [Box<dyn FnOnce() + Send>; N]) {
    for handle in threads.map(shuttle::thread::spawn) {
        handle.join().unwrap();
    }
}
