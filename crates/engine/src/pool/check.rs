//! Verifying a pool that is not in use.

use volume::Problem;

use super::control::Pool;
use super::open;
use super::start::{self, Service, StartedMedium};
use crate::buffer::Memory;
use crate::state::error::PoolError;
use crate::state::options::PoolDisk;

/// A finding of [`Pool::check`](super::Pool::check).
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct CheckFinding {
    /// The disk's name, if it concerns one.
    pub disk: Option<String>,
    /// The finding.
    pub what: String,
    /// The remedy.
    pub remedy: &'static str,
    /// True if data or metadata is at risk; false if it is only informative.
    pub is_error: bool,
}

/// The result of a check.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct CheckReport {
    /// The pool's id, if it could be read.
    pub name: String,
    /// Volumes examined.
    pub volumes: u64,
    /// Metadata records examined.
    pub records: u64,
    /// The extent size, if it could be read.
    pub extent_bytes: Option<u64>,
    /// The findings; empty if the pool is sound.
    pub findings: Vec<CheckFinding>,
}

impl Pool {
    /// Verifies the structures of the pool on `disks`, without changing anything.
    ///
    /// # Errors
    /// When the disks cannot be examined at all.
    pub fn check(memory: &Memory, disks: Vec<PoolDisk>) -> Result<CheckReport, PoolError> {
        let raw = open::raw(memory)?;
        let started = start::start(disks, Service::default(), &[])?;
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
