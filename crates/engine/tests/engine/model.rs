//! Random requests by several clients against a model, while the volume grows, shrinks and moves.

#![allow(
    clippy::print_stdout,
    reason = "what was tried is told beside the seed"
)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use testkit::disks;

use engine::disk::Durability;
use engine::pool::{CheckFinding, Placement, Pool, Volume};
use engine::volume_io::{Client, ClientOptions, VolumeOp, VolumeRequest};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sched::request::Op;
use sched::units::Bytes;
use testkit::disks::platter::PlaceFault;
use testkit::disks::{MIB, Rig, moved_to, seeded, volume};
use testkit::until;

const EXTENT: u64 = 64 << 10;
const SIZE: u64 = 3 * MIB;
const SECTOR: u64 = 512;
/// Consecutive sectors of one writer. No divisor of chunks or extents, so that writers meet within both.
const STRIPE: u64 = 25;
const WRITERS: u64 = 3;
const OPS: u32 = 1500;
/// Places that fail: fewer than a disk may have.
const FAULTS: u32 = 8;

/// A writer and the data that it has written: only its own stripes are non-zero.
struct Writer {
    id: u64,
    client: Client,
    volume: Arc<Volume>,
    chunk: u64,
    model: Vec<u8>,
    rng: StdRng,
}

impl Writer {
    /// A range of sectors within one of its stripes.
    fn range(&mut self) -> (u64, u64) {
        let stripes = SIZE / SECTOR / STRIPE;
        let mine = self.rng.random_range(0..stripes / WRITERS) * WRITERS + self.id;
        let from = self.rng.random_range(0..STRIPE);
        let to = self.rng.random_range(from + 1..=STRIPE);
        (
            (mine * STRIPE + from) * SECTOR,
            (mine * STRIPE + to) * SECTOR,
        )
    }

    fn step(&mut self) {
        let (from, to) = self.range();
        let range = from as usize..to as usize;
        let (offset, len) = (Bytes(from), Bytes(to - from));
        match self.rng.random_range(0..100) {
            0..45 => {
                let mut data = vec![0; range.len()];
                self.rng.fill(&mut data[..]);
                self.client.write_at(&self.volume, offset, &data).unwrap();
                self.model[range].copy_from_slice(&data);
            }
            45..75 => {
                let mut data = vec![0x55; range.len()];
                self.client
                    .read_at(&self.volume, offset, &mut data)
                    .unwrap();
                assert!(data == self.model[range], "{from}..{to} differs");
            }
            75..85 => {
                self.command(VolumeOp::Discard, offset, len);
                let (first, last) = (from.div_ceil(self.chunk), to / self.chunk);
                if first < last {
                    let whole = (first * self.chunk) as usize..(last * self.chunk) as usize;
                    self.model[whole].fill(0);
                }
            }
            85..95 => {
                let op = VolumeOp::WriteZeroes {
                    no_hole: self.rng.random_bool(0.3),
                    durable: self.rng.random_bool(0.1),
                };
                self.command(op, offset, len);
                self.model[range].fill(0);
            }
            _ => self.client.flush(&self.volume).unwrap(),
        }
    }

    fn command(&self, op: VolumeOp, offset: Bytes, len: Bytes) {
        let request = VolumeRequest::command(&self.volume, op, offset, len);
        self.client.execute(request).unwrap().result.unwrap();
    }
}

/// Grows, shrinks and moves the volume until stopped. Counts the extents that it has moved.
fn reorganise(pool: &Pool, rng: &mut StdRng, stop: &AtomicBool, moved: &AtomicU64) {
    let go_on = || !stop.load(Ordering::SeqCst);
    while go_on() {
        let more = SIZE + rng.random_range(1..16) * EXTENT;
        pool.grow("v", Bytes(more), &Placement::default()).unwrap();
        let extents = moved_to(pool, "v", rng.random_range(0..3), go_on);
        moved.fetch_add(extents, Ordering::SeqCst);
        pool.shrink("v", Bytes(SIZE)).unwrap();
    }
}

/// Has writes fail at places of the volume, one after the other, until there are [`FAULTS`] of them. Counts those that the
/// pool has found.
fn wear(rig: &Rig, pool: &Pool, rng: &mut StdRng, stop: &AtomicBool, found: &AtomicU64) {
    for _ in 0..FAULTS {
        let known = found.load(Ordering::SeqCst);
        let at = rng.random_range(0..SIZE - EXTENT);
        let run = &pool.volume_places("v", at, 1).unwrap()[0];
        let disk: usize = run.disk["disk".len()..].parse().unwrap();
        // All but the end of the volume is written again and again.
        let from = (run.from_byte + at % EXTENT) / SECTOR;
        let fault = PlaceFault {
            sectors: from..from + rng.random_range(1..2 * EXTENT / SECTOR),
            op: Some(Op::Write),
            fails: true,
            longer_ns: 0,
        };
        rig.platters[disk].faults.lock().unwrap().push(fault);
        until("it is found", || {
            let disks = pool.status().disks;
            let bad = disks.iter().map(|disk| disk.bad_places).sum();
            found.store(bad, Ordering::SeqCst);
            bad > known || stop.load(Ordering::SeqCst)
        });
    }
}

