use super::super::history::{KindRow, Subject};
use super::*;
use engine::dispatcher::BUCKETS;
use sched::profile::{DriveProfile, MeasurementSpec};

const DAY: u64 = 24 * 60 * 60;

fn at_day(day: u64) -> Moment {
    Moment::at((20_000 + day) * DAY)
}

fn history() -> History {
    let subject = Subject {
        disk: "00".to_owned(),
        serial: None,
        profile: "p".to_owned(),
        profile_hash: "00".to_owned(),
    };
    History::new(subject, "sda".to_owned(), at_day(0))
}

/// A profile whose validation had this many requests, if it had one.
fn profile(samples: Option<u64>) -> DriveProfile {
    let shipped = DriveProfile::shipped("quantum-atlas-ii").unwrap();
    let mut spec = shipped.spec().clone();
    spec.measurement = samples.map(|samples| MeasurementSpec {
        model: "m".to_owned(),
        serial: "s".to_owned(),
        firmware: String::new(),
        date: "2026-11-30".to_owned(),
        method: "by hand".to_owned(),
        samples,
        confidence_percent: 95,
        over_actual_permille: 1_160,
    });
    DriveProfile::new(spec).unwrap()
}

fn direction(history: &mut History, profile: &DriveProfile, now: Moment) -> Option<DriftDirection> {
    judge(history, profile, now).0.map(|drift| drift.direction)
}

#[test]
fn more_overruns_than_the_validation_allows_are_a_drift() {
    // 30 in a million are allowed.
    let measured = profile(Some(100_000));
    for (count, overruns, is_slower) in [
        (10, 3, false),
        (10, 4, true),
        // 30 are expected, and 30 + 4 * sqrt(30) + 3 are no surprise.
        (1_000_000, 54, false),
        (1_000_000, 55, true),
    ] {
        let mut history = history();
        history.add_to_day(at_day(1).day(), count, overruns);
        let slower = direction(&mut history, &measured, at_day(1));
        let expected = is_slower.then_some(DriftDirection::Slower);
        assert_eq!(slower, expected, "{overruns} of {count}");
    }
}

#[test]
fn profile_without_validation_is_judged_from_many_requests() {
    let unmeasured = profile(None);
    // 1 in 10,000 is expected of it, and 1 + 4 + 3 are no surprise.
    for (count, overruns, is_slower) in
        [(9_999, 9_999, false), (10_000, 8, false), (10_000, 9, true)]
    {
        let mut history = history();
        history.add_to_day(at_day(1).day(), count, overruns);
        let slower = direction(&mut history, &unmeasured, at_day(1)).is_some();
        assert_eq!(slower, is_slower, "{overruns} of {count}");
    }
}

#[test]
fn drift_keeps_its_begin_and_ends_after_a_week() {
    let measured = profile(Some(100_000));
    let mut history = history();
    history.add_to_day(at_day(1).day(), 1_000, 2);
    assert_eq!(
        judge(&mut history, &measured, at_day(1)),
        (None, Vec::new())
    );
    history.add_to_day(at_day(3).day(), 1_000, 3);
    let (drift, changes) = judge(&mut history, &measured, at_day(3));
    let drift = drift.unwrap();
    assert_eq!(drift.since, at_day(3).to_string());
    assert!(
        drift.what.contains("5 of 2000 requests in 7 days")
            && drift.what.contains("30 in 1,000,000")
            && drift.what.contains("disk measure")
            && drift.what.contains(&drift.since),
        "{}",
        drift.what
    );
    assert!(
        matches!(&changes[..], [DriftChange::Began(text)] if text.starts_with("disk \"sda\": ")),
        "{changes:?}"
    );
    // A stored drift continues after a restart.
    let text = serde_json::to_string(&history).unwrap();
    let mut history: History = serde_json::from_str(&text).unwrap();
    let (later, changes) = judge(&mut history, &measured, at_day(7));
    assert_eq!(later.unwrap().since, drift.since);
    assert_eq!(changes, []);
    let (after, changes) = judge(&mut history, &measured, at_day(8));
    assert_eq!(after, None);
    assert!(
        matches!(&changes[..], [DriftChange::Ended(_)]),
        "{changes:?}"
    );
    assert_eq!(history.slower_since, None);
}

#[test]
fn disk_that_would_admit_a_tenth_more_is_faster() {
    let measured = profile(Some(100_000));
    let row = |length_bytes_max, count, took_permille_max| KindRow {
        op: "read".to_owned(),
        user: "stream".to_owned(),
        length_bytes_max,
        count,
        overruns: 0,
        predicted_ns: 1,
        actual_ns: 1,
        excess_max_ns: 0,
        took_permille_max,
        buckets: [0; BUCKETS],
    };
    for (rows, is_faster) in [
        (vec![row(1 << 20, 9_999, 500)], false),
        (vec![row(1 << 20, 10_000, 500)], true),
        // 1 / (0.866 * 1.05) is just below 1.1.
        (vec![row(1 << 20, 10_000, 866)], false),
        (vec![row(1 << 20, 10_000, 865)], true),
        (vec![row(1 << 20, 10_000, 500), row(1 << 16, 1, 950)], false),
        // Short requests say nothing of blocks.
        (vec![row(1 << 20, 10_000, 500), row(4_096, 1, 950)], true),
        (vec![row(4_096, 100_000, 500)], false),
    ] {
        let mut history = history();
        history.kinds.clone_from(&rows);
        let faster = direction(&mut history, &measured, at_day(1));
        let expected = is_faster.then_some(DriftDirection::Faster);
        assert_eq!(faster, expected, "{rows:?}");
    }
    let mut half = history();
    half.kinds.push(row(1 << 20, 10_000, 500));
    let (drift, _) = judge(&mut half, &measured, at_day(2));
    let what = drift.unwrap().what;
    assert!(
        what.contains("more than 50 %") && what.contains("90 % more"),
        "{what}"
    );
}
