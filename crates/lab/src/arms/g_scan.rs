//! G-SCAN: candidate schedules of mixed loads.

use std::collections::HashSet;
use std::num::NonZeroUsize;

use sched::units::{Nanos, Time};

use super::{ArmRequest, ArmScheduler};

/// G-SCAN of Kim, Bahn and Won (The Scientific World Journal 2014, 940850).
///
/// Requests with the deadline [`Time::MAX`] are best effort, all others are real-time requests.
///
/// # Defined by the paper's abstract
///
/// * The rule keeps candidate schedules, and expands them when a request arrives.
/// * Adjacent best-effort requests form a group, which is scheduled as one.
/// * Candidates that are inefficient or impractical are cut off (branch and bound).
/// * Deadlines are to be met, and seeks to be short.
///
/// # Assumed here
///
/// The text of the algorithm was not available.
///
/// * An arrival is put at each place of each candidate; a group that it joins, likewise.
/// * A best-effort request joins the first group that then spans no more than [`GScan::span`] cylinders. A group is
///   served from its end that is nearer to the arm.
/// * Impractical: more real-time requests are late than in another candidate, by the estimates.
/// * Inefficient: the whole schedule takes longer than the shortest by more than [`GScan::surplus_percent`], or
///   [`GScan::candidates`] candidates are better.
/// * The candidates are assessed again at each decision. The next request is the first of the best candidate.
/// * Nothing prevents that best effort waits for ever.
#[derive(Debug)]
pub struct GScan<S> {
    /// The time of a seek over a number of cylinders.
    pub seek: S,
    /// The time of a real-time request without its seek.
    pub real_time: Nanos,
    /// The time of a best-effort request without its seek.
    pub best_effort: Nanos,
    /// The most cylinders from one end of a group to the other.
    pub span: u32,
    /// The most candidates.
    pub candidates: NonZeroUsize,
    /// A candidate may take longer than the shortest by so much.
    pub surplus_percent: u64,
    plan: Plan,
}

/// Requests that are scheduled as one.
#[derive(Clone, Debug)]
struct Unit {
    id: u64,
    low: u32,
    high: u32,
    deadline: Time,
    /// Numbers and cylinders.
    requests: Vec<(u64, u32)>,
}

#[derive(Clone, Default, Debug)]
struct Plan {
    units: Vec<Unit>,
    known: HashSet<u64>,
    next_id: u64,
    /// Candidates, the best first. Each has all units.
    schedules: Vec<Vec<u64>>,
}

/// The worth of a candidate; the least is the best.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Worth {
    late: u64,
    time: Nanos,
}

impl<S: Fn(u32) -> Nanos + Send> GScan<S> {
    /// The rule with 16 candidates, groups of a hundredth of the cylinders, and a surplus of a fifth.
    pub fn new(seek: S, cylinders: u32, real_time: Nanos, best_effort: Nanos) -> Self {
        Self {
            seek,
            real_time,
            best_effort,
            span: cylinders / 100,
            candidates: NonZeroUsize::new(16).unwrap_or(NonZeroUsize::MIN),
            surplus_percent: 20,
            plan: Plan::default(),
        }
    }

    /// Adds an arrival to all candidates.
    fn expand(&mut self, now: Time, arm: u32, request: &ArmRequest) {
        let id = self.plan.join(request, self.span);
        let without = |schedule: &Vec<u64>| {
            let mut without = schedule.clone();
            without.retain(|unit| *unit != id);
            without
        };
        let mut bases: Vec<_> = self.plan.schedules.iter().map(without).collect();
        bases.sort();
        bases.dedup();
        if bases.is_empty() {
            bases.push(Vec::new());
        }
        let with = |base: Vec<u64>| {
            (0..=base.len()).map(move |at| {
                let mut with = base.clone();
                with.insert(at, id);
                with
            })
        };
        self.plan.schedules = bases.into_iter().flat_map(with).collect();
        self.cut(now, arm);
    }

