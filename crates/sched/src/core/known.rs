//! Exact slack, and what is known of it between computations.

use super::{Core, Known, signed};
use crate::slack::{self, Found, Question, UNBOUNDED};
use crate::units::{Nanos, Time};

impl Core {
    /// Exact slack now: the longest best-effort request that may start. A service on the disk counts to its
    /// predicted end. [`Nanos::MAX`] where nothing will ever be due. A lower bound where the exact value
    /// would take more than a bounded time to find.
    pub fn slack(&mut self, now: Time) -> Nanos {
        self.catch_up(now);
        if self.is_late(now) {
            return Nanos::ZERO;
        }
        let value = match self.compute(now, u64::MAX) {
            Found::Least { value, .. } => value,
            Found::Unknown => self.fallback(now),
        };
        if value == UNBOUNDED {
            Nanos::MAX
        } else {
            Nanos(value.max(0) as u64)
        }
    }

    /// The remaining budget dL_r of corrected delta-L; at most [`Core::slack`] while no task is leaving.
    #[must_use]
    pub fn delta_l_left(&self) -> Nanos {
        Nanos(self.allowance.left.max(0) as u64)
    }

    /// When the disk is free, if what is in service keeps to its prediction.
    pub(super) fn free_from(&self, now: Time) -> u64 {
        self.in_service
            .iter()
            .map(|entry| entry.until.0)
            .fold(now.0, u64::max)
    }

    /// Lower bound of S from what was computed before.
    pub(super) fn bound(&self, now: Time) -> i64 {
        match self.known.bound {
            Some((UNBOUNDED, _)) => UNBOUNDED,
            Some((value, free)) => value - self.free_from(now).saturating_sub(free) as i64,
            None => i64::MIN,
        }
    }

    /// Lower bound of S where it would take too long to find: what was known, or dL_r, which is a bound
    /// of its own while nobody is leaving.
    pub(super) fn fallback(&self, now: Time) -> i64 {
        let at_rest = if self.leaving == 0 {
            self.allowance.left
        } else {
            i64::MIN
        };
        self.bound(now).max(at_rest)
    }

    /// True if S is at least `need`.
    pub(super) fn at_least(&mut self, now: Time, need: Nanos) -> bool {
        let need = signed(need);
        let bound = self.bound(now);
        if bound >= need {
            return true;
        }
        let question = self.question(now, u64::MAX);
        // Most often one deadline refutes it and S need not be known: the one at which S was found last or,
        // when that has passed, the next.
        let next = self.released.first().map_or(0, |((due, _), _)| due.0);
        let seen = [self.known.witness, next]
            .into_iter()
            .find_map(|at| slack::value_at(&self.lines, &question, at));
        if seen.is_some_and(|(value, _)| value < need) {
            return false;
        }
        match self.answer(&question, seen) {
            Found::Least { value, .. } => value >= need,
            Found::Unknown => self.fallback(now) >= need,
        }
    }

    pub(super) fn question(&self, now: Time, before: u64) -> Question {
        Question {
            now: now.0,
            from: self.earliest_release(now).0,
            free: self.free_from(now),
            before,
            hint: self.known.witness,
            hyperperiod: self.hyperperiod,
        }
    }

    /// The earliest release of a job that arrives now: after the start of what was started now.
    pub(crate) fn earliest_release(&self, now: Time) -> Time {
        self.last_start
            .map_or(now, |start| now.max(start + Nanos(1)))
    }

    /// S over the deadlines before `before`; remembered where that is all of them.
    pub(super) fn compute(&mut self, now: Time, before: u64) -> Found {
        self.answer(&self.question(now, before), None)
    }

    fn answer(&mut self, question: &Question, seen: Option<(i64, u64)>) -> Found {
        let found = slack::least(&self.lines, question, seen, &mut self.near);
        if let (Found::Least { value, at }, u64::MAX) = (found, question.before) {
            self.known = Known {
                bound: Some((value, question.free)),
                witness: at,
            };
        }
        found
    }
}
