//! What a presentation consists of: its description (SDP, RFC 8866), as it was announced and as it is given to players.

mod meant;
mod plain;

use base64::Engine as _;
use sched::units::BytesPerSecond;
use sdp_types::{Attribute, Media, Session};

use meant::{describe_the_only_format, size};
use plain::plain;

/// The longest description that is taken, in bytes: each block of a recording has it.
pub const TEXT_BYTES_MAX: usize = 16_384;

/// The most tracks of a presentation.
pub const TRACKS_MAX: usize = 16;

/// What of a rate is for headers, which a description does not count, and for what a variable rate is above its mean.
const ABOVE_MEAN_PERCENT: u64 = 10;

/// What begins sooner in its time begins with that.
const BEGINNING_NS: u64 = 1_000_000_000;

/// Why a description is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DescriptionError {
    /// It is too long.
    #[error("a description of {0} bytes is longer than {TEXT_BYTES_MAX}")]
    Long(usize),
    /// It is no SDP.
    #[error("it is no SDP: {0}")]
    Syntax(String),
    /// It has no track, or too many.
    #[error("it has {0} tracks; there can be 1 to {TRACKS_MAX}")]
    Tracks(usize),
    /// A track that is not sent by RTP.
    #[error("track {0} is sent by {1}; RTP/AVP is what can be recorded")]
    Protocol(usize, String),
}

/// A track.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Track {
    /// What it was called by who announced it (`a=control`), if at all.
    pub control: Option<String>,
    /// The name of its encoding, in capitals.
    pub encoding: String,
    /// How many units of its timestamps a second has.
    pub clock_rate: u32,
    /// The payload type of its packets, if it is a number.
    pub payload_type: Option<u8>,
    /// How many channels it has, if it is sound.
    pub channels: u8,
    /// What else is said of its format (`a=fmtp`).
    pub parameters: String,
    /// How wide and high its pictures are, if that is said.
    pub size: Option<(u16, u16)>,
}

/// A description that makes sense.
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

/// A track of which nothing is said is counted as most video is: one that is counted too fast holds up none beside it.
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
        // Of these there is no other rate, and some do not say it.
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

/// How tracks are sent.
const PROTOCOL: &str = "RTP/AVP";

/// With words back from who receives, who need not say any.
const FEEDBACK: &str = "RTP/AVPF";

/// Whether something is said of who sent it and how, and not of what it is.
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

/// Whether something is said of keys that are agreed on for packets.
fn is_of_keys(attribute: &Attribute) -> bool {
    matches!(attribute.attribute.as_str(), "key-mgmt" | "crypto")
}

/// Whether it is known which of its frames need no others: of Motion-JPEG that is all of them.
fn is_video(track: &Track) -> bool {
    is_picture(&track.encoding)
}

fn is_picture(encoding: &str) -> bool {
    matches!(encoding, "H264" | "H265" | "MP4V-ES" | "JPEG")
}

