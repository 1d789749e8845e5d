//! Schedulers of the arm against the statements of their papers.

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;

use lab::arms::{
    ArmRequest, ArmScheduler, CScan, Clockwise, Edf, FdScan, GScan, Gss, RtWindow, ScanEdf,
};
use sched::disk::SchedulerConfig;
use sched::profile::DriveProfile;
use sched::units::{Nanos, SectorCount, Time};
use testkit::Random;

const MS: u64 = 1_000_000;
const CYLINDERS: u64 = 2_000;

fn request(number: u64, deadline_ms: u64, cylinder: u32) -> ArmRequest {
    ArmRequest {
        deadline: Time(deadline_ms * MS),
        arrived: Time(0),
        cylinder,
        stream: number as u32,
        number,
    }
}

/// A queue of one to twelve requests.
fn random_queue(random: &mut Random, deadlines_ms: u64) -> Vec<ArmRequest> {
    let count = random.range(1, 12);
    let mut queue: Vec<_> = (0..count)
        .map(|n| {
            request(
                n,
                random.below(deadlines_ms),
                random.below(CYLINDERS) as u32,
            )
        })
        .collect();
    queue.sort_by_key(|request| (request.deadline, request.arrived));
    queue
}

fn window(window: usize, threshold_ms: u64) -> RtWindow {
    RtWindow {
        window: NonZeroUsize::new(window).unwrap(),
        threshold: Nanos(threshold_ms * MS),
    }
}

/// The order in which a queue is served that nothing joins, each request in `service`.
fn served(
    scheduler: &mut impl ArmScheduler,
    mut arm: u32,
    mut queue: Vec<ArmRequest>,
    service: Nanos,
) -> Vec<u64> {
    let mut now = Time(0);
    let mut order = Vec::new();
    while !queue.is_empty() {
        let next = queue.remove(scheduler.choose(now, arm, &queue));
        now += service;
        arm = next.cylinder;
        order.push(next.number);
    }
    order
}

/// Figure 1 of Chen and Thapar: the window has r1 to r4. r3 is on the way to r1, r2 is not, and r5 is, but outside
/// the window.
fn figure_1() -> Vec<ArmRequest> {
    vec![
        request(1, 1_000, 900),
        request(2, 1_100, 300),
        request(3, 1_200, 700),
        request(4, 1_300, 1_500),
        request(5, 1_400, 600),
    ]
}

#[test]
fn the_window_serves_what_lies_on_the_way_to_the_most_urgent() {
    let arm = 500;
    let mut scheduler = window(4, 350);
    // With time left, r3. As soon as r1 has less than the threshold left, r1.
    assert_eq!(scheduler.choose(Time(0), arm, &figure_1()), 2);
    assert_eq!(scheduler.choose(Time(650 * MS), arm, &figure_1()), 2);
    assert_eq!(scheduler.choose(Time(650 * MS + 1), arm, &figure_1()), 0);
    // One more in the window, and r5 is met first.
    assert_eq!(window(5, 350).choose(Time(0), arm, &figure_1()), 4);
    // From the other side nothing of the window lies between; from r4, r4.
    assert_eq!(scheduler.choose(Time(0), 1_000, &figure_1()), 0);
    assert_eq!(scheduler.choose(Time(0), 1_500, &figure_1()), 3);
    let order = served(&mut scheduler, arm, figure_1(), Nanos(10 * MS));
    assert_eq!(order, [3, 1, 5, 2, 4]);
}

#[test]
fn nothing_precedes_the_most_urgent_on_its_cylinder() {
    let queue = [request(1, 1_000, 900), request(2, 1_100, 900)];
    for arm in [0, 900, 1_999] {
        assert_eq!(window(5, 0).choose(Time(0), arm, &queue), 0);
    }
    // On the arm's cylinder another request does.
    let queue = [request(1, 1_000, 900), request(2, 1_100, 500)];
    assert_eq!(window(5, 0).choose(Time(0), 500, &queue), 1);
}

