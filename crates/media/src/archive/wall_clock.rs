//! The wall clock: what it is asked for, and how far it is believed.
//!
//! Everything that is decided here goes by a monotonic clock, which nobody sets; the wall clock is what people are
//! told, and what recordings say of when they began. Only retention by age has to compare the two, and what it lets go of
//! does not come back. So a clock that is set ahead is not believed at once, and recordings are as old as they can be by
//! all that is known of them, not by what they say alone.
//!
//! Nothing here asks a clock but [`now_unix_ns`]: times are arguments.

use std::time::{SystemTime, UNIX_EPOCH};

use sched::units::{Nanos, Time};

/// A clock that is ahead by more than that has been set, or the host has slept.
const AHEAD_MAX: Nanos = Nanos::from_secs(300);

/// So long a clock has to go on as it was set before it is believed.
const DOUBTED: Nanos = Nanos::from_secs(86_400);

/// Nanoseconds since 1970, by the wall clock.
#[must_use]
pub fn now_unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}

/// An instant, by both clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instant {
    /// By the wall clock, as far as it is believed, in nanoseconds since 1970.
    pub unix_ns: u64,
    /// By the clock that nobody sets.
    pub at: Time,
}

impl Instant {
    /// What the wall clock would say at another time, were it not set meanwhile.
    #[must_use]
    pub fn unix_ns_at(&self, at: Time) -> u64 {
        let later = at.saturating_since(self.at).get();
        let earlier = self.at.saturating_since(at).get();
        self.unix_ns.saturating_add(later).saturating_sub(earlier)
    }
}

/// A clock that is doubted when it is set ahead.
#[derive(Clone, Copy, Debug, Default)]
pub struct Believed {
    last: Option<Instant>,
    /// What it was set to, and when that was seen first.
    doubted: Option<Instant>,
}

impl Believed {
    /// What is believed when it says `unix_ns`: that, or, for a day after it was set ahead, what it would say had it gone on.
    /// One that is set back is believed: nothing goes because of that.
    pub fn look(&mut self, unix_ns: u64, at: Time) -> Instant {
        let said = Instant { unix_ns, at };
        let is_ahead_of =
            |of: &Instant| unix_ns > of.unix_ns_at(at).saturating_add(AHEAD_MAX.get());
        let Some(last) = self.last.filter(is_ahead_of) else {
            self.doubted = None;
            return *self.last.insert(said);
        };
        let doubted = self.doubted.filter(|of| {
            let as_set = of.unix_ns_at(at);
            unix_ns.abs_diff(as_set) <= AHEAD_MAX.get()
        });
        let doubted = *self.doubted.insert(doubted.unwrap_or(said));
        if at.saturating_since(doubted.at) >= DOUBTED {
            self.doubted = None;
            return *self.last.insert(said);
        }
        Instant {
            unix_ns: last.unix_ns_at(at),
            at,
        }
    }

    /// Whether it is doubted.
    #[must_use]
    pub fn is_doubted(&self) -> bool {
        self.doubted.is_some()
    }
}

