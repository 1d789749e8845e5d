//! Sentences for people about what was found and what it means for guarantees.

use crate::findings::{Findings, Method};

/// A larger share of late requests is a fault of the drive.
const LATE_SHARE_MAX: f64 = 0.001;
/// A profile that is wider than this admits little.
const LOOSE: f64 = 2.0;
/// A profile that is as wide as this was not made by the drive.
const USELESS: f64 = 10.0;

/// The sentences, the most important first. Only a device can be looked at and set.
pub(crate) fn notes(findings: &Findings, is_device: bool) -> Vec<String> {
    let mut notes = vec![verdict(findings), method(findings, is_device)];
    notes.extend(after_others(findings));
    notes.extend(late(findings, is_device));
    notes.extend(failures(findings));
    notes.extend(writes(findings, is_device));
    notes.extend(width(findings.validation.predicted_over_actual));
    notes
}

fn width(predicted_over_actual: f64) -> Option<String> {
    if predicted_over_actual >= USELESS {
        return Some(format!(
            "Predictions are {predicted_over_actual:.0} times the actual times: this profile is of little use. Something else used the drive or the processors: stop it and measure again (`--restart`)."
        ));
    }
    (predicted_over_actual > LOOSE).then(|| {
        "Predictions are more than twice the actual times, so the profile admits little. The slowest requests of the report show why."
            .to_owned()
    })
}

fn verdict(findings: &Findings) -> String {
    let validation = &findings.validation;
    format!(
        "{} requests, none longer than predicted; with 95 % confidence fewer than {:.3} % are. On average a request is predicted {:.2} times as long as it takes (1.0 is ideal).",
        validation.requests,
        validation.excess_below() * 100.0,
        validation.predicted_over_actual
    )
}

fn method(findings: &Findings, is_device: bool) -> String {
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
            let advice = if is_device {
                " Turn read look-ahead off and measure again for a closer one."
            } else {
                ""
            };
            format!(
                "It answers repeated reads from a cache, so its tracks cannot be seen. The profile bounds times by distance, size and position.{advice}"
            )
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

fn late(findings: &Findings, is_device: bool) -> Option<String> {
    if findings.late == 0 {
        return None;
    }
    let share = findings.late as f64 / findings.served.max(1) as f64;
    let advice = match (is_device, share > LATE_SHARE_MAX) {
        (true, true) => {
            "So many are a fault: look at the drive's own statistics (`smartctl -a`) and at its cables."
        }
        (true, false) => {
            "Drives do this now and then, for retries, recalibration and scans of their own."
        }
        (false, _) => "The host was late: something else used its processors or its disk.",
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

fn writes(findings: &Findings, is_device: bool) -> Option<String> {
    match findings.write_settle {
        None => Some(
            "Writes were not measured and their times are assumed, so the profile counts as an estimate: measure with `--write`, or promise only reads."
                .to_owned(),
        ),
        Some(settle) if is_device && findings.rotation.is_some_and(|found| settle.get() as f64 > 2.0 * found.nanos) => Some(
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
        let notes = notes(&findings(), true);
        assert_eq!(
            notes[0],
            "10000 requests, none longer than predicted; with 95 % confidence fewer than 0.030 % are. On average a request is predicted 1.50 times as long as it takes (1.0 is ideal)."
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
        let text = notes(&drive, true).join("\n");
        assert!(text.contains("900 of 20000"), "{text}");
        assert!(text.contains("25 % of the requests came after"), "{text}");
        assert!(text.contains("smartctl"), "{text}");
        assert!(text.contains("shingled"), "{text}");
        assert!(text.contains("more than twice"), "{text}");
        // A file or an emulated drive has nothing to look at or to set.
        let text = notes(&drive, false).join("\n");
        for word in ["smartctl", "cables", "shingled", "look-ahead"] {
            assert!(!text.contains(word), "{word} in {text}");
        }
        assert!(text.contains("900 of 20000"), "{text}");
    }

    #[test]
    fn profile_that_is_many_times_too_wide_is_called_useless() {
        let last = |ratio| {
            let mut drive = findings();
            drive.validation.predicted_over_actual = ratio;
            notes(&drive, true).pop().unwrap_or_default()
        };
        assert!(last(9.9).contains("more than twice"));
        assert!(last(10.0).contains("10 times the actual times: this profile is of little use"));
        assert!(last(278.4).contains("278 times"));
    }
}
