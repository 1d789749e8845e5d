//! 7.11: packets between an ATM adapter and SCSI adapters, through memory.

use sched::units::{Bytes, Nanos};

use super::super::{Figure, FigureError, Page, Statement, Table};
use super::{MEGABYTE, PCI_MEGABYTES, adapter};
use crate::chart::{Axis, Chart, Curve, page as draw};
use crate::host_bus::{HostBus, Packets};
use crate::run::Hash;
use crate::sweep::Sweep;

/// Sizes of packets: those of the movies have 200 bytes to 3 KB.
const SMALLEST: u64 = 208;
const LARGEST: u64 = 3_072;
const STEP: usize = 16;
const PACKETS: u64 = 256;
const BUFFERS: u64 = 32;

/// The packet of the thesis's example.
const EXAMPLE: u64 = 336;

/// Names, the adapter that packets come from, and that which they go to.
const WAYS: [(&str, &str, &str); 4] = [
    ("recording, NCR53c875", "oppo", "ncr53c875"),
    ("playing, NCR53c875", "ncr53c875", "oppo"),
    ("playing, NCR53c810a", "ncr53c810a", "oppo"),
    ("recording, NCR53c810a", "oppo", "ncr53c810a"),
];
const RECORDING_875: usize = 0;
const RECORDING_810: usize = 3;

struct Sent {
    size: u64,
    megabytes: f64,
    transactions: u64,
    hash: u64,
}

fn send(bus: &HostBus, way: usize, size: u64) -> Sent {
    let (_, from, to) = WAYS[way];
    let packets = Packets {
        from: adapter(bus, from),
        to: adapter(bus, to),
        size: Bytes(size),
        number: PACKETS,
        buffers: BUFFERS,
    };
    let account = packets.send(bus);
    Sent {
        size,
        // Every byte crosses the bus twice.
        megabytes: account.bytes_per_second() / 2.0 / MEGABYTE,
        transactions: account.transactions / PACKETS,
        hash: account.hash,
    }
}

fn sweep_sizes(bus: &HostBus, sweep: &Sweep<'_>) -> Vec<Vec<Sent>> {
    let sizes: Vec<u64> = (SMALLEST..=LARGEST).step_by(STEP).collect();
    let of = |way| sweep.each(sizes.len(), |at| send(bus, way, sizes[at]));
    (0..WAYS.len()).map(of).collect()
}

fn mean(curve: &[Sent]) -> f64 {
    curve.iter().map(|sent| sent.megabytes).sum::<f64>() / curve.len() as f64
}

/// The smallest and the largest throughput, over all curves.
fn range(curves: &[Vec<Sent>]) -> (f64, f64) {
    let all = curves.iter().flatten().map(|sent| sent.megabytes);
    all.fold((f64::MAX, f64::MIN), |(low, high), x| {
        (low.min(x), high.max(x))
    })
}

/// Sizes at which the throughput of a curve falls.
fn falls(curve: &[Sent]) -> Vec<u64> {
    let pairs = curve.windows(2);
    let falling = pairs.filter(|pair| pair[1].megabytes < pair[0].megabytes);
    falling.map(|pair| pair[1].size).collect()
}

