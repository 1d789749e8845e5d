//! Names, sizes and placement; what is refused and why; volumes of many extents.

mod common;

use common::{Disk, Durability, EXTENT, Effort, Live, World, candidates, execute, on, open, spec};
use sched::units::{Bytes, Sector, SectorCount};
use volume::check::check;
use volume::limits::{HEADER_BYTES, NAME_BYTES_MAX};
use volume::{
    CreateSpec, DiskNumber, DiskRange, Place, Placement, PoolState, Transaction, VolumeError,
    VolumeId,
};

const QUICK: Effort = Effort { all: 1, samples: 0 };

fn world(disks: usize, extents: u64) -> World {
    World::new(disks, extents, Durability::Forced, 1, QUICK)
}

fn places(world: &World, volume: VolumeId) -> Vec<(u16, u32)> {
    world
        .map(volume)
        .places()
        .map(|place| (place.disk.0, place.extent))
        .collect()
}

#[test]
fn names() {
    let mut world = world(1, 24);
    let longest = "é".repeat(NAME_BYTES_MAX / 2) + "x";
    for name in ["a", "...", "name with spaces", "日本語", "..a", &longest] {
        world.create(name, EXTENT, Placement::default()).unwrap();
    }
    let too_long = "é".repeat(128);
    for name in [
        "", ".", "..", "a/b", "/", "a\nb", "\0", "\u{7f}", "\u{85}", &too_long,
    ] {
        let error = world
            .create(name, EXTENT, Placement::default())
            .unwrap_err();
        assert!(
            matches!(error, VolumeError::BadName { .. }),
            "{name:?}: {error}"
        );
    }
    assert_eq!(
        world.create("a", 1, Placement::default()),
        Err(VolumeError::NameTaken("a".to_owned()))
    );
    let a = world.pool.find("a").unwrap();
    assert_eq!(
        world.rename(a, "..."),
        Err(VolumeError::NameTaken("...".to_owned()))
    );
    assert!(matches!(
        world.rename(a, "x/y"),
        Err(VolumeError::BadName { .. })
    ));
    world.rename(a, "a").unwrap();
    world.rename(a, "b").unwrap();
    world.create("a", EXTENT, Placement::default()).unwrap();
}

#[test]
fn sizes() {
    let mut world = world(2, 24);
    let default = Placement::default;
    assert_eq!(world.create("a", 0, default()), Err(VolumeError::SizeZero));
    for huge in [
        u64::MAX,
        u64::MAX - 511,
        u64::MAX - 512,
        1 << 63,
        49 * EXTENT,
    ] {
        let error = world.create("a", huge, default()).unwrap_err();
        assert!(
            matches!(
                error,
                VolumeError::NoSpace { .. } | VolumeError::SizeOverflows(_)
            ),
            "{huge}: {error}"
        );
    }
    // The exact size is kept, in whole sectors.
    let a = world.create("a", EXTENT + 1, default()).unwrap();
    assert_eq!(
        (world.map(a).size(), world.map(a).extents().len()),
        (Bytes(EXTENT + 512), 2)
    );
    for same in [EXTENT + 1, EXTENT + 512] {
        let grown = world.pool.grow(a, Bytes(same), &default()).unwrap_err();
        assert!(matches!(
            grown,
            VolumeError::WrongDirection {
                direction: "larger",
                ..
            }
        ));
        let shrunk = world.pool.shrink(a, Bytes(same)).unwrap_err();
        assert!(matches!(
            shrunk,
            VolumeError::WrongDirection {
                direction: "smaller",
                ..
            }
        ));
    }
    assert_eq!(
        world.pool.shrink(a, Bytes(0)).unwrap_err(),
        VolumeError::SizeZero
    );
    assert!(matches!(
        world.pool.grow(a, Bytes(u64::MAX), &default()),
        Err(VolumeError::SizeOverflows(_))
    ));
    assert_eq!(
        world.pool.delete(VolumeId(77)).unwrap_err(),
        VolumeError::NoSuchVolume(VolumeId(77))
    );
    // All that is available can be had, no more, and then deleted again.
    let rest = world.pool.available().0;
    let error = world.create("b", rest + EXTENT, default()).unwrap_err();
    assert!(matches!(error, VolumeError::NoSpace { .. }), "{error}");
    let b = world.create("b", rest, default()).unwrap();
    assert!(world.pool.available().0 == 0);
    for round in 0..100 {
        world.write(b, round * 3, 1);
        world.flush(b);
    }
    world.delete(b).unwrap();
    world.delete(a).unwrap();
    assert_eq!(world.pool.available().0, rest + 2 * EXTENT);
}

