//! Figures 6.5, 6.7, 6.8, 6.10 and 6.11: the latency of best effort as more and more is promised.

use sched::policy::Policy;

use super::{Curves, Figure, FigureError, Options, Page, Statement, g_scan};
use crate::chart::{Axis, Chart, Curve, page as draw};
use crate::sweep::Sweep;
use crate::thesis::{Layout, Measured};

/// By how much two mean latencies may differ and still be called equal.
const EQUAL: f64 = 1.05;

fn mean(measured: &Measured) -> f64 {
    measured.best_effort.mean_ms
}

/// The means of one scheduler over those of another, by load.
fn ratios(curves: &Curves, of: Policy, to: Policy) -> Vec<(f64, f64)> {
    let pairs = curves.line(of).iter().zip(curves.line(to));
    pairs
        .map(|(of, to)| (of.megabytes_per_second, mean(of) / mean(to).max(1e-9)))
        .collect()
}

/// "1.02 at 3.4 MB/s".
pub(super) fn at(ratio: Option<(f64, f64)>) -> String {
    ratio.map_or("nothing".to_owned(), |(load, ratio)| {
        format!("{ratio:.2} at {load:.1} MB/s")
    })
}

pub(super) fn least(ratios: &[(f64, f64)]) -> Option<(f64, f64)> {
    ratios.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))
}

pub(super) fn most(ratios: &[(f64, f64)]) -> Option<(f64, f64)> {
    ratios.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))
}

/// The mean latency that no scheduler gets below which cannot stop a block that is on the disk: as alone, and for
/// those that find a block there, what is left of it.
fn bound_ms(curves: &Curves, measured: &Measured) -> f64 {
    mean(&curves.alone) + measured.residual_ms
}

fn curve(name: &str, colour: usize, is_aid: bool, points: Vec<(f64, f64)>) -> Curve {
    Curve {
        name: name.to_owned(),
        points,
        colour,
        is_aid,
    }
}

/// The charts of a figure: one for each disk of the trace that asks for anything, then all together, and last G-SCAN's
/// late blocks, if it was measured.
fn charts(curves: &Curves, g_scan: &[Measured]) -> Vec<Chart> {
    let sources = curves.alone.sources.iter().enumerate();
    let sources = sources.filter(|(_, latency)| latency.count > 0);
    let mut of: Vec<Option<usize>> = sources.map(|(disk, _)| Some(disk)).collect();
    of.push(None);
    let latency = |measured: &Measured, disk: Option<usize>| match disk {
        Some(disk) => measured.sources[disk].mean_ms,
        None => mean(measured),
    };
    let chart = |disk: Option<usize>| {
        let mut lines: Vec<Curve> = curves
            .lines
            .iter()
            .enumerate()
            .map(|(colour, line)| {
                let points = line.points.iter();
                let points = points.map(|of| (of.megabytes_per_second, latency(of, disk)));
                curve(line.policy.name(), colour, false, points.collect())
            })
            .collect();
        if !g_scan.is_empty() {
            let points = g_scan.iter();
            let points = points.map(|of| (of.megabytes_per_second, latency(of, disk)));
            lines.push(curve(g_scan::NAME, 7, false, points.collect()));
        }
        let exact = curves.line(Policy::Exact);
        let alone = latency(&curves.alone, disk);
        let alone = exact.iter().map(|of| (of.megabytes_per_second, alone));
        lines.push(curve("alone on the disks", 5, true, alone.collect()));
        if disk.is_none() {
            let bound = exact
                .iter()
                .map(|of| (of.megabytes_per_second, bound_ms(curves, of)));
            lines.push(curve("bound", 6, true, bound.collect()));
        }
        Chart {
            title: disk.map_or("all disks together".to_owned(), |disk| {
                format!("CELLO disk {disk}")
            }),
            x: Axis::linear("real-time load, MB/s"),
            y: Axis::log("mean best-effort latency, ms"),
            curves: lines,
        }
    };
    let mut charts: Vec<Chart> = of.into_iter().map(chart).collect();
    if !g_scan.is_empty() {
        charts.push(late_chart(curves, g_scan));
    }
    charts
}

fn late_chart(curves: &Curves, g_scan: &[Measured]) -> Chart {
    let line = |name: &str, colour, measured: &[Measured]| {
        let points = measured.iter();
        let points = points.map(|of| (of.megabytes_per_second, g_scan::late_percent(of)));
        curve(name, colour, false, points.collect())
    };
    let exact = curves.line(Policy::Exact);
    Chart {
        title: "blocks of streams".to_owned(),
        x: Axis::linear("real-time load, MB/s"),
        y: Axis::linear("late, % of blocks"),
        curves: vec![
            line(Policy::Exact.name(), 0, exact),
            line(g_scan::NAME, 7, g_scan),
        ],
    }
}

