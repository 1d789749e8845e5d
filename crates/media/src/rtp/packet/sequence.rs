//! The numbers of packets: which are missing, late, or there twice.

use super::Header;
use super::clock::JUMP_NS;

/// What a packet is, of those of its track.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// It is next, after so many that have not come.
    Next {
        /// How many.
        lost: u32,
    },
    /// One before it has come already.
    Late,
    /// It has come already.
    Duplicate,
    /// It is from elsewhere: numbers begin anew with it if the next one goes on from there.
    Stray,
    /// The numbers go on from elsewhere, with the stray before this: nobody can say whether any have not come.
    Anew {
        /// The number that would have been next.
        expected: u16,
        /// The number that they began with.
        first: u16,
    },
    /// It is somebody else's.
    Stranger,
}

/// So many packets are lost at a time whatever their timestamps say; more are another beginning if these do not go on
/// (RFC 3550, appendix A.1, `MAX_DROPOUT`).
const LOST_MAX: u16 = 3_000;

/// As many earlier packets are known by their numbers.
const KNOWN: u32 = 64;

/// One that is up to that many before the last one by its number is late, unless its timestamp says that it is not
/// (RFC 3550, appendix A.1, `MAX_MISORDER`, which is 100).
const LATE_MAX: u16 = 3_000;

/// A packet that is later than the last one by this is not late.
const LATER_NS: i128 = 5_000_000_000;

/// More packets are not sent in a millisecond, a tenth of 10 Gbit/s.
const PACKETS_PER_MS_MAX: i128 = 100;

/// The last packet of a track by its number.
#[derive(Clone, Copy, Debug)]
struct Last {
    sequence: u16,
    timestamp: u32,
    arrival_ns: u64,
}

/// The numbers of packets of a track.
#[derive(Clone, Copy, Debug)]
pub struct Sequence {
    clock_rate: u32,
    ssrc: Option<u32>,
    last: Option<Last>,
    /// When any of them has arrived.
    heard_ns: u64,
    /// The last packet's number and timestamp, if it was a stray.
    stray: Option<(u16, u32)>,
    /// Which of the last ones have come: bit n is that n before the last.
    seen: u64,
    /// The timestamps of those, by the end of their numbers.
    timestamps: [u32; KNOWN as usize],
}

impl Sequence {
    /// Of a track with so many units of its timestamps in a second.
    #[must_use]
    pub fn new(clock_rate: u32) -> Self {
        Self {
            clock_rate: clock_rate.max(1),
            ssrc: None,
            last: None,
            heard_ns: 0,
            stray: None,
            seen: 0,
            timestamps: [0; KNOWN as usize],
        }
    }

    /// The same track, of somebody else.
    #[must_use]
    pub fn anew(&self) -> Self {
        Self::new(self.clock_rate)
    }

    /// Whose packets they are.
    #[must_use]
    pub fn ssrc(&self) -> Option<u32> {
        self.ssrc
    }

    /// The last one by its number; `None`: there was none.
    #[must_use]
    pub fn last(&self) -> Option<u16> {
        self.last.map(|last| last.sequence)
    }

    /// Takes in one more, which arrived at a time of the recording; `waited`: what came before it was not received, or
    /// dropped, so its arrival says nothing.
    pub fn take(&mut self, header: &Header, arrival_ns: u64, waited: bool) -> Order {
        if *self.ssrc.get_or_insert(header.ssrc) != header.ssrc {
            return Order::Stranger;
        }
        let quiet = arrival_ns.saturating_sub(self.heard_ns);
        self.heard_ns = arrival_ns;
        let now = Last {
            sequence: header.sequence,
            timestamp: header.timestamp,
            arrival_ns,
        };
        let Some(last) = self.last else {
            self.last = Some(now);
            self.note(header.sequence, header.timestamp, 0);
            return Order::Next { lost: 0 };
        };
        let stray = self.stray.take();
        let ahead = header.sequence.wrapping_sub(last.sequence);
        let behind = last.sequence.wrapping_sub(header.sequence);
        let units = header.timestamp.wrapping_sub(last.timestamp) as i32;
        let by_clock = i128::from(units) * 1_000_000_000 / i128::from(self.clock_rate);
        let by_arrival = i128::from(arrival_ns) - i128::from(last.arrival_ns);
        let goes_on = waited || (by_clock - by_arrival).abs() <= JUMP_NS;
        // One that begins anew has other times, or a clip that is sent once more comes as much later as it is long.
        let is_known = u32::from(behind) < KNOWN && self.seen >> behind & 1 == 1;
        if is_known && goes_on && self.timestamps[slot(header.sequence)] == header.timestamp {
            return Order::Duplicate;
        }
        // As long an outage as it takes for so many to be sent.
        let lasts = by_clock > 0 && i128::from(ahead) <= by_clock / 1_000_000 * PACKETS_PER_MS_MAX;
        let is_missing = match behind <= LATE_MAX {
            true if goes_on && by_clock < LATER_NS => {
                self.note(header.sequence, header.timestamp, behind);
                return Order::Late;
            }
            // Who goes on to be late counts from elsewhere.
            true => goes_on && lasts && (waited || i128::from(quiet) >= LATER_NS),
            false => goes_on && lasts,
        };
        if ahead > 0 && (ahead <= LOST_MAX || is_missing) {
            self.last = Some(now);
            self.seen = self.seen.checked_shl(u32::from(ahead)).unwrap_or(0);
            self.note(header.sequence, header.timestamp, 0);
            return Order::Next {
                lost: u32::from(ahead) - 1,
            };
        }
        match stray {
            Some((first, timestamp)) if first.wrapping_add(1) == header.sequence => {
                self.last = Some(now);
                self.seen = 0;
                self.note(first, timestamp, 1);
                self.note(header.sequence, header.timestamp, 0);
                Order::Anew {
                    expected: last.sequence.wrapping_add(1),
                    first,
                }
            }
            _ => {
                self.stray = Some((header.sequence, header.timestamp));
                Order::Stray
            }
        }
    }

