//! Streams that are guaranteed, beside those that rules for the arm carry.

use std::fmt::Write as _;
use std::num::{NonZeroU32, NonZeroUsize};

use sched::units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use super::{ALONE, Statement, VideoFigure, VideoFigureError, VideoOptions, VideoPage, WINDOW};
use crate::channel::Discipline;
use crate::channel::drive::Drive;
use crate::chart::{Axis, Chart, Curve, page as picture};
use crate::sweep::Sweep;
use crate::video::guarantee::{Bounds, InPhase, Promise};
use crate::video::{Arm, Runs, Search, Server};

/// The drives, each with the buffer at which RT-WINDOW has its peak in the paper.
const DRIVES: [(&str, u64); 2] = [("hp-c2247", 512), ("ibm-dfhs", 384)];

/// Rules whose runs are made longer.
const LONG: [&str; 3] = ["c-scan", "edf", "rt-window"];

/// Disks, each on a channel of its own.
const DISKS: u32 = 16;

/// The buffer of the question that the page answers.
const ASKED_KIB: u64 = 512;

/// A rule for the arm with its name.
fn rules() -> [(&'static str, Arm); 6] {
    let window = NonZeroUsize::new(WINDOW).unwrap_or(NonZeroUsize::MIN);
    let groups = NonZeroU32::new(4).unwrap_or(NonZeroU32::MIN);
    [
        ("c-scan", Arm::CScan),
        ("edf", Arm::Edf),
        ("fd-scan", Arm::FdScan),
        ("scan-edf", Arm::ScanEdf),
        ("gss-4", Arm::Gss { groups }),
        (
            "rt-window",
            Arm::RtWindow {
                window,
                threshold: Nanos::from_millis(350),
            },
        ),
    ]
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Task {
    /// What admission promises.
    Promise(Bounds),
    /// Streams without a late request.
    Carried(Case),
    /// Streams that make RT-WINDOW late.
    InPhase,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Case {
    Usual,
    /// Ten times as many movies in a run.
    Long,
    /// All streams begin at once.
    AtOnce,
    /// And all with the same movie.
    SameMovie,
}

impl Case {
    const fn name(self) -> &'static str {
        match self {
            Self::Usual => "usual",
            Self::Long => "ten times as long",
            Self::AtOnce => "all begin at once",
            Self::SameMovie => "all begin the same movie at once",
        }
    }
}

/// The movies of a run: more than streams.
fn movies(drive: &str, options: &VideoOptions) -> u32 {
    if drive == "hp-c2247" {
        options.movies * 2 / 3
    } else {
        options.movies * 5 / 3
    }
}

/// A measurement of one drive, with a buffer and a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Item {
    drive: &'static str,
    kib: u64,
    rule: (&'static str, Arm),
    task: Task,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
enum Found {
    Promise(Promise),
    Carried(Runs),
    InPhase(InPhase),
}

impl Item {
    fn server(&self, options: &VideoOptions) -> Server {
        let drive = Drive::built_in(self.drive).expect("figures use drives of the program");
        let server = Server {
            channels: DISKS,
            arm: self.rule.1,
            discipline: Discipline::Fair { tokens: 2 },
            movies: movies(self.drive, options),
            ..Server::of_the_paper(drive, 1)
        };
        let server = server.with_buffer(Bytes::from_kib(self.kib));
        let (movies, think) = (server.movies, server.think);
        let (movies, think, library) = match self.task {
            Task::Carried(Case::Long) => (movies * 10, think, server.library),
            Task::Carried(Case::AtOnce) => (movies, Nanos::ZERO, server.library),
            Task::Carried(Case::SameMovie) => (movies, Nanos::ZERO, 1),
            _ => (movies, think, server.library),
        };
        Server {
            movies,
            think,
            library,
            ..server
        }
    }

    fn find(&self, options: &VideoOptions) -> Found {
        let server = self.server(options);
        match self.task {
            Task::Promise(bounds) => {
                let buffer = Bytes::from_kib(self.kib);
                Found::Promise(server.promise(bounds, buffer, options.seed))
            }
            Task::Carried(case) => {
                let runs = if case == Case::Usual { options.runs } else { 1 };
                Found::Carried(Search::all(&server, options.seed, runs, &ALONE))
            }
            Task::InPhase => {
                let carried = Search::all(&server, options.seed, 1, &ALONE);
                Found::InPhase(server.in_phase(carried.range().0, options.seed))
            }
        }
    }

    fn file_name(&self, options: &VideoOptions) -> String {
        let task = match self.task {
            Task::Promise(bounds) => bounds.name().to_owned(),
            Task::Carried(case) => format!("{}-{}", self.rule.0, case.name().replace(' ', "-")),
            Task::InPhase => "in-phase".to_owned(),
        };
        let VideoOptions {
            movies, runs, seed, ..
        } = options;
        let Self { drive, kib, .. } = self;
        format!("guarantee-{drive}-{kib}-{task}-{movies}-{runs}-{seed}.json")
    }
}

fn items(options: &VideoOptions) -> Vec<Item> {
    let buffers: &[u64] = if options.is_full {
        &[256, 384, 512, 640, 768, 896, 1_024]
    } else {
        &[256, 384, 512, 1_024]
    };
    let mut items = Vec::new();
    for (drive, peak) in DRIVES {
        let item = |kib: u64, rule: (&'static str, Arm), task: Task| Item {
            drive,
            kib,
            rule,
            task,
        };
        for kib in buffers {
            let promise = |bounds: Bounds| item(*kib, rules()[0], Task::Promise(bounds));
            items.extend(Bounds::ALL.map(promise));
            items.extend(rules().map(|rule| item(*kib, rule, Task::Carried(Case::Usual))));
        }
        for case in [Case::Long, Case::AtOnce, Case::SameMovie] {
            let mut rules = rules().to_vec();
            rules.retain(|rule| case != Case::Long || LONG.contains(&rule.0));
            items.extend(
                rules
                    .into_iter()
                    .map(|rule| item(peak, rule, Task::Carried(case))),
            );
        }
        items.push(item(peak, rules()[5], Task::InPhase));
    }
    items
}

/// All that was found.
struct Price {
    all: Vec<(Item, Found)>,
    options: VideoOptions,
}

pub(super) fn page(
    options: &VideoOptions,
    sweep: &Sweep<'_>,
) -> Result<VideoPage, VideoFigureError> {
    let items = items(options);
    let found = sweep.try_each(items.len(), |index| {
        let item = &items[index];
        sweep.kept(&item.file_name(options), "", || {
            Ok::<_, VideoFigureError>(item.find(options))
        })
    })?;
    let price = Price {
        all: items.into_iter().zip(found).collect(),
        options: *options,
    };
    let charts = DRIVES.map(|(drive, _)| price.chart(drive));
    Ok(VideoPage {
        figure: VideoFigure::Guarantee,
        title: "the price of a guarantee".to_owned(),
        notes: price.notes(),
        svg: picture("Streams of a disk, guaranteed and carried", &charts, 2)?,
        csv: price.csv(),
        statements: price.statements(),
        hash: price.hash(),
    })
}

impl Price {
    fn promise(&self, drive: &str, kib: u64, bounds: Bounds) -> Option<&Promise> {
        self.all.iter().find_map(|(item, found)| match found {
            Found::Promise(promise)
                if (item.drive, item.kib, item.task) == (drive, kib, Task::Promise(bounds)) =>
            {
                Some(promise)
            }
            _ => None,
        })
    }

    fn largest(&self, drive: &str, kib: u64, rule: &str, case: Case) -> Option<&Runs> {
        self.all.iter().find_map(|(item, found)| match found {
            Found::Carried(largest)
                if (item.drive, item.kib, item.rule.0, item.task)
                    == (drive, kib, rule, Task::Carried(case)) =>
            {
                Some(largest)
            }
            _ => None,
        })
    }

    /// Streams of a disk.
    fn carried(&self, drive: &str, kib: u64, rule: &str, case: Case) -> f64 {
        let largest = self.largest(drive, kib, rule, case);
        largest.map_or(0.0, |largest| largest.streams() / f64::from(DISKS))
    }

    /// Streams of all disks with the first seed.
    fn with_first_seed(&self, drive: &str, kib: u64, rule: &str, case: Case) -> Option<u32> {
        let largest = self.largest(drive, kib, rule, case)?;
        largest.runs.first().map(|run| run.streams)
    }

    fn promised(&self, drive: &str, kib: u64, bounds: Bounds) -> f64 {
        self.promise(drive, kib, bounds).map_or(0.0, Promise::mean)
    }

    fn buffers(&self, drive: &str) -> Vec<u64> {
        let near = Task::Promise(Bounds::Near);
        let of = |(item, _): &&(Item, Found)| item.drive == drive && item.task == near;
        self.all
            .iter()
            .filter(of)
            .map(|(item, _)| item.kib)
            .collect()
    }

    fn chart(&self, drive: &str) -> Chart {
        let buffers = self.buffers(drive);
        let curve = |(colour, name, is_aid): (usize, &str, bool), of: &dyn Fn(u64) -> f64| Curve {
            name: name.to_owned(),
            points: buffers
                .iter()
                .map(|kib| (of(*kib) * (*kib * 1_024) as f64 / 1e6, of(*kib)))
                .collect(),
            colour,
            is_aid,
        };
        let mut curves = Vec::new();
        for (colour, bounds) in [(1, Bounds::Near), (3, Bounds::Sweeps), (5, Bounds::InStep)] {
            let name = format!("guaranteed: {}", bounds.name());
            let of = |kib: u64| self.promised(drive, kib, bounds);
            curves.push(curve((colour, &name, false), &of));
        }
        for (colour, rule) in [(0, "c-scan"), (2, "edf"), (6, "rt-window")] {
            let of = |kib: u64| self.carried(drive, kib, rule, Case::Usual);
            curves.push(curve((colour, &format!("carried: {rule}"), true), &of));
        }
        Chart {
            title: drive.to_owned(),
            x: Axis::linear("buffers of a disk's streams, MB"),
            y: Axis::linear("streams of a disk"),
            curves,
        }
    }

    fn csv(&self) -> String {
        let mut csv =
            "drive,buffer_kib,kind,rule,streams_per_disk,least,most,buffers_mb_per_disk\n"
                .to_owned();
        for (item, found) in &self.all {
            let (kind, rule, mean, least, most) = match (found, item.task) {
                (Found::Promise(promise), Task::Promise(bounds)) => {
                    let streams = || promise.streams.iter().map(|streams| f64::from(*streams));
                    let least = streams().fold(f64::INFINITY, f64::min);
                    let most = streams().fold(0.0, f64::max);
                    (
                        "guaranteed".to_owned(),
                        bounds.name(),
                        promise.mean(),
                        least,
                        most,
                    )
                }
                (Found::Carried(largest), Task::Carried(case)) => {
                    let disks = f64::from(DISKS);
                    let (least, most) = largest.range();
                    let [least, most] = [least, most].map(|streams| f64::from(streams) / disks);
                    let kind = format!("carried: {}", case.name());
                    (kind, item.rule.0, largest.streams() / disks, least, most)
                }
                _ => continue,
            };
            let memory = mean * (item.kib * 1_024) as f64 / 1e6;
            // Writing to a string does not fail.
            let _ = writeln!(
                csv,
                "{},{},{kind},{rule},{mean:.3},{least:.3},{most:.3},{memory:.3}",
                item.drive, item.kib
            );
        }
        csv
    }

    fn hash(&self) -> u64 {
        let mut hash = crate::run::Hash::default();
        for (_, found) in &self.all {
            match found {
                Found::Promise(promise) => hash.add(promise.hash),
                Found::Carried(largest) => {
                    let runs = largest.runs.iter().flat_map(|run| run.hash.bytes());
                    runs.for_each(|byte| hash.add(byte.into()));
                }
                Found::InPhase(found) => hash.add(found.fewest.unwrap_or(0).into()),
            }
        }
        hash.0
    }

    fn notes(&self) -> String {
        let mut text = format!(
            "Not in the paper. {DISKS} disks, each on a channel of its own with the fair discipline, so that no channel is the \
             limit. A run has {} movies on the popular drives and {} on the fast ones. *Guaranteed* is what admission lets in on one disk, as a mean over 20 draws of movies; the \
             bounds are those of [figure headroom](../thesis/figure-headroom.md), and [the module](../../../crates/lab/src/video/guarantee.rs) states the layout. \
             `sweeps-in-step` is no policy of the server: its streams ask for their blocks at the same instants, and need two buffers \
             in place of three. *Carried* is the paper's metric, the most streams without a late request in a run.\n\n",
            movies(DRIVES[0].0, &self.options),
            movies(DRIVES[1].0, &self.options)
        );
        text.push_str("Streams of a disk, with the MB of their buffers:\n\n");
        for (drive, _) in DRIVES {
            self.table(&mut text, drive);
        }
        text.push_str("Streams of all 16 disks that each rule carries, with one seed:\n\n");
        self.losses(&mut text);
        text.push_str("A disk's time for 128 KB of a stream, with a buffer of 512 KB, in ms:\n\n");
        self.times(&mut text);
        text
    }

    fn table(&self, text: &mut String, drive: &str) {
        let names = Bounds::ALL.map(Bounds::name).map(str::to_owned);
        let rules_named = rules().map(|(name, _)| name.to_owned());
        let heads: Vec<_> = names.iter().chain(&rules_named).cloned().collect();
        let _ = writeln!(
            text,
            "| {drive}, KB a stream | {} |\n|---{}|",
            heads.join(" | "),
            "|---".repeat(heads.len())
        );
        for kib in self.buffers(drive) {
            let cell = |streams: f64| {
                let memory = streams * (kib * 1_024) as f64 / 1e6;
                format!("{streams:.2} ({memory:.1})")
            };
            let promised = Bounds::ALL.map(|bounds| cell(self.promised(drive, kib, bounds)));
            let carried =
                rules().map(|(rule, _)| cell(self.carried(drive, kib, rule, Case::Usual)));
            let cells: Vec<_> = promised.into_iter().chain(carried).collect();
            let _ = writeln!(text, "| {kib} | {} |", cells.join(" | "));
        }
        text.push('\n');
    }

    fn losses(&self, text: &mut String) {
        let cases = [Case::Usual, Case::Long, Case::AtOnce, Case::SameMovie];
        let heads = cases.map(Case::name).join(" | ");
        let _ = writeln!(
            text,
            "| drive, buffer, rule | {heads} |\n|---|---|---|---|---|"
        );
        for (drive, kib) in DRIVES {
            for (rule, _) in rules() {
                let cells = cases.map(|case| {
                    let streams = self.with_first_seed(drive, kib, rule, case);
                    streams.map_or_else(String::new, |streams| streams.to_string())
                });
                let _ = writeln!(
                    text,
                    "| {drive}, {kib} KB, {rule} | {} |",
                    cells.join(" | ")
                );
            }
        }
        text.push('\n');
    }

    /// What bounds charge and what RT-WINDOW takes.
    fn times(&self, text: &mut String) {
        text.push_str(
            "| drive | | request | command | seek | rotation | media and switches | in all | share of the disk |\n\
             |---|---|---|---|---|---|---|---|---|\n",
        );
        for (drive, _) in DRIVES {
            let of = Drive::built_in(drive).expect("figures use drives of the program");
            for bounds in [Bounds::Near, Bounds::Sweeps, Bounds::InStep] {
                if let Some(promise) = self.promise(drive, ASKED_KIB, bounds) {
                    charged(text, &of, bounds, promise);
                }
            }
            if let Some(largest) = self.largest(drive, ASKED_KIB, "rt-window", Case::Usual) {
                taken(text, &of, largest);
            }
        }
    }
}

/// The mean time of the media for so many bytes.
fn media_ms(drive: &Drive, bytes: Bytes) -> f64 {
    let places = drive.places(bytes);
    let sum: f64 = places.iter().map(|place| place.media.as_millis_f64()).sum();
    sum / places.len().max(1) as f64
}

fn charged(text: &mut String, drive: &Drive, bounds: Bounds, promise: &Promise) {
    let units = promise.block.get() as f64 / Bytes::from_kib(128).get() as f64;
    let command = drive.command().as_millis_f64();
    let rotation = drive.rotation().as_millis_f64();
    let media = media_ms(drive, promise.block);
    let longest = drive.seek(drive.cylinders() - 1).as_millis_f64();
    let rest = promise.block_ms - command - rotation;
    // In sweeps, seeks are what bounds of the media leave.
    let seek = if bounds == Bounds::Near {
        longest
    } else {
        (rest - media).max(0.0)
    };
    let _ = writeln!(
        text,
        "| {} | {} | {} KB | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.2} |",
        drive.name(),
        bounds.name(),
        promise.block.get() / 1_024,
        command / units,
        seek / units,
        rotation / units,
        (rest - seek) / units,
        promise.block_ms / units,
        promise.share
    );
}

fn taken(text: &mut String, drive: &Drive, largest: &Runs) {
    let unit = Bytes::from_kib(128);
    let mean = |of: fn(&crate::video::Outcome) -> f64| {
        largest.runs.iter().map(of).sum::<f64>() / largest.runs.len().max(1) as f64
    };
    let busy_ms = mean(|run| run.disk_busy * run.seconds * 1e3 / run.requests as f64);
    let busy_ms = busy_ms * f64::from(DISKS);
    let (media, rotation) = (
        media_ms(drive, unit),
        drive.rotation().as_millis_f64() / 2.0,
    );
    let command = drive.command().as_millis_f64();
    let period = unit.get() as f64 / 375.0;
    let streams = largest.streams() / f64::from(DISKS);
    let _ = writeln!(
        text,
        "| {} | rt-window, mean | 128 KB | {command:.1} | {:.1} | {rotation:.1} | {media:.1} | {:.1} | {:.2} |",
        drive.name(),
        busy_ms - media - rotation,
        busy_ms + command,
        streams * busy_ms / period
    );
}

impl Price {
    fn statements(&self) -> Vec<Statement> {
        let mut statements = vec![self.kept()];
        for (drive, peak) in DRIVES {
            statements.push(self.four_fifths(drive));
            for (says, case) in [
                ("a run ten times as long costs no streams", Case::Long),
                ("streams that begin at once cost no streams", Case::AtOnce),
                ("and with the same movie neither", Case::SameMovie),
            ] {
                statements.push(self.loss(drive, peak, says, case));
            }
            statements.extend(self.attacked(drive));
        }
        statements
    }

    fn kept(&self) -> Statement {
        let promises = self.all.iter().filter_map(|(_, found)| match found {
            Found::Promise(promise) => Some(promise),
            _ => None,
        });
        let (mut blocks, mut late, mut overruns) = (0, 0, 0);
        for promise in promises {
            blocks += promise.blocks;
            late += promise.late;
            overruns += promise.overruns;
        }
        Statement {
            says: "(not in the paper) of what admission lets in, the server's scheduler makes nothing late, and no block takes \
                   longer than its bound"
                .to_owned(),
            holds: late == 0 && overruns == 0,
            found: format!("of {blocks} blocks {late} are late, {overruns} take longer"),
        }
    }

    fn four_fifths(&self, drive: &str) -> Statement {
        let carried = self.carried(drive, ASKED_KIB, "rt-window", Case::Usual);
        let ratio = |bounds| self.promised(drive, ASKED_KIB, bounds) / carried.max(1e-9);
        let all = Bounds::ALL.map(|bounds| format!("{} {:.2}", bounds.name(), ratio(bounds)));
        Statement {
            says: format!(
                "(not in the paper) {drive}: with 512 KB sweeps guarantee 0.8 of what RT-WINDOW carries"
            ),
            holds: ratio(Bounds::Sweeps) >= 0.8,
            found: format!("of {carried:.2} streams of a disk: {}", all.join(", ")),
        }
    }

    fn loss(&self, drive: &str, kib: u64, says: &str, case: Case) -> Statement {
        let mut holds = true;
        let mut found = Vec::new();
        for (rule, _) in rules() {
            let usual = self.with_first_seed(drive, kib, rule, Case::Usual);
            let now = self.with_first_seed(drive, kib, rule, case);
            if let (Some(usual), Some(now)) = (usual, now) {
                holds &= now >= usual;
                let percent = (f64::from(now) / f64::from(usual.max(1)) - 1.0) * 100.0;
                found.push(format!("{rule} {percent:+.0} %"));
            }
        }
        Statement {
            says: format!("(not in the paper) {drive}, {kib} KB: {says}"),
            holds,
            found: found.join(", "),
        }
    }

    fn attacked(&self, drive: &str) -> Option<Statement> {
        self.all.iter().find_map(|(item, found)| match found {
            Found::InPhase(found) if item.drive == drive => Some(Statement {
                says: format!(
                    "(not in the paper) {drive}, {} KB: no arrival pattern makes RT-WINDOW late at a load that it carries",
                    item.kib
                ),
                holds: found.fewest.is_none(),
                found: found.fewest.map_or_else(String::new, |fewest| {
                    format!(
                        "{fewest} of {} streams are enough, of which none begins more than {:.2} s later",
                        found.streams, found.delay_s
                    )
                }),
            }),
            _ => None,
        })
    }
}
