//! What is said of streams.

use sched::units::{Bytes, BytesPerSecond, Nanos};

use crate::cmd::latency_text as latency;
use crate::cmd::output::{list, table};
use crate::quantity::{Rate, Size, Span};
use crate::session::{SessionState, SessionView};

fn state_text(state: &SessionState) -> String {
    match state {
        SessionState::Reserved => "reserved".to_owned(),
        SessionState::Running => "running".to_owned(),
        SessionState::Done => "done".to_owned(),
        SessionState::Stopped => "stopped".to_owned(),
        SessionState::Failed(reason) => format!("failed: {reason}"),
    }
}

/// What became of a stream.
pub(super) fn report_text(report: &SessionView) -> String {
    let span = |nanos| Span(Nanos(nanos)).to_string();
    list(&[
        (
            "stream",
            format!(
                "{} ({} of volume {})",
                report.stream.name, report.stream.op, report.stream.volume
            ),
        ),
        ("state", state_text(&report.state)),
        (
            "promised",
            format!(
                "{} in blocks of {} on {} disks",
                Rate(BytesPerSecond(report.stream.rate_bytes_per_second)),
                Size(Bytes(report.stream.block_bytes)),
                report.stream.disks.len()
            ),
        ),
        (
            "moved",
            format!(
                "{} in {} blocks",
                Size(Bytes(report.pace.bytes)),
                report.pace.blocks
            ),
        ),
        (
            "late",
            format!(
                "{} blocks, the worst by {}",
                report.pace.misses,
                span(report.pace.late_net_max_ns)
            ),
        ),
        (
            "  with the host's own",
            format!("the worst by {}", span(report.pace.late_max_ns)),
        ),
        ("early", format!("{} blocks", report.stream.early)),
        ("response of blocks", latency(&report.response)),
        ("before the deadline", latency(&report.margin)),
        ("underruns", format!("{} times", report.pace.underruns)),
        (
            "waited for this end",
            format!("{} times", report.pace.waited_for_peer),
        ),
    ])
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
                session.stream.name.clone(),
                session.stream.volume.clone(),
                session.stream.op.clone(),
                Rate(BytesPerSecond(session.stream.rate_bytes_per_second)).to_string(),
                session.pace.blocks.to_string(),
                session.pace.misses.to_string(),
                state_text(&session.state),
            ]
        }),
    )
}
