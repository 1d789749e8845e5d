//! Attribution of misses to host and scheduler, in virtual time: a disk with a service time of one millisecond
//! per sector, and a host that pauses at times set by the test.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use sched::admission::Admission;
use sched::core::Policy;
use sched::delta_l::{delta_l, delta_l_published};
use sched::profile::{FlatSpec, ProfileSpec};

use super::*;
use crate::completion::Timing;

const PLENTY: Places = Places {
    stream: 200,
    reserved: 8,
    best_effort: 64,
};

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn at(millis: u64) -> Time {
    Time::ZERO + ms(millis)
}

fn profile() -> DriveProfile {
    DriveProfile::new(ProfileSpec {
        name: "a millisecond and one a sector".into(),
        kind: DriveKind::File,
        measured: true,
        sources: Vec::new(),
        outstanding: 1,
        capacity_sectors: 1 << 30,
        physical_sector_bytes: 512,
        widened_percent: 0,
        trust_worst_case: false,
        measurement: None,
        rotating: None,
        flat: Some(FlatSpec {
            read_overhead_us: 1_000,
            write_overhead_us: 1_000,
            read_bytes_per_second: 512_000,
            write_bytes_per_second: 512_000,
        }),
        worst_case: Vec::new(),
    })
    .unwrap()
}

/// The time at which the host pauses.
#[derive(Clone, Copy, Debug)]
enum PauseTime {
    /// At this time.
    From(Time),
    /// During the first issue from this time on, between the decision and the disk having the piece.
    Issuing(Time),
}

/// A host, its disk, and a plan of requests.
struct Simulation {
    state: DispatcherState,
    queue: CompletionQueue,
    now: Time,
    /// The request on the disk, and when it will be done.
    on_disk: Option<(u64, Time)>,
    plan: BinaryHeap<Reverse<(Time, u64, u64)>>,
    pauses: Vec<(PauseTime, Nanos)>,
    /// Pieces, by index from 0, that take longer than predicted, and by how much.
    slow_pieces: Vec<(u64, Nanos)>,
    issued: u64,
    /// Duration of all pauses so far.
    paused: Nanos,
    answers: Vec<(u64, Timing)>,
}

/// Stands for best effort where a plan has the number of a stream.
const BEST_EFFORT: u64 = u64::MAX;

impl Simulation {
    /// A disk with streams of these (service time, period) in milliseconds, admitted or not.
    fn new(policy: Policy, tasks: &[(u64, u64)]) -> Self {
        let config = SchedulerConfig {
            policy,
            piece_limit: Some(ms(1_000_000)),
            burst_threshold: Some(Nanos::ZERO),
            ..SchedulerConfig::default()
        };
        let scheduler = DiskScheduler::new(Arc::new(profile()), config);
        let mut state = DispatcherState::new(scheduler, PLENTY, 4, NEVER);
        let mut admission = Admission::new();
        let mut fits = true;
        for (index, (service, period)) in tasks.iter().enumerate() {
            let id = TaskId(index as u64);
            let params = TaskParams::new(ms(*service), ms(*period)).unwrap();
            state
                .join(Time(1), id, params, TaskKind::Stream, Time(1))
                .unwrap();
            fits &= admission.insert(id, params).is_ok();
        }
        if fits {
            let (corrected, published) = (delta_l(&admission), delta_l_published(&admission));
            state.set_delta_l(Time(1), corrected.value, published.value);
        }
        Self {
            state,
            queue: CompletionQueue::new(4096).unwrap(),
            now: Time(1),
            on_disk: None,
            plan: BinaryHeap::new(),
            pauses: Vec::new(),
            slow_pieces: Vec::new(),
            issued: 0,
            paused: Nanos::ZERO,
            answers: Vec::new(),
        }
    }

    /// Plans a request at `when` of this service time.
    fn ask(&mut self, when: Time, who: u64, millis: u64) {
        self.plan.push(Reverse((when, who, millis)));
    }

