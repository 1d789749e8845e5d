//! The wall clock, and how far it is trusted.
//!
//! Decisions go by a monotonic clock, which cannot be set. The wall clock is shown to users, and each
//! recording stores when it began by it. Only retention by age has to compare the two, and what it deletes
//! does not come back. So a wall clock that was set ahead is not trusted at once, and the age of a recording
//! is the least that is possible by all that is known, not just by its own times.
//!
//! Only [`now_unix_ns`] reads a clock; the other functions get times as arguments.

use std::time::{SystemTime, UNIX_EPOCH};

use sched::units::{Nanos, Time};

/// A clock that is ahead by more than this was set, or the host was suspended.
const DEVIATION_MAX: Nanos = Nanos::from_secs(300);

/// A clock that was set ahead is trusted after it has gone on for this long.
const DOUBT: Nanos = Nanos::from_secs(86_400);

/// The wall clock's time, in nanoseconds since 1970.
#[must_use]
pub fn now_unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}

/// An instant on both clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instant {
    /// On the wall clock as far as it is trusted, in nanoseconds since 1970.
    pub unix_ns: u64,
    /// On the monotonic clock.
    pub at: Time,
}

impl Instant {
    /// The wall clock's time at another instant of the monotonic clock, if it is not set between the two.
    #[must_use]
    pub fn unix_ns_at(&self, at: Time) -> u64 {
        let later = at.saturating_since(self.at).get();
        let earlier = self.at.saturating_since(at).get();
        self.unix_ns.saturating_add(later).saturating_sub(earlier)
    }
}

/// A wall clock that is doubted for a day after it was set ahead.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrustedClock {
    last: Option<Instant>,
    /// The first reading after the clock was set ahead.
    doubted: Option<Instant>,
}

impl TrustedClock {
    /// The trusted time when the wall clock shows `unix_ns`. If it was set ahead less than a day ago, this is
    /// the time that it would show otherwise. A clock that was set back is trusted, because that deletes
    /// nothing.
    pub fn observe(&mut self, unix_ns: u64, at: Time) -> Instant {
        let reading = Instant { unix_ns, at };
        let is_ahead_of =
            |of: &Instant| unix_ns > of.unix_ns_at(at).saturating_add(DEVIATION_MAX.get());
        let Some(last) = self.last.filter(is_ahead_of) else {
            self.doubted = None;
            return *self.last.insert(reading);
        };
        let doubted = self.doubted.filter(|of| {
            let expected = of.unix_ns_at(at);
            unix_ns.abs_diff(expected) <= DEVIATION_MAX.get()
        });
        let doubted = *self.doubted.insert(doubted.unwrap_or(reading));
        if at.saturating_since(doubted.at) >= DOUBT {
            self.doubted = None;
            return *self.last.insert(reading);
        }
        Instant {
            unix_ns: last.unix_ns_at(at),
            at,
        }
    }

    /// True while the clock is doubted.
    #[must_use]
    pub fn is_doubted(&self) -> bool {
        self.doubted.is_some()
    }
}

