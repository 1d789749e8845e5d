use super::*;
use alloc::string::ToString;

fn atlas() -> ProfileSpec {
    DriveProfile::shipped("quantum-atlas-ii")
        .unwrap()
        .spec()
        .clone()
}

fn refused(change: impl FnOnce(&mut ProfileSpec), at: &str) {
    let mut spec = atlas();
    change(&mut spec);
    match DriveProfile::new(spec) {
        Err(ProfileError::Invalid { at: where_, .. }) => assert_eq!(where_, at),
        other => panic!("expected an error at {at}, got {other:?}"),
    }
}

#[test]
fn every_shipped_profile_reads_and_survives_a_round_trip() {
    for name in DriveProfile::shipped_names() {
        let profile = DriveProfile::shipped(name).unwrap();
        assert_eq!(profile.name(), *name);
        assert!(
            !profile.spec().sources.is_empty(),
            "{name} says where its figures come from"
        );
        assert_eq!(
            DriveProfile::from_toml(&profile.to_toml()).unwrap(),
            profile
        );
    }
    let error = DriveProfile::shipped("no-such-drive")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("no-such-drive") && error.contains("hdd-8tb-7200"),
        "{error}"
    );
}

#[test]
fn only_what_was_measured_says_so() {
    for name in DriveProfile::shipped_names() {
        let measured = DriveProfile::shipped(name).unwrap().measured();
        assert_eq!(measured, *name == "quantum-atlas-ii");
    }
}

#[test]
fn an_unknown_key_is_an_error_that_says_where() {
    let text = DriveProfile::shipped("conservative-file")
        .unwrap()
        .to_toml();
    let error = DriveProfile::from_toml(&text.replace("kind =", "spindles = 3\nkind ="))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("spindles") && error.contains("line"),
        "{error}"
    );
    let error = DriveProfile::from_toml(&text.replace("\"file\"", "\"drum\""))
        .unwrap_err()
        .to_string();
    assert!(error.contains("drum"), "{error}");
}

#[test]
fn nonsense_values_are_named() {
    refused(|spec| spec.name.clear(), "name");
    refused(|spec| spec.outstanding = 0, "outstanding");
    refused(|spec| spec.outstanding = 2, "outstanding");
    refused(|spec| spec.capacity_sectors = 0, "capacity_sectors");
    refused(|spec| spec.capacity_sectors += 1, "capacity_sectors");
    refused(
        |spec| spec.physical_sector_bytes = 513,
        "physical_sector_bytes",
    );
    refused(|spec| spec.kind = DriveKind::File, "kind");
    refused(|spec| spec.rotating = None, "kind");
    refused(|spec| spec.worst_case[1].zone = 0, "worst_case[1].zone");
    refused(|spec| spec.worst_case[1].zone = 12, "worst_case[1].zone");
    refused(
        |spec| spec.worst_case[2].bytes.truncate(3),
        "worst_case[2].service_us",
    );
    refused(
        |spec| spec.worst_case[2].bytes.swap(0, 1),
        "worst_case[2].bytes",
    );
    refused(
        |spec| spec.worst_case[2].service_us[3] = 1,
        "worst_case[2].service_us",
    );
}

#[test]
fn nonsense_mechanics_are_named() {
    fn rotating(change: impl FnOnce(&mut RotatingSpec), at: &str) {
        refused(|spec| change(spec.rotating.as_mut().unwrap()), at);
    }
    rotating(|r| r.rotation_us = 0, "rotating.rotation_us");
    rotating(|r| r.cylinder_switch_us = 0, "rotating.cylinder_switch_us");
    rotating(
        |r| r.bus_bytes_per_second = 0,
        "rotating.bus_bytes_per_second",
    );
    rotating(|r| r.zones.clear(), "rotating.zones");
    rotating(
        |r| r.zones[3].first_cylinder += 1,
        "rotating.zones[3].first_cylinder",
    );
    rotating(
        |r| r.zones[3].sectors_per_track = 500,
        "rotating.zones[3].sectors_per_track",
    );
    rotating(|r| r.zones[3].heads = 0, "rotating.zones[3].heads");
    rotating(|r| r.seek.clear(), "rotating.seek");
    rotating(|r| r.seek.truncate(9), "rotating.seek");
    rotating(|r| drop(r.seek.drain(..2)), "rotating.seek[0].cylinders");
    rotating(|r| r.seek[4].us = 0, "rotating.seek[4].us");
    rotating(
        |r| {
            r.seek.remove(0);
            r.head_switch_us = 3_201;
            r.cylinder_switch_us = 3_201;
        },
        "rotating.seek[0].us",
    );
    let longer = 1_000_001;
    rotating(
        |r| r.cylinder_switch_us = longer,
        "rotating.cylinder_switch_us",
    );
    rotating(|r| r.write_settle_us = longer, "rotating.write_settle_us");
    rotating(|r| r.seek[21].us = longer, "rotating.seek[21].us");
}

