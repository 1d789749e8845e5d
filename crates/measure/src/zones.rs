//! Zones, heads and rates of a rotating drive.
//!
//! Tracks are surveyed at places all over the drive; where neighbours differ, the boundary between their zones is
//! bisected to the track. A zone in a profile has whole cylinders, so it may end a little before the boundary:
//! requests there are predicted with the slower zone.
//!
//! Heads are told apart by skews: the one to the next cylinder is longer, and comes once for each cylinder. Where
//! skews show no such order (bands that a head serves alone, serpentine layouts), each track counts as a cylinder.
//! That is an envelope as well: tracks with near numbers are near, and a seek over more tracks takes no less.
//!
//! Where tracks cannot be told apart at all, the rate of long reads stands for the sectors on a track, switches
//! included.

use sched::profile::ZoneSpec;
use sched::request::Op;
use sched::units::{Nanos, Sector, SectorCount};

use crate::exchange::{MeasureError, Sample};
use crate::findings::TracksFound;
use crate::fit;
use crate::probe::Probe;
use crate::stats::median;
use crate::track::{self, Tracks};

/// Tracks surveyed to learn how many sectors they have.
const TRACKS_OF_PLACE: usize = 3;
/// Tracks surveyed to tell heads apart.
const TRACKS_OF_HEADS: usize = 44;
/// A boundary of zones is bisected until it is known to so many tracks, which are then followed one by one.
const CLOSE_TRACKS: u64 = 16;
/// Skews are of two kinds if they differ by so much, in nanoseconds.
const SKEW_KINDS_NS: f64 = 60_000.0;
/// Long reads at a place, for its rate.
const LONG_READS: u64 = 8;
/// A long read lasts so long at least.
const LONG_READ_NS: u64 = 100_000_000;
/// A pair of requests is served up to so often where others come between them.
const TRIES_BEHIND_OTHERS: u32 = 8;
/// Zones of an envelope.
const ENVELOPE_ZONES: u64 = 24;

/// A zone as a profile needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Zone {
    pub(crate) first_sector: u64,
    pub(crate) sectors_per_track: u64,
}

/// Zones and tracks.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Layout {
    pub(crate) zones: Vec<Zone>,
    /// `None`: an envelope.
    pub(crate) tracks: Option<TracksFound>,
    /// True if all tracks that were seen begin where these zones have them: no slips and no spares.
    pub(crate) has_exact_tracks: bool,
    /// Time of a sector in a long read of the fastest zone.
    pub(crate) bus_sector_ns: f64,
    /// The same of a write.
    pub(crate) write_bus_sector_ns: f64,
}

/// Requests that the layout takes, about.
pub(crate) fn requests(probe: &Probe) -> u64 {
    let apart = probe.facts.capacity.get() / probe.effort.places();
    let bisections = 15 * u64::from((apart / 4_096 / CLOSE_TRACKS).max(2).ilog2());
    (probe.effort.places() + bisections) * 50 + 700
}

/// The layout by tracks; `None` if they cannot be told apart at most places.
pub(crate) async fn by_tracks(
    probe: &mut Probe,
    period: f64,
) -> Result<Option<Layout>, MeasureError> {
    let places = probe.effort.places();
    let mut seen: Vec<(u64, u64)> = Vec::new();
    for place in 0..places {
        let at = position(probe, place, places);
        if let Some(tracks) = tracks_near(probe, period, at).await? {
            seen.push((tracks.starts[0], tracks.sectors_per_track()));
        }
    }
    if (seen.len() as u64) * 4 < places * 3 {
        return Ok(None);
    }
    let mut zones = vec![Zone {
        first_sector: 0,
        sectors_per_track: seen[0].1,
    }];
    let mut stack: Vec<_> = seen
        .windows(2)
        .rev()
        .map(|pair| (pair[0], pair[1]))
        .collect();
    while let Some((left, right)) = stack.pop() {
        // A slip shortens a track by a sector.
        if left.1.abs_diff(right.1) <= 1 {
            continue;
        }
        let middle = if right.0 - left.0 > CLOSE_TRACKS * left.1 {
            tracks_near(probe, period, left.0 + (right.0 - left.0) / 2).await?
        } else {
            None
        };
        match middle {
            Some(tracks) if tracks.starts[0] > left.0 && tracks.starts[0] < right.0 => {
                let middle = (tracks.starts[0], tracks.sectors_per_track());
                seen.push(middle);
                stack.push((middle, right));
                stack.push((left, middle));
            }
            _ => zones.push(Zone {
                first_sector: boundary(probe, period, left).await?,
                sectors_per_track: right.1,
            }),
        }
    }
    let zones = falling(zones);
    let tracks = heads(probe, period).await?;
    let switch = tracks.head_switch.get() as f64;
    let bus_sector_ns = long_sectors(probe, period, &zones, switch, Op::Read).await?;
    let write_bus_sector_ns = long_sectors(probe, period, &zones, switch, Op::Write).await?;
    let mut layout = Layout {
        zones,
        tracks: Some(tracks),
        has_exact_tracks: false,
        bus_sector_ns,
        write_bus_sector_ns,
    };
    let (specs, _) = fit::zone_specs(&layout, probe.facts.capacity.get());
    layout.has_exact_tracks = are_exact(&specs, &seen);
    Ok(Some(layout))
}

