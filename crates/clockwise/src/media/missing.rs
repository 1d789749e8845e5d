//! Which packets are missing from a recording, and why: ranges of numbers, told a few times a second at most and all
//! of them.

use std::fmt;

use sched::units::{Nanos, Time};

/// Ranges are told of together, so long after the first of them was noted.
const TELL_AFTER: Nanos = Nanos::from_secs(1);

/// So many are told of at once, however soon it is.
const RANGES_MAX: usize = 64;

/// Why packets are missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// They did not come, though there was room for them all the time.
    Never,
    /// For a part of the time since the packet before there was no free buffer, and nothing was received.
    NoBuffer,
    /// They came and their socket had no room for them, or for some of them: what lay there was not received fast enough,
    /// though buffers were free.
    SocketFull,
    /// They came, and were not received soon enough after the end, though buffers were free.
    Ended,
    /// They came and are longer than a block has room for.
    TooLong,
    /// They came and are no RTP packets.
    Malformed,
    /// Whether they were ever sent, nobody can say: the numbers go on from elsewhere, and the time does not say for how long.
    Anew,
}

/// Packets of a track that are missing, by their numbers, which go on with 0 behind 65,535.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// Whose they are.
    pub track: usize,
    /// The first one.
    pub first: u16,
    /// The last one.
    pub last: u16,
    /// When they were found to be missing, since the recording began: as the one behind them came, or nothing more was
    /// received.
    pub at: Nanos,
    /// Why.
    pub why: Why,
}

impl Range {
    /// Whether the other one is what comes next of the same.
    fn goes_on_with(&self, next: &Self) -> bool {
        self.track == next.track && self.why == next.why && self.last.wrapping_add(1) == next.first
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.why {
            Why::Never => "did not come",
            Why::NoBuffer => "no buffer was free",
            Why::SocketFull => "the socket was full",
            Why::Ended => "it ended before they were received",
            Why::TooLong => "too long for a block",
            Why::Malformed => "no RTP packets",
            Why::Anew => "not counted, the sender's numbers begin anew",
        };
        let Self {
            track,
            first,
            last,
            at,
            ..
        } = self;
        write!(f, "track {track}: {first} to {last} at {at}: {why}")
    }
}

/// Ranges that are still to be told of.
#[derive(Clone, Debug, Default)]
pub struct Missing {
    ranges: Vec<Range>,
    tell_at: Option<Time>,
}

impl Missing {
    /// Notes a range.
    pub fn note(&mut self, range: Range, now: Time) {
        match self.ranges.last_mut() {
            Some(last) if last.goes_on_with(&range) => last.last = range.last,
            _ => self.ranges.push(range),
        }
        self.tell_at.get_or_insert(now.saturating_add(TELL_AFTER));
    }

    /// One that was missing has come after all.
    pub fn came(&mut self, track: usize, number: u16) {
        let is_in = |range: &Range| {
            range.track == track
                && number.wrapping_sub(range.first) <= range.last.wrapping_sub(range.first)
        };
        // One that says that nobody knows goes on saying so.
        let is_in = |range: &Range| range.why != Why::Anew && is_in(range);
        let Some(place) = self.ranges.iter().rposition(is_in) else {
            return;
        };
        let whole = self.ranges.remove(place);
        let behind = Range {
            first: number.wrapping_add(1),
            ..whole
        };
        let before = Range {
            last: number.wrapping_sub(1),
            ..whole
        };
        for (part, is_some) in [
            (behind, number != whole.last),
            (before, number != whole.first),
        ] {
            if is_some {
                self.ranges.insert(place, part);
            }
        }
    }

    /// What there is to tell at this time; `ends`: all there is, as nothing comes any more.
    pub fn tell(&mut self, now: Time, ends: bool) -> Vec<Range> {
        let is_time = self.tell_at.is_some_and(|at| at <= now);
        if !is_time && !ends && self.ranges.len() < RANGES_MAX {
            return Vec::new();
        }
        self.tell_at = None;
        std::mem::take(&mut self.ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u16) -> Range {
        Range {
            track: 1,
            first,
            last: first.wrapping_add(2),
            at: Nanos::from_secs(3),
            why: Why::NoBuffer,
        }
    }

    #[test]
    fn ranges_are_told_together_a_second_after_the_first() {
        let mut missing = Missing::default();
        let second = Nanos::from_secs(1).get();
        missing.note(range(65_535), Time(5));
        missing.note(range(7), Time(second));
        assert_eq!(missing.tell(Time(second + 4), false), []);
        let told = missing.tell(Time(second + 5), false);
        assert_eq!(told, [range(65_535), range(7)]);
        assert_eq!(missing.tell(Time(9 * second), true), []);
        missing.note(range(9), Time(9 * second));
        assert_eq!(missing.tell(Time(9 * second), false), []);
        assert_eq!(missing.tell(Time(9 * second), true), [range(9)]);
    }

    #[test]
    fn every_range_is_told_once_and_never_many_kept() {
        let mut missing = Missing::default();
        let mut told = Vec::new();
        for first in (0..1_000).map(|first| first * 5) {
            missing.note(range(first), Time(u64::from(first)));
            told.extend(missing.tell(Time(u64::from(first)), false));
            assert!(missing.ranges.len() < RANGES_MAX);
        }
        told.extend(missing.tell(Time(1_000), true));
        let all = (0..1_000).map(|first| range(first * 5));
        assert_eq!(told, all.collect::<Vec<_>>());
        // One behind another is one.
        missing.note(range(65_533), Time(0));
        missing.note(range(0), Time(0));
        let both = Range {
            last: 2,
            ..range(65_533)
        };
        assert_eq!(missing.tell(Time(0), true), [both]);
    }

    #[test]
    fn what_comes_late_is_not_missing() {
        let part = |first, last| Range {
            first,
            last,
            ..range(0)
        };
        let left = |numbers: &[u16]| {
            let mut missing = Missing::default();
            missing.note(part(65_534, 2), Time(0));
            numbers.iter().for_each(|number| missing.came(1, *number));
            missing.tell(Time(0), true)
        };
        assert_eq!(left(&[3, 65_533]), [part(65_534, 2)]);
        assert_eq!(left(&[65_534]), [part(65_535, 2)]);
        assert_eq!(left(&[2]), [part(65_534, 1)]);
        assert_eq!(left(&[0]), [part(65_534, 65_535), part(1, 2)]);
        assert_eq!(left(&[0, 65_534, 2, 65_535, 1]), []);
        let mut missing = Missing::default();
        missing.note(part(0, 9), Time(0));
        // Another track's.
        missing.came(0, 5);
        assert_eq!(missing.tell(Time(0), true), [part(0, 9)]);
    }

    #[test]
    fn a_range_says_which_when_and_why() {
        assert_eq!(
            range(65_535).to_string(),
            "track 1: 65535 to 1 at 3.000 s: no buffer was free"
        );
    }
}