#[test]
fn a_window_of_one_is_edf() {
    let random = &mut Random(testkit::seed("a window of one", None));
    for _ in 0..2_000 {
        let queue = random_queue(random, 2_000);
        let arm = random.below(CYLINDERS) as u32;
        let threshold = random.below(1_000);
        let service = Nanos(30 * MS);
        assert_eq!(
            served(&mut window(1, threshold), arm, queue.clone(), service),
            served(&mut Edf, arm, queue, service)
        );
    }
}

#[test]
fn the_circular_elevator_goes_upwards_and_begins_again() {
    let random = &mut Random(testkit::seed("the circular elevator", None));
    for _ in 0..2_000 {
        let queue = random_queue(random, 2_000);
        let arm = random.below(CYLINDERS) as u32;
        let mut sorted = queue.clone();
        // Stable: on one cylinder by deadline.
        sorted.sort_by_key(|request| (request.cylinder < arm, request.cylinder));
        let order: Vec<_> = sorted.iter().map(|request| request.number).collect();
        assert_eq!(served(&mut CScan, arm, queue, Nanos(MS)), order);
    }
}

/// A service time that depends on the distance alone.
fn service(arm: u32, request: &ArmRequest) -> Nanos {
    Nanos((20 + u64::from(arm.abs_diff(request.cylinder)) / 200) * MS)
}

#[test]
fn a_very_large_window_is_fd_scan_once_it_scans() {
    let random = &mut Random(testkit::seed("a very large window", None));
    let mut scanned = 0;
    for _ in 0..5_000 {
        let queue = random_queue(random, 2_000);
        let arm = random.below(CYLINDERS) as u32;
        let now = Time(random.below(1_000) * MS);
        // The longest service time: with that left, r1 can be met.
        let threshold = 30;
        if queue[0].deadline < now + Nanos(threshold * MS) {
            continue;
        }
        scanned += 1;
        assert_eq!(
            window(1_000, threshold).choose(now, arm, &queue),
            FdScan { service }.choose(now, arm, &queue)
        );
    }
    assert!(scanned > 1_000, "{scanned}");
}

#[test]
fn fd_scan_goes_towards_the_earliest_deadline_that_can_be_met() {
    let queue = [
        request(1, 15, 900),
        request(2, 1_000, 300),
        request(3, 1_100, 400),
        request(4, 1_200, 600),
    ];
    let mut scheduler = FdScan { service };
    // r1 is too late, so r2 sets the direction.
    assert_eq!(scheduler.choose(Time(0), 500, &queue), 2);
    // None can be met: the nearest.
    assert_eq!(scheduler.choose(Time(2_000 * MS), 500, &queue), 2);
    assert_eq!(scheduler.choose(Time(2_000 * MS), 800, &queue), 0);
}

#[test]
fn scan_edf_without_equal_deadlines_is_edf() {
    let random = &mut Random(testkit::seed("no equal deadlines", None));
    for _ in 0..2_000 {
        let mut queue = random_queue(random, 2_000);
        for (place, request) in queue.iter_mut().enumerate() {
            request.deadline += Nanos(place as u64);
        }
        let arm = random.below(CYLINDERS) as u32;
        assert_eq!(
            served(&mut ScanEdf::default(), arm, queue.clone(), Nanos(MS)),
            served(&mut Edf, arm, queue, Nanos(MS))
        );
    }
}

#[test]
fn scan_edf_sweeps_over_equal_deadlines() {
    let queue = vec![
        request(1, 100, 900),
        request(2, 100, 300),
        request(3, 100, 700),
        request(4, 200, 310),
        request(5, 200, 1_000),
        request(6, 200, 200),
    ];
    let order = served(&mut ScanEdf::default(), 500, queue, Nanos(MS));
    // Upwards, then downwards, and on in that direction.
    assert_eq!(order, [3, 1, 2, 6, 4, 5]);
}

