//! Experiments of one's own: a file says which drives, what lies on them, which streams, what is done beside
//! them, and under which schedulers; each is run under all of these with more and more streams.
//!
//! The keys are described in `docs/reference/experiment.md`. Everything is run by [`crate::farm`], as the figures of
//! [`crate::thesis`] are.

mod arrivals;
mod check;
mod file;
#[doc(hidden)]
pub mod fuzzing;
mod load;
mod results;
mod site;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use file::{File, Loads, NamedLoads};
use load::Traces;
use sched::disk::SchedulerConfig;
use sched::policy::Policy;
use sched::units::{Nanos, Time};
use site::Site;

use crate::farm::{Disks, FarmRun, Load, NotAdmitted};
use crate::sweep::{KeepError, Sweep, steps};
use crate::trace::TraceError;

pub use load::TraceRead;
pub use results::{DiskResult, Results, RunResult, SlotResult, StreamResult};

/// Why an experiment cannot be, or has no results.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// Not TOML, or an unknown, missing or mistyped key, with its place.
    #[error("{0}")]
    Parse(#[from] toml::de::Error),
    /// Well formed, but without sense.
    #[error("{at}: {problem}")]
    Invalid {
        /// Place: `stream ‘ro’`, `best_effort 2`, counted from 1.
        at: String,
        /// The fault.
        problem: String,
    },
    /// A file that it names cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// A file that it names is no trace.
    #[error("{}: {error}", path.display())]
    Trace {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: TraceError,
    },
    /// The experiment asks for more streams than fit.
    #[error("there is no room for {load} groups of streams: {error}")]
    Refused {
        /// The first number of groups that is too large.
        load: usize,
        /// Why.
        error: NotAdmitted,
    },
    /// A result could not be kept.
    #[error(transparent)]
    Keep(#[from] KeepError),
}

/// An experiment, read and checked.
pub struct Experiment {
    file: File,
    disks: Disks,
    traces: Traces,
    /// Covers everything that was read.
    fingerprint: String,
}

/// One run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    scheduler: Policy,
    load: usize,
    seed: u64,
}

/// State shared by the runs of one seed.
struct Shared<'a> {
    seed: u64,
    site: Site<'a>,
    load: Load,
    end: Time,
}

/// State of a seed: its remaining runs and their shared state, kept from the first to the last.
struct OfSeed<'a> {
    left: AtomicUsize,
    shared: Mutex<Option<Arc<Shared<'a>>>>,
}

