//! How the packets of a track are numbered where they are not sent as they came.
//!
//! What is not shown as it was is numbered anew, with the time in which it is shown (RFC 2326, section 12.34). What is
//! played of several recordings, one after another, is one source all the same: under one SSRC, with numbers and timestamps
//! that go on.

use crate::rtp::packet::{HEADER_BYTES, Header};

/// A packet as it was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sent {
    number: u16,
    timestamp: u32,
    /// When it was, of the time in which it is shown, in nanoseconds.
    shown_ns: i128,
}

/// What is added to the numbers of packets of a source as they came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct GoesOn {
    /// Whose they are.
    of: u32,
    number: u16,
    timestamp: u32,
}

/// The numbers of a track's packets.
#[derive(Clone, Default, Debug)]
pub(super) struct Numbering {
    /// Units of its timestamps in a second.
    clock_rate: u32,
    /// Whatever came under several is sent under this SSRC.
    source: Option<u32>,
    first: Option<Sent>,
    /// The one with the highest number.
    last: Option<Sent>,
    sent: u16,
    goes_on: Option<GoesOn>,
}

impl Numbering {
    /// Of a track with so many units in a second.
    pub(super) fn new(clock_rate: u32) -> Self {
        Self {
            clock_rate,
            ..Self::default()
        }
    }

    /// Packets of several recordings are sent under this SSRC.
    pub(super) fn under(&mut self, source: u32) {
        self.source = Some(source);
    }

    /// The same where what is shown then by the one time is shown so much later by another one, in nanoseconds.
    fn later(mut self, ns: i128) -> Self {
        for sent in [&mut self.first, &mut self.last].into_iter().flatten() {
            sent.shown_ns += ns;
        }
        self
    }

    /// What comes now is of another recording.
    pub(super) fn turn(&mut self) {
        self.goes_on = None;
    }

    /// The timestamp of what is shown then, as far from that of a packet.
    fn timestamp(&self, from: Sent, shown_ns: i128) -> u32 {
        let after = shown_ns - from.shown_ns;
        let units = after * i128::from(self.clock_rate) / 1_000_000_000;
        // Timestamps wrap.
        from.timestamp.wrapping_add(units as u32)
    }

    /// How a source's packets go on behind what was sent, if this is the first of them.
    fn going_on(&self, header: &Header, shown_ns: i128) -> GoesOn {
        if let Some(is) = self.goes_on.filter(|is| is.of == header.ssrc) {
            return is;
        }
        let (number, timestamp) = match self.last {
            Some(last) => (last.number.wrapping_add(1), self.timestamp(last, shown_ns)),
            None => (header.sequence, header.timestamp),
        };
        GoesOn {
            of: header.ssrc,
            number: number.wrapping_sub(header.sequence),
            timestamp: timestamp.wrapping_sub(header.timestamp),
        }
    }

    /// The number and the timestamp under which a packet is sent.
    fn numbers(&self, header: &Header, shown_ns: i128, is_as_it_was: bool) -> (u16, u32) {
        match (is_as_it_was, self.first, self.source) {
            (false, Some(first), _) => (
                first.number.wrapping_add(self.sent),
                self.timestamp(first, shown_ns),
            ),
            (true, _, Some(_)) => {
                let is = self.going_on(header, shown_ns);
                (
                    header.sequence.wrapping_add(is.number),
                    header.timestamp.wrapping_add(is.timestamp),
                )
            }
            _ => (header.sequence, header.timestamp),
        }
    }

    /// The header with which a packet is sent.
    pub(super) fn header(
        &self,
        mut bytes: [u8; HEADER_BYTES],
        shown_ns: i128,
        is_as_it_was: bool,
    ) -> [u8; HEADER_BYTES] {
        let Some(header) = Header::parse(&bytes) else {
            return bytes;
        };
        let (number, timestamp) = self.numbers(&header, shown_ns, is_as_it_was);
        bytes[2..4].copy_from_slice(&number.to_be_bytes());
        bytes[4..8].copy_from_slice(&timestamp.to_be_bytes());
        if let Some(source) = self.source {
            bytes[8..12].copy_from_slice(&source.to_be_bytes());
        }
        bytes
    }