/// The first track behind `left` that is not as long, or `left` itself if the boundary is not found.
async fn boundary(probe: &mut Probe, period: f64, left: (u64, u64)) -> Result<u64, MeasureError> {
    let near = probe.aligned(left.0.saturating_sub(left.1 / 2));
    let count = CLOSE_TRACKS as usize + 4;
    let tracks = track::survey(probe, period, near, count).await?;
    let starts = tracks.map(|tracks| tracks.starts).unwrap_or_default();
    let pairs = starts.windows(3);
    // Two tracks in a row: one alone may have spare sectors.
    let shorter = |from: u64, to: u64| left.1.abs_diff(to - from) > 1;
    let found = pairs
        .into_iter()
        .find(|three| shorter(three[0], three[1]) && shorter(three[1], three[2]));
    Ok(found.map_or(left.0, |three| three[0]))
}

/// True if all tracks that were seen begin where the zones of a profile have them.
fn are_exact(zones: &[ZoneSpec], seen: &[(u64, u64)]) -> bool {
    let mut begin = 0;
    let mut are_exact = true;
    for zone in zones {
        let end = begin + zone.cylinders * zone.heads * zone.sectors_per_track;
        let here = seen
            .iter()
            .filter(|(start, _)| (begin..end).contains(start));
        for (start, sectors) in here {
            are_exact &= *sectors == zone.sectors_per_track
                && (start - begin).is_multiple_of(zone.sectors_per_track);
        }
        begin = end;
    }
    are_exact
}

fn position(probe: &Probe, place: u64, places: u64) -> u64 {
    // The last place leaves room for some tracks behind it.
    let end = probe.facts.capacity.get() / 200 * 199;
    u64::try_from(u128::from(end) * u128::from(place) / u128::from(places - 1)).unwrap_or(end)
}

/// Some tracks near a sector, or a little behind it.
async fn tracks_near(
    probe: &mut Probe,
    period: f64,
    at: u64,
) -> Result<Option<Tracks>, MeasureError> {
    for again in 0..3 {
        let at = at + again * (probe.facts.capacity.get() / 100_000);
        let near = probe.aligned(at);
        if let Some(tracks) = track::survey(probe, period, near, TRACKS_OF_PLACE).await? {
            return Ok(Some(tracks));
        }
    }
    Ok(None)
}

/// The zones with tracks that do not become longer inwards, which is what a profile can say. Neighbours of the same
/// length are one zone.
fn falling(zones: Vec<Zone>) -> Vec<Zone> {
    let mut falling: Vec<Zone> = Vec::new();
    for zone in zones {
        match falling.last_mut() {
            Some(last) if zone.sectors_per_track >= last.sectors_per_track => {}
            Some(last) if zone.first_sector <= last.first_sector => {
                last.sectors_per_track = zone.sectors_per_track;
            }
            _ => falling.push(zone),
        }
    }
    falling
}

/// Skews and heads, from three places.
async fn heads(probe: &mut Probe, period: f64) -> Result<TracksFound, MeasureError> {
    let mut skews = Vec::new();
    for place in [1, 32, 62] {
        let at = probe.facts.capacity.get() / 64 * place;
        let near = probe.aligned(at);
        if let Some(tracks) = track::survey(probe, period, near, TRACKS_OF_HEADS).await? {
            skews.push(repeated(&tracks.skews, period));
        }
    }
    let counts: Vec<Option<u64>> = skews.iter().map(|skews| heads_of(skews)).collect();
    let agreed = counts.iter().flatten().copied().find(|heads| {
        counts
            .iter()
            .filter(|other| **other == Some(*heads))
            .count()
            * 2
            > counts.len()
    });
    let heads = agreed.unwrap_or(1);
    let all = || skews.iter().flatten().copied();
    let longest = all().fold(0.0, f64::max);
    let threshold = |skews: &[f64]| middle(skews);
    let within = skews
        .iter()
        .flat_map(|skews| skews.iter().filter(|skew| **skew < threshold(skews)))
        .copied()
        .fold(0.0, f64::max);
    let head_switch = if heads > 1 { within } else { longest };
    Ok(TracksFound {
        heads,
        head_switch: Nanos(head_switch.ceil() as u64),
        cylinder_switch: Nanos(longest.ceil() as u64),
        skews,
    })
}

