//! A stream from its reservation to its report.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use indicatif::ProgressBar;
use sched::units::Bytes;

use super::Common;
use super::peer::Peer;
use super::report::report_text;
use crate::client::ApiClient;
use crate::cmd::{Output, block_on};
use crate::failure::{Failure, host_failure, io_failure};
use crate::http::ask::{ReserveStream, StreamOp};
use crate::session::{BlockView, Reserved, SessionState, SessionView, data};

/// How often the report is asked for while a stream runs.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);

/// What to do about a stream that broke.
const EARLY_HELP: &str = "what was complete is kept; `clockwise status` shows whether a disk has failed, the server's log says more";

/// A whole session: reserve, move, report.
pub(super) fn session(
    client: &ApiClient,
    common: &Common,
    peer: Peer,
    wraps: bool,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let limit = common
        .seconds
        .map(|seconds| common.rate.get().saturating_mul(seconds));
    let ask = ReserveStream {
        name: common.name.clone(),
        volume: common.volume.clone(),
        op: peer.op(),
        rate_bytes_per_second: common.rate.get(),
        block_bytes: common.block.map(Bytes::get),
        offset_bytes: common.offset.map_or(0, Bytes::get),
        length_bytes: common.length.map(Bytes::get),
        limit_bytes: limit,
        wraps,
        connect_within_ms: None,
    };
    let what = if ask.op == StreamOp::Record {
        "recording"
    } else {
        "playing"
    };
    let report = block_on(async {
        let reserved: Reserved = client.post("/v1/streams", &ask).await?;
        let path = format!("/v1/streams/{}", reserved.id);
        let connection = data::connect(Path::new(&reserved.data_socket), &reserved.token)?;
        let handle = connection
            .try_clone()
            .map_err(|error| host_failure("use the data connection", &error))?;
        let bar = output.byte_progress(limit, what);
        let doing = peer.doing();
        let moving = tokio::task::spawn_blocking(move || peer.run(connection, limit));
        let moved = accompany(client, &path, moving, &handle, ask.op, &bar).await;
        bar.finish_and_clear();
        if let Some(file) = &common.blocks {
            write_blocks(client, &path, file).await?;
        }
        let report: SessionView = client.delete(&path).await?;
        moved.map_err(|error| {
            if error.kind() == io::ErrorKind::ConnectionReset {
                let what = format!("{what} ended early: the server closed the connection");
                return Failure::failed(what).help(EARLY_HELP);
            }
            let failure = host_failure(&doing, &error);
            Failure {
                what: format!("{what} ended early: {}", failure.what),
                ..failure
            }
        })?;
        Ok(report)
    })?;
    output.result(&report, || report_text(&report))?;
    conclude(&report)
}

/// Shows how far the stream is until it ends; Ctrl-C ends it.
async fn accompany(
    client: &ApiClient,
    path: &str,
    mut moving: tokio::task::JoinHandle<io::Result<()>>,
    connection: &UnixStream,
    op: StreamOp,
    bar: &ProgressBar,
) -> io::Result<()> {
    let mut ticks = tokio::time::interval(REPORT_INTERVAL);
    let mut is_interrupted = false;
    loop {
        tokio::select! {
            moved = &mut moving => {
                return match moved {
                    Ok(Err(_)) if is_interrupted => Ok(()),
                    Ok(moved) => moved,
                    Err(error) => Err(io::Error::other(error)),
                };
            }
            _ = ticks.tick() => {
                if let Ok(report) = client.get::<SessionView>(path).await {
                    bar.set_position(report.pace.bytes);
                    bar.set_message(format!("{} blocks, {} late, {} underruns", report.pace.blocks, report.pace.misses, report.pace.underruns));
                }
            }
            _ = tokio::signal::ctrl_c() => {
                is_interrupted = true;
                // What was sent is recorded; what was asked to be played is not wanted any more.
                let how = if op == StreamOp::Record { Shutdown::Write } else { Shutdown::Both };
                let _ = connection.shutdown(how);
            }
        }
    }
}

async fn write_blocks(client: &ApiClient, path: &str, file: &Path) -> Result<(), Failure> {
    let mut text = String::from(
        "index,offset,bytes,submitted_ns,deadline_ns,completed_ns,late_ns,late_net_ns\n",
    );
    let mut from = 0;
    loop {
        let blocks: Vec<BlockView> = client.get(&format!("{path}/blocks?from={from}")).await?;
        let Some(last) = blocks.last() else { break };
        from = last.index + 1;
        for b in &blocks {
            let _ = writeln!(
                text,
                "{},{},{},{},{},{},{},{}",
                b.index,
                b.offset,
                b.bytes,
                b.submitted_ns,
                b.deadline_ns.map_or_else(String::new, |ns| ns.to_string()),
                b.completed_ns,
                b.late_ns,
                b.late_net_ns
            );
        }
    }
    if file == Path::new("-") {
        return io::stderr()
            .write_all(text.as_bytes())
            .map_err(|error| host_failure("write to standard error", &error));
    }
    std::fs::write(file, text).map_err(|error| io_failure("write", file, &error))
}

/// The exit status that a report deserves.
fn conclude(report: &SessionView) -> Result<ExitCode, Failure> {
    if let SessionState::Failed(reason) = &report.state {
        return Err(Failure::failed(format!("the stream ended early: {reason}")).help(EARLY_HELP));
    }
    if report.pace.misses > 0 {
        return Err(Failure::failed(format!(
            "{} of {} blocks were later than promised",
            report.pace.misses, report.pace.blocks
        ))
        .help("`clockwise status` shows overruns: a drive slower than its profile says"));
    }
    Ok(ExitCode::SUCCESS)
}
