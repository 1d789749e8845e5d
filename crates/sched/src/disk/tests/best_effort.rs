//! In which order best effort is served: elevators, ages, what waits for what, and long requests in
//! pieces.

use super::*;
use crate::best_effort::BestEffortOrder;
use crate::units::Bytes;

#[test]
fn synchronous_requests_go_first_and_each_kind_in_elevator_order() {
    let mut disk = atlas(SchedulerConfig::default());
    for (id, start) in [(1, 9_000), (2, 100), (3, 5_000)] {
        disk.submit(at(0), async_(id, start)).unwrap();
        disk.submit(at(0), sync(id + 10, start + 50)).unwrap();
    }
    assert_eq!(drain(&mut disk, at(0)), [12, 13, 11, 1, 3, 2]);
}

#[test]
fn the_nearest_goes_first_if_so_ordered() {
    let config = SchedulerConfig {
        order: BestEffortOrder::Nearest,
        ..SchedulerConfig::default()
    };
    let mut disk = atlas(config);
    disk.submit(at(0), sync(0, 4_000_000)).unwrap();
    assert_eq!(drain(&mut disk, at(0)), [0]);
    for (id, start) in [(1, 10_000), (2, 3_900_040), (3, 6_500_000), (4, 8_000_000)] {
        disk.submit(at(1000), sync(id, start)).unwrap();
    }
    assert_eq!(
        drain(&mut disk, at(1000)),
        [2, 3, 4, 1],
        "3,900,040 is nearest, then up to the end"
    );
}

#[test]
fn in_order_of_arrival_if_so_ordered() {
    let config = SchedulerConfig {
        order: BestEffortOrder::Fifo,
        ..SchedulerConfig::default()
    };
    let mut disk = atlas(config);
    for (id, start) in [(1, 9_000), (2, 100), (3, 5_000)] {
        disk.submit(at(0), sync(id, start)).unwrap();
    }
    assert_eq!(drain(&mut disk, at(0)), [1, 2, 3]);
}

#[test]
fn nothing_starves_behind_a_busy_corner_of_the_disk() {
    let config = SchedulerConfig {
        order: BestEffortOrder::Nearest,
        ..SchedulerConfig::default()
    };
    let mut disk = atlas(config);
    disk.submit(at(0), sync(1, 8_000_000)).unwrap();
    disk.submit(at(0), async_(2, 8_000_100)).unwrap();
    let (mut now, mut next) = (at(0), 100);
    let mut done = Vec::new();
    while done.len() < 2 {
        assert!(now < at(8_000), "done by now: {done:?}");
        while disk.len() < 6 {
            disk.submit(now, sync(next, 1_000 + next * 37 % 5_000))
                .unwrap();
            next += 1;
        }
        let dispatch = issued(&mut disk, now);
        now += dispatch.predicted;
        disk.completed(now, dispatch.id).unwrap();
        if dispatch.id.0 < 100 {
            done.push((dispatch.id.0, now.0 / MS));
        }
    }
    assert_eq!(done[0].0, 1, "synchronous ones are aged sooner: {done:?}");
    assert!(done[0].1 < 1_500 && done[1].1 < 6_000, "{done:?}");
}

#[test]
fn after_an_aged_request_eight_go_by_position_though_all_are_aged() {
    let mut disk = atlas(SchedulerConfig::default());
    // Three groups of nine that lie side by side, the oldest of each at its lower edge, the oldest
    // group at the top. The younger ones are the older the higher they lie.
    let groups = [6_000_000, 4_000_000, 2_000_000];
    let mut id = 0;
    let mut submit = |start| {
        disk.submit(at(id), async_(id, start)).unwrap();
        id += 1;
    };
    groups.into_iter().for_each(&mut submit);
    for group in groups {
        (1..9).rev().for_each(|place| submit(group + place * 1_000));
    }
    // By age alone, or with fewer in between, the second group's oldest would be served sooner; with more
    // in between, one of the first group's neighbours below it.
    let by_position = |group: u64| (0..8).rev().map(move |place| 3 + 8 * group + place);
    let expected: Vec<u64> = (0..3)
        .flat_map(|group| [group].into_iter().chain(by_position(group)))
        .collect();
    assert_eq!(drain(&mut disk, at(100_000)), expected);
}