    fn submit(&mut self, who: u64, millis: u64) {
        let class = if who == BEST_EFFORT {
            SYNC
        } else {
            Class::Stream(TaskId(who))
        };
        let id = self.state.reserve(class).expect("places for all");
        let io = Io {
            account: AccountId(1),
            op: Op::Read,
            start: Sector(0),
            count: SectorCount(millis - 1),
            class,
            order: Order::default(),
            durable: false,
            segments: Segments::empty(Op::Read),
            target: self.queue.target(who).unwrap(),
        };
        self.state.submit(self.now, id, io);
    }

    /// Duration of a pause at this moment, if there is one.
    fn pause(&mut self, issuing: bool) -> Nanos {
        let mut lost = Nanos::ZERO;
        let now = self.now;
        self.pauses.retain(|(pause, length)| {
            let hit = match pause {
                PauseTime::From(from) => !issuing && *from <= now,
                PauseTime::Issuing(from) => issuing && *from <= now,
            };
            if hit {
                lost += *length;
            }
            !hit
        });
        self.now += lost;
        self.paused += lost;
        lost
    }

    /// Runs until nothing more happens.
    fn run(&mut self) {
        loop {
            self.pause(false);
            if let Some((tag, due)) = self.on_disk.filter(|(_, due)| *due <= self.now) {
                self.on_disk = None;
                let (at, host_late) = (self.now, self.now.saturating_since(due));
                let result = Ok(());
                self.state.done(
                    at,
                    &Done {
                        tag,
                        result,
                        at,
                        host_late,
                    },
                );
            }
            while let Some(Reverse((when, who, millis))) = self.plan.peek().copied()
                && when <= self.now
            {
                self.plan.pop();
                self.submit(who, millis);
            }
            self.pause(false);
            let until = self.act();
            let due = self.on_disk.map(|(_, due)| due);
            let asked = self.plan.peek().map(|Reverse((when, ..))| *when);
            let pause = self.pauses.iter().filter_map(|(pause, _)| match pause {
                PauseTime::From(from) => Some(*from),
                PauseTime::Issuing(_) => None,
            });
            let next = [until, due, asked].into_iter().flatten().chain(pause);
            // A disk without requests does not stall.
            match next.min().filter(|next| *next < at(50_000_000)) {
                Some(next) => self.now = self.now.max(next),
                None => return,
            }
        }
    }

    fn act(&mut self) -> Option<Time> {
        loop {
            match self.state.next_action(self.now) {
                Action::Answer(answer) => {
                    drop(answer.target.complete(answer.result, answer.timing));
                    let answer = self.queue.poll().expect("it was answered");
                    self.answers.push((answer.token, answer.timing));
                }
                Action::Issue(io) => {
                    let late = self.pause(true);
                    let slow_pieces = self
                        .slow_pieces
                        .iter()
                        .filter(|(nth, _)| *nth == self.issued);
                    let service =
                        ms(io.count.0 + 1) + slow_pieces.map(|(_, by)| *by).sum::<Nanos>();
                    self.issued += 1;
                    assert!(self.on_disk.is_none(), "one at a time");
                    self.on_disk = Some((io.tag, self.now + service));
                    self.state.issued_late(io.tag, late);
                }
                Action::Sleep { until } => return until,
            }
        }
    }

    /// Gross and net lateness of late requests, in milliseconds rounded down, with their streams.
    fn late(&self) -> Vec<(u64, u64, u64)> {
        let late = self
            .answers
            .iter()
            .filter(|(_, timing)| !timing.lateness_gross().is_zero());
        late.map(|(who, timing)| {
            let in_ms = |time: Nanos| time.0 / 1_000_000;
            (
                *who,
                in_ms(timing.lateness_gross()),
                in_ms(timing.lateness()),
            )
        })
        .collect()
    }
}

/// Three streams of 60 in 200 ms: 90 % of the disk.
const THREE: [(u64, u64); 3] = [(60, 200), (60, 200), (60, 200)];

fn ask_three(simulation: &mut Simulation, rounds: std::ops::Range<u64>) {
    for round in rounds {
        for who in 0..3 {
            simulation.ask(at(200 * round), who, 60);
        }
    }
}

