//! The engine's status as the API sends it. Times are in nanoseconds, sizes in bytes, shares from 0 to 1.

mod pool;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ask::MoveProgress;
use super::service_times::ServiceTimesView;

pub use self::pool::PoolView;

/// Defines the API's form of a plain struct of the engine, with a conversion that copies each field. `lists`
/// are converted element by element, `options` if they are there; `besides` are fields that the engine's struct does not have.
macro_rules! view {
    (
        $(#[$meta:meta])* $view:ident from $source:ty { $($(#[$doc:meta])* $field:ident: $kind:ty,)* }
        $(lists { $($(#[$list_doc:meta])* $list:ident: $element:ty,)* })?
        $(options { $($(#[$option_doc:meta])* $option:ident: $inner:ty,)* })?
        $(besides { $($(#[$more_doc:meta])* $more:ident: $more_kind:ty,)* })?
    ) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
        pub struct $view {
            $($(#[$doc])* pub $field: $kind,)*
            $($($(#[$list_doc])* pub $list: Vec<$element>,)*)?
            $($($(#[$option_doc])* #[serde(default)] pub $option: Option<$inner>,)*)?
            $($($(#[$more_doc])* #[serde(default)] pub $more: $more_kind,)*)?
        }

        impl From<$source> for $view {
            fn from(source: $source) -> Self {
                Self {
                    $($field: source.$field.into(),)*
                    $($($list: source.$list.into_iter().map(<$element>::from).collect(),)*)?
                    $($($option: source.$option.map(<$inner>::from),)*)?
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
        /// Number of requests.
        count: u64,
        /// The mean, in nanoseconds.
        mean_ns: u64,
        /// The median.
        p50_ns: u64,
        /// The 99th percentile.
        p99_ns: u64,
        /// The maximum.
        max_ns: u64,
    }
}

view! {
    /// Requests served, by the rule that started them.
    #[derive(Copy, Default)]
    ByClassView from engine::status::ByClass {
        /// Of streams, after their release.
        real_time: u64,
        /// Of streams, before their release.
        early: u64,
        /// Best effort in slack.
        slack: u64,
        /// Best effort in the container of a periodic server or the floor.
        container: u64,
    }
}

view! {
    /// Requests completed, by their origin.
    #[derive(Copy, Default)]
    CompletedView from engine::status::Completed {
        /// Of streams.
        streams: u64,
        /// Best effort that a client waits for: reads, forced writes, flushes.
        sync: u64,
        /// Best effort that no client waits for.
        asynchronous: u64,
    }
}

view! {
    /// The link that a disk shares with others.
    #[derive(Eq, Default)]
    LinkView from engine::status::LinkStatus {
        /// Its name.
        name: String,
        /// Its rate.
        rate_bytes_per_second: u64,
        /// The rate of all streams on its disks.
        promised_bytes_per_second: u64,
        /// True if the disk promises; false if it serves best effort only, in the place of another one.
        promises: bool,
    }
}

view! {
    /// A disk: its properties, its promises and its counters.
    #[derive(Default)]
    DiskView from engine::status::DiskStatus {
        /// Its name.
        name: String,
        /// Its size.
        size_bytes: u64,
        /// Its drive profile.
        profile: String,
        /// True if that profile was measured; otherwise it is a conservative estimate.
        profile_is_measured: bool,
        /// The method by which writes become durable: `write-through`, `fua` or `host`.
        durability: String,
        /// The most outstanding requests.
        outstanding: u32,
        /// The start of each zone, in bytes, the outermost zone first.
        zone_starts_bytes: Vec<u64>,
        /// The share of its time that is promised.
        utilization_promised: f64,
        /// The part of that share that ended streams and exports still hold: each keeps its share until its
        /// last deadline.
        #[serde(default)]
        utilization_leaving: f64,
        /// The time until all of that part is free; 0 if there is none.
        #[serde(default)]
        leaving_ns: u64,
        /// The share of time that it was busy since the window began.
        utilization_measured: f64,
        /// Delta-L of the promised tasks (corrected form).
        delta_l_ns: u64,
        /// The present slack.
        slack_ns: u64,
        /// The share that is kept for best effort without a reservation.
        floor: f64,
        /// Number of queued requests.
        queued: u64,
        /// Requests served since the pool was opened.
        served: ByClassView,
        /// Requests completed since the pool was opened. A divided request is served in parts but completed
        /// once.
        completed: CompletedView,
        /// Deadlines missed, net of the host's own lateness.
        misses: u64,
        /// Deadlines missed, including the host's own lateness.
        misses_gross: u64,
        /// The worst lateness, including the host's own.
        late_max_ns: u64,
        /// The worst lateness, net of the host's own.
        late_net_max_ns: u64,
        /// Requests that took longer than predicted, net of the host's own lateness.
        overruns: u64,
        /// The longest overrun.
        overrun_max_ns: u64,
        /// The ratio of actual to predicted service time, over all requests.
        actual_over_predicted: f64,
        /// The largest such ratio of a request, net of the host's own lateness. Above 1 it is an overrun, and
        /// the profile would have to be wider by that factor.
        actual_over_predicted_max: f64,
        /// Number of times that the host was late.
        host_late_count: u64,
        /// The worst lateness of the host.
        host_late_max_ns: u64,
        /// Bytes read since the pool was opened.
        read_bytes: u64,
        /// Bytes written since the pool was opened.
        written_bytes: u64,
        /// Best-effort latency in the window.
        best_effort: LatencyView,
        /// Failed requests. Requests that are refused because the disk has failed or was given up do not
        /// count.
        errors: u64,
        /// Failed reads.
        #[serde(default)]
        read_errors: u64,
        /// Failed writes.
        #[serde(default)]
        write_errors: u64,
        /// The reason of the last failure.
        #[serde(default)]
        last_error: Option<String>,
        /// Places that are not used any more, because transfers failed there.
        #[serde(default)]
        bad_places: u64,
        /// Places that are used for best effort only, because requests there took longer than predicted.
        #[serde(default)]
        slow_places: u64,
        /// The longest time beyond the prediction at a slow place.
        #[serde(default)]
        slow_extra_max_ns: u64,
        /// Bad places, and slow ones under a reservation, whose data has not been moved away.
        #[serde(default)]
        places_to_leave: u64,
        /// The time for which it has not answered, once it counts as stalled; 0 otherwise.
        stalled_ns: u64,
        /// Number of stalls.
        stalls: u64,
        /// Number of stalls after which it has answered again.
        #[serde(default)]
        comebacks: u64,
        /// Number of times that it was given up after a long stall.
        #[serde(default)]
        given_ups: u64,
        /// Why it has failed, or why nothing on it can be made durable.
        failed: Option<String>,
    }
    options {
        /// The link that it shares, if it does.
        link: LinkView,
    }
    besides {
        /// Why its profile does not count as measured, if it states a measurement.
        profile_doubt: Option<String>,
        /// Its service times with the present profile, over all restarts of the server.
        service_times: ServiceTimesView,
        /// Counters of the drive itself, where `smartctl` tells them.
        smart: Option<SmartView>,
    }
}

/// Counters that a drive keeps of its own places (SMART), as `smartctl` told them last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SmartView {
    /// Sectors that the drive could not read and has not replaced.
    pub pending_sectors: Option<u64>,
    /// Sectors that the drive has replaced by others.
    pub reallocated_sectors: Option<u64>,
}

view! {
    /// The pool's metadata: its volumes, their extents, and their written chunks.
    #[derive(Eq, Default)]
    MetadataView from engine::status::MetadataStatus {
        /// Why it is frozen: a disk does not accept a write of metadata. While it is frozen, no volume can be
        /// created, changed or deleted, and no flush of newly written chunks succeeds; everything else works.
        frozen: Option<String>,
        /// For how long it has been frozen.
        frozen_ns: u64,
        /// True if it resumes by itself when the disk accepts that write; false if the server has to be
        /// restarted.
        goes_on: bool,
        /// Number of times that it was frozen.
        freezes: u64,
        /// Number of times that it has resumed.
        resumes: u64,
    }
}

view! {
    /// A stream's reservation on one disk.
    StreamDiskView from engine::status::StreamDisk {
        /// The disk's name.
        disk: String,
        /// The worst-case service time of a block on that disk.
        service_ns: u64,
        /// The least time between two of its blocks on that disk.
        period_ns: u64,
    }
}

view! {
    /// A stream: its reservation, and counters of its blocks.
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
        /// Blocks that were late, net of the host's own lateness.
        misses: u64,
        /// Blocks that were late, including the host's own lateness.
        misses_gross: u64,
        /// The worst lateness, including the host's own.
        late_max_ns: u64,
        /// The worst lateness, net of the host's own.
        late_net_max_ns: u64,
        /// Blocks that were served before their release.
        early: u64,
        /// Requests that took longer than predicted.
        overruns: u64,
        /// Bytes that were read with the rest of the previous block's last track, and not again.
        #[serde(default)]
        kept_bytes: u64,
        /// Requests that failed.
        errors: u64,
        /// The completion times of the latest blocks, oldest first, on the monotonic clock.
        recent_blocks_ns: Vec<u64>,
        /// Why it has failed, if it has.
        failed: Option<String>,
    }
    lists {
        /// Its reservation on each disk.
        disks: StreamDiskView,
    }
}

/// The number of a volume's extents on a disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ExtentsOnDisk {
    /// The disk's name.
    pub disk: String,
    /// Number of extents.
    pub extents: u64,
}

impl From<(String, u64)> for ExtentsOnDisk {
    fn from((disk, extents): (String, u64)) -> Self {
        Self { disk, extents }
    }
}

view! {
    /// A run of neighbouring extents of a volume that are also neighbours in one zone of a disk.
    #[derive(Eq)]
    PlaceView from engine::pool::PlaceRun {
        /// Their start in the volume.
        offset_bytes: u64,
        /// Number of these extents.
        extents: u64,
        /// The disk's name.
        disk: String,
        /// Their start on the disk.
        from_byte: u64,
        /// Their end on the disk.
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
        /// The written part of it, in whole chunks.
        written_bytes: u64,
        /// Number of its extents.
        extents: u64,
        /// Number of users that have it open.
        open_count: u64,
        /// Its users.
        users: Vec<String>,
        /// Why it takes no more writes, if it takes none.
        poisoned: Option<String>,
    }
    lists {
        /// Its extents by disk.
        extents_by_disk: ExtentsOnDisk,
    }
    besides {
        /// The progress of a move of its extents, while one is running.
        moving: Option<MoveProgress>,
    }
}

view! {
    /// A reservation's counters on one disk.
    #[derive(Eq)]
    ShareDiskView from engine::status::ShareDisk {
        /// The disk's name.
        disk: String,
        /// Number of queued requests.
        queued: u64,
        /// Requests completed since the reservation was made, including those in slack.
        completed: u64,
    }
}

view! {
    /// Disk time that is reserved for best effort, such as an export's.
    #[derive(Eq)]
    ShareView from engine::status::ShareStatus {
        /// Its name.
        name: String,
        /// The reserved disk time in each period, on each disk.
        slice_ns: u64,
        /// The period.
        period_ns: u64,
    }
    lists {
        /// Its counters on each disk.
        disks: ShareDiskView,
    }
}

view! {
    /// A flush, or a write that must be durable, that waits for a disk that does not answer.
    #[derive(Eq)]
    WaitView from engine::status::WaitStatus {
        /// The volume.
        volume: String,
        /// The disk.
        disk: String,
        /// The time for which it has been waiting.
        waits_ns: u64,
        /// The time for which the disk has not answered.
        stalled_ns: u64,
    }
}

view! {
    /// An account of buffers.
    MemoryView from engine::status::MemoryStatus {
        /// The owner of the account.
        client: String,
        /// Guaranteed bytes.
        fixed_bytes: u64,
        /// Bytes that it holds of the shared part.
        variable_bytes: u64,
        /// Its buffers.
        buffers: u64,
        /// Bytes that it was asked to return and has not returned.
        asked_back_bytes: u64,
    }
}

view! {
    /// A warning.
    #[derive(Eq)]
    WarningView from engine::status::Warning {
        /// The text of the warning.
        what: String,
        /// The disks and parts of the host that it concerns, by name; empty if it concerns the whole pool.
        concerns: Vec<String>,
    }
}

/// A stream that is reserved for a time span.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PlannedView {
    /// The number of its session.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Its volume.
    pub volume: String,
    /// The time until its span begins; 0 after that.
    pub starts_in_ns: u64,
    /// The time until its span ends, 0 after that; absent if it holds until it is ended.
    pub ends_in_ns: Option<u64>,
}

view! {
    /// A protocol that exports volumes as block devices: its addresses, and its counters since the server was
    /// started.
    ExportView from crate::exports::ExportStatus {
        /// Its section of the configuration: `nbd` or `fuse`.
        protocol: String,
        /// Where clients reach it: paths of sockets and mounts, addresses.
        at: Vec<String>,
        /// Its present clients: connections, or open files.
        clients: u64,
        /// Requests answered, including errors.
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
    /// The whole status.
    #[derive(Default)]
    StatusView from engine::status::PoolStatus {
        /// The pool's name.
        name: String,
        /// Its scheduler.
        scheduler: String,
        /// The time since it was opened.
        uptime_ns: u64,
        /// The time since the window for latencies began.
        window_ns: u64,
        /// Its extent size.
        extent_bytes: u64,
        /// Bytes in volumes.
        allocated_bytes: u64,
        /// Bytes that are free for volumes.
        free_bytes: u64,
        /// Its metadata.
        #[serde(default)]
        metadata: MetadataView,
        /// Total memory for buffers.
        memory_bytes: u64,
        /// Best-effort latency of all disks in the window.
        best_effort: LatencyView,
    }
    lists {
        /// Warnings.
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
        /// The accounts of that memory.
        memory: MemoryView,
    }
    besides {
        /// The streams that are reserved for a time span.
        planned: Vec<PlannedView>,
        /// The protocols that export its volumes as block devices.
        exports: Vec<ExportView>,
    }
}
