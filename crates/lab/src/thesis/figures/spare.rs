//! Figure 6.9: best effort in the time by which blocks are shorter, where they lie, than what was reserved for them.

use sched::disk::OverPrediction;
use sched::policy::Policy;

use super::{Figure, FigureError, Options, Page, Statement, points};
use crate::chart::{Axis, Chart, Curve, page as draw};
use crate::sweep::Sweep;
use crate::thesis::figures::table::Table;
use crate::thesis::{Layout, Measured, Point, SweepError, Thesis};

/// Stride through the loads of figure 6.7.
const STRIDE: usize = 2;

/// A scheduler's ways without that time and with it. `exact` and LST look at queued requests, so they use it
/// as soon as they know of it; Delta-L has to be given it; EDF looks at no times.
const fn ways(policy: Policy) -> [OverPrediction; 2] {
    match policy {
        Policy::DeltaL | Policy::DeltaLPublished => [OverPrediction::Known, OverPrediction::Given],
        Policy::Exact | Policy::Lst | Policy::Edf => {
            [OverPrediction::Unused, OverPrediction::Known]
        }
    }
}

/// CELLO's disk 0 under a scheduler: MB/s of streams, and the means in milliseconds without and with.
struct Pair {
    policy: Policy,
    points: Vec<(f64, f64, f64)>,
}

impl Pair {
    fn ratios(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let points = self.points.iter();
        points.map(|(load, without, with)| (*load, with / without.max(1e-9)))
    }

    fn curve(&self, name: &str, colour: usize, of: fn(&(f64, f64, f64)) -> f64) -> Curve {
        Curve {
            name: name.to_owned(),
            points: self
                .points
                .iter()
                .map(|point| (point.0, of(point)))
                .collect(),
            colour,
            is_aid: false,
        }
    }
}

/// "1.02 at 3.4 MB/s".
fn at((load, ratio): (f64, f64)) -> String {
    format!("{ratio:.2} at {load:.1} MB/s")
}

pub(super) fn page(options: &Options, sweep: &Sweep<'_>) -> Result<Page, FigureError> {
    let thesis =
        Thesis::new(Layout::Random, options.times, options.seed).map_err(SweepError::from)?;
    let (_, most, _) = thesis.admit(usize::MAX);
    let of = |point: Point| {
        ways(point.policy).map(|over_prediction| Point {
            over_prediction,
            ..point
        })
    };
    let all: Vec<Point> = points(Layout::Random, options, most)
        .into_iter()
        .filter(|point| (most - point.pairs).is_multiple_of(STRIDE))
        .flat_map(of)
        .collect();
    let measured = sweep.run(&all)?;
    let mut table = Table::new(&[
        "scheduler",
        "over_predicted_time",
        "MB/s",
        "disk_0_mean_ms",
        "missed",
    ]);
    let mut hash = crate::run::Hash::default();
    let mut pairs: Vec<Pair> = Vec::new();
    for (points, results) in all.chunks(2).zip(measured.chunks(2)) {
        let [without, with] = results else {
            unreachable!("there are two of each");
        };
        for (point, measured) in points.iter().zip(results) {
            hash.add(measured.hash);
            table.row(&[
                point.policy.to_string(),
                if point.over_prediction == ways(point.policy)[0] {
                    "unused"
                } else {
                    "used"
                }
                .to_owned(),
                format!("{:.3}", measured.megabytes_per_second),
                format!("{:.3}", measured.sources[0].mean_ms),
                measured.missed.to_string(),
            ]);
        }
        let of_disk = |measured: &Measured| measured.sources[0].mean_ms;
        let point = (
            without.megabytes_per_second,
            of_disk(without),
            of_disk(with),
        );
        match pairs.last_mut() {
            Some(pair) if pair.policy == points[0].policy => pair.points.push(point),
            _ => pairs.push(Pair {
                policy: points[0].policy,
                points: vec![point],
            }),
        }
    }
    let missed = |policy: Policy| -> u64 {
        let of = all.iter().zip(&measured);
        let of = of.filter(|(point, _)| point.policy == policy);
        of.map(|(_, measured)| measured.missed).sum()
    };
    let chart = |pair: &Pair| Chart {
        title: pair.policy.to_string(),
        x: Axis::linear("real-time load, MB/s"),
        y: Axis::log("mean latency of CELLO disk 0, ms"),
        curves: vec![
            pair.curve("not used", 0, |point| point.1),
            pair.curve("over-predicted time used", 1, |point| point.2),
        ],
    };
    let charts: Vec<Chart> = pairs.iter().map(chart).collect();
    Ok(Page {
        figure: Figure::Spare,
        title: "best effort in over-predicted time, blocks at random places, CELLO disk 0".to_owned(),
        notes: "Streams are admitted by the slowest zone. A block in a faster one needs less; a best-effort request \
                that fits into the rest may go before it."
            .to_owned(),
        svg: draw("Figure 6.9: over-predicted time", &charts, 3)?,
        csv: table.into_text(),
        statements: statements(&pairs, missed(Policy::Exact) + missed(Policy::DeltaL)),
        hash: hash.0,
    })
}

fn statements(pairs: &[Pair], missed: u64) -> Vec<Statement> {
    let mut statements = Vec::new();
    for pair in pairs {
        let ratios: Vec<(f64, f64)> = pair.ratios().collect();
        let by = |a: &(f64, f64), b: &(f64, f64)| a.1.total_cmp(&b.1);
        let (Some(least), Some(most)) = (
            ratios.iter().copied().min_by(by),
            ratios.iter().copied().max_by(by),
        ) else {
            continue;
        };
        let (says, holds) = match pair.policy {
            Policy::Edf => (
                "there is no difference for EDF".to_owned(),
                ratios.iter().all(|(_, ratio)| (ratio - 1.0).abs() < 1e-9),
            ),
            Policy::DeltaL | Policy::Lst => (
                format!(
                    "there is a small difference at medium to high loads ({})",
                    pair.policy
                ),
                least.1 < 0.995 && least.1 > 0.5,
            ),
            Policy::Exact | Policy::DeltaLPublished => (
                format!(
                    "(not in the thesis) over-predicted time helps `{}`",
                    pair.policy
                ),
                least.1 < 0.995,
            ),
        };
        let found = format!("with over without: {} to {}", at(least), at(most));
        statements.push(Statement::new(says, holds, found));
    }
    statements.push(Statement::new(
        "(not in the thesis) no deadline is missed for it by `exact` and `delta-l`",
        missed == 0,
        format!("{missed} missed"),
    ));
    statements
}