#[test]
fn host_pause_excuses_requests_on_the_disk_and_queued_behind_it() {
    for pause in [PauseTime::From(at(30)), PauseTime::Issuing(at(1))] {
        for policy in [Policy::Exact, Policy::DeltaL, Policy::Edf] {
            let mut simulation = Simulation::new(policy, &THREE);
            ask_three(&mut simulation, 0..40);
            simulation.pauses.push((pause, ms(300)));
            simulation.run();
            let late = simulation.late();
            // Catching up takes rounds, so blocks are late that were submitted long after the pause.
            let mut answers = simulation.answers.iter();
            assert!(answers.any(|(_, timing)| {
                !timing.lateness_gross().is_zero() && timing.submitted > at(400)
            }));
            assert!(
                late.iter()
                    .all(|(_, gross, net)| *gross <= 300 && *net == 0),
                "{policy}: {late:?}"
            );
            let counters = simulation.state.report(simulation.now).counters;
            assert_eq!(counters.missed_gross.count, late.len() as u64);
            // In the first case the request on the disk is served during the pause.
            assert!(counters.host_late.max > ms(260));
            assert_eq!(counters.host_late.count, 1, "{policy}, {pause:?}");
            assert_eq!(counters.missed.count, 0);
        }
    }
}

#[test]
fn a_host_is_late_when_it_takes_more_than_a_fifth_of_a_millisecond() {
    for pause in [PauseTime::From(at(61)), PauseTime::Issuing(at(1))] {
        for (us, count) in [(199, 0), (200, 0), (201, 1)] {
            let mut simulation = Simulation::new(Policy::Edf, &[(60, 200)]);
            simulation.ask(at(1), 0, 60);
            simulation.pauses.push((pause, Nanos::from_micros(us)));
            simulation.run();
            let late = simulation.state.report(simulation.now).counters.host_late;
            assert_eq!(late.count, count, "{us} us, {pause:?}");
        }
    }
}

#[test]
fn caught_up_disk_is_excused_no_more() {
    for policy in [Policy::Exact, Policy::DeltaL, Policy::Edf] {
        let mut simulation = Simulation::new(policy, &[(60, 200)]);
        for round in 0..10 {
            simulation.ask(at(200 * round), 0, 60);
        }
        simulation.pauses.push((PauseTime::From(at(1)), ms(300)));
        simulation.run();
        assert!(
            simulation
                .late()
                .iter()
                .all(|(_, gross, net)| *gross > 0 && *net == 0)
        );
        simulation.answers.clear();
        // The disk itself takes 500 ms longer than predicted.
        simulation.slow_pieces.push((simulation.issued, ms(500)));
        simulation.ask(at(10_000), 0, 60);
        simulation.run();
        assert_eq!(simulation.late(), [(0, 360, 360)], "{policy}");
    }
}

#[test]
fn scheduler_is_charged_in_full_for_its_own_misses() {
    // Best effort of 400 ms just before a stream's block with a deadline 200 ms later.
    let mut simulation = Simulation::new(Policy::Edf, &[(60, 200)]);
    simulation.ask(at(10), BEST_EFFORT, 400);
    simulation.ask(at(11), 0, 60);
    simulation.run();
    assert_eq!(simulation.late(), [(0, 259, 259)]);
    // The host paused before the block was submitted, so it is not excused, although it queued behind the
    // pause.
    let mut simulation = Simulation::new(Policy::Edf, &[(60, 200)]);
    simulation.pauses.push((PauseTime::From(at(5)), ms(300)));
    simulation.ask(at(4), BEST_EFFORT, 10);
    simulation.ask(at(310), BEST_EFFORT, 400);
    simulation.ask(at(311), 0, 60);
    simulation.run();
    assert_eq!(simulation.late(), [(0, 259, 259)]);
}

#[test]
fn miss_longer_than_the_host_pause_is_charged_for_the_rest() {
    // The disk is busy with best effort for 400 ms when the block comes, and then the host pauses for 100 ms.
    for pause in [PauseTime::From(at(100)), PauseTime::From(at(409))] {
        let mut simulation = Simulation::new(Policy::Edf, &[(60, 200)]);
        simulation.ask(at(10), BEST_EFFORT, 400);
        simulation.ask(at(11), 0, 60);
        simulation.pauses.push((pause, ms(100)));
        simulation.run();
        // Only in the second case does the disk idle too.
        let expected = match pause {
            PauseTime::From(from) if from == at(409) => (0, 358, 259),
            _ => (0, 259, 259),
        };
        assert_eq!(simulation.late(), [expected], "{pause:?}");
    }
}

