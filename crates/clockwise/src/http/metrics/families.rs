//! Metrics of the server, its pool, streams, volumes, exports and cameras.

use std::fmt;

use media::session::registry::SessionUse;

use super::sheet::{Kind, Metric, Sheet, counter, flag, gauge, labels, largest, seconds};
use super::{LiveReaders, Scrape};
use crate::wire::sources::{SourceState, SourceUse, SourceView};
use crate::wire::view::{ExportView, MemoryView, ShareView, StatusView, StreamView, VolumeView};

/// Writes the metrics of the process.
pub(super) fn server(sheet: &mut Sheet<'_>, scrape: &Scrape) -> fmt::Result {
    let version = labels([("version", env!("CARGO_PKG_VERSION"))]);
    let help = "Version of the server; always 1.";
    sheet.one(Kind::Largest, "build_info", help, [(version, 1.0)])?;
    let help = "Unix time of the server's start.";
    sheet.plain(
        Kind::Gauge,
        "start_time_seconds",
        help,
        scrape.start_unix_seconds,
    )?;
    let help = "Lines of the log that could not be written.";
    sheet.plain(
        Kind::Counter,
        "log_lines_lost",
        help,
        scrape.log_lines_lost as f64,
    )?;
    let help = "Calls, connections and cameras that were ended by a panic.";
    sheet.plain(
        Kind::Counter,
        "panics_survived",
        help,
        scrape.panics_survived as f64,
    )?;
    let help = "Warnings that the status shows.";
    sheet.plain(
        Kind::Gauge,
        "warnings",
        help,
        scrape.status.warnings.len() as f64,
    )
}

const POOL: &[Metric<StatusView>] = &[
    gauge("pool_extent_bytes", "Size of an extent.", |of| {
        of.extent_bytes as f64
    }),
    gauge("pool_allocated_bytes", "Bytes in volumes.", |of| {
        of.allocated_bytes as f64
    }),
    gauge(
        "pool_free_bytes",
        "Bytes that are free for volumes.",
        |of| of.free_bytes as f64,
    ),
    gauge(
        "metadata_frozen",
        "1 if the pool's metadata cannot be written, so that volumes cannot be changed.",
        |of| flag(of.metadata.frozen.is_some()),
    ),
    gauge(
        "metadata_frozen_seconds",
        "Time for which the metadata has been frozen.",
        |of| seconds(of.metadata.frozen_ns),
    ),
    gauge(
        "metadata_restart_needed",
        "1 if the metadata stays frozen until the server is restarted.",
        |of| flag(of.metadata.frozen.is_some() && !of.metadata.goes_on),
    ),
    counter(
        "metadata_freezes",
        "Times that the metadata was frozen.",
        |of| of.metadata.freezes as f64,
    ),
    counter("metadata_resumes", "Times that it has resumed.", |of| {
        of.metadata.resumes as f64
    }),
    gauge("memory_size_bytes", "Memory for buffers.", |of| {
        of.memory_bytes as f64
    }),
    gauge(
        "memory_guaranteed_bytes",
        "Memory that is guaranteed to streams, exports and others.",
        |of| sum(&of.memory, |one| one.fixed_bytes),
    ),
    gauge(
        "memory_shared_bytes",
        "Memory that they hold of the shared part.",
        |of| sum(&of.memory, |one| one.variable_bytes),
    ),
    gauge(
        "memory_asked_back_bytes",
        "Memory that they were asked to return and have not returned.",
        |of| sum(&of.memory, |one| one.asked_back_bytes),
    ),
    gauge("memory_buffers", "Buffers in use.", |of| {
        sum(&of.memory, |one| one.buffers)
    }),
];

fn sum(accounts: &[MemoryView], of: fn(&MemoryView) -> u64) -> f64 {
    accounts.iter().map(of).sum::<u64>() as f64
}

