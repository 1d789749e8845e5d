//! `clockwise sim`: the experiments of the papers, and one's own, in virtual time.

mod cases;
mod experiments;

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use lab::sweep::Sweep;
use lab::thesis::figures::{Clock, Figure, FigureError, Options, Page, figure, online};
use lab::thesis::{Source, Times};
use sched::policy::Policy;
use serde::Serialize;

use crate::failure::{Failure, io_failure};
use crate::print::Output;

/// What to simulate.
#[derive(Subcommand, Debug)]
pub enum SimCommand {
    /// Measure figures of the thesis again: as a picture, as numbers, and in words.
    Figure(FigureArgs),
    /// Run an experiment of one's own, which a file describes.
    Run(RunArgs),
    /// Write a trace like that of CELLO on 1 June 1992, as DiskSim's ASCII.
    Cello(CelloArgs),
    /// Try to make a scheduler late: admitted sets of tasks, releases at the worst moments, best effort as long
    /// as it accepts.
    Adversary(AdversaryArgs),
    /// Play a case that the adversary has found again, step by step.
    Replay(ReplayArgs),
}

/// Which experiment.
#[derive(clap::Args, Debug)]
pub struct RunArgs {
    /// The file that describes it.
    experiment: PathBuf,
    /// The folder for results. Runs that are done are kept there as well: after Ctrl-C the same command goes on where
    /// it was.
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// How many runs at a time [default: one for each processor].
    #[arg(long, value_name = "COUNT")]
    threads: Option<NonZeroUsize>,
}

/// Which trace.
#[derive(clap::Args, Debug)]
pub struct CelloArgs {
    /// The file for it; compressed if its name ends with `.gz`.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The whole day, or its busiest part.
    #[arg(long, value_enum, default_value_t = SourceArg::Day)]
    source: SourceArg,
    /// How large its eight disks are, in MiB: 64 to 1,048,576.
    #[arg(long, value_name = "MIB", default_value_t = 768,
          value_parser = clap::value_parser!(u64).range(64..=1 << 20))]
    disk_mib: u64,
    /// Decides everything that is random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What to try.
#[derive(clap::Args, Debug)]
pub struct AdversaryArgs {
    /// The scheduler: exact, delta-l, delta-l-published, lst or edf.
    #[arg(long, value_name = "NAME", default_value_t = Policy::Exact)]
    scheduler: Policy,
    /// How many admitted sets of tasks.
    #[arg(long, value_name = "COUNT", default_value_t = 20_000)]
    sets: u64,
    /// Decides everything that is random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How much longer a job takes that comes after best effort, as if the arm had been left far from where jobs are; sets
    /// with less slack than that are not admitted.
    #[arg(long, value_name = "TIME", default_value_t = 0,
          value_parser = clap::value_parser!(u64).range(..=10))]
    away: u64,
    /// Jobs are sweeps of requests that take one each: how long the way is to where a sweep begins. 0: jobs are requests.
    #[arg(long, value_name = "TIME", default_value_t = 0,
          value_parser = clap::value_parser!(u64).range(..=4))]
    sweep: u64,
    /// Where to write the smallest case that is found.
    #[arg(long, value_name = "FILE")]
    case: Option<PathBuf>,
    /// How many sets at a time [default: one for each processor].
    #[arg(long, value_name = "COUNT")]
    threads: Option<NonZeroUsize>,
}

/// What to play.
#[derive(clap::Args, Debug)]
pub struct ReplayArgs {
    /// The file of the case.
    case: PathBuf,
    /// Let another scheduler play it.
    #[arg(long, value_name = "NAME")]
    scheduler: Option<Policy>,
    /// Where to draw it, as SVG.
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
}

/// Which figures, and how.
#[derive(clap::Args, Debug)]
pub struct FigureArgs {
    /// Their numbers in the thesis, `headroom`, or `all`: all but 7.1, which is measured by the clock.
    #[arg(required = true, value_name = "NUMBER", value_parser = parsed_figure)]
    figures: Vec<Wanted>,
    /// The folder for pages, pictures and numbers. Runs that are done are kept there as well: after Ctrl-C the
    /// same command goes on where it was.
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// The best effort beside streams.
    #[arg(long, value_enum, default_value_t = SourceArg::Day)]
    source: SourceArg,
    /// The service times that admission goes by.
    #[arg(long, value_enum, default_value_t = TimesArg::Printed)]
    times: TimesArg,
    /// Decides everything that is random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many runs at a time [default: one for each processor].
    #[arg(long, value_name = "COUNT")]
    threads: Option<NonZeroUsize>,
    /// How much of the busy period figure 7.1 takes, four times over: 1 to 1,300.
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=1_300))]
    seconds: u64,
    /// Where figure 7.1 has the data of its drives: best in memory.
    #[arg(long, value_name = "FOLDER", default_value = "/dev/shm")]
    drives: PathBuf,
}

/// A figure, or all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wanted {
    All,
    One(Figure),
}

fn parsed_figure(text: &str) -> Result<Wanted, String> {
    if text == "all" {
        return Ok(Wanted::All);
    }
    let number = text.parse().map(Wanted::One);
    number.map_err(|error: lab::thesis::figures::UnknownFigure| format!("{error}, and `all`"))
}

