//! A profile from what was measured.

use sched::predict::Predictor;
use sched::profile::{
    DriveKind, DriveProfile, FlatSpec, ProfileSpec, RotatingSpec, SeekPoint, ZoneSpec,
};
use sched::request::Op;
use sched::units::{Nanos, SECTOR_BYTES, Sector, SectorCount};

use crate::exchange::MeasureError;
use crate::facts::Facts;
use crate::findings::Compared;
use crate::zones::Layout;

/// Extra time of a write where none was measured. Published values of drives are half of it or less.
pub(crate) const WRITE_SETTLE_ASSUMED: Nanos = Nanos(2_000_000);

/// The longest seek of a distance, overhead included.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct SeekBound {
    pub(crate) cylinders: u64,
    pub(crate) nanos: f64,
}

/// Figures of a rotating drive.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Figures {
    pub(crate) period: f64,
    pub(crate) layout: Layout,
    /// From 0 cylinders (another head) to the full stroke, ascending.
    pub(crate) seeks: Vec<SeekBound>,
    /// Time until a read of the same track may begin.
    pub(crate) overhead: f64,
    pub(crate) write_settle: Nanos,
    pub(crate) track_reads: bool,
    pub(crate) track_writes_tail: bool,
    /// Added to every request.
    pub(crate) longer: Nanos,
}

/// Cylinders of the profile: positions of a track as the predictor counts them.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Cylinders {
    /// First sector, first cylinder, sectors of a cylinder.
    zones: Vec<(u64, u64, u64)>,
    pub(crate) count: u64,
}

impl Cylinders {
    /// The first sector of a cylinder, and the sectors of it.
    pub(crate) fn first_sector(&self, cylinder: u64) -> (u64, u64) {
        let zone = self.zones.partition_point(|zone| zone.1 <= cylinder) - 1;
        let (sector, first, sectors) = self.zones[zone];
        (sector + (cylinder - first) * sectors, sectors)
    }
}

/// The zones of a profile. Each ends with a whole cylinder at or before the place where its tracks were last seen.
pub(crate) fn zone_specs(layout: &Layout, capacity: u64) -> (Vec<ZoneSpec>, Cylinders) {
    let heads = layout.tracks.as_ref().map_or(1, |tracks| tracks.heads);
    let mut specs: Vec<ZoneSpec> = Vec::new();
    let mut cylinders = Cylinders {
        zones: Vec::new(),
        count: 0,
    };
    let mut begin = 0;
    for (index, zone) in layout.zones.iter().enumerate() {
        let sectors = heads * zone.sectors_per_track;
        let next = layout.zones.get(index + 1);
        let count = match next {
            Some(next) => next.first_sector.saturating_sub(begin) / sectors,
            None => (capacity.saturating_sub(begin)).div_ceil(sectors).max(1),
        };
        if count == 0 {
            continue;
        }
        specs.push(ZoneSpec {
            first_cylinder: cylinders.count,
            cylinders: count,
            heads,
            sectors_per_track: zone.sectors_per_track,
        });
        cylinders.zones.push((begin, cylinders.count, sectors));
        cylinders.count += count;
        begin += count * sectors;
    }
    (specs, cylinders)
}

