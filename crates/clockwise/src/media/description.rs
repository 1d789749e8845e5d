//! What a presentation consists of: its description (SDP, RFC 8866), as it was announced and as it is given to players.

use sched::units::BytesPerSecond;
use sdp_types::{Attribute, Media, Session};

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
        let rate = parts.next()?.trim().parse().ok().filter(|rate| *rate > 0)?;
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
    }
}

/// A description without what nobody here goes by, and mended where it is: cameras write origins (`o=`) and addresses (`c=`)
/// with more or fewer words than they have, ports and rates that are none, no version, and text in other alphabets than it is in.
fn plain(text: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(text);
    let mut plain = "v=0\r\ns=-\r\n".to_owned();
    for line in text.split('\n').map(str::trim_end) {
        let line = match line.split_once('=') {
            Some(("a", _)) => line.to_owned(),
            Some(("b", rate)) if is_rate(rate) => line.to_owned(),
            Some(("m", media)) => match media.split(' ').collect::<Vec<_>>()[..] {
                [media, port, ref rest @ ..]
                    if port.parse::<u16>().is_err() && !port.contains('/') =>
                {
                    format!("m={media} 0 {}", rest.join(" "))
                }
                _ => line.to_owned(),
            },
            _ => continue,
        };
        plain += &line;
        plain += "\r\n";
    }
    plain.into_bytes()
}

