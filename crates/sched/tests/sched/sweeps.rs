//! Streams that are served in sweeps, in virtual time: no request takes longer than it was charged, whatever
//! has moved the arm before it; nobody is late; and who asks once a period has its block within two.

#![allow(clippy::print_stdout)] // a random test says its seed

use std::collections::BTreeMap;
use std::ops::Range;

use crate::common::disk::{request, scheduler};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sched::admission::Admission;
use sched::core::Policy;
use sched::delta_l::delta_l;
use sched::disk::{DiskScheduler, JoinError, SchedulerConfig, SubmitError, TaskKind};
use sched::request::{Class, Decision, Dispatch, Op, RequestId, Served, Urgency};
use sched::task::{TaskId, TaskParams};
use sched::units::{Nanos, Sector, SectorCount, Time};
use testkit::seed;

const SERVER: TaskId = TaskId(100);

/// Streams of one period.
struct Group {
    task: TaskId,
    period: Nanos,
    sectors: u64,
    op: Op,
    members: Vec<Member>,
}

struct Member {
    next: Time,
    /// Asks so many times as often as it may.
    excess: u64,
    /// Blocks asked for and not had yet.
    asked: u64,
}

/// Most blocks that a member asks for ahead.
const AHEAD_MAX: u64 = 8;

/// Task parameters for `members` members with blocks of `count` sectors, anywhere within these.
fn needs(
    disk: &DiskScheduler,
    within: &Range<Sector>,
    members: u64,
    op: Op,
    sectors: u64,
) -> (Nanos, Nanos) {
    let predictor = disk.predictor();
    let count = SectorCount(sectors);
    let (mut each, mut across) = (Nanos(0), 0);
    // The longest requests begin in a range of starts: tracks repeat within a zone.
    for zone in predictor.zone_of(within.start)..=predictor.zone_of(Sector(within.end.get() - 1)) {
        let zone = predictor.zone_range(zone).unwrap();
        // Those that end in the next zone are longer than any within one.
        let from = zone.start.max(within.start).get();
        let until = zone.end.min(within.end).get();
        let starts = (from..until.min(from + 4_000)).chain(until.saturating_sub(4_000)..until);
        for start in starts.filter(|start| (from..=within.end.get() - sectors).contains(start)) {
            each = each.max(predictor.swept(op, Sector(start), count));
            across = across.max(predictor.cylinders_across(Sector(start), count));
        }
    }
    let way = predictor.way_over(within);
    let service =
        Nanos(each.get() * members) + predictor.seeks_of_sweep(within, within, members, across);
    (service, each + way + way)
}

struct Run {
    disk: DiskScheduler,
    within: Range<Sector>,
    groups: Vec<Group>,
    rng: StdRng,
    now: Time,
    next_id: u64,
    /// When it was asked for, and by which member of which group.
    asked: BTreeMap<RequestId, (Time, usize, usize)>,
    flight: Option<(Dispatch, Time)>,
    head: Option<Sector>,
    best_effort: usize,
    longest_wait: f64,
    resumed: u64,
    label: String,
}

