//! Best effort of an experiment: of a day that is like another one, of a trace, or at random.

use std::fs::File as Input;
use std::path::{Path, PathBuf};

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use sched::request::{Op, Urgency};
use sched::units::{Bytes, Nanos, Time};

use super::ExperimentError;
use super::file::{BestEffortOf, Cello, File, RandomOf, TraceOf};
use super::site::Site;
use crate::cello::Period;
use crate::dice::Dice;
use crate::farm::Load;
use crate::run::{ArrivalProcess, Arrivals};
use crate::trace::{Format, Reader, Timing, TraceError, TraceRequest};

/// Places of requests at random are multiples of this.
const ALIGN_BYTES: u64 = 4_096;

/// A trace, and what was not taken of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceRead {
    /// Its file, as the experiment names it.
    pub file: String,
    /// Its format.
    pub format: &'static str,
    /// Requests that are taken.
    pub requests: u64,
    /// Requests of devices or times that were not asked for.
    pub left_out: u64,
    /// Records that are no transfers.
    pub other: u64,
    /// Records that are wrong, which a lenient reader leaves out.
    pub skipped: u64,
}

/// The requests of traces, by their source.
pub(super) struct Traces {
    /// By number of the source of best effort in the file.
    requests: Vec<Vec<TraceRequest>>,
    pub(super) read: Vec<TraceRead>,
}

impl Traces {
    /// Reads those that a file names.
    pub(super) fn new(file: &File, folder: &Path) -> Result<Self, ExperimentError> {
        let mut traces = Self {
            requests: Vec::new(),
            read: Vec::new(),
        };
        for of in &file.best_effort {
            let mut requests = Vec::new();
            if let Some(trace) = &of.trace {
                let (taken, read) = read(trace, of.volumes.len(), folder)?;
                traces.read.push(read);
                requests = taken;
            }
            traces.requests.push(requests);
        }
        Ok(traces)
    }
}

/// A trace as a file asks for it.
struct Source<'a> {
    of: &'a TraceOf,
    path: PathBuf,
}

impl Source<'_> {
    fn invalid(&self, problem: impl Into<String>) -> ExperimentError {
        ExperimentError::Invalid {
            at: self.path.display().to_string(),
            problem: problem.into(),
        }
    }

    fn of_trace(&self, error: TraceError) -> ExperimentError {
        ExperimentError::Trace {
            path: self.path.clone(),
            error,
        }
    }

    fn open(&self) -> Result<Reader<'static>, ExperimentError> {
        let input = Input::open(&self.path).map_err(|error| ExperimentError::Read {
            path: self.path.clone(),
            error,
        })?;
        let format = self.of.format.as_ref().map(|name| name.parse::<Format>());
        let format = format.transpose();
        let format = format.map_err(|error| self.invalid(error.to_string()))?;
        let reader = Reader::new(input, format).map_err(|error| self.of_trace(error))?;
        Ok(if self.of.lenient {
            reader.lenient()
        } else {
            reader
        })
    }

    /// Service time of each request that is not in the times of the trace.
    fn took(&self, format: Format, timing: Timing) -> Result<Nanos, ExperimentError> {
        match (timing, self.of.took_us) {
            (Timing::Open, None) => Ok(Nanos::ZERO),
            (Timing::Closed, Some(us)) => Ok(Nanos(us * 1_000)),
            (Timing::Closed, None) => Err(self.invalid(format!(
                "{format} has only the times between requests: give the duration of each request with `took_us`"
            ))),
            (Timing::Open, Some(_)) => Err(self.invalid(format!(
                "`took_us` is only for traces without durations, but {format} has all times"
            ))),
        }
    }

    /// The requests in the time that is asked for, which begins at zero; and how many others there were.
    fn in_time(
        &self,
        reader: &mut Reader<'_>,
    ) -> Result<(Vec<TraceRequest>, u64), ExperimentError> {
        let took = self.took(reader.format(), reader.timing())?;
        let from = Time::ZERO + Nanos::from_secs(self.of.from_s);
        let end = self
            .of
            .for_s
            .map(|seconds| from + Nanos::from_secs(seconds));
        let mut requests = Vec::new();
        let (mut left_out, mut shift) = (0, Nanos::ZERO);
        for request in reader {
            let mut request = request.map_err(|error| self.of_trace(error))?;
            let at = request.at.checked_add(shift);
            request.at = at.ok_or_else(|| self.invalid("it is longer than 584 years"))?;
            shift += took;
            if request.at < from || end.is_some_and(|end| request.at >= end) {
                left_out += 1;
            } else {
                request.at = Time::ZERO + (request.at - from);
                requests.push(request);
            }
        }
        Ok((requests, left_out))
    }

    /// The volume of each device of the trace; all volumes are used.
    fn places(
        &self,
        devices: &[&str],
        volumes: usize,
    ) -> Result<Vec<Option<usize>>, ExperimentError> {
        let places: Vec<Option<usize>> = match &self.of.devices {
            Some(wanted) => {
                let is_missing = |name: &&String| !devices.contains(&name.as_str());
                if let Some(name) = wanted.iter().find(is_missing) {
                    let there = devices.join(", ");
                    let problem = format!("it has no device `{name}`; there are {there}");
                    return Err(self.invalid(problem));
                }
                let place = |device: &&str| wanted.iter().position(|name| name == device);
                devices.iter().map(place).collect()
            }
            None => (0..devices.len()).map(Some).collect(),
        };
        let used = places.iter().flatten().count();
        if used != volumes {
            return Err(self.invalid(format!(
                "{used} of its devices ({}) are to be {volumes} volumes: name as many of either (`devices`, `volumes`)",
                devices.join(", ")
            )));
        }
        Ok(places)
    }
}

