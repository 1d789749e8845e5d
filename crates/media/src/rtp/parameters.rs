//! What is needed to decode a video, which goes before its pictures or in its description.

use super::packet::{Coding, Frames};
use crate::sdp::{self, Track};

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codec {
    /// H.264.
    Avc,
    /// H.265.
    Hevc,
}

/// What a NAL unit is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NalKind {
    /// What is needed to decode a video (H.265).
    Vps,
    /// What is needed to decode a sequence.
    Sps,
    /// What is needed to decode a picture.
    Pps,
    /// Part of a picture that needs no other.
    Key,
    /// Part of another picture.
    Slice,
    /// Anything else.
    Other,
}

impl Codec {
    /// What a NAL unit is.
    #[must_use]
    pub fn kind(self, unit: &[u8]) -> NalKind {
        let Some(first) = unit.first() else {
            return NalKind::Other;
        };
        match (self, first & 0x1f, first >> 1 & 0x3f) {
            (Self::Avc, 7, _) | (Self::Hevc, _, 33) => NalKind::Sps,
            (Self::Avc, 8, _) | (Self::Hevc, _, 34) => NalKind::Pps,
            (Self::Hevc, _, 32) => NalKind::Vps,
            (Self::Avc, 5, _) | (Self::Hevc, _, 16..=21) => NalKind::Key,
            (Self::Avc, 1..=4, _) | (Self::Hevc, _, 0..=15) => NalKind::Slice,
            _ => NalKind::Other,
        }
    }
}

/// Sequence and picture parameters, by what they are; the first ones of a recording are what a file says in its head.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Parameters {
    /// H.265 only.
    pub vps: Option<Vec<u8>>,
    /// Of the sequence.
    pub sps: Option<Vec<u8>>,
    /// Of pictures.
    pub pps: Vec<Vec<u8>>,
}

/// So many picture parameters are noted.
const PPS_MAX: usize = 8;

impl Parameters {
    /// Notes a NAL unit that is one of them.
    pub fn note(&mut self, codec: Codec, unit: &[u8]) {
        // Zeros behind one are between it and the next one, where there are start codes.
        let end = unit.iter().rposition(|byte| *byte != 0);
        let unit = &unit[..end.map_or(0, |last| last + 1)];
        match codec.kind(unit) {
            NalKind::Vps if self.vps.is_none() => self.vps = Some(unit.to_vec()),
            NalKind::Sps if self.sps.is_none() => self.sps = Some(unit.to_vec()),
            NalKind::Pps if self.pps.len() < PPS_MAX && !self.pps.iter().any(|of| of == unit) => {
                self.pps.push(unit.to_vec());
            }
            _ => {}
        }
    }

    /// Whether that is enough to decode with.
    #[must_use]
    pub fn is_whole(&self, codec: Codec) -> bool {
        self.sps.is_some() && !self.pps.is_empty() && (codec == Codec::Avc || self.vps.is_some())
    }

    /// All of them, as they go before a stream.
    pub fn units(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.vps.iter().chain(&self.sps).chain(&self.pps)
    }
}

/// What a description says of a picture's parameters (RFC 6184, 8.1; RFC 7798, 7.1).
pub(crate) fn described(codec: Codec, said: &str) -> Parameters {
    let mut parameters = Parameters::default();
    let names: &[&str] = match codec {
        Codec::Avc => &["sprop-parameter-sets"],
        Codec::Hevc => &["sprop-vps", "sprop-sps", "sprop-pps"],
    };
    let values = names.iter().filter_map(|name| sdp::parameter(said, name));
    for text in values.flat_map(|value| value.split(',')) {
        if let Some(unit) = sdp::base64(text.trim()) {
            parameters.note(codec, &unit);
        }
    }
    parameters
}

/// Where the frames of a track begin that was described like this.
#[must_use]
pub(crate) fn frames_of(track: &Track) -> Frames {
    let coding = Coding::of(&track.encoding);
    let described = match coding {
        Coding::Avc => described(Codec::Avc, &track.parameters).sps,
        _ => None,
    };
    Frames::new(coding).described(&described.unwrap_or_default())
}
