//! Drives that are measured without knowing them: the figures against the truth, and the profile against the drive.

#![allow(clippy::print_stdout, reason = "a test says its seed and its figures")]

mod flash;
mod in_use;
mod without_writes;

use drives::plant::{Plant, PlantSpec};
use lab::measure::{Compared, Disturbances, MeasuredPlant};
use measure::Method;
use measure::facts::Effort;
use measure::log;
use measure::machine::Measured;
use sched::profile::DriveProfile;
use sched::units::{Nanos, Sector, SectorCount, Time};
use testkit::seed;

/// Requests with which a profile is compared with its drive.
const COMPARED: u64 = 100_000;

struct Measuring {
    spec: PlantSpec,
    effort: Effort,
    disturbances: Disturbances,
}

impl Measuring {
    fn of(name: &str) -> Self {
        Self::of_spec(PlantSpec::built_in(name).expect("it is built in"))
    }

    fn of_spec(spec: PlantSpec) -> Self {
        Self {
            spec,
            effort: Effort::Normal,
            disturbances: Disturbances::default(),
        }
    }

    fn drive(&self, seed: u64) -> MeasuredPlant {
        MeasuredPlant::new(
            Plant::new(self.spec.clone(), seed),
            self.disturbances.clone(),
            seed,
        )
    }

    fn measure(&self, seed: u64) -> (Measured, Nanos) {
        let mut drive = self.drive(seed);
        let facts = drive.facts();
        let outcome = drive.measure(facts, self.effort, seed);
        let measured = outcome.measured.expect("it can be measured");
        let findings = &measured.findings;
        println!(
            "{}: {} requests in {} s; {:?}; {:.2} ns; {} zones; {:?} heads; {} late; predicted over actual {:.3}; widened {} times by {}",
            self.spec.name(),
            outcome.requests,
            outcome.took.get() / 1_000_000_000,
            findings.method,
            findings.rotation.map_or(0.0, |rotation| rotation.nanos),
            findings.zones.len(),
            findings.tracks.as_ref().map(|tracks| tracks.heads),
            findings.late,
            findings.validation.predicted_over_actual,
            findings.validation.widened,
            findings.validation.widened_by,
        );
        (measured, outcome.took)
    }

    fn compare(&self, what: &str, profile: &DriveProfile, seed: u64) -> Compared {
        let compared = self.drive(seed).compare(profile, COMPARED);
        println!("  {what}: {compared:?}");
        compared
    }
}

/// Measures a drive whose best profile is known, and checks the measured one against it.
fn as_good_as_the_best(measuring: &Measuring, best: &DriveProfile, seed: u64) -> Measured {
    let (measured, _) = measuring.measure(seed);
    let mine = measuring.compare("measured", &measured.profile, seed + 1);
    let best = measuring.compare("the best", best, seed + 1);
    assert_eq!(mine.longer, 0);
    assert!(mine.predicted_over_actual <= 1.15 * best.predicted_over_actual);
    for (mine, best) in mine.admitted.iter().zip(best.admitted) {
        assert!(*mine >= 0.95 * best, "{mine} of {best}");
    }
    measured
}

#[test]
fn atlas_is_measured() {
    let seed = seed("atlas_is_measured", Some(1));
    let measuring = Measuring::of("quantum-atlas-ii");
    let best = DriveProfile::shipped("quantum-atlas-ii").expect("it is shipped");
    let measured = as_good_as_the_best(&measuring, &best, seed);
    same_geometry(&measured, "quantum-atlas-ii");
    assert!(measured.findings.reads_whole_tracks);
    assert!(measured.findings.writes_whole_last_track);
}

#[test]
fn large_drive_is_measured() {
    let seed = seed("large_drive_is_measured", Some(1));
    let measuring = Measuring::of("hdd-8tb-7200");
    let best = DriveProfile::shipped("hdd-8tb-7200").expect("it is shipped");
    let measured = as_good_as_the_best(&measuring, &best, seed);
    same_geometry(&measured, "hdd-8tb-7200");
}

