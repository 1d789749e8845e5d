//! Needs of small maps by hand, of random maps against a count block by block, and the cost of computing them.

use std::cell::Cell;
use std::collections::HashMap;

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use sched::profile::{DriveKind, DriveProfile};
use sched::units::BytesPerSecond;
use volume::DiskNumber;

use super::*;
use testkit::cases;

const MIB: u64 = 1 << 20;

fn places(disks: &[u16]) -> Vec<Place> {
    let place = |(index, disk): (usize, &u16)| Place {
        disk: DiskNumber(*disk),
        extent: index as u32,
    };
    disks.iter().enumerate().map(place).collect()
}

fn gaps(disks: &[u16], extent: u64, block: u64, wraps: bool) -> Vec<(usize, usize, u64)> {
    let profile = DriveProfile::conservative(DriveKind::SolidState, SectorCount(1 << 24)).unwrap();
    let predictor = Predictor::new(&profile);
    let path = Path {
        range: 0..extent * disks.len() as u64,
        block: Bytes(block),
        op: Direction::Read,
        wraps,
    };
    let geometry = Geometry::new(Bytes(extent)).unwrap();
    let places = places(disks);
    let needs = path.needs_at(
        geometry,
        |at| Stretch::of(geometry, places[at as usize]),
        512,
        |_| &predictor,
    );
    needs
        .iter()
        .map(|need| (need.disk, need.lane, need.gap))
        .collect()
}

#[test]
fn blocks_in_turn_on_three_disks_put_a_third_on_each() {
    let gaps = gaps(&[0, 1, 2, 0, 1, 2], MIB, MIB, true);
    assert_eq!(gaps, [(0, 0, 3), (1, 0, 3), (2, 0, 3)]);
}

#[test]
fn gap_counts_the_longest_run_on_one_disk() {
    assert_eq!(
        gaps(&[0, 1, 0, 1], MIB, MIB / 4, false),
        [(0, 0, 1), (1, 0, 1)]
    );
    assert_eq!(gaps(&[0, 1, 1, 0], MIB, MIB, false), [(0, 0, 3), (1, 0, 1)]);
}

#[test]
fn gap_includes_the_wrap_if_the_stream_wraps() {
    assert_eq!(gaps(&[0, 1, 1, 0], MIB, MIB, true), [(0, 0, 1), (1, 0, 1)]);
    assert_eq!(
        gaps(&[0, 1, 2, 0], MIB, MIB, false),
        [(0, 0, 3), (1, 0, 4), (2, 0, 4)]
    );
}

#[test]
fn a_block_of_several_extents_has_lanes() {
    let gaps = gaps(&[0, 1, 0, 1], MIB, 4 * MIB, false);
    assert_eq!(gaps, [(0, 0, 1), (0, 1, 1), (1, 0, 1), (1, 1, 1)]);
}

#[test]
fn a_rate_and_its_period_agree() {
    let need = Need {
        disk: 0,
        lane: 0,
        service: Nanos(1),
        gap: 3,
    };
    let (block, period) = (Bytes(MIB), Nanos(123_456_789));
    let rate = need.rate(block, period);
    assert!(need.period(block, rate) >= period);
    assert!(need.period(block, BytesPerSecond(rate.0 + 1)) < period);
}

/// The needs, computed block by block.
fn needs_by_block(
    path: &Path,
    geometry: Geometry,
    places: &[Place],
    sector_bytes: u64,
    predictors: &[Predictor],
) -> Vec<Need> {
    let extent_bytes = geometry.extent_bytes().0;
    let (grain, unit) = match path.op {
        Direction::Read => (SECTOR_BYTES, SECTOR_BYTES),
        Direction::Write => (geometry.chunk_bytes().0, sector_bytes),
    };
    let size = path.range.end - path.range.start;
    let blocks = size.div_ceil(path.block.0);
    // For each lane: its longest service time, and the blocks that have a request in it.
    let mut lanes: HashMap<(usize, usize), (Nanos, Vec<u64>)> = HashMap::new();
    for block in 0..blocks {
        let mut at = path.range.start + block * path.block.0;
        let end = path.range.end.min(at + path.block.0);
        let mut in_block: HashMap<usize, usize> = HashMap::new();
        while at < end {
            let place = places[(at / extent_bytes) as usize];
            let disk = usize::from(place.disk.0);
            let to = end.min((at / extent_bytes + 1) * extent_bytes);
            let widened = to.next_multiple_of(grain) - at / grain * grain;
            let is_whole = at.is_multiple_of(unit) && to.is_multiple_of(unit);
            let start = geometry.sector_of(place);
            let end_sector = start + geometry.extent_sectors();
            let start = start + SectorCount(u64::from(!is_whole));
            let count = SectorCount(widened / SECTOR_BYTES);
            let service = predictors[disk].worst_case(start..end_sector, path.op, count);
            let lane = in_block.entry(disk).or_default();
            let (longest, of) = lanes.entry((disk, *lane)).or_default();
            *longest = service.max(*longest);
            of.push(block);
            *lane += 1;
            at = to;
        }
    }
    let need = |((disk, lane), (service, of)): ((usize, usize), (Nanos, Vec<u64>))| {
        let between = of.windows(2).map(|pair| pair[1] - pair[0]);
        let around = of[0] + blocks - of[of.len() - 1];
        let around = path.wraps.then_some(around);
        // A lane with one request has it again after all blocks at the earliest.
        let gap = between.chain(around).min().unwrap_or(blocks);
        Need {
            disk,
            lane,
            service,
            gap,
        }
    };
    let mut needs: Vec<Need> = lanes.into_iter().map(need).collect();
    needs.sort_unstable_by_key(|need| (need.disk, need.lane));
    needs
}

