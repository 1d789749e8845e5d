//! What the demo found, for people and for programs.

use std::fmt::Write as _;

use sched::units::{Bytes, BytesPerSecond, Nanos};
use serde::Serialize;

use super::files::FileLoad;
use super::media::ClipSource;
use crate::cmd::latency_text;
use crate::http::RefusalView;
use crate::http::view::{DiskView, LatencyView};
use crate::quantity::{Rate, Size, Span};

/// A recording, compared with what was sent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Recording {
    /// The volume.
    pub volume: String,
    /// Bytes recorded.
    pub bytes: u64,
    /// Bytes on the volume that are not those that were sent.
    pub different: u64,
}

/// The stream that was one too many.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct TooMuch {
    /// The rate that was asked for.
    pub rate_bytes_per_second: u64,
    /// What the server said.
    pub answer: String,
    /// In numbers.
    pub refusal: Option<RefusalView>,
}

/// A run under one scheduler.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Phase {
    /// The scheduler.
    pub scheduler: String,
    /// How long it was measured.
    pub seconds: f64,
    /// Streams that recorded.
    pub recorded: u64,
    /// Streams that played.
    pub played: u64,
    /// Streams of this kind that the disks would have carried, as admission found.
    pub capacity: u64,
    /// What was promised to all of them.
    pub promised_bytes_per_second: u64,
    /// What they got.
    pub measured_bytes_per_second: f64,
    /// Blocks moved.
    pub blocks: u64,
    /// Blocks later than promised, net of the host's own lateness.
    pub misses: u64,
    /// The worst lateness, net of the host's own.
    pub late_net_max_ns: u64,
    /// The worst lateness.
    pub late_max_ns: u64,
    /// Blocks that came before their release.
    pub early: u64,
    /// Requests that took longer than predicted, net of the host's own lateness.
    pub overruns: u64,
    /// Best-effort latency.
    pub best_effort: LatencyView,
    /// The disks at the end of the run.
    pub disks: Vec<DiskView>,
    /// What the programs on the file system did meanwhile.
    pub file_load: FileLoad,
    /// The stream that was refused.
    pub too_much: TooMuch,
    /// What was recorded, compared.
    pub recordings: Vec<Recording>,
    /// Bytes played.
    pub played_bytes: u64,
    /// Bytes played that are not those that were recorded.
    pub played_different: u64,
}

impl Phase {
    /// Bytes that are not what they should be.
    #[must_use]
    pub(super) fn different(&self) -> u64 {
        self.played_different
            + self
                .recordings
                .iter()
                .map(|recording| recording.different)
                .sum::<u64>()
    }
}

/// The whole demo.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Report {
    /// Where the data lay.
    pub scratch: String,
    /// Whether it is still there.
    pub scratch_is_kept: bool,
    /// The drives.
    pub drives: String,
    /// Where the clips came from.
    pub clips: ClipSource,
    /// Why the file load was not on a mounted file system, if it was not.
    pub file_load_note: Option<String>,
    /// What is not as it should be on this machine.
    pub warnings: Vec<String>,
    /// The run that counts, and the one beside it.
    pub phases: Vec<Phase>,
    /// Whether every promise was kept and every byte is right.
    pub is_kept: bool,
}

fn span(nanos: u64) -> String {
    Span(Nanos(nanos)).to_string()
}

/// What the server said to the stream that was one too many.
pub(super) fn refusal_text(too_much: &TooMuch) -> String {
    format!(
        "One more stream, {}, is asked for and refused:\n  {}\n",
        Rate(BytesPerSecond(too_much.rate_bytes_per_second)),
        too_much.answer
    )
}