#[test]
fn nothing_is_changed_before_the_start_nor_twice_at_once() {
    let world = world(1, 24);
    let mut pool = open(&world.disks).unwrap();
    let a = CreateSpec {
        name: "a".to_owned(),
        size: Bytes(EXTENT),
        placement: Placement::default(),
    };
    assert_eq!(pool.create(&a).unwrap_err(), VolumeError::NotStarted);
    assert_eq!(
        pool.begin_move(VolumeId(1), 0, &a.placement).unwrap_err(),
        VolumeError::NotStarted
    );
    let start = pool.start().unwrap();
    assert_eq!(pool.start().unwrap_err(), VolumeError::Busy);
    let _ = pool.commit(start);
    assert_eq!(pool.start().unwrap_err(), VolumeError::AlreadyStarted);
    let free = pool.available();
    let create = pool.create(&a).unwrap();
    assert_eq!(pool.checkpoint().unwrap_err(), VolumeError::Busy);
    assert_eq!(pool.settle(&[]).unwrap_err(), VolumeError::Busy);
    pool.cancel(create);
    assert_eq!(pool.available(), free);
    let create = pool.create(&a).unwrap();
    pool.fail(create);
    assert!(pool.is_poisoned());
    assert_eq!(pool.create(&a).unwrap_err(), VolumeError::Poisoned);
}

#[test]
fn rotation_and_runs() {
    let mut world = world(3, 24);
    let a = world.create("a", 6 * EXTENT, Placement::default()).unwrap();
    let rotated = places(&world, a);
    let disks: Vec<u16> = rotated.iter().map(|(disk, _)| *disk).collect();
    assert_eq!(disks, [1, 2, 0, 1, 2, 0]);
    assert_eq!(rotated[3], (1, 1), "first fit");
    let b = world
        .create(
            "b",
            7 * EXTENT,
            Placement {
                run: 3,
                ..Placement::default()
            },
        )
        .unwrap();
    assert_eq!(
        places(&world, b),
        [(2, 2), (2, 3), (2, 4), (0, 2), (0, 3), (0, 4), (1, 2)]
    );
    // Growing goes on with the next disk; holes are filled first.
    world.resize(a, 3 * EXTENT).unwrap();
    world.resize(a, 5 * EXTENT).unwrap();
    assert_eq!(places(&world, a)[3..], [(1, 1), (2, 1)]);
    let error = world
        .create(
            "c",
            EXTENT,
            Placement {
                run: 0,
                ..Placement::default()
            },
        )
        .unwrap_err();
    assert!(matches!(error, VolumeError::BadPlacement(_)));
}

#[test]
fn disks_and_ranges() {
    let mut world = world(3, 24);
    let c = world.create(
        "c",
        4 * EXTENT,
        Placement {
            disks: vec![DiskNumber(2), DiskNumber(0)],
            ..Placement::default()
        },
    );
    assert_eq!(places(&world, c.unwrap()), [(0, 0), (2, 0), (0, 1), (2, 1)]);
    let sector = |extent: u64| Sector((HEADER_BYTES + extent * EXTENT) / 512);
    let range = |disk, from, to: u64| DiskRange {
        disk: DiskNumber(disk),
        start: Sector(sector(from).0 - 1),
        count: SectorCount(sector(to).0 - sector(from).0 + 2),
    };
    let within = |ranges: &[DiskRange]| Placement {
        within: ranges.to_vec(),
        ..Placement::default()
    };
    let z = world
        .create(
            "z",
            4 * EXTENT,
            within(&[range(1, 10, 12), range(2, 10, 13)]),
        )
        .unwrap();
    assert_eq!(places(&world, z), [(1, 10), (2, 10), (1, 11), (2, 11)]);
    let error = world
        .create(
            "y",
            2 * EXTENT,
            within(&[range(1, 10, 12), range(2, 10, 13)]),
        )
        .unwrap_err();
    assert!(
        matches!(
            error,
            VolumeError::NoRoomThere {
                wanted: 2,
                missing: 1,
                ..
            }
        ),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("disks 1, 2, within the given range"),
        "{error}"
    );
    let bad = [
        within(&[DiskRange {
            disk: DiskNumber(1),
            start: Sector(sector(3).0 + 1),
            count: SectorCount(128),
        }]),
        within(&[DiskRange {
            disk: DiskNumber(1),
            start: Sector(u64::MAX),
            count: SectorCount(u64::MAX),
        }]),
        within(&[DiskRange {
            disk: DiskNumber(1),
            start: Sector(0),
            count: SectorCount(100),
        }]),
        Placement {
            disks: vec![DiskNumber(1), DiskNumber(1)],
            ..Placement::default()
        },
    ];
    for placement in bad {
        let error = world.create("x", EXTENT, placement).unwrap_err();
        assert!(matches!(error, VolumeError::BadPlacement(_)), "{error}");
    }
    assert_eq!(
        world.create("x", EXTENT, on(3)),
        Err(VolumeError::NoSuchDisk(DiskNumber(3)))
    );
}

