//! 8.1: one to three Cheetahs on a string. 7.10: one to six on three strings.

use sched::request::Op;
use sched::units::Nanos;

use super::super::{Figure, FigureError, Page, Statement, Table};
use super::{MEGABYTE, cheetahs, disks_name, percentile_ms, run_all};
use crate::chart::{Axis, Chart, Curve, page as draw};
use crate::host_bus::{HostBus, Measured, Places, Strings};
use crate::sweep::Sweep;

/// Disks that begin together stay so for long: each number of disks is run from several starts.
const STARTS: u64 = 20;
const REQUESTS: u64 = 40;
/// Points of a drawn distribution.
const POINTS: usize = 100;

/// Service times of all disks together, from all starts.
struct Times {
    disks: usize,
    sorted: Vec<Nanos>,
    mean_ms: f64,
    megabytes: f64,
    /// The mean of each disk, from the highest id on.
    by_id_ms: Vec<f64>,
}

impl Times {
    fn new(starts: &[Measured]) -> Self {
        let count = starts.len() as f64;
        let mean = |of: &dyn Fn(&Measured) -> f64| starts.iter().map(of).sum::<f64>() / count;
        let mut sorted: Vec<Nanos> = starts.iter().flat_map(Measured::sorted).collect();
        sorted.sort_unstable();
        let disks = starts[0].times.len();
        Self {
            disks,
            sorted,
            mean_ms: mean(&Measured::mean_ms),
            megabytes: mean(&|one| one.bus.bytes_per_second()) / MEGABYTE,
            by_id_ms: (0..disks)
                .map(|disk| mean(&|one| one.mean_ms_of(disk).unwrap_or(f64::INFINITY)))
                .collect(),
        }
    }

    fn least_ms(&self) -> f64 {
        self.sorted[0].as_millis_f64()
    }

    fn percentile_ms(&self, percent: usize) -> f64 {
        percentile_ms(&self.sorted, percent)
    }

    /// What can be promised: a block in the 90th percentile from each disk.
    fn promised(&self) -> f64 {
        self.disks as f64 * 1_000.0 / self.percentile_ms(90)
    }

    fn curve(&self) -> Curve {
        let step = (self.sorted.len() / POINTS).max(1);
        let count = self.sorted.len() as f64;
        let points = (0..self.sorted.len()).step_by(step);
        Curve {
            name: disks_name(self.disks),
            points: points
                .map(|at| (self.sorted[at].as_millis_f64(), (at + 1) as f64 / count))
                .collect(),
            colour: self.disks - 1,
            is_aid: false,
        }
    }

    fn row(&self) -> Vec<String> {
        let ms = |ms: f64| format!("{ms:.3}");
        let by_id: Vec<String> = self.by_id_ms.iter().copied().map(ms).collect();
        vec![
            self.disks.to_string(),
            self.sorted.len().to_string(),
            ms(self.least_ms()),
            ms(self.mean_ms),
            ms(self.percentile_ms(50)),
            ms(self.percentile_ms(90)),
            ms(self.percentile_ms(99)),
            ms(self.percentile_ms(100)),
            ms(self.megabytes),
            ms(self.promised()),
            by_id.join(" "),
        ]
    }
}

