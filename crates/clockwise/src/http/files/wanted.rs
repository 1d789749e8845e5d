//! The query of a playlist: a range of times, and tracks.

use std::ops::Range;

use axum::http::StatusCode;
use serde::Deserialize;

use crate::wire::Problem;

/// Longest range that a list is for. A list of segments of four seconds has less than 20 kB.
pub(super) const RANGE_NS_MAX: u64 = 20 * 60 * 1_000_000_000;

/// Longest part of an ended recording that is listed without a range. In coarse segments, its list has less than 20 kB,
/// too.
const WHOLE_NS_MAX: u64 = 3_600 * 1_000_000_000;

/// The end of an active recording that is listed without a range.
pub(super) const END_NS: u64 = 2 * 60 * 1_000_000_000;

/// The request of a player.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// Seconds of the recording, or a date (RFC 3339).
    from: Option<String>,
    until: Option<String>,
    /// Numbers of tracks, with commas between them.
    tracks: Option<String>,
}

/// The part of a recording that a list is for, in nanoseconds of the recording's time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Span {
    /// The end, as it moves on.
    End(Range<u64>),
    Range(Range<u64>),
    /// The beginning of an ended recording, or all of it, in coarse segments.
    Whole(Range<u64>),
}

/// The state of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Recorded,
    Ended {
        /// True if it is listed in coarse segments.
        is_coarse: bool,
    },
}

impl Span {
    pub(super) fn times(&self) -> &Range<u64> {
        let (Self::End(times) | Self::Range(times) | Self::Whole(times)) = self;
        times
    }
}

fn refused(name: &str, text: &str, help: &str) -> Problem {
    let what = format!("`{name}={text}` is invalid");
    Problem::new(StatusCode::BAD_REQUEST, what, help).at("the query")
}

/// A time of a recording that began at `begun_unix_ns`.
fn time_ns(name: &str, text: &str, begun_unix_ns: u64) -> Result<u64, Problem> {
    if text.contains('T') {
        if let Ok(at) = crate::local_time::parse_rfc3339(text) {
            return Ok(at.saturating_sub(begun_unix_ns));
        }
    } else if let Ok(seconds) = text.parse::<f64>()
        && (0.0..1e10).contains(&seconds)
    {
        return Ok((seconds * 1e9) as u64);
    }
    let help = "give seconds of the recording, for example 90.5, or a date, for example 2026-01-31T12:34:56Z";
    Err(refused(name, text, help))
}

impl Wanted {
    /// The query for the URLs in a playlist.
    pub(super) fn of_tracks(&self) -> String {
        let tracks = self.tracks.as_ref();
        tracks.map_or(String::new(), |tracks| format!("?tracks={tracks}"))
    }

    /// The query for the URL of the media playlist.
    pub(super) fn query(&self) -> String {
        let all = [
            ("from", &self.from),
            ("until", &self.until),
            ("tracks", &self.tracks),
        ];
        let given = all.iter().filter_map(|(name, value)| {
            let value = value.as_ref()?;
            let value =
                percent_encoding::utf8_percent_encode(value, percent_encoding::NON_ALPHANUMERIC);
            Some(format!("{name}={value}"))
        });
        let given = given.collect::<Vec<_>>().join("&");
        if given.is_empty() {
            given
        } else {
            format!("?{given}")
        }
    }

    /// Refuses a range, for a list that is always about the end.
    pub(super) fn is_only_of_tracks(&self) -> Result<(), Problem> {
        self.tracks()?;
        let from = self.from.as_ref().map(|text| ("from", text));
        let until = self.until.as_ref().map(|text| ("until", text));
        match from.or(until) {
            None => Ok(()),
            Some((name, text)) => Err(refused(
                name,
                text,
                "ask for a range of a recording by its number",
            )),
        }
    }

    /// The numbers of the tracks; `None` for all.
    pub(super) fn tracks(&self) -> Result<Option<Vec<usize>>, Problem> {
        let Some(text) = &self.tracks else {
            return Ok(None);
        };
        let numbers: Result<Vec<usize>, _> = text.split(',').map(str::parse).collect();
        match numbers {
            Ok(numbers) => Ok(Some(numbers)),
            Err(_) => Err(refused(
                "tracks",
                text,
                "give numbers of tracks, for example 0,1",
            )),
        }
    }

    /// The part of a recording that is asked for. The recording has these times.
    pub(super) fn span(
        &self,
        times: &Range<u64>,
        begun_unix_ns: u64,
        state: State,
    ) -> Result<Span, Problem> {
        let time = |name, text: &Option<String>| {
            let text = text.as_deref();
            text.map(|text| time_ns(name, text, begun_unix_ns))
                .transpose()
        };
        let (from, until) = (time("from", &self.from)?, time("until", &self.until)?);
        let Some(from) = from else {
            if let (None, Some(until)) = (from, &self.until) {
                return Err(refused("until", until, "give `from` as well"));
            }
            let from = times.start;
            return Ok(match state {
                State::Recorded => Span::End(times.end.saturating_sub(END_NS)..u64::MAX),
                State::Ended { is_coarse: true } => {
                    Span::Whole(from..from.saturating_add(WHOLE_NS_MAX))
                }
                State::Ended { is_coarse: false } => {
                    Span::Range(from..from.saturating_add(RANGE_NS_MAX))
                }
            });
        };
        let latest = from.saturating_add(RANGE_NS_MAX);
        let until = until.map_or(latest, |until| until.min(latest));
        match from < until {
            true => Ok(Span::Range(from..until)),
            false => {
                let text = self.until.as_deref().unwrap_or_default();
                Err(refused("until", text, "give a time after `from`"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    const ENDED: State = State::Ended { is_coarse: true };

    fn span(from: Option<&str>, until: Option<&str>, state: State) -> Result<Span, u16> {
        let wanted = Wanted {
            from: from.map(str::to_owned),
            until: until.map(str::to_owned),
            tracks: None,
        };
        let begun = 1_700_000_000 * S;
        let span = wanted.span(&(5 * S..9_000 * S), begun, state);
        span.map_err(|problem| problem.status)
    }

    #[test]
    fn ranges_are_bounded() {
        let recorded = State::Recorded;
        assert_eq!(
            span(None, None, recorded),
            Ok(Span::End(8_880 * S..u64::MAX))
        );
        assert_eq!(span(None, None, ENDED), Ok(Span::Whole(5 * S..3_605 * S)));
        let ended = State::Ended { is_coarse: false };
        assert_eq!(span(None, None, ended), Ok(Span::Range(5 * S..1_205 * S)));
        assert_eq!(
            span(Some("7.5"), None, recorded),
            Ok(Span::Range(7_500_000_000..7_500_000_000 + 1_200 * S))
        );
        assert_eq!(
            span(Some("2023-11-14T22:13:30Z"), Some("25"), ENDED),
            Ok(Span::Range(10 * S..25 * S))
        );
        assert_eq!(
            span(Some("10"), Some("99999"), ENDED),
            Ok(Span::Range(10 * S..1_210 * S))
        );
        for (from, until) in [
            (None, Some("5")),
            (Some("5"), Some("5")),
            (Some("x"), None),
            (Some("-1"), None),
            (Some("NaN"), None),
            (Some("2023-11-14T22"), None),
        ] {
            assert_eq!(span(from, until, ENDED), Err(400), "{from:?} {until:?}");
        }
    }
}
