//! Faults of the given disks are told by name.

use crate::common::{
    Disk, EXTENT, Live, OWNER, candidates, carry_out, execute, format, open, sectors, started, stop,
};
use sched::units::Bytes;
use volume::check::check;
use volume::ondisk::superblock::{FORMAT_VERSION, Superblock};
use volume::ondisk::table::TABLES_AT;
use volume::{CreateSpec, Placement, PoolState, Problem, Step, VolumeError};

const SECTORS: u64 = sectors(10);

fn pool(id: u8, count: usize) -> Vec<Disk> {
    let mut disks = vec![Disk::new(SECTORS); count];
    format(&mut disks, id);
    disks
}

fn create(disks: &mut [Disk], state: &mut PoolState, name: &str) {
    let spec = CreateSpec {
        name: name.to_owned(),
        size: Bytes(EXTENT),
        placement: Placement::default(),
    };
    let transaction = state.create(&spec).unwrap();
    carry_out(disks, state, transaction);
}

/// The problems of opening, and that a check says the same.
fn problems(disks: &[Disk]) -> Vec<Problem> {
    let problems = open(disks).unwrap_err().problems;
    assert!(!problems.is_empty());
    assert_eq!(
        check(&mut Live(disks), &candidates(disks)).problems,
        problems
    );
    problems
}

fn name(disk: usize) -> String {
    format!("/dev/disk{disk}")
}

#[test]
fn disks_may_be_given_in_any_order() {
    let mut disks = pool(1, 3);
    disks.rotate_left(1);
    let state = open(&disks).unwrap();
    let order: Vec<usize> = state.disks().iter().map(|disk| disk.candidate).collect();
    assert_eq!(order, [2, 0, 1]);
    assert!(matches!(
        open(&[]).unwrap_err().problems[..],
        [Problem::NoDisks]
    ));
}

#[test]
fn a_missing_disk() {
    let mut disks = pool(1, 3);
    disks.remove(1);
    let found = problems(&disks);
    assert!(
        matches!(
            found[..],
            [Problem::Missing {
                number: 1,
                of: 3,
                ..
            }]
        ),
        "{found:?}"
    );
    assert!(
        found[0]
            .to_string()
            .contains("disk 1 of the pool's 3 is missing")
    );
}

#[test]
fn a_disk_of_another_pool_and_one_of_none() {
    let mut disks = pool(1, 3);
    disks[1] = pool(2, 2).remove(0);
    disks.push(Disk::new(SECTORS));
    let found = problems(&disks);
    assert!(
        matches!(&found[0], Problem::NotOurs { disk } if *disk == name(3)),
        "{found:?}"
    );
    assert!(
        matches!(&found[1], Problem::Foreign { disk, .. } if *disk == name(1)),
        "{found:?}"
    );
    assert!(
        matches!(&found[2], Problem::Missing { number: 1, .. }),
        "{found:?}"
    );
}

#[test]
fn a_disk_given_twice() {
    let mut disks = pool(1, 2);
    disks.push(disks[1].clone());
    let found = problems(&disks);
    let [
        Problem::Duplicate {
            first,
            second,
            number: 1,
        },
    ] = &found[..]
    else {
        panic!("{found:?}")
    };
    assert_eq!((first, second), (&name(1), &name(2)));
}

#[test]
fn a_disk_that_took_the_place_of_another() {
    let mut disks = pool(1, 2);
    let mut superblock = Superblock::parse(&disks[1].bytes(0, 4096)).unwrap();
    superblock.disks[1] = [9; 16];
    disks[1].overwrite(0, &superblock.encode());
    disks[1].overwrite((SECTORS / 8 - 1) * 8, &superblock.encode());
    let found = problems(&disks);
    assert!(
        found
            .iter()
            .any(|found| matches!(found, Problem::Replaced { number: 1, .. })),
        "{found:?}"
    );
}

#[test]
fn a_stale_disk() {
    // Any disk, left behind by one start or by several.
    for behind in 0..3 {
        for starts in 1..4 {
            let mut disks = pool(1, 3);
            started(&mut disks);
            let old = disks[behind].clone();
            for _ in 0..starts {
                started(&mut disks);
            }
            disks[behind] = old;
            let found = problems(&disks);
            let [Problem::Stale { disk, number, .. }] = &found[..] else {
                panic!("{found:?}")
            };
            assert_eq!((disk, *number), (&name(behind), behind));
        }
    }
}

