//! Reordering of a track's packets, the units that are made of them (a video frame, an audio frame or an
//! image), and their times in a file.

use std::collections::BTreeMap;

use crate::rtp::packet::Header;

/// Packets that are held behind a gap before the missing ones are given up.
const REORDERED_MAX: usize = 64;

/// A larger jump of sequence numbers means that they begin anew.
const JUMP_MAX: i64 = 3_000;

/// A packet in sending order.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The parsed RTP header.
    pub header: Header,
    /// The payload without padding.
    pub payload: &'a [u8],
    /// When it is to be played, in nanoseconds of the recording's time.
    pub media_ns: u64,
    /// True if packets are missing before it.
    pub is_after_loss: bool,
}

impl Packet<'_> {
    /// The timestamp, and the time in nanoseconds of the recording.
    #[must_use]
    pub fn time(&self) -> (u32, u64) {
        (self.header.timestamp, self.media_ns)
    }
}

/// A frame or another unit that is exported as a whole.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Unit {
    /// NAL units with a length of four bytes before each, an AAC frame, a JPEG image, or audio samples.
    pub data: Vec<u8>,
    /// RTP timestamp.
    pub timestamp: u32,
    /// When it is to be played, in nanoseconds of the recording's time.
    pub media_ns: u64,
    /// True if it can be decoded without others.
    pub is_key: bool,
}

/// A packet that waits for an earlier one.
#[derive(Debug)]
struct HeldPacket {
    header: Header,
    payload: Vec<u8>,
    media_ns: u64,
}

/// Restores the sending order of packets, and drops duplicates.
#[derive(Debug, Default)]
pub struct Reorder {
    /// The next expected sequence number, extended beyond 16 bits.
    next: Option<i64>,
    ssrc: Option<u32>,
    held: BTreeMap<i64, HeldPacket>,
}

