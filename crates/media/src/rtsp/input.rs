//! Parsing of an RTSP connection: messages, and packets between them (RFC 2326, section 10.12).
//!
//! A packet is reported with its channel and length as soon as its first bytes have arrived. The caller then takes
//! its bytes: those that have arrived with [`Input::take`], and the rest from the socket. So a packet's body is
//! received where it stays.

mod repair;

use crate::rtp::packet::PacketHead;
use std::num::NonZeroUsize;

use rtsp_types::{Message, ParseError, Request, Response};

use repair::{Repair, repair};

/// The longest request with its headers and body.
pub const MESSAGE_BYTES_MAX: usize = 65_536;

/// The beginning of a response.
const STATUS_LINE: &[u8] = b"RTSP/1.0 ";

/// The shortest packet: RTCP with a header and an SSRC.
const PACKET_BYTES_MIN: u16 = 8;

/// The next item of a connection.
#[derive(Debug)]
pub enum Next {
    /// A request of the peer.
    Request(Box<Request<Vec<u8>>>),
    /// A response to a request of this program.
    Response(Box<Response<Vec<u8>>>),
    /// A packet, whose bytes follow.
    Packet {
        /// Its channel.
        channel: u8,
        /// Its length in bytes.
        len: usize,
    },
    /// More bytes are needed.
    More,
}

/// Why a connection cannot be parsed any further.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InputError {
    /// It is no RTSP.
    #[error("the data is not RTSP")]
    Syntax,
    /// It is TLS.
    #[error("this port does not use TLS: rtsp:// and rtsps:// have different ports")]
    Tls,
    /// A message is too long.
    #[error("a message is longer than {MESSAGE_BYTES_MAX} bytes")]
    Long,
}

/// Bytes that have arrived and are not used yet.
#[derive(Debug, Default)]
pub struct Input {
    bytes: Vec<u8>,
    from: usize,
}

impl Input {
    /// The unused bytes.
    #[must_use]
    pub fn unused(&self) -> &[u8] {
        &self.bytes[self.from..]
    }

