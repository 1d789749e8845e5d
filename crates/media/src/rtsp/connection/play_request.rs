//! PLAY requests: range, scale and speed, and the packets that they begin with.

use std::time::Instant;

use engine::stream::Refusal;
use rtsp_types::headers::{NptRange, NptTime, Range, Scale as ScaleHeader, Speed};
use sched::units::Nanos;

use super::answer::UNCARRIED;
use super::range::{self, clock_text, from_ns, npt, utc};
use super::unwanted::{PlayRefusal, ends_at, range_error, seconds};
use super::{ClientRequest, Connection, Part};
use crate::archive::Recording;
use crate::archive::block::{Block, Kind};
use crate::archive::drift::Drift;
use crate::archive::start::{Found, Place};
use crate::play::presentation::{media_ns, unix_ns};
use crate::play::{Continuation, PlaybackTerms};
use crate::rtp::packet::Header;
use crate::rtsp::transport::Transport;
use crate::sdp;
use crate::session::Scale;

/// The allowed scales, in either direction, and the allowed speeds, in thousandths.
pub(super) const SCALE_PERMILLE: std::ops::RangeInclusive<i64> = 100..=64_000;
pub(super) const SPEED_PERMILLE: std::ops::RangeInclusive<i64> = 100..=16_000;

/// The terms of a PLAY, independent of the recordings.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    /// The beginning in nanoseconds of the master's media time; `None`: where it was paused, or the beginning.
    from: Option<u64>,
    /// It begins with the newest blocks (`now`).
    is_now: bool,
    /// The end in nanoseconds of the master's media time.
    until_ns: Option<u64>,
    /// The range is in times of the wall clock.
    is_by_clock: bool,
    pub(super) scale: Scale,
    /// The requested speed, if there is one.
    pub(super) speed: Option<Scale>,
}

impl Terms {
    /// The same terms from the current position.
    pub(super) fn going_on(self) -> Self {
        Self {
            from: None,
            is_now: false,
            ..self
        }
    }
}

/// The recordings and positions to be played.
pub(super) struct PlayRequest {
    /// The parts of the session that are played, in order, at least one.
    pub(super) parts: Vec<RequestedPart>,
    /// Time of the wall clock of what is shown first, in nanoseconds since 1970.
    pub(super) first_unix_ns: i128,
    pub(super) terms: Terms,
    /// When the master began by the host's clock, corrected by the drift at the first position: times count from there.
    begun_ns: i128,
    /// The state of each part of the session that goes on without a change.
    pub(super) continuations: Vec<Option<Continuation>>,
}

/// A part of the session that is to be played.
pub(super) struct RequestedPart {
    /// Its index in the session.
    pub(super) number: usize,
    pub(super) recording: Recording,
    /// The numbers of the first and of the last recording of its volume that are played; without a last one if more
    /// may follow. `None`: only `recording` is played.
    pub(super) numbers: Option<(u64, Option<u64>)>,
    /// When it began by the host's clock, corrected by the drift at the first position.
    pub(super) begun_ns: i128,
    /// The drift of its clock at the first position.
    pub(super) drift: Drift,
    pub(super) found: Found,
    /// Media time of the last packet in the first block, if that has been read.
    pub(super) lasts_to_ns: Option<u64>,
    pub(super) manner: PlaybackTerms,
}

impl RequestedPart {
    /// The length of the first block from the first shown packet on, if the block has been read.
    pub(super) fn lasts(&self, first_unix_ns: i128) -> Nanos {
        let PlaybackTerms { scale, speed, .. } = self.manner;
        let Some(to) = self.lasts_to_ns.filter(|_| !scale.is_by_keys()) else {
            return Nanos::ZERO;
        };
        let shown = self
            .manner
            .shown_ns(media_ns(first_unix_ns, self.begun_ns), to);
        Nanos(from_ns(speed.time_for(shown)))
    }
}

/// The state of a player's session that PLAY depends on.
pub(super) struct Playable<'a> {
    pub(super) parts: &'a [Part],
    /// The recordings of each part, in order; of the first part only the master.
    pub(super) recordings: Vec<Vec<Recording>>,
    pub(super) master: Recording,
    pub(super) transports: &'a [Option<Transport>],
    /// Where each part was paused.
    pub(super) paused: Option<&'a [Option<Place>]>,
    /// Which parts may be played.
    pub(super) selection: PartSelection,
}