/// Bands that one head serves alone, in both directions: each track counts as a cylinder.
#[test]
fn serpentine_drive_is_measured() {
    let seed = seed("serpentine_drive_is_measured", Some(1));
    let measuring = Measuring::of("hdd-8tb-7200-serpentine");
    let (measured, _) = measuring.measure(seed);
    let mine = measuring.compare("measured", &measured.profile, seed + 1);
    assert_eq!(mine.longer, 0);
    // The same drive cylinder by cylinder, with the profile that is shipped for it.
    let plain = Measuring::of("hdd-8tb-7200");
    let best = DriveProfile::shipped("hdd-8tb-7200").expect("it is shipped");
    let best = plain.compare("the best of the plain one", &best, seed + 1);
    assert!(mine.predicted_over_actual <= 1.15 * best.predicted_over_actual);
    for (mine, best) in mine.admitted.iter().zip(best.admitted) {
        assert!(*mine >= 0.95 * best, "{mine} of {best}");
    }
}

#[test]
fn large_drive_is_measured_quickly() {
    let seed = seed("large_drive_is_measured_quickly", None);
    let measuring = Measuring {
        effort: Effort::Quick,
        ..Measuring::of("hdd-8tb-7200")
    };
    let (measured, took) = measuring.measure(seed);
    let mine = measuring.compare("measured", &measured.profile, seed + 1);
    // As the validation says: fewer than 3 in 10,000.
    assert!(mine.longer * 10_000 <= 3 * COMPARED);
    assert!(took <= Nanos::from_secs(600), "{took}");
}

/// Zones, heads, switches and rotation are those of the plant.
fn same_geometry(measured: &Measured, name: &str) {
    let findings = &measured.findings;
    assert_eq!(findings.method, Method::Geometry);
    let truth = PlantSpec::built_in(name).expect("it is built in");
    let rotation = findings.rotation.expect("it turns").nanos;
    let exact = truth.rotation().get() as f64;
    assert!((rotation / exact - 1.0).abs() < 10e-6, "{rotation}");
    let tracks = findings.tracks.as_ref().expect("tracks were told apart");
    assert_eq!(tracks.heads, truth.heads());
    let zones = &measured
        .profile
        .spec()
        .rotating
        .as_ref()
        .expect("it turns")
        .zones;
    let found: Vec<(u64, u64)> = zones
        .iter()
        .map(|zone| (zone.cylinders, zone.sectors_per_track))
        .collect();
    let mut zones_of_truth: Vec<(u64, u64)> = truth.zones().collect();
    // The last zone of a plant may be longer than the drive.
    if let (Some(last), Some(found)) = (zones_of_truth.last_mut(), found.last()) {
        last.0 = last.0.min(found.0);
    }
    assert_eq!(found, zones_of_truth);
    for (found, truth) in [
        (tracks.head_switch, truth.head_switch()),
        (tracks.cylinder_switch, truth.cylinder_switch()),
    ] {
        // A skew is a switch rounded up to a sector.
        let sector = exact / zones[zones.len() - 1].sectors_per_track as f64;
        let longer = found.get() as f64 - truth.get() as f64;
        assert!((0.0..2.0 * sector).contains(&longer), "{found} {truth}");
    }
}

#[test]
fn drive_with_late_requests_gets_a_safe_profile_and_a_count() {
    let seed = seed("drive_with_late_requests", None);
    let measuring = Measuring {
        disturbances: Disturbances {
            late_permille: 50,
            late_max: Nanos(50_000_000),
            ..Disturbances::default()
        },
        ..Measuring::of("quantum-atlas-ii")
    };
    let (measured, _) = measuring.measure(seed);
    let mine = measuring.compare("measured", &measured.profile, seed + 1);
    assert!(mine.longer * 10_000 <= 3 * COMPARED);
    assert!(measured.findings.late > 0);
}

#[test]
fn host_that_notices_completions_late_changes_little() {
    let seed = seed("host_that_notices_completions_late", Some(1));
    for name in ["quantum-atlas-ii", "hdd-8tb-7200"] {
        let measuring = Measuring {
            disturbances: Disturbances {
                noticed_late_max: Nanos(100_000),
                ..Disturbances::default()
            },
            ..Measuring::of(name)
        };
        let best = DriveProfile::shipped(name).expect("it is shipped");
        let (measured, _) = measuring.measure(seed);
        let mine = measuring.compare("measured", &measured.profile, seed + 1);
        let best = measuring.compare("the best", &best, seed + 1);
        assert_eq!(mine.longer, 0);
        assert!(mine.predicted_over_actual <= 1.15 * best.predicted_over_actual);
        let rotation = measured.findings.rotation.expect("it turns").nanos;
        assert!((rotation / 8_333_333.0 - 1.0).abs() < 10e-6, "{rotation}");
    }
}

