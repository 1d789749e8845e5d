//! True figures of a drive, with which those of a measuring program are compared.

use sched::units::{Nanos, Sector};

use super::controller::description::Layout;
use super::{Model, Plant};

/// Where a sector lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Location {
    /// The cylinder.
    pub cylinder: u64,
    /// The head.
    pub head: u64,
    /// Sectors on its track.
    pub sectors_per_track: u64,
    /// When it begins to pass, as the time since the index mark.
    pub angle: Nanos,
}

/// Tracks with the same number of sectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrueZone {
    /// Its first sector.
    pub first_sector: Sector,
    /// Its first cylinder.
    pub first_cylinder: u64,
    /// Number of its cylinders.
    pub cylinders: u64,
    /// Sectors on each track.
    pub sectors_per_track: u64,
    /// The turn of the platters between the end of a track and the beginning of the next one by another head.
    /// Zero if the zone has only one track of this kind.
    pub head_skew: Nanos,
    /// The same between tracks of neighbouring cylinders.
    pub cylinder_skew: Nanos,
}

/// Tracks that are looked at to find the skews of a zone.
const TRACKS: u64 = 2_000;

impl Plant {
    /// Where `sector` lies.
    ///
    /// # Panics
    /// When the drive has no such sector.
    #[must_use]
    pub fn locate(&self, sector: Sector) -> Location {
        assert!(
            sector.get() < self.sectors().get(),
            "no such sector: {sector:?}"
        );
        match &self.model {
            Model::Plain { geometry, .. } => {
                let place = geometry.locate(sector);
                Location {
                    cylinder: place.track.cylinder,
                    head: place.track.head,
                    sectors_per_track: geometry.sectors_per_track(place.track),
                    angle: geometry.begins(place),
                }
            }
            Model::Controller(controller) => {
                let (cylinder, head, sectors_per_track, angle) = controller.locate(sector.get());
                Location {
                    cylinder,
                    head,
                    sectors_per_track,
                    angle,
                }
            }
        }
    }

    /// The first sector after those of the track of `sector`.
    fn track_end(&self, sector: Sector) -> u64 {
        match &self.model {
            Model::Plain { geometry, .. } => {
                let place = geometry.locate(sector);
                let spt = geometry.sectors_per_track(place.track);
                sector.get() - place.index + spt
            }
            Model::Controller(controller) => controller.track_end(sector.get()),
        }
    }

    /// The slowest seek over `distance` cylinders, without any overhead of a command.
    #[must_use]
    pub fn seek_max(&self, distance: u64) -> Nanos {
        match &self.model {
            Model::Plain { .. } => self.spec.seeks().at(distance).max,
            Model::Controller(controller) => controller.seek(distance),
        }
    }

    /// The zones in the order of sectors.
    #[must_use]
    pub fn zones(&self) -> Vec<TrueZone> {
        let ranges = match (&self.model, self.spec.controller().map(|of| &of.layout)) {
            (Model::Plain { geometry, .. }, _) => geometry
                .zones()
                .iter()
                .map(|zone| (zone.first_sector.get(), zone.first_cylinder, zone.cylinders))
                .collect(),
            (Model::Controller(_), Some(Layout::Zones { .. })) | (_, None) => self.listed(),
            (Model::Controller(_), Some(_)) => self.found(),
        };
        let zones = ranges
            .into_iter()
            .filter(|(first, ..)| *first < self.sectors().get());
        zones
            .map(|(first, cylinder, cylinders)| self.zone(first, cylinder, cylinders))
            .collect()
    }

    /// The zones of a description that lists them: first sector, first cylinder, cylinders.
    fn listed(&self) -> Vec<(u64, u64, u64)> {
        match &self.model {
            Model::Controller(controller) => controller.zones(),
            Model::Plain { .. } => Vec::new(),
        }
    }

    /// The zones of a layout that does not name them, by looking at every cylinder.
    fn found(&self) -> Vec<(u64, u64, u64)> {
        let mut zones: Vec<(u64, u64, u64)> = Vec::new();
        let mut spt = 0;
        let mut sector = 0;
        while sector < self.sectors().get() {
            let at = self.locate(Sector(sector));
            if at.sectors_per_track != spt {
                spt = at.sectors_per_track;
                zones.push((sector, at.cylinder, 0));
            }
            if let Some(zone) = zones.last_mut() {
                zone.1 = zone.1.min(at.cylinder);
                zone.2 = zone.2.max(at.cylinder.saturating_sub(zone.1) + 1);
            }
            sector = match &self.model {
                Model::Controller(controller) => controller.cylinder_end(sector),
                Model::Plain { .. } => self.track_end(Sector(sector)),
            };
        }
        zones
    }

    fn zone(&self, first: u64, first_cylinder: u64, cylinders: u64) -> TrueZone {
        let at = self.locate(Sector(first));
        let mut zone = TrueZone {
            first_sector: Sector(first),
            first_cylinder,
            cylinders,
            sectors_per_track: at.sectors_per_track,
            head_skew: Nanos::ZERO,
            cylinder_skew: Nanos::ZERO,
        };
        let rotation = self.spec.rotation().get();
        let mut before = at;
        let mut next = self.track_end(Sector(first));
        for _ in 0..TRACKS {
            if next >= self.sectors().get() {
                break;
            }
            let after = self.locate(Sector(next));
            if after.sectors_per_track != zone.sectors_per_track {
                break;
            }
            // A track ends where it began.
            let skew = Nanos((after.angle.get() + rotation - before.angle.get()) % rotation);
            let skews = [&mut zone.head_skew, &mut zone.cylinder_skew];
            let kind = usize::from(after.cylinder != before.cylinder);
            if *skews[kind] == Nanos::ZERO {
                *skews[kind] = skew;
            }
            if zone.head_skew > Nanos::ZERO && zone.cylinder_skew > Nanos::ZERO {
                break;
            }
            (before, next) = (after, self.track_end(Sector(next)));
        }
        zone
    }
}
