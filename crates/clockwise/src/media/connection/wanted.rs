//! What a PLAY asks for: from where to where, how fast, and which way.

use std::time::{Duration, SystemTime};

use rtsp_types::headers::{NptRange, NptTime, Range, Scale, Speed, UtcRange, UtcTime};
use sched::units::BytesPerSecond;

use super::{Asked, Connection};
use crate::media::archive::{Archive, ArchiveError, Recording};
use crate::media::block::{Block, Kind};
use crate::media::description::{self, Description};
use crate::media::packet::Header;
use crate::media::play::Manner;
use crate::media::start::{self, Found, Start};
use crate::media::transport::Transport;
use crate::media::trick::Permille;

/// A live player begins so many blocks behind what is on the disks.
const LIVE_BLOCKS_BEHIND: u64 = 2;

/// The slowest and the fastest that is shown, either way, and that is sent.
const SCALE_PERMILLE: std::ops::RangeInclusive<i64> = 100..=64_000;
const SPEED_PERMILLE: std::ops::RangeInclusive<i64> = 100..=16_000;

/// What is to be played.
pub(super) struct Wanted {
    pub(super) recording: Recording,
    pub(super) found: Found,
    pub(super) manner: Manner,
    /// Times are told by the clock on the wall.
    is_by_clock: bool,
}

/// What a player's session knows of what it plays.
pub(super) struct Playable<'a> {
    pub(super) archive: &'a Archive,
    pub(super) recording: Recording,
    pub(super) description: &'a Description,
    pub(super) transports: &'a [Option<Transport>],
    /// Where it was paused.
    pub(super) paused: Option<Start>,
    pub(super) is_live: bool,
}

/// Why what is asked for cannot be played.
pub(super) enum Unwanted {
    /// It makes no sense, or there is no such time.
    Range(String),
    /// What is recorded cannot be read.
    Archive(ArchiveError),
}

impl From<ArchiveError> for Unwanted {
    fn from(error: ArchiveError) -> Self {
        Self::Archive(error)
    }
}

fn range_error(why: impl Into<String>) -> Unwanted {
    Unwanted::Range(why.into())
}

impl Wanted {
    /// What `Range` is answered.
    pub(super) fn range(&self) -> String {
        let begun = self.recording.begun_unix_ns;
        let time = |ns: u64| match self.is_by_clock {
            true => clock_text(begun.saturating_add(ns)),
            false => seconds(ns),
        };
        let until = self.manner.until_ns.map(time).unwrap_or_default();
        let unit = if self.is_by_clock { "clock" } else { "npt" };
        format!("{unit}={}-{until}", time(self.found.start.media_ns))
    }
}

