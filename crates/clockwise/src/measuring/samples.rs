//! The file of samples beside a profile, from which an interrupted measurement continues.
//!
//! The bytes are those of [`measure::log`]. Only whole steps are kept, because the requests of a step depend on all
//! samples of the steps before. A file that ends within a record or a step loses that part.
//!
//! A file that ends within the observation of the rotation is begun anew. That observation counts rotations between
//! samples, and nobody counts them while the program does not run.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use measure::facts::{Effort, Facts};
use measure::log::{self, LogError, RECORD_BYTES, Recorded};
use measure::machine::{Measurement, Request, Sample, Step};
use sched::units::Time;

use super::driver::Begun;
use crate::failure::{Failure, io_failure};

/// The part of a measurement within which it does not continue.
pub const FIRST_PART: &str = "rotation";

/// The file of a measurement under way.
#[derive(Debug)]
pub struct SampleFile {
    path: PathBuf,
    file: File,
}

/// A measurement that begins or continues.
pub struct Opened {
    /// Its file.
    pub file: SampleFile,
    /// The measurement.
    pub begun: Begun,
    /// Number of samples that were there.
    pub continued: u64,
}

/// The treatment of samples that are there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Earlier {
    /// Continue from them.
    Continue,
    /// Discard them.
    Discard,
}

/// The path of the samples of a profile.
#[must_use]
pub fn path_of(profile: &Path) -> PathBuf {
    with_suffix(profile, ".samples")
}

/// A path with a few letters more.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

impl SampleFile {
    /// Opens the file at `path` for this measurement alone. It is made if it is not there.
    ///
    /// # Errors
    /// When the file cannot be used, or another measurement has it.
    pub fn lock(path: &Path) -> Result<Self, Failure> {
        let failed = |error: io::Error| io_failure("use the samples in", path, &error);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).map_err(
            |error| match error {
                rustix::io::Errno::WOULDBLOCK => Failure::bad_input(format!(
                    "{}: another measurement writes these samples",
                    path.display()
                ))
                .help("wait for it, or name another profile with `--to`"),
                error => failed(error.into()),
            },
        )?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }

    /// Continues from the samples, or begins a measurement with a seed of its own. `serial` tells drives of one model
    /// apart.
    ///
    /// # Errors
    /// When the file cannot be read or written, or is of another measurement.
    pub fn begin(
        mut self,
        facts: &Facts,
        serial: &str,
        effort: Effort,
        earlier: Earlier,
    ) -> Result<Opened, Failure> {
        let path = &self.path.clone();
        let failed = |error: io::Error| io_failure("use the samples in", path, &error);
        let mut bytes = Vec::new();
        self.file.read_to_end(&mut bytes).map_err(failed)?;
        let named = Facts {
            name: format!("{}\n{serial}", facts.name),
            ..facts.clone()
        };
        if bytes.is_empty() || earlier == Earlier::Discard {
            let seed = seed().map_err(failed)?;
            self.restart(&log::header(&named, effort, seed))
                .map_err(failed)?;
            let begun = replay(facts, effort, seed, &[]).map_err(|at| changed(path, at))?;
            return Ok(Opened {
                file: self,
                begun: begun.begun,
                continued: 0,
            });
        }
        let seed = log::seed_of(&bytes, &named, effort).map_err(|error| wrong(path, error))?;
        let records = log::records(&bytes).map_err(|error| wrong(path, error))?;
        let mut replayed = replay(facts, effort, seed, &records).map_err(|at| changed(path, at))?;
        if replayed.is_in_first_part {
            replayed = replay(facts, effort, seed, &[]).map_err(|at| changed(path, at))?;
        }
        let whole = log::HEADER_BYTES + replayed.used * RECORD_BYTES;
        self.cut(whole as u64).map_err(failed)?;
        Ok(Opened {
            file: self,
            begun: replayed.begun,
            continued: replayed.used as u64,
        })
    }

    fn restart(&mut self, header: &[u8]) -> io::Result<()> {
        self.cut(0)?;
        self.file.write_all(header)
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.file.set_len(length)?;
        self.file.seek(SeekFrom::Start(length)).map(drop)
    }

    /// Appends the samples of requests.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn append(&mut self, requests: &[Request], samples: &[Sample]) -> Result<(), Failure> {
        let mut bytes = Vec::with_capacity(requests.len() * RECORD_BYTES);
        for (request, sample) in requests.iter().zip(samples) {
            bytes.extend(log::record(request, sample));
        }
        self.file
            .write_all(&bytes)
            .map_err(|error| io_failure("keep the samples in", &self.path, &error))
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it: the measurement is over.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(self) -> Result<(), Failure> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(io_failure("remove the samples in", &self.path, &error))
            }
            _ => Ok(()),
        }
    }
}

fn seed() -> io::Result<u64> {
    let mut seed = [0; 8];
    rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_le_bytes(seed))
}

fn wrong(path: &Path, error: LogError) -> Failure {
    Failure::bad_input(format!("{}: {error}", path.display())).help(
        "continue with the drive and the options of that measurement, or give `--restart` to discard its samples",
    )
}

fn changed(path: &Path, at: usize) -> Failure {
    Failure::bad_input(format!(
        "{}: sample {at} is not of the request that this program would make: the program has changed since",
        path.display()
    ))
    .help("continue with the program of that measurement, or give `--restart` to discard its samples")
}

struct Replayed {
    begun: Begun,
    /// Samples that were taken.
    used: usize,
    is_in_first_part: bool,
}

/// Gives recorded samples to a new measurement. The error is the number of the first that is of another request.
fn replay(
    facts: &Facts,
    effort: Effort,
    seed: u64,
    records: &[Recorded],
) -> Result<Replayed, usize> {
    let mut measurement = Measurement::new(facts.clone(), effort, seed);
    let mut step = measurement.step(&[]);
    let mut used = 0;
    let mut at = Time::ZERO;
    let mut last = None;
    while let Step::Serve { requests, .. } = &step {
        let Some(answers) = records.get(used..used + requests.len()) else {
            break;
        };
        let fits = |pair: &(&Recorded, &Request)| pair.0.answers(pair.1);
        let pairs = answers.iter().zip(requests);
        let fitting = pairs.take_while(fits).count();
        if fitting < requests.len() {
            return Err(used + fitting);
        }
        let samples: Vec<Sample> = answers.iter().map(|record| record.sample).collect();
        at = samples
            .iter()
            .map(|sample| sample.completed)
            .fold(at, Time::max);
        last = requests.last().copied();
        used += requests.len();
        step = measurement.step(&samples);
    }
    let is_over = step == Step::Finished;
    let is_in_first_part = !is_over && used > 0 && measurement.progress().part == FIRST_PART;
    Ok(Replayed {
        begun: Begun {
            measurement,
            step,
            at,
            last: last.filter(|_| !is_over),
        },
        used,
        is_in_first_part,
    })
}

#[cfg(test)]
mod tests;
