//! Metadata that its disk does not accept, and hosts that do not make data durable: unaffected requests are
//! served, and delayed ones continue when the disk answers again.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::disk::Durability;
use engine::pool::{Pool, PoolError, Volume, VolumeSpec};
use engine::stream::{BlockReport, Recorder, Stop, StreamSpec};
use engine::volume_io::{IoFailure, SyncError};
use sched::request::Op;
use sched::units::{Bytes, Nanos};

use super::{stream, works};
use testkit::disks::{MIB, OnDrop, Rig, client, on_disk, seeded, stream_spec, volume_on};
use testkit::until;

/// A pool of two disks with its metadata on the first. Disks that stall are given up soon.
fn impatient(durability: Durability) -> (Rig, Arc<Pool>) {
    Rig::with_patience(
        2,
        durability,
        Nanos::from_millis(200),
        Nanos::from_millis(400),
    )
}

fn spec(name: &str) -> VolumeSpec {
    VolumeSpec {
        name: name.into(),
        size: Bytes(MIB),
        placement: on_disk(1),
    }
}

/// True if a change is pending because of frozen metadata; false if it was refused.
fn frozen<T: std::fmt::Debug>(changed: Result<T, PoolError>) -> bool {
    match changed {
        Err(PoolError::MetadataFrozen { reason, is_pending }) => {
            assert!(reason.contains("disk0"), "{reason}");
            is_pending
        }
        other => panic!("{other:?}"),
    }
}

/// Writes to a chunk without data, so that there is a bit to record, and flushes.
fn flush_of_a_new_chunk(pool: &Pool, volume: &Arc<Volume>, number: u64) -> Result<(), SyncError> {
    let client = client(pool);
    let place = Bytes(number * 65536);
    client.write_at(volume, place, &[9; 65536]).unwrap();
    client.flush(volume)
}

#[test]
fn metadata_is_frozen_while_its_disk_fails_and_goes_on_by_itself() {
    let (rig, pool) = impatient(Durability::WriteThrough);
    let mut rng = seeded("frozen");
    let other = volume_on(&pool, "other", 1, 4 * MIB);
    works(&pool, &other, 1);
    let faults = [&rig.platters[0].fail_writes, &rig.platters[0].stalled];
    for (round, fault) in (1..).zip(faults) {
        let name = format!("new{round}");
        fault.store(true, Ordering::SeqCst);
        let goes_on = OnDrop(fault, false);
        let begun = pool.create_volume(&spec(&name));
        let is_begun = !matches!(begun, Err(PoolError::Io(_)));
        // Nothing is written to a disk that does not answer, because the check of its superblock fails first.
        assert_eq!(is_begun, round == 1, "{begun:?}");
        assert!(!is_begun || frozen(begun), "it is done later");
        works(&pool, &other, 2);
        let flushed = flush_of_a_new_chunk(&pool, &other, round);
        assert!(
            matches!(flushed, Err(SyncError::Io(IoFailure::NotNow { .. }))),
            "{flushed:?}"
        );
        assert_eq!(other.poisoned(), None);
        assert!(!frozen(pool.create_volume(&spec("never"))), "nor is this");
        let metadata = pool.status().metadata;
        assert!(metadata.frozen.unwrap().contains("disk0"));
        assert_eq!(
            (metadata.goes_on, metadata.freezes, metadata.resumes),
            (true, round, round - 1)
        );
        // After a crash the change may or may not be in effect; the pool is consistent in both cases.
        let crashed = rig.after_power_cut(&mut rng).open();
        assert!(crashed.volume_info("other").is_ok());
        drop(crashed);
        drop(goes_on);
        until("the metadata goes on", || {
            pool.health().metadata.resumes == round
        });
        assert_eq!(pool.status().metadata.frozen, None);
        assert_eq!(pool.volume_info(&name).is_ok(), is_begun);
        flush_of_a_new_chunk(&pool, &other, round).unwrap();
        let crashed = rig.after_power_cut(&mut rng).open();
        assert_eq!(crashed.volume_info(&name).is_ok(), is_begun);
        let mut back = [0; 65536];
        let again = crashed.open_volume("other").unwrap();
        client(&crashed)
            .read_at(&again, Bytes(round * 65536), &mut back)
            .unwrap();
        assert!(back == [9; 65536]);
    }
    drop(other);
    pool.close().unwrap();
}

