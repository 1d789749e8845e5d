//! Zones: tracks in the order of heads and cylinders, with skews, spares, slips and defects.
//!
//! A *position* counts all sectors of a zone, along its tracks in their order, usable or not.

use super::super::description::{Order, Sparing, ZoneLine};
use super::{Home, angle, sector_width};

#[derive(Clone, Debug)]
struct Zone {
    first_sector: u64,
    sectors: u64,
    line: ZoneLine,
    /// Slips as the numbering meets them: where they push sectors on to the end of the disk, without spares.
    slips: Vec<u64>,
    width: u64,
    offset: u64,
    head_skew: u64,
    cylinder_skew: u64,
}

#[derive(Clone, Debug)]
pub(in super::super) struct Zones {
    zones: Vec<Zone>,
    order: Order,
    sparing: Sparing,
    range_cylinders: u64,
    heads: u64,
}

/// Refuses zones whose arithmetic would fail, or that have no usable sector.
pub(in super::super) fn check(
    sparing: Sparing,
    range_cylinders: u64,
    zones: &[ZoneLine],
    heads: u64,
) -> Result<(), String> {
    const SECTORS_PER_TRACK_MAX: u64 = 1_000_000;
    const CYLINDERS_MAX: u64 = 100_000_000;
    let mut next = 0;
    for (number, zone) in zones.iter().enumerate() {
        let wrong = |problem: &str| Err(format!("zone {number}: {problem}"));
        if zone.first_cylinder > zone.last_cylinder || zone.last_cylinder > CYLINDERS_MAX {
            return wrong("its cylinders are not in order, or too many");
        }
        if zone.first_cylinder < next {
            return wrong("its cylinders belong to the zone before, or come before them");
        }
        next = zone.last_cylinder + 1;
        if !(1..=SECTORS_PER_TRACK_MAX).contains(&zone.sectors_per_track) {
            return wrong("the number of sectors per track is absurd");
        }
        if range_cylinders == 0 || range_cylinders > CYLINDERS_MAX {
            return wrong("the range of spares has no cylinder, or too many");
        }
        if !zone.slips.is_sorted() {
            return wrong("slips are not in ascending order");
        }
        let cylinders = zone.last_cylinder - zone.first_cylinder + 1;
        let unit = unit_sectors(sparing, zone, heads, range_cylinders);
        if zone.spares >= unit && sparing != Sparing::None && sparing != Sparing::DiskEnd {
            return wrong("all of it is spare");
        }
        let total = cylinders * heads * zone.sectors_per_track;
        let places = match sparing {
            Sparing::Tracks => cylinders * heads,
            _ => total,
        };
        let beyond = |place: &u64| *place >= places;
        let defects = zone.defects.iter();
        if zone.slips.iter().any(beyond) || defects.flat_map(|(a, b)| [a, b]).any(beyond) {
            return wrong("a slip or defect is beyond its end");
        }
        if sparing == Sparing::Tracks
            && (zone.slips.len() + zone.defects.len()) as u64 > zone.spares
        {
            return wrong("it has more slipped and defective tracks than spares");
        }
        if sectors(sparing, range_cylinders, zone, heads) == 0 {
            return wrong("it has no usable sector");
        }
    }
    Ok(())
}

/// The sectors or tracks among which a number of spares is.
fn unit_sectors(sparing: Sparing, zone: &ZoneLine, heads: u64, range_cylinders: u64) -> u64 {
    let cylinders = zone.last_cylinder - zone.first_cylinder + 1;
    match sparing {
        Sparing::Tracks => cylinders * heads,
        Sparing::TrackEnd => zone.sectors_per_track,
        Sparing::CylinderEnd
        | Sparing::CylinderEndSlipToEnd
        | Sparing::CylinderFront
        | Sparing::CylinderFrontSlipToEnd => heads * zone.sectors_per_track,
        Sparing::RangeEnd => range_cylinders * heads * zone.sectors_per_track,
        Sparing::None | Sparing::DiskEnd | Sparing::ZoneEnd | Sparing::ZoneEndSlipToEnd => {
            cylinders * heads * zone.sectors_per_track
        }
    }
}