fn measure(bus: &HostBus, all: &[Strings<'_>], seed: u64, sweep: &Sweep<'_>) -> (Vec<Times>, u64) {
    let each: Vec<Strings<'_>> = all
        .iter()
        .flat_map(|strings| {
            (0..STARTS).map(|start| Strings {
                seed: seed + start,
                ..strings.clone()
            })
        })
        .collect();
    let (measured, hash) = run_all(bus, &each, sweep);
    let times = measured.chunks(STARTS as usize).map(Times::new);
    (times.collect(), hash)
}

fn table(times: &[Times]) -> String {
    let mut table = Table::new(&[
        "disks",
        "requests",
        "least_ms",
        "mean_ms",
        "p50_ms",
        "p90_ms",
        "p99_ms",
        "max_ms",
        "mb_per_s",
        "promised_mb_per_s",
    ]);
    times.iter().for_each(|one| table.row(&one.row()));
    table.into_text()
}

fn distributions(title: &str, times: &[Times]) -> Result<String, FigureError> {
    let chart = Chart {
        title: "1 MB reads".to_owned(),
        x: Axis::linear("service time, ms"),
        y: Axis::linear("share of requests"),
        curves: times.iter().map(Times::curve).collect(),
    };
    Ok(draw(title, &[chart], 1)?)
}

/// A value of each number of disks.
fn each(times: &[Times], of: impl Fn(&Times) -> f64) -> String {
    let all: Vec<String> = times.iter().map(|one| format!("{:.1}", of(one))).collect();
    format!("{} ms", all.join(", "))
}

fn are_near(times: &[Times], of: impl Fn(&Times) -> f64, printed: &[f64], by: f64) -> bool {
    let near = |(one, printed): (&Times, &f64)| (of(one) - printed).abs() <= by;
    times.iter().zip(printed).all(near)
}

/// Figure 8.1.
pub(in super::super) fn one_string(seed: u64, sweep: &Sweep<'_>) -> Result<Page, FigureError> {
    let bus = HostBus::of_thesis();
    let all: Vec<Strings<'_>> = (1..=3)
        .map(|disks| cheetahs(&bus, vec![disks], Op::Read, REQUESTS, seed))
        .collect();
    let (times, hash) = measure(&bus, &all, seed, sweep);
    let p90 = |one: &Times| one.percentile_ms(90);
    let [one, two, three] = [0, 1, 2].map(|at| &times[at]);
    let longer = two.mean_ms - one.mean_ms;
    let statements = vec![
        Statement::new(
            "a block takes at least 70, 73 and 88 ms with one, two and three disks",
            are_near(&times, Times::least_ms, &[70.0, 73.0, 88.0], 1.5),
            each(&times, Times::least_ms),
        ),
        Statement::new(
            "90 % of blocks take at most 75, 80 and 96 ms",
            are_near(&times, p90, &[75.0, 80.0, 96.0], 1.5),
            each(&times, p90),
        ),
        Statement::new(
            "a second disk costs about 4 ms, the length of a burst",
            (longer - 4.0).abs() <= 1.0,
            format!("{longer:.1} ms on average; a burst takes 4.3 ms"),
        ),
        Statement::new(
            "with three disks all blocks become slower, not only some",
            three.least_ms() > two.percentile_ms(50),
            format!(
                "the least with three disks is {:.1} ms, the median with two {:.1} ms: the string goes by id, and the means of the \
                 three are {:.1}, {:.1} and {:.1} ms",
                three.least_ms(),
                two.percentile_ms(50),
                three.by_id_ms[0],
                three.by_id_ms[1],
                three.by_id_ms[2]
            ),
        ),
        Statement::new(
            "two disks can be scheduled at 24.7 MB/s, three at 31.3 MB/s",
            (two.promised() - 24.7).abs() <= 1.0 && (three.promised() - 31.3).abs() <= 1.0,
            format!("{:.1} and {:.1} MB/s", two.promised(), three.promised()),
        ),
    ];
    Ok(Page {
        figure: Figure::OneString,
        title: "1 MB reads of one, two and three Cheetahs on an Ultra-Wide string".to_owned(),
        notes: "Each disk reads blocks at random places of the outer zone, one at a time; the arm is on the track, and the angle is \
                random. The disk is a light one with the geometry, skews and segment of DiskSim's Cheetah 4LP, without reading \
                ahead between requests. It asks for the string with a track in its buffer, and keeps it until the buffer is empty."
            .to_owned(),
        svg: distributions("One to three disks on a string", &times)?,
        csv: table(&times),
        statements,
        hash,
    })
}

/// Figure 7.10: two disks on a string before another string is used.
pub(in super::super) fn three_strings(seed: u64, sweep: &Sweep<'_>) -> Result<Page, FigureError> {
    let bus = HostBus::of_thesis();
    let drives = |disks: u64| {
        (0..3)
            .map(|string| disks.saturating_sub(2 * string).min(2))
            .collect()
    };
    let all: Vec<Strings<'_>> = (1..=6)
        .map(|disks| Strings {
            places: Places::Sequential,
            ..cheetahs(&bus, drives(disks), Op::Read, REQUESTS, seed)
        })
        .collect();
    let (times, hash) = measure(&bus, &all, seed, sweep);
    Ok(Page {
        figure: Figure::ThreeStrings,
        title: "1 MB reads of one to six Cheetahs on three Ultra-Wide strings".to_owned(),
        notes: "Disks are added in pairs, two on each string. Each reads its blocks one behind the other, and goes on \
                reading while its segment has room. Network, CPU and the server's own time are left out."
            .to_owned(),
        svg: distributions("One to six disks on three strings", &times)?,
        csv: table(&times),
        statements: of_three_strings(&times),
        hash,
    })
}

fn of_three_strings(times: &[Times]) -> Vec<Statement> {
    let p90 = |one: &Times| one.percentile_ms(90);
    let mean = |one: &Times| one.mean_ms;
    let within = |of: &dyn Fn(&Times) -> f64, low: f64, high: f64| {
        times[1..5]
            .iter()
            .all(|one| (low..=high).contains(&of(one)))
    };
    let spread = |of: &dyn Fn(&Times) -> f64| {
        let values = times[1..5].iter().map(of);
        values.clone().fold(f64::MIN, f64::max) - values.fold(f64::MAX, f64::min)
    };
    let (second, sixth) = (
        mean(&times[1]) - mean(&times[0]),
        mean(&times[5]) - mean(&times[4]),
    );
    let promised = times[5].promised();
    vec![
        Statement::new(
            "two to five disks take 72.0 to 73.3 ms on average",
            within(&mean, 72.0, 73.3),
            format!("one to six: {}", each(times, mean)),
        ),
        Statement::new(
            "and 73.9 to 75.3 ms at the 90th percentile",
            within(&p90, 73.9, 75.3),
            format!("one to six: {}", each(times, p90)),
        ),
        Statement::new(
            "the service time is almost constant from two to five disks (1.3 ms on average)",
            spread(&mean) <= 1.3,
            format!(
                "{:.2} ms between the largest and the smallest mean",
                spread(&mean)
            ),
        ),
        Statement::new(
            "a second disk on the string costs 4 ms",
            (second - 4.0).abs() <= 1.0,
            format!("{second:.2} ms"),
        ),
        Statement::new(
            "a sixth disk costs 1.2 ms",
            (sixth - 1.2).abs() <= 0.3,
            format!(
                "{sixth:.2} ms; three strings ask for less than two thirds of the bus, which the FIFOs hide"
            ),
        ),
        Statement::new(
            "six disks can be scheduled at 78.5 MB/s",
            (promised - 78.5).abs() <= 2.0,
            format!("{promised:.1} MB/s"),
        ),
    ]
}
