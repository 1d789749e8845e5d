//! The packets of a publisher on their way to the RTSP server, by a [door](crate::rtsp::door).

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant, SystemTime};

use rtsp_types::{Message, ParseError};
use str0m::Rtc;
use str0m::media::{KeyframeRequestKind, Mid, Pt};
use str0m::rtp::RtpPacket;
use str0m::rtp::rtcp::SenderInfo;

use super::offer::{AgreedTrack, Negotiated};
use super::peer::PeerEnd;
use crate::rtsp::door::Door;

/// A key frame is asked for in this interval. Browsers send none otherwise, and players begin with one.
const KEY_EVERY: Duration = Duration::from_secs(2);

/// The RTSP server answers within this time.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// The most bytes that wait for the RTSP server. Later packets are dropped, and are missing in the recording.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// Seconds from 1900, where NTP begins, to 1970.
const NTP_OFFSET: u64 = 2_208_988_800;

/// Why a publisher is refused.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The RTSP server refuses it.
    #[error("{reason}")]
    Refused {
        /// The status (RFC 2326, section 7.1.1).
        status: u16,
        /// The reason for people.
        reason: String,
    },
    /// The connection to the RTSP server failed.
    #[error("the RTSP server does not answer: {0}")]
    Door(#[from] io::Error),
}

/// A track that is published.
#[derive(Debug)]
struct PublishedTrack {
    mid: Mid,
    pt: Pt,
    has_pictures: bool,
    /// The time in the last report.
    reported: Option<SystemTime>,
}

/// A publisher.
#[derive(Debug)]
pub(super) struct Publishing {
    stream: UnixStream,
    tracks: Vec<PublishedTrack>,
    waiting: VecDeque<u8>,
    key_at: Instant,
    is_over: bool,
}

impl Publishing {
    /// Announces the tracks, and begins to record, or to relay if `is_live_only`.
    pub(super) fn begin(
        door: &Door,
        name: &str,
        is_live_only: bool,
        peer: SocketAddr,
        negotiated: &Negotiated,
    ) -> Result<Self, PublishError> {
        let stream = door.open(peer)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        let mut dialogue = Dialogue {
            stream: &stream,
            url: url(name, is_live_only),
            session: String::new(),
            number: 0,
        };
        let tracks = &negotiated.tracks;
        let text = described(tracks);
        dialogue.ask("ANNOUNCE", "", "Content-Type: application/sdp\r\n", &text)?;
        for number in 0..tracks.len() {
            let transport = format!(
                "Transport: RTP/AVP/TCP;unicast;interleaved={}-{};mode=record\r\n",
                2 * number,
                2 * number + 1
            );
            dialogue.ask("SETUP", &format!("/track{number}"), &transport, "")?;
        }
        dialogue.ask("RECORD", "", "", "")?;
        stream.set_nonblocking(true)?;
        let tracks = tracks.iter().map(|of| PublishedTrack {
            mid: of.mid,
            pt: of.pt,
            has_pictures: of.codec.is_video(),
            reported: None,
        });
        Ok(Self {
            tracks: tracks.collect(),
            stream,
            waiting: VecDeque::new(),
            key_at: Instant::now(),
            is_over: false,
        })
    }

    /// Readable when the RTSP server says something, or ends the recording.
    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// The time of its next turn.
    pub(super) fn due(&self) -> Instant {
        self.key_at
    }

    /// Takes a packet.
    pub(super) fn take(&mut self, packet: &RtpPacket) {
        let header = &packet.header;
        let is_its = |of: &PublishedTrack| of.pt == header.payload_type;
        let Some(number) = self.tracks.iter().position(is_its) else {
            return;
        };
        if let Some(info) = &packet.last_sender_info
            && self.tracks[number].reported != Some(info.ntp_time)
        {
            self.tracks[number].reported = Some(info.ntp_time);
            self.queue(2 * number + 1, &report(info), &[]);
        }
        let mut head = [0x80, *header.payload_type, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        head[1] |= u8::from(header.marker) << 7;
        head[2..4].copy_from_slice(&header.sequence_number.to_be_bytes());
        head[4..8].copy_from_slice(&header.timestamp.to_be_bytes());
        head[8..].copy_from_slice(&(*header.ssrc).to_be_bytes());
        self.queue(2 * number, &head, &packet.payload);
        self.flush();
    }

    /// Queues a packet between the messages of the connection (RFC 2326, section 10.12).
    fn queue(&mut self, channel: usize, head: &[u8], body: &[u8]) {
        let length = head.len() + body.len();
        if self.waiting.len() + length > WAITING_BYTES_MAX {
            return;
        }
        let [high, low] = (length as u16).to_be_bytes();
        self.waiting.extend([b'$', channel as u8, high, low]);
        self.waiting.extend(head);
        self.waiting.extend(body);
    }

    fn flush(&mut self) {
        while !self.waiting.is_empty() {
            let (first, _) = self.waiting.as_slices();
            match self.stream.write(first) {
                Ok(count) => drop(self.waiting.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.is_over = true;
                    return;
                }
            }
        }
    }

    /// Reads what the RTSP server says, and asks for a key frame when that is due.
    pub(super) fn turn(
        &mut self,
        rtc: &mut Rtc,
        now: Instant,
        is_connected: bool,
    ) -> Result<(), PeerEnd> {
        let mut said = [0; 4 << 10];
        match self.stream.read(&mut said) {
            // Reports of what was received, which the browser gets from its own protocols.
            Ok(count) if count > 0 => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            _ => self.is_over = true,
        }
        self.flush();
        if self.is_over {
            return Err(PeerEnd::StreamEnded);
        }
        if now >= self.key_at {
            self.key_at = now + KEY_EVERY;
            let pictures = self
                .tracks
                .iter()
                .filter(|of| of.has_pictures && is_connected);
            for track in pictures {
                if let Some(stream) = rtc.direct_api().stream_rx_by_mid(track.mid, None) {
                    stream.request_keyframe(KeyframeRequestKind::Pli);
                }
            }
        }
        Ok(())
    }
}

/// The URL of a stream for the RTSP server.
fn url(name: &str, is_live_only: bool) -> String {
    let name = percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC);
    let end = if is_live_only { "/live" } else { "" };
    format!("rtsp://inside/{name}{end}")
}