/// The number of usable sectors of a zone.
pub(in super::super) fn sectors(
    sparing: Sparing,
    range_cylinders: u64,
    zone: &ZoneLine,
    heads: u64,
) -> u64 {
    let cylinders = zone.last_cylinder - zone.first_cylinder + 1;
    let total = cylinders * heads * zone.sectors_per_track;
    let slips = zone.slips.len() as u64;
    let lost = match sparing {
        Sparing::None => 0,
        Sparing::Tracks => zone.spares * zone.sectors_per_track,
        Sparing::TrackEnd => zone.spares * cylinders * heads,
        Sparing::CylinderEnd | Sparing::CylinderFront => zone.spares * cylinders,
        Sparing::CylinderEndSlipToEnd | Sparing::CylinderFrontSlipToEnd => {
            zone.spares * cylinders + slips
        }
        Sparing::DiskEnd => slips,
        Sparing::RangeEnd => zone.spares * (cylinders / range_cylinders),
        Sparing::ZoneEnd => zone.spares,
        Sparing::ZoneEndSlipToEnd => zone.spares + slips,
    };
    total
        .saturating_sub(zone.reserved_sectors)
        .saturating_sub(lost)
}

/// `index` counts usable places; the result counts `slips` too. They are ascending.
fn past_slips(slips: &[u64], index: u64) -> u64 {
    // The k-th slip is passed if it is at or before index + k: this is monotone in k.
    let (mut low, mut high) = (0, slips.len());
    while low < high {
        let middle = usize::midpoint(low, high);
        if slips[middle] <= index + middle as u64 {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    index + low as u64
}

/// The slips of a zone, less the spares before them where they count across cylinders.
fn slips_met(sparing: Sparing, line: &ZoneLine, heads: u64) -> Vec<u64> {
    let cylinder = line.sectors_per_track * heads;
    let usable = cylinder - line.spares.min(cylinder - 1);
    let slips = line.slips.iter();
    let mut slips: Vec<u64> = match sparing {
        Sparing::CylinderEndSlipToEnd => slips
            .filter(|slip| *slip % cylinder < usable)
            .map(|slip| slip / cylinder * usable + slip % cylinder)
            .collect(),
        Sparing::CylinderFrontSlipToEnd => slips
            .filter(|slip| *slip % cylinder >= line.spares)
            .map(|slip| slip / cylinder * usable + slip % cylinder - line.spares)
            .collect(),
        _ => slips.copied().collect(),
    };
    slips.sort_unstable();
    slips
}

/// The slips from `from` up to `to`, which count from `from` on.
fn slips_within(slips: &[u64], from: u64, to: u64) -> &[u64] {
    let low = slips.partition_point(|slip| *slip < from);
    let high = slips.partition_point(|slip| *slip < to);
    &slips[low..high]
}

/// As [`past_slips`], among places from `from` on.
fn past_slips_from(slips: &[u64], from: u64, index: u64) -> u64 {
    let (mut low, mut high) = (0, slips.len());
    while low < high {
        let middle = usize::midpoint(low, high);
        if slips[middle] - from <= index + middle as u64 {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    index + low as u64
}

impl Zones {
    pub(super) fn new(
        order: Order,
        sparing: Sparing,
        range_cylinders: u64,
        lines: &[ZoneLine],
        heads: u64,
    ) -> Self {
        let mut first_sector = 0;
        let zones = lines.iter().map(|line| {
            let width = sector_width(line.sectors_per_track);
            let zone = Zone {
                first_sector,
                sectors: sectors(sparing, range_cylinders, line, heads),
                line: line.clone(),
                slips: slips_met(sparing, line, heads),
                width,
                offset: angle(line.first_sector, width),
                head_skew: angle(line.head_skew, width),
                cylinder_skew: angle(line.cylinder_skew, width),
            };
            first_sector += zone.sectors;
            zone
        });
        let zones = zones.collect();
        Self {
            zones,
            order,
            sparing,
            range_cylinders,
            heads,
        }
    }

    /// First sector, first cylinder and cylinders of each zone.
    pub(super) fn list(&self) -> Vec<(u64, u64, u64)> {
        let zones = self.zones.iter();
        zones
            .map(|zone| {
                let (first, last) = (zone.line.first_cylinder, zone.line.last_cylinder);
                (zone.first_sector, first, last - first + 1)
            })
            .collect()
    }

    fn zone_of(&self, sector: u64) -> &Zone {
        let number = self
            .zones
            .partition_point(|zone| zone.first_sector <= sector);
        &self.zones[number.saturating_sub(1)]
    }

    pub(super) fn home(&self, sector: u64) -> Home {
        let zone = self.zone_of(sector);
        self.at(zone, self.position(zone, sector - zone.first_sector))
    }

    /// The position of the usable sector `index` of a zone.
    fn position(&self, zone: &Zone, index: u64) -> u64 {
        let line = &zone.line;
        let slips = &zone.slips;
        let spt = line.sectors_per_track;
        let cylinder = spt * self.heads;
        let index = index + line.reserved_sectors;
        match self.sparing {
            Sparing::None => index,
            Sparing::Tracks => {
                let track = past_slips(slips, index / spt);
                let defect = line.defects.iter().find(|(bad, _)| *bad == track);
                defect.map_or(track, |(_, spare)| *spare) * spt + index % spt
            }
            Sparing::ZoneEnd | Sparing::ZoneEndSlipToEnd | Sparing::DiskEnd => {
                past_slips(slips, index)
            }
            Sparing::TrackEnd => self.in_units(slips, index, spt, spt - line.spares),
            Sparing::CylinderEnd => self.in_units(slips, index, cylinder, cylinder - line.spares),
            Sparing::CylinderFront => {
                // The spares at the front are the first to be used up by slips.
                line.spares + self.in_units(slips, index, cylinder, cylinder - line.spares)
                    - self
                        .slips_of_unit(slips, index / (cylinder - line.spares) * cylinder, cylinder)
                        .min(line.spares)
            }
            Sparing::RangeEnd => {
                let range = cylinder * self.range_cylinders;
                self.in_units(slips, index, range, range - line.spares)
            }
            Sparing::CylinderEndSlipToEnd => {
                spread(past_slips(slips, index), cylinder, cylinder - line.spares)
            }
            Sparing::CylinderFrontSlipToEnd => {
                line.spares + spread(past_slips(slips, index), cylinder, cylinder - line.spares)
            }
        }
    }

    fn slips_of_unit(&self, slips: &[u64], from: u64, unit: u64) -> u64 {
        slips_within(slips, from, from + unit).len() as u64
    }

    /// The position of a sector in units of which each has its own spares, `usable` sectors and slips.
    fn in_units(&self, slips: &[u64], index: u64, unit: u64, usable: u64) -> u64 {
        let from = index / usable * unit;
        let inside = index % usable;
        from + past_slips_from(slips_within(slips, from, from + unit), from, inside).min(unit - 1)
    }

    fn at(&self, zone: &Zone, position: u64) -> Home {
        let line = &zone.line;
        let spt = line.sectors_per_track;
        let (track, index) = (position / spt, position % spt);
        let (cylinder, turn) = (track / self.heads, track % self.heads);
        let is_reversed = match self.order {
            Order::Cylinders => false,
            Order::SerpentineInZones => cylinder % 2 == 1,
            Order::Serpentine => (line.first_cylinder + cylinder) % 2 == 1,
        };
        let head_switches = cylinder * (self.heads - 1) + turn;
        let mut angle = zone
            .offset
            .wrapping_add(zone.head_skew.wrapping_mul(head_switches))
            .wrapping_add(zone.cylinder_skew.wrapping_mul(cylinder));
        // Where spares belong to a cylinder or track, the slips before it push the skew forward.
        let before = match self.sparing {
            Sparing::CylinderEnd
            | Sparing::CylinderFront
            | Sparing::CylinderEndSlipToEnd
            | Sparing::CylinderFrontSlipToEnd => cylinder * self.heads * spt,
            Sparing::TrackEnd => track * spt,
            _ => 0,
        };
        let slipped = line.slips.partition_point(|slip| *slip < before) as u64;
        angle = angle.wrapping_add(zone.width.wrapping_mul(slipped + index));
        Home {
            cylinder: line.first_cylinder + cylinder,
            head: if is_reversed {
                self.heads - 1 - turn
            } else {
                turn
            },
            angle,
            sectors_per_track: spt,
        }
    }

    /// The remapped sectors, each with its place.
    pub(super) fn remapped(&self) -> Vec<(u64, Home)> {
        let mut remapped = Vec::new();
        if self.sparing == Sparing::Tracks || self.sparing == Sparing::None {
            return remapped;
        }
        for zone in &self.zones {
            for (bad, spare) in zone.line.defects.iter().filter(|(bad, spare)| bad != spare) {
                let (mut low, mut high) = (0, zone.sectors);
                while low < high {
                    let middle = low + (high - low) / 2;
                    if self.position(zone, middle) < *bad {
                        low = middle + 1;
                    } else {
                        high = middle;
                    }
                }
                if low < zone.sectors && self.position(zone, low) == *bad {
                    remapped.push((zone.first_sector + low, self.at(zone, *spare)));
                }
            }
        }
        remapped
    }
}

/// The position of a sector where each unit has `usable` sectors at its front.
fn spread(index: u64, unit: u64, usable: u64) -> u64 {
    index / usable * unit + index % usable
}
