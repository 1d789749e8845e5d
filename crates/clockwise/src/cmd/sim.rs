//! `clockwise sim`: experiments of the papers, and experiments that a file describes, in virtual time.

mod cases;
mod drives;
mod experiments;
mod links;
mod video;

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use lab::adversary::link::Sharing;
use lab::sweep::Sweep;
use lab::thesis::figures::{Clock, Figure, FigureError, Options, Page, Statement, figure, online};
use lab::thesis::{Source, Times};
use lab::video::figures::VideoFigure;
use sched::policy::Policy;
use serde::Serialize;

use crate::failure::{Failure, io_failure};
use crate::print::Output;

/// `clockwise sim`.
#[derive(Subcommand, Debug)]
pub enum SimCommand {
    /// Reproduce figures of the thesis and of other papers, as pictures, numbers and text.
    Figure(FigureArgs),
    /// Run the experiment that a file describes.
    Run(RunArgs),
    /// Find the largest number of streams of a video server that a file describes.
    Video(VideoArgs),
    /// Write a synthetic trace like that of CELLO on 1 June 1992, in DiskSim's ASCII format.
    Cello(CelloArgs),
    /// Try to make a scheduler miss a deadline: admitted sets of tasks, releases at the worst moments, and as
    /// much best effort as it accepts.
    Adversary(AdversaryArgs),
    /// Replay a case that the adversary has found, step by step.
    Replay(ReplayArgs),
    /// Descriptions of drives.
    #[command(subcommand)]
    Plant(PlantCommand),
    /// Replay a measured trace on a simulated drive, and compare the response times.
    ReplayTrace(ReplayTraceArgs),
}

/// `clockwise sim plant`.
#[derive(Subcommand, Debug)]
pub enum PlantCommand {
    /// Read the parameter files of DiskSim, and write the drive that they describe as a plant.
    Import(ImportArgs),
}

/// Options of `clockwise sim plant import`.
#[derive(clap::Args, Debug)]
pub struct ImportArgs {
    /// The folder with the `.parv`, `.diskspecs`, `.model` and `.seek` files of one drive.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The file for the plant.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The drive, by the name of its block; needed if the files describe several.
    #[arg(long, value_name = "NAME")]
    disk: Option<String>,
}

/// Options of `clockwise sim replay-trace`.
#[derive(clap::Args, Debug)]
pub struct ReplayTraceArgs {
    /// The file of the plant, or the name of one that comes with the program.
    plant: PathBuf,
    /// The trace: text, packed or not, with a line `R|W word sector sectors response_us think_us` for each
    /// request.
    trace: PathBuf,
    /// The seed of the drive's random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Turn the drive's caches off.
    #[arg(long)]
    without_caches: bool,
    /// The folder for a page, a picture and the numbers of both distributions.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// Options of `clockwise sim run`.
#[derive(clap::Args, Debug)]
pub struct RunArgs {
    /// The file that describes the experiment.
    experiment: PathBuf,
    /// The folder for results. It also keeps finished runs: after Ctrl-C the same command continues.
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// The number of concurrent runs [default: one per processor].
    #[arg(long, value_name = "COUNT")]
    threads: Option<NonZeroUsize>,
}

/// Options of `clockwise sim video`.
#[derive(clap::Args, Debug)]
pub struct VideoArgs {
    /// The file that describes the server.
    server: PathBuf,
    /// The number of concurrent runs [default: one per processor].
    #[arg(long, value_name = "COUNT")]
    threads: Option<NonZeroUsize>,
}

/// Options of `clockwise sim cello`.
#[derive(clap::Args, Debug)]
pub struct CelloArgs {
    /// The file for the trace; compressed if its name ends with `.gz`.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The whole day, or its busiest part.
    #[arg(long, value_enum, default_value_t = SourceArg::Day)]
    source: SourceArg,
    /// The size of each of its eight disks, in MiB: 64 to 1,048,576.
    #[arg(long, value_name = "MIB", default_value_t = 768,
          value_parser = clap::value_parser!(u64).range(64..=1 << 20))]
    disk_mib: u64,
    /// The seed of the random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Options of `clockwise sim adversary`.
