//! `clockwise timeline`.

use std::ops::Range;
use std::process::ExitCode;

use media::archive::wall_clock::now_unix_ns;
use sched::units::Nanos;

use super::block_on;
use super::recording::export::{bad_time, zone};
use crate::client::ApiClient;
use crate::failure::Failure;
use crate::local_time::Zone;
use crate::print::{Output, table};
use crate::quantity::Span;
use crate::wire::recordings::{TimelineEntry, TimelineView};

/// Options of `clockwise timeline`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The volume.
    volume: String,
    /// The day: a date such as 2026-11-28, today or yesterday.
    #[arg(long, default_value = "today", conflicts_with = "from")]
    day: String,
    /// Show a range of times instead of a day, from a time such as "2026-11-28 14:00", 14:00 or -10min.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: Option<String>,
    /// The end of that range [default: now].
    #[arg(
        long,
        value_name = "TIME",
        allow_hyphen_values = true,
        requires = "from"
    )]
    until: Option<String>,
    /// The time zone of the times, such as Europe/Amsterdam [default: the host's].
    #[arg(long)]
    zone: Option<String>,
}

pub(super) fn run(client: &ApiClient, args: &Args, output: &Output) -> Result<ExitCode, Failure> {
    let zone = zone(args.zone.as_deref())?;
    let times = times(args, &zone, now_unix_ns())?;
    let path = format!("{}/timeline", super::volume::path(&args.volume)?);
    let mut entries: Vec<TimelineEntry> = Vec::new();
    let mut next = Some(times.start);
    while let Some(from) = next {
        let path = format!("{path}?from_unix_ns={from}&until_unix_ns={}", times.end);
        let page: TimelineView = block_on(client.get(&path))?;
        entries.extend(page.entries);
        next = page.next_unix_ns.filter(|next| *next > from);
    }
    output.result(&entries, || text(&entries, &times, &zone))?;
    Ok(ExitCode::SUCCESS)
}

fn times(args: &Args, zone: &Zone, now: u64) -> Result<Range<u64>, Failure> {
    let times = match &args.from {
        Some(from) => {
            let from = zone.parse(from, now);
            let from = from.map_err(|error| bad_time("--from", &error))?;
            let until = args.until.as_deref().unwrap_or("now");
            let until = zone.parse_end(until, now, from);
            from..until.map_err(|error| bad_time("--until", &error))?
        }
        None => {
            let day = zone.day(&args.day, now);
            day.map_err(|error| bad_time("--day", &error))?
        }
    };
    let [from, until] = [times.start, times.end].map(|of| zone.text(of));
    if times.is_empty() {
        return Err(
            Failure::bad_input(format!("--until {until} is not after --from {from}"))
                .help("give a later --until"),
        );
    }
    if times.start >= now {
        return Err(Failure::bad_input(format!("{from} is in the future"))
            .help("give an earlier day or --from"));
    }
    Ok(times)
}

fn text(entries: &[TimelineEntry], times: &Range<u64>, zone: &Zone) -> String {
    if entries.is_empty() {
        let [from, until] = [times.start, times.end].map(|of| zone.text(of));
        return format!("nothing was recorded from {from} to {until}\n");
    }
    let row = |of: &TimelineEntry| {
        let length = of.ends_unix_ns.saturating_sub(of.begins_unix_ns);
        let what = match (&of.cause, of.recording) {
            (Some(cause), _) => format!("gap: {cause}"),
            (None, Some(number)) => format!("recording {number}"),
            (None, None) => String::new(),
        };
        let state = if of.is_recorded { "recording" } else { "" };
        [
            zone.text(of.begins_unix_ns),
            zone.text(of.ends_unix_ns),
            Span(Nanos(length)).to_string(),
            what,
            state.to_owned(),
        ]
    };
    let head = ["BEGIN", "END", "LENGTH", "WHAT", "STATE"];
    table(head, &[2], entries.iter().map(row)) + "\n"
}
