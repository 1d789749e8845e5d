//! Bad extents, extents still in use, and moving extents.

use sched::units::Bytes;
use volume::{DiskNumber, Grade, Place, Placement, VolumeError};

use super::{places, world};
use crate::common::{EXTENT, on};

#[test]
fn bad_extents_are_not_used_again() {
    let mut world = world(1, 24);
    let a = world.create("a", 3 * EXTENT, Placement::default()).unwrap();
    let bad = |extent| Place {
        disk: DiskNumber(0),
        extent,
    };
    for extent in [1, 3] {
        let transaction = world.pool.set_grades(&[(bad(extent), Grade::Bad)]);
        let transaction = transaction.unwrap();
        world.run(transaction, world.model.clone(), "marking");
    }
    assert_eq!(
        world.pool.set_grades(&[(bad(3), Grade::Bad)]).unwrap_err(),
        VolumeError::NoWorse
    );
    assert_eq!(
        world.pool.set_grades(&[(bad(24), Grade::Bad)]).unwrap_err(),
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

/// Slow extents go last, in whatever the placement is, and never to a move that needs a good one.
#[test]
fn slow_extents_are_taken_last() {
    let mut world = world(1, 24);
    let slow = |extent| {
        let place = Place {
            disk: DiskNumber(0),
            extent,
        };
        (place, Grade::Slow { extra_us: 9000 })
    };
    let available = world.pool.available();
    let transaction = world.pool.set_grades(&[slow(1), slow(2), slow(5)]).unwrap();
    world.run(transaction, world.model.clone(), "grading");
    assert_eq!(world.pool.available(), available);
    assert_eq!(world.pool.disks()[0].slow, 3);
    let a = world.create("a", 3 * EXTENT, Placement::default()).unwrap();
    assert_eq!(places(&world, a), [(0, 0), (0, 3), (0, 4)]);
    let run = Placement {
        run: 2,
        ..Placement::default()
    };
    let b = world.create("b", 2 * EXTENT, run).unwrap();
    assert_eq!(places(&world, b), [(0, 6), (0, 7)]);
    // All that volumes may have: metadata keeps good ones for itself.
    let left = world.pool.available().0;
    let c = world.create("c", left, Placement::default()).unwrap();
    let of_c = places(&world, c);
    assert_eq!(world.pool.available().0, 0);
    let slow_ones = of_c.iter().filter(|(_, extent)| [1, 2, 5].contains(extent));
    let good_left = 24 - 3 - 2 - of_c.len();
    assert!(slow_ones.count() >= 3_usize.saturating_sub(good_left));
    world.delete(b).unwrap();
    let moved = world
        .pool
        .begin_move_to_good(a, 1, &Placement::default())
        .unwrap();
    assert!([6, 7].contains(&moved.target().extent));
    world.pool.cancel_move(moved);
    world.restart();
    assert_eq!(world.pool.disks()[0].slow, 3);
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

/// Lent extents are out of use until they come back, spread over the disk, and at most an eighth of what is free.
#[test]
fn lent_extents_are_spread_and_come_back() {
    let mut world = world(2, 200);
    world.create("a", 40 * EXTENT, on(0)).unwrap();
    let slow = Place {
        disk: DiskNumber(0),
        extent: 100,
    };
    let grade = Grade::Slow { extra_us: 9000 };
    let transaction = world.pool.set_grades(&[(slow, grade)]).unwrap();
    world.run(transaction, world.model.clone(), "grading");
    let (available, free) = (world.pool.available(), world.pool.disks()[0].free);
    let lent = world.pool.lend(DiskNumber(0), 10).unwrap();
    let extents: Vec<u32> = lent.iter().map(|place| place.extent).collect();
    // Those that would be in the volume come from right behind it.
    assert_eq!(extents, [40, 41, 50, 70, 90, 110, 130, 150, 170, 190]);
    assert_eq!(world.pool.disks()[0].free, free - 10);
    assert_eq!(world.pool.available().0, available.0 - 10 * EXTENT);
    let b = world.create("b", 2 * EXTENT, on(0)).unwrap();
    assert_eq!(places(&world, b), [(0, 42), (0, 43)]);
    world.pool.give_back(lent);
    assert_eq!(world.pool.disks()[0].free, free - 2);
    let most = world.pool.lend(DiskNumber(0), u32::MAX).unwrap();
    assert!(most.len() as u32 <= (free - 2) / 8, "{}", most.len());
    assert!(most.len() > 10 && !most.contains(&slow));
    world.pool.give_back(most);
    assert_eq!(
        world.pool.lend(DiskNumber(2), 1),
        Err(VolumeError::NoSuchDisk(DiskNumber(2)))
    );
}
