//! The figures of the thesis's chapter 6, measured again: as numbers (CSV), as pictures next to which the printed
//! ones can be laid (SVG), and in words: whether what the thesis says of each holds here.
//!
//! Nothing is tuned to agree. Where a statement does not hold, its page says by how much.

mod buses;
mod crosstalk;
mod g_scan;
mod headroom;
mod latency;
mod measure;
mod online;
mod reserved;
mod slack;
mod spare;
mod switches;
mod table;

use std::fmt;
use std::fmt::Write as _;
use std::str::FromStr;

use sched::disk::{OverPrediction, SchedulerConfig};
use sched::policy::Policy;
use sched::units::{Nanos, Time};

use super::{Layout, Measured, Point, Source, SweepError, Thesis, Times};
use crate::chart::ChartError;
use crate::farm::{Admitted, FarmOutcome, FarmRun, Load, RealTimeError};
use crate::sweep::{Sweep, steps};
pub use online::{Clock, online};
use table::Table;

/// A figure of the thesis.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Figure {
    /// 4.13: one to four disks on adapters of their own, without PCI bursts.
    SpeedUp,
    /// 4.14: the same with bursts.
    SpeedUpWithBursts,
    /// 4.17: one to twelve disks on four strings, and 4.18: conflicts on the bus.
    Cheetahs,
    /// 6.4: Delta-L as more and more is promised.
    Slack,
    /// 6.5: best-effort latency, striped over all disks.
    Rotation,
    /// 6.6: changes between streams and best effort.
    Switches,
    /// 6.7: best-effort latency, blocks at random places.
    Random,
    /// 6.8: the same against blocks next to each other.
    RandomAgainstSequential,
    /// 6.9: the same with best effort in over-predicted time.
    Spare,
    /// 6.10: best-effort latency, a disk for each movie.
    MemoryOptimized,
    /// 6.11: the same with larger blocks.
    MemoryOptimizedLarge,
    /// 6.12: what CELLO's disk 5 asks for.
    Requests,
    /// 6.13: the latency of these requests with and without disk time of their own.
    Reserved,
    /// 6.14: best effort beside a stream that asks for more than it has reserved.
    Crosstalk,
    /// 7.1: the simulator against the clock; by [`online()`] only.
    Online,
    /// 7.10: one to six disks on three strings.
    ThreeStrings,
    /// 7.11: small packets through memory.
    Packets,
    /// 8.1: one to three disks on a string.
    OneString,
    /// Not in the thesis: what these disks promise, and what best effort gets there.
    SharedString,
    /// Not in the thesis: how much of the disks' bandwidth is admitted, by what admission goes by.
    Headroom,
    /// Not in the thesis: drives measured without knowing them.
    Measure,
}

impl Figure {
    /// All of them.
    pub const ALL: [Self; 21] = [
        Self::SpeedUp,
        Self::SpeedUpWithBursts,
        Self::Cheetahs,
        Self::Slack,
        Self::Rotation,
        Self::Switches,
        Self::Random,
        Self::RandomAgainstSequential,
        Self::Spare,
        Self::MemoryOptimized,
        Self::MemoryOptimizedLarge,
        Self::Requests,
        Self::Reserved,
        Self::Crosstalk,
        Self::Online,
        Self::ThreeStrings,
        Self::Packets,
        Self::OneString,
        Self::SharedString,
        Self::Headroom,
        Self::Measure,
    ];

