//! Identifies the given disks: reads superblocks and finds faults of the set.

use std::cmp::Reverse;

use sched::units::Sector;

use crate::limits::BLOCK_BYTES;
use crate::medium::{Candidate, Medium};
use crate::ondisk::superblock::{Superblock, SuperblockError, second_copy_at};
use crate::place::{DiskNumber, Uuid};
use crate::problem::Problem;

/// A disk of the pool, found.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) candidate: usize,
    pub(crate) name: String,
    pub(crate) superblock: Superblock,
    /// The block in the place of its first copy, if it can be read.
    pub(crate) first_block: Option<Vec<u8>>,
}

/// One copy of a superblock.
type Copy = Result<Superblock, Result<SuperblockError, String>>;

/// The disks of a pool and their superblocks.
#[derive(Debug, Default)]
pub(crate) struct Identified {
    /// By number; what is wrong is in `problems`.
    pub(crate) disks: Vec<Option<Found>>,
    pub(crate) problems: Vec<Problem>,
    /// Oddities without harm.
    pub(crate) notes: Vec<Problem>,
}

/// Both copies of a candidate's superblock.
fn read_copies(
    medium: &mut dyn Medium,
    number: usize,
    candidate: &Candidate,
) -> (Option<Vec<u8>>, [Copy; 2]) {
    let mut read = |at| {
        let mut block = vec![0; BLOCK_BYTES as usize];
        let done = medium.read(number, at, &mut block);
        done.map(|()| block).map_err(|error| error.to_string())
    };
    let blocks = [Sector::ZERO, second_copy_at(candidate.sectors)].map(&mut read);
    let parse = |block: &Vec<u8>| Superblock::parse(block).map_err(Ok);
    let copies = blocks.each_ref().map(|block| match block {
        Ok(block) => parse(block),
        Err(reason) => Err(Err(reason.clone())),
    });
    let [first, _] = blocks;
    (first.ok(), copies)
}

/// One disk, by the two copies of its superblock.
fn found(
    medium: &mut dyn Medium,
    number: usize,
    candidate: &Candidate,
    out: &mut Identified,
) -> Option<Found> {
    let name = || candidate.name.clone();
    let (first_block, copies) = read_copies(medium, number, candidate);
    let bad = copies.iter().position(Result::is_err);
    if let Some(error) = bad.and_then(|copy| copies[copy].as_ref().err()) {
        let both = copies.iter().all(Result::is_err);
        let damaged_if_any = copies
            .iter()
            .filter_map(|copy| copy.as_ref().err())
            .max_by_key(|error| match error {
                Ok(SuperblockError::NotOne) => 0,
                Err(_) => 1,
                Ok(SuperblockError::Damaged | SuperblockError::Impossible(_)) => 2,
                Ok(SuperblockError::Newer(_)) => 3,
            });
        let worst = damaged_if_any.unwrap_or(error);
        if let Ok(SuperblockError::Newer(version)) = worst {
            out.problems.push(Problem::NewerVersion {
                disk: name(),
                version: *version,
            });
            return None;
        }
        if both {
            out.problems.push(match worst {
                Ok(SuperblockError::NotOne) => Problem::NotOurs { disk: name() },
                Ok(SuperblockError::Impossible(what)) => Problem::Impossible { disk: name(), what },
                Ok(_) => Problem::SuperblocksDamaged { disk: name() },
                Err(reason) => Problem::Unreadable {
                    disk: name(),
                    at: 0,
                    reason: reason.clone(),
                },
            });
            return None;
        }
    }
    let newest = copies
        .into_iter()
        .flatten()
        .max_by_key(|copy| copy.generation)?;
    if newest.sectors > candidate.sectors {
        let (now, was) = (candidate.sectors.0, newest.sectors.0);
        out.problems.push(Problem::Shrunk {
            disk: name(),
            now,
            was,
        });
        return None;
    }
    // A disk that has grown keeps its second copy where its last block was.
    let second_is_elsewhere = newest.sectors != candidate.sectors;
    if let Some(copy) = bad.filter(|copy| !(second_is_elsewhere && *copy == 1)) {
        out.notes
            .push(Problem::OneCopyDamaged { disk: name(), copy });
    }
    Some(Found {
        candidate: number,
        name: name(),
        superblock: newest,
        first_block,
    })
}

