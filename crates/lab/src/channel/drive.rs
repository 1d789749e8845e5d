//! A light model of a drive: seeks, rotation, zones and skews, without heap or trace. It is for reads of whole stripe units in
//! any number, of which it does some tens of millions a second.
//!
//! A read begins with its first sector: the drive does not reorder sectors, and does not read ahead. The time of a seek depends
//! on its distance alone. The platters turn evenly from an angle at time 0.

mod file;
mod profile;

use sched::units::{Bytes, Nanos, SECTOR_BYTES, Time};

use super::spec::SpecError;
use file::File;

/// Drives that come with the program, by name.
const BUILT_IN: [(&str, &str); 5] = [
    ("hp-c2247", include_str!("../../drives/hp-c2247.toml")),
    ("hp-c2247a", include_str!("../../drives/hp-c2247a.toml")),
    ("ibm-dfhs", include_str!("../../drives/ibm-dfhs.toml")),
    (
        "ibm-dfhs-formatted",
        include_str!("../../drives/ibm-dfhs-formatted.toml"),
    ),
    ("cheetah-4lp", include_str!("../../drives/cheetah-4lp.toml")),
];

/// A kind of drive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Drive {
    name: String,
    rotation: Nanos,
    heads: u32,
    track_skew: Nanos,
    cylinder_skew: Nanos,
    command: Nanos,
    buffered_read: (Nanos, Nanos),
    segments: u32,
    segment: Bytes,
    /// By distance.
    seeks: Vec<Nanos>,
    /// Cylinders and sectors per track.
    zones: Vec<(u32, u32)>,
}

/// The place of a stripe unit, with what its read needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The cylinder of the first sector.
    pub cylinder: u32,
    /// The cylinder of the last sector.
    pub end_cylinder: u32,
    /// The angle of the first sector, as time of rotation.
    pub angle: Nanos,
    /// The time from the first sector to the end of the last.
    pub media: Nanos,
}

impl Drive {
    /// Names of the drives that come with the program.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.into_iter().map(|(name, _)| name)
    }

    /// The drive of that name that comes with the program.
    #[must_use]
    pub fn built_in(name: &str) -> Option<Self> {
        let (_, text) = BUILT_IN.into_iter().find(|(of, _)| *of == name)?;
        Some(Self::parse(text).expect("the program's drives are valid"))
    }

    /// Reads a drive's file.
    ///
    /// # Errors
    /// The first fault.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        super::spec::parsed::<File>(text)?.drive()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of segments of its buffer.
    #[must_use]
    pub fn segments(&self) -> u32 {
        self.segments
    }

    /// The size of a segment of its buffer.
    #[must_use]
    pub fn segment(&self) -> Bytes {
        self.segment
    }

    /// The time of a rotation.
    #[must_use]
    pub fn rotation(&self) -> Nanos {
        self.rotation
    }

    /// The number of cylinders.
    #[must_use]
    pub fn cylinders(&self) -> u32 {
        self.zones.iter().map(|(cylinders, _)| cylinders).sum()
    }

    /// The capacity.
    #[must_use]
    pub fn capacity(&self) -> Bytes {
        let of = |&(cylinders, sectors): &(u32, u32)| u64::from(cylinders) * u64::from(sectors);
        let sectors: u64 = self.zones.iter().map(of).sum();
        Bytes(sectors * u64::from(self.heads) * SECTOR_BYTES)
    }

    /// The time from the arrival of a command to the begin of its seek.
    pub(crate) fn command(&self) -> Nanos {
        self.command
    }

    /// The time of a seek over a number of cylinders.
    pub(crate) fn seek(&self, distance: u32) -> Nanos {
        self.seeks[distance as usize]
    }

    /// The mean seek over all pairs of different cylinders.
    #[must_use]
    pub fn mean_seek(&self) -> Nanos {
        let count = self.seeks.len() as u128;
        let of = |(distance, seek): (usize, &Nanos)| {
            2 * (count - distance as u128) * u128::from(seek.get())
        };
        let sum: u128 = self.seeks.iter().enumerate().map(of).sum();
        Nanos((sum / (count * (count - 1))) as u64)
    }

    /// The time from a READ of data in the buffer to the arbitration; `dice` are random bits.
    pub(crate) fn buffered_read(&self, dice: u64) -> Nanos {
        let (least, most) = self.buffered_read;
        let range = u128::from(most.get() - least.get() + 1);
        least + Nanos(((u128::from(dice) * range) >> 64) as u64)
    }

    /// The places of stripe units of this size, from the first cylinder to the last.
    #[must_use]
    pub fn places(&self, unit: Bytes) -> Vec<Place> {
        let unit = (unit.get() / SECTOR_BYTES).max(1);
        let mut walk = Walk::new(self);
        let mut places = Vec::new();
        while let Some(place) = walk.unit(unit) {
            places.push(place);
        }
        places
    }

    /// The time at which a read of `place` ends if it begins at `start` with the arm at `arm`. `spindle` is the angle at
    /// time 0.
    #[inline]
    pub(crate) fn read(&self, start: Time, arm: u32, spindle: Nanos, place: &Place) -> Time {
        let reached = start + self.seek(arm.abs_diff(place.cylinder));
        let rotation = self.rotation.get();
        let angle = (reached.get() + spindle.get()) % rotation;
        let ahead = place.angle.get() + rotation - angle;
        let latency = if ahead >= rotation {
            ahead - rotation
        } else {
            ahead
        };
        reached + Nanos(latency) + place.media
    }
}

