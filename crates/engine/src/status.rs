//! What is promised and what happened, as plain values for people and programs. Times are in
//! nanoseconds.

pub(crate) mod health;
mod shares;
pub(crate) mod volumes;
mod waits;

use std::sync::atomic::Ordering::Relaxed;

use sched::units::{Nanos, SECTOR_BYTES, Time};
use serde::Serialize;

use crate::clock;
use crate::disk::Durability;
use crate::dispatcher::DispatcherReport;
use crate::state::disk::core::DiskCore;
use crate::state::pool::core::PoolCore;

pub use crate::latency::Latency;
pub use crate::state::warning::Warning;
pub(crate) use shares::shares;
pub use shares::{ShareDisk, ShareStatus};
pub use waits::WaitStatus;
pub(crate) use waits::waits;

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

/// The pool's metadata: what volumes there are, where they lie, and what of them has been written.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct MetadataStatus {
    /// Why it is frozen, if it is: a disk does not take a write of it.
    pub frozen: Option<String>,
    /// For how long it has been frozen.
    pub frozen_ns: u64,
    /// Whether it goes on by itself when the disk takes that write; otherwise when the server is started again.
    pub goes_on: bool,
    /// How often it was frozen.
    pub freezes: u64,
    /// How often it has gone on.
    pub resumes: u64,
}

/// What is wrong with one disk, or was.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DiskHealth {
    /// Its name.
    pub name: String,
    /// For how long it, or the host for it, has not answered; 0 unless that counts as stalled.
    pub stalled_ns: u64,
    /// How often it has stalled.
    pub stalls: u64,
    /// How often it has answered again after that.
    pub comebacks: u64,
    /// How often it was given up.
    pub given_ups: u64,
    /// Reads that were on it and failed.
    pub read_errors: u64,
    /// Writes that were on it and failed.
    pub write_errors: u64,
    /// What the last of them failed of.
    pub last_error: Option<String>,
    /// Why it is not served any more, or nothing on it can be made durable.
    pub failed: Option<String>,
}

/// What is wrong with a pool, or was.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PoolHealth {
    /// Of each disk.
    pub disks: Vec<DiskHealth>,
    /// Of the metadata.
    pub metadata: MetadataStatus,
}

/// A stream's part of one disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct StreamDisk {
    /// The disk's name.
    pub disk: String,
    /// The worst-case service time of a block.
    pub service_ns: u64,
    /// The least time between two blocks.
    pub period_ns: u64,
}

/// One stream.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct StreamStatus {
    /// Its name.
    pub name: String,
    /// Its volume.
    pub volume: String,
    /// `record` or `play`.
    pub op: String,
    /// Its rate in bytes per second.
    pub rate_bytes_per_second: u64,
    /// Its block size.
    pub block_bytes: u64,
    /// What it reserves where.
    pub disks: Vec<StreamDisk>,
    /// Blocks done.
    pub blocks: u64,
    /// Blocks later than due, net of the host's own lateness.
    pub misses: u64,
    /// Blocks later than due with it.
    pub misses_gross: u64,
    /// The worst lateness.
    pub late_max_ns: u64,
    /// The same net of the host's own lateness.
    pub late_net_max_ns: u64,
    /// Blocks that came before their release.
    pub early: u64,
    /// Requests that took longer than predicted.
    pub overruns: u64,
    /// Requests that failed.
    pub errors: u64,
    /// When the latest blocks were complete, oldest first, in nanoseconds of the monotonic clock.
    pub recent_blocks_ns: Vec<u64>,
    /// Why it is broken, if it is.
    pub failed: Option<String>,
}

/// One volume.
pub type VolumeStatus = crate::pool::VolumeInfo;

/// One account of buffers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct MemoryStatus {
    /// Whose.
    pub client: String,
    /// Guaranteed bytes.
    pub fixed_bytes: u64,
    /// Bytes of the shared part that it holds.
    pub variable_bytes: u64,
    /// Its buffers.
    pub buffers: u64,
    /// Bytes that it has been asked to give back and has not.
    pub asked_back_bytes: u64,
}

/// The pool.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Its scheduler.
    pub scheduler: String,
    /// How long it has been open.
    pub uptime_ns: u64,
    /// How long ago the window for latencies began.
    pub window_ns: u64,
    /// What is not as it should be.
    pub warnings: Vec<Warning>,
    /// Its extent size.
    pub extent_bytes: u64,
    /// Bytes in volumes.
    pub allocated_bytes: u64,
    /// Bytes that volumes could have.
    pub free_bytes: u64,
    /// Its metadata.
    pub metadata: MetadataStatus,
    /// Its disks.
    pub disks: Vec<DiskStatus>,
    /// Its open streams.
    pub streams: Vec<StreamStatus>,
    /// Disk time that best-effort clients have reserved.
    pub reservations: Vec<ShareStatus>,
    /// Its volumes.
    pub volumes: Vec<VolumeStatus>,
    /// Flushes that wait for a disk that does not answer.
    pub waits: Vec<WaitStatus>,
    /// Memory for buffers in all.
    pub memory_bytes: u64,
    /// Who has it.
    pub memory: Vec<MemoryStatus>,
    /// Best-effort latency of all disks in the window.
    pub best_effort: Latency,
}

/// The pool as it is now.
pub(crate) fn pool(core: &PoolCore) -> PoolStatus {
    let now = clock::now();
    let disks = (0..core.disks.len())
        .map(|index| disk(core, index, now))
        .collect();
    let streams: Vec<_> = core.admission.lock().streams.values().cloned().collect();
    let volumes: Vec<_> = core.volumes.read().values().cloned().collect();
    let volumes: Vec<_> = volumes
        .iter()
        .map(|volume| volumes::info(core, volume))
        .collect();
    let allocated = volumes.iter().map(|volume| volume.extents).sum::<u64>();
    let memory = core.memory.usage().into_iter().map(|usage| MemoryStatus {
        client: usage.name,
        fixed_bytes: usage.fixed.0,
        variable_bytes: usage.variable.0,
        buffers: u64::from(usage.buffers),
        asked_back_bytes: usage.asked_back.0,
    });
    PoolStatus {
        name: core.name.clone(),
        scheduler: core.policy.name().to_owned(),
        uptime_ns: now.saturating_since(core.opened).0,
        window_ns: now.saturating_since(core.window()).0,
        warnings: core.warnings.lock().clone(),
        extent_bytes: core.extent_bytes().0,
        allocated_bytes: allocated * core.extent_bytes().0,
        free_bytes: core.free_bytes(),
        metadata: health::metadata(core, now),
        disks,
        streams: streams.iter().map(|stream| stream.status()).collect(),
        reservations: shares(core),
        volumes,
        waits: waits(core),
        memory_bytes: core.memory.size().0,
        memory: memory.collect(),
        best_effort: core.latency.summary(),
    }
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

fn disk(core: &PoolCore, index: usize, now: Time) -> DiskStatus {
    let disk = &core.disks[index];
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
    let health = health::disk(core, disk);
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
