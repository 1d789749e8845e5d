//! From a range of a volume to what it needs of each disk.
//!
//! # Model
//!
//! A stream moves block after block through its range. A block's requests to one disk are numbered,
//! and the requests of one number, a *lane*, are one sporadic task there: most streams have one lane
//! on each disk, and a block that crosses an extent boundary may have two. The task's service time is
//! the worst of its requests where they lie. Its period is the stream's period (block / rate) times
//! the *gap*: the least number of blocks from one request of the lane to the next. With extents the
//! size of a block, in turn on three disks, the gap is 3 and each disk carries a third of the
//! bandwidth. With extents of 32 blocks it is 1, for 32 blocks in a row fall on the same disk: the
//! bandwidth that falls on a disk is that of the worst moment, or a deadline could not be kept there.
//!
//! Deliberately absent: the averaging that would let a long run on one disk borrow from the time
//! after it. It would need memory for the whole run.

use std::ops::Range;

use sched::predict::Predictor;
use sched::request::Op as Direction;
use sched::units::{Bytes, Nanos, SECTOR_BYTES, Sector, SectorCount};
use smallvec::SmallVec;
use volume::{Geometry, Place, VolumeMap};

use crate::state::disk::core::DiskCore;
pub use crate::state::pool::admission::need::Need;
use crate::volume_io::volume::Volume;

/// A stream's way through a volume.
#[derive(Clone, Debug)]
pub struct Path {
    /// The bytes of the volume that it goes through.
    pub range: Range<u64>,
    /// The size of a block.
    pub block: Bytes,
    /// The direction.
    pub op: Direction,
    /// Whether it begins again at the end.
    pub wraps: bool,
}

/// Where an extent of a volume lies.
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

/// What is known of a lane so far.
struct Lane {
    service: Nanos,
    /// Its first request is of this block, its last one of that.
    first: u64,
    last: u64,
    gap: u64,
}

/// The lanes of each disk.
struct Lanes {
    by_disk: Vec<Vec<Lane>>,
    /// All blocks of the stream.
    blocks: u64,
}

impl Lanes {
    fn count(&mut self, disk: usize) -> usize {
        if self.by_disk.len() <= disk {
            self.by_disk.resize_with(disk + 1, Vec::new);
        }
        self.by_disk[disk].len()
    }

    /// Each of these blocks, which come after all so far, has a request in the lane, that takes so long.
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
    /// With what fills the chunks that a write is the first to.
    longest: SectorCount,
    /// Whether it begins and ends between physical sectors. Where not, a write takes longer; its chunks
    /// may be written for the first time at one end and again at the other.
    is_whole: bool,
}

impl Part {
    /// The longest that it takes in an extent.
    fn worst(self, predictor: &Predictor, op: Direction, extent: Range<Sector>) -> Nanos {
        let first = if self.is_whole { 0 } else { 1 };
        let range = extent.start + SectorCount(first)..extent.end;
        predictor.worst_case(range, op, self.longest)
    }
}

/// What blocks are divided by and rounded to, in bytes; powers of two.
#[derive(Clone, Copy)]
struct Grid {
    extent: u64,
    /// What a request may be widened to.
    grain: u64,
    /// What it begins and ends at, or takes longer.
    unit: u64,
}

impl Grid {
    /// From how many blocks on their requests are as those before, wherever the first of them begins.
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

/// The different requests of blocks that follow each other in an extent, as last asked for: where a block
/// divides the extents, they are the same in all but the first and the last.
#[derive(Default)]
struct Alike {
    /// Where the first begins in the cycle, and how many there are of it.
    of: (u64, u64),
    /// Two lengths, each whole or not, at most.
    parts: SmallVec<[Part; 4]>,
}

impl Alike {
    fn look(&mut self, grid: Grid, block: u64, from: u64, count: u64) -> &[Part] {
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
    /// The longest range from the beginning of this one in which blocks of a stream that begins again at the end come no
    /// closer to each other on any disk there than they do within it; the whole of it if that takes as many blocks away as
    /// there are disks.
    ///
    /// Where a ring of 85 blocks on three disks begins anew two neighbours are of one disk, and every stream would have to
    /// reserve twice as much of that for one moment in a round; 84 are no such ring. A range that ends behind the volume's
    /// end is left as it is.
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
    /// What it needs of the disks, by disk and lane.
    pub(crate) fn needs(&self, map: &VolumeMap, disks: &[DiskCore]) -> Vec<Need> {
        let geometry = map.geometry();
        let stretch = |extent: u64| Stretch::of(geometry, map.extents()[extent as usize].place());
        let sectors = disks.iter().map(|disk| disk.profile.physical_sector().0);
        let sector_bytes = sectors.max().unwrap_or(SECTOR_BYTES);
        let predictor = |disk: usize| &disks[disk].predictor;
        self.needs_at(geometry, stretch, sector_bytes, predictor)
    }

    /// What it needs of disks whose largest physical sectors have so many bytes, by disk and lane.
    ///
    /// The work is in proportion to the extents of the range, however small the blocks are: those that lie
    /// in one extent follow each other, and are counted together.
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
        let mut alike = Alike::default();
        let mut per_disk: Vec<(usize, usize)> = Vec::new();
        let mut block = 0;
        while block < blocks {
            let start = self.range.start + block * self.block.0;
            let within = self.count_within(grid, start);
            if within > 0 {
                let at = stretch(start / grid.extent);
                let parts = alike.look(grid, self.block.0, start, within);
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

    /// How many whole blocks lie one after another, from the one on that begins at `start`, in the extent
    /// in which that lies.
    fn count_within(&self, grid: Grid, start: u64) -> u64 {
        let extent_end = (start / grid.extent + 1) * grid.extent;
        (extent_end.min(self.range.end) - start) / self.block.0
    }

    /// The requests of the block that begins at `start`, each with its extent.
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

/// The number of a block's next request to a disk.
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
