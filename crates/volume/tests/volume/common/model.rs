//! A model of the volumes of a pool, sector by sector, and the check against it.

use std::collections::BTreeMap;

use volume::map::Source;
use volume::{PoolState, VolumeId, VolumeMap};

use super::disks::*;

/// Allowed contents of a sector of a volume after a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    durable: u64,
    later: Vec<u64>,
}

impl Cell {
    pub const ZERO: Self = Self::holding(0);

    /// This for sure.
    pub const fn holding(durable: u64) -> Self {
        Self {
            durable,
            later: Vec::new(),
        }
    }

    /// Notes a write that is not durable yet.
    pub fn write(&mut self, stamp: u64) {
        self.later.push(stamp);
    }

    /// Its content is durably lost.
    pub fn lose(&mut self) {
        *self = Self::holding(LOST);
    }

    pub fn now(&self) -> u64 {
        self.later.last().copied().unwrap_or(self.durable)
    }

    fn allows(&self, stamp: u64) -> bool {
        stamp == self.durable || self.later.contains(&stamp)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeModel {
    pub name: String,
    pub cells: Vec<Cell>,
}

impl VolumeModel {
    pub fn new(name: &str, bytes: u64) -> Self {
        let cells = vec![Cell::ZERO; bytes.div_ceil(SECTOR as u64) as usize];
        Self {
            name: name.to_owned(),
            cells,
        }
    }

    /// Makes all writes so far durable.
    pub fn settle(&mut self) {
        for cell in &mut self.cells {
            cell.durable = cell.now();
            cell.later.clear();
        }
    }
}

/// The stamp that a reader finds in place of lost data.
pub const LOST: u64 = u64::MAX - 1;

pub type Model = BTreeMap<VolumeId, VolumeModel>;

pub fn stamped(stamp: u64) -> [u8; SECTOR] {
    let mut content = [0; SECTOR];
    content
        .chunks_mut(8)
        .for_each(|word| word.copy_from_slice(&stamp.to_le_bytes()));
    content
}

fn stamp_of(content: &[u8]) -> u64 {
    let stamp = u64::from_le_bytes(content[..8].try_into().unwrap());
    assert!(
        content == stamped(stamp),
        "a sector that no write has written so"
    );
    stamp
}

/// The stamps that a reader of the volume sees.
pub fn read(disks: &[Disk], map: &VolumeMap) -> Vec<u64> {
    let mut stamps = vec![u64::MAX; (map.size().0 as usize) / SECTOR];
    for piece in map.reads(0, map.size().0 as usize).unwrap() {
        let piece = piece.unwrap();
        let cells = piece.buffer.start / SECTOR..piece.buffer.end / SECTOR;
        match piece.source {
            Source::Zeros => stamps[cells].fill(0),
            Source::Lost => stamps[cells].fill(LOST),
            Source::Disk {
                disk, start, count, ..
            } => {
                assert_eq!(count.0 as usize, cells.len());
                let disk = &disks[usize::from(disk.0)];
                for (index, cell) in cells.enumerate() {
                    let content = disk.now(start.0 as usize + index);
                    stamps[cell] = content.map_or(0, |content| stamp_of(&content[..]));
                }
            }
        }
    }
    stamps
}

/// Compares an opened pool with `model`; an error names the difference.
pub fn agrees(disks: &[Disk], pool: &PoolState, model: &Model) -> Result<(), String> {
    let have: Vec<_> = pool
        .volumes()
        .map(|(name, map)| (map.volume(), name.to_owned(), map.size().0))
        .collect();
    let want: Vec<_> = model
        .iter()
        .map(|(id, volume)| {
            (
                *id,
                volume.name.clone(),
                (volume.cells.len() * SECTOR) as u64,
            )
        })
        .collect();
    if have != want {
        return Err(format!("the volumes are {have:?}, not {want:?}"));
    }
    for (_, map) in pool.volumes() {
        let cells = &model[&map.volume()].cells;
        for (index, (stamp, cell)) in read(disks, map).into_iter().zip(cells).enumerate() {
            if !cell.allows(stamp) {
                let volume = map.volume().0;
                return Err(format!(
                    "sector {index} of volume {volume} reads {stamp:#x}, may be {cell:?}"
                ));
            }
        }
    }
    Ok(())
}