#[test]
fn a_tagged_request_waits_for_those_it_names() {
    let mut disk = atlas(SchedulerConfig::default());
    disk.submit(at(0), async_(1, 9_000)).unwrap();
    disk.submit(at(0), async_(2, 20_000)).unwrap();
    let mut tagged = async_(3, 100);
    tagged.order.after = [
        Some(RequestId(1)),
        Some(RequestId(2)),
        Some(RequestId(77)),
        None,
    ];
    disk.submit(at(0), tagged).unwrap();
    assert_eq!(drain(&mut disk, at(0)), [1, 2, 3]);
}

#[test]
fn predecessor_of_a_synchronous_request_is_served_as_synchronous() {
    let mut disk = atlas(SchedulerConfig::default());
    disk.submit(at(0), async_(1, 8_000_000)).unwrap();
    let mut middle = async_(2, 7_000_000);
    middle.order.after[0] = Some(RequestId(1));
    disk.submit(at(0), middle).unwrap();
    for id in 10..30 {
        disk.submit(at(0), async_(id, id * 100)).unwrap();
    }
    let mut waited_for = sync(3, 100);
    waited_for.order.after[0] = Some(RequestId(2));
    disk.submit(at(0), waited_for).unwrap();
    assert_eq!(drain(&mut disk, at(0))[..3], [1, 2, 3]);
}

#[test]
fn a_barrier_divides_its_space_and_no_other() {
    let mut disk = atlas(SchedulerConfig::default());
    let in_space = |id, start, space, barrier| {
        let mut request = async_(id, start);
        request.order = Order {
            space,
            barrier,
            ..Order::default()
        };
        request
    };
    for (id, start, space, barrier) in [
        (1, 9_000, 7, false),
        (2, 8_000, 7, false),
        (3, 10, 7, true),
        (4, 20, 7, false),
        (5, 15, 7, true),
        (6, 5, 7, false),
        (7, 30, 8, false),
    ] {
        disk.submit(at(0), in_space(id, start, space, barrier))
            .unwrap();
    }
    assert_eq!(drain(&mut disk, at(0)), [7, 2, 1, 3, 4, 5, 6]);
}

#[test]
fn cancelling_a_barrier_in_the_middle_leaves_the_one_before_it_in_force() {
    let mut disk = atlas(SchedulerConfig::default());
    let mut barrier = |id, start| {
        let mut request = async_(id, start);
        request.order.barrier = true;
        disk.submit(at(0), request).unwrap();
    };
    barrier(1, 9_000);
    barrier(2, 100);
    disk.submit(at(0), async_(3, 50)).unwrap();
    assert!(disk.cancel(at(0), RequestId(2)));
    assert!(!disk.cancel(at(0), RequestId(2)), "it is gone");
    let first = issued(&mut disk, at(0));
    assert_eq!(first.id, RequestId(1));
    assert!(!disk.cancel(at(0), RequestId(1)), "it is on the disk");
    disk.completed(at(20), RequestId(1)).unwrap();
    assert_eq!(drain(&mut disk, at(20)), [3]);
}

#[test]
fn a_long_request_is_served_in_pieces_that_keep_to_the_limit() {
    let mut disk = atlas(SchedulerConfig::default());
    let limit = disk.predictor().piece_limit();
    let long = request(
        1,
        1772 * 1790 - 1_000,
        65_536,
        Class::BestEffort(Urgency::Async),
    );
    disk.submit(at(0), long).unwrap();
    let (mut now, mut next, mut pieces) = (at(0), SectorCount(0), 0);
    loop {
        let piece = issued(&mut disk, now);
        assert!(piece.predicted <= limit, "{piece:?}");
        assert_eq!((piece.offset, piece.start), (next, long.start + next));
        if pieces == 3 {
            disk.submit(now, sync(2, 100)).unwrap();
        }
        if pieces == 4 {
            assert_eq!(
                piece.id,
                RequestId(1),
                "on the disk already when the other came"
            );
        }
        next += piece.count;
        pieces += 1;
        now += Nanos::from_millis(20);
        if disk.completed(now, RequestId(1)).unwrap().finished {
            break;
        }
        if pieces == 4 {
            let other = issued(&mut disk, now);
            assert_eq!(other.id, RequestId(2), "somebody waits for it");
            now += other.predicted;
            assert!(disk.completed(now, RequestId(2)).unwrap().finished);
        }
    }
    assert_eq!(next, long.count);
    assert!(pieces > 65_536 / 2_048, "{pieces}");
}