impl Connection<'_> {
    /// From where to where, how fast and which way.
    pub(super) fn wanted(&self, request: &Asked, of: &Playable<'_>) -> Result<Wanted, Unwanted> {
        let range = request.typed_header::<Range>();
        let range = range.map_err(|_| range_error("the Range makes no sense"))?;
        let begun = of.recording.begun_unix_ns;
        let is_by_clock = matches!(range, Some(Range::Utc(_)));
        let (from, until) = match range {
            None => (None, None),
            Some(Range::Npt(range)) => npt(range),
            Some(Range::Utc(range)) => utc(range, begun)?,
            Some(other) => {
                return Err(range_error(format!(
                    "{other}: npt and clock are what can be played by"
                )));
            }
        };
        let scale = self.scale(request, of)?;
        let found = self.start(of, from, scale)?;
        let start = found.start;
        let is_empty = until.is_some_and(|until| match scale < Permille(0) {
            true => until >= start.media_ns,
            false => until <= start.media_ns,
        });
        if is_empty {
            return Err(range_error("the range is empty"));
        }
        let tracks = of.description.tracks().iter();
        Ok(Wanted {
            recording: of.recording,
            found,
            manner: Manner {
                scale,
                speed: Permille::ONE,
                until_ns: until,
                track: of.description.video_track(),
                clock_rates: tracks.map(|track| track.clock_rate).collect(),
            },
            is_by_clock,
        })
    }

    /// How fast it is shown: what was asked for, or as it was where that cannot be.
    fn scale(&self, request: &Asked, of: &Playable<'_>) -> Result<Permille, Unwanted> {
        let asked = request.typed_header::<Scale>();
        let asked = asked.map_err(|_| range_error("the Scale is no number"))?;
        let Some(asked) = asked.map(f64::from) else {
            return Ok(Permille::ONE);
        };
        let scale = permille(asked, SCALE_PERMILLE)
            .ok_or_else(|| range_error("a Scale of nothing; PAUSE is what you mean"))?;
        // Key frames are those of a picture that is played.
        let video = usize::from(of.description.video_track());
        let is_set_up = of.transports.get(video).is_some_and(Option::is_some);
        if scale.is_by_keys() && !(is_set_up && of.description.has_video()) {
            return Ok(Permille::ONE);
        }
        Ok(scale)
    }

    /// How fast it is sent, for which as much more is reserved, or less: what was asked for, or as fast as it is shown
    /// if the disks do not carry it. `None`: nothing was said.
    pub(super) fn speed(
        &self,
        request: &Asked,
        stream: &engine::stream::Stream,
        rate: BytesPerSecond,
    ) -> Option<Permille> {
        let asked = request.typed_header::<Speed>().ok().flatten();
        let speed = asked.and_then(|asked| permille(f64::from(asked), SPEED_PERMILLE));
        let speed = speed.filter(|speed| speed.0 > 0);
        let of = |speed: Permille| {
            let rate = speed.of(i128::from(rate.0)).max(1);
            BytesPerSecond(u64::try_from(rate).unwrap_or(u64::MAX))
        };
        let wanted = speed.unwrap_or(Permille::ONE);
        if stream.rate() == of(wanted) {
            return speed;
        }
        match stream.change_rate(of(wanted)) {
            Ok(()) => speed,
            Err(refusal) => {
                tracing::info!(peer = %self.peer, %refusal, "a Speed is refused");
                // What it had it keeps, and that is enough.
                let _: Result<(), _> = stream.change_rate(rate);
                Some(Permille::ONE)
            }
        }
    }

    /// Where that begins.
    fn start(
        &self,
        of: &Playable<'_>,
        from: Option<u64>,
        scale: Permille,
    ) -> Result<Found, Unwanted> {
        let client = &self.shared.client;
        let (archive, recording) = (of.archive, &of.recording);
        let video = usize::from(of.description.video_track());
        let at = |time| start::start_at(archive, client, recording, time, video);
        match from {
            // Without a Range it goes on where it was paused (RFC 2326, section 10.5).
            None if of.paused.is_some() => Ok(of.paused.unwrap_or_default().into()),
            // Whoever plays what goes on begins with what goes on.
            None | Some(0) if of.is_live => {
                let newest = recording.end.saturating_sub(1 + LIVE_BLOCKS_BEHIND);
                let newest = archive.trailer(client, newest.max(recording.first))?;
                Ok(at(newest.map_or(0, |trailer| trailer.media_ns))?)
            }
            None if scale < Permille(0) => Ok(at(u64::MAX)?),
            None | Some(0) => Ok(Found::from(Start {
                serial: recording.first,
                packet: 0,
                media_ns: archive.begins(client, recording)?,
            })),
            Some(from) => {
                let found = at(from)?;
                // Only in the last blocks there may be no such time.
                if found.start.serial + start::KEY_BLOCKS_MAX >= recording.end {
                    let extent = archive.extent(client, recording)?;
                    if from > extent.end {
                        let end = seconds(extent.end);
                        return Err(range_error(format!("the recording ends at {end} s")));
                    }
                }
                Ok(found)
            }
        }
    }

    /// The number and the timestamp that each track begins with, as far as the first block says, which is played as it is
    /// read for this.
    pub(super) fn rtp_info(
        &self,
        request: &Asked,
        archive: &Archive,
        wanted: &mut Wanted,
    ) -> Option<String> {
        let first = wanted.found.start.packet;
        let bytes = wanted.found.block(archive, &self.shared.client).ok()??;
        let block = Block::parse(bytes).ok()?;
        let base = request
            .request_uri()?
            .as_str()
            .trim_end_matches('/')
            .to_owned();
        let mut said: Vec<Option<String>> = Vec::new();
        for number in first..block.len() {
            let Some((entry, _)) = block.packet(number) else {
                continue;
            };
            let track = usize::from(entry.track);
            if wanted.manner.scale.is_by_keys() && entry.track != wanted.manner.track {
                continue;
            }
            said.resize(said.len().max(track + 1), None);
            let header = Header::parse(&entry.header);
            if entry.kind == Kind::Rtp
                && said[track].is_none()
                && let Some(Header {
                    sequence,
                    timestamp,
                    ..
                }) = header
            {
                let control = description::control(track);
                said[track] = Some(format!(
                    "url={base}/{control};seq={sequence};rtptime={timestamp}"
                ));
            }
        }
        let said: Vec<String> = said.into_iter().flatten().collect();
        (!said.is_empty()).then(|| said.join(","))
    }
}

