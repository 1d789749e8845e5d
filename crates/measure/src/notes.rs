//! Sentences for people about what was found and what it means for guarantees.

use crate::findings::{Findings, Method};

/// A larger share of late requests is a fault of the drive.
const LATE_SHARE_MAX: f64 = 0.001;
/// A profile that is wider than this admits little.
const LOOSE: f64 = 2.0;

/// The sentences, the most important first.
pub(crate) fn notes(findings: &Findings) -> Vec<String> {
    let mut notes = vec![verdict(findings), method(findings)];
    notes.extend(after_others(findings));
    notes.extend(late(findings));
    notes.extend(failures(findings));
    notes.extend(writes(findings));
    if findings.validation.predicted_over_actual > LOOSE {
        notes.push(
            "Predictions are more than twice the actual times, so the profile admits little. The slowest requests of the report show why."
                .to_owned(),
        );
    }
    notes
}

fn verdict(findings: &Findings) -> String {
    let validation = &findings.validation;
    format!(
        "{} requests, none longer than predicted; with 95 % confidence fewer than {:.3} % are. The sum of the predictions is {:.2} times the sum of the times.",
        validation.requests,
        validation.excess_below() * 100.0,
        validation.predicted_over_actual
    )
}

fn method(findings: &Findings) -> String {
    let rotation = findings.rotation;
    let turns = rotation.map_or(String::new(), |rotation| {
        format!(
            "The drive turns {:.1} times a minute (a rotation takes {:.4} ms, known to {:.1} parts per million). ",
            60e9 / rotation.nanos,
            rotation.nanos / 1e6,
            rotation.error_ppm
        )
    });
    let rest = match (findings.method, rotation.is_some_and(|found| found.has_cache)) {
        (Method::Geometry, _) => {
            let heads = findings.tracks.as_ref().map_or(1, |tracks| tracks.heads);
            let heads = match heads {
                1 => "heads cannot be told apart, so each track counts as a cylinder".to_owned(),
                heads => format!("{heads} heads"),
            };
            format!("It has {} zones; {heads}.", findings.zones.len())
        }
        (Method::Envelope, true) => {
            "It answers repeated reads from a cache, so its tracks cannot be seen. The profile bounds times by distance, size and position. Turn read look-ahead off and measure again for a closer one."
                .to_owned()
        }
        (Method::Envelope, false) => {
            "Its tracks cannot be told apart. The profile bounds times by distance, size and position."
                .to_owned()
        }
        (Method::Flat, _) => {
            "Times have no period: it is no rotating drive. The profile has an overhead and a rate."
                .to_owned()
        }
    };
    turns + &rest
}

fn after_others(findings: &Findings) -> Option<String> {
    let share = findings.after_others as f64 * 100.0 / findings.served.max(1) as f64;
    // The first request of each session counts as one after others.
    (share >= 0.1).then(|| {
        format!(
            "Others used the drive meanwhile: {share:.0} % of the requests came after theirs. Those show no seeks, and on a drive with platters the validation does not count them."
        )
    })
}

fn late(findings: &Findings) -> Option<String> {
    if findings.late == 0 {
        return None;
    }
    let share = findings.late as f64 / findings.served.max(1) as f64;
    let advice = if share > LATE_SHARE_MAX {
        "So many are a fault: look at the drive's own statistics (`smartctl -a`) and at its cables."
    } else {
        "Drives do this now and then, for retries, recalibration and scans of their own."
    };
    Some(format!(
        "{} of {} requests came more than most of a rotation later than others of their kind. {advice}",
        findings.late, findings.served
    ))
}

fn failures(findings: &Findings) -> Option<String> {
    let first = findings.failures.first()?;
    Some(format!(
        "{} requests failed, the first one at sector {} with error {}. The profile says nothing about such places.",
        findings.failed,
        first.start.get(),
        first.errno
    ))
}

fn writes(findings: &Findings) -> Option<String> {
    match findings.write_settle {
        None => Some(
            "Writes were not measured and their times are assumed, so the profile counts as an estimate: measure with `--write`, or promise only reads."
                .to_owned(),
        ),
        Some(settle) if findings.rotation.is_some_and(|found| settle.get() as f64 > 2.0 * found.nanos) => Some(
            "Writes take rotations longer than reads. Drives with shingled tracks that manage them by themselves do so when they rewrite bands; no bound of writes holds on such a drive for long."
                .to_owned(),
        ),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use sched::units::Nanos;

    use super::*;
    use crate::findings::{RotationFound, Validation};

    fn findings() -> Findings {
        Findings {
            method: Method::Envelope,
            rotation: Some(RotationFound {
                nanos: 8_333_333.0,
                error_ppm: 1.0,
                has_cache: true,
            }),
            zones: Vec::new(),
            tracks: None,
            seeks: Vec::new(),
            depths: Vec::new(),
            overhead: Nanos::ZERO,
            write_settle: None,
            reads_whole_tracks: false,
            writes_whole_last_track: false,
            late: 0,
            served: 20_000,
            after_others: 0,
            failed: 0,
            failures: Vec::new(),
            validation: Validation {
                requests: 10_000,
                predicted_over_actual: 1.5,
                ..Validation::default()
            },
            notes: Vec::new(),
        }
    }

    #[test]
    fn notes_begin_with_the_verdict_and_name_what_was_not_measured() {
        let notes = notes(&findings());
        assert_eq!(
            notes[0],
            "10000 requests, none longer than predicted; with 95 % confidence fewer than 0.030 % are. The sum of the predictions is 1.50 times the sum of the times."
        );
        assert!(notes[1].contains("7200.0 times a minute"), "{}", notes[1]);
        assert!(notes[1].contains("look-ahead"), "{}", notes[1]);
        assert!(
            notes[2].contains("Writes were not measured"),
            "{}",
            notes[2]
        );
    }

    #[test]
    fn notes_name_faults_of_the_drive() {
        let mut drive = findings();
        drive.late = 900;
        drive.after_others = 5_000;
        drive.write_settle = Some(Nanos(40_000_000));
        drive.validation.predicted_over_actual = 3.0;
        let text = notes(&drive).join("\n");
        assert!(text.contains("900 of 20000"), "{text}");
        assert!(text.contains("25 % of the requests came after"), "{text}");
        assert!(text.contains("smartctl"), "{text}");
        assert!(text.contains("shingled"), "{text}");
        assert!(text.contains("more than twice"), "{text}");
    }
}
