//! Places of volumes: disks, zones, bytes, and runs of extents. They are found by searching the platters for
//! data written to the volume.

use std::ops::Range;
use std::sync::Arc;

use engine::disk::Durability;
use engine::pool::{CreateOptions, Placement, Pool, PoolError, VolumeSpec};
use sched::predict::Predictor;
use sched::profile::DriveProfile;
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond};
use testkit::disks::{MIB, Rig, client, stream_spec, volume};

const SECTOR: u64 = 512;

fn shipped(name: &str) -> DriveProfile {
    DriveProfile::shipped(name).unwrap()
}

/// A pool of drives with twelve zones.
fn atlas(count: usize) -> (Rig, Arc<Pool>) {
    let rig = Rig::of_drives(count, shipped("quantum-atlas-ii"), Durability::WriteThrough);
    rig.create(MIB);
    let pool = rig.open();
    (rig, pool)
}

/// The byte range of a zone.
fn zone(number: usize) -> Range<u64> {
    let range = Predictor::new(&shipped("quantum-atlas-ii")).zone_range(number);
    let range = range.unwrap();
    range.start.0 * SECTOR..range.end.0 * SECTOR
}

fn create(pool: &Pool, name: &str, extents: u64, placement: &Placement) -> Result<(), PoolError> {
    let spec = VolumeSpec {
        name: name.into(),
        size: Bytes(extents * MIB),
        placement: placement.clone(),
    };
    pool.create_volume(&spec).map(|_| ())
}

/// The place of each extent of a volume, as disk and byte. Fills each extent with a byte of its own to find it.
fn places(rig: &Rig, pool: &Pool, name: &str) -> Vec<(usize, u64)> {
    let volume = pool.open_volume(name).unwrap();
    let client = client(pool);
    let find = |extent: u64| {
        let mark = 100 + extent as u8;
        let data = vec![mark; MIB as usize];
        client
            .write_at(&volume, Bytes(extent * MIB), &data)
            .unwrap();
        let found = rig
            .platters
            .iter()
            .enumerate()
            .filter_map(|(disk, platter)| {
                let sectors = platter.sectors_full_of(mark);
                let first = *sectors.first()?;
                assert!(
                    sectors.iter().copied().eq(first..first + MIB / SECTOR),
                    "it is in pieces"
                );
                Some((disk, first * SECTOR))
            });
        let found: Vec<_> = found.collect();
        assert_eq!(found.len(), 1, "extent {extent}");
        client
            .write_at(&volume, Bytes(extent * MIB), &vec![0; MIB as usize])
            .unwrap();
        found[0]
    };
    (0..volume.size().0 / MIB).map(find).collect()
}

fn lie_in(places: &[(usize, u64)], bytes: &Range<u64>) -> bool {
    let within = |(_, at): &(usize, u64)| bytes.start <= *at && at + MIB <= bytes.end;
    places.iter().all(within)
}

fn disks(places: &[(usize, u64)]) -> Vec<usize> {
    places.iter().map(|(disk, _)| *disk).collect()
}

fn on(disks: &[usize]) -> Placement {
    Placement {
        disks: disks.iter().map(|disk| format!("disk{disk}")).collect(),
        ..Placement::default()
    }
}

#[test]
fn volume_alternates_between_all_disks_or_the_named_ones() {
    let (rig, pool) = atlas(3);
    create(&pool, "a", 6, &Placement::default()).unwrap();
    let all = disks(&places(&rig, &pool, "a"));
    let mut first = all[..3].to_vec();
    first.sort_unstable();
    assert_eq!((first, &all[..3]), (vec![0, 1, 2], &all[3..]));
    create(&pool, "b", 4, &on(&[2, 0])).unwrap();
    let mut named = disks(&places(&rig, &pool, "b"));
    assert_eq!(named[..2], named[2..]);
    named.sort_unstable();
    assert_eq!(named, [0, 0, 2, 2]);
}

