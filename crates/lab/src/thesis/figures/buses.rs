//! Figures of several disks on SCSI and PCI buses (thesis 4.3.6, 4.3.7, 7.2.5, 7.4, 8.1).

pub(super) mod cheetahs;
pub(super) mod packets;
pub(super) mod shared_string;
pub(super) mod speed_up;
pub(super) mod strings;

use sched::request::Op;
use sched::units::{Bytes, Nanos};

use crate::host_bus::{Adapter, HostBus, Measured, Mechanics, Places, Scsi, Strings};
use crate::run::Hash;
use crate::sweep::Sweep;

/// Bytes of a megabyte of the thesis, whose 125.8 MB/s are 33 million words of 4 bytes a second.
const MEGABYTE: f64 = 1_048_576.0;

/// The printed rate of the bus.
const PCI_MEGABYTES: f64 = 125.8;

fn adapter<'a>(bus: &'a HostBus, name: &str) -> &'a Adapter {
    bus.adapter(name)
        .expect("the shipped description has this adapter")
}

fn op_name(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::Write => "write",
    }
}

/// The name of a curve.
fn disks_name(disks: usize) -> String {
    format!("{disks} {}", if disks == 1 { "disk" } else { "disks" })
}

/// Cheetahs on Ultra-Wide strings, in blocks of a megabyte.
fn cheetahs(bus: &HostBus, drives: Vec<u64>, op: Op, requests: u64, seed: u64) -> Strings<'_> {
    Strings {
        adapter: adapter(bus, "ncr53c875"),
        scsi: Scsi::ULTRA_WIDE,
        drive: Mechanics::CHEETAH,
        drives,
        op,
        places: Places::Random,
        block: Bytes::from_mib(1),
        offset: 0,
        requests,
        seed,
    }
}

/// Runs all, in order, and their hash.
fn run_all(bus: &HostBus, all: &[Strings<'_>], sweep: &Sweep<'_>) -> (Vec<Measured>, u64) {
    let measured = sweep.each(all.len(), |at| {
        let result = all[at].run(bus);
        result.expect("the figures have valid parameters")
    });
    let mut hash = Hash::default();
    measured.iter().for_each(|one| hash.add(one.bus.hash));
    (measured, hash.0)
}

/// The value that so many percent of the sorted times do not exceed, in milliseconds.
fn percentile_ms(sorted: &[Nanos], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted[rank - 1].as_millis_f64()
}
