//! Streams that admission lets in on one disk.

use std::ops::Range;
use std::sync::Arc;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use sched::disk::SchedulerConfig;
use sched::predict::Predictor;
use sched::request::Op;
use sched::units::{Bytes, Nanos, SECTOR_BYTES, Sector, SectorCount, Time};
use serde::{Deserialize, Serialize};

use crate::dice::Dice;
use crate::farm::{Admitted, Arrivals, Disks, FarmRun, Load, Part, Stream, Track, where_they_lie};
use crate::video::{Server, viewers};

/// The times that admission relies on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Bounds {
    /// Every block in the slowest zone, after the longest seek.
    Bound,
    /// Each movie's blocks where they lie.
    Near,
    /// And each begins with a track.
    Tracks,
    /// And all are served in sweeps. A stream has three buffers.
    Sweeps,
    /// As `Sweeps`, for streams that ask for their blocks at the same instants. Two buffers are enough for them.
    InStep,
}

impl Bounds {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Bound,
        Self::Near,
        Self::Tracks,
        Self::Sweeps,
        Self::InStep,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bound => "bound",
            Self::Near => "near",
            Self::Tracks => "tracks",
            Self::Sweeps => "sweeps",
            Self::InStep => "sweeps-in-step",
        }
    }

    /// Buffers of a stream.
    const fn buffers(self) -> u32 {
        if matches!(self, Self::Sweeps) { 3 } else { 2 }
    }
}

/// What admission promises on one disk.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Promise {
    /// Streams of each draw of movies.
    pub streams: Vec<u32>,
    /// The size of a block.
    pub block: Bytes,
    /// In the draw with most streams, the disk time that a block reserves.
    pub block_ms: f64,
    /// The share of the disk's time that these streams reserve.
    pub share: f64,
    /// The time between two blocks of a stream.
    pub period_ms: f64,
    /// The largest number of streams ran with the server's scheduler: blocks read, late ones, and those that took longer than their
    /// bound.
    pub blocks: u64,
    /// Late ones.
    pub late: u64,
    /// Those that took longer than their bound.
    pub overruns: u64,
    /// Covers every decision.
    pub hash: u64,
}

impl Promise {
    /// The mean over the draws.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let sum: u32 = self.streams.iter().sum();
        f64::from(sum) / self.streams.len().max(1) as f64
    }
}

/// One disk of a server with its parts of the movies.
struct Site {
    disks: Disks,
    movies: Vec<Arc<Track>>,
    empty: Admitted,
    block: Bytes,
    /// The time between two blocks of a stream.
    every: Nanos,
    /// The period to admit.
    period: Nanos,
    bounds: Bounds,
}

/// Draws of movies.
const DRAWS: u64 = 20;

/// The time of a run of what was admitted.
const RUN: Nanos = Nanos::from_secs(600);

impl Server {
    /// Streams that admission lets in on one disk if each has so much buffer.
    #[must_use]
    pub fn promise(&self, bounds: Bounds, buffer: Bytes, seed: u64) -> Promise {
        let site = Site::new(self, bounds, buffer, seed);
        let draws = (0..DRAWS).map(|draw| site.fill(seed ^ draw << 32));
        let draws: Vec<Admitted> = draws.collect();
        let streams: Vec<u32> = draws
            .iter()
            .map(|draw| draw.streams().len() as u32)
            .collect();
        let fullest = draws.iter().max_by_key(|draw| draw.streams().len());
        let ran = fullest.map(|draw| site.run(draw, seed));
        let (blocks, late, overruns, hash) = ran.unwrap_or_default();
        let share = fullest.map_or(0.0, |draw| draw.utilizations()[0]);
        let most = streams.iter().copied().max().unwrap_or(0).max(1);
        Promise {
            streams,
            block: site.block,
            block_ms: share * site.period.as_millis_f64() / f64::from(most),
            share,
            period_ms: site.every.as_millis_f64(),
            blocks,
            late,
            overruns,
            hash,
        }
    }
}

