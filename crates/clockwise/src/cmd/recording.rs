//! `clockwise recording`.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::Subcommand;
use sched::units::Nanos;

use super::output::table;
use super::{Output, block_on};
use crate::client::ApiClient;
use crate::failure::Failure;
use crate::http::recordings::RecordingView;
use crate::quantity::Span;

/// `clockwise recording`.
#[derive(Subcommand, Debug)]
pub enum RecordingCommand {
    /// List what was recorded over RTSP in a volume.
    List {
        /// The volume.
        volume: String,
    },
}

pub(super) fn run(
    client: &ApiClient,
    command: &RecordingCommand,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let RecordingCommand::List { volume } = command;
    let path = format!("{}/recordings", super::volume::path(volume)?);
    let recordings: Vec<RecordingView> = block_on(client.get(&path))?;
    output.result(&recordings, || text(&recordings))?;
    Ok(ExitCode::SUCCESS)
}

fn text(recordings: &[RecordingView]) -> String {
    if recordings.is_empty() {
        return "nothing has been recorded there\n".to_owned();
    }
    let row = |of: &RecordingView| {
        let begun = SystemTime::UNIX_EPOCH + Duration::from_nanos(of.begun_unix_ns);
        let tracks = of.tracks.iter().map(|name| match name.as_str() {
            "" => "?",
            name => name,
        });
        [
            of.number.to_string(),
            humantime::format_rfc3339_seconds(begun).to_string(),
            Span(Nanos(of.length_ns)).to_string(),
            of.blocks.to_string(),
            tracks.collect::<Vec<_>>().join(", "),
            if of.is_recorded { "goes on" } else { "" }.to_owned(),
        ]
    };
    let head = ["RECORDING", "BEGUN", "LENGTH", "BLOCKS", "TRACKS", "STATE"];
    table(head, &[0, 2, 3], recordings.iter().map(row)) + "\n"
}