    /// Its number in the thesis, or its name.
    #[must_use]
    pub const fn number(self) -> &'static str {
        match self {
            Self::SpeedUp => "4.13",
            Self::SpeedUpWithBursts => "4.14",
            Self::Cheetahs => "4.17",
            Self::Slack => "6.4",
            Self::Rotation => "6.5",
            Self::Switches => "6.6",
            Self::Random => "6.7",
            Self::RandomAgainstSequential => "6.8",
            Self::Spare => "6.9",
            Self::MemoryOptimized => "6.10",
            Self::MemoryOptimizedLarge => "6.11",
            Self::Requests => "6.12",
            Self::Reserved => "6.13",
            Self::Crosstalk => "6.14",
            Self::Online => "7.1",
            Self::ThreeStrings => "7.10",
            Self::Packets => "7.11",
            Self::OneString => "8.1",
            Self::SharedString => "8.1-string",
            Self::Headroom => "headroom",
            Self::Measure => "measure",
        }
    }

    /// The conditions of its runs, for people.
    fn conditions(self, options: &Options) -> String {
        use Figure::{Cheetahs, OneString, Packets, SpeedUp, SpeedUpWithBursts, ThreeStrings};
        if let SpeedUp | SpeedUpWithBursts | Cheetahs | ThreeStrings | Packets | OneString = self {
            let page = "../../design/host-bus.md";
            return format!("The model: [host bus]({page}); 1 MB is 2^20 bytes, as in the thesis");
        }
        if self == Self::SharedString {
            let page = "../../design/scheduling.md#16-disks-that-share-a-link";
            return format!("The proofs: [links]({page}); 1 MB is 2^20 bytes");
        }
        let times = match options.times {
            Times::Printed => "the printed service times (table 6.4)",
            Times::Bound => "bounds that cannot be exceeded",
            Times::Near => "bounds for where blocks lie, and for the way back to them",
            Times::Tracks => "bounds for where blocks lie, each at the beginning of a track",
            Times::Sweeps => {
                "bounds for where blocks lie, each at the beginning of a track, served in sweeps"
            }
        };
        let source = match options.source {
            Source::Day => "CELLO's day",
            Source::Busy => "CELLO's busy 1,300 s",
        };
        format!("Admission by {times}; best effort: {source}")
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.number())
    }
}

/// A number that no figure has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown figure; the figures are {}", Figure::ALL.map(Figure::number).join(", "))]
pub struct UnknownFigure;

impl FromStr for Figure {
    type Err = UnknownFigure;

    fn from_str(number: &str) -> Result<Self, UnknownFigure> {
        let mut all = Self::ALL.into_iter();
        all.find(|figure| figure.number() == number)
            .ok_or(UnknownFigure)
    }
}

/// Conditions of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Times for admission.
    pub times: Times,
    /// Load beside the streams.
    pub source: Source,
    /// Decides everything that is random.
    pub seed: u64,
}

