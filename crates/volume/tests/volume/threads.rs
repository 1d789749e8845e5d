//! Extents under many threads: writers of the same chunks, a discarder, a mover and the committer.
//!
//! `interleavings` tries all orders of a few steps of the same code; here all of it runs on real threads,
//! many times over. The disk is memory with a lock around each request, so that
//! requests are atomic as a disk's are, and nothing else orders them. Each thread owns some sectors of every
//! chunk and knows its last write to each. It must read that write back, whatever the others do.
//!
//! A waiting thread sleeps until a request or a move has ended, as in the engine. So the test takes as long
//! on one processor as on several.

#![allow(
    clippy::print_stdout,
    reason = "seeds and counts belong in a test's output"
)]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use crate::common::{Disk, EXTENT, OWNER, SECTOR, format, on, open, sectors, stamped};
use sched::units::{Bytes, Sector};
use testkit::Random;
use volume::limits::HEADER_BYTES;
use volume::map::Source;
use volume::{CreateSpec, Move, Placement, PoolState, Step, Transaction, VolumeId, VolumeMap};

const SEED: u64 = 1;
const WRITERS: u64 = 4;
const ROUNDS: u64 = 20_000;
const EXTENTS: u64 = 3;
/// Sectors at the beginning that are discarded again and again.
const DISCARDED: u64 = 64;
/// Moves that there must be, after the writers have gone if it has to be.
const MOVES_MIN: u32 = 3;
/// Commits that there must be beside the writers, who go on until then.
const COMMITS_MIN: u32 = 3;
/// Many more than a writer ever goes on for: a committer that has nothing to do fails the test.
const ROUNDS_MAX: u64 = 100 * ROUNDS;
/// Many more than a request is ever tried: a claim that was lost fails the test.
const ATTEMPTS_MAX: u64 = 10_000_000;

struct World {
    disks: Mutex<Vec<Disk>>,
    pool: Mutex<PoolState>,
    volume: VolumeId,
    map: Arc<VolumeMap>,
    /// Number of requests and moves that have ended.
    ended: Mutex<u64>,
    changed: Condvar,
    commits: AtomicU32,
    done: AtomicBool,
    /// A thread has failed: nobody is to wait for it.
    failed: AtomicBool,
}

/// Tells the others when the thread fails.
struct Alarm<'a>(&'a World);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.failed.store(true, Ordering::SeqCst);
            self.0.end();
        }
    }
}

impl World {
    /// A pool of two disks that others have used before, with one volume in it.
    fn new() -> Self {
        let sectors = sectors(24);
        let mut disks = vec![Disk::new(sectors); 2];
        for disk in &mut disks {
            for sector in HEADER_BYTES / SECTOR as u64..sectors {
                disk.write(Sector(sector), &stamped(0xdead_0000_0000 + sector));
            }
        }
        format(&mut disks, 1);
        let mut pool = open(&disks).unwrap();
        let disks = Mutex::new(disks);
        let start = pool.start(OWNER).unwrap();
        run(&disks, &mut pool, start);
        let create = pool
            .create(&CreateSpec {
                name: "v".to_owned(),
                size: Bytes(EXTENTS * EXTENT),
                placement: on(0),
            })
            .unwrap();
        run(&disks, &mut pool, create);
        let volume = pool.find("v").unwrap();
        let map = Arc::clone(pool.volume(volume).unwrap().1);
        Self {
            disks,
            pool: Mutex::new(pool),
            volume,
            map,
            ended: Mutex::new(0),
            changed: Condvar::new(),
            commits: AtomicU32::new(0),
            done: AtomicBool::new(false),
            failed: AtomicBool::new(false),
        }
    }

    fn end(&self) {
        *self.ended.lock().unwrap() += 1;
        self.changed.notify_all();
    }

    fn commits(&self) -> u32 {
        self.commits.load(Ordering::SeqCst)
    }

    fn is_done(&self) -> bool {
        self.done.load(Ordering::SeqCst)
    }

    /// Tries until it succeeds; between two tries something must have ended.
    fn until<R>(&self, mut attempt: impl FnMut() -> Option<R>) -> R {
        for _ in 0..ATTEMPTS_MAX {
            let before = *self.ended.lock().unwrap();
            if let Some(result) = attempt() {
                return result;
            }
            // A refused write may have been counted for an instant: the mover has to look again.
            let ended = self.ended.lock().unwrap();
            self.changed.notify_all();
            drop(self.changed.wait_while(ended, |ended| *ended == before));
            assert!(
                !self.failed.load(Ordering::SeqCst),
                "another thread has failed"
            );
        }
        panic!("refused for good");
    }

    fn write(&self, sector: u64, stamp: u64) {
        for span in self.map.writes(sector * SECTOR as u64, SECTOR).unwrap() {
            let piece = self.until(|| span.begin().ok());
            let mut data = vec![0; piece.lead.bytes().0 as usize];
            data.extend_from_slice(&stamped(stamp));
            data.resize(piece.count.bytes().0 as usize, 0);
            self.disks.lock().unwrap()[usize::from(piece.disk.0)].write(piece.start, &data);
            piece.in_use.written();
            self.end();
        }
    }

    fn read(&self, sector: u64) -> u64 {
        let stamp = self.read_piece(sector);
        self.end();
        stamp
    }

