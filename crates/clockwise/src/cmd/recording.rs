//! `clockwise recording`.

mod index;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use sched::units::{Bytes, Nanos};
use serde::Serialize;

use super::block_on;
use super::stream::target::Target;
use crate::client::{ApiClient, Downloaded};
use crate::failure::{Failure, FailureKind};
use crate::print::{Output, list, table};
use crate::quantity::{Size, Span, parse_moment, parse_position, parse_size, parse_time};
use crate::text::printable;
use crate::wire::recordings::{
    ChangeRetention, RecordedTrack, RecordingCheck, RecordingDetail, RecordingIndex, RecordingView,
    RetentionView,
};

/// `clockwise recording`.
#[derive(Subcommand, Debug)]
pub enum RecordingCommand {
    /// List what was recorded over RTSP in a volume.
    List {
        /// The volume.
        volume: String,
    },
    /// Show a recording and what can be made of it.
    Show {
        /// The volume.
        volume: String,
        /// Its number there.
        number: u64,
    },
    /// Write a recording to a file, without encoding it anew: what is read takes what the streams leave.
    Export(ExportArgs),
    /// Read all of a recording, and say what of it is damaged.
    Check {
        /// The volume.
        volume: String,
        /// Its number there.
        number: u64,
    },
    /// List what the index of a recording says: when its groups of blocks begin, or a time's blocks and key frames.
    Index(IndexArgs),
    /// Delete recordings; one that goes on cannot be.
    Delete {
        /// The volume.
        volume: String,
        /// Their numbers.
        #[arg(required = true)]
        numbers: Vec<u64>,
    },
    /// Say how much of what is recorded in a volume is kept, or show it.
    Keep(KeepArgs),
}

/// Options of `clockwise recording export`.
#[derive(Args, Debug)]
pub struct ExportArgs {
    /// The volume.
    volume: String,
    /// Its number there.
    number: u64,
    /// The file, or `-` for standard output.
    #[arg(long)]
    to: PathBuf,
    /// From which time of the recording on, such as 1h or 90s: from the key frame before [default: its beginning].
    #[arg(long, value_parser = parse_moment, allow_hyphen_values = true)]
    from: Option<Nanos>,
    /// Up to which time of the recording [default: its end].
    #[arg(long, value_parser = parse_time, allow_hyphen_values = true)]
    until: Option<Nanos>,
    /// This track alone and as it was sent (H.264, H.265, AAC, Motion JPEG, sound that is not compressed), instead of
    /// MP4.
    #[arg(long)]
    track: Option<u64>,
}

/// Options of `clockwise recording index`.
#[derive(Args, Debug)]
pub struct IndexArgs {
    /// The volume.
    volume: String,
    /// Its number there.
    number: u64,
    /// List blocks and key frames from this time of the recording on, such as 1h or 90s: from the block that is played
    /// then.
    #[arg(long, value_parser = parse_moment, allow_hyphen_values = true)]
    from: Option<Nanos>,
    /// List blocks and key frames up to this time of the recording.
    #[arg(long, value_parser = parse_time, allow_hyphen_values = true)]
    to: Option<Nanos>,
    /// List all frames of that time instead, with where each lies and how long it is.
    #[arg(long)]
    frames: bool,
}

/// How much is kept.
#[derive(clap::Args, Debug)]
pub struct KeepArgs {
    /// The volume.
    volume: String,
    /// Let go of what is older, such as 30d.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    age: Option<Nanos>,
    /// Let go of the oldest when recordings come to more than that, such as 500GiB.
    #[arg(long, value_parser = parse_size, allow_hyphen_values = true)]
    size: Option<Bytes>,
    /// Let the volume grow up to that instead of overwriting the oldest, such as 2TiB; 0: it stays as long as it is.
    #[arg(long, value_name = "SIZE", value_parser = parse_position, allow_hyphen_values = true)]
    grow_to: Option<Bytes>,
    /// Leave so much of the pool's space to others, such as 100GiB: the volume does not grow beyond that, and gives
    /// back what is missing of it; 0: it takes what there is.
    #[arg(long, value_name = "SIZE", value_parser = parse_position, allow_hyphen_values = true)]
    free: Option<Bytes>,
    /// Keep everything until the volume is full.
    #[arg(long, conflicts_with_all = ["age", "size"])]
    everything: bool,
    /// Do it although something that is recorded goes at once by that, for good.
    #[arg(long)]
    force: bool,
}

