//! The order of the parts, the requests to which the model is fitted, and validation.

use sched::predict::Predictor;
use sched::profile::DriveProfile;
use sched::request::Op;
use sched::units::{Nanos, SECTOR_BYTES, Sector, SectorCount};

use crate::exchange::{MeasureError, Measured, Request};
use crate::findings::{Compared, Findings, Method, RotationFound, Validation, ZoneFound};
use crate::fit::{self, Figures, Served};
use crate::probe::Probe;
use crate::{flat, notes, rotation, seeks, zones};

/// A smaller drive has no room for the requests.
const SECTORS_MIN: u64 = 1 << 14;
/// This part of a rotation is added to all requests before validation. The slowest of some thousand requests is not the
/// slowest of all, and without it validation would start again several times, and be exceeded later.
const MARGIN_PARTS: u64 = 6;
/// The same of a drive with a cache, whose reading ahead and writing behind no model explains.
const MARGIN_PARTS_CACHE: u64 = 2;
/// An excess widens the profile by so much more than itself.
const WIDEN_PERCENT: u64 = 125;
/// A profile that has been widened so often does not settle.
const WIDENED_MAX: u32 = 100;
/// Slowest and closest requests that are kept.
const LISTED: usize = 20;
/// Classes of margins, of a millisecond.
const MARGINS: usize = 200;

/// Measures a drive: the whole procedure.
pub(crate) async fn measure(mut probe: Probe) -> Result<Measured, MeasureError> {
    let sectors = probe.facts.capacity.get();
    if sectors < SECTORS_MIN {
        return Err(MeasureError::TooSmall {
            sectors,
            min: SECTORS_MIN,
        });
    }
    let validated = probe.effort.validated();
    probe.begin("rotation", rotation::REQUESTS, validated * 2);
    match rotation::find(&mut probe).await? {
        Some(found) => rotating(&mut probe, found).await,
        None => flat::measure(&mut probe).await,
    }
}

async fn rotating(probe: &mut Probe, found: RotationFound) -> Result<Measured, MeasureError> {
    let effort = probe.effort;
    let later = effort.validated() + u64::from(effort.calibrated());
    let seek_requests = u64::from(effort.seeks()) * 45;
    probe.begin(
        "zones and tracks",
        zones::requests(probe),
        seek_requests + later,
    );
    let by_tracks = if found.has_cache {
        None
    } else {
        zones::by_tracks(probe, found.nanos).await?
    };
    let layout = match by_tracks {
        Some(layout) => layout,
        None => zones::by_rates(probe, found.nanos).await?,
    };
    probe.begin("seeks", seek_requests, later);
    let (mut figures, mut seeks, mut late) = seeks::measure(probe, &found, layout).await?;
    probe.begin(
        "fitting",
        u64::from(effort.calibrated()),
        effort.validated(),
    );
    late += calibrate(probe, &mut figures).await?;
    let parts = if found.has_cache {
        MARGIN_PARTS_CACHE
    } else {
        MARGIN_PARTS
    };
    figures.longer += Nanos(figures.period as u64 / parts);
    let mut checked = Checked::new(&figures, probe)?;
    probe.begin("validation", effort.validated(), 0);
    while let Some(excess) = checked.run(probe, 1).await? {
        let longer = Nanos(excess.over.get() * WIDEN_PERCENT / 100);
        match excess.op {
            Op::Read => figures.longer += longer,
            Op::Write => figures.write_settle += longer,
        }
        checked.widened(figures.profile(&probe.facts)?, longer);
        probe.begin("validation", effort.validated(), 0);
    }
    let points = &figures.seeks;
    for seek in &mut seeks {
        let bound = points
            .iter()
            .find(|bound| bound.cylinders >= seek.cylinders);
        seek.bound = Nanos(bound.map_or(0.0, |bound| bound.nanos) as u64) + figures.longer;
    }
    let mut findings = Findings {
        method: if figures.layout.tracks.is_some() {
            Method::Geometry
        } else {
            Method::Envelope
        },
        rotation: Some(found),
        zones: zones_found(&figures),
        tracks: figures.layout.tracks.clone(),
        seeks,
        depths: Vec::new(),
        overhead: Nanos(figures.overhead as u64) + figures.longer,
        write_settle: probe.facts.has_writes().then_some(figures.write_settle),
        reads_whole_tracks: figures.track_reads,
        writes_whole_last_track: figures.track_writes_tail,
        late,
        served: probe.served(),
        after_others: probe.after_others(),
        failed: probe.failed(),
        failures: std::mem::take(&mut probe.failures),
        validation: checked.validation,
        notes: Vec::new(),
    };
    findings.notes = notes::notes(&findings, probe.facts.is_device);
    Ok(Measured {
        profile: checked.profile,
        findings,
    })
}