pub(in super::super) fn page(sweep: &Sweep<'_>) -> Result<Page, FigureError> {
    let bus = HostBus::of_thesis();
    let mut idling = bus.clone();
    idling.idle = bus.word;
    let curves = sweep_sizes(&bus, sweep);
    let slower = sweep_sizes(&idling, sweep);
    let mut table = Table::new(&[
        "way",
        "idle_ns",
        "packet_bytes",
        "transactions",
        "mb_per_s",
        "share_of_bus",
    ]);
    let mut hash = Hash::default();
    for (idle, curves) in [(Nanos::ZERO, &curves), (idling.idle, &slower)] {
        for ((name, ..), curve) in WAYS.iter().zip(curves) {
            for sent in curve {
                hash.add(sent.hash);
                table.row(&[
                    name.replace(',', ""),
                    idle.get().to_string(),
                    sent.size.to_string(),
                    sent.transactions.to_string(),
                    format!("{:.3}", sent.megabytes),
                    format!("{:.4}", sent.megabytes / PCI_MEGABYTES),
                ]);
            }
        }
    }
    let curve = |way: usize| Curve {
        name: WAYS[way].0.to_owned(),
        points: curves[way]
            .iter()
            .map(|sent| (sent.size as f64, sent.megabytes))
            .collect(),
        colour: way,
        is_aid: false,
    };
    let chart = Chart {
        title: "through memory".to_owned(),
        x: Axis::linear("packet, bytes"),
        y: Axis::linear("throughput, MB/s"),
        curves: (0..WAYS.len()).map(curve).collect(),
    };
    Ok(Page {
        figure: Figure::Packets,
        title: "packets between network and disk adapters".to_owned(),
        notes: "The network adapter (OPPO) and a SCSI adapter take turns on the bus; each packet begins at a cache line and \
                takes transactions of its own. As in the thesis, nothing else uses the bus or memory. The thesis does not print \
                the range of sizes; here it is that of the packets of its movies, 208 bytes to 3 KB in whole units of 16. The CSV has each \
                curve a second time with one more idle cycle between transactions."
            .to_owned(),
        svg: draw("Network and disk adapters together", &[chart], 1)?,
        csv: table.into_text(),
        statements: statements(&bus, &curves, &slower),
        hash: hash.0,
    })
}

fn statements(bus: &HostBus, curves: &[Vec<Sent>], slower: &[Vec<Sent>]) -> Vec<Statement> {
    let means: Vec<f64> = curves.iter().map(|curve| mean(curve)).collect();
    let found = WAYS.iter().zip(&means);
    let found: Vec<String> = found
        .map(|((name, ..), mean)| format!("{name} {mean:.1}"))
        .collect();
    let found = format!("means over all sizes: {} MB/s", found.join("; "));
    let (low, high) = range(curves);
    let (low_idle, high_idle) = range(slower);
    let example = send(bus, RECORDING_810, EXAMPLE);
    let used = example.megabytes / PCI_MEGABYTES * 100.0;
    let falls = falls(&curves[RECORDING_810]);
    let behind = |size: &u64| (size - STEP as u64).is_multiple_of(64);
    let tail = curves.iter().map(|curve| curve[curve.len() - 1].megabytes);
    let best = tail.fold(f64::MIN, f64::max);
    vec![
        Statement::new(
            "recording through the NCR53c875 is the best",
            means.iter().all(|mean| *mean <= means[RECORDING_875]),
            found.clone(),
        ),
        Statement::new(
            "recording through the NCR53c810 is the worst",
            means.iter().all(|mean| *mean >= means[RECORDING_810]),
            found,
        ),
        Statement::new(
            "the least is about 43 MB/s",
            (low - 43.0).abs() <= 1.0,
            format!(
                "{low:.1} MB/s; whole bursts of the same adapter 42.7 MB/s; with an idle cycle {low_idle:.1} MB/s"
            ),
        ),
        Statement::new(
            "the most is about 57 MB/s",
            (high - 57.0).abs() <= 1.0,
            format!(
                "{high:.1} MB/s, and {best:.1} MB/s at 3 KB; with an idle cycle {high_idle:.1} MB/s"
            ),
        ),
        Statement::new(
            "packets slightly larger than a FIFO need another transaction, which makes zig-zags",
            !falls.is_empty() && falls.iter().all(behind),
            format!(
                "recording through the NCR53c810a falls at {} sizes, all of them 16 bytes past a multiple of 64",
                falls.len()
            ),
        ),
        Statement::new(
            "at 336 bytes recording through the NCR53c810a uses 33.6 % of the bus",
            (used - 33.6).abs() <= 0.5,
            format!("{used:.1} %, {:.1} MB/s", example.megabytes),
        ),
        Statement::new(
            "it takes three large transactions from memory and a small one",
            example.transactions == 6 + 4,
            format!(
                "{} transactions from memory: {} of 64 bytes, and one of {} (a FIFO of 64 bytes cannot do it with three)",
                example.transactions - EXAMPLE.div_ceil(64),
                EXAMPLE / 64,
                EXAMPLE % 64
            ),
        ),
    ]
}
