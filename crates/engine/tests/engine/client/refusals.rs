//! Refusals: invalid requests, names, sizes and placements, and deleting a volume in use.

use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::disk::Durability;
use engine::pool::{Placement, PoolError, VolumeSpec};
use engine::volume_io::{ClientOptions, SubmitError, Tag, VolumeOp, VolumeRequest};
use sched::units::Bytes;

use testkit::disks::{self, MIB, Rig, WRITE, client, filled, volume};

#[test]
fn requests_that_make_no_sense_are_refused() {
    let (_rig, pool) = Rig::fresh(1, 32 * MIB, MIB, Durability::WriteThrough);
    let volume = volume(&pool, "v", MIB);
    let (client, other) = (client(&pool), disks::client(&pool));
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
    let elsewhere = disks::volume(&pool2, "v", MIB);
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

/// The changes begin concurrently, so some find the volume and are then too late.
#[test]
fn late_concurrent_change_of_a_deleted_volume_is_refused_with_its_name() {
    const ROUNDS: usize = 200;
    let (_rig, pool) = Rig::fresh(1, 32 * MIB, MIB, Durability::WriteThrough);
    for _ in 0..ROUNDS {
        drop(volume(&pool, "v", MIB));
        let together = std::sync::Barrier::new(3);
        let change = |change: &dyn Fn() -> Result<(), PoolError>| {
            together.wait();
            change()
        };
        let delete = || change(&|| pool.delete_volume("v"));
        let grow = || {
            change(&|| {
                pool.grow("v", Bytes(2 * MIB), &Placement::default())
                    .map(drop)
            })
        };
        let results = std::thread::scope(|scope| {
            let running = [scope.spawn(delete), scope.spawn(delete), scope.spawn(grow)];
            running.map(|one| one.join().unwrap())
        });
        for result in &results {
            match result {
                Ok(()) => {}
                Err(PoolError::NoSuchVolume(name)) => assert_eq!(name, "v"),
                Err(other) => panic!("{other}"),
            }
        }
        let deleted = results[..2].iter().filter(|result| result.is_ok());
        assert_eq!(deleted.count(), 1, "{results:?}");
    }
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
