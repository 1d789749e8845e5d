//! The demand of a stream on each disk, computed from its range of a volume.
//!
//! # Model
//!
//! A stream moves block after block through its range. A block's requests to one disk are numbered. The
//! requests of one number, a *lane*, are one sporadic task on that disk. Most streams have one lane on each
//! disk; a block that crosses an extent boundary may have two. The task's service time is the worst of its
//! requests at their places. Its period is the stream's period (block / rate) times the *gap*: the least
//! number of blocks from one request of the lane to the next.
//!
//! With extents of one block, in turn on three disks, the gap is 3 and each disk carries a third of the
//! bandwidth. With extents of 32 blocks the gap is 1, because 32 consecutive blocks lie on the same disk. The
//! bandwidth of the worst moment counts; otherwise a deadline could be missed there.
//!
//! Deliberately absent: averaging that would let a long run on one disk borrow from the time after it. That
//! would need memory for the whole run.

use std::ops::Range;

use sched::predict::Predictor;
use sched::request::Op as Direction;
use sched::units::{Bytes, Nanos, SECTOR_BYTES, Sector, SectorCount};
use smallvec::SmallVec;
use volume::{Geometry, Place, VolumeMap};

use crate::state::disk::core::DiskCore;
pub use crate::state::pool::admission::need::Need;
use crate::volume_io::volume::Volume;

/// The range of a volume that a stream goes through, and the way it does.
#[derive(Clone, Debug)]
pub struct Path {
    /// The range, in bytes of the volume.
    pub range: Range<u64>,
    /// The size of a block.
    pub block: Bytes,
    /// The direction.
    pub op: Direction,
    /// True if it starts again after the end.
    pub wraps: bool,
}

/// The place of an extent of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stretch {
    /// The disk.
    pub disk: usize,
    /// Its sectors there.
    pub sectors: Range<Sector>,
}

impl Stretch {
    /// The extent at `place`.
    #[must_use]
    pub fn of(geometry: Geometry, place: Place) -> Self {
        let start = geometry.sector_of(place);
        Self {
            disk: usize::from(place.disk.0),
            sectors: start..start + geometry.extent_sectors(),
        }
    }
}

/// The demand of a lane, as known so far.
struct Lane {
    service: Nanos,
    /// The first and the last block with a request in this lane.
    first: u64,
    last: u64,
    gap: u64,
}

/// The lanes of each disk.
struct Lanes {
    by_disk: Vec<Vec<Lane>>,
    /// Number of blocks of the stream.
    blocks: u64,
}

impl Lanes {
    fn count(&mut self, disk: usize) -> usize {
        if self.by_disk.len() <= disk {
            self.by_disk.resize_with(disk + 1, Vec::new);
        }
        self.by_disk[disk].len()
    }

    /// Adds `blocks`, which follow all earlier ones: each has a request of this service time in the lane.
    fn note(&mut self, disk: usize, lane: usize, blocks: Range<u64>, service: Nanos) {
        let last = blocks.end - 1;
        if self.count(disk) == lane {
            self.by_disk[disk].push(Lane {
                service,
                first: blocks.start,
                last: blocks.start,
                gap: self.blocks,
            });
        }
        let of = &mut self.by_disk[disk][lane];
        of.service = of.service.max(service);
        if of.last < blocks.start {
            of.gap = of.gap.min(blocks.start - of.last);
        }
        if blocks.start < last {
            of.gap = 1;
        }
        of.last = last;
    }
}

/// A block's request to one extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Part {
    /// Its size when it is widened to whole chunks, as for the first write to them.
    longest: SectorCount,
    /// True if it begins and ends on boundaries of physical sectors. Otherwise a write takes longer; its chunks
    /// may be first written at one end and again at the other.
    is_whole: bool,
}

impl Part {
    /// The worst-case service time in an extent.
    fn worst(self, predictor: &Predictor, op: Direction, extent: Range<Sector>) -> Nanos {
        let first = if self.is_whole { 0 } else { 1 };
        let range = extent.start + SectorCount(first)..extent.end;
        predictor.worst_case(range, op, self.longest)
    }
}

