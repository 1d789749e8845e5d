//! `clockwise sim run` and `clockwise sim cello`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lab::experiment::{Experiment, ExperimentError, Results, RunResult, TraceRead};
use lab::thesis::{Measured, Source};
use lab::trace::write_file;
use sched::units::Bytes;
use serde::Serialize;

use super::{CelloArgs, RunArgs, in_sweep};
use crate::failure::{Failure, SourceFile, io_failure};
use crate::print::{Output, table};

/// Help for an error in an experiment file.
const HELP: &str = "docs/reference/experiment.md describes the keys of an experiment";

#[derive(Serialize, Debug)]
struct ResultsView<'a> {
    hash: String,
    files: Vec<PathBuf>,
    traces: Vec<TraceView<'a>>,
    runs: Vec<RunView<'a>>,
}

#[derive(Serialize, Debug)]
struct TraceView<'a> {
    file: &'a str,
    format: &'a str,
    requests: u64,
    left_out: u64,
    other: u64,
    skipped: u64,
}

#[derive(Serialize, Debug)]
struct RunView<'a> {
    scheduler: &'static str,
    load: usize,
    seed: u64,
    measured: &'a Measured,
}

pub(super) fn run(args: &RunArgs, output: &Output) -> Result<ExitCode, Failure> {
    let source = SourceFile::read(&args.experiment)?;
    let folder = args.experiment.parent().unwrap_or(Path::new(""));
    let failed = |error| failure(&source, error);
    let experiment = Experiment::parse(&source.text, folder).map_err(failed)?;
    if !experiment.description().is_empty() {
        output.note(experiment.description());
    }
    for read in experiment.traces() {
        output.note(&trace_text(&TraceView::of(read)));
    }
    fs::create_dir_all(&args.out)
        .map_err(|error| io_failure("create the folder", &args.out, &error))?;
    let results = in_sweep("runs", &args.out, args.threads, output, |sweep| {
        experiment.run(sweep)
    });
    let results = results.map_err(failed)?;
    let view = ResultsView {
        hash: format!("{:016x}", results.hash()),
        files: write(&args.out, &results)?,
        traces: experiment.traces().iter().map(TraceView::of).collect(),
        runs: results.runs.iter().map(RunView::of).collect(),
    };
    output.result(&view, || text(&view))?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize, Debug)]
struct CelloView<'a> {
    file: &'a Path,
    seed: u64,
    requests: usize,
}

pub(super) fn run_cello(args: &CelloArgs, output: &Output) -> Result<ExitCode, Failure> {
    let period = Source::from(args.source).period();
    let requests = period.requests(Bytes::from_mib(args.disk_mib), args.seed);
    write_file(&args.out, &requests).map_err(|error| io_failure("write", &args.out, &error))?;
    let view = CelloView {
        file: &args.out,
        seed: args.seed,
        requests: requests.len(),
    };
    output.result(&view, || {
        format!(
            "{}: {} requests of eight disks\n",
            view.file.display(),
            view.requests
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

fn failure(source: &SourceFile<'_>, error: ExperimentError) -> Failure {
    match &error {
        ExperimentError::Parse(inner) => {
            let span = inner.span().unwrap_or(0..0);
            source
                .bad_input(span, inner.message().to_owned())
                .help(HELP)
        }
        ExperimentError::Invalid { .. } => {
            Failure::bad_input(format!("{}: {error}", source.path.display())).help(HELP)
        }
        ExperimentError::Read { .. } => Failure::bad_input(error.to_string())
            .help("paths are relative to the folder of the experiment"),
        ExperimentError::Trace { .. } => Failure::bad_input(error.to_string()).help(
            "docs/reference/traces.md describes the formats; `lenient = true` skips invalid lines",
        ),
        ExperimentError::Refused { .. } => {
            Failure::bad_input(format!("{}: {error}", source.path.display()))
                .help("`loads = \"until-full\"` stops at the largest load that is admitted")
        }
        ExperimentError::Keep(_) => Failure::failed(error.to_string()).help(
            "check that the folder is writable, and repeat the command: finished runs are kept",
        ),
    }
}

/// Writes all tables, and returns their files.
fn write(folder: &Path, results: &Results) -> Result<Vec<PathBuf>, Failure> {
    let json = serde_json::to_string_pretty(results)
        .map_err(|error| Failure::bug(format!("results cannot be written as JSON: {error}")))?;
    let tables = [
        ("results.csv", Some(results.csv())),
        ("streams.csv", Some(results.streams_csv())),
        ("disks.csv", Some(results.disks_csv())),
        ("latency.csv", results.slots_csv()),
        ("slack.csv", results.slack_csv()),
        ("results.json", Some(json + "\n")),
    ];
    let mut files = Vec::new();
    for (name, text) in tables {
        let path = folder.join(name);
        if let Some(text) = text {
            fs::write(&path, text).map_err(|error| io_failure("write", &path, &error))?;
            files.push(path);
        }
    }
    Ok(files)
}

impl<'a> TraceView<'a> {
    fn of(read: &'a TraceRead) -> Self {
        Self {
            file: &read.file,
            format: read.format,
            requests: read.requests,
            left_out: read.left_out,
            other: read.other,
            skipped: read.skipped,
        }
    }
}

impl<'a> RunView<'a> {
    fn of(run: &'a RunResult) -> Self {
        Self {
            scheduler: run.scheduler.name(),
            load: run.load,
            seed: run.seed,
            measured: &run.measured,
        }
    }
}

fn trace_text(trace: &TraceView<'_>) -> String {
    let TraceView {
        file,
        format,
        requests,
        left_out,
        other,
        skipped,
    } = trace;
    format!(
        "{file} ({format}): {requests} requests; {left_out} not selected, {other} not transfers, {skipped} invalid"
    )
}

fn text(view: &ResultsView<'_>) -> String {
    let rows = view.runs.iter().map(|run| {
        let of = run.measured;
        [
            run.scheduler.to_owned(),
            run.load.to_string(),
            run.seed.to_string(),
            format!("{:.1}", of.utilization * 100.0),
            of.best_effort.count.to_string(),
            format!("{:.3}", of.best_effort.mean_ms),
            format!("{:.3}", of.best_effort.p99_ms),
            of.blocks.to_string(),
            of.missed.to_string(),
            format!("{:.3}", of.lateness_max_ms),
        ]
    });
    let mut text = table(
        [
            "scheduler",
            "load",
            "seed",
            "promised %",
            "requests",
            "mean ms",
            "p99 ms",
            "blocks",
            "missed",
            "late ms",
        ],
        &[1, 2, 3, 4, 5, 6, 7, 8, 9],
        rows,
    );
    text += &format!("\nhash {}\n", view.hash);
    for file in &view.files {
        text += &format!("{}\n", file.display());
    }
    text
}
