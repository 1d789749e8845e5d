//! Packets that are missing from a recording: ranges of sequence numbers, with the reason, for the log.
//!
//! The log gets one line a second at most, so that a sender cannot write more into it than it sends: the line
//! names up to `RANGES_MAX` ranges, and counts the packets of all others.

use std::fmt;

use sched::units::{Nanos, Time};

/// Time from the first range of a line to the line.
const TELL_AFTER: Nanos = Nanos::from_secs(1);

/// Ranges that a line names.
const RANGES_MAX: usize = 64;

/// Reason why packets are missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossReason {
    /// They did not come, though there was room for them all the time.
    Never,
    /// For a part of the time since the packet before them no buffer was free, so nothing was received.
    NoBuffer,
    /// Their socket had no room for at least some of them: it was not read fast enough, though buffers were free.
    SocketFull,
    /// They lay in their socket when the session had ended, though buffers were free.
    Ended,
    /// They are longer than a block has room for.
    TooLong,
    /// They are no RTP packets.
    Malformed,
    /// The sender has restarted its sequence numbers, and its timestamps do not say for how long packets were
    /// missing: nobody knows whether these were ever sent.
    Anew,
}

/// Missing packets of a track by their sequence numbers; 65,535 is followed by 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MissingRange {
    /// The track's number in the description.
    pub track: usize,
    /// The first sequence number.
    pub first: u16,
    /// The last sequence number.
    pub last: u16,
    /// Time since the recording began at which they were found missing: the next packet came, or receiving ended.
    pub at: Nanos,
    /// The reason.
    pub why: LossReason,
}

impl MissingRange {
    /// Returns true if `next` continues this range.
    fn is_continued_by(&self, next: &Self) -> bool {
        self.track == next.track && self.why == next.why && self.last.wrapping_add(1) == next.first
    }

    fn contains(&self, track: usize, number: u16) -> bool {
        let offset = number.wrapping_sub(self.first);
        self.track == track && offset <= self.last.wrapping_sub(self.first)
    }
}

impl fmt::Display for MissingRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.why {
            LossReason::Never => "not received",
            LossReason::NoBuffer => "no buffer was free",
            LossReason::SocketFull => "the socket was full",
            LossReason::Ended => "the recording ended before they were received",
            LossReason::TooLong => "too long for a block",
            LossReason::Malformed => "not RTP packets",
            LossReason::Anew => "not counted: the sender restarted its sequence numbers",
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

/// One line of the log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Notice {
    /// Ranges that are named, in the order in which they were found.
    pub ranges: Vec<MissingRange>,
    /// Packets in all other ranges, some of which may have come later.
    pub more_packets: u64,
    /// Restarts of sequence numbers in all other ranges.
    pub more_restarts: u64,
}

impl Notice {
    /// Inserts a range at `place`, or counts it if there is no room.
    fn insert(&mut self, place: usize, range: MissingRange) {
        if self.ranges.len() < RANGES_MAX {
            self.ranges.insert(place, range);
        } else if range.why == LossReason::Anew {
            self.more_restarts += 1;
        } else {
            self.more_packets += u64::from(range.last.wrapping_sub(range.first)) + 1;
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = self.ranges.iter().map(ToString::to_string).collect();
        if self.more_packets > 0 {
            parts.push(format!("{} more packets", self.more_packets));
        }
        if self.more_restarts > 0 {
            let restarts = self.more_restarts;
            parts.push(format!("{restarts} more restarts of the sequence numbers"));
        }
        f.write_str(&parts.join("; "))
    }
}

/// Collects missing packets for the log.
#[derive(Clone, Debug, Default)]
pub struct MissingLog {
    notice: Notice,
    tell_at: Option<Time>,
}

impl MissingLog {
    /// Notes a range; one that continues the last range of its track extends that.
    pub fn note(&mut self, range: MissingRange, now: Time) {
        let ranges = &mut self.notice.ranges;
        let last = ranges.iter_mut().rfind(|of| of.track == range.track);
        match last.filter(|last| last.is_continued_by(&range)) {
            Some(last) => last.last = range.last,
            None => self.notice.insert(self.notice.ranges.len(), range),
        }
        self.tell_at.get_or_insert(now.saturating_add(TELL_AFTER));
    }

    /// Takes a packet that came late out of its range, except where its sender's numbers had begun anew.
    pub fn came(&mut self, track: usize, number: u16) {
        let is_in =
            |range: &MissingRange| range.why != LossReason::Anew && range.contains(track, number);
        let Some(place) = self.notice.ranges.iter().rposition(is_in) else {
            return;
        };
        let whole = self.notice.ranges.remove(place);
        if number != whole.last {
            let first = number.wrapping_add(1);
            self.notice.insert(place, MissingRange { first, ..whole });
        }
        if number != whole.first {
            let last = number.wrapping_sub(1);
            self.notice.insert(place, MissingRange { last, ..whole });
        }
    }

