//! Tracks near a sector: where they begin, how many sectors they have, and how they are skewed.
//!
//! The completion of a read of one sector tells at which angle the sector lies. Along a track the angle grows by
//! the same amount for each sector. At the boundary of two tracks it grows by the skew as well, which is many
//! times the noise of a measurement. So a boundary is found by bisection, to the sector: is the angle what it would
//! be on the track of the sectors before?
//!
//! Angles are compared only between reads that follow each other closely, so that an error of the period of some
//! parts per million does not matter. A read whose angle fits neither answer is made again.

use sched::units::Sector;

use crate::exchange::MeasureError;
use crate::probe::Probe;
use crate::stats::{median, wrapped};

/// Points along the tracks at first; they are an eighth of a track apart.
const POINTS: u64 = 20;
/// A read whose angle fits nothing is made so often.
const TRIES: u32 = 4;
/// No track has more sectors.
const TRACK_MAX: u64 = 1 << 16;
/// The shortest skew that is told from noise, in nanoseconds.
const SKEW_MIN_NS: f64 = 60_000.0;

/// Consecutive tracks.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Tracks {
    /// First sectors of the tracks; the last is that behind the last track.
    pub(crate) starts: Vec<u64>,
    /// Skew at each boundary from the second on, in nanoseconds.
    pub(crate) skews: Vec<f64>,
}

impl Tracks {
    /// Sectors on most of the tracks. Slips and spares make a track shorter, so it is the longest.
    pub(crate) fn sectors_per_track(&self) -> u64 {
        let lengths = self.starts.windows(2).map(|pair| pair[1] - pair[0]);
        lengths.max().unwrap_or(0)
    }
}

/// A sector and its angle, as the time of its passing.
#[derive(Clone, Copy)]
struct Seen {
    sector: u64,
    time: f64,
}

/// Reads angles.
struct Angles<'a> {
    probe: &'a mut Probe,
    period: f64,
    /// Time of a sector on the present track.
    sector: f64,
    /// The jump of the angle at a boundary that is looked for.
    jump: f64,
    /// The smallest jump so far.
    least_jump: f64,
}