impl Run {
    fn new(seed: u64, drive: &str, policy: Policy) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let config = |within| SchedulerConfig {
            policy,
            streams_within: Some(within),
            sweeps: true,
            queue_max: 512,
            ..SchedulerConfig::default()
        };
        let capacity = scheduler(drive, SchedulerConfig::default())
            .predictor()
            .capacity()
            .get();
        let from = rng.random_range(0..capacity / 2);
        let within = Sector(from)..Sector(from + rng.random_range(capacity / 100..capacity / 3));
        let mut disk = scheduler(drive, config(within.clone()));
        let way_back = disk.predictor().way_into(&within, None);
        let mut admission = Admission::new();
        let mut groups = Vec::new();
        if rng.random() {
            let piece_max = disk.piece_max();
            let params =
                TaskParams::new(piece_max + Nanos::from_millis(20), Nanos::from_secs(4)).unwrap();
            let params = params.in_pieces(piece_max);
            admission.insert(SERVER, params).unwrap();
            disk.join(Time(0), SERVER, params, TaskKind::Server, Time(0))
                .unwrap();
        }
        for number in 0..rng.random_range(2..5) {
            let task = TaskId(number);
            let sectors = [256, 512, 1_024][rng.random_range(0..3)];
            let op = if rng.random_ratio(1, 3) {
                Op::Write
            } else {
                Op::Read
            };
            let mut members = rng.random_range(1..9);
            let period = Nanos::from_millis(rng.random_range(5..30) * 100);
            let admitted = loop {
                let (service, longest) = needs(&disk, &within, members, op, sectors);
                let params =
                    TaskParams::new(service, period).map(|params| params.in_pieces(longest));
                let mut with = admission.clone();
                if let Ok(params) = params
                    && with.insert(task, params).is_ok()
                    && delta_l(&with).value >= way_back
                {
                    admission = with;
                    break Some(params);
                }
                members -= 1;
                if members == 0 {
                    break None;
                }
            };
            let Some(params) = admitted else { continue };
            disk.join(Time(0), task, params, TaskKind::Sweep, Time(0))
                .unwrap();
            let members = (0..members)
                .map(|_| Member {
                    next: Time(rng.random_range(0..2_000_000_000)),
                    excess: if rng.random_ratio(1, 4) { 7 } else { 1 },
                    asked: 0,
                })
                .collect();
            groups.push(Group {
                task,
                period,
                sectors,
                op,
                members,
            });
        }
        disk.set_delta_l(
            Time(0),
            delta_l(&admission).value,
            delta_l(&admission).value,
        );
        Self {
            disk,
            within,
            groups,
            rng,
            now: Time(0),
            next_id: 0,
            asked: BTreeMap::new(),
            flight: None,
            head: None,
            best_effort: 0,
            longest_wait: 0.0,
            resumed: 0,
            label: format!("seed {seed}, {drive}, {policy}"),
        }
    }

    fn ask(&mut self) {
        for index in 0..self.groups.len() {
            for member in 0..self.groups[index].members.len() {
                let Group {
                    task,
                    period,
                    sectors,
                    op,
                    ..
                } = self.groups[index];
                let of = &mut self.groups[index].members[member];
                if of.next > self.now || of.asked == AHEAD_MAX {
                    continue;
                }
                of.asked += 1;
                let jitter = if of.excess == 1 {
                    self.rng.random_range(0..period.get() / 3)
                } else {
                    0
                };
                of.next = self.now + Nanos(period.get() / of.excess + jitter);
                let room = self.within.end.get() - self.within.start.get() - sectors;
                let start = self.within.start + SectorCount(self.rng.random_range(0..=room));
                let class = Class::Swept(task, member as u32);
                let request = request(&mut self.next_id, class, op, start, sectors);
                if let Err(error) = self.disk.submit(self.now, request) {
                    panic!("{}: {error}", self.label);
                }
                self.asked.insert(request.id, (self.now, index, member));
            }
        }
        if self.best_effort < 30 && self.rng.random_ratio(2, 3) {
            let capacity = self.disk.predictor().capacity().get();
            let count = self.rng.random_range(1..128);
            let start = Sector(self.rng.random_range(0..capacity - count));
            let op = if self.rng.random() {
                Op::Read
            } else {
                Op::Write
            };
            let urgency = if self.rng.random() {
                Urgency::Sync
            } else {
                Urgency::Async
            };
            let reserved = self.rng.random_ratio(1, 4);
            let class = if reserved {
                Class::Reserved(SERVER, urgency)
            } else {
                Class::BestEffort(urgency)
            };
            let request = request(&mut self.next_id, class, op, start, count);
            if self.disk.submit(self.now, request).is_ok() {
                self.best_effort += 1;
            }
        }
    }

    /// The longest that it takes from where the head really is.
    fn takes(&self, dispatch: &Dispatch) -> Nanos {
        let Dispatch {
            op, start, count, ..
        } = *dispatch;
        let predictor = self.disk.predictor();
        if dispatch.served != Served::RealTime {
            return predictor.predict(self.head, op, start, count);
        }
        match self.head {
            Some(head) => {
                let between = head.min(start)..Sector(head.max(start).get() + 1);
                predictor.worst_within(&between, op, start, count)
            }
            None => dispatch.predicted,
        }
    }

    fn step(&mut self) {
        self.ask();
        if let Some((dispatch, until)) = self.flight
            && until <= self.now
        {
            self.flight = None;
            self.head = Some(dispatch.last());
            let done = self.disk.completed(self.now, dispatch.id).unwrap();
            assert_eq!(done.lateness, Nanos(0), "{}: {dispatch:?}", self.label);
            match self.asked.remove(&dispatch.id) {
                Some((asked, group, member)) => {
                    let period = self.groups[group].period;
                    let of = &mut self.groups[group].members[member];
                    of.asked -= 1;
                    if of.excess == 1 {
                        let wait = (self.now - asked).get() as f64 / period.get() as f64;
                        self.longest_wait = self.longest_wait.max(wait);
                    }
                }
                None => self.best_effort -= usize::from(done.finished),
            }
        }
        let mut wake = self.now + Nanos::from_millis(40);
        if self.flight.is_none() {
            match self.disk.decide(self.now) {
                Decision::Issue(dispatch) => {
                    let takes = self.takes(&dispatch);
                    assert!(
                        takes <= dispatch.predicted + Nanos(1),
                        "{}: {dispatch:?} takes {takes}",
                        self.label
                    );
                    self.resumed += u64::from(takes + Nanos::from_millis(1) < dispatch.predicted);
                    let part = if self.rng.random() {
                        100
                    } else {
                        self.rng.random_range(30..=100)
                    };
                    self.flight = Some((dispatch, self.now + Nanos(takes.get() * part / 100)));
                }
                Decision::Wait { until } => wake = wake.min(until.unwrap_or(wake)),
            }
        }
        let next = self
            .groups
            .iter()
            .flat_map(|group| &group.members)
            .filter(|member| member.asked < AHEAD_MAX)
            .map(|member| member.next);
        let next = next.chain(self.flight.map(|(_, until)| until));
        self.now = next.fold(wake, Time::min).max(self.now + Nanos(1));
    }
}

