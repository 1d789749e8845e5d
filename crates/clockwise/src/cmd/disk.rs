//! `clockwise disk`.

mod measure;

use std::path::Path;
use std::process::ExitCode;

use ::measure::facts::Effort;
use clap::Subcommand;
use sched::profile::DriveProfile;
use sched::units::{Bytes, BytesPerSecond, Nanos};

use super::{Cli, block_on};
use crate::failure::Failure;
use crate::print::{
    Output, counted, list, percent, short, slack, table, warning_lines, warnings_of_disk,
};
use crate::quantity::{Rate, Size, Span};
use crate::wire::profile::ProfileView;
use crate::wire::service_times::ServiceTimesView;
use crate::wire::view::{DiskView, StatusView};

/// `clockwise disk`.
#[derive(Subcommand, Debug)]
pub enum DiskCommand {
    /// Show the pool's disks, or one of them in full.
    Show {
        /// The disk's number, its name, or the last part of its name.
        disk: Option<String>,
    },
    /// Print the drive profile that a disk should have: the present profile, widened by its overruns over all
    /// restarts of the server. Save it, set it as the disk's `profile`, and restart the server.
    Profile {
        /// The disk's number, its name, or the last part of its name.
        disk: String,
    },
    /// Measure a drive, explain the findings, and write its profile. No server may use it, except with `--online`.
    Measure(measure::MeasureArgs),
}

