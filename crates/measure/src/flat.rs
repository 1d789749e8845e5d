//! Drives without rotation: solid state, and files.
//!
//! The time of a request is an overhead and its length at a rate, at the depth of the queue that the profile names.
//! The rate is the one with the shortest predictions among those that cover all samples; the overhead is what they
//! need then. Admission goes by the longest time of a request, so a deep queue is not taken if it makes that much longer.
//! Writes in sequence go on until a cache of the drive is full, if it has one.

use sched::profile::FlatSpec;
use sched::request::Op;
use sched::units::{Nanos, SECTOR_BYTES, Sector, SectorCount};

use crate::exchange::{MeasureError, Measured, Request};
use crate::findings::{DepthFound, Findings, Method, ZoneFound};
use crate::fit;
use crate::notes;
use crate::probe::Probe;
use crate::validate::Checked;

/// Depths that are tried.
const DEPTHS: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// A deeper queue is worth it if it serves so many times as many requests.
const DEPTH_GAIN: f64 = 1.2;
/// The block of a stream by which depths are compared.
const BLOCK_BYTES: u64 = 256 << 10;
/// Sizes of requests: from one to 2^11 of 4 KiB.
const SIZE_POWERS: u64 = 12;
/// Sectors of the largest request of a sweep of writes.
const SWEEP_SECTORS: u64 = 2_048;
/// Bytes of a window of a sweep, over which a rate is taken.
const WINDOW_REQUESTS: u64 = 64;
/// A sweep takes so long at most.
const SWEEP_NS: u64 = 60_000_000_000;
/// An excess widens the profile by so much more than itself.
const WIDEN_PERCENT: u64 = 125;

/// A request and its time.
#[derive(Clone, Copy)]
struct Timed {
    op: Op,
    bytes: u64,
    took: Nanos,
}

pub(crate) async fn measure(probe: &mut Probe) -> Result<Measured, MeasureError> {
    let effort = probe.effort;
    let calibrated = u64::from(effort.calibrated());
    probe.begin("queue depths", 6 * 256, calibrated + effort.validated());
    let depths = depths(probe).await?;
    probe.begin("fitting", 2 * calibrated, effort.validated());
    let (depth, mut samples) = chosen_depth(probe, &depths).await?;
    let sustained = if probe.facts.has_writes() {
        sweep(probe, depth, &mut samples).await?
    } else {
        None
    };
    let mut flat = fitted(&samples);
    let mut checked = Checked::of(fit::flat_profile(&probe.facts, flat, depth)?, probe);
    probe.begin("validation", effort.validated(), 0);
    while let Some(excess) = checked.run(probe, depth).await? {
        let longer = Nanos(excess.over.get() * WIDEN_PERCENT / 100);
        let longer_us = longer.get().div_ceil(1_000);
        match excess.op {
            Op::Read => flat.read_overhead_us += longer_us,
            Op::Write => flat.write_overhead_us += longer_us,
        }
        if !probe.facts.has_writes() {
            flat.write_overhead_us = 2 * flat.read_overhead_us;
        }
        checked.widened(fit::flat_profile(&probe.facts, flat, depth)?, longer);
        probe.begin("validation", effort.validated(), 0);
    }
    let mut findings = Findings {
        method: Method::Flat,
        rotation: None,
        zones: vec![ZoneFound {
            first_sector: 0,
            sectors_per_track: 0,
            bytes_per_second: flat.read_bytes_per_second as f64,
        }],
        tracks: None,
        seeks: Vec::new(),
        depths,
        overhead: Nanos::from_micros(flat.read_overhead_us),
        write_settle: probe.facts.has_writes().then(|| {
            Nanos::from_micros(flat.write_overhead_us.saturating_sub(flat.read_overhead_us))
        }),
        reads_whole_tracks: false,
        writes_whole_last_track: false,
        late: 0,
        served: probe.served(),
        after_others: probe.after_others(),
        failed: probe.failed(),
        failures: std::mem::take(&mut probe.failures),
        validation: checked.validation,
        notes: Vec::new(),
    };
    findings.notes = notes::notes(&findings, probe.facts.is_device);
    findings.notes.extend(sustained.map(note_of_sweep));
    Ok(Measured {
        profile: checked.profile,
        findings,
    })
}

