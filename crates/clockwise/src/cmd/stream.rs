//! `clockwise stream`: reserves bandwidth, moves bytes, and reports.

mod blocks;
mod peer;
mod report;
mod session;
pub(super) mod target;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use peer::{Peer, Sink, Source};
use report::{report_text, sessions_text};
use sched::units::{Bytes, BytesPerSecond, Nanos};
use session::{ask, session};

use super::block_on;
use crate::client::ApiClient;
use crate::failure::Failure;
use crate::print::Output;
use crate::quantity::{Rate, parse_position, parse_rate, parse_seconds, parse_size, parse_time};
use crate::wire::ask::{ChangeRate, ReserveStream};
use crate::wire::streams::SessionView;
use crate::wire::view::StreamView;

/// Options of both directions.
#[derive(clap::Args, Clone, Debug)]
pub struct StreamOptions {
    /// The volume.
    #[arg(long)]
    volume: String,
    /// The rate to guarantee, such as 1.2MB/s or 3Mbit/s.
    #[arg(long, value_parser = parse_rate, allow_hyphen_values = true)]
    rate: BytesPerSecond,
    /// The size of a block, the unit of transfer, such as 256KiB [default: proposed by the pool].
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
    block: Option<Bytes>,
    /// The start of the stream's range in the volume [default: 0].
    #[arg(long, value_name = "SIZE", value_parser = parse_position, allow_hyphen_values = true)]
    offset: Option<Bytes>,
    /// The length of the range [default: to the end of the volume].
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
    length: Option<Bytes>,
    /// End after this many seconds' worth of bytes at the rate.
    #[arg(long, value_parser = parse_seconds, allow_negative_numbers = true)]
    seconds: Option<u64>,
    /// Reserve from a later time on, such as 10min from now, and begin then [default: now].
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    starts_in: Option<Nanos>,
    /// Reserve until a later time, such as 2h from now, and end then [default: until the stream ends].
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    ends_in: Option<Nanos>,
    /// A name for people [default: the volume's name].
    #[arg(long)]
    name: Option<String>,
    /// Write a report on each block to this file as CSV; `-` is standard error.
    #[arg(long, value_name = "FILE")]
    blocks: Option<PathBuf>,
}

/// `clockwise stream`.
#[derive(Subcommand, Debug)]
pub enum StreamCommand {
    /// Record a byte stream to a volume at a guaranteed rate.
    Record {
        /// The reservation.
        #[command(flatten)]
        options: StreamOptions,
        /// The file to read; `-` is standard input.
        #[arg(long, value_name = "FILE")]
        from: PathBuf,
        /// Start again at the beginning of the file when it ends.
        #[arg(long = "loop")]
        repeat: bool,
        /// Continue at the beginning of the volume's range when its end is reached.
        #[arg(long)]
        wrap: bool,
        /// Record even over recordings (then from the volume's beginning on), a file system, or a volume in
        /// use through its export.
        #[arg(long)]
        force: bool,
    },
    /// Play a byte stream from a volume at a guaranteed rate.
    Play {
        /// The reservation.
        #[command(flatten)]
        options: StreamOptions,
        /// The file to write; `-` is standard output.
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
        /// Continue at the beginning of the volume's range when its end is reached.
        #[arg(long = "loop")]
        repeat: bool,
    },
    /// List streams: reserved, planned, running, and ended ones whose report has not been deleted yet.
    List,
    /// Change the rate of a running stream.
    Rate {
        /// Its number.
        id: u64,
        /// The new rate.
        #[arg(value_parser = parse_rate, allow_hyphen_values = true)]
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
            options,
            from,
            repeat,
            wrap,
            force,
        } => {
            let peer = Peer::Source(Source::open(from, *repeat)?);
            let ask = ReserveStream {
                force: *force,
                ..ask(options, peer.op(), *wrap)
            };
            session(client, options, ask, peer, output)
        }
        StreamCommand::Play {
            options,
            to,
            repeat,
        } => {
            let peer = Peer::Sink(Sink::open(to)?);
            session(
                client,
                options,
                ask(options, peer.op(), *repeat),
                peer,
                output,
            )
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
            output.result(&stream, || format!("stream {id} now has {}\n", Rate(*rate)))?;
            Ok(ExitCode::SUCCESS)
        }
        StreamCommand::End { id } => {
            let last: SessionView = block_on(client.delete(&format!("/v1/streams/{id}")))?;
            output.result(&last, || report_text(&last))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
