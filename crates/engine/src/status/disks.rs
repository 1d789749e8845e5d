//! What has come of disks.

use std::sync::atomic::Ordering::Relaxed;

use sched::units::{Nanos, SECTOR_BYTES, Time};
use serde::Serialize;

use super::health;
use crate::disk::Durability;
use crate::dispatcher::DispatcherReport;
use crate::latency::Latency;
use crate::state::disk::core::DiskCore;
use crate::state::pool::core::PoolCore;

/// Requests by class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ByClass {
    /// Of streams.
    pub real_time: u64,
    /// Of streams, before their release, in slack.
    pub early: u64,
    /// Best effort in slack.
    pub slack: u64,
    /// Best effort in the container of a periodic server or the floor.
    pub container: u64,
}

/// Requests completed, by on whose account and whether somebody waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Completed {
    /// Of streams.
    pub streams: u64,
    /// Best effort that somebody waits for: reads, forced writes, flushes.
    pub sync: u64,
    /// Best effort that nobody waits for.
    pub asynchronous: u64,
}

/// One disk.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct DiskStatus {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The name of its profile.
    pub profile: String,
    /// Whether that was measured on this disk.
    pub profile_is_measured: bool,
    /// How its writes become durable: `write-through`, `fua` or `host`.
    pub durability: String,
    /// Requests it is given at a time.
    pub outstanding: u32,
    /// Where its zones begin, in bytes, the outermost first.
    pub zone_starts_bytes: Vec<u64>,
    /// The share of its time that is promised, of 1.
    pub utilization_promised: f64,
    /// The part of that which streams and exports that have ended still hold: each keeps its share until its
    /// last deadline.
    pub utilization_leaving: f64,
    /// In how long all of that is free; 0: nothing is held so.
    pub leaving_ns: u64,
    /// The share of its time it was busy since the window began, of 1.
    pub utilization_measured: f64,
    /// Delta-L of what is promised (corrected).
    pub delta_l_ns: u64,
    /// Slack at this moment.
    pub slack_ns: u64,
    /// The share of its time that best effort without a reservation keeps, of 1.
    pub floor: f64,
    /// Requests queued now.
    pub queued: u64,
    /// Requests served since the pool was opened.
    pub served: ByClass,
    /// Requests completed since then; one that was divided is served in parts.
    pub completed: Completed,
    /// Deadlines missed, net of the host's lateness.
    pub misses: u64,
    /// Deadlines missed with it.
    pub misses_gross: u64,
    /// The worst lateness.
    pub late_max_ns: u64,
    /// The same net of the host's own lateness.
    pub late_net_max_ns: u64,
    /// Requests that took longer than predicted, net of the host's own lateness.
    pub overruns: u64,
    /// The longest overrun.
    pub overrun_max_ns: u64,
    /// Actual over predicted service time in all, of 1.
    pub actual_over_predicted: f64,
    /// The same of the request for which it was most, net of the host's own lateness. More than 1 is an
    /// overrun, and by how much the disk's profile would have to be wider.
    pub actual_over_predicted_max: f64,
    /// How often the host was late.
    pub host_late_count: u64,
    /// The worst lateness of the host.
    pub host_late_max_ns: u64,
    /// Bytes read since the pool was opened.
    pub read_bytes: u64,
    /// Bytes written since the pool was opened.
    pub written_bytes: u64,
    /// Best-effort latency in the window.
    pub best_effort: Latency,
    /// Requests that were on it and failed. Refusals of a disk that is gone or given up do not count.
    pub errors: u64,
    /// Reads among them.
    pub read_errors: u64,
    /// Writes among them.
    pub write_errors: u64,
    /// What the last of them failed of.
    pub last_error: Option<String>,
    /// For how long it, or the host for it, has not answered, if that is so long that it counts as stalled; 0
    /// otherwise.
    pub stalled_ns: u64,
    /// How often it has stalled.
    pub stalls: u64,
    /// How often it has answered again after that.
    pub comebacks: u64,
    /// How often it was given up, because it had stalled for too long.
    pub given_ups: u64,
    /// Why it is not served any more, or nothing on it can be made durable, if that is so.
    pub failed: Option<String>,
}

/// Where the zones of a disk begin that have a part of it.
fn zone_starts(disk: &DiskCore) -> Vec<u64> {
    (0..disk.predictor.zone_count())
        .map_while(|zone| disk.predictor.zone_range(zone))
        .map(|range| range.start)
        .take_while(|start| start.0 < disk.capacity.0)
        .map(|start| start.0 * SECTOR_BYTES)
        .collect()
}

