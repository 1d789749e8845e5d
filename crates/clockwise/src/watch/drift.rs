//! Drift: a disk that has become slower than its profile, or is so much faster that a new measurement pays.
//!
//! *Slower.* With an overrun share of p, n requests have p·n overruns on average. More than p·n + 4·√(p·n) + 3 in
//! the last week is no chance: the probability is below one in a thousand for any p·n. p is the share that the
//! profile's validation allows. A profile without a validation is held to [`UNVALIDATED_PER_MILLION`], from
//! [`REQUESTS_MIN`] requests on.
//!
//! *Faster.* Admission uses worst cases, which are proportional to the predictions. If no request of a stream
//! block's length has taken more than the share r of its prediction, a profile measured anew has worst cases of
//! about r, with a margin, and admits 1/r of the streams. That is reported from 10 % on.
//!
//! Limits of these rules: a slow week is shown for a week after its end, and a drive that is faster in some
//! zones or sizes only is not noticed.

use sched::profile::DriveProfile;
use sched::units::Nanos;

use super::history::History;
use super::moment::{Day, Moment};
use crate::wire::service_times::{DriftDirection, DriftView};

/// Number of days in which overruns count.
const WINDOW_DAYS: u64 = 7;

/// The share of overruns, in millionths, from which a profile without a validation is too short.
const UNVALIDATED_PER_MILLION: u64 = 100;

/// Number of requests without which nothing is said of a profile without a validation, and of faster drives.
const REQUESTS_MIN: u64 = 10_000;

/// The least length of a stream's block, in bytes.
const BLOCK_BYTES_MIN: u64 = 64 << 10;

/// The margin that a new measurement would add, in thousandths.
const MARGIN_PERMILLE: u64 = 50;

/// The gain of admitted bandwidth from which a new measurement pays, in thousandths.
const GAIN_PERMILLE_MIN: u64 = 100;

/// A change for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum DriftChange {
    /// A drift has begun.
    Began(String),
    /// It has ended.
    Ended(String),
}

/// Judges a history; notes in it when a drift began. Returns the drift, and the changes since the last call.
pub(super) fn judge(
    history: &mut History,
    profile: &DriveProfile,
    now: Moment,
) -> (Option<DriftView>, Vec<DriftChange>) {
    let slower = slower(history, profile, now.day());
    let faster = faster(history);
    let mut changes = Vec::new();
    let name = history.name.clone();
    let slower = noted(&mut history.slower_since, slower, now, |text| {
        changes.push(change(&name, text, "is no longer slower than its profile"));
    });
    let faster = noted(&mut history.faster_since, faster, now, |text| {
        changes.push(change(&name, text, "is no longer faster than its profile"));
    });
    let view = |direction, (since, what): (Moment, String)| DriftView {
        direction,
        since: since.to_string(),
        what,
    };
    let drift = slower
        .map(|drift| view(DriftDirection::Slower, drift))
        .or_else(|| faster.map(|drift| view(DriftDirection::Faster, drift)));
    (drift, changes)
}

fn change(name: &str, began: Option<&str>, ended: &str) -> DriftChange {
    match began {
        Some(text) => DriftChange::Began(format!("disk {name:?}: {text}")),
        None => DriftChange::Ended(format!("disk {name:?} {ended}")),
    }
}

/// Updates the begin of a drift. Calls `changed` if it has begun, with its text, or has ended.
fn noted(
    since: &mut Option<Moment>,
    evidence: Option<String>,
    now: Moment,
    mut changed: impl FnMut(Option<&str>),
) -> Option<(Moment, String)> {
    let Some(evidence) = evidence else {
        if since.take().is_some() {
            changed(None);
        }
        return None;
    };
    let begins = since.is_none();
    let began = *since.get_or_insert(now);
    let text = format!("{evidence}; known since {began}");
    if begins {
        changed(Some(&text));
    }
    Some((began, text))
}

/// The evidence that a disk is slower than its profile.
fn slower(history: &History, profile: &DriveProfile, today: Day) -> Option<String> {
    let from = Day(today.0.saturating_sub(WINDOW_DAYS - 1));
    let (count, overruns) = history.since_day(from);
    let validation = profile.measurement().filter(|_| profile.measured());
    let allowed = match validation {
        Some(measured) => measured.overruns_per_million_max(),
        None if count < REQUESTS_MIN => return None,
        None => UNVALIDATED_PER_MILLION,
    };
    let expected = count as f64 * allowed as f64 / 1e6;
    if overruns as f64 <= expected + 4.0 * expected.sqrt() + 3.0 {
        return None;
    }
    let longest = Nanos(history.excess_max_ns());
    Some(format!(
        "the disk is slower than its profile: {overruns} of {count} requests in {WINDOW_DAYS} days took longer than \
         predicted, and the profile allows {allowed} in 1,000,000; the longest took {longest} more. Streams may miss \
         deadlines: measure the disk again with `clockwise disk measure`, or use the profile that `clockwise disk \
         profile` prints"
    ))
}

/// The evidence that a disk is faster than its profile.
fn faster(history: &History) -> Option<String> {
    let blocks = history
        .kinds
        .iter()
        .filter(|row| row.length_bytes_max >= BLOCK_BYTES_MIN);
    let (count, took) = blocks.fold((0_u64, 0), |(count, took), row| {
        (
            count.saturating_add(row.count),
            row.took_permille_max.max(took),
        )
    });
    let wanted = took.saturating_mul(1000 + MARGIN_PERMILLE).div_ceil(1000);
    if count < REQUESTS_MIN || wanted == 0 {
        return None;
    }
    let gain = (1_000_000 / wanted).saturating_sub(1000);
    (gain >= GAIN_PERMILLE_MIN).then(|| {
        format!(
            "the disk is faster than its profile: none of {count} requests of 64 KiB and more took more than {} % of \
             the predicted time. With a new profile by `clockwise disk measure` it would admit about {} % more",
            took.div_ceil(10),
            gain / 10
        )
    })
}

#[cfg(test)]
mod tests;