/// A copy of a disk that was made while the pool was in use is not the disk once the pool was stopped.
#[test]
fn a_stop_leaves_what_was_copied_before_stale() {
    for behind in 0..3 {
        let mut disks = pool(1, 3);
        let mut state = started(&mut disks);
        create(&mut disks, &mut state, "a");
        let old = disks[behind].clone();
        stop(&mut disks, &mut state);
        let refused = state.checkpoint().unwrap_err();
        assert_eq!(refused, VolumeError::NotStarted);
        assert_eq!(open(&disks).unwrap().volumes().count(), 1);
        disks[behind] = old;
        let found = problems(&disks);
        let [
            Problem::Stale {
                disk,
                generation,
                newest,
                ..
            },
        ] = &found[..]
        else {
            panic!("{found:?}")
        };
        assert_eq!((disk, *generation, *newest), (&name(behind), 2, 3));
    }
}

#[test]
fn a_stop_that_breaks_off_leaves_no_disk_stale() {
    let mut disks = pool(1, 3);
    let mut state = started(&mut disks);
    let steps = state.stop().unwrap().steps().to_vec();
    for broken in 0..=steps.len() {
        let mut disks = disks.clone();
        steps[..broken]
            .iter()
            .for_each(|step| execute(&mut disks, step));
        open(&disks).unwrap_or_else(|error| panic!("after {broken} steps of a stop: {error}"));
    }
}

#[test]
fn a_start_that_breaks_off_leaves_no_disk_stale() {
    let disks = pool(1, 3);
    let mut state = open(&disks).unwrap();
    let steps = state.start(OWNER).unwrap().steps().to_vec();
    for broken in 0..=steps.len() {
        let mut disks = disks.clone();
        steps[..broken]
            .iter()
            .for_each(|step| execute(&mut disks, step));
        open(&disks).unwrap_or_else(|error| panic!("after {broken} steps: {error}"));
    }
}

#[test]
fn torn_superblocks() {
    let last = (SECTORS / 8 - 1) * 8;
    for copy in 0..2 {
        let mut disks = pool(1, 2);
        disks[1].corrupt([0, last][copy], 100, 3);
        let mut state = open(&disks).unwrap();
        assert_eq!(
            state.notes(),
            [Problem::OneCopyDamaged {
                disk: name(1),
                copy
            }]
        );
        let report = check(&mut Live(&disks), &candidates(&disks));
        assert_eq!((report.problems.len(), report.notes.len()), (0, 1));
        let start = state.start(OWNER).unwrap();
        carry_out(&mut disks, &mut state, start);
        assert!(
            open(&disks).unwrap().notes().is_empty(),
            "starting mends it"
        );
    }
    let mut disks = pool(1, 2);
    disks[0].corrupt(0, 100, 3);
    disks[0].corrupt(last, 20, 3);
    let found = problems(&disks);
    assert!(
        matches!(&found[0], Problem::SuperblocksDamaged { disk } if *disk == name(0)),
        "{found:?}"
    );
}

#[test]
fn a_newer_version() {
    let mut disks = pool(1, 2);
    for sector in [0, (SECTORS / 8 - 1) * 8] {
        let mut block = disks[1].bytes(sector, 4096);
        block[8..12].copy_from_slice(&(FORMAT_VERSION + 1).to_le_bytes());
        block[16..24].fill(0);
        let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, &block);
        block[16..24].copy_from_slice(&sum.to_le_bytes());
        disks[1].overwrite(sector, &block);
    }
    let found = problems(&disks);
    assert!(
        matches!(&found[0], Problem::NewerVersion { disk, version: 4 } if *disk == name(1)),
        "{found:?}"
    );
}

/// Names that versions before took: one with a character that is not seen.
#[test]
fn a_volume_opens_whose_name_would_not_be_taken_any_more() {
    const ALLOWED: &str = "aXYZb";
    const UNSEEN: &str = "a\u{200b}b";
    let mut disks = pool(1, 1);
    let mut state = started(&mut disks);
    create(&mut disks, &mut state, ALLOWED);
    assert!(open(&disks).unwrap().find(ALLOWED).is_some());
    // The record with the name, and those after it, each of which has the checksum of the one before.
    let at = |block: &[u8], field: usize| {
        u64::from_le_bytes(block[field..field + 8].try_into().unwrap())
    };
    let mut records: Vec<(u64, Vec<u8>)> = (0..SECTORS / 8)
        .map(|block| (block * 8, disks[0].bytes(block * 8, 4096)))
        .filter(|(_, block)| block.starts_with(b"CLKR"))
        .collect();
    records.sort_by_key(|(_, block)| at(block, 56));
    let mut previous = None;
    for (sector, mut block) in records {
        let name = block
            .windows(5)
            .position(|bytes| bytes == ALLOWED.as_bytes());
        if let Some(name) = name {
            block[name..name + 5].copy_from_slice(UNSEEN.as_bytes());
        }
        if let Some(sum) = previous {
            block[24..32].copy_from_slice(&u64::to_le_bytes(sum));
        } else if name.is_none() {
            continue;
        }
        block[16..24].fill(0);
        let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, &block);
        block[16..24].copy_from_slice(&sum.to_le_bytes());
        disks[0].overwrite(sector, &block);
        previous = Some(sum);
    }
    let mut state = open(&disks).unwrap();
    let volume = state.find(UNSEEN).unwrap();
    assert_eq!(check(&mut Live(&disks), &candidates(&disks)).problems, []);
    let start = state.start(OWNER).unwrap();
    carry_out(&mut disks, &mut state, start);
    let deletion = state.delete(volume).unwrap();
    carry_out(&mut disks, &mut state, deletion);
    assert_eq!(open(&disks).unwrap().find(UNSEEN), None);
}