/// The parts of a session that a PLAY may begin with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PartSelection {
    All,
    /// Those that were played before: playing goes on unchanged.
    Previous,
}

impl Playable<'_> {
    /// True if the video track of a part is played, which has its key frames.
    fn has_picture(&self, part: &Part) -> bool {
        let video = usize::from(part.description.video_track());
        let transport = part.transports(self.transports).get(video);
        part.description.has_video() && transport.is_some_and(Option::is_some)
    }

    /// True if a track of this part is played at this scale.
    fn is_played(&self, number: usize, part: &Part, scale: Scale) -> bool {
        let was = self.paused.and_then(|of| *of.get(number)?);
        if self.selection == PartSelection::Previous && was.is_none() {
            return false;
        }
        match scale.is_by_keys() {
            true => self.has_picture(part),
            false => part.transports(self.transports).iter().any(Option::is_some),
        }
    }
}

/// True if nothing is between a time and the end of the range.
fn is_empty(from: u64, until: Option<u64>, scale: Scale) -> bool {
    until.is_some_and(|until| match scale < Scale(0) {
        true => until >= from,
        false => until <= from,
    })
}

impl PlayRequest {
    /// Sets the speed; `None` is the original one.
    pub(super) fn set_speed(&mut self, speed: Option<Scale>) {
        self.terms.speed = speed;
        for part in &mut self.parts {
            part.manner.speed = speed.unwrap_or(Scale::ONE);
        }
    }

    /// The `Range` of the reply.
    pub(super) fn range(&self) -> String {
        let time = |ns: u64| match self.terms.is_by_clock {
            true => clock_text(from_ns(unix_ns(ns, self.begun_ns))),
            false => seconds(ns),
        };
        let until = self.terms.until_ns.map(time).unwrap_or_default();
        let unit = if self.terms.is_by_clock {
            "clock"
        } else {
            "npt"
        };
        let first = from_ns(media_ns(self.first_unix_ns, self.begun_ns));
        format!("{unit}={}-{until}", time(first))
    }
}