/// The skews, each that no other comes near replaced by the one before: it was seen late.
fn repeated(skews: &[f64], period: f64) -> Vec<f64> {
    let near = |one: f64| {
        let near = skews
            .iter()
            .filter(|other| (one - **other).abs() < period / 40.0);
        near.count()
    };
    let usual = skews.iter().copied().max_by_key(|skew| near(*skew));
    let mut before = usual.unwrap_or_default();
    let each = skews.iter().map(|skew| {
        if near(*skew) > 1 {
            before = *skew;
        }
        before
    });
    each.collect()
}

/// Halfway between the shortest skew and the longest.
fn middle(skews: &[f64]) -> f64 {
    let longest = skews.iter().copied().fold(0.0, f64::max);
    let shortest = skews.iter().copied().fold(f64::MAX, f64::min);
    f64::midpoint(longest, shortest)
}

/// Heads, if each so many-th skew is longer than the others.
fn heads_of(skews: &[f64]) -> Option<u64> {
    let middle = middle(skews);
    let longest = skews.iter().copied().fold(0.0, f64::max);
    if (longest - middle) * 2.0 < SKEW_KINDS_NS {
        return None;
    }
    let long: Vec<usize> = (0..skews.len())
        .filter(|index| skews[*index] > middle)
        .collect();
    let heads = long.windows(2).map(|pair| pair[1] - pair[0]).min()?;
    let is_regular = long.windows(2).all(|pair| pair[1] - pair[0] == heads);
    let covers = long[0] < heads && skews.len() - long[long.len() - 1] <= heads;
    (heads >= 2 && is_regular && covers).then_some(heads as u64)
}

/// Times of a sector in long requests. A bus that is slower than the medium shows in any zone; one that is faster shows
/// nowhere, and then the fastest zone's rate, switches included, stands for it.
async fn long_sectors(
    probe: &mut Probe,
    period: f64,
    zones: &[Zone],
    switch: f64,
    op: Op,
) -> Result<f64, MeasureError> {
    let mut slowest = 0.0_f64;
    for (index, zone) in zones.iter().enumerate() {
        let track = zone.sectors_per_track;
        let begin = zone.first_sector + track;
        let Some(sector) = long_sector(probe, begin, track, op).await? else {
            continue;
        };
        let is_of_bus = sector * track as f64 > 1.03 * (period + switch);
        if index == 0 || is_of_bus {
            slowest = slowest.max(sector);
        }
    }
    if slowest > 0.0 {
        // The slowest of some requests is not the slowest of all.
        Ok(slowest * 1.01)
    } else {
        Ok(period / zones[0].sectors_per_track as f64)
    }
}

/// Time of a sector in requests over some tracks. `None` if the drive takes no such requests.
async fn long_sector(
    probe: &mut Probe,
    begin: u64,
    track: u64,
    op: Op,
) -> Result<Option<f64>, MeasureError> {
    let whole = probe.whole().get();
    let track = (track / whole * whole).max(whole);
    let largest = (probe.facts.request_max.get() / track).min(8);
    let mut steps = Vec::new();
    let mut at = begin;
    for _ in 0..3 {
        let mut times: Vec<f64> = Vec::new();
        for tracks in 2..=largest {
            let count = tracks * track;
            let room = at + 2 * count < probe.facts.capacity.get();
            let start = probe.whole_at(at);
            if !room || (op == Op::Write && !probe.is_writable(start, count + whole)) {
                return Ok(None);
            }
            let (first, sample) = behind(probe, op, start, whole, count).await?;
            times.push(sample.completed.get() as f64 - first.completed.get() as f64);
            at += 12 * track;
        }
        match (op, times.first(), times.last()) {
            // A read may wait once for its first sector, when a buffer has run empty.
            (Op::Read, ..) => steps.extend(times.windows(2).map(|pair| pair[1] - pair[0])),
            // A write may lose a rotation on some tracks.
            (Op::Write, Some(first), Some(last)) if largest > 2 => {
                steps.push((last - first) / (largest - 2) as f64);
            }
            (Op::Write, ..) => {}
        }
    }
    let sector = median(&mut steps) / track as f64;
    Ok((sector > 0.0).then_some(sector))
}