/// Random reads of 4 KiB at each depth.
async fn depths(probe: &mut Probe) -> Result<Vec<DepthFound>, MeasureError> {
    let mut found = Vec::new();
    for depth in DEPTHS {
        let requests: Vec<Request> = (0..256).map(|_| request(probe, Op::Read, 8)).collect();
        let samples = probe.serve(&requests, depth).await?;
        let first = samples.iter().map(|sample| sample.issued).min();
        let last = samples.iter().map(|sample| sample.completed).max();
        let (Some(first), Some(last)) = (first, last) else {
            continue;
        };
        let seconds = last.saturating_since(first).get().max(1) as f64 / 1e9;
        let slowest = samples.iter().map(|sample| sample.took()).max();
        found.push(DepthFound {
            depth,
            reads_per_second: samples.len() as f64 / seconds,
            slowest: slowest.unwrap_or_default(),
        });
    }
    Ok(found)
}

/// The smallest depth from which a deeper queue does not gain enough.
fn best_depth(depths: &[DepthFound]) -> u32 {
    let mut best = 1;
    for pair in depths.windows(2) {
        if pair[1].reads_per_second < pair[0].reads_per_second * DEPTH_GAIN {
            break;
        }
        best = pair[1].depth;
    }
    best
}

/// The depth for the profile, and samples at that depth. Admission goes by the longest time of a request, and in a deep
/// queue a request waits for others. So a deeper queue than 1 is taken only if a block takes at most twice as long.
/// Without writes it is not taken: how long a read waits for writes in the queue is not known.
async fn chosen_depth(
    probe: &mut Probe,
    depths: &[DepthFound],
) -> Result<(u32, Vec<Timed>), MeasureError> {
    let alone = sizes(probe, 1).await?;
    let depth = best_depth(depths);
    if depth == 1 || !probe.facts.has_writes() {
        return Ok((1, alone));
    }
    let together = sizes(probe, depth).await?;
    let block = |samples: &[Timed]| {
        let flat = fitted(samples);
        let of = |overhead_us: u64, rate: u64| {
            overhead_us as f64 * 1e3 + BLOCK_BYTES as f64 / rate as f64 * 1e9
        };
        let read = of(flat.read_overhead_us, flat.read_bytes_per_second);
        read.max(of(flat.write_overhead_us, flat.write_bytes_per_second))
    };
    if block(&together) <= 2.0 * block(&alone) {
        Ok((depth, together))
    } else {
        Ok((1, alone))
    }
}

/// A request of so many sectors at a random place where it may be.
fn request(probe: &mut Probe, op: Op, count: u64) -> Request {
    let align = probe.facts.physical.get().max(probe.facts.unit.get());
    let most = (probe.facts.request_max.get()).min(probe.facts.capacity.get() / 4);
    let most = (most / align * align).max(align);
    let count = count.min(most).next_multiple_of(align);
    let end = probe.facts.capacity.get();
    let place = match op {
        Op::Write => probe.writable_place(count, align),
        Op::Read => None,
    };
    let (op, start) = match place {
        Some(place) => (op, place),
        None => (
            Op::Read,
            probe.place(&(Sector(0)..Sector(end)), count, align),
        ),
    };
    Request {
        op,
        start,
        count: SectorCount(count),
        not_before: probe.now(),
    }
}

/// Requests of all sizes, at the depth of the profile.
async fn sizes(probe: &mut Probe, depth: u32) -> Result<Vec<Timed>, MeasureError> {
    let mut timed = Vec::new();
    let batch = 16 * depth;
    for _ in 0..probe.effort.calibrated().div_ceil(batch) {
        let requests: Vec<Request> = (0..batch)
            .map(|_| {
                let op = if probe.below(2) == 0 {
                    Op::Write
                } else {
                    Op::Read
                };
                let power = probe.below(SIZE_POWERS);
                request(probe, op, 8 << power)
            })
            .collect();
        serve(probe, &requests, depth, &mut timed).await?;
    }
    Ok(timed)
}

