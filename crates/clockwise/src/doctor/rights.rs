//! Real-time threads, locked memory, and memory at all.

use std::fs;

use engine::rt::{self, ThreadParams};
use rustix::process::{Resource, getrlimit};
use sched::units::Bytes;

use super::{Found, RunningServer, weak, wrong};
use crate::config::Config;
use crate::quantity::Size;

/// The words with which the server warns of something that it was denied.
const REFUSED: &str = "the host refused: ";

/// The resource that a warning of the server says was denied.
pub(super) fn refusal(warning: &str) -> Option<&str> {
    warning.strip_prefix(REFUSED)
}

/// Why a denied resource matters, and the remedy. The words are those of the engine.
fn advice(denied: &str) -> (&'static str, &'static str) {
    if denied.contains("SCHED_FIFO") {
        return (
            "other programs delay the threads of the disks, and blocks are late by the host's fault",
            "LimitRTPRIO=40 in the unit of the service; for a shell of root: prlimit --rtprio=40 --pid $$",
        );
    }
    if denied.contains("PR_SET_IO_FLUSHER") {
        return (
            "a thread of a disk may wait for write-back to a volume that it serves itself",
            "AmbientCapabilities=CAP_SYS_RESOURCE in the unit of the service, or run the server as root",
        );
    }
    if denied.contains("MEMLOCK") || denied.contains("mlock") {
        return (
            "memory of the server may be paged out, and blocks are late by the host's fault",
            "LimitMEMLOCK=infinity in the unit of the service; for a shell of root: prlimit --memlock=unlimited --pid $$",
        );
    }
    (
        "the server does without it, and may be late",
        "run the server as root or by the unit of the package",
    )
}

/// The rights that were denied to the server; if none runs, those that are denied to this process.
fn denied(server: Option<&RunningServer>) -> Vec<String> {
    if let Some(server) = server {
        let status = server.status.as_ref().ok();
        let warnings = status.map(|status| status.warnings.as_slice());
        let refused = warnings.unwrap_or_default().iter();
        let refused = refused.filter_map(|warning| refusal(&warning.what));
        return refused.map(str::to_owned).collect();
    }
    let mut denied = rt::lock_process_memory().0;
    match rt::spawn(&ThreadParams::dispatcher("doctor"), || ()) {
        Ok((thread, of_thread)) => {
            denied.extend(of_thread.0);
            // It does nothing, and so does not panic.
            let _ = thread.join();
        }
        Err(error) => denied.push(format!("threads: {error}")),
    }
    denied
}

pub(super) fn rights(config: Option<&Config>, server: Option<&RunningServer>) -> Found {
    if config.is_some_and(|config| !config.open.realtime) {
        return vec![weak(
            "`realtime` is false in [server]",
            "other programs delay the threads of the disks, and memory of the server may be paged out",
            "remove `realtime` from [server], if the server may have these rights",
        )];
    }
    let who = match server {
        Some(_) => "the server",
        None => "this user",
    };
    let denied = denied(server).into_iter();
    let found = denied.map(|denied| {
        let (why, fix) = advice(&denied);
        weak(format!("the host denies {who}: {denied}"), why, fix)
    });
    found.collect()
}

/// A line of `/proc/meminfo`.
fn host_memory(name: &str) -> Option<Bytes> {
    let lines = fs::read_to_string("/proc/meminfo").ok()?;
    let line = lines.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(Bytes(kib.saturating_mul(1_024)))
}

pub(super) fn memory(config: &Config, pid: Option<u32>) -> Found {
    // A server that runs has its memory, and warns of what it could not lock.
    if pid.is_some() {
        return Vec::new();
    }
    let total = Size(config.memory);
    let mut found = Vec::new();
    if let Some(available) = host_memory("MemAvailable").filter(|has| *has < config.memory) {
        found.push(wrong(
            format!(
                "`total` in [memory] is {total}, and the host can spare {}",
                Size(available)
            ),
            "the server does not start, or other programs are ended for it",
            "lower `total` in [memory], or end other programs: ps --sort=-rss -eo rss,args | head",
        ));
    }
    let limit = getrlimit(Resource::Memlock).current;
    let is_limited = config.open.realtime && limit.is_some_and(|limit| limit < config.memory.get());
    if is_limited && !may_lock() {
        let limit = Size(Bytes(limit.unwrap_or(0)));
        let (_, fix) = advice("mlock");
        found.push(weak(
            format!(
                "this user may lock {limit} of memory, less than the {total} of `total` in [memory]"
            ),
            "buffers may be paged out, and blocks are late by the host's fault",
            fix,
        ));
    }
    found
}

/// True if this process may lock memory beyond its limit: CAP_IPC_LOCK, number 14 of `capabilities(7)`.
fn may_lock() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    effective.is_some_and(|mask| mask >> 14 & 1 == 1)
}
