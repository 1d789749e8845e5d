//! A stream from its reservation to its report.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use sched::units::{Bytes, Nanos};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::StreamOptions;
use super::blocks::BlockLog;
use super::peer::{Moved, Peer};
use super::report::report_text;
use super::target::is_one_file;
use crate::client::ApiClient;
use crate::cmd::block_on;
use crate::failure::{Failure, host_failure};
use crate::print::{Output, counted};
use crate::quantity::Size;
use crate::session::data;
use crate::wire::ask::{ReserveStream, StreamOp};
use crate::wire::streams::{Reserved, SessionState, SessionView};

/// The time between two requests for the report of a running stream.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);

/// Help for a stream that ended early.
const EARLY_HELP: &str = "`clockwise status` shows if a disk has failed, and the server's log has details; a recording is kept except for its last seconds";

/// Whole milliseconds, rounded up.
fn in_ms(time: Nanos) -> u64 {
    time.get().div_ceil(1_000_000)
}

/// Reserves a stream, moves its bytes, and prints its report.
pub(super) fn session(
    client: &ApiClient,
    options: &StreamOptions,
    ask: ReserveStream,
    peer: Peer,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let is_to_stdout = peer.is_to_stdout();
    let log = options.blocks.as_deref().map(BlockLog::open).transpose()?;
    if let (Some(log), Some((file, option))) = (log.as_ref().and_then(BlockLog::file), peer.file())
        && is_one_file(log, file)
    {
        return Err(
            Failure::bad_input(format!("{option} and --blocks name the same file")).help(
                "give another file with --blocks: the reports would overwrite the bytes of the stream",
            ),
        );
    }
    let (report, moved) = block_on(run(client, &ask, peer, log, output))?;
    if is_to_stdout {
        output.result_on_stderr(&report, || report_text(&report))?;
    } else {
        output.result(&report, || report_text(&report))?;
    }
    conclude(&report)?;
    // A stream with --ends-in may end before its source, as the user asked.
    if moved == Moved::Part && report.state == SessionState::Done && ask.ends_in_ms.is_none() {
        let recorded = Size(Bytes(report.pace.bytes));
        return Err(Failure::failed(format!(
            "the range is full: {recorded} were recorded, and the rest of the source was not"
        ))
        .help("`--wrap` continues at the beginning of the range and overwrites it; `clockwise volume grow` makes room"));
    }
    Ok(ExitCode::SUCCESS)
}

/// The reservation that the command line describes.
pub(super) fn ask(options: &StreamOptions, op: StreamOp, wraps: bool) -> ReserveStream {
    let rate = options.rate.get();
    ReserveStream {
        name: options.name.clone(),
        volume: options.volume.clone(),
        op,
        rate_bytes_per_second: rate,
        block_bytes: options.block.map(Bytes::get),
        offset_bytes: options.offset.map_or(0, Bytes::get),
        length_bytes: options.length.map(Bytes::get),
        limit_bytes: options.seconds.map(|seconds| rate.saturating_mul(seconds)),
        wraps,
        starts_in_ms: options.starts_in.map(in_ms),
        ends_in_ms: options.ends_in.map(in_ms),
        connect_within_ms: None,
        force: false,
    }
}

