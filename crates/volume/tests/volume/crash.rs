//! Power cuts at every step of every operation.

#![allow(
    clippy::print_stdout,
    reason = "seeds and counts belong in a test's output"
)]

use crate::common::{
    Durability, EXTENT, Effort, Live, SECTOR, World, candidates, execute, for_each_crash, on, open,
};
use volume::{DiskNumber, Grade, Place, Placement, Refused, VolumeError, VolumeId};

const CHUNK: usize = 4096 / SECTOR;
const THOROUGH: Effort = Effort {
    all: 4096,
    samples: 64,
};

/// Pools of two and of three disks; the latter with more to reorder.
fn pools(test: impl Fn(World)) {
    for (disks, durability) in [
        (2, Durability::Forced),
        (2, Durability::Host),
        (3, Durability::Host),
    ] {
        test(World::new(disks, 24, durability, 1, THOROUGH));
    }
}

#[test]
fn creating_growing_shrinking_renaming_deleting() {
    pools(|mut world| {
        let a = world.create("a", 3 * EXTENT, Placement::default()).unwrap();
        world.write(a, 0, 40);
        world.flush(a);
        let b = world.create("b", EXTENT / 2, on(1)).unwrap();
        world.write(b, 3, 30);
        world.resize(a, 5 * EXTENT + 512).unwrap();
        world.write(a, 4 * 128, 128);
        world.flush(a);
        world.resize(a, EXTENT + 10 * 512).unwrap();
        world.resize(a, 2 * EXTENT).unwrap();
        world.rename(b, "c").unwrap();
        world.write(b, 0, 64);
        world.delete(a).unwrap();
        let d = world
            .create("a", 10 * EXTENT, Placement::default())
            .unwrap();
        world.write(d, 5, 300);
        world.flush(d);
        world.restart();
        world.delete(b).unwrap();
        assert!(world.points > 60 && world.crashes > world.points);
    });
}

#[test]
fn first_writes_discards_and_their_bits() {
    pools(|mut world| {
        let a = world.create("a", 2 * EXTENT, Placement::default()).unwrap();
        // A part of a chunk, two more in it, over its end, into the next extent.
        for (first, count) in [(2, 3), (0, 1), (6, 4), (126, 4), (60, 1)] {
            world.write(a, first, count);
        }
        world.flush(a);
        world.zero(a, 0, CHUNK);
        world.write(a, 3, 1);
        world.zero(a, 126, 4);
        world.flush(a);
        world.zero(a, 5, 3 * CHUNK);
        world.flush(a);
        world.zero(a, 0, 256);
        world.write(a, 1, 1);
        world.flush(a);
        world.write(a, 0, 256);
        world.zero(a, 0, 256);
        world.flush(a);
    });
}

#[test]
fn moving_while_writing() {
    pools(|mut world| {
        let a = world.create("a", 2 * EXTENT, on(0)).unwrap();
        world.write(a, 10, 50);
        world.flush(a);
        world
            .move_extent(a, 0, &on(1), &mut |world| {
                world.write(a, 12, 2);
                world.write(a, 100, 3);
                world.zero(a, 16, CHUNK);
                world.flush(a);
                world.write(a, 127, 2);
            })
            .unwrap();
        world.write(a, 10, 1);
        world.flush(a);
        let b = world.create("b", EXTENT, on(0)).unwrap();
        world.write(b, 1, 1);
        world.move_extent(a, 0, &on(0), &mut |_| {}).unwrap();
        world.flush(b);
        let busy = world.pool.begin_move(a, 5, &on(0)).unwrap_err();
        assert_eq!(busy, VolumeError::NoSuchExtent { asked: 5, have: 2 });
    });
}

