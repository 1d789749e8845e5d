//! 8.1-string: three Cheetahs that promise on one string, by each of the two admissions of a link.

use std::sync::Arc;

use sched::disk::SchedulerConfig;
use sched::link::{LinkShare, carried};
use sched::profile::DriveProfile;
use sched::request::{Op, Urgency};
use sched::units::{Bytes, BytesPerSecond, Nanos, Sector, SectorCount, Time};

use super::super::{Figure, FigureError, Page, Statement, Table};
use super::MEGABYTE;
use crate::channel::drive::Drive;
use crate::chart::{Axis, Chart, Curve, page as draw};
use crate::host_bus::Scsi;
use crate::run::{
    Access, Arrivals, BestEffortLoad, Experiment, Hash, LinkedOutcome, LinkedRun, StreamLoad, fits,
};
use crate::sweep::{Sweep, steps};

const DISKS: usize = 3;
/// A block of the thesis, every four seconds: 2 Mbit/s.
const BLOCK: Bytes = Bytes::from_mib(1);
const PERIOD: Nanos = Nanos::from_secs(4);
/// The parts of a disk that have a stream each, if it promises as many.
const PARTS: u64 = 64;
/// Ten small reads a second on each disk.
const BETWEEN_READS: Nanos = Nanos::from_millis(100);
const SIZES_KIB: [u64; 4] = [4, 8, 16, 64];
const DURATION: Nanos = Nanos::from_secs(600);
/// Bytes of a burst, the server's default for a link.
const BURST: Bytes = Bytes::from_kib(256);

fn sectors(bytes: Bytes) -> SectorCount {
    bytes.sectors().expect("whole sectors")
}

/// Allowance for the string.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// A string for each disk.
    Apart,
    /// None, although the disks share a string.
    Ignored,
    Inflate,
    Lend,
}

impl Way {
    const ALL: [Self; 4] = [Self::Apart, Self::Ignored, Self::Inflate, Self::Lend];

    const fn name(self) -> &'static str {
        match self {
            Self::Apart => "a string each",
            Self::Ignored => "string ignored",
            Self::Inflate => "inflate",
            Self::Lend => "lend",
        }
    }
}

/// The string and its drives.
struct Site {
    drive: Drive,
    alone: DriveProfile,
    rate: BytesPerSecond,
    /// Disks that the string carries at their full rate.
    carried: usize,
    seed: u64,
}

impl Site {
    fn new(seed: u64) -> Self {
        let drive = Drive::built_in("cheetah-4lp").expect("it comes with the program");
        let alone = drive.profile();
        let rate = Scsi::ULTRA_WIDE.rate;
        Self {
            carried: carried(rate, alone.fastest()) as usize,
            drive,
            alone,
            rate,
            seed,
        }
    }

    /// The number of disks that promise.
    fn promising(&self, way: Way) -> usize {
        if way == Way::Lend {
            self.carried
        } else {
            DISKS
        }
    }

    fn profile(&self, way: Way) -> DriveProfile {
        match way {
            Way::Apart | Way::Ignored => self.alone.clone(),
            Way::Inflate | Way::Lend => self.alone.on_link(LinkShare {
                disks: self.promising(way) as u32,
                rate: self.rate,
                burst_bytes: BURST.get(),
            }),
        }
    }

    fn experiment(&self, way: Way, disk: usize, streams: u64) -> Experiment {
        let all = sectors(self.drive.capacity()).get();
        let part = all / PARTS;
        let stream = |number: u64| StreamLoad {
            op: Op::Read,
            block: sectors(BLOCK),
            period: PERIOD,
            region: Sector(number * part)..Sector((number + 1) * part),
            access: Access::Sequential,
            // Phases of different disks differ, as those of different viewers do.
            first: Time((number * 7 + disk as u64 * 3) * PERIOD.get() / 64 % PERIOD.get()),
        };
        let reads = BestEffortLoad {
            arrivals: Arrivals::Poisson {
                mean: BETWEEN_READS,
            },
            sizes: SIZES_KIB.map(|kib| sectors(Bytes::from_kib(kib))).into(),
            read_percent: 100,
            write_urgency: Urgency::Sync,
            region: Sector(0)..Sector(all),
        };
        Experiment {
            plant: self.drive.plant(),
            profile: Arc::new(self.profile(way)),
            config: SchedulerConfig {
                queue_max: 100_000,
                ..SchedulerConfig::default()
            },
            streams: (0..streams).map(stream).collect(),
            best_effort: vec![reads],
            floor: None,
            duration: DURATION,
            seed: self.seed + disk as u64,
        }
    }