    fn read_piece(&self, sector: u64) -> u64 {
        let offset = sector * SECTOR as u64;
        let mut pieces = self.map.reads(offset, SECTOR).unwrap();
        let piece = pieces.next().unwrap().unwrap();
        match piece.source {
            Source::Zeros | Source::Lost => 0,
            Source::Disk { disk, start, .. } => {
                let bytes = self.disks.lock().unwrap()[usize::from(disk.0)].bytes(start.0, SECTOR);
                let stamp = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                assert!(bytes == stamped(stamp), "a torn sector");
                stamp
            }
        }
    }

    /// Writes and reads the sectors of thread `me`: those whose number is `me` modulo the writers.
    fn writer(&self, me: u64) {
        let _alarm = Alarm(self);
        let mut random = Random(SEED + me);
        let mine = EXTENTS * 128 / WRITERS;
        let mut known = vec![0; mine as usize];
        let mut round = 0;
        while round < ROUNDS || self.commits() < COMMITS_MIN {
            round += 1;
            assert!(round <= ROUNDS_MAX, "nothing is made durable meanwhile");
            let slot = random.below(mine);
            let sector = slot * WRITERS + me;
            let stamp = (me << 32) + round;
            if sector < DISCARDED {
                self.write(sector, stamp);
                let seen = self.read(sector);
                assert!(seen == 0 || seen == stamp, "{seen:#x} after {stamp:#x}");
            } else if random.below(2) == 0 {
                self.write(sector, stamp);
                known[slot as usize] = stamp;
            } else {
                let seen = self.read(sector);
                assert_eq!(seen, known[slot as usize], "sector {sector} of thread {me}");
            }
        }
        for (slot, stamp) in known.into_iter().enumerate() {
            let sector = slot as u64 * WRITERS + me;
            assert!(sector < DISCARDED || self.read(sector) == stamp);
        }
    }

    fn copy(&self, moved: &mut Move) {
        for copy in moved.pass() {
            let mut disks = self.disks.lock().unwrap();
            let bytes = disks[usize::from(moved.source().disk.0)]
                .bytes(copy.from.0, copy.count.bytes().0 as usize);
            disks[usize::from(moved.target().disk.0)].write(copy.to, &bytes);
        }
    }

    /// Moves every extent to and fro until the writers have gone. Returns how many moves there were.
    fn mover(&self) -> u32 {
        let _alarm = Alarm(self);
        let mut moves = 0;
        while !self.is_done() || moves < MOVES_MIN {
            let extent = moves % EXTENTS as u32;
            let mut moved = self.until(|| {
                // Refused as long as a read of the place before is under way.
                let anywhere = Placement::default();
                let mut pool = self.pool.lock().unwrap();
                pool.begin_move(self.volume, extent, &anywhere).ok()
            });
            self.copy(&mut moved);
            moved.freeze();
            let mut ended = self.ended.lock().unwrap();
            while moved.writers() > 0 && !self.failed.load(Ordering::SeqCst) {
                ended = self.changed.wait(ended).unwrap();
            }
            drop(ended);
            self.copy(&mut moved);
            let mut pool = self.pool.lock().unwrap();
            let transaction = pool.finish_move(moved).unwrap();
            run(&self.disks, &mut pool, transaction);
            drop(pool);
            self.end();
            moves += 1;
        }
        moves
    }

    /// Discards, and makes durable what has changed, whenever something has ended.
    fn committer(&self) {
        let _alarm = Alarm(self);
        loop {
            // Before the look, so that the end is not slept over.
            let before = *self.ended.lock().unwrap();
            if self.is_done() {
                return;
            }
            self.map.discard(0, DISCARDED * SECTOR as u64).unwrap();
            let mut pool = self.pool.lock().unwrap();
            let mark = self.map.mark();
            if let Some(transaction) = pool.settle(&[self.volume]).unwrap() {
                run(&self.disks, &mut pool, transaction);
                self.commits.fetch_add(1, Ordering::SeqCst);
            }
            assert!(self.map.is_durable(mark));
            drop(pool);
            let ended = self.ended.lock().unwrap();
            drop(self.changed.wait_while(ended, |ended| *ended == before));
        }
    }

    /// Nobody is to wait for what will never be.
    fn finish(&self) {
        self.done.store(true, Ordering::SeqCst);
        self.end();
    }
}

fn run(disks: &Mutex<Vec<Disk>>, pool: &mut PoolState, transaction: Transaction) {
    for step in transaction.steps() {
        let mut disks = disks.lock().unwrap();
        match step {
            Step::Write { disk, start, data } => disks[usize::from(disk.0)].write(*start, data),
            Step::Flush { disk } => disks[usize::from(disk.0)].flush(),
            Step::Expect { disk, start, data } => {
                let found = disks[usize::from(disk.0)].bytes(start.0, data.len());
                assert!(found == *data, "{step:?}");
            }
        }
    }
    let _ = pool.commit(transaction);
}

#[test]
fn writers_read_what_they_wrote() {
    println!("seed {SEED}");
    let world = World::new();
    std::thread::scope(|scope| {
        let world = &world;
        let mover = scope.spawn(|| world.mover());
        let committer = scope.spawn(|| world.committer());
        let writers: Vec<_> = (0..WRITERS)
            .map(|me| scope.spawn(move || world.writer(me)))
            .collect();
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        world.finish();
        let moves = mover.join().unwrap();
        committer.join().unwrap();
        println!("{moves} moves and {} commits meanwhile", world.commits());
        ended.into_iter().for_each(|end| end.unwrap());
    });
    assert_eq!(world.pool.lock().unwrap().reap(), 0);
}
