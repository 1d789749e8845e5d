//! Figure 6.14: best effort, with disk time of its own and without, beside a stream that asks for more than it has
//! reserved.

use sched::policy::Policy;
use sched::units::Nanos;

use super::table::Table;
use super::{Figure, FigureError, Options, Page, Statement, SweepError};
use crate::chart::{Axis, Chart, Curve, page as draw};
use crate::farm::Reserved;
use crate::run::Hash;
use crate::sweep::Sweep;
use crate::thesis::{Latency, Layout, Thesis};

/// Demand of the stream, as multiples of its reservation.
const TIMES_AS_MUCH: [u64; 6] = [1, 4, 8, 12, 18, 25];
const POLICIES: [Policy; 2] = [Policy::DeltaL, Policy::Exact];
/// Reservation of each disk of CELLO.
const SLICE: Nanos = Nanos::from_secs(1);
const PERIOD: Nanos = Nanos::from_secs(30);

/// A run.
struct Point {
    policy: Policy,
    is_reserved: bool,
    times_as_much: u64,
    sources: Vec<Latency>,
    all: Latency,
    missed: u64,
    hash: u64,
}

pub(super) fn page(options: &Options, sweep: &Sweep<'_>) -> Result<Page, FigureError> {
    let thesis =
        Thesis::new(Layout::Rotation, options.times, options.seed).map_err(SweepError::from)?;
    let load = thesis.cello(&options.source.period(), options.seed);
    let runs: Vec<(Policy, bool, u64)> = POLICIES
        .into_iter()
        .flat_map(|policy| [true, false].map(|is_reserved| (policy, is_reserved)))
        .flat_map(|(policy, is_reserved)| TIMES_AS_MUCH.map(|times| (policy, is_reserved, times)))
        .collect();
    let points = sweep.each(runs.len(), |index| {
        let (policy, is_reserved, times_as_much) = runs[index];
        let mut admitted = thesis.nothing_admitted();
        let added = admitted.add(&[thesis.greedy(times_as_much)]);
        added.expect("a stream of 1 MB/s has room on three idle disks");
        for source in (0..load.sources).filter(|_| is_reserved) {
            let reserved = Reserved {
                source,
                slice: SLICE,
                period: PERIOD,
                piece_max: thesis.disks.piece_max(),
            };
            let added = admitted.reserve(reserved);
            added.expect("8 thirtieths of a disk fit beside a stream of 1 MB/s");
        }
        let outcome = options.run(&thesis, &admitted, &load, policy, None);
        Point {
            policy,
            is_reserved,
            times_as_much,
            sources: outcome
                .sources
                .iter()
                .map(|source| source.latency.into())
                .collect(),
            all: outcome.best_effort.into(),
            missed: outcome.missed(),
            hash: outcome.hash,
        }
    });
    let mut table = Table::new(&[
        "scheduler",
        "reserved",
        "times",
        "disk",
        "requests",
        "mean_ms",
        "p99_ms",
        "max_ms",
    ]);
    let mut hash = Hash::default();
    for point in &points {
        hash.add(point.hash);
        let sources = point.sources.iter().enumerate();
        let sources = sources.map(|(disk, latency)| (disk.to_string(), latency));
        for (disk, latency) in sources.chain([("all".to_owned(), &point.all)]) {
            table.row(&[
                point.policy.to_string(),
                point.is_reserved.to_string(),
                point.times_as_much.to_string(),
                disk,
                latency.count.to_string(),
                format!("{:.3}", latency.mean_ms),
                format!("{:.3}", latency.p99_ms),
                format!("{:.3}", latency.max_ms),
            ]);
        }
    }
    let charts = POLICIES.map(|policy| chart(policy, &points));
    Ok(Page {
        figure: Figure::Crosstalk,
        title: "best effort beside a stream that asks for more than it has reserved".to_owned(),
        notes: "The stream has reserved 1 MB/s and two buffers for each disk. `RT`: each disk of CELLO has 1 s in 30 s of \
                each of the three disks; `BEF`: none has. Half of the slack is kept for plain best effort while early blocks \
                wait (`early_share_percent`), which the thesis's scheduler did not do."
            .to_owned(),
        svg: draw("Figure 6.14: all disks of CELLO together", &charts, 2)?,
        csv: table.into_text(),
        statements: statements(&points),
        hash: hash.0,
    })
}

/// The means of one kind, by how much the stream asks for.
fn line(points: &[Point], policy: Policy, is_reserved: bool) -> Vec<(f64, f64)> {
    let of = points
        .iter()
        .filter(|point| (point.policy, point.is_reserved) == (policy, is_reserved));
    of.map(|point| (point.times_as_much as f64, point.all.mean_ms))
        .collect()
}

fn chart(policy: Policy, points: &[Point]) -> Chart {
    let curve = |name: &str, colour, is_reserved| Curve {
        name: name.to_owned(),
        points: line(points, policy, is_reserved),
        colour,
        is_aid: false,
    };
    Chart {
        title: policy.to_string(),
        x: Axis::linear("asked for, times what is reserved"),
        y: Axis::log("mean best-effort latency, ms"),
        curves: vec![curve("RT", 1, true), curve("BEF", 0, false)],
    }
}

fn statements(points: &[Point]) -> Vec<Statement> {
    let mut statements = Vec::new();
    for policy in POLICIES {
        let (reserved, plain) = (line(points, policy, true), line(points, policy, false));
        let ends = |line: &[(f64, f64)]| {
            let value = |point: Option<&(f64, f64)>| point.map_or(0.0, |point| point.1);
            (value(line.first()), value(line.last()))
        };
        let levels: Vec<f64> = reserved.iter().rev().take(3).map(|point| point.1).collect();
        let (low, high) = (
            levels.iter().copied().fold(f64::INFINITY, f64::min),
            levels.iter().copied().fold(0.0, f64::max),
        );
        statements.push(Statement::new(
            format!("what has disk time of its own levels off, at 25 to 51 ms ({policy})"),
            high < low * 1.2 && (20.0..70.0).contains(&high),
            format!(
                "{:.1} ms at first, {low:.1} to {high:.1} ms where the stream asks for most",
                ends(&reserved).0
            ),
        ));
        statements.push(Statement::new(
            format!("what has none gets ever slower ({policy})"),
            ends(&plain).1 > ends(&reserved).1 && ends(&plain).1 > 1.5 * ends(&plain).0,
            format!("{:.1} to {:.1} ms", ends(&plain).0, ends(&plain).1),
        ));
        statements.push(Statement::new(
            format!(
                "even with little real-time load reserved best effort is much faster ({policy})"
            ),
            ends(&reserved).0 < 0.8 * ends(&plain).0,
            format!(
                "{:.1} ms against {:.1} ms",
                ends(&reserved).0,
                ends(&plain).0
            ),
        ));
    }
    let missed: u64 = points.iter().map(|point| point.missed).sum();
    statements.push(Statement::new(
        "(not in the thesis) what the stream has reserved is never late",
        missed == 0,
        format!("{missed} missed"),
    ));
    statements
}
