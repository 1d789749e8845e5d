//! A track of a recording on its way into a file.

use std::ops::Range;

use super::aac::{self, Aac};
use super::av1::{self, Av1};
use super::jpeg::Jpeg;
use super::mp4::{Sample, TrackHead};
use super::mpeg4::{Headers, Mpeg4};
use super::nal::{self, Nals};
use super::unit::{Packet, Reorder, Timeline, Unit};
use super::vp::Vp;
use crate::rtp::packet::Header;
use crate::rtp::packet::vp::Format;
use crate::rtp::parameters::{self, Codec, Parameters};
use crate::sdp::Track as TrackDescription;

/// The depacketizer of a track.
#[derive(Debug)]
enum Payload {
    Video(Nals),
    Aac(Aac),
    Jpeg(Jpeg),
    Vp(Vp),
    Av1(Av1),
    Mpeg4(Mpeg4),
    /// Audio with one frame in each packet.
    Audio,
    /// Audio in samples of one or two bytes, and the name of these in MP4 files.
    Samples([u8; 4]),
}

/// The formats that a track can be exported in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exports {
    /// `Ok` if it can be in an MP4 file, or the reason why not.
    pub mp4: Result<(), &'static str>,
    /// Extension of its raw format, if it has one.
    pub raw: Option<&'static str>,
}

/// Reason why G.722 cannot be in an MP4 file.
const UNNAMED: &str = "MP4 has no name for its encoding";

/// Reason why another encoding cannot be in an MP4 file.
const UNKNOWN: &str =
    "MP4 does not support its encoding, or Clockwise does not support its packet format";

/// Reason why a track of AAC cannot be in an MP4 file.
const OTHER_AAC: &str = "its description (a=fmtp) is not supported: MPEG4-GENERIC needs a mode or a config of AAC, and MP4A-LATM a config of version 0 with one program, one layer and a channel configuration";

/// The formats that a described track can be exported in.
#[must_use]
pub fn exports(track: &TrackDescription) -> Exports {
    let (mp4, raw) = match &*track.encoding {
        "H264" => (Ok(()), Some("h264")),
        "H265" => (Ok(()), Some("h265")),
        "MPEG4-GENERIC" | "MP4A-LATM" => match aac::Config::of(track) {
            Some(config) => (Ok(()), config.has_adts().then_some("aac")),
            None => (Err(OTHER_AAC), None),
        },
        "JPEG" => (Ok(()), Some("mjpeg")),
        "MP4V-ES" => (Ok(()), Some("m4v")),
        "AV1" => (Ok(()), Some("obu")),
        "OPUS" | "VP8" | "VP9" => (Ok(()), None),
        "L16" => (Ok(()), Some("s16be")),
        "PCMU" => (Ok(()), Some("mulaw")),
        "PCMA" => (Ok(()), Some("alaw")),
        "G722" => (Err(UNNAMED), Some("g722")),
        _ => (Err(UNKNOWN), None),
    };
    Exports { mp4, raw }
}

/// True if browsers play the encoding of a described track in segments, as far as MP4 can hold it.
#[must_use]
pub fn is_for_browsers(track: &TrackDescription) -> bool {
    !matches!(
        &*track.encoding,
        "PCMU" | "PCMA" | "L16" | "JPEG" | "MP4V-ES"
    )
}

/// A track and the state of its export.
#[derive(Debug)]
pub struct Track {
    /// Its number in the recording, from 0.
    pub number: usize,
    payload_type: Option<u8>,
    /// True once a packet with the described payload type has come; then others are ignored.
    has_described_type: bool,
    has_packet: bool,
    encoding: String,
    is_for_browsers: bool,
    clock_rate: u32,
    channels: u8,
    payload: Payload,
    reorder: Reorder,
    timeline: Timeline,
    units: Vec<Unit>,
    /// Units after the time span; they are exported only if units within it follow in decoding order.
    late: Vec<Unit>,
}

