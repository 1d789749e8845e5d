//! `clockwise disk`.

use std::process::ExitCode;

use clap::Subcommand;
use sched::profile::DriveProfile;
use sched::units::{Bytes, Nanos};

use super::{Cli, block_on};
use crate::failure::Failure;
use crate::print::{Output, list, percent, short, slack, table, warning_lines, warnings_of_disk};
use crate::quantity::{Size, Span};
use crate::wire::profile::ProfileView;
use crate::wire::view::{DiskView, StatusView};

/// `clockwise disk`.
#[derive(Subcommand, Debug)]
pub enum DiskCommand {
    /// Show the pool's disks, or one of them in full.
    Show {
        /// The disk's number, its name, or the last part of that.
        disk: Option<String>,
    },
    /// Print the drive profile that a disk should be served by: the one that it is served by, widened by
    /// what requests have taken longer than predicted. Save it, name it as the disk's `profile`, and
    /// start the server again.
    Profile {
        /// The disk's number, its name, or the last part of that.
        disk: String,
    },
}

pub(super) fn run_disk(
    cli: &Cli,
    command: &DiskCommand,
    output: &Output,
) -> Result<ExitCode, Failure> {
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
                disk_text(found) + &warnings_of_disk(&status.warnings, &found.name)
            })?;
        }
        DiskCommand::Profile { disk } => {
            let number = find_disk(&names, disk)?;
            let path = format!("/v1/disks/{number}/profile");
            let profile: ProfileView = block_on(client.get(&path))?;
            output.note(&learned(&profile));
            output.result(&profile, || profile.toml.trim_end().to_owned())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What a profile has learned.
fn learned(profile: &ProfileView) -> String {
    let most = percent(profile.actual_over_predicted_max);
    if profile.actual_over_predicted_max > 1.0 {
        format!(
            "a request of {} took {most} of what was predicted: the times are widened by {} % in all{}",
            profile.disk,
            profile.widened_percent,
            if profile.widened_percent == DriveProfile::WIDENED_PERCENT_MAX {
                ", the most there is; longer than that is a drive that failed"
            } else {
                ""
            }
        )
    } else {
        format!(
            "no request of {} took longer than predicted, but at most {most} of it: the profile is as it was",
            profile.disk
        )
    }
}

/// Which of the disks is meant: by its name, its number, or the last part of its name.
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
            "there is no disk {wanted:?} among {}",
            names.join(", ")
        ))
        .help("`clockwise disk show` lists the disks")),
        [first, second, ..] => Err(Failure::bad_input(format!(
            "{wanted:?} may be disk {first}, {:?}, or disk {second}, {:?}",
            names[first], names[second]
        ))
        .help("give the number of one, or its whole name")),
    }
}

fn profile(disk: &DiskView) -> String {
    if disk.profile_is_measured {
        disk.profile.clone()
    } else {
        format!("{} (not measured)", disk.profile)
    }
}

/// How a disk is, in a few words.
fn state(disk: &DiskView) -> String {
    if let Some(reason) = &disk.failed {
        reason.clone()
    } else if disk.stalled_ns > 0 {
        format!("stalled, no answer for {}", Span(Nanos(disk.stalled_ns)))
    } else {
        "well".to_owned()
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
        ("kept for best effort", percent(disk.floor)),
        ("busy", percent(disk.utilization_measured)),
        ("delta-L", span(disk.delta_l_ns)),
        ("slack now", slack(disk.slack_ns)),
        ("served in their turn", disk.served.real_time.to_string()),
        ("served early", disk.served.early.to_string()),
        ("best effort in slack", disk.served.slack.to_string()),
        (
            "best effort in containers",
            disk.served.container.to_string(),
        ),
        (
            "requests completed",
            format!(
                "{} of streams, {} that somebody waited for, {} that nobody did",
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
            "  with the host's own",
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
        ("state", state(disk)),
    ])
}

/// How long requests took of what the profile allows, and what to make of it.
fn actual_over_predicted(disk: &DiskView) -> String {
    let (mean, most) = (disk.actual_over_predicted, disk.actual_over_predicted_max);
    let mut text = format!("{} in all, at most {}", percent(mean), percent(most));
    if most > 1.0 {
        // Rounded up, so that what took longest fits.
        let factor = ((most * 1e3).round() / 10.0).ceil() / 100.0;
        text += &format!(
            "; the profile's times would have to be {factor:.2} times as long for no overruns"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_found_by_name_number_and_the_last_part_of_its_name() {
        let names = ["/a/x", "/b/x", "/b/y", "1"];
        let found = |wanted| find_disk(&names, wanted);
        assert_eq!(found("/b/x"), Ok(1));
        assert_eq!(found("y"), Ok(2));
        assert_eq!(found("0"), Ok(0));
        // A name comes before a number.
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
    fn overruns_say_by_how_much_the_profile_is_too_narrow() {
        let mut disk = DiskView {
            actual_over_predicted: 0.48,
            actual_over_predicted_max: 0.973,
            ..DiskView::default()
        };
        assert_eq!(
            actual_over_predicted(&disk),
            "48.0 % in all, at most 97.3 %"
        );
        disk.actual_over_predicted_max = 1.231;
        let said = actual_over_predicted(&disk);
        assert!(
            said.contains("at most 123.1 %") && said.contains("1.24 times"),
            "{said}"
        );
    }

    #[test]
    fn a_disk_is_well_only_if_it_answers() {
        let stalled = DiskView {
            name: "sdb".to_owned(),
            stalled_ns: 3_200_000_000,
            ..DiskView::default()
        };
        for said in [
            disk_text(&stalled),
            disks_text(std::slice::from_ref(&stalled)),
        ] {
            assert!(said.contains("stalled, no answer for 3.20 s"), "{said}");
            assert!(!said.contains("well"), "{said}");
        }
        let failed = DiskView {
            failed: Some("gone".to_owned()),
            ..stalled
        };
        assert_eq!(state(&failed), "gone");
        assert_eq!(state(&DiskView::default()), "well");
    }
}
