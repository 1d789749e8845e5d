//! Descriptions of presentations (SDP, RFC 8866): as they were announced, and as players get them.

mod meant;
mod plain;

use base64::Engine as _;
use sched::units::BytesPerSecond;
use sdp_types::{Attribute, Media, Session};

use meant::{describe_the_only_format, size};
use plain::plain;

/// The longest description, in bytes: each block of a recording contains it.
pub const TEXT_BYTES_MAX: usize = 16_384;

/// The most tracks of a presentation.
pub const TRACKS_MAX: usize = 16;

/// Added to a described rate: for headers, which it does not count, and for the peaks of a variable rate.
const ABOVE_MEAN_PERCENT: u64 = 10;

/// A presentation that begins within this media time is shown to begin at 0, in nanoseconds.
const BEGINNING_NS: u64 = 1_000_000_000;

/// Why a description is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DescriptionError {
    /// It is too long.
    #[error("a description of {0} bytes is longer than {TEXT_BYTES_MAX}")]
    Long(usize),
    /// It is no SDP.
    #[error("the description is not SDP: {0}")]
    Syntax(String),
    /// It has no track, or too many.
    #[error("the description has {0} tracks; it must have 1 to {TRACKS_MAX}")]
    Tracks(usize),
    /// A track is not sent by RTP.
    #[error("track {0} uses {1}; only RTP/AVP can be recorded")]
    Protocol(usize, String),
}

/// A track.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Track {
    /// Its name in the announced description (`a=control`).
    pub control: Option<String>,
    /// The name of its encoding, in capitals.
    pub encoding: String,
    /// Units of its timestamps per second.
    pub clock_rate: u32,
    /// The payload type of its packets, if it is a number.
    pub payload_type: Option<u8>,
    /// Channels of audio; otherwise 1.
    pub channels: u8,
    /// Parameters of its format (`a=fmtp`).
    pub parameters: String,
    /// Width and height of its pictures in pixels, if the description has them.
    pub size: Option<(u16, u16)>,
}

/// A valid description.
#[derive(Clone, Debug)]
pub struct Description {
    session: Session,
    text: Vec<u8>,
    tracks: Vec<Track>,
}

/// Payload types that need no `rtpmap` (RFC 3551, tables 4 and 5).
fn well_known(payload_type: u8) -> Option<(&'static str, u32)> {
    Some(match payload_type {
        0 => ("PCMU", 8_000),
        3 => ("GSM", 8_000),
        4 => ("G723", 8_000),
        5 => ("DVI4", 8_000),
        6 => ("DVI4", 16_000),
        7 => ("LPC", 8_000),
        8 => ("PCMA", 8_000),
        9 => ("G722", 8_000),
        10 | 11 => ("L16", 44_100),
        12 => ("QCELP", 8_000),
        13 => ("CN", 8_000),
        14 => ("MPA", 90_000),
        15 => ("G728", 8_000),
        16 => ("DVI4", 11_025),
        17 => ("DVI4", 22_050),
        18 => ("G729", 8_000),
        25 => ("CELB", 90_000),
        26 => ("JPEG", 90_000),
        28 => ("NV", 90_000),
        31 => ("H261", 90_000),
        32 => ("MPV", 90_000),
        33 => ("MP2T", 90_000),
        34 => ("H263", 90_000),
        _ => return None,
    })
}

/// The clock rate of a track whose description has none, as most video has. A clock rate that is too high does not
/// delay the other tracks.
const CLOCK_RATE_DEFAULT: u32 = 90_000;