/// A request of `whole` sectors, and one of `count` sectors right behind it. Again if others came between them.
async fn behind(
    probe: &mut Probe,
    op: Op,
    start: Sector,
    whole: u64,
    count: u64,
) -> Result<(Sample, Sample), MeasureError> {
    let mut tries = 0;
    loop {
        let now = probe.now();
        let first = probe.one(op, start, SectorCount(whole), now).await?;
        let next = Sector(start.get() + whole);
        let sample = probe
            .one(op, next, SectorCount(count), first.completed)
            .await?;
        tries += 1;
        if sample.alone || tries == TRIES_BEHIND_OTHERS {
            return Ok((first, sample));
        }
    }
}

/// The layout by rates alone: sectors that pass in a rotation of a long read.
pub(crate) async fn by_rates(probe: &mut Probe, period: f64) -> Result<Layout, MeasureError> {
    let count = long_count(probe).await?;
    let mut zones = Vec::new();
    for zone in 0..ENVELOPE_ZONES {
        let capacity = u128::from(probe.facts.capacity.get());
        let edge = |zone: u64| {
            u64::try_from(capacity * u128::from(zone) / u128::from(ENVELOPE_ZONES))
                .unwrap_or(u64::MAX)
        };
        let within = Sector(edge(zone))..Sector(edge(zone + 1));
        let (mut long, mut short) = (Vec::new(), Vec::new());
        for _ in 0..LONG_READS {
            let unit = probe.facts.unit.get();
            for (count, times) in [(count, &mut long), (unit, &mut short)] {
                let start = probe.place(&within, count, unit);
                let now = probe.now();
                let sample = probe.one(Op::Read, start, SectorCount(count), now).await?;
                times.push(sample.took().get() as f64);
            }
        }
        let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
        let sector = (mean(&long) - mean(&short)).max(1.0) / count as f64;
        // Three percent for the error of the means.
        zones.push(Zone {
            first_sector: within.start.get(),
            sectors_per_track: ((period / sector * 0.97) as u64).max(1),
        });
    }
    let zones = falling(zones);
    let bus_sector_ns = period / zones[0].sectors_per_track as f64;
    let write_bus_sector_ns = long_sectors(probe, period, &zones, 0.0, Op::Write).await?;
    Ok(Layout {
        zones,
        tracks: None,
        has_exact_tracks: false,
        bus_sector_ns,
        write_bus_sector_ns,
    })
}

/// Sectors of a read that lasts long beside positioning.
async fn long_count(probe: &mut Probe) -> Result<u64, MeasureError> {
    let unit = probe.facts.unit.get();
    let end = probe.facts.capacity.get();
    let largest = probe.facts.request_max.get().min(end / 64).max(unit);
    let mut count = 256.min(largest) / unit * unit;
    loop {
        let start = probe.place(&(Sector(0)..Sector(end / 8)), count, unit);
        let now = probe.now();
        let sample = probe
            .one(Op::Read, start, SectorCount(count.max(unit)), now)
            .await?;
        if sample.took().get() >= LONG_READ_NS || count * 2 > largest {
            return Ok(count.max(unit));
        }
        count *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_the_distance_of_longer_skews() {
        let skews: Vec<f64> = (0..44)
            .map(|index| if index % 10 == 3 { 1.0e6 } else { 0.8e6 })
            .collect();
        assert_eq!(heads_of(&skews), Some(10));
        assert_eq!(heads_of(&[0.8e6; 44]), None);
        let mut irregular = skews;
        irregular[20] = 1.0e6;
        assert_eq!(heads_of(&irregular), None);
        // A late read, and the regular skew behind it.
        let mut late = irregular;
        late[20] = 5.0e6;
        assert_eq!(heads_of(&repeated(&late, 8.0e6)), Some(10));
    }

    #[test]
    fn zones_of_a_profile_do_not_become_faster_inwards() {
        let zone = |first_sector, sectors_per_track| Zone {
            first_sector,
            sectors_per_track,
        };
        let zones = vec![
            zone(0, 9),
            zone(10, 7),
            zone(20, 8),
            zone(30, 7),
            zone(40, 5),
        ];
        assert_eq!(falling(zones), [zone(0, 9), zone(10, 7), zone(40, 5)]);
    }
}
