//! Table 1: waits for the bus and lost requests by id.

use std::fmt::Write as _;

use sched::units::Bytes;

use super::{
    ALONE, Point, Statement, System, VideoFigure, VideoFigureError, VideoOptions, VideoPage,
};
use crate::chart::{Axis, Chart, Curve, page as picture};
use crate::run::Hash;
use crate::sweep::Sweep;
use crate::video::{Outcome, Search, Server};

/// The paper's waits in ms and shares of lost requests in percent, from id 5 to id 0.
const PAPER: [(f64, f64); 6] = [
    (4.61, 3.9),
    (5.60, 5.7),
    (7.11, 9.1),
    (9.03, 14.4),
    (11.03, 24.7),
    (12.66, 41.9),
];
/// The load is the first, in steps of 2 streams, with this share of late requests.
const LATE_SHARE: f64 = 0.001;
const BURSTS_KIB: [u64; 2] = [128, 16];

/// The runs of one size of bursts.
struct Loaded {
    burst_kib: u64,
    runs: Vec<Outcome>,
}

pub(super) fn page(
    options: &VideoOptions,
    sweep: &Sweep<'_>,
) -> Result<VideoPage, VideoFigureError> {
    let loaded = sweep.try_each(BURSTS_KIB.len(), |index| {
        let burst_kib = BURSTS_KIB[index];
        let name = format!(
            "chen-table-1-{burst_kib}-{}-{}-{}.json",
            options.movies, options.runs, options.seed
        );
        let runs = sweep.kept(&name, "", || {
            Ok::<_, VideoFigureError>(runs(burst_kib, options))
        })?;
        Ok::<_, VideoFigureError>(Loaded { burst_kib, runs })
    })?;
    let mut hash = Hash::default();
    for run in loaded.iter().flat_map(|loaded| &loaded.runs) {
        run.hash.bytes().for_each(|byte| hash.add(byte.into()));
    }
    let title = "waits for the bus and lost requests by id".to_owned();
    Ok(VideoPage {
        figure: VideoFigure::Ids,
        svg: picture(&title, &charts(&loaded), 2)?,
        title,
        notes: format!(
            "Six drives of hp-c2247 on each regular channel, C-SCAN, 512 KB per stream. The paper does not say how many \
             streams; here it is the first number, in steps of 2, with {} % of late requests: {}. A run goes on after a late \
             request. The paper does not say how long a drive keeps the bus; its drives begin when all data is in the \
             buffer, so whole transfers are taken as its case.",
            LATE_SHARE * 100.0,
            loaded
                .iter()
                .map(|of| format!("{} with bursts of {} KB", of.runs[0].streams, of.burst_kib))
                .collect::<Vec<_>>()
                .join(", ")
        ),
        csv: csv(&loaded),
        statements: statements(&loaded),
        hash: hash.0,
    })
}

fn runs(burst_kib: u64, options: &VideoOptions) -> Vec<Outcome> {
    let point = Point {
        drive: "hp-c2247",
        disks: 6,
        buffer: 4,
        system: System::Regular,
    };
    let mut server: Server = point.server(options);
    server.bus.burst = Bytes::from_kib(burst_kib);
    let largest = Search::all(&server, options.seed, 1, &ALONE);
    let mut streams = largest.runs[0].streams;
    let first = loop {
        streams = (streams + 2).min(server.most_streams());
        let run = server.run(streams, options.seed, false);
        let is_enough = run.late as f64 >= LATE_SHARE * run.requests as f64;
        if is_enough || streams == server.most_streams() {
            break run;
        }
    };
    let others = 1..options.runs;
    let rest = others.map(|run| server.run(streams, options.seed + run, false));
    std::iter::once(first).chain(rest).collect()
}

