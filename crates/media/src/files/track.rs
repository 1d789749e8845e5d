//! A track of a recording on its way into a file.

use std::ops::Range;

use sched::units::Nanos;

use super::aac::{self, Aac};
use super::jpeg::Jpeg;
use super::mp4::{Sample, TrackHead};
use super::nal::{self, Nals};
use super::unit::{Packet, Reorder, Timeline, Unit};
use crate::rtp::packet::Header;
use crate::rtp::parameters::{self, Codec, Parameters};
use crate::sdp::Track as Described;

/// What packets of a track carry.
#[derive(Debug)]
enum Payload {
    Video(Nals),
    Aac(Aac),
    Jpeg(Jpeg),
    /// A packet is a piece of sound.
    Sound,
}

/// What can be made of a track.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exports {
    /// It can be in an MP4 file, or why not.
    pub mp4: Result<(), &'static str>,
    /// It can be a file of its own, of this kind.
    pub raw: Option<&'static str>,
}

/// Why a track cannot be in an MP4 file.
const UNKNOWN: &str = "MP4 cannot hold its encoding, or Clockwise cannot read its packets";

/// The same of AAC, of whose format the description says what is not read here.
const OTHER_AAC: &str = "its format (a=fmtp) describes no AAC that Clockwise reads: MPEG4-GENERIC needs a mode or a config of AAC, and MP4A-LATM a config of version 0 with one program, one layer and a channel configuration";

/// What can be made of a track that was described like this.
#[must_use]
pub fn exports(track: &Described) -> Exports {
    let (mp4, raw) = match &*track.encoding {
        "H264" => (Ok(()), Some("h264")),
        "H265" => (Ok(()), Some("h265")),
        "MPEG4-GENERIC" | "MP4A-LATM" => match aac::Config::of(track) {
            Some(config) => (Ok(()), config.has_adts().then_some("aac")),
            None => (Err(OTHER_AAC), None),
        },
        "JPEG" => (Err(UNKNOWN), Some("mjpeg")),
        "OPUS" => (Ok(()), None),
        "L16" => (Err(UNKNOWN), Some("s16be")),
        "PCMU" => (Err(UNKNOWN), Some("mulaw")),
        "PCMA" => (Err(UNKNOWN), Some("alaw")),
        _ => (Err(UNKNOWN), None),
    };
    Exports { mp4, raw }
}

/// A track, and what has come of it.
#[derive(Debug)]
pub struct Track {
    /// Its number in the recording, from 0.
    pub number: usize,
    payload_type: Option<u8>,
    /// A packet of that type has come: others are none of the track's from then on.
    is_of_type: bool,
    has_come: bool,
    encoding: String,
    clock_rate: u32,
    channels: u8,
    payload: Payload,
    reorder: Reorder,
    timeline: Timeline,
    units: Vec<Unit>,
    /// Units that are to be played later than what is wanted, and are only if others that are wanted come after them.
    late: Vec<Unit>,
}

impl Track {
    /// Of what was described; `None`: nothing can be made of it. Its times count from `origin`, in nanoseconds of the
    /// recording.
    #[must_use]
    pub fn new(number: usize, described: &Described, origin: Nanos) -> Option<Self> {
        let video = |codec| {
            let parameters = parameters::described(codec, &described.parameters);
            Payload::Video(Nals::new(codec, parameters))
        };
        let payload = match &*described.encoding {
            "H264" => video(Codec::Avc),
            "H265" => video(Codec::Hevc),
            "MPEG4-GENERIC" | "MP4A-LATM" => Payload::Aac(Aac::new(aac::Config::of(described)?)),
            "JPEG" => Payload::Jpeg(Jpeg::new(described.size)),
            "OPUS" | "L16" | "PCMU" | "PCMA" => Payload::Sound,
            _ => return None,
        };
        Some(Self {
            number,
            payload_type: described.payload_type,
            is_of_type: false,
            has_come: false,
            encoding: described.encoding.clone(),
            clock_rate: described.clock_rate,
            channels: described.channels,
            payload,
            reorder: Reorder::default(),
            timeline: Timeline::new(described.clock_rate, origin.get()),
            units: Vec::new(),
            late: Vec::new(),
        })
    }