    /// Returns the next line if it is due, or if anything is left when the recording `ends`.
    pub fn tell(&mut self, now: Time, ends: bool) -> Option<Notice> {
        if !ends && self.tell_at.is_none_or(|at| now < at) {
            return None;
        }
        self.tell_at = None;
        let notice = std::mem::take(&mut self.notice);
        (notice != Notice::default()).then_some(notice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u16) -> MissingRange {
        MissingRange {
            track: 1,
            first,
            last: first.wrapping_add(2),
            at: Nanos::from_secs(3),
            why: LossReason::NoBuffer,
        }
    }

    /// The ranges of a line that names all.
    fn named(missing: &mut MissingLog, now: Time, ends: bool) -> Vec<MissingRange> {
        let notice = missing.tell(now, ends).unwrap_or_default();
        assert_eq!((notice.more_packets, notice.more_restarts), (0, 0));
        notice.ranges
    }

    #[test]
    fn ranges_are_told_together_a_second_after_the_first() {
        let mut missing = MissingLog::default();
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

    #[test]
    fn ranges_beyond_the_limit_are_counted() {
        let mut missing = MissingLog::default();
        let anew = |first| MissingRange {
            why: LossReason::Anew,
            track: 0,
            ..range(first)
        };
        for first in (0..1_000).map(|first| first * 5) {
            missing.note(range(first), Time(u64::from(first)));
            missing.note(anew(first), Time(u64::from(first)));
            assert_eq!(missing.tell(Time(u64::from(first)), false), None);
        }
        let notice = missing.tell(Time(1_000), true).unwrap();
        let some = (0..32).flat_map(|first| [range(first * 5), anew(first * 5)]);
        assert_eq!(notice.ranges, some.collect::<Vec<_>>());
        let more = (notice.more_packets, notice.more_restarts);
        assert_eq!(more, (968 * 3, 968));
        let text = notice.to_string();
        assert!(text.ends_with("; 2904 more packets; 968 more restarts of the sequence numbers"));
        assert_eq!(missing.tell(Time(u64::MAX), true), None);
    }

    /// Ranges of another track may lie between.
    #[test]
    fn adjacent_ranges_of_a_track_are_joined() {
        let mut missing = MissingLog::default();
        let other = MissingRange {
            track: 0,
            ..range(5)
        };
        for of in [range(65_533), other, range(0)] {
            missing.note(of, Time(0));
        }
        let both = MissingRange {
            last: 2,
            ..range(65_533)
        };
        assert_eq!(named(&mut missing, Time(0), true), [both, other]);
    }

    #[test]
    fn parts_of_a_split_range_respect_the_limit() {
        let mut missing = MissingLog::default();
        for first in (0..RANGES_MAX as u16).map(|first| first * 5) {
            missing.note(range(first), Time(0));
        }
        (0..RANGES_MAX as u16).for_each(|first| missing.came(1, first * 5 + 1));
        let notice = missing.tell(Time(0), true).unwrap();
        assert_eq!(notice.ranges.len(), RANGES_MAX);
        assert_eq!(notice.more_packets, RANGES_MAX as u64);
    }

    #[test]
    fn counted_packets_are_told_without_ranges() {
        let mut missing = MissingLog::default();
        let one = |number| MissingRange {
            last: number,
            ..range(number)
        };
        (0..70).for_each(|number| missing.note(one(2 * number), Time(0)));
        (0..RANGES_MAX as u16).for_each(|number| missing.came(1, 2 * number));
        let notice = missing.tell(Time(0), true).unwrap();
        assert_eq!(notice.to_string(), "6 more packets");
    }

    #[test]
    fn late_packets_are_taken_out() {
        let part = |first, last| MissingRange {
            first,
            last,
            ..range(0)
        };
        let left = |numbers: &[u16]| {
            let mut missing = MissingLog::default();
            missing.note(part(65_534, 2), Time(0));
            numbers.iter().for_each(|number| missing.came(1, *number));
            named(&mut missing, Time(0), true)
        };
        assert_eq!(left(&[3, 65_533]), [part(65_534, 2)]);
        assert_eq!(left(&[65_534]), [part(65_535, 2)]);
        assert_eq!(left(&[2]), [part(65_534, 1)]);
        assert_eq!(left(&[0]), [part(65_534, 65_535), part(1, 2)]);
        assert_eq!(left(&[0, 65_534, 2, 65_535, 1]), []);
        let mut missing = MissingLog::default();
        missing.note(part(0, 9), Time(0));
        // Another track's.
        missing.came(0, 5);
        assert_eq!(named(&mut missing, Time(0), true), [part(0, 9)]);
    }

    #[test]
    fn a_range_shows_track_numbers_time_and_reason() {
        assert_eq!(
            range(65_535).to_string(),
            "track 1: 65535 to 1 at 3.000 s: no buffer was free"
        );
    }
}
