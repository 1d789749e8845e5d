//! Times of the wall clock in a time zone, as people write and read them.
//!
//! A time that does not exist or exists twice, because clocks are set forward or back, is an error: a wrong guess
//! would export another hour.

use std::fmt;
use std::ops::Range;

use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use sched::units::Nanos;

use crate::quantity::parse_time;

/// Forms of a time, for help.
pub(crate) const TIME_FORMS: &str = "give a time as 2026-11-28 14:00, 14:00, `yesterday 14:00`, -10min, now, or 2026-11-28T14:00:00+01:00";

/// Reason why a text is no time.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum TimeError {
    /// The text is in no known form.
    #[error("{0:?} is not a time")]
    Form(String),
    /// The text is not in the form of RFC 3339.
    #[error("{0:?} is not a time as in RFC 3339")]
    Rfc3339(String),
    /// Clocks were set forward over this time.
    #[error(
        "{time} does not exist in {zone}: clocks are set forward there from UTC{before} to UTC{after}"
    )]
    Skipped {
        time: String,
        zone: String,
        before: Offset,
        after: Offset,
    },
    /// Clocks were set back to before this time.
    #[error(
        "{time} exists twice in {zone}: it is {time}{first} and, an hour or so later, {time}{second}"
    )]
    Twice {
        time: String,
        zone: String,
        first: Offset,
        second: Offset,
    },
    /// The time zone is not known.
    #[error("there is no time zone {0:?}")]
    Zone(String),
    /// The time is before 1970 or too late.
    #[error("{0:?} is before 1970 or after 2500")]
    Range(String),
}

impl TimeError {
    /// The remedy.
    pub(crate) fn help(&self) -> &'static str {
        match self {
            Self::Form(_) | Self::Range(_) => TIME_FORMS,
            Self::Rfc3339(_) => {
                "give it as 2026-11-28T13:00:00Z, or with an offset, 2026-11-28T14:00:00%2B01:00"
            }
            Self::Skipped { .. } => "give a time before or after the change",
            Self::Twice { .. } => "give one of the two with its offset",
            Self::Zone(_) => "give a name of the IANA database, such as Europe/Amsterdam, or UTC",
        }
    }
}

/// A time zone: that of the host, or a named one.
#[derive(Clone, Debug)]
pub(crate) struct Zone(TimeZone);

impl Zone {
    /// Coordinated universal time.
    pub(crate) fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// The named zone, or that of the host.
    pub(crate) fn new(name: Option<&str>) -> Result<Self, TimeError> {
        match name {
            Some(name) => {
                let zone = TimeZone::get(name);
                zone.map(Self).map_err(|_| TimeError::Zone(name.to_owned()))
            }
            None => Ok(Self(TimeZone::system())),
        }
    }

