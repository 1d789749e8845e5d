//! `clockwise recording`.

pub(super) mod export;
mod index;
mod list;
mod lock;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use sched::units::{Bytes, Nanos};

use super::block_on;
use crate::client::ApiClient;
use crate::failure::{Failure, FailureKind};
use crate::local_time::Zone;
use crate::print::{Output, list as rows_text, table};
use crate::quantity::{Size, Span, parse_moment, parse_position, parse_size, parse_time};
use crate::text::printable;
use crate::wire::recordings::{
    ChangeRetention, RecordedTrack, RecordingCheck, RecordingDetail, RecordingIndex, RecordingView,
    RetentionView,
};
use export::ExportArgs;
use lock::LockArgs;

/// `clockwise recording`.
#[derive(Subcommand, Debug)]
pub enum RecordingCommand {
    /// List the recordings in a volume, or in all volumes.
    List {
        /// The volume [default: all].
        volume: Option<String>,
        /// The time zone of the times, such as Europe/Amsterdam [default: the host's].
        #[arg(long)]
        zone: Option<String>,
    },
    /// Show a recording and its tracks.
    Show {
        /// The volume.
        volume: String,
        /// The number of the recording.
        number: u64,
        /// The time zone of the times, such as Europe/Amsterdam [default: the host's].
        #[arg(long)]
        zone: Option<String>,
    },
    /// Write a recording to a file without re-encoding. Reads are best effort.
    Export(ExportArgs),
    /// Read all of a recording and report damage.
    Check {
        /// The volume.
        volume: String,
        /// The number of the recording.
        number: u64,
    },
    /// Show the index of a recording: the start of its groups of blocks, or the blocks and key frames of a
    /// time range.
    Index(IndexArgs),
    /// Delete recordings. A recording in progress cannot be deleted.
    Delete {
        /// The volume.
        volume: String,
        /// The numbers of the recordings.
        #[arg(required = true)]
        numbers: Vec<u64>,
    },
    /// Set or show how much of a volume's recordings is kept.
    Keep(KeepArgs),
    /// Keep a range of times whatever is deleted or overwritten: copy it into a volume of its own.
    Lock(LockArgs),
    /// End a lock, and delete its copy.
    Unlock {
        /// The name of the lock.
        lock: String,
    },
    /// List the locks.
    Locks {
        /// The time zone of the times, such as Europe/Amsterdam [default: the host's].
        #[arg(long)]
        zone: Option<String>,
    },
}

/// Options of `clockwise recording index`.
#[derive(Args, Debug)]
pub struct IndexArgs {
    /// The volume.
    volume: String,
    /// The number of the recording.
    number: u64,
    /// List blocks and key frames from this time on, such as 1h or 90s, beginning with the block that is
    /// played then.
    #[arg(long, value_parser = parse_moment, allow_hyphen_values = true)]
    from: Option<Nanos>,
    /// List blocks and key frames up to this time.
    #[arg(long, value_parser = parse_time, allow_hyphen_values = true)]
    to: Option<Nanos>,
    /// List all frames of the time range instead, with their places and sizes.
    #[arg(long)]
    frames: bool,
}

