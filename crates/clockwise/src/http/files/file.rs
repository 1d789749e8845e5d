//! A recording as one file, of which parts can be asked for (RFC 9110, section 14).
//!
//! How long a file is is known when it has been made, so it is made twice: once to see how long each of its segments is,
//! which is noted, and then as far as it is asked for. A part is made from its segment on, not from the beginning.
//! Where nobody needs to know, it is made once ([`Times::stream`]).

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

use super::super::Waiting;
use super::{Made, Opened, PathPart, QueryPart, Shared, Times, open, plain, respond};
use crate::wire::Problem;

const KIND: &str = "video/mp4";

/// So many files are known.
const PLANS_MAX: usize = 16;

/// What a file consists of.
#[derive(Debug)]
struct Plan {
    head: Vec<u8>,
    /// Each segment, and where behind it the next begins.
    parts: Vec<(Segment, u64)>,
    /// The blocks that are not in it.
    missing: Arc<BTreeSet<u64>>,
    /// The tracks that are in it.
    tracks: Vec<usize>,
}

impl Plan {
    /// Of what is played between two times, as long as somebody waits for it.
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
                return Err(ExportError::Unwanted);
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

    /// Makes a part of the file.
    fn make(
        &self,
        source: &mut Source,
        wanted: Range<u64>,
        emit: &mut Emit<'_>,
    ) -> Result<(), ExportError> {
        source.makes_again(Arc::clone(&self.missing));
        source.makes_of(self.tracks.clone());
        let mut window = Window { at: 0, wanted };
        if window.pass(&self.head, emit).is_break() {
            return Ok(());
        }
        let first = self
            .parts
            .partition_point(|(_, end)| *end <= window.wanted.start);
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

/// What of a file is wanted, and how much of it has passed.
struct Window {
    at: u64,
    wanted: Range<u64>,
}

impl Window {
    fn pass(&mut self, bytes: &[u8], emit: &mut Emit<'_>) -> ControlFlow<()> {
        let within = |at: u64| at.saturating_sub(self.at).min(bytes.len() as u64) as usize;
        let (from, to) = (within(self.wanted.start), within(self.wanted.end));
        self.at += bytes.len() as u64;
        if from < to {
            emit(bytes[from..to].to_vec())?;
        }
        match self.at >= self.wanted.end {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// The files that were asked for last, by what they are called (`ETag`).
#[derive(Debug, Default)]
pub(super) struct Plans(Mutex<VecDeque<(String, Arc<Plan>)>>);

impl Plans {
    fn get(&self, tag: &str) -> Option<Arc<Plan>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.iter().find(|(of, _)| of == tag)?;
        Some(Arc::clone(&found.1))
    }

    fn keep(&self, tag: &str, plan: &Arc<Plan>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() == PLANS_MAX {
            known.pop_front();
        }
        known.push_back((tag.to_owned(), Arc::clone(plan)));
    }
}

/// Files that are made of the same recording by versions of the program with another number here are not the same: whatever
/// changes in how fragments are made, it grows.
const MADE_AS: u32 = 3;

/// What a file is called: another recording, other times, or more of it is another file.
fn tag(opened: &Opened, times: &Range<u64>) -> String {
    let mut tag = String::from("\"");
    for byte in opened.archive.header().archive {
        // Writing to a string does not fail.
        let _ = write!(tag, "{byte:02x}");
    }
    let of = opened.source.recording();
    let (number, first, end) = (of.number, of.first, of.end);
    let _ = write!(
        tag,
        "-{number}-{first}-{end}-{}-{}-{MADE_AS}\"",
        times.start, times.end
    );
    tag
}

/// What a `Range` header wants of a file; `None`: all of it.
fn wanted(headers: &HeaderMap, tag: &str, bytes: u64) -> Result<Option<Range<u64>>, Problem> {
    let said = |name| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    let Some(range) = said(header::RANGE) else {
        return Ok(None);
    };
    // Of another file than the one whose part is there already, all is sent.
    if said(header::IF_RANGE).is_some_and(|of| of != tag) {
        return Ok(None);
    }
    let Ok(ranges) = http_range_header::parse_range_header(range) else {
        return Ok(None);
    };
    let ranges = ranges.validate(bytes).map_err(|_| {
        Problem::new(
            StatusCode::RANGE_NOT_SATISFIABLE,
            format!("{range:?} is no part of {bytes} bytes"),
            "ask for bytes that there are",
        )
        .at("the header `range`")
    })?;
    // Who asks for several parts is sent all.
    Ok(match &ranges[..] {
        [one] => Some(*one.start()..one.end() + 1),
        _ => None,
    })
}

pub(super) async fn mp4(
    state: State<Shared>,
    PathPart((volume, number)): PathPart<(String, u64)>,
    QueryPart(times): QueryPart<Times>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (_waiting, is_waited_for) = Waiting::begin();
    respond(state.0, move |app| {
        let range = times.range()?;
        let permit = app.media.permit()?;
        let opened = open(app, &volume, number)?;
        match times.stream {
            true => stream(app, permit, opened, range),
            false => {
                let goes_on = || is_waited_for() && !app.media.is_closed();
                parts(app, permit, opened, (&range, &headers), &goes_on)
            }
        }
    })
    .await
}

fn stream(
    app: &Shared,
    permit: OwnedSemaphorePermit,
    opened: Opened,
    times: Range<u64>,
) -> Result<Response, Problem> {
    let make = move |source: &mut Source, emit: &mut Emit<'_>| source.file(&times, emit);
    let made = Made::begin(app, permit, opened.source, make);
    Ok(made.streamed(KIND)?)
}

fn parts(
    app: &Shared,
    permit: OwnedSemaphorePermit,
    opened: Opened,
    (times, headers): (&Range<u64>, &HeaderMap),
    goes_on: &dyn Fn() -> bool,
) -> Result<Response, Problem> {
    let tag = tag(&opened, times);
    let mut source = opened.source;
    let plan = match app.media.plans.get(&tag) {
        Some(plan) => plan,
        None => {
            let plan = Arc::new(Plan::new(&mut source, times, goes_on)?);
            app.media.plans.keep(&tag, &plan);
            plan
        }
    };
    let bytes = plan.bytes();
    let part = match wanted(headers, &tag, bytes) {
        Ok(part) => part,
        Err(problem) => {
            let mut response = problem.into_response();
            // By which a download knows that it has all (RFC 9110, section 15.5.17).
            let all = HeaderValue::from_str(&format!("bytes */{bytes}")).ok();
            let all = all.map(|all| (header::CONTENT_RANGE, all));
            response.headers_mut().extend(all);
            return Ok(response);
        }
    };
    let range = part.clone().unwrap_or(0..bytes);
    let length = range.end - range.start;
    let told = format!(
        "bytes {}-{}/{bytes}",
        range.start,
        range.end.saturating_sub(1)
    );
    let make = move |source: &mut Source, emit: &mut Emit<'_>| plan.make(source, range, emit);
    let made = Made::begin(app, permit, source, make);
    let mut response = plain(KIND, Body::new(made));
    let headers = response.headers_mut();
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    let text = |text: &str| HeaderValue::from_str(text).ok();
    headers.extend(text(&tag).map(|tag| (header::ETAG, tag)));
    if part.is_some() {
        headers.extend(text(&told).map(|told| (header::CONTENT_RANGE, told)));
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
        wanted(&headers, "\"tag\"", 1_000).map_err(|problem| problem.status)
    }

    #[test]
    fn parts_are_what_was_asked_for() {
        assert_eq!(asked("bytes=0-0", None), Ok(Some(0..1)));
        assert_eq!(asked("bytes=990-", None), Ok(Some(990..1_000)));
        assert_eq!(asked("bytes=-10", None), Ok(Some(990..1_000)));
        assert_eq!(asked("bytes=5-9999", Some("\"tag\"")), Ok(Some(5..1_000)));
        assert_eq!(asked("bytes=5-6", Some("\"other\"")), Ok(None));
        assert_eq!(asked("bytes=1-2,5-6", None), Ok(None));
        assert_eq!(asked("lines=1-2", None), Ok(None));
        assert_eq!(asked("bytes=1000-", None), Err(416));
        assert_eq!(wanted(&HeaderMap::new(), "\"tag\"", 1_000).unwrap(), None);
    }

    #[test]
    fn a_window_lets_through_what_is_wanted() {
        for from in 0..12_u64 {
            for to in from + 1..13 {
                let mut window = Window {
                    at: 0,
                    wanted: from..to,
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
