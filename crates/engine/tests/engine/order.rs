//! The order of requests relative to earlier ones that they name: by the disk's scheduler on one disk, by
//! waiting across disks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use testkit::disks;

use engine::buffer::{Buffer, Segments};
use engine::disk::Durability;
use engine::pool::{Pool, Volume};
use engine::volume_io::{AFTER_MAX, Client, Tag, VolumeCompletion, VolumeOp, VolumeRequest};
use rand::Rng;
use sched::request::Op;
use sched::units::Bytes;
use testkit::disks::{MIB, Rig, WRITE, filled, seeded, volume, volume_on_two};
use testkit::until;

/// A pool with a volume on one disk; all but its last extent is written.
struct OrderRig {
    rig: Rig,
    pool: Arc<Pool>,
    volume: Arc<Volume>,
    client: Client,
}

const WRITTEN: u64 = 3 * MIB;

impl OrderRig {
    fn new() -> Self {
        let (rig, pool) = Rig::fresh(1, 32 * MIB, MIB, Durability::WriteThrough);
        let volume = volume(&pool, "v", WRITTEN + MIB);
        let client = disks::client(&pool);
        client
            .write_at(&volume, Bytes(0), &vec![0; WRITTEN as usize])
            .unwrap();
        Self {
            rig,
            pool,
            volume,
            client,
        }
    }

    fn request(&self, op: VolumeOp, offset: u64, data: Option<Segments>, after: &[Tag]) -> Tag {
        let mut request = match data {
            Some(data) => VolumeRequest::transfer(&self.volume, op, Bytes(offset), data),
            None => VolumeRequest::command(&self.volume, op, Bytes(offset), Bytes(4096)),
        };
        request.after = after;
        self.client.submit(request).unwrap()
    }

    fn write(&self, offset: u64, fill: u8, after: &[Tag]) -> Tag {
        let (_buffer, memory) = filled(&self.client, &[fill; 4096]);
        self.request(WRITE, offset, Some(memory), after)
    }

    fn read(&self, offset: u64, after: &[Tag]) -> (Tag, Buffer) {
        let buffer = self.client.account().allocate(4096).unwrap();
        let memory = buffer.segments(Op::Read, 0..4096).unwrap();
        let tag = self.request(VolumeOp::Read, offset, Some(memory), after);
        (tag, buffer)
    }

    /// Stops the disk with one request on it, and makes the client keep the ids of its requests.
    fn stall(&self) -> Tag {
        let done = self.write(0, 0, &[]);
        let named = self.write(0, 0, &[done]);
        for tag in [done, named] {
            assert_eq!(self.finish().tag, tag);
        }
        self.rig.platters[0].stalled.store(true, Ordering::SeqCst);
        let busy = self.write(0, 0, &[]);
        until("the disk has a request", || self.queued() > 0);
        // After two replies the dispatcher has issued everything that was queued before the first.
        self.queued();
        busy
    }

    fn go_on(&self) {
        self.rig.platters[0].stalled.store(false, Ordering::SeqCst);
    }

    /// Requests in the disk's queue and on the disk.
    fn queued(&self) -> u64 {
        self.pool.status().disks[0].queued
    }

    fn finish(&self) -> VolumeCompletion {
        self.client.wait(None).unwrap()
    }
}

#[test]
fn requests_of_one_disk_are_in_its_queue_with_their_order() {
    let bench = OrderRig::new();
    let busy = bench.stall();
    // Ordered by position, each would precede the one that it names.
    let first = bench.write(2 * MIB, 1, &[]);
    let second = bench.write(MIB, 2, &[first]);
    let (third, buffer) = bench.read(2 * MIB, &[first, second]);
    let fourth = bench.write(8192, 4, &[second, third, first]);
    assert_eq!(bench.queued(), 5, "some were held back");
    bench.go_on();
    let tags: Vec<Tag> = (0..5).map(|_| bench.finish().tag).collect();
    assert_eq!(tags, [busy, first, second, third, fourth]);
    assert!(buffer.with(|bytes| bytes[..4096] == [1; 4096]).unwrap());
}