/// Sizes that blocks are divided by and rounded to, in bytes; powers of two.
#[derive(Clone, Copy)]
struct Grid {
    extent: u64,
    /// Requests may be widened to multiples of this.
    grain: u64,
    /// Requests that do not begin and end at multiples of this take longer.
    unit: u64,
}

impl Grid {
    /// The number of blocks after which the pattern of requests repeats, for any start.
    fn cycle(self, block: u64) -> u64 {
        let cycle = self.grain.max(self.unit);
        cycle >> block.trailing_zeros().min(cycle.trailing_zeros())
    }

    fn part(self, from: u64, to: u64) -> Part {
        let bytes = to.next_multiple_of(self.grain) - from / self.grain * self.grain;
        Part {
            longest: SectorCount(bytes / SECTOR_BYTES),
            is_whole: (from | to).is_multiple_of(self.unit),
        }
    }
}

/// The distinct requests of consecutive blocks in an extent, cached from the last call. If blocks divide
/// extents, they are the same in all extents but the first and the last.
#[derive(Default)]
struct DistinctParts {
    /// The key: offset of the first block in the cycle, and number of blocks.
    of: (u64, u64),
    /// At most two lengths, each aligned or not.
    parts: SmallVec<[Part; 4]>,
}

impl DistinctParts {
    fn of_blocks(&mut self, grid: Grid, block: u64, from: u64, count: u64) -> &[Part] {
        let phase = from % grid.grain.max(grid.unit);
        let count = count.min(grid.cycle(block));
        if self.parts.is_empty() || self.of != (phase, count) {
            self.of = (phase, count);
            self.parts.clear();
            for index in 0..count {
                let from = phase + index * block;
                let part = grid.part(from, from + block);
                if !self.parts.contains(&part) {
                    self.parts.push(part);
                }
            }
        }
        &self.parts
    }
}

impl Volume {
    /// Shortens a range, if necessary, for a stream that wraps: to the longest range with the same start in which
    /// blocks come no closer to each other on any disk at the wrap than they do within it. Returns the whole range
    /// if that would take away as many blocks as there are disks.
    ///
    /// Example: where a ring of 85 blocks on three disks wraps, two neighbours lie on one disk. Every stream would
    /// have to reserve twice as much of that disk for one moment in a round. A ring of 84 blocks avoids that. A
    /// range that ends behind the volume's end is returned unchanged.
    #[must_use]
    pub fn ring(&self, range: Range<u64>, block: Bytes) -> Range<u64> {
        let (map, disks) = (self.core().map(), &self.io().disks);
        if block == Bytes::ZERO || range.end > map.size().0 {
            return range;
        }
        let shorter = (0..disks.len() as u64).map(|count| count.saturating_mul(block.0));
        let ends = shorter.filter_map(|less| range.end.checked_sub(less));
        let mut rings = ends.filter(|end| *end > range.start).map(|end| Path {
            range: range.start..end,
            block,
            op: Direction::Read,
            wraps: true,
        });
        let even = rings.find(|ring| {
            let once = Path {
                wraps: false,
                ..ring.clone()
            };
            let gaps = |path: &Path| path.needs(&map, disks).into_iter().map(|need| need.gap);
            gaps(ring).eq(gaps(&once))
        });
        even.map_or(range, |ring| ring.range)
    }
}

impl Path {
    /// Its demand, ordered by disk and lane.
    pub(crate) fn needs(&self, map: &VolumeMap, disks: &[DiskCore]) -> Vec<Need> {
        let geometry = map.geometry();
        let stretch = |extent: u64| Stretch::of(geometry, map.extents()[extent as usize].place());
        let sectors = disks.iter().map(|disk| disk.profile.physical_sector().0);
        let sector_bytes = sectors.max().unwrap_or(SECTOR_BYTES);
        let predictor = |disk: usize| &disks[disk].predictor;
        self.needs_at(geometry, stretch, sector_bytes, predictor)
    }