    /// Its number in a file, from 1.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.number as u32 + 1
    }

    /// Takes a packet of it.
    pub fn push(&mut self, header: [u8; 12], body: &[u8], media_ns: u64) {
        let Some(header) = Header::parse(&header) else {
            return;
        };
        let Some(payload) = header.payload(body) else {
            return;
        };
        let is_of_type = self.payload_type.is_none_or(|of| of == header.payload_type);
        self.is_of_type |= is_of_type;
        if self.is_of_type && !is_of_type {
            return;
        }
        self.has_come = true;
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

    /// Nothing more comes.
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
            Payload::Aac(_) | Payload::Sound => None,
        });
    }

    /// What is whole now of what is to be played at these times, in nanoseconds of the recording; with what is decoded
    /// before it and played after it.
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

    /// A unit as it is in an MP4 file.
    pub fn sample(&mut self, unit: Unit) -> Sample {
        Sample {
            ticks: self.timeline.ticks(unit.timestamp, unit.media_ns),
            data: unit.data,
            is_key: unit.is_key,
        }
    }

    /// A time of the recording in units of its own, if it is one of pictures.
    #[must_use]
    pub fn shown_ticks(&self, media_ns: u64) -> Option<i64> {
        let is_seen = matches!(self.payload, Payload::Video(_));
        is_seen.then(|| self.timeline.said_ticks(media_ns))
    }

    /// How many units of its time so many nanoseconds are.
    #[must_use]
    pub fn ticks_of(&self, ns: u64) -> i64 {
        (u128::from(ns) * u128::from(self.clock_rate) / 1_000_000_000) as i64
    }

    /// Units that were left out, as parts of them are missing or of no kind that is known.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        match &self.payload {
            Payload::Video(nals) => nals.left_out,
            Payload::Aac(aac) => aac.left_out,
            Payload::Jpeg(jpeg) => jpeg.left_out,
            Payload::Sound => 0,
        }
    }

    /// The name of its encoding.
    #[must_use]
    pub fn encoding(&self) -> &str {
        &self.encoding
    }

    /// Whether a packet of it has come.
    #[must_use]
    pub fn has_come(&self) -> bool {
        self.has_come
    }

    /// Whether all has come that says how it is decoded, as what came counts and not what was described.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        match &self.payload {
            Payload::Video(nals) => nals.has_begun(),
            Payload::Aac(aac) => aac.has_begun(),
            Payload::Jpeg(_) | Payload::Sound => true,
        }
    }

    /// What an MP4 file says of it; `None`: that is not known yet.
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
            Payload::Sound => Some(TrackHead::opus(id, rate, self.channels)),
            Payload::Jpeg(_) => None,
        }
    }

    /// How long a sample is of which nothing else is known, in units of its time.
    #[must_use]
    pub fn usual_ticks(&self) -> u32 {
        match &self.payload {
            Payload::Aac(aac) => aac.config.ticks(1, self.clock_rate),
            // 25 a second, or 50 packets of sound.
            Payload::Video(_) | Payload::Jpeg(_) => self.clock_rate / 25,
            Payload::Sound => self.clock_rate / 50,
        }
    }

    /// What goes before everything in a file of this track alone.
    #[must_use]
    pub fn raw_head(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Payload::Video(nals) = &self.payload {
            for unit in nals.parameters().units() {
                out.extend_from_slice(&[0, 0, 0, 1]);
                out.extend_from_slice(unit);
            }
        }
        out
    }

    /// A unit as it is in a file of this track alone.
    pub fn raw(&self, mut unit: Unit, out: &mut Vec<u8>) {
        match &self.payload {
            Payload::Video(_) => nal::to_annex_b(&mut unit.data),
            Payload::Aac(aac) => out.extend_from_slice(&aac.config.adts(unit.data.len())),
            Payload::Jpeg(_) | Payload::Sound => {}
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
            Self::Sound => units.push(Unit {
                data: packet.payload.to_vec(),
                timestamp: packet.header.timestamp,
                media_ns: packet.media_ns,
                is_key: true,
            }),
        }
    }
}
