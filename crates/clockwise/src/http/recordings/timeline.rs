//! The times of recordings, and the cause of each gap between them.

use axum::extract::State;
use axum::http::StatusCode;
use media::archive::archives::OpenError;
use media::archive::gap::GapCause;
use media::archive::timeline::{GapTime, Timeline};
use media::archive::wall_clock::now_unix_ns;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Answer, PathPart, QueryPart, SharedApp, answer};
use crate::wire::Problem;
use crate::wire::recordings::{TimelineEntry, TimelineView};

/// The most entries of an answer.
const ENTRIES_MAX: usize = 1_000;

/// A range of times, in nanoseconds since 1970.
#[derive(Deserialize, IntoParams, Clone, Copy, Debug, Default)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TimelineQuery {
    /// The begin; the first recording if absent.
    from_unix_ns: Option<u64>,
    /// The end; now if absent or later.
    until_unix_ns: Option<u64>,
}

/// A recording in progress that has got no packet for this long is in a gap, in nanoseconds.
const SILENT_NS: u64 = 8_000_000_000;

/// Shows the gap that lasts now: the recording knows of it when packets come again.
fn note_silence(app: &SharedApp, volume: &str, until_unix_ns: u64, found: &mut Timeline) {
    let feed = app.archives.live().get(volume);
    let heard = feed.and_then(|feed| feed.heard_unix_ns());
    let last = found.recorded.last_mut().filter(|of| of.goes_on);
    let (Some(heard), Some(last)) = (heard, last) else {
        return;
    };
    if heard.saturating_add(SILENT_NS) < until_unix_ns {
        last.goes_on = false;
        found.gaps.push(GapTime {
            unix_ns: last.unix_ns.end.max(heard)..until_unix_ns,
            cause: GapCause::Unknown,
        });
    }
}

/// The recorded times of a volume within a range, and each gap with its cause. Gaps within recordings are those
/// between sessions with a camera, and of at least 8 s without a packet. At most 1,000 entries.
#[utoipa::path(get, path = "/v1/volumes/{name}/timeline", params(("name" = String, Path), TimelineQuery),
    responses((status = 200, body = TimelineView), (status = 400, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem)))]
pub(super) async fn show(
    state: State<SharedApp>,
    PathPart(name): PathPart<String>,
    QueryPart(query): QueryPart<TimelineQuery>,
) -> Answer<TimelineView> {
    answer(state.0, move |app| {
        let from = query.from_unix_ns.unwrap_or(0);
        let until = query.until_unix_ns.unwrap_or(u64::MAX).min(now_unix_ns());
        if from >= until {
            return Err(Problem::new(
                StatusCode::BAD_REQUEST,
                format!("the range from {from} ns to {until} ns since 1970 is empty"),
                "give `from_unix_ns` before now and a later `until_unix_ns`",
            )
            .at("the query"));
        }
        let archive = app.archives.open(&name, None)?;
        let client = app.archives.client()?;
        let found = archive.timeline(&client, &(from..until));
        let mut found = found.map_err(OpenError::from)?;
        note_silence(app, &name, until, &mut found);
        let recorded = found.recorded.into_iter().map(TimelineEntry::from);
        let mut entries: Vec<TimelineEntry> = recorded
            .chain(found.gaps.into_iter().map(TimelineEntry::from))
            .collect();
        entries.sort_by_key(|of| of.begins_unix_ns);
        let next_unix_ns = entries.get(ENTRIES_MAX).map(|of| of.begins_unix_ns);
        entries.truncate(ENTRIES_MAX);
        Ok(TimelineView {
            entries,
            next_unix_ns,
        })
    })
    .await
}
