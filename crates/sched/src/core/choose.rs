//! The choice.

use super::{Choice, Core, Policy, signed};
use crate::slack::Found;
use crate::units::{Nanos, Time};

impl Core {
    /// The next service. `best_effort` is the predicted time of the next best-effort request.
    ///
    /// # Panics
    /// In builds with debug assertions, when the disk has no free place.
    pub fn choose(&mut self, now: Time, best_effort: Option<Nanos>) -> Choice {
        self.choose_leaving(now, best_effort, Nanos::ZERO)
    }

    /// True if a best-effort request of another disk may go. If it may not, no burst begins for it: a shorter one of this
    /// disk still may.
    ///
    /// # Panics
    /// As [`Core::choose`].
    pub fn lets_go(&mut self, now: Time, need: Nanos) -> bool {
        let bursts = (self.burst, self.reserve_burst);
        let goes = self.choose(now, Some(need)) == Choice::BestEffort;
        if !goes {
            (self.burst, self.reserve_burst) = bursts;
        }
        goes
    }

    /// As [`Core::choose`], but under `exact` the best-effort request goes before released jobs only if
    /// `reserve` of the slack is left after it.
    ///
    /// # Panics
    /// As [`Core::choose`].
    pub fn choose_leaving(
        &mut self,
        now: Time,
        best_effort: Option<Nanos>,
        reserve: Nanos,
    ) -> Choice {
        debug_assert!(
            self.in_service.len() < self.options.outstanding as usize,
            "the disk has a free place"
        );
        self.catch_up(now);
        (self.contended, self.held_up, self.credited) = (false, false, false);
        if let Some((_, slot)) = self.released.first() {
            if let Some(need) = best_effort
                && self.options.outstanding == 1
                && self.may_precede(now, need, reserve)
            {
                return Choice::BestEffort;
            }
            return Choice::RealTime(self.tasks[slot as usize].id, self.head(slot));
        }
        (self.burst, self.reserve_burst) = (false, false);
        if self.in_service.len() as u32 + 1 == self.options.outstanding
            && self.options.outstanding > 1
        {
            return Choice::Wait {
                until: self.next_release(),
            };
        }
        self.choose_at_rest(now, best_effort)
    }

    /// With no released job queued: an early job or the best-effort request, as they share.
    pub(super) fn choose_at_rest(&mut self, now: Time, best_effort: Option<Nanos>) -> Choice {
        let early = self.early.first().map(|(_, slot)| slot);
        let both = early.is_some() && best_effort.is_some();
        self.forget_owed(early.is_some(), best_effort.is_some());
        let mut until = [self.next_release(), self.next_farewell(now)]
            .into_iter()
            .flatten()
            .min();
        let best_effort_first = self.owed > 0 || self.options.best_effort_share_percent >= 100;
        if best_effort_first && self.fits(now, best_effort) {
            self.contended = both;
            return Choice::BestEffort;
        }
        if let Some(slot) = early {
            match self.early_fits(now, slot) {
                Ok(()) => {
                    self.contended = both && !best_effort_first;
                    return Choice::Early(self.tasks[slot as usize].id, self.head(slot));
                }
                Err(retry) => until = [until, retry].into_iter().flatten().min(),
            }
        }
        if !best_effort_first && self.fits(now, best_effort) {
            return Choice::BestEffort;
        }
        Choice::Wait { until }
    }

    /// Forgets debts when no early job waits: a debt to early jobs always, a debt to best effort only if no
    /// best-effort request waits either. A client that sends its next request after a reply is absent at
    /// every other choice, and must not lose its debt by that.
    fn forget_owed(&mut self, early: bool, best_effort: bool) {
        if !early && (self.owed < 0 || !best_effort) {
            self.owed = 0;
        }
    }

    /// True if at the last choice no released job was queued, and the best-effort request would have gone if
    /// it took no longer than [`Core::room`].
    #[must_use]
    pub fn held_up(&self) -> bool {
        self.held_up
    }

    /// Longest best-effort request that may start now with no released job queued.
    pub fn room(&mut self, now: Time) -> Nanos {
        let left = |allowance: i64| Nanos(allowance.max(0) as u64);
        match self.options.policy {
            _ if self.options.outstanding > 1 => Nanos::MAX,
            Policy::Exact => self.slack(now),
            Policy::DeltaL if self.leaving > 0 => left(self.allowance.left).min(self.slack(now)),
            Policy::DeltaL => left(self.allowance.left),
            Policy::DeltaLPublished => left(self.allowance.published),
            Policy::Lst => self.until_latest_start(now),
            Policy::Edf => Nanos::MAX,
        }
    }

    /// True if there is a best-effort request and it may go while no released job waits.
    fn fits(&mut self, now: Time, best_effort: Option<Nanos>) -> bool {
        let fits = best_effort.map(|need| self.fits_at_rest(now, need));
        self.held_up = fits == Some(false);
        fits == Some(true)
    }

