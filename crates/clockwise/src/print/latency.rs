//! Durations and latencies as text.

use sched::units::Nanos;

use crate::quantity::Span;
use crate::wire::view::LatencyView;

pub(crate) fn span(nanos: u64) -> String {
    Span(Nanos(nanos)).to_string()
}

/// Slack as text. Without promises it has no limit.
pub(crate) fn slack(nanos: u64) -> String {
    if nanos >= i64::MAX as u64 {
        "any".to_owned()
    } else {
        span(nanos)
    }
}

/// A latency distribution as one line.
#[must_use]
pub(crate) fn latency(latency: &LatencyView) -> String {
    if latency.count == 0 {
        return "no requests".to_owned();
    }
    format!(
        "mean {}  p50 {}  p99 {}  max {}  ({} requests)",
        span(latency.mean_ns),
        span(latency.p50_ns),
        span(latency.p99_ns),
        span(latency.max_ns),
        latency.count
    )
}
