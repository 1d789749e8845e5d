//! Conditions on a drive's description.

use super::*;

const ATLAS: &str = include_str!("../../../plants/quantum-atlas-ii.toml");

#[test]
fn every_plant_that_is_compiled_in_is_one() {
    for name in BUILT_IN {
        assert_eq!(PlantSpec::built_in(name).unwrap().name(), name);
    }
    assert!(PlantSpec::built_in("nonesuch").is_none());
}

#[test]
fn a_key_too_many_too_few_or_of_the_wrong_type_is_refused_with_its_line() {
    let more = ATLAS.replace("heads = 10", "heads = 10\nheads_up = 1");
    let less = ATLAS.replace("heads = 10\n", "");
    let wrong = ATLAS.replace("heads = 10", "heads = \"ten\"");
    for (text, word) in [(more, "heads_up"), (less, "heads"), (wrong, "heads")] {
        let error = PlantSpec::parse(&text).unwrap_err().to_string();
        assert!(error.contains(word) && error.contains("line"), "{error}");
    }
}

#[test]
fn numbers_that_describe_no_drive_are_refused_by_key() {
    for (from, to, key) in [
        ("heads = 10", "heads = 0", "mechanics.heads"),
        (
            "rotation_ns = 8_333_333",
            "rotation_ns = 0",
            "mechanics.rotation_ns",
        ),
        ("sectors = 8_890_760", "sectors = 8_890_761", "sectors"),
        (
            "physical_sector_sectors = 1",
            "physical_sector_sectors = 2",
            "zone.sectors_per_track",
        ),
        ("cylinders = 1772", "cylinders = 0", "zone.cylinders"),
        ("distance_cylinders = 1,", "distance_cylinders = 9,", "seek"),
        ("min_us = 1400,", "min_us = 900,", "seek.min_us"),
    ] {
        let text = ATLAS.replacen(from, to, 1);
        assert_ne!(text, ATLAS, "{from} is in the file");
        let error = PlantSpec::parse(&text).unwrap_err();
        assert!(
            matches!(&error, SpecError::Invalid { key: k, .. } if *k == key),
            "{error}"
        );
    }
}