/// How much earlier a recording was than it says, which is less than nothing for one that was later. It says that it ends
/// at `ends`; the one before ended at `floor`, the next one says that it began at `next`, and it is `now`.
///
/// Nothing has ended that has not been yet: what says so was recorded by a clock that was ahead, and is taken to have ended
/// when the next one began, or just now. Nor has anything ended before what was recorded before it: that was a clock that
/// had not been set yet.
#[must_use]
pub fn ahead_ns(ends: u64, floor: u64, next: Option<u64>, now: u64) -> i128 {
    let latest = match next {
        Some(next) if ends > now && (floor..=now).contains(&next) => next,
        _ => now,
    };
    let ended = ends.min(latest).max(floor.min(now));
    i128::from(ends) - i128::from(ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const DAY: u64 = 86_400 * S;
    /// 2026 and 2040, or so.
    const NOW: u64 = 1_796_000_000 * S;
    const LATER: u64 = 2_210_000_000 * S;

    fn looks(clock: &mut Believed, at: u64, says: u64) -> u64 {
        let of = clock.look(says, Time(at));
        assert_eq!(of.at, Time(at));
        of.unix_ns
    }

    #[test]
    fn a_clock_that_jumps_ahead_and_back_is_as_if_it_had_not() {
        let mut clock = Believed::default();
        assert_eq!(looks(&mut clock, 0, NOW), NOW);
        // Set right by a little, either way.
        assert_eq!(looks(&mut clock, 10 * S, NOW + 200 * S), NOW + 200 * S);
        assert_eq!(looks(&mut clock, 20 * S, NOW + 20 * S), NOW + 20 * S);
        assert!(!clock.is_doubted());
        for after in [30, 3_600, 80_000] {
            let said = looks(&mut clock, after * S, LATER + after * S);
            assert_eq!((said, clock.is_doubted()), (NOW + after * S, true));
        }
        // Back before a day is over: as if nothing had been.
        assert_eq!(looks(&mut clock, DAY, NOW + DAY), NOW + DAY);
        assert!(!clock.is_doubted());
        // Ahead again, which begins anew.
        let said = looks(&mut clock, DAY + S, LATER);
        assert_eq!(said, NOW + DAY + S);
        assert!(clock.is_doubted());
    }

    #[test]
    fn a_clock_that_stays_ahead_for_a_day_is_believed() {
        let mut clock = Believed::default();
        looks(&mut clock, 0, NOW);
        assert_eq!(looks(&mut clock, S, LATER), NOW + S);
        assert_eq!(looks(&mut clock, DAY, LATER + DAY - S), NOW + DAY);
        let at = DAY + S;
        assert_eq!(looks(&mut clock, at, LATER + DAY), LATER + DAY);
        assert!(!clock.is_doubted());
        // Another time than it was set to is another day.
        assert_eq!(looks(&mut clock, at + S, LATER + 9 * DAY), LATER + DAY + S);
        let other = LATER + 90 * DAY;
        assert_eq!(looks(&mut clock, at + DAY, other), LATER + 2 * DAY);
        assert!(clock.is_doubted());
    }

    #[test]
    fn a_clock_that_is_set_back_is_believed_at_once_and_then_goes_on() {
        let mut clock = Believed::default();
        assert_eq!(looks(&mut clock, 0, LATER), LATER);
        assert_eq!(looks(&mut clock, S, NOW), NOW);
        assert_eq!(looks(&mut clock, 2 * S, NOW + S), NOW + S);
        // A host that has not set its clock yet keeps what it has for a day more than it has to.
        assert_eq!(looks(&mut clock, 3 * S, 0), 0);
        assert_eq!(looks(&mut clock, 4 * S, NOW), S);
    }

    #[test]
    fn recordings_are_as_old_as_they_can_be_by_all_that_is_known() {
        let day = |of: u64| NOW - of * DAY;
        for (ends, floor, next, earlier) in [
            // All is well.
            (day(3), day(4), Some(day(3)), 0),
            (day(3), 0, None, 0),
            // By a clock that was ahead: it ended when the next one began, or just now.
            (LATER, day(4), Some(day(3)), LATER - day(3)),
            (LATER, day(4), None, LATER - NOW),
            // The next one's clock was ahead as well, or had not been set.
            (LATER, day(4), Some(LATER + S), LATER - NOW),
            (LATER, day(4), Some(7), LATER - NOW),
        ] {
            let found = ahead_ns(ends, floor, next, NOW);
            assert_eq!(found, i128::from(earlier), "{ends} {floor} {next:?}");
        }
        // By one that had not been set: not before what was recorded before.
        assert_eq!(
            ahead_ns(7 * S, day(4), Some(day(3)), NOW),
            i128::from(7 * S) - i128::from(day(4))
        );
        // What was recorded well stays as old as it is when the next one's clock was not set.
        assert_eq!(ahead_ns(day(4), day(5), Some(7), NOW), 0);
        // A clock that is not set yet: everything is in what it takes for the future, and has just been.
        assert_eq!(
            ahead_ns(day(4), 5 * S, None, 5 * S),
            i128::from(day(4) - 5 * S)
        );
    }

    #[test]
    fn an_instant_is_told_by_either_clock() {
        let of = Instant {
            unix_ns: NOW,
            at: Time(50 * S),
        };
        assert_eq!(of.unix_ns_at(Time(40 * S)), NOW - 10 * S);
        assert_eq!(of.unix_ns_at(Time(60 * S)), NOW + 10 * S);
    }
}