#[test]
fn growing_under_a_reservation_keeps_to_zone_and_turn() {
    let mut world = world(2, 24);
    let zones: Vec<DiskRange> = (0..2)
        .flat_map(|disk| {
            [(2048, 1280), (2048 + 1280, 1792)].map(|(start, count)| DiskRange {
                disk: DiskNumber(disk),
                start: Sector(start),
                count: SectorCount(count),
            })
        })
        .collect();
    let fast = Placement {
        within: vec![zones[0], zones[2]],
        ..Placement::default()
    };
    let a = world.create("a", 4 * EXTENT, fast).unwrap();
    let like = world.pool.placement_like(a, &zones).unwrap();
    assert_eq!(like.within, [zones[0], zones[2]]);
    assert_eq!(like.disks, [DiskNumber(1), DiskNumber(0)]);
    assert!(like.strict);
    // Eight more would fit in disk 1's part of the zone, but disk 0's turn comes in between.
    world
        .create(
            "b",
            6 * EXTENT,
            Placement {
                within: vec![zones[0]],
                ..Placement::default()
            },
        )
        .unwrap();
    let grown = world.pool.grow(a, Bytes(9 * EXTENT), &like).unwrap();
    world.pool.cancel(grown);
    let refused = world.pool.grow(a, Bytes(10 * EXTENT), &like).unwrap_err();
    assert!(
        matches!(
            refused,
            VolumeError::NoRoomThere {
                wanted: 6,
                missing: 1,
                ..
            }
        ),
        "{refused}"
    );
    assert!(
        refused.to_string().contains("disk 0, whose turn it is"),
        "{refused}"
    );
}

#[test]
fn the_length_of_runs_is_seen_where_there_is_one() {
    let mut world = world(2, 64);
    let run = |run| Placement {
        run,
        ..Placement::default()
    };
    let on_one = Placement {
        disks: vec![DiskNumber(0)],
        ..run(4)
    };
    for (number, (extents, placement, seen)) in [
        (12, run(4), 4),
        (6, run(4), 4),
        (6, run(1), 1),
        (1, run(1), 1),
        // A run that may not be full yet, and disks that take no turns.
        (4, run(4), 1),
        (8, on_one, 1),
    ]
    .into_iter()
    .enumerate()
    {
        let name = number.to_string();
        let volume = world.create(&name, extents * EXTENT, placement).unwrap();
        assert_eq!(world.pool.run_of(volume), Ok(seen), "the {number}th");
        let like = world.pool.placement_like(volume, &[]).unwrap();
        assert_eq!(like.run, seen, "the {number}th");
    }
}