/// Everything else goes on while an extent is on its way, collection of the log included.
#[test]
fn other_changes_while_an_extent_moves() {
    pools(|mut world| {
        let a = world.create("a", 2 * EXTENT, on(0)).unwrap();
        let b = world.create("b", 2 * EXTENT - 512, on(1)).unwrap();
        world.write(a, 120, 20);
        world.write(b, 250, 3);
        world
            .move_extent(a, 0, &on(1), &mut |world| {
                world.resize(a, 3 * EXTENT).unwrap();
                world.write(a, 250, 20);
                world.resize(b, EXTENT + 512).unwrap();
                world.resize(b, 2 * EXTENT).unwrap();
                world.checkpoint();
                world.write(a, 3, 2);
                world.rename(a, "c").unwrap();
                world.delete(b).unwrap();
                world.resize(a, EXTENT + 4096).unwrap();
            })
            .unwrap();
        world.checkpoint();
        world.create("a", 2 * EXTENT, on(0)).unwrap();
        world.flush(a);
        world.delete(a).unwrap();
    });
}

#[test]
fn checkpoints_and_collections() {
    pools(|mut world| {
        world.effort = Effort {
            all: 64,
            samples: 8,
        };
        let a = world.create("a", 4 * EXTENT, Placement::default()).unwrap();
        let b = world.create("b", EXTENT, Placement::default()).unwrap();
        world.checkpoint();
        let bad = Place {
            disk: volume::DiskNumber(1),
            extent: 9,
        };
        let transaction = world.pool.set_grades(&[(bad, Grade::Bad)]).unwrap();
        world.run(transaction, world.model.clone(), "marking");
        // A record a flush: enough to fill the log several times over, so that it collects by itself.
        for round in 0..120 {
            world.write(a, (round * 7) % 500, 2);
            world.zero(a, (round * 31) % 400, CHUNK * 2);
            world.flush(a);
            if round % 40 == 0 {
                world.write(b, round % 128, 1);
                world.checkpoint();
            }
        }
        let disks = world.pool.disks();
        let metadata: u32 = disks.iter().map(|disk| disk.metadata).sum();
        assert!(metadata <= 6, "{metadata} extents of metadata");
        assert_eq!(disks[1].bad, 1);
        world.power_cut();
        assert_eq!(world.pool.disks()[1].bad, 1);
    });
}

/// A grade is there after a crash or it is not, and once it is durable it stays.
#[test]
fn grades_of_extents() {
    let place = |disk, extent| Place {
        disk: DiskNumber(disk),
        extent,
    };
    let slow = |extra_us| Grade::Slow { extra_us };
    pools(|mut world| {
        let steps = [
            vec![(place(0, 3), slow(8_300)), (place(1, 9), Grade::Bad)],
            vec![(place(0, 3), slow(25_000))],
            vec![(place(0, 3), Grade::Bad), (place(0, 4), slow(100))],
        ];
        for grades in steps {
            let before: Vec<_> = world.pool.grades().collect();
            let transaction = world.pool.set_grades(&grades).unwrap();
            let mut seen = [0, 0];
            let mut images = Vec::new();
            for step in transaction.steps() {
                execute(&mut world.disks, step);
                let disks = world.disks.clone();
                for_each_crash(&disks, 256, 16, &mut world.random, &mut |image| {
                    images.push(open(image).unwrap().grades().collect::<Vec<_>>());
                });
            }
            world.pool.commit(transaction);
            let after: Vec<_> = world.pool.grades().collect();
            for found in images {
                let which = [&before, &after].iter().position(|of| **of == found);
                seen[which.unwrap_or_else(|| panic!("{found:?} is neither"))] += 1;
            }
            assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
            world.power_cut();
            assert_eq!(world.pool.grades().collect::<Vec<_>>(), after);
        }
        world.checkpoint();
        world.restart();
        let kept = [
            (place(0, 3), Grade::Bad),
            (place(0, 4), slow(100)),
            (place(1, 9), Grade::Bad),
        ];
        assert_eq!(world.pool.grades().collect::<Vec<_>>(), kept);
        let report = volume::check::check(&mut Live(&world.disks), &candidates(&world.disks));
        let texts: Vec<_> = report.notes.iter().map(ToString::to_string).collect();
        let [first, second] = [0, 1].map(|disk: usize| candidates(&world.disks)[disk].name.clone());
        let expected = [
            format!("{first}: 1 extent is bad, 1 extent is slow"),
            format!("{second}: 1 extent is bad"),
        ];
        assert_eq!(texts, expected);
        let none = world.pool.set_grades(&[(place(0, 3), slow(u32::MAX))]);
        assert_eq!(none.unwrap_err(), VolumeError::NoWorse);
    });
}

