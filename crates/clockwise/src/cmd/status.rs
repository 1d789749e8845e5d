//! `clockwise status`: promises and measurements, from the server's counters.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use ::volume::name::shown;
use sched::units::{Bytes, BytesPerSecond, Nanos};
use tokio::signal::unix::{SignalKind, signal};

use super::block_on;
use crate::client::ApiClient;
use crate::failure::{Failure, host_failure};
use crate::print::{
    Output, latency, missed, percent, picture, short, slack, span, table, warning_lines,
};
use crate::quantity::{Rate, Size, parse_time};
use crate::wire::view::{DiskView, MetadataView, StatusView};

/// Options of `clockwise status`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Repeat until Ctrl-C; with --json, print one value each time.
    #[arg(long)]
    watch: bool,
    /// The time between two repetitions of --watch.
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "1s", requires = "watch")]
    interval: Nanos,
}

pub(super) fn run(client: &ApiClient, args: &Args, output: &Output) -> Result<ExitCode, Failure> {
    block_on(async {
        client.opened().await?;
        let mut ticks = tokio::time::interval(Duration::from_nanos(args.interval.get()));
        // Ctrl-C during a request must not be lost.
        let mut interrupts = signal(SignalKind::interrupt())
            .map_err(|error| host_failure("listen for Ctrl-C", &error))?;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = interrupts.recv() => return Ok(ExitCode::SUCCESS),
            }
            let status: StatusView = client.get("/v1/status").await?;
            if args.watch && !output.is_json() && std::io::stdout().is_terminal() {
                output.bytes(picture(&render(&status), std::io::stdout()).as_bytes())?;
            } else {
                output.result(&status, || render(&status))?;
            }
            if !args.watch || !output.has_reader() {
                return Ok(ExitCode::SUCCESS);
            }
        }
    })
}

/// The status as text.
#[must_use]
pub fn render(status: &StatusView) -> String {
    let mut text = format!(
        "pool {}   scheduler {}   open {}   {} of {} in volumes\n\n",
        status.name,
        status.scheduler,
        span(status.uptime_ns),
        Size(Bytes(status.allocated_bytes)),
        Size(Bytes(
            status.allocated_bytes.saturating_add(status.free_bytes)
        )),
    );
    text += &disks(status);
    text += "\n\n";
    text += &requests(status);
    text += "\n\n";
    text += &streams(status);
    if !status.planned.is_empty() {
        text += "\n\n";
        text += &planned(status);
    }
    if !status.reservations.is_empty() {
        text += "\n\n";
        text += &reservations(status);
    }
    if !status.exports.is_empty() {
        text += "\n\n";
        text += &exports(status);
    }
    let _ = write!(
        text,
        "\n\nbest effort, last {}: {}\n",
        span(status.window_ns),
        latency(&status.best_effort)
    );
    if shows_brackets(status) {
        text += "misses are net of the host's own lateness; numbers in brackets include it\n";
    }
    let names = status.disks.iter().map(|disk| disk.name.as_str());
    text += &warning_lines(&status.warnings, names);
    text += &frozen(&status.metadata);
    text += &disk_states(&status.disks);
    for volume in &status.volumes {
        if let Some(reason) = &volume.poisoned {
            let _ = writeln!(
                text,
                "NO MORE WRITES to volume {}: {reason}",
                shown(&volume.name)
            );
        }
    }
    for wait in &status.waits {
        let _ = writeln!(
            text,
            "WAITS flush of volume {} waits for disk {} (stalled for {})",
            shown(&wait.volume),
            wait.disk,
            span(wait.stalled_ns)
        );
    }
    text
}

/// The lines about disks that ended streams still hold, that have failed or stalled, or whose requests failed.
fn disk_states(disks: &[DiskView]) -> String {
    let mut text = String::new();
    for disk in disks {
        if disk.leaving_ns > 0 {
            let _ = writeln!(
                text,
                "ENDED streams and exports still hold {} of {}; all of it is free in {}",
                percent(disk.utilization_leaving),
                disk.name,
                span(disk.leaving_ns)
            );
        }
        if let Some(reason) = &disk.failed {
            let _ = writeln!(text, "FAILED {}: {reason}", disk.name);
        } else if disk.stalled_ns > 0 {
            let silent = span(disk.stalled_ns);
            let _ = writeln!(
                text,
                "STALLED {}: no answer for {silent}; its requests wait",
                disk.name
            );
        }
        if disk.errors > 0 {
            let _ = writeln!(
                text,
                "ERRORS {}: {} reads and {} writes failed; the last failure: {}",
                disk.name,
                disk.read_errors,
                disk.write_errors,
                disk.last_error.as_deref().unwrap_or("unknown")
            );
        }
    }
    text
}

/// The line about frozen metadata.
fn frozen(metadata: &MetadataView) -> String {
    let Some(reason) = &metadata.frozen else {
        return String::new();
    };
    let until = if metadata.goes_on {
        "until the disk accepts it"
    } else {
        "until the server is restarted"
    };
    format!(
        "FROZEN metadata, for {}, {until}: {reason}; no volume can be created, changed or deleted, and no flush of newly \
         written chunks succeeds; everything else works\n",
        span(metadata.frozen_ns)
    )
}

