//! 4.17 and 4.18: one to twelve Cheetahs on four strings.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use sched::request::Op;
use sched::units::{BytesPerSecond, Nanos, Time};

use super::super::{Figure, FigureError, Page, Statement, Table};
use super::{MEGABYTE, adapter, cheetahs, op_name, run_all};
use crate::chart::{Axis, Chart, Curve, page as draw};
use crate::dice::Dice;
use crate::host_bus::periodic::{Periodic, run_periodic};
use crate::host_bus::{Direction, HostBus, Measured, Strings};
use crate::run::Hash;
use crate::sweep::Sweep;

const DISKS: u64 = 12;
const STRINGS: u64 = 4;
const REQUESTS: u64 = 50;
/// At which memory seems to saturate (thesis 4.3.7): 72 MB/s.
const MEMORY_READ: BytesPerSecond = BytesPerSecond(72 << 20);

/// Times between the transactions of a string with one, two and three disks, as printed.
const PERIODS_NS: [u64; 3] = [37_300, 19_300, 15_400];
/// Starts that are tried for each number of disks, and the time that each runs.
const STARTS: u64 = 200;
const PERIODIC_NS: u64 = 20_000_000;

/// Disks of each string.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// Three on a string before the next.
    Three,
    /// Two on each string, then a third.
    TwoPlusOne,
}

impl Layout {
    fn drives(self, disks: u64) -> Vec<u64> {
        let of = |string: u64| match self {
            Self::Three => disks.saturating_sub(3 * string).min(3),
            Self::TwoPlusOne => {
                let third = u64::from(disks > 2 * STRINGS + string);
                disks.saturating_sub(2 * string).min(2) + third
            }
        };
        (0..STRINGS).map(of).collect()
    }
}

const RUNS: [(&str, Layout, Op); 4] = [
    ("Read-3", Layout::Three, Op::Read),
    ("Write-3", Layout::Three, Op::Write),
    ("Read-2+1", Layout::TwoPlusOne, Op::Read),
    ("Write-2+1", Layout::TwoPlusOne, Op::Write),
];
const READ_3: usize = 0;
const WRITE_3: usize = 1;
const READ_2: usize = 2;
const WRITE_2: usize = 3;

/// Runs of all numbers of disks, one configuration after the other.
struct Grid(Vec<Measured>);

impl Grid {
    fn at(&self, run: usize, disks: u64) -> &Measured {
        &self.0[run * DISKS as usize + disks as usize - 1]
    }

    fn rate(&self, run: usize, disks: u64) -> f64 {
        self.at(run, disks).bus.bytes_per_second() / MEGABYTE
    }

    fn ms(&self, run: usize, disks: u64) -> f64 {
        self.at(run, disks).mean_ms()
    }

    /// Of a thousand transactions, those that waited for another adapter.
    fn conflicts(&self, run: usize, disks: u64) -> f64 {
        let bus = &self.at(run, disks).bus;
        bus.conflicts as f64 * 1_000.0 / bus.transactions as f64
    }
}

fn grid(bus: &HostBus, seed: u64, sweep: &Sweep<'_>) -> (Grid, u64) {
    let all: Vec<Strings<'_>> = RUNS
        .iter()
        .flat_map(|(_, layout, op)| {
            (1..=DISKS).map(|disks| cheetahs(bus, layout.drives(disks), *op, REQUESTS, seed))
        })
        .collect();
    let (measured, hash) = run_all(bus, &all, sweep);
    (Grid(measured), hash)
}

/// Conflicts of a second among adapters that ask at the printed times, from random starts; the mean of all.
fn periodic_conflicts(bus: &HostBus, layout: Layout, disks: u64, seed: u64) -> f64 {
    let mut dice = Dice(Xoshiro256PlusPlus::seed_from_u64(seed));
    let mut conflicts = 0;
    for _ in 0..STARTS {
        let busy = layout
            .drives(disks)
            .into_iter()
            .filter(|drives| *drives > 0);
        let mut adapters: Vec<Periodic<'_>> = busy
            .map(|drives| {
                let period = PERIODS_NS[drives as usize - 1];
                Periodic {
                    adapter: adapter(bus, "ncr53c875"),
                    direction: Direction::FromMemory,
                    first: Time(dice.below(period)),
                    period: Nanos(period),
                    times: PERIODIC_NS / period,
                }
            })
            .collect();
        conflicts += run_periodic(bus, &mut adapters).conflicts;
    }
    conflicts as f64 / STARTS as f64 / (PERIODIC_NS as f64 / 1e9)
}

/// Conflicts by configuration and number of disks.
struct Conflicts([Vec<f64>; 2]);

impl Conflicts {
    fn measure(bus: &HostBus, seed: u64, sweep: &Sweep<'_>) -> Self {
        Self([Layout::Three, Layout::TwoPlusOne].map(|layout| {
            sweep.each(DISKS as usize, |at| {
                periodic_conflicts(bus, layout, at as u64 + 1, seed)
            })
        }))
    }