fn all_of(client: &Client, volume: &Volume) -> Vec<u8> {
    let mut all = vec![0; SIZE as usize];
    client.read_at(volume, Bytes::ZERO, &mut all).unwrap();
    all
}

/// Something that goes on beside the requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    /// The volume grows, shrinks and moves.
    Reorganisation,
    /// Places of the disks fail.
    Wear,
}

fn run(durability: Durability, beside: Beside) {
    let mut rng = seeded("model");
    let (rig, pool) = Rig::fresh(3, 16 * MIB, EXTENT, durability);
    let shared = volume(&pool, "v", SIZE);
    let chunk = shared.chunk().0;
    let (stop, start) = (AtomicBool::new(false), Barrier::new(WRITERS as usize + 1));
    let mut control = StdRng::seed_from_u64(rng.random());
    let mut writers: Vec<Writer> = (0..WRITERS)
        .map(|id| Writer {
            id,
            client: pool.client("writer", ClientOptions::default()).unwrap(),
            volume: Arc::clone(&shared),
            chunk,
            model: vec![0; SIZE as usize],
            rng: StdRng::seed_from_u64(rng.random()),
        })
        .collect();
    let moved = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let control = scope.spawn(|| {
            start.wait();
            match beside {
                Beside::Reorganisation => reorganise(&pool, &mut control, &stop, &moved),
                Beside::Wear => wear(&rig, &pool, &mut control, &stop, &moved),
            }
        });
        let threads: Vec<_> = writers
            .iter_mut()
            .map(|writer| {
                scope.spawn(|| {
                    start.wait();
                    (0..OPS).for_each(|_| writer.step());
                    until("extents are moved, or fail, meanwhile", || {
                        writer.step();
                        moved.load(Ordering::SeqCst) > 0
                    });
                })
            })
            .collect();
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        stop.store(true, Ordering::SeqCst);
        ended.into_iter().for_each(|end| end.unwrap());
        control.join().unwrap();
    });
    println!("{} extents moved, or failed, meanwhile", moved.into_inner());
    let mut expected = vec![0; SIZE as usize];
    for writer in &writers {
        for (all, own) in expected.iter_mut().zip(&writer.model) {
            *all |= own;
        }
    }
    assert!(all_of(&writers[0].client, &shared) == expected);
    writers[0].client.flush(&shared).unwrap();
    drop((writers, shared));
    pool.close().unwrap();
    drop(pool);
    let report = Pool::check(&rig.memory, rig.disks()).unwrap();
    let is_bad = |finding: &CheckFinding| finding.what.contains("bad");
    // A host that is late three times at one extent makes it slow.
    let is_slow = |finding: &CheckFinding| finding.what.ends_with("slow");
    let is_grade =
        |finding: &CheckFinding| !finding.is_error && (is_bad(finding) || is_slow(finding));
    assert!(report.findings.iter().all(is_grade), "{report:?}");
    assert_eq!(report.findings.iter().any(is_bad), beside == Beside::Wear);
    let pool = rig.open();
    let shared = pool.open_volume("v").unwrap();
    assert!(all_of(&disks::client(&pool), &shared) == expected);
}

#[test]
fn clients_see_what_they_wrote_while_the_volume_is_reorganised() {
    run(Durability::WriteThrough, Beside::Reorganisation);
}

#[test]
fn clients_see_what_they_wrote_on_disks_that_need_syncs() {
    run(Durability::Host, Beside::Reorganisation);
}

#[test]
fn no_write_is_lost_while_places_of_the_disks_fail() {
    run(Durability::WriteThrough, Beside::Wear);
    run(Durability::Host, Beside::Wear);
}

#[test]
fn volume_never_shows_data_of_another() {
    let mut rng = seeded("isolation");
    let (_rig, pool) = Rig::fresh(2, 8 * MIB, EXTENT, Durability::WriteThrough);
    let client = disks::client(&pool);
    for round in 0..5u8 {
        let old = volume(&pool, "old", 5 * MIB);
        client
            .write_at(&old, Bytes::ZERO, &vec![0xA0 + round; 5 << 20])
            .unwrap();
        drop(old);
        pool.delete_volume("old").unwrap();
        let new = volume(&pool, "new", 5 * MIB);
        let mut model = vec![0u8; 5 << 20];
        for _ in 0..200 {
            let from = rng.random_range(0..10 * 1024) * 512;
            let len = 512 * rng.random_range(1..20).min((model.len() - from) / 512);
            client
                .write_at(&new, Bytes(from as u64), &vec![1; len])
                .unwrap();
            model[from..from + len].fill(1);
        }
        let mut back = vec![0; model.len()];
        client.read_at(&new, Bytes::ZERO, &mut back).unwrap();
        assert!(back == model);
        drop(new);
        pool.delete_volume("new").unwrap();
    }
}