#[test]
fn volume_lies_in_runs() {
    let (rig, pool) = atlas(3);
    let runs = Placement {
        run_extents: 3,
        ..Placement::default()
    };
    create(&pool, "v", 9, &runs).unwrap();
    // By default it grows in runs of the same length.
    let same = Placement::default();
    pool.grow("v", Bytes(18 * MIB), &same).unwrap();
    let found = places(&rig, &pool, "v");
    for run in found.chunks(3) {
        let (disk, at) = run[0];
        assert_eq!(run, [(disk, at), (disk, at + MIB), (disk, at + 2 * MIB)]);
    }
    let turns: Vec<usize> = found.iter().step_by(3).map(|(disk, _)| *disk).collect();
    let mut turn = turns[..3].to_vec();
    turn.sort_unstable();
    assert_eq!((turn, &turns[..3]), (vec![0, 1, 2], &turns[3..]));
    let single = Placement {
        run_extents: 1,
        ..Placement::default()
    };
    pool.grow("v", Bytes(20 * MIB), &single).unwrap();
    let added = disks(&places(&rig, &pool, "v")[18..]);
    assert_ne!(added[0], added[1]);
}

#[test]
fn volume_lies_in_a_zone_or_in_bytes() {
    let (rig, pool) = atlas(2);
    for number in [0, 4, 11] {
        let in_zone = Placement {
            zone: Some(number),
            ..Placement::default()
        };
        create(&pool, "v", 4, &in_zone).unwrap();
        let found = places(&rig, &pool, "v");
        assert!(lie_in(&found, &zone(number)), "zone {number}: {found:?}");
        assert_eq!(found.iter().filter(|(disk, _)| *disk == 0).count(), 2);
        pool.delete_volume("v").unwrap();
    }
    // Neither end is a boundary of extents; four whole extents lie between them.
    let bytes = 1000 * MIB + 4096..1005 * MIB + 4096;
    let within = Placement {
        bytes: Some(bytes.clone()),
        ..on(&[1])
    };
    create(&pool, "v", 4, &within).unwrap();
    let found = places(&rig, &pool, "v");
    assert!(
        lie_in(&found, &bytes) && disks(&found) == [1; 4],
        "{found:?}"
    );
    // A move follows the same placement.
    let zone_7 = Placement {
        zone: Some(7),
        ..on(&[0])
    };
    pool.move_extents("v", &zone_7, &mut |_| true).unwrap();
    let found = places(&rig, &pool, "v");
    assert!(
        lie_in(&found, &zone(7)) && disks(&found) == [0; 4],
        "{found:?}"
    );
}

#[test]
fn placement_without_space_is_refused_with_the_place() {
    let (_rig, pool) = atlas(2);
    let zone_0 = zone(0);
    let nothing = [
        Placement {
            zone: Some(11),
            bytes: Some(zone_0.clone()),
            ..Placement::default()
        },
        Placement {
            bytes: Some(Range {
                start: 5 * MIB,
                end: 4 * MIB,
            }),
            ..Placement::default()
        },
        Placement {
            bytes: Some(1 << 50..u64::MAX),
            ..Placement::default()
        },
        // Less than an extent.
        Placement {
            bytes: Some(5 * MIB..6 * MIB - 512),
            ..Placement::default()
        },
        Placement {
            zone: Some(12),
            ..Placement::default()
        },
        Placement {
            disks: vec!["disk1".into(), "disk1".into()],
            ..Placement::default()
        },
    ];
    for placement in nothing {
        let refused = create(&pool, "v", 1, &placement);
        assert!(
            matches!(refused, Err(PoolError::BadPlacement(_))),
            "{placement:?}: {refused:?}"
        );
    }
    let narrow = Placement {
        bytes: Some(100 * MIB..103 * MIB),
        ..on(&[1])
    };
    let refused = create(&pool, "v", 4, &narrow).unwrap_err().to_string();
    let told = [
        "4 extents (4 MiB) are needed",
        "3 (3 MiB) are free",
        "on disk 1, within the given range",
    ];
    assert!(told.iter().all(|word| refused.contains(word)), "{refused}");
    create(&pool, "v", 3, &narrow).unwrap();
}

