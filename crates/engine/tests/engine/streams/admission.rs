//! Admission: accepted streams, and refusals with their reasons.

use engine::clock;
use engine::disk::Durability;
use engine::pool::Floor;
use engine::stream::{Refusal, Span, StreamSpec};
use engine::volume_io::{BestEffortReservation, ClientOptions};
use rand::Rng;
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond, Nanos, Time};

use super::{rate_that_fits, refused};
use testkit::disks::{MIB, Rig, seeded, stream_spec, volume};

#[test]
fn refusal_has_the_rate_that_would_fit() {
    let (_rig, pool) = Rig::fresh(2, 64 * MIB, MIB, Durability::WriteThrough);
    let volume = volume(&pool, "v", 16 * MIB);
    let refusal = refused(&pool, stream_spec(&volume, Op::Write, 1 << 40, MIB));
    let Refusal::Load { disk, .. } = &refusal else {
        panic!("{refusal}");
    };
    assert!(disk.disk.starts_with("disk") && disk.utilization > 0.0);
    let fits = rate_that_fits(&refusal);
    let all = pool
        .reserve(stream_spec(&volume, Op::Write, fits, MIB))
        .unwrap();
    let promised: Vec<f64> = pool
        .status()
        .disks
        .iter()
        .map(|disk| disk.utilization_promised)
        .collect();
    assert!(
        promised.iter().all(|load| (0.5..=1.0).contains(load)),
        "{promised:?}"
    );
    // A second stream of that rate does not fit; the message has the rate that does.
    let left = refused(&pool, stream_spec(&volume, Op::Read, fits, MIB));
    let Refusal::Load { rate_that_fits, .. } = left else {
        panic!("{left}");
    };
    assert!(rate_that_fits.is_none_or(|rate| rate.0 < fits));
    let status = all.close();
    assert_eq!((status.blocks, status.misses), (0, 0));
    pool.reserve(stream_spec(&volume, Op::Read, fits, MIB))
        .unwrap();
}

#[test]
fn rate_that_fits_is_the_largest_admitted_rate() {
    let mut rng = seeded("rates");
    let (_rig, pool) = Rig::fresh(3, 64 * MIB, MIB, Durability::WriteThrough);
    let volume = volume(&pool, "v", 30 * MIB);
    let mut held = Vec::new();
    for _ in 0..12 {
        let block = MIB >> rng.random_range(0..6);
        let op = if rng.random_bool(0.5) {
            Op::Read
        } else {
            Op::Write
        };
        let refusal = refused(&pool, stream_spec(&volume, op, 1 << 42, block));
        let Refusal::Load {
            rate_that_fits: Some(fits),
            ..
        } = refusal
        else {
            break;
        };
        let more = fits.0 + fits.0 / 1000 + 1;
        refused(&pool, stream_spec(&volume, op, more, block));
        let some = (fits.0 / 6).max(1);
        held.push(pool.reserve(stream_spec(&volume, op, some, block)).unwrap());
    }
    assert!(!held.is_empty());
    let status = pool.status();
    assert_eq!(status.streams.len(), held.len());
    assert!(
        status
            .disks
            .iter()
            .all(|disk| disk.utilization_promised <= 1.0)
    );
}

#[test]
fn invalid_stream_parameters_are_refused() {
    let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    let volume = volume(&pool, "v", 4 * MIB);
    let good = || stream_spec(&volume, Op::Write, 1 << 20, 65536);
    let bad: [StreamSpec; 6] = [
        StreamSpec {
            rate: BytesPerSecond(0),
            ..good()
        },
        StreamSpec {
            block: Bytes(0),
            ..good()
        },
        StreamSpec {
            block: Bytes(1000),
            ..good()
        },
        StreamSpec {
            block: Bytes(3 * 65536),
            ..good()
        },
        StreamSpec {
            range: Some(0..4 * MIB + 512),
            ..good()
        },
        StreamSpec {
            range: Some(MIB..MIB),
            ..good()
        },
    ];
    for spec in bad {
        let shown = format!("{spec:?}");
        assert!(
            matches!(refused(&pool, spec), Refusal::Invalid { .. }),
            "{shown}"
        );
    }
    let past = Span {
        from: Time(1),
        until: Some(Time(2)),
    };
    let late = StreamSpec {
        span: Some(past),
        ..good()
    };
    assert!(matches!(refused(&pool, late), Refusal::Invalid { .. }));
    assert!(pool.status().streams.is_empty());
}