#[test]
fn a_disk_that_shrank_or_grew() {
    let mut disks = pool(1, 2);
    let mut smaller = Disk::new(SECTORS - 128);
    smaller.overwrite(0, &disks[1].bytes(0, (SECTORS - 128) as usize * 512));
    let whole = std::mem::replace(&mut disks[1], smaller);
    assert!(matches!(
        &problems(&disks)[..],
        [Problem::Shrunk { .. }, Problem::Missing { number: 1, .. }]
    ));
    let mut larger = Disk::new(SECTORS + 128);
    larger.overwrite(0, &whole.bytes(0, SECTORS as usize * 512));
    disks[1] = larger;
    assert!(open(&disks).unwrap().notes().is_empty());
}

#[test]
fn torn_and_lost_tables() {
    let mut disks = pool(1, 1);
    let mut state = started(&mut disks);
    create(&mut disks, &mut state, "a");
    // Generation 2 is in copy 0; copy 1 holds generation 1.
    let mut torn = disks.clone();
    torn[0].corrupt(TABLES_AT[1], 40, 1);
    assert_eq!(
        open(&torn).unwrap().notes(),
        [Problem::OneTableDamaged {
            disk: name(0),
            copy: 1
        }]
    );
    // The newest lost, with records after it: opening the older one would lose a volume.
    let mut lost = disks.clone();
    lost[0].corrupt(TABLES_AT[0], 40, 1);
    let found = problems(&lost);
    assert!(
        matches!(found[..], [Problem::TableLost { generation: 1, .. }]),
        "{found:?}"
    );
    lost[0].corrupt(TABLES_AT[1], 40, 1);
    assert!(matches!(problems(&lost)[..], [Problem::NoTable { .. }]));
}

#[test]
fn a_log_damaged_in_its_middle_and_a_damaged_node() {
    let mut disks = pool(1, 1);
    let mut state = started(&mut disks);
    let mut records = Vec::new();
    for name in ["a", "b", "c"] {
        let spec = CreateSpec {
            name: name.to_owned(),
            size: Bytes(EXTENT),
            placement: Placement::default(),
        };
        let transaction = state.create(&spec).unwrap();
        let written = transaction.steps().iter().find_map(|step| match step {
            Step::Write { start, .. } => Some(start.0),
            _ => None,
        });
        records.push(written.expect("a record"));
        carry_out(&mut disks, &mut state, transaction);
    }
    // The last record lost is as if it had not been written: a crash leaves that.
    let mut cut = disks.clone();
    cut[0].corrupt(records[2], 0, 0);
    assert_eq!(open(&cut).unwrap().volumes().count(), 2);
    let mut damaged = disks.clone();
    damaged[0].corrupt(records[1], 80, 0);
    assert!(matches!(
        problems(&damaged)[..],
        [Problem::LogDamaged { .. }]
    ));
    let checkpoint = state.checkpoint().unwrap();
    carry_out(&mut disks, &mut state, checkpoint);
    disks[0].corrupt(records[1], 80, 0);
    let found = problems(&disks);
    assert!(
        matches!(found[..], [Problem::NodeDamaged { volume: 2, .. }]),
        "{found:?}"
    );
}

#[test]
fn a_check_counts_what_there_is() {
    let mut disks = pool(1, 2);
    let mut state = started(&mut disks);
    create(&mut disks, &mut state, "a");
    let report = check(&mut Live(&disks), &candidates(&disks));
    assert_eq!((report.problems.len(), report.notes.len()), (0, 0));
    let summary = report.summary.unwrap();
    assert_eq!(
        (
            summary.disks,
            summary.volumes,
            summary.generation,
            summary.table_generation
        ),
        (2, 1, 2, 2)
    );
    assert_eq!(
        (summary.extents, summary.in_volumes, summary.in_metadata),
        (20, 1, 2)
    );
    assert_eq!(summary.records, 2);
}