    /// The most streams that a disk admits.
    fn streams_max(&self, way: Way) -> u64 {
        let is_admitted = |streams: &u64| fits(&self.experiment(way, 0, *streams));
        (1..=PARTS).take_while(is_admitted).last().unwrap_or(0)
    }

    fn run(&self, way: Way, streams: u64) -> LinkedOutcome {
        let promising = self.promising(way);
        let of_disk = |disk| if disk < promising { streams } else { 0 };
        let disks: Vec<Experiment> = (0..DISKS)
            .map(|disk| self.experiment(way, disk, of_disk(disk)))
            .collect();
        let rate = match way {
            Way::Apart => BytesPerSecond(self.rate.get() * 1_000),
            _ => self.rate,
        };
        let run = LinkedRun {
            disks: &disks,
            rate,
            places: promising,
        };
        run.run().expect("the streams are admitted")
    }

    /// The service time of a block that a disk promises, in milliseconds.
    fn block_ms(&self, way: Way) -> f64 {
        let experiment = self.experiment(way, 0, 1);
        let predictor = sched::predict::Predictor::new(&experiment.profile);
        let anywhere = Sector(0)..Sector(sectors(self.drive.capacity()).get());
        predictor
            .worst_case(anywhere, Op::Read, sectors(BLOCK))
            .as_millis_f64()
    }
}

/// Disks with so many streams each.
struct Point {
    way: Way,
    streams: u64,
    promising: usize,
    outcome: LinkedOutcome,
}

impl Point {
    fn megabytes(&self) -> f64 {
        let streams = self.streams as f64 * self.promising as f64;
        streams * BLOCK.get() as f64 / MEGABYTE / PERIOD.as_secs_f64()
    }

    /// The mean latency of best effort on some of the disks.
    fn latency_ms(&self, disks: std::ops::Range<usize>) -> f64 {
        let of = self.outcome.disks[disks].iter().map(|of| of.best_effort);
        let (count, sum) = of.fold((0, 0.0), |(count, sum), of| {
            (count + of.count, sum + of.mean_ms * of.count as f64)
        });
        sum / count.max(1) as f64
    }

    fn promising_ms(&self) -> f64 {
        self.latency_ms(0..self.promising)
    }

    /// On the disks that promise nothing.
    fn borrowing_ms(&self) -> f64 {
        self.latency_ms(self.promising..DISKS)
    }

    fn sum(&self, of: impl Fn(&crate::run::Outcome) -> u64) -> u64 {
        self.outcome.disks.iter().map(of).sum()
    }

    fn missed(&self) -> u64 {
        self.sum(crate::run::Outcome::missed)
    }

    fn overruns(&self) -> u64 {
        self.sum(|disk| disk.disk.overruns)
    }

    fn blocks(&self) -> u64 {
        self.sum(|disk| disk.streams.iter().map(|stream| stream.completed).sum())
    }

    fn rows(&self, table: &mut Table) {
        for (disk, of) in self.outcome.disks.iter().enumerate() {
            let streams = if disk < self.promising {
                self.streams
            } else {
                0
            };
            let latency = of.best_effort;
            table.row(&[
                self.way.name().to_owned(),
                format!("{:.2}", self.megabytes()),
                disk.to_string(),
                streams.to_string(),
                latency.count.to_string(),
                format!("{:.3}", latency.mean_ms),
                format!("{:.3}", latency.p50.as_millis_f64()),
                format!("{:.3}", latency.p99.as_millis_f64()),
                format!("{:.3}", latency.max.as_millis_f64()),
                of.best_effort_unserved.to_string(),
                of.streams
                    .iter()
                    .map(|of| of.completed)
                    .sum::<u64>()
                    .to_string(),
                of.missed().to_string(),
                of.disk.overruns.to_string(),
                self.outcome.busy_max.to_string(),
            ]);
        }
    }
}

