//! Extents under many threads: first writers of one chunk, a discarder, a mover and the committer.
//!
//! The disk is memory with a lock around each request, so that requests are atomic as a disk's are,
//! and nothing else orders them. Each thread owns some sectors of every chunk and knows what it last
//! wrote there: whatever the others do, that is what it must read.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use common::{Disk, EXTENT, Random, SECTOR, on, open, spec, stamped};
use sched::units::Bytes;
use volume::map::Source;
use volume::{CreateSpec, Placement, PoolState, Step, Transaction, VolumeId, VolumeMap};

const WRITERS: u64 = 4;
const EXTENTS: u64 = 3;

struct Shared {
    disks: Mutex<Vec<Disk>>,
    map: Arc<VolumeMap>,
}

impl Shared {
    fn write(&self, sector: u64, stamp: u64) {
        for span in self.map.writes(sector * SECTOR as u64, SECTOR).unwrap() {
            // A refusal lasts as long as another thread's request; a bound turns a lost claim into a
            // failure instead of a hang.
            let begun = (0..100_000_000).find_map(|_| {
                let begun = span.begin().ok();
                if begun.is_none() {
                    std::thread::yield_now();
                }
                begun
            });
            let piece = begun.expect("a write is refused for good");
            let mut data = vec![0; piece.lead.bytes().0 as usize];
            data.extend_from_slice(&stamped(stamp));
            data.resize(piece.count.bytes().0 as usize, 0);
            self.disks.lock().unwrap()[usize::from(piece.disk.0)].write(piece.start, &data);
            piece.in_use.written();
        }
    }

    fn read(&self, sector: u64) -> u64 {
        let piece = self
            .map
            .reads(sector * SECTOR as u64, SECTOR)
            .unwrap()
            .next()
            .unwrap()
            .unwrap();
        match piece.source {
            Source::Zeros => 0,
            Source::Disk { disk, start, .. } => {
                let bytes = self.disks.lock().unwrap()[usize::from(disk.0)].bytes(start.0, SECTOR);
                assert!(bytes == stamped(u64::from_le_bytes(bytes[..8].try_into().unwrap())));
                u64::from_le_bytes(bytes[..8].try_into().unwrap())
            }
        }
    }

    /// Writes and reads the sectors of thread `me`: those whose number is `me` modulo the writers.
    fn writer(&self, me: u64, rounds: u64) {
        let mut random = Random(me);
        let mine = EXTENTS * 128 / WRITERS;
        let mut known = vec![0; mine as usize];
        for round in 1..=rounds {
            let slot = random.below(mine);
            let sector = slot * WRITERS + me;
            // The first eight chunks belong to the discarder.
            if sector < 64 {
                self.write(sector, (me << 32) + round);
                let seen = self.read(sector);
                assert!(
                    seen == 0 || seen == (me << 32) + round,
                    "{seen:#x} after {round}"
                );
            } else if random.below(2) == 0 {
                self.write(sector, (me << 32) + round);
                known[slot as usize] = (me << 32) + round;
            } else {
                assert_eq!(
                    self.read(sector),
                    known[slot as usize],
                    "sector {sector} of thread {me}"
                );
            }
        }
    }
}

fn run(disks: &Mutex<Vec<Disk>>, pool: &mut PoolState, transaction: Transaction) {
    for step in transaction.steps() {
        let mut disks = disks.lock().unwrap();
        match step {
            Step::Write { disk, start, data } => disks[usize::from(disk.0)].write(*start, data),
            Step::Flush { disk } => disks[usize::from(disk.0)].flush(),
        }
    }
    let _ = pool.commit(transaction);
}

/// Moves every extent to and fro until `done`. Returns how many moves there were.
fn mover(shared: &Shared, pool: &Mutex<PoolState>, volume: VolumeId, done: &AtomicBool) -> u32 {
    let mut moves = 0;
    while !done.load(Ordering::SeqCst) {
        let extent = moves % EXTENTS as u32;
        let begun = pool
            .lock()
            .unwrap()
            .begin_move(volume, extent, &Placement::default());
        let Ok(mut moved) = begun else {
            std::thread::yield_now();
            continue;
        };
        let copy = |moved: &mut volume::Move| {
            for copy in moved.pass() {
                let mut disks = shared.disks.lock().unwrap();
                let bytes = disks[usize::from(moved.source().disk.0)]
                    .bytes(copy.from.0, copy.count.bytes().0 as usize);
                disks[usize::from(moved.target().disk.0)].write(copy.to, &bytes);
            }
        };
        copy(&mut moved);
        copy(&mut moved);
        // Locked first: waiting for the lock with the extent frozen would hold up its writers for as
        // long as the committer cares to keep the lock to itself.
        let mut pool = pool.lock().unwrap();
        moved.freeze();
        while moved.writers() > 0 {
            std::thread::yield_now();
        }
        copy(&mut moved);
        let transaction = pool.finish_move(moved).unwrap();
        run(&shared.disks, &mut pool, transaction);
        moves += 1;
    }
    moves
}

#[test]
fn writers_read_what_they_wrote() {
    let sectors = ((1 << 20) + 24 * EXTENT + 4096) / 512;
    let mut disks = vec![Disk::new(sectors); 2];
    for disk in &mut disks {
        for sector in 2048..sectors {
            disk.write(
                sched::units::Sector(sector),
                &stamped(0xdead_0000_0000 + sector),
            );
        }
    }
    for step in PoolState::format(&spec(&disks, 1, EXTENT)).unwrap() {
        common::execute(&mut disks, &step);
    }
    let mut pool = open(&disks).unwrap();
    let disks = Mutex::new(disks);
    let start = pool.start().unwrap();
    run(&disks, &mut pool, start);
    let size = Bytes(EXTENTS * EXTENT);
    let create = pool
        .create(&CreateSpec {
            name: "v".to_owned(),
            size,
            placement: on(0),
        })
        .unwrap();
    run(&disks, &mut pool, create);
    let volume = pool.find("v").unwrap();
    let map = Arc::clone(pool.volume(volume).unwrap().1);
    let shared = Shared { disks, map };
    let pool = Mutex::new(pool);
    let done = AtomicBool::new(false);
    let moves = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|me| {
                scope.spawn({
                    let shared = &shared;
                    move || shared.writer(me, 20_000)
                })
            })
            .collect();
        let mover = scope.spawn(|| mover(&shared, &pool, volume, &done));
        let others = scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                shared.map.discard(0, 64 * SECTOR as u64).unwrap();
                let mut pool = pool.lock().unwrap();
                let mark = shared.map.mark();
                if let Some(transaction) = pool.settle(&[volume]).unwrap() {
                    run(&shared.disks, &mut pool, transaction);
                }
                assert!(shared.map.is_durable(mark));
                drop(pool);
                std::thread::yield_now();
            }
        });
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, Ordering::SeqCst);
        others.join().unwrap();
        let moves = mover.join().unwrap();
        ended.into_iter().for_each(|end| end.unwrap());
        moves
    });
    assert!(moves > 0, "no extent was ever moved");
    assert_eq!(pool.lock().unwrap().reap(), 0);
}
