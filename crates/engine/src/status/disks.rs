//! Reports on disks.

use std::sync::atomic::Ordering::Relaxed;

use sched::units::{Nanos, SECTOR_BYTES, Time};
use serde::Serialize;

use super::{health, places};
use crate::disk::Durability;
use crate::dispatcher::DispatcherReport;
use crate::latency::{BucketCounts, Latency};
use crate::state::disk::core::{DiskCore, DiskLink};
use crate::state::pool::admission::Admission;
use crate::state::pool::core::PoolCore;

/// Requests by class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ByClass {
    /// Real-time requests of streams.
    pub real_time: u64,
    /// Requests of streams served before their release, in slack.
    pub early: u64,
    /// Best effort in slack.
    pub slack: u64,
    /// Best effort on the budget of a periodic server or the floor.
    pub container: u64,
}

/// Requests completed, by reservation and urgency.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Completed {
    /// Of streams.
    pub streams: u64,
    /// Best effort that a thread waits for: reads, forced writes, flushes.
    pub sync: u64,
    /// Best effort that no thread waits for.
    pub asynchronous: u64,
}

/// The link that a disk shares.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LinkStatus {
    /// Its name.
    pub name: String,
    /// Its rate.
    pub rate_bytes_per_second: u64,
    /// The rate of all streams on its disks.
    pub promised_bytes_per_second: u64,
    /// True if this disk promises; false if it serves best effort only, in the place of another one.
    pub promises: bool,
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
    /// True if the profile was measured on this disk.
    pub profile_is_measured: bool,
    /// Its durability: `write-through`, `fua` or `host`.
    pub durability: String,
    /// The most requests on the drive at a time.
    pub outstanding: u32,
    /// Starts of its zones in bytes, the outermost first.
    pub zone_starts_bytes: Vec<u64>,
    /// Admitted utilisation, as a fraction of 1.
    pub utilization_promised: f64,
    /// The part of that which ended streams and exports still hold, each until its last deadline.
    pub utilization_leaving: f64,
    /// Time until all of that is free; 0 if there is none.
    pub leaving_ns: u64,
    /// The link that it shares, if it does.
    pub link: Option<LinkStatus>,
    /// Measured utilisation since the window began, as a fraction of 1.
    pub utilization_measured: f64,
    /// Delta-L of the admitted tasks (corrected).
    pub delta_l_ns: u64,
    /// Current slack.
    pub slack_ns: u64,
    /// The best-effort floor, as a fraction of 1.
    pub floor: f64,
    /// Requests queued now.
    pub queued: u64,
    /// Requests served since the pool was opened.
    pub served: ByClass,
    /// Requests completed since the pool was opened; a divided one is served in parts.
    pub completed: Completed,
    /// Deadlines missed, net of the host's lateness.
    pub misses: u64,
    /// Deadlines missed, whatever the cause.
    pub misses_gross: u64,
    /// The largest lateness.
    pub late_max_ns: u64,
    /// The same net of the host's own lateness.
    pub late_net_max_ns: u64,
    /// Requests that took longer than predicted, net of the host's own lateness.
    pub overruns: u64,
    /// The longest overrun.
    pub overrun_max_ns: u64,
    /// Total actual over total predicted service time.
    pub actual_over_predicted: f64,
    /// The largest ratio of actual to predicted service time of a request, net of the host's own lateness.
    /// More than 1 is an overrun, and the factor by which the disk's profile would have to be wider.
    pub actual_over_predicted_max: f64,
    /// Number of delays by the host.
    pub host_late_count: u64,
    /// The longest delay by the host.
    pub host_late_max_ns: u64,
    /// Bytes read since the pool was opened.
    pub read_bytes: u64,
    /// Bytes written since the pool was opened.
    pub written_bytes: u64,
    /// Best-effort latency in the window.
    pub best_effort: Latency,
    /// Latency of synchronous best-effort requests since the pool was opened.
    pub sync_latency: BucketCounts,
    /// Latency of asynchronous best-effort requests since the pool was opened.
    pub async_latency: BucketCounts,
    /// Lateness of streams' requests since the pool was opened, net of the host's own.
    pub stream_lateness: BucketCounts,
    /// Requests that failed on the disk. Requests refused because the disk is gone or given up do not count.
    pub errors: u64,
    /// Failed reads.
    pub read_errors: u64,
    /// Failed writes.
    pub write_errors: u64,
    /// The last error.
    pub last_error: Option<String>,
    /// Places that are not used any more, because transfers failed there.
    pub bad_places: u64,
    /// Places that are used for best effort only, because requests there took longer than predicted.
    pub slow_places: u64,
    /// The longest time beyond the prediction at a slow place.
    pub slow_extra_max_ns: u64,
    /// Bad places, and slow ones under a reservation, whose data has not been moved away.
    pub places_to_leave: u64,
    /// Time for which it, or the host for it, has not answered, if that counts as stalled; otherwise 0.
    pub stalled_ns: u64,
    /// Number of stalls.
    pub stalls: u64,
    /// Number of times that it has answered again after a stall.
    pub comebacks: u64,
    /// Number of times that it was given up after a long stall.
    pub given_ups: u64,
    /// The reason why it is not served any more, or why nothing on it can be made durable, if so.
    pub failed: Option<String>,
}

