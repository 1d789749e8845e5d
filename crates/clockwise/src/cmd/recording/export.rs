//! `clockwise recording export`.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use media::archive::wall_clock::now_unix_ns;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sched::units::{Bytes, Nanos};
use serde::Serialize;

use super::super::block_on;
use super::super::stream::target::Target;
use super::{check_order, path};
use crate::client::{ApiClient, Download};
use crate::failure::{Failure, FailureKind};
use crate::local_time::{TimeError, Zone, parse_rfc3339, rfc3339};
use crate::print::{Output, counted};
use crate::quantity::{QuantityError, Size, parse_moment, parse_time};
use crate::text::printable;
use crate::wire::recordings::RecordingDetail;

/// The end of a range may be this far in the future, in nanoseconds.
const SOON_NS: u64 = 60_000_000_000;

/// Options of `clockwise recording export`.
#[derive(Args, Debug)]
pub struct ExportArgs {
    /// The volume.
    volume: String,
    /// The number of the recording; without it, --from and --until are times of the clock, and all recordings
    /// between them are in the file.
    number: Option<u64>,
    /// The file, or `-` for standard output.
    #[arg(long)]
    to: PathBuf,
    /// The start: a time such as "2026-11-28 14:00", 14:00, "yesterday 14:00" or -10min; with a number, a time
    /// from the recording's beginning, such as 1h or 90s. The export starts at the key frame before it.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: Option<String>,
    /// The end, in the same forms [default: now, or the recording's end].
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    until: Option<String>,
    /// The treatment of times in which nothing was recorded.
    #[arg(long, value_enum, default_value_t, conflicts_with = "number")]
    gaps: Gaps,
    /// The time zone of the times, such as Europe/Amsterdam [default: the host's].
    #[arg(long, conflicts_with = "number")]
    zone: Option<String>,
    /// Export this track alone as it was sent (H.264, H.265, AAC, Motion JPEG, uncompressed audio), instead
    /// of MP4.
    #[arg(long, requires = "number")]
    track: Option<u64>,
}

/// How gaps appear in the file.
#[derive(ValueEnum, Clone, Copy, Debug, Default)]
enum Gaps {
    /// The next picture follows at once.
    #[default]
    Close,
    /// The last picture stands still, so that times in the file differ as on the clock.
    Keep,
}

/// The result of an export.
#[derive(Serialize)]
struct ExportResult {
    to: String,
    bytes: u64,
    /// The times in the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    recorded: Vec<RecordedTime>,
}

/// A time without gaps.
#[derive(Serialize)]
struct RecordedTime {
    begins_unix_ns: u64,
    ends_unix_ns: u64,
}

