//! Origin of a measured profile: the drive, the date, the method and the evidence.

use super::ProfileError;
use super::check::{Checked, bounded, wrong};
use alloc::format;
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// No name, serial number or description is longer, in bytes.
const TEXT_BYTES_MAX: usize = 200;
/// No validation takes more requests.
const SAMPLES_MAX: u64 = 1 << 48;
/// The sum of predictions is at most this many thousandths of the sum of actual times.
const OVER_ACTUAL_PERMILLE_MAX: u64 = 1_000_000;

/// The measurement behind a profile.
///
/// The profile counts as measured on the drive with this serial number alone: drives of one model differ, and a
/// server cannot know by how much.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasurementSpec {
    /// Model of the measured drive, as the drive reports it.
    pub model: String,
    /// Serial number of the measured drive. For a disk without one, the identity that the server gives it.
    pub serial: String,
    /// Firmware of the drive at that time.
    #[serde(default)]
    pub firmware: String,
    /// Time of the measurement, as RFC 3339 writes it.
    pub date: String,
    /// The method, for people: the program, its version, its options.
    pub method: String,
    /// Number of requests of the validation, none of which took longer than predicted.
    pub samples: u64,
    /// Confidence of the validation, in percent.
    pub confidence_percent: u64,
    /// Total predicted over total actual time of the validation, in thousandths.
    pub over_actual_permille: u64,
}

impl MeasurementSpec {
    /// The largest share of requests that may take longer than predicted and still agree with the validation, in
    /// millionths, rounded up.
    ///
    /// `samples` requests without an overrun bound the share by -ln(1 - confidence) / samples; at 95 % that is
    /// 3 / samples, the rule of three.
    #[must_use]
    pub fn overruns_per_million_max(&self) -> u64 {
        // -ln(1 - confidence) in thousandths, rounded up, at some confidences in percent.
        const BOUNDS: [(u64, u64); 6] = [
            (50, 694),
            (80, 1_610),
            (90, 2_303),
            (95, 2_996),
            (98, 3_913),
            (99, 4_606),
        ];
        let bound = BOUNDS
            .iter()
            .find(|(percent, _)| self.confidence_percent <= *percent);
        let (_, thousandths) = *bound.unwrap_or(&BOUNDS[BOUNDS.len() - 1]);
        (thousandths * 1_000)
            .div_ceil(self.samples.max(1))
            .min(1_000_000)
    }
}

/// Checks the table.
pub(super) fn check(spec: &MeasurementSpec) -> Checked {
    text("measurement.model", &spec.model, Presence::Required)?;
    text("measurement.serial", &spec.serial, Presence::Required)?;
    text("measurement.firmware", &spec.firmware, Presence::Optional)?;
    text("measurement.date", &spec.date, Presence::Required)?;
    text("measurement.method", &spec.method, Presence::Required)?;
    if !begins_with_a_day(&spec.date) {
        return Err(wrong(
            "measurement.date",
            format!(
                "is {:?}; it must be a time such as \"2026-11-30T04:20:00Z\"",
                spec.date
            ),
        ));
    }
    bounded("measurement.samples", spec.samples, 1, SAMPLES_MAX)?;
    bounded(
        "measurement.confidence_percent",
        spec.confidence_percent,
        1,
        99,
    )?;
    bounded(
        "measurement.over_actual_permille",
        spec.over_actual_permille,
        1,
        OVER_ACTUAL_PERMILLE_MAX,
    )
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Required,
    Optional,
}

fn text(at: &str, value: &str, presence: Presence) -> Result<(), ProfileError> {
    if presence == Presence::Required && value.trim().is_empty() {
        return Err(wrong(at, "is empty; the measurement must state it"));
    }
    if value.len() > TEXT_BYTES_MAX {
        return Err(wrong(
            at,
            format!("has {} bytes; it may have {TEXT_BYTES_MAX}", value.len()),
        ));
    }
    if value.chars().any(char::is_control) {
        return Err(wrong(
            at,
            "contains a control character; it must be one line of text",
        ));
    }
    Ok(())
}

/// True for a text that begins as `2026-11-30` does.
fn begins_with_a_day(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 10
        && bytes[..10]
            .iter()
            .enumerate()
            .all(|(index, byte)| match index {
                4 | 7 => *byte == b'-',
                _ => byte.is_ascii_digit(),
            })
}