/// The requests of a trace to so many devices, which are numbered in their order.
fn read(
    of: &TraceOf,
    volumes: usize,
    folder: &Path,
) -> Result<(Vec<TraceRequest>, TraceRead), ExperimentError> {
    let source = Source {
        of,
        path: folder.join(&of.file),
    };
    let mut reader = source.open()?;
    let (mut requests, mut left_out) = source.in_time(&mut reader)?;
    let places = source.places(&reader.devices(), volumes)?;
    let before = requests.len();
    requests.retain_mut(|request| {
        let place = places[request.device as usize];
        request.device = place.unwrap_or_default() as u32;
        place.is_some()
    });
    left_out += (before - requests.len()) as u64;
    let read = TraceRead {
        file: of.file.display().to_string(),
        format: reader.format().name(),
        requests: requests.len() as u64,
        left_out,
        other: reader.other(),
        skipped: reader.skipped(),
    };
    Ok((requests, read))
}

/// Everything that is asked for beside streams.
pub(super) fn load(
    file: &File,
    site: &Site<'_>,
    traces: &Traces,
    seed: u64,
) -> Result<Load, ExperimentError> {
    let mut all: Vec<TraceRequest> = Vec::new();
    for (index, of) in file.best_effort.iter().enumerate() {
        let source = |name: &String| {
            let position = site.sources.iter().position(|volume| volume.name == *name);
            position.expect("names were checked")
        };
        let sources: Vec<usize> = of.volumes.iter().map(source).collect();
        let seed = seed.wrapping_add((index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut requests = match (of.cello, &of.random) {
            (Some(cello), _) => {
                let sizes = sources.iter().map(|source| site.sources[*source].size);
                let least = sizes.min().unwrap_or_default();
                period(cello).requests(least, seed)
            }
            (None, Some(random)) => at_random(random, of, file, site, &sources, seed),
            (None, None) => traces.requests[index].clone(),
        };
        for request in &mut requests {
            request.device = sources[request.device as usize] as u32;
            let at = u128::from(request.at.get()) * 100 / u128::from(of.speed_percent);
            let at = u64::try_from(at).map_err(|_| ExperimentError::Invalid {
                at: format!("best_effort {}", index + 1),
                problem: "it is so slow that it takes more than 584 years".to_owned(),
            })?;
            request.at = Time(at);
        }
        all.append(&mut requests);
    }
    // Stable: what was in order stays as it was.
    all.sort_by_key(|request| request.at);
    let load = Load::new(all, &site.sources, file.disks.count);
    Ok(match file.duration_s {
        Some(seconds) => load.until(Time::ZERO + Nanos::from_secs(seconds)),
        None => load,
    })
}

fn period(cello: Cello) -> Period {
    match cello {
        Cello::Day => Period::day(),
        Cello::Busy => Period::busy(),
    }
}

fn at_random(
    random: &RandomOf,
    of: &BestEffortOf,
    file: &File,
    site: &Site<'_>,
    sources: &[usize],
    seed: u64,
) -> Vec<TraceRequest> {
    let arrivals = if random.burst > 1 {
        Arrivals::Bursty {
            mean: Nanos((random.burst as f64 / random.per_second * 1e9) as u64),
            length_mean: random.burst,
            gap: Nanos(random.burst_gap_us * 1_000),
        }
    } else {
        Arrivals::Poisson {
            mean: Nanos((1e9 / random.per_second) as u64),
        }
    };
    // Made faster or slower afterwards.
    let seconds = file.duration_s.unwrap_or_default() * of.speed_percent / 100 + 1;
    let end = Time::ZERO + Nanos::from_secs(seconds);
    let mut requests = Vec::new();
    for (device, source) in sources.iter().enumerate() {
        let own = (device as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let dice = &mut Dice(Xoshiro256PlusPlus::seed_from_u64(seed ^ own));
        let size = site.sources[*source].size;
        let mut process = ArrivalProcess::new();
        let mut at = process.next(arrivals, Time::ZERO, dice);
        while at < end {
            let length = random.sizes_kib[dice.below(random.sizes_kib.len() as u64) as usize];
            let length = Bytes::from_kib(length).min(size);
            let places = (size.get() - length.get()) / ALIGN_BYTES + 1;
            let op = if dice.below(100) < random.read_percent {
                Op::Read
            } else {
                Op::Write
            };
            requests.push(TraceRequest {
                at,
                device: device as u32,
                op,
                start: Bytes(dice.below(places) * ALIGN_BYTES),
                length,
                urgency: if op == Op::Read || random.sync_writes {
                    Urgency::Sync
                } else {
                    Urgency::Async
                },
            });
            at = process.next(arrivals, at, dice);
        }
    }
    requests
}