/// The bounds of the pieces of one request. No piece takes longer than the longest allowed.
fn pieces_of(
    profile: DriveProfile,
    config: SchedulerConfig,
    start: u64,
    count: u64,
) -> (DiskScheduler, Vec<(u64, u64)>) {
    let mut disk = DiskScheduler::new(Arc::new(profile), config);
    let class = Class::BestEffort(Urgency::Async);
    disk.submit(at(0), request(1, start, count, class)).unwrap();
    let (mut now, mut pieces) = (at(0), Vec::new());
    loop {
        let piece = issued(&mut disk, now);
        let from = piece.start.get();
        assert!(piece.predicted <= disk.piece_max(), "{piece:?}");
        pieces.push((from, from + piece.count.get()));
        now += piece.predicted;
        if disk.completed(now, RequestId(1)).unwrap().finished {
            return (disk, pieces);
        }
    }
}

/// A drive with physical sectors of 4 KiB one of which lies in two zones.
fn torn() -> DriveProfile {
    let atlas = DriveProfile::shipped("quantum-atlas-ii").unwrap();
    let mut torn = atlas.spec().clone();
    // A cylinder of 1,790 sectors less.
    let zones = &mut torn.rotating.as_mut().unwrap().zones;
    zones[0].cylinders -= 1;
    zones[1].first_cylinder -= 1;
    zones[1].cylinders += 1;
    torn.capacity_sectors -= 90;
    let torn = DriveProfile::new(torn).unwrap();
    torn.in_sectors_of(Bytes(4_096)).unwrap()
}

/// Pieces of one physical sector are never longer than is said, not even one that lies in two zones and comes
/// first, from wherever the head is.
#[test]
fn a_piece_over_two_zones_is_not_longer_than_the_longest() {
    let boundary = Predictor::new(&torn()).zone_range(0).unwrap().end.get();
    let start = boundary / 8 * 8;
    let config = SchedulerConfig {
        piece_limit: Some(Nanos(1)),
        ..SchedulerConfig::default()
    };
    // From the first sector on, and from the next, so that it would be written in part.
    for first in [0, 1] {
        let (_, pieces) = pieces_of(torn(), config.clone(), start + first, 20);
        let ends: Vec<u64> = pieces.iter().map(|piece| piece.1 - start).collect();
        assert_eq!(ends, [8, 16, 20 + first]);
        assert!(boundary < pieces[0].1);
    }
}

#[test]
fn pieces_end_on_physical_sectors_and_stay_in_their_zone() {
    let today = DriveProfile::shipped("hdd-8tb-7200").unwrap();
    for (profile, is_whole) in [(today, true), (torn(), false)] {
        let name = alloc::string::String::from(profile.name());
        // Over the boundary between two zones, which is, or is not, one between physical sectors.
        let boundary = Predictor::new(&profile).zone_range(0).unwrap().end.get();
        assert_eq!(boundary.is_multiple_of(8), is_whole);
        let (start, end) = (boundary / 8 * 8 - 65_544, boundary / 8 * 8 + 65_536);
        let config = SchedulerConfig::default();
        let (disk, pieces) = pieces_of(profile, config, start, end - start);
        assert!(pieces.len() > 6, "{name}: {pieces:?}");
        assert!(pieces.windows(2).all(|two| two[0].1 == two[1].0));
        assert_eq!((pieces[0].0, pieces[pieces.len() - 1].1), (start, end));
        for (from, to) in pieces {
            assert!(from % 8 == 0 && to % 8 == 0, "{name}: {from}..{to}");
            let zones = [from, to - 1].map(|sector| disk.predictor().zone_of(Sector(sector)));
            let lies_in_two = !is_whole && to - from == 8;
            assert!(zones[0] == zones[1] || lies_in_two, "{name}: {from}..{to}");
        }
    }
}

