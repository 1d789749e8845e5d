//! `clockwise status`: what is promised and what happened, taken from what happened.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use sched::units::{Bytes, BytesPerSecond, Nanos};

use super::output::{percent, short, table};
use super::picture::picture;
use super::{Output, block_on, warnings};
use crate::client::ApiClient;
use crate::failure::Failure;
use crate::http::view::{LatencyView, StatusView};
use crate::quantity::{Rate, Size, Span, parse_time};

/// What to show.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Show it again and again until Ctrl-C; with --json, a value each time.
    #[arg(long)]
    watch: bool,
    /// How often, with --watch.
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "1s", requires = "watch")]
    interval: Nanos,
}

pub(super) fn run(client: &ApiClient, args: &Args, output: &Output) -> Result<ExitCode, Failure> {
    block_on(async {
        let mut ticks = tokio::time::interval(Duration::from_nanos(args.interval.get()));
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = tokio::signal::ctrl_c() => return Ok(ExitCode::SUCCESS),
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

fn span(nanos: u64) -> String {
    Span(Nanos(nanos)).to_string()
}

/// Slack for people. Where nothing is promised there is no end to it.
pub(super) fn slack(nanos: u64) -> String {
    if nanos >= i64::MAX as u64 {
        "any".to_owned()
    } else {
        span(nanos)
    }
}

/// A latency distribution in one line.
#[must_use]
pub fn latency(latency: &LatencyView) -> String {
    if latency.count == 0 {
        return "no requests".to_owned();
    }
    format!(
        "mean {}  p50 {}  p99 {}  max {}  ({} requests)",
        span(latency.mean_ns),
        span(latency.p50_ns),
        span(latency.p99_ns),
        span(latency.max_ns),
        latency.count
    )
}

/// The status as text for people.
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
    text += &streams(status);
    let _ = write!(
        text,
        "\n\nbest effort, last {}: {}\n",
        span(status.window_ns),
        latency(&status.best_effort)
    );
    let names = status.disks.iter().map(|disk| disk.name.as_str());
    text += &warnings::lines(&status.warnings, names);
    for disk in &status.disks {
        if let Some(reason) = &disk.failed {
            let _ = writeln!(text, "FAILED {}: {reason}", disk.name);
        } else if disk.stalled_ns > 0 {
            let silent = span(disk.stalled_ns);
            let _ = writeln!(
                text,
                "STALLED {}: no answer for {silent}; what it was asked waits",
                disk.name
            );
        }
    }
    for wait in &status.waits {
        let _ = writeln!(
            text,
            "WAITS flush of volume {} waits for disk {} (stalled for {})",
            wait.volume,
            wait.disk,
            span(wait.stalled_ns)
        );
    }
    text
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
            "REAL-TIME",
            "EARLY",
            "IN SLACK",
            "IN FLOOR",
            "MISSES",
            "OVERRUNS",
            "HOST LATE",
        ],
        &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13],
        status.disks.iter().map(|disk| {
            [
                short(&disk.name),
                percent(disk.utilization_promised),
                percent(disk.utilization_measured),
                percent(disk.floor),
                span(disk.delta_l_ns),
                slack(disk.slack_ns),
                disk.queued.to_string(),
                disk.served.real_time.to_string(),
                disk.served.early.to_string(),
                disk.served.slack.to_string(),
                disk.served.container.to_string(),
                disk.misses.to_string(),
                disk.overruns.to_string(),
                format!("{} ({})", disk.host_late_count, span(disk.host_late_max_ns)),
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
            "STATE",
        ],
        &[3, 4, 5, 6, 7, 8, 9],
        status.streams.iter().map(|stream| {
            [
                stream.name.clone(),
                stream.volume.clone(),
                stream.op.clone(),
                Rate(BytesPerSecond(stream.rate_bytes_per_second)).to_string(),
                Size(Bytes(stream.block_bytes)).to_string(),
                stream.disks.len().to_string(),
                stream.blocks.to_string(),
                stream.early.to_string(),
                stream.misses.to_string(),
                span(stream.late_net_max_ns),
                stream.failed.clone().unwrap_or_else(|| "well".to_owned()),
            ]
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_which_disk_is_said() {
        let nothing = serde_json::json!([]);
        let latency = serde_json::to_value(LatencyView::default()).unwrap();
        let status = serde_json::json!({
            "name": "films", "scheduler": "exact", "uptime_ns": 1, "window_ns": 1, "extent_bytes": 1,
            "allocated_bytes": 0, "free_bytes": 0, "memory_bytes": 0, "best_effort": latency,
            "warnings": nothing, "disks": nothing, "streams": nothing, "volumes": nothing,
            "memory": nothing,
            "waits": [{
                "volume": "x", "disk": "y", "waits_ns": 4_000_000_000_u64,
                "stalled_ns": 3_200_000_000_u64,
            }],
        });
        let status: StatusView = serde_json::from_value(status).unwrap();
        let text = render(&status);
        let last = text.lines().last().unwrap();
        assert_eq!(
            last,
            "WAITS flush of volume x waits for disk y (stalled for 3.20 s)"
        );
    }
}