    fn three(&self, disks: usize) -> f64 {
        self.0[0][disks - 1]
    }

    fn two(&self, disks: usize) -> f64 {
        self.0[1][disks - 1]
    }
}

pub(in super::super) fn page(seed: u64, sweep: &Sweep<'_>) -> Result<Page, FigureError> {
    let bus = HostBus::of_thesis();
    let mut limited = bus.clone();
    limited.memory_read = Some(MEMORY_READ);
    let (grid, first) = grid(&bus, seed, sweep);
    let (with_limit, second) = self::grid(&limited, seed, sweep);
    let conflicts = Conflicts::measure(&bus, seed, sweep);
    let mut hash = Hash::default();
    [first, second].into_iter().for_each(|one| hash.add(one));
    conflicts
        .0
        .iter()
        .flatten()
        .for_each(|x| hash.add(x.to_bits()));
    Ok(Page {
        figure: Figure::Cheetahs,
        title: "one to twelve Cheetahs on four Ultra-Wide strings".to_owned(),
        notes: "Blocks of 1 MB at random places of the outer zone, aligned in memory; each disk is a light one as in figure 8.1, and \
                writes complete when they are on the medium. The picture's second chart is figure 4.18: adapters that ask at the printed times (37.3, \
                19.3 and 15.4 us), from 200 random starts. The CSV has all runs again with memory that is read at 72 MB/s at most."
            .to_owned(),
        svg: draw("Cheetahs in parallel", &charts(&grid, &conflicts), 2)?,
        csv: table(&grid, &with_limit, &conflicts),
        statements: statements(&grid, &with_limit, &conflicts),
        hash: hash.0,
    })
}

fn charts(grid: &Grid, conflicts: &Conflicts) -> [Chart; 2] {
    let curve = |name: &str, colour, points| Curve {
        name: name.to_owned(),
        points,
        colour,
        is_aid: false,
    };
    let numbers = || (1..=DISKS).map(|disks| disks as f64);
    let rates = RUNS.iter().enumerate().map(|(run, (name, ..))| {
        let points = (1..=DISKS).map(|disks| (disks as f64, grid.rate(run, disks)));
        curve(name, run, points.collect())
    });
    let kinds = ["3", "2+1"].into_iter().zip(&conflicts.0).enumerate();
    let kinds = kinds.map(|(at, (name, values))| {
        curve(
            name,
            2 * at,
            numbers().zip(values.iter().copied()).collect(),
        )
    });
    [
        Chart {
            title: "throughput".to_owned(),
            x: Axis::linear("disks"),
            y: Axis::linear("MB/s"),
            curves: rates.collect(),
        },
        Chart {
            title: "conflicts of adapters at the printed times (4.18)".to_owned(),
            x: Axis::linear("disks"),
            y: Axis::linear("conflicts a second"),
            curves: kinds.collect(),
        },
    ]
}

fn table(grid: &Grid, with_limit: &Grid, conflicts: &Conflicts) -> String {
    let mut table = Table::new(&[
        "run",
        "op",
        "memory_read_mb_per_s",
        "disks",
        "mb_per_s",
        "mean_ms",
        "conflicts_per_1000",
        "periodic_conflicts_per_s",
    ]);
    for (limit, grid) in [("", grid), ("72", with_limit)] {
        for (run, (name, layout, op)) in RUNS.iter().enumerate() {
            for disks in 1..=DISKS {
                let periodic = match layout {
                    Layout::Three => conflicts.three(disks as usize),
                    Layout::TwoPlusOne => conflicts.two(disks as usize),
                };
                table.row(&[
                    (*name).to_owned(),
                    op_name(*op).to_owned(),
                    limit.to_owned(),
                    disks.to_string(),
                    format!("{:.3}", grid.rate(run, disks)),
                    format!("{:.3}", grid.ms(run, disks)),
                    format!("{:.2}", grid.conflicts(run, disks)),
                    format!("{periodic:.0}"),
                ]);
            }
        }
    }
    table.into_text()
}

fn statements(grid: &Grid, with_limit: &Grid, conflicts: &Conflicts) -> Vec<Statement> {
    let mut all = of_strings(grid);
    all.extend(of_the_bus(grid, with_limit));
    all.extend(of_conflicts(conflicts));
    all
}