    /// Assesses the candidates, and cuts off those that are not worth keeping.
    fn cut(&mut self, now: Time, arm: u32) {
        let schedules = std::mem::take(&mut self.plan.schedules);
        let worth = schedules
            .iter()
            .map(|schedule| self.worth(now, arm, schedule));
        let mut all: Vec<(Worth, Vec<u64>)> = worth
            .collect::<Vec<_>>()
            .into_iter()
            .zip(schedules)
            .collect();
        all.sort();
        if let Some(best) = all.first().map(|(worth, _)| *worth) {
            let most = Nanos(best.time.get() * (100 + self.surplus_percent) / 100);
            all.retain(|(worth, _)| worth.late == best.late && worth.time <= most);
        }
        all.truncate(self.candidates.get());
        self.plan.schedules = all.into_iter().map(|(_, schedule)| schedule).collect();
    }

    fn worth(&self, now: Time, mut arm: u32, schedule: &[u64]) -> Worth {
        let mut worth = Worth {
            late: 0,
            time: Nanos::ZERO,
        };
        for id in schedule {
            let Some(unit) = self.plan.unit(*id) else {
                continue;
            };
            let (near, far) = unit.ends(arm);
            let each = if unit.deadline == Time::MAX {
                self.best_effort
            } else {
                self.real_time
            };
            worth.time += (self.seek)(arm.abs_diff(near)) + (self.seek)(near.abs_diff(far));
            worth.time += each * unit.requests.len() as u64;
            worth.late += u64::from(now.saturating_add(worth.time) > unit.deadline);
            arm = far;
        }
        worth
    }
}

impl Unit {
    /// The end nearer to the arm, and the other.
    fn ends(&self, arm: u32) -> (u32, u32) {
        if arm.abs_diff(self.low) <= arm.abs_diff(self.high) {
            (self.low, self.high)
        } else {
            (self.high, self.low)
        }
    }
}

impl Plan {
    /// Units are made in order of their ids.
    fn unit(&self, id: u64) -> Option<&Unit> {
        let place = self.units.binary_search_by_key(&id, |unit| unit.id).ok()?;
        Some(&self.units[place])
    }

    /// Adds a request to a group, or as a unit of its own. The unit that it is in.
    fn join(&mut self, request: &ArmRequest, span: u32) -> u64 {
        let cylinder = request.cylinder;
        let has_room = |unit: &&mut Unit| {
            unit.deadline == Time::MAX
                && request.deadline == Time::MAX
                && unit.high.max(cylinder) - unit.low.min(cylinder) <= span
        };
        let place = (request.number, cylinder);
        if let Some(unit) = self.units.iter_mut().find(has_room) {
            unit.low = unit.low.min(cylinder);
            unit.high = unit.high.max(cylinder);
            unit.requests.push(place);
            return unit.id;
        }
        self.next_id += 1;
        self.units.push(Unit {
            id: self.next_id,
            low: cylinder,
            high: cylinder,
            deadline: request.deadline,
            requests: vec![place],
        });
        self.next_id
    }

    /// Takes the first request of the best candidate out of the plan.
    fn take_first(&mut self, arm: u32) -> Option<u64> {
        let id = *self.schedules.first()?.first()?;
        let place = self.units.binary_search_by_key(&id, |unit| unit.id).ok()?;
        let unit = &mut self.units[place];
        let (near, _) = unit.ends(arm);
        let of_unit = 0..unit.requests.len();
        let next = of_unit.min_by_key(|&next| unit.requests[next].1.abs_diff(near))?;
        let (number, _) = unit.requests.remove(next);
        self.known.remove(&number);
        let cylinders = || unit.requests.iter().map(|(_, cylinder)| *cylinder);
        match (cylinders().min(), cylinders().max()) {
            (Some(low), Some(high)) => (unit.low, unit.high) = (low, high),
            _ => {
                self.units.remove(place);
                for schedule in &mut self.schedules {
                    schedule.retain(|unit| *unit != id);
                }
                self.schedules.retain(|schedule| !schedule.is_empty());
            }
        }
        Some(number)
    }
}

impl<S: Fn(u32) -> Nanos + Send> ArmScheduler for GScan<S> {
    fn choose(&mut self, now: Time, arm: u32, queue: &[ArmRequest]) -> usize {
        let mut new: Vec<_> = queue
            .iter()
            .filter(|request| !self.plan.known.contains(&request.number))
            .copied()
            .collect();
        new.sort_by_key(|request| (request.arrived, request.number));
        for request in &new {
            self.plan.known.insert(request.number);
            self.expand(now, arm, request);
        }
        self.cut(now, arm);
        let number = self.plan.take_first(arm);
        let place = queue
            .iter()
            .position(|request| Some(request.number) == number);
        place.unwrap_or(0)
    }
}
