//! 4.13 and 4.14: one to four Atlas-II, each on an adapter of its own, without and with PCI bursts.

use sched::request::Op;
use sched::units::{Bytes, Time};

use super::super::{Figure, FigureError, Page, Statement, Table};
use super::{MEGABYTE, adapter, disks_name, op_name, run_all};
use crate::chart::{Axis, Chart, Curve, page as draw};
use crate::host_bus::{HostBus, Measured, Mechanics, Places, Scsi, Strings};
use crate::run::Hash;
use crate::sweep::Sweep;

const DISKS: u64 = 4;
const BLOCKS_KIB: [u64; 6] = [32, 64, 128, 256, 512, 1_024];
const REQUESTS: u64 = 16;
/// Buffers began at words of memory, not at cache lines.
const OFFSET: u64 = 8;
const LARGEST_KIB: [u64; 1] = [1_024];
const COLUMNS: [&str; 9] = [
    "adapter",
    "op",
    "line_offset",
    "block_kb",
    "disks",
    "mb_per_s",
    "speed_up",
    "bus_busy",
    "mean_ms",
];
const NOTES: &str = "Each disk has an adapter of its own, and a request at a time, at random places of the outer zone. The \
    arm is on the track. Buffers begin 8 bytes into a cache line, as in the thesis; the CSV has blocks of 1 MB from \
    aligned buffers too. Without bursts a transaction is assumed to have 8 bytes, the word of memory; the thesis says \
    \"only a few\". The light disk reads from the first sector on, where the Atlas-II begins anywhere on a track, and has no \
    penalty for the last track of a write.";

/// Runs of one operation, by size of a block and number of disks.
struct Grid {
    adapter: &'static str,
    op: Op,
    offset: u64,
    blocks_kib: &'static [u64],
    measured: Vec<Measured>,
}

impl Grid {
    fn run(
        bus: &HostBus,
        (adapter, op, offset, blocks_kib): (&'static str, Op, u64, &'static [u64]),
        seed: u64,
        sweep: &Sweep<'_>,
    ) -> (Self, u64) {
        let of = |kib: u64, disks: u64| Strings {
            adapter: self::adapter(bus, adapter),
            scsi: Scsi::FAST,
            drive: Mechanics::ATLAS,
            drives: vec![1; disks as usize],
            op,
            places: Places::Random,
            block: Bytes::from_kib(kib),
            offset,
            requests: REQUESTS,
            seed,
        };
        let all: Vec<Strings<'_>> = blocks_kib
            .iter()
            .flat_map(|kib| (1..=DISKS).map(move |disks| of(*kib, disks)))
            .collect();
        let (measured, hash) = run_all(bus, &all, sweep);
        let grid = Self {
            adapter,
            op,
            offset,
            blocks_kib,
            measured,
        };
        (grid, hash)
    }

    fn at(&self, block: usize, disks: u64) -> &Measured {
        &self.measured[block * DISKS as usize + disks as usize - 1]
    }

    fn rate(&self, block: usize, disks: u64) -> f64 {
        self.at(block, disks).bus.bytes_per_second() / MEGABYTE
    }

    fn add_to(&self, table: &mut Table) {
        for (block, kib) in self.blocks_kib.iter().enumerate() {
            for disks in 1..=DISKS {
                let measured = self.at(block, disks);
                let busy = measured.bus.busy.as_secs_f64();
                let whole = (measured.bus.ended - Time::ZERO).as_secs_f64();
                table.row(&[
                    self.adapter.to_owned(),
                    op_name(self.op).to_owned(),
                    self.offset.to_string(),
                    kib.to_string(),
                    disks.to_string(),
                    format!("{:.3}", self.rate(block, disks)),
                    format!("{:.3}", self.speed_up(block, disks)),
                    format!("{:.4}", busy / whole),
                    format!("{:.3}", measured.mean_ms()),
                ]);
            }
        }
    }

    fn speed_up(&self, block: usize, disks: u64) -> f64 {
        self.rate(block, disks) / self.rate(block, 1)
    }

    /// With blocks of a megabyte.
    fn at_last(&self, disks: u64) -> f64 {
        self.speed_up(self.blocks_kib.len() - 1, disks)
    }

    fn all_at_last(&self) -> String {
        let last = self.blocks_kib.len() - 1;
        let each = (2..=DISKS).map(|disks| format!("{:.2}", self.at_last(disks)));
        let each: Vec<String> = each.collect();
        format!(
            "{} with two, three and four disks of {:.1} MB/s each",
            each.join(", "),
            self.rate(last, 1)
        )
    }

    fn chart(&self) -> Chart {
        let curve = |disks: u64| Curve {
            name: disks_name(disks as usize),
            points: (0..self.blocks_kib.len())
                .map(|block| (self.blocks_kib[block] as f64, self.speed_up(block, disks)))
                .collect(),
            colour: disks as usize - 1,
            is_aid: false,
        };
        Chart {
            title: op_name(self.op).to_owned(),
            x: Axis::linear("block, KB"),
            y: Axis::linear("speed-up"),
            curves: (1..=DISKS).map(curve).collect(),
        }
    }
}