/// A walk over all sectors of a drive.
struct Walk<'a> {
    drive: &'a Drive,
    zone: usize,
    /// Within the zone.
    zone_cylinder: u32,
    cylinder: u32,
    head: u32,
    sector: u64,
    /// The angle of sector 0 of the track.
    track_angle: Nanos,
}

impl<'a> Walk<'a> {
    fn new(drive: &'a Drive) -> Self {
        Self {
            drive,
            zone: 0,
            zone_cylinder: 0,
            cylinder: 0,
            head: 0,
            sector: 0,
            track_angle: Nanos::ZERO,
        }
    }

    fn track_sectors(&self) -> Option<u64> {
        let zone = self.drive.zones.get(self.zone)?;
        Some(u64::from(zone.1))
    }

    fn media(&self, sectors: u64, track: u64) -> Nanos {
        Nanos(self.drive.rotation.get() * sectors / track)
    }

    /// The place of the next `unit` sectors, unless the drive ends before.
    fn unit(&mut self, unit: u64) -> Option<Place> {
        let track = self.track_sectors()?;
        let angle = self.track_angle + self.media(self.sector, track);
        let mut place = Place {
            cylinder: self.cylinder,
            end_cylinder: self.cylinder,
            angle: Nanos(angle.get() % self.drive.rotation.get()),
            media: Nanos::ZERO,
        };
        let mut left = unit;
        loop {
            let track = self.track_sectors()?;
            let here = left.min(track - self.sector);
            place.media += self.media(here, track);
            place.end_cylinder = self.cylinder;
            self.sector += here;
            left -= here;
            let skew = (self.sector == track).then(|| self.next_track());
            match skew {
                _ if left == 0 => return Some(place),
                Some(skew) => place.media += skew,
                None => {}
            }
        }
    }

    /// Goes to the next track, and returns the time until its first sector.
    fn next_track(&mut self) -> Nanos {
        let drive = self.drive;
        self.sector = 0;
        self.head += 1;
        let skew = if self.head < drive.heads {
            drive.track_skew
        } else {
            self.head = 0;
            self.cylinder += 1;
            self.zone_cylinder += 1;
            if drive.zones[self.zone].0 == self.zone_cylinder {
                self.zone += 1;
                self.zone_cylinder = 0;
            }
            drive.cylinder_skew
        };
        let angle = self.track_angle + skew;
        self.track_angle = Nanos(angle.get() % drive.rotation.get());
        skew
    }
}

#[cfg(test)]
mod tests;
