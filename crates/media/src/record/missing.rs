//! Which packets are missing from a recording, and why: ranges of numbers, told once a second.
//!
//! Those that had no room are few ranges, as it takes a while for a buffer to become free. Those that were not sent may be as many as
//! somebody likes, who could write more into the log than it sends: so many are named, and the others are counted.

use std::fmt;

use sched::units::{Nanos, Time};

/// Ranges are told of together, so long after the first of them was noted.
const TELL_AFTER: Nanos = Nanos::from_secs(1);

/// So many of them are named; of the others is told how many they are.
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

/// Ranges of a track that are missing for one reason, and are not named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct More {
    /// One of them.
    pub one: Range,
    /// How many there are.
    pub ranges: u64,
    /// How many numbers are in them, of which some may have come later.
    pub numbers: u64,
}

impl fmt::Display for More {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = self.ranges;
        // How many there are of those nobody knows.
        let numbers = match self.one.why {
            Why::Anew => String::new(),
            _ => format!(" with {} numbers", self.numbers),
        };
        write!(f, "{ranges} more{numbers}, among them {}", self.one)
    }
}

/// What is told at one time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Told {
    /// Those that are named, in the order in which they were found missing.
    pub ranges: Vec<Range>,
    /// The others, of each track and for each reason.
    pub more: Vec<More>,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = self.ranges.iter().map(ToString::to_string);
        let more = self.more.iter().map(ToString::to_string);
        let all: Vec<String> = ranges.chain(more).collect();
        f.write_str(&all.join("; "))
    }
}

/// Ranges that are still to be told of.
#[derive(Clone, Debug, Default)]
pub struct Missing {
    told: Told,
    tell_at: Option<Time>,
}

impl Missing {
    /// Notes a range.
    pub fn note(&mut self, range: Range, now: Time) {
        let mut ranges = self.told.ranges.iter_mut().rev();
        let last = ranges.find(|of| of.track == range.track);
        match last.filter(|last| last.goes_on_with(&range)) {
            Some(last) => last.last = range.last,
            None => self.insert(self.told.ranges.len(), range),
        }
        self.tell_at.get_or_insert(now.saturating_add(TELL_AFTER));
    }

    /// Names one at a place of the list, if there is room for that.
    fn insert(&mut self, place: usize, range: Range) {
        let Told { ranges, more } = &mut self.told;
        if ranges.len() < RANGES_MAX {
            return ranges.insert(place, range);
        }
        let numbers = u64::from(range.last.wrapping_sub(range.first)) + 1;
        let is_of = |of: &&mut More| of.one.track == range.track && of.one.why == range.why;
        match more.iter_mut().find(is_of) {
            Some(of) => {
                of.numbers += numbers;
                match of.one.goes_on_with(&range) {
                    true => of.one.last = range.last,
                    false => (of.ranges, of.one) = (of.ranges + 1, range),
                }
            }
            None => more.push(More {
                one: range,
                ranges: 1,
                numbers,
            }),
        }
    }

