//! Offers and answers (RFC 8829): the tracks and codecs that both sides have.

use std::time::Instant;

use str0m::change::SdpOffer;
use str0m::format::{Codec, PayloadParams};
use str0m::media::{Direction, MediaKind, Mid, Pt};
use str0m::{Rtc, RtcConfig};

use super::paths::Candidates;
use crate::rtp::parameters;
use crate::sdp::{Description, Track};

/// The longest offer in bytes.
const OFFER_BYTES_MAX: usize = 64 << 10;

/// Why an offer cannot be answered.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OfferError {
    /// It is too long.
    #[error("the offer is longer than {OFFER_BYTES_MAX} bytes")]
    Long,
    /// It is not valid.
    #[error("the offer is not valid: {0}")]
    Invalid(String),
    /// None of its codecs fits.
    #[error("the offer has none of the codecs {0}")]
    NoCodec(String),
}

/// A track of a live stream that a player may get.
#[derive(Clone, Debug)]
pub(super) struct WantedTrack {
    /// Its number in the stream.
    pub(super) number: u8,
    pub(super) codec: Codec,
    /// The profile of H.264 (`profile_idc`), if it is known.
    profile: Option<u8>,
}

/// The tracks of a live stream that a player may get: at most one with pictures and one with sound.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    tracks: Vec<WantedTrack>,
}

/// The codec of a track, if WebRTC carries it.
fn codec_of(track: &Track) -> Option<Codec> {
    Some(match &*track.encoding {
        "H264" => Codec::H264,
        "VP8" => Codec::Vp8,
        "VP9" => Codec::Vp9,
        "OPUS" => Codec::Opus,
        "PCMU" if track.clock_rate == 8_000 => Codec::PCMU,
        "PCMA" if track.clock_rate == 8_000 => Codec::PCMA,
        _ => return None,
    })
}

/// True if WebRTC carries the encoding of a track.
#[must_use]
pub fn carries(track: &Track) -> bool {
    codec_of(track).is_some()
}

impl Wanted {
    /// Those of a description: its main pictures, and its first sound that can be carried.
    pub(super) fn of(description: &Description) -> Self {
        let mut tracks: Vec<WantedTrack> = Vec::new();
        let all = description.tracks().iter().enumerate();
        for (number, track) in all {
            let Some(codec) = codec_of(track) else {
                continue;
            };
            let is_main = number == usize::from(description.video_track());
            let is_first_sound = !tracks.iter().any(|of| of.codec.is_audio());
            if if codec.is_video() {
                is_main
            } else {
                is_first_sound
            } {
                tracks.push(WantedTrack {
                    number: number as u8,
                    codec,
                    profile: profile_of(track),
                });
            }
        }
        Self { tracks }
    }
}

/// The profile of a track of H.264, by the parameter sets of its description.
fn profile_of(track: &Track) -> Option<u8> {
    let sps = parameters::described(parameters::Codec::Avc, &track.parameters).sps?;
    sps.get(1).copied()
}

/// A track that both sides have.
#[derive(Clone, Debug)]
pub(super) struct AgreedTrack {
    pub(super) mid: Mid,
    pub(super) pt: Pt,
    pub(super) codec: Codec,
    /// The number of the track in the live stream; of a publisher its place in the offer.
    pub(super) number: u8,
}

/// An answered offer.
pub(super) struct Negotiated {
    pub(super) rtc: Rtc,
    /// The answer.
    pub(super) text: String,
    pub(super) tracks: Vec<AgreedTrack>,
}