/// True if a number of misses is followed by one in brackets, which needs an explanation.
fn shows_brackets(status: &StatusView) -> bool {
    let disks = status.disks.iter();
    let streams = status.streams.iter();
    disks
        .map(|disk| (disk.misses, disk.misses_gross))
        .chain(streams.map(|stream| (stream.misses, stream.misses_gross)))
        .any(|(net, gross)| gross > net)
}

/// The table of disks.
#[must_use]
fn disks(status: &StatusView) -> String {
    table(
        [
            "DISK",
            "PROMISED",
            "BUSY",
            "FLOOR",
            "DELTA-L",
            "SLACK",
            "QUEUE",
            "MISSES",
            "OVERRUNS",
            "HOST LATE",
        ],
        &[1, 2, 3, 4, 5, 6, 7, 8, 9],
        status.disks.iter().map(|disk| {
            [
                short(&disk.name),
                percent(disk.utilization_promised),
                percent(disk.utilization_measured),
                percent(disk.floor),
                slack(disk.delta_l_ns),
                slack(disk.slack_ns),
                disk.queued.to_string(),
                missed(disk.misses, disk.misses_gross),
                disk.overruns.to_string(),
                format!("{} ({})", disk.host_late_count, span(disk.host_late_max_ns)),
            ]
        }),
    )
}

/// The table of requests: completed by origin, and served by the rule that started them. A divided request is
/// served in parts.
fn requests(status: &StatusView) -> String {
    table(
        [
            "REQUESTS",
            "OF STREAMS",
            "SYNC",
            "ASYNC",
            "REAL-TIME",
            "EARLY",
            "IN SLACK",
            "IN FLOOR",
        ],
        &[1, 2, 3, 4, 5, 6, 7],
        status.disks.iter().map(|disk| {
            [
                short(&disk.name),
                disk.completed.streams.to_string(),
                disk.completed.sync.to_string(),
                disk.completed.asynchronous.to_string(),
                disk.served.real_time.to_string(),
                disk.served.early.to_string(),
                disk.served.slack.to_string(),
                disk.served.container.to_string(),
            ]
        }),
    )
}

fn streams(status: &StatusView) -> String {
    if status.streams.is_empty() {
        return "no streams".to_owned();
    }
    table(
        [
            "STREAM",
            "VOLUME",
            "OP",
            "RATE",
            "BLOCK",
            "DISKS",
            "BLOCKS",
            "EARLY",
            "MISSES",
            "WORST LATE",
            "OVERRUNS",
            "STATE",
        ],
        &[3, 4, 5, 6, 7, 8, 9, 10],
        status.streams.iter().map(|stream| {
            [
                shown(&stream.name).into_owned(),
                shown(&stream.volume).into_owned(),
                stream.op.clone(),
                Rate(BytesPerSecond(stream.rate_bytes_per_second)).to_string(),
                Size(Bytes(stream.block_bytes)).to_string(),
                stream.disks.len().to_string(),
                stream.blocks.to_string(),
                stream.early.to_string(),
                missed(stream.misses, stream.misses_gross),
                span(stream.late_net_max_ns),
                stream.overruns.to_string(),
                stream.failed.clone().unwrap_or_else(|| "ok".to_owned()),
            ]
        }),
    )
}

/// The table of planned streams.
fn planned(status: &StatusView) -> String {
    table(
        ["PLANNED", "VOLUME", "ID", "BEGINS IN", "ENDS IN"],
        &[2, 3, 4],
        status.planned.iter().map(|planned| {
            let begins = match planned.starts_in_ns {
                0 => "has begun".to_owned(),
                nanos => span(nanos),
            };
            let ends = match planned.ends_in_ns {
                None => "when it is ended".to_owned(),
                Some(0) => "is over".to_owned(),
                Some(nanos) => span(nanos),
            };
            [
                shown(&planned.name).into_owned(),
                shown(&planned.volume).into_owned(),
                planned.id.to_string(),
                begins,
                ends,
            ]
        }),
    )
}

/// The table of disk time that is reserved for best effort.
fn reservations(status: &StatusView) -> String {
    table(
        [
            "RESERVED FOR",
            "SLICE",
            "PERIOD",
            "DISK",
            "QUEUE",
            "COMPLETED",
        ],
        &[1, 2, 4, 5],
        status.reservations.iter().flat_map(|share| {
            share.disks.iter().map(|disk| {
                [
                    shown(&share.name).into_owned(),
                    span(share.slice_ns),
                    span(share.period_ns),
                    short(&disk.disk),
                    disk.queued.to_string(),
                    disk.completed.to_string(),
                ]
            })
        }),
    )
}

/// The table of protocols that export volumes as block devices.
fn exports(status: &StatusView) -> String {
    table(
        [
            "EXPORT", "AT", "CLIENTS", "REQUESTS", "ERRORS", "READ", "WRITTEN",
        ],
        &[2, 3, 4, 5, 6],
        status.exports.iter().map(|export| {
            [
                export.protocol.clone(),
                match export.at.is_empty() {
                    true => "unreachable".to_owned(),
                    false => shown(&export.at.join(", ")).into_owned(),
                },
                export.clients.to_string(),
                export.requests.to_string(),
                export.errors.to_string(),
                Size(Bytes(export.read_bytes)).to_string(),
                Size(Bytes(export.written_bytes)).to_string(),
            ]
        }),
    )
}

#[cfg(test)]
mod tests;