pub(in super::super) fn page(
    figure: Figure,
    seed: u64,
    sweep: &Sweep<'_>,
) -> Result<Page, FigureError> {
    let bus = HostBus::of_thesis();
    let has_bursts = figure == Figure::SpeedUpWithBursts;
    // The last two are beside the figure: aligned buffers, or words one by one.
    let cases = if has_bursts {
        let name = "ncr53c810a";
        [
            (name, Op::Read, OFFSET, &BLOCKS_KIB[..]),
            (name, Op::Write, OFFSET, &BLOCKS_KIB[..]),
            (name, Op::Read, 0, &LARGEST_KIB[..]),
            (name, Op::Write, 0, &LARGEST_KIB[..]),
        ]
    } else {
        let (pairs, words) = ("ncr53c810a-without-bursts", "ncr53c810a-single-words");
        [
            (pairs, Op::Read, OFFSET, &BLOCKS_KIB[..]),
            (pairs, Op::Write, OFFSET, &BLOCKS_KIB[..]),
            (words, Op::Read, OFFSET, &LARGEST_KIB[..]),
            (words, Op::Write, OFFSET, &LARGEST_KIB[..]),
        ]
    };
    let (mut hash, mut table) = (Hash::default(), Table::new(&COLUMNS));
    let grids = cases.map(|case| {
        let (grid, of_grid) = Grid::run(&bus, case, seed, sweep);
        hash.add(of_grid);
        grid.add_to(&mut table);
        grid
    });
    let [reads, writes, other_reads, other_writes] = &grids;
    Ok(Page {
        figure,
        title: if has_bursts {
            "speed-up of one to four disks, with PCI bursts"
        } else {
            "speed-up of one to four disks, without PCI bursts"
        }
        .to_owned(),
        notes: NOTES.to_owned(),
        svg: draw("Parallel disks", &[reads.chart(), writes.chart()], 2)?,
        csv: table.into_text(),
        statements: if has_bursts {
            with_bursts(reads, writes, other_writes)
        } else {
            without_bursts(reads, writes, (other_reads, other_writes))
        },
        hash: hash.0,
    })
}

fn without_bursts(reads: &Grid, writes: &Grid, words: (&Grid, &Grid)) -> Vec<Statement> {
    vec![
        Statement::new(
            "reading, four disks are at most 3.7 times as fast as one",
            (reads.at_last(4) - 3.7).abs() <= 0.1,
            format!("{} (blocks of 1 MB)", reads.all_at_last()),
        ),
        Statement::new(
            "writing 1 MB, four disks are 1.8 times as fast as one",
            (writes.at_last(4) - 1.8).abs() <= 0.1,
            writes.all_at_last(),
        ),
        Statement::new(
            "writing large blocks, at most two disks can be used",
            writes.at_last(4) < writes.at_last(2) * 1.1,
            writes.all_at_last(),
        ),
        Statement::new(
            "one size of a transaction gives both speed-ups (not in the thesis)",
            (words.0.at_last(4) - 3.7).abs() <= 0.1 && (words.1.at_last(4) - 1.8).abs() <= 0.1,
            format!(
                "with words of 4 bytes one by one: reading {}; writing {}",
                words.0.all_at_last(),
                words.1.all_at_last()
            ),
        ),
    ]
}

fn with_bursts(reads: &Grid, writes: &Grid, aligned: &Grid) -> Vec<Statement> {
    vec![
        Statement::new(
            "reading, four disks are almost four times as fast as one",
            reads.at_last(4) >= 3.8,
            format!("{} (blocks of 1 MB)", reads.all_at_last()),
        ),
        Statement::new(
            "(paper) reading: 2.0, 2.95 and 3.9",
            [2.0, 2.95, 3.9]
                .into_iter()
                .zip(2..)
                .all(|(printed, disks)| (reads.at_last(disks) - printed).abs() <= 0.1),
            reads.all_at_last(),
        ),
        Statement::new(
            "writing, four disks are almost 3.5 times as fast as one",
            (writes.at_last(4) - 3.5).abs() <= 0.1,
            format!(
                "{}; the bus carries 33.9 MB/s of such transactions, 3.6 times the 9.3 MB/s of the paper's disk",
                writes.all_at_last()
            ),
        ),
        Statement::new(
            "(paper) writing: 2.0, 2.9 and 3.4",
            [2.0, 2.9, 3.4]
                .into_iter()
                .zip(2..)
                .all(|(printed, disks)| (writes.at_last(disks) - printed).abs() <= 0.1),
            writes.all_at_last(),
        ),
        Statement::new(
            "writing is slower because buffers are not aligned to cache lines (not measured in the thesis)",
            aligned.at_last(4) > writes.at_last(4),
            format!("aligned: {}", aligned.all_at_last()),
        ),
    ]
}
