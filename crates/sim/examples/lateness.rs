//! How late this host completes the requests of an emulated drive: `lateness [SECONDS]`.

use std::error::Error;
use std::io::{self, Write as _};

use engine::buffer::Segments;
use engine::clock;
use engine::disk::{Disk, DiskIo};
use engine::event::EventFd;
use engine::rt::{self, ThreadParams};
use sched::request::Op;
use sched::units::{Nanos, Sector, SectorCount};
use sim::emulator::{DriveOptions, EmulatedDrive, LATE_LIMIT};
use sim::plant::PlantSpec;

fn main() -> Result<(), Box<dyn Error>> {
    let seconds = std::env::args()
        .nth(1)
        .map_or(Ok(10), |text| text.parse())?;
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
    let (owner, denied_owner) = rt::spawn(&params, move || {
        requests(&mut drive, Nanos::from_secs(seconds))
    })?;
    owner
        .join()
        .map_err(|_| "the thread that issues requests panicked")??;
    let stats = control.stats();
    let mut out = std::io::stdout().lock();
    for denied in denied.0.iter().chain(&denied_owner.0) {
        writeln!(out, "denied: {denied}")?;
    }
    for (what, late) in [("done", stats.done_late), ("handed over", stats.lateness)] {
        writeln!(
            out,
            "{what} later than the model: p50 {}, p99 {}, p99.9 {}, at most {}",
            late.p50, late.p99, late.p999, late.max
        )?;
    }
    writeln!(
        out,
        "{} requests, {} handed over more than {LATE_LIMIT} late",
        stats.completed, stats.late
    )?;
    Ok(())
}

/// Issues small requests all over the drive, one at a time, as a dispatcher would.
fn requests(drive: &mut EmulatedDrive, length: Nanos) -> io::Result<()> {
    let wake = EventFd::new()?;
    let (sectors, mut next, mut done) = (drive.capacity().get() - 8, 0_u64, Vec::new());
    let end = clock::now() + length;
    while clock::now() < end {
        next = next.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let request = DiskIo {
            tag: next,
            op: Op::Read,
            start: Sector(((next >> 20) % sectors) & !7),
            count: SectorCount(8),
            segments: Segments::empty(Op::Read),
            durable: false,
        };
        drive.submit(request).map_err(io::Error::other)?;
        done.clear();
        while done.is_empty() {
            drive.wait(None, &wake, &mut done)?;
        }
    }
    Ok(())
}
