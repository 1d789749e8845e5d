//! Sequence numbers and timestamps of packets that are not sent as received.
//!
//! At another scale than 1 packets are numbered consecutively, with timestamps by the time of showing (RFC
//! 2326, section 12.34). Several recordings of a volume, one after another, are sent as one source: with one
//! SSRC, and with numbers and timestamps that continue, because players take another SSRC for another source.

use crate::rtp::packet::{HEADER_BYTES, Header};

/// A packet as sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SentPacket {
    number: u16,
    timestamp: u32,
    /// Time from the origin to showing it.
    shown_ns: i128,
}

/// Added to the received numbers and timestamps of a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Offset {
    ssrc: u32,
    number: u16,
    timestamp: u32,
}

/// Renumbers the packets of a track.
#[derive(Clone, Default, Debug)]
pub(super) struct Numbering {
    /// Timestamp units per second.
    clock_rate: u32,
    /// SSRC of all packets, if several recordings are sent.
    source: Option<u32>,
    first: Option<SentPacket>,
    /// The packet with the highest number.
    last: Option<SentPacket>,
    /// Packets sent, modulo 2^16.
    sent: u16,
    offset: Option<Offset>,
}

impl Numbering {
    /// For a track with this many timestamp units per second.
    pub(super) fn new(clock_rate: u32) -> Self {
        Self {
            clock_rate,
            ..Self::default()
        }
    }

    /// Sends the packets of several recordings with this SSRC.
    pub(super) fn under(&mut self, source: u32) {
        self.source = Some(source);
    }

    /// The same numbering for an origin that is earlier by `ns`.
    fn later(mut self, ns: i128) -> Self {
        for sent in [&mut self.first, &mut self.last].into_iter().flatten() {
            sent.shown_ns += ns;
        }
        self
    }

    /// The next packet belongs to another recording.
    pub(super) fn begin_recording(&mut self) {
        self.offset = None;
    }

    /// The timestamp for a time of showing, counted from that of a sent packet.
    fn timestamp(&self, from: SentPacket, shown_ns: i128) -> u32 {
        let after = shown_ns - from.shown_ns;
        let units = after * i128::from(self.clock_rate) / 1_000_000_000;
        // Timestamps wrap.
        from.timestamp.wrapping_add(units as u32)
    }

    /// The offset of a packet's source; for the first packet of a source that with which it continues the
    /// numbers sent.
    fn offset(&self, header: &Header, shown_ns: i128) -> Offset {
        if let Some(offset) = self.offset.filter(|of| of.ssrc == header.ssrc) {
            return offset;
        }
        let (number, timestamp) = match self.last {
            Some(last) => (last.number.wrapping_add(1), self.timestamp(last, shown_ns)),
            None => (header.sequence, header.timestamp),
        };
        Offset {
            ssrc: header.ssrc,
            number: number.wrapping_sub(header.sequence),
            timestamp: timestamp.wrapping_sub(header.timestamp),
        }
    }

    /// The number and the timestamp with which a packet is sent; `is_unscaled` at scale 1.
    fn numbers(&self, header: &Header, shown_ns: i128, is_unscaled: bool) -> (u16, u32) {
        match (is_unscaled, self.first, self.source) {
            (false, Some(first), _) => (
                first.number.wrapping_add(self.sent),
                self.timestamp(first, shown_ns),
            ),
            (true, _, Some(_)) => {
                let offset = self.offset(header, shown_ns);
                (
                    header.sequence.wrapping_add(offset.number),
                    header.timestamp.wrapping_add(offset.timestamp),
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
        is_unscaled: bool,
    ) -> [u8; HEADER_BYTES] {
        let Some(header) = Header::parse(&bytes) else {
            return bytes;
        };
        let (number, timestamp) = self.numbers(&header, shown_ns, is_unscaled);
        bytes[2..4].copy_from_slice(&number.to_be_bytes());
        bytes[4..8].copy_from_slice(&timestamp.to_be_bytes());
        if let Some(source) = self.source {
            bytes[8..12].copy_from_slice(&source.to_be_bytes());
        }
        bytes
    }

    /// Takes note of a packet that was sent or left out.
    pub(super) fn count(&mut self, bytes: &[u8; HEADER_BYTES], shown_ns: i128, is_unscaled: bool) {
        let Some(header) = Header::parse(bytes) else {
            return;
        };
        let (number, timestamp) = self.numbers(&header, shown_ns, is_unscaled);
        let sent = SentPacket {
            number,
            timestamp,
            shown_ns,
        };
        self.offset = Some(self.offset(&header, shown_ns));
        self.first.get_or_insert(sent);
        let is_ahead = |last: SentPacket| number.wrapping_sub(last.number) < 1 << 15;
        if self.last.is_none_or(is_ahead) {
            self.last = Some(sent);
        }
        self.sent = self.sent.wrapping_add(1);
    }
}

/// The numbering of all tracks, for another playback that continues at a time of showing.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    tracks: Vec<Numbering>,
    /// Time from the origin of the first playback to where the other one continues.
    shown_ns: i128,
}

impl Numbers {
    /// The numbering of a playback that ends at this time of showing.
    pub(super) fn new(tracks: &[Numbering], shown_ns: i128) -> Self {
        let tracks = tracks.to_vec();
        Self { tracks, shown_ns }
    }

    /// The numbering of a playback that continues at this time of showing, by its own origin.
    pub(super) fn going_on(self, shown_ns: i128) -> Vec<Numbering> {
        let ns = shown_ns - self.shown_ns;
        let tracks = self.tracks.into_iter();
        tracks.map(|track| track.later(ns)).collect()
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
    fn one_source_is_sent_as_received() {
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
        // A late packet does not make the next recording begin earlier.
        assert_eq!(
            send(&mut of, packet(0, 9_500, 1), 100, true),
            (0, 9_500, 77)
        );
        assert_eq!(
            send(&mut of, packet(65_535, 5_000, 1), 50, true),
            (65_535, 5_000, 77)
        );
        of.begin_recording();
        assert_eq!(
            send(&mut of, packet(40_000, 6, 2), 2_100, true),
            (1, 189_500, 77)
        );
        // A lost packet is missing in the numbers.
        assert_eq!(
            send(&mut of, packet(40_002, 906, 2), 2_110, true),
            (3, 190_400, 77)
        );
        // Another SSRC within a recording continues the numbers as well.
        assert_eq!(
            send(&mut of, packet(5, 5, 3), 2_120, true),
            (4, 191_300, 77)
        );
    }

    #[test]
    fn scaled_packets_are_numbered_consecutively() {
        let mut of = Numbering::new(1_000);
        of.under(77);
        assert_eq!(send(&mut of, packet(9, 100, 1), 0, false), (9, 100, 77));
        assert_eq!(send(&mut of, packet(30, 900, 1), 40, false), (10, 140, 77));
        of.begin_recording();
        assert_eq!(send(&mut of, packet(2, 5, 2), 90, false), (11, 190, 77));
        // Another playback begins where this one would have continued 20 ms later.
        let mut of = Numbers::new(&[of], 110 * MS).going_on(5 * MS).remove(0);
        assert_eq!(send(&mut of, packet(7, 9, 2), 5, false), (12, 210, 77));
        assert_eq!(send(&mut of, packet(9, 9, 2), 15, false), (13, 220, 77));
    }
}
