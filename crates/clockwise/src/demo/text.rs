//! Results of the demo, for people.

mod failing_place;

use std::fmt::Write as _;

use sched::units::{Bytes, BytesPerSecond, Nanos};

use super::files::{DESKS_WORDS, FILES_WORDS, Seen};
use super::plan::{CAMERA_BLOCK, CAPACITY_PERCENT, DRIVES, RATE};
use super::report::{Phase, Promise, Report, TooMuch};
use crate::print::{missed, percent, short, slack, table, warning_lines, wrapped};
use crate::quantity::{Rate, Size, Span};

fn span(nanos: u64) -> String {
    Span(Nanos(nanos)).to_string()
}

impl Promise {
    /// A number of streams out of a number.
    pub(super) fn text(&self) -> String {
        let bytes = format!(
            "{} streams of bytes of {} each ({} record, {} play)",
            self.recorded + self.played,
            Rate(RATE),
            self.recorded,
            self.played,
        );
        if self.cameras == 0 {
            return format!(
                "Admission allows {} streams of {} each; {CAPACITY_PERCENT} % of that is used: {bytes}.",
                self.capacity,
                Rate(RATE),
            );
        }
        let all = (self.capacity * CAPACITY_PERCENT).div_ceil(100);
        let cameras = format!(
            "{0} cameras: ffmpeg publishes {0} videos over RTSP, and {0} more ffmpeg processes play them while they are recorded. \
             Beside them {bytes} fill the drives, up to {CAPACITY_PERCENT} % of what admission allows. Without cameras it \
             would allow {1} of those; cameras and players, whose blocks are small, take as much of the drives as {2}.",
            self.cameras,
            self.capacity,
            all.saturating_sub(self.recorded + self.played),
        );
        wrapped(&cameras, "", "").trim_end().to_owned()
    }
}

/// The server's answer to the first stream that did not fit.
pub(super) fn refusal_text(too_much: &TooMuch) -> String {
    format!(
        "One more stream, of {}, is requested and refused:\n{}",
        Rate(BytesPerSecond(too_much.rate_bytes_per_second)),
        wrapped(&too_much.answer, "  ", "  ")
    )
}

