//! Times and latencies for people.

use sched::units::Nanos;

use crate::quantity::Span;
use crate::wire::view::LatencyView;

pub(crate) fn span(nanos: u64) -> String {
    Span(Nanos(nanos)).to_string()
}

/// Slack for people. Where nothing is promised there is no end to it.
pub(crate) fn slack(nanos: u64) -> String {
    if nanos >= i64::MAX as u64 {
        "any".to_owned()
    } else {
        span(nanos)
    }
}

/// A latency distribution in one line.
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
