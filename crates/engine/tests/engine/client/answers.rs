//! Order of requests, waiting, and shared flushes.

use std::sync::atomic::Ordering;

use engine::disk::Durability;
use engine::volume_io::{Tag, VolumeOp, VolumeRequest};
use sched::units::Bytes;

use super::two_disks;
use testkit::disks::{self, MIB, Rig, WRITE, client, filled, volume};

#[test]
fn a_request_waits_for_those_it_names_on_other_disks() {
    let (rig, pool) = Rig::fresh(2, 32 * MIB, MIB, Durability::WriteThrough);
    let volume = two_disks(&pool);
    let client = client(&pool);
    let write = |offset, after: &[Tag], barrier| {
        let (_buffer, memory) = filled(&client, &[2; 512]);
        let mut request = VolumeRequest::transfer(&volume, WRITE, Bytes(offset), memory);
        (request.after, request.barrier) = (after, barrier);
        client.submit(request).unwrap()
    };
    let read = |offset| {
        let mut data = [0; 512];
        disks::client(&pool)
            .read_at(&volume, Bytes(offset), &mut data)
            .unwrap();
        data[0]
    };
    for barrier in [false, true] {
        rig.platters[0].stalled.store(true, Ordering::SeqCst);
        let first = write(0, &[], false);
        let names = [first];
        let held = write(MIB, if barrier { &[] } else { &names }, barrier);
        // A request of another client to the same disk passes, unless it is behind the barrier.
        if !barrier {
            assert_eq!(read(MIB + 512), 1);
            assert_eq!(read(MIB), 1, "it did not wait");
        }
        assert!(client.poll().is_none());
        rig.platters[0].stalled.store(false, Ordering::SeqCst);
        assert_eq!(client.wait(None).unwrap().tag, first);
        assert_eq!(client.wait(None).unwrap().tag, held);
        assert_eq!(read(MIB), 2);
        disks::client(&pool)
            .write_at(&volume, Bytes(MIB), &[1; 512])
            .unwrap();
    }
}

#[test]
fn overlapping_writes_that_name_each_other_are_done_in_order() {
    let (_rig, pool) = Rig::fresh(2, 32 * MIB, MIB, Durability::WriteThrough);
    let volume = volume(&pool, "v", 2 * MIB);
    let client = client(&pool);
    let mut expected = vec![0; 64 << 10];
    let mut last: Vec<Tag> = Vec::new();
    for step in 1..=200u8 {
        let from = usize::from(step % 7) * 4096;
        let len = (usize::from(step % 5) + 1) * 4096;
        let (_buffer, memory) = filled(&client, &vec![step; len]);
        let offset = Bytes(MIB - 32768 + from as u64);
        let mut request = VolumeRequest::transfer(&volume, WRITE, offset, memory);
        if step % 10 == 0 {
            request.barrier = true;
        } else {
            request.after = &last;
        }
        last = vec![client.submit(request).unwrap()];
        expected[from..from + len].fill(step);
    }
    for _ in 0..200 {
        client.wait(None).unwrap().result.unwrap();
    }
    let mut back = vec![0; expected.len()];
    client
        .read_at(&volume, Bytes(MIB - 32768), &mut back)
        .unwrap();
    assert!(back == expected);
}

#[test]
fn stalled_disk_delays_only_its_own_requests() {
    let (rig, pool) = Rig::fresh(2, 32 * MIB, MIB, Durability::WriteThrough);
    let volume = two_disks(&pool);
    let (stuck, client) = (client(&pool), disks::client(&pool));
    rig.platters[0].stalled.store(true, Ordering::SeqCst);
    let (_buffer, memory) = filled(&stuck, &[2; 512]);
    stuck
        .submit(VolumeRequest::transfer(&volume, WRITE, Bytes(0), memory))
        .unwrap();
    for _ in 0..100 {
        client.write_at(&volume, Bytes(MIB), &[3; 512]).unwrap();
        client.flush(&volume).unwrap();
    }
    assert!(stuck.poll().is_none());
    rig.platters[0].stalled.store(false, Ordering::SeqCst);
    assert!(stuck.wait(None).unwrap().result.is_ok());
}

#[test]
fn many_flushes_share_the_syncs_of_one() {
    let (rig, pool) = Rig::fresh(1, 32 * MIB, MIB, Durability::Host);
    let volume = volume(&pool, "v", 4 * MIB);
    let client = client(&pool);
    let syncs = &rig.platters[0].syncs;
    client.write_at(&volume, Bytes(0), &[1; 512]).unwrap();
    let before = syncs.load(Ordering::SeqCst);
    client.flush(&volume).unwrap();
    let alone = syncs.load(Ordering::SeqCst) - before;
    assert!(alone > 0);
    client.flush(&volume).unwrap();
    assert_eq!(
        syncs.load(Ordering::SeqCst) - before,
        alone,
        "nothing had changed"
    );

    rig.platters[0].hold_syncs(true);
    let before = syncs.load(Ordering::SeqCst);
    let flush = || VolumeRequest::command(&volume, VolumeOp::Flush, Bytes(0), Bytes(0));
    for index in 1..=50u64 {
        client
            .write_at(&volume, Bytes(index * 65536), &[1; 512])
            .unwrap();
        client.submit(flush()).unwrap();
    }
    assert!(client.poll().is_none());
    rig.platters[0].hold_syncs(false);
    for _ in 0..50 {
        client.wait(None).unwrap().result.unwrap();
    }
    let together = syncs.load(Ordering::SeqCst) - before;
    // The first began alone; all that were submitted while its sync was held share the second.
    assert!(
        together <= 2 * alone,
        "{together} syncs for 50 flushes, {alone} for one"
    );
}