#[test]
fn nobody_is_late_and_who_keeps_to_its_rate_waits_for_two_periods_at_most() {
    let base = seed("sweeps", Some(1));
    let (mut asked, mut members, mut longest) = (0, 0, 0.0f64);
    for seed in base..base + 40 {
        let drive = ["quantum-atlas-ii", "hdd-8tb-7200"][seed as usize % 2];
        let policy = [Policy::Exact, Policy::DeltaL][seed as usize / 2 % 2];
        let mut run = Run::new(seed, drive, policy);
        for _ in 0..15_000 {
            run.step();
        }
        members += run
            .groups
            .iter()
            .map(|group| group.members.len())
            .sum::<usize>();
        let report = run.disk.report(run.now);
        assert_eq!((report.missed, report.overruns), (0, 0), "{}", run.label);
        asked += report
            .tasks
            .iter()
            .filter(|task| task.kind == TaskKind::Sweep)
            .map(|task| task.completed)
            .sum::<u64>();
        assert!(
            run.longest_wait <= 2.0,
            "{}: {} periods",
            run.label,
            run.longest_wait
        );
        longest = longest.max(run.longest_wait);
        // A leaving member is served first, and its share is free then.
        run.groups
            .iter_mut()
            .flat_map(|group| &mut group.members)
            .for_each(|member| member.next = Time::MAX);
        let tasks: Vec<TaskId> = run.groups.iter().map(|group| group.task).collect();
        let free = tasks
            .iter()
            .map(|task| run.disk.leave(run.now, *task).unwrap())
            .max();
        let refused = request(
            &mut run.next_id,
            Class::Swept(tasks[0], 0),
            Op::Read,
            run.within.start,
            8,
        );
        assert_eq!(
            run.disk.submit(run.now, refused),
            Err(SubmitError::NoSuchTask(tasks[0]))
        );
        let until = free.unwrap();
        while !run.asked.is_empty() {
            assert!(
                run.now <= until,
                "{}: {} left at {:?}",
                run.label,
                run.asked.len(),
                run.now
            );
            run.step();
        }
        let report = run.disk.report(run.now);
        assert_eq!(report.missed, 0, "{}", run.label);
        assert!(
            report
                .tasks
                .iter()
                .all(|task| task.kind == TaskKind::Server),
            "{}: {:?}",
            run.label,
            report.tasks
        );
    }
    println!("{asked} blocks of {members} members; the longest wait was {longest:.3} periods");
    assert!(
        asked > 20_000 && longest > 1.5,
        "{asked} blocks, {longest} periods"
    );
}

#[test]
fn a_disk_serves_all_streams_in_sweeps_or_none() {
    let params = |ms| TaskParams::new(Nanos::from_millis(ms), Nanos::from_millis(1_000)).unwrap();
    for (sweeps, kind) in [(true, TaskKind::Stream), (false, TaskKind::Sweep)] {
        let mut disk = scheduler(
            "quantum-atlas-ii",
            SchedulerConfig {
                sweeps,
                ..SchedulerConfig::default()
            },
        );
        let joined = disk.join(Time(0), TaskId(1), params(200), kind, Time(0));
        let refused = JoinError::NotSoServed {
            task: TaskId(1),
            kind,
            sweeps,
        };
        assert_eq!(joined, Err(refused));
        println!("{refused}");
    }
    // A drive that is given several requests at a time chooses its own way.
    let config = SchedulerConfig {
        sweeps: true,
        ..SchedulerConfig::default()
    };
    let mut disk = scheduler("conservative-solid-state", config);
    if disk.profile().outstanding() > 1 {
        assert!(
            disk.join(Time(0), TaskId(1), params(200), TaskKind::Sweep, Time(0))
                .is_err()
        );
    }
}