/// A disk as it is now.
pub(crate) fn disk(core: &PoolCore, index: usize, now: Time) -> DiskStatus {
    let disk = &core.io.disks[index];
    let (promised, leaving, delta_l, floor) = {
        let mut admission = core.admission.lock();
        let floor = admission.floors[index].map_or(0.0, |floor| {
            floor.service().0 as f64 / floor.period().0 as f64
        });
        (
            admission.utilization(index, now),
            admission.leaving(index, now),
            admission.delta_l(index, now),
            floor,
        )
    };
    let report = disk.handle.report().ok();
    let health = health::disk(&core.io, disk);
    let mut status = DiskStatus {
        name: disk.name.clone(),
        size_bytes: disk.capacity.bytes().0,
        profile: disk.profile.name().to_owned(),
        profile_is_measured: disk.profile_is_measured,
        durability: durability_name(disk.durability).to_owned(),
        outstanding: disk.profile.outstanding(),
        zone_starts_bytes: zone_starts(disk),
        utilization_promised: promised,
        utilization_leaving: leaving.map_or(0.0, |leaving| leaving.utilization),
        leaving_ns: leaving.map_or(0, |leaving| leaving.until.saturating_since(now).0),
        utilization_measured: 0.0,
        delta_l_ns: delta_l.0,
        slack_ns: 0,
        floor,
        queued: 0,
        served: ByClass::default(),
        completed: Completed::default(),
        misses: 0,
        misses_gross: 0,
        late_max_ns: 0,
        late_net_max_ns: 0,
        overruns: 0,
        overrun_max_ns: 0,
        actual_over_predicted: 0.0,
        actual_over_predicted_max: 0.0,
        host_late_count: 0,
        host_late_max_ns: 0,
        read_bytes: disk.read_bytes.load(Relaxed),
        written_bytes: disk.written_bytes.load(Relaxed),
        best_effort: disk.latency.summary(),
        errors: health.read_errors + health.write_errors,
        read_errors: health.read_errors,
        write_errors: health.write_errors,
        last_error: health.last_error,
        stalled_ns: health.stalled_ns,
        stalls: health.stalls,
        comebacks: health.comebacks,
        given_ups: health.given_ups,
        failed: health.failed,
    };
    if let Some(report) = report {
        fill(&mut status, disk, &report);
    }
    status
}

/// What the disk's dispatcher says.
fn fill(status: &mut DiskStatus, disk: &DiskCore, report: &DispatcherReport) {
    let (scheduler, counters) = (&report.scheduler, &report.counters);
    let (since, busy_before) = disk.window();
    let window = report.at.saturating_since(since);
    let busy = counters.busy.saturating_sub(busy_before);
    status.utilization_measured = ratio(busy, window).min(1.0);
    // Nothing promised: best effort may take any time.
    status.slack_ns = scheduler.slack.unwrap_or(Nanos(i64::MAX as u64)).0;
    status.queued = report.requests as u64;
    status.served = ByClass {
        real_time: scheduler.served.real_time,
        early: scheduler.served.early,
        slack: scheduler.served.slack,
        container: scheduler.served.container,
    };
    status.completed = Completed {
        streams: counters.stream_latency_us.len(),
        sync: counters.sync_latency_us.len(),
        asynchronous: counters.async_latency_us.len(),
    };
    status.misses = counters.missed.count;
    status.misses_gross = counters.missed_gross.count;
    status.late_max_ns = counters.missed_gross.max.0;
    status.late_net_max_ns = counters.missed.max.0;
    status.overruns = counters.overruns.count;
    status.overrun_max_ns = counters.overruns.max.0;
    status.actual_over_predicted = ratio(scheduler.actual, scheduler.predicted);
    status.actual_over_predicted_max = counters.took_permille_max as f64 / 1e3;
    status.host_late_count = counters.host_late.count;
    status.host_late_max_ns = counters.host_late.max.0;
}

fn ratio(part: Nanos, whole: Nanos) -> f64 {
    if whole.is_zero() {
        return 0.0;
    }
    part.0 as f64 / whole.0 as f64
}

fn durability_name(durability: Durability) -> &'static str {
    match durability {
        Durability::WriteThrough => "write-through",
        Durability::Fua => "fua",
        Durability::Host => "host",
    }
}
