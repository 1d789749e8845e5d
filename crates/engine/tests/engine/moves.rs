//! Operations on a volume while its extents move.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::disk::Durability;
use engine::pool::{Placement, Pool, PoolError, VolumeSpec};
use engine::volume_io::{VolumeOp, VolumeRequest};
use sched::profile::DriveProfile;
use sched::request::Op;
use sched::units::Bytes;
use testkit::disks::{MIB, Rig, client, on_disk, volume_on};

/// Four extents on the second of two disks; the metadata is on the first.
fn four_extents() -> (Rig, Arc<Pool>) {
    let (rig, pool) = Rig::fresh(2, 32 * MIB, MIB, Durability::WriteThrough);
    drop(volume_on(&pool, "v", 1, 4 * MIB));
    (rig, pool)
}

fn by_disk(pool: &Pool) -> Vec<(String, u64)> {
    pool.volume_info("v").unwrap().extents_by_disk
}

/// A read that began before a move and is still under way at the next move delays that one, because its place
/// must not be reused yet.
#[test]
fn a_move_waits_for_reads_that_the_one_before_left_behind() {
    let (rig, pool) = four_extents();
    let volume = pool.open_volume("v").unwrap();
    let client = client(&pool);
    client.write_at(&volume, Bytes(0), &[7; 4096]).unwrap();
    let stalled = &rig.platters[1].stalled;
    stalled.store(true, Ordering::SeqCst);
    let buffer = client.account().allocate_wait(4096, None).unwrap();
    let memory = buffer.segments(Op::Read, 0..4096).unwrap();
    let read = VolumeRequest::transfer(&volume, VolumeOp::Read, Bytes(0), memory);
    client.submit(read).unwrap();
    // With nothing to copy, the extents leave the stalled disk at once.
    let discard = VolumeRequest::command(&volume, VolumeOp::Discard, Bytes(0), Bytes(4096));
    pool.client("another", Default::default())
        .unwrap()
        .execute(discard)
        .unwrap()
        .result
        .unwrap();
    pool.move_extents("v", &on_disk(0), &mut |_| true).unwrap();
    assert_eq!(by_disk(&pool), [("disk0".to_owned(), 4)]);
    assert_eq!(client.in_flight(), 1);

    let stopped = pool.move_extents("v", &on_disk(1), &mut |at| at.done > 0);
    assert!(matches!(stopped, Err(PoolError::Stopped)), "{stopped:?}");
    let mut asked = 0;
    pool.move_extents("v", &on_disk(1), &mut |_| {
        asked += 1;
        // The move has asked several times if it should go on waiting.
        if asked == 4 {
            assert_eq!(by_disk(&pool), [("disk0".to_owned(), 4)]);
            stalled.store(false, Ordering::SeqCst);
        }
        true
    })
    .unwrap();
    assert!(client.wait(None).unwrap().result.is_ok());
    assert_eq!(by_disk(&pool), [("disk1".to_owned(), 4)]);
}

#[test]
fn a_volume_that_is_being_moved_is_not_deleted_and_may_grow_and_shrink() {
    let (_rig, pool) = four_extents();
    let data = vec![7; 4 << 20];
    let volume = pool.open_volume("v").unwrap();
    client(&pool).write_at(&volume, Bytes(0), &data).unwrap();
    drop(volume);
    let mut seen = Vec::new();
    pool.move_extents("v", &on_disk(0), &mut |at| {
        if seen.last() == Some(&at.done) {
            return true;
        }
        seen.push(at.done);
        match at.done {
            0 => match pool.delete_volume("v").unwrap_err() {
                PoolError::InUse { users, .. } => assert_eq!(users, ["a move of its extents"]),
                other => panic!("{other}"),
            },
            1 => {
                pool.grow("v", Bytes(6 * MIB), &Placement::default())
                    .unwrap();
            }
            // The extents that were yet to be moved do not exist any more.
            2 => {
                pool.shrink("v", Bytes(2 * MIB)).unwrap();
            }
            _ => {}
        }
        true
    })
    .unwrap();
    assert_eq!(seen, [0, 1, 2, 4]);
    assert_eq!(by_disk(&pool), [("disk0".to_owned(), 2)]);
    let volume = pool.open_volume("v").unwrap();
    let mut back = vec![0; 2 << 20];
    client(&pool).read_at(&volume, Bytes(0), &mut back).unwrap();
    assert!(back == data[..2 << 20]);
    drop(volume);
    pool.delete_volume("v").unwrap();
}

#[test]
fn an_extent_on_its_way_is_neither_cut_off_nor_moved_by_another() {
    let (_rig, pool) = four_extents();
    let volume = pool.open_volume("v").unwrap();
    client(&pool)
        .write_at(&volume, Bytes(0), &vec![7; 4 << 20])
        .unwrap();
    let mut refused = 0;
    // Called again between the pieces of the copy; then the extent is being moved.
    let mut before = None;
    pool.move_extents("v", &on_disk(0), &mut |at| {
        if before.replace(at.done) != Some(at.done) || at.done != 3 {
            return true;
        }
        let cut = pool.shrink("v", Bytes(MIB));
        let moved = pool.move_extents("v", &on_disk(0), &mut |_| true);
        for result in [cut, moved] {
            assert!(
                matches!(result, Err(PoolError::BeingMoved { extent: 3 })),
                "{result:?}"
            );
        }
        refused += 1;
        true
    })
    .unwrap();
    assert!(refused > 0);
    assert_eq!(by_disk(&pool), [("disk0".to_owned(), 4)]);
    pool.shrink("v", Bytes(MIB)).unwrap();
}

/// A drive with platters seeks twice for each request of a copy.
#[test]
fn copy_of_a_move_uses_few_large_requests() {
    let profile = DriveProfile::shipped("hdd-8tb-7200").unwrap();
    let rig = Rig::of_drives(1, profile, Durability::WriteThrough);
    rig.create(8 * MIB);
    let pool = rig.open();
    let spec = VolumeSpec {
        name: "v".to_owned(),
        size: Bytes(8 * MIB),
        placement: on_disk(0),
    };
    pool.create_volume(&spec).unwrap();
    let volume = pool.open_volume("v").unwrap();
    let data = vec![7; 8 << 20];
    client(&pool).write_at(&volume, Bytes(0), &data).unwrap();
    let reads = &rig.platters[0].reads;
    let before = reads.load(Ordering::SeqCst);
    let elsewhere = Placement {
        bytes: Some(1 << 40..2 << 40),
        ..on_disk(0)
    };
    pool.move_extents("v", &elsewhere, &mut |_| true).unwrap();
    // Requests of 4 MiB, each in one or two pieces, instead of 32 of 256 KiB.
    let requests = reads.load(Ordering::SeqCst) - before;
    assert!((2..=4).contains(&requests), "{requests}");
    let mut back = vec![0; 8 << 20];
    client(&pool).read_at(&volume, Bytes(0), &mut back).unwrap();
    assert!(back == data);
}