    /// Its demand, ordered by disk and lane. `sector_bytes` is the largest physical sector of the disks.
    ///
    /// The work is proportional to the number of extents, not of blocks: all blocks within one extent are counted
    /// together.
    pub fn needs_at<'a>(
        &self,
        geometry: Geometry,
        stretch: impl Fn(u64) -> Stretch,
        sector_bytes: u64,
        predictor: impl Fn(usize) -> &'a Predictor,
    ) -> Vec<Need> {
        let grid = self.grid(geometry, sector_bytes);
        let blocks = (self.range.end - self.range.start).div_ceil(self.block.0);
        let by_disk = Vec::new();
        let mut lanes = Lanes { by_disk, blocks };
        let worst =
            |at: &Stretch, part: Part| part.worst(predictor(at.disk), self.op, at.sectors.clone());
        let mut distinct = DistinctParts::default();
        let mut per_disk: Vec<(usize, usize)> = Vec::new();
        let mut block = 0;
        while block < blocks {
            let start = self.range.start + block * self.block.0;
            let within = self.count_within(grid, start);
            if within > 0 {
                let at = stretch(start / grid.extent);
                let parts = distinct.of_blocks(grid, self.block.0, start, within);
                let service = parts.iter().map(|part| worst(&at, *part)).max();
                let next = block + within;
                lanes.note(at.disk, 0, block..next, service.unwrap_or_default());
                block = next;
                continue;
            }
            per_disk.clear();
            for (extent, part) in self.parts(grid, start) {
                let at = stretch(extent);
                let lane = next_lane(&mut per_disk, at.disk);
                lanes.note(at.disk, lane, block..block + 1, worst(&at, part));
            }
            block += 1;
        }
        let by_disk = lanes.by_disk.iter().enumerate();
        by_disk
            .flat_map(|(disk, lanes)| {
                let lanes = lanes.iter().enumerate();
                lanes.map(move |(lane, of)| (disk, lane, of))
            })
            .map(|(disk, lane, of)| {
                let around = of.first + blocks - of.last;
                let gap = if self.wraps {
                    of.gap.min(around)
                } else {
                    of.gap
                };
                Need {
                    disk,
                    lane,
                    service: of.service,
                    gap: gap.max(1),
                }
            })
            .collect()
    }

    fn grid(&self, geometry: Geometry, sector_bytes: u64) -> Grid {
        let (grain, unit) = match self.op {
            Direction::Read => (SECTOR_BYTES, SECTOR_BYTES),
            Direction::Write => (geometry.chunk_bytes().0, sector_bytes),
        };
        let extent = geometry.extent_bytes().0;
        Grid {
            extent,
            grain,
            unit,
        }
    }

    /// Number of whole blocks, from the one at `start` on, that lie in the same extent.
    fn count_within(&self, grid: Grid, start: u64) -> u64 {
        let extent_end = (start / grid.extent + 1) * grid.extent;
        (extent_end.min(self.range.end) - start) / self.block.0
    }

    /// The requests of the block at `start`, each with its extent.
    fn parts(&self, grid: Grid, start: u64) -> impl Iterator<Item = (u64, Part)> + use<> {
        let end = self.range.end.min(start + self.block.0);
        let mut at = start;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let from = at;
            at = end.min((from / grid.extent + 1) * grid.extent);
            Some((from / grid.extent, grid.part(from, at)))
        })
    }
}

/// The lane of a block's next request to a disk.
fn next_lane(per_disk: &mut Vec<(usize, usize)>, disk: usize) -> usize {
    if let Some((_, count)) = per_disk.iter_mut().find(|(of, _)| *of == disk) {
        *count += 1;
        return *count - 1;
    }
    per_disk.push((disk, 1));
    0
}

#[cfg(test)]
mod tests;
