//! `clockwise source`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use sched::units::{BytesPerSecond, Nanos};

use super::{block_on, name_in_path};
use crate::client::ApiClient;
use crate::failure::{Failure, io_failure};
use crate::print::{Output, list, table};
use crate::quantity::{Rate, Size, Span, parse_rate};
use crate::text::printable;
use crate::wire::sources::{AddSource, SourceState, SourceTransport, SourceUse, SourceView};

/// `clockwise source`.
#[derive(Subcommand, Debug)]
pub enum SourceCommand {
    /// Record from a camera or only relay it, from now on whenever the server runs.
    Add {
        /// A name for the source.
        name: String,
        /// The camera's URL: rtsp://USER:PASSWORD@HOST/PATH, or rtsps for TLS.
        url: String,
        /// The volume for its recordings.
        #[arg(long, required_unless_present_any = ["live_only", "on_demand"])]
        volume: Option<String>,
        /// Do not record: the camera can be watched live under the source's name.
        #[arg(long, conflicts_with = "volume")]
        live_only: bool,
        /// As --live-only, and pull the camera only while somebody watches it.
        #[arg(long, conflicts_with_all = ["volume", "live_only"])]
        on_demand: bool,
        /// The transport of packets.
        #[arg(long, value_enum, default_value_t)]
        transport: SourceTransport,
        /// The rate to reserve, such as 500KB/s [default: the rate that the camera announces, or `rate` of
        /// the configuration].
        #[arg(long, value_parser = parse_rate, allow_hyphen_values = true)]
        rate: Option<BytesPerSecond>,
        /// With rtsps: a PEM file with the camera's certificate or those that sign it [default: the
        /// certificates of the server's host].
        #[arg(long, value_name = "FILE")]
        ca: Option<PathBuf>,
    },
    /// List the sources.
    List,
    /// Show one source.
    Show {
        /// Its name.
        name: String,
    },
    /// Stop recording from a camera and remove the source; its recordings stay.
    Remove {
        /// Its name.
        name: String,
    },
}

pub(super) fn path(name: &str) -> Result<String, Failure> {
    let name = name_in_path(name).ok_or_else(|| {
        Failure::bad_input("the source's name is empty")
            .help("`clockwise source list` shows the sources")
    })?;
    Ok(format!("/v1/sources/{name}"))
}

/// Reads a file of certificates.
pub(super) fn certificates(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| io_failure("read", path, &error))
}

pub(super) fn run(
    client: &ApiClient,
    command: &SourceCommand,
    output: &Output,
) -> Result<ExitCode, Failure> {
    match command {
        SourceCommand::Add {
            name,
            url,
            volume,
            live_only,
            on_demand,
            transport,
            rate,
            ca,
        } => {
            let certificates = ca.as_deref().map(certificates).transpose()?;
            let ask = AddSource {
                name: name.clone(),
                url: url.clone(),
                volume: volume.clone(),
                used: match (live_only, on_demand) {
                    (_, true) => SourceUse::OnDemand,
                    (true, false) => SourceUse::LiveOnly,
                    (false, false) => SourceUse::Record,
                },
                transport: *transport,
                rate_bytes_per_second: rate.map(|rate| rate.0),
                certificates,
            };
            let source: SourceView = block_on(client.post("/v1/sources", &ask))?;
            output.result(&source, || source_text(&source))?;
        }
        SourceCommand::List => {
            let sources: Vec<SourceView> = block_on(client.get("/v1/sources"))?;
            output.result(&sources, || sources_text(&sources))?;
        }
        SourceCommand::Show { name } => {
            let source: SourceView = block_on(client.get(&path(name)?))?;
            output.result(&source, || source_text(&source))?;
        }
        SourceCommand::Remove { name } => {
            let source: SourceView = block_on(client.delete(&path(name)?))?;
            output.result(&source, || source_text(&source))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn state(of: &SourceView) -> String {
    let state = match of.state {
        SourceState::Connecting => "connecting",
        SourceState::Recording if of.used != SourceUse::Record => "live, not recorded",
        SourceState::Recording => "recording",
        SourceState::Waiting => "waiting",
        SourceState::Refused => "refused",
        SourceState::Idle => "idle: nobody watches it",
        SourceState::Ended => "ended",
    };
    match &of.reason {
        Some(reason) => format!("{state}: {}", printable(reason)),
        None => state.to_owned(),
    }
}

pub(super) fn gaps(of: &SourceView) -> String {
    match of.gaps {
        0 => "0".to_owned(),
        gaps => format!("{gaps}, {} in total", Span(Nanos(of.gap_ns))),
    }
}

pub(super) fn recording(of: &SourceView) -> String {
    of.recording
        .map_or("none yet".to_owned(), |number| number.to_string())
}

fn sources_text(sources: &[SourceView]) -> String {
    if sources.is_empty() {
        return "there are no sources\n".to_owned();
    }
    let row = |of: &SourceView| {
        [
            printable(&of.name).into_owned(),
            printable(&of.volume).into_owned(),
            recording(of),
            gaps(of),
            state(of),
        ]
    };
    let head = ["SOURCE", "VOLUME", "RECORDING", "GAPS", "STATE"];
    table(head, &[2], sources.iter().map(row)) + "\n"
}

fn source_text(of: &SourceView) -> String {
    let rate = of.rate_bytes_per_second.map(BytesPerSecond);
    let pairs = [
        ("source", printable(&of.name).into_owned()),
        ("camera", printable(&of.url).into_owned()),
        (
            "user",
            of.user
                .as_deref()
                .map_or("none".into(), printable)
                .into_owned(),
        ),
        ("volume", printable(&of.volume).into_owned()),
        (
            "transport",
            match of.transport {
                SourceTransport::Tcp => "tcp",
                SourceTransport::Udp => "udp",
            }
            .to_owned(),
        ),
        (
            "rate",
            match (rate, of.measured_bytes_per_second) {
                (Some(rate), _) => Rate(rate).to_string(),
                (None, Some(_)) => "as measured".to_owned(),
                (None, None) => "as the camera announces".to_owned(),
            },
        ),
        ("state", state(of)),
        ("recording", recording(of)),
        (
            "packets",
            format!(
                "{}, {}; {} lost",
                of.packets,
                Size(sched::units::Bytes(of.bytes)),
                of.lost
            ),
        ),
        ("gaps", gaps(of)),
    ];
    list(&pairs)
}
