//! All results of a measurement, and the profile with its origin.

use std::time::SystemTime;

use measure::facts::Effort;
use measure::findings::{Findings, Method};
use measure::machine::Measured;
use sched::profile::{DriveProfile, MeasurementSpec, ProfileError};
use serde::Serialize;

use super::settings::Changed;
use super::smart::Smart;
use super::target::{Target, Use};
use crate::device::{WriteCache, Zoned};
use crate::quantity::Size;
use sched::units::Bytes;

/// The longest text in the table of a measurement, in bytes.
const TEXT_BYTES_MAX: usize = 200;

/// The drive, as the kernel and the drive describe it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Drive {
    /// Its path.
    pub path: String,
    /// Its model.
    pub model: String,
    /// Its serial number, or its identity.
    pub serial: Option<String>,
    /// Its firmware; empty if it reports none.
    pub firmware: String,
    /// Name and value of each other property, for people.
    pub properties: Vec<(String, String)>,
}

/// A measurement that is over.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Evidence {
    /// The drive.
    pub drive: Drive,
    /// The end of the measurement, in RFC 3339.
    pub date: String,
    /// The method, in a few words.
    pub method: String,
    /// True if writes were measured; otherwise their times are assumed.
    pub is_written: bool,
    /// The findings.
    pub findings: Findings,
    /// Effects of the circumstances of the measurement on a guarantee, in sentences.
    pub remarks: Vec<String>,
}

/// The circumstances of a measurement.
pub struct Circumstances<'a> {
    /// The drive.
    pub target: &'a Target,
    /// Its report about itself.
    pub smart: &'a Smart,
    /// Its settings.
    pub settings: Option<&'a Changed>,
    /// The effort.
    pub effort: Effort,
    /// Deviations of the disk from what the schedule assumes, and rights that the host denied.
    pub caveats: &'a [String],
}

impl Evidence {
    /// The evidence of a measurement that ended at `now`.
    #[must_use]
    pub fn new(measured: &Measured, of: &Circumstances<'_>, now: SystemTime) -> Self {
        let target = of.target;
        let is_written = measured.findings.write_settle.is_some();
        Self {
            drive: Drive {
                path: target.path.display().to_string(),
                model: target.model(),
                serial: target.identity.serial.clone(),
                firmware: target.identity.firmware.clone(),
                properties: properties(target, of.smart, measured.profile.capacity().bytes()),
            },
            date: humantime::format_rfc3339_seconds(now).to_string(),
            method: method(of.effort, target.how, measured.findings.method, is_written),
            is_written,
            findings: measured.findings.clone(),
            remarks: meanings(of, &measured.profile),
        }
    }

    /// The profile with the measurement as its origin. Without a serial number it names no drive, and counts as
    /// measured on any. Without writes it counts as an estimate on all.
    ///
    /// # Errors
    /// When the figures are not a profile.
    pub fn profile(&self, fitted: &DriveProfile) -> Result<DriveProfile, ProfileError> {
        let validation = &self.findings.validation;
        let permille = (validation.predicted_over_actual * 1_000.0).round() as u64;
        let mut spec = fitted.spec().clone();
        spec.measurement = self.drive.serial.as_ref().map(|serial| MeasurementSpec {
            model: one_line(&self.drive.model),
            serial: one_line(serial),
            firmware: one_line(&self.drive.firmware),
            date: self.date.clone(),
            method: one_line(&self.method),
            samples: validation.requests.max(1),
            confidence_percent: 95,
            over_actual_permille: permille.clamp(1, 1_000_000),
        });
        DriveProfile::new(spec)
    }
}

/// A text without control characters, as long as a profile permits.
fn one_line(text: &str) -> String {
    let mut line: String = text.chars().filter(|char| !char.is_control()).collect();
    let mut end = line.len().min(TEXT_BYTES_MAX);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    line.truncate(end);
    line
}

fn method(effort: Effort, how: Use, method: Method, is_written: bool) -> String {
    let online = if how == Use::Online { " --online" } else { "" };
    let effort = match effort {
        Effort::Quick => " --quick",
        Effort::Normal => "",
        Effort::Thorough => " --thorough",
    };
    let method = match method {
        Method::Geometry => "tracks, zones and seeks",
        Method::Envelope => "bounds by distance and position",
        Method::Flat => "overhead and rate",
    };
    let writes = if is_written {
        "writes measured"
    } else {
        "writes assumed"
    };
    format!(
        "clockwise {} disk measure{online}{effort}: {method}; {writes}",
        env!("CARGO_PKG_VERSION")
    )
}

