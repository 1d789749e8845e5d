//! AAC frames from MPEG4-GENERIC packets (RFC 3640) or MP4A-LATM packets (RFC 6416).

mod bits;
mod latm;

use super::bits::{Bits, hexadecimal};
use super::unit::{Packet, Unit};
use crate::sdp::Track as TrackDescription;
use crate::sdp::parameter;
use bits::{FREQUENCIES, take_frequency, take_object_type};
use latm::{ElementLayout, ElementState};

/// The packet layout of a track, and the decoder configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    layout: Layout,
    /// The `AudioSpecificConfig` (ISO/IEC 14496-3).
    pub specific: Vec<u8>,
    /// Audio object type, from 1.
    pub object_type: u8,
    /// Object type of the core stream, if SBR or PS extends it; otherwise `object_type`.
    core_type: u8,
    /// Index into [`FREQUENCIES`]; 15: another frequency.
    pub frequency_index: u8,
    /// Sampling frequency of the core stream in Hz.
    frequency: u32,
    /// Samples per frame, at that frequency.
    frame_samples: u32,
    /// Channel configuration (ISO/IEC 14496-3, table 1.19).
    pub channels: u8,
}

/// Layout of the frames in packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layout {
    /// After a header for each frame (MPEG4-GENERIC).
    AuHeaders(AuHeaderBits),
    /// In elements that contain the lengths of their frames (MP4A-LATM).
    Elements(ElementLayout),
}

/// Lengths in bits of the fields of an AU header (RFC 3640, 3.2.1.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct AuHeaderBits {
    size: u32,
    index: u32,
    index_delta: u32,
    cts_delta: u32,
    dts_delta: u32,
    random_access: u32,
    stream_state: u32,
    /// Length of the size field of the auxiliary section (3.2.2).
    auxiliary_size: u32,
}

/// Encoding name in descriptions.
const LATM: &str = "MP4A-LATM";

/// Object type AAC-LC, which cameras send.
const LOW_COMPLEXITY: u8 = 2;

/// Longest frame or element, in bytes.
const FRAME_BYTES_MAX: usize = 1 << 16;

impl AuHeaderBits {
    /// `None` if the parameters are invalid.
    fn parse(parameters: &str) -> Option<Self> {
        let bits = |name| match parameter(parameters, name) {
            None => Some(0),
            Some(text) => text.parse().ok().filter(|bits| *bits <= 16),
        };
        let is_low_rate =
            parameter(parameters, "mode").is_some_and(|of| of.eq_ignore_ascii_case("AAC-lbr"));
        // Without `sizelength`: the values of the two AAC modes (3.3.5, 3.3.6).
        let (size, index, index_delta) = match parameter(parameters, "sizelength") {
            None if is_low_rate => (6, 2, 2),
            None => (13, 3, 3),
            Some(_) => (
                bits("sizelength")?,
                bits("indexlength")?,
                bits("indexdeltalength")?,
            ),
        };
        let header = Self {
            size,
            index,
            index_delta,
            cts_delta: bits("ctsdeltalength")?,
            dts_delta: bits("dtsdeltalength")?,
            random_access: bits("randomaccessindication")?.min(1),
            stream_state: bits("streamstateindication")?,
            auxiliary_size: bits("auxiliarydatasizelength")?,
        };
        (header.size > 0).then_some(header)
    }

    /// The sizes of the frames in a packet, and the data after the headers.
    fn sizes<'a>(&self, payload: &'a [u8]) -> Option<(Vec<usize>, &'a [u8])> {
        let (bits, rest) = payload.split_first_chunk::<2>()?;
        let bits = usize::from(u16::from_be_bytes(*bits));
        let (headers, rest) = rest.split_at_checked(bits.div_ceil(8))?;
        let mut headers = Bits::new(headers);
        let mut sizes = Vec::new();
        while headers.at < bits {
            let size = headers.take(self.size)?;
            headers.take(match sizes.is_empty() {
                true => self.index,
                false => self.index_delta,
            })?;
            for length in [self.cts_delta, self.dts_delta] {
                if length > 0 && headers.take(1)? == 1 {
                    headers.take(length)?;
                }
            }
            headers.take(self.random_access + self.stream_state)?;
            sizes.push(size as usize);
        }
        let mut auxiliary = Bits::new(rest);
        let length = auxiliary.take(self.auxiliary_size)? + self.auxiliary_size;
        let rest = rest.get((length as usize).div_ceil(8)..)?;
        (!sizes.is_empty()).then_some((sizes, rest))
    }
}

impl Config {
    /// The configuration in a description; `None` if it is incomplete or not of AAC.
    #[must_use]
    pub fn of(described: &TrackDescription) -> Option<Self> {
        if described.encoding == LATM {
            return Self::of_elements(described);
        }
        let parameters = &described.parameters;
        let layout = Layout::AuHeaders(AuHeaderBits::parse(parameters)?);
        let config = parameter(parameters, "config").map(hexadecimal);
        let config = config.and_then(|specific| Self::specific(layout, specific));
        let is_aac = |mode: &str| mode.to_ascii_uppercase().starts_with("AAC");
        match parameter(parameters, "mode").is_none_or(is_aac) {
            true => config.or_else(|| Self::assumed(layout, described)),
            false => config,
        }
    }

    /// The configuration that most cameras use at the described clock rate, if none is described.
    fn assumed(layout: Layout, described: &TrackDescription) -> Option<Self> {
        let mut rates = FREQUENCIES.iter();
        let index = rates.position(|of| *of == described.clock_rate)? as u8;
        let channels = described.channels.clamp(1, 7);
        let specific = [LOW_COMPLEXITY << 3 | index >> 1, index << 7 | channels << 3];
        Self::specific(layout, specific.to_vec())
    }

