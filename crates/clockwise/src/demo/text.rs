//! What the demo found, for people.

use std::fmt::Write as _;

use sched::units::{Bytes, BytesPerSecond, Nanos};

use super::files::{DESKS_WORDS, FILES_WORDS, Seen};
use super::plan::{CAPACITY_PERCENT, DRIVES, RATE};
use super::report::{Phase, Promise, Report, TooMuch};
use crate::cmd::{percent, short, table, warning_lines, wrapped};
use crate::quantity::{Rate, Size, Span};

fn span(nanos: u64) -> String {
    Span(Nanos(nanos)).to_string()
}

impl Promise {
    /// How many streams of how many.
    pub(super) fn text(&self) -> String {
        format!(
            "Admission allows {} streams of {}; {} of them run: {} record and {} play.",
            self.capacity,
            Rate(RATE),
            self.recorded + self.played,
            self.recorded,
            self.played,
        )
    }
}

/// What the server said to the stream that was one too many.
pub(super) fn refusal_text(too_much: &TooMuch) -> String {
    format!(
        "One more stream, of {}, is asked for and refused:\n{}",
        Rate(BytesPerSecond(too_much.rate_bytes_per_second)),
        wrapped(&too_much.answer, "  ", "  ")
    )
}

/// What the drives are asked to do, the same under each scheduler.
pub(super) fn load(block: u64, is_mounted: bool) -> Vec<String> {
    let mut lines = vec![format!(
        "streams of {} in blocks of {}, as the pool proposes, up to {CAPACITY_PERCENT} % of those that \
             admission allows; all begin together, so their blocks fall due in clumps; what they play lies \
             at four places of the outer half of each drive",
        Rate(RATE),
        Size(Bytes(block)),
    )];
    lines.push(format!(
        "{DESKS_WORDS}, on a volume in the middle of all {DRIVES} drives"
    ));
    if is_mounted {
        lines.push(format!("on an ext4 in a volume beside that: {FILES_WORDS}"));
    }
    lines
}

fn seen(seen: &Seen) -> String {
    if seen.count == 0 {
        return "none".to_owned();
    }
    format!("{} (max {})", span(seen.mean_ns), span(seen.max_ns))
}

fn wrong(different: u64) -> String {
    match different {
        0 => "all right".to_owned(),
        different => format!("{different} DIFFER"),
    }
}

/// The rows that compare runs, beginning with their name.
fn rows(phase: &Phase) -> Vec<(&'static str, String)> {
    let best_effort = &phase.best_effort;
    let load = &phase.file_load;
    let per_minute = |count: u64| format!("{:.1}", count as f64 * 60.0 / phase.seconds);
    let recorded: u64 = phase
        .recordings
        .iter()
        .map(|recording| recording.bytes)
        .sum();
    let mut rows = vec![
        ("measured for", format!("{:.0} s", phase.seconds)),
        (
            "promised to streams",
            Rate(BytesPerSecond(phase.promised_bytes_per_second)).to_string(),
        ),
        (
            "measured",
            Rate(BytesPerSecond(
                phase.measured_bytes_per_second.round() as u64
            ))
            .to_string(),
        ),
        ("blocks", phase.blocks.to_string()),
        ("DEADLINES MISSED", phase.misses.to_string()),
        ("worst lateness", span(phase.late_net_max_ns)),
        ("  with the host's own", span(phase.late_max_ns)),
        ("overruns of the drives", phase.overruns.to_string()),
        ("best effort, requests", best_effort.count.to_string()),
        ("  mean latency", span(best_effort.mean_ns)),
        ("  p50", span(best_effort.p50_ns)),
        ("  p99", span(best_effort.p99_ns)),
        ("  max", span(best_effort.max_ns)),
        ("fio over NBD, mean read", seen(&load.nbd_reads)),
        ("fio over NBD, mean write", seen(&load.nbd_writes)),
    ];
    if load.is_mounted {
        rows.push(("fio on ext4, mean read", seen(&load.file_reads)));
        rows.push(("fio on ext4, mean write", seen(&load.file_writes)));
        rows.push(("git clones a minute", per_minute(load.clones)));
        rows.push(("tar archives a minute", per_minute(load.archives)));
    }
    let recorded_wrong = phase
        .recordings
        .iter()
        .map(|recording| recording.different)
        .sum();
    rows.extend([
        ("recorded", Size(Bytes(recorded)).to_string()),
        ("  every byte compared", wrong(recorded_wrong)),
        ("played", Size(Bytes(phase.played_bytes)).to_string()),
        ("  every byte compared", wrong(phase.played_different)),
    ]);
    rows
}

/// How a number of ours compares with theirs: as a part, if it is less.
fn ratio(ours: u64, theirs: u64) -> String {
    if ours == 0 || theirs == 0 {
        return String::new();
    }
    if ours <= theirs {
        format!("1/{:.1}", theirs as f64 / ours as f64)
    } else {
        format!("{:.1}", ours as f64 / theirs as f64)
    }
}