/// Whether a bandwidth says one.
fn is_rate(bandwidth: &str) -> bool {
    let said = bandwidth.split_once(':');
    said.is_some_and(|(_, rate)| rate.parse::<u64>().is_ok())
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
    matches!(&*track.encoding, "H264" | "H265" | "MP4V-ES" | "JPEG")
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

    fn of(session: Session, text: Vec<u8>) -> Result<Self, DescriptionError> {
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
pub(super) fn is_control(name: &str) -> bool {
    let number = name.strip_prefix("track");
    number.is_some_and(|number| number.parse::<usize>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[u8] = b"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=No Name\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
        a=tool:libavformat\r\nm=video 0 RTP/AVP 96\r\nb=AS:800\r\na=rtpmap:96 H264/90000\r\n\
        a=fmtp:96 packetization-mode=1\r\na=control:streamid=0\r\nm=audio 0 RTP/AVP 97\r\nb=AS:128\r\n\
        a=rtpmap:97 MPEG4-GENERIC/44100/2\r\na=control:streamid=1\r\n";

    /// Of what nobody here goes by, anything is taken: so do cameras of TP-Link, H3C and Sony write it.
    #[test]
    fn odd_origins_and_addresses_are_passed_over() {
        for (session, media) in [
            (
                "o=- 14665860 31787219 1 IN IP4 10.0.0.94\r\ns=x\r\nc=IN IP4 0.0.0.0\r\nt=0 0",
                "",
            ),
            (
                "o=- 1001 1 IN\r\ns=VCP IPC Realtime stream\r\nc=IN\r\nt=0 0",
                "c=IN\r\n",
            ),
            ("o=- 1 1 IN IP4 10.0.0.1\r\ns=x\r\nc=\r\nt=0 0", ""),
            ("o=- 1 1 IN IP4 \r\ns=x\r\nt=", "c=IN IP4 \r\n"),
        ] {
            let text = format!(
                "v=0\r\n{session}\r\nm=video 0 RTP/AVP 96\r\n{media}b=AS:800\r\na=rtpmap:96 H264/90000\r\n\
                 a=control:one\r\n"
            );
            let found = Description::parse(text.as_bytes()).unwrap();
            let [track] = found.tracks() else {
                panic!("{text}");
            };
            assert_eq!(
                (&*track.encoding, track.control.as_deref()),
                ("H264", Some("one"))
            );
            assert_eq!(found.rate(), Some(BytesPerSecond(110_000)), "{text}");
            // Blocks have it, and players are told of it.
            let again = Description::parse(found.text()).unwrap();
            assert_eq!(again.tracks(), found.tracks());
            assert!(Description::parse(&found.for_players(0, None)).is_ok());
        }
    }

    /// No version, a port, a rate and a text that are none: so do cameras of Tuya and others write it.
    #[test]
    fn what_is_odd_in_a_description_does_not_lose_the_rest() {
        let media =
            "m=video 0 RTP/AVP 96\r\nb=AS:800\r\na=rtpmap:96 H264/90000\r\na=control:one\r\n";
        let texts = [
            media.as_bytes().to_vec(),
            format!("v=0\r\n{}", media.replace(" 0 ", " -1353744643 ")).into_bytes(),
            format!("v=0\r\no=- 0 0 IN IP4 0.0.0.0\r\ns=x\r\nb=AS:\r\nt=0 0\r\n{media}")
                .into_bytes(),
            [
                b"v=0\r\no=- 0 0 IN IP4 0.0.0.0\r\ns=\xe9\r\nt=0 0\r\n",
                media.as_bytes(),
            ]
            .concat(),
        ];
        for text in texts {
            let shown = String::from_utf8_lossy(&text);
            let found =
                Description::parse(&text).unwrap_or_else(|error| panic!("{shown}: {error}"));
            let track = &found.tracks()[0];
            assert_eq!(
                (&*track.encoding, track.control.as_deref()),
                ("H264", Some("one")),
                "{shown}"
            );
            assert_eq!(found.rate(), Some(BytesPerSecond(110_000)), "{shown}");
            let given = Description::parse(&found.for_players(0, None)).unwrap();
            assert_eq!(given.tracks().len(), 1);
        }
        assert!(Description::parse(b"nonsense").is_err());
        // It is read again, so it is not longer then than it may be.
        let long = [media.as_bytes(), b"a=x:", &[0xe9; 6_000]].concat();
        let refused = Description::parse(&long);
        assert!(
            matches!(refused, Err(DescriptionError::Long(_))),
            "{refused:?}"
        );
    }

    /// Beside a track that can be had, others are passed over; what is encrypted is had by TLS alone.
    #[test]
    fn of_a_camera_is_taken_what_can_be_had() {
        let head = "v=0\r\no=- 0 0 IN IP4 0.0.0.0\r\ns=x\r\nt=0 0\r\na=key-mgmt:mikey AQ==\r\n";
        let track = |proto: &str, name: &str| {
            format!(
                "m=video 0 {proto} 96\r\na=rtpmap:96 H264/90000\r\na=control:{name}\r\na=crypto:1 AES\r\n"
            )
        };
        let names = |of: &[(&str, &str)], is_secure: bool| {
            let tracks: String = of.iter().map(|(proto, name)| track(proto, name)).collect();
            let found = Description::of_camera((head.to_owned() + &tracks).as_bytes(), is_secure)?;
            let given = String::from_utf8(found.for_players(0, None)).unwrap();
            assert!(
                !given.contains("SAVP") && !given.contains("AVPF") && !given.contains("crypto"),
                "{given}"
            );
            assert!(!given.contains("key-mgmt"), "{given}");
            let names = found.tracks().iter().map(|of| of.control.clone().unwrap());
            Ok(names.collect::<Vec<_>>().concat())
        };
        let (plain, coded) = (("RTP/AVP", "a"), ("RTP/SAVP", "b"));
        let (feedback, other) = (("RTP/AVPF", "c"), ("MP2T/AVP", "d"));
        for (tracks, is_secure, had) in [
            (&[plain][..], false, "a"),
            (&[plain, coded], false, "a"),
            (&[plain, coded], true, "ab"),
            (&[coded], true, "b"),
            (&[other, feedback, plain], false, "ca"),
        ] {
            assert_eq!(names(tracks, is_secure), Ok(had.to_owned()), "{tracks:?}");
        }
        for tracks in [&[coded][..], &[other]] {
            let refused = names(tracks, false);
            assert!(
                matches!(refused, Err(DescriptionError::Protocol(0, _))),
                "{refused:?}"
            );
        }
    }

    /// What is of who sent it, and of how it went to us, is none of a player's.
    #[test]
    fn players_are_told_nothing_of_the_way() {
        let text = "v=0\r\no=- 0 0 IN IP4 0.0.0.0\r\ns=x\r\nt=0 0\r\na=source-filter: incl IN IP4 * 10.1.1.1\r\n\
                    m=audio 0 RTP/AVP/TCP 4\r\na=rtcp:5001\r\na=inactive\r\na=ptime:30\r\n";
        let found = Description::parse(text.as_bytes()).unwrap();
        let track = &found.tracks()[0];
        assert_eq!((&*track.encoding, track.clock_rate), ("G723", 8_000));
        let given = String::from_utf8(found.for_players(0, None)).unwrap();
        assert!(
            given.contains("m=audio 0 RTP/AVP 4\r\n") && given.contains("ptime"),
            "{given}"
        );
        for of in ["source-filter", "a=rtcp", "inactive"] {
            assert!(!given.contains(of), "{given}");
        }
    }

    #[test]
    fn what_an_encoder_announces_is_understood() {
        let description = Description::parse(TWO).unwrap();
        let of = |payload_type, encoding: &str, clock_rate, channels, parameters: &str| Track {
            control: Some(format!("streamid={}", payload_type - 96)),
            encoding: encoding.to_owned(),
            clock_rate,
            payload_type: Some(payload_type),
            channels,
            parameters: parameters.to_owned(),
        };
        let expected = [
            of(96, "H264", 90_000, 1, "packetization-mode=1"),
            of(97, "MPEG4-GENERIC", 44_100, 2, ""),
        ];
        assert_eq!(description.tracks(), expected);
        // 928 kbit/s and a tenth.
        assert_eq!(description.rate(), Some(BytesPerSecond(127_600)));
        let given = description.for_players(2_000_000, Some(1_500_000_000));
        let again = Description::parse(&given).unwrap();
        let controls: Vec<_> = again.tracks().iter().map(|of| of.control.clone()).collect();
        assert_eq!(controls, [Some(control(0)), Some(control(1))]);
        let text = String::from_utf8(given).unwrap();
        assert!(text.contains("a=range:npt=0-1.500000000\r\n"), "{text}");
        let late = String::from_utf8(description.for_players(1_002_000_000, None)).unwrap();
        assert!(late.contains("a=range:npt=1.002000000-\r\n"), "{late}");
        assert!(
            text.contains("a=fmtp:96 packetization-mode=1\r\n"),
            "{text}"
        );
        assert!(
            !text.contains("127.0.0.1\r\nt=") && !text.contains("streamid"),
            "{text}"
        );
    }

    #[test]
    fn what_is_not_said_is_taken_from_tables_or_left_open() {
        let text = "v=0\r\no=- 0 0 IN IP4 0.0.0.0\r\ns=x\r\nt=0 0\r\nm=audio 0 RTP/AVP 11\r\nm=video 0 RTP/AVP 99\r\n";
        let description = Description::parse(text.as_bytes()).unwrap();
        let rates: Vec<u32> = description
            .tracks()
            .iter()
            .map(|of| of.clock_rate)
            .collect();
        assert_eq!(rates, [44_100, 90_000]);
        assert_eq!(description.rate(), None);
        // What is reserved for it is then said in the recording.
        let description = description.needing(BytesPerSecond(1_100_000)).unwrap();
        assert_eq!(description.rate(), Some(BytesPerSecond(1_100_000)));
        assert_eq!(description.tracks().len(), 2);
        let again = description.needing(BytesPerSecond(5)).unwrap();
        assert_eq!(again.rate(), Some(BytesPerSecond(1_100_000)));
    }

    #[test]
    fn what_cannot_be_recorded_is_said() {
        let head = "v=0\r\no=- 0 0 IN IP4 0.0.0.0\r\ns=x\r\nt=0 0\r\n";
        let many = format!("{head}{}", "m=audio 0 RTP/AVP 0\r\n".repeat(TRACKS_MAX + 1));
        for (text, said) in [
            ("", "no SDP"),
            ("garbage", "no SDP"),
            (head, "0 tracks"),
            (many.as_str(), "17 tracks"),
            (&format!("{head}m=audio 0 RTP/SAVP 0\r\n"), "RTP/SAVP"),
            (&"x".repeat(TEXT_BYTES_MAX + 1), "16385 bytes"),
        ] {
            let error = Description::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