#[test]
fn request_that_depends_on_a_result_waits_for_it() {
    let bench = OrderRig::new();
    bench.stall();
    let first = bench.write(WRITTEN, 1, &[]);
    let (read, buffer) = bench.read(WRITTEN, &[first]);
    let zeroed = bench.request(VolumeOp::Discard, WRITTEN, None, &[read]);
    let (empty, after) = bench.read(WRITTEN, &[zeroed]);
    assert_eq!(
        bench.queued(),
        2,
        "a read of a hole, or what follows it, went ahead"
    );
    bench.go_on();
    let tags: Vec<Tag> = (0..5).map(|_| bench.finish().tag).collect();
    assert_eq!(tags[1..], [first, read, zeroed, empty]);
    assert!(buffer.with(|bytes| bytes[..4096] == [1; 4096]).unwrap());
    assert!(after.with(|bytes| bytes[..4096] == [0; 4096]).unwrap());
}

#[test]
fn predecessors_beyond_the_disks_limit_are_waited_for() {
    let bench = OrderRig::new();
    bench.stall();
    let names: Vec<Tag> = (0..AFTER_MAX as u64)
        .map(|index| bench.write(MIB + index * 4096, 1, &[]))
        .collect();
    let last = bench.write(8192, 2, &names);
    assert_eq!(bench.queued(), 1 + AFTER_MAX as u64);
    bench.go_on();
    let tags: Vec<Tag> = (0..AFTER_MAX + 2).map(|_| bench.finish().tag).collect();
    assert_eq!(tags.last(), Some(&last));
}

#[test]
fn failed_request_stops_only_writes_ordered_after_a_failed_write() {
    let bench = OrderRig::new();
    bench.stall();
    let (failed, _kept) = bench.read(2 * MIB, &[]);
    let write = bench.write(MIB, 2, &[failed]);
    assert_eq!(bench.queued(), 3);
    bench.rig.platters[0]
        .fail_reads
        .store(true, Ordering::SeqCst);
    bench.go_on();
    bench.finish();
    let ends: Vec<_> = (0..2).map(|_| bench.finish()).collect();
    assert_eq!([ends[0].tag, ends[1].tag], [failed, write]);
    assert!(ends[0].result.is_err() && ends[1].result.is_ok());
    // The pool tries to move the extent away, and cannot.
    until("the move has failed", || {
        bench.pool.health().disks[0].read_errors == 2
    });

    bench.rig.platters[0]
        .fail_reads
        .store(false, Ordering::SeqCst);
    bench.stall();
    let failed = bench.write(2 * MIB, 3, &[]);
    let write = bench.write(MIB, 4, &[failed]);
    let (read, buffer) = bench.read(MIB, &[write]);
    assert_eq!(bench.queued(), 4);
    bench.rig.platters[0].fail_filled.store(3, Ordering::SeqCst);
    bench.go_on();
    bench.finish().result.unwrap();
    let ends: Vec<_> = (0..3).map(|_| bench.finish()).collect();
    assert_eq!(
        [ends[0].tag, ends[1].tag, ends[2].tag],
        [failed, write, read]
    );
    assert!(ends[0].result.is_err() && ends[1].result.is_err() && ends[2].result.is_ok());
    assert!(buffer.with(|bytes| bytes[..4096] == [2; 4096]).unwrap());

    // The pool moves the extent to another place, which takes requests of its own.
    until("the extent has left", || {
        let disk = &bench.pool.status().disks[0];
        (disk.bad_places, disk.places_to_leave) == (1, 0)
    });

    // The same for a request that waits for the failed one before it is queued at a disk.
    let busy = bench.stall();
    let failed = bench.write(2 * MIB, 3, &[]);
    let discarded = bench.request(VolumeOp::Discard, MIB, None, &[failed]);
    bench.go_on();
    // The pool may still write of the move, so the first of these need not be the one on the disk.
    let mut ends = Vec::from([bench.finish(), bench.finish(), bench.finish()]);
    let first = ends.iter().position(|end| end.tag == busy).unwrap();
    ends.remove(first).result.unwrap();
    assert_eq!([ends[0].tag, ends[1].tag], [failed, discarded]);
    assert!(ends.iter().all(|end| end.result.is_err()), "{ends:?}");
    let (_, buffer) = bench.read(MIB, &[]);
    bench.finish().result.unwrap();
    assert!(buffer.with(|bytes| bytes[..4096] == [2; 4096]).unwrap());
}

