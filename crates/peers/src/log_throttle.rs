//! Lines of the log that clients may cause as often as they like: once in a while, or a few at a time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long nothing more is told after a warning.
const SILENT_FOR: Duration = Duration::from_secs(60);

/// When a warning was last told, and how many were not since.
#[derive(Default)]
pub struct LogThrottle {
    told: Option<Instant>,
    untold: u64,
}

impl LogThrottle {
    /// Counts one more; how many were not told before this one, if this one is to be.
    pub fn turn(&mut self, now: Instant) -> Option<u64> {
        let is_silent = |told: Instant| now.saturating_duration_since(told) < SILENT_FOR;
        if self.told.is_some_and(is_silent) {
            self.untold += 1;
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

/// The most lines of a kind in a minute that are a few.
const LINES_MAX: u32 = 20;

/// The same for whoever cannot keep one: so many lines of a kind are told in each minute, and the others counted.
pub struct Sparing {
    lines_max: u32,
    minute: Mutex<Minute>,
}

struct Minute {
    begun: Option<Instant>,
    told: u32,
    untold: u64,
}

impl Sparing {
    /// One line in a minute, of what is no news after the first.
    pub const fn one() -> Self {
        Self::of(1)
    }

    /// A few, each of which tells of somebody else.
    pub const fn few() -> Self {
        Self::of(LINES_MAX)
    }

    const fn of(lines_max: u32) -> Self {
        Self {
            lines_max,
            minute: Mutex::new(Minute {
                begun: None,
                told: 0,
                untold: 0,
            }),
        }
    }

    /// Counts one more. If it is to be told: how many were not before it, if any.
    pub fn turn(&self, now: Instant) -> Option<Option<u64>> {
        // Numbers are numbers after any panic.
        let mut minute = self.minute.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |begun: Instant| now.saturating_duration_since(begun) >= SILENT_FOR;
        if minute.begun.is_none_or(is_over) {
            (minute.begun, minute.told) = (Some(now), 0);
        }
        if minute.told == self.lines_max {
            minute.untold += 1;
            return None;
        }
        minute.told += 1;
        let untold = std::mem::take(&mut minute.untold);
        Some((untold > 0).then_some(untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_told_in_each_while_with_how_many_were_not() {
        let begin = Instant::now();
        let mut seldom = LogThrottle::default();
        let mut at = |seconds| seldom.turn(begin + Duration::from_secs(seconds));
        assert_eq!([0, 1, 59].map(&mut at), [Some(0), None, None]);
        assert_eq!([60, 119].map(&mut at), [Some(2), None]);
        // Those of long ago are told with the next, whenever that comes.
        assert_eq!([500, 560].map(&mut at), [Some(1), Some(0)]);
    }

    #[test]
    fn a_few_are_told_in_each_minute_and_the_others_counted() {
        let begin = Instant::now();
        let sparing = Sparing::few();
        let told = |seconds, count: u32| {
            let now = begin + Duration::from_secs(seconds);
            let turns = (0..count).filter_map(|_| sparing.turn(now));
            turns.collect::<Vec<_>>()
        };
        assert_eq!(told(0, 19), [None; 19]);
        assert_eq!(told(59, 300), [None; 1]);
        assert_eq!(told(60, 2), [Some(299), None]);
        assert_eq!(told(119, 18), [None; 18]);
        assert_eq!(told(119, 1), []);
        assert_eq!(told(600, 1), [Some(1)]);
    }
}
