//! Reports on streams as text.

use ::volume::name::shown;
use sched::units::{Bytes, BytesPerSecond, Nanos};

use crate::print::{counted, latency, list, missed, table};
use crate::quantity::{Rate, Size, Span};
use crate::wire::ask::StreamOp;
use crate::wire::streams::{SessionState, SessionView};

fn state_text(state: &SessionState) -> String {
    match state {
        SessionState::Reserved => "reserved".to_owned(),
        SessionState::Planned => "planned".to_owned(),
        SessionState::Running => "running".to_owned(),
        SessionState::Done => "done".to_owned(),
        SessionState::Stopped => "stopped".to_owned(),
        SessionState::Failed(reason) => format!("failed: {reason}"),
    }
}

/// The report on a stream.
pub(super) fn report_text(report: &SessionView) -> String {
    let span = |nanos| Span(Nanos(nanos)).to_string();
    let mut lines = vec![
        (
            "stream",
            format!(
                "{} ({} of volume {})",
                shown(&report.stream.name),
                match report.op {
                    StreamOp::Record => "recording",
                    StreamOp::Play => "playing",
                },
                shown(&report.stream.volume)
            ),
        ),
        ("state", state_text(&report.state)),
        (
            "promised",
            format!(
                "{} in blocks of {} on {}",
                Rate(BytesPerSecond(report.stream.rate_bytes_per_second)),
                Size(Bytes(report.stream.block_bytes)),
                counted(report.stream.disks.len() as u64, "disk")
            ),
        ),
        (
            "moved",
            format!(
                "{} in {}",
                Size(Bytes(report.pace.bytes)),
                counted(report.pace.blocks, "block")
            ),
        ),
    ];
    if report.op == StreamOp::Record {
        let durable = Size(Bytes(report.pace.durable_bytes)).to_string();
        lines.push(("survives a power cut", durable));
    }
    lines.extend([
        (
            "late",
            format!(
                "{}, the worst by {}",
                counted(report.pace.misses, "block"),
                span(report.pace.late_net_max_ns)
            ),
        ),
        (
            "  with host lateness",
            format!(
                "{}, the worst by {}",
                counted(report.pace.misses_gross, "block"),
                span(report.pace.late_max_ns)
            ),
        ),
        (
            "served before release",
            counted(report.stream.early, "request"),
        ),
        ("overruns", counted(report.stream.overruns, "request")),
        ("response of blocks", latency(&report.response)),
        ("before the deadline", latency(&report.margin)),
        ("underruns", counted(report.pace.underruns, "time")),
        (
            "waited for this client",
            counted(report.pace.waited_for_peer, "time"),
        ),
    ]);
    list(&lines)
}

/// All streams, a line each.
pub(super) fn sessions_text(sessions: &[SessionView]) -> String {
    if sessions.is_empty() {
        return "there are no streams\n".to_owned();
    }
    table(
        [
            "ID", "STREAM", "VOLUME", "OP", "RATE", "BLOCKS", "MISSES", "STATE",
        ],
        &[0, 4, 5, 6],
        sessions.iter().map(|session| {
            [
                session.id.to_string(),
                shown(&session.stream.name).into_owned(),
                shown(&session.stream.volume).into_owned(),
                match session.op {
                    StreamOp::Record => "record".to_owned(),
                    StreamOp::Play => "play".to_owned(),
                },
                Rate(BytesPerSecond(session.stream.rate_bytes_per_second)).to_string(),
                session.pace.blocks.to_string(),
                missed(session.pace.misses, session.pace.misses_gross),
                state_text(&session.state),
            ]
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::streams::PaceView;
    use crate::wire::view::{LatencyView, StreamView};

    #[test]
    fn report_shows_late_blocks_with_host_lateness_and_overruns() {
        let report = SessionView {
            id: 1,
            op: StreamOp::Play,
            state: SessionState::Done,
            stream: StreamView {
                overruns: 7,
                ..StreamView::default()
            },
            pace: PaceView {
                misses: 1,
                misses_gross: 5,
                late_net_max_ns: 2_000_000,
                late_max_ns: 3_000_000,
                ..PaceView::default()
            },
            margin: LatencyView::default(),
            response: LatencyView::default(),
        };
        let text = report_text(&report);
        let of = |name: &str| {
            let line = text.lines().find(|line| line.trim().starts_with(name));
            let (_, value) = line.expect("a line").trim().split_once("  ").expect("two");
            value.trim().to_owned()
        };
        assert_eq!(of("late"), "1 block, the worst by 2.0 ms");
        assert_eq!(
            of("with host lateness"),
            "5 blocks, the worst by 3.0 ms",
            "{text}"
        );
        assert_eq!(of("overruns"), "7 requests");
        assert!(sessions_text(&[report]).contains(" 1 (5) "), "{text}");
    }
}
