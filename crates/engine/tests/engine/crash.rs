//! The power is cut at random times while clients write, flush and discard, the volume is reorganised, and
//! other volumes are made and deleted. Afterwards flushed data is there, unwritten data is not, and completed
//! changes of volumes are in effect.

#![allow(
    clippy::print_stdout,
    reason = "what was tried is told beside the seed"
)]

mod past;
mod volumes;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use testkit::disks;

use engine::disk::Durability;
use engine::pool::{CheckFinding, Placement, Pool, Volume};
use engine::volume_io::{Client, ClientOptions, VolumeOp, VolumeRequest};
use past::{Kind, PossibleStates, Tally};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sched::request::Op;
use sched::units::Bytes;
use testkit::disks::{MIB, OnDrop, Rig, moved_to, seeded, volume};
use testkit::until;
use volumes::{Owner, Volumes};

const EXTENT: u64 = 64 << 10;
const SECTORS: usize = 2048;
const SECTOR: usize = 512;
const CUTS: u32 = 25;

/// For each sector all values that it has held, and the number of them that had been overwritten when the
/// last flush that has returned began.
#[derive(Clone)]
struct History {
    values: Vec<Vec<u64>>,
    settled: Vec<usize>,
}

impl History {
    fn new() -> Self {
        Self {
            values: vec![vec![0]; SECTORS],
            settled: vec![0; SECTORS],
        }
    }

    fn marks(&self) -> Vec<usize> {
        self.values.iter().map(|values| values.len() - 1).collect()
    }
}

/// A sector filled with `value`; 0 is never written.
fn sector(value: u64) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    for word in bytes.chunks_exact_mut(8) {
        word.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

fn bytes_of(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|&value| sector(value)).collect()
}

/// The value of each sector of a volume.
fn sectors_of(client: &Client, volume: &Arc<Volume>) -> Vec<u64> {
    let mut all = vec![0; volume.size().0 as usize];
    client.read_at(volume, Bytes::ZERO, &mut all).unwrap();
    let value = |(at, bytes): (usize, &[u8])| {
        let found = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let name = volume.name();
        assert!(
            bytes == sector(found),
            "{name}: sector {at} is torn: {:x?}",
            &bytes[..16]
        );
        found
    };
    all.chunks_exact(SECTOR).enumerate().map(value).collect()
}

struct Writer<'a> {
    tally: &'a Tally,
    client: Client,
    volume: Arc<Volume>,
    history: Arc<Mutex<History>>,
    next: u64,
    rng: StdRng,
}

impl Writer<'_> {
    fn step(&mut self) {
        let from = self.rng.random_range(0..SECTORS);
        let count = self.rng.random_range(1..40).min(SECTORS - from);
        let range = from..from + count;
        match self.rng.random_range(0..100) {
            0..60 => {
                let durable = self.rng.random_bool(0.05);
                self.write(range, durable);
            }
            60..70 => self.zero(range),
            _ => self.flush(),
        }
    }

    fn write(&mut self, range: std::ops::Range<usize>, durable: bool) {
        // Recorded before the call: the power may be cut during it.
        let mut history = self.history.lock().unwrap();
        for at in range.clone() {
            self.next += 1;
            history.values[at].push(self.next);
        }
        let values: Vec<u64> = (self.next + 1 - range.len() as u64..=self.next).collect();
        let data = bytes_of(&values);
        let marks = history.marks();
        drop(history);
        let mut buffer = self
            .client
            .account()
            .allocate_wait(data.len(), None)
            .unwrap();
        buffer
            .with_mut(|bytes| bytes[..data.len()].copy_from_slice(&data))
            .unwrap();
        let memory = buffer.segments(Op::Write, 0..data.len()).unwrap();
        let offset = Bytes((range.start * SECTOR) as u64);
        let op = VolumeOp::Write { durable };
        let request = VolumeRequest::transfer(&self.volume, op, offset, memory);
        self.client.execute(request).unwrap().result.unwrap();
        if durable {
            let mut history = self.history.lock().unwrap();
            for at in range {
                history.settled[at] = marks[at];
            }
        }
    }

    fn zero(&mut self, range: std::ops::Range<usize>) {
        let mut history = self.history.lock().unwrap();
        for at in range.clone() {
            history.values[at].push(0);
        }
        drop(history);
        let op = VolumeOp::WriteZeroes {
            no_hole: false,
            durable: false,
        };
        let offset = Bytes((range.start * SECTOR) as u64);
        let len = Bytes((range.len() * SECTOR) as u64);
        let request = VolumeRequest::command(&self.volume, op, offset, len);
        self.client.execute(request).unwrap().result.unwrap();
    }

    fn flush(&self) {
        let marks = self.history.lock().unwrap().marks();
        self.client.flush(&self.volume).unwrap();
        self.history.lock().unwrap().settled = marks;
        self.tally.did(Kind::Flush, 1);
    }
}