impl Track {
    /// A track by its description; `None` if it cannot be exported. `origin_ns` is time 0 of the file, in
    /// nanoseconds of the recording's time.
    #[must_use]
    pub fn new(number: usize, described: &TrackDescription, origin_ns: i64) -> Option<Self> {
        let video = |codec| {
            let parameters = parameters::described(codec, &described.parameters);
            Payload::Video(Nals::new(codec, parameters))
        };
        let payload = match &*described.encoding {
            "H264" => video(Codec::Avc),
            "H265" => video(Codec::Hevc),
            "MPEG4-GENERIC" | "MP4A-LATM" => Payload::Aac(Aac::new(aac::Config::of(described)?)),
            "JPEG" => Payload::Jpeg(Jpeg::new(described.size)),
            "VP8" => Payload::Vp(Vp::new(Format::Vp8)),
            "VP9" => Payload::Vp(Vp::new(Format::Vp9)),
            "AV1" => Payload::Av1(Av1::default()),
            "MP4V-ES" => Payload::Mpeg4(Mpeg4::new(Headers::described(described))),
            "PCMU" => Payload::Samples(*b"ulaw"),
            "PCMA" => Payload::Samples(*b"alaw"),
            "L16" => Payload::Samples(*b"twos"),
            "OPUS" | "G722" => Payload::Audio,
            _ => return None,
        };
        Some(Self {
            number,
            payload_type: described.payload_type,
            has_described_type: false,
            has_packet: false,
            encoding: described.encoding.clone(),
            is_for_browsers: is_for_browsers(described),
            clock_rate: described.clock_rate,
            channels: described.channels,
            payload,
            reorder: Reorder::default(),
            timeline: Timeline::new(described.clock_rate, origin_ns),
            units: Vec::new(),
            late: Vec::new(),
        })
    }