/// The description of the tracks.
fn described(tracks: &[AgreedTrack]) -> String {
    use str0m::format::Codec;
    let head = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n".to_owned();
    tracks.iter().enumerate().fold(head, |text, (number, track)| {
        let (kind, encoding) = match track.codec {
            Codec::Opus => ("audio", "opus/48000/2"),
            Codec::PCMU => ("audio", "PCMU/8000"),
            Codec::PCMA => ("audio", "PCMA/8000"),
            Codec::Vp8 => ("video", "VP8/90000"),
            Codec::Vp9 => ("video", "VP9/90000"),
            _ => ("video", "H264/90000"),
        };
        let format = match track.codec {
            Codec::H264 => format!("a=fmtp:{} packetization-mode=1\r\n", track.pt),
            _ => String::new(),
        };
        let pt = track.pt;
        text + &format!(
            "m={kind} 0 RTP/AVP {pt}\r\na=rtpmap:{pt} {encoding}\r\n{format}a=control:track{number}\r\n"
        )
    })
}

/// A sender report (RFC 3550, section 6.4.1).
fn report(info: &SenderInfo) -> Vec<u8> {
    let since = info
        .ntp_time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let seconds = (since.as_secs() + NTP_OFFSET) as u32;
    let fraction = ((u64::from(since.subsec_nanos()) << 32) / 1_000_000_000) as u32;
    let mut out = vec![0x80, 200, 0, 6];
    for word in [
        *info.ssrc,
        seconds,
        fraction,
        info.rtp_time.numer() as u32,
        info.sender_packet_count,
        info.sender_octet_count,
    ] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out
}

/// Requests to the RTSP server, one after the other.
struct Dialogue<'a> {
    stream: &'a UnixStream,
    url: String,
    session: String,
    number: u32,
}

impl Dialogue<'_> {
    /// Sends a request, and waits for its reply.
    fn ask(
        &mut self,
        method: &str,
        track: &str,
        headers: &str,
        body: &str,
    ) -> Result<(), PublishError> {
        self.number += 1;
        let Self {
            url,
            number,
            session,
            ..
        } = &*self;
        let session = match session.is_empty() {
            true => String::new(),
            false => format!("Session: {session}\r\n"),
        };
        let length = body.len();
        let request = format!(
            "{method} {url}{track} RTSP/1.0\r\nCSeq: {number}\r\n{session}{headers}Content-Length: {length}\r\n\r\n{body}"
        );
        self.stream.write_all(request.as_bytes())?;
        let mut said = Vec::new();
        let response = loop {
            match Message::<Vec<u8>>::parse(&said) {
                Ok((Message::Response(response), _)) => break response,
                Err(ParseError::Incomplete(_)) => {}
                _ => return Err(io::Error::from(ErrorKind::InvalidData).into()),
            }
            let mut more = [0; 4 << 10];
            match self.stream.read(&mut more)? {
                0 => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
                count => said.extend_from_slice(&more[..count]),
            }
        };
        if !response.status().is_success() {
            let reason = String::from_utf8_lossy(response.body())
                .trim_end()
                .to_owned();
            return Err(PublishError::Refused {
                status: response.status().into(),
                reason: match reason.is_empty() {
                    true => response.status().to_string(),
                    false => reason,
                },
            });
        }
        if let Some(session) = response.header(&rtsp_types::headers::SESSION) {
            let session = session.as_str();
            self.session = session.split(';').next().unwrap_or(session).to_owned();
        }
        Ok(())
    }
}
