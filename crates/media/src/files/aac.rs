//! AAC in MPEG4-GENERIC packets (RFC 3640), or MP4A-LATM ones (RFC 6416): frames of sound from packets.

mod bits;
mod latm;

use super::unit::{Packet, Unit};
use crate::sdp::Track as Described;
use crate::sdp::parameter;
use bits::{Bits, FREQUENCIES};
use latm::{Elements, Mux};

/// How frames lie in packets, and what a decoder has to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    layout: Layout,
    /// What a decoder is told (`AudioSpecificConfig`, ISO/IEC 14496-3).
    pub specific: Vec<u8>,
    /// The type of its objects, from 1.
    pub object_type: u8,
    /// The same of what is in them, where a band (SBR) or a channel (PS) is added to it.
    core_type: u8,
    /// Which of the sampling frequencies it has; 15 is none of them.
    pub frequency_index: u8,
    /// The sampling frequency in Hz.
    frequency: u32,
    /// How many of them a frame has.
    frame_samples: u32,
    /// How many channels, as that is written.
    pub channels: u8,
}

/// How frames lie in packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layout {
    /// Behind a header for each frame (MPEG4-GENERIC).
    Heads(Heads),
    /// In elements, which have lengths in them (MP4A-LATM).
    Elements(Mux),
}

/// How long what is said of each frame of a packet is, in bits (RFC 3640, 3.2.1.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Heads {
    size: u32,
    index: u32,
    delta: u32,
    composed: u32,
    decoded: u32,
    random_access: u32,
    state: u32,
    /// What is said besides, before the frames.
    auxiliary: u32,
}

/// The name of these packets in descriptions.
const LATM: &str = "MP4A-LATM";

/// AAC with less to compute, which is what cameras send.
const LOW_COMPLEXITY: u8 = 2;

/// The longest frame, or element of frames.
const FRAME_BYTES_MAX: usize = 1 << 16;

/// As many bytes as there are: some descriptions have quotes around them, or something behind them.
fn hexadecimal(text: &str) -> Vec<u8> {
    let text = text.trim_matches('"');
    let digits: Vec<u32> = text.chars().map_while(|of| of.to_digit(16)).collect();
    let bytes = digits.chunks_exact(2);
    bytes.map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

impl Heads {
    /// `None`: they make no sense.
    fn parse(parameters: &str) -> Option<Self> {
        let bits = |name| match parameter(parameters, name) {
            None => Some(0),
            Some(text) => text.parse().ok().filter(|bits| *bits <= 16),
        };
        let is_low_rate =
            parameter(parameters, "mode").is_some_and(|of| of.eq_ignore_ascii_case("AAC-lbr"));
        // As both modes of AAC have it, where it is not said (3.3.5, 3.3.6).
        let (size, index, delta) = match parameter(parameters, "sizelength") {
            None if is_low_rate => (6, 2, 2),
            None => (13, 3, 3),
            Some(_) => (
                bits("sizelength")?,
                bits("indexlength")?,
                bits("indexdeltalength")?,
            ),
        };
        let heads = Self {
            size,
            index,
            delta,
            composed: bits("ctsdeltalength")?,
            decoded: bits("dtsdeltalength")?,
            random_access: bits("randomaccessindication")?.min(1),
            state: bits("streamstateindication")?,
            auxiliary: bits("auxiliarydatasizelength")?,
        };
        (heads.size > 0).then_some(heads)
    }

    /// The sizes of the frames in a packet, and what is behind them.
    fn sizes<'a>(&self, payload: &'a [u8]) -> Option<(Vec<usize>, &'a [u8])> {
        let (bits, rest) = payload.split_first_chunk::<2>()?;
        let bits = usize::from(u16::from_be_bytes(*bits));
        let (said, rest) = rest.split_at_checked(bits.div_ceil(8))?;
        let mut said = Bits::new(said);
        let mut sizes = Vec::new();
        while said.at < bits {
            let size = said.take(self.size)?;
            said.take(match sizes.is_empty() {
                true => self.index,
                false => self.delta,
            })?;
            for length in [self.composed, self.decoded] {
                if length > 0 && said.take(1)? == 1 {
                    said.take(length)?;
                }
            }
            said.take(self.random_access + self.state)?;
            sizes.push(size as usize);
        }
        let mut besides = Bits::new(rest);
        let length = besides.take(self.auxiliary)? + self.auxiliary;
        let rest = rest.get((length as usize).div_ceil(8)..)?;
        (!sizes.is_empty()).then_some((sizes, rest))
    }
}