    /// Its number in a file, from 1.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.number as u32 + 1
    }

    /// Takes an RTP packet of the track.
    pub fn push(&mut self, header: [u8; 12], body: &[u8], media_ns: u64) {
        let Some(header) = Header::parse(&header) else {
            return;
        };
        let Some(payload) = header.payload(body) else {
            return;
        };
        let is_described = self.payload_type.is_none_or(|of| of == header.payload_type);
        self.has_described_type |= is_described;
        if self.has_described_type && !is_described {
            return;
        }
        self.has_packet = true;
        let payload = header.unpadded(payload);
        let Self {
            payload: of,
            units,
            clock_rate,
            ..
        } = self;
        let mut take = |packet: &Packet<'_>| of.push(packet, *clock_rate, units);
        self.reorder.push(header, payload, media_ns, &mut take);
    }

    /// Ends the track: no more packets come.
    pub fn finish(&mut self) {
        let Self {
            payload: of,
            units,
            clock_rate,
            ..
        } = self;
        let mut take = |packet: &Packet<'_>| of.push(packet, *clock_rate, units);
        self.reorder.flush(&mut take);
        units.extend(match of {
            Payload::Video(nals) => nals.finish(),
            Payload::Jpeg(jpeg) => jpeg.finish(),
            Payload::Av1(av1) => av1.finish(),
            Payload::Mpeg4(mpeg4) => mpeg4.finish(),
            Payload::Aac(_) | Payload::Vp(_) | Payload::Audio | Payload::Samples(_) => None,
        });
    }

    /// Takes the complete units of a time span, in nanoseconds of the recording's time, including units that
    /// are decoded within it and played after it.
    pub fn take(&mut self, times_ns: &Range<u64>) -> Vec<Unit> {
        let mut wanted = Vec::new();
        for unit in self.units.drain(..) {
            if unit.media_ns >= times_ns.end {
                self.late.push(unit);
            } else if unit.media_ns >= times_ns.start {
                wanted.append(&mut self.late);
                wanted.push(unit);
            }
        }
        wanted
    }

    /// Makes the MP4 sample of a unit.
    pub fn sample(&mut self, unit: Unit) -> Sample {
        Sample {
            ticks: self.timeline.ticks(unit.timestamp, unit.media_ns),
            data: unit.data,
            is_key: unit.is_key,
        }
    }

    /// The time in ticks of the track's clock; `None` for audio.
    #[must_use]
    pub fn shown_ticks(&self, media_ns: u64) -> Option<i64> {
        let is_sound = matches!(
            self.payload,
            Payload::Aac(_) | Payload::Audio | Payload::Samples(_)
        );
        (!is_sound).then(|| self.timeline.recorded_ticks(media_ns))
    }

    /// Converts a duration to ticks of the track's clock.
    #[must_use]
    pub fn ticks_of(&self, ns: u64) -> i64 {
        (u128::from(ns) * u128::from(self.clock_rate) / 1_000_000_000) as i64
    }

    /// Units that were left out, because parts of them are missing or their kind is not supported.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        match &self.payload {
            Payload::Video(nals) => nals.left_out,
            Payload::Aac(aac) => aac.left_out,
            Payload::Jpeg(jpeg) => jpeg.left_out,
            Payload::Vp(vp) => vp.left_out,
            Payload::Av1(av1) => av1.left_out,
            Payload::Mpeg4(mpeg4) => mpeg4.left_out,
            Payload::Audio | Payload::Samples(_) => 0,
        }
    }

    /// Name of its encoding.
    #[must_use]
    pub fn encoding(&self) -> &str {
        &self.encoding
    }

    /// True if browsers play its encoding in segments.
    #[must_use]
    pub fn is_for_browsers(&self) -> bool {
        self.is_for_browsers
    }

    /// True if a packet of the track has come.
    #[must_use]
    pub fn has_packet(&self) -> bool {
        self.has_packet
    }

    /// True if the packets have brought the decoder parameters, or a key frame without them. Parameters in
    /// packets take precedence over described ones.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        match &self.payload {
            Payload::Video(nals) => nals.has_begun(),
            Payload::Aac(aac) => aac.has_begun(),
            Payload::Vp(vp) => vp.head.is_some(),
            Payload::Av1(av1) => av1.sequence.is_some(),
            Payload::Mpeg4(mpeg4) => mpeg4.headers().is_some(),
            Payload::Jpeg(jpeg) => jpeg.image_size.is_some(),
            Payload::Audio | Payload::Samples(_) => true,
        }
    }

    /// Its head in an MP4 file; `None` if its decoder parameters are not known yet.
    #[must_use]
    pub fn head(&self) -> Option<TrackHead> {
        let (id, rate) = (self.id(), self.clock_rate);
        match &self.payload {
            Payload::Video(nals) => {
                let codec = nals.codec();
                let of = |parameters: &Parameters| {
                    let is_whole = parameters.is_whole(codec);
                    is_whole.then(|| TrackHead::video(id, rate, codec, parameters))?
                };
                of(&nals.parameters()).or_else(|| of(nals.described()))
            }
            Payload::Aac(aac) => Some(TrackHead::aac(id, rate, &aac.config)),
            Payload::Vp(vp) => Some(TrackHead::vp(id, rate, vp.format(), vp.head?)),
            Payload::Av1(av1) => Some(TrackHead::av1(id, rate, av1.sequence.as_ref()?)),
            Payload::Mpeg4(mpeg4) => TrackHead::mpeg4(id, rate, mpeg4.headers()?),
            Payload::Jpeg(jpeg) => TrackHead::jpeg(id, rate, jpeg.image_size?),
            Payload::Audio => Some(TrackHead::opus(id, rate, self.channels)),
            Payload::Samples(name) => TrackHead::samples(id, rate, self.channels, *name),
        }
    }

    /// Default duration of a sample, in ticks of the track's clock.
    #[must_use]
    pub fn usual_ticks(&self) -> u32 {
        match &self.payload {
            Payload::Aac(aac) => aac.config.ticks(1, self.clock_rate),
            // 25 pictures or 50 audio packets per second.
            Payload::Audio | Payload::Samples(_) => self.clock_rate / 50,
            _ => self.clock_rate / 25,
        }
    }

    /// Head of a raw file of the track.
    #[must_use]
    pub fn raw_head(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match &self.payload {
            Payload::Video(nals) => {
                for unit in nals.parameters().units() {
                    out.extend_from_slice(&[0, 0, 0, 1]);
                    out.extend_from_slice(unit);
                }
            }
            Payload::Mpeg4(mpeg4) => {
                let headers = mpeg4.headers().map(|of| &of.bytes[..]);
                out.extend_from_slice(headers.unwrap_or_default());
            }
            _ => {}
        }
        out
    }

    /// Appends a unit in raw format.
    pub fn raw(&self, mut unit: Unit, out: &mut Vec<u8>) {
        match &self.payload {
            Payload::Video(_) => nal::to_annex_b(&mut unit.data),
            Payload::Aac(aac) => out.extend_from_slice(&aac.config.adts(unit.data.len())),
            Payload::Av1(_) => out.extend_from_slice(&av1::DELIMITER),
            _ => {}
        }
        out.append(&mut unit.data);
    }
}

impl Payload {
    fn push(&mut self, packet: &Packet<'_>, clock_rate: u32, units: &mut Vec<Unit>) {
        match self {
            Self::Video(nals) => nals.push(packet, units),
            Self::Aac(aac) => aac.push(packet, clock_rate, units),
            Self::Jpeg(jpeg) => jpeg.push(packet, units),
            Self::Vp(vp) => vp.push(packet, units),
            Self::Av1(av1) => av1.push(packet, units),
            Self::Mpeg4(mpeg4) => mpeg4.push(packet, units),
            Self::Audio | Self::Samples(_) => units.push(Unit {
                data: packet.payload.to_vec(),
                timestamp: packet.header.timestamp,
                media_ns: packet.media_ns,
                is_key: true,
            }),
        }
    }
}
