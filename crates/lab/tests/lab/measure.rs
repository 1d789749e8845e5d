//! Drives that are measured without knowing them: the figures against the truth, and the profile against the drive.

#![allow(clippy::print_stdout, reason = "a test says its seed and its figures")]

use drives::plant::{Plant, PlantSpec};
use lab::measure::{Disturbances, MeasuredPlant};
use measure::facts::Effort;
use sched::predict::Predictor;
use sched::profile::DriveProfile;
use sched::request::Op;
use sched::units::{Nanos, Sector, SectorCount, Time};
use testkit::{Random, seed};

fn measured(name: &str, effort: Effort) {
    let seed = seed(name, Some(1));
    let spec = PlantSpec::built_in(name).expect("it is built in");
    let plant = Plant::new(spec, seed);
    let mut drive = MeasuredPlant::new(plant, Disturbances::default(), seed);
    let facts = drive.facts();
    let outcome = drive.measure(facts, effort, seed);
    println!(
        "{} requests, {} s",
        outcome.requests,
        outcome.took.get() / 1_000_000_000
    );
    let measured = outcome.measured.expect("it can be measured");
    let findings = &measured.findings;
    println!(
        "{:?} {:?} overhead {:?} settle {:?} whole {} tail {} late {}",
        findings.method,
        findings.rotation,
        findings.overhead,
        findings.write_settle,
        findings.reads_whole_tracks,
        findings.writes_whole_last_track,
        findings.late
    );
    for zone in &findings.zones {
        println!("{zone:?}");
    }
    if let Some(tracks) = &findings.tracks {
        println!(
            "heads {} {:?} {:?}",
            tracks.heads, tracks.head_switch, tracks.cylinder_switch
        );
    }
    for seek in &findings.seeks {
        println!("{seek:?}");
    }
    let v = &findings.validation;
    println!(
        "n {} over {} widened {} by {:?}",
        v.requests, v.predicted_over_actual, v.widened, v.widened_by
    );
    check(name, "measured", &measured.profile, seed + 1);
    if let Ok(best) = DriveProfile::shipped(name) {
        check(name, "shipped", &best, seed + 1);
    }
}

fn check(name: &str, what: &str, profile: &DriveProfile, seed: u64) {
    let predictor = Predictor::new(profile);
    let mut plant = Plant::new(PlantSpec::built_in(name).expect("it is built in"), seed);
    let mut random = Random(seed);
    let (mut predicted_sum, mut actual_sum, mut over, mut worst) = (0, 0, 0, 0);
    let mut now = Time(0);
    let mut head = None;
    let sectors = plant.sectors().get();
    for _ in 0..100_000 {
        let count = if random.below(2) == 0 {
            8 << random.below(5)
        } else {
            128 << random.below(5)
        };
        let start = random.below((sectors - count) / 8) * 8;
        let op = if random.below(2) == 0 {
            Op::Read
        } else {
            Op::Write
        };
        now += Nanos(random.below(20_000_000));
        let service = plant.service(now, op, Sector(start), SectorCount(count));
        let actual = (service.completed - now).get();
        let predicted = predictor
            .predict(head, op, Sector(start), SectorCount(count))
            .get();
        over += u64::from(actual > predicted);
        if actual > predicted && what == "measured" {
            println!(
                "  over {} us: {op:?} at {start} of {count} from {head:?} predicted {} us; distance {}; {:?}",
                (actual - predicted) / 1000,
                predicted / 1000,
                head.map_or(0, |head| predictor
                    .cylinder(head)
                    .abs_diff(predictor.cylinder(Sector(start)))),
                service.breakdown
            );
        }
        worst = worst.max(actual.saturating_sub(predicted));
        predicted_sum += predicted;
        actual_sum += actual;
        now = service.completed;
        head = Some(Sector(start + count - 1));
    }
    let whole = Sector(0)..Sector(sectors);
    let c = [256, 2048].map(|count| {
        predictor
            .worst_case(whole.clone(), Op::Write, SectorCount(count))
            .get()
            / 1000
    });
    println!(
        "{what}: {over} over, worst {worst} ns, predicted/actual {:.4}; C {c:?}",
        predicted_sum as f64 / actual_sum as f64
    );
}

#[test]
fn atlas_is_measured() {
    measured("quantum-atlas-ii", Effort::Normal);
}

#[test]
fn large_drive_is_measured() {
    measured("hdd-8tb-7200", Effort::Normal);
}