impl Config {
    /// Of what a description says of a track; `None`: it says too little, or that it is no AAC.
    #[must_use]
    pub fn of(described: &Described) -> Option<Self> {
        if described.encoding == LATM {
            return Self::of_elements(described);
        }
        let parameters = &described.parameters;
        let layout = Layout::Heads(Heads::parse(parameters)?);
        let said = parameter(parameters, "config").map(hexadecimal);
        let said = said.and_then(|specific| Self::specific(layout, specific));
        let is_aac = |mode: &str| mode.to_ascii_uppercase().starts_with("AAC");
        match parameter(parameters, "mode").is_none_or(is_aac) {
            true => said.or_else(|| Self::usual(layout, described)),
            false => said,
        }
    }

    /// What most cameras send at that rate, where it is not said.
    fn usual(layout: Layout, described: &Described) -> Option<Self> {
        let mut rates = FREQUENCIES.iter();
        let index = rates.position(|of| *of == described.clock_rate)? as u8;
        let channels = described.channels.clamp(1, 7);
        let specific = [LOW_COMPLEXITY << 3 | index >> 1, index << 7 | channels << 3];
        Self::specific(layout, specific.to_vec())
    }

    /// Reads the `AudioSpecificConfig` of a description, and keeps its bytes.
    fn specific(layout: Layout, specific: Vec<u8>) -> Option<Self> {
        let read = Self::read(layout, &mut Bits::new(&specific))?;
        Some(Self { specific, ..read })
    }

    /// Reads an `AudioSpecificConfig` (ISO/IEC 14496-3, 1.6.2.1), as far as it is used here.
    fn read(layout: Layout, bits: &mut Bits<'_>) -> Option<Self> {
        let object_type = bits.object_type()?;
        let (frequency_index, frequency) = bits.frequency()?;
        let channels = bits.take(4)? as u8;
        let core_type = match object_type {
            5 | 29 => {
                bits.frequency()?;
                bits.object_type()?
            }
            other => other,
        };
        let is_short = bits.take(1)? == 1;
        let frame_samples = match (core_type, is_short) {
            (1..=4 | 17, false) => 1_024,
            (1..=4 | 17, true) => 960,
            (23 | 39, false) => 512,
            (23 | 39, true) => 480,
            _ => return None,
        };
        Some(Self {
            layout,
            object_type,
            core_type,
            frequency_index,
            frequency,
            frame_samples,
            channels,
            specific: Vec::new(),
        })
    }

    /// How many samples there are in a second of what is in the objects.
    #[must_use]
    pub fn frequency(&self) -> u32 {
        self.frequency
    }

    /// How many units of time so many frames take.
    #[must_use]
    pub fn ticks(&self, frames: u32, clock_rate: u32) -> u32 {
        let samples = u64::from(frames) * u64::from(self.frame_samples);
        let frequency = u64::from(self.frequency.max(1));
        (samples * u64::from(clock_rate) / frequency) as u32
    }

    /// Whether it can be said before each frame how to decode it.
    #[must_use]
    pub fn has_adts(&self) -> bool {
        (1..=4).contains(&self.core_type) && usize::from(self.frequency_index) < FREQUENCIES.len()
    }

    /// What goes before a frame where nothing else says how to decode it (ADTS, ISO/IEC 13818-7, 6.2).
    #[must_use]
    pub fn adts(&self, frame_bytes: usize) -> [u8; 7] {
        let length = (frame_bytes + 7).min(0x1fff) as u32;
        let profile = self.core_type.saturating_sub(1) & 3;
        [
            0xff,
            0xf1,
            profile << 6 | (self.frequency_index & 0xf) << 2 | self.channels >> 2 & 1,
            self.channels << 6 | (length >> 11) as u8,
            (length >> 3) as u8,
            (length << 5) as u8 | 0x1f,
            0xfc,
        ]
    }
}

/// A frame of AAC that has a header of its own before it, as some cameras leave there (ADTS), and how long both are.
fn behind_adts(data: &[u8]) -> Option<(&[u8], usize)> {
    let [0xff, second, _, b3, b4, b5, _, ..] = data else {
        return None;
    };
    let head_bytes = if second & 1 == 1 { 7 } else { 9 };
    let length = usize::from(b3 & 3) << 11 | usize::from(*b4) << 3 | usize::from(b5 >> 5);
    let is_one = second & 0xf6 == 0xf0 && length > head_bytes;
    let frame = data.get(head_bytes..length).filter(|_| is_one)?;
    Some((frame, length))
}