#[test]
fn a_pool_that_is_dropped_answers_what_follows() {
    let bench = OrderRig::new();
    bench.stall();
    let first = bench.write(2 * MIB, 1, &[]);
    let second = bench.write(MIB, 2, &[first]);
    let OrderRig {
        rig, pool, client, ..
    } = bench;
    drop(pool);
    rig.platters[0].stalled.store(false, Ordering::SeqCst);
    let ends: Vec<_> = (0..3).map(|_| client.wait(None).unwrap()).collect();
    let failed = |tag| ends.iter().any(|end| end.tag == tag && end.result.is_err());
    assert!(failed(first) && failed(second), "{ends:?}");
}

/// An overlapping request in flight, and the data that it must have read or written.
struct Pending {
    tag: Tag,
    range: std::ops::Range<usize>,
    read: Option<(Buffer, Vec<u8>)>,
}

fn random_op(rng: &mut rand::rngs::StdRng) -> VolumeOp {
    match rng.random_range(0..10) {
        0 => VolumeOp::Discard,
        1 => VolumeOp::WriteZeroes {
            no_hole: rng.random_bool(0.5),
            durable: rng.random_bool(0.5),
        },
        2..6 => VolumeOp::Read,
        _ => VolumeOp::Write {
            durable: rng.random_bool(0.1),
        },
    }
}

/// Two extents on two disks, and the offset of the blocks that lie on both.
fn across_two_disks(pool: &Pool) -> (Arc<Volume>, u64) {
    let base = MIB - (BLOCKS * BLOCK / 2) as u64;
    (volume_on_two(pool, "v"), base)
}

const BLOCK: usize = 4096;
const BLOCKS: usize = 64;

/// Random reads, writes, discards and zeroes of overlapping ranges on two disks. Each names all earlier ones
/// that it overlaps, so the result is that of sequential execution.
#[test]
fn requests_that_name_all_overlaps_execute_in_sequence() {
    let mut rng = seeded("order");
    let (_rig, pool) = Rig::fresh(2, 32 * MIB, MIB, Durability::WriteThrough);
    let (volume, base) = across_two_disks(&pool);
    let client = disks::client(&pool);
    let mut model = vec![0u8; BLOCKS * BLOCK];
    let mut pending: Vec<Pending> = Vec::new();
    let settle = |pending: &mut Vec<Pending>| {
        let end = client.wait(None).unwrap();
        end.result.unwrap();
        let place = pending.iter().position(|one| one.tag == end.tag).unwrap();
        if let Some((buffer, expected)) = pending.swap_remove(place).read {
            let same = buffer.with(|bytes| bytes[..expected.len()] == expected[..]);
            assert!(same.unwrap(), "a read went ahead of what it names");
        }
    };
    for step in 0..4_000u32 {
        let from = rng.random_range(0..BLOCKS);
        let count = rng.random_range(1..=(BLOCKS - from).min(6));
        let range = from * BLOCK..(from + count) * BLOCK;
        let meets = |one: &Pending| one.range.start < range.end && range.start < one.range.end;
        while pending.len() >= 24 || pending.iter().filter(|one| meets(one)).count() > AFTER_MAX {
            settle(&mut pending);
        }
        let names: Vec<Tag> = pending
            .iter()
            .filter(|one| meets(one))
            .map(|one| one.tag)
            .collect();
        let fill = (step % 251 + 1) as u8;
        let op = random_op(&mut rng);
        let read = (op == VolumeOp::Read).then(|| {
            let buffer = client.account().allocate_wait(range.len(), None).unwrap();
            (buffer, model[range.clone()].to_vec())
        });
        let data = match (&op, &read) {
            (VolumeOp::Read, Some((buffer, _))) => {
                Some(buffer.segments(Op::Read, 0..range.len()).unwrap())
            }
            (VolumeOp::Write { .. }, _) => Some(filled(&client, &vec![fill; range.len()]).1),
            _ => None,
        };
        match op {
            VolumeOp::Read => {}
            VolumeOp::Write { .. } => model[range.clone()].fill(fill),
            _ => model[range.clone()].fill(0),
        }
        let offset = Bytes(base + range.start as u64);
        let mut request = match data {
            Some(data) => VolumeRequest::transfer(&volume, op, offset, data),
            None => VolumeRequest::command(&volume, op, offset, Bytes(range.len() as u64)),
        };
        request.after = &names;
        let tag = client.submit(request).unwrap();
        pending.push(Pending { tag, range, read });
    }
    while !pending.is_empty() {
        settle(&mut pending);
    }
    let mut back = vec![0; model.len()];
    client.read_at(&volume, Bytes(base), &mut back).unwrap();
    assert!(back == model);
}