/// The states that a power cut may leave.
struct Known {
    before: History,
    after: History,
    /// In bytes.
    sizes: Vec<u64>,
    volumes: Vec<Volumes>,
}

/// Asserts that the disks hold the flushed data or newer data.
fn verify(rig: &Rig, known: &Known) {
    let pool = rig.open();
    let volume = pool.open_volume("v").unwrap();
    let client = disks::client(&pool);
    let size = volume.size().0;
    assert!(known.sizes.contains(&size), "{size} of {:?}", known.sizes);
    for (at, found) in sectors_of(&client, &volume).into_iter().enumerate() {
        let allowed = match known.after.values.get(at) {
            Some(values) => &values[known.before.settled[at]..],
            // The volume has grown, and this sector is unwritten.
            None => &[0],
        };
        assert!(
            allowed.contains(&found),
            "sector {at} holds {found}, allowed is {allowed:?}"
        );
    }
    volumes::verify(&pool, &client, &known.volumes);
    // The pool can be written to.
    client.write_at(&volume, Bytes::ZERO, &sector(7)).unwrap();
    client.flush(&volume).unwrap();
    drop((client, volume));
    pool.close().unwrap();
    drop(pool);
    let report = Pool::check(&rig.memory, rig.disks()).unwrap();
    // A host that is late three times at one extent makes it slow.
    let wrong = |finding: &&CheckFinding| finding.is_error || !finding.what.ends_with("slow");
    assert_eq!(report.findings.iter().find(wrong), None);
}

/// Moves, grows and shrinks the writer's volume.
struct Reorganiser<'a> {
    pool: &'a Pool,
    sizes: &'a Mutex<PossibleStates<u64>>,
    tally: &'a Tally,
    rng: StdRng,
}

impl Reorganiser<'_> {
    fn step(&mut self, go_on: impl Fn() -> bool) {
        let size = *self.sizes.lock().unwrap().last();
        let moved = moved_to(self.pool, "v", self.rng.random_range(0..3), go_on);
        self.tally.did(Kind::Move, moved);
        let more = size + self.rng.random_range(1..8) * EXTENT;
        self.sizes.lock().unwrap().begin(more);
        self.pool
            .grow("v", Bytes(more), &Placement::default())
            .unwrap();
        self.sizes.lock().unwrap().end();
        self.sizes.lock().unwrap().begin(size);
        self.pool.shrink("v", Bytes(size)).unwrap();
        self.sizes.lock().unwrap().end();
    }
}

