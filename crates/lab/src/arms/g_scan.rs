//! G-SCAN: candidate schedules of mixed loads.

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
/// * A candidate is given up as soon as its beginning shows that it is cut off. So no length of the queue needs a limit:
///   groups are limited by the cylinders, and real-time requests by the buffers of streams.
/// * Nothing prevents that best effort waits for ever.
#[derive(Debug)]
pub struct GScan<S, T> {
    /// The time of a seek over a number of cylinders.
    pub seek: S,
    /// The time of a request without its seek.
    pub service: T,
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
    services: Nanos,
    requests: Vec<Place>,
}

/// A request of a unit.
#[derive(Clone, Copy, Debug)]
struct Place {
    number: u64,
    cylinder: u32,
    service: Nanos,
}

#[derive(Clone, Default, Debug)]
struct Plan {
    units: Vec<Unit>,
    /// The services of all units.
    services: Nanos,
    /// The last arrival that is planned.
    last: Option<(Time, u64)>,
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

/// The beginning of a schedule.
#[derive(Clone, Copy)]
struct Way {
    arm: u32,
    late: u64,
    seeks: Nanos,
    services: Nanos,
}

/// The best candidates so far, the best first.
struct Best {
    most: usize,
    surplus_percent: u64,
    kept: Vec<(Worth, Vec<u64>)>,
}

impl Best {
    /// True if no candidate of this worth or more is kept.
    fn cuts(&self, worth: Worth) -> bool {
        let is_inefficient = self.kept.first().is_some_and(|(best, _)| {
            let most = best.time.get() * (100 + self.surplus_percent) / 100;
            worth.late > best.late || (worth.late == best.late && worth.time.get() > most)
        });
        let last = self.kept.get(self.most - 1);
        is_inefficient || last.is_some_and(|(last, _)| worth > *last)
    }

    fn add(&mut self, candidate: (Worth, Vec<u64>)) {
        let place = self.kept.partition_point(|kept| *kept < candidate);
        self.kept.insert(place, candidate);
        self.kept.truncate(self.most);
    }

