//! What a client may ask, in which order it is done, and what goes wrong.

mod common;

use std::sync::atomic::Ordering;
use std::time::Duration;

use common::{MIB, Rig, client, filled, on_disk, volume};
use engine::disk::Durability;
use engine::front::{ClientOptions, IoFailure, SubmitError, Tag, VolumeOp, VolumeRequest};
use engine::pool::{Placement, PoolError, VolumeSpec};
use sched::request::Op;
use sched::units::Bytes;

const WRITE: VolumeOp = VolumeOp::Write { durable: false };

#[test]
fn requests_that_make_no_sense_are_refused() {
    let (_rig, pool) = Rig::fresh(1, 32 * MIB, MIB, Durability::WriteThrough);
    let volume = volume(&pool, "v", MIB);
    let (client, other) = (client(&pool), common::client(&pool));
    let submit = |op, offset: u64, len: usize| {
        let (_buffer, memory) = filled(&client, &vec![0; len]);
        let request = VolumeRequest::transfer(&volume, op, Bytes(offset), memory);
        client.submit(request).unwrap_err()
    };
    assert!(matches!(
        submit(WRITE, MIB, 512),
        SubmitError::PastEnd { .. }
    ));
    assert!(matches!(
        submit(WRITE, u64::MAX - 511, 512),
        SubmitError::PastEnd { .. }
    ));
    assert!(matches!(
        submit(WRITE, 1, 512),
        SubmitError::Misaligned { .. }
    ));
    assert!(matches!(
        submit(WRITE, 0, 513),
        SubmitError::Misaligned { .. }
    ));
    assert!(matches!(
        submit(VolumeOp::Read, 0, 512),
        SubmitError::WrongDirection
    ));
    assert!(matches!(
        submit(VolumeOp::Discard, 0, 512),
        SubmitError::LengthMismatch { .. }
    ));
    let (_buffer, memory) = filled(&other, &[0; 512]);
    let foreign = VolumeRequest::transfer(&volume, WRITE, Bytes(0), memory);
    assert_eq!(
        client.submit(foreign).unwrap_err(),
        SubmitError::ForeignBuffer
    );
    let nothing = VolumeRequest::command(&volume, VolumeOp::Discard, Bytes(0), Bytes(0));
    assert_eq!(client.submit(nothing).unwrap_err(), SubmitError::Empty);
    let tags = [Tag(0); 9];
    let mut many = VolumeRequest::command(&volume, VolumeOp::Flush, Bytes(0), Bytes(0));
    many.after = &tags;
    assert_eq!(
        client.submit(many).unwrap_err(),
        SubmitError::TooManyAfter { given: 9 }
    );
    assert_eq!(client.in_flight(), 0);

    let (_rig2, pool2) = Rig::fresh(1, 32 * MIB, MIB, Durability::WriteThrough);
    let elsewhere = common::volume(&pool2, "v", MIB);
    let foreign = VolumeRequest::command(&elsewhere, VolumeOp::Flush, Bytes(0), Bytes(0));
    assert!(matches!(
        client.submit(foreign).unwrap_err(),
        SubmitError::ForeignVolume { .. }
    ));
    pool.close().unwrap();
    let late = VolumeRequest::command(&volume, VolumeOp::Flush, Bytes(0), Bytes(0));
    assert_eq!(client.submit(late).unwrap_err(), SubmitError::Closed);
    assert!(matches!(pool.open_volume("v"), Err(PoolError::Closed)));
}

#[test]
fn as_many_requests_are_taken_as_the_client_may_have_in_flight() {
    let (rig, pool) = Rig::fresh(1, 32 * MIB, MIB, Durability::WriteThrough);
    let volume = volume(&pool, "v", MIB);
    let options = ClientOptions {
        in_flight_max: 2,
        ..ClientOptions::default()
    };
    let client = pool.client("two", options).unwrap();
    rig.platters[0].stalled.store(true, Ordering::SeqCst);
    let submit = || {
        let (_buffer, memory) = filled(&client, &[1; 512]);
        client.submit(VolumeRequest::transfer(&volume, WRITE, Bytes(0), memory))
    };
    submit().unwrap();
    submit().unwrap();
    assert_eq!(submit().unwrap_err(), SubmitError::Busy { limit: 2 });
    rig.platters[0].stalled.store(false, Ordering::SeqCst);
    assert!(client.wait(None).unwrap().result.is_ok());
    submit().unwrap();
    assert!(client.wait(None).unwrap().result.is_ok());
    assert!(client.wait(None).unwrap().result.is_ok());
    assert!(client.wait(Some(Duration::ZERO)).is_none());
}

