//! The part of the disks' bandwidth that can be promised, by the times for admission.

use drives::plant::Plant;
use sched::disk::OverPrediction;
use sched::policy::Policy;
use sched::request::Op;
use sched::units::{Bytes, SECTOR_BYTES, Sector, Time};

use super::{Figure, FigureError, Options, Page, Statement};
use crate::chart::{Axis, Chart, Curve, page as draw};
use crate::sweep::Sweep;
use crate::thesis::figures::table::Table;
use crate::thesis::{Layout, Measured, Point, Source, SweepError, Thesis, Times};

/// The thesis's value for its three disks together, in MB/s.
const RAW_OF_THE_THESIS: f64 = 25.3;

/// A layout that is full, and what came of it.
struct Full {
    layout: Layout,
    times: Times,
    pairs: usize,
    /// Demand of their blocks and periods, in MB/s.
    reserved: f64,
    /// The buffers of all streams, in MB.
    buffers: f64,
    /// Delta-L of the disk with the least.
    delta_l_ms: f64,
    measured: Measured,
}

/// Bandwidth of sequential reads from the first sector on, a megabyte at a time, in MB/s.
fn sequential(thesis: &Thesis) -> f64 {
    let mut plant = Plant::new(thesis.disks.plant.clone(), 1);
    let count = Bytes::from_mib(1)
        .sectors()
        .expect("a megabyte is in whole sectors");
    let mut at = (Time::ZERO, Sector(0));
    for _ in 0..100 {
        let service = plant.service(at.0, Op::Read, at.1, count);
        at = (service.completed, at.1 + count);
    }
    let bytes = at.1.get() * SECTOR_BYTES * thesis.disks.count as u64;
    bytes as f64 / 1e6 / (at.0 - Time::ZERO).as_secs_f64()
}

fn measure(options: &Options, sweep: &Sweep<'_>) -> Result<Vec<Full>, FigureError> {
    let mut full = Vec::new();
    let mut points = Vec::new();
    for layout in Layout::ALL {
        for times in Times::ALL {
            let thesis = Thesis::new(layout, times, options.seed).map_err(SweepError::from)?;
            let (admitted, pairs, _) = thesis.admit(usize::MAX);
            let slack = admitted
                .delta_l()
                .into_iter()
                .map(|(corrected, _)| corrected);
            let of_stream = |stream: &crate::farm::Stream| {
                stream.track.block.get() as f64 / 1e6 / stream.period.as_secs_f64()
            };
            points.push(Point {
                layout,
                times,
                policy: Policy::Exact,
                pairs,
                // Full disks and all of a day's requests: queues without end, and nothing about streams.
                source: Source::Busy,
                seed: options.seed,
                over_prediction: OverPrediction::default(),
            });
            let buffers = |stream: &crate::farm::Stream| {
                let of_lanes = stream.track.lanes.len() as f64 * f64::from(stream.depth);
                of_lanes * stream.track.block.get() as f64 / 1e6
            };
            full.push((
                admitted.streams().iter().map(of_stream).sum(),
                admitted.streams().iter().map(buffers).sum(),
                slack.map(|slack| slack.value.get()).min(),
            ));
        }
    }
    let measured = sweep.run(&points)?;
    let all = points.iter().zip(full).zip(measured);
    let all = all.map(|((point, (reserved, buffers, delta_l)), measured)| Full {
        layout: point.layout,
        times: point.times,
        pairs: point.pairs,
        reserved,
        buffers,
        delta_l_ms: delta_l.unwrap_or_default() as f64 / 1e6,
        measured,
    });
    Ok(all.collect())
}