fn of_strings(grid: &Grid) -> Vec<Statement> {
    let one = grid.rate(READ_3, 1);
    let second = [READ_3, WRITE_3].map(|run| grid.ms(run, 2) - grid.ms(run, 1));
    let third = [READ_3, WRITE_3].map(|run| grid.ms(run, 3) - grid.ms(run, 2));
    let gains: Vec<f64> = (3..=8)
        .map(|disks| grid.rate(READ_2, disks) - grid.rate(READ_3, disks))
        .collect();
    let (least, most) = (
        gains.iter().copied().fold(f64::MAX, f64::min),
        gains.iter().copied().fold(f64::MIN, f64::max),
    );
    let nine = grid.ms(READ_3, 9) - grid.ms(READ_3, 3);
    vec![
        Statement::new(
            "a Cheetah alone reads 13.2 MB/s, 1 MB in 75 ms",
            (one - 13.2).abs() <= 0.3,
            format!("{one:.1} MB/s, {:.1} ms", grid.ms(READ_3, 1)),
        ),
        Statement::new(
            "a second disk on a string costs 2.5 ms (reading) to 4 ms (writing)",
            second.iter().all(|ms| (2.0..=4.5).contains(ms)),
            format!("{:.1} and {:.1} ms", second[0], second[1]),
        ),
        Statement::new(
            "a third disk on a string costs about 15 ms",
            third.iter().all(|ms| (ms - 15.0).abs() <= 3.0),
            format!(
                "{:.1} ms (reading), {:.1} ms (writing) more than two",
                third[0], third[1]
            ),
        ),
        Statement::new(
            "two on a string give 6 to 11 MB/s more than three, up to eight disks",
            least >= 5.5 && most <= 11.5,
            format!("{least:.1} to {most:.1} MB/s (reading, three to eight disks)"),
        ),
        Statement::new(
            "nine disks, three on a string, take 2.9 ms longer than three on one string",
            (nine - 2.9).abs() <= 1.5,
            format!("{nine:.1} ms (reading)"),
        ),
    ]
}

fn of_the_bus(grid: &Grid, with_limit: &Grid) -> Vec<Statement> {
    let twelve = [READ_3, WRITE_3, READ_2, WRITE_2].map(|run| grid.rate(run, DISKS));
    let eight = [READ_2, WRITE_2].map(|run| grid.rate(run, 8));
    let apart =
        (1..=DISKS).find(|disks| grid.rate(WRITE_2, *disks) < grid.rate(READ_2, *disks) * 0.97);
    let apart_at = apart.map(|disks| grid.rate(WRITE_2, disks));
    let drop = grid.rate(READ_2, 9) - grid.rate(READ_2, 8);
    let limited = with_limit.rate(WRITE_3, DISKS);
    vec![
        Statement::new(
            "twelve disks read about 100 MB/s and write about 88 MB/s",
            (twelve[0] - 100.0).abs() <= 5.0 && (twelve[1] - 88.0).abs() <= 5.0,
            format!(
                "read {:.1}, write {:.1} MB/s; the bus alone could carry 124 and 115",
                twelve[0], twelve[1]
            ),
        ),
        Statement::new(
            "eight disks on four strings read 94 MB/s and write 89 MB/s",
            (eight[0] - 94.0).abs() <= 4.0 && (eight[1] - 89.0).abs() <= 4.0,
            format!("{:.1} and {:.1} MB/s", eight[0], eight[1]),
        ),
        Statement::new(
            "reading and writing differ from about 72 MB/s on",
            apart_at.is_some_and(|rate| (rate - 72.0).abs() <= 8.0),
            match apart.zip(apart_at) {
                Some((disks, rate)) => format!(
                    "they differ by 3 % from {disks} disks on (2+1), {rate:.1} MB/s written"
                ),
                None => "they never differ by 3 % (2+1)".to_owned(),
            },
        ),
        Statement::new(
            "memory saturates at 72 MB/s of reading",
            (limited - twelve[1]).abs() <= 1.0,
            format!(
                "with such a limit twelve disks write {limited:.1} MB/s, without it {:.1}; the thesis itself measured 88, so it \
                 is no hard limit",
                twelve[1]
            ),
        ),
        Statement::new(
            "with two on each string a ninth disk makes all of them together slower",
            drop < 0.0,
            format!("{drop:+.1} MB/s (reading)"),
        ),
    ]
}

fn of_conflicts(conflicts: &Conflicts) -> Vec<Statement> {
    let growth = |from: usize, to: usize| conflicts.three(to) / conflicts.three(from).max(1.0);
    vec![
        Statement::new(
            "(4.18) from nine to ten disks, three on a string, conflicts almost double",
            (1.75..=2.0).contains(&growth(9, 10)),
            format!(
                "{:.0} to {:.0} a second, {:.2} times",
                conflicts.three(9),
                conflicts.three(10),
                growth(9, 10)
            ),
        ),
        Statement::new(
            "(4.18) from ten to eleven they grow faster still",
            growth(10, 11) > growth(9, 10),
            format!("{:.2} times", growth(10, 11)),
        ),
        Statement::new(
            "(4.18) nine disks as 2+1 have no more conflicts than eight",
            conflicts.two(9) <= conflicts.two(8),
            format!(
                "{:.0} against {:.0} a second",
                conflicts.two(9),
                conflicts.two(8)
            ),
        ),
        Statement::new(
            "(4.18) ten disks as 2+1 have more conflicts than as 3",
            conflicts.two(10) > conflicts.three(10),
            format!(
                "{:.0} against {:.0} a second",
                conflicts.two(10),
                conflicts.three(10)
            ),
        ),
    ]
}
