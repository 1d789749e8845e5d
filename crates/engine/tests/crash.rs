//! The power is cut at random instants while clients write, flush and discard and the volume is
//! reorganised: what was flushed is there, and nothing that was never written.

#![allow(
    clippy::print_stdout,
    reason = "what was tried is told beside the seed"
)]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use common::{MIB, OnDrop, Rig, moved_to, seeded, volume};
use engine::disk::Durability;
use engine::front::{Client, ClientOptions, VolumeOp, VolumeRequest};
use engine::pool::{Placement, Pool, Volume};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sched::request::Op;
use sched::units::Bytes;

const EXTENT: u64 = 64 << 10;
const SECTORS: usize = 2048;
const SECTOR: usize = 512;
const CUTS: u32 = 25;

/// For each sector all that it has held, and how many of these had been overwritten when the last
/// flush that has returned began.
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

/// A sector of `value`: 0 is never written.
fn sector(value: u64) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    for word in bytes.chunks_exact_mut(8) {
        word.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

struct Writer {
    client: Client,
    volume: Arc<Volume>,
    history: Arc<Mutex<History>>,
    next: u64,
    rng: StdRng,
}

impl Writer {
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
        let mut data = Vec::new();
        // Before it is submitted: the power may be cut while it is on its way.
        let mut history = self.history.lock().unwrap();
        for at in range.clone() {
            self.next += 1;
            history.values[at].push(self.next);
            data.extend(sector(self.next));
        }
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
    }
}

/// The disks after a power cut hold what had been flushed before, or something newer.
fn verify(rig: &Rig, before: &History, after: &History) {
    let pool = rig.open();
    let volume = pool.open_volume("v").unwrap();
    let client = common::client(&pool);
    let mut all = vec![0; SECTORS * SECTOR];
    client.read_at(&volume, Bytes::ZERO, &mut all).unwrap();
    for (at, bytes) in all.chunks_exact(SECTOR).enumerate() {
        let allowed = &after.values[at][before.settled[at]..];
        let found = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        assert!(
            bytes == sector(found) && allowed.contains(&found),
            "sector {at} holds {:x?}, allowed is {allowed:?}",
            &bytes[..16]
        );
    }
    // It goes on from there.
    client.write_at(&volume, Bytes::ZERO, &sector(7)).unwrap();
    client.flush(&volume).unwrap();
    drop((client, volume));
    pool.close().unwrap();
}

/// Moves, grows and shrinks the volume until told to stop. Returns how many extents it has moved.
fn reorganise(pool: &Pool, rng: &mut StdRng, stop: &AtomicBool) -> u64 {
    let size = (SECTORS * SECTOR) as u64;
    let go_on = || !stop.load(Ordering::SeqCst);
    let mut moved = 0;
    while go_on() {
        moved += moved_to(pool, "v", rng.random_range(0..3), go_on);
        let more = size + rng.random_range(1..8) * EXTENT;
        pool.grow("v", Bytes(more), &Placement::default()).unwrap();
        pool.shrink("v", Bytes(size)).unwrap();
    }
    moved
}

fn run(durability: Durability) {
    let mut rng = seeded("crash");
    let (rig, pool) = Rig::fresh(3, 16 * MIB, EXTENT, durability);
    // What an earlier user left, which nobody may see.
    let left = volume(&pool, "left", 30 * MIB);
    let client = common::client(&pool);
    client
        .write_at(&left, Bytes::ZERO, &vec![0xA5; 30 << 20])
        .unwrap();
    client.flush(&left).unwrap();
    drop(left);
    pool.delete_volume("left").unwrap();

    let shared = volume(&pool, "v", (SECTORS * SECTOR) as u64);
    let history = Arc::new(Mutex::new(History::new()));
    let mut writer = Writer {
        client: pool.client("writer", ClientOptions::default()).unwrap(),
        volume: shared,
        history: Arc::clone(&history),
        next: 0,
        rng: StdRng::seed_from_u64(rng.random()),
    };
    let mut control = StdRng::seed_from_u64(rng.random());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let guard = OnDrop(&stop, true);
        let writing = scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                writer.step();
            }
        });
        let reorganising = scope.spawn(|| reorganise(&pool, &mut control, &stop));
        let mut settled = 0;
        for _ in 0..CUTS {
            let before = history.lock().unwrap().clone();
            let cut = rig.after_power_cut(&mut rng);
            let after = history.lock().unwrap().clone();
            verify(&cut, &before, &after);
            settled = before.settled.iter().sum();
        }
        drop(guard);
        writing.join().unwrap();
        let moved = reorganising.join().unwrap();
        println!(
            "{CUTS} power cuts, {moved} extents moved, {settled} sectors' values settled before the last"
        );
        assert!(moved > 0, "the power was never cut beside a move");
        assert!(settled > 0, "nothing was ever flushed");
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