impl Experiment {
    /// Reads an experiment. Paths in it are relative to `folder`.
    ///
    /// # Errors
    /// A fault of the file or of one that it names, with its place.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, ExperimentError> {
        let file: File = toml::from_str(text)?;
        file.check()?;
        let disks = site::disks(&file.disks, folder)?;
        let traces = Traces::new(&file, folder)?;
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let plants = file.disks.plant.iter().chain(&file.disks.profile);
        let others = file.best_effort.iter().filter_map(|of| of.trace.as_ref());
        for path in plants.chain(others.map(|trace| &trace.file)) {
            let path = folder.join(path);
            let bytes = std::fs::read(&path);
            bytes
                .map_err(|error| ExperimentError::Read { path, error })?
                .hash(&mut hasher);
        }
        Ok(Self {
            file,
            disks,
            traces,
            fingerprint: format!("{:016x}", hasher.finish()),
        })
    }

    /// Its stated purpose.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.file.description
    }

    /// The traces that were read for it.
    #[must_use]
    pub fn traces(&self) -> &[TraceRead] {
        &self.traces.read
    }

    /// Runs it.
    ///
    /// # Errors
    /// When volumes or streams have no room, or a result cannot be kept.
    pub fn run(&self, sweep: &Sweep<'_>) -> Result<Results, ExperimentError> {
        let first = self.file.seeds[0];
        let most = Site::new(&self.file, &self.disks, first)?.most(&self.config(Policy::Exact))?;
        let loads = self.loads(most);
        let mut runs = Vec::new();
        for seed in &self.file.seeds {
            for load in &loads {
                runs.extend(self.file.schedulers.iter().map(|scheduler| Run {
                    scheduler: *scheduler,
                    load: *load,
                    seed: *seed,
                }));
            }
        }
        let in_a_seed = loads.len() * self.file.schedulers.len();
        let of_seed: Vec<OfSeed<'_>> = (0..self.file.seeds.len())
            .map(|_| OfSeed {
                left: AtomicUsize::new(in_a_seed),
                shared: Mutex::default(),
            })
            .collect();
        let mut results = sweep.try_each(runs.len(), |index| {
            let (run, of_seed) = (&runs[index], &of_seed[index / in_a_seed]);
            let result = sweep.kept(&run.file_name(), &self.fingerprint, || {
                let shared = self.shared(&of_seed.shared, run.seed)?;
                self.measure(run, &shared)
            });
            if of_seed.left.fetch_sub(1, Ordering::Relaxed) == 1 {
                *of_seed
                    .shared
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner) = None;
            }
            result
        })?;
        // Order of tables: by scheduler, load and seed.
        let place = |policy: Policy| self.file.schedulers.iter().position(|of| *of == policy);
        results.sort_by_key(|run: &RunResult| (place(run.scheduler), run.load));
        Ok(Results {
            runs: results,
            sources: site::sources(&self.file)
                .into_iter()
                .map(str::to_owned)
                .collect(),
            slot: self.file.latency_slot_ms.map(Nanos::from_millis),
            slack_every: self.file.slack_every_ms.map(Nanos::from_millis),
        })
    }

    fn loads(&self, most: usize) -> Vec<usize> {
        match &self.file.loads {
            Loads::Listed(loads) => loads.clone(),
            _ if self.file.group.is_empty() => vec![0],
            Loads::Named(NamedLoads::EachUntilFull) => (1..=most).collect(),
            Loads::Named(NamedLoads::Full) => vec![most],
            Loads::Named(NamedLoads::UntilFull) | Loads::Default => steps(most),
        }
    }

    fn config(&self, policy: Policy) -> SchedulerConfig {
        let of = &self.file.scheduler;
        let usual = SchedulerConfig::default();
        let us = |us: Option<u64>| us.map(|us| Nanos(us.saturating_mul(1_000)));
        let ms = |ms: Option<u64>| ms.map(|ms| Nanos(ms.saturating_mul(1_000_000)));
        SchedulerConfig {
            policy,
            order: of.order.unwrap_or(usual.order),
            over_prediction: of.over_prediction.unwrap_or(usual.over_prediction),
            burst_threshold: us(of.burst_threshold_us),
            piece_limit: us(of.piece_limit_us),
            early_share_percent: of.early_share_percent.unwrap_or(usual.early_share_percent),
            sync_age_limit: ms(of.sync_age_limit_ms).unwrap_or(usual.sync_age_limit),
            async_age_limit: ms(of.async_age_limit_ms).unwrap_or(usual.async_age_limit),
            ..usual
        }
    }

    fn shared<'a>(
        &'a self,
        cell: &Mutex<Option<Arc<Shared<'a>>>>,
        seed: u64,
    ) -> Result<Arc<Shared<'a>>, ExperimentError> {
        let mut cell = cell.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = &*cell {
            return Ok(Arc::clone(shared));
        }
        let site = Site::new(&self.file, &self.disks, seed)?;
        let load = load::load(&self.file, &site, &self.traces, seed)?;
        let end = match self.file.duration_s {
            Some(seconds) => Time::ZERO + Nanos::from_secs(seconds),
            None if load.requests == 0 => {
                return Err(ExperimentError::Invalid {
                    at: "the experiment".to_owned(),
                    problem: "nothing ends it: set `duration_s`, or add best effort".to_owned(),
                });
            }
            None => load.last + Nanos(1),
        };
        let shared = Arc::new(Shared {
            seed,
            site,
            load,
            end,
        });
        *cell = Some(Arc::clone(&shared));
        Ok(shared)
    }

    fn measure(&self, run: &Run, shared: &Shared<'_>) -> Result<RunResult, ExperimentError> {
        let config = self.config(run.scheduler);
        let (admitted, names) = shared.site.admit(run.load, &config, shared.end)?;
        let of = FarmRun {
            disks: &self.disks,
            admitted: &admitted,
            load: &shared.load,
            config: &config,
            end: shared.end,
            seed: shared.seed,
            slot: self.file.latency_slot_ms.map(Nanos::from_millis),
            slack_every: self.file.slack_every_ms.map(Nanos::from_millis),
        };
        let outcome = of.run();
        Ok(RunResult::new(run, &admitted, &names, &outcome))
    }
}

impl Run {
    fn file_name(&self) -> String {
        let Self {
            scheduler,
            load,
            seed,
        } = self;
        format!("{scheduler}-{load}-{seed}.json")
    }
}

impl std::fmt::Debug for Experiment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Experiment")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}
