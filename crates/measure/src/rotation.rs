//! The period of rotation.
//!
//! A sector passes the head once in a rotation, so the completions of reads of one sector are whole rotations
//! apart. Random waits between the reads make the numbers of rotations differ, and the longest period that all
//! differences are multiples of is the rotation. Reads farther and farther apart then make it exact.
//!
//! A drive with a cache answers the second read of a sector from it. Then many sectors are read in turn, more than
//! a cache of a few segments keeps.

use sched::request::Op;
use sched::units::{Nanos, Sector};

use crate::exchange::MeasureError;
use crate::findings::RotationFound;
use crate::probe::Probe;
use crate::stats::{median, wrapped};

/// No drive turns faster: 20,000 RPM.
const PERIOD_MIN_NS: f64 = 3.0e6;
/// No drive turns slower: 3,600 RPM.
const PERIOD_MAX_NS: f64 = 17.0e6;
/// The longest random wait before a pass.
const WAIT_MAX_NS: u64 = 20_000_000;
/// A period is believed if the differences are multiples of it so well; 1 is perfect, and 0 is chance.
const COHERENCE_MIN: f64 = 0.7;
/// Sectors read in turn: at first, and for drives with a cache.
const PLACES: [(u64, u64); 2] = [(1, 48), (64, 8)];
/// Requests that finding the rotation takes.
pub(crate) const REQUESTS: u64 = 120;

/// Completions of reads of one sector, in nanoseconds, ascending.
type Series = Vec<f64>;

/// Finds the rotation; `None` if the times have no period.
pub(crate) async fn find(probe: &mut Probe) -> Result<Option<RotationFound>, MeasureError> {
    for (places, passes) in PLACES {
        let mut sectors = Vec::new();
        for _ in 0..places {
            let place = probe.below(probe.facts.capacity.get());
            sectors.push(probe.aligned(place));
        }
        let mut series = vec![Series::new(); sectors.len()];
        for _ in 0..passes {
            let wait = Nanos(probe.below(WAIT_MAX_NS));
            pass(probe, &sectors, wait, &mut series).await?;
        }
        if let Some(period) = period(&differences(&series)) {
            return Ok(Some(refine(probe, &sectors, series, period).await?));
        }
    }
    Ok(None)
}

/// Reads each sector once, the first one after a wait.
async fn pass(
    probe: &mut Probe,
    sectors: &[Sector],
    wait: Nanos,
    series: &mut [Series],
) -> Result<(), MeasureError> {
    let mut begin = probe.now() + wait;
    for (sector, series) in sectors.iter().zip(series) {
        let unit = probe.facts.unit;
        if sectors.len() > 1 {
            // The same pass would take the same time, and a multiple of any period that divides it.
            begin = probe.now() + Nanos(probe.below(WAIT_MAX_NS));
        }
        let sample = probe.one(Op::Read, *sector, unit, begin).await?;
        if sample.error.is_none() {
            series.push(sample.completed.get() as f64);
        }
    }
    Ok(())
}

fn differences(series: &[Series]) -> Vec<f64> {
    let pairs = series.iter().flat_map(|times| times.windows(2));
    pairs.map(|pair| pair[1] - pair[0]).collect()
}

/// How well all differences are multiples of the period of this frequency.
fn coherence(differences: &[f64], per_nano: f64) -> f64 {
    let turns = differences.iter().map(|difference| difference * per_nano);
    let sum: f64 = turns.map(|turn| (turn * std::f64::consts::TAU).cos()).sum();
    sum / differences.len() as f64
}