pub(super) fn page(
    figure: Figure,
    layout: Layout,
    options: &Options,
    sweep: &Sweep<'_>,
) -> Result<Page, FigureError> {
    let curves = Curves::measure(layout, options, sweep)?;
    let title = format!("latency of best effort, layout {layout}");
    let mut statements = of_schedulers(layout, &curves);
    statements.extend(of_exact(&curves));
    let mut notes = "*Alone* is the same best effort with no streams. *Bound* is that and, for a request that comes while a \
                     block is on its disk, what is left of the block: `W + r E[S²] / (2 E[S])`, where `r` is the share of time in \
                     which blocks are served and `S` their service time, as measured under `exact`; no scheduler that cannot \
                     stop a block does better on arrivals that it does not foresee."
        .to_owned();
    let mut table = curves.table();
    let mut hash = curves.hash;
    let mut g_scan = Vec::new();
    if figure == Figure::Rotation {
        g_scan = g_scan::measure(layout, options, &curves, sweep)?;
        notes = format!("{notes}\n\n{}", g_scan::notes(&curves, &g_scan));
        statements.extend(g_scan::statements(&curves, &g_scan));
        g_scan.iter().for_each(|of| table.add(g_scan::NAME, of));
        hash = g_scan::hash(hash, &g_scan);
    }
    Ok(Page {
        figure,
        svg: draw(
            &format!("Figure {figure}: {title}"),
            &charts(&curves, &g_scan),
            3,
        )?,
        title,
        notes,
        csv: table.into_text(),
        statements,
        hash,
    })
}

/// The thesis's statements about its three schedulers.
fn of_schedulers(layout: Layout, curves: &Curves) -> Vec<Statement> {
    let (edf, lst) = (
        ratios(curves, Policy::Edf, Policy::DeltaL),
        ratios(curves, Policy::Lst, Policy::DeltaL),
    );
    let half = lst.len() / 2;
    let (low, high) = lst.split_at(half);
    let extreme = lst.last().copied();
    let (says_of_extreme, is_so): (&str, fn(f64) -> bool) = match layout {
        Layout::Rotation | Layout::RotationLarge | Layout::RotationLarger => {
            ("at extreme loads LST is (much) worse", |ratio| {
                ratio > EQUAL
            })
        }
        Layout::Random => (
            "at high loads LST is about the same as Delta-L or better: there are seeks anyway",
            |ratio| ratio <= EQUAL,
        ),
        Layout::MemoryOptimized => (
            "at extreme loads LST and Delta-L differ less than with rotation",
            |ratio| (0.5..2.0).contains(&ratio),
        ),
        Layout::MemoryOptimizedLarge => (
            "at extreme loads LST is almost equal to Delta-L or worse",
            |ratio| ratio > 1.0 / EQUAL,
        ),
    };
    let worst_until = edf.iter().take_while(|(_, ratio)| *ratio > 1.0).count();
    let better = least(high);
    let missed = |policy: Policy| -> u64 {
        let points = curves.line(policy).iter();
        points.map(|measured| measured.missed).sum()
    };
    vec![
        Statement::new(
            "EDF, which lets real-time requests go first, is worst by far",
            worst_until >= edf.len() - 1,
            format!(
                "over Delta-L: from {} to {}; worse at {worst_until} of {} loads",
                at(least(&edf)),
                at(most(&edf)),
                edf.len()
            ),
        ),
        Statement::new(
            "at low loads LST and Delta-L are equal",
            low.iter()
                .all(|(_, ratio)| (1.0 / EQUAL..=EQUAL).contains(ratio)),
            format!(
                "LST over Delta-L in the lower half of loads: {} to {}",
                at(least(low)),
                at(most(low))
            ),
        ),
        Statement::new(
            "at moderate to high loads LST is ahead, because it finds more slack",
            better.is_some_and(|(_, ratio)| ratio < 1.0 / EQUAL),
            format!("LST over Delta-L at best {}", at(better)),
        ),
        Statement::new(
            says_of_extreme,
            extreme.is_some_and(|(_, ratio)| is_so(ratio)),
            format!("LST over Delta-L {}", at(extreme)),
        ),
        Statement::new(
            "Delta-L misses no deadline",
            missed(Policy::DeltaLPublished) == 0 && missed(Policy::DeltaL) == 0,
            format!(
                "{} missed as published, {} corrected; LST {}, EDF {}, exact {}, of {} each",
                missed(Policy::DeltaLPublished),
                missed(Policy::DeltaL),
                missed(Policy::Lst),
                missed(Policy::Edf),
                missed(Policy::Exact),
                curves
                    .line(Policy::DeltaL)
                    .iter()
                    .map(|measured| measured.blocks)
                    .sum::<u64>()
            ),
        ),
    ]
}