/// A volume with its first extent on disk 0 and its second on disk 1, all of it written.
fn two_disks(pool: &engine::pool::Pool) -> std::sync::Arc<engine::pool::Volume> {
    let spec = VolumeSpec {
        name: "v".into(),
        size: Bytes(MIB),
        placement: on_disk(0),
    };
    pool.create_volume(&spec).unwrap();
    pool.grow("v", Bytes(2 * MIB), &on_disk(1)).unwrap();
    let volume = pool.open_volume("v").unwrap();
    common::client(pool)
        .write_at(&volume, Bytes(0), &vec![1; 2 << 20])
        .unwrap();
    common::client(pool).flush(&volume).unwrap();
    volume
}

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
        common::client(&pool)
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
        common::client(&pool)
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
fn a_failed_write_poisons_its_volume_and_no_other() {
    let (rig, pool) = Rig::fresh(2, 32 * MIB, MIB, Durability::WriteThrough);
    let spec = |name: &str, disk| VolumeSpec {
        name: name.into(),
        size: Bytes(2 * MIB),
        placement: on_disk(disk),
    };
    pool.create_volume(&spec("bad", 1)).unwrap();
    pool.create_volume(&spec("good", 0)).unwrap();
    let (bad, good) = (
        pool.open_volume("bad").unwrap(),
        pool.open_volume("good").unwrap(),
    );
    let client = client(&pool);
    client.write_at(&bad, Bytes(0), &[1; 512]).unwrap();
    client.flush(&bad).unwrap();
    rig.platters[1].fail_writes.store(true, Ordering::SeqCst);
    assert!(client.write_at(&bad, Bytes(4096), &[2; 512]).is_err());
    assert!(bad.poisoned().unwrap().contains("disk1"));
    let (_buffer, memory) = filled(&client, &[3; 512]);
    let refused = client.submit(VolumeRequest::transfer(&bad, WRITE, Bytes(0), memory));
    assert!(matches!(refused, Err(SubmitError::Poisoned { .. })));
    assert!(client.flush(&bad).is_err());
    let mut data = [0; 512];
    client.read_at(&bad, Bytes(0), &mut data).unwrap();
    assert_eq!(data, [1; 512]);
    client.write_at(&good, Bytes(0), &[4; 512]).unwrap();
    client.flush(&good).unwrap();
    let status = pool.status();
    assert!(status.disks[1].errors > 0 && status.disks[0].errors == 0);
    assert!(status.disks[1].failed.is_some());
}

#[test]
fn a_failed_sync_fails_every_later_flush_of_what_is_on_that_disk() {
    let (rig, pool) = Rig::fresh(2, 32 * MIB, MIB, Durability::Host);
    let spec = |name: &str, disk| VolumeSpec {
        name: name.into(),
        size: Bytes(2 * MIB),
        placement: on_disk(disk),
    };
    pool.create_volume(&spec("v", 1)).unwrap();
    let volume = pool.open_volume("v").unwrap();
    let client = client(&pool);
    client.write_at(&volume, Bytes(0), &[1; 512]).unwrap();
    rig.platters[1].fail_syncs.store(true, Ordering::SeqCst);
    assert!(client.flush(&volume).is_err());
    rig.platters[1].fail_syncs.store(false, Ordering::SeqCst);
    assert!(client.flush(&volume).is_err());
    assert!(volume.poisoned().is_some());
}

