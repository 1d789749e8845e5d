//! `clockwise sim video`, and the figures of the video server.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use lab::sweep::Sweep;
use lab::video::figures::{VideoFigure, VideoFigureError, VideoOptions, video_figure};
use lab::video::{Outcome, Plan, Runs, VideoError};
use serde::Serialize;

use super::{FigureArgs, FigureChoice, PageView, Sheet, VideoArgs, threads, write_figure};
use crate::failure::{Failure, Place, SourceFile};
use crate::print::{Output, table};

/// Help for an error in a server's file.
const HELP: &str = "docs/reference/video.md describes the keys of a video server";

#[derive(Serialize, Debug)]
struct VideoView<'a> {
    streams_mean: f64,
    streams_min: u32,
    streams_max: u32,
    /// True if a run had as many streams as movies: more movies might find more.
    limited_by_movies: bool,
    late: u64,
    /// Of the buffers of the mean number of streams.
    buffer_mib: f64,
    /// Of the whole search.
    simulated_requests: u64,
    requests_per_second: f64,
    runs: &'a [Outcome],
}

pub(super) fn run(args: &VideoArgs, output: &Output) -> Result<ExitCode, Failure> {
    let source = SourceFile::read(&args.server)?;
    let folder = args.server.parent().unwrap_or(Path::new(""));
    let plan = Plan::parse(&source.text, folder).map_err(|error| failure(&source, error))?;
    let bar = output.progress(plan.runs, "runs");
    let progress = |done: usize, _: usize| bar.set_position(done as u64);
    let sweep = Sweep {
        threads: threads(args.threads),
        folder: None,
        progress: &progress,
    };
    let begin = Instant::now();
    let runs = plan.run(&sweep);
    let seconds = begin.elapsed().as_secs_f64();
    bar.finish_and_clear();
    let view = view(&plan, &runs, seconds);
    output.result(&view, || shown(&view))?;
    Ok(ExitCode::SUCCESS)
}

fn view<'a>(plan: &Plan, runs: &'a Runs, seconds: f64) -> VideoView<'a> {
    let server = &plan.server;
    let (streams_min, streams_max) = runs.range();
    let buffer = server.stripe.unit().get() * u64::from(server.buffer);
    VideoView {
        streams_mean: runs.streams(),
        streams_min,
        streams_max,
        limited_by_movies: plan.streams.is_none() && streams_max == server.movies,
        late: runs.runs.iter().map(|run| run.late).sum(),
        buffer_mib: runs.streams() * buffer as f64 / f64::from(1 << 20),
        simulated_requests: runs.simulated,
        requests_per_second: runs.simulated as f64 / seconds,
        runs: &runs.runs,
    }
}

fn failure(source: &SourceFile<'_>, error: VideoError) -> Failure {
    match error {
        VideoError::Server(fault) => source.bad_input(fault.span, fault.problem).help(HELP),
        VideoError::Other { path, text, fault } => Failure::bad_input(fault.problem)
            .at(Place::new(&path, &text, fault.span))
            .help(HELP),
    }
}

fn shown(view: &VideoView<'_>) -> String {
    let rows = (1..).zip(view.runs).flat_map(|(number, run)| {
        run.ids.iter().map(move |id| {
            [
                number.to_string(),
                run.streams.to_string(),
                format!("{:.1}", run.bus_busy * 100.0),
                format!("{:.1}", run.disk_busy * 100.0),
                id.id.to_string(),
                id.requests.to_string(),
                id.late.to_string(),
                format!("{:.3}", id.bus_wait_ms),
            ]
        })
    });
    let mut text = table(
        [
            "run",
            "streams",
            "bus %",
            "disks %",
            "id",
            "requests",
            "late",
            "bus wait ms",
        ],
        &[0, 1, 2, 3, 4, 5, 6, 7],
        rows,
    );
    text += &format!(
        "\n{:.1} streams ({} to {}) with {:.1} MiB of buffers, {} late requests\n{} requests simulated, {:.1} million a second\n",
        view.streams_mean,
        view.streams_min,
        view.streams_max,
        view.buffer_mib,
        view.late,
        view.simulated_requests,
        view.requests_per_second / 1e6
    );
    if view.limited_by_movies {
        text +=
            "no run has more streams than `movies`: set it higher to find the limit of the disks\n";
    }
    for run in view.runs {
        text += &format!("hash {}\n", run.hash);
    }
    text
}

/// The figures of the video server that are asked for.
pub(super) fn figures(args: &FigureArgs, output: &Output) -> Result<Vec<PageView>, Failure> {
    let all = args.asks_for(&[FigureChoice::All, FigureChoice::Chen]);
    let options = if args.full {
        VideoOptions::full(args.seed)
    } else {
        VideoOptions::small(args.seed)
    };
    let is_asked = |figure: &VideoFigure| all || args.asks_for(&[FigureChoice::Video(*figure)]);
    let figures = VideoFigure::ALL.into_iter().filter(is_asked);
    let write = |figure: VideoFigure| {
        write_figure(args, output, figure.name(), |sweep, svg, csv| {
            let page = video_figure(figure, &options, sweep)?;
            Ok::<_, VideoFigureError>(Sheet {
                text: page.text(svg, csv, &options),
                title: page.title,
                picture: page.svg,
                numbers: page.csv,
                statements: page.statements,
                hash: page.hash,
            })
        })
    };
    figures.map(write).collect()
}