impl Connection<'_> {
    /// Parses the terms of a PLAY.
    pub(super) fn terms(
        &self,
        request: &ClientRequest,
        of: &Playable<'_>,
    ) -> Result<Terms, PlayRefusal> {
        let range = range::requested(request)?;
        let speed = speed(request)?;
        let is_by_clock = matches!(range, Some(Range::Utc(_)));
        let is_now = matches!(
            range,
            Some(Range::Npt(
                NptRange::From(NptTime::Now) | NptRange::FromTo(NptTime::Now, _)
            ))
        );
        let (from, until_ns) = match range {
            None => (None, None),
            Some(Range::Npt(range)) => npt(range),
            Some(Range::Utc(range)) => {
                // The drift at about that time.
                let about = utc(range, i128::from(of.master.begun_unix_ns))?;
                let about = about.0.or(about.1).unwrap_or(0);
                let (begun_ns, _) = self.clock_of(&of.parts[0], &of.master, about)?;
                utc(range, begun_ns)?
            }
            Some(other) => {
                return Err(range_error(format!(
                    "{other}: only npt and clock ranges are supported"
                )));
            }
        };
        let scale = scale(request, of)?;
        if is_now && !self.goes_on(of) {
            return Err(range_error("`now`: the recording has ended"));
        }
        if from.is_some_and(|from| is_empty(from, until_ns, scale)) {
            return Err(range_error("the range is empty"));
        }
        Ok(Terms {
            from,
            is_now,
            until_ns,
            is_by_clock,
            scale,
            speed,
        })
    }

    /// As [`terms`](Self::terms); also refuses a beginning behind the end of the master.
    pub(super) fn terms_within(
        &self,
        request: &ClientRequest,
        of: &Playable<'_>,
    ) -> Result<Terms, PlayRefusal> {
        let terms = self.terms(request, of)?;
        let archive = &of.parts[0].archive;
        if let Some(from) = terms.from.filter(|_| !archive.goes_on(&of.master)) {
            let extent = archive.extent(&self.shared.client, &of.master)?;
            if !extent.is_empty() && from > extent.end {
                return Err(ends_at(extent.end));
            }
        }
        Ok(terms)
    }

    /// Finds the first packets for these terms.
    pub(super) fn locate(
        &self,
        terms: Terms,
        of: &Playable<'_>,
    ) -> Result<PlayRequest, PlayRefusal> {
        let Terms {
            from,
            is_now,
            until_ns: until,
            scale,
            ..
        } = terms;
        let is_back = scale < Scale(0);
        let starts = self.starts(of, (from, is_now), scale)?;
        // The first key frame may be before the requested time.
        let begins = starts[0].as_ref();
        let begun_ns = begins.map_or(i128::from(of.master.begun_unix_ns), |of| of.begun_ns);
        let begins = begins.map_or(0, |begins| begins.found.start.media_ns);
        let begins = from.unwrap_or(begins);
        if is_empty(begins, until, scale) {
            return Err(range_error("the range is empty"));
        }
        let mut parts = Vec::with_capacity(of.parts.len());
        for (number, (part, start)) in of.parts.iter().zip(starts).enumerate() {
            let Some(start) = start.filter(|_| of.is_played(number, part, scale)) else {
                continue;
            };
            let until = until.map(|until| media_ns(unix_ns(until, begun_ns), start.begun_ns));
            let tracks = part.description.tracks().iter();
            parts.push(RequestedPart {
                number,
                recording: start.recording,
                numbers: self.numbers(of, number),
                begun_ns: start.begun_ns,
                drift: start.drift,
                found: start.found,
                lasts_to_ns: None,
                manner: PlaybackTerms {
                    scale,
                    speed: Scale::ONE,
                    until_ns: until,
                    track: part.description.video_track(),
                    clock_rates: tracks.map(|track| track.clock_rate).collect(),
                },
            });
        }
        let firsts = parts
            .iter()
            .map(|of| unix_ns(of.found.start.media_ns, of.begun_ns));
        let first = if is_back { firsts.max() } else { firsts.min() };
        Ok(PlayRequest {
            first_unix_ns: first
                .ok_or_else(|| range_error("no track that is set up has packets in the range"))?,
            parts,
            terms,
            begun_ns,
            continuations: Vec::new(),
        })
    }

    /// Reserves for the requested speed, or for the original one if the disks cannot serve it for all parts.
    /// Returns the speed that is reserved; `None` if none was requested.
    pub(super) fn reserve_speed(&self, speed: Option<Scale>, parts: &[Part]) -> Option<Scale> {
        let wanted = speed.unwrap_or(Scale::ONE);
        let change = |part: &Part, speed: Scale| {
            // Not from the current rate, which may have been raised for a while.
            let rate = speed.of_rate(part.member.promised());
            part.reserved.change_rate(rate)?;
            part.member.plays_at(speed);
            Ok(())
        };
        let changed: Result<(), Refusal> = parts.iter().try_for_each(|part| change(part, wanted));
        let Err(refusal) = changed else {
            return speed;
        };
        if let Some(untold) = UNCARRIED.turn(Instant::now()) {
            tracing::info!(peer = %self.peer, %refusal, untold, "a Speed is refused");
        }
        for part in parts {
            if change(part, Scale::ONE).is_err() {
                // The rate stays as it is, which is enough for the original speed.
                part.member.plays_at(Scale::ONE);
            }
        }
        Some(Scale::ONE)
    }

    /// `RTP-Info`: for each track the sequence number of its first packet, and the timestamp of the beginning of
    /// the reply's `Range`, as far as they are in the first blocks. The blocks that are read for this are played
    /// later.
    pub(super) fn rtp_info(
        &self,
        request: &ClientRequest,
        parts: &[Part],
        wanted: &mut PlayRequest,
    ) -> Option<String> {
        let base = request.request_uri()?.as_str().trim_end_matches('/');
        let first_unix_ns = wanted.first_unix_ns.max(wanted.begun_ns);
        let mut said = Vec::new();
        for of in &mut wanted.parts {
            let part = parts.get(of.number)?;
            let first_ns = media_ns(first_unix_ns, of.begun_ns);
            let firsts = self.first_packets(part, of).unwrap_or_default();
            for (track, header, at_ns) in firsts {
                let after = of.manner.shown_ns(first_ns, at_ns);
                let units = after * i128::from(of.manner.clock_rates[track]) / 1_000_000_000;
                // Timestamps wrap.
                let timestamp = header.timestamp.wrapping_sub(units as u32);
                let control = sdp::control(part.first_track + track);
                said.push(format!(
                    "url={base}/{control};seq={};rtptime={timestamp}",
                    header.sequence
                ));
            }
        }
        (!said.is_empty()).then(|| said.join(","))
    }

    /// The number, header and media time of the first packet of each track of a part.
    fn first_packets(
        &self,
        part: &Part,
        of: &mut RequestedPart,
    ) -> Option<Vec<(usize, Header, u64)>> {
        let RequestedPart {
            found,
            manner,
            recording,
            ..
        } = of;
        let first = found.start.packet;
        let read = found.look_into(&part.archive, &part.reserved, |block| {
            // The block may belong to the next recording, if this one has ended.
            let is_it = block.trailer.recording == recording.number;
            is_it.then(|| firsts_in(block, first, manner))
        });
        let (firsts, lasts_to_ns) = read.ok()???;
        of.lasts_to_ns = of.lasts_to_ns.max(lasts_to_ns);
        Some(firsts)
    }
}

