//! A block of metadata that is lost, and blocks that only look like metadata: no volume goes in silence.

use std::collections::BTreeSet;

use sched::units::{Bytes, Sector, SectorCount};
use volume::ondisk::table::TABLES_AT;
use volume::{
    CreateSpec, DiskNumber, DiskRange, Medium, Placement, PoolState, Problem, Step, Transaction,
    VolumeId,
};

use crate::common::{
    Disk, EXTENT, Live, OWNER, SECTOR, candidates, carry_out, execute, format, open, sectors,
};

const BLOCK: usize = 4096;

/// A pool on disks that are written as they are told.
struct Site {
    disks: Vec<Disk>,
    pool: PoolState,
    made: u32,
}

impl Site {
    fn new(disks: usize, extents: u64) -> Self {
        let mut disks = vec![Disk::new(sectors(extents)); disks];
        format(&mut disks, 1);
        let pool = open(&disks).unwrap();
        let mut site = Self {
            disks,
            pool,
            made: 0,
        };
        site.start(OWNER);
        site
    }

    fn start(&mut self, owner: volume::Owner) {
        let start = self.pool.start(owner).unwrap();
        carry_out(&mut self.disks, &mut self.pool, start);
    }

    fn create(&mut self, bytes: u64) -> VolumeId {
        let name = format!("v{}", self.made);
        self.made += 1;
        let create = self.pool.create(&CreateSpec {
            name: name.clone(),
            size: Bytes(bytes),
            placement: Placement::default(),
        });
        carry_out(&mut self.disks, &mut self.pool, create.unwrap());
        self.pool.find(&name).unwrap()
    }

    /// A volume of as many of the last extents of disk 0 as there are free: the log takes from there, too.
    fn create_at_end(&mut self, extents: u64) -> VolumeId {
        let name = format!("user{}", self.made);
        self.made += 1;
        let length = 24 * EXTENT / SECTOR as u64;
        let end = self.disks[0].sectors() - 8;
        let within = DiskRange {
            disk: DiskNumber(0),
            start: Sector(end - length),
            count: SectorCount(length),
        };
        let create = (1..=extents).rev().find_map(|extents| {
            let spec = CreateSpec {
                name: name.clone(),
                size: Bytes(extents * EXTENT),
                placement: Placement {
                    within: vec![within],
                    ..Placement::default()
                },
            };
            self.pool.create(&spec).ok()
        });
        carry_out(
            &mut self.disks,
            &mut self.pool,
            create.expect("some are free"),
        );
        self.pool.find(&name).unwrap()
    }

    fn delete(&mut self, volume: VolumeId) {
        let delete = self.pool.delete(volume).unwrap();
        carry_out(&mut self.disks, &mut self.pool, delete);
    }

    fn checkpoint(&mut self) {
        let checkpoint = self.pool.checkpoint().unwrap();
        carry_out(&mut self.disks, &mut self.pool, checkpoint);
    }

    /// Places of records, and their first bytes.
    fn records(&self) -> Vec<(usize, u64, Vec<u8>)> {
        let blocks = |(number, disk): (usize, &Disk)| {
            let starts = (0..disk.sectors() / 8).map(|block| block * 8);
            let found = starts.map(|at| (number, at, disk.bytes(at, SECTOR)));
            found
                .filter(|(.., bytes)| bytes.starts_with(b"CLKR"))
                .collect::<Vec<_>>()
        };
        self.disks.iter().enumerate().flat_map(blocks).collect()
    }
}