/// Reserves a stream and moves its bytes. Returns its report, and how much was moved.
async fn run(
    client: &ApiClient,
    ask: &ReserveStream,
    mut peer: Peer,
    mut log: Option<BlockLog>,
    output: &Output,
) -> Result<(SessionView, Moved), Failure> {
    client.opened().await?;
    // Ctrl-C during a request must not be lost.
    let mut interrupts =
        signal(SignalKind::interrupt()).map_err(|error| host_failure("wait for Ctrl-C", &error))?;
    let reserved: Reserved = client.post("/v1/streams", ask).await?;
    // The token is unique among all servers: if the server is restarted meanwhile, no other stream is named
    // by accident.
    let path = format!("/v1/streams/{}", reserved.token);
    let (connection, handle) = match begin(&reserved, &mut peer, log.as_mut()) {
        Ok(begun) => begun,
        Err(failure) => {
            // Releases the reservation now instead of at its timeout. If the server cannot be reached, the
            // timeout releases it.
            let _: Result<SessionView, _> = client.delete(&path).await;
            return Err(failure);
        }
    };
    let (what, limit) = (activity(ask.op), ask.limit_bytes);
    let bar = output.byte_progress(limit, what);
    let doing = peer.doing();
    let moving = tokio::task::spawn_blocking(move || peer.run(connection, limit));
    let mut monitor = StreamMonitor {
        client,
        path: &path,
        log,
        log_failure: None,
        last: None,
        begins: Instant::now() + Duration::from_millis(ask.starts_in_ms.unwrap_or(0)),
        output,
        is_silent: false,
    };
    let moved = monitor
        .until_end(moving, &handle, &mut interrupts, ask.op, &bar)
        .await;
    bar.finish_and_clear();
    let report = tokio::select! {
        report = monitor.last_report() => report,
        _ = interrupts.recv() => Err(report_not_awaited()),
    };
    let report = report.map_err(|failure| monitor.lost(ask.op, failure))?;
    let moved = moved.map_err(|error| ended_early(what, &doing, &error))?;
    monitor.log_failure.map_or(Ok(()), Err)?;
    if let Some(note) = monitor.log.and_then(|log| log.note()) {
        output.note(&note);
    }
    Ok((report, moved))
}

/// Opens the data connection, and returns two handles: one to move bytes, one to shut it down.
fn begin(
    reserved: &Reserved,
    peer: &mut Peer,
    log: Option<&mut BlockLog>,
) -> Result<(UnixStream, UnixStream), Failure> {
    let connection = data::connect(Path::new(&reserved.data_socket), &reserved.token)?;
    peer.begin()?;
    if let Some(log) = log {
        log.begin()?;
    }
    let handle = connection
        .try_clone()
        .map_err(|error| host_failure("use the data connection", &error))?;
    Ok((connection, handle))
}

fn activity(op: StreamOp) -> &'static str {
    match op {
        StreamOp::Record => "recording",
        StreamOp::Play => "playing",
    }
}

/// The failure of a transfer that ended early: the server closed the connection, or `doing` failed at this
/// end.
fn ended_early(what: &str, doing: &str, error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::ConnectionReset {
        let what = format!("{what} ended early: the server closed the connection");
        return Failure::failed(what).help(EARLY_HELP);
    }
    let failure = host_failure(doing, error);
    Failure {
        what: format!("{what} ended early: {}", failure.what),
        ..failure
    }
}

/// The failure of a stream whose report was not awaited.
fn report_not_awaited() -> Failure {
    Failure::failed("interrupted by Ctrl-C before the server sent the final report").help(
        "the server ends the stream as soon as it responds again; `clockwise status` shows if it runs",
    )
}

/// Follows a stream while it runs: fetches its reports and the reports on its blocks.
struct StreamMonitor<'a> {
    client: &'a ApiClient,
    path: &'a str,
    /// The file for the reports on blocks.
    log: Option<BlockLog>,
    /// Why that file is not written any more. The stream continues without it.
    log_failure: Option<Failure>,
    /// The latest report.
    last: Option<SessionView>,
    /// When its first block may move.
    begins: Instant,
    output: &'a Output,
    /// True after the user was told that the server does not answer.
    is_silent: bool,
}

