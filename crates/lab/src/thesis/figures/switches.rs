//! Figure 6.6: changes between streams and best effort, and how many requests of best effort follow each other.

use sched::policy::Policy;

use super::{Curves, Figure, FigureError, Options, Page, Statement};
use crate::chart::{Axis, Chart, Curve, page as draw};
use crate::sweep::Sweep;
use crate::thesis::{Layout, Measured};

/// From how many tasks on two schedulers differ by more than this share, for good.
const APART: f64 = 0.05;

fn line(curves: &Curves, policy: Policy, of: fn(&Measured) -> f64) -> Vec<(f64, f64)> {
    let points = curves.line(policy).iter();
    points
        .map(|measured| (measured.tasks as f64, of(measured)))
        .collect()
}

fn chart(curves: &Curves, policies: &[Policy], y: Axis, of: fn(&Measured) -> f64) -> Chart {
    let curve = |policy: &Policy| Curve {
        name: policy.name().to_owned(),
        points: line(curves, *policy, of),
        colour: Policy::ALL
            .iter()
            .position(|other| other == policy)
            .unwrap_or_default(),
        is_aid: false,
    };
    Chart {
        title: y.label.clone(),
        x: Axis::linear("real-time tasks on all disks"),
        y,
        curves: policies.iter().map(curve).collect(),
    }
}

pub(super) fn page(options: &Options, sweep: &Sweep<'_>) -> Result<Page, FigureError> {
    let curves = Curves::measure(Layout::Rotation, options, sweep)?;
    let switches = |measured: &Measured| measured.switches as f64;
    let all = Policy::ALL;
    let burst: fn(&Measured) -> f64 = |measured| measured.burst_mean;
    let deviation: fn(&Measured) -> f64 = |measured| measured.burst_deviation;
    let charts = [
        chart(
            &curves,
            &all,
            Axis::linear("changes between streams and best effort"),
            switches,
        ),
        chart(
            &curves,
            &all,
            Axis::log("best-effort burst, requests (mean)"),
            burst,
        ),
        chart(
            &curves,
            &[Policy::Exact, Policy::DeltaL, Policy::Lst],
            Axis::log("best-effort burst, requests (deviation)"),
            deviation,
        ),
    ];
    Ok(Page {
        figure: Figure::Switches,
        title: "changes between streams and best effort, and bursts".to_owned(),
        notes: "Tasks are counted on all three disks: a stream that is striped is three. The thesis counts each stream \
                once."
            .to_owned(),
        svg: draw("Figure 6.6: changes and bursts (rotation)", &charts, 3)?,
        csv: curves.table().into_text(),
        statements: statements(&curves, switches, burst, deviation),
        hash: curves.hash,
    })
}

fn statements(
    curves: &Curves,
    switches: fn(&Measured) -> f64,
    burst: fn(&Measured) -> f64,
    deviation: fn(&Measured) -> f64,
) -> Vec<Statement> {
    let (lst, delta_l, edf) = (
        line(curves, Policy::Lst, switches),
        line(curves, Policy::DeltaL, switches),
        line(curves, Policy::Edf, switches),
    );
    let ends = |line: &[(f64, f64)]| {
        let value = |point: Option<&(f64, f64)>| point.map_or(0.0, |point| point.1);
        (value(line.first()), value(line.last()))
    };
    let apart = lst
        .iter()
        .zip(&delta_l)
        .rposition(|(lst, delta_l)| (lst.1 / delta_l.1.max(1.0) - 1.0).abs() <= APART)
        .map_or(0, |last| last + 1);
    let streams_apart = lst.get(apart).map(|point| point.0 / 3.0);
    let bursts = |policy| ends(&line(curves, policy, burst));
    let last_deviation = |policy| ends(&line(curves, policy, deviation)).1;
    vec![
        Statement::new(
            "changes of LST and Delta-L increase with the tasks",
            ends(&lst).1 > ends(&lst).0 && ends(&delta_l).1 > ends(&delta_l).0,
            format!(
                "LST {:.0} to {:.0}, Delta-L {:.0} to {:.0}",
                ends(&lst).0,
                ends(&lst).1,
                ends(&delta_l).0,
                ends(&delta_l).1
            ),
        ),
        Statement::new(
            "from about 35 tasks on LST changes more often than Delta-L",
            streams_apart.is_some_and(|streams| (25.0..45.0).contains(&streams)) && ends(&lst).1 > ends(&delta_l).1,
            streams_apart.map_or("they do not part for good".to_owned(), |streams| {
                format!(
                    "they part by more than 5 % at {streams:.0} streams; with as many as are admitted LST has {:.2} of \
                     Delta-L's",
                    ends(&lst).1 / ends(&delta_l).1.max(1.0)
                )
            }),
        ),
        Statement::new(
            "changes of EDF become fewer as tasks are added",
            edf.iter().map(|point| point.1).fold(0.0, f64::max) > ends(&edf).1,
            format!(
                "{:.0} with one pair, {:.0} at most, {:.0} at the end",
                ends(&edf).0,
                edf.iter().map(|point| point.1).fold(0.0, f64::max),
                ends(&edf).1
            ),
        ),
        Statement::new(
            "best-effort bursts of EDF get longer, those of LST and Delta-L shorter",
            bursts(Policy::Edf).1 > bursts(Policy::Edf).0
                && bursts(Policy::Lst).1 < bursts(Policy::Lst).0
                && bursts(Policy::DeltaL).1 < bursts(Policy::DeltaL).0,
            format!(
                "EDF {:.1} to {:.1}, LST {:.1} to {:.1}, Delta-L {:.1} to {:.1} requests",
                bursts(Policy::Edf).0,
                bursts(Policy::Edf).1,
                bursts(Policy::Lst).0,
                bursts(Policy::Lst).1,
                bursts(Policy::DeltaL).0,
                bursts(Policy::DeltaL).1
            ),
        ),
        Statement::new(
            "the deviation of Delta-L's bursts is larger than that of LST's",
            last_deviation(Policy::DeltaL) > last_deviation(Policy::Lst),
            format!(
                "{:.1} and {:.1} requests with as many streams as are admitted; exact {:.1}",
                last_deviation(Policy::DeltaL),
                last_deviation(Policy::Lst),
                last_deviation(Policy::Exact)
            ),
        ),
    ]
}