fn zones_found(figures: &Figures) -> Vec<ZoneFound> {
    let switch = figures
        .layout
        .tracks
        .as_ref()
        .map_or(0.0, |tracks| tracks.head_switch.get() as f64);
    let zones = figures.layout.zones.iter().map(|zone| ZoneFound {
        first_sector: zone.first_sector,
        sectors_per_track: zone.sectors_per_track,
        bytes_per_second: (zone.sectors_per_track * SECTOR_BYTES) as f64 * 1e9
            / (figures.period + switch),
    });
    zones.collect()
}

/// Serves requests of all kinds and fits the model to them.
async fn calibrate(probe: &mut Probe, figures: &mut Figures) -> Result<u64, MeasureError> {
    let mut kinds = Kinds::new(probe, &figures.profile(&probe.facts)?);
    // Long requests show the errors of a model best.
    kinds.large_percent = 50;
    let mut samples = Vec::new();
    for _ in 0..probe.effort.calibrated() {
        let (request, head) = kinds.next(probe);
        let sample = probe.serve(&[request], 1).await?[0];
        if sample.error.is_none() {
            samples.push(Served {
                op: request.op,
                start: request.start,
                count: request.count,
                head: head.filter(|_| sample.alone),
                took: sample.took(),
            });
        }
    }
    fit::calibrate(figures, &probe.facts, &samples)
}

/// Requests of the kinds that the server issues, at random places.
pub(crate) struct Kinds {
    head: Option<Sector>,
    align: u64,
    /// The largest requests: of pieces, and of blocks of streams.
    piece: u64,
    block: u64,
    /// The largest of the small requests.
    small: u64,
    wait_max: u64,
    /// Of a hundred requests, so many are pieces and blocks of any size up to the largest.
    large_percent: u64,
}

impl Kinds {
    pub(crate) fn new(probe: &Probe, profile: &DriveProfile) -> Self {
        let predictor = Predictor::new(profile);
        let align = probe.facts.physical.get().max(probe.facts.unit.get());
        let most = (probe.facts.request_max.get()).min(probe.facts.capacity.get() / 64) / align;
        let most = (most * align).max(align);
        let piece = predictor.piece_sectors(predictor.zone_count() - 1, predictor.piece_limit());
        Self {
            head: None,
            align,
            piece: piece.get().clamp(align, most),
            large_percent: 20,
            small: 128.clamp(align, most),
            block: (predictor.extent_bytes().get() / SECTOR_BYTES).clamp(align, most),
            wait_max: 2 * profile
                .spec()
                .rotating
                .as_ref()
                .map_or(0, |rotating| rotating.rotation_us * 1_000),
        }
    }

    /// A request, and where the head is before it.
    pub(crate) fn next(&mut self, probe: &mut Probe) -> (Request, Option<Sector>) {
        let align = self.align;
        let (least, largest) = match probe.below(100) {
            kind if kind < self.large_percent * 7 / 10 => (align, self.piece),
            kind if kind < self.large_percent => (self.block / 8, self.block),
            kind if kind < self.large_percent + 40 => (align, self.piece.min(2_048)),
            _ => (align, self.small),
        };
        let largest = largest.max(align);
        // All powers of two are as likely, with lengths between them.
        let least = u64::from((least / align).max(1).ilog2());
        let power = least + probe.below(u64::from((largest / align).ilog2()) + 1 - least);
        let count = match probe.below(2) {
            0 => align << power,
            _ => (1 + probe.below(1 << power)) * align,
        };
        let count = count.min(largest);
        let end = probe.facts.capacity.get();
        let op = if probe.facts.has_writes() && probe.below(2) == 0 {
            Op::Write
        } else {
            Op::Read
        };
        let anywhere = probe.place(&(Sector(0)..Sector(end)), count, align);
        let near = self.head.map_or(anywhere, |head| {
            let at = match probe.below(2) {
                0 => head.get() + 1,
                _ => (head.get() + probe.below(20_000)).saturating_sub(10_000),
            };
            Sector(at.min(end - count) / align * align)
        });
        let mut start = if probe.below(5) == 0 { near } else { anywhere };
        let mut op = op;
        if op == Op::Write && !probe.is_writable(start, count) {
            match probe.writable_place(count, align) {
                Some(place) => start = place,
                None => op = Op::Read,
            }
        }
        let wait = if probe.below(4) == 0 {
            Nanos(probe.below(self.wait_max + 1))
        } else {
            Nanos::ZERO
        };
        let request = Request {
            op,
            start,
            count: SectorCount(count),
            not_before: probe.now() + wait,
        };
        let head = self.head.replace(Sector(start.get() + count - 1));
        (request, head)
    }
}