/// The runs side by side.
fn comparison(phases: &[Phase]) -> String {
    let [ours, theirs] = phases else {
        return phases
            .iter()
            .map(|phase| {
                let rows = rows(phase).into_iter();
                table(
                    ["", &phase.scheduler],
                    &[1],
                    rows.map(|(name, value)| [name.to_owned(), value]),
                ) + "\n"
            })
            .collect();
    };
    let latencies = |phase: &Phase| {
        let of = &phase.best_effort;
        let load = &phase.file_load;
        [
            ("  mean latency", of.mean_ns),
            ("  p50", of.p50_ns),
            ("  p99", of.p99_ns),
            ("  max", of.max_ns),
            ("fio over NBD, mean read", load.nbd_reads.mean_ns),
            ("fio over NBD, mean write", load.nbd_writes.mean_ns),
            ("fio on ext4, mean read", load.file_reads.mean_ns),
            ("fio on ext4, mean write", load.file_writes.mean_ns),
        ]
    };
    let compared = latencies(ours).into_iter().zip(latencies(theirs));
    let ratios: Vec<_> = compared
        .map(|((name, ours), (_, theirs))| (name, ratio(ours, theirs)))
        .collect();
    let both = rows(ours).into_iter().zip(rows(theirs));
    table(
        ["", &ours.scheduler, &theirs.scheduler, "RATIO"],
        &[1, 2, 3],
        both.map(|((name, ours), (_, theirs))| {
            let ratio = ratios.iter().find(|(of, _)| *of == name);
            let ratio = ratio.map_or_else(String::new, |(_, ratio)| ratio.clone());
            [name.to_owned(), ours, theirs, ratio]
        }),
    ) + "\n"
}

/// The drives in the run that counts.
fn drives(phase: &Phase) -> String {
    table(
        [
            "DRIVE",
            "PROMISED",
            "BUSY",
            "DELTA-L",
            "ACTUAL/PREDICTED",
            "HOST LATE",
        ],
        &[1, 2, 3, 4, 5],
        phase.disks.iter().map(|disk| {
            [
                short(&disk.name),
                percent(disk.utilization_promised),
                percent(disk.utilization_measured),
                span(disk.delta_l_ns),
                percent(disk.actual_over_predicted),
                format!(
                    "{} times, at most {}",
                    disk.host_late_count,
                    span(disk.host_late_max_ns)
                ),
            ]
        }),
    ) + "\n"
}

/// The report as text.
pub(super) fn report(report: &Report) -> String {
    let mut text = String::from("\nThe load:\n");
    for line in &report.load {
        text += &wrapped(&format!("{line}."), "  - ", "    ");
    }
    text += "\n";
    text += &comparison(&report.phases);
    if let Some(phase) = report.phases.first() {
        let _ = write!(
            text,
            "\n{}\n{}",
            phase.promise.text(),
            refusal_text(&phase.too_much)
        );
        let _ = write!(
            text,
            "\nThe drives with scheduler {}:\n{}",
            phase.scheduler,
            drives(phase)
        );
    }
    let _ = writeln!(text, "\nVideo: {}.", report.clips.what);
    if let Some(note) = &report.file_load_note {
        let _ = writeln!(text, "{note}");
    }
    let fate = if report.scratch_is_kept {
        "kept"
    } else {
        "removed now; --keep keeps it"
    };
    let _ = writeln!(
        text,
        "The data lay on {} in {} ({fate}).",
        report.drives, report.scratch
    );
    let disks = report.phases.first().map(|phase| phase.disks.as_slice());
    let disks = disks.unwrap_or_default();
    text += &warning_lines(
        &report.warnings,
        disks.iter().map(|disk| disk.name.as_str()),
    );
    text += &verdict(report);
    text
}

/// Whether every promise was kept; if not, which was not, and what may have been the matter.
fn verdict(report: &Report) -> String {
    if report.is_kept {
        return "Every deadline was met and every byte is right.\n".to_owned();
    }
    let mut text = String::from("NOT every promise was kept.\n");
    if let Some(phase) = report.phases.first().filter(|phase| phase.misses > 0) {
        let _ = writeln!(
            text,
            "With scheduler {}, {} of {} blocks were late, the worst by {} net of the host's own lateness.",
            phase.scheduler,
            phase.misses,
            phase.blocks,
            span(phase.late_net_max_ns),
        );
        let host_late = phase.disks.iter().map(|disk| disk.host_late_max_ns).max();
        let _ = writeln!(
            text,
            "The drives had {} overruns; the host was late by up to {}. Where that is long, this machine was \
             too busy\nto emulate three drives in time; as root the demo has real-time threads, which helps.",
            phase.overruns,
            span(host_late.unwrap_or(0)),
        );
    }
    for phase in &report.phases {
        if phase.different() > 0 {
            let _ = writeln!(
                text,
                "With scheduler {}, {} bytes are not those that were recorded.",
                phase.scheduler,
                phase.different()
            );
        }
    }
    text
}