/// Answers the offer of a player of these tracks.
pub(super) fn answer(
    offer: &str,
    wanted: Wanted,
    candidates: &Candidates,
) -> Result<Negotiated, OfferError> {
    let codecs: Vec<Codec> = wanted.tracks.iter().map(|of| of.codec).collect();
    let (mut rtc, text, lines) = accept(offer, &codecs, candidates)?;
    let mut tracks: Vec<AgreedTrack> = Vec::new();
    for line in lines.iter().filter(|of| of.is_sent) {
        let found = wanted.tracks.iter().find(|track| {
            let is_new = !tracks.iter().any(|of| of.number == track.number);
            is_new && track.codec.kind() == line.kind
        });
        let Some(track) = found else {
            continue;
        };
        if let Some(pt) = best(&rtc, line.mid, track) {
            tracks.push(AgreedTrack {
                mid: line.mid,
                pt,
                codec: track.codec,
                number: track.number,
            });
        }
    }
    if tracks.is_empty() {
        rtc.disconnect();
        return Err(no_codec(&codecs));
    }
    Ok(Negotiated { rtc, text, tracks })
}

/// Answers the offer of a publisher.
pub(super) fn take(offer: &str, candidates: &Candidates) -> Result<Negotiated, OfferError> {
    let sound = [Codec::Opus, Codec::PCMA, Codec::PCMU];
    // Browsers play recordings of H.264 everywhere, so it comes first.
    let choices = [&[Codec::H264][..], &[Codec::Vp8], &[Codec::Vp9], &[]];
    for pictures in choices {
        let codecs = [pictures, &sound].concat();
        let (rtc, text, lines) = accept(offer, &codecs, candidates)?;
        let agreed = lines.iter().filter(|of| of.is_received).enumerate();
        let agreed = agreed.filter_map(|(number, line)| {
            let params = offered(&rtc, line.mid).next()?;
            Some(AgreedTrack {
                mid: line.mid,
                pt: params.pt(),
                codec: params.spec().codec,
                number: number as u8,
            })
        });
        let tracks: Vec<_> = agreed.collect();
        let has_pictures = tracks.iter().any(|of| of.codec.is_video());
        if !tracks.is_empty() && (has_pictures || pictures.is_empty()) {
            return Ok(Negotiated { rtc, text, tracks });
        }
    }
    let all = [&choices[..3].concat()[..], &sound].concat();
    Err(no_codec(&all))
}

fn no_codec(codecs: &[Codec]) -> OfferError {
    let names = codecs.iter().map(ToString::to_string);
    OfferError::NoCodec(names.collect::<Vec<_>>().join(", "))
}

/// A media section of an answered offer.
struct Line {
    mid: Mid,
    kind: MediaKind,
    is_sent: bool,
    is_received: bool,
}

/// Answers an offer with these codecs.
fn accept(
    offer: &str,
    codecs: &[Codec],
    candidates: &Candidates,
) -> Result<(Rtc, String, Vec<Line>), OfferError> {
    if offer.len() > OFFER_BYTES_MAX {
        return Err(OfferError::Long);
    }
    let invalid = |error: &dyn std::fmt::Display| OfferError::Invalid(error.to_string());
    let offer = SdpOffer::from_sdp_string(offer).map_err(|error| {
        // The text has addresses of the parser.
        tracing::debug!(%error, "an offer cannot be parsed");
        OfferError::Invalid("it cannot be parsed as SDP".to_owned())
    })?;
    let has = |codec| codecs.contains(&codec);
    let config = RtcConfig::new()
        .clear_codecs()
        .enable_h264(has(Codec::H264))
        .enable_vp8(has(Codec::Vp8))
        .enable_vp9(has(Codec::Vp9))
        .enable_opus(has(Codec::Opus), false)
        .enable_pcmu(has(Codec::PCMU), false)
        .enable_pcma(has(Codec::PCMA), false)
        .set_ice_lite(true)
        .set_rtp_mode(true);
    let mut rtc = config.build(Instant::now());
    for candidate in candidates {
        rtc.add_local_candidate(candidate.clone());
    }
    let answer = rtc.sdp_api().accept_offer(offer);
    let answer = answer.map_err(|error| invalid(&error))?;
    let text = answer.to_sdp_string();
    let mids = text.lines().filter_map(|line| line.strip_prefix("a=mid:"));
    let mids: Vec<Mid> = mids.map(|mid| Mid::from(mid.trim())).collect();
    let lines = mids.into_iter().filter_map(|mid| {
        let media = rtc.media(mid).filter(|media| !media.disabled())?;
        let direction = media.direction();
        Some(Line {
            mid,
            kind: media.kind(),
            is_sent: matches!(direction, Direction::SendOnly | Direction::SendRecv),
            is_received: matches!(direction, Direction::RecvOnly | Direction::SendRecv),
        })
    });
    let lines = lines.collect();
    Ok((rtc, text, lines))
}