/// Writes the metrics of the pool, its metadata and its memory.
pub(super) fn pool(sheet: &mut Sheet<'_>, status: &StatusView) -> fmt::Result {
    let about = labels([("pool", &status.name), ("scheduler", &status.scheduler)]);
    let help = "The pool and its scheduler; always 1.";
    sheet.one(Kind::Largest, "pool_info", help, [(about, 1.0)])?;
    sheet.table(POOL, std::iter::once((labels([]), status)))
}

const STREAM: &[Metric<StreamView>] = &[
    gauge("streams", "Open streams.", |_| 1.0),
    gauge("stream_rate_bytes_per_second", "Reserved rate.", |stream| {
        stream.rate_bytes_per_second as f64
    }),
    largest("stream_block_bytes", "Size of a block.", |stream| {
        stream.block_bytes as f64
    }),
    counter("stream_blocks", "Blocks done.", |stream| {
        stream.blocks as f64
    }),
    counter(
        "stream_deadlines_missed",
        "Blocks that were late, net of the host's own lateness.",
        |stream| stream.misses as f64,
    ),
    counter(
        "stream_deadlines_missed_gross",
        "Blocks that were late, including the host's own lateness.",
        |stream| stream.misses_gross as f64,
    ),
    largest(
        "stream_lateness_max_seconds",
        "The worst lateness of a block, net of the host's own.",
        |stream| seconds(stream.late_net_max_ns),
    ),
    largest(
        "stream_lateness_gross_max_seconds",
        "The worst lateness of a block, including the host's own.",
        |stream| seconds(stream.late_max_ns),
    ),
    counter(
        "stream_early_blocks",
        "Blocks that were served before their release.",
        |stream| stream.early as f64,
    ),
    counter(
        "stream_overruns",
        "Requests that took longer than predicted.",
        |stream| stream.overruns as f64,
    ),
    counter(
        "stream_kept_bytes",
        "Bytes that were read with the previous block and not again.",
        |stream| stream.kept_bytes as f64,
    ),
    counter("stream_errors", "Requests that failed.", |stream| {
        stream.errors as f64
    }),
    gauge("stream_failed", "1 if the stream has failed.", |stream| {
        flag(stream.failed.is_some())
    }),
];

const RESERVATION: &[Metric<ShareView>] = &[
    largest(
        "reservation_slice_seconds",
        "Disk time that is reserved in each period, on each disk.",
        |share| seconds(share.slice_ns),
    ),
    largest("reservation_period_seconds", "That period.", |share| {
        seconds(share.period_ns)
    }),
];

/// The name of a stream for a label. The names of RTSP sessions contain the address of the peer, of which there may be
/// any number.
fn stream_name(stream: &StreamView) -> &str {
    let is_session = |verb: &str| {
        let rest = stream.name.strip_prefix("rtsp ");
        let rest = rest.and_then(|rest| rest.strip_suffix(&stream.volume));
        rest.is_some_and(|rest| rest.ends_with(verb))
    };
    if is_session(" plays ") || is_session(" records ") {
        return "rtsp";
    }
    &stream.name
}

