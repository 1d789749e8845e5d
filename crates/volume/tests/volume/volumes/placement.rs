//! Extents of a new volume: turns and runs, given disks and ranges, and growth.

use sched::units::{Bytes, Sector, SectorCount};
use volume::limits::HEADER_BYTES;
use volume::{DiskNumber, DiskRange, Placement, VolumeError};

use super::{places, world};
use crate::common::{EXTENT, on};

/// A placement with runs of this length on each disk.
fn run(run: u32) -> Placement {
    Placement {
        run,
        ..Placement::default()
    }
}

#[test]
fn rotation_and_runs() {
    let mut world = world(3, 24);
    let a = world.create("a", 6 * EXTENT, Placement::default()).unwrap();
    let rotated = places(&world, a);
    let disks: Vec<u16> = rotated.iter().map(|(disk, _)| *disk).collect();
    assert_eq!(disks, [1, 2, 0, 1, 2, 0]);
    assert_eq!(rotated[3], (1, 1), "first fit");
    let b = world.create("b", 7 * EXTENT, run(3)).unwrap();
    assert_eq!(
        places(&world, b),
        [(2, 2), (2, 3), (2, 4), (0, 2), (0, 3), (0, 4), (1, 2)]
    );
    // Growing goes on with the next disk; holes are filled first.
    world.resize(a, 3 * EXTENT).unwrap();
    world.resize(a, 5 * EXTENT).unwrap();
    assert_eq!(places(&world, a)[3..], [(1, 1), (2, 1)]);
}

/// First sector of an extent on its disk.
fn sector(extent: u64) -> u64 {
    (HEADER_BYTES + extent * EXTENT) / 512
}

fn within(ranges: &[DiskRange]) -> Placement {
    Placement {
        within: ranges.to_vec(),
        ..Placement::default()
    }
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
    // A sector more at either end makes no difference.
    let range = |disk, from, to| DiskRange {
        disk: DiskNumber(disk),
        start: Sector(sector(from) - 1),
        count: SectorCount(sector(to) - sector(from) + 2),
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
}

#[test]
fn disks_and_ranges_that_make_no_sense_are_refused() {
    let mut world = world(3, 24);
    let range = |start, count| {
        within(&[DiskRange {
            disk: DiskNumber(1),
            start: Sector(start),
            count: SectorCount(count),
        }])
    };
    let bad = [
        range(sector(3) + 1, 128),
        range(u64::MAX, u64::MAX),
        range(0, 100),
        Placement {
            disks: vec![DiskNumber(1), DiskNumber(1)],
            ..Placement::default()
        },
        run(0),
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
            [(sector(0), 1280), (sector(0) + 1280, 1792)].map(|(start, count)| DiskRange {
                disk: DiskNumber(disk),
                start: Sector(start),
                count: SectorCount(count),
            })
        })
        .collect();
    let fast = within(&[zones[0], zones[2]]);
    let a = world.create("a", 4 * EXTENT, fast).unwrap();
    let like = world.pool.placement_like(a, &zones).unwrap();
    assert_eq!(like.within, [zones[0], zones[2]]);
    assert_eq!(like.disks, [DiskNumber(1), DiskNumber(0)]);
    assert!(like.strict);
    // Eight more would fit in disk 1's part of the zone, but disk 0's turn comes in between.
    world.create("b", 6 * EXTENT, within(&zones[..1])).unwrap();
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