/// The codecs of a media section that both sides have, those that the other side prefers first.
fn offered(rtc: &Rtc, mid: Mid) -> impl Iterator<Item = &PayloadParams> {
    let offered = rtc.media(mid).map_or(&[][..], |media| media.remote_pts());
    let known = rtc.codec_config().params();
    let params = offered
        .iter()
        .filter_map(|pt| known.iter().find(|of| of.pt() == *pt));
    params.filter(|of| of.spec().format.packetization_mode != Some(0))
}

/// The payload type for a track: of H.264 the one with its profile, if there is one.
fn best(rtc: &Rtc, mid: Mid, track: &WantedTrack) -> Option<Pt> {
    let its = || offered(rtc, mid).filter(|of| of.spec().codec == track.codec);
    let profile = |of: &PayloadParams| of.spec().format.profile_level_id.map(|id| (id >> 16) as u8);
    let same = its().find(|of| track.profile.is_some() && profile(of) == track.profile);
    same.or_else(|| its().next()).map(PayloadParams::pt)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAYER: &str = include_str!("../../../../fuzz/corpus/webrtc_offer/player");
    const PUBLISHER: &str = include_str!("../../../../fuzz/corpus/webrtc_offer/publisher");

    fn wanted(tracks: &str) -> Wanted {
        Wanted::of(&Description::parse(format!("v=0\r\n{tracks}").as_bytes()).unwrap())
    }

    fn codecs(agreed: Result<Negotiated, OfferError>) -> Vec<(u8, Codec)> {
        let tracks = agreed.unwrap().tracks.into_iter();
        tracks.map(|of| (of.number, of.codec)).collect()
    }

    #[test]
    fn player_gets_the_tracks_that_both_sides_have() {
        let none = Candidates::new();
        let video = "m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n";
        let aac = "m=audio 0 RTP/AVP 97\r\na=rtpmap:97 MPEG4-GENERIC/48000/2\r\n";
        let pcmu = "m=audio 0 RTP/AVP 0\r\n";
        let both = answer(PLAYER, wanted(&format!("{aac}{video}{pcmu}")), &none);
        let text = both.as_ref().unwrap().text.clone();
        assert_eq!(codecs(both), [(1, Codec::H264), (2, Codec::PCMU)]);
        assert!(
            text.contains("H264/90000") && !text.contains("VP8") && text.contains("a=ice-lite")
        );
        let pictures = answer(PLAYER, wanted(&format!("{video}{aac}")), &none);
        assert_eq!(codecs(pictures), [(0, Codec::H264)]);
        let refused = answer(
            PLAYER,
            wanted("m=video 0 RTP/AVP 98\r\na=rtpmap:98 VP9/90000\r\n"),
            &none,
        );
        assert_eq!(refused.err(), Some(OfferError::NoCodec("VP9".to_owned())));
        let refused = answer(PUBLISHER, wanted(video), &none);
        assert_eq!(refused.err(), Some(OfferError::NoCodec("H264".to_owned())));
    }

    #[test]
    fn publisher_sends_h264_if_it_can() {
        let none = Candidates::new();
        assert_eq!(
            codecs(take(PUBLISHER, &none)),
            [(0, Codec::H264), (1, Codec::Opus)]
        );
        let other = PUBLISHER.replace("H264", "H26X");
        assert_eq!(
            codecs(take(&other, &none)),
            [(0, Codec::Vp8), (1, Codec::Opus)]
        );
        assert!(matches!(take(PLAYER, &none), Err(OfferError::NoCodec(_))));
        for bad in ["", "v=0", "\0", &"v=0\r\n".repeat(20_000)] {
            assert!(take(bad, &none).is_err());
        }
    }
}