fn names(pool: &PoolState) -> BTreeSet<String> {
    pool.volumes().map(|(name, _)| name.to_owned()).collect()
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// A name for it, and what it does to a block.
type Damage = (&'static str, fn(&mut [u8]));

/// Kinds of damage to a block.
const DAMAGES: [Damage; 5] = [
    ("a flipped bit", |block| block[80] ^= 4),
    ("a flipped bit of the epoch", |block| block[48] ^= 1),
    ("zeros", |block| block.fill(0)),
    ("a torn end", |block| block[SECTOR..].fill(0xa5)),
    ("a torn beginning", |block| block[..SECTOR].fill(0xa5)),
];

/// 40 volumes, and 200. Each block that the pool has written is damaged in turn. The pool opens with all
/// volumes, or without the last one made if the block is part of that, or it does not open.
#[test]
fn no_lost_block_takes_a_volume_with_it() {
    const LINK: u8 = 9;
    for (disks, volumes) in [(1, 40), (2, 40), (3, 200)] {
        let mut site = Site::new(disks, 440 / disks as u64);
        for _ in 0..volumes {
            site.create(512);
        }
        let whole = names(&site.pool);
        assert_eq!(whole.len(), volumes);
        let records = site.records();
        let last = records.iter().map(|(.., of)| word(of, 64)).max().unwrap();
        let links = records.iter().filter(|(.., of)| of[4] == LINK).count();
        assert!(links > volumes / 10, "{links} links");
        let (mut refused, mut shorter, mut repaired) = (0, 0, 0);
        for number in 0..disks {
            for at in (0..site.disks[number].sectors()).step_by(8) {
                let block = site.disks[number].bytes(at, BLOCK);
                if block.iter().all(|byte| *byte == 0) {
                    continue;
                }
                let is_record = block.starts_with(b"CLKR");
                let is_last = is_record && word(&block, 64) == last;
                for (how, damage) in DAMAGES {
                    let mut damaged = block.clone();
                    damage(&mut damaged);
                    if damaged == block {
                        continue;
                    }
                    let mut image = site.disks.clone();
                    image[number].overwrite(at, &damaged);
                    let Ok(mut found) = open(&image) else {
                        refused += 1;
                        continue;
                    };
                    let now = names(&found);
                    if now != whole {
                        assert!(
                            is_last,
                            "{how} at sector {at} of disk {number}: {} left",
                            now.len()
                        );
                        assert_eq!(now.len(), volumes - 1, "{how} at sector {at}");
                        shorter += 1;
                        continue;
                    }
                    assert!(
                        !is_record,
                        "{how} at sector {at} of disk {number}: not noticed"
                    );
                    repaired += 1;
                    let start = found.start([0x51; 8]).unwrap();
                    carry_out(&mut image, &mut found, start);
                    assert_eq!(names(&open(&image).unwrap()), whole, "{how} at sector {at}");
                }
            }
        }
        assert!(refused > volumes && shorter > 0 && repaired > 0);
    }
}

/// Disks of which one block cannot be read.
struct Unreadable<'a> {
    disks: Live<'a>,
    disk: usize,
    sector: u64,
}

impl Medium for Unreadable<'_> {
    fn read(&mut self, disk: usize, start: Sector, buffer: &mut [u8]) -> std::io::Result<()> {
        let end = start.0 + (buffer.len() / SECTOR) as u64;
        if disk == self.disk && (start.0..end).contains(&self.sector) {
            return Err(std::io::Error::other("unreadable"));
        }
        self.disks.read(disk, start, buffer)
    }
}

/// A block that was never written may be unreadable, unless it is so near the end of the log that it may be a
/// part of the next record. No volume goes in silence wherever it is.
#[test]
fn an_unreadable_block_that_was_never_written_refuses_no_pool() {
    let mut site = Site::new(1, 440);
    for _ in 0..40 {
        site.create(512);
    }
    let whole = names(&site.pool);
    let (mut near_the_end, mut missed) = (0, 0);
    for sector in (0..site.disks[0].sectors()).step_by(8) {
        let is_written = (sector..sector + 8).any(|at| site.disks[0].now(at as usize).is_some());
        let mut medium = Unreadable {
            disks: Live(&site.disks),
            disk: 0,
            sector,
        };
        match PoolState::open(&mut medium, &candidates(&site.disks)) {
            Ok(found) => assert_eq!(names(&found), whole, "at sector {sector}"),
            Err(_) if is_written => missed += 1,
            Err(_) => near_the_end += 1,
        }
    }
    assert!(missed > 40, "{missed}");
    assert!(near_the_end <= 4, "{near_the_end}");
}

/// Writes all records of `from`, as they are, over all of a volume.
fn fill(disks: &mut [Disk], pool: &PoolState, volume: VolumeId, from: &[Vec<u8>]) {
    let geometry = pool.geometry();
    let mut blocks = from.iter().cycle();
    for place in pool.volume(volume).unwrap().1.places() {
        let start = geometry.sector_of(place).0;
        for at in (start..start + geometry.extent_sectors().0).step_by(8) {
            disks[usize::from(place.disk.0)].overwrite(at, blocks.next().unwrap());
        }
    }
}

/// A volume's user has copies of records: of this log, which it read from the disk before, and of what the
/// pool wrote after it was copied, which has the same numbers and later ones. Extents that were the user's
/// become the log's, and the pool opens after a crash at any time.
#[test]
fn copies_of_records_in_what_was_a_volume_refuse_no_pool() {
    let mut site = Site::new(1, 140);
    // The pool in the hands of another server, from the same state.
    let mut other = Site {
        disks: site.disks.clone(),
        pool: open(&site.disks).unwrap(),
        made: 0,
    };
    other.start([0x99; 8]);
    for round in 0..60 {
        other.create(512);
        if round % 10 == 0 {
            other.checkpoint();
        }
    }
    let theirs: Vec<Vec<u8>> = other
        .records()
        .iter()
        .map(|(disk, at, _)| other.disks[*disk].bytes(*at, BLOCK))
        .collect();
    for round in 0..40 {
        let user = site.create_at_end(20);
        let mine = site.records();
        let mut copies: Vec<Vec<u8>> = mine
            .iter()
            .map(|(disk, at, _)| site.disks[*disk].bytes(*at, BLOCK))
            .collect();
        copies.extend(theirs.iter().cloned());
        fill(&mut site.disks, &site.pool, user, &copies);
        site.delete(user);
        site.create(512);
        let found = open(&site.disks).unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert_eq!(names(&found), names(&site.pool), "round {round}");
        if round % 9 == 8 {
            site.pool = found;
            site.start([round as u8; 8]);
        }
    }
}

