//! Limits on lines of the log that clients can cause as often as they like.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// After a line no other one is logged for this long.
const SILENT_FOR: Duration = Duration::from_secs(60);

/// Logs one line of a kind in a minute, and counts those that it leaves out.
#[derive(Default)]
pub struct LogThrottle {
    logged: Option<Instant>,
    left_out: u64,
}

impl LogThrottle {
    /// Returns the number of lines that were left out before this one; `None` if this one is to be left out.
    pub fn turn(&mut self, now: Instant) -> Option<u64> {
        let is_silent = |logged: Instant| now.saturating_duration_since(logged) < SILENT_FOR;
        if self.logged.is_some_and(is_silent) {
            self.left_out += 1;
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }
}

/// The lines of a kind in a minute for [`SharedLogThrottle::few`].
const LINES_MAX: u32 = 20;

/// Logs a number of lines of a kind in each minute, and counts those that it leaves out. For a `static`.
pub struct SharedLogThrottle {
    lines_max: u32,
    minute: Mutex<Minute>,
}

struct Minute {
    begun: Option<Instant>,
    logged: u32,
    left_out: u64,
}

impl SharedLogThrottle {
    /// One line in a minute, for lines that all say the same.
    pub const fn one() -> Self {
        Self::of(1)
    }

    /// A few lines in a minute, for lines that are about different clients.
    pub const fn few() -> Self {
        Self::of(LINES_MAX)
    }

    const fn of(lines_max: u32) -> Self {
        Self {
            lines_max,
            minute: Mutex::new(Minute {
                begun: None,
                logged: 0,
                left_out: 0,
            }),
        }
    }

    /// Returns `None` if this line is to be left out, and otherwise the number of lines that were left out before
    /// it, if any.
    pub fn turn(&self, now: Instant) -> Option<Option<u64>> {
        // The counters are valid after a panic as well.
        let mut minute = self.minute.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |begun: Instant| now.saturating_duration_since(begun) >= SILENT_FOR;
        if minute.begun.is_none_or(is_over) {
            (minute.begun, minute.logged) = (Some(now), 0);
        }
        if minute.logged == self.lines_max {
            minute.left_out += 1;
            return None;
        }
        minute.logged += 1;
        let left_out = std::mem::take(&mut minute.left_out);
        Some((left_out > 0).then_some(left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttle_logs_one_line_a_minute_with_the_number_left_out() {
        let begin = Instant::now();
        let mut throttle = LogThrottle::default();
        let mut at = |seconds| throttle.turn(begin + Duration::from_secs(seconds));
        assert_eq!([0, 1, 59].map(&mut at), [Some(0), None, None]);
        assert_eq!([60, 119].map(&mut at), [Some(2), None]);
        // Lines left out long ago are reported with the next one.
        assert_eq!([500, 560].map(&mut at), [Some(1), Some(0)]);
    }

    #[test]
    fn few_lines_are_logged_each_minute_and_the_others_counted() {
        let begin = Instant::now();
        let sparing = SharedLogThrottle::few();
        let logged = |seconds, count: u32| {
            let now = begin + Duration::from_secs(seconds);
            let turns = (0..count).filter_map(|_| sparing.turn(now));
            turns.collect::<Vec<_>>()
        };
        assert_eq!(logged(0, 19), [None; 19]);
        assert_eq!(logged(59, 300), [None; 1]);
        assert_eq!(logged(60, 2), [Some(299), None]);
        assert_eq!(logged(119, 18), [None; 18]);
        assert_eq!(logged(119, 1), []);
        assert_eq!(logged(600, 1), [Some(1)]);
    }
}