async fn serve(
    probe: &mut Probe,
    requests: &[Request],
    depth: u32,
    timed: &mut Vec<Timed>,
) -> Result<(), MeasureError> {
    let samples = probe.serve(requests, depth).await?;
    let whole = requests.iter().zip(samples);
    timed.extend(
        whole
            .filter(|(_, sample)| sample.error.is_none())
            .map(|(request, sample)| Timed {
                op: request.op,
                bytes: request.count.get() * SECTOR_BYTES,
                took: sample.took(),
            }),
    );
    Ok(())
}

/// Rates of writes in sequence: the first window, and the slowest.
#[derive(Clone, Copy)]
struct Sustained {
    first: f64,
    slowest: f64,
    bytes: u64,
}

/// Writes in sequence over the writable sectors.
async fn sweep(
    probe: &mut Probe,
    depth: u32,
    timed: &mut Vec<Timed>,
) -> Result<Option<Sustained>, MeasureError> {
    let begin = probe.now();
    let mut rates: Vec<f64> = Vec::new();
    let mut bytes = 0;
    let most = probe.facts.request_max.get().min(SWEEP_SECTORS);
    for range in probe.facts.writable.clone() {
        let align = probe.facts.physical.get().max(probe.facts.unit.get());
        let mut at = range.start.get().next_multiple_of(align);
        let count = most / align * align;
        while count > 0 && at + count * WINDOW_REQUESTS <= range.end.get() {
            if probe.now().saturating_since(begin).get() > SWEEP_NS {
                break;
            }
            let window = probe.now();
            let requests: Vec<Request> = (0..WINDOW_REQUESTS)
                .map(|index| Request {
                    op: Op::Write,
                    start: Sector(at + index * count),
                    count: SectorCount(count),
                    not_before: window,
                })
                .collect();
            serve(probe, &requests, depth, timed).await?;
            let moved = count * WINDOW_REQUESTS * SECTOR_BYTES;
            let took = probe.now().saturating_since(window).get().max(1);
            rates.push(moved as f64 * 1e9 / took as f64);
            bytes += moved;
            at += count * WINDOW_REQUESTS;
        }
    }
    let slowest = rates.iter().copied().fold(f64::MAX, f64::min);
    Ok(rates.first().map(|first| Sustained {
        first: *first,
        slowest,
        bytes,
    }))
}

fn note_of_sweep(sustained: Sustained) -> String {
    let Sustained {
        first,
        slowest,
        bytes,
    } = sustained;
    let drop = if slowest < first * 0.6 {
        "The rate falls when a cache of the drive is full; the profile has the lower rate."
    } else {
        "The rate does not fall."
    };
    format!(
        "Writes in sequence of {} MB began at {:.0} MB/s and were never slower than {:.0} MB/s over 64 requests. {drop}",
        bytes / 1_000_000,
        first / 1e6,
        slowest / 1e6
    )
}

/// Overhead and rate of each direction that cover all samples with the shortest predictions.
fn fitted(samples: &[Timed]) -> FlatSpec {
    let of = |op: Op| {
        let samples: Vec<Timed> = samples
            .iter()
            .filter(|timed| timed.op == op)
            .copied()
            .collect();
        covered(&samples)
    };
    let (read_overhead_us, read_rate) = of(Op::Read).unwrap_or((1, SECTOR_BYTES));
    // Nothing was written: twice the time is an assumption.
    let (write_overhead_us, write_rate) =
        of(Op::Write).unwrap_or((2 * read_overhead_us, (read_rate / 2).max(SECTOR_BYTES)));
    FlatSpec {
        read_overhead_us,
        write_overhead_us,
        read_bytes_per_second: read_rate,
        write_bytes_per_second: write_rate,
    }
}