fn track(media: &Media) -> Track {
    let payload_type = media.fmt.split_ascii_whitespace().next();
    let mapped = media.attributes.iter().find_map(|attribute| {
        let value = attribute.value.as_deref()?;
        let (of, encoding) = value.split_once(' ')?;
        if attribute.attribute != "rtpmap" || Some(of) != payload_type {
            return None;
        }
        let mut parts = encoding.split('/');
        let name = parts.next()?.trim().to_ascii_uppercase();
        let said = parts.next().and_then(|of| of.trim().parse().ok());
        // These encodings have one clock rate, which some descriptions omit.
        let usual = is_picture(&name).then_some(CLOCK_RATE_DEFAULT);
        let rate = said.filter(|rate| *rate > 0).or(usual)?;
        let channels = parts.next().and_then(|of| of.trim().parse().ok());
        Some((name, rate, channels.unwrap_or(1)))
    });
    let number: Option<u8> = payload_type.and_then(|of| of.parse().ok());
    let known = number.and_then(well_known).map(|(name, rate)| {
        // Type 10 has two channels.
        (
            name.to_owned(),
            rate,
            if number == Some(10) { 2 } else { 1 },
        )
    });
    let (encoding, clock_rate, channels) = mapped
        .or(known)
        .unwrap_or_else(|| (String::new(), CLOCK_RATE_DEFAULT, 1));
    let parameters = media.attributes.iter().find_map(|attribute| {
        let (of, said) = attribute.value.as_deref()?.split_once(' ')?;
        (attribute.attribute == "fmtp" && Some(of) == payload_type).then(|| said.to_owned())
    });
    let control = media.attributes.iter();
    let control = control
        .filter(|attribute| attribute.attribute == "control")
        .find_map(|attribute| attribute.value.clone());
    Track {
        control,
        encoding,
        clock_rate,
        payload_type: number,
        channels,
        parameters: parameters.unwrap_or_default(),
        size: media.attributes.iter().find_map(size),
    }
}

/// The protocol of tracks.
const PROTOCOL: &str = "RTP/AVP";

/// The protocol with feedback from receivers, which is optional (RFC 4585).
const FEEDBACK: &str = "RTP/AVPF";

/// True if an attribute is about the sender or the transport, and not about the media.
fn is_of_sender(attribute: &Attribute) -> bool {
    matches!(
        attribute.attribute.as_str(),
        "control"
            | "range"
            | "sendonly"
            | "recvonly"
            | "inactive"
            | "source-filter"
            | "rtcp"
            | "rtcp-unicast"
    ) || is_of_keys(attribute)
}

/// True if an attribute is about keys for encrypted packets.
fn is_of_keys(attribute: &Attribute) -> bool {
    matches!(attribute.attribute.as_str(), "key-mgmt" | "crypto")
}

/// True if its key frames can be recognised; of Motion-JPEG all frames are key frames.
fn is_video(track: &Track) -> bool {
    is_picture(&track.encoding)
}

fn is_picture(encoding: &str) -> bool {
    matches!(
        encoding,
        "H264" | "H265" | "MP4V-ES" | "JPEG" | "VP8" | "VP9" | "AV1"
    )
}

