//! Examines this host for all that keeps the server of a configuration from starting or weakens its promises.
//!
//! Nothing is changed, and no disk is opened. If the server runs, it is asked what it was denied and whether its disks
//! work; otherwise the process of the command tries what the server would.

mod disks;
mod host;
mod ports;
mod rights;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use crate::config::Config;
use crate::failure::Failure;
use crate::socket;
use crate::wire::view::StatusView;

/// The maximum time for a server to accept a connection.
const ACCEPTS_WITHIN: Duration = Duration::from_secs(1);

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// The server does not start, or does not serve something of its configuration.
    Wrong,
    /// It serves, and its promises rest on less than they could.
    Weak,
}

/// Something that is wrong or weak.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// The check that found it.
    pub check: &'static str,
    /// The fact.
    pub what: String,
    /// Why it matters.
    pub why: String,
    /// The command, or the change, that ends it.
    pub fix: String,
}

/// The result of an examination.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The process of the server, if it runs.
    pub server: Option<u32>,
    /// The findings, those that are wrong first.
    pub findings: Vec<Finding>,
    /// The checks that found nothing.
    pub fine: Vec<&'static str>,
}

impl Report {
    /// The number of findings of a level.
    #[must_use]
    pub fn count(&self, level: Level) -> usize {
        let of_level = self.findings.iter().filter(|found| found.level == level);
        of_level.count()
    }
}

/// A finding whose check is not known yet.
struct Draft {
    level: Level,
    what: String,
    why: String,
    fix: String,
}

/// The facts that a check finds.
type Found = Vec<Draft>;

fn wrong(what: impl Into<String>, why: impl Into<String>, fix: impl Into<String>) -> Draft {
    Draft {
        level: Level::Wrong,
        what: what.into(),
        why: why.into(),
        fix: fix.into(),
    }
}

fn weak(what: impl Into<String>, why: impl Into<String>, fix: impl Into<String>) -> Draft {
    Draft {
        level: Level::Weak,
        ..wrong(what, why, fix)
    }
}

impl Report {
    fn add(&mut self, check: &'static str, found: Found) {
        if found.is_empty() {
            self.fine.push(check);
        }
        self.findings.extend(found.into_iter().map(|draft| Finding {
            level: draft.level,
            check,
            what: draft.what,
            why: draft.why,
            fix: draft.fix,
        }));
    }
}

/// The server of a configuration, if one runs.
pub struct RunningServer {
    /// Its process.
    pub pid: u32,
    /// Its status, as its API reports it.
    pub status: Result<StatusView, Failure>,
}

/// The process that listens at a control socket.
#[must_use]
pub fn server_at(socket: &Path) -> Option<u32> {
    let connection = socket::connect(socket, ACCEPTS_WITHIN).ok()?;
    let peer = rustix::net::sockopt::socket_peercred(&connection).ok()?;
    u32::try_from(peer.pid.as_raw_pid()).ok()
}

/// Examines the host for a configuration, which may be unusable: then only the host is examined. `file` is the
/// configuration's file.
#[must_use]
pub fn examine(
    file: &Path,
    config: &Result<Config, Failure>,
    server: Option<&RunningServer>,
) -> Report {
    let mut report = Report {
        server: server.map(|server| server.pid),
        findings: Vec::new(),
        fine: Vec::new(),
    };
    let pid = server.map(|server| server.pid);
    report.add("configuration", of_configuration(file, config));
    report.add("kernel", host::kernel());
    report.add("io_uring", host::io_uring());
    report.add("clock", host::clock());
    report.add("open files", host::descriptors(pid));
    let config = config.as_ref().ok();
    report.add("rights", rights::rights(config, server));
    if let Some(config) = config {
        report.add("memory", rights::memory(config, pid));
        report.add("disks", disks::usable(config, pid.is_some()));
        report.add("profiles", disks::measured(file, config, pid.is_some()));
        report.add("write caches", disks::caches(config));
        report.add("links", disks::links(config));
        report.add("ports", ports::ports(config, pid));
        report.add("state", host::state(&config.state, pid.is_some()));
        report.add("hooks", host::hooks(&config.hooks));
    }
    if let Some(server) = server {
        report.add("server", of_server(server));
    }
    report.findings.sort_by_key(|found| found.level);
    report
}

fn of_configuration(file: &Path, config: &Result<Config, Failure>) -> Found {
    let Err(failure) = config else {
        return Vec::new();
    };
    let place = match &failure.place {
        Some(place) => PathBuf::from(format!("{}:{}:{}", place.file, place.line, place.column)),
        None => file.to_owned(),
    };
    vec![wrong(
        format!("{}: {}", place.display(), failure.what),
        "the server does not start, and nothing that depends on the configuration was examined",
        failure.help.clone(),
    )]
}

/// The findings of the server itself that no other check makes.
fn of_server(server: &RunningServer) -> Found {
    let status = match &server.status {
        Ok(status) => status,
        Err(failure) => {
            let why = "the server runs and does not answer, so it cannot be asked about its disks";
            return vec![wrong(failure.what.clone(), why, failure.help.clone())];
        }
    };
    let repair = "docs/guide/real-disks.md says what to do when a disk fails, hangs or is full; `clockwise disk show` has more";
    let mut found = Vec::new();
    for disk in &status.disks {
        let why = "requests on it fail or wait";
        if let Some(failed) = &disk.failed {
            found.push(wrong(format!("{}: {failed}", disk.name), why, repair));
        } else if disk.stalled_ns > 0 {
            found.push(wrong(format!("{} does not answer", disk.name), why, repair));
        }
    }
    if let Some(frozen) = &status.metadata.frozen {
        let what = format!("the metadata of the pool is frozen: {frozen}");
        let why = "volumes cannot be created, changed or deleted";
        found.push(wrong(what, why, repair));
    }
    for warning in &status.warnings {
        if rights::refusal(&warning.what).is_some() || disks::is_known(&warning.what) {
            continue;
        }
        let what = match warning.concerns.as_slice() {
            [] => warning.what.clone(),
            concerns => format!("{} ({})", warning.what, concerns.join(", ")),
        };
        let why = "the server warns of it in `clockwise status`";
        let fix = "correct it in the configuration, then: systemctl restart clockwise";
        found.push(weak(what, why, fix));
    }
    found
}