pub(super) fn run_disk(
    cli: &Cli,
    command: &DiskCommand,
    output: &Output,
) -> Result<ExitCode, Failure> {
    if let DiskCommand::Measure(args) = command {
        return measure::run(cli, args, output);
    }
    let client = cli.client()?;
    let status: StatusView = block_on(client.get("/v1/status"))?;
    let disks = status.disks;
    let names: Vec<&str> = disks.iter().map(|disk| disk.name.as_str()).collect();
    match command {
        DiskCommand::Show { disk: None } => output.result(&disks, || {
            disks_text(&disks) + "\n\n" + &warning_lines(&status.warnings, names.iter().copied())
        })?,
        DiskCommand::Show { disk: Some(wanted) } => {
            let found = &disks[find_disk(&names, wanted)?];
            output.result(found, || {
                disk_text(found)
                    + &service_times(&found.service_times)
                    + &warnings_of_disk(&status.warnings, &found.name)
            })?;
        }
        DiskCommand::Profile { disk } => {
            let number = find_disk(&names, disk)?;
            let path = format!("/v1/disks/{number}/profile");
            let profile: ProfileView = block_on(client.get(&path))?;
            output.note(&measured(&profile));
            output.result(&profile, || profile.toml.trim_end().to_owned())?;
        }
        DiskCommand::Measure(_) => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures a disk of a new pool with writes, which destroy all data on it, and writes its profile.
pub(super) fn measure_all(
    cli: &Cli,
    device: &Path,
    profile: &Path,
    effort: Effort,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let args = measure::MeasureArgs::destroying(device, profile, effort);
    measure::run(cli, &args, output)
}

/// A sentence about the measured service times behind a profile.
fn measured(profile: &ProfileView) -> String {
    let of = format!(
        "{} since {} ({})",
        profile.disk,
        profile.since,
        counted(profile.count, "request")
    );
    let most = percent(profile.actual_over_predicted_max);
    if profile.actual_over_predicted_max > 1.0 {
        format!(
            "a request of {of} took {most} of its predicted time: the profile's times are widened by {} % in total{}",
            profile.widened_percent,
            if profile.widened_percent == DriveProfile::WIDENED_PERCENT_MAX {
                ", the maximum; a drive that takes longer counts as failed"
            } else {
                ""
            }
        )
    } else {
        format!(
            "no request of {of} took more than {most} of its predicted time: the profile is unchanged"
        )
    }
}

/// The index of the disk with this name, number, or last part of its name.
pub(super) fn find_disk(names: &[&str], wanted: &str) -> Result<usize, Failure> {
    let is_number = |number: usize| number.to_string() == wanted;
    let exact = names.iter().position(|name| *name == wanted);
    if let Some(found) = exact.or_else(|| (0..names.len()).find(|number| is_number(*number))) {
        return Ok(found);
    }
    let short = (0..names.len()).filter(|number| short(names[*number]) == wanted);
    match short.collect::<Vec<_>>()[..] {
        [found] => Ok(found),
        [] => Err(Failure::bad_input(format!(
            "there is no disk {wanted:?}; the disks are {}",
            names.join(", ")
        ))
        .help("`clockwise disk show` lists the disks")),
        [first, second, ..] => Err(Failure::bad_input(format!(
            "{wanted:?} is ambiguous: it may be disk {first}, {:?}, or disk {second}, {:?}",
            names[first], names[second]
        ))
        .help("give the disk's number, or its full name")),
    }
}

fn profile(disk: &DiskView) -> String {
    if disk.profile_is_measured {
        disk.profile.clone()
    } else if disk.profile_doubt.is_some() {
        format!("{} (an estimate)", disk.profile)
    } else {
        format!("{} (not measured)", disk.profile)
    }
}

/// The state of a disk in a few words.
fn state(disk: &DiskView) -> String {
    if let Some(reason) = &disk.failed {
        reason.clone()
    } else if disk.stalled_ns > 0 {
        format!("stalled, no answer for {}", Span(Nanos(disk.stalled_ns)))
    } else {
        "ok".to_owned()
    }
}

fn disks_text(disks: &[DiskView]) -> String {
    table(
        [
            "#",
            "DISK",
            "SIZE",
            "PROFILE",
            "DEPTH",
            "DURABILITY",
            "PROMISED",
            "STATE",
        ],
        &[0, 2, 4, 6],
        disks.iter().enumerate().map(|(number, disk)| {
            [
                number.to_string(),
                disk.name.clone(),
                Size(Bytes(disk.size_bytes)).to_string(),
                profile(disk),
                disk.outstanding.to_string(),
                disk.durability.clone(),
                percent(disk.utilization_promised),
                state(disk),
            ]
        }),
    )
}

/// The zones of a disk, as `--zone` takes them.
fn zones(disk: &DiskView) -> String {
    let starts = disk.zone_starts_bytes.iter().enumerate();
    let starts: Vec<String> = starts
        .map(|(zone, start)| format!("{zone} from {}", Size(Bytes(*start))))
        .collect();
    starts.join(", ")
}

/// The part of its link that is promised, if it shares one.
fn link(disk: &DiskView) -> String {
    let Some(link) = &disk.link else {
        return "its own".to_owned();
    };
    let share = link.promised_bytes_per_second as f64 / link.rate_bytes_per_second as f64;
    let place = if link.promises {
        "the limit is each disk's time"
    } else {
        "this disk has no place on it: best effort only"
    };
    format!(
        "{}, streams of all its disks use {} of {}; {place}",
        link.name,
        percent(share),
        Rate(BytesPerSecond(link.rate_bytes_per_second))
    )
}

fn disk_text(disk: &DiskView) -> String {
    let span = |nanos| Span(Nanos(nanos)).to_string();
    list(&[
        ("disk", disk.name.clone()),
        ("size", Size(Bytes(disk.size_bytes)).to_string()),
        ("profile", profile(disk)),
        ("requests at a time", disk.outstanding.to_string()),
        ("durability", disk.durability.clone()),
        ("zones", zones(disk)),
        ("promised", percent(disk.utilization_promised)),
        ("link", link(disk)),
        ("kept for best effort", percent(disk.floor)),
        ("busy", percent(disk.utilization_measured)),
        ("delta-L", slack(disk.delta_l_ns)),
        ("slack now", slack(disk.slack_ns)),
        ("served after release", disk.served.real_time.to_string()),
        ("served before release", disk.served.early.to_string()),
        ("best effort in slack", disk.served.slack.to_string()),
        (
            "best effort in containers",
            disk.served.container.to_string(),
        ),
        (
            "requests completed",
            format!(
                "{} of streams, {} synchronous, {} asynchronous",
                disk.completed.streams, disk.completed.sync, disk.completed.asynchronous
            ),
        ),
        (
            "deadlines missed",
            format!(
                "{}, the worst by {}",
                disk.misses,
                span(disk.late_net_max_ns)
            ),
        ),
        (
            "  with host lateness",
            format!(
                "{}, the worst by {}",
                disk.misses_gross,
                span(disk.late_max_ns)
            ),
        ),
        (
            "overruns",
            format!(
                "{}, the longest {}",
                disk.overruns,
                span(disk.overrun_max_ns)
            ),
        ),
        ("actual over predicted", actual_over_predicted(disk)),
        (
            "host late",
            format!(
                "{} times, at most {}",
                disk.host_late_count,
                span(disk.host_late_max_ns)
            ),
        ),
        ("read", Size(Bytes(disk.read_bytes)).to_string()),
        ("written", Size(Bytes(disk.written_bytes)).to_string()),
        (
            "best-effort latency",
            format!(
                "mean {}, p50 {}, p99 {}, max {}",
                span(disk.best_effort.mean_ns),
                span(disk.best_effort.p50_ns),
                span(disk.best_effort.p99_ns),
                span(disk.best_effort.max_ns)
            ),
        ),
        ("errors", disk.errors.to_string()),
        ("bad and slow places", places(disk)),
        ("SMART", smart(disk)),
        ("state", state(disk)),
    ])
}

/// The service times with the present profile: a table by kind of request, and the last overruns.
fn service_times(times: &ServiceTimesView) -> String {
    if times.count == 0 {
        return String::new();
    }
    let span = |nanos| Span(Nanos(nanos)).to_string();
    let rows = times.kinds.iter().map(|kind| {
        [
            kind.op.clone(),
            kind.user.clone(),
            Size(Bytes(kind.length_bytes_max)).to_string(),
            kind.count.to_string(),
            kind.overruns.to_string(),
            percent(kind.actual_over_predicted),
            percent(kind.actual_over_predicted_p99),
            percent(kind.actual_over_predicted_max),
            span(kind.excess_max_ns),
        ]
    });
    let header = [
        "OP", "FOR", "UP TO", "REQUESTS", "OVERRUNS", "MEAN", "99 %", "MOST", "LONGEST",
    ];
    let mut text = format!(
        "\nactual over predicted service time since {}, over all restarts:\n{}\n",
        times.since,
        table(header, &[2, 3, 4, 5, 6, 7, 8], rows)
    );
    for overrun in &times.last_overruns {
        text += &format!("overrun: {overrun}\n");
    }
    text
}

/// The places that the pool does not use, or for best effort only.
fn places(disk: &DiskView) -> String {
    if disk.bad_places + disk.slow_places == 0 {
        return "none".to_owned();
    }
    let mut text = format!("{} bad", disk.bad_places);
    if disk.slow_places > 0 {
        text += &format!(
            ", {} slow (best effort only; up to {} longer than predicted)",
            disk.slow_places,
            Span(Nanos(disk.slow_extra_max_ns))
        );
    }
    if disk.places_to_leave > 0 {
        text += &format!("; data is still to be moved from {}", disk.places_to_leave);
    }
    text
}

/// The drive's own counters.
fn smart(disk: &DiskView) -> String {
    let Some(smart) = disk.smart else {
        return "not available".to_owned();
    };
    let count =
        |count: Option<u64>| count.map_or_else(|| "unknown".to_owned(), |of| of.to_string());
    format!(
        "{} pending, {} reallocated sectors",
        count(smart.pending_sectors),
        count(smart.reallocated_sectors)
    )
}

/// The ratio of actual to predicted service times, and the widening that would avoid overruns.
fn actual_over_predicted(disk: &DiskView) -> String {
    let (mean, most) = (disk.actual_over_predicted, disk.actual_over_predicted_max);
    let mut text = format!("{} overall, at most {}", percent(mean), percent(most));
    if most > 1.0 {
        // Rounded up, so that the longest request fits.
        let factor = ((most * 1e3).round() / 10.0).ceil() / 100.0;
        text += &format!(
            "; without overruns the profile's times would have to be {factor:.2} times as long"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::view::SmartView;

    #[test]
    fn disk_is_found_by_name_number_and_last_part_of_its_name() {
        let names = ["/a/x", "/b/x", "/b/y", "1"];
        let found = |wanted| find_disk(&names, wanted);
        assert_eq!(found("/b/x"), Ok(1));
        assert_eq!(found("y"), Ok(2));
        assert_eq!(found("0"), Ok(0));
        // A name takes precedence over a number.
        assert_eq!(found("1"), Ok(3));
        let unclear = found("x").unwrap_err();
        assert!(
            unclear.what.contains("\"/a/x\", or disk 1"),
            "{}",
            unclear.what
        );
        assert!(found("z").unwrap_err().what.contains("no disk \"z\""));
        assert!(found("4").is_err());
    }

    #[test]
    fn overruns_show_how_much_wider_the_profile_has_to_be() {
        let mut disk = DiskView {
            actual_over_predicted: 0.48,
            actual_over_predicted_max: 0.973,
            ..DiskView::default()
        };
        assert_eq!(
            actual_over_predicted(&disk),
            "48.0 % overall, at most 97.3 %"
        );
        disk.actual_over_predicted_max = 1.231;
        let text = actual_over_predicted(&disk);
        assert!(
            text.contains("at most 123.1 %") && text.contains("1.24 times"),
            "{text}"
        );
    }

    #[test]
    fn bad_and_slow_places_are_shown() {
        let mut disk = DiskView::default();
        let text = disk_text(&disk);
        assert!(
            text.contains("none") && text.contains("not available"),
            "{text}"
        );
        disk.bad_places = 2;
        assert_eq!(places(&disk), "2 bad");
        disk.slow_places = 1;
        disk.slow_extra_max_ns = 25_000_000;
        disk.places_to_leave = 1;
        assert_eq!(
            places(&disk),
            "2 bad, 1 slow (best effort only; up to 25.0 ms longer than predicted); data is still to be moved from 1"
        );
        disk.smart = Some(SmartView {
            pending_sectors: Some(8),
            reallocated_sectors: None,
        });
        assert_eq!(smart(&disk), "8 pending, unknown reallocated sectors");
    }

    #[test]
    fn disk_that_does_not_answer_is_stalled() {
        let stalled = DiskView {
            name: "sdb".to_owned(),
            stalled_ns: 3_200_000_000,
            ..DiskView::default()
        };
        for text in [
            disk_text(&stalled),
            disks_text(std::slice::from_ref(&stalled)),
        ] {
            assert!(text.contains("stalled, no answer for 3.20 s"), "{text}");
            assert!(!text.contains("ok"), "{text}");
        }
        let failed = DiskView {
            failed: Some("gone".to_owned()),
            ..stalled
        };
        assert_eq!(state(&failed), "gone");
        assert_eq!(state(&DiskView::default()), "ok");
    }
}