/// The purpose of exact slack with bursts.
fn of_exact(curves: &Curves) -> Vec<Statement> {
    let exact = curves.line(Policy::Exact);
    let over_best: Vec<(f64, f64)> = exact
        .iter()
        .enumerate()
        .map(|(index, measured)| {
            let others = [Policy::Lst, Policy::DeltaL, Policy::Edf];
            let best = others
                .iter()
                .map(|policy| mean(&curves.line(*policy)[index]))
                .fold(f64::INFINITY, f64::min);
            (measured.megabytes_per_second, mean(measured) / best)
        })
        .collect();
    let full: Vec<(f64, f64)> = exact
        .iter()
        .zip(ratios(curves, Policy::Exact, Policy::DeltaL))
        .filter(|(measured, _)| (0.80..=0.93).contains(&measured.utilization))
        .map(|(_, ratio)| ratio)
        .collect();
    let missed: u64 = exact.iter().map(|measured| measured.missed).sum();
    let over_bound: Vec<(f64, f64)> = exact
        .iter()
        .map(|measured| {
            let ratio = mean(measured) / bound_ms(curves, measured);
            (measured.megabytes_per_second, ratio)
        })
        .collect();
    vec![
        Statement::new(
            "(not in the thesis) `exact` misses no deadline at any load",
            missed == 0,
            format!("{missed} missed"),
        ),
        Statement::new(
            "(not in the thesis) `exact` is at most 1.02 of the best of LST, Delta-L and EDF at every load",
            over_best.iter().all(|(_, ratio)| *ratio <= 1.02),
            format!("at worst {}", at(most(&over_best))),
        ),
        Statement::new(
            "(not in the thesis) where 80 to 93 % are promised, `exact` is at most 0.7 of Delta-L",
            !full.is_empty() && full.iter().all(|(_, ratio)| *ratio <= 0.7),
            format!("from {} to {}", at(least(&full)), at(most(&full))),
        ),
        Statement::new(
            "(not in the thesis) how close `exact` comes to the bound",
            true,
            format!(
                "{} to {} times the bound",
                at(least(&over_bound)),
                at(most(&over_bound))
            ),
        ),
    ]
}

/// Figure 6.8: random against sequential, for CELLO's disk 0.
pub(super) fn against(options: &Options, sweep: &Sweep<'_>) -> Result<Page, FigureError> {
    let random = Curves::measure(Layout::Random, options, sweep)?;
    let rotation = Curves::measure(Layout::Rotation, options, sweep)?;
    let line = |curves: &Curves, policy: Policy| -> Vec<(f64, f64)> {
        let points = curves.line(policy).iter();
        points
            .map(|of| (of.megabytes_per_second, of.sources[0].mean_ms))
            .collect()
    };
    let policies = [Policy::Edf, Policy::DeltaL, Policy::Lst, Policy::Exact];
    let charts = policies.map(|policy| Chart {
        title: policy.name().to_owned(),
        x: Axis::linear("real-time load, MB/s"),
        y: Axis::log("mean latency of CELLO disk 0, ms"),
        curves: vec![
            curve("random", 0, false, line(&random, policy)),
            curve("next to each other", 1, false, line(&rotation, policy)),
        ],
    });
    let statements = policies.map(|policy| {
        // At the same numbers of pairs, which are those of the layout that has room for fewer.
        let (random, rotation) = (line(&random, policy), line(&rotation, policy));
        let both: Vec<(f64, f64)> = random
            .iter()
            .filter_map(|(load, ms)| {
                let same = rotation
                    .iter()
                    .find(|other| (other.0 - load).abs() < 1e-9)?;
                Some((*load, ms / same.1))
            })
            .collect();
        Statement::new(
            format!("best effort is served much worse at random places ({policy})"),
            both.iter().all(|(_, ratio)| *ratio > 1.2),
            format!(
                "random over sequential: {} to {}",
                at(least(&both)),
                at(most(&both))
            ),
        )
    });
    let mut csv = random.table();
    csv.append("random", &rotation.table(), "rotation");
    let mut hash = crate::run::Hash::default();
    hash.add(random.hash);
    hash.add(rotation.hash);
    Ok(Page {
        figure: Figure::RandomAgainstSequential,
        title: "blocks at random places and next to each other, CELLO disk 0".to_owned(),
        notes: String::new(),
        svg: draw(
            "Figure 6.8: random against sequential, CELLO disk 0",
            &charts,
            2,
        )?,
        csv: csv.into_text(),
        statements: statements.into(),
        hash: hash.0,
    })
}