#[test]
fn unadmitted_request_is_not_taken_into_a_sweep() {
    let config = SchedulerConfig {
        sweeps: true,
        streams_within: Some(Sector(0)..Sector(100_000)),
        ..SchedulerConfig::default()
    };
    let mut disk = scheduler("quantum-atlas-ii", config);
    let within = Sector(0)..Sector(100_000);
    let (service, longest) = needs(&disk, &within, 2, Op::Read, 512);
    let task = TaskId(1);
    let params = TaskParams::new(service, Nanos::from_secs(1))
        .unwrap()
        .in_pieces(longest);
    disk.join(Time(0), task, params, TaskKind::Sweep, Time(0))
        .unwrap();
    let mut id = 0;
    let mut ask = |disk: &mut DiskScheduler, class, start, count| {
        let request = request(&mut id, class, Op::Read, Sector(start), count);
        disk.submit(Time(0), request).map(|()| request.id)
    };
    let longer = ask(&mut disk, Class::Swept(task, 0), 0, 1_024);
    assert!(
        matches!(longer, Err(SubmitError::LongerThanReserved { .. })),
        "{longer:?}"
    );
    let outside = ask(&mut disk, Class::Swept(task, 0), 99_900, 512);
    assert!(
        matches!(outside, Err(SubmitError::OutsideOfStreams { .. })),
        "{outside:?}"
    );
    let other = ask(&mut disk, Class::Stream(task), 0, 512);
    assert!(
        matches!(other, Err(SubmitError::WrongKind { .. })),
        "{other:?}"
    );
    // Three members where two were admitted: the third waits for the next sweep, a period later.
    let asked: Vec<RequestId> = (0..3)
        .map(|member| {
            ask(
                &mut disk,
                Class::Swept(task, member),
                u64::from(2 - member) * 30_000,
                512,
            )
            .unwrap()
        })
        .collect();
    let mut order = Vec::new();
    let mut now = Time(0);
    while !disk.is_empty() {
        match disk.decide(now) {
            Decision::Issue(dispatch) => {
                order.push((dispatch.id, dispatch.deadline.unwrap()));
                // A planned sweep stays as it is.
                assert!(
                    asked
                        .iter()
                        .all(|id| disk.deadline(*id).is_none() || !disk.cancel(now, *id))
                );
                now += dispatch.predicted;
                assert_eq!(disk.completed(now, dispatch.id).unwrap().lateness, Nanos(0));
            }
            Decision::Wait { until } => now = until.unwrap(),
        }
    }
    let [first, second] = [1, 2].map(Nanos::from_secs).map(|after| Time(0) + after);
    assert_eq!(
        order,
        [(asked[1], first), (asked[0], first), (asked[2], second)]
    );
}

/// Twelve members ask at once where one was admitted, so each job serves one of them.
#[test]
fn a_share_is_free_when_all_have_been_served_who_asked_for_more_than_was_admitted() {
    let within = Sector(0)..Sector(100_000);
    let config = SchedulerConfig {
        sweeps: true,
        streams_within: Some(within.clone()),
        ..SchedulerConfig::default()
    };
    let (period, members) = (Nanos::from_secs(1), 12);
    for places in [1, 2, 5, 12] {
        let mut disk = scheduler("quantum-atlas-ii", config.clone());
        let (service, longest) = needs(&disk, &within, places, Op::Read, 512);
        let params = TaskParams::new(service, period).unwrap();
        let (task, params) = (TaskId(1), params.in_pieces(longest));
        disk.join(Time(0), task, params, TaskKind::Sweep, Time(0))
            .unwrap();
        let mut id = 0;
        for member in 0..members {
            let (class, start) = (Class::Swept(task, member), u64::from(member) * 8_000);
            let request = request(&mut id, class, Op::Read, Sector(start), 512);
            disk.submit(Time(0), request).unwrap();
        }
        let free = disk.leave(Time(0), task).unwrap();
        let (mut now, mut last_due) = (Time(0), Time(0));
        while !disk.is_empty() {
            match disk.decide(now) {
                Decision::Issue(dispatch) => {
                    last_due = dispatch.deadline.unwrap();
                    now += dispatch.predicted;
                    assert_eq!(disk.completed(now, dispatch.id).unwrap().lateness, Nanos(0));
                }
                Decision::Wait { until } => now = until.unwrap(),
            }
        }
        println!("{places} places: free from {free:?}, served until {now:?}");
        let jobs = u64::from(members).div_ceil(places);
        assert_eq!(
            free,
            Time(0) + Nanos(period.get() * jobs),
            "{places} places"
        );
        assert!(now <= last_due && last_due <= free, "{places} places");
    }
}