/// A factor in thousandths, as near as may be; `None`: it is zero, or no number.
fn permille(factor: f64, allowed: std::ops::RangeInclusive<i64>) -> Option<Permille> {
    let size = (factor.abs() * 1_000.0).round();
    if size.is_nan() || size < 1.0 {
        return None;
    }
    // Numbers that are too large become the largest there is.
    let size = (size as i64).clamp(*allowed.start(), *allowed.end());
    Some(Permille(if factor < 0.0 { -size } else { size }))
}

/// From where to where, in nanoseconds; `None`: from where it is, to the end.
fn npt(range: NptRange) -> (Option<u64>, Option<u64>) {
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

/// The same by the clock on the wall, for a recording that began then.
fn utc(range: UtcRange, begun_unix_ns: u64) -> Result<(Option<u64>, Option<u64>), Unwanted> {
    let after = |time: UtcTime| -> Result<Option<u64>, Unwanted> {
        let at =
            unix_ns(time).ok_or_else(|| range_error(format!("{time}: there is no such time")))?;
        Ok(Some(at.saturating_sub(begun_unix_ns)))
    };
    Ok(match range {
        UtcRange::Empty => (None, None),
        UtcRange::From(from) => (after(from)?, None),
        UtcRange::FromTo(from, to) => (after(from)?, after(to)?),
        UtcRange::To(to) => (None, after(to)?),
    })
}

/// A time by the clock on the wall, in nanoseconds since 1970.
fn unix_ns(time: UtcTime) -> Option<u64> {
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

/// A time in nanoseconds since 1970, as RTSP writes it.
fn clock_text(unix_ns: u64) -> String {
    let at = SystemTime::UNIX_EPOCH + Duration::from_nanos(unix_ns);
    let text = humantime::format_rfc3339_millis(at).to_string();
    text.chars().filter(|of| !matches!(of, '-' | ':')).collect()
}

fn seconds(ns: u64) -> String {
    format!("{}.{:03}", ns / 1_000_000_000, ns / 1_000_000 % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_by_the_clock_are_read_as_they_are_written() {
        let at = 1_518_568_087_133_000_000;
        let text = clock_text(at);
        assert_eq!(text, "20180214T002807.133Z");
        let time: UtcTime = text.parse().unwrap();
        assert_eq!(unix_ns(time), Some(at));
        let Ok((from, until)) = utc(UtcRange::FromTo(time, time), at - 7) else {
            panic!("it is a time");
        };
        assert_eq!((from, until), (Some(7), Some(7)));
        let none: UtcTime = "20181314T002807Z".parse().unwrap();
        assert!(utc(UtcRange::From(none), 0).is_err());
    }

    #[test]
    fn factors_are_as_near_as_may_be() {
        let near = |factor| permille(factor, SCALE_PERMILLE).map(|of| of.0);
        assert_eq!(near(2.0), Some(2_000));
        assert_eq!(near(-1.0), Some(-1_000));
        assert_eq!(near(0.5), Some(500));
        assert_eq!(near(1e300), Some(64_000));
        assert_eq!(near(f64::NEG_INFINITY), Some(-64_000));
        assert_eq!(near(1e-9), None);
        assert_eq!(near(f64::NAN), None);
        assert_eq!(near(0.0), None);
    }
}