    fn into_schedules(mut self) -> Vec<Vec<u64>> {
        let kept = std::mem::take(&mut self.kept);
        for candidate in kept {
            if !self.cuts(candidate.0) {
                self.kept.push(candidate);
            }
        }
        self.kept
            .into_iter()
            .map(|(_, schedule)| schedule)
            .collect()
    }
}

impl<S, T> GScan<S, T>
where
    S: Fn(u32) -> Nanos + Send,
    T: Fn(&ArmRequest) -> Nanos + Send,
{
    /// The rule with 16 candidates, groups of a hundredth of the cylinders, and a surplus of a fifth.
    pub fn new(seek: S, service: T, cylinders: u32) -> Self {
        Self {
            seek,
            service,
            span: cylinders / 100,
            candidates: NonZeroUsize::new(16).unwrap_or(NonZeroUsize::MIN),
            surplus_percent: 20,
            plan: Plan::default(),
        }
    }

    fn best(&self) -> Best {
        Best {
            most: self.candidates.get(),
            surplus_percent: self.surplus_percent,
            kept: Vec::new(),
        }
    }

    /// Adds an arrival to all candidates.
    fn expand(&mut self, now: Time, arm: u32, request: &ArmRequest) {
        let id = self.plan.join(request, (self.service)(request), self.span);
        let mut bases: Vec<Vec<u64>> = Vec::new();
        for mut base in std::mem::take(&mut self.plan.schedules) {
            base.retain(|unit| *unit != id);
            if !bases.contains(&base) {
                bases.push(base);
            }
        }
        if bases.is_empty() {
            bases.push(Vec::new());
        }
        let mut best = self.best();
        for base in &bases {
            self.insert(now, arm, base, id, &mut best);
        }
        self.plan.schedules = best.into_schedules();
    }

    /// Puts a unit at each place of a schedule.
    fn insert(&self, now: Time, arm: u32, base: &[u64], id: u64, best: &mut Best) {
        let Some(unit) = self.plan.unit(id) else {
            return;
        };
        let units: Vec<&Unit> = base.iter().filter_map(|id| self.plan.unit(*id)).collect();
        let mut before = Way::from(arm);
        for at in 0..=units.len() {
            let mut way = before;
            let mut after = std::iter::once(&unit).chain(&units[at..]);
            if after.all(|unit| self.goes_on(now, &mut way, unit, best)) {
                let mut schedule = base.to_vec();
                schedule.insert(at, id);
                best.add((self.worth(&way), schedule));
            }
            if !units
                .get(at)
                .is_some_and(|next| self.goes_on(now, &mut before, next, best))
            {
                break;
            }
        }
    }

    /// Assesses the candidates, and cuts off those that are not worth keeping.
    fn cut(&mut self, now: Time, arm: u32) {
        let mut best = self.best();
        for schedule in std::mem::take(&mut self.plan.schedules) {
            let mut way = Way::from(arm);
            let mut units = schedule.iter().filter_map(|id| self.plan.unit(*id));
            if units.all(|unit| self.goes_on(now, &mut way, unit, &best)) {
                best.add((self.worth(&way), schedule));
            }
        }
        self.plan.schedules = best.into_schedules();
    }

    /// Serves one more unit. False if the schedule is then cut off, whatever comes after.
    fn goes_on(&self, now: Time, way: &mut Way, unit: &Unit, best: &Best) -> bool {
        let (near, far) = unit.ends(way.arm);
        way.seeks += (self.seek)(way.arm.abs_diff(near)) + (self.seek)(near.abs_diff(far));
        way.services += unit.services;
        way.arm = far;
        let end = now.saturating_add(way.seeks + way.services);
        way.late += u64::from(end > unit.deadline);
        !best.cuts(self.worth(way))
    }

    /// The worth of a schedule, or the best that one with this beginning may have: all units are served in each.
    fn worth(&self, way: &Way) -> Worth {
        Worth {
            late: way.late,
            time: way.seeks + self.plan.services,
        }
    }
}

impl Way {
    fn from(arm: u32) -> Self {
        Self {
            arm,
            late: 0,
            seeks: Nanos::ZERO,
            services: Nanos::ZERO,
        }
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
    fn join(&mut self, request: &ArmRequest, service: Nanos, span: u32) -> u64 {
        let cylinder = request.cylinder;
        let has_room = |unit: &&mut Unit| {
            unit.deadline == Time::MAX
                && request.deadline == Time::MAX
                && unit.high.max(cylinder) - unit.low.min(cylinder) <= span
        };
        let place = Place {
            number: request.number,
            cylinder,
            service,
        };
        self.services += service;
        if let Some(unit) = self.units.iter_mut().find(has_room) {
            unit.low = unit.low.min(cylinder);
            unit.high = unit.high.max(cylinder);
            unit.services += service;
            unit.requests.push(place);
            return unit.id;
        }
        self.next_id += 1;
        self.units.push(Unit {
            id: self.next_id,
            low: cylinder,
            high: cylinder,
            deadline: request.deadline,
            services: service,
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
        let next = of_unit.min_by_key(|&next| unit.requests[next].cylinder.abs_diff(near))?;
        let Place {
            number, service, ..
        } = unit.requests.remove(next);
        self.services = self.services.saturating_sub(service);
        unit.services = unit.services.saturating_sub(service);
        let cylinders = || unit.requests.iter().map(|place| place.cylinder);
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

impl<S, T> ArmScheduler for GScan<S, T>
where
    S: Fn(u32) -> Nanos + Send,
    T: Fn(&ArmRequest) -> Nanos + Send,
{
    fn choose(&mut self, now: Time, arm: u32, queue: &[ArmRequest]) -> usize {
        let key = |request: &ArmRequest| (request.arrived, request.number);
        let mut new: Vec<_> = queue
            .iter()
            .filter(|request| self.plan.last.is_none_or(|last| key(request) > last))
            .collect();
        new.sort_by_key(|request| key(request));
        for request in new {
            self.plan.last = Some(key(request));
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