const COLUMNS: [&str; 14] = [
    "admission",
    "promised_mb_per_s",
    "disk",
    "streams",
    "reads",
    "mean_ms",
    "p50_ms",
    "p99_ms",
    "max_ms",
    "unserved",
    "blocks",
    "missed",
    "overruns",
    "disks_at_a_time",
];

/// All loads of one way, from none to the most.
struct Line {
    way: Way,
    block_ms: f64,
    points: Vec<Point>,
}

impl Line {
    fn most(&self) -> f64 {
        self.points.last().map_or(0.0, Point::megabytes)
    }

    fn sum(&self, of: impl Fn(&Point) -> u64) -> u64 {
        self.points.iter().map(of).sum()
    }

    fn curve(&self, name: &str, colour: usize, of: impl Fn(&Point) -> f64) -> Curve {
        Curve {
            name: name.to_owned(),
            points: (self.points.iter())
                .map(|point| (point.megabytes(), of(point)))
                .collect(),
            colour,
            is_aid: self.way == Way::Apart,
        }
    }

    /// The latency at about half the load, and at the largest.
    fn half_and_full(&self, of: impl Fn(&Point) -> f64) -> (f64, f64) {
        let full = &self.points[self.points.len() - 1];
        let half = self
            .points
            .iter()
            .min_by_key(|of| (2 * of.streams).abs_diff(full.streams));
        (half.map_or(0.0, &of), of(full))
    }
}

fn lines(site: &Site, sweep: &Sweep<'_>) -> Vec<Line> {
    let mut runs = Vec::new();
    for way in Way::ALL {
        let most = site.streams_max(way) as usize;
        let loads = std::iter::once(0).chain(steps(most));
        runs.extend(loads.map(|streams| (way, streams as u64)));
    }
    let outcomes = sweep.each(runs.len(), |at| site.run(runs[at].0, runs[at].1));
    let mut points: Vec<Point> = (runs.into_iter().zip(outcomes))
        .map(|((way, streams), outcome)| Point {
            way,
            streams,
            promising: site.promising(way),
            outcome,
        })
        .collect();
    let line = |way| Line {
        way,
        block_ms: site.block_ms(way),
        points: points.extract_if(.., |point| point.way == way).collect(),
    };
    Way::ALL.map(line).into()
}

/// Figure 8.1-string.
pub(in super::super) fn page(seed: u64, sweep: &Sweep<'_>) -> Result<Page, FigureError> {
    let site = Site::new(seed);
    let lines = lines(&site, sweep);
    let mut table = Table::new(&COLUMNS);
    let mut hash = Hash::default();
    for point in lines.iter().flat_map(|line| &line.points) {
        point.rows(&mut table);
        point
            .outcome
            .disks
            .iter()
            .for_each(|of| hash.add(of.disk.hash));
    }
    let [apart, ignored, inflate, lend] = [0, 1, 2, 3].map(|at| &lines[at]);
    let chart = Chart {
        title: "best effort on the disks of a string".to_owned(),
        x: Axis::linear("promised by all disks, MB/s"),
        y: Axis::log("mean best-effort latency, ms"),
        curves: vec![
            inflate.curve("inflate", 0, Point::promising_ms),
            lend.curve("lend, disks that promise", 1, Point::promising_ms),
            lend.curve("lend, disk that borrows", 2, Point::borrowing_ms),
            apart.curve("a string for each disk", 5, Point::promising_ms),
        ],
    };
    let title = "what three Cheetahs promise on a string, and what best effort gets";
    Ok(Page {
        figure: Figure::SharedString,
        svg: draw(&format!("Figure 8.1-string: {title}"), &[chart], 1)?,
        title: title.to_owned(),
        notes: format!(
            "Three disks (Seagate Cheetah, at most {:.1} million bytes a second each) share a SCSI bus of {} million, a *string*; the \
             server's configuration calls it a `[[link]]`. With `inflate` all three promise, and count on service times that are \
             longer by what the others may transfer meanwhile. With `lend` only the two promise that the string carries at their \
             full rate; they lend their places on it to the third disk, for best effort in their slack. With *string ignored*, \
             three disks promise as if each had a string of its own.\n\n\
             Streams of 0.25 MB/s read blocks of 1 MB from parts of their own, beside ten random reads of 4 to 64 KB a second on \
             each disk, for ten minutes a point. The string divides itself fairly (`drives::link`). Times are bounds for any place, \
             with the longest seek. A burst is 256 KB. Places are lent by the server's code (`engine::dispatcher`).",
            site.alone.fastest().get() as f64 / 1e6,
            site.rate.get() / 1_000_000
        ),
        csv: table.into_text(),
        statements: statements(apart, ignored, inflate, lend),
        hash: hash.0,
    })
}

