//! The figures of Chen and Thapar's paper, measured again: numbers (CSV), pictures (SVG), and whether what the paper says holds.
//!
//! Nothing is tuned to agree. Where a statement does not hold, its page says by how much.

mod buffers;
mod disks;
mod guarantee;
mod ids;

use std::fmt;
use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::str::FromStr;

use sched::units::Nanos;

use super::{Arm, Runs, Search, Server};
use crate::channel::Discipline;
use crate::channel::drive::Drive;
use crate::chart::ChartError;
use crate::sweep::{KeepError, Sweep};
use crate::thesis::figures::Statement;

/// A figure of the paper.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum VideoFigure {
    /// 6 (a): popular drives, four on a channel.
    PopularFour,
    /// 6 (b): popular drives, eight on a channel.
    PopularEight,
    /// 7 (a): fast drives, four on a channel.
    FastFour,
    /// 7 (b): fast drives, eight on a channel.
    FastEight,
    /// 8: more and more disks on a channel.
    Disks,
    /// Table 1: waits and lost requests by id.
    Ids,
    /// Not in the paper: streams guaranteed, and streams carried.
    Guarantee,
}

impl VideoFigure {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::PopularFour,
        Self::PopularEight,
        Self::FastFour,
        Self::FastEight,
        Self::Disks,
        Self::Ids,
        Self::Guarantee,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PopularFour => "chen-6a",
            Self::PopularEight => "chen-6b",
            Self::FastFour => "chen-7a",
            Self::FastEight => "chen-7b",
            Self::Disks => "chen-8",
            Self::Ids => "chen-table-1",
            Self::Guarantee => "guarantee",
        }
    }
}

impl fmt::Display for VideoFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no figure has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown figure; the figures of the video server are {}", VideoFigure::ALL.map(VideoFigure::name).join(", "))]
pub struct UnknownVideoFigure;

impl FromStr for VideoFigure {
    type Err = UnknownVideoFigure;

    fn from_str(name: &str) -> Result<Self, UnknownVideoFigure> {
        let mut all = Self::ALL.into_iter();
        all.find(|figure| figure.name() == name)
            .ok_or(UnknownVideoFigure)
    }
}

/// The size of the experiments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VideoOptions {
    /// The seed of the first run.
    pub seed: u64,
    /// The movies of a run; the paper has 500.
    pub movies: u32,
    /// The runs of a point; the paper has 6.
    pub runs: u64,
    /// True for every size of buffer and every number of disks.
    pub is_full: bool,
}

impl VideoOptions {
    /// Smaller than the paper's: minutes for all figures.
    #[must_use]
    pub const fn small(seed: u64) -> Self {
        Self {
            seed,
            movies: 300,
            runs: 2,
            is_full: false,
        }
    }

    /// The paper's size.
    #[must_use]
    pub const fn full(seed: u64) -> Self {
        Self {
            seed,
            movies: 500,
            runs: 6,
            is_full: true,
        }
    }
}

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub enum VideoFigureError {
    /// A result could not be kept.
    #[error(transparent)]
    Keep(#[from] KeepError),
    /// Nothing could be drawn.
    #[error(transparent)]
    Chart(#[from] ChartError),
}

/// A figure, measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VideoPage {
    /// The figure.
    pub figure: VideoFigure,
    /// Its subject.
    pub title: String,
    /// What differs from the paper, and what was found beside its statements.
    pub notes: String,
    /// The picture.
    pub svg: String,
    /// The numbers.
    pub csv: String,
    /// Statements of the paper.
    pub statements: Vec<Statement>,
    /// Covers every completion of every run that it shows.
    pub hash: u64,
}

impl VideoPage {
    /// In words; the picture and the numbers are in files of these names.
    #[must_use]
    pub fn text(&self, svg: &str, csv: &str, options: &VideoOptions) -> String {
        let VideoOptions {
            seed, movies, runs, ..
        } = options;
        let mut text = format!("# Figure {}: {}\n\n", self.figure, self.title);
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "![{}]({svg})\n\nThe numbers are in [{csv}]({csv}). Each point is the mean of {runs} runs of {movies} movies \
             (the paper: 6 of 500) if nothing else is said below; seed {seed}; hash of the shown runs {:016x}. [The model](../../design/video-servers.md) \
             states what the paper leaves open.\n\n",
            self.title, self.hash
        );
        if !options.is_full {
            text.push_str("Some sizes of buffers and numbers of disks are left out; `--full` runs them all.\n\n");
        }
        if !self.notes.is_empty() {
            let _ = write!(text, "{}\n\n", self.notes);
        }
        text.push_str("| the paper | holds | found here |\n|---|---|---|\n");
        for statement in &self.statements {
            let holds = if statement.holds { "yes" } else { "**no**" };
            let _ = writeln!(
                text,
                "| {} | {holds} | {} |",
                statement.says, statement.found
            );
        }
        text
    }
}

/// Measures a figure.
///
/// # Errors
/// When something cannot be kept or drawn.
pub fn video_figure(
    figure: VideoFigure,
    options: &VideoOptions,
    sweep: &Sweep<'_>,
) -> Result<VideoPage, VideoFigureError> {
    match figure {
        VideoFigure::Disks => disks::page(options, sweep),
        VideoFigure::Ids => ids::page(options, sweep),
        VideoFigure::Guarantee => guarantee::page(options, sweep),
        _ => buffers::page(figure, options, sweep),
    }
}