#[test]
fn a_disk_that_does_not_answer_holds_up_nobody_else() {
    let (rig, pool) = Rig::fresh(2, 32 * MIB, MIB, Durability::WriteThrough);
    let volume = two_disks(&pool);
    let (stuck, client) = (client(&pool), common::client(&pool));
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
    // The first began alone; all that came while it was held share the second.
    assert!(
        together <= 2 * alone,
        "{together} syncs for 50 flushes, {alone} for one"
    );
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
fn a_volume_in_use_is_not_deleted_and_says_who_uses_it() {
    let (_rig, pool) = Rig::fresh(1, 32 * MIB, MIB, Durability::WriteThrough);
    let volume = volume(&pool, "v", MIB);
    let again = pool.open_volume_for("v", "export of v").unwrap();
    match pool.delete_volume("v").unwrap_err() {
        PoolError::InUse { users, .. } => assert!(users.iter().any(|user| user == "export of v")),
        other => panic!("{other}"),
    }
    assert_eq!(pool.volume_info("v").unwrap().open_count, 2);
    drop((volume, again));
    pool.delete_volume("v").unwrap();
    assert!(matches!(
        pool.delete_volume("v"),
        Err(PoolError::NoSuchVolume(_))
    ));
    assert!(matches!(
        pool.open_volume("v"),
        Err(PoolError::NoSuchVolume(_))
    ));
}

#[test]
fn bad_names_sizes_and_placements_are_refused() {
    let (_rig, pool) = Rig::fresh(2, 32 * MIB, MIB, Durability::WriteThrough);
    let create = |name: &str, size: u64, placement: Placement| {
        let spec = VolumeSpec {
            name: name.into(),
            size: Bytes(size),
            placement,
        };
        pool.create_volume(&spec)
    };
    let anywhere = Placement::default;
    for name in ["", "a/b", ".", "..", "tab\t", &"x".repeat(256)] {
        let refused = create(name, MIB, anywhere());
        assert!(
            matches!(refused, Err(PoolError::BadName { .. })),
            "{name:?}"
        );
    }
    assert!(matches!(
        create("a", 0, anywhere()),
        Err(PoolError::BadSize { .. })
    ));
    assert!(matches!(
        create("a", 1 << 40, anywhere()),
        Err(PoolError::NoSpace { .. })
    ));
    let huge = create("a", u64::MAX, anywhere());
    assert!(
        matches!(
            huge,
            Err(PoolError::BadSize { .. } | PoolError::NoSpace { .. })
        ),
        "{huge:?}"
    );
    create("a", MIB, anywhere()).unwrap();
    assert!(matches!(
        create("a", MIB, anywhere()),
        Err(PoolError::VolumeExists(_))
    ));
    let nowhere = Placement {
        disks: vec!["disk7".into()],
        ..anywhere()
    };
    assert!(matches!(
        create("b", MIB, nowhere),
        Err(PoolError::BadPlacement(_))
    ));
    let no_zone = Placement {
        zone: Some(99),
        ..anywhere()
    };
    assert!(matches!(
        create("b", MIB, no_zone),
        Err(PoolError::BadPlacement(_))
    ));
    let grown = pool.grow("a", Bytes(MIB), &anywhere());
    assert!(matches!(grown, Err(PoolError::BadSize { .. })));
    let shrunk = pool.shrink("a", Bytes(2 * MIB));
    assert!(matches!(shrunk, Err(PoolError::BadSize { .. })));
    assert!(matches!(
        pool.shrink("a", Bytes(0)),
        Err(PoolError::BadSize { .. })
    ));
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
fn what_is_in_flight_when_the_pool_is_dropped_is_answered() {
    let (rig, pool) = Rig::fresh(1, 32 * MIB, MIB, Durability::WriteThrough);
    let volume = volume(&pool, "v", MIB);
    let client = client(&pool);
    rig.platters[0].delay_ns.store(1_000_000, Ordering::SeqCst);
    let mut buffers = Vec::new();
    for index in 0..64 {
        let (buffer, memory) = filled(&client, &[1; 512]);
        buffers.push(buffer);
        let mut request = VolumeRequest::transfer(&volume, WRITE, Bytes(index * 512), memory);
        request.barrier = index % 8 == 7;
        client.submit(request).unwrap();
    }
    drop(pool);
    let mut failed = 0;
    for _ in 0..64 {
        let completion = client.wait(None).unwrap();
        if let Err(failure) = completion.result {
            assert!(matches!(
                failure,
                IoFailure::Disk { .. } | IoFailure::Cancelled { .. }
            ));
            failed += 1;
        }
    }
    assert!(failed > 0);
}