    /// One that was missing has come after all.
    pub fn came(&mut self, track: usize, number: u16) {
        let is_in = |range: &Range| {
            range.track == track
                && number.wrapping_sub(range.first) <= range.last.wrapping_sub(range.first)
        };
        // One that says that nobody knows goes on saying so.
        let is_in = |range: &Range| range.why != Why::Anew && is_in(range);
        let Some(place) = self.told.ranges.iter().rposition(is_in) else {
            return;
        };
        let whole = self.told.ranges.remove(place);
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
                self.insert(place, part);
            }
        }
    }

    /// What there is to tell at this time, if anything; `ends`: all there is, as nothing comes any more.
    pub fn tell(&mut self, now: Time, ends: bool) -> Option<Told> {
        if !ends && self.tell_at.is_none_or(|at| now < at) {
            return None;
        }
        self.tell_at = None;
        let told = std::mem::take(&mut self.told);
        (told != Told::default()).then_some(told)
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

    /// What is told where all of it is named.
    fn named(missing: &mut Missing, now: Time, ends: bool) -> Vec<Range> {
        let told = missing.tell(now, ends).unwrap_or_default();
        assert_eq!(told.more, []);
        told.ranges
    }

    #[test]
    fn ranges_are_told_together_a_second_after_the_first() {
        let mut missing = Missing::default();
        let second = Nanos::from_secs(1).get();
        missing.note(range(65_535), Time(5));
        missing.note(range(7), Time(second));
        assert_eq!(missing.tell(Time(second + 4), false), None);
        let told = named(&mut missing, Time(second + 5), false);
        assert_eq!(told, [range(65_535), range(7)]);
        assert_eq!(missing.tell(Time(9 * second), true), None);
        missing.note(range(9), Time(9 * second));
        assert_eq!(missing.tell(Time(9 * second), false), None);
        assert_eq!(named(&mut missing, Time(9 * second), true), [range(9)]);
    }

    /// However many there are, so many are named in a second, and all are counted.
    #[test]
    fn what_is_not_named_is_counted() {
        let mut missing = Missing::default();
        let never = |first, track| Range {
            why: Why::Never,
            track,
            ..range(first)
        };
        for first in (0..1_000).map(|first| first * 5) {
            missing.note(range(first), Time(u64::from(first)));
            missing.note(never(first, 0), Time(u64::from(first)));
            assert_eq!(missing.tell(Time(u64::from(first)), false), None);
        }
        // One behind another is one, also among those.
        missing.note(never(4_998, 0), Time(1_000));
        let told = missing.tell(Time(1_000), true).unwrap();
        let some = (0..32).flat_map(|first| [range(first * 5), never(first * 5, 0)]);
        assert_eq!(told.ranges, some.collect::<Vec<_>>());
        let more = |one, numbers| More {
            one,
            ranges: 968,
            numbers,
        };
        let both = Range {
            last: 5_000,
            ..never(4_995, 0)
        };
        let expected = [more(range(4_995), 2_904), more(both, 2_907)];
        assert_eq!(told.more, expected);
        assert!(told.to_string().ends_with(
            "968 more with 2907 numbers, among them track 0: 4995 to 5000 at 3.000 s: did not come"
        ));
        assert_eq!(missing.tell(Time(u64::MAX), true), None);
    }

    /// Those of another track may lie between.
    #[test]
    fn one_behind_another_is_one() {
        let mut missing = Missing::default();
        let other = Range {
            track: 0,
            ..range(5)
        };
        for of in [range(65_533), other, range(0)] {
            missing.note(of, Time(0));
        }
        let both = Range {
            last: 2,
            ..range(65_533)
        };
        assert_eq!(named(&mut missing, Time(0), true), [both, other]);
    }

    /// What is parted by one that has come late is not named either where there is no room for that.
    #[test]
    fn parts_are_not_too_many() {
        let mut missing = Missing::default();
        for first in (0..RANGES_MAX as u16).map(|first| first * 5) {
            missing.note(range(first), Time(0));
        }
        (0..RANGES_MAX as u16).for_each(|first| missing.came(1, first * 5 + 1));
        let told = missing.tell(Time(0), true).unwrap();
        assert_eq!(told.ranges.len(), RANGES_MAX);
        assert_eq!(
            told.more.iter().map(|of| of.numbers).sum::<u64>(),
            RANGES_MAX as u64
        );
    }

    /// What is counted is told of also where all that was to be named has come.
    #[test]
    fn what_is_counted_is_told_of_alone() {
        let mut missing = Missing::default();
        let one = |number| Range {
            last: number,
            ..range(number)
        };
        (0..70).for_each(|number| missing.note(one(2 * number), Time(0)));
        (0..RANGES_MAX as u16).for_each(|number| missing.came(1, 2 * number));
        let told = missing.tell(Time(0), true).unwrap();
        assert_eq!((told.ranges, told.more[0].numbers), (vec![], 6));
        let anew = More {
            one: Range {
                why: Why::Anew,
                ..range(7)
            },
            ranges: 3,
            numbers: 9,
        };
        assert!(
            anew.to_string()
                .starts_with("3 more, among them track 1: 7 to 9")
        );
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
            named(&mut missing, Time(0), true)
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
        assert_eq!(named(&mut missing, Time(0), true), [part(0, 9)]);
    }

    #[test]
    fn a_range_says_which_when_and_why() {
        assert_eq!(
            range(65_535).to_string(),
            "track 1: 65535 to 1 at 3.000 s: no buffer was free"
        );
    }
}