impl Figures {
    /// The profile.
    pub(crate) fn profile(&self, facts: &Facts) -> Result<DriveProfile, MeasureError> {
        let micros = |nanos: f64| (nanos.max(0.0) / 1e3).ceil() as u64;
        let (zones, cylinders) = zone_specs(&self.layout, facts.capacity.get());
        let tracks = self.layout.tracks.as_ref();
        let switch = |of: Option<Nanos>| of.map_or(0, |nanos| micros(nanos.get() as f64));
        let head_switch = switch(tracks.map(|tracks| tracks.head_switch));
        let cylinder_switch = switch(tracks.map(|tracks| tracks.cylinder_switch));
        let rate =
            |sector_ns: f64| ((SECTOR_BYTES as f64 * 1e9 / sector_ns) as u64).max(SECTOR_BYTES);
        let bus = rate(self.layout.bus_sector_ns);
        let write_bus = rate(self.layout.write_bus_sector_ns);
        let spec = ProfileSpec {
            name: facts.name.clone(),
            kind: DriveKind::Rotating,
            measured: facts.has_writes(),
            sources: Vec::new(),
            outstanding: 1,
            capacity_sectors: facts.capacity.get(),
            physical_sector_bytes: physical_bytes(facts),
            widened_percent: 0,
            measurement: None,
            trust_worst_case: false,
            rotating: Some(RotatingSpec {
                rotation_us: micros(self.period),
                command_overhead_us: micros(self.overhead + self.longer.get() as f64),
                head_switch_us: head_switch,
                cylinder_switch_us: cylinder_switch.max(head_switch),
                write_settle_us: micros(self.write_settle.get() as f64),
                bus_bytes_per_second: bus,
                write_bus_bytes_per_second: (write_bus < bus).then_some(write_bus),
                exact_tracks: self.layout.has_exact_tracks,
                track_reads: self.track_reads,
                track_writes_tail: self.track_writes_tail,
                retry_rotations: 0,
                zones,
                seek: self.seek_points(cylinders.count, head_switch),
            }),
            flat: None,
            worst_case: Vec::new(),
        };
        DriveProfile::new(spec).map_err(|error| MeasureError::NoProfile(error.to_string()))
    }

    /// The curve of the profile. Seeks take longer with the distance, ever more slowly, so a chord lies below the
    /// curve: by an eighth of its rise at most where distances grow by a half from point to point.
    fn seek_points(&self, cylinders: u64, head_switch_us: u64) -> Vec<SeekPoint> {
        let mut points: Vec<SeekPoint> = Vec::new();
        let mut longest = 0.0_f64;
        let seeks = smooth(&self.seeks);
        for (index, bound) in seeks.iter().enumerate() {
            longest = longest.max(bound.nanos);
            let next = seeks.get(index + 1).filter(|_| bound.cylinders > 0);
            let rise = next.map_or(0.0, |next| (next.nanos - longest).max(0.0));
            let nanos = longest + rise / 8.0 - self.overhead;
            let us = (nanos.max(0.0) / 1e3).ceil() as u64;
            // No seek takes less than a switch, which is how the predictor begins the curve without a point at 0.
            let least = points.last().map_or(head_switch_us, |point| point.us);
            let us = match bound.cylinders {
                0 => us,
                _ => us.max(least),
            };
            points.push(SeekPoint {
                cylinders: bound.cylinders,
                us,
            });
        }
        if let Some(last) = points.last_mut() {
            last.cylinders = last.cylinders.max(cylinders.saturating_sub(1));
        }
        points
    }
}

/// The bounds, none of them below the straight line between its neighbours: the curve is concave, and a bound below
/// the line is of a distance whose slowest seek was not seen.
fn smooth(seeks: &[SeekBound]) -> Vec<SeekBound> {
    let mut smooth = seeks.to_vec();
    for (index, three) in seeks.windows(3).enumerate() {
        let [before, bound, after] = [three[0], three[1], three[2]];
        if before.cylinders == 0 {
            continue;
        }
        let part = (bound.cylinders - before.cylinders) as f64
            / (after.cylinders - before.cylinders) as f64;
        let line = before.nanos + (after.nanos - before.nanos) * part;
        smooth[index + 1].nanos = bound.nanos.max(line);
    }
    smooth
}

fn physical_bytes(facts: &Facts) -> u32 {
    u32::try_from(facts.physical.get() * SECTOR_BYTES).unwrap_or(512)
}

