//! What the API says: the engine's account of what is promised and what happened, in the form that
//! goes over the wire. Times are in nanoseconds, sizes in bytes, shares of 1.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ask::MoveProgress;

/// A wire form of a plain value of the engine, field by field; what is said besides is not from there.
macro_rules! view {
    (
        $(#[$meta:meta])* $view:ident from $source:ty { $($(#[$doc:meta])* $field:ident: $kind:ty,)* }
        $(lists { $($(#[$list_doc:meta])* $list:ident: $element:ty,)* })?
        $(besides { $($(#[$more_doc:meta])* $more:ident: $more_kind:ty,)* })?
    ) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
        pub struct $view {
            $($(#[$doc])* pub $field: $kind,)*
            $($($(#[$list_doc])* pub $list: Vec<$element>,)*)?
            $($($(#[$more_doc])* #[serde(default)] pub $more: $more_kind,)*)?
        }

        impl From<$source> for $view {
            fn from(source: $source) -> Self {
                Self {
                    $($field: source.$field.into(),)*
                    $($($list: source.$list.into_iter().map(<$element>::from).collect(),)*)?
                    $($($more: Default::default(),)*)?
                }
            }
        }
    };
}

view! {
    /// A latency distribution.
    #[derive(Copy, Default)]
    LatencyView from engine::status::Latency {
        /// How many.
        count: u64,
        /// Their mean, in nanoseconds.
        mean_ns: u64,
        /// Half were no longer than this.
        p50_ns: u64,
        /// 99 in 100 were no longer than this.
        p99_ns: u64,
        /// The longest.
        max_ns: u64,
    }
}

view! {
    /// Requests served, by what let them go when they went.
    #[derive(Copy, Default)]
    ByClassView from engine::status::ByClass {
        /// Of streams, in their turn.
        real_time: u64,
        /// Of streams, before their release, in slack.
        early: u64,
        /// Best effort in slack.
        slack: u64,
        /// Best effort in the container of a periodic server or the floor.
        container: u64,
    }
}

view! {
    /// Requests completed, by on whose account and whether somebody waits.
    #[derive(Copy, Default)]
    CompletedView from engine::status::Completed {
        /// Of streams.
        streams: u64,
        /// Best effort that somebody waits for: reads, forced writes, flushes.
        sync: u64,
        /// Best effort that nobody waits for.
        asynchronous: u64,
    }
}

view! {
    /// A disk: what it is, what is promised of it, and what happened.
    #[derive(Default)]
    DiskView from engine::status::DiskStatus {
        /// Its name.
        name: String,
        /// Its size.
        size_bytes: u64,
        /// Its drive profile.
        profile: String,
        /// Whether that profile was measured; otherwise it is a conservative guess.
        profile_is_measured: bool,
        /// How writes become durable: `write-through`, `fua` or `host`.
        durability: String,
        /// Requests it is given at a time.
        outstanding: u32,
        /// Where its zones begin, in bytes, the outermost first.
        zone_starts_bytes: Vec<u64>,
        /// The share of its time that is promised.
        utilization_promised: f64,
        /// The part of that which streams and exports that have ended still hold: each keeps its share until
        /// its last deadline.
        #[serde(default)]
        utilization_leaving: f64,
        /// In how long all of that is free; 0: nothing is held so.
        #[serde(default)]
        leaving_ns: u64,
        /// The share of its time it was busy since the window began.
        utilization_measured: f64,
        /// Delta-L of what is promised (corrected).
        delta_l_ns: u64,
        /// Slack at this moment.
        slack_ns: u64,
        /// The share that best effort without a reservation keeps.
        floor: f64,
        /// Requests queued now.
        queued: u64,
        /// Requests served since the pool was opened.
        served: ByClassView,
        /// Requests completed since then; one that was divided is served in parts.
        completed: CompletedView,
        /// Deadlines missed, net of the host's own lateness.
        misses: u64,
        /// Deadlines missed with it.
        misses_gross: u64,
        /// The worst lateness.
        late_max_ns: u64,
        /// The same net of the host's own lateness.
        late_net_max_ns: u64,
        /// Requests that took longer than predicted, net of the host's own lateness.
        overruns: u64,
        /// The longest overrun.
        overrun_max_ns: u64,
        /// Actual over predicted service time in all.
        actual_over_predicted: f64,
        /// The same of the request for which it was most, net of the host's own lateness. More than 1 is an
        /// overrun, and by how much the disk's profile would have to be wider.
        actual_over_predicted_max: f64,
        /// How often the host was late.
        host_late_count: u64,
        /// The worst lateness of the host.
        host_late_max_ns: u64,
        /// Bytes read since the pool was opened.
        read_bytes: u64,
        /// Bytes written since the pool was opened.
        written_bytes: u64,
        /// Best-effort latency in the window.
        best_effort: LatencyView,
        /// Requests that were on it and failed. Refusals of a disk that is gone or given up do not count.
        errors: u64,
        /// Reads among them.
        #[serde(default)]
        read_errors: u64,
        /// Writes among them.
        #[serde(default)]
        write_errors: u64,
        /// What the last of them failed of.
        #[serde(default)]
        last_error: Option<String>,
        /// For how long it, or the host for it, has not answered, if that is so long that it counts as
        /// stalled; 0 otherwise.
        stalled_ns: u64,
        /// How often it has stalled.
        stalls: u64,
        /// How often it has answered again after that.
        #[serde(default)]
        comebacks: u64,
        /// How often it was given up, because it had stalled for too long.
        #[serde(default)]
        given_ups: u64,
        /// Why it is not served any more, or nothing on it can be made durable, if that is so.
        failed: Option<String>,
    }
}

view! {
    /// The pool's metadata: what volumes there are, where they lie, and what of them has been written.
    #[derive(Eq, Default)]
    MetadataView from engine::status::MetadataStatus {
        /// Why it is frozen, if it is: a disk does not take a write of it. No volume can be made, changed or
        /// deleted then, and no flush of newly written chunks succeeds; all else goes on.
        frozen: Option<String>,
        /// For how long it has been frozen.
        frozen_ns: u64,
        /// Whether it goes on by itself when the disk takes that write; otherwise when the server is started
        /// again.
        goes_on: bool,
        /// How often it was frozen.
        freezes: u64,
        /// How often it has gone on.
        resumes: u64,
    }
}

view! {
    /// A stream's part of one disk.
    StreamDiskView from engine::status::StreamDisk {
        /// The disk's name.
        disk: String,
        /// The worst-case service time of a block there.
        service_ns: u64,
        /// The least time between two of its blocks there.
        period_ns: u64,
    }
}

view! {
    /// A stream: what it was promised and what happened to its blocks.
    #[derive(Default)]
    StreamView from engine::status::StreamStatus {
        /// Its name.
        name: String,
        /// Its volume.
        volume: String,
        /// `record` or `play`.
        op: String,
        /// Its rate.
        rate_bytes_per_second: u64,
        /// Its block size.
        block_bytes: u64,
        /// Blocks done.
        blocks: u64,
        /// Blocks later than due, net of the host's own lateness.
        misses: u64,
        /// Blocks later than due with it.
        misses_gross: u64,
        /// The worst lateness.
        late_max_ns: u64,
        /// The same net of the host's own lateness.
        late_net_max_ns: u64,
        /// Blocks that came before their release.
        early: u64,
        /// Requests that took longer than predicted.
        overruns: u64,
        /// Requests that failed.
        errors: u64,
        /// When the latest blocks were complete, oldest first, on the monotonic clock.
        recent_blocks_ns: Vec<u64>,
        /// Why it is broken, if it is.
        failed: Option<String>,
    }
    lists {
        /// What it reserves where.
        disks: StreamDiskView,
    }
}

/// How many extents of a volume lie on a disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ExtentsOnDisk {
    /// The disk's name.
    pub disk: String,
    /// How many.
    pub extents: u64,
}

impl From<(String, u64)> for ExtentsOnDisk {
    fn from((disk, extents): (String, u64)) -> Self {
        Self { disk, extents }
    }
}

view! {
    /// Neighbouring extents of a volume that are neighbours in one zone of a disk as well.
    #[derive(Eq)]
    PlaceView from engine::pool::PlaceRun {
        /// Where in the volume they begin.
        offset_bytes: u64,
        /// How many there are.
        extents: u64,
        /// The disk's name.
        disk: String,
        /// Where on the disk they begin.
        from_byte: u64,
        /// Where on the disk they end.
        to_byte: u64,
        /// The zone of the disk.
        zone: u64,
    }
}

view! {
    /// A volume.
    VolumeView from engine::pool::VolumeInfo {
        /// Its name.
        name: String,
        /// Its size.
        size_bytes: u64,
        /// How much of it was written, to whole chunks.
        written_bytes: u64,
        /// How many extents it has.
        extents: u64,
        /// How many users have it open.
        open_count: u64,
        /// Who uses it.
        users: Vec<String>,
        /// Why it takes no more writes, if it does not.
        poisoned: Option<String>,
    }
    lists {
        /// Where they lie.
        extents_by_disk: ExtentsOnDisk,
    }
    besides {
        /// How far a move of its extents is, while there is one.
        moving: Option<MoveProgress>,
    }
}

view! {
    /// A reservation's part of one disk.
    #[derive(Eq)]
    ShareDiskView from engine::status::ShareDisk {
        /// The disk's name.
        disk: String,
        /// Requests queued now.
        queued: u64,
        /// Requests completed since it was reserved, those in slack included.
        completed: u64,
    }
}

view! {
    /// Disk time that is reserved for best effort, such as an export's.
    #[derive(Eq)]
    ShareView from engine::status::ShareStatus {
        /// Its name.
        name: String,
        /// Disk time in each period, on each disk.
        slice_ns: u64,
        /// The period.
        period_ns: u64,
    }
    lists {
        /// What has come of it.
        disks: ShareDiskView,
    }
}

view! {
    /// A flush of a volume, or a write that must be durable, that waits for a disk that does not answer.
    #[derive(Eq)]
    WaitView from engine::status::WaitStatus {
        /// The volume.
        volume: String,
        /// The disk.
        disk: String,
        /// For how long it has been under way.
        waits_ns: u64,
        /// For how long the disk has not answered.
        stalled_ns: u64,
    }
}

view! {
    /// An account of buffers.
    MemoryView from engine::status::MemoryStatus {
        /// Whose.
        client: String,
        /// Guaranteed bytes.
        fixed_bytes: u64,
        /// Bytes of the shared part that it holds.
        variable_bytes: u64,
        /// Its buffers.
        buffers: u64,
        /// Bytes that it was asked to give back and has not.
        asked_back_bytes: u64,
    }
}

view! {
    /// Something that is not as it should be.
    #[derive(Eq)]
    WarningView from engine::status::Warning {
        /// What, in words.
        what: String,
        /// The disks and parts of the host that it is about, by name; none if it is the whole pool.
        concerns: Vec<String>,
    }
}

/// A stream that is reserved for a time span, until it is ended or the span is over.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PlannedView {
    /// The number of its session.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Its volume.
    pub volume: String,
    /// In how long its span begins; 0 once that has begun.
    pub starts_in_ns: u64,
    /// In how long its span ends, 0 once that is over; none if it holds until it is ended.
    pub ends_in_ns: Option<u64>,
}

view! {
    /// A protocol that exports volumes as block devices: where it is reached, and what it has done since the
    /// server was started.
    ExportView from crate::exports::ExportStatus {
        /// Its section of the configuration: `nbd` or `fuse`.
        protocol: String,
        /// Where it is reached: paths of sockets and mounts, addresses.
        at: Vec<String>,
        /// Clients that it has now: connections, or files that are open.
        clients: u64,
        /// Requests answered, errors included.
        requests: u64,
        /// Requests answered with an error.
        errors: u64,
        /// Bytes read from volumes for clients.
        read_bytes: u64,
        /// Bytes written to volumes for clients.
        written_bytes: u64,
    }
}

view! {
    /// Everything at once.
    #[derive(Default)]
    StatusView from engine::status::PoolStatus {
        /// The pool's name.
        name: String,
        /// Its scheduler.
        scheduler: String,
        /// How long it has been open.
        uptime_ns: u64,
        /// How long ago the window for latencies began.
        window_ns: u64,
        /// Its extent size.
        extent_bytes: u64,
        /// Bytes in volumes.
        allocated_bytes: u64,
        /// Bytes that volumes could have.
        free_bytes: u64,
        /// Its metadata.
        #[serde(default)]
        metadata: MetadataView,
        /// Memory for buffers in all.
        memory_bytes: u64,
        /// Best-effort latency of all disks in the window.
        best_effort: LatencyView,
    }
    lists {
        /// What is not as it should be.
        warnings: WarningView,
        /// Its disks.
        disks: DiskView,
        /// Its open streams.
        streams: StreamView,
        /// Disk time that is reserved for best effort.
        reservations: ShareView,
        /// Its volumes.
        volumes: VolumeView,
        /// Flushes that wait for a disk that does not answer.
        waits: WaitView,
        /// Who has it.
        memory: MemoryView,
    }
    besides {
        /// Those of its streams that are reserved for a time span.
        planned: Vec<PlannedView>,
        /// The protocols that export its volumes as block devices.
        exports: Vec<ExportView>,
    }
}

/// The pool in short.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PoolView {
    /// Its name.
    pub name: String,
    /// Its scheduler.
    pub scheduler: String,
    /// How long it has been open.
    pub uptime_ns: u64,
    /// Its extent size.
    pub extent_bytes: u64,
    /// Bytes in volumes.
    pub allocated_bytes: u64,
    /// Bytes that volumes could have.
    pub free_bytes: u64,
    /// Memory for buffers in all.
    pub memory_bytes: u64,
    /// Its disks, by name.
    pub disks: Vec<String>,
    /// How many volumes it has.
    pub volumes: u64,
    /// How many streams are open.
    pub streams: u64,
    /// What is not as it should be.
    pub warnings: Vec<WarningView>,
}

impl From<StatusView> for PoolView {
    fn from(status: StatusView) -> Self {
        Self {
            disks: status.disks.iter().map(|disk| disk.name.clone()).collect(),
            volumes: status.volumes.len() as u64,
            streams: status.streams.len() as u64,
            name: status.name,
            scheduler: status.scheduler,
            uptime_ns: status.uptime_ns,
            extent_bytes: status.extent_bytes,
            allocated_bytes: status.allocated_bytes,
            free_bytes: status.free_bytes,
            memory_bytes: status.memory_bytes,
            warnings: status.warnings,
        }
    }
}