/// Starts of the zones that lie at least partly within the disk's capacity.
fn zone_starts(disk: &DiskCore) -> Vec<u64> {
    (0..disk.predictor.zone_count())
        .map_while(|zone| disk.predictor.zone_range(zone))
        .map(|range| range.start)
        .take_while(|start| start.0 < disk.capacity.0)
        .map(|start| start.0 * SECTOR_BYTES)
        .collect()
}

/// The current state of a disk.
pub(crate) fn disk(core: &PoolCore, index: usize, now: Time) -> DiskStatus {
    let disk = &core.io.disks[index];
    let (promised, leaving, delta_l, floor, link) = {
        let mut admission = core.admission.lock();
        let floor = admission.floors[index].map_or(0.0, |floor| {
            floor.service().0 as f64 / floor.period().0 as f64
        });
        (
            admission.utilization(index, now),
            admission.leaving(index, now),
            admission.delta_l(index, now),
            floor,
            disk.link
                .as_ref()
                .map(|link| link_status(link, core, &admission)),
        )
    };
    let places = places::of(core, index);
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
        link,
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
        sync_latency: BucketCounts::default(),
        async_latency: BucketCounts::default(),
        stream_lateness: BucketCounts::default(),
        errors: health.read_errors + health.write_errors,
        read_errors: health.read_errors,
        write_errors: health.write_errors,
        last_error: health.last_error,
        bad_places: places.bad,
        slow_places: places.slow,
        slow_extra_max_ns: places.slow_extra_max.0,
        places_to_leave: places.to_leave,
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

fn link_status(link: &DiskLink, core: &PoolCore, admission: &Admission) -> LinkStatus {
    let is_on_link = |disk: &DiskCore| disk.link.as_ref().is_some_and(|of| of.name == link.name);
    let promised = admission.streams.values().flat_map(|stream| {
        let block = stream.block();
        let tasks = stream.tasks().into_iter();
        let tasks = tasks.filter(|task| is_on_link(&core.io.disks[task.disk]));
        tasks.map(move |task| {
            let rate = u128::from(block.0) * 1_000_000_000 / u128::from(task.params.period().0);
            u64::try_from(rate).unwrap_or(u64::MAX)
        })
    });
    LinkStatus {
        name: link.name.clone(),
        rate_bytes_per_second: link.rate.get(),
        promised_bytes_per_second: promised.sum(),
        promises: !link.borrows,
    }
}

/// Adds the report of the disk's dispatcher.
fn fill(status: &mut DiskStatus, disk: &DiskCore, report: &DispatcherReport) {
    let (scheduler, counters) = (&report.scheduler, &report.counters);
    let (since, busy_before) = disk.window();
    let window = report.at.saturating_since(since);
    let busy = counters.busy.saturating_sub(busy_before);
    status.utilization_measured = ratio(busy, window).min(1.0);
    // Without reservations best effort may take any time.
    status.slack_ns = scheduler.slack.unwrap_or(Nanos(i64::MAX as u64)).0;
    status.queued = report.requests as u64;
    status.served = ByClass {
        real_time: scheduler.served.real_time,
        early: scheduler.served.early,
        slack: scheduler.served.slack,
        container: scheduler.served.container,
    };
    status.completed = Completed {
        streams: counters.stream_latency.count(),
        sync: counters.sync_latency.count(),
        asynchronous: counters.async_latency.count(),
    };
    status.sync_latency = counters.sync_latency;
    status.async_latency = counters.async_latency;
    status.stream_lateness = counters.stream_lateness;
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