impl Description {
    /// What an announcement says, or a block of a recording.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub fn parse(text: &[u8]) -> Result<Self, DescriptionError> {
        let (session, text) = Self::understood(text)?;
        Self::of(session, text)
    }

    /// What it says, and in which words.
    fn understood(text: &[u8]) -> Result<(Session, Vec<u8>), DescriptionError> {
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

    /// What a camera says of itself, as far as it can be had from it: tracks that are not sent by RTP are passed over. Of one
    /// that is asked by TLS (`is_secure`) some say that packets are encrypted besides, and send them in the connection as they
    /// are if they are asked for that.
    ///
    /// # Errors
    /// When none of it can be recorded.
    pub fn of_camera(text: &[u8], is_secure: bool) -> Result<Self, DescriptionError> {
        let (mut session, text) = Self::understood(text)?;
        let is_plain = |of: &Media| of.proto.starts_with(PROTOCOL);
        if session.medias.iter().all(is_plain) {
            return Self::of(session, text);
        }
        let can_be_had = |of: &Media| match of.proto.as_str() {
            "RTP/SAVP" | "RTP/SAVPF" => is_secure,
            _ => is_plain(of),
        };
        if session.medias.iter().any(can_be_had) {
            session.medias.retain(can_be_had);
            for media in &mut session.medias {
                media.proto = PROTOCOL.to_owned();
                media.attributes.retain(|of| !is_of_keys(of));
            }
            session.attributes.retain(|of| !is_of_keys(of));
        }
        Self::written(&session)
    }

    /// As it was announced.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Its tracks, in order.
    #[must_use]
    pub fn tracks(&self) -> &[Track] {
        &self.tracks
    }

    /// The track whose key frames playing begins with: the first picture of which they are known, or the first track.
    #[must_use]
    pub fn video_track(&self) -> u8 {
        // There are fewer tracks than that.
        self.tracks.iter().position(is_video).unwrap_or(0) as u8
    }

    /// The track without which the others are nothing: the first picture, whatever its encoding, or the first track.
    #[must_use]
    pub fn main_track(&self) -> usize {
        let mut medias = self.session.medias.iter();
        medias.position(|of| of.media == "video").unwrap_or(0)
    }

    /// Whether key frames are known in it.
    #[must_use]
    pub fn has_video(&self) -> bool {
        self.tracks.iter().any(is_video)
    }

    /// The rate that it says it needs (`b=AS`, in kbit/s with all headers, or `b=TIAS`), and a tenth; `None` if a track
    /// does not say.
    #[must_use]
    pub fn rate(&self) -> Option<BytesPerSecond> {
        let said = |bandwidths: &[sdp_types::Bandwidth]| {
            bandwidths.iter().find_map(|of| match of.bwtype.as_str() {
                // What is more than there is is still a rate, which is refused.
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
        // Rounded up: what was said of a rate is that rate again.
        let bytes = bits.saturating_mul(100 + ABOVE_MEAN_PERCENT).div_ceil(800);
        (bytes > 0).then_some(BytesPerSecond(bytes))
    }

    /// Says that it needs so much, if it does not say what it needs (`b=TIAS` of the session, RFC 3890).
    ///
    /// # Errors
    /// When it is too long then.
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

    /// Says that it needs so much, whatever it said before.
    ///
    /// # Errors
    /// When it is too long then.
    pub fn needing_just(mut self, rate: BytesPerSecond) -> Result<Self, DescriptionError> {
        let says_rate = |of: &sdp_types::Bandwidth| matches!(of.bwtype.as_str(), "AS" | "TIAS");
        self.session.bandwidths.retain(|of| !says_rate(of));
        for media in &mut self.session.medias {
            media.bandwidths.retain(|of| !says_rate(of));
        }
        self.needing(rate)
    }

    /// The same with these tracks alone.
    ///
    /// # Errors
    /// When that is none.
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

    /// What the whole of it is called by who described it (`a=control` of the session), if at all.
    #[must_use]
    pub fn control(&self) -> Option<&str> {
        let mut attributes = self.session.attributes.iter();
        let control = attributes.find(|attribute| attribute.attribute == "control")?;
        control.value.as_deref()
    }

    /// Whether packets of the other can be understood with this one: the same tracks, in the same formats.
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

    /// For who is to play it: nothing of where it came from, tracks that are called `track0`, `track1`, ..., and from
    /// when to when of its time it is there, in nanoseconds; of one that goes on there is no end.
    #[must_use]
    pub fn for_players(&self, begins_ns: u64, ends_ns: Option<u64>) -> Vec<u8> {
        self.for_players_with([], begins_ns, ends_ns)
    }

    /// The same of what is played together with others, whose tracks come behind its own.
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
            // What all of them need is not what this one does.
            session.bandwidths.clear();
        }
        session.attributes.retain(|of| !is_of_sender(of));
        session.connection = Some(sdp_types::Connection::from_ip_addr(
            std::net::Ipv4Addr::UNSPECIFIED,
        ));
        let seconds = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
        // Its first packet comes a moment after RECORD, which is none that anybody means.
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

/// What players call a track.
#[must_use]
pub fn control(track: usize) -> String {
    format!("track{track}")
}

/// Whether that may be the name of a track for players.
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

/// Bytes of base64 (RFC 4648), as a description has them.
pub(crate) fn base64(text: &str) -> Option<Vec<u8>> {
    let config = base64::engine::GeneralPurposeConfig::new()
        .with_decode_padding_mode(base64::engine::DecodePaddingMode::Indifferent);
    let engine = base64::engine::GeneralPurpose::new(&base64::alphabet::STANDARD, config);
    engine.decode(text).ok()
}

#[cfg(test)]
mod tests;