/// Options of `clockwise recording keep`.
#[derive(clap::Args, Debug)]
pub struct KeepArgs {
    /// The volume.
    volume: String,
    /// Drop recordings that are older than this, such as 30d.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    age: Option<Nanos>,
    /// Drop the oldest recordings when all together exceed this size, such as 500GiB.
    #[arg(long, value_parser = parse_size, allow_hyphen_values = true)]
    size: Option<Bytes>,
    /// Let the volume grow up to this size, such as 2TiB, instead of dropping the oldest recordings; 0: its
    /// size is fixed.
    #[arg(long, value_name = "SIZE", value_parser = parse_position, allow_hyphen_values = true)]
    grow_to: Option<Bytes>,
    /// Leave this much of the pool's space to others, such as 100GiB: the volume does not grow beyond that,
    /// and returns space to restore it; 0: the volume may take all space.
    #[arg(long, value_name = "SIZE", value_parser = parse_position, allow_hyphen_values = true)]
    free: Option<Bytes>,
    /// Keep everything until the volume is full.
    #[arg(long, conflicts_with_all = ["age", "size"])]
    everything: bool,
    /// Apply the change even if recordings are lost at once.
    #[arg(long)]
    force: bool,
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
        RecordingCommand::List { volume, zone } => {
            return list::run(client, volume.as_deref(), zone.as_deref(), output);
        }
        RecordingCommand::Show {
            volume,
            number,
            zone,
        } => {
            let zone = export::zone(zone.as_deref())?;
            let of: RecordingDetail = block_on(client.get(&path(volume, *number)?))?;
            output.result(&of, || detail_text(&of, &zone))?;
        }
        RecordingCommand::Export(args) => return export::run(client, args, output),
        RecordingCommand::Index(args) => {
            check_order(args.from, args.to, "--to")?;
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
        RecordingCommand::Lock(args) => return lock::lock(client, args, output),
        RecordingCommand::Unlock { lock } => return lock::unlock(client, lock, output),
        RecordingCommand::Locks { zone } => return lock::list(client, zone.as_deref(), output),
        RecordingCommand::Check { volume, number } => {
            let path = format!("{}/check", path(volume, *number)?);
            let of: RecordingCheck =
                output.during("reading the recording", || block_on(client.get(&path)))?;
            output.result(&of, || check_text(&of))?;
            if !of.is_sound {
                return Ok(FailureKind::Failed.exit_code());
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks that the end is after the start.
fn check_order(
    from: Option<Nanos>,
    until: Option<Nanos>,
    until_option: &'static str,
) -> Result<(), Failure> {
    match (from, until) {
        (Some(from), Some(until)) if until <= from => Err(Failure::bad_input(format!(
            "{until_option} {} is not after --from {}",
            Span(until),
            Span(from)
        ))
        .help("give both as times from the beginning of the recording")),
        _ => Ok(()),
    }
}

fn detail_text(of: &RecordingDetail, zone: &Zone) -> String {
    let length = of.ends_ns.saturating_sub(of.begins_ns);
    let mut rows = vec![
        ("recording", of.number.to_string()),
        ("begun", zone.text_ms(of.begun_unix_ns)),
        (
            if of.is_recorded {
                "recorded to"
            } else {
                "ended"
            },
            zone.text_ms(of.ends_unix_ns),
        ),
        ("length", Span(Nanos(length)).to_string()),
    ];
    if of.begins_ns > 0 {
        rows.push((
            "begins at",
            format!("{}, the part before is dropped", Span(Nanos(of.begins_ns))),
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
        if of.is_recorded { "recording" } else { "ended" }.to_owned(),
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
    let mut text = format!("{}\n{tracks}", rows_text(&rows));
    for track in &of.tracks {
        if let Some(why) = &track.why_not_mp4 {
            let line = format!(
                "track {} cannot be in an MP4 file: {}",
                track.number,
                printable(why)
            );
            text = format!("{}\n{line}", text.trim_end_matches('\n'));
        }
    }
    text
}

fn check_text(of: &RecordingCheck) -> String {
    let report = &of.report;
    let sound = if of.is_sound { "sound" } else { "damaged" };
    let mut out = format!(
        "{sound}: {} blocks, {} packets, {}; {} packets were lost\n",
        report.blocks,
        report.packets,
        Size(Bytes(report.bytes)),
        report.lost
    );
    if report.damaged > 0 {
        let at: Vec<String> = report.damaged_at.iter().map(u64::to_string).collect();
        out.push_str(&format!(
            "{} blocks are damaged or overwritten: {}\n",
            report.damaged,
            at.join(", ")
        ));
    }
    if report.impossible > 0 {
        out.push_str(&format!(
            "{} packets contradict their block\n",
            report.impossible
        ));
    }
    if report.sections_wrong > 0 {
        out.push_str(&format!(
            "{} sections of the index are wrong\n",
            report.sections_wrong
        ));
    }
    if report.sections_missing > 0 {
        out.push_str(&format!(
            "{} sections of the index are missing, as after a crash: they are rebuilt from their blocks when needed\n",
            report.sections_missing
        ));
    }
    out
}

/// Deletes recordings one after another, until one cannot be deleted.
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
        let line = |of: &RecordingView| format!("deleted recording {}\n", of.number);
        deleted.iter().map(line).collect()
    })?;
    Ok(ExitCode::SUCCESS)
}

/// A maximal age as text, in days if it is a whole number of days.
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
        rows_text(&[
            ("kept for", age.unwrap_or_else(|| "ever".to_owned())),
            (
                "kept at most",
                at_most.unwrap_or_else(|| "the volume's size".to_owned()),
            ),
            (
                "grows to",
                grows.unwrap_or_else(|| "does not grow".to_owned()),
            ),
            (
                "kept free",
                free.unwrap_or_else(|| "none of the pool".to_owned()),
            ),
        ])
    })?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_days_are_displayed_in_days() {
        let day = 86_400_000_000_000;
        assert_eq!(kept_for(30 * day), "30 d");
        assert_eq!(kept_for(day), "1 d");
        assert_eq!(kept_for(day / 2), "43200 s");
        assert_eq!(kept_for(day + day / 2), "129600 s");
        assert_eq!(kept_for(0), "0");
    }
}