/// What was exported.
#[derive(Serialize)]
struct Exported {
    to: String,
    bytes: u64,
}

fn path(volume: &str, number: u64) -> Result<String, Failure> {
    Ok(format!(
        "{}/recordings/{number}",
        super::volume::path(volume)?
    ))
}

pub(super) fn run(
    client: &ApiClient,
    command: &RecordingCommand,
    output: &Output,
) -> Result<ExitCode, Failure> {
    match command {
        RecordingCommand::List { volume } => {
            let path = format!("{}/recordings", super::volume::path(volume)?);
            let recordings: Vec<RecordingView> = block_on(client.get(&path))?;
            output.result(&recordings, || text(&recordings))?;
        }
        RecordingCommand::Show { volume, number } => {
            let of: RecordingDetail = block_on(client.get(&path(volume, *number)?))?;
            output.result(&of, || shown(&of))?;
        }
        RecordingCommand::Export(args) => return export(client, args, output),
        RecordingCommand::Index(args) => {
            in_order(args.from, args.to, "--to")?;
            let mut path = format!("{}/index?", path(&args.volume, args.number)?);
            for (name, time) in [("from_ns", args.from), ("to_ns", args.to)] {
                if let Some(time) = time {
                    path.push_str(&format!("{name}={}&", time.get()));
                }
            }
            if args.frames {
                path.push_str("frames=true");
            }
            let of: RecordingIndex = block_on(client.get(path.trim_end_matches(['?', '&'])))?;
            output.result(&of, || index::text(&of))?;
        }
        RecordingCommand::Delete { volume, numbers } => {
            return delete(client, volume, numbers, output);
        }
        RecordingCommand::Keep(args) => return keep(client, args, output),
        RecordingCommand::Check { volume, number } => {
            let path = format!("{}/check", path(volume, *number)?);
            let of: RecordingCheck =
                output.during("reading the recording", || block_on(client.get(&path)))?;
            output.result(&of, || checked(&of))?;
            if !of.is_sound {
                return Ok(FailureKind::Failed.exit_code());
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether there is a time between two options.
fn in_order(from: Option<Nanos>, until: Option<Nanos>, name: &'static str) -> Result<(), Failure> {
    match (from, until) {
        (Some(from), Some(until)) if until <= from => Err(Failure::bad_input(format!(
            "{name} {} is not after --from {}",
            Span(until),
            Span(from)
        ))
        .help("give both from the beginning of the recording on")),
        _ => Ok(()),
    }
}

fn export(client: &ApiClient, args: &ExportArgs, output: &Output) -> Result<ExitCode, Failure> {
    in_order(args.from, args.until, "--until")?;
    let path = path(&args.volume, args.number)?;
    // The same names as in the API, in a part of it that is no JSON.
    let path = path
        .replacen("/v1/volumes/", "/media/", 1)
        .replacen("/recordings/", "/", 1);
    let mut path = match args.track {
        Some(track) => format!("{path}/track{track}?"),
        None => format!("{path}/recording.mp4?stream=true"),
    };
    for (name, time) in [("from_ns", args.from), ("to_ns", args.until)] {
        if let Some(time) = time {
            path.push_str(&format!("&{name}={}", time.get()));
        }
    }
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
    let Downloaded {
        bytes,
        missing_blocks,
    } = match downloaded {
        Err(failure) if is_begun => return Err(why_not_whole(client, args, failure)),
        other => other?,
    };
    let flushed = target.flush();
    flushed.map_err(|error| target.failure("standard output", &error))?;
    let exported = Exported {
        to: args.to.display().to_string(),
        bytes,
    };
    let said = || {
        format!(
            "{} written to {}",
            Size(Bytes(bytes)),
            printable(&exported.to)
        )
    };
    if target.is_standard() {
        output.aside(&exported, said)?;
    } else {
        output.result(&exported, said)?;
    }
    if missing_blocks > 0 {
        let blocks = match missing_blocks {
            1 => "1 block".to_owned(),
            more => format!("{more} blocks"),
        };
        return Err(Failure::failed(format!(
            "{blocks} of the recording are missing in {}: damaged or gone",
            printable(&exported.to)
        ))
        .help("all else is in it; `clockwise recording check` says what is damaged"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Why a file that was begun is not whole: the recording may be gone.
fn why_not_whole(client: &ApiClient, args: &ExportArgs, failure: Failure) -> Failure {
    let Ok(path) = path(&args.volume, args.number) else {
        return failure;
    };
    let asked = block_on(client.get::<RecordingDetail>(&path));
    match asked {
        Err(gone) if gone.kind == FailureKind::BadInput => Failure::failed(format!(
            "recording {} in volume {} was deleted or overwritten while it was exported: the file is not whole",
            args.number,
            printable(&args.volume)
        ))
        .help("what was read of it is in the file"),
        _ => failure,
    }
}

fn shown(of: &RecordingDetail) -> String {
    let begun = SystemTime::UNIX_EPOCH + Duration::from_nanos(of.begun_unix_ns);
    let ends = SystemTime::UNIX_EPOCH + Duration::from_nanos(of.ends_unix_ns);
    let length = of.ends_ns.saturating_sub(of.begins_ns);
    let mut rows = vec![
        ("recording", of.number.to_string()),
        ("begun", humantime::format_rfc3339_millis(begun).to_string()),
        (
            if of.is_recorded { "up to" } else { "ended" },
            humantime::format_rfc3339_millis(ends).to_string(),
        ),
        ("length", Span(Nanos(length)).to_string()),
    ];
    if of.begins_ns > 0 {
        rows.push((
            "from",
            format!("{} of its time on", Span(Nanos(of.begins_ns))),
        ));
    }
    let bytes = of.blocks.saturating_mul(of.block_bytes);
    rows.push((
        "on disk",
        format!(
            "{}, {} blocks of {}",
            Size(Bytes(bytes)),
            of.blocks,
            Size(Bytes(of.block_bytes))
        ),
    ));
    rows.push((
        "state",
        if of.is_recorded { "goes on" } else { "ended" }.to_owned(),
    ));
    let row = |track: &RecordedTrack| {
        [
            track.number.to_string(),
            match &*track.encoding {
                "" => "?".to_owned(),
                name => printable(name).into_owned(),
            },
            track.clock_rate.to_string(),
            if track.mp4 { "yes" } else { "no" }.to_owned(),
            track.raw.clone().unwrap_or_else(|| "no".to_owned()),
        ]
    };
    let tracks = table(
        ["TRACK", "ENCODING", "CLOCK", "MP4", "ALONE"],
        &[0, 2],
        of.tracks.iter().map(row),
    );
    let mut shown = format!("{}\n{tracks}", list(&rows));
    for track in &of.tracks {
        if let Some(why) = &track.why_not_mp4 {
            let number = track.number;
            let said = format!("track {number} is in no MP4 file: {}", printable(why));
            shown = format!("{}\n{said}", shown.trim_end_matches('\n'));
        }
    }
    shown
}

fn checked(of: &RecordingCheck) -> String {
    let sound = if of.is_sound { "sound" } else { "damaged" };
    let mut out = format!(
        "{sound}: {} blocks, {} packets, {}; {} packets never came\n",
        of.blocks,
        of.packets,
        Size(Bytes(of.bytes)),
        of.lost
    );
    if of.damaged > 0 {
        let at: Vec<String> = of.damaged_at.iter().map(u64::to_string).collect();
        out.push_str(&format!(
            "{} blocks are damaged or gone: {}\n",
            of.damaged,
            at.join(", ")
        ));
    }
    if of.impossible > 0 {
        out.push_str(&format!("{} packets make no sense\n", of.impossible));
    }
    if of.sections_wrong > 0 {
        out.push_str(&format!(
            "{} sections of the index are wrong\n",
            of.sections_wrong
        ));
    }
    if of.sections_missing > 0 {
        out.push_str(&format!(
            "{} sections of the index are missing, as after a crash: they are made again of their blocks when they are needed\n",
            of.sections_missing
        ));
    }
    out
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

/// Deletes one after another; the first that cannot be ends it.
fn delete(
    client: &ApiClient,
    volume: &str,
    numbers: &[u64],
    output: &Output,
) -> Result<ExitCode, Failure> {
    let path = super::volume::path(volume)?;
    let mut deleted: Vec<RecordingView> = Vec::new();
    for number in numbers {
        deleted.push(block_on(
            client.delete(&format!("{path}/recordings/{number}")),
        )?);
    }
    output.result(&deleted, || {
        let line = |of: &RecordingView| format!("recording {} is deleted\n", of.number);
        deleted.iter().map(line).collect()
    })?;
    Ok(ExitCode::SUCCESS)
}

/// An age as it is set: in days where these are whole.
fn kept_for(age_ns: u64) -> String {
    const DAY_NS: u64 = 86_400_000_000_000;
    match age_ns / DAY_NS {
        days if days > 0 && age_ns.is_multiple_of(DAY_NS) => format!("{days} d"),
        _ => Span(Nanos(age_ns)).to_string(),
    }
}

fn keep(client: &ApiClient, args: &KeepArgs, output: &Output) -> Result<ExitCode, Failure> {
    let path = format!("{}/retention", super::volume::path(&args.volume)?);
    let none = args.everything.then_some(0);
    let asked = ChangeRetention {
        keep_for_ns: args.age.map(Nanos::get).or(none),
        keep_bytes: args.size.map(Bytes::get).or(none),
        grow_to_bytes: args.grow_to.map(Bytes::get),
        pool_free_bytes: args.free.map(Bytes::get),
        force: false,
    };
    let change = ChangeRetention {
        force: args.force,
        ..asked
    };
    let kept: RetentionView = match asked == ChangeRetention::default() {
        true => block_on(client.get(&path))?,
        false => block_on(client.patch(&path, &change))?,
    };
    output.result(&kept, || {
        let age = kept.keep_for_ns.map(kept_for);
        let size = |of: Option<u64>| of.map(|of| Size(Bytes(of)).to_string());
        let at_most = size(kept.keep_bytes);
        let grows = size(kept.grow_to_bytes);
        let free = size(kept.pool_free_bytes);
        list(&[
            ("kept for", age.unwrap_or_else(|| "any time".to_owned())),
            (
                "kept at most",
                at_most.unwrap_or_else(|| "what the volume has room for".to_owned()),
            ),
            ("grows to", grows.unwrap_or_else(|| "what it is".to_owned())),
            (
                "left to others",
                free.unwrap_or_else(|| "nothing of the pool".to_owned()),
            ),
        ])
    })?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_days_are_told_in_days() {
        let day = 86_400_000_000_000;
        assert_eq!(kept_for(30 * day), "30 d");
        assert_eq!(kept_for(day), "1 d");
        assert_eq!(kept_for(day / 2), "43200 s");
        assert_eq!(kept_for(day + day / 2), "129600 s");
        assert_eq!(kept_for(0), "0");
    }
}