    /// Adds bytes that have arrived.
    pub fn add(&mut self, bytes: &[u8]) {
        if self.from == self.bytes.len() {
            self.bytes.clear();
            self.from = 0;
        } else if self.from > MESSAGE_BYTES_MAX {
            self.bytes.drain(..self.from);
            self.from = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Moves unused bytes into `out`; returns how many.
    pub fn take(&mut self, out: &mut [u8]) -> usize {
        let count = out.len().min(self.unused().len());
        out[..count].copy_from_slice(&self.bytes[self.from..self.from + count]);
        self.from += count;
        count
    }

    /// Skips bytes up to the beginning of a response, or of a packet whose channel and first bytes `is_packet`
    /// accepts. Returns the number of skipped bytes, and true if such a beginning was found. Bytes that may become
    /// one are kept.
    pub fn pass_stray(&mut self, is_packet: impl Fn(u8, &PacketHead) -> bool) -> (usize, bool) {
        let begins = |of: &[u8]| match of.split_first_chunk() {
            Some((&[b'$', channel, high, low], rest)) => {
                let is_long = u16::from_be_bytes([high, low]) >= PACKET_BYTES_MIN;
                is_long
                    && rest
                        .first_chunk()
                        .is_some_and(|head| is_packet(channel, head))
            }
            _ => of.starts_with(STATUS_LINE),
        };
        let may_begin = |of: &[u8]| match of[0] {
            b'$' => of.len() < 4 + size_of::<PacketHead>(),
            _ => STATUS_LINE.starts_with(of),
        };
        let stray = self.unused();
        let all = stray.len();
        let mut starts = (0..all).map(|from| &stray[from..]);
        let found = starts.find(|of| begins(of) || may_begin(of));
        let passed = all - found.map_or(0, <[u8]>::len);
        let is_found = found.is_some_and(begins);
        self.from += passed;
        (passed, is_found)
    }

    /// The next item. A packet's bytes have to be taken before this is called again.
    ///
    /// # Errors
    /// When it is neither a message nor a packet.
    pub fn next_item(&mut self) -> Result<Next, InputError> {
        // Empty lines between messages are ignored (RFC 2326, section 4).
        while matches!(self.unused().first(), Some(b'\r' | b'\n')) {
            self.from += 1;
        }
        match *self.unused() {
            [] => return Ok(Next::More),
            [b'$', channel, high, low, ..] => {
                self.from += 4;
                let len = usize::from(u16::from_be_bytes([high, low]));
                return Ok(Next::Packet { channel, len });
            }
            [b'$', ..] => return Ok(Next::More),
            // A handshake of TLS 1.0 or newer.
            [0x16, 3, ..] => return Err(InputError::Tls),
            [first, ..] if !first.is_ascii_graphic() => return Err(InputError::Syntax),
            _ => {}
        }
        let repaired = match repair(self.unused()) {
            Repair::Unneeded => None,
            Repair::Incomplete if self.unused().len() < MESSAGE_BYTES_MAX => return Ok(Next::More),
            Repair::Incomplete => return Err(InputError::Long),
            Repair::Done { bytes, longer } => Some((bytes, longer)),
        };
        let (bytes, longer) = match &repaired {
            Some((bytes, longer)) => (&bytes[..], *longer),
            None => (self.unused(), 0),
        };
        match Message::<Vec<u8>>::parse(bytes) {
            Ok((message, used)) => {
                self.from += used - longer;
                match message {
                    Message::Request(request) => Ok(Next::Request(Box::new(request))),
                    Message::Response(response) => Ok(Next::Response(Box::new(response))),
                    Message::Data(_) => Err(InputError::Syntax),
                }
            }
            Err(ParseError::Incomplete(needed)) => {
                // The length of a body is known before it has arrived.
                let needed = needed.map_or(1, NonZeroUsize::get);
                match self.unused().len().saturating_add(needed) <= MESSAGE_BYTES_MAX {
                    true => Ok(Next::More),
                    false => Err(InputError::Long),
                }
            }
            Err(ParseError::Error) => Err(InputError::Syntax),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: &[u8] = b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n";

    #[test]
    fn requests_and_packets_come_in_any_pieces() {
        let packet = [&b"$\x02\x00\x05"[..], b"12345"].concat();
        let all = [OPTIONS, &packet, b"\r\n", OPTIONS, &packet, &packet].concat();
        for piece in [1, 2, 3, 7, all.len()] {
            let mut input = Input::default();
            let (mut requests, mut packets) = (0, Vec::new());
            let mut left = 0;
            for bytes in all.chunks(piece) {
                input.add(bytes);
                loop {
                    if left > 0 {
                        let mut out = [0; 5];
                        let count = input.take(&mut out[..left]);
                        packets.extend_from_slice(&out[..count]);
                        left -= count;
                        if left > 0 {
                            break;
                        }
                    }
                    match input.next_item().unwrap() {
                        Next::Request(request) => {
                            assert_eq!(*request.method(), rtsp_types::Method::Options);
                            requests += 1;
                        }
                        Next::Packet { channel: 2, len } => left = len,
                        Next::More => break,
                        other => panic!("{other:?}"),
                    }
                }
            }
            assert_eq!((requests, packets.as_slice()), (2, &b"123451234512345"[..]));
            assert!(input.unused().is_empty());
        }
    }

    /// Some encoders and cameras end lines in LF, or write no reason phrase.
    #[test]
    fn message_with_bare_line_feeds_or_without_a_reason_is_understood() {
        let well =
            "SET_PARAMETER rtsp://h/a RTSP/1.0\r\nCSeq: 1\r\nContent-Length: 4\r\n\r\na\nb\n";
        let head = well.len() - 4;
        for (text, rest) in [
            (well.to_owned(), "OPTIONS"),
            (
                well[..head].replace("\r\n", "\n") + &well[head..],
                "OPTIONS",
            ),
            (well.replacen("\r\n", "\n", 1), "OPTIONS"),
            (well.replacen("\r\n", "\n", 2), "$\0\0\x08"),
        ] {
            for whole in 1..=text.len() {
                let mut input = Input::default();
                input.add(&text.as_bytes()[..whole]);
                let next = input.next_item().unwrap();
                let Next::Request(request) = next else {
                    assert!(whole < text.len(), "{text:?}");
                    continue;
                };
                assert_eq!(whole, text.len(), "{text:?}");
                assert_eq!(request.body(), b"a\nb\n");
                assert_eq!(request.header(&rtsp_types::headers::CSEQ).unwrap(), "1");
            }
            let mut input = Input::default();
            input.add(&[text.as_bytes(), rest.as_bytes()].concat());
            assert!(matches!(input.next_item().unwrap(), Next::Request(_)));
            assert_eq!(input.unused(), rest.as_bytes());
        }
        for status in [
            "RTSP/1.0 200\r\nCSeq: 1\r\n\r\n",
            "RTSP/1.0 200\nCSeq: 1\n\n",
        ] {
            for whole in 1..=status.len() {
                let mut input = Input::default();
                input.add(&status.as_bytes()[..whole]);
                match input.next_item().unwrap() {
                    Next::Response(said) => {
                        assert_eq!(u16::from(said.status()), 200);
                        assert_eq!(input.unused(), b"");
                    }
                    _ => assert!(whole < status.len(), "{status:?} is no response"),
                }
            }
        }
        // An endless message is bounded as well.
        let mut input = Input::default();
        input.add(b"OPTIONS * RTSP/1.0\nX: ");
        input.add(&[b'x'; MESSAGE_BYTES_MAX]);
        assert_eq!(input.next_item().unwrap_err(), InputError::Long);
    }

    #[test]
    fn stray_bytes_are_skipped_up_to_a_packet_or_a_response() {
        let packet = *b"$\0\0\x0c\x80\x60\0\x01\0\0\0\0\0\0\0\x01";
        let with = |place: usize, byte: u8| {
            let mut other = packet;
            other[place] = byte;
            other
        };
        let (channel, version, short) = (with(1, 9), with(4, 0x40), with(3, 7));
        let answer = b"RTSP/1.0 200 OK\r\n";
        for (stray, behind, is_found) in [
            (&b""[..], &packet[..], true),
            (b"", answer, true),
            (b"\0\x16\x03$$", &packet, true),
            (b"RTSP/1RTSP", answer, true),
            (&channel, &packet, true),
            (&version, &packet, true),
            (&short, &packet, true),
            (b"$\0\0", &packet, true),
            (b"nothing", b"", false),
            (b"GET / HTTP/1.1\r\n", b"", false),
            // The beginning of one.
            (b"x", &packet[..1], false),
            (b"x", &packet[..15], false),
            (&channel, &answer[..8], false),
            (b"x", &answer[..1], false),
        ] {
            let mut input = Input::default();
            input.add(stray);
            input.add(behind);
            let found = input.pass_stray(|channel, head| channel < 2 && head[0] >> 6 == 2);
            assert_eq!(found, (stray.len(), is_found), "{stray:?}");
            assert_eq!(input.unused(), behind, "{stray:?}");
        }
    }

    #[test]
    fn input_that_is_no_rtsp_is_refused_at_once() {
        let next = |bytes: &[u8]| {
            let mut input = Input::default();
            input.add(bytes);
            input.next_item()
        };
        assert_eq!(next(&[0x16, 3, 1, 2, 0]).unwrap_err(), InputError::Tls);
        assert_eq!(next(&[3, 1, 2]).unwrap_err(), InputError::Syntax);
        assert_eq!(
            next(b"GET / HTTP/1.1\r\n\r\n").unwrap_err(),
            InputError::Syntax
        );
        for other in [&b"GET / HTTP/1.1\nHost: x\n"[..], b"a\n", b"a b c\nd"] {
            assert_eq!(next(other).unwrap_err(), InputError::Syntax);
        }
        assert!(matches!(next(b"OPTIONS * RT").unwrap(), Next::More));
        let endless = [b"OPTIONS * RTSP/1.0\r\nX: ", &[b'x'; MESSAGE_BYTES_MAX][..]].concat();
        assert_eq!(next(&endless).unwrap_err(), InputError::Long);
        let with = |bytes: usize| format!("OPTIONS * RTSP/1.0\r\nContent-Length: {bytes}\r\n\r\n");
        let head = with(10_000).len();
        for (bytes, is_too_long) in [
            (MESSAGE_BYTES_MAX - head, false),
            (MESSAGE_BYTES_MAX - head + 1, true),
            (usize::MAX, true),
        ] {
            let said = next(with(bytes).as_bytes());
            assert_eq!(
                matches!(said, Err(InputError::Long)),
                is_too_long,
                "{bytes}"
            );
        }
    }
}
