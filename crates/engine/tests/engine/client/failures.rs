//! Failures: failing disks, revoked buffers, shrunk volumes and dropped pools.

use std::sync::atomic::Ordering;

use engine::disk::Durability;
use engine::pool::Placement;
use engine::volume_io::{ClientOptions, IoFailure, SubmitError, VolumeRequest};
use sched::request::Op;
use sched::units::{Bytes, Nanos};

use testkit::disks::{MIB, Rig, WRITE, client, filled, volume, volume_on};

#[test]
fn a_failed_write_fails_alone_and_the_next_one_is_tried() {
    let (rig, pool) = Rig::fresh(2, 32 * MIB, MIB, Durability::WriteThrough);
    let bad = volume_on(&pool, "bad", 1, 2 * MIB);
    let good = volume_on(&pool, "good", 0, 2 * MIB);
    let client = client(&pool);
    client.write_at(&bad, Bytes(0), &[1; 512]).unwrap();
    client.flush(&bad).unwrap();
    rig.platters[1].fail_writes.store(true, Ordering::SeqCst);
    assert!(client.write_at(&bad, Bytes(4096), &[2; 512]).is_err());
    client.flush(&bad).unwrap();
    let mut data = [0; 512];
    client.read_at(&bad, Bytes(0), &mut data).unwrap();
    assert_eq!(data, [1; 512]);
    client.write_at(&good, Bytes(0), &[4; 512]).unwrap();
    client.flush(&good).unwrap();
    rig.platters[1].fail_reads.store(true, Ordering::SeqCst);
    assert!(client.read_at(&bad, Bytes(0), &mut data).is_err());
    let status = pool.status();
    let [well, ill] = status.disks.as_slice() else {
        panic!("{status:?}");
    };
    assert_eq!((well.errors, well.last_error.as_deref()), (0, None));
    // The write was tried at other places, too, and data that leaves its bad place may be read beside this.
    assert!(ill.write_errors > 1 && ill.read_errors >= 1);
    assert_eq!(ill.errors, ill.write_errors + ill.read_errors);
    let last = ill.last_error.as_ref().unwrap();
    assert!(last.contains(": Input/output error"), "{last}");
    assert!(ill.failed.is_none() && bad.poisoned().is_none());
    for fault in [&rig.platters[1].fail_writes, &rig.platters[1].fail_reads] {
        fault.store(false, Ordering::SeqCst);
    }
    client.write_at(&bad, Bytes(4096), &[2; 512]).unwrap();
    client.flush(&bad).unwrap();
    client.read_at(&bad, Bytes(4096), &mut data).unwrap();
    assert_eq!(data, [2; 512]);
}

#[test]
fn failed_sync_fails_every_later_flush_of_data_on_that_disk() {
    let (rig, pool) = Rig::fresh(2, 32 * MIB, MIB, Durability::Host);
    let volume = volume_on(&pool, "v", 1, 2 * MIB);
    let client = client(&pool);
    client.write_at(&volume, Bytes(0), &[1; 512]).unwrap();
    rig.platters[1].fail_syncs.store(true, Ordering::SeqCst);
    assert!(client.flush(&volume).is_err());
    rig.platters[1].fail_syncs.store(false, Ordering::SeqCst);
    assert!(client.flush(&volume).is_err());
    assert!(volume.poisoned().is_some());
    let (_buffer, memory) = filled(&client, &[3; 512]);
    let refused = client.submit(VolumeRequest::transfer(&volume, WRITE, Bytes(0), memory));
    assert!(matches!(refused, Err(SubmitError::Poisoned { .. })));
    // Data on other disks is not affected, nor is the metadata, which does not record data that is not durable.
    let good = volume_on(&pool, "good", 0, 2 * MIB);
    client.write_at(&good, Bytes(0), &[4; 512]).unwrap();
    client.flush(&good).unwrap();
    let status = pool.status();
    assert_eq!(status.metadata.frozen, None);
    let failed = status.disks[1].failed.as_ref().unwrap();
    assert!(failed.contains("until the server is restarted"), "{failed}");
    assert_eq!(status.disks[0].failed, None);
}

#[test]
fn a_client_that_keeps_its_buffers_loses_them() {
    let (_rig, pool) = Rig::fresh(1, 32 * MIB, MIB, Durability::WriteThrough);
    let volume = volume(&pool, "v", MIB);
    let hog = pool.client("hog", ClientOptions::default()).unwrap();
    let mut kept = Vec::new();
    while let Ok(buffer) = hog.account().allocate(MIB as usize) {
        kept.push(buffer);
    }
    assert!(kept.len() > 10);
    let modest = pool.client("modest", ClientOptions::default()).unwrap();
    let data = vec![9; 8 << 20];
    for piece in data.chunks(512 << 10) {
        modest.write_at(&volume, Bytes(0), piece).unwrap();
    }
    let mut got = Vec::new();
    for _ in 0..16 {
        got.push(modest.account().allocate_wait(MIB as usize, None).unwrap());
    }
    let taken = kept.iter().filter(|buffer| buffer.is_revoked()).count();
    assert!(taken > 0, "nothing was taken from the hog");
    let revoked = kept.iter().find(|buffer| buffer.is_revoked()).unwrap();
    assert!(revoked.segments(Op::Write, 0..512).is_err());
    assert!(
        pool.status()
            .memory
            .iter()
            .any(|account| account.client == "hog")
    );
    modest.write_at(&volume, Bytes(0), &[1; 512]).unwrap();
}

#[test]
fn requests_beyond_a_cut_fail_and_the_rest_goes_on() {
    let (_rig, pool) = Rig::fresh(1, 32 * MIB, MIB, Durability::WriteThrough);
    let volume = volume(&pool, "v", 4 * MIB);
    let client = client(&pool);
    client
        .write_at(&volume, Bytes(0), &vec![1; 4 << 20])
        .unwrap();
    pool.shrink("v", Bytes(2 * MIB)).unwrap();
    assert_eq!(volume.size(), Bytes(2 * MIB));
    assert!(client.write_at(&volume, Bytes(2 * MIB), &[1; 512]).is_err());
    pool.grow("v", Bytes(4 * MIB), &Placement::default())
        .unwrap();
    let mut data = vec![1; 2 << 20];
    client.read_at(&volume, Bytes(2 * MIB), &mut data).unwrap();
    assert!(
        data.iter().all(|byte| *byte == 0),
        "what was cut off came back"
    );
}

#[test]
fn requests_in_flight_are_answered_when_the_pool_is_dropped() {
    let (rig, pool) = Rig::with_patience(
        1,
        Durability::WriteThrough,
        Nanos::from_millis(1),
        Nanos::from_secs(100_000),
    );
    let volume = volume(&pool, "v", MIB);
    let client = client(&pool);
    // One is on the disk and stays there; the others are queued there or wait for their predecessors.
    rig.platters[0].stalled.store(true, Ordering::SeqCst);
    let mut buffers = Vec::new();
    for index in 0..64 {
        let (buffer, memory) = filled(&client, &[1; 512]);
        buffers.push(buffer);
        let mut request = VolumeRequest::transfer(&volume, WRITE, Bytes(index * 512), memory);
        request.barrier = index % 8 == 7;
        client.submit(request).unwrap();
    }
    drop(pool);
    for _ in 0..64 {
        let failure = client.wait(None).unwrap().result.unwrap_err();
        assert!(
            matches!(
                failure,
                IoFailure::Disk { .. } | IoFailure::Cancelled { .. } | IoFailure::Poisoned { .. }
            ),
            "{failure:?}"
        );
    }
}
