//! `clockwise stream`: reserve, move bytes, report.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use indicatif::ProgressBar;
use sched::units::{Bytes, BytesPerSecond, Nanos};

use super::output::{list, table};
use super::status::latency;
use super::{Output, block_on};
use crate::client::ApiClient;
use crate::failure::{Failure, FailureKind, io_failure};
use crate::http::ask::{ChangeRate, ReserveStream, StreamOp};
use crate::http::view::StreamView;
use crate::quantity::{Rate, Size, Span, parse_rate, parse_size};
use crate::session::{BlockView, Reserved, SessionState, SessionView, data};

/// How often the report is asked for while a stream runs.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);

/// What both directions take.
#[derive(clap::Args, Clone, Debug)]
pub struct Common {
    /// The volume.
    #[arg(long)]
    volume: String,
    /// The rate to be guaranteed, such as 1.2MB/s or 3Mbit/s.
    #[arg(long, value_parser = parse_rate)]
    rate: BytesPerSecond,
    /// The size of a block, the unit of transfer, such as 256KiB [default: proposed by the pool].
    #[arg(long, value_parser = parse_size)]
    block: Option<Bytes>,
    /// Where in the volume to begin.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    offset: Option<Bytes>,
    /// How much of the volume from there to use [default: all the rest].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    length: Option<Bytes>,
    /// End after this many seconds' worth of bytes.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// A name for people [default: the volume's].
    #[arg(long)]
    name: Option<String>,
    /// Write how each block fared to this file as CSV; `-` is standard error.
    #[arg(long, value_name = "FILE")]
    blocks: Option<PathBuf>,
}

/// `clockwise stream`.
#[derive(Subcommand, Debug)]
pub enum StreamCommand {
    /// Record a byte stream to a volume at a guaranteed rate.
    Record {
        /// What is reserved.
        #[command(flatten)]
        common: Common,
        /// Where the bytes come from; `-` is standard input.
        #[arg(long, value_name = "FILE")]
        from: PathBuf,
        /// Read the file again from its beginning when it ends.
        #[arg(long = "loop")]
        repeat: bool,
        /// Go on at the beginning of the volume's range when its end is reached.
        #[arg(long)]
        wrap: bool,
    },
    /// Play a byte stream from a volume at a guaranteed rate.
    Play {
        /// What is reserved.
        #[command(flatten)]
        common: Common,
        /// Where the bytes go; `-` is standard output.
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
        /// Go on at the beginning of the volume's range when its end is reached.
        #[arg(long = "loop")]
        repeat: bool,
    },
    /// List streams: reserved, running, and ended ones whose report is still there.
    List,
    /// Change the rate of a running stream.
    Rate {
        /// Its number.
        id: u64,
        /// The new rate.
        #[arg(value_parser = parse_rate)]
        rate: BytesPerSecond,
    },
    /// End a stream.
    End {
        /// Its number.
        id: u64,
    },
}

pub(super) fn run(
    client: &ApiClient,
    command: &StreamCommand,
    output: &Output,
) -> Result<ExitCode, Failure> {
    match command {
        StreamCommand::Record {
            common,
            from,
            repeat,
            wrap,
        } => {
            let source = Source::open(from, *repeat)?;
            session(client, common, Peer::Source(source), *wrap, output)
        }
        StreamCommand::Play { common, to, repeat } => {
            session(client, common, Peer::Sink(sink(to)?), *repeat, output)
        }
        StreamCommand::List => {
            let sessions: Vec<SessionView> = block_on(client.get("/v1/streams"))?;
            output.result(&sessions, || sessions_text(&sessions))?;
            Ok(ExitCode::SUCCESS)
        }
        StreamCommand::Rate { id, rate } => {
            let ask = ChangeRate {
                rate_bytes_per_second: rate.get(),
            };
            let stream: StreamView = block_on(client.patch(&format!("/v1/streams/{id}"), &ask))?;
            output.result(&stream, || format!("stream {id} has {} now\n", Rate(*rate)))?;
            Ok(ExitCode::SUCCESS)
        }
        StreamCommand::End { id } => {
            let last: SessionView = block_on(client.delete(&format!("/v1/streams/{id}")))?;
            output.result(&last, || report_text(&last))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Bytes to record.
enum Source {
    Stdin,
    File { file: File, repeat: bool },
}

impl Source {
    fn open(path: &Path, repeat: bool) -> Result<Self, Failure> {
        if path == Path::new("-") {
            if repeat {
                return Err(Failure::bad_input(
                    "standard input cannot be read again from its beginning",
                )
                .help("name a file with --from, or leave out --loop"));
            }
            return Ok(Self::Stdin);
        }
        let file = File::open(path).map_err(|error| Failure {
            kind: FailureKind::BadInput,
            ..io_failure("read", path, &error)
        })?;
        let metadata = file
            .metadata()
            .map_err(|error| io_failure("read", path, &error))?;
        if metadata.is_dir() || repeat && !metadata.is_file() {
            return Err(Failure::bad_input(format!(
                "{} is not a file that can be read",
                path.display()
            )));
        }
        if repeat && metadata.len() == 0 {
            return Err(Failure::bad_input(format!(
                "{} is empty, and would be for ever",
                path.display()
            )));
        }
        Ok(Self::File { file, repeat })
    }

    /// Sends it all, at most `limit` bytes; ends early when nobody takes any more.
    fn send(self, connection: &UnixStream, limit: Option<u64>) -> io::Result<()> {
        let mut left = limit.unwrap_or(u64::MAX);
        let mut to = connection;
        let sent = match self {
            Self::Stdin => io::copy(&mut io::stdin().lock().take(left), &mut to),
            Self::File { mut file, repeat } => loop {
                match io::copy(&mut Read::by_ref(&mut file).take(left), &mut to) {
                    Ok(sent) if repeat && sent < left => {
                        left -= sent;
                        file.rewind()?;
                    }
                    other => break other,
                }
            },
        };
        // The server ends a stream whose range is full, or which was ended by somebody else.
        match sent {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
                ) =>
            {
                Ok(())
            }
            other => other.map(drop),
        }
    }
}

fn sink(path: &Path) -> Result<Box<dyn Write + Send>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdout()));
    }
    File::create(path)
        .map(|file| Box::new(file) as Box<dyn Write + Send>)
        .map_err(|error| Failure {
            kind: FailureKind::BadInput,
            ..io_failure("write", path, &error)
        })
}

