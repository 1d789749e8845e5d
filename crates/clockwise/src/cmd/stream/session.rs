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

use super::Common;
use super::blocks::BlockLog;
use super::peer::Peer;
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

/// How often the report is asked for while a stream runs.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);

/// What to do about a stream that broke.
const EARLY_HELP: &str = "`clockwise status` shows whether a disk has failed, and the server's log says more; of a recording all but the last seconds is kept";

/// Whole milliseconds, rounded up.
fn in_ms(time: Nanos) -> u64 {
    time.get().div_ceil(1_000_000)
}

/// A whole session: reserve, move, report.
pub(super) fn session(
    client: &ApiClient,
    common: &Common,
    ask: ReserveStream,
    peer: Peer,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let is_to_stdout = peer.is_to_stdout();
    let log = common.blocks.as_deref().map(BlockLog::open).transpose()?;
    if let (Some(log), Some((file, option))) = (log.as_ref().and_then(BlockLog::file), peer.file())
        && is_one_file(log, file)
    {
        return Err(
            Failure::bad_input(format!("{option} and --blocks name the same file")).help(
                "name another file with --blocks: it would overwrite the bytes of the stream",
            ),
        );
    }
    let (report, is_all) = block_on(run(client, &ask, peer, log, output))?;
    if is_to_stdout {
        output.aside(&report, || report_text(&report))?;
    } else {
        output.result(&report, || report_text(&report))?;
    }
    conclude(&report)?;
    // The end of its time ends a stream in the middle of its source as well, which was asked for.
    if !is_all && report.state == SessionState::Done && ask.ends_in_ms.is_none() {
        let recorded = Size(Bytes(report.pace.bytes));
        return Err(Failure::failed(format!(
            "the range is full: {recorded} are recorded, and what the source had after them is not"
        ))
        .help("`--wrap` goes on at the beginning of the range, over what is there; `clockwise volume grow` makes room"));
    }
    Ok(ExitCode::SUCCESS)
}

/// The reservation that the command line asks for.
pub(super) fn ask(common: &Common, op: StreamOp, wraps: bool) -> ReserveStream {
    let rate = common.rate.get();
    ReserveStream {
        name: common.name.clone(),
        volume: common.volume.clone(),
        op,
        rate_bytes_per_second: rate,
        block_bytes: common.block.map(Bytes::get),
        offset_bytes: common.offset.map_or(0, Bytes::get),
        length_bytes: common.length.map(Bytes::get),
        limit_bytes: common.seconds.map(|seconds| rate.saturating_mul(seconds)),
        wraps,
        starts_in_ms: common.starts_in.map(in_ms),
        ends_in_ms: common.ends_in.map(in_ms),
        connect_within_ms: None,
        force: false,
    }
}

/// Reserves, and moves what there is to move; the report of it, and whether that was all.
async fn run(
    client: &ApiClient,
    ask: &ReserveStream,
    mut peer: Peer,
    mut log: Option<BlockLog>,
    output: &Output,
) -> Result<(SessionView, bool), Failure> {
    client.opened().await?;
    // From now on: one that comes while the server is asked is not lost.
    let mut interrupts =
        signal(SignalKind::interrupt()).map_err(|error| host_failure("wait for Ctrl-C", &error))?;
    let reserved: Reserved = client.post("/v1/streams", ask).await?;
    // By the token: should the server be another one meanwhile, no stream of that one is meant.
    let path = format!("/v1/streams/{}", reserved.token);
    let (connection, handle) = match begin(&reserved, &mut peer, log.as_mut()) {
        Ok(begun) => begun,
        Err(failure) => {
            // It would hold its share until nobody has come for it in time. A server that cannot be told
            // gives it up by itself.
            let _: Result<SessionView, _> = client.delete(&path).await;
            return Err(failure);
        }
    };
    let (what, limit) = (what_is_done(ask.op), ask.limit_bytes);
    let bar = output.byte_progress(limit, what);
    let doing = peer.doing();
    let moving = tokio::task::spawn_blocking(move || peer.run(connection, limit));
    let mut company = Company {
        client,
        path: &path,
        log,
        log_failure: None,
        last: None,
        begins: Instant::now() + Duration::from_millis(ask.starts_in_ms.unwrap_or(0)),
        output,
        is_silent: false,
    };
    let moved = company
        .until_end(moving, &handle, &mut interrupts, ask.op, &bar)
        .await;
    bar.finish_and_clear();
    let report = tokio::select! {
        report = company.last_report() => report,
        _ = interrupts.recv() => Err(unheard()),
    };
    let report = report.map_err(|failure| company.lost(ask.op, failure))?;
    let is_all = moved.map_err(|error| ended_early(what, &doing, &error))?;
    company.log_failure.map_or(Ok(()), Err)?;
    if let Some(note) = company.log.and_then(|log| log.note()) {
        output.note(&note);
    }
    Ok((report, is_all))
}

