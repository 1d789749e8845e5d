//! Parsing and writing of the times of a `Range`.

use std::time::{Duration, SystemTime};

use rtsp_types::headers::{self, NptRange, NptTime, Range, UtcRange, UtcTime};

use super::ClientRequest;
use super::unwanted::{PlayRefusal, range_error};
use crate::play::presentation::media_ns;

/// The range of a request, if it has one.
pub(super) fn requested(request: &ClientRequest) -> Result<Option<Range>, PlayRefusal> {
    let text = request.header(&headers::RANGE).map(|of| of.as_str().trim());
    if text.is_some_and(is_before_all) {
        return Ok(Some(Range::Npt(NptRange::From(NptTime::Seconds(0, None)))));
    }
    let range = request.typed_header::<Range>();
    range.map_err(|_| range_error("invalid Range header"))
}

/// True if a range begins before 0, which RFC 2326 does not define. ffmpeg seeks to a little before the requested
/// time, also from the beginning, and writes that as `npt=0.-110-`.
fn is_before_all(range: &str) -> bool {
    let from = range
        .strip_prefix("npt=")
        .and_then(|range| range.strip_suffix('-'));
    let Some(from) = from else {
        return false;
    };
    let (whole, part) = from.split_once('.').unwrap_or((from, ""));
    let signs = [whole, part].map(|of| of.starts_with('-'));
    let [seconds, fraction] = [whole, part].map(|of| of.strip_prefix('-').unwrap_or(of));
    let is_number = |of: &str| of.bytes().all(|of| of.is_ascii_digit());
    signs.contains(&true) && !seconds.is_empty() && is_number(seconds) && is_number(fraction)
}

/// The beginning and the end of a range in nanoseconds. A beginning of `None` is the current position or now, an
/// end of `None` the end of the recording.
pub(super) fn npt(range: NptRange) -> (Option<u64>, Option<u64>) {
    match range {
        NptRange::Empty => (None, None),
        NptRange::From(from) => (nanos(from), None),
        NptRange::FromTo(from, to) => (nanos(from), nanos(to)),
        NptRange::To(to) => (None, nanos(to)),
    }
}

fn nanos(time: NptTime) -> Option<u64> {
    let (seconds, nanos) = match time {
        NptTime::Now => return None,
        NptTime::Seconds(seconds, nanos) => (seconds, nanos),
        NptTime::Hms(hours, minutes, seconds, nanos) => {
            let minutes = hours.saturating_mul(60).saturating_add(u64::from(minutes));
            (
                minutes
                    .saturating_mul(60)
                    .saturating_add(u64::from(seconds)),
                nanos,
            )
        }
    };
    let whole = seconds.saturating_mul(1_000_000_000);
    Some(whole.saturating_add(u64::from(nanos.unwrap_or(0))))
}

/// As [`npt`], for times of the wall clock and a recording that began at `begun_ns`.
pub(super) fn utc(
    range: UtcRange,
    begun_ns: i128,
) -> Result<(Option<u64>, Option<u64>), PlayRefusal> {
    let after = |time: UtcTime| -> Result<Option<u64>, PlayRefusal> {
        let at =
            utc_unix_ns(time).ok_or_else(|| range_error(format!("{time} is not a valid time")))?;
        Ok(Some(from_ns(media_ns(i128::from(at), begun_ns))))
    };
    Ok(match range {
        UtcRange::Empty => (None, None),
        UtcRange::From(from) => (after(from)?, None),
        UtcRange::FromTo(from, to) => (after(from)?, after(to)?),
        UtcRange::To(to) => (None, after(to)?),
    })
}

/// Converts, with 0 for negative values.
pub(super) fn from_ns(ns: i128) -> u64 {
    u64::try_from(ns.max(0)).unwrap_or(u64::MAX)
}

/// A time of the wall clock in nanoseconds since 1970; `None` if there is no such time.
fn utc_unix_ns(time: UtcTime) -> Option<u64> {
    let UtcTime {
        date,
        time,
        nanoseconds,
    } = time;
    let (year, month, day) = (date / 10_000, date / 100 % 100, date % 100);
    let (hour, minute, second) = (time / 10_000, time / 100 % 100, time % 100);
    let text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z");
    let at = humantime::parse_rfc3339(&text).ok()?;
    let since = at.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let ns = u64::try_from(since.as_nanos()).ok()?;
    ns.checked_add(u64::from(nanoseconds.unwrap_or(0)))
}

/// A time in nanoseconds since 1970, in the format of RTSP.
pub(super) fn clock_text(unix_ns: u64) -> String {
    let at = SystemTime::UNIX_EPOCH + Duration::from_nanos(unix_ns);
    let text = humantime::format_rfc3339_millis(at).to_string();
    text.chars().filter(|of| !matches!(of, '-' | ':')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_the_wall_clock_are_read_as_they_are_written() {
        let at = 1_518_568_087_133_000_000;
        let text = clock_text(at);
        assert_eq!(text, "20180214T002807.133Z");
        let time: UtcTime = text.parse().unwrap();
        assert_eq!(utc_unix_ns(time), Some(at));
        let Ok((from, until)) = utc(UtcRange::FromTo(time, time), i128::from(at) - 7) else {
            panic!("it is a time");
        };
        assert_eq!((from, until), (Some(7), Some(7)));
        let none: UtcTime = "20181314T002807Z".parse().unwrap();
        assert!(utc(UtcRange::From(none), 0).is_err());
    }

    #[test]
    fn range_before_the_beginning_is_distinguished_from_invalid_ones() {
        for range in ["npt=0.-110-", "npt=-1.-500-", "npt=-1.000-", "npt=-5-"] {
            assert!(is_before_all(range), "{range}");
            // The library refuses it.
            assert!(range.parse::<Range>().is_err(), "{range}");
        }
        for range in [
            "npt=0.110-",
            "npt=-1.5",
            "npt=-5",
            "npt=-",
            "npt=--",
            "npt=.-5-",
            "npt=5-3-",
            "npt=0.1-1-",
            "npt=0.-110",
            "npt=0.-1x-",
            "npt=--1-",
            "npt=-now-",
            "clock=-1-",
        ] {
            assert!(!is_before_all(range), "{range}");
        }
    }
}