#[test]
fn bad_extents_are_not_used_again() {
    let mut world = world(1, 24);
    let a = world.create("a", 3 * EXTENT, Placement::default()).unwrap();
    let bad = |extent| Place {
        disk: DiskNumber(0),
        extent,
    };
    for extent in [1, 3] {
        let transaction = world.pool.mark_bad(bad(extent)).unwrap();
        world.run(transaction, world.model.clone(), "marking");
    }
    assert_eq!(
        world.pool.mark_bad(bad(3)).unwrap_err(),
        VolumeError::AlreadyBad(bad(3))
    );
    assert_eq!(
        world.pool.mark_bad(bad(24)).unwrap_err(),
        VolumeError::NoSuchPlace(bad(24))
    );
    world.write(a, 130, 2);
    world
        .move_extent(a, 1, &Placement::default(), &mut |_| {})
        .unwrap();
    assert_eq!(places(&world, a), [(0, 0), (0, 4), (0, 2)]);
    world.checkpoint();
    world.power_cut();
    let b = world.create("b", 2 * EXTENT, Placement::default()).unwrap();
    assert_eq!(places(&world, b), [(0, 5), (0, 6)]);
    assert_eq!(world.pool.disks()[0].bad, 2);
}

#[test]
fn an_extent_waits_for_requests_on_their_way_to_it() {
    let mut world = world(1, 24);
    let a = world.create("a", EXTENT, Placement::default()).unwrap();
    world.write(a, 0, 8);
    let map = world.map(a);
    let reading = map.reads(0, 512).unwrap().next().unwrap().unwrap();
    world
        .move_extent(a, 0, &Placement::default(), &mut |_| {})
        .unwrap();
    assert_eq!(world.pool.reap(), 1);
    let again = world
        .pool
        .begin_move(a, 0, &Placement::default())
        .unwrap_err();
    assert_eq!(again, VolumeError::StillRead { extent: 0 });
    let b = world.create("b", EXTENT, Placement::default()).unwrap();
    assert_eq!(
        (places(&world, a), places(&world, b)),
        (vec![(0, 1)], vec![(0, 2)])
    );
    drop(reading);
    assert_eq!(world.pool.reap(), 0);
    let writing = map.writes(0, 512).unwrap().next().unwrap().begin().unwrap();
    world.delete(a).unwrap();
    assert_eq!(world.pool.reap(), 1);
    assert!(map.writes(0, 512).unwrap().next().unwrap().begin().is_err());
    drop(writing);
    assert_eq!(world.pool.reap(), 0);
    let c = world.create("c", 2 * EXTENT, Placement::default()).unwrap();
    assert_eq!(places(&world, c), [(0, 0), (0, 1)]);
}

#[test]
fn a_move_keeps_out_of_the_way_of_other_changes() {
    let mut world = world(2, 24);
    let a = world
        .create("a", 3 * EXTENT - 512, Placement::default())
        .unwrap();
    world.write(a, 0, 300);
    let moved = world.pool.begin_move(a, 2, &on(1)).unwrap();
    let being = VolumeError::BeingMoved { extent: 2 };
    assert_eq!(world.pool.begin_move(a, 2, &on(1)).unwrap_err(), being);
    assert_eq!(world.pool.shrink(a, Bytes(EXTENT)).unwrap_err(), being);
    assert_eq!(world.pool.delete(a).unwrap_err(), being);
    world.resize(a, 3 * EXTENT - 1024).unwrap();
    let (moved, error) = world.pool.finish_move(moved).unwrap_err();
    assert!(matches!(error, VolumeError::MoveUnfinished(_)));
    moved.freeze();
    let (mut moved, error) = world.pool.finish_move(moved).unwrap_err();
    assert_eq!(
        error,
        VolumeError::MoveUnfinished("there is something left to copy")
    );
    assert_eq!(moved.pass().len(), 1);
    moved.thaw();
    let free = world.pool.available();
    world.pool.cancel_move(moved);
    assert!(world.pool.available() > free);
    world.write(a, 256, 1);
    world.resize(a, EXTENT).unwrap();
}

/// Growing overwrites what lies behind the end of the volume, not by way of the extent.
#[test]
fn a_move_that_begins_while_a_volume_grows_copies_what_growing_wrote() {
    let mut world = world(2, 24);
    let a = world.create("a", 2 * EXTENT, on(0)).unwrap();
    world.write(a, 128, 128);
    world.flush(a);
    world.resize(a, EXTENT + 512).unwrap();
    let growing = world
        .pool
        .grow(a, Bytes(2 * EXTENT), &Placement::default())
        .unwrap();
    let mut moved = world.pool.begin_move(a, 1, &on(1)).unwrap();
    world.copy(&mut moved);
    world.run_resize(growing, a, 256, "growing");
    world.check_now(a);
    moved.freeze();
    let (mut moved, error) = world.pool.finish_move(moved).unwrap_err();
    let unfinished = VolumeError::MoveUnfinished("there is something left to copy");
    assert_eq!(error, unfinished);
    world.copy(&mut moved);
    let moving = world.pool.finish_move(moved).unwrap();
    world.check_now(a);
    world.run(moving, world.model.clone(), "moving");
    assert_eq!(places(&world, a), [(0, 0), (1, 0)]);
}