/// Neither data nor zeros go into part of a lost chunk: the rest would read as zeros.
fn assert_none_in_part(world: &World, volume: VolumeId, first: usize, count: usize) {
    let map = world.map(volume);
    let (at, end) = ((first * SECTOR) as u64, ((first + count) * SECTOR) as u64);
    let spans = map.writes(at, count * SECTOR).unwrap();
    let begun: Vec<_> = spans.map(|span| span.begin().map(drop)).collect();
    assert_eq!(begun, [Err(Refused::Lost)]);
    assert_eq!(
        map.zero(at, end - at).unwrap().as_slice(),
        std::slice::from_ref(&(at..end))
    );
    world.check_now(volume);
}

/// The volume ends within a chunk. A write to its end replaces that.
#[test]
fn the_last_chunk_of_a_volume_is_lost() {
    pools(|mut world| {
        let size = EXTENT + 5 * SECTOR as u64;
        let a = world.create("a", size, on(0)).unwrap();
        let last = EXTENT as usize / SECTOR;
        world.write(a, last, 5);
        world.flush(a);
        world.move_leaving(a, 1, &[0]);
        assert_none_in_part(&world, a, last, 4);
        assert_none_in_part(&world, a, last + 1, 4);
        world.power_cut();
        assert_none_in_part(&world, a, last, 4);
        world.write(a, last, 5);
        world.flush(a);
        world.power_cut();
        world.check_now(a);
    });
}

/// A chunk that cannot be read is left behind. Its reads fail until it is written or discarded, crash or not.
#[test]
fn moving_with_a_loss() {
    pools(|mut world| {
        let a = world.create("a", 2 * EXTENT, on(0)).unwrap();
        world.write(a, 0, 100);
        world.flush(a);
        let lost = [2, 3, 5];
        world.move_leaving(a, 0, &lost);
        let cells = |chunk: usize| chunk * CHUNK..(chunk + 1) * CHUNK;
        world.checkpoint();
        assert_none_in_part(&world, a, 2 * CHUNK, 3);
        assert_none_in_part(&world, a, 3 * CHUNK + 1, CHUNK - 1);
        world.flush(a);
        world.write(a, 2 * CHUNK, CHUNK);
        world.flush(a);
        world.checkpoint();
        world.power_cut();
        world.zero(a, 3 * CHUNK, CHUNK);
        world.flush(a);
        world.restart();
        let report = volume::check::check(&mut Live(&world.disks), &candidates(&world.disks));
        let texts: Vec<_> = report.notes.iter().map(ToString::to_string).collect();
        let text = "volume \"a\": chunks of its extent 0 are lost (1 of them): they were on a bad place of a disk";
        assert_eq!(texts, [text]);
        let left = &world.model[&a].cells[cells(5)];
        assert!(left.iter().all(|cell| cell.now() == crate::common::LOST));
        world.write(a, 5 * CHUNK, CHUNK);
        world.flush(a);
        world.move_leaving(a, 0, &[0]);
        world.resize(a, EXTENT).unwrap();
        world.delete(a).unwrap();
        world.checkpoint();
        world.restart();
    });
}

/// A growth that is refused changes nothing: a smaller one afterwards still hides what was cut off.
#[test]
fn a_refused_growth_before_another() {
    pools(|mut world| {
        let a = world.create("a", EXTENT, on(0)).unwrap();
        world.write(a, 0, 128);
        world.flush(a);
        world.resize(a, EXTENT / 4).unwrap();
        let refused = world.resize(a, 1000 * EXTENT).unwrap_err();
        assert!(
            matches!(refused, VolumeError::NoSpace { .. }),
            "{refused:?}"
        );
        let narrow = world
            .pool
            .grow(a, sched::units::Bytes(30 * EXTENT), &on(1))
            .map(drop);
        assert!(
            matches!(narrow, Err(VolumeError::NoRoomThere { .. })),
            "{narrow:?}"
        );
        world.resize(a, EXTENT).unwrap();
    });
}