impl Options {
    /// Runs what was admitted beside a load, under a scheduler as it is shipped.
    fn run(
        &self,
        thesis: &Thesis,
        admitted: &Admitted,
        load: &Load,
        policy: Policy,
        slot: Option<Nanos>,
    ) -> FarmOutcome {
        let config = SchedulerConfig {
            policy,
            ..SchedulerConfig::default()
        };
        let run = FarmRun {
            disks: &thesis.disks,
            admitted,
            load,
            config: &config,
            end: Time::ZERO + self.source.period().length(),
            seed: self.seed,
            slot,
            slack_every: None,
        };
        run.run()
    }
}

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// Nothing was measured.
    #[error(transparent)]
    Sweep(#[from] SweepError),
    /// Nothing was measured by the clock.
    #[error(transparent)]
    RealTime(#[from] RealTimeError),
    /// Drives have no place for their data.
    #[error("cannot create a folder for the drives: {0}")]
    Folder(#[from] std::io::Error),
    /// Measured by the clock, by [`online()`].
    #[error("this figure is measured in real time")]
    NotSimulated,
    /// Nothing could be drawn.
    #[error(transparent)]
    Chart(#[from] ChartError),
}

/// A statement of the thesis about a figure, and what was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statement {
    /// The thesis's statement, in other words.
    pub says: String,
    /// True if it holds here.
    pub holds: bool,
    /// The numbers that show it.
    pub found: String,
}

impl Statement {
    fn new(says: impl Into<String>, holds: bool, found: impl Into<String>) -> Self {
        Self {
            says: says.into(),
            holds,
            found: found.into(),
        }
    }
}

/// A figure, measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// The figure.
    pub figure: Figure,
    /// Its subject.
    pub title: String,
    /// Intended differences from the thesis.
    pub notes: String,
    /// The picture.
    pub svg: String,
    /// The numbers.
    pub csv: String,
    /// Statements of the thesis, each with its verdict.
    pub statements: Vec<Statement>,
    /// Covers every decision of every run behind it.
    pub hash: u64,
}

impl Page {
    /// In words, for people; the picture and the numbers are in files of these names.
    #[must_use]
    pub fn text(&self, svg: &str, csv: &str, options: &Options) -> String {
        let mut text = format!("# Figure {}: {}\n\n", self.figure, self.title);
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "![{}]({svg})\n\nThe numbers are in [{csv}]({csv}). {}; seed {}; hash of all runs {:016x}.\n\n",
            self.title,
            self.figure.conditions(options),
            options.seed,
            self.hash
        );
        if !self.notes.is_empty() {
            let _ = write!(text, "{}\n\n", self.notes);
        }
        text.push_str("| the thesis | holds | found here |\n|---|---|---|\n");
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
/// When the sweep is stopped, or something cannot be kept or drawn.
pub fn figure(figure: Figure, options: &Options, sweep: &Sweep<'_>) -> Result<Page, FigureError> {
    match figure {
        Figure::SpeedUp | Figure::SpeedUpWithBursts => {
            buses::speed_up::page(figure, options.seed, sweep)
        }
        Figure::Cheetahs => buses::cheetahs::page(options.seed, sweep),
        Figure::Slack => slack::page(options),
        Figure::Rotation => latency::page(figure, Layout::Rotation, options, sweep),
        Figure::Switches => switches::page(options, sweep),
        Figure::Random => latency::page(figure, Layout::Random, options, sweep),
        Figure::RandomAgainstSequential => latency::against(options, sweep),
        Figure::Spare => spare::page(options, sweep),
        Figure::MemoryOptimized => latency::page(figure, Layout::MemoryOptimized, options, sweep),
        Figure::MemoryOptimizedLarge => {
            latency::page(figure, Layout::MemoryOptimizedLarge, options, sweep)
        }
        Figure::Requests => reserved::requests(options),
        Figure::Reserved => reserved::page(options, sweep),
        Figure::Crosstalk => crosstalk::page(options, sweep),
        Figure::Online => Err(FigureError::NotSimulated),
        Figure::ThreeStrings => buses::strings::three_strings(options.seed, sweep),
        Figure::Packets => buses::packets::page(sweep),
        Figure::OneString => buses::strings::one_string(options.seed, sweep),
        Figure::SharedString => buses::shared_string::page(options.seed, sweep),
        Figure::Headroom => headroom::page(options, sweep),
        Figure::Measure => measure::page(options),
    }
}

/// The points of a layout, by scheduler in the order of [`Policy::ALL`] and load.
fn points(layout: Layout, options: &Options, most: usize) -> Vec<Point> {
    let of = |policy: Policy| {
        steps(most).into_iter().map(move |pairs| Point {
            layout,
            times: options.times,
            policy,
            pairs,
            source: options.source,
            seed: options.seed,
            over_prediction: OverPrediction::default(),
        })
    };
    Policy::ALL.into_iter().flat_map(of).collect()
}

/// The results of one scheduler.
struct Line {
    policy: Policy,
    points: Vec<Measured>,
}

/// Measurements of a layout.
struct Curves {
    lines: Vec<Line>,
    /// The most pairs that are admitted.
    most: usize,
    /// The same best effort without streams.
    alone: Measured,
    hash: u64,
}

impl Curves {
    fn measure(layout: Layout, options: &Options, sweep: &Sweep<'_>) -> Result<Self, FigureError> {
        let thesis = Thesis::new(layout, options.times, options.seed).map_err(SweepError::from)?;
        let (_, most, _) = thesis.admit(usize::MAX);
        let mut all = points(layout, options, most);
        all.push(Point {
            layout,
            times: options.times,
            policy: Policy::Exact,
            pairs: 0,
            source: options.source,
            seed: options.seed,
            over_prediction: OverPrediction::default(),
        });
        let mut measured = sweep.run(&all)?;
        let mut hash = crate::run::Hash::default();
        measured.iter().for_each(|measured| hash.add(measured.hash));
        let alone = measured.pop().expect("there is a result for each point");
        let loads = steps(most).len();
        let mut rest = measured.into_iter();
        let lines = Policy::ALL.map(|policy| Line {
            policy,
            points: rest.by_ref().take(loads).collect(),
        });
        Ok(Self {
            lines: lines.into(),
            most,
            alone,
            hash: hash.0,
        })
    }

    fn line(&self, policy: Policy) -> &[Measured] {
        let line = self.lines.iter().find(|line| line.policy == policy);
        line.map_or(&[], |line| &line.points)
    }

    fn table(&self) -> Table {
        let mut table = Table::new(&[
            "scheduler",
            "MB/s",
            "tasks",
            "promised",
            "disk",
            "requests",
            "mean_ms",
            "p50_ms",
            "p99_ms",
            "max_ms",
            "missed",
            "lateness_max_ms",
            "blocks",
            "switches",
            "burst_mean",
            "burst_deviation",
        ]);
        for line in &self.lines {
            for measured in &line.points {
                table.add(line.policy.name(), measured);
            }
        }
        table.add("alone", &self.alone);
        table
    }
}