impl Site {
    fn new(server: &Server, bounds: Bounds, buffer: Bytes, seed: u64) -> Self {
        let drive = server.stripe.drive();
        let disks = Disks {
            plant: drive.plant(),
            profile: Arc::new(drive.profile()),
            count: 1,
        };
        let predictor = disks.predictor();
        let sectors = buffer.get() / u64::from(bounds.buffers()) / SECTOR_BYTES;
        let block = Bytes(sectors * SECTOR_BYTES);
        let every = server.rate.period_of(block).unwrap_or(Nanos::MAX);
        let on_tracks = !matches!(bounds, Bounds::Bound | Bounds::Near);
        let anywhere = Sector(0)..Sector(predictor.capacity().get());
        let worst = predictor.worst_case(anywhere, Op::Read, SectorCount(sectors));
        let movies = movies_on_disk(server, seed);
        let tracks = movies.iter().map(|movie| {
            let parts = parts(movie, sectors, on_tracks, &predictor);
            Track::on_one_disk(block, Op::Read, parts, worst, &predictor)
        });
        let tracks: Vec<Track> = tracks.collect();
        let (tracks, empty) = match bounds {
            Bounds::Bound => (tracks, Admitted::new(&disks)),
            _ => {
                let (tracks, regions) = where_they_lie(tracks, &disks);
                let empty = match bounds {
                    Bounds::Near | Bounds::Tracks => Admitted::within(&disks, &regions),
                    _ => Admitted::in_sweeps(&disks, &regions),
                };
                (tracks, empty)
            }
        };
        // A block of a sweep may take two periods, and has the play time of two others.
        let shares = u64::from(bounds.buffers() - 1);
        let delay = Nanos(server.channel_delay().get().div_ceil(shares));
        Self {
            movies: tracks.into_iter().map(Arc::new).collect(),
            empty,
            block,
            every,
            period: every.saturating_sub(delay),
            bounds,
            disks,
        }
    }

    /// Streams with movies drawn by lot, until one is refused.
    fn fill(&self, seed: u64) -> Admitted {
        let mut dice = Dice(Xoshiro256PlusPlus::seed_from_u64(seed));
        let mut admitted = self.empty.clone();
        loop {
            let movie = &self.movies[dice.below(self.movies.len() as u64) as usize];
            let in_step = self.bounds == Bounds::InStep;
            let first = if in_step {
                0
            } else {
                dice.below(self.every.get())
            };
            let stream = Stream {
                track: Arc::clone(movie),
                period: self.period,
                first_block: dice.below(movie.blocks),
                arrivals: Arrivals::Even {
                    first: Time(first),
                    every: self.every,
                },
                depth: self.bounds.buffers(),
            };
            if admitted.add(&[stream]).is_err() {
                return admitted;
            }
        }
    }

    /// Runs the server's scheduler. Blocks, late ones, those that took longer than their bounds, and the hash.
    fn run(&self, admitted: &Admitted, seed: u64) -> (u64, u64, u64, u64) {
        let load = Load {
            disks: vec![Vec::new()],
            ..Load::default()
        };
        let run = FarmRun {
            disks: &self.disks,
            admitted,
            load: &load,
            config: &SchedulerConfig::default(),
            end: Time::ZERO + RUN,
            seed,
            slot: None,
            slack_every: None,
        };
        let outcome = run.run();
        let blocks = outcome.streams.iter().map(|stream| stream.completed).sum();
        let overruns = outcome.disks.iter().map(|disk| disk.overruns).sum();
        (blocks, outcome.missed(), overruns, outcome.hash)
    }
}

/// The sectors of a disk's part of each movie: the same on all disks, to within a unit.
fn movies_on_disk(server: &Server, seed: u64) -> Vec<Range<Sector>> {
    let disks = server.channels * server.ids.len() as u32;
    let unit = server.stripe.unit.get() / SECTOR_BYTES;
    let of = |(first, units): (u32, u32)| {
        let [first, end] = [first, first + units].map(|unit| u64::from(unit / disks));
        Sector(first * unit)..Sector(end * unit)
    };
    viewers::library(server, seed).into_iter().map(of).collect()
}

/// The blocks of a movie's part.
fn parts(movie: &Range<Sector>, sectors: u64, on_tracks: bool, predictor: &Predictor) -> Vec<Part> {
    let aligned = |at: Sector| match predictor.track(at) {
        Some(track) if on_tracks && track.start < at => track.end,
        _ => at,
    };
    let mut parts = Vec::new();
    let mut start = aligned(movie.start);
    while (start + SectorCount(sectors)) <= movie.end {
        parts.push(Part {
            block: parts.len() as u64,
            start,
            count: SectorCount(sectors),
        });
        start = aligned(start + SectorCount(sectors));
    }
    parts
}