    /// A packet has gone, or is passed over.
    pub(super) fn count(&mut self, bytes: &[u8; HEADER_BYTES], shown_ns: i128, is_as_it_was: bool) {
        let Some(header) = Header::parse(bytes) else {
            return;
        };
        let (number, timestamp) = self.numbers(&header, shown_ns, is_as_it_was);
        let sent = Sent {
            number,
            timestamp,
            shown_ns,
        };
        self.goes_on = Some(self.going_on(&header, shown_ns));
        self.first.get_or_insert(sent);
        let is_ahead = |last: Sent| number.wrapping_sub(last.number) < 1 << 15;
        if self.last.is_none_or(is_ahead) {
            self.last = Some(sent);
        }
        self.sent = self.sent.wrapping_add(1);
    }
}

/// How the packets are numbered of a playback that goes on where another one was.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    /// By track.
    of: Vec<Numbering>,
    /// When that is shown with which it goes on, in nanoseconds.
    shown_ns: i128,
}

impl Numbers {
    /// Behind which what is shown then comes next.
    pub(super) fn new(of: &[Numbering], shown_ns: i128) -> Self {
        let of = of.to_vec();
        Self { of, shown_ns }
    }

    /// The same where that is shown at another time.
    pub(super) fn going_on(self, shown_ns: i128) -> Vec<Numbering> {
        let ns = shown_ns - self.shown_ns;
        self.of.into_iter().map(|of| of.later(ns)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i128 = 1_000_000;

    fn packet(number: u16, timestamp: u32, ssrc: u32) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..2].copy_from_slice(&[0x80, 96]);
        bytes[2..4].copy_from_slice(&number.to_be_bytes());
        bytes[4..8].copy_from_slice(&timestamp.to_be_bytes());
        bytes[8..].copy_from_slice(&ssrc.to_be_bytes());
        bytes
    }

    /// Sends a packet: its number, timestamp and SSRC.
    fn send(of: &mut Numbering, bytes: [u8; HEADER_BYTES], ms: i128, is: bool) -> (u16, u32, u32) {
        let header = Header::parse(&of.header(bytes, ms * MS, is)).unwrap();
        of.count(&bytes, ms * MS, is);
        (header.sequence, header.timestamp, header.ssrc)
    }

    #[test]
    fn what_came_from_one_source_goes_as_it_came() {
        let mut of = Numbering::new(90_000);
        for (number, timestamp, ssrc) in [(65_535, 7, 1), (2, 9, 1), (900, 3, 2)] {
            let bytes = packet(number, timestamp, ssrc);
            assert_eq!(of.header(bytes, 5, true), bytes);
            of.count(&bytes, 5, true);
        }
    }

    #[test]
    fn recordings_one_after_another_are_one_source() {
        let mut of = Numbering::new(90_000);
        of.under(77);
        assert_eq!(
            send(&mut of, packet(65_534, 500, 1), 0, true),
            (65_534, 500, 77)
        );
        // What came late is no reason to begin earlier.
        assert_eq!(
            send(&mut of, packet(0, 9_500, 1), 100, true),
            (0, 9_500, 77)
        );
        assert_eq!(
            send(&mut of, packet(65_535, 5_000, 1), 50, true),
            (65_535, 5_000, 77)
        );
        of.turn();
        assert_eq!(
            send(&mut of, packet(40_000, 6, 2), 2_100, true),
            (1, 189_500, 77)
        );
        // What was lost of it is missing.
        assert_eq!(
            send(&mut of, packet(40_002, 906, 2), 2_110, true),
            (3, 190_400, 77)
        );
        // A source that comes under another SSRC within a recording goes on as well.
        assert_eq!(
            send(&mut of, packet(5, 5, 3), 2_120, true),
            (4, 191_300, 77)
        );
    }

    #[test]
    fn what_is_not_shown_as_it_was_is_numbered_anew() {
        let mut of = Numbering::new(1_000);
        of.under(77);
        assert_eq!(send(&mut of, packet(9, 100, 1), 0, false), (9, 100, 77));
        assert_eq!(send(&mut of, packet(30, 900, 1), 40, false), (10, 140, 77));
        of.turn();
        assert_eq!(send(&mut of, packet(2, 5, 2), 90, false), (11, 190, 77));
        // Another playback begins where this one would have gone on 20 ms later.
        let mut of = Numbers::new(&[of], 110 * MS).going_on(5 * MS).remove(0);
        assert_eq!(send(&mut of, packet(7, 9, 2), 5, false), (12, 210, 77));
        assert_eq!(send(&mut of, packet(9, 9, 2), 15, false), (13, 220, 77));
    }
}