    /// Its name in the IANA database, if it has one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.0.iana_name()
    }

    /// A time in nanoseconds since 1970, as `2026-11-28 14:00:00+01:00`.
    pub(crate) fn text(&self, unix_ns: u64) -> String {
        self.formatted(unix_ns, "%Y-%m-%d %H:%M:%S%:z")
    }

    /// As [`Self::text`], with milliseconds.
    pub(crate) fn text_ms(&self, unix_ns: u64) -> String {
        self.formatted(unix_ns, "%Y-%m-%d %H:%M:%S.%3f%:z")
    }

    fn formatted(&self, unix_ns: u64, format: &str) -> String {
        match Timestamp::from_nanosecond(i128::from(unix_ns)) {
            Ok(at) => at
                .to_zoned_datetime(self.0.clone())
                .strftime(format)
                .to_string(),
            Err(_) => format!("{unix_ns} ns"),
        }
    }

    /// Parses a time, in nanoseconds since 1970. A time of day is that of today.
    pub(crate) fn parse(&self, text: &str, now_unix_ns: u64) -> Result<u64, TimeError> {
        self.parse_with(text, now_unix_ns, None)
    }

    /// As [`Self::parse`], for the end of a range: a time of day is the first such time after `from_unix_ns`.
    pub(crate) fn parse_end(
        &self,
        text: &str,
        now_unix_ns: u64,
        from_unix_ns: u64,
    ) -> Result<u64, TimeError> {
        self.parse_with(text, now_unix_ns, Some(from_unix_ns))
    }

    fn parse_with(&self, text: &str, now: u64, from: Option<u64>) -> Result<u64, TimeError> {
        let text = text.trim();
        let form = || TimeError::Form(text.to_owned());
        if text == "now" {
            return Ok(now);
        }
        if let Some(before) = text.strip_prefix('-') {
            let before = parse_time(before).map_err(|_| form())?;
            let at = Nanos(now).get().checked_sub(before.get());
            return at.ok_or_else(|| TimeError::Range(text.to_owned()));
        }
        if let Ok(at) = text.parse::<Timestamp>() {
            return unix_ns(at, text);
        }
        let today = self.date_at(now, text)?;
        for (word, date) in [("today", Ok(today)), ("yesterday", today.yesterday())] {
            if let Some(time) = text.strip_prefix(word) {
                let date = date.map_err(|_| form())?;
                let time = match time.trim() {
                    "" => Time::midnight(),
                    time => time_of_day(time).ok_or_else(form)?,
                };
                return self.resolve(DateTime::from_parts(date, time), text);
            }
        }
        let Some(time) = time_of_day(text) else {
            let time = text.parse::<DateTime>().map_err(|_| form())?;
            return self.resolve(time, text);
        };
        let Some(from) = from else {
            return self.resolve(DateTime::from_parts(today, time), text);
        };
        let date = self.date_at(from, text)?;
        let same_day = self.resolve(DateTime::from_parts(date, time), text)?;
        if same_day > from {
            return Ok(same_day);
        }
        let next = date.tomorrow().map_err(|_| form())?;
        self.resolve(DateTime::from_parts(next, time), text)
    }

    /// A day: `today`, `yesterday` or a date. It has 23 or 25 hours when clocks are set.
    pub(crate) fn day(&self, text: &str, now_unix_ns: u64) -> Result<Range<u64>, TimeError> {
        let text = text.trim();
        let form = || TimeError::Form(text.to_owned());
        let today = self.date_at(now_unix_ns, text)?;
        let date = match text {
            "today" => today,
            "yesterday" => today.yesterday().map_err(|_| form())?,
            date => date.parse().map_err(|_| form())?,
        };
        let next = date.tomorrow().map_err(|_| form())?;
        let begin = |date| {
            // Where midnight is skipped, the day begins after it.
            let midnight = DateTime::from_parts(date, Time::midnight());
            let at = self.0.to_ambiguous_timestamp(midnight).compatible();
            unix_ns(at.map_err(|_| TimeError::Range(text.to_owned()))?, text)
        };
        Ok(begin(date)?..begin(next)?)
    }

    fn date_at(&self, at: u64, text: &str) -> Result<Date, TimeError> {
        let at = Timestamp::from_nanosecond(i128::from(at));
        let at = at.map_err(|_| TimeError::Range(text.to_owned()))?;
        Ok(self.0.to_datetime(at).date())
    }

    /// The instant of a time in this zone.
    fn resolve(&self, time: DateTime, text: &str) -> Result<u64, TimeError> {
        let zone = || self.to_string();
        let shown = || time.strftime("%Y-%m-%d %H:%M").to_string();
        let found = self.0.to_ambiguous_timestamp(time);
        match found.offset() {
            AmbiguousOffset::Unambiguous { .. } => {}
            AmbiguousOffset::Gap { before, after } => {
                return Err(TimeError::Skipped {
                    time: shown(),
                    zone: zone(),
                    before,
                    after,
                });
            }
            AmbiguousOffset::Fold { before, after } => {
                return Err(TimeError::Twice {
                    time: time.strftime("%Y-%m-%dT%H:%M:%S").to_string(),
                    zone: zone(),
                    first: before,
                    second: after,
                });
            }
        }
        let at = found.unambiguous();
        unix_ns(at.map_err(|_| TimeError::Range(text.to_owned()))?, text)
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name().unwrap_or("the host's time zone"))
    }
}

/// A time of day, which begins with one or two digits and a colon.
fn time_of_day(text: &str) -> Option<Time> {
    match text.find(':')? {
        1 => format!("0{text}").parse().ok(),
        2 => text.parse().ok(),
        _ => None,
    }
}

/// A time in nanoseconds since 1970, as in RFC 3339, in UTC.
pub(crate) fn rfc3339(unix_ns: u64) -> String {
    let at = Timestamp::from_nanosecond(i128::from(unix_ns));
    at.map_or_else(|_| format!("{unix_ns} ns"), |at| at.to_string())
}

/// Parses a time as in RFC 3339, in nanoseconds since 1970.
pub(crate) fn parse_rfc3339(text: &str) -> Result<u64, TimeError> {
    let at = text.parse::<Timestamp>();
    unix_ns(at.map_err(|_| TimeError::Rfc3339(text.to_owned()))?, text)
}