fn run(durability: Durability) {
    let mut rng = seeded("crash");
    let (rig, pool) = Rig::fresh(3, 16 * MIB, EXTENT, durability);
    // Data of an earlier user, which must not become visible.
    let left = volume(&pool, "left", 30 * MIB);
    let client = disks::client(&pool);
    client
        .write_at(&left, Bytes::ZERO, &vec![0xA5; 30 << 20])
        .unwrap();
    client.flush(&left).unwrap();
    drop(left);
    pool.delete_volume("left").unwrap();

    let size = (SECTORS * SECTOR) as u64;
    let shared = volume(&pool, "v", size);
    let history = Arc::new(Mutex::new(History::new()));
    let (sizes, volumes) = (
        PossibleStates::new(size),
        PossibleStates::new(Volumes::new()),
    );
    let (sizes, volumes) = (Mutex::new(sizes), Mutex::new(volumes));
    let tally = Tally::default();
    let mut writer = Writer {
        tally: &tally,
        client: pool.client("writer", ClientOptions::default()).unwrap(),
        volume: shared,
        history: Arc::clone(&history),
        next: 0,
        rng: StdRng::seed_from_u64(rng.random()),
    };
    let mut reorganiser = Reorganiser {
        pool: &pool,
        sizes: &sizes,
        tally: &tally,
        rng: StdRng::seed_from_u64(rng.random()),
    };
    let mut owner = Owner {
        pool: &pool,
        client: pool.client("owner", ClientOptions::default()).unwrap(),
        past: &volumes,
        tally: &tally,
        rng: StdRng::seed_from_u64(rng.random()),
        // Far from the values that the writer uses.
        next: 1 << 32,
    };
    let stop = AtomicBool::new(false);
    let go_on = || !stop.load(Ordering::SeqCst);
    std::thread::scope(|scope| {
        let guard = OnDrop(&stop, true);
        let repeat = |mut step: Box<dyn FnMut() + Send>| {
            while go_on() {
                step();
            }
        };
        let threads = [
            scope.spawn(move || repeat(Box::new(move || writer.step()))),
            scope.spawn(move || repeat(Box::new(move || reorganiser.step(go_on)))),
            scope.spawn(move || repeat(Box::new(move || owner.step()))),
        ];
        let mut done = tally.so_far();
        for _ in 0..CUTS {
            until("all of it is done between two power cuts", || {
                tally.is_beyond(&done)
            });
            done = tally.so_far();
            let before = history.lock().unwrap().clone();
            sizes.lock().unwrap().forget();
            volumes.lock().unwrap().forget();
            let cut = rig.after_power_cut(&mut rng);
            let known = Known {
                before,
                after: history.lock().unwrap().clone(),
                sizes: sizes.lock().unwrap().states(),
                volumes: volumes.lock().unwrap().states(),
            };
            verify(&cut, &known);
        }
        drop(guard);
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        println!("{CUTS} power cuts, done meanwhile: {tally:?}");
    });
}

#[test]
fn a_power_cut_loses_nothing_that_was_flushed_on_host_files() {
    run(Durability::Host);
}

#[test]
fn a_power_cut_loses_nothing_that_was_flushed_on_disks_with_forced_writes() {
    run(Durability::Fua);
}

#[test]
fn a_power_cut_loses_nothing_that_was_flushed_on_disks_without_a_cache() {
    run(Durability::WriteThrough);
}

/// Opening and closing write superblocks, tables and marks. A power cut tears at most one copy of each.
#[test]
fn a_power_cut_while_a_pool_is_opened_or_closed_loses_nothing() {
    for durability in [Durability::Host, Durability::Fua] {
        let mut rng = seeded("starts and stops");
        let (rig, pool) = Rig::fresh(2, 16 * MIB, EXTENT, durability);
        let kept = volume(&pool, "kept", MIB);
        let client = disks::client(&pool);
        client.write_at(&kept, Bytes::ZERO, &sector(5)).unwrap();
        client.flush(&kept).unwrap();
        drop((client, kept));
        pool.close().unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let guard = OnDrop(&stop, true);
            let server = scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    rig.open().close().unwrap();
                }
            });
            let written = || -> u64 {
                let writes = rig.platters.iter().map(|of| &of.writes);
                writes.map(|writes| writes.load(Ordering::SeqCst)).sum()
            };
            for _ in 0..CUTS {
                let enough = written() + rng.random_range(1..16);
                until("a pool is opened or closed", || written() >= enough);
                let cut = rig.after_power_cut(&mut rng);
                let report = Pool::check(&cut.memory, cut.disks()).unwrap();
                let wrong = |finding: &&CheckFinding| finding.is_error;
                assert_eq!(report.findings.iter().find(wrong), None);
                let pool = cut.open();
                let kept = pool.open_volume("kept").unwrap();
                assert_eq!(sectors_of(&disks::client(&pool), &kept)[..2], [5, 0]);
            }
            drop(guard);
            server.join().unwrap();
        });
    }
}