/// The profile of a flat drive.
pub(crate) fn flat_profile(
    facts: &Facts,
    flat: FlatSpec,
    outstanding: u32,
) -> Result<DriveProfile, MeasureError> {
    let spec = ProfileSpec {
        name: facts.name.clone(),
        kind: if facts.is_file {
            DriveKind::File
        } else {
            DriveKind::SolidState
        },
        measured: facts.has_writes(),
        sources: Vec::new(),
        outstanding,
        capacity_sectors: facts.capacity.get(),
        physical_sector_bytes: physical_bytes(facts),
        widened_percent: 0,
        measurement: None,
        trust_worst_case: false,
        rotating: None,
        flat: Some(flat),
        worst_case: Vec::new(),
    };
    DriveProfile::new(spec).map_err(|error| MeasureError::NoProfile(error.to_string()))
}

/// A served request, to be compared with predictions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Served {
    pub(crate) op: Op,
    pub(crate) start: Sector,
    pub(crate) count: SectorCount,
    pub(crate) head: Option<Sector>,
    pub(crate) took: Nanos,
}

impl Served {
    pub(crate) fn compared(&self, predictor: &Predictor) -> Compared {
        Compared {
            op: self.op,
            start: self.start,
            count: self.count,
            head: self.head,
            predicted: predictor.predict(self.head, self.op, self.start, self.count),
            actual: self.took,
            widened_since: false,
        }
    }
}

/// The extra time with which a model covers all samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Cover {
    read: Nanos,
    write: Nanos,
    late: u64,
    /// Sum of the predictions, cover included.
    cost: u128,
}

impl Cover {
    /// True if the model explains the samples better: it leaves less to cover by a hundredth of a rotation, or as much
    /// and predicts shorter times. A model that covers by a constant what it does not explain does not hold for
    /// requests unlike the samples.
    fn is_better_than(&self, other: &Self, rotation: Nanos) -> bool {
        let step = (rotation.get() / 100).max(1);
        let key = |cover: &Self| {
            let covered = cover.read.get() + cover.write.get();
            (cover.late, covered / step, cover.cost)
        };
        key(self) < key(other)
    }
}

fn cover(predictor: &Predictor, samples: &[Served], late: Nanos) -> Cover {
    let mut cover = Cover::default();
    let mut predicted = [Nanos::ZERO; 2];
    let mut counts = [0_u64; 2];
    for sample in samples {
        let compared = sample.compared(predictor);
        let excess = compared.actual.saturating_sub(compared.predicted);
        if excess > late {
            cover.late += 1;
            continue;
        }
        let (kind, most) = match sample.op {
            Op::Read => (0, &mut cover.read),
            Op::Write => (1, &mut cover.write),
        };
        *most = (*most).max(excess);
        predicted[kind] += compared.predicted;
        counts[kind] += 1;
    }
    cover.write = cover.write.max(cover.read);
    for (kind, extra) in [(0, cover.read), (1, cover.write)] {
        let extra = u128::from(extra.get()) * u128::from(counts[kind]);
        cover.cost += u128::from(predicted[kind].get()) + extra;
    }
    cover
}

/// Takes the model with the shortest predictions among those that cover all samples, and makes requests as much
/// longer as it needs to. Returns the number of late requests: those that are more than a rotation over the model.
pub(crate) fn calibrate(
    figures: &mut Figures,
    facts: &Facts,
    samples: &[Served],
) -> Result<u64, MeasureError> {
    let late = Nanos(figures.period as u64);
    // Without a write the samples do not tell the two models of writes apart: the longer one is taken.
    let has_writes = samples.iter().any(|sample| sample.op == Op::Write);
    let mut best: Option<(Figures, Cover)> = None;
    for model in 0..4 {
        let mut tried = figures.clone();
        tried.track_reads = model & 1 != 0;
        tried.track_writes_tail = model & 2 != 0 || !has_writes;
        let predictor = Predictor::new(&tried.profile(facts)?);
        let cover = cover(&predictor, samples, late);
        let is_better = best
            .as_ref()
            .is_none_or(|(_, known)| cover.is_better_than(known, late));
        if is_better {
            best = Some((tried, cover));
        }
    }
    let Some((mut tried, cover)) = best else {
        return Ok(0);
    };
    tried.longer += cover.read;
    tried.write_settle += cover.write.saturating_sub(cover.read);
    *figures = tried;
    Ok(cover.late)
}
