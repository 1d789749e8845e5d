//! `clockwise recording list`.

use std::process::ExitCode;

use sched::units::Nanos;

use super::super::{block_on, volume};
use super::export;
use crate::client::ApiClient;
use crate::failure::Failure;
use crate::local_time::Zone;
use crate::print::{Output, table};
use crate::quantity::Span;
use crate::text::printable;
use crate::wire::recordings::{AllRecordings, RecordingView};

const HEAD: [&str; 6] = ["RECORDING", "BEGUN", "LENGTH", "BLOCKS", "TRACKS", "STATE"];

/// Lists the recordings of a volume, or of all volumes.
pub(super) fn run(
    client: &ApiClient,
    name: Option<&str>,
    zone: Option<&str>,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let zone = export::zone(zone)?;
    match name {
        Some(name) => {
            let path = format!("{}/recordings", volume::path(name)?);
            let recordings: Vec<RecordingView> = block_on(client.get(&path))?;
            output.result(&recordings, || text(&recordings, &zone))?;
        }
        None => {
            let all: AllRecordings = block_on(client.get("/v1/recordings"))?;
            output.result(&all, || all_text(&all, &zone))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn row(of: &RecordingView, zone: &Zone) -> [String; 6] {
    let tracks = of.tracks.iter().map(|name| match name.as_str() {
        "" => "?",
        name => name,
    });
    [
        of.number.to_string(),
        zone.text(of.begun_unix_ns),
        Span(Nanos(of.length_ns)).to_string(),
        of.blocks.to_string(),
        tracks.collect::<Vec<_>>().join(", "),
        if of.is_recorded { "recording" } else { "" }.to_owned(),
    ]
}

fn text(recordings: &[RecordingView], zone: &Zone) -> String {
    if recordings.is_empty() {
        return "there are no recordings in this volume\n".to_owned();
    }
    let rows = recordings.iter().map(|of| row(of, zone));
    table(HEAD, &[0, 2, 3], rows) + "\n"
}

fn all_text(all: &AllRecordings, zone: &Zone) -> String {
    let mut text = match all.recordings.is_empty() {
        true => "there are no recordings\n".to_owned(),
        false => {
            let [a, b, c, d, e, f] = HEAD;
            let rows = all.recordings.iter().map(|of| {
                let [a, b, c, d, e, f] = row(&of.recording, zone);
                [printable(&of.volume).into_owned(), a, b, c, d, e, f]
            });
            table(["VOLUME", a, b, c, d, e, f], &[1, 3, 4], rows) + "\n"
        }
    };
    for of in &all.unreadable {
        let line = format!("{}: {}\n", printable(&of.volume), printable(&of.reason));
        text.push_str(&line);
    }
    text
}
