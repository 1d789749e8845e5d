//! Sequential reads of a volume whose blocks are not aligned with tracks (thesis 7.2.2, figures 7.5 and 7.6).
//!
//! One reader on an otherwise idle drive, in virtual time. It reads blocks one after another, each when the previous
//! one is complete.

use drives::plant::{Plant, PlantSpec};
use sched::predict::Predictor;
use sched::request::Op;
use sched::units::{Nanos, Sector, SectorCount, Time};

/// The way in which blocks are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reading {
    /// Each block begins at the next track.
    Aligned,
    /// Each block begins where the previous one ends.
    Uncached,
    /// The same, and the rest of the last track is read as well and kept for the next block.
    Cached,
}

/// Blocks of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocks {
    /// The first sector of the volume.
    pub from: Sector,
    /// The size of a block.
    pub size: SectorCount,
    /// Number of blocks.
    pub number: u64,
    /// The longest that a request may take: the service time that admission has promised.
    pub service: Nanos,
}

/// Times of a sequence of blocks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BlockTimes {
    /// The service time of each block; zero for one that was kept completely.
    pub times: Vec<Nanos>,
    /// Number of blocks that began in kept sectors.
    pub hits: u64,
}

impl BlockTimes {
    /// The mean service time.
    #[must_use]
    pub fn mean(&self) -> Nanos {
        let sum: u64 = self.times.iter().map(|time| time.get()).sum();
        Nanos(sum / (self.times.len() as u64).max(1))
    }

    /// The time that this share of the blocks, in percent, kept within.
    #[must_use]
    pub fn percentile(&self, percent: usize) -> Nanos {
        let mut times = self.times.clone();
        times.sort_unstable();
        let last = times.len().saturating_sub(1);
        let rank = (times.len() * percent).div_ceil(100).saturating_sub(1);
        times.get(rank.min(last)).copied().unwrap_or_default()
    }
}

/// Reads blocks from a drive.
#[must_use]
pub fn read(
    spec: &PlantSpec,
    seed: u64,
    predictor: &Predictor,
    blocks: Blocks,
    reading: Reading,
) -> BlockTimes {
    let mut plant = Plant::new(spec.clone(), seed);
    let end = Sector(predictor.capacity().get());
    let mut result = BlockTimes::default();
    let (mut now, mut start) = (Time::ZERO, blocks.from);
    // The end of the kept sectors.
    let mut kept_to = start;
    for _ in 0..blocks.number {
        let wanted_to = start + blocks.size;
        let read_from = start.max(kept_to.min(wanted_to));
        result.hits += u64::from(read_from > start);
        let wanted = wanted_to - read_from;
        let mut time = Nanos::ZERO;
        if !wanted.is_zero() {
            let ahead = match reading {
                Reading::Cached => predictor.rest_of_track(read_from, wanted, end, blocks.service),
                Reading::Aligned | Reading::Uncached => SectorCount::ZERO,
            };
            let served = plant.service(now, Op::Read, read_from, wanted + ahead);
            time = served.completed.saturating_since(now);
            now = served.completed;
            kept_to = wanted_to + ahead;
        }
        result.times.push(time);
        start = match reading {
            Reading::Aligned => next_track(predictor, wanted_to),
            Reading::Uncached | Reading::Cached => wanted_to,
        };
    }
    result
}

/// The beginning of the first track at or after a sector.
fn next_track(predictor: &Predictor, sector: Sector) -> Sector {
    match predictor.track(sector) {
        Some(track) if track.start < sector => track.end,
        _ => sector,
    }
}
