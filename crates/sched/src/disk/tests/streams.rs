//! Blocks of streams: early, in time, late, and what is known of the time that is left.

use super::*;

#[test]
fn requests_before_their_time_are_early_and_due_when_they_would_have_been() {
    let mut disk = atlas(SchedulerConfig::default());
    join(&mut disk, 1, task(200, 1_000), TaskKind::Stream).unwrap();
    for id in 1..4 {
        disk.submit(at(0), block(id, 1)).unwrap();
    }
    let mut now = at(0);
    for (id, served) in [
        (1, Served::RealTime),
        (2, Served::Early),
        (3, Served::Early),
    ] {
        let dispatch = issued(&mut disk, now);
        assert_eq!((dispatch.id, dispatch.served), (RequestId(id), served));
        assert_eq!(dispatch.deadline, Some(at(1_000 * id)));
        now += dispatch.predicted;
        let done = disk.completed(now, dispatch.id).unwrap();
        assert!(done.finished && done.lateness.is_zero());
    }
    assert_eq!(disk.report(now).tasks[0].early, 2);
}

#[test]
fn overruns_and_misses_are_counted_where_they_happen() {
    let mut disk = atlas(SchedulerConfig::default());
    join(&mut disk, 1, task(200, 300), TaskKind::Stream).unwrap();
    disk.submit(at(0), block(1, 1)).unwrap();
    let dispatch = issued(&mut disk, at(0));
    let done = disk.completed(at(310), dispatch.id).unwrap();
    assert_eq!(done.lateness, Nanos::from_millis(10));
    assert_eq!(done.overrun, Nanos::from_millis(310) - dispatch.predicted);
    let report = disk.report(at(310));
    assert_eq!((report.missed, report.overruns), (1, 1));
    assert_eq!((report.tasks[0].missed, report.tasks[0].overruns), (1, 1));
    assert_eq!(report.lateness_max, Nanos::from_millis(10));
}

#[test]
fn late_job_goes_before_best_effort() {
    let mut disk = atlas(SchedulerConfig::default());
    join(&mut disk, 1, task(200, 1_000), TaskKind::Stream).unwrap();
    disk.submit(at(0), block(1, 1)).unwrap();
    disk.submit(at(0), sync(2, 100)).unwrap();
    assert_eq!(
        issued(&mut disk, at(0)).id,
        RequestId(2),
        "there is time for both"
    );
    // The drive took 1.2 s. The next deadline of the stream is far away, the last one has passed.
    disk.completed(at(1_200), RequestId(2)).unwrap();
    disk.submit(at(1_200), sync(3, 100)).unwrap();
    assert_eq!(disk.report(at(1_200)).slack, Some(Nanos::ZERO));
    assert_eq!(issued(&mut disk, at(1_200)).id, RequestId(1));
}

#[test]
fn a_busy_interval_is_from_the_first_release_to_the_last_completion() {
    let mut disk = atlas(SchedulerConfig::default());
    for id in 1..=2 {
        join(&mut disk, id, task(200, 1_000), TaskKind::Stream).unwrap();
    }
    assert_eq!(disk.busy_since(at(5)), None);
    disk.submit(at(10), block(1, 1)).unwrap();
    issued(&mut disk, at(10));
    disk.submit(at(20), block(2, 2)).unwrap();
    disk.completed(at(100), RequestId(1)).unwrap();
    assert_eq!(
        disk.busy_since(at(100)),
        Some(at(10)),
        "the other one waits"
    );
    issued(&mut disk, at(100));
    assert_eq!(disk.busy_since(at(150)), Some(at(10)));
    disk.completed(at(200), RequestId(2)).unwrap();
    assert_eq!(disk.busy_since(at(200)), None);
    // An early block has a claim from its release on, in the queue or on the disk.
    disk.submit(at(300), block(3, 1)).unwrap();
    issued(&mut disk, at(300));
    assert_eq!(disk.busy_since(at(1_009)), None);
    assert_eq!(disk.busy_since(at(1_500)), Some(at(1_010)));
    disk.completed(at(1_600), RequestId(3)).unwrap();
    assert_eq!(disk.busy_since(at(1_600)), None);
}

#[test]
fn missing_disk_time_is_known_to_the_nanosecond() {
    for (policy, known) in [(Policy::Exact, true), (Policy::DeltaL, false)] {
        let mut disk = atlas(SchedulerConfig {
            policy,
            ..SchedulerConfig::default()
        });
        join(&mut disk, 1, task(200, 1_000), TaskKind::Stream).unwrap();
        assert_eq!(disk.shortfall(at(0)), Some(Nanos::ZERO), "nobody waits");
        disk.submit(at(0), block(1, 1)).unwrap();
        let worst =
            disk.predictor()
                .worst_case(Sector(0)..Sector(1_024), Op::Read, SectorCount(1_024));
        let last = at(1_000) - worst;
        let if_known = |missing| known.then_some(missing);
        assert_eq!(disk.shortfall(last), if_known(Nanos::ZERO));
        let later = last + Nanos::from_millis(3);
        assert_eq!(disk.shortfall(later), if_known(Nanos::from_millis(3)));
        assert_eq!(disk.shortfall(at(1_000)), None, "it is late already");
    }
}
