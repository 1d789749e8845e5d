//! Verifying a pool that is not in use.

use sched::units::Bytes;

use crate::medium::{Candidate, Medium};
use crate::open::{check_owners, read_pool};
use crate::place::Uuid;
use crate::problem::Problem;

/// Result of a check.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Faults. The pool does not open, or must not be used.
    pub problems: Vec<Problem>,
    /// Oddities without harm, as a crash leaves them.
    pub notes: Vec<Problem>,
    /// Contents of the pool, as far as they could be read.
    pub summary: Option<Summary>,
}

/// Contents of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary {
    /// The pool's identity.
    pub pool: Uuid,
    /// Its disks.
    pub disks: usize,
    /// Number of starts and stops, plus one.
    pub generation: u64,
    /// The table's generation: how many checkpoints there have been, and the first.
    pub table_generation: u64,
    /// The volumes.
    pub volumes: usize,
    /// The size of an extent.
    pub extent_bytes: Bytes,
    /// All extents.
    pub extents: u64,
    /// Those of volumes.
    pub in_volumes: u64,
    /// Those that hold metadata.
    pub in_metadata: u64,
    /// Those marked bad.
    pub bad: u64,
    /// Records that were rolled forward after the table.
    pub records: u64,
}

/// Verifies a pool: both superblocks of each disk and the set of disks, both tables, every node, the
/// log to its end, and that every extent exists and has one owner. Reads metadata only.
pub fn check(medium: &mut dyn Medium, candidates: &[Candidate]) -> Report {
    let opened = match read_pool(medium, candidates) {
        Ok(opened) => opened,
        Err(problems) => {
            return Report {
                problems,
                ..Report::default()
            };
        }
    };
    let geometry = opened.geometry();
    let extents = opened
        .disks
        .iter()
        .map(|disk| u64::from(disk.superblock.extents))
        .sum();
    let in_volumes = opened
        .image
        .volumes
        .values()
        .map(|volume| volume.extents.len() as u64)
        .sum();
    let generation = opened
        .disks
        .iter()
        .map(|disk| disk.superblock.generation)
        .max()
        .unwrap_or(0);
    let summary = Summary {
        pool: opened.table.pool,
        disks: opened.disks.len(),
        generation,
        table_generation: opened.table.generation,
        volumes: opened.image.volumes.len(),
        extent_bytes: geometry.extent_bytes(),
        extents,
        in_volumes,
        in_metadata: opened.metadata.len() as u64,
        bad: opened.image.bad.len() as u64,
        records: opened.tail.sequence - opened.table.next_sequence,
    };
    Report {
        problems: check_owners(&opened),
        notes: opened.notes,
        summary: Some(summary),
    }
}
