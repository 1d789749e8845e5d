//! Tests if a set of tasks can be guaranteed.
//!
//! # Problem and model
//!
//! Tasks (C, T) share a disk that serves one request at a time and cannot be interrupted. Requests of
//! a task are released at least T apart and are due T after their release; they are served in order
//! of deadline.
//!
//! # Test
//!
//! Jeffay, Stanat and Martel 1991, Theorems 4.1 and 4.3: no request is ever late, whatever the
//! releases, if and only if
//!
//! 1. the sum of C_i / T_i is at most 1, and
//! 2. for all 1 < i <= n and T_1 < L < T_i: L >= C_i + sum over j < i of floor((L - 1) / T_j) C_j.
//!
//! A task may be served in pieces ([`TaskParams::in_pieces`]). Then C_i in condition 2 is its longest piece,
//! because others wait for a piece at most; C_j in the sums stays the whole C. That is sufficient
//! (docs/design/scheduling.md, section 2).
//!
//! For undivided requests it is necessary and sufficient. The verdict is exact: utilization is compared in
//! integers, with big ones where 128 bits cannot tell it from 1. How condition 2 is tested without
//! looking at every scheduling point is in [`crate::demand`].
//!
//! Both conditions stay true when a task is taken out, when its service time shrinks and when its
//! period grows, so there is a [smallest period](Admission::smallest_period) for each service time,
//! and a largest rate that would fit.
//!
//! # Deliberately absent
//!
//! Time spans ([`crate::book`]), and anything that is only sufficient.

mod refusal;

use crate::demand::{Demand, End, Group, Low};
use crate::task::{TaskId, TaskParams};
use crate::units::Nanos;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use num_bigint::BigUint;

pub use refusal::{Refusal, RefusedBy};

/// The tasks that a disk has promised to serve, always schedulable.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    tasks: BTreeMap<TaskId, TaskParams>,
    /// Tasks by rising period, each with its longest piece.
    order: Vec<(u64, TaskId, u64)>,
    groups: Vec<Group>,
}

