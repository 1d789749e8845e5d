//! The runs that the project is judged by, as experiments: deadlines of two kinds, and disks of which much is
//! promised.

use std::ops::Range;
use std::sync::Arc;

use drives::plant::PlantSpec;
use sched::disk::SchedulerConfig;
use sched::predict::Predictor;
use sched::profile::DriveProfile;
use sched::request::{Op, Urgency};
use sched::units::{Bytes, Nanos, Sector, SectorCount, Time};

use super::workload::{Access, Arrivals, BestEffortLoad, StreamLoad};
use super::{Experiment, Floor};

/// A drive by the name under which there are a plant and a profile.
///
/// # Panics
/// When there are none.
#[must_use]
pub fn drive(name: &str) -> (PlantSpec, Arc<DriveProfile>) {
    let plant = PlantSpec::built_in(name).expect("a drive that has a plant");
    let profile = DriveProfile::shipped(name).expect("a drive that has a profile");
    (plant, Arc::new(profile))
}

/// `count` equal parts of the sectors from one percentage of the disk to another, on whole 4 KiB.
fn parts(predictor: &Predictor, percent: Range<u64>, count: usize) -> Vec<Range<Sector>> {
    let sectors = predictor.capacity().get();
    let from = sectors / 100 * percent.start;
    let part = sectors / 100 * (percent.end - percent.start) / count as u64;
    (0..count as u64)
        .map(|i| Sector((from + i * part) & !7)..Sector((from + (i + 1) * part) & !7))
        .collect()
}

/// Streams on a drive, and beside them ten small requests a second, mostly reads, over its inner half.
fn beside_small_requests(
    (plant, profile): (PlantSpec, Arc<DriveProfile>),
    config: SchedulerConfig,
    streams: Vec<StreamLoad>,
    duration: Nanos,
    seed: u64,
) -> Experiment {
    let small_requests = BestEffortLoad {
        arrivals: Arrivals::Poisson {
            mean: Nanos::from_millis(100),
        },
        sizes: vec![SectorCount(8), SectorCount(16)],
        read_percent: 60,
        write_urgency: Urgency::Sync,
        region: parts(&Predictor::new(&profile), 50..100, 1).remove(0),
    };
    Experiment {
        plant,
        profile,
        config,
        streams,
        best_effort: vec![small_requests],
        floor: None,
        duration,
        seed,
    }
}

/// Mixed deadlines on the Atlas-II: six streams of 1 MiB every 1.25 s, released together, and one of
/// 64 KiB every 250 ms, in the outer half; beside them ten small requests a second.
#[must_use]
pub fn mixed_deadlines(config: SchedulerConfig, duration: Nanos, seed: u64) -> Experiment {
    let (plant, profile) = drive("quantum-atlas-ii");
    let predictor = Predictor::new(&profile);
    let regions = parts(&predictor, 0..50, 7);
    let stream = |region: &Range<Sector>, block: Bytes, period_ms| StreamLoad {
        op: Op::Read,
        block: block.sectors().expect("whole sectors"),
        period: Nanos::from_millis(period_ms),
        region: region.clone(),
        access: Access::Sequential,
        first: Time::ZERO,
    };
    let mut streams: Vec<StreamLoad> = regions[..6]
        .iter()
        .map(|region| stream(region, Bytes::from_mib(1), 1_250))
        .collect();
    streams.push(stream(&regions[6], Bytes::from_kib(64), 250));
    beside_small_requests((plant, profile), config, streams, duration, seed)
}

/// Relation between the periods of streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Releases {
    /// Nearly the same period, all released together at first, as in the papers' experiments: blocks
    /// fall due in clumps that slowly come apart.
    Together,
    /// Periods between three quarters and five quarters of the mean.
    Spread,
}

/// Twenty-four streams that are promised `percent` of a disk's time, in the outer half, every other one
/// writing; beside them ten small requests a second. On the Atlas-II their blocks are 1 MiB and at 80 %
/// their periods about 4.5 s: the rate of the papers' smaller video, 245 KB/s.
#[must_use]
pub fn loaded(
    name: &str,
    percent: u64,
    releases: Releases,
    config: SchedulerConfig,
    duration: Nanos,
    seed: u64,
) -> Experiment {
    const STREAMS: usize = 24;
    let (plant, profile) = drive(name);
    let predictor = Predictor::new(&profile);
    let block = predictor
        .extent_bytes()
        .sectors()
        .expect("extents are whole sectors");
    // The shortest and the longest period, in thousandths of the harmonic mean.
    let (shortest, longest) = match releases {
        Releases::Together => (980, 1_020),
        Releases::Spread => (771, 1_285),
    };
    let streams = parts(&predictor, 0..50, STREAMS)
        .into_iter()
        .enumerate()
        .map(|(i, region)| {
            let op = if i % 2 == 0 { Op::Read } else { Op::Write };
            let service = predictor.worst_case(region.clone(), op, block).get();
            let even = service * STREAMS as u64 * 100 / percent;
            let scale = shortest + (longest - shortest) * i as u64 / (STREAMS as u64 - 1);
            let period = Nanos(even / 1_000 * scale);
            StreamLoad {
                op,
                block,
                period,
                region,
                access: Access::Sequential,
                first: Time::ZERO,
            }
        })
        .collect();
    beside_small_requests((plant, profile), config, streams, duration, seed)
}

/// With best effort in bursts of eight on average, one a second.
#[must_use]
pub fn in_bursts(mut experiment: Experiment) -> Experiment {
    for load in &mut experiment.best_effort {
        load.arrivals = Arrivals::Bursty {
            mean: Nanos::from_secs(1),
            length_mean: 8,
            gap: Nanos::from_millis(2),
        };
    }
    experiment
}

/// With asynchronous writes, as those of a file system: over the block export a plain write is asynchronous,
/// and only a forced write or a flush is waited for.
#[must_use]
pub fn with_write_back(mut experiment: Experiment) -> Experiment {
    for load in &mut experiment.best_effort {
        load.write_urgency = Urgency::Async;
    }
    experiment
}

/// With a floor of `percent` for best effort, its slice the longest piece.
#[must_use]
pub fn with_floor(mut experiment: Experiment, percent: u64) -> Experiment {
    let predictor = Predictor::new(&experiment.profile);
    let slice = predictor.piece_max(predictor.piece_limit());
    experiment.floor = Some(Floor {
        slice,
        period: Nanos(slice.get() * 100 / percent),
    });
    experiment
}