/// Drives with zones, with and without larger physical sectors, and one without zones.
fn predictors() -> Vec<Predictor> {
    let atlas = DriveProfile::shipped("quantum-atlas-ii").unwrap();
    let mut coarse = atlas.spec().clone();
    coarse.physical_sector_bytes = 4096;
    let flat = DriveProfile::conservative(DriveKind::SolidState, SectorCount(1 << 24)).unwrap();
    let profiles = [atlas, DriveProfile::new(coarse).unwrap(), flat];
    profiles.iter().map(Predictor::new).collect()
}

const BLOCKS_MAX: u64 = 5_000;

/// A path through a volume in whole sectors, with blocks that divide extents, consist of extents, or neither.
fn random_path(rng: &mut StdRng, extent: u64, extents: u64) -> Path {
    let sectors = extents * extent / SECTOR_BYTES;
    let in_extent = extent / SECTOR_BYTES;
    // On a boundary of extents, of larger physical sectors, or of neither.
    let whole = *[in_extent, 8, 1].choose(rng).unwrap();
    let start = rng.random_range(0..sectors) / whole * whole;
    let end = rng.random_range(start + 1..=sectors);
    let least = ((end - start) / BLOCKS_MAX + 1).next_power_of_two();
    let block = match rng.random_range(0..4) {
        0 => least << rng.random_range(0..6),
        1 => in_extent * rng.random_range(1..4),
        2 => rng.random_range(least..least + 64),
        _ => rng.random_range(least..least + 2 * in_extent),
    };
    Path {
        range: start * SECTOR_BYTES..end * SECTOR_BYTES,
        block: Bytes(block * SECTOR_BYTES),
        op: *[Direction::Read, Direction::Write].choose(rng).unwrap(),
        wraps: rng.random(),
    }
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn needs_by_extent_equal_needs_by_block(seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed);
        let predictors = predictors();
        let extent = *[64 << 10, 256 << 10, 4 * MIB, 16 * MIB].choose(&mut rng).unwrap();
        let geometry = Geometry::new(Bytes(extent)).unwrap();
        let extents = rng.random_range(1..40);
        let capacity = predictors.iter().map(|of| of.capacity().bytes().0).min().unwrap();
        let mut place = || Place {
            disk: DiskNumber(rng.random_range(0..predictors.len() as u16)),
            extent: rng.random_range(0..(capacity / extent - 1) as u32),
        };
        let places: Vec<Place> = (0..extents).map(|_| place()).collect();
        let path = random_path(&mut rng, extent, extents);
        let sector_bytes = *[512, 4096].choose(&mut rng).unwrap();
        let stretch = |at: u64| Stretch::of(geometry, places[at as usize]);
        let counted = path.needs_at(geometry, stretch, sector_bytes, |disk| &predictors[disk]);
        let expected = needs_by_block(&path, geometry, &places, sector_bytes, &predictors);
        prop_assert_eq!(counted, expected, "{:?} in extents of {}", path, extent);
    }
}

/// 16 thousand million blocks in a million extents: looking at each block would take too long.
#[test]
fn small_blocks_of_a_large_volume_are_no_more_work_than_its_extents() {
    const EXTENT: u64 = 8 * MIB;
    const EXTENTS: u64 = 1 << 20;
    let predictors = predictors();
    let geometry = Geometry::new(Bytes(EXTENT)).unwrap();
    for op in [Direction::Read, Direction::Write] {
        let path = Path {
            range: 0..EXTENTS * EXTENT,
            block: Bytes(SECTOR_BYTES),
            op,
            wraps: false,
        };
        let looks = Cell::new(0);
        let place = |at: u64| {
            looks.set(looks.get() + 1);
            assert!(looks.get() <= EXTENTS, "more often than there are extents");
            let place = Place {
                disk: DiskNumber((at % 2) as u16),
                extent: at as u32 % 1_000,
            };
            Stretch::of(geometry, place)
        };
        let needs = path.needs_at(geometry, place, 4096, |disk| &predictors[disk]);
        let gaps: Vec<_> = needs
            .iter()
            .map(|need| (need.disk, need.lane, need.gap))
            .collect();
        assert_eq!(gaps, [(0, 0, 1), (1, 0, 1)]);
        assert_eq!(looks.get(), EXTENTS);
    }
}
