//! A recording as one MP4 file, with byte ranges (RFC 9110, section 14).
//!
//! The length of a file is known only after it was generated. So it is generated twice: once to note the
//! length of each of its segments, and then as far as it is requested. A range is generated from its first
//! segment on, not from the beginning. Without `Content-Length` it is generated once ([`TimeRange::stream`]).

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use media::files::{Emit, ExportError, FILE_CUT_NS, Segment, Source};
use tokio::sync::OwnedSemaphorePermit;

use super::super::DisconnectGuard;
use super::{
    GeneratedBody, OpenRecording, PathPart, QueryPart, SharedApp, TimeRange, open, plain,
    run_blocking,
};
use crate::wire::Problem;

const KIND: &str = "video/mp4";

/// The most plans that are cached.
const PLANS_MAX: usize = 16;

/// The layout of a file.
#[derive(Debug)]
struct FilePlan {
    head: Vec<u8>,
    /// Each segment, and the offset of its end in the file.
    parts: Vec<(Segment, u64)>,
    /// The blocks that are missing in it.
    missing: Arc<BTreeSet<u64>>,
    /// The tracks in it.
    tracks: Vec<usize>,
}

impl FilePlan {
    /// Plans the file of a time range. Stops with [`ExportError::Disconnected`] when `goes_on` returns false.
    fn new(
        source: &mut Source,
        times: &Range<u64>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Self, ExportError> {
        let mut segments = source.segments(times, FILE_CUT_NS)?;
        let head = source.file_head(&segments)?;
        let mut parts = Vec::new();
        let mut end = head.len() as u64;
        while let Some((_, segment)) = segments.next_segment(source)? {
            let begin = end;
            let flow = source.segment(&segment, &mut |bytes| {
                end += bytes.len() as u64;
                match goes_on() {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            })?;
            if flow.is_break() {
                return Err(ExportError::Disconnected);
            }
            if end > begin {
                parts.push((segment, end));
            }
        }
        match parts.is_empty() {
            true => Err(ExportError::Empty),
            false => Ok(Self {
                head,
                parts,
                missing: Arc::new(source.missing().clone()),
                tracks: source.tracks().cloned().unwrap_or_default(),
            }),
        }
    }

    fn bytes(&self) -> u64 {
        self.parts.last().map_or(0, |(_, end)| *end)
    }

    /// Generates a byte range of the file.
    fn make(
        &self,
        source: &mut Source,
        range: Range<u64>,
        emit: &mut Emit<'_>,
    ) -> Result<(), ExportError> {
        source.makes_again(Arc::clone(&self.missing));
        source.makes_of(self.tracks.clone());
        let mut window = ByteWindow { at: 0, range };
        if window.pass(&self.head, emit).is_break() {
            return Ok(());
        }
        let first = self
            .parts
            .partition_point(|(_, end)| *end <= window.range.start);
        if let Some(before) = first.checked_sub(1) {
            window.at = self.parts[before].1;
        }
        for (segment, _) in &self.parts[first..] {
            let mut emit = |bytes: Vec<u8>| window.pass(&bytes, emit);
            if source.segment(segment, &mut emit)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// Passes on a byte range of a file, and drops the bytes before and after it.
struct ByteWindow {
    /// The offset in the file of the next byte.
    at: u64,
    range: Range<u64>,
}

impl ByteWindow {
    fn pass(&mut self, bytes: &[u8], emit: &mut Emit<'_>) -> ControlFlow<()> {
        let within = |at: u64| at.saturating_sub(self.at).min(bytes.len() as u64) as usize;
        let (from, to) = (within(self.range.start), within(self.range.end));
        self.at += bytes.len() as u64;
        if from < to {
            emit(bytes[from..to].to_vec())?;
        }
        match self.at >= self.range.end {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// The plans of the files that were requested last, by their `ETag`.
#[derive(Debug, Default)]
pub(super) struct PlanCache(Mutex<VecDeque<(String, Arc<FilePlan>)>>);

impl PlanCache {
    fn get(&self, tag: &str) -> Option<Arc<FilePlan>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.iter().find(|(of, _)| of == tag)?;
        Some(Arc::clone(&found.1))
    }

    fn keep(&self, tag: &str, plan: &Arc<FilePlan>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() == PLANS_MAX {
            known.pop_front();
        }
        known.push_back((tag.to_owned(), Arc::clone(plan)));
    }
}

/// Version of the generated bytes, a part of the `ETag`. It must grow with each change of how fragments are
/// written.
const FORMAT_VERSION: u32 = 3;

/// The `ETag` of a file. It differs for another recording, another time range, and a recording that has
/// grown.
fn tag(recording: &OpenRecording, times: &Range<u64>) -> String {
    let mut tag = String::from("\"");
    for byte in recording.archive.header().archive {
        // Writing to a string does not fail.
        let _ = write!(tag, "{byte:02x}");
    }
    let of = recording.source.recording();
    let (number, first, end) = (of.number, of.first, of.end);
    let _ = write!(
        tag,
        "-{number}-{first}-{end}-{}-{}-{FORMAT_VERSION}\"",
        times.start, times.end
    );
    tag
}

/// The byte range that a request asks for; `None` for the whole file.
fn requested_range(
    headers: &HeaderMap,
    tag: &str,
    bytes: u64,
) -> Result<Option<Range<u64>>, Problem> {
    let value_of = |name| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    let Some(range) = value_of(header::RANGE) else {
        return Ok(None);
    };
    // The client has a part of another file, so all of this one is sent.
    if value_of(header::IF_RANGE).is_some_and(|of| of != tag) {
        return Ok(None);
    }
    let Ok(ranges) = http_range_header::parse_range_header(range) else {
        return Ok(None);
    };
    let ranges = ranges.validate(bytes).map_err(|_| {
        Problem::new(
            StatusCode::RANGE_NOT_SATISFIABLE,
            format!("the range {range:?} is not within the file of {bytes} bytes"),
            "request a range within the file",
        )
        .at("the header `range`")
    })?;
    // A request for several ranges gets the whole file.
    Ok(match &ranges[..] {
        [one] => Some(*one.start()..one.end() + 1),
        _ => None,
    })
}

pub(super) async fn mp4(
    state: State<SharedApp>,
    PathPart((volume, number)): PathPart<(String, u64)>,
    QueryPart(times): QueryPart<TimeRange>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (_guard, is_connected) = DisconnectGuard::new();
    run_blocking(state.0, move |app| {
        let range = times.range()?;
        let permit = app.media.permit()?;
        let recording = open(app, &volume, number)?;
        match times.stream {
            true => stream(app, permit, recording, range),
            false => {
                let goes_on = || is_connected() && !app.media.is_closed();
                parts(app, permit, recording, (&range, &headers), &goes_on)
            }
        }
    })
    .await
}

fn stream(
    app: &SharedApp,
    permit: OwnedSemaphorePermit,
    recording: OpenRecording,
    times: Range<u64>,
) -> Result<Response, Problem> {
    let make = move |source: &mut Source, emit: &mut Emit<'_>| source.file(&times, emit);
    let body = GeneratedBody::start(app, permit, recording.source, make);
    Ok(body.stream(KIND)?)
}

fn parts(
    app: &SharedApp,
    permit: OwnedSemaphorePermit,
    recording: OpenRecording,
    (times, headers): (&Range<u64>, &HeaderMap),
    goes_on: &dyn Fn() -> bool,
) -> Result<Response, Problem> {
    let tag = tag(&recording, times);
    let mut source = recording.source;
    let plan = match app.media.plans.get(&tag) {
        Some(plan) => plan,
        None => {
            let plan = Arc::new(FilePlan::new(&mut source, times, goes_on)?);
            app.media.plans.keep(&tag, &plan);
            plan
        }
    };
    let bytes = plan.bytes();
    let part = match requested_range(headers, &tag, bytes) {
        Ok(part) => part,
        Err(problem) => {
            let mut response = problem.into_response();
            // Tells a client that resumes a complete download its length (RFC 9110, section 15.5.17).
            let all = HeaderValue::from_str(&format!("bytes */{bytes}")).ok();
            let all = all.map(|all| (header::CONTENT_RANGE, all));
            response.headers_mut().extend(all);
            return Ok(response);
        }
    };
    let range = part.clone().unwrap_or(0..bytes);
    let length = range.end - range.start;
    let content_range = format!(
        "bytes {}-{}/{bytes}",
        range.start,
        range.end.saturating_sub(1)
    );
    let make = move |source: &mut Source, emit: &mut Emit<'_>| plan.make(source, range, emit);
    let body = GeneratedBody::start(app, permit, source, make);
    let mut response = plain(KIND, Body::new(body));
    let headers = response.headers_mut();
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    let text = |text: &str| HeaderValue::from_str(text).ok();
    headers.extend(text(&tag).map(|tag| (header::ETAG, tag)));
    if part.is_some() {
        headers.extend(text(&content_range).map(|range| (header::CONTENT_RANGE, range)));
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(range: &str, if_range: Option<&str>) -> Result<Option<Range<u64>>, u16> {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, range.parse().unwrap());
        if let Some(tag) = if_range {
            headers.insert(header::IF_RANGE, tag.parse().unwrap());
        }
        requested_range(&headers, "\"tag\"", 1_000).map_err(|problem| problem.status)
    }

    #[test]
    fn range_headers_are_parsed() {
        assert_eq!(asked("bytes=0-0", None), Ok(Some(0..1)));
        assert_eq!(asked("bytes=990-", None), Ok(Some(990..1_000)));
        assert_eq!(asked("bytes=-10", None), Ok(Some(990..1_000)));
        assert_eq!(asked("bytes=5-9999", Some("\"tag\"")), Ok(Some(5..1_000)));
        assert_eq!(asked("bytes=5-6", Some("\"other\"")), Ok(None));
        assert_eq!(asked("bytes=1-2,5-6", None), Ok(None));
        assert_eq!(asked("lines=1-2", None), Ok(None));
        assert_eq!(asked("bytes=1000-", None), Err(416));
        let no_header = requested_range(&HeaderMap::new(), "\"tag\"", 1_000);
        assert_eq!(no_header.unwrap(), None);
    }

    #[test]
    fn window_passes_only_its_range() {
        for from in 0..12_u64 {
            for to in from + 1..13 {
                let mut window = ByteWindow {
                    at: 0,
                    range: from..to,
                };
                let mut got = Vec::new();
                let mut emit = |bytes: Vec<u8>| {
                    got.extend(bytes);
                    ControlFlow::Continue(())
                };
                let ended = [&[0, 1, 2, 3][..], &[], &[4], &[5, 6, 7, 8, 9, 10, 11]]
                    .iter()
                    .any(|bytes| window.pass(bytes, &mut emit).is_break());
                assert!(ended);
                assert_eq!(got, (from as u8..to as u8).collect::<Vec<_>>());
            }
        }
    }
}