#[test]
fn best_effort_with_a_reservation_is_admitted_like_a_stream() {
    let mut rig = Rig::new(2, 64 * MIB, Durability::WriteThrough);
    // Without a floor: a slice is not preemptible, and the floor's period is shorter than these slices.
    rig.options.floor = Floor::None;
    rig.create(MIB);
    let pool = rig.open();
    let volume = volume(&pool, "v", 4 * MIB);
    let ask = |slice, period| {
        let reservation = BestEffortReservation { slice, period };
        let share = pool.reserve_share("file system", reservation)?;
        let options = ClientOptions {
            reservation: Some(share),
            ..ClientOptions::default()
        };
        pool.client("file system", options)
    };
    let before = pool.status().disks[0].utilization_promised;
    let reserved = ask(Nanos::from_millis(15), Nanos::from_millis(50)).unwrap();
    assert!(pool.status().disks[0].utilization_promised > before + 0.29);
    reserved
        .write_at(&volume, Bytes(0), &vec![7; 2 << 20])
        .unwrap();
    assert!(matches!(
        ask(Nanos::from_millis(40), Nanos::from_millis(50)),
        Err(Refusal::Share { .. })
    ));
    assert!(matches!(
        ask(Nanos(1), Nanos::from_millis(100)),
        Err(Refusal::Invalid { .. })
    ));
    assert!(matches!(
        ask(Nanos(2), Nanos(1)),
        Err(Refusal::Invalid { .. })
    ));
    drop(reserved);
    ask(Nanos::from_millis(12), Nanos::from_millis(50)).unwrap();
}

#[test]
fn floor_has_the_requested_share() {
    for (floor, expected) in [(Floor::None, 0.0), (Floor::Share { permille: 100 }, 0.1)] {
        let mut rig = Rig::new(1, 64 * MIB, Durability::WriteThrough);
        rig.options.floor = floor;
        rig.create(MIB);
        let pool = rig.open();
        let status = pool.status();
        assert!((status.disks[0].floor - expected).abs() < 1e-6);
        assert_eq!(
            status
                .warnings
                .iter()
                .any(|warning| warning.what.contains("floor")),
            expected == 0.0
        );
    }
}

#[test]
fn spans_that_do_not_meet_share_the_disk() {
    let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    let volume = volume(&pool, "v", 4 * MIB);
    let fits = rate_that_fits(&refused(
        &pool,
        stream_spec(&volume, Op::Write, 1 << 40, MIB),
    ));
    let now = clock::now();
    let hours = |from: u64, until: u64| {
        let at = |hours: u64| now + Nanos::from_secs(3600 * hours);
        StreamSpec {
            span: Some(Span {
                from: at(from),
                until: Some(at(until)),
            }),
            ..stream_spec(&volume, Op::Write, fits * 2 / 3, MIB)
        }
    };
    let evening = pool.reserve(hours(4, 6)).unwrap();
    let morning = pool.reserve(hours(0, 2)).unwrap();
    assert!(matches!(refused(&pool, hours(1, 3)), Refusal::Load { .. }));
    assert!(matches!(refused(&pool, hours(3, 5)), Refusal::Load { .. }));
    assert!(matches!(refused(&pool, hours(1, 7)), Refusal::Load { .. }));
    // The later reservations have not replaced the current ones.
    let noon = pool.reserve(hours(3, 4)).map(|_| ());
    assert!(
        matches!(noon, Err(Refusal::Load { .. })),
        "the tail of its last blocks meets the evening"
    );
    pool.reserve(hours(7, 8)).unwrap();
    assert!(matches!(refused(&pool, hours(1, 2)), Refusal::Load { .. }));
    evening.close();
    morning.close();
}
