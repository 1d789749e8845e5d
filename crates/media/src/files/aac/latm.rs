//! AAC frames from MP4A-LATM packets (RFC 6416, section 6), which carry elements (`AudioMuxElement`, ISO/IEC
//! 14496-3, 1.7.3).
//!
//! An element has one or more frames, each after its length. It lies in one or more packets, and the last of
//! these has the marker. Its layout and the decoder configuration (`StreamMuxConfig`) are in the description
//! or in the elements themselves.
//!
//! # Limits
//!
//! Not supported, because cameras and encoders do not send them: several programs or layers, frames whose
//! length is not in the element, version 1 of `StreamMuxConfig`, and channels in a `program_config_element`.

use super::super::bits::Bits;
use super::super::unit::{Packet, Unit};
use super::{Aac, Config, FRAME_BYTES_MAX, Layout, hexadecimal, parameter};
use crate::sdp::Track as TrackDescription;

/// Layout of an element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ElementLayout {
    /// Elements may have a configuration.
    pub(super) is_in_band: bool,
    /// Number of frames in an element.
    frames: u32,
    /// Number of bits after the frames (`otherDataBits`).
    other_bits: usize,
}

/// Sync word of an SBR extension after an `AudioSpecificConfig`. The length of the extension is unknown.
const SBR_SYNC: u32 = 0x2b7;

/// Longest `otherDataLen` field, in bytes.
const OTHER_BYTES_MAX: usize = 3;

impl Config {
    /// The configuration in a description; `None` if its layout is not supported.
    pub(super) fn of_elements(described: &TrackDescription) -> Option<Self> {
        let config = parameter(&described.parameters, "config").map(hexadecimal);
        let config = config.filter(|config| !config.is_empty());
        // RFC 6416 says that an absent `cpresent` means 1, but senders that describe a config leave it out.
        let is_in_band = match parameter(&described.parameters, "cpresent") {
            Some(present) => present != "0",
            None => config.is_none(),
        };
        match config {
            Some(config) => Self::parse_mux(&mut Bits::new(&config), is_in_band),
            None => {
                let layout = ElementLayout {
                    is_in_band,
                    frames: 1,
                    other_bits: 0,
                };
                Self::assumed(Layout::Elements(layout), described)
            }
        }
    }

    /// Parses a `StreamMuxConfig`.
    fn parse_mux(bits: &mut Bits<'_>, is_in_band: bool) -> Option<Self> {
        let version = bits.take(1)?;
        let is_same_framing = bits.take(1)? == 1;
        let frames = bits.take(6)? + 1;
        let programs_and_layers = bits.take(4)? + bits.take(3)?;
        if version > 0 || !is_same_framing || programs_and_layers > 0 {
            return None;
        }
        let mut layout = ElementLayout {
            is_in_band,
            frames,
            other_bits: 0,
        };
        let from = bits.at;
        let config = Self::read(Layout::Elements(layout), bits)?;
        config.skip_rest(bits)?;
        let config_bits = bits.at - from;
        let mut specific = bits.bytes(from, config_bits.div_ceil(8));
        if let Some(last) = specific.last_mut() {
            *last &= 0xff << (config_bits.wrapping_neg() % 8);
        }
        let mut ahead = *bits;
        if ahead.take(11) != Some(SBR_SYNC) {
            layout.other_bits = read_other_bits(bits)?;
        }
        Some(Self {
            layout: Layout::Elements(layout),
            specific,
            ..config
        })
    }

    /// Skips the rest of an `AudioSpecificConfig` (`GASpecificConfig`, 4.4.1).
    fn skip_rest(&self, bits: &mut Bits<'_>) -> Option<()> {
        let is_resilient = match self.core_type {
            1..=4 => false,
            17 | 23 => true,
            _ => return None,
        };
        if self.channels == 0 {
            return None;
        }
        if bits.take(1)? == 1 {
            bits.take(14)?;
        }
        if bits.take(1)? == 1 {
            bits.take(if is_resilient { 4 } else { 1 })?;
        }
        // `epConfig` 2 and 3 have a configuration of their own.
        let is_plain = !is_resilient || bits.take(2)? < 2;
        is_plain.then_some(())
    }
}

