//! Time spans for which streams are reserved.

use engine::status::StreamStatus;
use engine::stream::{Span, Stream};
use sched::units::Time;

use crate::wire::view::PlannedView;

/// A stream with a time span.
pub(super) struct Planned {
    span: Span,
    name: String,
    volume: String,
}

impl Planned {
    /// Returns `None` if the stream has no time span: it is reserved from now until its end.
    pub(super) fn new(stream: &Stream) -> Option<Self> {
        let span = stream.span()?;
        let StreamStatus { name, volume, .. } = stream.status();
        Some(Self { span, name, volume })
    }

    /// True if the span begins after `now`.
    pub(super) fn begins_after(&self, now: Time) -> bool {
        self.span.from > now
    }

    /// The span of session `id` relative to `now`.
    pub(super) fn view(&self, id: u64, now: Time) -> PlannedView {
        let from_now = |instant: Time| instant.saturating_since(now).get();
        PlannedView {
            id,
            name: self.name.clone(),
            volume: self.volume.clone(),
            starts_in_ns: from_now(self.span.from),
            ends_in_ns: self.span.until.map(from_now),
        }
    }
}