#[derive(clap::Args, Debug)]
pub struct AdversaryArgs {
    /// The scheduler: exact, delta-l, delta-l-published, lst or edf.
    #[arg(long, value_name = "NAME", default_value_t = Policy::Exact)]
    scheduler: Policy,
    /// The number of admitted sets of tasks; 20,000 take about 20 s.
    #[arg(long, value_name = "COUNT", default_value_t = 20_000)]
    sets: u64,
    /// The seed of the random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The extra time of a job after best effort, as if the arm had been left far from the jobs; sets with
    /// less slack than that are not admitted.
    #[arg(long, value_name = "TICKS", default_value_t = 0,
          value_parser = clap::value_parser!(u64).range(..=10))]
    away: u64,
    /// Make jobs sweeps of requests that take one unit each; the value is the time to reach the start of a
    /// sweep. 0: jobs are requests. All times are in ticks, the unit of periods, which have 4 to 60.
    #[arg(long, value_name = "TICKS", default_value_t = 0,
          value_parser = clap::value_parser!(u64).range(..=4))]
    sweep: u64,
    /// The file for the smallest case that is found.
    #[arg(long, value_name = "FILE")]
    case: Option<PathBuf>,
    /// Attack disks that share a link. A set then has tasks for each disk that promises.
    #[arg(long, value_enum, value_name = "ADMISSION", conflicts_with_all = ["away", "sweep", "case"])]
    link: Option<LinkArg>,
    /// The number of disks on the link, 2 or 3. With `lend`, one of 2 disks promises, and one or two of 3.
    #[arg(long, value_name = "COUNT", default_value_t = 2, requires = "link",
          value_parser = clap::value_parser!(u64).range(2..=3))]
    disks: u64,
    /// The number of concurrent sets [default: one per processor].
    #[arg(long, value_name = "COUNT")]
    threads: Option<NonZeroUsize>,
}

/// How disks share a link.
#[derive(clap::ValueEnum, Clone, Copy, Serialize, Debug)]
#[serde(rename_all = "lowercase")]
enum LinkArg {
    /// All disks promise, with service times that allow for the other disks.
    Inflate,
    /// Some disks promise, and lend their places to the others for best effort.
    Lend,
}

impl From<LinkArg> for Sharing {
    fn from(link: LinkArg) -> Self {
        match link {
            LinkArg::Inflate => Self::Inflate,
            LinkArg::Lend => Self::Lend,
        }
    }
}

/// Options of `clockwise sim replay`.
#[derive(clap::Args, Debug)]
pub struct ReplayArgs {
    /// The file of the case.
    case: PathBuf,
    /// Replay it with another scheduler.
    #[arg(long, value_name = "NAME")]
    scheduler: Option<Policy>,
    /// The file for a picture of it, as SVG.
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
}

/// Options of `clockwise sim figure`.
#[derive(clap::Args, Debug)]
pub struct FigureArgs {
    /// Their numbers in the thesis, `headroom`, `measure`, `chen-6a` and others of the video server, `thesis`, `chen`, or
    /// `all`. None of the last three includes 7.1, which is measured in real time.
    #[arg(required = true, value_name = "NUMBER", value_parser = parsed_figure)]
    figures: Vec<FigureChoice>,
    /// The folder for pages, pictures and numbers. It also keeps finished runs: after Ctrl-C the same command
    /// continues.
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// The best-effort load beside the streams.
    #[arg(long, value_enum, default_value_t = SourceArg::Day)]
    source: SourceArg,
    /// The service times for admission.
    #[arg(long, value_enum, default_value_t = TimesArg::Printed)]
    times: TimesArg,
    /// The seed of the random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of concurrent runs [default: one per processor].
    #[arg(long, value_name = "COUNT")]
    threads: Option<NonZeroUsize>,
    /// Run the figures of the video server as long and as often as their paper: hours instead of minutes.
    #[arg(long)]
    full: bool,
    /// The part of the busy period for figure 7.1, which replays it four times: 1 to 1,300 seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=1_300))]
    seconds: u64,
    /// The folder for the drives of figure 7.1, preferably in memory.
    #[arg(long, value_name = "FOLDER", default_value = "/dev/shm")]
    drives: PathBuf,
}

/// A figure, or the figures of a paper, or all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FigureChoice {
    All,
    Thesis,
    Chen,
    One(Figure),
    Video(VideoFigure),
}

fn parsed_figure(text: &str) -> Result<FigureChoice, String> {
    match text {
        "all" => return Ok(FigureChoice::All),
        "thesis" => return Ok(FigureChoice::Thesis),
        "chen" => return Ok(FigureChoice::Chen),
        _ => {}
    }
    if let Ok(figure) = text.parse() {
        return Ok(FigureChoice::Video(figure));
    }
    let number = text.parse().map(FigureChoice::One);
    number.map_err(|error: lab::thesis::figures::UnknownFigure| {
        let video = VideoFigure::ALL.map(VideoFigure::name).join(", ");
        format!("{error}, {video}, `thesis`, `chen` and `all`")
    })
}

impl FigureArgs {
    fn asks_for(&self, choices: &[FigureChoice]) -> bool {
        choices.iter().any(|choice| self.figures.contains(choice))
    }
}

/// The part of CELLO's day.
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

