//! `clockwise pool` and `clockwise disk`.

use std::process::ExitCode;

use clap::Subcommand;
use engine::pool::{CreateOptions, Pool};
use sched::units::{Bytes, Nanos};

use super::output::{counted, list, percent, short, table};
use super::status::slack;
use super::{Cli, Output, block_on, warnings};
use crate::disks::{self, Absent};
use crate::failure::{Failure, FailureKind};
use crate::http::view::{DiskView, PoolView, StatusView};
use crate::quantity::{Size, Span, parse_size};
use crate::server::pool_failure;

/// `clockwise pool`.
#[derive(Subcommand, Debug)]
pub enum PoolCommand {
    /// Make a pool of the configuration's disks; what is on them is lost. No server may run.
    Create {
        /// The size of extents, such as 64MiB [default: that of the configuration, or the smallest
        /// whose access is at least 85 % transfer].
        #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
        extent: Option<Bytes>,
        /// Take disks that belong to a pool already.
        #[arg(long)]
        force: bool,
    },
    /// Show the pool that the server has open.
    Show,
    /// Verify the configuration's disks and the pool's structures on them, changing nothing. No
    /// server may run.
    Check,
}

/// `clockwise disk`.
#[derive(Subcommand, Debug)]
pub enum DiskCommand {
    /// Show the pool's disks, or one of them in full.
    Show {
        /// The disk's number, its name, or the last part of that.
        disk: Option<String>,
    },
}

pub(super) fn run_pool(
    cli: &Cli,
    command: &PoolCommand,
    output: &Output,
) -> Result<ExitCode, Failure> {
    match command {
        PoolCommand::Create { extent, force } => create(cli, *extent, *force, output),
        PoolCommand::Show => {
            let client = cli.client()?;
            let pool: PoolView = block_on(client.get("/v1/pool"))?;
            output.result(&pool, || pool_text(&pool))?;
            Ok(ExitCode::SUCCESS)
        }
        PoolCommand::Check => check(cli, output),
    }
}

fn create(
    cli: &Cli,
    extent: Option<Bytes>,
    force: bool,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let config = cli.configuration()?;
    let options = CreateOptions {
        name: config.open.name.clone(),
        extent_bytes: extent.or(config.extent),
        force,
    };
    // Before any file is made for it.
    options.check().map_err(pool_failure)?;
    let count = config.disks.len();
    let (extent, is_measured) = output.during("making the pool", || {
        let opened = disks::open(&config, Absent::Make)?;
        let is_measured = opened.disks.iter().all(|disk| disk.profile_is_measured);
        let made = Pool::create(&opened.memory, opened.disks, &options).map_err(pool_failure);
        Ok::<_, Failure>((made?, is_measured))
    })?;
    let made = serde_json::json!({
        "name": options.name, "disks": count, "extent_bytes": extent.get(),
        "profiles_are_measured": is_measured,
    });
    output.result(&made, || {
        let note = if is_measured || options.extent_bytes.is_some() {
            ""
        } else {
            "its extents are chosen after profiles that were not measured; --extent and --force make it anew with others\n"
        };
        format!(
            "made pool {:?} of {} with extents of {}; serve it with `clockwise serve`\n{note}",
            options.name,
            counted(count as u64, "disk"),
            Size(extent)
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

fn check(cli: &Cli, output: &Output) -> Result<ExitCode, Failure> {
    let config = cli.configuration()?;
    let mut report = output.during("examining the pool", || {
        let opened = disks::open(&config, Absent::Refuse)?;
        Pool::check(&opened.memory, opened.disks).map_err(pool_failure)
    })?;
    // Disks know their pool by a number; what people call it is in the configuration.
    report.name = config.open.name;
    let errors = report
        .findings
        .iter()
        .filter(|finding| finding.is_error)
        .count();
    output.result(&report, || {
        let mut text: String = report
            .findings
            .iter()
            .map(|finding| {
                let kind = if finding.is_error { "error" } else { "note" };
                let disk = finding
                    .disk
                    .as_deref()
                    .map(|disk| format!("{disk}: "))
                    .unwrap_or_default();
                format!(
                    "{kind}: {disk}{}\n  help: {}\n",
                    finding.what, finding.remedy
                )
            })
            .collect();
        text += &format!(
            "pool {:?}: {} and {} examined, {}\n",
            report.name,
            counted(report.volumes, "volume"),
            counted(report.records, "record"),
            if errors == 0 {
                "sound".to_owned()
            } else {
                counted(errors as u64, "error")
            }
        );
        text
    })?;
    Ok(if errors == 0 {
        ExitCode::SUCCESS
    } else {
        FailureKind::Failed.exit_code()
    })
}

fn pool_text(pool: &PoolView) -> String {
    let mut text = list(&[
        ("pool", pool.name.clone()),
        ("scheduler", pool.scheduler.clone()),
        ("open for", Span(Nanos(pool.uptime_ns)).to_string()),
        ("extent", Size(Bytes(pool.extent_bytes)).to_string()),
        ("in volumes", Size(Bytes(pool.allocated_bytes)).to_string()),
        ("free", Size(Bytes(pool.free_bytes)).to_string()),
        ("memory", Size(Bytes(pool.memory_bytes)).to_string()),
        ("volumes", pool.volumes.to_string()),
        ("streams", pool.streams.to_string()),
        ("disks", pool.disks.join(", ")),
    ]);
    text += &warnings::lines(&pool.warnings, pool.disks.iter().map(String::as_str));
    text
}

pub(super) fn run_disk(
    cli: &Cli,
    command: &DiskCommand,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let DiskCommand::Show { disk } = command;
    let client = cli.client()?;
    let status: StatusView = block_on(client.get("/v1/status"))?;
    let disks = status.disks;
    let names = || disks.iter().map(|disk| disk.name.as_str());
    match disk {
        None => output.result(&disks, || {
            disks_text(&disks) + "\n\n" + &warnings::lines(&status.warnings, names())
        })?,
        Some(wanted) => {
            let found = &disks[find_disk(&names().collect::<Vec<_>>(), wanted)?];
            output.result(found, || {
                disk_text(found) + &warnings::of_disk(&status.warnings, &found.name)
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
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
        let factor = (most * 100.0).ceil() / 100.0;
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