/// Properties that the kernel and the drive report.
fn properties(target: &Target, smart: &Smart, capacity: Bytes) -> Vec<(String, String)> {
    let identity = &target.identity;
    let mut lines = vec![("size".to_owned(), Size(capacity).to_string())];
    let mut line = |name: &str, value: Option<String>| {
        lines.extend(value.map(|value| (name.to_owned(), value)));
    };
    let yes_or_no = |is: bool| if is { "yes" } else { "no" }.to_owned();
    line(
        "sectors, logical and physical",
        identity
            .logical_block_bytes
            .zip(identity.physical_block_bytes)
            .map(|(logical, physical)| format!("{logical} and {physical} bytes")),
    );
    line("rotational", identity.rotational.map(yes_or_no));
    let zoned = identity.zoned.map(|zoned| match zoned {
        Zoned::No => "none",
        Zoned::HostAware => "host-aware",
        Zoned::HostManaged => "host-managed",
    });
    line("zoned", zoned.map(str::to_owned));
    let cache = identity.write_cache.map(|cache| match cache {
        WriteCache::WriteBack => "volatile",
        WriteCache::WriteThrough => "none, or off",
    });
    line("write cache", cache.map(str::to_owned));
    line("FUA", identity.fua.map(yes_or_no));
    line(
        "queue depth",
        identity.queue_depth.map(|depth| depth.to_string()),
    );
    lines.extend(smart.lines());
    lines
}

/// Effects of the circumstances on a guarantee.
fn meanings(of: &Circumstances<'_>, profile: &DriveProfile) -> Vec<String> {
    let target = of.target;
    let mut found = Vec::new();
    match target.identity.zoned {
        Some(Zoned::HostManaged) => found.push(
            "The drive is host-managed and zoned: it refuses writes out of order, so no pool can be made on it.".to_owned(),
        ),
        Some(Zoned::HostAware) => found.push(
            "The drive is host-aware and zoned: writes out of order are collected and moved later, at times that no profile has. Do not count on a guarantee for writes.".to_owned(),
        ),
        _ => {}
    }
    if target.how == Use::ReadShared && !target.identity.users.is_empty() {
        found.push(format!(
            "The drive was in use during the measurement ({}): times of its users are in the profile, which is longer than it need be.",
            target.identity.users.join("; ")
        ));
    }
    if target.how == Use::Online {
        found.push(
            "The pool ran during the measurement. Each request was one piece of best effort, one at a time: blocks of streams that are longer are extrapolated.".to_owned(),
        );
        found.push(
            "The drive's settings were not changed: the profile holds for them as they are."
                .to_owned(),
        );
    }
    if !target.is_device() && !target.is_emulated() {
        found.push(
            "It is a file: the host's file system and the other users of its disk decide how long a request takes, and that may change.".to_owned(),
        );
    }
    if target.holes_percent() > 0 {
        found.push(format!(
            "{} % of the file were never written and were read without the disk: write it once before you measure it.",
            target.holes_percent()
        ));
    }
    if target.identity.serial.is_none() {
        found.push(
            "The drive reports no serial number, so the profile is not bound to it: do not use it for another drive.".to_owned(),
        );
    }
    if profile.outstanding() > 1 {
        found.push(format!(
            "All times hold with {} requests at a time, which the server gives it.",
            profile.outstanding()
        ));
    }
    if of.smart.is_healthy == Some(false) {
        found.push("The drive reports that it is failing: replace it.".to_owned());
    }
    if let Some(settings) = of.settings {
        found.extend(settings.remarks.iter().map(|remark| sentence(remark)));
        if settings.is_any() {
            found.push(
                "The profile holds for these settings. The drive has its earlier ones again: set them before the server starts, with `hdparm -A 0 -W 0 DEVICE` or `sdparm`.".to_owned(),
            );
        }
    }
    found.extend(of.caveats.iter().map(|caveat| sentence(caveat)));
    found
}

/// A remark with a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(char::to_uppercase).into_iter().flatten();
    let mut sentence: String = first.chain(chars).collect();
    if !sentence.ends_with('.') {
        sentence.push('.');
    }
    sentence
}
