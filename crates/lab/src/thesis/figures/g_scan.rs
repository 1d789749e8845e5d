//! G-SCAN beside `exact` in figure 6.5.

use std::fmt::Write as _;

use sched::policy::Policy;

use super::latency::{at, least, most};
use super::{Curves, FigureError, Options, Statement, points};
use crate::run::Hash;
use crate::sweep::Sweep;
use crate::thesis::{Layout, Measured};

/// Its name in the picture and in the numbers.
pub(super) const NAME: &str = "g-scan";

/// It takes ten times as long as the other rules, so it runs at one of so many loads.
const EACH: usize = 3;

/// Those of the loads, which rise, at which it runs: the largest is one.
pub(super) fn shown<T>(loads: &[T]) -> impl Iterator<Item = &T> {
    loads
        .iter()
        .skip((loads.len().max(1) - 1) % EACH)
        .step_by(EACH)
}

/// G-SCAN at some of the loads of a figure's other curves.
pub(super) fn measure(
    layout: Layout,
    options: &Options,
    curves: &Curves,
    sweep: &Sweep<'_>,
) -> Result<Vec<Measured>, FigureError> {
    let all = points(layout, options, curves.most);
    let of_exact: Vec<_> = all
        .into_iter()
        .filter(|point| point.policy == Policy::Exact)
        .collect();
    let shown: Vec<_> = shown(&of_exact).copied().collect();
    Ok(sweep.run_by_g_scan(&shown)?)
}

/// Covers its runs as well as those of the other curves.
pub(super) fn hash(others: u64, g_scan: &[Measured]) -> u64 {
    let mut hash = Hash(others);
    g_scan.iter().for_each(|measured| hash.add(measured.hash));
    hash.0
}

/// The share of blocks that were late, in percent.
pub(super) fn late_percent(measured: &Measured) -> f64 {
    100.0 * measured.missed as f64 / measured.blocks.max(1) as f64
}

/// Both curves in numbers.
pub(super) fn notes(curves: &Curves, g_scan: &[Measured]) -> String {
    let mut text = "G-SCAN (Kim, Bahn and Won 2014), at each third load, guarantees nothing: its latency counts together with the blocks that \
                    were late. Its abstract is all that was available, so the rule for its candidates is assumed \
                    (`lab::arms::GScan`), and so are its estimates: the profile's bounds for seeks and best effort, and \
                    the reserved times of blocks.\n\n\
                    | MB/s | promised | `exact`, mean ms | late | G-SCAN, mean ms | late | of blocks | worst lateness, ms |\n\
                    |---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for (exact, g_scan) in shown(curves.line(Policy::Exact)).zip(g_scan) {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {:.1} | {:.0} % | {:.1} | {} | {:.1} | {} | {:.3} % | {:.0} |",
            exact.megabytes_per_second,
            100.0 * exact.utilization,
            exact.best_effort.mean_ms,
            exact.missed,
            g_scan.best_effort.mean_ms,
            g_scan.missed,
            late_percent(g_scan),
            g_scan.lateness_max_ms,
        );
    }
    text.truncate(text.trim_end().len());
    text
}

/// The comparison.
pub(super) fn statements(curves: &Curves, g_scan: &[Measured]) -> Vec<Statement> {
    let exact = curves.line(Policy::Exact);
    let over_exact: Vec<(f64, f64)> = shown(exact)
        .zip(g_scan)
        .map(|(exact, g_scan)| {
            let ratio = g_scan.best_effort.mean_ms / exact.best_effort.mean_ms;
            (exact.megabytes_per_second, ratio)
        })
        .collect();
    let missed: u64 = g_scan.iter().map(|of| of.missed).sum();
    let blocks: u64 = g_scan.iter().map(|of| of.blocks).sum();
    vec![
        Statement::new(
            "(not in the thesis) at these loads `exact` serves best effort as soon as G-SCAN, or sooner",
            over_exact.iter().all(|(_, ratio)| *ratio >= 1.0),
            format!(
                "G-SCAN over `exact`: {} to {}",
                at(least(&over_exact)),
                at(most(&over_exact))
            ),
        ),
        Statement::new(
            "(not in the thesis) G-SCAN, which guarantees no deadline, misses none here",
            missed == 0,
            format!("{missed} missed, of {blocks}"),
        ),
    ]
}
