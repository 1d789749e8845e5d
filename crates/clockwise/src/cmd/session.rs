//! `clockwise session`.

use std::process::ExitCode;

use clap::Subcommand;
use media::session::registry::SessionUse;
use sched::units::{Bytes, BytesPerSecond};

use super::block_on;
use crate::client::ApiClient;
use crate::failure::Failure;
use crate::print::{Output, list, table};
use crate::quantity::{Rate, Size, parse_rate, parse_size};
use crate::text::printable;
use crate::wire::sessions::{ChangeSession, RtspSessionView};

/// `clockwise session`.
#[derive(Subcommand, Debug)]
pub enum SessionCommand {
    /// List the sessions that record and play over RTSP, and how full their buffers are.
    List,
    /// Show one session.
    Show {
        /// Its number.
        number: u64,
    },
    /// Change the reservation of a session while its packets flow.
    #[command(group(clap::ArgGroup::new("what").args(["rate", "block", "buffers"]).required(true).multiple(true)))]
    Set {
        /// Its number.
        number: u64,
        /// The rate, such as 500KB/s.
        #[arg(long, value_parser = parse_rate, allow_hyphen_values = true)]
        rate: Option<BytesPerSecond>,
        /// The size of a block, such as 256KiB: one block of the volume or several.
        #[arg(long, value_parser = parse_size, allow_hyphen_values = true)]
        block: Option<Bytes>,
        /// The number of reserved buffers: for at least two blocks on each disk of the volume, and at most
        /// 64.
        #[arg(long)]
        buffers: Option<u64>,
    },
    /// End a session and close its connection. Its recording is durable then.
    End {
        /// Its number.
        number: u64,
    },
}

pub(super) fn run(
    client: &ApiClient,
    command: &SessionCommand,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let path = |number: &u64| format!("/v1/sessions/{number}");
    match command {
        SessionCommand::List => {
            let sessions: Vec<RtspSessionView> = block_on(client.get("/v1/sessions"))?;
            output.result(&sessions, || sessions_text(&sessions))?;
        }
        SessionCommand::Show { number } => {
            let session: RtspSessionView = block_on(client.get(&path(number)))?;
            output.result(&session, || session_text(&session))?;
        }
        SessionCommand::Set {
            number,
            rate,
            block,
            buffers,
        } => {
            let ask = ChangeSession {
                rate_bytes_per_second: rate.map(|rate| rate.0),
                block_bytes: block.map(|block| block.0),
                buffers: *buffers,
            };
            let session: RtspSessionView = block_on(client.patch(&path(number), &ask))?;
            output.result(&session, || session_text(&session))?;
        }
        SessionCommand::End { number } => {
            let last: RtspSessionView = block_on(client.delete(&path(number)))?;
            output.result(&last, || session_text(&last))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn does(of: &RtspSessionView) -> &'static str {
    match of.does {
        SessionUse::Records => "records",
        SessionUse::Pulls => "pulls",
        SessionUse::Plays => "plays",
        SessionUse::Watches => "watches",
        SessionUse::Relays => "relays",
    }
}

/// Full buffers, and the total as its own plus borrowed ones.
fn buffers(of: &RtspSessionView) -> String {
    match of.counts.buffers_borrowed {
        0 => format!("{} of {}", of.counts.buffers_full, of.buffers),
        borrowed => format!("{} of {}+{borrowed}", of.counts.buffers_full, of.buffers),
    }
}

fn sessions_text(sessions: &[RtspSessionView]) -> String {
    if sessions.is_empty() {
        return "there are no RTSP sessions\n".to_owned();
    }
    let row = |of: &RtspSessionView| {
        [
            of.number.to_string(),
            printable(&of.who).into_owned(),
            does(of).to_owned(),
            format!("{}/{}", of.volume, of.recording),
            Rate(BytesPerSecond(of.rate_bytes_per_second)).to_string(),
            buffers(of),
            of.counts.buffers_full_max.to_string(),
            of.counts.packets.to_string(),
            of.counts.lost.to_string(),
            of.misses.to_string(),
        ]
    };
    let head = [
        "SESSION",
        "WHO",
        "DOES",
        "RECORDING",
        "RATE",
        "BUFFERS FULL",
        "MOST",
        "PACKETS",
        "LOST",
        "MISSED",
    ];
    table(head, &[0, 4, 6, 7, 8, 9], sessions.iter().map(row)) + "\n"
}

fn session_text(of: &RtspSessionView) -> String {
    let rate = |rate| Rate(BytesPerSecond(rate)).to_string();
    let lost = match of.does {
        SessionUse::Plays => format!("{} blocks missing", of.counts.lost),
        SessionUse::Watches => format!("{} skipped, as the player was too slow", of.counts.lost),
        _ => format!(
            "{} lost, {} of them because no buffer was free",
            of.counts.lost, of.counts.lost_without_buffer
        ),
    };
    let durable = match of.does {
        SessionUse::Plays | SessionUse::Watches | SessionUse::Relays => String::new(),
        _ => format!("; {} durable", Size(Bytes(of.durable_bytes))),
    };
    list(&[
        ("session", of.number.to_string()),
        ("who", printable(&of.who).into_owned()),
        ("does", does(of).to_owned()),
        ("recording", format!("{}/{}", of.volume, of.recording)),
        (
            "rate",
            format!(
                "{}, requested {}; adapted {} times",
                rate(of.rate_bytes_per_second),
                rate(of.asked_bytes_per_second),
                of.counts.rate_changes
            ),
        ),
        (
            "refused",
            of.counts
                .refused
                .as_deref()
                .map_or("nothing".into(), printable)
                .into_owned(),
        ),
        (
            "buffers",
            format!(
                "{} full of {}, each {}; {} borrowed, at most {}; {} full at most",
                of.counts.buffers_full,
                of.buffers + of.counts.buffers_borrowed,
                Size(Bytes(of.buffer_bytes)),
                of.counts.buffers_borrowed,
                of.counts.buffers_borrowed_max,
                of.counts.buffers_full_max
            ),
        ),
        (
            "packets",
            format!(
                "{}, {}; {lost}",
                of.counts.packets,
                Size(Bytes(of.counts.bytes))
            ),
        ),
        (
            "blocks",
            format!(
                "{} of {}; {} deadlines missed{durable}",
                of.blocks,
                Size(Bytes(of.block_bytes)),
                of.misses
            ),
        ),
    ])
}
