//! Making a pool of disks.

use sched::units::{Bytes, Sector};

use crate::alloc::FreeMap;
use crate::error::VolumeError;
use crate::limits::{BLOCK_BYTES, DISK_EXTENTS_MAX, DISKS_MAX, HEADER_BYTES};
use crate::log::budget;
use crate::ondisk::mark::{self, MARK_AT};
use crate::ondisk::superblock::{Superblock, extents_on, second_copy_at};
use crate::ondisk::table::{TABLE_BYTES, TABLES_AT, Table};
use crate::ondisk::{Position, first_owner};
use crate::owner::expect;
use crate::place::{DiskNumber, Geometry};
use crate::pool::{FormatSpec, PoolState};
use crate::transaction::Step;

impl PoolState {
    /// The steps that make a pool of disks, whatever they held.
    ///
    /// 1. Wipe both superblocks of every disk. 2. Write the table and its mark, wipe its other copy. 3. Write
    ///    the superblocks of all disks but the first. 4. Write those of the first. A crash before 4 is
    ///    done leaves disks that do not open. 5. Read the first superblocks again: one disk under two
    ///    names has one of them only.
    ///
    /// # Errors
    /// Extent size, number or size of the disks out of range.
    pub fn format(spec: &FormatSpec) -> Result<Vec<Step>, VolumeError> {
        let superblocks = superblocks(spec)?;
        let mut free = FreeMap::new(
            superblocks.iter().map(|superblock| superblock.extents),
            Default::default(),
        );
        // A pool with room for nothing but metadata is of no use.
        let least = budget(1) + 1;
        let lead = DiskNumber(0);
        let log = free
            .take_for_metadata(lead)
            .filter(|_| free.good() >= least);
        let next = free.take_for_metadata(lead);
        let log = log.ok_or(VolumeError::PoolTooSmall {
            extents: free.good(),
            least,
        })?;
        let table = Table {
            pool: spec.pool,
            generation: 1,
            pool_generation: 1,
            owner: first_owner(&spec.pool),
            next_volume: 1,
            next_sequence: 1,
            log: Position {
                place: log,
                block: 0,
            },
            next,
            list: None,
            nodes: Vec::new(),
        };
        let numbers = || (0..superblocks.len()).map(|disk| DiskNumber(disk as u16));
        let flush = |disk| Step::Flush { disk };
        let mut steps = wipe(&superblocks);
        steps.push(Step::Write {
            disk: lead,
            start: Sector(TABLES_AT[0]),
            data: vec![0; BLOCK_BYTES as usize],
        });
        steps.push(Step::Write {
            disk: lead,
            start: Sector(TABLES_AT[1]),
            data: table.encode(),
        });
        steps.push(Step::Write {
            disk: lead,
            start: Sector(MARK_AT),
            data: mark::encode(&table.pool, table.generation),
        });
        steps.push(flush(lead));
        for superblock in &superblocks[1..] {
            steps.extend(both_copies(superblock, &superblock.encode()));
        }
        steps.extend(numbers().skip(1).map(flush));
        steps.extend(both_copies(&superblocks[0], &superblocks[0].encode()));
        steps.push(flush(lead));
        steps.extend(superblocks.iter().map(expect));
        Ok(steps)
    }

    /// The steps that leave nothing of what [`PoolState::format`] writes.
    #[must_use]
    pub fn wipe(spec: &FormatSpec) -> Vec<Step> {
        let Ok(superblocks) = superblocks(spec) else {
            return Vec::new();
        };
        let mut steps = wipe(&superblocks);
        let disk = DiskNumber(0);
        steps.extend([MARK_AT, TABLES_AT[0], TABLES_AT[1]].map(|at| Step::Write {
            disk,
            start: Sector(at),
            data: vec![0; BLOCK_BYTES as usize],
        }));
        steps.push(Step::Flush { disk });
        steps
    }
}

/// Zeros both superblocks of every disk, of one after another: two that are one disk must not be written at the
/// same time, for the host may answer that with an error.
fn wipe(superblocks: &[Superblock]) -> Vec<Step> {
    let zeros = vec![0; BLOCK_BYTES as usize];
    let wiped = superblocks.iter().flat_map(|superblock| {
        let disk = superblock.number;
        let flush = Step::Flush { disk };
        both_copies(superblock, &zeros).into_iter().chain([flush])
    });
    wiped.collect()
}

fn both_copies(superblock: &Superblock, data: &[u8]) -> [Step; 2] {
    let disk = superblock.number;
    let write = |start| Step::Write {
        disk,
        start,
        data: data.to_vec(),
    };
    [
        write(Sector::ZERO),
        write(second_copy_at(superblock.sectors)),
    ]
}

fn superblocks(spec: &FormatSpec) -> Result<Vec<Superblock>, VolumeError> {
    let geometry =
        Geometry::new(spec.extent_bytes).ok_or(VolumeError::BadExtentSize(spec.extent_bytes))?;
    let asked = spec.disks.len();
    if asked == 0 || asked > DISKS_MAX {
        return Err(VolumeError::BadDiskCount {
            asked,
            max: DISKS_MAX,
        });
    }
    let ids: Vec<_> = spec.disks.iter().map(|(id, _)| *id).collect();
    let superblock = |(number, (_, disk)): (usize, &(_, crate::Candidate))| {
        let extents = extents_on(disk.sectors, geometry);
        if extents == 0 {
            let least = (HEADER_BYTES + BLOCK_BYTES + geometry.extent_bytes().0)
                / sched::units::SECTOR_BYTES;
            let (name, sectors) = (disk.name.clone(), disk.sectors.0);
            return Err(VolumeError::DiskTooSmall {
                name,
                sectors,
                least,
            });
        }
        if extents > DISK_EXTENTS_MAX {
            return Err(VolumeError::DiskTooLarge {
                name: disk.name.clone(),
                max: DISK_EXTENTS_MAX,
            });
        }
        Ok(Superblock {
            generation: 1,
            owner: first_owner(&spec.pool),
            pool: spec.pool,
            number: DiskNumber(number as u16),
            sectors: disk.sectors,
            extents: extents as u32,
            geometry,
            table_disk: DiskNumber(0),
            tables: TABLES_AT.map(Sector),
            table_bytes: Bytes(TABLE_BYTES),
            disks: ids.clone(),
        })
    };
    spec.disks.iter().enumerate().map(superblock).collect()
}