/// Serves requests of streams that ask again some time after each service. Returns the streams in order.
fn streams_served(
    scheduler: &mut impl ArmScheduler,
    random: &mut Random,
    streams: u32,
    idle_percent: u64,
    services: usize,
) -> Vec<u32> {
    let mut queue: Vec<ArmRequest> = Vec::new();
    let mut order = Vec::new();
    let (mut arm, mut number) = (0, 0);
    while order.len() < services {
        for stream in 0..streams {
            let waits = queue.iter().any(|request| request.stream == stream);
            if !waits && !random.chance(idle_percent) {
                let mut asked = request(number, 0, random.below(CYLINDERS) as u32);
                asked.stream = stream;
                queue.push(asked);
                number += 1;
            }
        }
        if queue.is_empty() {
            continue;
        }
        let next = queue.remove(scheduler.choose(Time(0), arm, &queue));
        arm = next.cylinder;
        order.push(next.stream);
    }
    order
}

/// The elevator: on in its direction, until nothing is ahead.
struct Scan {
    downwards: bool,
}

impl ArmScheduler for Scan {
    fn choose(&mut self, _now: Time, arm: u32, queue: &[ArmRequest]) -> usize {
        let signed = |down: bool, request: &ArmRequest| {
            let distance = i64::from(request.cylinder) - i64::from(arm);
            if down { -distance } else { distance }
        };
        let none_ahead = |down| queue.iter().all(|request| signed(down, request) < 0);
        if none_ahead(self.downwards) {
            self.downwards = !self.downwards;
        }
        let ahead = (0..queue.len()).filter(|&place| signed(self.downwards, &queue[place]) >= 0);
        let nearest = ahead.min_by_key(|&place| (signed(self.downwards, &queue[place]), place));
        nearest.expect("something is on one of the sides")
    }
}

#[test]
fn one_group_is_the_elevator() {
    let seed = testkit::seed("one group", None);
    for case in 0..200_u32 {
        let streams = 1 + case % 10;
        // In rounds: no stream asks again before all have been served.
        let mut random = Random(seed ^ u64::from(case));
        for _ in 0..20 {
            let mut round = Vec::new();
            for stream in 0..streams {
                round.push(request(stream.into(), 0, random.below(CYLINDERS) as u32));
            }
            let arm = random.below(CYLINDERS) as u32;
            let mut one = Gss::new(NonZeroU32::MIN);
            let mut scan = Scan { downwards: false };
            assert_eq!(
                served(&mut one, arm, round.clone(), Nanos(MS)),
                served(&mut scan, arm, round, Nanos(MS))
            );
        }
    }
}

#[test]
fn a_group_for_each_stream_is_round_robin() {
    let mut random = Random(testkit::seed("round-robin", None));
    for streams in 1..20 {
        let mut scheduler = Gss::new(NonZeroU32::new(streams).unwrap());
        let order = streams_served(&mut scheduler, &mut random, streams, 0, 500);
        let turns: Vec<_> = (0..streams).cycle().take(500).collect();
        assert_eq!(order, turns);
    }
}

#[test]
fn no_stream_has_two_requests_in_a_turn() {
    let mut random = Random(testkit::seed("turns of groups", None));
    for groups in 1..6 {
        let streams = 12;
        let mut scheduler = Gss::new(NonZeroU32::new(groups).unwrap());
        let order = streams_served(&mut scheduler, &mut random, streams, 50, 5_000);
        if groups == 1 {
            continue;
        }
        for turn in order.chunk_by(|one, next| one % groups == next % groups) {
            let mut streams = turn.to_vec();
            streams.sort_unstable();
            streams.dedup();
            assert_eq!(streams.len(), turn.len(), "{groups} groups");
        }
    }
}