/// Microseconds and bytes per second.
fn covered(samples: &[Timed]) -> Option<(u64, u64)> {
    let fastest = samples
        .iter()
        .map(|timed| timed.bytes as f64 * 1e9 / timed.took.get().max(1) as f64)
        .fold(0.0, f64::max);
    let mut best: Option<(f64, u64, f64)> = None;
    let mut rate = fastest.max(SECTOR_BYTES as f64);
    for _ in 0..60 {
        let transfer = |timed: &Timed| timed.bytes as f64 / rate * 1e9;
        let overhead = samples
            .iter()
            .map(|timed| timed.took.get() as f64 - transfer(timed))
            .fold(0.0, f64::max);
        let predicted: f64 = samples.iter().map(|timed| overhead + transfer(timed)).sum();
        if best.is_none_or(|(known, ..)| predicted < known) {
            best = Some((predicted, (overhead / 1e3).ceil() as u64, rate));
        }
        rate /= 1.1;
    }
    let (_, overhead_us, rate) = best.filter(|_| !samples.is_empty())?;
    Some((overhead_us.max(1), (rate as u64).max(SECTOR_BYTES)))
}

/// Predictions of a flat profile, for tests.
#[cfg(test)]
fn predicted(flat: FlatSpec, timed: &Timed) -> Nanos {
    let facts = crate::facts::Facts {
        name: "flat".to_owned(),
        capacity: SectorCount(1 << 20),
        unit: SectorCount(1),
        physical: SectorCount(1),
        request_max: SectorCount(1 << 14),
        writable: Vec::new(),
        is_file: true,
        is_device: false,
        turnaround: crate::facts::TURNAROUND,
    };
    let profile = fit::flat_profile(&facts, flat, 1).expect("the figures are a profile");
    let count = SectorCount(timed.bytes / SECTOR_BYTES);
    sched::predict::Predictor::new(&profile).predict(None, timed.op, Sector(0), count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fit_covers_all_samples_and_is_close_to_a_straight_line() {
        let samples: Vec<Timed> = (1..200)
            .map(|size| Timed {
                op: Op::Read,
                bytes: size * 4096,
                took: Nanos(100_000 + size * 4096 * 10),
            })
            .collect();
        let flat = fitted(&samples);
        let (mut sum, mut actual) = (0, 0);
        for timed in &samples {
            let predicted = predicted(flat, timed);
            assert!(predicted >= timed.took, "{predicted:?} {:?}", timed.took);
            sum += predicted.get();
            actual += timed.took.get();
        }
        assert!(sum * 100 < actual * 112, "{sum} {actual} {flat:?}");
    }

    #[test]
    fn no_request_is_longer_than_the_drive_takes() {
        let longest = |physical, most, seed| {
            let capacity = SectorCount(1 << 20);
            let facts = crate::Facts {
                name: "small pieces".to_owned(),
                capacity,
                unit: SectorCount(1),
                physical: SectorCount(physical),
                request_max: SectorCount(most),
                writable: std::iter::once(Sector(0)..Sector(capacity.get())).collect(),
                is_file: false,
                is_device: true,
                turnaround: crate::facts::TURNAROUND,
            };
            let mut measurement = crate::Measurement::new(facts, crate::Effort::Quick, seed);
            let (mut now, mut longest) = (0, 0);
            let mut samples = Vec::new();
            while let crate::Step::Serve { requests, .. } = measurement.step(&samples) {
                let serve = |request: &Request| {
                    let count = request.count.get();
                    longest = longest.max(count);
                    let issued = request.not_before.get().max(now);
                    now = issued + 100_000 + count * 1_000;
                    crate::Sample {
                        issued: sched::units::Time(issued),
                        completed: sched::units::Time(now),
                        alone: true,
                        error: None,
                    }
                };
                samples = requests.iter().map(serve).collect();
            }
            let result = measurement.result().expect("it is finished");
            assert_eq!(result.expect("a profile").findings.method, Method::Flat);
            longest
        };
        assert_eq!(longest(1, 103, 1), 103);
        assert_eq!(longest(8, 96, 2), 96);
        assert_eq!(longest(8, 103, 3), 96);
    }

    #[test]
    fn depth_grows_while_it_serves_more() {
        let at = |depth, reads_per_second| DepthFound {
            depth,
            reads_per_second,
            slowest: Nanos::ZERO,
        };
        assert_eq!(best_depth(&[at(1, 100.0), at(2, 190.0), at(4, 200.0)]), 2);
        assert_eq!(best_depth(&[at(1, 100.0), at(2, 101.0)]), 1);
    }
}