impl Admission {
    /// No tasks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of tasks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// True if there are no tasks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// The tasks, in order of id.
    pub fn tasks(&self) -> impl Iterator<Item = (TaskId, TaskParams)> + '_ {
        self.tasks.iter().map(|(&id, &params)| (id, params))
    }

    /// The sum of C / T, for people; verdicts do not use it.
    #[must_use]
    pub fn utilization(&self) -> f64 {
        self.groups
            .iter()
            .map(|group| group.cost as f64 / group.period as f64)
            .sum()
    }

    pub(crate) fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Tests if the set would be schedulable with this task too. A task of the same id that is in the set
    /// stays in it.
    ///
    /// # Errors
    /// The reason why it is not schedulable.
    pub fn test(&self, id: TaskId, params: TaskParams) -> Result<(), Refusal> {
        let groups = self.groups_with(params);
        let Some(fault) = fault(&groups) else {
            return Ok(());
        };
        let asked = (params.period().0, id, params.longest().0);
        let blocker = |low: &Low| blocker(self.order.iter().copied().chain([asked]), low.interval);
        Err(fault.refusal(id, blocker))
    }

    /// The set of these tasks, if it is schedulable: one test for all of them, where inserting each
    /// would test every part of the set on the way.
    ///
    /// # Errors
    /// Why not. The task at fault is, for utilization, the first in order of id with which the sum is
    /// more than 1.
    pub fn of(tasks: impl Iterator<Item = (TaskId, TaskParams)>) -> Result<Self, Refusal> {
        let set = Self::of_untested(tasks);
        let Some(fault) = fault(&set.groups) else {
            return Ok(set);
        };
        let at_fault = set
            .first_too_many()
            .or(set.tasks.keys().next_back().copied());
        let blocker = |low: &Low| blocker(set.order.iter().copied(), low.interval);
        Err(fault.refusal(at_fault.unwrap_or(TaskId(0)), blocker))
    }

    /// The first task in order of id with which all up to it ask for more than the whole disk.
    fn first_too_many(&self) -> Option<TaskId> {
        let (mut sum, mut count) = (0, 0);
        for (&id, task) in &self.tasks {
            sum += scaled(task.service().0, task.period().0);
            count += 1;
            let is_over = sum > ONE || {
                sum + count > ONE && {
                    let up_to_it = self.tasks.range(..=id).map(|(&id, &task)| (id, task));
                    !fits_whole_disk(&Self::of_untested(up_to_it).groups)
                }
            };
            if is_over {
                return Some(id);
            }
        }
        None
    }

    /// Adds the task if the set stays schedulable.
    ///
    /// # Errors
    /// Why not; the set is then as before.
    ///
    /// # Panics
    /// When a task of that id is in the set.
    pub fn insert(&mut self, id: TaskId, params: TaskParams) -> Result<(), Refusal> {
        self.test(id, params)?;
        self.insert_untested(id, params);
        Ok(())
    }

    /// Adds a task of a set that is known to be schedulable.
    pub(crate) fn insert_untested(&mut self, id: TaskId, params: TaskParams) {
        assert!(
            self.tasks.insert(id, params).is_none(),
            "an id names one task"
        );
        let entry = (params.period().0, id, params.longest().0);
        let place = self.order.partition_point(|&other| other < entry);
        self.order.insert(place, entry);
        add(&mut self.groups, params);
    }

    /// A set that is known to be schedulable.
    pub(crate) fn of_untested(tasks: impl Iterator<Item = (TaskId, TaskParams)>) -> Self {
        let tasks: BTreeMap<TaskId, TaskParams> = tasks.collect();
        let mut order: Vec<_> = tasks
            .iter()
            .map(|(&id, params)| (params.period().0, id, params.longest().0))
            .collect();
        order.sort_unstable();
        let mut groups: Vec<Group> = Vec::new();
        for (period, id, _) in &order {
            let task = tasks[id];
            match groups.last_mut() {
                Some(group) if group.period == *period => group.join(task),
                _ => groups.push(Group::of(task)),
            }
        }
        Self {
            tasks,
            order,
            groups,
        }
    }

    /// Takes a task out; a schedulable set stays schedulable.
    pub fn remove(&mut self, id: TaskId) -> Option<TaskParams> {
        let params = self.tasks.remove(&id)?;
        let (service, period) = (params.service().0, params.period().0);
        self.order.retain(|task| task.1 != id);
        let place = self.groups.partition_point(|group| group.period < period);
        let from = self.order.partition_point(|task| task.0 < period);
        let rest = self.order[from..]
            .iter()
            .take_while(|task| task.0 == period)
            .map(|task| task.2);
        match rest.max() {
            Some(longest) => {
                self.groups[place].cost -= service;
                self.groups[place].longest = longest;
            }
            None => {
                self.groups.remove(place);
            }
        }
        Some(params)
    }

    /// The shortest period with which a task of this service time would be admitted, if there is one:
    /// the largest rate that would fit.
    #[must_use]
    pub fn smallest_period(&self, service: Nanos) -> Option<Nanos> {
        self.smallest_period_in_pieces(service, service)
    }

    /// As [`Admission::smallest_period`], for a task in pieces no longer than `longest`.
    #[must_use]
    pub fn smallest_period_in_pieces(&self, service: Nanos, longest: Nanos) -> Option<Nanos> {
        let fits = |period: u64| {
            let params = TaskParams::new(service, Nanos(period)).ok()?;
            let params = params.in_pieces(longest);
            fault(&self.groups_with(params)).is_none().then_some(())
        };
        // Below C / (1 - U) there is no room; longer periods than the longest are no task's.
        let most = TaskParams::PERIOD_MAX.0;
        let (mut refused, mut admitted) = (service.0.max(1) - 1, most);
        fits(admitted)?;
        let mut guess = service.0.max(1);
        while guess < admitted && fits(guess).is_none() {
            refused = guess;
            guess = guess.saturating_mul(2).min(most);
        }
        admitted = guess;
        while admitted - refused > 1 {
            let middle = refused + (admitted - refused) / 2;
            if fits(middle).is_some() {
                admitted = middle;
            } else {
                refused = middle;
            }
        }
        Some(Nanos(admitted))
    }

    fn groups_with(&self, params: TaskParams) -> Vec<Group> {
        let mut groups = Vec::with_capacity(self.groups.len() + 1);
        groups.extend_from_slice(&self.groups);
        add(&mut groups, params);
        groups
    }
}