fn unix_ns(at: Timestamp, text: &str) -> Result<u64, TimeError> {
    u64::try_from(at.as_nanosecond()).map_err(|_| TimeError::Range(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amsterdam() -> Zone {
        Zone::new(Some("Europe/Amsterdam")).unwrap()
    }

    fn at(text: &str) -> u64 {
        parse_rfc3339(text).unwrap()
    }

    #[test]
    fn every_form_of_a_time_is_understood() {
        let now = at("2026-11-28T14:30:00Z");
        for (text, wanted) in [
            ("2026-11-28 14:00", "2026-11-28T13:00:00Z"),
            ("2026-07-01 14:00:05.5", "2026-07-01T12:00:05.5Z"),
            ("2026-11-28T14:00:00", "2026-11-28T13:00:00Z"),
            ("2026-11-28", "2026-11-27T23:00:00Z"),
            ("14:00", "2026-11-28T13:00:00Z"),
            ("9:05", "2026-11-28T08:05:00Z"),
            ("yesterday 14:00", "2026-11-27T13:00:00Z"),
            ("yesterday", "2026-11-26T23:00:00Z"),
            ("today 00:30", "2026-11-27T23:30:00Z"),
            ("-10min", "2026-11-28T14:20:00Z"),
            ("-1h30min", "2026-11-28T13:00:00Z"),
            ("now", "2026-11-28T14:30:00Z"),
            ("2026-11-28T14:00:00+01:00", "2026-11-28T13:00:00Z"),
            ("2026-11-28 13:00:00Z", "2026-11-28T13:00:00Z"),
        ] {
            assert_eq!(amsterdam().parse(text, now), Ok(at(wanted)), "{text}");
        }
        for text in [
            "",
            "later",
            "25:00",
            "14",
            "-",
            "-10",
            "tomorrow",
            "2026-13-01",
            "14:00 yesterday",
        ] {
            let found = amsterdam().parse(text, now);
            assert!(
                matches!(found, Err(TimeError::Form(_))),
                "{text}: {found:?}"
            );
        }
        let before = amsterdam().parse("1969-12-31 12:00", now);
        assert!(matches!(before, Err(TimeError::Range(_))), "{before:?}");
    }

    #[test]
    fn end_without_a_date_is_the_first_such_time_after_the_begin() {
        let now = at("2026-11-28T14:30:00Z");
        let from = at("2026-11-25T22:55:00Z");
        for (text, wanted) in [
            ("23:58", "2026-11-25T22:58:00Z"),
            ("00:05", "2026-11-25T23:05:00Z"),
            // Not the begin itself.
            ("23:55", "2026-11-26T22:55:00Z"),
            ("-1h", "2026-11-28T13:30:00Z"),
        ] {
            assert_eq!(
                amsterdam().parse_end(text, now, from),
                Ok(at(wanted)),
                "{text}"
            );
        }
    }

    #[test]
    fn times_at_a_change_of_the_clocks_are_refused_with_their_offsets() {
        let now = at("2026-11-28T14:30:00Z");
        let skipped = amsterdam().parse("2026-03-29 02:30", now).unwrap_err();
        assert_eq!(
            skipped.to_string(),
            "2026-03-29 02:30 does not exist in Europe/Amsterdam: clocks are set forward there from UTC+01 to UTC+02"
        );
        let twice = amsterdam().parse("2026-10-25 02:30", now).unwrap_err();
        assert_eq!(
            twice.to_string(),
            "2026-10-25T02:30:00 exists twice in Europe/Amsterdam: it is 2026-10-25T02:30:00+02 and, an hour or so later, 2026-10-25T02:30:00+01"
        );
        // Each of the two can be given.
        let first = amsterdam().parse("2026-10-25T02:30:00+02", now).unwrap();
        let second = amsterdam().parse("2026-10-25T02:30:00+01", now).unwrap();
        assert_eq!(second - first, 3_600_000_000_000);
        assert_eq!(amsterdam().text(first), "2026-10-25 02:30:00+02:00");
        assert_eq!(amsterdam().text_ms(second), "2026-10-25 02:30:00.000+01:00");
        // Beside the change nothing is ambiguous.
        assert_eq!(
            amsterdam().parse("2026-10-25 03:00", now),
            Ok(at("2026-10-25T02:00:00Z"))
        );
        let hours = |zone: &str, day: &str| {
            let day = Zone::new(Some(zone)).unwrap().day(day, now).unwrap();
            (day.end - day.start) / 3_600_000_000_000
        };
        assert_eq!(hours("Europe/Amsterdam", "2026-03-29"), 23);
        assert_eq!(hours("Europe/Amsterdam", "2026-10-25"), 25);
        // Midnight was skipped.
        assert_eq!(hours("America/Sao_Paulo", "2018-11-04"), 23);
        assert_eq!(hours("Asia/Tokyo", "yesterday"), 24);
        assert!(matches!(
            Zone::new(Some("Mars/Olympus")),
            Err(TimeError::Zone(_))
        ));
        assert_eq!(Zone::utc().text(first), "2026-10-25 00:30:00+00:00");
    }
}