/// A part of CELLO's day.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum SourceArg {
    /// 1 June 1992, 801,007 requests.
    Day,
    /// Its busy 1,300 seconds, 53,752 requests.
    Busy,
}

impl From<SourceArg> for Source {
    fn from(source: SourceArg) -> Self {
        match source {
            SourceArg::Day => Self::Day,
            SourceArg::Busy => Self::Busy,
        }
    }
}

/// Service times for admission.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum TimesArg {
    /// Those of the thesis's table 6.4, the 95th percentile or higher.
    Printed,
    /// What cannot be exceeded by the drive's profile.
    Bound,
    /// The same where blocks lie, with seeks no longer than from one end of the movies to the other.
    Near,
    /// The same with blocks that begin with a track.
    Tracks,
    /// The same with the blocks of a period in sweeps, whose seeks are bounded together.
    Sweeps,
}

/// A figure's page as it was written.
#[derive(Serialize, Debug)]
struct PageView {
    figure: &'static str,
    title: String,
    page: PathBuf,
    picture: PathBuf,
    numbers: PathBuf,
    seed: u64,
    hash: String,
    statements: Vec<StatementView>,
}

/// What the thesis says and what was found.
#[derive(Serialize, Debug)]
struct StatementView {
    says: String,
    holds: bool,
    found: String,
}

/// Runs `clockwise sim`.
pub(super) fn run(command: &SimCommand, output: &Output) -> Result<ExitCode, Failure> {
    match command {
        SimCommand::Figure(args) => run_figures(args, output),
        SimCommand::Run(args) => experiments::run(args, output),
        SimCommand::Cello(args) => experiments::run_cello(args, output),
        SimCommand::Adversary(args) => cases::run_adversary(args, output),
        SimCommand::Replay(args) => cases::run_replay(args, output),
    }
}

/// As many threads as were asked for, or one for each processor.
fn threads(asked: Option<NonZeroUsize>) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    asked.map_or_else(processors, NonZeroUsize::get)
}

fn run_figures(args: &FigureArgs, output: &Output) -> Result<ExitCode, Failure> {
    let figures: Vec<Figure> = Figure::ALL
        .into_iter()
        .filter(|figure| {
            let all = args.figures.contains(&Wanted::All) && *figure != Figure::Online;
            all || args.figures.contains(&Wanted::One(*figure))
        })
        .collect();
    let options = Options {
        times: match args.times {
            TimesArg::Printed => Times::Printed,
            TimesArg::Bound => Times::Bound,
            TimesArg::Near => Times::Near,
            TimesArg::Tracks => Times::Tracks,
            TimesArg::Sweeps => Times::Sweeps,
        },
        source: args.source.into(),
        seed: args.seed,
    };
    fs::create_dir_all(&args.out)
        .map_err(|error| io_failure("make the folder", &args.out, &error))?;
    let threads = threads(args.threads);
    let runs = args.out.join("runs");
    let mut views = Vec::new();
    for of in figures {
        let bar = output.progress(1, of.number());
        let progress = |done: usize, all: usize| {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
        };
        let sweep = Sweep {
            threads,
            folder: Some(&runs),
            progress: &progress,
        };
        let page = match of {
            Figure::Online => by_the_clock(args, &options, &progress),
            _ => figure(of, &options, &sweep),
        };
        let page = page.map_err(|error| {
            Failure::failed(format!("figure {of}: {error}")).help(
                "see that the folder can be written, and say it again: runs that are done are kept",
            )
        })?;
        bar.finish_and_clear();
        let view = write(&args.out, page, &options)?;
        output.note(&text(&view));
        views.push(view);
    }
    output.result(&views, || {
        views
            .iter()
            .map(|view| format!("{}\n", view.page.display()))
            .collect()
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Figure 7.1, on drives of its own that are gone afterwards.
fn by_the_clock(
    args: &FigureArgs,
    options: &Options,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Page, FigureError> {
    let folder = tempfile::Builder::new()
        .prefix("clockwise-")
        .tempdir_in(&args.drives)?;
    let clock = Clock {
        seconds: args.seconds,
        folder: folder.path(),
        progress,
    };
    online(options, &clock)
}

fn write(folder: &Path, page: Page, options: &Options) -> Result<PageView, Failure> {
    let number = page.figure.number();
    let name = |kind: &str| format!("figure-{number}.{kind}");
    let (svg, csv, md) = (name("svg"), name("csv"), name("md"));
    let put = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|error| io_failure("write", &path, &error))?;
        Ok::<_, Failure>(path)
    };
    Ok(PageView {
        figure: number,
        page: put(&md, &page.text(&svg, &csv, options))?,
        picture: put(&svg, &page.svg)?,
        numbers: put(&csv, &page.csv)?,
        title: page.title,
        seed: options.seed,
        hash: format!("{:016x}", page.hash),
        statements: page
            .statements
            .into_iter()
            .map(|statement| StatementView {
                says: statement.says,
                holds: statement.holds,
                found: statement.found,
            })
            .collect(),
    })
}

fn text(view: &PageView) -> String {
    let mut text = format!(
        "figure {}: {} (seed {}, hash {})",
        view.figure, view.title, view.seed, view.hash
    );
    for statement in &view.statements {
        let holds = if statement.holds {
            "holds"
        } else {
            "DOES NOT HOLD"
        };
        text += &format!("\n  {holds}: {}: {}", statement.says, statement.found);
    }
    text
}