/// Writes the metrics of streams, planned streams, and reservations of best effort.
pub(super) fn streams(sheet: &mut Sheet<'_>, status: &StatusView) -> fmt::Result {
    let streams = status.streams.iter().map(|stream| {
        let labels = labels([
            ("stream", stream_name(stream)),
            ("volume", &stream.volume),
            ("op", &stream.op),
        ]);
        (labels, stream)
    });
    sheet.table(STREAM, streams)?;
    let planned = |value: fn(u64) -> f64, ends: bool| {
        status.planned.iter().filter_map(move |planned| {
            let labels = labels([("stream", &planned.name), ("volume", &planned.volume)]);
            let at = if ends {
                planned.ends_in_ns?
            } else {
                planned.starts_in_ns
            };
            Some((labels, value(at)))
        })
    };
    let help = "Time until the span of a planned stream begins; 0 after that.";
    let starts = planned(seconds, false);
    sheet.one(
        Kind::Largest,
        "planned_stream_starts_in_seconds",
        help,
        starts,
    )?;
    let help = "Time until the span of a planned stream ends.";
    let ends = planned(seconds, true);
    sheet.one(Kind::Largest, "planned_stream_ends_in_seconds", help, ends)?;
    let shares = &status.reservations;
    let named = shares
        .iter()
        .map(|share| (labels([("reservation", &share.name)]), share));
    sheet.table(RESERVATION, named)?;
    let by_disk = || {
        shares.iter().flat_map(|share| {
            let of_disk = |disk| (share.name.as_str(), disk);
            share.disks.iter().map(of_disk)
        })
    };
    let of = |(name, disk)| labels([("reservation", name), ("disk", disk)]);
    let queued = by_disk().map(|(name, disk)| (of((name, &disk.disk)), disk.queued as f64));
    let help = "Requests of a reservation that wait for a disk.";
    sheet.one(Kind::Gauge, "reservation_requests_queued", help, queued)?;
    let done = by_disk().map(|(name, disk)| (of((name, &disk.disk)), disk.completed as f64));
    let help = "Requests of a reservation that were completed, including those in slack.";
    sheet.one(Kind::Counter, "reservation_requests_completed", help, done)
}

const VOLUME: &[Metric<VolumeView>] = &[
    gauge("volume_size_bytes", "Size of the volume.", |volume| {
        volume.size_bytes as f64
    }),
    gauge(
        "volume_written_bytes",
        "The written part of the volume, in whole chunks.",
        |volume| volume.written_bytes as f64,
    ),
    gauge(
        "volume_users",
        "Users that have the volume open.",
        |volume| volume.open_count as f64,
    ),
    gauge(
        "volume_read_only",
        "1 if the volume takes no more writes after an error.",
        |volume| flag(volume.poisoned.is_some()),
    ),
    gauge(
        "volume_extents_to_move",
        "Extents that the running move of the volume has not moved yet.",
        |volume| {
            let moving = volume.moving.as_ref();
            moving.map_or(0.0, |of| of.total.saturating_sub(of.done) as f64)
        },
    ),
];

/// Writes the metrics of volumes.
pub(super) fn volumes(sheet: &mut Sheet<'_>, status: &StatusView) -> fmt::Result {
    let volumes = &status.volumes;
    sheet.table(
        VOLUME,
        volumes
            .iter()
            .map(|volume| (labels([("volume", &volume.name)]), volume)),
    )?;
    let extents = volumes.iter().flat_map(|volume| {
        volume.extents_by_disk.iter().map(|of| {
            let labels = labels([("volume", &volume.name), ("disk", &of.disk)]);
            (labels, of.extents as f64)
        })
    });
    let help = "Extents of the volume on a disk.";
    sheet.one(Kind::Gauge, "volume_extents", help, extents)?;
    let waits = status.waits.iter().map(|wait| {
        let labels = labels([("volume", &wait.volume), ("disk", &wait.disk)]);
        (labels, seconds(wait.waits_ns))
    });
    let help = "Time for which a flush of the volume has waited for a disk that does not answer.";
    sheet.one(Kind::Largest, "volume_flush_waits_seconds", help, waits)
}

const EXPORT: &[Metric<ExportView>] = &[
    gauge("export_clients", "Connections, or open files.", |of| {
        of.clients as f64
    }),
    counter(
        "export_requests",
        "Requests answered, including errors.",
        |of| of.requests as f64,
    ),
    counter("export_errors", "Requests answered with an error.", |of| {
        of.errors as f64
    }),
    counter("export_read_bytes", "Bytes read for clients.", |of| {
        of.read_bytes as f64
    }),
    counter("export_written_bytes", "Bytes written for clients.", |of| {
        of.written_bytes as f64
    }),
];