    /// One has come, that many before the last one.
    fn note(&mut self, sequence: u16, timestamp: u32, behind: u16) {
        if let Some(bit) = 1_u64.checked_shl(u32::from(behind)) {
            self.seen |= bit;
            self.timestamps[slot(sequence)] = timestamp;
        }
    }
}

/// Where the timestamp of a number is.
fn slot(sequence: u16) -> usize {
    usize::from(sequence) % KNOWN as usize
}

#[cfg(test)]
mod tests {
    use super::super::tests::header;
    use super::*;

    /// Takes packets with numbers that come when their timestamps say, in milliseconds.
    fn in_time() -> impl FnMut(u16, u32) -> Order {
        let mut of = Sequence::new(1_000);
        move |sequence, at_ms| {
            let header = header(sequence, at_ms, 7);
            of.take(&header, u64::from(at_ms) * 1_000_000, false)
        }
    }

    #[test]
    fn what_is_missing_late_or_there_twice_is_known() {
        let next = |lost| Order::Next { lost };
        let mut of = Sequence::new(1_000);
        // Timestamps that stand still say nothing.
        let mut take_of = |sequence, ssrc| of.take(&header(sequence, 0, ssrc), 0, false);
        assert_eq!(take_of(65_533, 7), next(0));
        assert_eq!(take_of(65_534, 8), Order::Stranger);
        let mut take = |sequence| take_of(sequence, 7);
        assert_eq!(take(65_534), next(0));
        assert_eq!(take(65_535), next(0));
        assert_eq!(take(2), next(2));
        assert_eq!(take(1), Order::Late);
        assert_eq!(take(1), Order::Duplicate);
        assert_eq!(take(2), Order::Duplicate);
        assert_eq!(take(65_535), Order::Duplicate);
        assert_eq!(take(3), next(0));
        // One alone is from elsewhere, and two are where it goes on.
        assert_eq!(take(30_000), Order::Stray);
        assert_eq!(take(4), next(0));
        assert_eq!(take(30_001), Order::Stray);
        let (expected, first) = (5, 30_001);
        assert_eq!(take(30_002), Order::Anew { expected, first });
        assert_eq!(take(30_001), Order::Duplicate);
        assert_eq!(take(30_002), Order::Duplicate);
        assert_eq!(take(30_000), Order::Late);
        assert_eq!(take(33_002), next(2_999));
        assert_eq!(take(32_002), Order::Late);
        assert_eq!(take(33_003), next(0));
    }

    /// Numbers that have come already say so only where the time does.
    #[test]
    fn numbers_that_begin_anew_where_they_are_are_no_duplicates() {
        for from in [0, 38, 39] {
            let mut of = Sequence::new(1_000);
            let mut take = |sequence: u16, at_ms: u32| {
                let arrival_ns = u64::from(sequence) * 20_000_000;
                of.take(&header(sequence, at_ms, 7), arrival_ns, false)
            };
            for number in 0..=40 {
                assert_eq!(
                    take(number, 20 * u32::from(number)),
                    Order::Next { lost: 0 }
                );
            }
            assert_eq!(take(from, 1 << 30), Order::Stray, "{from}");
            let anew = Order::Anew {
                expected: 41,
                first: from,
            };
            assert_eq!(take(from + 1, (1 << 30) + 20), anew);
            assert_eq!(take(from + 2, (1 << 30) + 40), Order::Next { lost: 0 });
        }
    }

