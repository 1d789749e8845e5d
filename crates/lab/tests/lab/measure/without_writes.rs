//! A drive whose content must stay.

use measure::facts::Facts;

use super::*;

/// Nothing tells the models of writes apart, so the longer one is taken, and the profile is an estimate.
#[test]
fn estimate_of_writes_covers_them() {
    let seed = seed("estimate_of_writes_covers_them", Some(1));
    let measuring = Measuring::of("quantum-atlas-ii");
    let mut drive = measuring.drive(seed);
    let facts = Facts {
        writable: Vec::new(),
        ..drive.facts()
    };
    let outcome = drive.measure(facts, measuring.effort, seed);
    let measured = outcome.measured.expect("it can be measured");
    let mine = measuring.compare("measured", &measured.profile, seed + 1);
    assert_eq!(mine.longer, 0);
    assert!(!measured.profile.measured());
    let findings = &measured.findings;
    assert_eq!(findings.write_settle, None);
    assert!(findings.notes.join("\n").contains("an estimate"));
}
