//! Admission of a stream that writes while a move holds back writes.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use sched::request::Op;
use sched::units::Bytes;

use super::PASSES_FREE;
use crate::disk::Durability;
use crate::pool::{Placement, PoolError};
use crate::test_rig::disks::{
    MIB, OnDrop, Rig, WRITE, client, filled, on_disk, stream_spec, volume, volume_on,
};
use crate::volume_io::{Client, VolumeRequest};
use testkit::until;

const BLOCK: u64 = 65_536;

/// Much longer than a write that is not held back takes.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn a_recorder_admitted_meanwhile_is_not_held_back_by_the_copy() {
    let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    let volume = volume(&pool, "v", MIB);
    let writer = client(&pool);
    let touch = || writer.write_at(&volume, Bytes(0), &[7; 4096]).unwrap();
    touch();
    let extent = Arc::clone(&volume.core().map().extents()[0]);
    let elsewhere = Placement {
        bytes: Some(32 * MIB..64 * MIB),
        ..on_disk(0)
    };
    let (mut asked, mut done) = (0, None);
    // `progress` is called once before the first pass and once in each, because there is one chunk to copy.
    let moved = pool.move_extents("v", &elsewhere, &mut |_| {
        asked += 1;
        if asked <= PASSES_FREE + 1 {
            touch();
        } else if done.is_none() {
            let was_frozen = extent.is_frozen();
            let (_held, memory) = filled(&writer, &[9; 4096]);
            let request = VolumeRequest::transfer(&volume, WRITE, Bytes(4096), memory);
            writer.submit(request).unwrap();
            let spec = stream_spec(&volume, Op::Write, 1 << 20, BLOCK);
            let stream = pool.reserve(spec).unwrap();
            let (_block, memory) = filled(stream.client(), &vec![8; BLOCK as usize]);
            let request = VolumeRequest::transfer(&volume, WRITE, Bytes(0), memory);
            stream.client().submit(request.on(&stream)).unwrap();
            // Asserted when the move is over: a panic here would leave the move waiting.
            let wait = |client: &Client| client.wait(Some(PATIENCE)).is_some();
            done = Some((was_frozen, wait(stream.client()), wait(&writer)));
        }
        true
    });
    assert!(moved.is_ok(), "{moved:?}");
    assert_eq!(done, Some((true, true, true)));
}

#[test]
fn a_recorder_admitted_meanwhile_is_not_held_back_by_the_wait_for_writes() {
    let (rig, pool) = Rig::fresh(2, 64 * MIB, MIB, Durability::WriteThrough);
    let volume = volume_on(&pool, "v", 0, MIB);
    let writer = client(&pool);
    writer.write_at(&volume, Bytes(0), &[7; 4096]).unwrap();
    let extent = Arc::clone(&volume.core().map().extents()[0]);
    let [from, to] = [0, 1].map(|disk| &rig.platters[disk]);
    to.stalled.store(true, SeqCst);
    std::thread::scope(|scope| {
        let _answer = [&from.stalled, &to.stalled].map(|stalled| OnDrop(stalled, false));
        let read = from.reads.load(SeqCst);
        let mover = scope.spawn(|| pool.move_extents("v", &on_disk(1), &mut |_| true));
        // A read of the superblock comes first.
        until("the chunk is read", || from.reads.load(SeqCst) > read + 1);
        // The move will wait for this write after its copy to the other disk.
        from.stalled.store(true, SeqCst);
        let (_held, memory) = filled(&writer, &[9; 4096]);
        let request = VolumeRequest::transfer(&volume, WRITE, Bytes(0), memory);
        writer.submit(request).unwrap();
        to.stalled.store(false, SeqCst);
        until("writes are held back", || extent.is_frozen());
        let spec = stream_spec(&volume, Op::Write, 1 << 20, BLOCK);
        let stream = pool.reserve(spec).unwrap();
        until("they are not any more", || !extent.is_frozen());
        until("the move has ended", || mover.is_finished());
        let moved = mover.join().unwrap();
        assert!(
            matches!(moved, Err(PoolError::Reserved { .. })),
            "{moved:?}"
        );
        drop(stream);
    });
}
