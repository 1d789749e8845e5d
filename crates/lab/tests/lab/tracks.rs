//! The rest of a track that a sequential reader keeps, on a simulated drive.

use drives::plant::PlantSpec;
use lab::tracks::{BlockTimes, Blocks, Reading, read};
use sched::predict::Predictor;
use sched::profile::DriveProfile;
use sched::request::Op;
use sched::units::{Bytes, Nanos, SECTOR_BYTES, Sector, SectorCount};
use testkit::seed;

const ATLAS: &str = "quantum-atlas-ii";

fn predictor(name: &str) -> Predictor {
    Predictor::new(&DriveProfile::shipped(name).unwrap())
}

/// Blocks of the size, from an address that the thesis names, with the service time that admission promises.
fn blocks(predictor: &Predictor, size: Bytes, number: u64) -> Blocks {
    let size = SectorCount(size.get() / SECTOR_BYTES);
    let range = Sector(0)..Sector(size.get() * (number + 2));
    Blocks {
        from: Sector(17),
        size,
        number,
        service: predictor.worst_case(range, Op::Read, size),
    }
}

fn reads(name: &str, size: Bytes, number: u64) -> [BlockTimes; 3] {
    let predictor = predictor(name);
    let spec = PlantSpec::built_in(name).unwrap();
    let blocks = blocks(&predictor, size, number);
    let seed = seed("drive", None);
    [Reading::Aligned, Reading::Uncached, Reading::Cached]
        .map(|reading| read(&spec, seed, &predictor, blocks, reading))
}

/// The mean time of reading so many whole tracks at a time, one request after another.
fn whole_tracks(number: u64, tracks: u64) -> Nanos {
    let predictor = predictor(ATLAS);
    let track = predictor.track(Sector(0)).unwrap();
    let size = SectorCount((track.end - track.start).get() * tracks);
    let blocks = Blocks {
        from: Sector(0),
        size,
        number,
        service: Nanos::ZERO,
    };
    let spec = PlantSpec::built_in(ATLAS).unwrap();
    read(
        &spec,
        seed("drive", None),
        &predictor,
        blocks,
        Reading::Uncached,
    )
    .mean()
}

#[test]
fn sequential_blocks_take_as_long_as_whole_tracks() {
    const BLOCKS: u64 = 2_000;
    let [_, uncached, cached] = reads(ATLAS, Bytes::from_kib(512), BLOCKS);
    assert!(cached.hits > BLOCKS - BLOCKS / 50, "{} hits", cached.hits);
    // 1,024 sectors are 5.72 tracks of 179: 28 % of the blocks read five tracks, and 72 % six (figure 7.6).
    let five = whole_tracks(BLOCKS, 5).get() as f64;
    let six = whole_tracks(BLOCKS, 6).get() as f64;
    let share_of_six = 1_024.0 / 179.0 - 5.0;
    let whole = five + (six - five) * share_of_six;
    let mean = cached.mean().get() as f64;
    assert!(
        (mean / whole - 1.0).abs() < 0.05,
        "{mean} ns, whole tracks {whole} ns"
    );
    // Without the cache they take about half a rotation longer (figure 7.5).
    let longer = uncached.mean().get() as f64 - mean;
    let rotation = 8.33e6;
    assert!(
        (0.3..0.8).contains(&(longer / rotation)),
        "{longer} ns longer"
    );
    // No request takes longer than promised.
    let service = blocks(&predictor(ATLAS), Bytes::from_kib(512), BLOCKS).service;
    assert!(cached.times.iter().all(|time| *time <= service));
}

#[test]
fn short_blocks_mostly_stay_away_from_the_disk() {
    let [_, uncached, cached] = reads(ATLAS, Bytes::from_kib(1), 20_000);
    let without_disk = cached.times.iter().filter(|time| time.is_zero()).count();
    assert!(without_disk > 19_600, "{without_disk} of 20,000");
    assert!(cached.mean() * 20 < uncached.mean());
}

#[test]
fn drive_that_sends_sectors_in_order_reads_nothing_ahead() {
    let [_, uncached, cached] = reads("hdd-8tb-7200", Bytes::from_mib(1), 200);
    assert_eq!(cached, uncached);
}