/// 20 ms for a block, 10 for best effort.
fn service_of_kind(request: &ArmRequest) -> Nanos {
    let is_best_effort = request.deadline == Time::MAX;
    Nanos(if is_best_effort { 10 } else { 20 } * MS)
}

#[test]
fn g_scan_serves_best_effort_only_while_deadlines_allow_it() {
    let seek = |distance: u32| Nanos(u64::from(distance) * MS / 100);
    let best_effort = |number, cylinder| ArmRequest {
        deadline: Time::MAX,
        ..request(number, 0, cylinder)
    };
    // From 500 the group at 400 is nearer than the block at 1,500. Seeks take 1 + 11 ms, services 10 and 20.
    let queue = |deadline_ms| {
        vec![
            request(1, deadline_ms, 1_500),
            best_effort(2, 400),
            best_effort(3, 410),
        ]
    };
    let new = || GScan::new(seek, service_of_kind, 2_000);
    assert_eq!(
        served(&mut new(), 500, queue(60), Nanos(10 * MS)),
        [3, 2, 1]
    );
    assert_eq!(served(&mut new(), 500, queue(45), Nanos(10 * MS))[0], 1);
    // The deadline that no order meets changes nothing.
    assert_eq!(served(&mut new(), 500, queue(1), Nanos(10 * MS)), [3, 2, 1]);
}

#[test]
fn g_scan_serves_everything_once() {
    let mut random = Random(testkit::seed("g-scan", None));
    let seek = |distance: u32| Nanos(u64::from(distance) * MS / 100);
    for _ in 0..200 {
        let mut queue = random_queue(&mut random, 500);
        for request in &mut queue {
            if random.chance(70) {
                request.deadline = Time::MAX;
            }
        }
        queue.sort_by_key(|request| request.deadline);
        let mut numbers: Vec<_> = queue.iter().map(|request| request.number).collect();
        let mut scheduler = GScan::new(seek, service_of_kind, 2_000);
        let mut order = served(&mut scheduler, 0, queue, Nanos(20 * MS));
        order.sort_unstable();
        numbers.sort_unstable();
        assert_eq!(order, numbers);
    }
}

#[test]
fn the_servers_scheduler_serves_periodic_streams_by_deadline() {
    let mut random = Random(testkit::seed("the server's scheduler", None));
    let profile = DriveProfile::shipped("quantum-atlas-ii").expect("it is shipped");
    let block = SectorCount(256);
    let period = Nanos(500 * MS);
    let config = SchedulerConfig::default();
    let mut server = Clockwise::new(Arc::new(profile), config, block, period, 5).expect("it fits");
    let streams = 5;
    let offsets: Vec<_> = (0..streams).map(|_| random.below(500)).collect();
    let (mut now, mut arm, mut queue, mut asked) = (Time(0), 0, Vec::new(), vec![0; streams]);
    let mut number = 0;
    for _ in 0..2_000 {
        // As soon as one waits, all that has come by then.
        let due = |stream: usize, asked: u64| Time((offsets[stream] + asked * 500) * MS);
        let next = (0..streams).map(|stream| due(stream, asked[stream])).min();
        if queue.is_empty() {
            now = now.max(next.expect("there are streams"));
        }
        for (stream, asked) in asked.iter_mut().enumerate() {
            while due(stream, *asked) <= now {
                let arrived = due(stream, *asked);
                queue.push(ArmRequest {
                    deadline: arrived + period,
                    arrived,
                    cylinder: random.below(5_000) as u32,
                    stream: stream as u32,
                    number,
                });
                (number, *asked) = (number + 1, *asked + 1);
            }
        }
        queue.sort_by_key(|request| (request.deadline, request.arrived));
        let place = server.choose(now, arm, &queue);
        assert_eq!(queue[place].deadline, queue[0].deadline);
        arm = queue.remove(place).cylinder;
        now += Nanos(random.range(10, 50) * MS);
    }
}