/// The data connection, twice: to move bytes on, and to end it by.
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

fn what_is_done(op: StreamOp) -> &'static str {
    match op {
        StreamOp::Record => "recording",
        StreamOp::Play => "playing",
    }
}

/// Why bytes moved no further: the server closed the connection, or this end failed `doing` something.
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

/// The failure of a stream whose report is not waited for.
fn unheard() -> Failure {
    Failure::failed("Ctrl-C came before the server had said how it ended").help(
        "the server ends the stream as soon as it goes on; `clockwise status` shows whether it is there",
    )
}

/// What goes beside a stream while it runs.
struct Company<'a> {
    client: &'a ApiClient,
    path: &'a str,
    /// Where it is written how each block fared.
    log: Option<BlockLog>,
    /// Why that is not written any more. The stream goes on.
    log_failure: Option<Failure>,
    /// The latest report.
    last: Option<SessionView>,
    /// When its first block may move.
    begins: Instant,
    output: &'a Output,
    /// It was said that the server does not answer.
    is_silent: bool,
}

impl Company<'_> {
    /// Shows a report, or says once that there is none: the stream goes on when the server does.
    fn hear(&mut self, report: Result<SessionView, Failure>, bar: &ProgressBar) {
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
            Err(failure) => format!("{}; the stream waits, Ctrl-C ends it", failure.what),
        };
        if is_silent != self.is_silent {
            bar.suspend(|| self.output.note(&note));
        }
        self.is_silent = is_silent;
    }

    /// Asks for a report when it is time, and shows it.
    async fn look(&mut self, ticks: &mut tokio::time::Interval, bar: &ProgressBar) {
        ticks.tick().await;
        let report = self.client.get::<SessionView>(self.path).await;
        self.hear(report, bar);
        self.write_blocks().await;
    }

    /// Writes how the blocks fared that are done, as far as the server answers.
    async fn write_blocks(&mut self) {
        if self.is_silent {
            return;
        }
        if let (Some(log), None) = (&mut self.log, &self.log_failure) {
            self.log_failure = log.fetch(self.client, self.path).await.err();
        }
    }

    /// Ends the stream, if it has not ended yet.
    async fn last_report(&mut self) -> Result<SessionView, Failure> {
        self.write_blocks().await;
        self.client.delete(self.path).await
    }

    /// The failure of a stream whose last report cannot be had, with what is known of it.
    fn lost(&self, op: StreamOp, failure: Failure) -> Failure {
        let what = what_is_done(op);
        let done = match op {
            StreamOp::Record => "recorded",
            StreamOp::Play => "played",
        };
        let known = match &self.last {
            Some(last) => format!(
                "{} in {} had been {done} when it last answered",
                Size(Bytes(last.pace.bytes)),
                counted(last.pace.blocks, "block")
            ),
            None => format!("nothing is known of what had been {done}"),
        };
        Failure {
            what: format!("{what} ended early: {}; {known}", failure.what),
            ..failure
        }
    }

    /// Shows how far the stream is until it ends. Whether the server took all there was.
    ///
    /// Ctrl-C ends it: the first one leaves the server time for what is on its way, if the stream has begun and the server
    /// answers; the second one does not, and the third one leaves none for what is played either.
    async fn until_end(
        &mut self,
        mut moving: tokio::task::JoinHandle<io::Result<bool>>,
        connection: &UnixStream,
        interrupts: &mut Signal,
        op: StreamOp,
        bar: &ProgressBar,
    ) -> io::Result<bool> {
        let mut ticks = tokio::time::interval(REPORT_INTERVAL);
        let mut interrupted = 0;
        loop {
            tokio::select! {
                moved = &mut moving => {
                    return match moved {
                        Ok(_) if interrupted > 0 => Ok(true),
                        Ok(moved) => moved,
                        Err(error) => Err(io::Error::other(error)),
                    };
                }
                () = self.look(&mut ticks, bar) => {}
                _ = interrupts.recv() => interrupted += 1,
            }
            let is_record = op == StreamOp::Record;
            let how = match interrupted {
                0 => continue,
                1 if self.is_silent || Instant::now() < self.begins => Shutdown::Both,
                // Bytes that were sent are recorded; playing is not wanted any more.
                1 if is_record => Shutdown::Write,
                1 => Shutdown::Read,
                _ => Shutdown::Both,
            };
            // Already shut when the server went first.
            let _ = connection.shutdown(how);
            // A pipe that is recorded may never end; what has been played is still written.
            if interrupted > 2 || interrupted == 2 && is_record {
                return Ok(true);
            }
        }
    }
}

/// Whether a report is that of a stream as it was asked for.
fn conclude(report: &SessionView) -> Result<(), Failure> {
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
    Ok(())
}