/// The newest table is lost when what only the older one needs belongs to volumes again.
#[test]
fn a_table_that_is_lost_is_missed_though_the_older_one_is_whole() {
    let mut site = Site::new(1, 140);
    let mut lost = 0;
    for round in 0..12 {
        for _ in 0..3 {
            site.create(512);
        }
        // Everything that is free has been somebody's.
        let user = site.create_at_end(20);
        fill(&mut site.disks, &site.pool, user, &[vec![0x5a; BLOCK]]);
        site.delete(user);
        let whole = names(&site.pool);
        let generations = TABLES_AT.map(|at| word(&site.disks[0].bytes(at, SECTOR), 32));
        let newest = usize::from(generations[1] > generations[0]);
        let mut image = site.disks.clone();
        image[0].corrupt(TABLES_AT[newest], 70, 1);
        match open(&image) {
            Ok(found) => assert_eq!(names(&found), whole, "round {round}"),
            Err(error) => {
                lost += 1;
                let is_it = |problem: &Problem| matches!(problem, Problem::TableLost { .. });
                assert!(error.problems.iter().any(is_it), "round {round}: {error}");
            }
        }
        site.checkpoint();
    }
    assert!(lost > 0);
}

/// Another server has opened the pool, changed it, and ended, since this one read it: this one begins nothing.
#[test]
fn a_server_does_not_start_from_what_it_read_before_another_server_did() {
    for ends in [false, true] {
        let mut first = Site::new(2, 32);
        let mut late = open(&first.disks).unwrap();
        first.pool = open(&first.disks).unwrap();
        first.start([0x11; 8]);
        first.create(EXTENT);
        if ends {
            let stop = first.pool.stop().unwrap();
            carry_out(&mut first.disks, &mut first.pool, stop);
        }
        let planned = late.start([0x22; 8]).unwrap();
        let Step::Expect { disk, start, data } = &planned.steps()[0] else {
            panic!("{:?} without a look", planned.steps()[0])
        };
        let found = first.disks[usize::from(disk.0)].bytes(start.0, data.len());
        assert!(found != *data);
        let why = volume::owner::why_not(data, &found);
        assert!(why.contains("another server has opened the pool"), "{why}");
    }
}

/// Two servers have the pool. The one that opened it first plans nothing that begins without a look at the
/// superblocks, which are not its own any more; what it appends for a flush changes nothing for the other.
#[test]
fn a_server_finds_that_another_has_opened_the_pool() {
    let mut site = Site::new(2, 32);
    let volume = site.create(2 * EXTENT);
    let map = std::sync::Arc::clone(site.pool.volume(volume).unwrap().1);
    let mut second = Site {
        disks: site.disks.clone(),
        pool: open(&site.disks).unwrap(),
        made: 1,
    };
    second.start([0x22; 8]);
    second.create(EXTENT);
    let theirs = names(&second.pool);
    let mut disks = second.disks;
    let unmet = |disks: &[Disk], step: &Step| {
        let Step::Expect { disk, start, data } = step else {
            panic!("{step:?} without a look")
        };
        let found = disks[usize::from(disk.0)].bytes(start.0, data.len());
        assert!(found != *data, "{step:?} is what the disk holds");
        volume::owner::why_not(data, &found)
    };
    let first = &mut site.pool;
    let spec = CreateSpec {
        name: "mine".to_owned(),
        size: Bytes(EXTENT),
        placement: Placement::default(),
    };
    let plans: [fn(&mut PoolState, &CreateSpec) -> Transaction; 5] = [
        |pool, spec| pool.create(spec).unwrap(),
        |pool, _| pool.delete(VolumeId(1)).unwrap(),
        |pool, _| {
            pool.grow(VolumeId(1), Bytes(4 * EXTENT), &Placement::default())
                .unwrap()
        },
        |pool, _| pool.checkpoint().unwrap(),
        |pool, _| pool.stop().unwrap(),
    ];
    for plan in plans {
        let planned = plan(first, &spec);
        let why = unmet(&disks, &planned.steps()[0]);
        let says = "another server has opened the pool since: the disk is at generation 3, this server at 2";
        assert_eq!(why, says);
        first.cancel(planned);
    }
    let mut appended = 0;
    loop {
        let span = map.writes(appended * 4096, 4096).unwrap().next().unwrap();
        span.begin().unwrap().in_use.written();
        let settle = first.settle(&[volume]).unwrap().unwrap();
        if matches!(settle.steps()[0], Step::Expect { .. }) {
            unmet(&disks, &settle.steps()[0]);
            break;
        }
        settle
            .steps()
            .iter()
            .for_each(|step| execute(&mut disks, step));
        first.commit(settle);
        appended += 1;
        let found = open(&disks).unwrap_or_else(|error| panic!("{appended} flushes: {error}"));
        assert_eq!(names(&found), theirs, "{appended} flushes");
    }
    assert!((4..16).contains(&appended), "{appended} flushes");
}