/// Nanoseconds by which a recording's times are ahead of the true time, negative if they are behind. By its
/// own times it ends at `ends`; the recording before it ended at `floor`, the next one began at `next` by its
/// own times, and the current time is `now`; all in nanoseconds since 1970.
///
/// A recording that ends in the future was made with a clock that was ahead. It is taken to have ended when
/// the next one began, or just now. A recording that ended before the previous one was made with a clock that
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
    /// About 2026 and 2040.
    const NOW: u64 = 1_796_000_000 * S;
    const LATER: u64 = 2_210_000_000 * S;

    fn observe(clock: &mut TrustedClock, at: u64, shown: u64) -> u64 {
        let of = clock.observe(shown, Time(at));
        assert_eq!(of.at, Time(at));
        of.unix_ns
    }

    #[test]
    fn a_jump_ahead_and_back_has_no_effect() {
        let mut clock = TrustedClock::default();
        assert_eq!(observe(&mut clock, 0, NOW), NOW);
        // Small corrections in either direction.
        assert_eq!(observe(&mut clock, 10 * S, NOW + 200 * S), NOW + 200 * S);
        assert_eq!(observe(&mut clock, 20 * S, NOW + 20 * S), NOW + 20 * S);
        assert!(!clock.is_doubted());
        for after in [30, 3_600, 80_000] {
            let trusted = observe(&mut clock, after * S, LATER + after * S);
            assert_eq!((trusted, clock.is_doubted()), (NOW + after * S, true));
        }
        // Set back within a day: the jump has no effect.
        assert_eq!(observe(&mut clock, DAY, NOW + DAY), NOW + DAY);
        assert!(!clock.is_doubted());
        // Another jump ahead starts another day of doubt.
        let trusted = observe(&mut clock, DAY + S, LATER);
        assert_eq!(trusted, NOW + DAY + S);
        assert!(clock.is_doubted());
    }

    #[test]
    fn a_clock_that_stays_ahead_for_a_day_is_trusted() {
        let mut clock = TrustedClock::default();
        observe(&mut clock, 0, NOW);
        assert_eq!(observe(&mut clock, S, LATER), NOW + S);
        assert_eq!(observe(&mut clock, DAY, LATER + DAY - S), NOW + DAY);
        let at = DAY + S;
        assert_eq!(observe(&mut clock, at, LATER + DAY), LATER + DAY);
        assert!(!clock.is_doubted());
        // Setting it to another time starts another day of doubt.
        assert_eq!(
            observe(&mut clock, at + S, LATER + 9 * DAY),
            LATER + DAY + S
        );
        let other = LATER + 90 * DAY;
        assert_eq!(observe(&mut clock, at + DAY, other), LATER + 2 * DAY);
        assert!(clock.is_doubted());
    }

    #[test]
    fn a_clock_that_is_set_back_is_trusted_at_once() {
        let mut clock = TrustedClock::default();
        assert_eq!(observe(&mut clock, 0, LATER), LATER);
        assert_eq!(observe(&mut clock, S, NOW), NOW);
        assert_eq!(observe(&mut clock, 2 * S, NOW + S), NOW + S);
        // A host whose clock is not set yet retains recordings for up to a day more.
        assert_eq!(observe(&mut clock, 3 * S, 0), 0);
        assert_eq!(observe(&mut clock, 4 * S, NOW), S);
    }

    #[test]
    fn recordings_get_the_least_possible_age() {
        let day = |of: u64| NOW - of * DAY;
        for (ends, floor, next, earlier) in [
            // The clocks were right.
            (day(3), day(4), Some(day(3)), 0),
            (day(3), 0, None, 0),
            // The clock was ahead: the recording ended when the next one began, or just now.
            (LATER, day(4), Some(day(3)), LATER - day(3)),
            (LATER, day(4), None, LATER - NOW),
            // The next one's clock was ahead as well, or had not been set.
            (LATER, day(4), Some(LATER + S), LATER - NOW),
            (LATER, day(4), Some(7), LATER - NOW),
        ] {
            let found = ahead_ns(ends, floor, next, NOW);
            assert_eq!(found, i128::from(earlier), "{ends} {floor} {next:?}");
        }
        // The clock was not set: the recording did not end before the previous one.
        assert_eq!(
            ahead_ns(7 * S, day(4), Some(day(3)), NOW),
            i128::from(7 * S) - i128::from(day(4))
        );
        // The next recording's clock was not set: no effect.
        assert_eq!(ahead_ns(day(4), day(5), Some(7), NOW), 0);
        // The current clock is not set yet: all recordings are in its future and count as just ended.
        assert_eq!(
            ahead_ns(day(4), 5 * S, None, 5 * S),
            i128::from(day(4) - 5 * S)
        );
    }

    #[test]
    fn unix_time_follows_the_monotonic_clock() {
        let of = Instant {
            unix_ns: NOW,
            at: Time(50 * S),
        };
        assert_eq!(of.unix_ns_at(Time(40 * S)), NOW - 10 * S);
        assert_eq!(of.unix_ns_at(Time(60 * S)), NOW + 10 * S);
    }
}
