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

use std::collections::HashMap;
use std::ops::Range;

use sched::predict::Predictor;
use sched::request::Op as Direction;
use sched::task::{TaskError, TaskParams};
use sched::units::{Bytes, BytesPerSecond, Nanos, SECTOR_BYTES, Sector, SectorCount};
use volume::{Geometry, Place, VolumeMap};

use crate::pool::disks::DiskCore;

/// What a stream's blocks need of one disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Need {
    pub(crate) disk: usize,
    /// Which of a block's requests to the disk, from 0.
    pub(crate) lane: usize,
    /// The worst-case service time of one.
    pub(crate) service: Nanos,
    /// The least number of blocks from one to the next.
    pub(crate) gap: u64,
}

impl Need {
    /// The period at a rate.
    pub(crate) fn period(&self, block: Bytes, rate: BytesPerSecond) -> Nanos {
        let bytes = Bytes(block.0.saturating_mul(self.gap));
        rate.period_of(bytes).unwrap_or(Nanos::MAX)
    }

    /// The task at a rate.
    ///
    /// # Errors
    /// When not even alone could the disk carry it.
    pub(crate) fn task(&self, block: Bytes, rate: BytesPerSecond) -> Result<TaskParams, TaskError> {
        // Times beyond this would not add up in an admission test, and serve nobody.
        let longest = Nanos::from_secs(86_400);
        TaskParams::new(self.service, self.period(block, rate).min(longest))
    }

    /// The largest rate with a period no shorter than `period`.
    pub(crate) fn rate(&self, block: Bytes, period: Nanos) -> BytesPerSecond {
        let bytes = u128::from(block.0) * u128::from(self.gap) * 1_000_000_000;
        let rate = bytes.checked_div(u128::from(period.0)).unwrap_or(0);
        BytesPerSecond(u64::try_from(rate).unwrap_or(u64::MAX))
    }
}

/// A stream's way through a volume.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) range: Range<u64>,
    pub(crate) block: Bytes,
    pub(crate) op: Direction,
    pub(crate) wraps: bool,
}

/// What is known of a lane so far.
struct Lane {
    service: Nanos,
    first: u64,
    last: u64,
    gap: u64,
    /// The request that was last predicted.
    predicted: Option<Part>,
}

/// A block's request to one extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Part {
    extent: u64,
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

impl Path {
    /// What it needs of the disks, by disk and lane. `place` is where an extent of the map is.
    pub(crate) fn needs(&self, map: &VolumeMap, disks: &[DiskCore]) -> Vec<Need> {
        let places: Vec<Place> = map.places().collect();
        let sectors = disks.iter().map(|disk| disk.profile.physical_sector().0);
        let sector_bytes = sectors.max().unwrap_or(SECTOR_BYTES);
        let predictor = |disk: usize| &disks[disk].predictor;
        self.needs_at(map.geometry(), &places, sector_bytes, predictor)
    }