#[test]
fn drive_with_a_slow_head_gets_a_safe_profile() {
    let seed = seed("drive_with_a_slow_head", Some(1));
    let measuring = Measuring {
        disturbances: Disturbances {
            slow_head: Some((3, Nanos(12_000_000))),
            ..Disturbances::default()
        },
        ..Measuring::of("quantum-atlas-ii")
    };
    let (measured, _) = measuring.measure(seed);
    let mine = measuring.compare("measured", &measured.profile, seed + 1);
    assert!(mine.longer * 10_000 <= 3 * COMPARED);
    assert!(measured.findings.late > 0 || measured.findings.validation.widened > 0);
}

#[test]
fn drive_with_a_remapped_region_gets_a_safe_profile() {
    let seed = seed("drive_with_a_remapped_region", None);
    let measuring = Measuring {
        disturbances: Disturbances {
            slow: vec![(Sector(3_000_000)..Sector(3_040_000), Nanos(25_000_000))],
            ..Disturbances::default()
        },
        ..Measuring::of("quantum-atlas-ii")
    };
    let (measured, _) = measuring.measure(seed);
    let mine = measuring.compare("measured", &measured.profile, seed + 1);
    assert!(mine.longer * 10_000 <= 3 * COMPARED);
}

#[test]
fn interrupted_measurement_continues_with_its_samples() {
    let seed = seed("interrupted_measurement_continues", None);
    let measuring = Measuring {
        effort: Effort::Quick,
        ..Measuring::of("quantum-atlas-ii")
    };
    let mut drive = measuring.drive(seed);
    let facts = drive.facts();
    let mut file = log::header(&facts, Effort::Quick, seed).to_vec();
    let whole = run(&mut drive, &facts, seed, &mut file, &[]);
    // Torn in the middle of a record, so that the second half is measured again, on a drive that was reset.
    let records = (file.len() - log::HEADER_BYTES) / log::RECORD_BYTES;
    file.truncate(log::HEADER_BYTES + records / 2 * log::RECORD_BYTES + 7);
    assert_eq!(log::seed_of(&file, &facts, Effort::Quick), Ok(seed));
    let kept = log::records(&file).expect("its times are sound");
    assert_eq!(kept.len(), records / 2);
    let mut again = Vec::new();
    let measured = run(
        &mut measuring.drive(seed + 1),
        &facts,
        seed,
        &mut again,
        &kept,
    );
    assert_eq!(
        measured.findings.rotation, whole.findings.rotation,
        "it was measured before the interruption"
    );
    let mine = measuring.compare("continued", &measured.profile, seed + 1);
    assert!(mine.longer * 10_000 <= 3 * COMPARED);
    let mut other = facts;
    other.capacity = SectorCount(other.capacity.get() - 8);
    assert_eq!(
        log::seed_of(&file, &other, Effort::Quick),
        Err(log::LogError::Other)
    );
}

/// Measures a drive, with the samples that are known first, and appends the records of the others to a file.
fn run(
    drive: &mut MeasuredPlant,
    facts: &measure::Facts,
    seed: u64,
    file: &mut Vec<u8>,
    known: &[log::Recorded],
) -> Measured {
    let mut measurement = measure::Measurement::new(facts.clone(), Effort::Quick, seed);
    let mut known = known.iter();
    let mut now = Time(0);
    let mut samples = Vec::new();
    while let measure::Step::Serve { requests, .. } = measurement.step(&samples) {
        samples.clear();
        for request in &requests {
            let sample = match known.next() {
                Some(recorded) => {
                    assert!(recorded.answers(request));
                    recorded.sample
                }
                None => drive.serve(request, now.max(request.not_before)),
            };
            now = sample.completed;
            file.extend(log::record(request, &sample));
            samples.push(sample);
        }
    }
    let result = measurement.result().expect("it is finished");
    result.expect("the drive can be measured")
}

