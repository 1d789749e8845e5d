//! The findings in plain words, for the person who accepts the profile.

use measure::facts::Effort;
use measure::findings::{Findings, Method, SeekFound, Validation};
use sched::units::Nanos;

use super::evidence::Evidence;
use crate::quantity::Span;

/// The findings, a sentence or two in each line. The last is the one that the guarantee rests on.
#[must_use]
pub fn lines(evidence: &Evidence) -> Vec<String> {
    let findings = &evidence.findings;
    let mut lines = vec![drive(evidence)];
    let mut notes = findings.notes.iter().cloned();
    let verdict = notes.next();
    lines.extend(rates(findings));
    lines.extend(seeks(findings));
    lines.extend(depths(findings));
    lines.extend(writes(evidence));
    lines.extend(widened(&findings.validation));
    lines.extend(notes);
    lines.extend(evidence.remarks.iter().cloned());
    lines.extend(verdict);
    lines
}

fn drive(evidence: &Evidence) -> String {
    let drive = &evidence.drive;
    let serial = match &drive.serial {
        Some(serial) => format!("serial number {serial}"),
        None => "without a serial number".to_owned(),
    };
    let firmware = match drive.firmware.as_str() {
        "" => String::new(),
        firmware => format!(", firmware {firmware}"),
    };
    format!("{}: {}, {serial}{firmware}.", drive.path, drive.model)
}

fn megabytes(bytes_per_second: f64) -> String {
    format!("{:.1} MB/s", bytes_per_second / 1e6)
}

fn rates(findings: &Findings) -> Option<String> {
    let (first, last) = (findings.zones.first()?, findings.zones.last()?);
    if findings.method == Method::Flat {
        return Some(format!(
            "A long read runs at {} or more.",
            megabytes(first.bytes_per_second)
        ));
    }
    Some(format!(
        "Long reads run at {} outside and at {} inside.",
        megabytes(first.bytes_per_second),
        megabytes(last.bytes_per_second)
    ))
}

fn seeks(findings: &Findings) -> Option<String> {
    let moved: Vec<&SeekFound> = findings
        .seeks
        .iter()
        .filter(|seek| seek.cylinders > 0)
        .collect();
    let (near, far) = (moved.first()?, moved.last()?);
    Some(format!(
        "A seek takes up to {} to the next cylinder and up to {} across the drive, overhead included.",
        Span(near.bound),
        Span(far.bound)
    ))
}

fn depths(findings: &Findings) -> Option<String> {
    let first = findings.depths.first()?;
    let most = findings
        .depths
        .iter()
        .max_by(|a, b| a.reads_per_second.total_cmp(&b.reads_per_second))?;
    Some(format!(
        "It reads 4 KiB {:.0} times a second one at a time, and {:.0} times at depth {}. A request costs up to {} beside its transfer.",
        first.reads_per_second,
        most.reads_per_second,
        most.depth,
        Span(findings.overhead)
    ))
}

fn writes(evidence: &Evidence) -> Option<String> {
    if !evidence.is_written {
        return None;
    }
    let longer = evidence.findings.write_settle?;
    Some(if longer.is_zero() {
        "A write takes no longer than a read.".to_owned()
    } else {
        format!("A write takes up to {} longer than a read.", Span(longer))
    })
}

fn widened(validation: &Validation) -> Option<String> {
    let times = validation.widened;
    let plural = if times == 1 { "" } else { "s" };
    (times > 0).then(|| {
        format!(
            "Requests of the validation widened the profile {times} time{plural}, by {} in all. The count began again each time.",
            Span(validation.widened_by)
        )
    })
}

/// The time that a measurement takes at most.
#[must_use]
pub fn limit(may_rotate: bool, effort: Effort) -> Nanos {
    let minutes = match (may_rotate, effort) {
        (_, Effort::Quick) => 10,
        (true, Effort::Normal) => 30,
        (false, Effort::Normal) => 20,
        (_, Effort::Thorough) => 60,
    };
    Nanos::from_secs(minutes * 60)
}

/// The time that a measurement beside a running pool takes at most. Streams may leave it little.
pub const LIMIT_ONLINE: Nanos = Nanos::from_secs(24 * 3_600);

/// The same in words.
#[must_use]
pub fn announced_online(otherwise: Nanos) -> String {
    format!(
        "The measurement is served in the time that streams leave: {} minutes at most on an idle disk, and a day at most. Ctrl-C keeps what was measured, and the same command continues. The drive's settings are not changed.",
        otherwise.get() / 60_000_000_000
    )
}

/// The limit in words.
#[must_use]
pub fn announced(limit: Nanos) -> String {
    format!(
        "The measurement takes at most {} minutes. Ctrl-C keeps what was measured, and the same command continues.",
        limit.get() / 60_000_000_000
    )
}