/// A request that took longer than predicted.
pub(crate) struct Excess {
    pub(crate) op: Op,
    pub(crate) over: Nanos,
}

/// Validation under way.
pub(crate) struct Checked {
    pub(crate) profile: DriveProfile,
    predictor: Predictor,
    kinds: Kinds,
    pub(crate) validation: Validation,
    predicted: u128,
    actual: u128,
}

impl Checked {
    fn new(figures: &Figures, probe: &Probe) -> Result<Self, MeasureError> {
        Ok(Self::of(figures.profile(&probe.facts)?, probe))
    }

    pub(crate) fn of(profile: DriveProfile, probe: &Probe) -> Self {
        Self {
            predictor: Predictor::new(&profile),
            kinds: Kinds::new(probe, &profile),
            validation: Validation {
                margin_ms: vec![0; MARGINS],
                ..Validation::default()
            },
            profile,
            predicted: 0,
            actual: 0,
        }
    }

    /// Goes on with a wider profile.
    pub(crate) fn widened(&mut self, profile: DriveProfile, longer: Nanos) {
        self.predictor = Predictor::new(&profile);
        self.profile = profile;
        let validation = &mut self.validation;
        validation.widened += 1;
        validation.widened_by += longer;
        (validation.requests, validation.reads) = (0, 0);
        validation.closest.clear();
        for request in &mut validation.slowest {
            request.widened_since = true;
        }
        validation.margin_ms = vec![0; MARGINS];
        (self.predicted, self.actual) = (0, 0);
    }

    /// Serves requests until one takes longer than predicted, or enough did not (`None`).
    pub(crate) async fn run(
        &mut self,
        probe: &mut Probe,
        depth: u32,
    ) -> Result<Option<Excess>, MeasureError> {
        while self.validation.requests < probe.effort.validated() {
            // Where the position of the head matters, each request is a step, so that it is known.
            let is_rotating = self.profile.spec().rotating.is_some();
            let batch = if is_rotating { 1 } else { 16 * depth };
            let requests: Vec<_> = (0..batch).map(|_| self.kinds.next(probe)).collect();
            let wanted: Vec<Request> = requests.iter().map(|(request, _)| *request).collect();
            let samples = probe.serve(&wanted, depth).await?;
            let mut excess: Option<Excess> = None;
            for ((request, head), sample) in requests.iter().zip(samples) {
                if sample.error.is_some() {
                    continue;
                }
                let served = Served {
                    op: request.op,
                    start: request.start,
                    count: request.count,
                    head: head.filter(|_| sample.alone),
                    took: sample.took(),
                };
                let compared = served.compared(&self.predictor);
                // Of a request after others it is not known where the head was. Its prediction is the longest from
                // anywhere, which shows little.
                let counts = sample.alone || !is_rotating;
                let over = self.note(compared);
                if counts && over.is_zero() {
                    self.count(compared);
                }
                if !over.is_zero() && excess.as_ref().is_none_or(|known| known.over < over) {
                    excess = Some(Excess {
                        op: request.op,
                        over,
                    });
                }
            }
            if excess.is_some() {
                if self.validation.widened >= WIDENED_MAX {
                    return Err(MeasureError::Unsettled(self.validation.widened));
                }
                return Ok(excess);
            }
        }
        self.validation.predicted_over_actual = self.predicted as f64 / self.actual.max(1) as f64;
        Ok(None)
    }

    /// Notes a compared request; by how much it took longer than predicted.
    fn note(&mut self, compared: Compared) -> Nanos {
        list(&mut self.validation.slowest, compared, |request| {
            request.actual.get()
        });
        compared.actual.saturating_sub(compared.predicted)
    }

    /// Counts a request that took no longer than predicted.
    fn count(&mut self, compared: Compared) {
        let validation = &mut self.validation;
        let closeness =
            |request: &Compared| u64::MAX - request.predicted.saturating_sub(request.actual).get();
        list(&mut validation.closest, compared, closeness);
        validation.requests += 1;
        validation.reads += u64::from(compared.op == Op::Read);
        self.predicted += u128::from(compared.predicted.get());
        self.actual += u128::from(compared.actual.get());
        let margin = compared.predicted.saturating_sub(compared.actual);
        let class = usize::try_from(margin.get() / 1_000_000).unwrap_or(MARGINS);
        validation.margin_ms[class.min(MARGINS - 1)] += 1;
    }
}

/// Keeps the requests with the largest keys, the largest first.
fn list(list: &mut Vec<Compared>, new: Compared, key: impl Fn(&Compared) -> u64) {
    let place = list.partition_point(|known| key(known) >= key(&new));
    if place < LISTED {
        list.insert(place, new);
        list.truncate(LISTED);
    }
}
