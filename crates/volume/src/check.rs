//! Verifying a pool that is not in use.

use sched::units::Bytes;

use crate::chunks::ChunkSet;
use crate::grade::Grade;
use crate::identify::Found;
use crate::image::Image;
use crate::medium::{Candidate, Medium};
use crate::ondisk::change::Written;
use crate::open::{check_owners, read_pool};
use crate::place::{Uuid, VolumeId};
use crate::problem::Problem;

/// Result of a check.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Faults. The pool does not open, or must not be used.
    pub problems: Vec<Problem>,
    /// Oddities without harm, as a crash leaves them; extents with a grade, and lost chunks.
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
    /// Those that are bad.
    pub bad: u64,
    /// Those that are slow.
    pub slow: u64,
    /// Records that were rolled forward after the table.
    pub records: u64,
}

/// Extents with a grade by disk, and lost chunks by volume.
fn worn(disks: &[Found], image: &Image) -> Vec<Problem> {
    let graded = |disk: &Found| {
        let here = image.grades.iter();
        let here = here.filter(|(place, _)| place.disk == disk.superblock.number);
        let (bad, slow): (Vec<_>, Vec<_>) = here.partition(|(_, grade)| **grade == Grade::Bad);
        let (bad, slow) = (bad.len(), slow.len());
        (bad + slow > 0).then(|| Problem::Graded {
            disk: disk.name.clone(),
            bad,
            slow,
        })
    };
    let lost = |((volume, extent), chunks): (&(VolumeId, u32), &ChunkSet)| {
        let node = image.volumes.get(volume)?;
        let (_, written) = node.extents.get(*extent as usize)?;
        let left = match written {
            Written::Nothing => *chunks,
            Written::All => ChunkSet::EMPTY,
            Written::Part(written) => chunks.without(written),
        };
        (!left.is_empty()).then(|| Problem::Lost {
            volume: node.name.clone(),
            extent: *extent,
            chunks: left.len(),
        })
    };
    let graded = disks.iter().filter_map(graded);
    graded.chain(image.lost.iter().filter_map(lost)).collect()
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
    let is_bad = |grade: &&Grade| **grade == Grade::Bad;
    let bad = opened.image.grades.values().filter(is_bad).count() as u64;
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
        bad,
        slow: opened.image.grades.len() as u64 - bad,
        records: opened.tail.sequence - opened.table.next_sequence,
    };
    let problems = check_owners(&opened);
    let mut notes = opened.notes;
    notes.extend(worn(&opened.disks, &opened.image));
    Report {
        problems,
        notes,
        summary: Some(summary),
    }
}
