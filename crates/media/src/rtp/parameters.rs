//! Parameter sets of H.264 and H.265, which a decoder needs: among the packets, or in the description.

use super::packet::{Coding, Frames};
use crate::sdp::{self, Track};

/// A video codec with parameter sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codec {
    /// H.264.
    Avc,
    /// H.265.
    Hevc,
}

/// Kind of a NAL unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NalKind {
    /// Video parameter set (H.265).
    Vps,
    /// Sequence parameter set.
    Sps,
    /// Picture parameter set.
    Pps,
    /// Slice of a picture that is decoded without others.
    Key,
    /// Slice of another picture.
    Slice,
    /// Anything else.
    Other,
}

impl Codec {
    /// Kind of a NAL unit.
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

/// Parameter sets; a file has the first ones of a recording in its header.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Parameters {
    /// Video parameter set (H.265).
    pub vps: Option<Vec<u8>>,
    /// Sequence parameter set.
    pub sps: Option<Vec<u8>>,
    /// Picture parameter sets, at most 8.
    pub pps: Vec<Vec<u8>>,
}

const PPS_MAX: usize = 8;

impl Parameters {
    /// Adds a NAL unit if it is a parameter set that is missing.
    pub fn note(&mut self, codec: Codec, unit: &[u8]) {
        // Zeros at the end belong to the next start code (ITU-T H.264, annex B).
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

    /// Returns true if these are enough for a decoder.
    #[must_use]
    pub fn is_whole(&self, codec: Codec) -> bool {
        self.sps.is_some() && !self.pps.is_empty() && (codec == Codec::Avc || self.vps.is_some())
    }

    /// All of them, in the order in which a stream has them.
    pub fn units(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.vps.iter().chain(&self.sps).chain(&self.pps)
    }
}

/// Parameter sets in the format parameters of a description (RFC 6184, section 8.1; RFC 7798, section 7.1).
pub(crate) fn described(codec: Codec, format: &str) -> Parameters {
    let mut parameters = Parameters::default();
    let names: &[&str] = match codec {
        Codec::Avc => &["sprop-parameter-sets"],
        Codec::Hevc => &["sprop-vps", "sprop-sps", "sprop-pps"],
    };
    let values = names.iter().filter_map(|name| sdp::parameter(format, name));
    for text in values.flat_map(|value| value.split(',')) {
        if let Some(unit) = sdp::base64(text.trim()) {
            parameters.note(codec, &unit);
        }
    }
    parameters
}

/// The frame detector for a track.
#[must_use]
pub(crate) fn frames_of(track: &Track) -> Frames {
    let coding = Coding::of(&track.encoding);
    let described = match coding {
        Coding::Avc => described(Codec::Avc, &track.parameters).sps,
        _ => None,
    };
    Frames::new(coding).described(&described.unwrap_or_default())
}