/// The extent that a move began with may have been cut off, and another grown in its stead.
#[test]
fn a_move_that_begins_while_its_extent_is_cut_off_ends_in_nothing() {
    let mut world = world(2, 24);
    let a = world.create("a", 2 * EXTENT, on(0)).unwrap();
    world.write(a, 128, 128);
    let cutting = world.pool.shrink(a, Bytes(EXTENT)).unwrap();
    let mut moved = world.pool.begin_move(a, 1, &on(1)).unwrap();
    world.copy(&mut moved);
    world.run_resize(cutting, a, 128, "shrinking");
    moved.freeze();
    world.copy(&mut moved);
    let gone = |have| VolumeError::NoSuchExtent { asked: 1, have };
    let (moved, error) = world.pool.finish_move(moved).unwrap_err();
    assert_eq!(error, gone(1));
    world.resize(a, 2 * EXTENT).unwrap();
    world.write(a, 130, 3);
    let (moved, error) = world.pool.finish_move(moved).unwrap_err();
    assert_eq!(error, gone(2));
    world.pool.cancel_move(moved);
    world.check_now(a);
    world.flush(a);
    world.power_cut();
}

/// Runs without a crash after every step: the volumes here are too large for that.
fn run(disks: &mut [Disk], pool: &mut PoolState, transaction: Transaction) {
    transaction
        .steps()
        .iter()
        .for_each(|step| execute(disks, step));
    pool.commit(transaction);
}

#[test]
fn a_volume_of_forty_thousand_extents() {
    let extents = 22_000;
    let mut disks = vec![Disk::new(((1 << 20) + extents * EXTENT + 4096) / 512); 2];
    for step in PoolState::format(&spec(&disks, 1, EXTENT)).unwrap() {
        execute(&mut disks, &step);
    }
    let mut pool = open(&disks).unwrap();
    let start = pool.start().unwrap();
    run(&mut disks, &mut pool, start);
    let size = Bytes(40_000 * EXTENT);
    let spec = CreateSpec {
        name: "large".to_owned(),
        size,
        placement: Placement::default(),
    };
    let create = pool.create(&spec).unwrap();
    run(&mut disks, &mut pool, create);
    let id = pool.find("large").unwrap();
    let map = std::sync::Arc::clone(pool.volume(id).unwrap().1);
    // Every extent partly written: the longest node there is.
    for extent in 0..40_000 {
        let span = map
            .writes(extent * EXTENT + 4096 * (extent % 16), 4096)
            .unwrap()
            .next()
            .unwrap();
        span.begin().unwrap().in_use.written();
    }
    let settle = pool.settle(&[id]).unwrap().unwrap();
    run(&mut disks, &mut pool, settle);
    for _ in 0..4 {
        let checkpoint = pool.checkpoint().unwrap();
        run(&mut disks, &mut pool, checkpoint);
    }
    let grow = pool
        .grow(id, Bytes(41_000 * EXTENT), &Placement::default())
        .unwrap();
    run(&mut disks, &mut pool, grow);
    map.discard(0, size.0).unwrap();
    let settle = pool.settle(&[id]).unwrap().unwrap();
    assert!(
        settle.steps().len() <= 4,
        "a discard of everything is one short record: {:?}",
        settle.steps().len()
    );
    run(&mut disks, &mut pool, settle);
    let places: Vec<_> = pool.volume(id).unwrap().1.places().collect();
    let again = open(&disks).unwrap();
    let (name, map) = again.volume(id).unwrap();
    assert_eq!((name, map.extents().len()), ("large", 41_000));
    assert!(map.places().eq(places));
    assert_eq!(map.block_status(0, map.size().0).unwrap().count(), 1);
    let report = check(&mut Live(&disks), &candidates(&disks));
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}