#[test]
fn scheduler_that_knows_of_enough_time_is_not_excused() {
    // The host takes 160 ms of the first block's 400 ms, which leaves enough for the second; then the disk
    // itself takes 500 ms too long.
    for (policy, net) in [(Policy::Exact, 360), (Policy::DeltaL, 200)] {
        let mut simulation = Simulation::new(policy, &[(50, 400), (50, 400)]);
        simulation.ask(at(10), 0, 50);
        simulation.ask(at(10), 1, 50);
        simulation.pauses.push((PauseTime::From(at(20)), ms(200)));
        simulation.slow_pieces.push((1, ms(500)));
        simulation.run();
        assert_eq!(simulation.late(), [(1, 360, net)], "{policy}");
    }
}

/// Streams, their requests (in periods from the beginning, and as a fraction of the admitted service time),
/// best effort, and pauses of the host.
type Scenario = (
    Vec<(u64, u64)>,
    Vec<(u64, u64, u64)>,
    Vec<(u64, u64)>,
    Vec<(u64, u64, bool)>,
);

fn scenario() -> impl Strategy<Value = Scenario> {
    (
        proptest::collection::vec((2u64..48, 50u64..300), 1..8),
        proptest::collection::vec((0u64..8, 0u64..4000, 2u64..48), 1..150),
        proptest::collection::vec((0u64..4000, 2u64..60), 0..40),
        proptest::collection::vec((0u64..4000, 1u64..300, proptest::bool::ANY), 0..6),
    )
}

/// Runs a scenario under a policy, with or without pauses of the host.
fn run_scenario(policy: Policy, scenario: &Scenario, host: bool) -> Simulation {
    let (tasks, blocks, best_effort, pause) = scenario;
    let mut simulation = Simulation::new(policy, tasks);
    for (who, when, millis) in blocks {
        let who = who % tasks.len() as u64;
        simulation.ask(at(*when), who, (*millis).min(tasks[who as usize].0));
    }
    for (when, millis) in best_effort {
        simulation.ask(at(*when), BEST_EFFORT, *millis);
    }
    for (when, length, issuing) in pause.iter().filter(|_| host) {
        let when = at(*when);
        let pause = if *issuing {
            PauseTime::Issuing(when)
        } else {
            PauseTime::From(when)
        };
        simulation.pauses.push((pause, ms(*length)));
    }
    simulation.run();
    simulation
}

proptest! {
    #![proptest_config(testkit::cases(500))]

    /// Under any pauses of the host, a scheduler that guarantees deadlines is charged with nothing, and the
    /// host's debt does not exceed the pauses.
    #[test]
    fn guaranteeing_schedulers_are_never_charged_for_host_pauses(scenario in scenario()) {
        // Keeps the streams that are admitted together.
        let (mut admission, mut scenario) = (Admission::new(), scenario);
        scenario.0.retain(|(service, period)| {
            let params = TaskParams::new(ms(*service), ms(*period)).unwrap();
            admission.insert(TaskId(admission.len() as u64), params).is_ok()
        });
        for policy in [Policy::Exact, Policy::DeltaL] {
            let simulation = run_scenario(policy, &scenario, true);
            for (who, timing) in &simulation.answers {
                prop_assert!(timing.host_late <= simulation.paused);
                prop_assert_eq!(timing.lateness(), Nanos::ZERO, "{} {} {:?}", policy, who, timing);
            }
        }
    }

    /// Without pauses nothing is excused, under any scheduler.
    #[test]
    fn net_lateness_is_gross_without_a_late_host(scenario in scenario()) {
        for policy in Policy::ALL {
            let simulation = run_scenario(policy, &scenario, false);
            for (_, timing) in &simulation.answers {
                prop_assert_eq!(timing.lateness(), timing.lateness_gross());
            }
        }
    }
}