    /// True if a best-effort request may go before released jobs.
    pub(super) fn may_precede(&mut self, now: Time, need: Nanos, reserve: Nanos) -> bool {
        match self.options.policy {
            // S(t) covers future deadlines only; it would ignore one that has passed.
            Policy::Exact if self.is_late(now) => false,
            Policy::Exact => {
                if self.burst && !self.at_least(now, self.options.burst_threshold) {
                    return false;
                }
                self.burst = false;
                if !reserve.is_zero() {
                    return self.may_precede_leaving(now, need.saturating_add(reserve));
                }
                self.burst = !self.at_least(now, need);
                !self.burst
            }
            Policy::DeltaL => self.is_credited(need) || self.within_delta_l(now, need),
            Policy::DeltaLPublished => {
                self.is_credited(need) || signed(need) <= self.allowance.published_left
            }
            Policy::Lst => need <= self.until_latest_start(now),
            Policy::Edf => false,
        }
    }

    /// True if a best-effort request fits into the difference between the first released job's cost and its
    /// task's C.
    fn is_credited(&mut self, need: Nanos) -> bool {
        let first = self.released.first();
        let spare = first.map(|(_, slot)| {
            let task = &self.tasks[slot as usize];
            let job = task.queue[0];
            let whole = !job.touched;
            let spare = task.params.service().saturating_sub(job.remaining);
            if whole { spare } else { Nanos::ZERO }
        });
        self.credited =
            self.options.gives_over_prediction && spare.is_some_and(|spare| need <= spare);
        self.credited
    }

    /// True if a best-effort request that must leave a reserve may go before released jobs. If it may not, a
    /// burst begins for its kind only: the rest of the slack stays for the others.
    fn may_precede_leaving(&mut self, now: Time, need: Nanos) -> bool {
        if self.reserve_burst && !self.at_least(now, self.options.burst_threshold) {
            return false;
        }
        self.reserve_burst = !self.at_least(now, need);
        !self.reserve_burst
    }

    /// True if a best-effort request may go while no released job waits.
    pub(super) fn fits_at_rest(&mut self, now: Time, need: Nanos) -> bool {
        match self.options.policy {
            _ if self.options.outstanding > 1 => true,
            Policy::Exact => self.at_least(now, need),
            Policy::DeltaL => self.within_delta_l(now, need),
            Policy::DeltaLPublished => signed(need) <= self.allowance.published,
            Policy::Lst => need <= self.until_latest_start(now),
            Policy::Edf => true,
        }
    }

    /// Ok if the early job at the head of `slot` may go; otherwise the time at which to ask again.
    pub(super) fn early_fits(&mut self, now: Time, slot: u32) -> Result<(), Option<Time>> {
        let job = self.tasks[slot as usize].queue[0];
        let cost = job.remaining.saturating_add(self.away);
        let fits = match self.options.policy {
            _ if self.options.outstanding > 1 => true,
            Policy::Exact => {
                return self.early_fits_exactly(now, job.window.deadline, cost);
            }
            Policy::DeltaL => self.within_delta_l(now, cost),
            Policy::DeltaLPublished => signed(job.remaining) <= self.allowance.published,
            Policy::Lst | Policy::Edf => true,
        };
        if fits { Ok(()) } else { Err(None) }
    }

    /// Only deadlines before its own can suffer from an early job. One at distance L from now that
    /// does will still do so until that distance reaches past the job's own deadline.
    pub(super) fn early_fits_exactly(
        &mut self,
        now: Time,
        deadline: Time,
        cost: Nanos,
    ) -> Result<(), Option<Time>> {
        let need = signed(cost);
        if self.bound(now) >= need {
            return Ok(());
        }
        match self.compute(now, deadline.0) {
            Found::Least { value, .. } if value >= need => Ok(()),
            Found::Least { at, .. } => Err(Some(Time(deadline.0 - (at - now.0)))),
            Found::Unknown => Err(None),
        }
    }

    /// Corrected delta-L; exact slack as well while tasks are leaving, when no one dL describes the set.
    pub(super) fn within_delta_l(&mut self, now: Time, need: Nanos) -> bool {
        signed(need) <= self.allowance.left && (self.leaving == 0 || self.at_least(now, need))
    }

    /// Symphony's rule: how long every queued job, released or not, can still wait if only what is
    /// queued now has to be served before it.
    pub(super) fn until_latest_start(&self, now: Time) -> Nanos {
        let jobs = || self.tasks.iter().flat_map(|task| &task.queue);
        let waits = jobs().map(|job| {
            let due = job.window.deadline;
            let before: Nanos = jobs()
                .filter(|other| other.window.deadline <= due)
                .map(|other| other.remaining)
                .sum();
            due.saturating_since(now + before)
        });
        waits.min().unwrap_or(Nanos::MAX)
    }

    pub(super) fn next_release(&self) -> Option<Time> {
        self.releases.first().map(|((release, _), _)| release)
    }
}
