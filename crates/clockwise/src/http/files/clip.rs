//! A range of the wall clock as one MP4 file, over recordings and gaps.

use std::fmt::Write as _;
use std::ops::Range;

use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use media::archive::locks::LockedCopy;
use media::files::Emit;
use media::files::clips::{Clip, ClipError, GapsInFile};
use serde::Deserialize;

use super::{GeneratedBody, PathPart, QueryPart, SharedApp, run_blocking};
use crate::local_time::{TimeError, Zone, parse_rfc3339, rfc3339};
use crate::wire::{Problem, RECORDED};

const KIND: &str = "video/mp4";

/// The most times in the header of an answer; it says how many more there are.
const TIMES_MAX: usize = 64;

/// The parameters of a clip.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct ClipQuery {
    /// The begin, as in RFC 3339.
    from: Option<String>,
    /// The end, as in RFC 3339.
    until: Option<String>,
    /// The treatment of gaps.
    #[serde(default)]
    gaps: Gaps,
    /// The time zone of times in errors.
    zone: Option<String>,
}

#[derive(Deserialize, Clone, Copy, Debug, Default)]
#[serde(rename_all = "kebab-case")]
enum Gaps {
    #[default]
    Close,
    Keep,
}

impl From<Gaps> for GapsInFile {
    fn from(of: Gaps) -> Self {
        match of {
            Gaps::Close => Self::Close,
            Gaps::Keep => Self::Keep,
        }
    }
}

impl ClipQuery {
    fn zone(&self) -> Result<Zone, Problem> {
        let zone = self
            .zone
            .as_deref()
            .map_or_else(|| Ok(Zone::utc()), |name| Zone::new(Some(name)));
        zone.map_err(|error| bad_time("zone", &error))
    }

    fn times(&self, zone: &Zone) -> Result<Range<u64>, Problem> {
        let time = |name: &str, text: &Option<String>| match text {
            Some(text) => parse_rfc3339(text).map_err(|error| bad_time(name, &error)),
            None => Err(Problem::new(
                StatusCode::BAD_REQUEST,
                "it is missing",
                "give `from` and `until`, as in RFC 3339",
            )
            .at(name)),
        };
        let times = time("from", &self.from)?..time("until", &self.until)?;
        if times.is_empty() {
            let [from, until] = [times.start, times.end].map(|of| zone.text_ms(of));
            let what = format!("the end, {until}, is not after the begin, {from}");
            let help = "give `from` and a later `until`";
            return Err(Problem::new(StatusCode::BAD_REQUEST, what, help).at("until"));
        }
        Ok(times)
    }
}

fn bad_time(name: &str, error: &TimeError) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, error.to_string(), error.help()).at(name)
}

pub(super) async fn mp4(
    state: State<SharedApp>,
    PathPart(volume): PathPart<String>,
    QueryPart(query): QueryPart<ClipQuery>,
) -> Result<Response, Problem> {
    run_blocking(state.0, move |app| {
        let zone = query.zone()?;
        let times = query.times(&zone)?;
        let permit = app.media.permit()?;
        // A locked range is there even if the ring has overwritten it.
        let mut locks = app.archives.locks().into_iter();
        let covers = |of: &LockedCopy| {
            let locked = &of.lock.unix_ns;
            of.lock.volume == volume && locked.start <= times.start && times.end <= locked.end
        };
        let from = locks.find(covers).map_or(volume.clone(), |of| of.copy);
        let clip = Clip::new(&app.archives, &from, &times, query.gaps.into())
            .map_err(|error| problem(error, &volume, &times, &zone))?;
        let recorded = HeaderValue::from_str(&recorded(&clip));
        let make = |clip: &mut Clip, emit: &mut Emit<'_>| clip.make(emit);
        let body = GeneratedBody::start(app, permit, clip, make);
        let mut response = body.stream(KIND)?;
        let name = HeaderName::from_static(RECORDED);
        let headers = response.headers_mut();
        headers.extend(recorded.ok().map(|recorded| (name, recorded)));
        Ok(response)
    })
    .await
}

/// The times that are in a clip, for its header.
fn recorded(clip: &Clip) -> String {
    let mut text = String::new();
    let mut more = 0;
    for (number, times) in clip.recorded().enumerate() {
        if number >= TIMES_MAX {
            more += 1;
            continue;
        }
        let [begin, end] = [times.start, times.end].map(rfc3339);
        let comma = if number > 0 { ", " } else { "" };
        // Writing to a string does not fail.
        let _ = write!(text, "{comma}{begin}/{end}");
    }
    if more > 0 {
        let _ = write!(text, ", and {more} more");
    }
    text
}

fn problem(error: ClipError, volume: &str, times: &Range<u64>, zone: &Zone) -> Problem {
    let at = |unix_ns| zone.text_ms(unix_ns);
    match error {
        ClipError::Open(error) => error.into(),
        ClipError::Export(error) => error.into(),
        ClipError::Nothing {
            before_unix_ns,
            after_unix_ns,
        } => {
            let (from, until) = (at(times.start), at(times.end));
            let mut what = format!("nothing was recorded in {volume:?} from {from} to {until}");
            if let Some(before) = before_unix_ns.map(at) {
                let _ = write!(what, "; the recording before that ends at {before}");
            }
            if let Some(after) = after_unix_ns.map(at) {
                let _ = write!(what, "; the next one begins at {after}");
            }
            let help = "`clockwise recording list` shows when something was recorded";
            Problem::new(StatusCode::NOT_FOUND, what, help)
        }
        ClipError::Mixed {
            first,
            second,
            between_unix_ns,
        } => {
            let what = format!(
                "recordings {first} and {second} in {volume:?} have different tracks or formats, which one file cannot hold: the one ends at {} and the other begins at {}",
                at(between_unix_ns.start),
                at(between_unix_ns.end)
            );
            let help = "export the times before and after that separately";
            Problem::new(StatusCode::CONFLICT, what, help)
        }
    }
}