/// This end of the byte stream.
enum Peer {
    Source(Source),
    Sink(Box<dyn Write + Send>),
}

impl Peer {
    fn op(&self) -> StreamOp {
        match self {
            Self::Source(_) => StreamOp::Record,
            Self::Sink(_) => StreamOp::Play,
        }
    }

    /// Moves all bytes, and returns when the server has closed its side.
    fn run(self, connection: UnixStream, limit: Option<u64>) -> io::Result<()> {
        match self {
            Self::Source(source) => {
                let sent = source.send(&connection, limit);
                // Already shut when the server went first.
                let _ = connection.shutdown(Shutdown::Write);
                let ended = io::copy(&mut &connection, &mut io::sink());
                sent.and(ended.map(drop))
            }
            Self::Sink(mut sink) => {
                io::copy(&mut &connection, &mut sink)?;
                sink.flush()
            }
        }
    }
}

/// A whole session: reserve, move, report.
fn session(
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
            .map_err(|error| Failure::failed(error.to_string()))?;
        let bar = output.byte_progress(limit, what);
        let moving = tokio::task::spawn_blocking(move || peer.run(connection, limit));
        let moved = accompany(client, &path, moving, &handle, ask.op, &bar).await;
        bar.finish_and_clear();
        if let Some(file) = &common.blocks {
            write_blocks(client, &path, file).await?;
        }
        let report: SessionView = client.delete(&path).await?;
        moved.map_err(|error| Failure::failed(format!("{what} ended early: {error}")))?;
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
                b.deadline_ns,
                b.completed_ns,
                b.late_ns,
                b.late_net_ns
            );
        }
    }
    if file == Path::new("-") {
        return io::stderr()
            .write_all(text.as_bytes())
            .map_err(|error| Failure::failed(error.to_string()));
    }
    std::fs::write(file, text).map_err(|error| io_failure("write", file, &error))
}

/// The exit status that a report deserves.
fn conclude(report: &SessionView) -> Result<ExitCode, Failure> {
    if let SessionState::Failed(reason) = &report.state {
        return Err(Failure::failed(format!("the stream ended early: {reason}")));
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

fn state_text(state: &SessionState) -> String {
    match state {
        SessionState::Reserved => "reserved".to_owned(),
        SessionState::Running => "running".to_owned(),
        SessionState::Done => "done".to_owned(),
        SessionState::Stopped => "stopped".to_owned(),
        SessionState::Failed(reason) => format!("failed: {reason}"),
    }
}

fn report_text(report: &SessionView) -> String {
    let span = |nanos| Span(Nanos(nanos)).to_string();
    list(&[
        (
            "stream",
            format!(
                "{} ({} of volume {})",
                report.stream.name, report.stream.op, report.stream.volume
            ),
        ),
        ("state", state_text(&report.state)),
        (
            "promised",
            format!(
                "{} in blocks of {} on {} disks",
                Rate(BytesPerSecond(report.stream.rate_bytes_per_second)),
                Size(Bytes(report.stream.block_bytes)),
                report.stream.disks.len()
            ),
        ),
        (
            "moved",
            format!(
                "{} in {} blocks",
                Size(Bytes(report.pace.bytes)),
                report.pace.blocks
            ),
        ),
        (
            "late",
            format!(
                "{} blocks, the worst by {}",
                report.pace.misses,
                span(report.pace.late_net_max_ns)
            ),
        ),
        (
            "  with the host's own",
            format!("the worst by {}", span(report.pace.late_max_ns)),
        ),
        ("early", format!("{} blocks", report.stream.early)),
        ("response of blocks", latency(&report.response)),
        ("before the deadline", latency(&report.margin)),
        ("underruns", format!("{} times", report.pace.underruns)),
        (
            "waited for this end",
            format!("{} times", report.pace.waited_for_peer),
        ),
    ])
}

fn sessions_text(sessions: &[SessionView]) -> String {
    if sessions.is_empty() {
        return "there are no streams\n".to_owned();
    }
    table(
        [
            "ID", "STREAM", "VOLUME", "OP", "RATE", "BLOCKS", "MISSES", "STATE",
        ],
        &[0, 4, 5, 6],
        sessions.iter().map(|session| {
            [
                session.id.to_string(),
                session.stream.name.clone(),
                session.stream.volume.clone(),
                session.stream.op.clone(),
                Rate(BytesPerSecond(session.stream.rate_bytes_per_second)).to_string(),
                session.pace.blocks.to_string(),
                session.pace.misses.to_string(),
                state_text(&session.state),
            ]
        }),
    )
}
