//! Warnings that clients may cause as often as they like, told once in a while.

use std::time::{Duration, Instant};

/// How long nothing more is told after a warning.
const SILENT_FOR: Duration = Duration::from_secs(60);

/// When a warning was last told, and how many were not since.
#[derive(Default)]
pub(crate) struct Seldom {
    told: Option<Instant>,
    untold: u64,
}

impl Seldom {
    /// Counts one more; how many were not told before this one, if this one is to be.
    pub(crate) fn turn(&mut self, now: Instant) -> Option<u64> {
        let is_silent = |told: Instant| now.saturating_duration_since(told) < SILENT_FOR;
        if self.told.is_some_and(is_silent) {
            self.untold += 1;
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_told_in_each_while_with_how_many_were_not() {
        let begin = Instant::now();
        let mut seldom = Seldom::default();
        let mut at = |seconds| seldom.turn(begin + Duration::from_secs(seconds));
        assert_eq!([0, 1, 59].map(&mut at), [Some(0), None, None]);
        assert_eq!([60, 119].map(&mut at), [Some(2), None]);
        // Those of long ago are told with the next, whenever that comes.
        assert_eq!([500, 560].map(&mut at), [Some(1), Some(0)]);
    }
}