#[test]
fn volume_to_be_deleted_or_cut_is_unavailable_while_metadata_is_frozen() {
    let (rig, pool) = impatient(Durability::WriteThrough);
    drop((
        volume_on(&pool, "gone", 1, MIB),
        volume_on(&pool, "cut", 1, 4 * MIB),
    ));
    let fault = &rig.platters[0].fail_writes;
    let _goes_on = OnDrop(fault, false);
    fault.store(true, Ordering::SeqCst);
    assert!(frozen(pool.delete_volume("gone")));
    // Repeating the request changes nothing.
    for _ in 0..2 {
        assert!(
            pool.open_volume("gone").is_err(),
            "it is as good as deleted"
        );
        assert!(!frozen(pool.delete_volume("gone")));
    }
    fault.store(false, Ordering::SeqCst);
    until("it is deleted", || pool.volume_info("gone").is_err());

    fault.store(true, Ordering::SeqCst);
    assert!(frozen(pool.shrink("cut", Bytes(2 * MIB))));
    let cut = pool.open_volume("cut").unwrap();
    let range = |end| StreamSpec {
        range: Some(0..end),
        ..stream_spec(&cut, Op::Read, 65536, 65536)
    };
    let refused = pool.reserve(range(3 * MIB)).map(drop).unwrap_err();
    assert!(refused.to_string().contains("end at 2 MiB"), "{refused}");
    pool.reserve(range(2 * MIB)).map(drop).unwrap();
    fault.store(false, Ordering::SeqCst);
    until("it is cut", || cut.size() == Bytes(2 * MIB));
}

/// The write that froze the metadata succeeds, but its sync fails: the freeze becomes permanent.
fn is_frozen_for_good(rig: &Rig, pool: &Pool) {
    let disk = &rig.platters[0];
    disk.fail_syncs.store(true, Ordering::SeqCst);
    disk.fail_writes.store(false, Ordering::SeqCst);
    until("it does not go on any more", || {
        let metadata = pool.health().metadata;
        metadata.frozen.is_some() && !metadata.goes_on
    });
}

#[test]
fn volume_to_be_deleted_or_cut_stays_if_the_freeze_is_permanent() {
    let (rig, pool) = impatient(Durability::Host);
    works(&pool, &volume_on(&pool, "gone", 1, MIB), 1);
    rig.platters[0].fail_writes.store(true, Ordering::SeqCst);
    assert!(frozen(pool.delete_volume("gone")));
    assert!(pool.open_volume("gone").is_err());
    is_frozen_for_good(&rig, &pool);
    let there = pool.open_volume("gone").unwrap();
    let mut back = [0; 65536];
    client(&pool)
        .read_at(&there, Bytes::ZERO, &mut back)
        .unwrap();
    assert!(back == [1; 65536]);

    let (rig, pool) = impatient(Durability::Host);
    let cut = volume_on(&pool, "cut", 1, 4 * MIB);
    rig.platters[0].fail_writes.store(true, Ordering::SeqCst);
    assert!(frozen(pool.shrink("cut", Bytes(2 * MIB))));
    let whole = || pool.reserve(stream_spec(&cut, Op::Read, 65536, 65536));
    assert!(whole().is_err());
    is_frozen_for_good(&rig, &pool);
    whole().map(drop).unwrap();
}

#[test]
fn a_recording_goes_on_while_the_metadata_is_frozen() {
    // Enough for the flush after two seconds to fail; the last flush succeeds.
    const BLOCKS: u64 = 44;
    let (rig, pool) = impatient(Durability::WriteThrough);
    let fresh = volume_on(&pool, "fresh", 1, 8 * MIB);
    let recorded = stream(&pool, &fresh, Op::Write, MIB);
    let stop = Stop::new().unwrap();
    let fault = &rig.platters[0].fail_writes;
    let _goes_on = OnDrop(fault, false);
    fault.store(true, Ordering::SeqCst);
    let mut on_block = |block: &BlockReport| {
        if block.index == BLOCKS {
            assert_eq!(recorded.durable_bytes(), 0);
            fault.store(false, Ordering::SeqCst);
            stop.stop();
        }
    };
    let report = Recorder::new(&recorded, Bytes::ZERO)
        .run(File::open("/dev/zero").unwrap(), &stop, &mut on_block)
        .unwrap();
    assert_eq!(report.durable_bytes, report.bytes);
    assert_eq!(pool.health().metadata.freezes, 1);
}