#[test]
fn with_several_places_best_effort_never_takes_the_last_one() {
    let mut spec = DriveProfile::shipped("conservative-file")
        .unwrap()
        .spec()
        .clone();
    spec.outstanding = 3;
    let profile = Arc::new(DriveProfile::new(spec).unwrap());
    let mut disk = DiskScheduler::new(profile, SchedulerConfig::default());
    join(&mut disk, 1, task(200, 1_000), TaskKind::Stream).unwrap();
    for id in 0..4 {
        disk.submit(at(0), sync(id, id * 8)).unwrap();
    }
    issued(&mut disk, at(0));
    issued(&mut disk, at(0));
    assert!(matches!(disk.decide(at(0)), Decision::Wait { .. }));
    disk.submit(at(1), block(9, 1)).unwrap();
    assert_eq!(issued(&mut disk, at(1)).id, RequestId(9));
    assert_eq!(disk.decide(at(1)), Decision::Wait { until: None });
    disk.completed(at(9), RequestId(9)).unwrap();
    disk.completed(at(9), RequestId(0)).unwrap();
    assert_eq!(issued(&mut disk, at(9)).served, Served::Slack);
}

#[test]
fn a_failed_request_is_gone_and_the_head_is_anywhere() {
    let mut disk = atlas(SchedulerConfig::default());
    disk.submit(at(0), sync(1, 100)).unwrap();
    issued(&mut disk, at(0));
    assert!(disk.failed(at(5), RequestId(1)).unwrap().finished);
    assert!(disk.failed(at(5), RequestId(1)).is_none());
    assert!(disk.is_empty());
    disk.submit(at(5), sync(2, 108)).unwrap();
    let far = disk
        .predictor()
        .predict(None, Op::Read, Sector(108), SectorCount(8));
    assert_eq!(issued(&mut disk, at(5)).predicted, far);
}

/// The slack has to hold what a slow place takes beyond its prediction; beside it nothing changes.
#[test]
fn a_request_at_a_slow_place_needs_more_slack() {
    let issues = |slow: bool, start: u64| {
        let mut disk = atlas(SchedulerConfig::default());
        if slow {
            disk.set_slow(Sector(0)..Sector(2_048), Nanos::from_millis(100));
        }
        join(&mut disk, 1, task(110, 200), TaskKind::Stream).unwrap();
        disk.submit(at(0), block(1, 1)).unwrap();
        disk.submit(at(0), sync(2, start)).unwrap();
        issued(&mut disk, at(0))
    };
    let (plain, slow, beside) = (issues(false, 64), issues(true, 64), issues(true, 4_096));
    assert_eq!((plain.id, plain.served), (RequestId(2), Served::Slack));
    assert_eq!((slow.id, slow.served), (RequestId(1), Served::RealTime));
    assert_eq!((beside.id, beside.served), (RequestId(2), Served::Slack));
    // Without anything promised it goes, predicted to take as long as it will.
    let mut disk = atlas(SchedulerConfig::default());
    disk.set_slow(Sector(0)..Sector(2_048), Nanos::from_millis(100));
    disk.submit(at(0), sync(2, 64)).unwrap();
    let alone = issued(&mut disk, at(0));
    assert!(alone.predicted > Nanos::from_millis(100), "{alone:?}");
}

/// A longer one might never fit into the slack of another disk.
#[test]
fn a_place_is_borrowed_for_the_longest_piece_at_most() {
    let mut disk = atlas(SchedulerConfig::default());
    assert_eq!(disk.piece_to_borrow_for(at(0)), None);
    disk.submit(at(0), sync(2, 64)).unwrap();
    let plain = disk.piece_to_borrow_for(at(0)).unwrap();
    assert!(plain < disk.piece_max());
    disk.set_slow(Sector(0)..Sector(2_048), Nanos::from_millis(1_660));
    assert_eq!(disk.piece_to_borrow_for(at(0)), Some(disk.piece_max()));
}

#[test]
fn a_place_that_cannot_be_lent_keeps_no_shorter_request_waiting() {
    let mut disk = atlas(SchedulerConfig::default());
    join(&mut disk, 1, task(110, 200), TaskKind::Stream).unwrap();
    disk.submit(at(0), block(1, 1)).unwrap();
    disk.submit(at(0), sync(2, 64)).unwrap();
    assert!(!disk.lend(at(0), Nanos::from_millis(100)));
    let dispatch = issued(&mut disk, at(0));
    assert_eq!(
        (dispatch.id, dispatch.served),
        (RequestId(2), Served::Slack)
    );
}
