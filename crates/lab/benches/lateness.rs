//! Lateness of this host with the requests of an emulated drive. `cargo bench -p clockwise-lab --bench
//! lateness -- [SECONDS]`
//!
//! One drive at work, with data: reads and writes of each size by turns, at places all over it. Writes go to
//! a few places, so that their data stays in the host's memory.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Write as _};

use drives::emulator::{DriveOptions, EmulatedDrive, LATE_LIMIT};
use drives::plant::PlantSpec;
use engine::buffer::{Account, Memory, MemoryConfig};
use engine::clock;
use engine::disk::{Disk, DiskIo};
use engine::event::EventFd;
use engine::rt::{self, ThreadParams};
use hdrhistogram::Histogram;
use sched::request::Op;
use sched::units::{Bytes, Nanos, Sector, SectorCount};

/// Sizes of requests, by turns.
const SIZES: [Bytes; 4] = [
    Bytes::from_kib(4),
    Bytes::from_kib(64),
    Bytes::from_mib(1),
    Bytes::from_mib(8),
];

/// Default length.
const SECONDS: u64 = 10;

/// Number of places where writes begin.
const WRITTEN_PLACES: u64 = 16;

type AnyError = Box<dyn Error + Send + Sync>;

/// Lateness of requests by direction and size, in nanoseconds.
type Lateness = BTreeMap<(&'static str, Bytes), Histogram<u64>>;

fn main() -> Result<(), AnyError> {
    let seconds = std::env::args()
        .skip(1)
        .find(|word| !word.starts_with("--"))
        .map_or(Ok(SECONDS), |text| text.parse())?;
    let path = std::env::temp_dir().join(format!("clockwise-lateness-{}", std::process::id()));
    let spec = PlantSpec::built_in("hdd-8tb-7200").ok_or("no such plant")?;
    let mut drive = EmulatedDrive::create(&path, spec, &DriveOptions::default())?;
    // The drive keeps it open; nothing is left behind, however this ends.
    std::fs::remove_file(&path)?;
    let control = drive.control();
    let denied = drive.denied().clone();
    let params = ThreadParams {
        name: "dispatcher".into(),
        fifo_priority: Some(50),
        cpus: None,
        io_flusher: false,
    };
    let memory = Memory::new(&MemoryConfig::new(Bytes::from_mib(32)))?;
    let account = memory.open_account("requests", Bytes::from_mib(16))?;
    let (owner, denied_owner) = rt::spawn(&params, move || {
        requests(&mut drive, &account, Nanos::from_secs(seconds))
    })?;
    let lateness = owner
        .join()
        .map_err(|_| "the thread that issues requests panicked")??;
    let stats = control.stats();
    let mut out = std::io::stdout().lock();
    for denied in denied.0.iter().chain(&denied_owner.0) {
        writeln!(out, "denied: {denied}")?;
    }
    writeln!(out, "handed over later than the model, in us\n")?;
    writeln!(
        out,
        "| requests | of | p50 | p99 | p99.9 | at most | p99 of {LATE_LIMIT}, to be at most 1 |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|")?;
    let mut all = Histogram::new(3)?;
    for ((op, size), late) in &lateness {
        line(&mut out, late, &format!("{op}s of {size}"))?;
        all.add(late)?;
    }
    line(&mut out, &all, "all")?;
    writeln!(
        out,
        "\n{} of {} more than {LATE_LIMIT} late; the data of {} took the host longer than the model; \
         at the end the drive called {} ahead",
        stats.late, stats.completed, stats.late_file, stats.lead
    )?;
    Ok(())
}

fn line(out: &mut impl io::Write, late: &Histogram<u64>, what: &str) -> io::Result<()> {
    let us = |nanos: u64| nanos as f64 / 1e3;
    let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|quantile| us(late.value_at_quantile(quantile)));
    writeln!(
        out,
        "| {} | {what} | {p50:.1} | {p99:.1} | {p999:.1} | {:.1} | {:.3} |",
        late.len(),
        us(late.max()),
        p99 / us(LATE_LIMIT.get())
    )
}

/// Issues requests one at a time, as a dispatcher would.
fn requests(
    drive: &mut EmulatedDrive,
    account: &Account,
    length: Nanos,
) -> Result<Lateness, AnyError> {
    let wake = EventFd::new()?;
    let largest = SIZES[SIZES.len() - 1];
    let buffer = account.allocate(largest.get() as usize)?;
    let last = drive.capacity().get() - largest.get() / 512;
    let (mut number, mut place, mut done) = (0_usize, 0_u64, Vec::new());
    let mut lateness = Lateness::new();
    let end = clock::now() + length;
    while clock::now() < end {
        place = place.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let size = SIZES[number / 2 % SIZES.len()];
        let (op, name, start) = match number % 2 {
            0 => (Op::Read, "read", (place >> 20) % last),
            _ => {
                let turn = number as u64 / 2 % WRITTEN_PLACES;
                (Op::Write, "write", last / WRITTEN_PLACES * turn)
            }
        };
        drive
            .submit(DiskIo {
                tag: number as u64,
                op,
                start: Sector(start & !7),
                count: SectorCount(size.get() / 512),
                segments: buffer.segments(op, 0..size.get() as usize)?,
                durable: false,
            })
            .map_err(io::Error::other)?;
        done.clear();
        while done.is_empty() {
            drive.wait(None, &wake, &mut done)?;
        }
        let late = lateness
            .entry((name, size))
            .or_insert_with(|| Histogram::new(3).expect("three digits are possible"));
        late.record(done[0].host_late.get())?;
        number += 1;
    }
    Ok(lateness)
}