/// The load on the drives, the same under each scheduler.
pub(super) fn load(block: u64, cameras: u64, is_mounted: bool) -> Vec<String> {
    let mut lines = Vec::new();
    if cameras > 0 {
        lines.push(format!(
            "{cameras} cameras, as many on each drive: ffmpeg publishes a video over RTSP, over and over, and another \
             ffmpeg plays it while it is recorded, in blocks of {}",
            Size(CAMERA_BLOCK),
        ));
    }
    lines.push(format!(
        "streams of bytes of {} each in blocks of {}, as the pool proposes, until the drives have promised {CAPACITY_PERCENT} % \
         of what admission allows; all begin together, so many blocks are due at the same time; their recordings lie at \
         four places of the outer half of each drive",
        Rate(RATE),
        Size(Bytes(block)),
    ));
    lines.push(format!(
        "{DESKS_WORDS}, on a volume in the middle of all {DRIVES} drives"
    ));
    if is_mounted {
        lines.push(format!("on an ext4 in another volume: {FILES_WORDS}"));
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
    let mut rows = vec![("measured for", format!("{:.0} s", phase.seconds))];
    if let Some(filmed) = &phase.filmed {
        rows.extend([
            (
                "promised over RTSP",
                Rate(BytesPerSecond(filmed.promised_bytes_per_second)).to_string(),
            ),
            (
                "  deadlines missed",
                format!("{} of {}", filmed.misses, filmed.blocks),
            ),
            ("  frames recorded", filmed.recorded_frames.to_string()),
            ("    every one compared", wrong(filmed.recorded_different)),
            ("  frames played", filmed.played_frames.to_string()),
            ("    every one compared", wrong(filmed.played_different)),
        ]);
    }
    rows.extend([
        (
            "promised to streams of bytes",
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
        ("DEADLINES MISSED", missed(phase.misses, phase.misses_gross)),
        ("worst lateness", span(phase.late_net_max_ns)),
        ("  with host lateness", span(phase.late_max_ns)),
        ("overruns of the drives", phase.overruns.to_string()),
        ("best effort, requests", best_effort.count.to_string()),
        ("  mean latency", span(best_effort.mean_ns)),
        ("  p50", span(best_effort.p50_ns)),
        ("  p99", span(best_effort.p99_ns)),
        ("  max", span(best_effort.max_ns)),
        ("fio over NBD, mean read", seen(&load.nbd_reads)),
        ("fio over NBD, mean write", seen(&load.nbd_writes)),
    ]);
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

/// Our number relative to theirs: as a fraction, if it is less.
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
                slack(disk.delta_l_ns),
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
    text +=
        "Missed deadlines are net of the host's own lateness; numbers in brackets include it.\n";
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
        if let Some(place) = &phase.failing_place {
            let _ = write!(text, "\n{}", failing_place::section(place));
        }
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

/// Remark about blocks that only the host made late.
fn host_words(phase: &Phase) -> String {
    match phase.misses_gross {
        0 => String::new(),
        late => format!(
            " net of the host's own lateness (including it, {late} of {} were late),",
            phase.blocks
        ),
    }
}

/// The verdict: every promise was kept, or the broken ones and their likely causes.
fn verdict(report: &Report) -> String {
    let Some((promised, others)) = report.phases.split_first() else {
        return String::new();
    };
    let mut text = if report.is_kept {
        format!(
            "Every deadline promised under {} was met{} and {} is right.\n",
            promised.scheduler,
            host_words(promised),
            match promised.filmed {
                None => "every byte",
                Some(_) => "every byte and every frame",
            }
        )
    } else {
        String::from("NOT every promise was kept.\n")
    };
    if let Some(place) = &promised.failing_place {
        text += &failing_place::verdict(place);
    }
    if promised.misses > 0 {
        let _ = writeln!(
            text,
            "With scheduler {}, {} of {} blocks were late, the worst by {} net of the host's own lateness.",
            promised.scheduler,
            promised.misses,
            promised.blocks,
            span(promised.late_net_max_ns),
        );
        let host_late = promised.disks.iter().map(|disk| disk.host_late_max_ns);
        let _ = writeln!(
            text,
            "The drives had {} overruns; the host was late by up to {}. If that is long, this machine was \
             too busy\nto emulate three drives in time; as root the demo has real-time threads, which helps.",
            promised.overruns,
            span(host_late.max().unwrap_or(0)),
        );
    }
    for other in others.iter().filter(|other| other.misses > 0) {
        let _ = writeln!(
            text,
            "With scheduler {}, which promises none, {} of {} were missed, the worst by {}.",
            other.scheduler,
            other.misses,
            other.blocks,
            span(other.late_net_max_ns)
        );
    }
    for phase in &report.phases {
        if phase.different() > 0 {
            let _ = writeln!(
                text,
                "With scheduler {}, {} bytes differ from the recorded ones.",
                phase.scheduler,
                phase.different()
            );
        }
        if let Some(filmed) = phase.filmed.filter(|filmed| filmed.different() > 0) {
            let _ = writeln!(
                text,
                "With scheduler {}, {} frames differ from those that were published over RTSP.",
                phase.scheduler,
                filmed.different()
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::files::FileLoad;
    use crate::demo::media::ClipSource;
    use crate::wire::view::LatencyView;

    fn phase(scheduler: &str, misses: u64, misses_gross: u64) -> Phase {
        Phase {
            scheduler: scheduler.to_owned(),
            seconds: 60.0,
            promise: Promise {
                recorded: 2,
                played: 73,
                cameras: 2,
                capacity: 93,
            },
            promised_bytes_per_second: 300_000_000,
            measured_bytes_per_second: 3e8,
            block_bytes: 8 << 20,
            blocks: 904,
            misses,
            misses_gross,
            late_net_max_ns: misses * 1_000_000,
            late_max_ns: misses_gross * 1_000_000,
            overruns: 0,
            best_effort: LatencyView::default(),
            disks: Vec::new(),
            file_load: FileLoad::default(),
            too_much: TooMuch {
                rate_bytes_per_second: 1,
                answer: String::new(),
                refusal: None,
            },
            recordings: Vec::new(),
            filmed: None,
            failing_place: None,
            played_bytes: 0,
            played_different: 0,
        }
    }

    fn of(phases: Vec<Phase>, is_kept: bool) -> Report {
        Report {
            scratch: String::new(),
            scratch_is_kept: false,
            drives: String::new(),
            clips: ClipSource {
                what: String::new(),
                is_video: true,
            },
            load: Vec::new(),
            file_load_note: None,
            warnings: Vec::new(),
            phases,
            is_kept,
        }
    }

    #[test]
    fn the_verdict_is_on_what_was_promised_and_names_what_was_missed_beside_it() {
        let both = of(vec![phase("exact", 0, 0), phase("edf", 12, 15)], true);
        assert_eq!(
            verdict(&both),
            "Every deadline promised under exact was met and every byte is right.\n\
             With scheduler edf, which promises none, 12 of 904 were missed, the worst by 12.0 ms.\n"
        );
        let by_the_host = of(vec![phase("exact", 0, 3), phase("edf", 0, 0)], true);
        assert_eq!(
            verdict(&by_the_host),
            "Every deadline promised under exact was met net of the host's own lateness (including it, 3 of \
             904 were late), and every byte is right.\n"
        );
        let late = verdict(&of(vec![phase("exact", 2, 2), phase("edf", 1, 1)], false));
        assert!(late.starts_with("NOT every promise was kept.\nWith scheduler exact, 2 of 904 "));
        assert!(late.contains("With scheduler edf, which promises none, 1 of 904"));
    }

    #[test]
    fn a_bracket_of_the_report_is_explained_once() {
        let text = report(&of(vec![phase("exact", 0, 3), phase("edf", 12, 12)], true));
        let row = text.lines().find(|line| line.starts_with("DEADLINES"));
        let row: Vec<&str> = row.expect("a row").split_whitespace().collect();
        assert_eq!(row, ["DEADLINES", "MISSED", "0", "(3)", "12"]);
        assert_eq!(
            text.matches("numbers in brackets include it").count(),
            1,
            "{text}"
        );
    }
}