impl Description {
    /// Parses the description of an announcement or of a block.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub fn parse(text: &[u8]) -> Result<Self, DescriptionError> {
        let (session, text) = Self::parse_or_repair(text)?;
        Self::of(session, text)
    }

    /// Parses a text, repaired if needed; returns it with the text that was parsed.
    fn parse_or_repair(text: &[u8]) -> Result<(Session, Vec<u8>), DescriptionError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(DescriptionError::Long(text.len()));
        }
        match Session::parse(text) {
            Ok(session) => Ok((session, text.to_vec())),
            Err(error) => {
                let plain = plain(text);
                if plain.len() > TEXT_BYTES_MAX {
                    return Err(DescriptionError::Long(plain.len()));
                }
                let session = Session::parse(&plain).ok();
                let session = session.filter(|of| !of.medias.is_empty());
                let session = session.ok_or(DescriptionError::Syntax(error.to_string()))?;
                Ok((session, plain))
            }
        }
    }

    fn of(mut session: Session, text: Vec<u8>) -> Result<Self, DescriptionError> {
        if session.medias.is_empty() || session.medias.len() > TRACKS_MAX {
            return Err(DescriptionError::Tracks(session.medias.len()));
        }
        for (number, media) in session.medias.iter().enumerate() {
            if !matches!(
                media.proto.as_str(),
                PROTOCOL | FEEDBACK | "RTP/AVP/UDP" | "RTP/AVP/TCP"
            ) {
                return Err(DescriptionError::Protocol(number, media.proto.clone()));
            }
        }
        session.medias.iter_mut().for_each(describe_the_only_format);
        Ok(Self {
            tracks: session.medias.iter().map(track).collect(),
            text,
            session,
        })
    }

    /// Parses the description of a camera, reduced to the tracks that can be received from it: those that are not
    /// sent by RTP are left out. Over TLS (`is_secure`) some cameras describe encrypted packets (SRTP), and send
    /// them in the connection without that encryption if they are asked to.
    ///
    /// # Errors
    /// When no track can be recorded.
    pub fn of_camera(text: &[u8], is_secure: bool) -> Result<Self, DescriptionError> {
        let (mut session, text) = Self::parse_or_repair(text)?;
        let is_plain = |of: &Media| of.proto.starts_with(PROTOCOL);
        if session.medias.iter().all(is_plain) {
            return Self::of(session, text);
        }
        let is_receivable = |of: &Media| match of.proto.as_str() {
            "RTP/SAVP" | "RTP/SAVPF" => is_secure,
            _ => is_plain(of),
        };
        if session.medias.iter().any(is_receivable) {
            session.medias.retain(is_receivable);
            for media in &mut session.medias {
                media.proto = PROTOCOL.to_owned();
                media.attributes.retain(|of| !is_of_keys(of));
            }
            session.attributes.retain(|of| !is_of_keys(of));
        }
        Self::written(&session)
    }

    /// Its text.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Its tracks, in order.
    #[must_use]
    pub fn tracks(&self) -> &[Track] {
        &self.tracks
    }

    /// The track with whose key frames playing begins: the first one whose key frames can be recognised, or the
    /// first track.
    #[must_use]
    pub fn video_track(&self) -> u8 {
        // There are at most `TRACKS_MAX` tracks.
        self.tracks.iter().position(is_video).unwrap_or(0) as u8
    }

    /// True if a track is described as pictures, of any encoding.
    #[must_use]
    pub fn is_picture(&self, track: usize) -> bool {
        let media = self.session.medias.get(track);
        media.is_some_and(|of| of.media == "video")
    }

    /// The most important track: the first video track of any encoding, or the first track.
    #[must_use]
    pub fn main_track(&self) -> usize {
        let mut medias = self.session.medias.iter();
        medias.position(|of| of.media == "video").unwrap_or(0)
    }

    /// True if a track is video of any encoding.
    #[must_use]
    pub fn sends_pictures(&self) -> bool {
        self.session.medias.iter().any(|of| of.media == "video")
    }

    /// True if a track has key frames that can be recognised.
    #[must_use]
    pub fn has_video(&self) -> bool {
        self.tracks.iter().any(is_video)
    }

    /// The rate that it describes (`b=AS`, in kbit/s with all headers, or `b=TIAS`), and a tenth; `None` if a track
    /// has no rate, and neither has the session.
    #[must_use]
    pub fn rate(&self) -> Option<BytesPerSecond> {
        let said = |bandwidths: &[sdp_types::Bandwidth]| {
            bandwidths.iter().find_map(|of| match of.bwtype.as_str() {
                // A rate that is too large for the type is clamped, and refused later.
                "AS" => Some(of.bandwidth.saturating_mul(1_000)),
                "TIAS" => Some(of.bandwidth),
                _ => None,
            })
        };
        let of_tracks = self.session.medias.iter();
        let of_tracks = of_tracks.map(|media| said(&media.bandwidths));
        let of_tracks = of_tracks
            .reduce(|sum, of| Some(sum?.saturating_add(of?)))
            .flatten();
        let bits = of_tracks.or_else(|| said(&self.session.bandwidths))?;
        // Rounded up, so that a rate that was written by `needing` is read as the same.
        let bytes = bits.saturating_mul(100 + ABOVE_MEAN_PERCENT).div_ceil(800);
        (bytes > 0).then_some(BytesPerSecond(bytes))
    }

    /// Adds a rate (`b=TIAS` of the session, RFC 3890) if it has none.
    ///
    /// # Errors
    /// When it becomes too long.
    pub fn needing(self, rate: BytesPerSecond) -> Result<Self, DescriptionError> {
        if self.rate().is_some() {
            return Ok(self);
        }
        let mut session = self.session;
        session.bandwidths.push(sdp_types::Bandwidth {
            bwtype: "TIAS".to_owned(),
            bandwidth: (rate.0.saturating_mul(800) / (100 + ABOVE_MEAN_PERCENT)).max(8),
        });
        Self::written(&session)
    }

    /// Replaces its rate.
    ///
    /// # Errors
    /// When it becomes too long.
    pub fn needing_just(mut self, rate: BytesPerSecond) -> Result<Self, DescriptionError> {
        let says_rate = |of: &sdp_types::Bandwidth| matches!(of.bwtype.as_str(), "AS" | "TIAS");
        self.session.bandwidths.retain(|of| !says_rate(of));
        for media in &mut self.session.medias {
            media.bandwidths.retain(|of| !says_rate(of));
        }
        self.needing(rate)
    }

    /// Keeps only the tracks for which `is_kept` is true.
    ///
    /// # Errors
    /// When no track is left.
    pub fn with_just(self, is_kept: &[bool]) -> Result<Self, DescriptionError> {
        let mut session = self.session;
        let mut kept = is_kept.iter().copied();
        session.medias.retain(|_| kept.next().unwrap_or(false));
        Self::written(&session)
    }

    fn written(session: &Session) -> Result<Self, DescriptionError> {
        let mut text = Vec::new();
        let written = session.write(&mut text);
        written.map_err(|error| DescriptionError::Syntax(error.to_string()))?;
        Self::parse(&text)
    }

    /// The name of the whole presentation (`a=control` of the session).
    #[must_use]
    pub fn control(&self) -> Option<&str> {
        let mut attributes = self.session.attributes.iter();
        let control = attributes.find(|attribute| attribute.attribute == "control")?;
        control.value.as_deref()
    }

    /// True if the other description has the same tracks in the same formats.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        let formats = |media: &Media| {
            let attributes = media.attributes.iter();
            let formats: Vec<_> = attributes
                .filter(|of| matches!(of.attribute.as_str(), "rtpmap" | "fmtp"))
                .cloned()
                .collect();
            (media.media.clone(), media.fmt.clone(), formats)
        };
        let (ours, others) = (&self.session.medias, &other.session.medias);
        ours.iter().map(formats).eq(others.iter().map(formats))
    }

    /// The description for players: without the sender and its transport, with tracks that are named `track0`,
    /// `track1`, ..., and with its range in nanoseconds of media time; `ends_ns` is `None` while it is recorded.
    #[must_use]
    pub fn for_players(&self, begins_ns: u64, ends_ns: Option<u64>) -> Vec<u8> {
        self.for_players_with([], begins_ns, ends_ns)
    }

    /// As [`for_players`](Self::for_players), with the tracks of other recordings behind its own.
    ///
    /// # Panics
    /// Never: writing into memory does not fail.
    #[must_use]
    pub fn for_players_with<'a>(
        &self,
        others: impl IntoIterator<Item = &'a Self>,
        begins_ns: u64,
        ends_ns: Option<u64>,
    ) -> Vec<u8> {
        let mut session = self.session.clone();
        for other in others {
            session.medias.extend(other.session.medias.iter().cloned());
            // The rate of the session is that of this recording alone.
            session.bandwidths.clear();
        }
        session.attributes.retain(|of| !is_of_sender(of));
        session.connection = Some(sdp_types::Connection::from_ip_addr(
            std::net::Ipv4Addr::UNSPECIFIED,
        ));
        let seconds = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
        // The first packet arrives a moment after RECORD: users expect the recording to begin at 0.
        let begins = match begins_ns >= BEGINNING_NS {
            true => seconds(begins_ns),
            false => "0".to_owned(),
        };
        let range = format!("npt={begins}-{}", ends_ns.map(seconds).unwrap_or_default());
        session.add_attribute(Attribute::with_value("control", "*"));
        session.add_attribute(Attribute::with_value("range", range));
        for (number, media) in session.medias.iter_mut().enumerate() {
            media.port = 0;
            media.num_ports = None;
            media.proto = PROTOCOL.to_owned();
            media.connections.clear();
            media.attributes.retain(|of| !is_of_sender(of));
            media.add_attribute_with_value("control", control(number));
        }
        let mut text = Vec::new();
        session
            .write(&mut text)
            .expect("writing into memory does not fail");
        text
    }
}

/// The name of a track for players.
#[must_use]
pub fn control(track: usize) -> String {
    format!("track{track}")
}

/// True if this may be the name of a track for players.
pub(crate) fn is_control(name: &str) -> bool {
    let number = name.strip_prefix("track");
    number.is_some_and(|number| number.parse::<usize>().is_ok())
}

/// The value of one of the parameters of a format (`a=fmtp`).
pub(crate) fn parameter<'a>(parameters: &'a str, name: &str) -> Option<&'a str> {
    parameters.split(';').find_map(|one| {
        let (key, value) = one.trim().split_once('=')?;
        key.trim()
            .eq_ignore_ascii_case(name)
            .then_some(value.trim())
    })
}

/// Decodes base64 (RFC 4648), with or without padding.
pub(crate) fn base64(text: &str) -> Option<Vec<u8>> {
    let config = base64::engine::GeneralPurposeConfig::new()
        .with_decode_padding_mode(base64::engine::DecodePaddingMode::Indifferent);
    let engine = base64::engine::GeneralPurpose::new(&base64::alphabet::STANDARD, config);
    engine.decode(text).ok()
}

#[cfg(test)]
mod tests;