/// The longest period that the differences are multiples of.
fn period(differences: &[f64]) -> Option<f64> {
    let longest = differences.iter().copied().fold(0.0, f64::max);
    if differences.len() < 20 || longest <= 0.0 {
        return None;
    }
    let step = 0.05 / longest;
    let steps = ((1.0 / PERIOD_MIN_NS - 1.0 / PERIOD_MAX_NS) / step).ceil();
    let frequency = |index: u32| 1.0 / PERIOD_MAX_NS + step * f64::from(index);
    let scanned: Vec<f64> = (0..steps.min(1e6) as u32)
        .map(|index| coherence(differences, frequency(index)))
        .collect();
    let best = scanned.iter().copied().fold(0.0, f64::max);
    if best < COHERENCE_MIN {
        return None;
    }
    let peak = scanned.iter().position(|value| *value >= best)?;
    let near = |center: f64| {
        // Between the frequencies that were tried, so that no rotation is lost over the time of a pass.
        let near = (-50..=50).map(|part| center + step * f64::from(part) / 50.0);
        near.max_by(|a, b| coherence(differences, *a).total_cmp(&coherence(differences, *b)))
            .unwrap_or(center)
    };
    let peak = near(frequency(u32::try_from(peak).ok()?));
    // A fraction of the rotation fits as well, and with late reads sometimes better.
    let slowest = (2..=5)
        .map(|times| near(peak / f64::from(times)))
        .filter(|slower| 1.0 / slower <= PERIOD_MAX_NS)
        .filter(|slower| coherence(differences, *slower) > best * 0.9)
        .fold(peak, f64::min);
    Some(1.0 / slowest)
}

/// Reads on until the observation is long enough for an exact period.
async fn refine(
    probe: &mut Probe,
    sectors: &[Sector],
    mut series: Vec<Series>,
    period: f64,
) -> Result<RotationFound, MeasureError> {
    let begin = series.iter().flatten().copied().fold(f64::MAX, f64::min);
    let until = begin + probe.effort.rotation_seconds() as f64 * 1e9;
    let mut fit = fitted(&series, period);
    while (probe.now().get() as f64) < until {
        let elapsed = probe.now().get() as f64 - begin;
        // Not so long that a rotation more or less would be doubtful.
        let wait = if sectors.len() == 1 {
            elapsed / 4.0
        } else {
            0.0
        };
        for again in 0..3 {
            let wait = if again == 0 { wait as u64 } else { 0 };
            pass(probe, sectors, Nanos(wait), &mut series).await?;
        }
        fit = fitted(&series, fit.0);
    }
    Ok(RotationFound {
        nanos: fit.0,
        error_ppm: fit.1,
        has_cache: sectors.len() > 1,
    })
}

/// The least-squares period of all series, and its standard error in parts per million.
fn fitted(series: &[Series], period: f64) -> (f64, f64) {
    let mut best = (period, f64::MAX);
    // The second time without the reads that were late.
    let mut late = f64::MAX;
    for _ in 0..2 {
        let (mut up, mut down, mut count) = (0.0, 0.0, 0_u32);
        let mut residuals = Vec::new();
        for times in series {
            let points: Vec<(f64, f64)> = turns(times, best.0)
                .into_iter()
                .filter(|(turn, time)| {
                    wrapped(time - times[0] - turn * best.0, best.0).abs() < late
                })
                .collect();
            let mean = |of: fn(&(f64, f64)) -> f64| {
                points.iter().map(of).sum::<f64>() / points.len().max(1) as f64
            };
            let (turn_mean, time_mean) = (mean(|point| point.0), mean(|point| point.1));
            for (turn, time) in &points {
                up += (turn - turn_mean) * (time - time_mean);
                down += (turn - turn_mean).powi(2);
                count += 1;
            }
            residuals.extend(
                points
                    .iter()
                    .map(|(turn, time)| (time - time_mean - (turn - turn_mean) * best.0).abs()),
            );
        }
        if down <= 0.0 {
            return best;
        }
        let fit = up / down;
        let spread = median(&mut residuals);
        late = (8.0 * spread).max(20_000.0);
        let error = 1.5 * spread / down.sqrt() / fit * 1e6;
        best = (fit, if count > 2 { error } else { f64::MAX });
    }
    best
}

/// Each time with its number of rotations since the first.
fn turns(times: &[f64], period: f64) -> Vec<(f64, f64)> {
    let mut turn = 0.0;
    let mut before = None;
    let each = times.iter().map(|time| {
        if let Some(before) = before {
            let passed: f64 = time - before;
            turn += (passed / period).round();
        }
        before = Some(*time);
        (turn, *time)
    });
    each.collect()
}