/// The paper's three ways to schedule a channel and its disks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum System {
    Regular,
    Fair,
    Window(usize),
}

/// The paper's window.
const WINDOW: usize = 5;

const SYSTEMS: [System; 3] = [System::Regular, System::Fair, System::Window(WINDOW)];

impl System {
    fn name(self) -> String {
        match self {
            Self::Regular => "regular channel, C-SCAN".to_owned(),
            Self::Fair => "fair channel, C-SCAN".to_owned(),
            Self::Window(window) => format!("fair channel, RT-WINDOW of {window}"),
        }
    }

    fn parts(self) -> (Arm, Discipline) {
        let fair = Discipline::Fair { tokens: 2 };
        match self {
            Self::Regular => (Arm::CScan, Discipline::Plain),
            Self::Fair => (Arm::CScan, fair),
            Self::Window(window) => {
                let arm = Arm::RtWindow {
                    window: NonZeroUsize::new(window).unwrap_or(NonZeroUsize::MIN),
                    threshold: Nanos::from_millis(350),
                };
                (arm, fair)
            }
        }
    }
}

/// A point: the largest number of streams of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Point {
    drive: &'static str,
    disks: u8,
    /// Segments of a stream's buffer.
    buffer: u32,
    system: System,
}

impl Point {
    fn server(&self, options: &VideoOptions) -> Server {
        let (arm, discipline) = self.system.parts();
        let drive = Drive::built_in(self.drive).expect("figures use drives of the program");
        Server {
            buffer: self.buffer,
            movies: options.movies,
            arm,
            discipline,
            ..Server::of_the_paper(drive, self.disks)
        }
    }

    fn kib(&self) -> u32 {
        self.buffer * 128
    }

    fn file_name(&self, options: &VideoOptions) -> String {
        let system = match self.system {
            System::Regular => "regular".to_owned(),
            System::Fair => "fair".to_owned(),
            System::Window(window) => format!("window-{window}"),
        };
        format!(
            "chen-{}-{}-{}-{system}-{}-{}-{}.json",
            self.drive,
            self.disks,
            self.kib(),
            options.movies,
            options.runs,
            options.seed
        )
    }
}

/// A sweep of one thread, inside a point of a sweep.
const ALONE: Sweep<'static> = Sweep {
    threads: 1,
    folder: None,
    progress: &|_, _| {},
};

/// The results of points, in their order.
fn measure(
    points: &[Point],
    options: &VideoOptions,
    sweep: &Sweep<'_>,
) -> Result<Vec<Runs>, VideoFigureError> {
    sweep.try_each(points.len(), |index| {
        let point = &points[index];
        sweep.kept(&point.file_name(options), "", || {
            let server = point.server(options);
            Ok(Search::all(&server, options.seed, options.runs, &ALONE))
        })
    })
}

/// Points with their results.
struct Measured {
    points: Vec<(Point, Runs)>,
}

impl Measured {
    fn new(
        points: Vec<Point>,
        options: &VideoOptions,
        sweep: &Sweep<'_>,
    ) -> Result<Self, VideoFigureError> {
        let results = measure(&points, options, sweep)?;
        Ok(Self {
            points: points.into_iter().zip(results).collect(),
        })
    }

    /// The points of a line, in order.
    fn line(&self, drive: &str, system: System) -> Vec<(Point, f64)> {
        let of = |(point, _): &&(Point, Runs)| point.drive == drive && point.system == system;
        let line = self.points.iter().filter(of);
        line.map(|(point, largest)| (*point, largest.streams()))
            .collect()
    }

    fn hash(&self) -> u64 {
        let mut hash = crate::run::Hash::default();
        for (_, largest) in &self.points {
            for run in &largest.runs {
                run.hash.bytes().for_each(|byte| hash.add(byte.into()));
            }
        }
        hash.0
    }

    fn csv(&self) -> String {
        let mut csv = "drive,disks_per_channel,buffer_kib,system,streams_mean,streams_min,streams_max,bus_busy,disk_busy\n".to_owned();
        for (point, largest) in &self.points {
            let (least, most) = largest.range();
            let count = largest.runs.len() as f64;
            let mean =
                |of: fn(&super::Outcome) -> f64| largest.runs.iter().map(of).sum::<f64>() / count;
            let _ = writeln!(
                csv,
                "{},{},{},\"{}\",{:.2},{least},{most},{:.3},{:.3}",
                point.drive,
                point.disks,
                point.kib(),
                point.system.name(),
                largest.streams(),
                mean(|run| run.bus_busy),
                mean(|run| run.disk_busy)
            );
        }
        csv
    }
}

/// How much larger `new` is than `old`, in percent.
fn gain(new: f64, old: f64) -> f64 {
    (new / old.max(1.0) - 1.0) * 100.0
}

/// A statement about a gain: it holds if what is found differs by no more than a quarter of it or 2 points.
fn gains(says: String, wanted: f64, new: f64, old: f64) -> Statement {
    let found = gain(new, old);
    Statement {
        says,
        holds: (found - wanted).abs() <= (wanted / 4.0).max(2.0),
        found: format!("{found:+.1} % ({old:.1} to {new:.1} streams)"),
    }
}