/// By id, from 5 to 0: the mean wait in ms, and the share of all late requests in percent.
fn by_id(loaded: &Loaded) -> Vec<(f64, f64)> {
    let ids = loaded.runs[0].ids.len();
    let late: u64 = loaded.runs.iter().map(|run| run.late).sum();
    let of = |index: usize| {
        let ids = || loaded.runs.iter().map(|run| &run.ids[index]);
        let requests: u64 = ids().map(|id| id.requests).sum();
        let wait: f64 = ids().map(|id| id.bus_wait_ms * id.requests as f64).sum();
        let own: u64 = ids().map(|id| id.late).sum();
        (
            wait / requests.max(1) as f64,
            100.0 * own as f64 / late.max(1) as f64,
        )
    };
    (0..ids).map(of).collect()
}

fn csv(loaded: &[Loaded]) -> String {
    let mut csv = "burst_kib,id,streams,requests,late,bus_wait_ms,late_share_percent,paper_wait_ms,paper_share_percent\n".to_owned();
    for of in loaded {
        for (index, (wait, share)) in by_id(of).into_iter().enumerate() {
            let ids = || of.runs.iter().map(|run| &run.ids[index]);
            let _ = writeln!(
                csv,
                "{},{},{},{},{},{wait:.3},{share:.2},{},{}",
                of.burst_kib,
                of.runs[0].ids[index].id,
                of.runs[0].streams,
                ids().map(|id| id.requests).sum::<u64>(),
                ids().map(|id| id.late).sum::<u64>(),
                PAPER[index].0,
                PAPER[index].1
            );
        }
    }
    csv
}

fn charts(loaded: &[Loaded]) -> [Chart; 2] {
    let chart = |title: &str, label: &str, of: fn(&(f64, f64)) -> f64| {
        let points = |values: &[(f64, f64)]| {
            let ids = (0..values.len()).rev().map(|id| id as f64);
            ids.zip(values.iter().map(of)).collect()
        };
        let mut curves: Vec<Curve> = loaded
            .iter()
            .enumerate()
            .map(|(colour, loaded)| Curve {
                name: format!("bursts of {} KB", loaded.burst_kib),
                points: points(&by_id(loaded)),
                colour,
                is_aid: false,
            })
            .collect();
        curves.push(Curve {
            name: "the paper".to_owned(),
            points: points(&PAPER),
            colour: 5,
            is_aid: true,
        });
        Chart {
            title: title.to_owned(),
            x: Axis::linear("id"),
            y: Axis::linear(label),
            curves,
        }
    };
    [
        chart("wait for the bus", "mean wait, ms", |of| of.0),
        chart("lost requests", "share of all lost requests, %", |of| of.1),
    ]
}

fn statements(loaded: &[Loaded]) -> Vec<Statement> {
    let mut statements = Vec::new();
    for of in loaded {
        let values = by_id(of);
        let with = format!("bursts of {} KB", of.burst_kib);
        let (first, last) = (values[0], values[values.len() - 1]);
        let ratio = last.0 / first.0;
        statements.push(Statement {
            says: format!("{with}: id 0 waits 2.7 times as long as id 5"),
            holds: (2.2..=3.2).contains(&ratio),
            found: format!(
                "{ratio:.2} times, {:.2} ms against {:.2} ms",
                last.0, first.0
            ),
        });
        let rises = values.windows(2).all(|pair| pair[0].0 <= pair[1].0);
        statements.push(Statement {
            says: format!("{with}: each lower priority waits longer"),
            holds: rises,
            found: values
                .iter()
                .map(|of| format!("{:.2}", of.0))
                .collect::<Vec<_>>()
                .join(", ")
                + " ms from id 5 to 0",
        });
        statements.push(Statement {
            says: format!("{with}: id 0 has 42 % of the lost requests, ten times as many as id 5"),
            holds: (37.0..=47.0).contains(&last.1) && last.1 >= 8.0 * first.1,
            found: values
                .iter()
                .map(|of| format!("{:.1}", of.1))
                .collect::<Vec<_>>()
                .join(", ")
                + " % from id 5 to 0",
        });
    }
    statements
}