fn phase_text(phase: &Phase) -> String {
    let mut text = format!("scheduler {}, {:.0} s\n", phase.scheduler, phase.seconds);
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<24} {value}");
    };
    line(
        "streams",
        format!(
            "{} recorded, {} played; {} such streams fit the disks",
            phase.recorded, phase.played, phase.capacity
        ),
    );
    line(
        "promised",
        Rate(BytesPerSecond(phase.promised_bytes_per_second)).to_string(),
    );
    line(
        "measured",
        Rate(BytesPerSecond(
            phase.measured_bytes_per_second.round() as u64
        ))
        .to_string(),
    );
    line(
        "deadlines missed",
        format!(
            "{} of {} blocks (worst lateness {}, with the host's own {})",
            phase.misses,
            phase.blocks,
            span(phase.late_net_max_ns),
            span(phase.late_max_ns)
        ),
    );
    line("early blocks", phase.early.to_string());
    line(
        "overruns",
        format!("{} requests took longer than predicted", phase.overruns),
    );
    line("best-effort latency", latency_text(&phase.best_effort));
    let load = &phase.file_load;
    line(
        "file load",
        match load.kind {
            "ext4" => format!(
                "ext4: {} git clones, {} tar archives, {} fio requests",
                load.clones, load.archives, load.fio_requests
            ),
            _ => format!("fio over NBD: {} requests", load.fio_requests),
        },
    );
    for recording in &phase.recordings {
        let verdict = match recording.different {
            0 => "byte for byte what was sent".to_owned(),
            different => format!("{different} BYTES DIFFER"),
        };
        line(
            &format!("recording {}", recording.volume),
            format!("{}: {verdict}", Size(Bytes(recording.bytes))),
        );
    }
    let verdict = match phase.played_different {
        0 => "byte for byte what was recorded".to_owned(),
        different => format!("{different} BYTES DIFFER"),
    };
    line(
        "played",
        format!("{}: {verdict}", Size(Bytes(phase.played_bytes))),
    );
    for disk in &phase.disks {
        let name = disk.name.rsplit('/').next().unwrap_or(&disk.name);
        line(
            &format!("  {name}"),
            format!(
                "promised {:.1} %, busy {:.1} %, delta-L {}, actual/predicted {:.2}, host late {} times (at most {})",
                disk.utilization_promised * 100.0,
                disk.utilization_measured * 100.0,
                span(disk.delta_l_ns),
                disk.actual_over_predicted,
                disk.host_late_count,
                span(disk.host_late_max_ns)
            ),
        );
    }
    text
}

/// The report as text.
#[must_use]
pub(super) fn text(report: &Report) -> String {
    let mut text = String::from("\n");
    for phase in &report.phases {
        text += &phase_text(phase);
        text.push('\n');
    }
    if let [ours, edf] = report.phases.as_slice()
        && ours.best_effort.count > 0
        && edf.best_effort.count > 0
    {
        let row = |name: &str, ours: u64, edf: u64| {
            format!(
                "  {name:<6} {:>12} {:>12} {:>8.2}\n",
                span(ours),
                span(edf),
                ours as f64 / edf.max(1) as f64
            )
        };
        let _ = writeln!(
            text,
            "best-effort latency    {:>6} {:>12}    ratio",
            ours.scheduler, edf.scheduler
        );
        text += &row("mean", ours.best_effort.mean_ns, edf.best_effort.mean_ns);
        text += &row("p50", ours.best_effort.p50_ns, edf.best_effort.p50_ns);
        text += &row("p99", ours.best_effort.p99_ns, edf.best_effort.p99_ns);
        text += &row("max", ours.best_effort.max_ns, edf.best_effort.max_ns);
        text.push('\n');
    }
    if let Some(phase) = report.phases.first() {
        text += &refusal_text(&phase.too_much);
    }
    let _ = writeln!(text, "\nVideo: {}.", report.clips.what);
    if let Some(note) = &report.file_load_note {
        let _ = writeln!(
            text,
            "File load through fio over NBD instead of a mounted ext4: {note}."
        );
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
    for warning in &report.warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    text += if report.is_kept {
        "Every deadline was met and every byte is right.\n"
    } else {
        "NOT every promise was kept: see above.\n"
    };
    text
}
