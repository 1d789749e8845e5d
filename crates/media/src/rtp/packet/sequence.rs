//! Sequence numbers: which packets of a track are missing, late or duplicates.
//!
//! The rules of RFC 3550, appendix A.1, with the timestamp as a second witness. A jump forward by up to
//! `DROPOUT_MAX` numbers is a gap. A longer jump is one if the timestamp has gone on with the arrival, and
//! far enough for so many packets; otherwise the sender has restarted its numbers. A number up to
//! `MISORDER_MAX` before the last one is a late packet or a duplicate, unless its timestamp is far away.
//! Any other number is a stray; the sender has restarted if the next packet follows the stray.
//!
//! Given up: numbers that are missing for 62,536 packets or more in a row, and the number of packets lost at
//! a restart, are not counted. A clip of less than 10 s that is sent again with the same numbers loses up to
//! 64 packets as duplicates.

use super::Header;
use super::clock::TOLERANCE_NS;

/// The place of a packet among those of its track.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// It follows the last packet, or a gap.
    Next {
        /// Packets in the gap.
        lost: u32,
    },
    /// A packet with a higher number has come already.
    Late,
    /// It has come already.
    Duplicate,
    /// Its number fits neither the last packet nor an earlier stray.
    Stray,
    /// It follows the stray that came before it: the sender has restarted its numbers, and nobody knows how
    /// many are lost.
    Anew {
        /// The number that would have followed before the restart.
        expected: u16,
        /// The number of the stray.
        first: u16,
    },
    /// It has the SSRC of another sender.
    Stranger,
}

/// A jump by at most this many numbers is a gap, whatever the timestamp (RFC 3550, `MAX_DROPOUT`).
const DROPOUT_MAX: u16 = 3_000;

/// A packet is late by at most this many numbers (RFC 3550, `MAX_MISORDER`, has 100).
const MISORDER_MAX: u16 = 3_000;

/// A packet whose timestamp is later than the last one by this is not late.
const LATER_NS: i128 = 5_000_000_000;

/// A sender sends at most this many packets in a millisecond: a tenth of 10 Gbit/s.
const PACKETS_PER_MS_MAX: i128 = 100;

/// The packet with the highest number.
#[derive(Clone, Copy, Debug)]
struct Last {
    sequence: u16,
    timestamp: u32,
    arrival_ns: u64,
    /// Received packets: bit n stands for the number n before this one.
    received: u64,
}

/// The sequence numbers of a track's sender.
#[derive(Clone, Copy, Debug)]
pub struct Sequence {
    clock_rate: u32,
    ssrc: Option<u32>,
    last: Option<Last>,
    /// The number of the packet before, if that was a stray.
    stray: Option<u16>,
}

impl Sequence {
    /// For a track with this many timestamp units per second.
    #[must_use]
    pub fn new(clock_rate: u32) -> Self {
        Self {
            clock_rate: clock_rate.max(1),
            ssrc: None,
            last: None,
            stray: None,
        }
    }

    /// For another sender of the same track.
    #[must_use]
    pub fn anew(&self) -> Self {
        Self::new(self.clock_rate)
    }

    /// SSRC of the sender, from its first packet on.
    #[must_use]
    pub fn ssrc(&self) -> Option<u32> {
        self.ssrc
    }

    /// The highest number received.
    #[must_use]
    pub fn last(&self) -> Option<u16> {
        self.last.map(|last| last.sequence)
    }