pub(super) fn page(options: &Options, sweep: &Sweep<'_>) -> Result<Page, FigureError> {
    let thesis =
        Thesis::new(Layout::Rotation, Times::Bound, options.seed).map_err(SweepError::from)?;
    let sequential = sequential(&thesis);
    let all = measure(options, sweep)?;
    let mut table = Table::new(&[
        "layout",
        "admission",
        "pairs",
        "reserved_MB/s",
        "of_25.3_MB/s",
        "of_simulated",
        "buffers_MB",
        "promised",
        "delta_l_ms",
        "missed",
        "overruns",
        "best_effort_mean_ms",
    ]);
    let mut hash = crate::run::Hash::default();
    for full in &all {
        hash.add(full.measured.hash);
        table.row(&[
            full.layout.to_string(),
            full.times.name().to_owned(),
            full.pairs.to_string(),
            format!("{:.3}", full.reserved),
            format!("{:.4}", full.reserved / RAW_OF_THE_THESIS),
            format!("{:.4}", full.reserved / sequential),
            format!("{:.1}", full.buffers),
            format!("{:.4}", full.measured.utilization),
            format!("{:.3}", full.delta_l_ms),
            full.measured.missed.to_string(),
            full.measured.overruns.to_string(),
            format!("{:.3}", full.measured.best_effort.mean_ms),
        ]);
    }
    let curve = |(colour, layout): (usize, Layout)| Curve {
        name: layout.to_string(),
        points: (1..)
            .zip(all.iter().filter(|full| full.layout == layout))
            .map(|(place, full)| (f64::from(place), full.reserved / RAW_OF_THE_THESIS))
            .collect(),
        colour,
        is_aid: false,
    };
    let chart = Chart {
        title: "bandwidth that is promised, of 25.3 MB/s".to_owned(),
        x: Axis::linear(
            "admission by: 1 printed times, 2 bounds, 3 bounds near the movies, 4 and blocks on tracks, 5 and in sweeps",
        ),
        y: Axis::linear("share"),
        curves: Layout::ALL.into_iter().enumerate().map(curve).collect(),
    };
    Ok(Page {
        figure: Figure::Headroom,
        title: "how much of the disks' bandwidth is promised".to_owned(),
        notes: format!(
            "The thesis has no such figure. Each layout is filled with as many pairs as admission lets in, and then \
             run with `exact` beside CELLO's busy 1,300 seconds. Bandwidth is that of blocks and periods, as they are reserved. By *printed* times it \
             is what the thesis promises, on percentiles; the others are bounds that a drive of this profile \
             cannot exceed. *Near*: each block where it lies, seeks no longer than from one end of the movies to \
             the other, and best effort pays for the way back. *Tracks*: blocks begin with a track as well. *Sweeps*: and the \
             blocks of a period are read in order of position, with all their seeks bounded together; a stream has three buffers for each disk then, and else two. Blocks are of 1 MB and 256 KB, \
             *large* ones of 2 MB and 512 KB, *larger* ones of 4 MB and 1 MB. Raw \
             bandwidth is the thesis's {RAW_OF_THE_THESIS} MB/s; the simulated drives give {sequential:.1} MB/s to who reads on and \
             on in requests of 1 MiB."
        ),
        svg: draw("Admission headroom", &[chart], 1)?,
        csv: table.into_text(),
        statements: statements(&all, sequential),
        hash: hash.0,
    })
}

fn statements(all: &[Full], sequential: f64) -> Vec<Statement> {
    let share = |layout: Layout, times: Times| {
        let full = all
            .iter()
            .find(|full| (full.layout, full.times) == (layout, times));
        full.map_or(0.0, |full| full.reserved / RAW_OF_THE_THESIS)
    };
    let of_thesis = |times: Times| Layout::THESIS.map(|layout| share(layout, times));
    let shares = |times: Times| {
        let shares = of_thesis(times).map(|share| format!("{share:.2}"));
        format!(
            "{} ({})",
            shares.join(", "),
            Layout::THESIS.map(Layout::name).join(", ")
        )
    };
    let printed = of_thesis(Times::Printed);
    let missed: u64 = all.iter().map(|full| full.measured.missed).sum();
    let provable = all.iter().filter(|full| full.times != Times::Printed);
    let overruns: u64 = provable.map(|full| full.measured.overruns).sum();
    let more = |layout: Layout| share(layout, Times::Sweeps) / share(layout, Times::Tracks);
    let [large, larger] =
        [Layout::RotationLarge, Layout::RotationLarger].map(|layout| share(layout, Times::Sweeps));
    let of_simulated = RAW_OF_THE_THESIS / sequential;
    vec![
        Statement::new(
            "15.6 to 21 MB/s are admitted, 0.62 to 0.83 of the raw bandwidth",
            printed[0] > 0.62 && printed.iter().all(|share| *share < 0.84),
            shares(Times::Printed),
        ),
        Statement::new(
            "(not in the thesis) nothing that was admitted is late, however full the disks",
            missed == 0,
            format!("{missed} late in {} runs", all.len()),
        ),
        Statement::new(
            "(not in the thesis) no request takes longer than its bound",
            overruns == 0,
            format!("{overruns} did, by the four kinds of bounds"),
        ),
        Statement::new(
            "(not in the thesis) bounds where blocks lie admit more than the thesis's percentiles",
            share(Layout::Rotation, Times::Tracks) > share(Layout::Rotation, Times::Printed),
            format!(
                "bounds over the whole disk: {}; near the movies: {}; and on tracks: {}",
                shares(Times::Bound),
                shares(Times::Near),
                shares(Times::Tracks)
            ),
        ),
        Statement::new(
            "(not in the thesis) 0.95 of the raw bandwidth is admitted by bounds",
            larger >= 0.95,
            format!(
                "in sweeps: {}; {large:.2} striped with large blocks, and {larger:.2} with larger ones, of what the \
                 simulated drives give {:.2} and {:.2}",
                shares(Times::Sweeps),
                large * of_simulated,
                larger * of_simulated
            ),
        ),
        Statement::new(
            "(not in the thesis) sweeps admit more than requests one by one, in each layout",
            Layout::ALL.into_iter().all(|layout| more(layout) > 1.0),
            Layout::ALL
                .map(|layout| format!("{layout} {:.3}", more(layout)))
                .join(", "),
        ),
    ]
}