/// Reads the rest of a `StreamMuxConfig` and returns its `otherDataBits`. Some senders omit the rest.
fn read_other_bits(bits: &mut Bits<'_>) -> Option<usize> {
    let mut take = |count| bits.take(count).unwrap_or(0);
    // `frameLengthType` 0: each frame has its length.
    if take(3) != 0 {
        return None;
    }
    take(8);
    let mut other_bits = 0;
    if take(1) == 1 {
        let mut bytes = 0;
        loop {
            let goes_on = take(1) == 1;
            other_bits = other_bits << 8 | take(8) as usize;
            bytes += 1;
            match goes_on {
                false => break,
                true if bytes == OTHER_BYTES_MAX => return None,
                true => {}
            }
        }
    }
    if take(1) == 1 {
        take(8);
    }
    Some(other_bits)
}

/// A complete element.
struct Element {
    frames: Vec<Vec<u8>>,
    /// True if no byte follows it.
    is_all: bool,
    /// The configuration in the element itself.
    config: Option<Config>,
}

impl Element {
    /// Parses an element; `None` if the bytes are incomplete or invalid.
    fn parse(mut layout: ElementLayout, data: &[u8]) -> Option<Self> {
        let mut bits = Bits::new(data);
        let mut config = None;
        if layout.is_in_band && bits.take(1)? == 0 {
            let own = Config::parse_mux(&mut bits, true)?;
            if let Layout::Elements(of) = own.layout {
                layout = of;
            }
            config = Some(own);
        }
        let mut places = Vec::new();
        for _ in 0..layout.frames {
            let mut length = 0;
            loop {
                let more = bits.take(8)? as usize;
                length += more;
                if more < 255 {
                    break;
                }
            }
            places.push((bits.at, length));
            bits.skip(length * 8)?;
        }
        bits.skip(layout.other_bits)?;
        let frames = places.iter();
        Some(Self {
            frames: frames.map(|(at, len)| bits.bytes(*at, *len)).collect(),
            is_all: bits.left() < 8,
            config,
        })
    }
}

/// State of the element that is being received.
#[derive(Debug, Default)]
pub(super) struct ElementState {
    /// The parts of an incomplete element, and true if the first of them is known to begin it.
    open: Option<(Unit, bool)>,
    /// True if the next packet is known to begin an element.
    is_at_start: bool,
    /// True once an element has brought a configuration.
    pub(super) has_config: bool,
}

impl Aac {
    /// Takes the next packet. An element is complete when all of its frames are; the marker only says that no
    /// more comes. After a loss, the received parts count as an element only if they are exactly one.
    pub(super) fn push_element_part(
        &mut self,
        layout: ElementLayout,
        packet: &Packet<'_>,
        clock_rate: u32,
        out: &mut Vec<Unit>,
    ) {
        let timestamp = packet.header.timestamp;
        let elements = &mut self.elements;
        let is_other = |(unit, _): &mut (Unit, bool)| unit.timestamp != timestamp;
        if packet.is_after_loss {
            self.left_out += u64::from(elements.open.take().is_some());
            elements.is_at_start = false;
        } else if elements.open.take_if(is_other).is_some() {
            self.left_out += 1;
            elements.is_at_start = true;
        }
        let begun = || {
            let unit = Unit {
                timestamp,
                media_ns: packet.media_ns,
                ..Unit::default()
            };
            (unit, elements.is_at_start)
        };
        let (mut unit, is_begun) = elements.open.take().unwrap_or_else(begun);
        unit.data.extend_from_slice(packet.payload);
        let element = Element::parse(layout, &unit.data).filter(|of| of.is_all || is_begun);
        elements.is_at_start = packet.header.marker || element.is_some();
        match element {
            Some(element) => self.push_frames(element, &unit, clock_rate, out),
            None if packet.header.marker || unit.data.len() > FRAME_BYTES_MAX => self.left_out += 1,
            None => elements.open = Some((unit, is_begun)),
        }
    }

    /// Adds the frames of an element, whose time is that of `of`.
    fn push_frames(&mut self, element: Element, of: &Unit, clock_rate: u32, out: &mut Vec<Unit>) {
        if let Some(config) = element.config {
            self.config = config;
            self.elements.has_config = true;
        }
        let at = (of.timestamp, of.media_ns);
        for (number, frame) in (0..).zip(&element.frames) {
            match frame.is_empty() {
                true => self.left_out += 1,
                false => out.push(self.frame(at, number, clock_rate, frame)),
            }
        }
    }
}

#[cfg(test)]
mod tests;
