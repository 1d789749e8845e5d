//! AAC in MP4A-LATM packets (RFC 6416, section 6): frames of sound from elements (`AudioMuxElement`, ISO/IEC 14496-3, 1.7.3).
//!
//! An element has one frame or more, each behind its length, and lies in one packet or more, of which the last one has a
//! mark. How it is laid out, and how its frames are decoded, is described (`StreamMuxConfig`), or is in the elements
//! themselves.
//!
//! # Deliberately absent
//!
//! Several programs or layers, frames whose length is not in the element, and the second version of the description, which
//! cameras and encoders do not send; and AAC whose channels are listed one by one.

use super::super::unit::{Packet, Unit};
use super::bits::Bits;
use super::{Aac, Config, FRAME_BYTES_MAX, Layout, hexadecimal, parameter};
use crate::sdp::Track as Described;

/// How frames lie in an element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mux {
    /// Elements may say it themselves.
    pub(super) is_in_band: bool,
    /// How many it has.
    frames: u32,
    /// The number of other bits behind them (`otherDataBits`).
    other_bits: usize,
}

/// The mark of an SBR extension behind an `AudioSpecificConfig`. Nothing says where such an extension ends.
const ADDED_BAND: u32 = 0x2b7;

/// The most bytes that `otherDataBits` may take.
const OTHER_BYTES_MAX: usize = 3;

impl Config {
    /// Reads the description of a track; `None`: its layout is not supported.
    pub(super) fn of_elements(described: &Described) -> Option<Self> {
        let said = parameter(&described.parameters, "config").map(hexadecimal);
        let said = said.filter(|said| !said.is_empty());
        // By RFC 6416 its absence means 1. Senders that describe a config leave it out all the same.
        let is_in_band = match parameter(&described.parameters, "cpresent") {
            Some(present) => present != "0",
            None => said.is_none(),
        };
        match said {
            Some(said) => Self::mux(&mut Bits::new(&said), is_in_band),
            None => {
                let mux = Mux {
                    is_in_band,
                    frames: 1,
                    other_bits: 0,
                };
                Self::usual(Layout::Elements(mux), described)
            }
        }
    }

    /// Reads how elements are laid out and decoded (`StreamMuxConfig`).
    fn mux(bits: &mut Bits<'_>, is_in_band: bool) -> Option<Self> {
        let version = bits.take(1)?;
        let is_of_one_time = bits.take(1)? == 1;
        let frames = bits.take(6)? + 1;
        let more = bits.take(4)? + bits.take(3)?;
        if version > 0 || !is_of_one_time || more > 0 {
            return None;
        }
        let mut mux = Mux {
            is_in_band,
            frames,
            other_bits: 0,
        };
        let from = bits.at;
        let config = Self::read(Layout::Elements(mux), bits)?;
        config.pass_rest(bits)?;
        let told_bits = bits.at - from;
        let mut specific = bits.bytes(from, told_bits.div_ceil(8));
        if let Some(last) = specific.last_mut() {
            *last &= 0xff << (told_bits.wrapping_neg() % 8);
        }
        let mut behind = *bits;
        if behind.take(11) != Some(ADDED_BAND) {
            mux.other_bits = rest(bits)?;
        }
        Some(Self {
            layout: Layout::Elements(mux),
            specific,
            ..config
        })
    }

    /// Passes over the rest of an `AudioSpecificConfig` (`GASpecificConfig`, 4.4.1).
    fn pass_rest(&self, bits: &mut Bits<'_>) -> Option<()> {
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
        // Schemes of error protection from 2 on have a description of their own.
        let is_plain = !is_resilient || bits.take(2)? < 2;
        is_plain.then_some(())
    }
}

/// Reads the rest of a `StreamMuxConfig` and gives its `otherDataBits`. Some senders leave the rest out.
fn rest(bits: &mut Bits<'_>) -> Option<usize> {
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

/// An element that is whole.
struct Element {
    frames: Vec<Vec<u8>>,
    /// Nothing is behind it.
    is_all: bool,
    /// The configuration that the element itself brings.
    config: Option<Config>,
}

impl Element {
    /// Reads an element; `None`: the bytes are only a part of it, or no element.
    fn parse(mut mux: Mux, data: &[u8]) -> Option<Self> {
        let mut bits = Bits::new(data);
        let mut config = None;
        if mux.is_in_band && bits.take(1)? == 0 {
            let said = Config::mux(&mut bits, true)?;
            if let Layout::Elements(of) = said.layout {
                mux = of;
            }
            config = Some(said);
        }
        let mut places = Vec::new();
        for _ in 0..mux.frames {
            let mut length = 0;
            loop {
                let more = bits.take(8)? as usize;
                length += more;
                if more < 255 {
                    break;
                }
            }
            places.push((bits.at, length));
            bits.pass(length * 8)?;
        }
        bits.pass(mux.other_bits)?;
        let frames = places.iter();
        Some(Self {
            frames: frames.map(|(at, len)| bits.bytes(*at, *len)).collect(),
            is_all: bits.left() < 8,
            config,
        })
    }
}

/// Where elements begin.
#[derive(Debug, Default)]
pub(super) struct Elements {
    /// The parts of an unfinished element, and whether the first of them certainly begins it.
    open: Option<(Unit, bool)>,
    /// The next packet is known to begin one.
    begins: bool,
    /// An element has brought a configuration.
    pub(super) have_said: bool,
}

impl Aac {
    /// Takes the next packet. Its element is whole as soon as it is as long as it says: a mark says only that no more comes.
    /// Behind a loss, the first parts count as an element if they are exactly one.
    pub(super) fn part_of_element(
        &mut self,
        mux: Mux,
        packet: &Packet<'_>,
        clock_rate: u32,
        out: &mut Vec<Unit>,
    ) {
        let timestamp = packet.header.timestamp;
        let elements = &mut self.elements;
        let is_other = |(unit, _): &mut (Unit, bool)| unit.timestamp != timestamp;
        if packet.is_after_loss {
            self.left_out += u64::from(elements.open.take().is_some());
            elements.begins = false;
        } else if elements.open.take_if(is_other).is_some() {
            self.left_out += 1;
            elements.begins = true;
        }
        let begun = || {
            let unit = Unit {
                timestamp,
                media_ns: packet.media_ns,
                ..Unit::default()
            };
            (unit, elements.begins)
        };
        let (mut unit, begins) = elements.open.take().unwrap_or_else(begun);
        unit.data.extend_from_slice(packet.payload);
        let element = Element::parse(mux, &unit.data).filter(|of| of.is_all || begins);
        elements.begins = packet.header.marker || element.is_some();
        match element {
            Some(element) => self.give(element, &unit, clock_rate, out),
            None if packet.header.marker || unit.data.len() > FRAME_BYTES_MAX => self.left_out += 1,
            None => elements.open = Some((unit, begins)),
        }
    }

    /// The frames of an element whose time is that of `of`.
    fn give(&mut self, element: Element, of: &Unit, clock_rate: u32, out: &mut Vec<Unit>) {
        if let Some(config) = element.config {
            self.config = config;
            self.elements.have_said = true;
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