/// The number, header and media time of the first packet of each track in a block, from packet `from` on; and the
/// media time of the last packet.
fn firsts_in(
    block: &Block<'_>,
    from: usize,
    manner: &PlaybackTerms,
) -> (Vec<(usize, Header, u64)>, Option<u64>) {
    let mut firsts: Vec<Option<(usize, Header, u64)>> = vec![None; manner.clock_rates.len()];
    let mut lasts_to_ns = None;
    for number in from..block.len() {
        let Some((entry, _)) = block.packet(number) else {
            continue;
        };
        lasts_to_ns = lasts_to_ns.max(Some(entry.media_ns));
        let track = usize::from(entry.track);
        if manner.scale.is_by_keys() && entry.track != manner.track {
            continue;
        }
        if entry.kind == Kind::Rtp
            && let Some(first @ None) = firsts.get_mut(track)
            && let Some(header) = Header::parse(&entry.header)
        {
            *first = Some((track, header, entry.media_ns));
        }
    }
    (firsts.into_iter().flatten().collect(), lasts_to_ns)
}

/// The `Speed` of a request.
pub(super) fn speed(request: &ClientRequest) -> Result<Option<Scale>, PlayRefusal> {
    let asked = request.typed_header::<Speed>();
    let asked = asked.map_err(|_| range_error("invalid Speed header"))?;
    let Some(asked) = asked.map(f64::from) else {
        return Ok(None);
    };
    let speed = permille(asked, SPEED_PERMILLE).filter(|speed| speed.0 > 0);
    let error =
        || range_error("Speed must be from 0.1 to 16; to play backwards, use a negative Scale");
    speed.map(Some).ok_or_else(error)
}

/// The `Scale` of a request; the original one if the requested one is impossible.
fn scale(request: &ClientRequest, of: &Playable<'_>) -> Result<Scale, PlayRefusal> {
    let asked = request.typed_header::<ScaleHeader>();
    let asked = asked.map_err(|_| range_error("invalid Scale header"))?;
    let Some(asked) = asked.map(f64::from) else {
        return Ok(Scale::ONE);
    };
    let scale = permille(asked, SCALE_PERMILLE)
        .ok_or_else(|| range_error("Scale must not be 0: use PAUSE"))?;
    // Only key frames of a video track that is played can be shown.
    if scale.is_by_keys() && !of.parts.iter().any(|part| of.has_picture(part)) {
        return Ok(Scale::ONE);
    }
    Ok(scale)
}

/// A factor in thousandths, clamped to the allowed range; `None` if it is no number, or rounds to 0.
pub(super) fn permille(factor: f64, allowed: std::ops::RangeInclusive<i64>) -> Option<Scale> {
    let size = (factor.abs() * 1_000.0).round();
    if size.is_nan() || size < 1.0 {
        return None;
    }
    // The conversion saturates.
    let size = (size as i64).clamp(*allowed.start(), *allowed.end());
    Some(Scale(if factor < 0.0 { -size } else { size }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factor_is_rounded_and_clamped() {
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