/// Structures longer than a sector, which is what a crash can tear.
#[test]
fn torn_tables_nodes_and_bits() {
    let effort = Effort {
        all: 64,
        samples: 12,
    };
    let mut world = World::new(2, 64, Durability::Forced, 2, effort);
    let large = world
        .create("large", 70 * EXTENT, Placement::default())
        .unwrap();
    for number in 0..16 {
        world
            .create(&format!("v{number}"), 512, Placement::default())
            .unwrap();
    }
    world.effort = Effort { all: 1, samples: 0 };
    for extent in 0..70 {
        world.write(large, extent * 128 + extent % 120, 2);
    }
    world.effort = effort;
    world.flush(large);
    for round in 0..6 {
        world.checkpoint();
        let victim = world.pool.find(&format!("v{round}")).unwrap();
        world.delete(victim).unwrap();
        world.resize(large, (60 + round) * EXTENT).unwrap();
    }
    world.checkpoint();
    world.power_cut();
}

#[test]
fn a_long_random_life() {
    let first = testkit::seed("a long random life", Some(1));
    for seed in first..first + if testkit::is_full() { 200 } else { 12 } {
        let durability = [Durability::Forced, Durability::Host][seed as usize % 2];
        println!("seed {seed}, {durability:?}");
        let mut world = World::new(
            1 + seed as usize % 3,
            24,
            durability,
            seed,
            Effort {
                all: 16,
                samples: 3,
            },
        );
        for _ in 0..150 {
            step(&mut world);
        }
        println!("{} points, {} crashes", world.points, world.crashes);
    }
}

fn step(world: &mut World) {
    let ids: Vec<_> = world.model.keys().copied().collect();
    let size = (1 + world.random.below(4 * EXTENT / 512)) * 512;
    let Some(id) = ids
        .get(world.random.below(ids.len() as u64 + 1) as usize)
        .copied()
    else {
        let name = format!("v{}", world.random.below(12));
        let run = 1 + world.random.below(2) as u32;
        let made = world.create(
            &name,
            size,
            Placement {
                run,
                ..Placement::default()
            },
        );
        let expected = |error: &VolumeError| {
            matches!(
                error,
                VolumeError::NameTaken(_)
                    | VolumeError::NoSpace { .. }
                    | VolumeError::NoRoomThere { .. }
            )
        };
        assert!(made.as_ref().err().is_none_or(expected), "{made:?}");
        return;
    };
    let cells = world.model[&id].cells.len();
    let first = world.random.below(cells as u64) as usize;
    let count = 1 + world.random.below((cells - first).min(40) as u64) as usize;
    match world.random.below(25) {
        0 => world.delete(id).unwrap(),
        1 | 2 => {
            let resized = world.resize(id, size);
            assert!(
                matches!(
                    resized,
                    Ok(()) | Err(VolumeError::NoSpace { .. } | VolumeError::WrongDirection { .. })
                ),
                "{resized:?}"
            );
        }
        3 => world.checkpoint(),
        4 => world.power_cut(),
        24 => world.restart(),
        5..8 => {
            let extent = world.random.below(world.map(id).extents().len() as u64) as u32;
            let moved = world.move_extent(id, extent, &Placement::default(), &mut |world| {
                world.write(id, first, count);
                world.flush(id);
            });
            assert!(
                matches!(moved, Ok(()) | Err(VolumeError::NoSpace { .. })),
                "{moved:?}"
            );
        }
        8..11 => world.zero(id, first, count),
        11..15 => world.flush(id),
        _ => world.write(id, first, count),
    }
}

testkit::full! {
    "soak: sixteen times as many lives",
    a_long_random_life => a_long_random_life_full,
}