/// The service times for admission.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum TimesArg {
    /// Those of table 6.4 in the thesis: the 95th percentile or higher.
    Printed,
    /// The upper bound by the drive's profile.
    Bound,
    /// The upper bound at the blocks' places, with seeks within the area of the movies.
    Near,
    /// As `near`, with blocks that begin at the start of a track.
    Tracks,
    /// As `near`, with the blocks of a period in sweeps, whose seeks are bounded together.
    Sweeps,
}

/// A figure's page, as written.
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

/// A statement of the thesis, and the result.
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
        SimCommand::Video(args) => video::run(args, output),
        SimCommand::Cello(args) => experiments::run_cello(args, output),
        SimCommand::Adversary(args) => match args.link {
            Some(link) => links::run(args, link, output),
            None => cases::run_adversary(args, output),
        },
        SimCommand::Replay(args) => cases::run_replay(args, output),
        SimCommand::Plant(PlantCommand::Import(args)) => drives::run_import(args, output),
        SimCommand::ReplayTrace(args) => drives::run_replay_trace(args, output),
    }
}

/// The number of threads: as requested, or one per processor.
fn threads(asked: Option<NonZeroUsize>) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    asked.map_or_else(processors, NonZeroUsize::get)
}

fn run_figures(args: &FigureArgs, output: &Output) -> Result<ExitCode, Failure> {
    let figures: Vec<Figure> = Figure::ALL
        .into_iter()
        .filter(|figure| {
            let all = args.asks_for(&[FigureChoice::All, FigureChoice::Thesis]);
            all && *figure != Figure::Online || args.asks_for(&[FigureChoice::One(*figure)])
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
        .map_err(|error| io_failure("create the folder", &args.out, &error))?;
    let mut views = Vec::new();
    for of in figures {
        let view = write_figure(args, output, of.number(), |sweep, svg, csv| {
            let page = match of {
                Figure::Online => online_figure(args, &options, sweep.progress),
                _ => figure(of, &options, sweep),
            }?;
            Ok::<_, FigureError>(Sheet {
                text: page.text(svg, csv, &options),
                title: page.title,
                picture: page.svg,
                numbers: page.csv,
                statements: page.statements,
                hash: page.hash,
            })
        })?;
        views.push(view);
    }
    views.extend(video::figures(args, output)?);
    output.result(&views, || {
        views
            .iter()
            .map(|view| format!("{}\n", view.page.display()))
            .collect()
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Figure 7.1, in real time, on temporary drives.
fn online_figure(
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

/// Does work that keeps its runs in the folder `out`, and shows its progress.
fn in_sweep<T>(
    what: &'static str,
    out: &Path,
    asked: Option<NonZeroUsize>,
    output: &Output,
    work: impl FnOnce(&Sweep<'_>) -> T,
) -> T {
    let bar = output.progress(1, what);
    let progress = |done: usize, all: usize| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    };
    let runs = out.join("runs");
    let done = work(&Sweep {
        threads: threads(asked),
        folder: Some(&runs),
        progress: &progress,
    });
    bar.finish_and_clear();
    done
}

/// Measures a figure, writes its page, picture and numbers, and says what it shows. `measure` is told the names of the
/// picture and of the numbers.
fn write_figure<E: std::error::Error>(
    args: &FigureArgs,
    output: &Output,
    name: &'static str,
    measure: impl FnOnce(&Sweep<'_>, &str, &str) -> Result<Sheet, E>,
) -> Result<PageView, Failure> {
    let [md, svg, csv] = ["md", "svg", "csv"].map(|kind| format!("figure-{name}.{kind}"));
    let sheet = in_sweep(name, &args.out, args.threads, output, |sweep| {
        measure(sweep, &svg, &csv)
    });
    let sheet = sheet.map_err(|error| {
        Failure::failed(format!("figure {name}: {error}")).help(
            "check that the folder is writable, and repeat the command: finished runs are kept",
        )
    })?;
    let put = |name: &str, text: &str| {
        let path = args.out.join(name);
        fs::write(&path, text).map_err(|error| io_failure("write", &path, &error))?;
        Ok::<_, Failure>(path)
    };
    let statements = sheet.statements.into_iter();
    let view = PageView {
        figure: name,
        page: put(&md, &sheet.text)?,
        picture: put(&svg, &sheet.picture)?,
        numbers: put(&csv, &sheet.numbers)?,
        title: sheet.title,
        seed: args.seed,
        hash: format!("{:016x}", sheet.hash),
        statements: statements
            .map(|statement| StatementView {
                says: statement.says,
                holds: statement.holds,
                found: statement.found,
            })
            .collect(),
    };
    output.note(&text(&view));
    Ok(view)
}

/// A figure to write.
struct Sheet {
    title: String,
    text: String,
    picture: String,
    numbers: String,
    statements: Vec<Statement>,
    hash: u64,
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
