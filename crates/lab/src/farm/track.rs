//! The blocks of a volume as requests to disks: what a stream that moves through it asks of each disk, and needs.

use std::ops::Range;

use engine::stream::needs::{Need, Path};
use sched::predict::Predictor;
use sched::request::Op;
use sched::units::{Bytes, Nanos, Sector, SectorCount};

use super::Disks;
use super::band::PlacedVolume;

/// A request to a disk that is a block of a volume, or a part of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The block, from 0.
    pub block: u64,
    /// The first sector on the disk.
    pub start: Sector,
    /// Number of sectors.
    pub count: SectorCount,
}

/// Needs of a lane as a member of a sweep.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Swept {
    /// Sectors of its requests.
    pub within: Range<Sector>,
    /// The longest that a request takes, without its seek.
    pub each: Nanos,
    /// The most cylinders that a request reaches over.
    pub cylinders: u64,
}

impl Swept {
    fn of(op: Op, parts: &[Part], predictor: &Predictor) -> Self {
        let mut swept = Self {
            within: Sector(0)..Sector(0),
            each: Nanos::ZERO,
            cylinders: 0,
        };
        let mut within = None;
        for Part { start, count, .. } in parts.iter().copied() {
            widen(&mut within, &(start..start + count));
            swept.each = swept.each.max(predictor.swept(op, start, count));
            let across = predictor.cylinders_across(start, count);
            swept.cylinders = swept.cylinders.max(across);
        }
        swept.within = within.unwrap_or(swept.within);
        swept
    }

    /// The larger need of the two.
    pub(super) fn or(self, other: &Self) -> Self {
        let within = &other.within;
        Self {
            within: self.within.start.min(within.start)..self.within.end.max(within.end),
            each: self.each.max(other.each),
            cylinders: self.cylinders.max(other.cylinders),
        }
    }
}

/// Requests of which each block has at most one: what becomes a task on a disk, or a member of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lane {
    /// The disk, and what the task needs of it.
    pub need: Need,
    /// Its needs as a member of a sweep.
    pub swept: Swept,
    /// The requests by block.
    pub parts: Vec<Part>,
}

/// A volume in blocks of one size, read or written over and over again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Track {
    /// Number of its blocks: whole ones; the rest of the volume is left out.
    pub blocks: u64,
    /// The size of a block.
    pub block: Bytes,
    /// The direction.
    pub op: Op,
    /// The lanes by disk.
    pub lanes: Vec<Lane>,
}

impl Track {
    /// The blocks of a volume on disks with physical sectors of this size that all are as `predictor` says;
    /// `None` if it has none.
    #[must_use]
    pub fn new(
        volume: &PlacedVolume,
        block: Bytes,
        op: Op,
        predictor: &Predictor,
        physical: Bytes,
    ) -> Option<Self> {
        let blocks = volume.size.get().checked_div(block.get())?;
        if blocks == 0 {
            return None;
        }
        let path = Path {
            range: 0..blocks * block.get(),
            block,
            op,
            wraps: true,
        };
        let stretch = |extent: u64| volume.extents[extent as usize].clone();
        let needs = path.needs_at(volume.geometry, stretch, physical.get(), |_| predictor);
        let mut lanes: Vec<Lane> = needs
            .into_iter()
            .map(|need| Lane {
                need,
                swept: Swept::of(op, &[], predictor),
                parts: Vec::new(),
            })
            .collect();
        for index in 0..blocks {
            let mut of_block: Vec<usize> = Vec::new();
            for (disk, start, count) in volume.parts(Bytes(index * block.get()), block) {
                let lane = of_block.iter().filter(|before| **before == disk).count();
                of_block.push(disk);
                let lane = lanes
                    .iter_mut()
                    .find(|of| (of.need.disk, of.need.lane) == (disk, lane));
                lane.expect("each part of a block is in a lane")
                    .parts
                    .push(Part {
                        block: index,
                        start,
                        count,
                    });
            }
        }
        for lane in &mut lanes {
            lane.swept = Swept::of(op, &lane.parts, predictor);
        }
        Some(Self {
            blocks,
            block,
            op,
            lanes,
        })
    }

    /// Blocks one behind the other on the first disk, which all need no more than what `service` says.
    pub(crate) fn on_one_disk(
        block: Bytes,
        op: Op,
        parts: Vec<Part>,
        service: Nanos,
        predictor: &Predictor,
    ) -> Self {
        let need = Need {
            disk: 0,
            lane: 0,
            service,
            gap: 1,
        };
        Self {
            blocks: parts.len() as u64,
            block,
            op,
            lanes: vec![Lane {
                need,
                swept: Swept::of(op, &parts, predictor),
                parts,
            }],
        }
    }

    /// Sectors of all blocks, on each of `disks` disks.
    pub fn region(&self, disks: usize) -> Vec<Option<Range<Sector>>> {
        let mut regions = vec![None; disks];
        for lane in &self.lanes {
            let of = &mut regions[lane.need.disk];
            for part in &lane.parts {
                widen(of, &(part.start..part.start + part.count));
            }
        }
        regions
    }

    /// The same blocks with the times that they need at their positions, if all streams lie within these
    /// sectors of each disk.
    #[must_use]
    pub fn within(mut self, regions: &[Option<Range<Sector>>], predictor: &Predictor) -> Self {
        for lane in &mut self.lanes {
            if let Some(within) = &regions[lane.need.disk] {
                let worst =
                    |part: &Part| predictor.worst_within(within, self.op, part.start, part.count);
                lane.need.service = lane.parts.iter().map(worst).max().unwrap_or_default();
            }
        }
        self
    }
}

/// The blocks of streams that all are here, needing no more than what they take where they lie; and what they all lie
/// within on each disk. On disks that are given several requests at a time nobody knows where the arm will be: there
/// they need what they need anywhere.
#[must_use]
pub fn where_they_lie(
    tracks: Vec<Track>,
    disks: &Disks,
) -> (Vec<Track>, Vec<Option<Range<Sector>>>) {
    let mut regions = vec![None; disks.count];
    if disks.profile.outstanding() > 1 {
        return (tracks, regions);
    }
    for of in tracks.iter().map(|track| track.region(disks.count)) {
        for (region, sectors) in regions.iter_mut().zip(of) {
            sectors.iter().for_each(|sectors| widen(region, sectors));
        }
    }
    let predictor = disks.predictor();
    let local = tracks.into_iter();
    let local = local.map(|track| track.within(&regions, &predictor));
    (local.collect(), regions)
}

/// Makes a region hold these sectors as well.
fn widen(region: &mut Option<Range<Sector>>, sectors: &Range<Sector>) {
    let so_far = region.take().unwrap_or_else(|| sectors.clone());
    *region = Some(so_far.start.min(sectors.start)..so_far.end.max(sectors.end));
}
