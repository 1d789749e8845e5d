//! The time spans for which streams are reserved.

use engine::status::StreamStatus;
use engine::stream::{Span, Stream};
use sched::units::Time;

use crate::wire::view::PlannedView;

/// The time span of a stream that has one, and whose it is.
pub(super) struct Planned {
    span: Span,
    name: String,
    volume: String,
}

impl Planned {
    /// `None` if the stream holds from now until it is ended.
    pub(super) fn of(stream: &Stream) -> Option<Self> {
        let span = stream.span()?;
        let StreamStatus { name, volume, .. } = stream.status();
        Some(Self { span, name, volume })
    }

    /// Whether the span is still to come at `now`.
    pub(super) fn begins_after(&self, now: Time) -> bool {
        self.span.from > now
    }

    /// How that is seen at `now`, of session `id`.
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
