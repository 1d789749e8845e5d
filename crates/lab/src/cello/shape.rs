//! Number of requests in each slot of a period.

use std::ops::Range;

use super::DiskLoad;
use crate::dice::Dice;

/// Correlation of a slot's deviation with that of the slot before: busy minutes come together.
const LIKENESS: f64 = 0.8;

/// Halvings of the search for the width of the distribution.
const STEPS: u32 = 60;

/// Requests in each of so many slots: all of the load's, and its peak in one and in none more; none in those that are
/// kept free.
pub(super) fn counts(
    load: DiskLoad,
    slots: u64,
    kept_free: Range<u64>,
    dice: &mut Dice,
) -> Vec<u64> {
    let mut deviations = deviations(slots, dice);
    for slot in kept_free {
        deviations[slot as usize] = f64::NEG_INFINITY;
    }
    let most = (0..deviations.len())
        .max_by(|a, b| deviations[*a].total_cmp(&deviations[*b]))
        .unwrap_or(0);
    let mut counts = vec![0; deviations.len()];
    if load.requests == 0 {
        return counts;
    }
    let peak = load.peak.min(load.requests);
    counts[most] = peak;
    let others = load.requests - peak;
    // The deviation at which the busiest of the other slots is a little less busy than the peak.
    let (mut narrow, mut wide) = (0.0, 64.0);
    for _ in 0..STEPS {
        let width = (narrow + wide) / 2.0;
        let weights = weights(&deviations, most, width);
        let sum: f64 = weights.iter().sum();
        let largest = weights.iter().copied().fold(0.0, f64::max);
        if largest / sum * others as f64 > peak as f64 * 0.95 {
            wide = width;
        } else {
            narrow = width;
        }
    }
    share_out(
        others,
        peak,
        &weights(&deviations, most, narrow),
        most,
        &mut counts,
    );
    counts
}

/// Normally distributed numbers of which neighbours are alike.
fn deviations(slots: u64, dice: &mut Dice) -> Vec<f64> {
    let mut last = dice.normal();
    let fresh = libm::sqrt(1.0 - LIKENESS * LIKENESS);
    (0..slots)
        .map(|_| {
            last = LIKENESS * last + fresh * dice.normal();
            last
        })
        .collect()
}

/// Log-normal weights; that of the slot `most` is nothing.
fn weights(deviations: &[f64], most: usize, width: f64) -> Vec<f64> {
    let largest = deviations.iter().copied().fold(f64::MIN, f64::max);
    deviations
        .iter()
        .enumerate()
        // Relative to the largest, so that none overflows.
        .map(|(slot, deviation)| {
            if slot == most {
                0.0
            } else {
                libm::exp(width * (deviation - largest))
            }
        })
        .collect()
}

/// Adds `total` to the counts in proportion to the weights, no slot getting more than `peak`.
fn share_out(total: u64, peak: u64, weights: &[f64], most: usize, counts: &mut [u64]) {
    let sum: f64 = weights.iter().sum();
    let (mut owed, mut given) = (0.0, 0);
    for (slot, weight) in weights.iter().enumerate() {
        if slot == most {
            continue;
        }
        // Rounded such that what has been given so far is never off by more than a half.
        owed += weight / sum * total as f64;
        let due = (libm::round(owed) as u64).min(total);
        counts[slot] = due.saturating_sub(given).min(peak);
        given += counts[slot];
    }
    // The remainder of rounding and peak goes to the busiest slots with room.
    let mut order: Vec<usize> = (0..counts.len()).filter(|slot| *slot != most).collect();
    order.sort_by(|a, b| weights[*b].total_cmp(&weights[*a]).then(a.cmp(b)));
    for slot in order.into_iter().filter(|slot| weights[*slot] > 0.0) {
        let more = (total - given).min(peak - counts[slot]);
        counts[slot] += more;
        given += more;
    }
}