/// A frame without a header of its own.
fn bare(frame: &[u8]) -> &[u8] {
    let behind = behind_adts(frame).filter(|(_, length)| *length == frame.len());
    behind.map_or(frame, |(behind, _)| behind)
}

/// Puts frames together.
#[derive(Debug)]
pub struct Aac {
    /// How they lie in packets.
    pub config: Config,
    /// A frame that lies in several packets: how long it is in all, and what has come.
    open: Option<(usize, Unit)>,
    /// The parts of an element that lies in several packets.
    elements: Elements,
    /// Frames that were left out: parts of them are missing.
    pub left_out: u64,
}

impl Aac {
    /// Nothing has come yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            open: None,
            elements: Elements::default(),
            left_out: 0,
        }
    }

    /// Whether the decoder's configuration is known. Packets may bring it.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        match self.config.layout {
            Layout::Elements(mux) => !mux.is_in_band || self.elements.have_said,
            Layout::Heads(_) => true,
        }
    }

    /// Takes the next packet, and gives the frames that are whole now.
    pub fn push(&mut self, packet: &Packet<'_>, clock_rate: u32, out: &mut Vec<Unit>) {
        match self.config.layout {
            Layout::Heads(heads) => self.push_behind(heads, packet, clock_rate, out),
            Layout::Elements(mux) => self.part_of_element(mux, packet, clock_rate, out),
        }
    }

    fn push_behind(
        &mut self,
        heads: Heads,
        packet: &Packet<'_>,
        clock_rate: u32,
        out: &mut Vec<Unit>,
    ) {
        if packet.is_after_loss && self.open.take().is_some() {
            self.left_out += 1;
        }
        let Some((sizes, mut rest)) = heads.sizes(packet.payload) else {
            return self.with_own_heads(packet, clock_rate, out);
        };
        if let [size] = sizes[..]
            && size > rest.len()
        {
            self.part(packet, size, rest, out);
            return;
        }
        for (number, size) in (0_u32..).zip(sizes) {
            let Some((frame, behind)) = rest.split_at_checked(size) else {
                self.left_out += 1;
                return;
            };
            if frame.is_empty() {
                self.left_out += 1;
                continue;
            }
            out.push(self.frame(packet.at(), number, clock_rate, frame));
            rest = behind;
        }
    }

    /// A packet that has its frames with a header each before them, and nothing else.
    fn with_own_heads(&mut self, packet: &Packet<'_>, clock_rate: u32, out: &mut Vec<Unit>) {
        let (mut rest, mut number) = (packet.payload, 0);
        while let Some((_, length)) = behind_adts(rest) {
            let (frame, behind) = rest.split_at(length);
            out.push(self.frame(packet.at(), number, clock_rate, frame));
            (rest, number) = (behind, number + 1);
        }
        self.left_out += u64::from(number == 0 || !rest.is_empty());
    }

    /// A frame, by its number among those that follow a timestamp and a time.
    fn frame(
        &self,
        (timestamp, media_ns): (u32, u64),
        number: u32,
        clock_rate: u32,
        frame: &[u8],
    ) -> Unit {
        let after = self.config.ticks(number, clock_rate);
        let after_ns = u64::from(after) * 1_000_000_000 / u64::from(clock_rate.max(1));
        Unit {
            data: bare(frame).to_vec(),
            timestamp: timestamp.wrapping_add(after),
            media_ns: media_ns.saturating_add(after_ns),
            is_key: true,
        }
    }

    fn part(&mut self, packet: &Packet<'_>, size: usize, part: &[u8], out: &mut Vec<Unit>) {
        let timestamp = packet.header.timestamp;
        let is_next = |(whole, unit): &(usize, Unit)| *whole == size && unit.timestamp == timestamp;
        if self.open.as_ref().is_some_and(|open| !is_next(open)) {
            self.open = None;
            self.left_out += 1;
        }
        if size > FRAME_BYTES_MAX || (self.open.is_none() && packet.is_after_loss) {
            self.left_out += 1;
            return;
        }
        let begun = || {
            let unit = Unit {
                timestamp,
                media_ns: packet.media_ns,
                is_key: true,
                ..Unit::default()
            };
            (size, unit)
        };
        let (whole, mut unit) = self.open.take().unwrap_or_else(begun);
        unit.data.extend_from_slice(part);
        if unit.data.len() < whole {
            self.open = Some((whole, unit));
        } else {
            unit.data.truncate(whole);
            unit.data = bare(&unit.data).to_vec();
            out.push(unit);
        }
    }
}

#[cfg(test)]
mod tests;