pub(super) fn run(
    client: &ApiClient,
    args: &ExportArgs,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let zone = zone(args.zone.as_deref())?;
    let path = match args.number {
        Some(number) => recording_path(args, number)?,
        None => clip_path(args, &zone)?,
    };
    let mut target = Target::open(&args.to, io::stdout())?;
    let bar = output.byte_progress(None, "exporting");
    let mut is_begun = false;
    let download = client.download(&path, |bytes| {
        if !std::mem::replace(&mut is_begun, true) {
            target.begin()?;
        }
        let written = target.write_all(bytes);
        written.map_err(|error| target.failure("standard output", &error))?;
        bar.inc(bytes.len() as u64);
        Ok(())
    });
    let downloaded = block_on(download);
    bar.finish_and_clear();
    let Download {
        bytes,
        missing_blocks,
        recorded,
    } = match downloaded {
        Err(failure) if is_begun => return Err(incomplete(client, args, failure)),
        other => other?,
    };
    let flushed = target.flush();
    flushed.map_err(|error| target.failure("standard output", &error))?;
    let exported = ExportResult {
        to: args.to.display().to_string(),
        bytes,
        recorded: recorded_times(recorded.as_deref().unwrap_or_default()),
    };
    let text = || exported_text(&exported, &zone);
    if target.is_standard() {
        output.result_on_stderr(&exported, text)?;
    } else {
        output.result(&exported, text)?;
    }
    if missing_blocks > 0 {
        return Err(Failure::failed(format!(
            "{} of the recording could not be exported to {}: damaged or overwritten",
            counted(missing_blocks, "block"),
            printable(&exported.to)
        ))
        .help(
            "everything else is in the file; `clockwise recording check` shows what is damaged",
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn exported_text(of: &ExportResult, zone: &Zone) -> String {
    let mut text = format!("{} written to {}", Size(Bytes(of.bytes)), printable(&of.to));
    for times in &of.recorded {
        let [begin, end] = [times.begins_unix_ns, times.ends_unix_ns].map(|of| zone.text(of));
        text.push_str(&format!("\n  {begin} to {end}"));
    }
    text
}

/// Parses the times in the header of an answer.
fn recorded_times(header: &str) -> Vec<RecordedTime> {
    let times = header.split(", ").filter_map(|times| {
        let (begin, end) = times.split_once('/')?;
        Some(RecordedTime {
            begins_unix_ns: parse_rfc3339(begin).ok()?,
            ends_unix_ns: parse_rfc3339(end).ok()?,
        })
    });
    times.collect()
}

/// The named time zone, or that of the host.
pub(in crate::cmd) fn zone(name: Option<&str>) -> Result<Zone, Failure> {
    Zone::new(name).map_err(|error| bad_time("--zone", &error))
}

/// A time that is given by an option and cannot be used.
pub(in crate::cmd) fn bad_time(option: &str, error: &TimeError) -> Failure {
    Failure::bad_input(format!("{option}: {error}")).help(error.help())
}

/// The path of a range of the wall clock.
fn clip_path(args: &ExportArgs, zone: &Zone) -> Result<String, Failure> {
    let now = now_unix_ns();
    let Some(from_text) = &args.from else {
        return Err(
            Failure::bad_input("neither the number of a recording nor --from is given")
                .help("give --from and --until, or a number that `clockwise recording list` shows"),
        );
    };
    let from = zone.parse(from_text, now);
    let from = from.map_err(|error| bad_time("--from", &error))?;
    if from >= now {
        return Err(Failure::bad_input(format!(
            "--from {from_text} is in the future: {}",
            zone.text(from)
        ))
        .help("a time without a date is today's; give `yesterday 14:00`, or a date"));
    }
    let until_text = args.until.as_deref().unwrap_or("now");
    let until = zone.parse_end(until_text, now, from);
    let until = until.map_err(|error| bad_time("--until", &error))?;
    // A time of day that is before --from is that of tomorrow.
    if until > now + SOON_NS {
        let until = zone.text(until);
        return Err(
            Failure::bad_input(format!("--until {until_text} is in the future: {until}"))
                .help("leave --until out for everything up to now"),
        );
    }
    if until <= from {
        return Err(Failure::bad_input(format!(
            "--until {until_text} is not after --from {from_text}: {} and {}",
            zone.text(until),
            zone.text(from)
        ))
        .help("give a later --until"));
    }
    let volume = super::super::volume::path(&args.volume)?;
    let volume = volume.replacen("/v1/volumes/", "/media/", 1);
    let mut path = format!(
        "{volume}/export.mp4?from={}&until={}",
        rfc3339(from),
        rfc3339(until)
    );
    if matches!(args.gaps, Gaps::Keep) {
        path.push_str("&gaps=keep");
    }
    if let Some(zone) = zone.name() {
        let zone = utf8_percent_encode(zone, NON_ALPHANUMERIC);
        path.push_str(&format!("&zone={zone}"));
    }
    Ok(path)
}

/// The path of a recording or a part of it.
fn recording_path(args: &ExportArgs, number: u64) -> Result<String, Failure> {
    let from = position("--from", args.from.as_deref(), parse_moment)?;
    let until = position("--until", args.until.as_deref(), parse_time)?;
    check_order(from, until, "--until")?;
    // Files have the same names as in the JSON API, below another prefix.
    let path = path(&args.volume, number)?
        .replacen("/v1/volumes/", "/media/", 1)
        .replacen("/recordings/", "/", 1);
    let mut path = match args.track {
        Some(track) => format!("{path}/track{track}?"),
        None => format!("{path}/recording.mp4?stream=true"),
    };
    for (name, time) in [("from_ns", from), ("to_ns", until)] {
        if let Some(time) = time {
            path.push_str(&format!("&{name}={}", time.get()));
        }
    }
    Ok(path)
}

/// A time from the beginning of a recording.
fn position(
    option: &str,
    text: Option<&str>,
    parse: impl Fn(&str) -> Result<Nanos, QuantityError>,
) -> Result<Option<Nanos>, Failure> {
    let parsed = text.map(parse).transpose();
    parsed.map_err(|error| {
        Failure::bad_input(format!("{option}: {error}")).help(
            "with the number of a recording, give a time from its beginning; without it, a time of the clock",
        )
    })
}

/// The failure of an export that ended early. The recording may have been deleted or overwritten.
fn incomplete(client: &ApiClient, args: &ExportArgs, failure: Failure) -> Failure {
    let Some((number, Ok(path))) = args.number.map(|of| (of, path(&args.volume, of))) else {
        return failure;
    };
    let found = block_on(client.get::<RecordingDetail>(&path));
    match found {
        Err(gone) if gone.kind == FailureKind::BadInput => Failure::failed(format!(
            "recording {number} in volume {} was deleted or overwritten during the export: the file is incomplete",
            printable(&args.volume)
        ))
        .help("the file has the part that was read before"),
        _ => failure,
    }
}