impl StreamMonitor<'_> {
    /// Shows a report, or tells the user once that the server does not answer. The stream waits for the
    /// server meanwhile.
    fn show(&mut self, report: Result<SessionView, Failure>, bar: &ProgressBar) {
        let is_silent = report.is_err();
        let note = match report {
            Ok(report) => {
                let pace = &report.pace;
                bar.set_position(pace.bytes);
                bar.set_message(format!(
                    "{} blocks, {} late, {} underruns",
                    pace.blocks, pace.misses, pace.underruns
                ));
                self.last = Some(report);
                "the server answers again".to_owned()
            }
            Err(failure) => format!(
                "{}; the stream waits for it, Ctrl-C ends the stream",
                failure.what
            ),
        };
        if is_silent != self.is_silent {
            bar.suspend(|| self.output.note(&note));
        }
        self.is_silent = is_silent;
    }

    /// Fetches and shows a report at the next tick.
    async fn poll(&mut self, ticks: &mut tokio::time::Interval, bar: &ProgressBar) {
        ticks.tick().await;
        let report = self.client.get::<SessionView>(self.path).await;
        self.show(report, bar);
        self.write_blocks().await;
    }

    /// Writes the reports on completed blocks, unless the server does not answer.
    async fn write_blocks(&mut self) {
        if self.is_silent {
            return;
        }
        if let (Some(log), None) = (&mut self.log, &self.log_failure) {
            self.log_failure = log.fetch(self.client, self.path).await.err();
        }
    }

    /// Ends the stream, if it has not ended yet, and returns its last report.
    async fn last_report(&mut self) -> Result<SessionView, Failure> {
        self.write_blocks().await;
        self.client.delete(self.path).await
    }

    /// The failure of a stream whose last report cannot be fetched, with the last known state.
    fn lost(&self, op: StreamOp, failure: Failure) -> Failure {
        let what = activity(op);
        let done = match op {
            StreamOp::Record => "recorded",
            StreamOp::Play => "played",
        };
        let known = match &self.last {
            Some(last) => format!(
                "{} in {} had been {done} at its last answer",
                Size(Bytes(last.pace.bytes)),
                counted(last.pace.blocks, "block")
            ),
            None => format!("how much was {done} is not known"),
        };
        Failure {
            what: format!("{what} ended early: {}; {known}", failure.what),
            ..failure
        }
    }

    /// Shows the progress of the stream until it ends.
    ///
    /// Ctrl-C ends the stream. The first one lets the server finish the data in flight, if the stream has
    /// begun and the server answers. The second one does not wait for that. The third one also stops the
    /// output of played data.
    async fn until_end(
        &mut self,
        mut moving: tokio::task::JoinHandle<io::Result<Moved>>,
        connection: &UnixStream,
        interrupts: &mut Signal,
        op: StreamOp,
        bar: &ProgressBar,
    ) -> io::Result<Moved> {
        let mut ticks = tokio::time::interval(REPORT_INTERVAL);
        let mut interrupted = 0;
        loop {
            tokio::select! {
                moved = &mut moving => {
                    return match moved {
                        Ok(_) if interrupted > 0 => Ok(Moved::All),
                        Ok(moved) => moved,
                        Err(error) => Err(io::Error::other(error)),
                    };
                }
                () = self.poll(&mut ticks, bar) => {}
                _ = interrupts.recv() => interrupted += 1,
            }
            let is_record = op == StreamOp::Record;
            let how = match interrupted {
                0 => continue,
                1 if self.is_silent || Instant::now() < self.begins => Shutdown::Both,
                // When recording, the sent bytes are still recorded. When playing, nothing more is read.
                1 if is_record => Shutdown::Write,
                1 => Shutdown::Read,
                _ => Shutdown::Both,
            };
            // Fails if the server has closed the connection already.
            let _ = connection.shutdown(how);
            // A recorded pipe may never end, so it is not waited for. Played bytes are still written.
            if interrupted > 2 || interrupted == 2 && is_record {
                return Ok(Moved::All);
            }
        }
    }
}

/// Fails if a stream ended early or had late blocks.
fn conclude(report: &SessionView) -> Result<(), Failure> {
    if let SessionState::Failed(reason) = &report.state {
        return Err(Failure::failed(format!("the stream ended early: {reason}")).help(EARLY_HELP));
    }
    if report.pace.misses > 0 {
        return Err(Failure::failed(format!(
            "{} of {} blocks were late",
            report.pace.misses, report.pace.blocks
        ))
        .help(
            "`clockwise status` shows overruns, which mean that a drive is slower than its profile",
        ));
    }
    Ok(())
}
