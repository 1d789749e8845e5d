//! Delta-L as published to dispatchers while tasks are planned, join, change and leave, in virtual time.

mod closing;
mod failing;

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use sched::admission::Admission as Set;
use sched::delta_l::{DeltaL, delta_l, delta_l_published};

use super::delta_l::DeltaLUpdate;
use super::*;
use testkit::cases;

/// Blocks whose periods at all rates are whole milliseconds with a common multiple.
const BLOCK: Bytes = Bytes(1_200_000);
const PERIODS_MS: [u64; 6] = [100, 150, 200, 300, 400, 600];

/// One disk and the tasks that hold a share of it, each with its span.
struct BookModel {
    rng: StdRng,
    admission: Admission,
    policy: Policy,
    now: Time,
    tasks: Vec<(StreamTask, Span)>,
    published: Option<DeltaLUpdate>,
}

impl BookModel {
    fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let policy = *Policy::ALL.choose(&mut rng).unwrap();
        Self {
            admission: Admission::new(1, policy),
            policy,
            rng,
            now: Time(1_000_000_000),
            tasks: Vec::new(),
            published: None,
        }
    }

    fn later(&mut self) -> Time {
        self.now + Nanos::from_millis(self.rng.random_range(1..2_000))
    }

    /// A span that starts at the current time or later, with or without an end.
    fn span(&mut self) -> Span {
        let mut span = Span::since(self.now);
        if self.rng.random() {
            span.from = self.later();
        }
        if self.rng.random() {
            span.until = span.from + Nanos::from_millis(self.rng.random_range(1..2_000));
        }
        span
    }

    /// Admits a stream, if it fits.
    fn admit(&mut self, span: Span) {
        let need = Need {
            disk: 0,
            lane: 0,
            service: Nanos::from_millis(self.rng.random_range(1..60)),
            gap: 1,
        };
        let period = PERIODS_MS.choose(&mut self.rng).unwrap();
        let request = StreamRequest {
            name: "some",
            needs: &[need],
            block: BLOCK,
            rate: BytesPerSecond(BLOCK.0 * 1_000 / period),
            span,
        };
        if let Ok(admitted) = self.admission.try_admit(request) {
            let task = admitted[0];
            assert_eq!(task.params.period(), Nanos::from_millis(*period));
            self.tasks.push((task, span));
        }
    }

    /// Removes a task; returns the time from which its share is free.
    fn leave(&mut self, at: usize) -> Time {
        let (task, span) = self.tasks[at];
        // A task that has not begun has used nothing.
        let free_from = if span.from > self.now {
            self.now
        } else {
            self.later()
        };
        self.admission.left(0, task.id, free_from);
        let until = &mut self.tasks[at].1.until;
        *until = free_from.min(*until);
        free_from
    }

    fn act(&mut self) {
        if self.rng.random() {
            self.now = self.later();
        }
        let holds = |(_, span): &(StreamTask, Span)| span.from < span.until;
        let gone = |(_, span): &(StreamTask, Span)| span.until > self.now;
        self.tasks.retain(|task| holds(task) && gone(task));
        let one = self.rng.random_range(0..self.tasks.len().max(1));
        match self.rng.random_range(0..6) {
            0..3 => {
                let span = self.span();
                self.admit(span);
            }
            3 if !self.tasks.is_empty() => {
                self.leave(one);
            }
            4 if !self.tasks.is_empty() => {
                // A change of rate: the new task begins when the old one's share is free.
                let span = self.tasks[one].1;
                let from = self.leave(one).max(span.from);
                if from < span.until {
                    self.admit(Span { from, ..span });
                }
            }
            5 => {
                // A stream that its dispatcher refuses.
                let before = self.tasks.len();
                self.admit(Span::since(self.now));
                if let Some((task, _)) = self.tasks.get(before).copied() {
                    self.published = self
                        .admission
                        .delta_l_update(0, self.now)
                        .or(self.published);
                    self.admission.forget(&[task]);
                    self.tasks.truncate(before);
                }
            }
            _ => self.admission.prune(self.now),
        }
    }

    /// The tasks that hold a share at `at`.
    fn at(&self, at: Time) -> Set {
        let mut set = Set::new();
        for (task, span) in &self.tasks {
            if span.from <= at && at < span.until {
                set.insert(task.id, task.params).unwrap();
            }
        }
        set
    }

    /// The smallest value over all future task sets, evaluated at every time at which a task begins or ends.
    fn least(&self, value: fn(&Set) -> DeltaL) -> Nanos {
        let bounds = self
            .tasks
            .iter()
            .flat_map(|(_, span)| [span.from, span.until]);
        let to_come = bounds.filter(|at| *at > self.now && *at < Time::MAX);
        let instants = to_come.chain([self.now]);
        instants
            .map(|at| value(&self.at(at)).value)
            .min()
            .unwrap_or(Nanos::MAX)
    }

    /// The published value never exceeds the future minimum, and equals it when it is published.
    fn check_published(
        &self,
        published: Nanos,
        least: Nanos,
        is_news: bool,
    ) -> Result<(), TestCaseError> {
        prop_assert!(
            published <= least,
            "{published} > {least} at {:?}",
            self.now
        );
        if is_news {
            prop_assert_eq!(published, least, "no less than need be");
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        let delta_l_update = self.admission.delta_l_update(0, self.now);
        self.published = delta_l_update.or(self.published);
        let DeltaLUpdate {
            corrected,
            published,
        } = self
            .published
            .expect("published at the latest for an empty book");
        self.check_published(corrected, self.least(delta_l), delta_l_update.is_some())?;
        if self.policy == Policy::DeltaLPublished {
            self.check_published(
                published,
                self.least(delta_l_published),
                delta_l_update.is_some(),
            )?;
        } else {
            prop_assert_eq!(published, corrected);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(cases(300))]

    /// Under any sequence of changes, a published value is at most delta-L of every task set until the next
    /// one is published.
    #[test]
    fn published_delta_l_never_exceeds_the_future_minimum(seed: u64) {
        let mut model = BookModel::new(seed);
        model.check()?;
        for _ in 0..60 {
            model.act();
            model.check()?;
        }
    }
}