/// Writes the metrics of the protocols that export volumes.
pub(super) fn exports(sheet: &mut Sheet<'_>, status: &StatusView) -> fmt::Result {
    let exports = status.exports.iter();
    sheet.table(
        EXPORT,
        exports.map(|export| (labels([("protocol", &export.protocol)]), export)),
    )
}

const CAMERA: &[Metric<SourceView>] = &[
    counter(
        "camera_packets",
        "Packets in the camera's present recording; begins anew with each recording.",
        |of| of.packets as f64,
    ),
    counter("camera_bytes", "Bytes of these packets.", |of| {
        of.bytes as f64
    }),
    counter(
        "camera_lost_packets",
        "Packets missing among these.",
        |of| of.lost as f64,
    ),
    counter(
        "camera_gaps",
        "Times that this recording continued after the camera was lost.",
        |of| of.gaps as f64,
    ),
    counter(
        "camera_gap_seconds",
        "Duration of these gaps, without a gap that has not ended.",
        |of| seconds(of.gap_ns),
    ),
];

const STATES: [(SourceState, &str); 6] = [
    (SourceState::Connecting, "connecting"),
    (SourceState::Recording, "recording"),
    (SourceState::Waiting, "waiting"),
    (SourceState::Refused, "refused"),
    (SourceState::Idle, "idle"),
    (SourceState::Ended, "ended"),
];

/// Writes the metrics of cameras and other sources.
pub(super) fn cameras(sheet: &mut Sheet<'_>, sources: &[SourceView]) -> fmt::Result {
    let about = sources.iter().map(|source| {
        let used = match source.used {
            SourceUse::Record => "record",
            SourceUse::LiveOnly => "live-only",
            SourceUse::OnDemand => "on-demand",
        };
        let named = [
            ("camera", source.name.as_str()),
            ("volume", &source.volume),
            ("use", used),
        ];
        (labels(named), 1.0)
    });
    let help = "A camera, its volume or live stream, and the use of its packets; always 1.";
    sheet.one(Kind::Largest, "camera_info", help, about)?;
    let recorded = sources.iter().filter(|of| of.used == SourceUse::Record);
    let recording = recorded.map(|source| {
        let is_recording = source.state == SourceState::Recording;
        (labels([("camera", &source.name)]), flag(is_recording))
    });
    let help = "1 if the camera is recorded now, 0 if not; absent for a camera that is not to be recorded.";
    sheet.one(Kind::Largest, "camera_recording", help, recording)?;
    let states = sources.iter().flat_map(|source| {
        STATES.map(|(state, word)| {
            let labels = labels([("camera", source.name.as_str()), ("state", word)]);
            (labels, flag(source.state == state))
        })
    });
    let help = "1 for the present state of the camera, 0 for the others.";
    sheet.one(Kind::Largest, "camera_state", help, states)?;
    sheet.table(
        CAMERA,
        sources
            .iter()
            .map(|source| (labels([("camera", &source.name)]), source)),
    )
}

const USES: [(SessionUse, &str); 5] = [
    (SessionUse::Records, "records"),
    (SessionUse::Pulls, "pulls"),
    (SessionUse::Plays, "plays"),
    (SessionUse::Watches, "watches"),
    (SessionUse::Relays, "relays"),
];

const LIVE: &[Metric<LiveReaders>] = &[gauge(
    "live_readers",
    "Readers of the live stream, in all protocols.",
    |of| of.readers as f64,
)];

/// Writes the metrics of sessions over RTSP and of live streams.
pub(super) fn sessions(sheet: &mut Sheet<'_>, scrape: &Scrape) -> fmt::Result {
    let sessions = USES.iter().map(|(used, word)| {
        let count = scrape.sessions.iter().filter(|does| *does == used).count();
        (labels([("use", *word)]), count as f64)
    });
    let help = "Sessions over RTSP, by their use.";
    sheet.one(Kind::Gauge, "sessions", help, sessions)?;
    let live = scrape.live.iter();
    sheet.table(
        LIVE,
        live.map(|live| (labels([("stream", &live.name)]), live)),
    )
}