#[test]
fn a_cautious_profile_fits_any_capacity() {
    for kind in [DriveKind::Rotating, DriveKind::SolidState, DriveKind::File] {
        for capacity in [1, 7, 4_000, 8_890_760, 15_628_053_168, 1 << 40] {
            let profile = DriveProfile::conservative(kind, SectorCount(capacity)).unwrap();
            assert_eq!(profile.capacity(), SectorCount(capacity));
            assert!(!profile.measured());
        }
        assert!(DriveProfile::conservative(kind, SectorCount(0)).is_err());
    }
}

#[test]
fn a_drive_in_coarser_sectors_is_the_same_drive() {
    let fine = DriveProfile::new(atlas()).unwrap();
    let coarse = fine.in_sectors_of(Bytes(4_096)).unwrap();
    assert_eq!(coarse.physical_sector(), Bytes(4_096));
    assert_eq!(coarse.in_sectors_of(Bytes(512)).unwrap(), fine);
    for unit in [0, 256, 4_095, 1 << 17, u64::MAX] {
        let error = fine.in_sectors_of(Bytes(unit)).unwrap_err().to_string();
        assert!(error.contains("physical_sector_bytes"), "{unit}: {error}");
    }
}

fn measured_drive() -> MeasurementSpec {
    MeasurementSpec {
        model: "QUANTUM ATLAS II".to_owned(),
        serial: "161728340917".to_owned(),
        firmware: "LYK8".to_owned(),
        date: "2026-11-30T04:20:00Z".to_owned(),
        method: "clockwise disk measure".to_owned(),
        samples: 100_000,
        confidence_percent: 95,
        over_actual_permille: 1_160,
    }
}

#[test]
fn measurement_survives_a_round_trip_and_widening() {
    let mut spec = atlas();
    spec.measurement = Some(measured_drive());
    let profile = DriveProfile::new(spec).unwrap();
    let read = DriveProfile::from_toml(&profile.to_toml()).unwrap();
    assert_eq!(read, profile);
    let widened = read.widened(1_200).vouched_for(false);
    assert_eq!(widened.measurement(), Some(&measured_drive()));
    let text = profile.to_toml().replace("samples =", "examples =");
    let error = DriveProfile::from_toml(&text).unwrap_err().to_string();
    assert!(error.contains("examples"), "{error}");
}

#[test]
fn nonsense_in_a_measurement_is_named() {
    fn measurement(change: impl FnOnce(&mut MeasurementSpec), at: &str) {
        let mut stated = measured_drive();
        change(&mut stated);
        refused(|spec| spec.measurement = Some(stated), at);
    }
    measurement(|m| m.model = " ".to_owned(), "measurement.model");
    measurement(|m| m.serial.clear(), "measurement.serial");
    measurement(|m| m.serial = "1\n2".to_owned(), "measurement.serial");
    measurement(|m| m.firmware = "x".repeat(201), "measurement.firmware");
    measurement(|m| m.date = "yesterday".to_owned(), "measurement.date");
    measurement(|m| m.date = "30-11-2026".to_owned(), "measurement.date");
    measurement(|m| m.method.clear(), "measurement.method");
    measurement(|m| m.samples = 0, "measurement.samples");
    for percent in [0, 100] {
        let at = "measurement.confidence_percent";
        measurement(|m| m.confidence_percent = percent, at);
    }
    let at = "measurement.over_actual_permille";
    measurement(|m| m.over_actual_permille = 0, at);
}

#[test]
fn validation_without_overruns_bounds_their_share() {
    let share = |samples, confidence_percent| {
        let measured = measured_drive();
        MeasurementSpec {
            samples,
            confidence_percent,
            ..measured
        }
        .overruns_per_million_max()
    };
    assert_eq!(share(100_000, 95), 30);
    assert_eq!(share(1_000_000, 95), 3);
    assert_eq!(share(1_000, 99), 4_606);
    assert_eq!(share(1, 95), 1_000_000);
}