impl Angles<'_> {
    async fn see(&mut self, sector: u64) -> Result<Option<Seen>, MeasureError> {
        for _ in 0..TRIES {
            let sample = self.probe.read(Sector(sector)).await?;
            if sample.error.is_none() {
                let time = sample.completed.get() as f64;
                return Ok(Some(Seen { sector, time }));
            }
        }
        Ok(None)
    }

    /// By how much the angle of `to` differs from what it would be on the track of `from`.
    fn off(&self, from: Seen, to: Seen) -> f64 {
        let along = (to.sector as f64 - from.sector as f64) * self.sector;
        wrapped(to.time - from.time - along, self.period)
    }

    /// Reads a sector that is on the track of `left`, or behind the boundary. `None` if it fits neither.
    async fn side(
        &mut self,
        left: Seen,
        sector: u64,
    ) -> Result<Option<(Seen, Side)>, MeasureError> {
        for _ in 0..TRIES {
            let Some(seen) = self.see(sector).await? else {
                return Ok(None);
            };
            let off = self.off(left, seen);
            let tolerance = (self.jump * 0.4).min(self.period / 8.0);
            if off.abs() < tolerance {
                return Ok(Some((seen, Side::Left)));
            }
            if wrapped(off - self.jump, self.period).abs() < tolerance {
                return Ok(Some((seen, Side::Right)));
            }
        }
        Ok(None)
    }

    /// The first sector behind the boundary between `left` and `right`.
    async fn bisect(&mut self, mut left: Seen, right: u64) -> Result<Option<u64>, MeasureError> {
        let unit = self.probe.facts.unit.get();
        let mut right = right;
        while right - left.sector > unit {
            let middle = (left.sector + (right - left.sector) / 2) / unit * unit;
            let middle = middle.max(left.sector + unit);
            match self.side(left, middle).await? {
                Some((seen, Side::Left)) => left = seen,
                Some((_, Side::Right)) => right = middle,
                None => return Ok(None),
            }
        }
        Ok(Some(right))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

/// The tracks from the first boundary behind `near` on: `count` of them, or as many as are found, at least two. `None`
/// where no boundary is found.
pub(crate) async fn survey(
    probe: &mut Probe,
    period: f64,
    near: Sector,
    count: usize,
) -> Result<Option<Tracks>, MeasureError> {
    let unit = probe.facts.unit.get();
    let near = near.get() / unit * unit;
    let mut angles = Angles {
        probe,
        period,
        sector: 0.0,
        jump: 0.0,
        least_jump: f64::MAX,
    };
    let Some(mut length) = rough_length(&mut angles, near).await? else {
        return Ok(None);
    };
    for _ in 0..3 {
        let Some(first) = first_boundary(&mut angles, near, length).await? else {
            return Ok(None);
        };
        let found = period / angles.sector;
        // The points were too far apart or too close: again with the better length.
        if (found / length as f64 - 1.0).abs() > 0.25 {
            length = (found as u64).clamp(8 * unit, TRACK_MAX);
            continue;
        }
        let Some(boundary) = angles.bisect(first.0, first.1).await? else {
            return Ok(None);
        };
        return follow(&mut angles, boundary, count).await;
    }
    Ok(None)
}

/// About how many sectors a track has: the distance at which the angle has moved by a sixth of a rotation.
async fn rough_length(angles: &mut Angles<'_>, near: u64) -> Result<Option<u64>, MeasureError> {
    let unit = angles.probe.facts.unit.get();
    let mut distance = unit;
    while distance < TRACK_MAX {
        let (Some(from), Some(to)) = (angles.see(near).await?, angles.see(near + distance).await?)
        else {
            return Ok(None);
        };
        let moved = angles.off(from, to);
        if moved > angles.period / 6.0 || moved < -angles.period / 4.0 {
            let moved = moved.rem_euclid(angles.period);
            let length = distance as f64 * angles.period / moved;
            return Ok(Some((length as u64).clamp(8 * unit, TRACK_MAX)));
        }
        distance *= 2;
    }
    Ok(None)
}

/// The last sector known to be before the first boundary behind `near`, and the first known to be behind it. Sets the
/// time of a sector and the jump of the angle.
async fn first_boundary(
    angles: &mut Angles<'_>,
    near: u64,
    length: u64,
) -> Result<Option<(Seen, u64)>, MeasureError> {
    let unit = angles.probe.facts.unit.get();
    let apart = (length / 8 / unit * unit).max(unit);
    let mut points: Vec<Seen> = Vec::new();
    for point in 0..POINTS {
        let Some(seen) = angles.see(near + point * apart).await? else {
            return Ok(None);
        };
        points.push(seen);
    }
    let steps: Vec<f64> = points
        .windows(2)
        .map(|pair| (pair[1].time - pair[0].time).rem_euclid(angles.period))
        .collect();
    let usual = median(&mut steps.clone());
    let tolerance = (usual / 8.0).max(SKEW_MIN_NS / 2.0);
    let is_usual = |step: &f64| (step - usual).abs() < tolerance;
    // The first run of at least three usual steps with a boundary behind it.
    let mut begin = 0;
    while begin < steps.len() {
        let run = steps[begin..]
            .iter()
            .take_while(|step| is_usual(step))
            .count();
        let end = begin + run;
        if run >= 3 && end < steps.len() {
            let passed: f64 = steps[begin..end].iter().sum();
            angles.sector = passed / (run as u64 * apart) as f64;
            let jump = angles.off(points[end], points[end + 1]);
            angles.jump = jump.rem_euclid(angles.period);
            if angles.jump >= SKEW_MIN_NS {
                angles.least_jump = angles.jump;
                return Ok(Some((points[end], points[end + 1].sector)));
            }
        }
        begin = end + 1;
    }
    Ok(None)
}

/// Follows the boundaries from `boundary` on.
async fn follow(
    angles: &mut Angles<'_>,
    boundary: u64,
    count: usize,
) -> Result<Option<Tracks>, MeasureError> {
    let unit = angles.probe.facts.unit.get();
    let end = angles.probe.facts.capacity.get();
    let mut tracks = Tracks {
        starts: vec![boundary],
        skews: Vec::new(),
    };
    let mut length = (angles.period / angles.sector).round() as u64;
    while tracks.starts.len() <= count {
        let begin = tracks.starts[tracks.starts.len() - 1];
        let expected = (begin + length) / unit * unit;
        if expected + length > end {
            break;
        }
        let Some(left) = angles.see(begin).await? else {
            break;
        };
        let Some((next, time)) = next_boundary(angles, left, expected).await? else {
            break;
        };
        tracks.starts.push(next);
        length = next - begin;
        angles.sector = angles.period / length.max(1) as f64;
        let skew = wrapped(time - left.time, angles.period).rem_euclid(angles.period);
        angles.jump = skew;
        angles.least_jump = angles.least_jump.min(skew.max(SKEW_MIN_NS));
        tracks.skews.push(skew);
    }
    // Behind a place that cannot be read as expected, the tracks before it count.
    Ok((tracks.starts.len() > 2).then_some(tracks))
}

/// The boundary behind a track that begins with `left`, and the passing of the first sector behind it.
async fn next_boundary(
    angles: &mut Angles<'_>,
    left: Seen,
    expected: u64,
) -> Result<Option<(u64, f64)>, MeasureError> {
    let unit = angles.probe.facts.unit.get();
    let is_new = |angles: &Angles<'_>, seen: Seen| {
        let off = angles.off(left, seen);
        off.abs() > 0.4 * angles.least_jump
    };
    let (Some(before), Some(behind)) = (
        angles.see(expected - unit).await?,
        angles.see(expected).await?,
    ) else {
        return Ok(None);
    };
    if !is_new(angles, before) && is_new(angles, behind) {
        return Ok(Some((expected, behind.time)));
    }
    // The track is longer or shorter than the one before.
    let length = expected - left.sector;
    let reach = (length / 8).max(2 * unit) / unit * unit;
    // It may be of another zone.
    let middle = (left.sector + length / 2) / unit * unit;
    let Some(half) = angles.see(middle.max(left.sector + unit)).await? else {
        return Ok(None);
    };
    let passed = (half.time - left.time).rem_euclid(angles.period);
    angles.sector = passed / (half.sector - left.sector) as f64;
    let Some(far) = angles.see(expected + reach).await? else {
        return Ok(None);
    };
    angles.jump = angles.off(left, far).rem_euclid(angles.period);
    if angles.jump < SKEW_MIN_NS {
        return Ok(None);
    }
    let Some(boundary) = angles.bisect(left, expected + reach).await? else {
        return Ok(None);
    };
    let seen = angles.see(boundary).await?;
    Ok(seen.map(|seen| (boundary, seen.time)))
}