    /// Parses the `AudioSpecificConfig` of a description.
    fn specific(layout: Layout, specific: Vec<u8>) -> Option<Self> {
        let read = Self::read(layout, &mut Bits::new(&specific))?;
        Some(Self { specific, ..read })
    }

    /// Parses an `AudioSpecificConfig` (ISO/IEC 14496-3, 1.6.2.1) as far as it is used here.
    fn read(layout: Layout, bits: &mut Bits<'_>) -> Option<Self> {
        let object_type = take_object_type(bits)?;
        let (frequency_index, frequency) = take_frequency(bits)?;
        let channels = bits.take(4)? as u8;
        let core_type = match object_type {
            5 | 29 => {
                take_frequency(bits)?;
                take_object_type(bits)?
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

    /// Sampling frequency of the core stream in Hz.
    #[must_use]
    pub fn frequency(&self) -> u32 {
        self.frequency
    }

    /// Duration of this many frames in ticks of a clock.
    #[must_use]
    pub fn ticks(&self, frames: u32, clock_rate: u32) -> u32 {
        let samples = u64::from(frames) * u64::from(self.frame_samples);
        let frequency = u64::from(self.frequency.max(1));
        (samples * u64::from(clock_rate) / frequency) as u32
    }

    /// True if ADTS headers can express the configuration.
    #[must_use]
    pub fn has_adts(&self) -> bool {
        (1..=4).contains(&self.core_type) && usize::from(self.frequency_index) < FREQUENCIES.len()
    }

    /// The ADTS header of a frame (ISO/IEC 13818-7, 6.2), which a raw file has before each frame.
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

/// Splits an ADTS header off, which some cameras leave before frames. Returns the frame and the length of
/// both.
fn split_adts(data: &[u8]) -> Option<(&[u8], usize)> {
    let [0xff, second, _, b3, b4, b5, _, ..] = data else {
        return None;
    };
    let header_bytes = if second & 1 == 1 { 7 } else { 9 };
    let length = usize::from(b3 & 3) << 11 | usize::from(*b4) << 3 | usize::from(b5 >> 5);
    let is_header = second & 0xf6 == 0xf0 && length > header_bytes;
    let frame = data.get(header_bytes..length).filter(|_| is_header)?;
    Some((frame, length))
}

/// The frame without an ADTS header.
fn without_adts(frame: &[u8]) -> &[u8] {
    let split = split_adts(frame).filter(|(_, length)| *length == frame.len());
    split.map_or(frame, |(bare, _)| bare)
}

/// Depacketizer of AAC.
#[derive(Debug)]
pub struct Aac {
    /// Packet layout and decoder configuration.
    pub config: Config,
    /// A frame in several packets: its length, and the part that has come.
    open: Option<(usize, Unit)>,
    /// State of the element that is being received (MP4A-LATM).
    elements: ElementState,
    /// Frames that were left out because parts of them are missing.
    pub left_out: u64,
}

impl Aac {
    /// A depacketizer before the first packet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            open: None,
            elements: ElementState::default(),
            left_out: 0,
        }
    }

    /// True if the decoder configuration is known; packets may bring it.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        match self.config.layout {
            Layout::Elements(layout) => !layout.is_in_band || self.elements.has_config,
            Layout::AuHeaders(_) => true,
        }
    }

    /// Takes the next packet, and adds the completed frames to `out`.
    pub fn push(&mut self, packet: &Packet<'_>, clock_rate: u32, out: &mut Vec<Unit>) {
        match self.config.layout {
            Layout::AuHeaders(header) => self.push_with_headers(header, packet, clock_rate, out),
            Layout::Elements(layout) => self.push_element_part(layout, packet, clock_rate, out),
        }
    }

    fn push_with_headers(
        &mut self,
        header: AuHeaderBits,
        packet: &Packet<'_>,
        clock_rate: u32,
        out: &mut Vec<Unit>,
    ) {
        if packet.is_after_loss && self.open.take().is_some() {
            self.left_out += 1;
        }
        let Some((sizes, mut rest)) = header.sizes(packet.payload) else {
            return self.push_adts_frames(packet, clock_rate, out);
        };
        if let [size] = sizes[..]
            && size > rest.len()
        {
            self.push_fragment(packet, size, rest, out);
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
            out.push(self.frame(packet.time(), number, clock_rate, frame));
            rest = behind;
        }
    }

    /// A packet of frames with ADTS headers instead of AU headers.
    fn push_adts_frames(&mut self, packet: &Packet<'_>, clock_rate: u32, out: &mut Vec<Unit>) {
        let (mut rest, mut number) = (packet.payload, 0);
        while let Some((_, length)) = split_adts(rest) {
            let (frame, behind) = rest.split_at(length);
            out.push(self.frame(packet.time(), number, clock_rate, frame));
            (rest, number) = (behind, number + 1);
        }
        self.left_out += u64::from(number == 0 || !rest.is_empty());
    }

    /// The unit of a frame that is the `number`th of a packet with this timestamp and time.
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
            data: without_adts(frame).to_vec(),
            timestamp: timestamp.wrapping_add(after),
            media_ns: media_ns.saturating_add(after_ns),
            is_key: true,
        }
    }

    fn push_fragment(
        &mut self,
        packet: &Packet<'_>,
        size: usize,
        part: &[u8],
        out: &mut Vec<Unit>,
    ) {
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
            unit.data = without_adts(&unit.data).to_vec();
            out.push(unit);
        }
    }
}

#[cfg(test)]
mod tests;
