//! Seeks by distance, in both directions, and what writes take longer.

use sched::request::Op;
use sched::units::{Nanos, Sector};

use crate::exchange::MeasureError;
use crate::findings::{RotationFound, SeekFound};
use crate::fit::{self, Cylinders, Figures, SeekBound, WRITE_SETTLE_ASSUMED};
use crate::probe::Probe;
use crate::reach::{Pairs, Reach};
use crate::zones::Layout;

/// Distances grow by this factor.
const DISTANCE_GROWTH: f64 = 1.5;
/// Pairs of places for each distance.
const PAIRS: u32 = 4;

/// Both ways between pairs of places.
struct BothWays {
    reaches: [Reach; 2],
    slowest: f64,
    late: u64,
}

async fn both_ways(
    probe: &mut Probe,
    rotation: &RotationFound,
    op: Op,
    pairs: &[(Sector, Sector)],
    tries: u32,
) -> Result<BothWays, MeasureError> {
    let mut measured = Pairs {
        probe,
        period: rotation.nanos,
        has_cache: rotation.has_cache,
    };
    let reaches = measured.reaches(op, pairs, tries).await?;
    Ok(BothWays {
        slowest: reaches[0].slowest().max(reaches[1].slowest()),
        late: reaches[0].late() + reaches[1].late(),
        reaches,
    })
}

/// Seeks over growing distances, in both directions, and what writes take longer. Also returns the number of late
/// requests.
pub(crate) async fn measure(
    probe: &mut Probe,
    rotation: &RotationFound,
    layout: Layout,
) -> Result<(Figures, Vec<SeekFound>, u64), MeasureError> {
    let capacity = probe.facts.capacity.get();
    let (_, cylinders) = fit::zone_specs(&layout, capacity);
    let tries = probe.effort.seeks();
    let track = layout.zones[0].sectors_per_track;
    let heads = layout.tracks.as_ref().map_or(1, |tracks| tracks.heads);
    let mut late = 0;
    let mut found = Vec::new();
    let mut bounds = Vec::new();
    let mut write_settle = Nanos::ZERO;
    let mut overhead = 0.0_f64;
    // `None`: the same track.
    let distances: Vec<Option<u64>> = std::iter::once(None)
        .chain(std::iter::once(Some(0)).filter(|_| heads > 1))
        .chain(distances(cylinders.count).into_iter().map(Some))
        .collect();
    for distance in distances {
        let mut pairs = pairs(probe, &cylinders, distance, track);
        let reads = both_ways(probe, rotation, Op::Read, &pairs, tries).await?;
        late += reads.late;
        let unit = probe.whole().get();
        pairs.retain(|(from, to)| probe.is_writable(*from, unit) && probe.is_writable(*to, unit));
        if !pairs.is_empty() {
            let written = both_ways(probe, rotation, Op::Write, &pairs, tries / 2).await?;
            late += written.late;
            write_settle = write_settle.max(longer(&written, &reads));
        }
        match distance {
            None => overhead = reads.slowest,
            Some(cylinders) => {
                bounds.push(SeekBound {
                    cylinders,
                    nanos: reads.slowest,
                });
                let both = reads.reaches.iter().zip([true, false]);
                found.extend(both.map(|(reach, inwards)| reach.found(cylinders, inwards)));
            }
        }
    }
    if !probe.facts.has_writes() {
        write_settle = WRITE_SETTLE_ASSUMED;
    } else if !probe.is_writable(Sector(0), capacity) {
        let (within, late_within) = write_settle_within(probe, rotation, tries / 2).await?;
        write_settle = write_settle.max(within);
        late += late_within;
    }
    let figures = Figures {
        period: rotation.nanos,
        layout,
        seeks: bounds,
        overhead,
        write_settle,
        track_reads: false,
        track_writes_tail: false,
        longer: Nanos::ZERO,
    };
    Ok((figures, found, late))
}

/// By how much the slowest write was slower than the slowest read.
fn longer(written: &BothWays, reads: &BothWays) -> Nanos {
    Nanos((written.slowest - reads.slowest).max(0.0) as u64)
}

/// The extra time of writes where only parts of the drive may be written: pairs of places in these parts are
/// read and written. Their distances differ, so each pair is compared with itself alone.
async fn write_settle_within(
    probe: &mut Probe,
    rotation: &RotationFound,
    tries: u32,
) -> Result<(Nanos, u64), MeasureError> {
    let whole = probe.whole().get();
    let (mut longest, mut late) = (Nanos::ZERO, 0);
    for _ in 0..PAIRS {
        let from = probe.writable_place(whole, whole);
        let Some(pair) = from.zip(probe.writable_place(whole, whole)) else {
            break;
        };
        let reads = both_ways(probe, rotation, Op::Read, &[pair], tries).await?;
        let written = both_ways(probe, rotation, Op::Write, &[pair], tries).await?;
        longest = longest.max(longer(&written, &reads));
        late += reads.late + written.late;
    }
    Ok((longest, late))
}

/// Distances from 1 to the full stroke.
fn distances(cylinders: u64) -> Vec<u64> {
    let full = cylinders.saturating_sub(1).max(1);
    let mut distances = vec![1];
    let mut next = 1.0_f64;
    loop {
        next = (next * DISTANCE_GROWTH).max(next + 1.0);
        if next >= full as f64 {
            break;
        }
        distances.push(next as u64);
    }
    if full > 1 {
        distances.push(full);
    }
    distances
}

/// Pairs of sectors so many cylinders apart, at random places; of one track for `None`.
fn pairs(
    probe: &mut Probe,
    cylinders: &Cylinders,
    distance: Option<u64>,
    track: u64,
) -> Vec<(Sector, Sector)> {
    let apart = distance.unwrap_or(0);
    let room = cylinders.count.saturating_sub(apart);
    (0..PAIRS)
        .map(|_| {
            let near = probe.below(room);
            let (start, sectors) = cylinders.first_sector(near);
            let (end, end_sectors) = cylinders.first_sector(near + apart);
            let (from, to) = match distance {
                // A track may begin anywhere: a twentieth of it is on one track, except by chance.
                None => {
                    let from = start + probe.below(sectors);
                    (from, from + 1 + probe.below(track / 20))
                }
                Some(_) => (start + probe.below(sectors), end + probe.below(end_sectors)),
            };
            (probe.whole_at(from), probe.whole_at(to))
        })
        .collect()
}
