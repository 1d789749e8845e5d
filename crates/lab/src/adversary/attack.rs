//! Patterns of asking that are built to hurt.
//!
//! | pattern | jobs are released |
//! |---|---|
//! | synchronous | all at once, and then as often as they may |
//! | after a blocker | just after a best-effort request has got the idle disk, and then as often as they may until nothing is queued |
//! | in flight | while best-effort requests are on the disk, just after each has begun |
//! | at replenishment | while the last queued job is on the disk, just after it has begun |
//! | mixed | by one of these rules or none, drawn each time for each task |
//!
//! Best-effort requests are as long as the scheduler accepts, and now and then shorter.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use sched::policy::Policy;

use super::play::{Game, Given, TaskSet};
use crate::dice::Dice;

/// A way of asking.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Pattern {
    Synchronous,
    AfterBlocker,
    InFlight,
    Replenishment,
    Mixed,
}

impl Pattern {
    pub(super) const ALL: [Self; 5] = [
        Self::Synchronous,
        Self::AfterBlocker,
        Self::InFlight,
        Self::Replenishment,
        Self::Mixed,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Synchronous => "synchronous",
            Self::AfterBlocker => "after a blocker",
            Self::InFlight => "in flight",
            Self::Replenishment => "at replenishment",
            Self::Mixed => "mixed",
        }
    }
}

/// Length of a game, in the longest periods of its tasks.
const PERIODS: u64 = 12;
/// Percentage of best-effort requests that are shorter than the longest accepted one.
const SHORTER_PERCENT: u64 = 10;
/// Percentage of moments with waiting jobs at which the largest number of requests goes before them.
const BEFORE_PERCENT: u64 = 40;

/// A game's next releases.
pub(super) struct Attack<'a> {
    pub(super) game: Game<'a>,
    pattern: Pattern,
    dice: Dice,
    /// By task: when it is going to release a job.
    planned: Vec<Option<u64>>,
    /// True if tasks release as often as they may until nothing is queued.
    rushes: bool,
    /// The longest period, which is also the longest best-effort request.
    longest: u64,
    /// The shortest best-effort request.
    least: u64,
}

/// Plays a set against a scheduler in a pattern; the game, if a job was late in it.
pub(super) fn attack<'a>(
    set: &'a TaskSet,
    policy: Policy,
    pattern: Pattern,
    seed: u64,
) -> Option<Game<'a>> {
    let mut attack = Attack::new(set, policy, pattern, 1, seed);
    attack.play();
    attack.game.late.is_some().then_some(attack.game)
}

impl<'a> Attack<'a> {
    /// Best-effort requests are not shorter than `least`.
    pub(super) fn new(
        set: &'a TaskSet,
        policy: Policy,
        pattern: Pattern,
        least: u64,
        seed: u64,
    ) -> Self {
        let longest = set.tasks.iter().map(|task| task.period).max().unwrap_or(1);
        let mut attack = Self {
            game: Game::new(set, policy, false),
            pattern,
            dice: Dice(Xoshiro256PlusPlus::seed_from_u64(seed)),
            planned: vec![None; set.tasks.len()],
            rushes: false,
            longest,
            least,
        };
        if pattern == Pattern::Synchronous {
            attack.rush(0);
        }
        attack
    }

    /// The end of the game.
    pub(super) fn end(&self) -> u64 {
        PERIODS * self.longest
    }

    fn play(&mut self) {
        while self.game.now < self.end() && self.game.late.is_none() {
            let Some(next) = self.act() else {
                return;
            };
            self.game.advance(next);
        }
    }

    /// Does all that is to be done now. Returns when something is to be done next.
    pub(super) fn act(&mut self) -> Option<u64> {
        let now = self.game.now;
        for task in 0..self.planned.len() {
            if self.planned[task].is_some_and(|at| at <= now) {
                self.planned[task] = None;
                self.game.release(task);
                if self.rushes {
                    self.plan(task, now);
                }
            }
        }
        let mut until = None;
        if self.game.busy_until().is_none() {
            until = self.decide();
        }
        let planned = self.planned.iter().copied().flatten().min();
        let next = [self.game.busy_until(), until, planned];
        let next = next.into_iter().flatten().filter(|at| *at > now).min();
        next.or_else(|| self.begin_again())
    }

    /// Nothing is on its way: somebody has to ask.
    fn begin_again(&mut self) -> Option<u64> {
        let at = self.game.now + 1;
        self.rush(at);
        self.planned.iter().copied().flatten().min()
    }

    fn plan(&mut self, task: usize, from: u64) {
        let at = self.game.earliest[task].max(from);
        self.planned[task].get_or_insert(at);
    }

    fn rush(&mut self, from: u64) {
        self.rushes = true;
        (0..self.planned.len()).for_each(|task| self.plan(task, from));
    }

    /// Plans a release of each task that may within the service that has just begun.
    fn within(&mut self, until: u64, is_mixed: bool) {
        let from = self.game.now + 1;
        for task in 0..self.planned.len() {
            if is_mixed && self.dice.below(2) == 0 {
                continue;
            }
            if self.game.earliest[task].max(from) < until.max(from + 1) {
                self.plan(task, from);
            }
        }
    }

    fn offer(&mut self) -> Option<u64> {
        let is_idle = self.game.waiting() == 0;
        if !is_idle && self.dice.below(100) >= BEFORE_PERCENT {
            return None;
        }
        let longest = self.game.longest(self.longest);
        if longest < self.least {
            return None;
        }
        let is_shorter = self.dice.below(100) < SHORTER_PERCENT;
        Some(if is_shorter {
            self.least + self.dice.below(longest + 1 - self.least)
        } else {
            longest
        })
    }

    fn decide(&mut self) -> Option<u64> {
        let offered = self.offer();
        let was_idle = self.game.waiting() == 0;
        let pattern = self.pattern;
        let is_mixed = pattern == Pattern::Mixed;
        match self.game.decide(offered) {
            Given::BestEffort { until } => {
                match pattern {
                    Pattern::AfterBlocker if was_idle => self.rush(self.game.now + 1),
                    Pattern::Mixed if was_idle && self.dice.below(4) == 0 => {
                        self.rush(self.game.now + 1);
                    }
                    Pattern::InFlight | Pattern::Mixed => self.within(until, is_mixed),
                    _ => {}
                }
                None
            }
            Given::Job { until, is_last } => {
                if is_last && pattern != Pattern::Synchronous {
                    self.rushes = false;
                    self.planned.fill(None);
                }
                if is_last && matches!(pattern, Pattern::Replenishment | Pattern::Mixed) {
                    self.within(until, is_mixed);
                }
                None
            }
            Given::Nothing { until } => until,
        }
    }
}