    fn needs_at<'a>(
        &self,
        geometry: Geometry,
        places: &[Place],
        sector_bytes: u64,
        predictor: impl Fn(usize) -> &'a Predictor,
    ) -> Vec<Need> {
        let blocks = (self.range.end - self.range.start).div_ceil(self.block.0);
        let mut lanes: HashMap<(usize, usize), Lane> = HashMap::new();
        let mut per_disk: Vec<(usize, usize)> = Vec::new();
        for block in 0..blocks {
            per_disk.clear();
            for part in self.parts(geometry, sector_bytes, block) {
                let place = places[part.extent as usize];
                let disk = usize::from(place.disk.0);
                let lane = next_lane(&mut per_disk, disk);
                let entry = lanes.entry((disk, lane)).or_insert(Lane {
                    service: Nanos::ZERO,
                    first: block,
                    last: block,
                    gap: blocks,
                    predicted: None,
                });
                if entry.predicted.replace(part) != Some(part) {
                    let start = geometry.sector_of(place);
                    let range = start..start + geometry.extent_sectors();
                    let worst = part.worst(predictor(disk), self.op, range);
                    entry.service = entry.service.max(worst);
                }
                if entry.last != block {
                    entry.gap = entry.gap.min(block - entry.last);
                    entry.last = block;
                }
            }
        }
        let mut needs: Vec<Need> = lanes
            .into_iter()
            .map(|((disk, lane), of)| {
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
            .collect();
        needs.sort_unstable_by_key(|need| (need.disk, need.lane));
        needs
    }

    /// A block's requests, where a physical sector has `sector_bytes`.
    fn parts(
        &self,
        geometry: Geometry,
        sector_bytes: u64,
        block: u64,
    ) -> impl Iterator<Item = Part> + use<> {
        let extent_bytes = geometry.extent_bytes().0;
        let (grain, unit) = match self.op {
            Direction::Read => (SECTOR_BYTES, SECTOR_BYTES),
            Direction::Write => (geometry.chunk_bytes().0, sector_bytes),
        };
        let start = self.range.start + block * self.block.0;
        let end = self.range.end.min(start + self.block.0);
        let mut at = start;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let from = at;
            at = end.min((from / extent_bytes + 1) * extent_bytes);
            let bytes = at.next_multiple_of(grain) - from / grain * grain;
            Some(Part {
                extent: from / extent_bytes,
                longest: SectorCount(bytes / SECTOR_BYTES),
                is_whole: (from | at).is_multiple_of(unit),
            })
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
mod tests {
    use super::*;
    use sched::profile::{DriveKind, DriveProfile};
    use volume::DiskNumber;

    const MIB: u64 = 1 << 20;

    fn places(disks: &[u16]) -> Vec<Place> {
        let place = |(index, disk): (usize, &u16)| Place {
            disk: DiskNumber(*disk),
            extent: index as u32,
        };
        disks.iter().enumerate().map(place).collect()
    }

    fn gaps(disks: &[u16], extent: u64, block: u64, wraps: bool) -> Vec<(usize, usize, u64)> {
        let profile =
            DriveProfile::conservative(DriveKind::SolidState, SectorCount(1 << 24)).unwrap();
        let predictor = Predictor::new(&profile);
        let path = Path {
            range: 0..extent * disks.len() as u64,
            block: Bytes(block),
            op: Direction::Read,
            wraps,
        };
        let geometry = Geometry::new(Bytes(extent)).unwrap();
        let needs = path.needs_at(geometry, &places(disks), 512, |_| &predictor);
        needs
            .iter()
            .map(|need| (need.disk, need.lane, need.gap))
            .collect()
    }

    #[test]
    fn blocks_in_turn_on_three_disks_put_a_third_on_each() {
        let gaps = gaps(&[0, 1, 2, 0, 1, 2], MIB, MIB, true);
        assert_eq!(gaps, [(0, 0, 3), (1, 0, 3), (2, 0, 3)]);
    }

    #[test]
    fn a_run_on_one_disk_is_what_counts() {
        assert_eq!(
            gaps(&[0, 1, 0, 1], MIB, MIB / 4, false),
            [(0, 0, 1), (1, 0, 1)]
        );
        assert_eq!(gaps(&[0, 1, 1, 0], MIB, MIB, false), [(0, 0, 3), (1, 0, 1)]);
    }

    #[test]
    fn the_way_back_to_the_beginning_counts_if_the_stream_wraps() {
        assert_eq!(gaps(&[0, 1, 1, 0], MIB, MIB, true), [(0, 0, 1), (1, 0, 1)]);
        assert_eq!(
            gaps(&[0, 1, 2, 0], MIB, MIB, false),
            [(0, 0, 3), (1, 0, 4), (2, 0, 4)]
        );
    }

    #[test]
    fn a_block_of_several_extents_has_lanes() {
        let gaps = gaps(&[0, 1, 0, 1], MIB, 4 * MIB, false);
        assert_eq!(gaps, [(0, 0, 1), (0, 1, 1), (1, 0, 1), (1, 1, 1)]);
    }

    #[test]
    fn a_rate_and_its_period_agree() {
        let need = Need {
            disk: 0,
            lane: 0,
            service: Nanos(1),
            gap: 3,
        };
        let (block, period) = (Bytes(MIB), Nanos(123_456_789));
        let rate = need.rate(block, period);
        assert!(need.period(block, rate) >= period);
        assert!(need.period(block, BytesPerSecond(rate.0 + 1)) < period);
    }
}
