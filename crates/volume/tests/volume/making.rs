//! Pools are made whole or not at all.

use crate::common::{
    Disk, EXTENT, Live, candidates, execute, for_each_crash, format, open, sectors, spec,
};
use sched::units::{Bytes, Sector};
use testkit::{Random, seed};
use volume::check::check;
use volume::{FormatSpec, PoolState, Step, VolumeError};

const SECTORS: u64 = sectors(10);

#[test]
fn bad_pools_are_not_made() {
    let disks = vec![Disk::new(SECTORS); 2];
    let with = |extent: u64, take: usize, sectors: u64| {
        let mut spec: FormatSpec = spec(&disks, 1, extent);
        spec.disks.truncate(take);
        spec.disks
            .iter_mut()
            .for_each(|(_, disk)| disk.sectors.0 = sectors);
        PoolState::format(&spec).unwrap_err()
    };
    for extent in [0, 1, 32 << 10, 65 << 10, 2 << 30, u64::MAX] {
        assert_eq!(
            with(extent, 2, SECTORS),
            VolumeError::BadExtentSize(Bytes(extent))
        );
    }
    assert_eq!(
        with(EXTENT, 0, SECTORS),
        VolumeError::BadDiskCount { asked: 0, max: 128 }
    );
    assert!(matches!(
        with(EXTENT, 2, 100),
        VolumeError::DiskTooSmall { least: 2184, .. }
    ));
    assert!(matches!(
        with(EXTENT, 2, 2184),
        VolumeError::PoolTooSmall {
            extents: 2,
            least: 7
        }
    ));
    assert!(matches!(
        with(EXTENT, 2, u64::MAX / 512),
        VolumeError::DiskTooLarge { .. }
    ));
}

#[test]
fn a_format_that_breaks_off_leaves_no_pool() {
    let mut random = Random(seed("formats that break off", Some(1)));
    let mut disks = vec![Disk::new(SECTORS); 2];
    format(&mut disks, 7);
    let steps = PoolState::format(&spec(&disks, 1, EXTENT)).unwrap();
    let of_a_superblock = |step: &Step| match step {
        Step::Write { start, .. } => [0, (SECTORS / 8 - 1) * 8].contains(&start.0),
        Step::Flush { .. } | Step::Expect { .. } => true,
    };
    let (mut old, mut new, mut none) = (0, 0, 0);
    for carried_out in 0..=steps.len() {
        let (before, left) = steps.split_at(carried_out);
        let unwritten = left
            .iter()
            .filter(|step| !matches!(step, Step::Expect { .. }))
            .count();
        // Each unflushed write is lost, torn or kept.
        for_each_crash(&disks, 4_096, 500, &mut random, &mut |image| {
            let Ok(found) = open(image) else {
                none += 1;
                assert!(!before.is_empty() && !left.is_empty());
                return;
            };
            // The old pool until anything but superblocks was written, the new one when only a second copy
            // is missing.
            if found.id() == [7; 16] {
                old += 1;
                assert!(
                    before.iter().all(of_a_superblock),
                    "after {carried_out} steps"
                );
            } else {
                new += 1;
                assert_eq!(found.id(), [1; 16]);
                assert!(unwritten <= 2, "after {carried_out} steps");
                assert_eq!(found.volumes().count(), 0);
                let report = check(&mut Live(image), &candidates(image));
                assert!(report.problems.is_empty(), "{:?}", report.problems);
            }
        });
        if let Some(step) = left.first() {
            execute(&mut disks, step);
        }
    }
    assert!(old > 1 && new > 1 && none > 1, "{old} {new} {none}");
    assert_eq!(open(&disks).unwrap().id(), [1; 16]);
    assert_eq!(
        open(&disks).unwrap().geometry().sector_of(volume::Place {
            disk: volume::DiskNumber(0),
            extent: 0
        }),
        Sector(2048)
    );
}
