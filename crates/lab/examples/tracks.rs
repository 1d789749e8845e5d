//! Sequential reads of unaligned blocks on the simulated Quantum Atlas-II, with and without the rest of the last track
//! (thesis figures 7.5 and 7.6), as tables.

use std::error::Error;
use std::io::{self, Write as _};

use drives::plant::PlantSpec;
use lab::tracks::{Blocks, Reading, read};
use sched::predict::Predictor;
use sched::profile::DriveProfile;
use sched::request::Op;
use sched::units::{Nanos, SECTOR_BYTES, Sector, SectorCount};

const DRIVE: &str = "quantum-atlas-ii";
const SEED: u64 = 1999;
const BYTES: u64 = 400 << 20;
const ALL: [Reading; 3] = [Reading::Aligned, Reading::Uncached, Reading::Cached];

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = io::stdout().lock();
    let spec = PlantSpec::built_in(DRIVE).ok_or("no such drive")?;
    let predictor = Predictor::new(&DriveProfile::shipped(DRIVE)?);
    let zone = predictor.zone_range(0).ok_or("no zone")?;
    let times = |kib: u64, reading| {
        let size = SectorCount((kib << 10) / SECTOR_BYTES);
        let service = predictor.worst_case(zone.clone(), Op::Read, size);
        let blocks = Blocks {
            from: Sector(17),
            size,
            number: (BYTES / (kib << 10)).min(20_000),
            service,
        };
        read(&spec, SEED, &predictor, blocks, reading)
    };
    let ms = |time: Nanos| time.get() as f64 / 1e6;
    writeln!(
        out,
        "| block, KiB | aligned | uncached | with track buffer | blocks that hit |"
    )?;
    writeln!(out, "|---:|---:|---:|---:|---:|")?;
    for kib in [1, 4, 16, 64, 128, 256, 512, 1_024] {
        let [aligned, uncached, cached] = ALL.map(|reading| times(kib, reading));
        let hits = 100.0 * cached.hits as f64 / cached.times.len() as f64;
        writeln!(
            out,
            "| {kib} | {:.1} | {:.1} | {:.1} | {hits:.0} % |",
            ms(aligned.mean()),
            ms(uncached.mean()),
            ms(cached.mean())
        )?;
    }
    writeln!(
        out,
        "\n| 512 KiB | p10 | p25 | p50 | p75 | p90 | p99 | max |"
    )?;
    writeln!(out, "|---|---:|---:|---:|---:|---:|---:|---:|")?;
    for (reading, name) in ALL
        .into_iter()
        .zip(["aligned", "uncached", "with track buffer"])
    {
        let of = times(512, reading);
        let cells = [10, 25, 50, 75, 90, 99, 100]
            .map(|percent| format!("{:.1}", ms(of.percentile(percent))));
        writeln!(out, "| {name} | {} |", cells.join(" | "))?;
    }
    Ok(())
}