#[test]
fn a_host_that_does_not_answer_a_sync_is_given_up_and_asked_again_later() {
    let (rig, pool) = impatient(Durability::Host);
    let (held, free) = (
        volume_on(&pool, "held", 1, 4 * MIB),
        volume_on(&pool, "free", 0, 4 * MIB),
    );
    works(&pool, &held, 1);
    works(&pool, &free, 1);
    rig.platters[1].hold_syncs(true);
    let flushed = flush_of_a_new_chunk(&pool, &held, 3);
    assert!(
        matches!(&flushed, Err(SyncError::Io(IoFailure::NotNow { reason })) if reason.contains("disk1")),
        "{flushed:?}"
    );
    // Other disks go on, including new chunks on them.
    works(&pool, &free, 2);
    flush_of_a_new_chunk(&pool, &free, 3).unwrap();
    let health = pool.health();
    let disk = &health.disks[1];
    assert!(disk.stalled_ns > 0 && disk.failed.is_some(), "{disk:?}");
    assert_eq!((disk.stalls, disk.given_ups, disk.comebacks), (1, 1, 0));
    assert_eq!((health.metadata.frozen, held.poisoned()), (None, None));
    rig.platters[1].hold_syncs(false);
    until("the host answers", || pool.health().disks[1].comebacks == 1);
    client(&pool).flush(&held).unwrap();
    assert_eq!(pool.health().disks[1].failed, None);
    drop((held, free));
    pool.close().unwrap();
}

#[test]
fn a_move_to_a_disk_that_cannot_make_it_durable_freezes_nothing() {
    let (rig, pool) = impatient(Durability::Host);
    let moved = volume_on(&pool, "moved", 0, 2 * MIB);
    works(&pool, &moved, 1);
    rig.platters[1].fail_syncs.store(true, Ordering::SeqCst);
    let result = pool.move_extents("moved", &on_disk(1), &mut |_| true);
    assert!(matches!(result, Err(PoolError::Io(_))), "{result:?}");
    assert_eq!(pool.health().metadata.frozen, None);
    works(&pool, &moved, 2);
    flush_of_a_new_chunk(&pool, &moved, 3).unwrap();
}

#[test]
fn a_pool_is_closed_although_its_host_does_not_answer() {
    let (rig, pool) = impatient(Durability::Host);
    let held = volume_on(&pool, "held", 1, 4 * MIB);
    client(&pool)
        .write_at(&held, Bytes(0), &[1; 65536])
        .unwrap();
    rig.platters[1].hold_syncs(true);
    let closed = pool.close();
    // Lets the sync thread end.
    rig.platters[1].hold_syncs(false);
    assert!(
        matches!(closed, Err(PoolError::Io(IoFailure::NotNow { .. }))),
        "{closed:?}"
    );
}

/// In this pool a checkpoint is due every few dozen flushes.
#[test]
fn gone_disk_delays_no_flush_of_another() {
    let rig = Rig::new(2, 32 * MIB, Durability::WriteThrough);
    rig.create(MIB / 16);
    let pool = rig.open();
    let held = volume_on(&pool, "held", 0, 16 * MIB);
    rig.platters[1].fail_reads.store(true, Ordering::SeqCst);
    rig.platters[1].fail_writes.store(true, Ordering::SeqCst);
    for number in 0..200 {
        flush_of_a_new_chunk(&pool, &held, number)
            .unwrap_or_else(|error| panic!("{number}: {error}"));
    }
    assert_eq!(held.poisoned(), None);
    assert_eq!(pool.health().metadata.frozen, None);
}