fn add(groups: &mut Vec<Group>, params: TaskParams) {
    let period = params.period().0;
    let place = groups.partition_point(|group| group.period < period);
    match groups.get_mut(place) {
        Some(group) if group.period == period => group.join(params),
        _ => groups.insert(place, Group::of(params)),
    }
}

enum Fault {
    Utilization { interval: u64, short_by: u64 },
    Blocking(Low),
}

impl Fault {
    /// The refusal for a caller. `asked` is at fault for utilization; `blocker` finds the task whose request
    /// blocks.
    fn refusal(self, asked: TaskId, blocker: impl FnOnce(&Low) -> Option<TaskId>) -> Refusal {
        match self {
            Self::Utilization { interval, short_by } => Refusal {
                by: RefusedBy::Utilization,
                interval: Nanos(interval),
                short_by: Nanos(short_by),
                task: asked,
            },
            Self::Blocking(low) => Refusal {
                by: RefusedBy::Blocking,
                interval: Nanos(low.interval),
                short_by: Nanos(low.value.unsigned_abs()),
                task: blocker(&low).unwrap_or(asked),
            },
        }
    }
}

/// The task that keeps the disk longest among those, given as (period, id, longest), with a
/// period of at least `interval`.
fn blocker(tasks: impl Iterator<Item = (u64, TaskId, u64)>, interval: u64) -> Option<TaskId> {
    tasks
        .filter(|task| task.0 >= interval)
        .max_by_key(|task| task.2)
        .map(|task| task.1)
}

/// The first condition that the set violates.
fn fault(groups: &[Group]) -> Option<Fault> {
    let longest = groups.last()?.period;
    if !fits_whole_disk(groups) {
        let asked: u128 = groups
            .iter()
            .map(|g| (u128::from(g.cost) * u128::from(longest)).div_ceil(u128::from(g.period)))
            .sum();
        let short_by = asked.saturating_sub(u128::from(longest)).max(1);
        return Some(Fault::Utilization {
            interval: longest,
            short_by: u64::try_from(short_by).unwrap_or(u64::MAX),
        });
    }
    let mut low = Low {
        value: 0,
        interval: 0,
    };
    match Demand::new(groups, u64::MAX).behind_a_blocker(&mut low, true) {
        End::Below => Some(Fault::Blocking(low)),
        End::Complete | End::CutShort => None,
    }
}

/// The whole disk, as sums of [`scaled`] shares have it.
const ONE: u128 = 1 << 64;

/// A share of a disk in units of 2^-64, rounded down.
fn scaled(cost: u64, period: u64) -> u128 {
    (u128::from(cost) << 64) / u128::from(period)
}

/// Condition 1, exactly.
pub(crate) fn fits_whole_disk(groups: &[Group]) -> bool {
    let (mut floor, mut count) = (0u128, 0u128);
    for group in groups {
        floor += scaled(group.cost, group.period);
        count += 1;
    }
    if floor > ONE {
        return false;
    }
    if floor + count <= ONE {
        return true;
    }
    fits_exactly(groups)
}

/// Compares utilization with 1 in big integers, where 64 bits cannot decide.
fn fits_exactly(groups: &[Group]) -> bool {
    let (mut over, mut under) = (BigUint::ZERO, BigUint::from(1u32));
    for group in groups {
        over = over * group.period + &under * group.cost;
        under *= group.period;
    }
    over <= under
}

#[cfg(test)]
mod tests;