    /// Takes in a packet. `arrival_ns` is a time of the recording; it says nothing if the packet has `waited`
    /// to be received, or others before it were dropped by this host.
    pub fn take(&mut self, header: &Header, arrival_ns: u64, waited: bool) -> Order {
        if *self.ssrc.get_or_insert(header.ssrc) != header.ssrc {
            return Order::Stranger;
        }
        let now = |received| Last {
            sequence: header.sequence,
            timestamp: header.timestamp,
            arrival_ns,
            received,
        };
        let Some(last) = &mut self.last else {
            self.last = Some(now(1));
            return Order::Next { lost: 0 };
        };
        let stray = self.stray.take();
        let ahead = header.sequence.wrapping_sub(last.sequence);
        let behind = last.sequence.wrapping_sub(header.sequence);
        let units = header.timestamp.wrapping_sub(last.timestamp) as i32;
        let by_clock = i128::from(units) * 1_000_000_000 / i128::from(self.clock_rate);
        let by_arrival = i128::from(arrival_ns) - i128::from(last.arrival_ns);
        let time_continues = waited || (by_clock - by_arrival).abs() <= TOLERANCE_NS;
        if behind <= MISORDER_MAX && time_continues && by_clock < LATER_NS {
            let bit = 1_u64.checked_shl(u32::from(behind)).unwrap_or(0);
            let is_duplicate = last.received & bit != 0;
            last.received |= bit;
            return match is_duplicate {
                true => Order::Duplicate,
                false => Order::Late,
            };
        }
        let has_time =
            by_clock > 0 && i128::from(ahead) <= by_clock / 1_000_000 * PACKETS_PER_MS_MAX;
        let is_outage = behind > MISORDER_MAX && time_continues && has_time;
        if (1..=DROPOUT_MAX).contains(&ahead) || is_outage {
            let received = last.received.checked_shl(u32::from(ahead)).unwrap_or(0);
            self.last = Some(now(received | 1));
            return Order::Next {
                lost: u32::from(ahead) - 1,
            };
        }
        match stray {
            Some(first) if first.wrapping_add(1) == header.sequence => {
                let expected = last.sequence.wrapping_add(1);
                self.last = Some(now(0b11));
                Order::Anew { expected, first }
            }
            _ => {
                self.stray = Some(header.sequence);
                Order::Stray
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::header;
    use super::*;

    const NEXT: Order = Order::Next { lost: 0 };

    #[test]
    fn gaps_late_packets_duplicates_and_strays_are_told_apart() {
        let next = |lost| Order::Next { lost };
        let mut of = Sequence::new(1_000);
        // Timestamps that stand still say nothing.
        let mut take_of = |sequence, ssrc| of.take(&header(sequence, 0, ssrc), 0, false);
        assert_eq!(take_of(65_533, 7), NEXT);
        assert_eq!(take_of(65_534, 8), Order::Stranger);
        let mut take = |sequence| take_of(sequence, 7);
        assert_eq!(take(65_534), NEXT);
        assert_eq!(take(65_535), NEXT);
        assert_eq!(take(2), next(2));
        assert_eq!(take(1), Order::Late);
        assert_eq!(take(1), Order::Duplicate);
        assert_eq!(take(2), Order::Duplicate);
        assert_eq!(take(65_535), Order::Duplicate);
        assert_eq!(take(3), NEXT);
        // One alone is a stray, and two are a restart.
        assert_eq!(take(30_000), Order::Stray);
        assert_eq!(take(4), NEXT);
        assert_eq!(take(30_001), Order::Stray);
        let (expected, first) = (5, 30_001);
        assert_eq!(take(30_002), Order::Anew { expected, first });
        assert_eq!(take(30_001), Order::Duplicate);
        assert_eq!(take(30_002), Order::Duplicate);
        assert_eq!(take(30_000), Order::Late);
        assert_eq!(take(33_002), next(2_999));
        assert_eq!(take(32_002), Order::Late);
        assert_eq!(take(33_003), NEXT);
    }

    #[test]
    fn a_restart_within_the_last_numbers_gives_no_duplicates() {
        for first in [0, 38, 39] {
            let mut of = Sequence::new(1_000);
            let mut take = |sequence: u16, at_ms: u32| {
                let arrival_ns = u64::from(sequence) * 20_000_000;
                of.take(&header(sequence, at_ms, 7), arrival_ns, false)
            };
            for number in 0..=40 {
                assert_eq!(take(number, 20 * u32::from(number)), NEXT);
            }
            assert_eq!(take(first, 1 << 30), Order::Stray, "{first}");
            let expected = 41;
            let anew = Order::Anew { expected, first };
            assert_eq!(take(first + 1, (1 << 30) + 20), anew);
            assert_eq!(take(first + 2, (1 << 30) + 40), NEXT);
        }
    }

    #[test]
    fn a_long_jump_is_a_gap_if_the_time_was_long_enough() {
        let next = |lost| Order::Next { lost };
        let anew = Order::Anew {
            expected: 0,
            first: 0,
        };
        // The packet before has timestamp and arrival at 10 s. Number, timestamp and arrival in milliseconds,
        // waited.
        let take = |sequence: u16, at_ms: i64, arrival_ms: u64, waited| {
            let begins = u32::MAX - 9_999;
            let timestamp = |ms: i64| begins.wrapping_add(ms as u32);
            let mut of = Sequence::new(1_000);
            of.take(&header(60_000, timestamp(10_000), 7), 10_000_000_000, false);
            let mut take = |sequence| {
                let header = header(sequence, timestamp(at_ms), 7);
                of.take(&header, arrival_ms * 1_000_000, waited)
            };
            let expected = 60_001;
            let first = sequence;
            match (take(sequence), take(sequence.wrapping_add(1))) {
                (Order::Stray, order) if order == (Order::Anew { expected, first }) => anew,
                (order, _) => order,
            }
        };
        let cases = [
            // An outage of a minute, by a clock that is 8 s off, and by one that is 12 s off.
            (30_001, 78_000, 70_000, false, next(35_536)),
            (30_001, 58_000, 70_000, false, anew),
            // The arrival says nothing.
            (30_001, 58_000, 10_000, true, next(35_536)),
            (30_001, 9_000, 10_000, true, anew),
            // No sender sends that many packets in the time of a frame.
            (7, 10_040, 10_040, false, anew),
            (64_000, 10_040, 10_040, false, next(3_999)),
            // Late packets, also of a frame that is shown later.
            (59_900, 9_600, 10_300, false, Order::Late),
            (59_900, 10_000, 10_300, false, Order::Late),
            (57_000, 10_200, 10_300, true, Order::Late),
            (59_900, 400_000, 10_300, false, anew),
            (59_900, 80_000, 80_000, false, anew),
            (56_998, 9_600, 10_300, false, anew),
        ];
        for case in cases {
            let (sequence, at_ms, arrival_ms, waited, order) = case;
            let found = take(sequence, at_ms, arrival_ms, waited);
            assert_eq!(found, order, "{case:?}");
        }
    }

    /// With the numbers and timestamps that it had.
    #[test]
    fn a_clip_sent_again_gives_no_duplicates() {
        let mut of = Sequence::new(1_000);
        let mut take = |sequence: u16, at_s: u32| {
            let header = header(sequence, 1_000 * u32::from(sequence), 7);
            of.take(&header, u64::from(at_s) * 1_000_000_000, false)
        };
        (0..20).for_each(|number| assert_eq!(take(number, u32::from(number)), NEXT));
        assert_eq!(take(0, 20), Order::Stray);
        let (expected, first) = (20, 0);
        assert_eq!(take(1, 21), Order::Anew { expected, first });
        assert_eq!(take(2, 22), NEXT);
        assert_eq!(take(2, 22), Order::Duplicate);
    }

    /// Up to 3,000 numbers back packets are late until their timestamps are too far ahead for that.
    #[test]
    fn a_restart_a_little_further_back_is_found_by_time() {
        let mut of = Sequence::new(1_000);
        let mut take = |sequence, at_ms| {
            let header = header(sequence, at_ms, 7);
            of.take(&header, u64::from(at_ms) * 1_000_000, false)
        };
        assert_eq!(take(2_000, 20_000), NEXT);
        for number in 0..499 {
            let at_ms = 20_010 + u32::from(number) * 10;
            assert_eq!(take(number, at_ms), Order::Late, "{number}");
        }
        assert_eq!(take(499, 25_000), Order::Stray);
        let (expected, first) = (2_001, 499);
        assert_eq!(take(500, 25_010), Order::Anew { expected, first });
        assert_eq!(take(501, 25_020), NEXT);
    }

    #[test]
    fn a_late_burst_is_no_gap() {
        let mut of = Sequence::new(1_000);
        let mut take = |sequence: u16, arrival_ms: u64| {
            let header = header(sequence, u32::from(sequence) * 20, 7);
            of.take(&header, arrival_ms * 1_000_000, false)
        };
        assert_eq!(take(1_000, 20_000), NEXT);
        assert_eq!(take(1_101, 22_020), Order::Next { lost: 100 });
        for number in 1_102..1_300 {
            assert_eq!(take(number, 26_000), NEXT);
        }
        for number in 1_001..1_101 {
            assert_eq!(take(number, 26_000), Order::Late);
        }
        assert_eq!(take(1_300, 26_000), NEXT);
    }
}