/// Reads the superblocks of all candidates and puts the disks of one pool in their order: the pool
/// that most of them belong to, the first such.
pub(crate) fn identify(medium: &mut dyn Medium, candidates: &[Candidate]) -> Identified {
    let mut out = Identified::default();
    if candidates.is_empty() {
        out.problems.push(Problem::NoDisks);
        return out;
    }
    let mut found: Vec<Found> = Vec::new();
    for (candidate, given) in candidates.iter().enumerate() {
        found.extend(self::found(medium, candidate, given, &mut out));
    }
    let votes = |pool: &Uuid| {
        found
            .iter()
            .filter(|disk| disk.superblock.pool == *pool)
            .count()
    };
    let most = found
        .iter()
        .map(|disk| votes(&disk.superblock.pool))
        .max()
        .unwrap_or(0);
    let Some(pool) = found
        .iter()
        .map(|disk| disk.superblock.pool)
        .find(|pool| votes(pool) == most)
    else {
        return out;
    };
    // The newest superblock knows best which disks the pool has.
    let ours = found.iter().filter(|disk| disk.superblock.pool == pool);
    let Some(newest) = ours
        .min_by_key(|disk| Reverse(disk.superblock.generation))
        .map(|disk| disk.superblock.clone())
    else {
        return out;
    };
    out.disks = newest.disks.iter().map(|_| None).collect();
    for disk in found {
        place_disk(disk, &newest, &mut out);
    }
    for (number, disk) in out.disks.iter().enumerate() {
        if disk.is_none() {
            let of = newest.disks.len();
            out.problems.push(Problem::Missing {
                number,
                of,
                id: newest.disks[number],
            });
        }
    }
    out
}

fn place_disk(disk: Found, newest: &Superblock, out: &mut Identified) {
    let (name, superblock) = (disk.name.clone(), &disk.superblock);
    if superblock.pool != newest.pool {
        out.problems.push(Problem::Foreign {
            disk: name,
            pool: superblock.pool,
            expected: newest.pool,
        });
        return;
    }
    let number = usize::from(superblock.number.0);
    if newest.disks.get(number) != Some(&superblock.disk()) {
        out.problems.push(Problem::Replaced { disk: name, number });
        return;
    }
    let same_layout = superblock.geometry == newest.geometry
        && superblock.tables == newest.tables
        && superblock.table_disk == newest.table_disk
        && superblock.table_bytes == newest.table_bytes;
    if !same_layout {
        out.problems.push(Problem::Impossible {
            disk: name,
            what: "its layout is not that of the pool",
        });
        return;
    }
    match &out.disks[number] {
        Some(other) => {
            let first = other.name.clone();
            out.problems.push(Problem::Duplicate {
                first,
                second: name,
                number,
            });
        }
        None => out.disks[number] = Some(disk),
    }
}

/// Disks that are behind the others. `at_least` is the generation that the table was written under.
///
/// A start raises the generation of the table's disk first, then that of the others, then writes it
/// into the table. So after a crash any disk may be as old as the table says but not older, and none
/// is newer than the table's disk, unless that one is an old copy.
pub(crate) fn stale(disks: &[Found], table_disk: DiskNumber, at_least: u64) -> Vec<Problem> {
    let lead = &disks[usize::from(table_disk.0)];
    let newest = disks
        .iter()
        .map(|disk| disk.superblock.generation)
        .max()
        .unwrap_or(0);
    let behind = |disk: &&Found| disk.superblock.generation < at_least;
    let mut old: Vec<&Found> = disks.iter().filter(behind).collect();
    if lead.superblock.generation < newest {
        old = vec![lead];
    }
    let problem = |disk: &Found| Problem::Stale {
        disk: disk.name.clone(),
        number: usize::from(disk.superblock.number.0),
        generation: disk.superblock.generation,
        newest,
    };
    old.into_iter().map(problem).collect()
}