fn statements(apart: &Line, ignored: &Line, inflate: &Line, lend: &Line) -> Vec<Statement> {
    let all = |line: &Line| {
        format!(
            "{} of {} blocks late, {} overruns",
            line.sum(Point::missed),
            line.sum(Point::blocks),
            line.sum(Point::overruns)
        )
    };
    let is_safe = |line: &Line| line.sum(Point::missed) == 0 && line.sum(Point::overruns) == 0;
    let busy_max = lend.points.iter().map(|point| point.outcome.busy_max).max();
    let bursts = Scsi::ULTRA_WIDE.rate.period_of(BURST).unwrap_or(Nanos::MAX) * (DISKS as u64 - 1);
    let bursts_ms = bursts.as_millis_f64();
    let (per_disk, alone) = (inflate.most() / 3.0, apart.most() / 3.0);
    let (borrows_half, borrows_full) = lend.half_and_full(Point::borrowing_ms);
    let (lends_half, lends_full) = lend.half_and_full(Point::promising_ms);
    let (inflated_half, inflated_full) = inflate.half_and_full(Point::promising_ms);
    let unserved = lend.sum(|point| point.sum(|disk| disk.best_effort_unserved));
    vec![
        Statement::new(
            "three disks with longer times (31.3 MB/s) promise more than two at full rate (24.7 MB/s)",
            inflate.most() > lend.most(),
            format!(
                "the order holds: {:.1} and {:.1} MB/s, with bounds in place of percentiles; a block takes {:.1} ms inflated, {:.1} ms with two disks, {:.1} ms alone",
                inflate.most(),
                lend.most(),
                inflate.block_ms,
                lend.block_ms,
                apart.block_ms
            ),
        ),
        Statement::new(
            "longer times cost a disk 15 % of what it promises alone",
            (0.12..0.18).contains(&(1.0 - per_disk / alone)),
            format!(
                "{:.1} %: of the longer time of a block, {bursts_ms:.1} ms are two bursts of others",
                (1.0 - per_disk / alone) * 100.0
            ),
        ),
        Statement::new(
            "on a string that is ignored requests take longer than predicted",
            ignored.sum(Point::overruns) > 0,
            format!(
                "{}: in these runs the rest of the slack sufficed",
                all(ignored)
            ),
        ),
        Statement::new(
            "no deadline is missed with longer times",
            is_safe(inflate),
            all(inflate),
        ),
        Statement::new(
            "with lent places no deadline is missed, and no more disks execute than the string carries",
            is_safe(lend) && busy_max.is_some_and(|most| most <= lend.points[0].promising),
            format!(
                "{}; at most {} disks at a time",
                all(lend),
                busy_max.unwrap_or(0)
            ),
        ),
        Statement::new(
            "best effort on the third disk is served in the slack of the others",
            unserved == 0,
            format!(
                "{unserved} reads were not served; mean latency {borrows_half:.1} ms at half of what two disks promise, {borrows_full:.0} ms \
                 at all of it"
            ),
        ),
        Statement::new(
            "(not in the thesis) best effort on disks that promise",
            true,
            format!(
                "lend {lends_half:.1} and {lends_full:.0} ms at half and all of what it promises, inflate {inflated_half:.1} and \
                 {inflated_full:.0} ms"
            ),
        ),
    ]
}