impl Reorder {
    /// Takes a packet, and calls `give` with the packets that are in order now.
    pub fn push(
        &mut self,
        header: Header,
        payload: &[u8],
        media_ns: u64,
        give: &mut impl FnMut(&Packet<'_>),
    ) {
        let sequence = i64::from(header.sequence);
        let Some(next) = self.next.filter(|_| self.ssrc == Some(header.ssrc)) else {
            self.flush(give);
            self.ssrc = Some(header.ssrc);
            self.deliver(sequence, header, payload, media_ns, false, give);
            return;
        };
        let ahead = i64::from(header.sequence.wrapping_sub(next as u16) as i16);
        let number = next + ahead;
        if ahead.abs() > JUMP_MAX {
            self.flush(give);
            self.deliver(sequence, header, payload, media_ns, true, give);
        } else if ahead == 0 {
            self.deliver(number, header, payload, media_ns, false, give);
            self.deliver_held(give);
        } else if ahead > 0 {
            let payload = payload.to_vec();
            let held = HeldPacket {
                header,
                payload,
                media_ns,
            };
            self.held.entry(number).or_insert(held);
            if self.held.len() > REORDERED_MAX {
                self.skip_gap(give);
            }
        }
    }

    fn deliver(
        &mut self,
        number: i64,
        header: Header,
        payload: &[u8],
        media_ns: u64,
        is_after_loss: bool,
        give: &mut impl FnMut(&Packet<'_>),
    ) {
        self.next = Some(number + 1);
        give(&Packet {
            header,
            payload,
            media_ns,
            is_after_loss,
        });
    }

    fn deliver_held(&mut self, give: &mut impl FnMut(&Packet<'_>)) {
        while let Some(first) = self.held.first_entry()
            && Some(*first.key()) == self.next
        {
            let (number, held) = first.remove_entry();
            let payload = &held.payload;
            self.deliver(number, held.header, payload, held.media_ns, false, give);
        }
    }

    fn skip_gap(&mut self, give: &mut impl FnMut(&Packet<'_>)) {
        if let Some((number, held)) = self.held.pop_first() {
            let payload = &held.payload;
            self.deliver(number, held.header, payload, held.media_ns, true, give);
            self.deliver_held(give);
        }
    }

    /// Delivers the held packets: no more come.
    pub fn flush(&mut self, give: &mut impl FnMut(&Packet<'_>)) {
        while !self.held.is_empty() {
            self.skip_gap(give);
        }
    }
}

/// Times of a track's units in a file. Differences are exactly those of the timestamps; the origin is the
/// recording's time.
#[derive(Clone, Debug)]
pub struct Timeline {
    rate: u32,
    /// Time 0 of the file, in nanoseconds of the recording's time.
    origin_ns: i64,
    /// The previous timestamp, and its time in ticks.
    anchor: Option<(u32, i64)>,
}

/// A timestamp that deviates from the recording's time by more than this begins anew.
const DEVIATION_MAX_MS: i64 = 5;

impl Timeline {
    /// A timeline of a track with a clock of `rate` Hz.
    #[must_use]
    pub fn new(rate: u32, origin_ns: i64) -> Self {
        Self {
            rate: rate.max(1),
            origin_ns,
            anchor: None,
        }
    }

    /// The recording's time in ticks of the track's clock.
    #[must_use]
    pub fn recorded_ticks(&self, media_ns: u64) -> i64 {
        let rate = i128::from(self.rate);
        let since = i128::from(media_ns) - i128::from(self.origin_ns);
        (since * rate + 500_000_000).div_euclid(1_000_000_000) as i64
    }

    /// The time of a unit, in ticks of the track's clock.
    pub fn ticks(&mut self, timestamp: u32, media_ns: u64) -> i64 {
        let recorded = self.recorded_ticks(media_ns);
        let deviation_max = i64::from(self.rate) * DEVIATION_MAX_MS / 1_000 + 1;
        let counted = self.anchor.map(|(first, ticks)| {
            ticks.saturating_add(i64::from(timestamp.wrapping_sub(first) as i32))
        });
        let ticks = match counted {
            Some(counted) if (counted - recorded).abs() <= deviation_max => counted,
            _ => recorded,
        };
        // The anchor moves with each unit, so that the difference of timestamps never wraps.
        self.anchor = Some((timestamp, ticks));
        ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(sequence: u16) -> Header {
        let [high, low] = sequence.to_be_bytes();
        Header::parse(&[0x80, 96, high, low, 0, 0, 0, 0, 0, 0, 0, 1]).unwrap()
    }

    fn ordered(sequences: &[u16]) -> Vec<(u16, bool)> {
        let mut reorder = Reorder::default();
        let mut given = Vec::new();
        let mut give = |packet: &Packet<'_>| {
            assert_eq!(packet.payload, packet.header.sequence.to_be_bytes());
            given.push((packet.header.sequence, packet.is_after_loss));
        };
        for sequence in sequences {
            let payload = sequence.to_be_bytes();
            reorder.push(header(*sequence), &payload, 0, &mut give);
        }
        reorder.flush(&mut give);
        given
    }

    #[test]
    fn packets_are_reordered_and_gaps_are_marked() {
        let whole = |sequences: &[u16]| -> Vec<_> {
            sequences
                .iter()
                .map(|sequence| (*sequence, false))
                .collect()
        };
        assert_eq!(ordered(&[1, 2, 3]), whole(&[1, 2, 3]));
        assert_eq!(ordered(&[1, 3, 2, 2, 4, 3]), whole(&[1, 2, 3, 4]));
        assert_eq!(
            ordered(&[65_534, 0, 65_535, 1]),
            whole(&[65_534, 65_535, 0, 1])
        );
        assert_eq!(ordered(&[1, 4, 5]), [(1, false), (4, true), (5, false)]);
        // Sequence numbers begin anew.
        assert_eq!(
            ordered(&[1, 20_000, 20_001]),
            [(1, false), (20_000, true), (20_001, false)]
        );
        // A gap is skipped after enough later packets.
        let many: Vec<u16> = std::iter::once(1).chain(3..100).collect();
        let given = ordered(&many);
        assert_eq!(given.len(), many.len());
        assert_eq!(given[1], (3, true));
        assert!(given[2..].iter().all(|(_, lost)| !lost));
    }

    #[test]
    fn timeline_keeps_timestamp_differences_exactly() {
        let origin = 1_234_567;
        let mut line = Timeline::new(48_000, origin as i64);
        let first = u32::MAX - 5_000;
        let mut before = None;
        for number in 0..100_000_u32 {
            let timestamp = first.wrapping_add(number * 1_024);
            let since = u64::from(number) * 1_024 * 1_000_000_000 / 48_000;
            // Entries have microseconds.
            let media_ns = origin + 777_777 + since / 1_000 * 1_000;
            let ticks = line.ticks(timestamp, media_ns);
            assert!(
                before.is_none_or(|before| ticks == before + 1_024),
                "{number}"
            );
            before = Some(ticks);
        }
        // After a jump of the timestamps the recording's time counts.
        let later = line.ticks(77, origin + 10_000_000_000_000);
        assert_eq!(later, 480_000_000);
    }
}