#[test]
#[ignore = "soak: many measurements of the same drives"]
fn measured_profiles_are_safe_and_tight_full() {
    let seed = seed("measured_profiles_are_safe_and_tight", None);
    for name in ["quantum-atlas-ii", "hdd-8tb-7200"] {
        let best = DriveProfile::shipped(name).expect("it is shipped");
        let measuring = Measuring::of(name);
        let (mut unsafe_ones, mut over, mut loosest) = (0, 0, 0.0_f64);
        let best = measuring.compare("the best", &best, seed);
        for number in 0..40 {
            let seed = seed.wrapping_add(number);
            let (measured, _) = measuring.measure(seed);
            let mine = measuring.compare("measured", &measured.profile, !seed);
            unsafe_ones += u64::from(mine.longer > 0);
            over += mine.longer;
            loosest = loosest.max(mine.predicted_over_actual / best.predicted_over_actual);
            for (mine, best) in mine.admitted.iter().zip(best.admitted) {
                assert!(*mine >= 0.95 * best, "{mine} of {best}");
            }
        }
        println!(
            "{name}: {unsafe_ones} of 40 exceeded, {over} requests in all; loosest {loosest:.3}"
        );
        assert!(loosest <= 1.15);
        // Fewer than one request in a million.
        assert!(over <= 4, "{over}");
    }
}

/// The drives whose DiskSim files are beside the repository.
fn imported(name: &str) -> Option<PlantSpec> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/data/drives")
        .join(name);
    if !folder.is_dir() {
        testkit::skip::skipped(&format!("there is no {}", folder.display()));
        return None;
    }
    let imported = drives::disksim::import(&drives::disksim::Folder(folder), None);
    Some(imported.expect("the drive's files are sound").spec)
}

#[test]
fn imported_drives_are_measured() {
    let seed = seed("imported_drives_are_measured", Some(1));
    for name in ["atlas_III", "cheetah4LP", "hp_c2247a", "hp_c2490a"] {
        let Some(spec) = imported(name) else {
            return;
        };
        let plant = Plant::new(spec.without_caches(), seed);
        let measuring = Measuring::of_spec(spec.without_caches());
        let (measured, _) = measuring.measure(seed);
        near_the_truth(&measured, &plant);
        let without_cache = measuring.compare("without cache", &measured.profile, seed + 1);
        let measuring = Measuring::of_spec(spec);
        let (measured, _) = measuring.measure(seed);
        let with_cache = measuring.compare("with cache", &measured.profile, seed + 1);
        for compared in [without_cache, with_cache] {
            assert!(
                compared.longer * 10_000 <= 3 * COMPARED,
                "{name}: {}",
                compared.longer
            );
        }
    }
}

/// Rotation, zones, sectors per track and seeks are those of a drive with slips and spares.
fn near_the_truth(measured: &Measured, plant: &Plant) {
    let findings = &measured.findings;
    assert_eq!(findings.method, Method::Geometry);
    let rotation = findings.rotation.expect("it turns").nanos;
    let exact = plant.spec().rotation().get() as f64;
    assert!((rotation / exact - 1.0).abs() < 10e-6, "{rotation} {exact}");
    let tracks = findings.tracks.as_ref().expect("tracks were told apart");
    let truth = plant.zones();
    assert_eq!(findings.zones.len(), truth.len());
    for (found, truth) in findings.zones.iter().zip(&truth) {
        assert_eq!(found.sectors_per_track, truth.sectors_per_track);
        // Where spare tracks hide a boundary, the last place before it counts.
        let off = found.first_sector.abs_diff(truth.first_sector.get());
        assert!(off <= 32 * truth.sectors_per_track, "{found:?} {truth:?}");
        let skew = truth.cylinder_skew.max(truth.head_skew);
        // Skews are whole sectors, and were measured in three zones. The predictor adds a sector to a switch.
        let sector = Nanos((exact / truth.sectors_per_track as f64) as u64 + 1_000);
        let longest = tracks.cylinder_switch + sector;
        assert!(longest >= skew, "{longest} {truth:?}");
    }
    // The profile's cylinders are tracks if heads could not be told apart.
    let cylinders = plant.spec().heads() / tracks.heads;
    for seek in &findings.seeks {
        let truth = plant.seek_max(seek.cylinders / cylinders);
        assert!(seek.bound >= truth, "{seek:?} {truth}");
    }
}