    /// How many are missing is a question of time as well.
    #[test]
    fn numbers_that_jump_are_of_packets_that_were_sent_if_there_was_time_for_that() {
        let next = |lost| Order::Next { lost };
        let anew = Order::Anew {
            expected: 0,
            first: 0,
        };
        // Of one that is at 10 s by its clock and by its arrival: number, both times in milliseconds, starved.
        let take = |sequence: u16, at_ms: i64, arrival_ms: u64, starved| {
            let begins = u32::MAX - 9_999;
            let timestamp = |ms: i64| begins.wrapping_add(ms as u32);
            let mut of = Sequence::new(1_000);
            of.take(&header(60_000, timestamp(10_000), 7), 10_000_000_000, false);
            let mut take = |sequence| {
                let header = header(sequence, timestamp(at_ms), 7);
                of.take(&header, arrival_ms * 1_000_000, starved)
            };
            // Whether they begin anew the next one says.
            match (take(sequence), take(sequence.wrapping_add(1))) {
                (
                    Order::Stray,
                    Order::Anew {
                        expected: 60_001,
                        first,
                    },
                ) if first == sequence => anew,
                (order, _) => order,
            }
        };
        let cases = [
            // An outage of a minute, by a clock that is 8 s off, and by one that is 12 s off.
            (30_001, 78_000, 70_000, false, next(35_536)),
            (30_001, 58_000, 70_000, false, anew),
            // Nobody knows how long nothing was received.
            (30_001, 58_000, 10_000, true, next(35_536)),
            (30_001, 9_000, 10_000, true, anew),
            // Numbers that begin anew while time goes on: so many are not sent in a frame's time.
            (7, 10_040, 10_040, false, anew),
            (64_000, 10_040, 10_040, false, next(3_999)),
            // Up to 3,000 it is one that is late, also of a picture that is shown later than those that came.
            (59_900, 9_600, 10_300, false, Order::Late),
            (59_900, 10_000, 10_300, false, Order::Late),
            (57_000, 10_200, 10_300, true, Order::Late),
            (59_900, 400_000, 10_300, false, anew),
            // Or after as long as more than all the numbers take.
            (59_900, 80_000, 80_000, false, next(65_435)),
            (56_998, 9_600, 10_300, false, anew),
        ];
        for case in cases {
            let (sequence, at_ms, arrival_ms, starved, order) = case;
            assert_eq!(
                take(sequence, at_ms, arrival_ms, starved),
                order,
                "{case:?}"
            );
        }
    }

    /// A clip that is sent again and again, with the numbers and timestamps that it had.
    #[test]
    fn what_is_sent_once_more_is_no_duplicate() {
        let mut of = Sequence::new(1_000);
        let mut take = |sequence: u16, at_s: u32| {
            let header = header(sequence, 1_000 * u32::from(sequence), 7);
            of.take(&header, u64::from(at_s) * 1_000_000_000, false)
        };
        let next = Order::Next { lost: 0 };
        (0..20).for_each(|number| assert_eq!(take(number, u32::from(number)), next));
        assert_eq!(take(0, 20), Order::Stray);
        let anew = Order::Anew {
            expected: 20,
            first: 0,
        };
        assert_eq!(take(1, 21), anew);
        assert_eq!(take(2, 22), next);
        assert_eq!(take(2, 22), Order::Duplicate);
    }

    /// Also where the last of them are among those that have come, and there are as many as there are numbers.
    #[test]
    fn an_outage_of_nearly_all_numbers_is_one() {
        let mut take = in_time();
        for number in 0..=99 {
            take(number, 20 * u32::from(number));
        }
        let lost = 65_500 - 1;
        assert_eq!(
            take(99_u16.wrapping_add(65_500), 40_000),
            Order::Next { lost }
        );
        assert_eq!(take(64, 40_020), Order::Next { lost: 0 });
        // Nobody can know.
        assert_eq!(take(64, 80_000), Order::Stray);
        assert_eq!(take(65, 80_020), Order::Next { lost: 0 });
        // Where they begin anew at once, while time goes on, nothing is thrown away.
        assert_eq!(take(64, 80_040), Order::Late);
        assert_eq!(take(64, 80_040), Order::Duplicate);
    }

    /// They are late until that cannot be any more.
    #[test]
    fn numbers_that_begin_anew_a_little_further_back_are_no_outage() {
        let mut take = in_time();
        assert_eq!(take(2_000, 20_000), Order::Next { lost: 0 });
        for number in 0..499 {
            let at_ms = 20_010 + u32::from(number) * 10;
            assert_eq!(take(number, at_ms), Order::Late, "{number}");
        }
        assert_eq!(take(499, 25_000), Order::Stray);
        let anew = Order::Anew {
            expected: 2_001,
            first: 499,
        };
        assert_eq!(take(500, 25_010), anew);
        assert_eq!(take(501, 25_020), Order::Next { lost: 0 });
    }

    /// Each of them, and what comes behind them goes on.
    #[test]
    fn a_burst_that_comes_late_is_no_gap() {
        let mut of = Sequence::new(1_000);
        let mut take = |sequence: u16, arrival_ms: u64| {
            let header = header(sequence, u32::from(sequence) * 20, 7);
            of.take(&header, arrival_ms * 1_000_000, false)
        };
        assert_eq!(take(1_000, 20_000), Order::Next { lost: 0 });
        assert_eq!(take(1_101, 22_020), Order::Next { lost: 100 });
        for number in 1_102..1_300 {
            assert_eq!(take(number, 26_000), Order::Next { lost: 0 });
        }
        for number in 1_001..1_101 {
            assert_eq!(take(number, 26_000), Order::Late);
        }
        assert_eq!(take(1_300, 26_000), Order::Next { lost: 0 });
    }
}
