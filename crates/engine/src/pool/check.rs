//! Verifying a pool that nobody uses.

use volume::Problem;

use super::control::Pool;
use super::open;
use super::start::{self, Service, StartedMedium};
use crate::buffer::Memory;
use crate::state::error::PoolError;
use crate::state::options::PoolDisk;

/// Something that [`Pool::check`](super::Pool::check) found.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct CheckFinding {
    /// On which disk, if on one.
    pub disk: Option<String>,
    /// What.
    pub what: String,
    /// The remedy.
    pub remedy: &'static str,
    /// Whether data or metadata is at stake, or it is only worth knowing.
    pub is_error: bool,
}

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct CheckReport {
    /// The pool's identity, if that much could be read.
    pub name: String,
    /// Volumes examined.
    pub volumes: u64,
    /// Metadata records examined.
    pub records: u64,
    /// The size of an extent, if that much could be read.
    pub extent_bytes: Option<u64>,
    /// What is wrong; empty is sound.
    pub findings: Vec<CheckFinding>,
}

impl Pool {
    /// Verifies the structures of the pool that `disks` are, without changing anything.
    ///
    /// # Errors
    /// When the disks could not be examined at all.
    pub fn check(memory: &Memory, disks: Vec<PoolDisk>) -> Result<CheckReport, PoolError> {
        let raw = open::raw(memory)?;
        let started = start::start(disks, Service::default())?;
        let mut medium = StartedMedium {
            raw: &raw,
            disks: &started.disks,
        };
        let found = volume::check::check(&mut medium, &started.candidates);
        started.stop();
        let summary = found.summary.as_ref();
        let findings = found.problems.iter().map(|problem| finding(problem, true));
        let notes = found.notes.iter().map(|problem| finding(problem, false));
        Ok(CheckReport {
            name: summary.map_or_else(String::new, |of| hex(&of.pool)),
            volumes: summary.map_or(0, |of| of.volumes as u64),
            records: summary.map_or(0, |of| of.records),
            extent_bytes: summary.map(|of| of.extent_bytes.0),
            findings: findings.chain(notes).collect(),
        })
    }
}

fn finding(problem: &Problem, is_error: bool) -> CheckFinding {
    let text = problem.to_string();
    let about = problem.disk().map(|disk| format!("{disk}: "));
    let what = about.and_then(|about| text.strip_prefix(&about).map(str::to_owned));
    CheckFinding {
        disk: problem.disk().map(str::to_owned),
        what: what.unwrap_or(text),
        remedy: problem.remedy(),
        is_error,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