#[test]
fn growing_under_a_reservation_keeps_to_its_zone_or_is_refused() {
    const ZONE: usize = 6;
    let (rig, pool) = atlas(2);
    let in_zone = Placement {
        zone: Some(ZONE),
        ..on(&[1])
    };
    create(&pool, "v", 4, &in_zone).unwrap();
    // Leaves two free extents in the rest of the zone.
    let extents = zone(ZONE).end / MIB - zone(ZONE).start.div_ceil(MIB);
    create(&pool, "others", extents - 4 - 2, &in_zone).unwrap();
    let volume = pool.open_volume("v").unwrap();
    let spec = stream_spec(&volume, Op::Write, 100_000, MIB);
    let stream = pool.reserve(spec).unwrap();
    let grow = |extents: u64| pool.grow("v", Bytes(extents * MIB), &Placement::default());
    grow(6).unwrap();
    let found = places(&rig, &pool, "v");
    assert!(
        lie_in(&found, &zone(ZONE)) && disks(&found) == [1; 6],
        "{found:?}"
    );
    let refused = grow(7);
    assert!(
        matches!(refused, Err(PoolError::NoSpace { free: 0, .. })),
        "{refused:?}"
    );
    assert_eq!(pool.volume_info("v").unwrap().extents, 6);
    // Without the reservation it may grow anywhere.
    stream.close();
    grow(7).unwrap();
    assert!(!lie_in(&places(&rig, &pool, "v")[6..], &zone(ZONE)));
}

#[test]
fn a_pool_has_extents_that_suit_its_slowest_drive() {
    for (names, expected) in [
        (&["quantum-atlas-ii"][..], MIB),
        (&["hdd-8tb-7200"], 32 * MIB),
        (&["hdd-8tb-7200", "quantum-atlas-ii"], 32 * MIB),
    ] {
        let rigs: Vec<Rig> = names
            .iter()
            .map(|name| Rig::of_drives(1, shipped(name), Durability::WriteThrough))
            .collect();
        let disks = || rigs.iter().flat_map(Rig::disks).enumerate();
        let named = || {
            let named = disks().map(|(index, mut disk)| {
                disk.name = format!("disk{index}");
                disk
            });
            named.collect()
        };
        // The disks are not blank.
        let options = CreateOptions {
            force: true,
            ..CreateOptions::default()
        };
        Pool::create(&rigs[0].memory, named(), &options).unwrap();
        let pool = Pool::open(rigs[0].memory.clone(), named(), rigs[0].options.clone()).unwrap();
        assert_eq!(pool.extent(), Bytes(expected), "{names:?}");
        // The block proposed for a stream follows the same rule: it divides extents, and two blocks per disk
        // fit the memory.
        let disks = names.len() as u64;
        let volume = volume(&pool, "v", 2 * disks * expected);
        let rate = BytesPerSecond(50_000_000);
        let propose = |range: &std::ops::Range<u64>, memory: u64| {
            pool.proposed_block(&volume, range, rate, Bytes(memory))
        };
        let all = 0..2 * disks * expected;
        let free = rigs[0].memory.promisable().0;
        for memory in [1 << 40, free, 2 * MIB * disks, 2 * MIB * disks - 1, 1] {
            let block = propose(&all, memory).0;
            let fits = |block: u64| 2 * disks * block <= memory.min(free);
            assert!(expected.is_multiple_of(block), "{names:?} {block}");
            assert!(fits(block) || block == 65_536, "{names:?} {block}");
            assert!(block == expected || !fits(2 * block), "{names:?} {block}");
        }
        // A range on one disk can use all the memory for that disk.
        assert_eq!(propose(&(0..expected), 2 * MIB), Bytes(MIB), "{names:?}");
    }
}
