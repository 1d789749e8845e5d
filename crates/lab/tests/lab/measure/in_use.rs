//! A drive that others use meanwhile.

use measure::facts::Facts;

use super::*;

/// As beside a running pool: every fifth request comes after a read of someone else, writes are possible at 64 places of
/// a mebibyte alone, no request is longer, and a request that depends on the one before comes 3 ms later.
#[test]
fn drive_in_use_is_measured() {
    let seed = seed("drive_in_use_is_measured", Some(1));
    let busy = Measuring {
        disturbances: Disturbances {
            others_permille: 200,
            ..Disturbances::default()
        },
        effort: Effort::Quick,
        ..Measuring::of("hdd-8tb-7200")
    };
    let mut drive = busy.drive(seed);
    let whole = drive.facts();
    let capacity = whole.capacity.get();
    let place = |index: u64| Sector(capacity * (2 * index + 1) / 128 / 2_048 * 2_048);
    let facts = Facts {
        request_max: SectorCount(2_048),
        writable: (0..64)
            .map(|index| place(index)..place(index) + SectorCount(2_048))
            .collect(),
        turnaround: Nanos::from_millis(3),
        ..whole
    };
    let outcome = drive.measure(facts, busy.effort, seed);
    let measured = outcome.measured.expect("it can be measured");
    same_geometry(&measured, "hdd-8tb-7200");
    let findings = &measured.findings;
    let share = findings.after_others as f64 / findings.served as f64;
    assert!((0.18..0.22).contains(&share), "{share}");
    // The settling of a write is found at the places that may be written.
    let truth = Measuring::of("hdd-8tb-7200");
    let settle = findings.write_settle.expect("writes were measured");
    println!("{} requests, write settle {settle}", outcome.requests);
    assert!((400_000..3_000_000).contains(&settle.get()), "{settle}");
    let mine = truth.compare("measured", &measured.profile, seed + 1);
    let best = DriveProfile::shipped("hdd-8tb-7200").expect("it is shipped");
    let best = truth.compare("the best", &best, seed + 1);
    assert!(mine.longer * 10_000 <= 3 * COMPARED);
    assert!(mine.predicted_over_actual <= 1.15 * best.predicted_over_actual);
}
