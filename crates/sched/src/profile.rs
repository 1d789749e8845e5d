//! Drive profiles: what the predictor knows of a drive.
//!
//! A profile holds what has been measured or published of a drive model: zones, an upper bound of
//! the seek time for a distance, rotation, switches, overheads, the rate of its bus, and, where they
//! have been measured, worst-case service times per zone and block size (thesis 4.3, 7.2, 8.4). It is
//! a TOML file with units in its key names; `docs/reference/profile.md` lists the keys.
//!
//! All times in a profile are **upper bounds**, rounded up. The seek curve is read piecewise linearly
//! between its points, so the points have to be chosen such that the chords are bounds as well.
//!
//! Two sorts of drive are told apart by how their service times come about. A *rotating* drive has
//! geometry and a head; a *flat* one (solid state, or a file on a host's file system) takes an
//! overhead and a rate, wherever the request lies. A profile that no measurement stands behind says
//! `measured = false`, and everything that shows it passes that on.
//!
//! Deliberately absent: how a drive behaves on average, caches, and anything from which a drive
//! could be simulated. Simulated drives have parameters of their own in another crate, or every
//! experiment would confirm itself.

mod check;
mod measurement;

pub use self::measurement::MeasurementSpec;

use crate::link::LinkShare;
use crate::units::{Bytes, BytesPerSecond, SECTOR_BYTES, SectorCount};
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Kind of device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriveKind {
    /// A drive with platters and a seeking head.
    Rotating,
    /// Flash or the like: no positions.
    SolidState,
    /// A file on a file system of the host.
    File,
}

impl DriveKind {
    /// The word used in profiles and in what people read.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rotating => "rotating",
            Self::SolidState => "solid-state",
            Self::File => "file",
        }
    }
}

/// A profile as it is written in its file. [`DriveProfile::new`] checks it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileSpec {
    /// Name of the drive model.
    pub name: String,
    /// Kind of device.
    pub kind: DriveKind,
    /// True if the figures come from measuring such a drive, false if from data sheets or caution.
    pub measured: bool,
    /// Source of the figures, for people.
    #[serde(default)]
    pub sources: Vec<String>,
    /// The most requests given to the drive at a time; the times hold at that depth.
    #[serde(default = "one")]
    pub outstanding: u32,
    /// Addressable 512-byte sectors.
    pub capacity_sectors: u64,
    /// The unit in which the medium is written. A write of less costs the drive a rotation more.
    #[serde(default = "logical_sector")]
    pub physical_sector_bytes: u32,
    /// Percentage by which any request may exceed the other figures, as overruns have shown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub widened_percent: u64,
    /// True: measured worst-case times are used also where they are below the other figures, as the papers
    /// do. They are percentiles, so no guarantee can rest on them. For experiments; never written to a file.
    #[serde(skip)]
    pub trust_worst_case: bool,
    /// The measurement behind the figures, which binds the profile to one drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measurement: Option<MeasurementSpec>,
    /// Geometry and mechanics; for rotating drives, and only for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotating: Option<RotatingSpec>,
    /// Overhead and rate; for all other drives, and only for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flat: Option<FlatSpec>,
    /// Measured worst-case service times, a row per zone. May be empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worst_case: Vec<WorstCaseSpec>,
}

/// Geometry and mechanics of a rotating drive.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RotatingSpec {
    /// One rotation.
    pub rotation_us: u64,
    /// Time of a command beside mechanics and transfer.
    pub command_overhead_us: u64,
    /// To the next head of a cylinder.
    pub head_switch_us: u64,
    /// From a cylinder's last track to the next cylinder's first.
    pub cylinder_switch_us: u64,
    /// Time by which the head settles longer before a write than before a read.
    #[serde(default)]
    pub write_settle_us: u64,
    /// The lowest rate between drive and host.
    pub bus_bytes_per_second: u64,
    /// The lowest rate at which data arrives for a write, if that is lower.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_bus_bytes_per_second: Option<u64>,
    /// True: tracks begin where the zones have them. False: slips and spare sectors move them, so a request may touch as
    /// many tracks as its length allows.
    #[serde(default = "yes")]
    pub exact_tracks: bool,
    /// True: tracks are read whole, from any angle, and cross the bus from the drive's buffer. False: data is
    /// sent in order as it is read.
    #[serde(default)]
    pub track_reads: bool,
    /// True: the last track of a write over several tracks takes a rotation, however little is written on it.
    #[serde(default)]
    pub track_writes_tail: bool,
    /// Extra rotations that admission allows for in each request, for reads that are tried again.
    #[serde(default)]
    pub retry_rotations: u64,
    /// From the outermost inwards, in the order of sector addresses, without gaps.
    pub zones: Vec<ZoneSpec>,
    /// Upper bounds of the seek time, by distance, ascending; the last is the full stroke. A point at
    /// distance 0 says what it takes to stay on the cylinder, otherwise that is a head switch.
    pub seek: Vec<SeekPoint>,
}

/// A run of cylinders with the same number of sectors on every track.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZoneSpec {
    /// The zone's outermost cylinder.
    pub first_cylinder: u64,
    /// Number of cylinders.
    pub cylinders: u64,
    /// Tracks per cylinder.
    pub heads: u64,
    /// 512-byte sectors per track.
    pub sectors_per_track: u64,
}

/// No seek over this many cylinders takes longer than this.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeekPoint {
    /// The distance.
    pub cylinders: u64,
    /// The bound.
    pub us: u64,
}

/// A drive without positions: `overhead + bytes / rate`, both at the profile's `outstanding`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlatSpec {
    /// The longest a read takes beside its transfer.
    pub read_overhead_us: u64,
    /// The longest a write takes beside its transfer.
    pub write_overhead_us: u64,
    /// The lowest rate at which one request is read.
    pub read_bytes_per_second: u64,
    /// The lowest rate at which one request is written.
    pub write_bytes_per_second: u64,
}

/// Measured worst-case service times of one zone (thesis table 6.1).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorstCaseSpec {
    /// The zone's number; 0 for a drive without zones.
    pub zone: u64,
    /// Block sizes, ascending.
    pub bytes: Vec<u64>,
    /// A service time for each of `bytes`.
    pub service_us: Vec<u64>,
}

const fn yes() -> bool {
    true
}

const fn one() -> u32 {
    1
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "it is called with a reference"
)]
const fn is_zero(value: &u64) -> bool {
    *value == 0
}

const fn logical_sector() -> u32 {
    SECTOR_BYTES as u32
}

/// A fault of a profile.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ProfileError {
    /// Not TOML, or an unknown, missing or mistyped key.
    #[error("{0}")]
    Toml(toml::de::Error),
    /// A value makes no sense.
    #[error("{at}: {problem}")]
    Invalid {
        /// The key, as in the file.
        at: String,
        /// The fault, and a correct value.
        problem: String,
    },
    /// No profile of that name is shipped.
    #[error("there is no drive profile `{0}`; the profiles are {names}", names = SHIPPED_NAMES.join(", "))]
    Unknown(String),
}

/// A profile that makes sense.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DriveProfile {
    spec: ProfileSpec,
    /// Where the drive is, not what it is: no file says so.
    link: Option<LinkShare>,
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        const SHIPPED_NAMES: &[&str] = &[$($name),*];
        const SHIPPED_TEXTS: &[&str] = &[$(include_str!(concat!("../profiles/", $name, ".toml"))),*];
    };
}

shipped!(
    "quantum-atlas-ii",
    "hdd-8tb-7200",
    "conservative-rotating",
    "conservative-solid-state",
    "conservative-file",
);

impl DriveProfile {
    /// The most that a profile is widened, in percent: one whose times have to be more than ten times as long
    /// is of another drive, or the drive failed.
    pub const WIDENED_PERCENT_MAX: u64 = 900;

    /// Checks a profile.
    ///
    /// # Errors
    /// [`ProfileError::Invalid`] for the first value that makes no sense.
    pub fn new(spec: ProfileSpec) -> Result<Self, ProfileError> {
        check::spec(&spec)?;
        Ok(Self { spec, link: None })
    }

    /// Reads a profile from the text of its file.
    ///
    /// # Errors
    /// Unknown, missing and mistyped keys (with line and column) and values that make no sense.
    pub fn from_toml(text: &str) -> Result<Self, ProfileError> {
        Self::new(toml::from_str(text).map_err(ProfileError::Toml)?)
    }

    /// The text of a file that reads back as this profile.
    ///
    /// # Panics
    /// Never for a checked profile: its numbers fit TOML's.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(&self.spec).expect("a checked profile can be written")
    }

    /// A shipped profile by its name.
    ///
    /// # Errors
    /// [`ProfileError::Unknown`], which lists the names.
    ///
    /// # Panics
    /// Never: that the shipped files can be read is tested.
    pub fn shipped(name: &str) -> Result<Self, ProfileError> {
        let index = SHIPPED_NAMES
            .iter()
            .position(|shipped| *shipped == name)
            .ok_or_else(|| ProfileError::Unknown(name.to_owned()))?;
        Ok(Self::from_toml(SHIPPED_TEXTS[index]).expect("shipped profiles are tested"))
    }

    /// The names that [`DriveProfile::shipped`] knows.
    #[must_use]
    pub fn shipped_names() -> &'static [&'static str] {
        SHIPPED_NAMES
    }

    /// The cautious profile for a device of this kind and capacity of which nothing is known. Its
    /// geometry is that of the shipped profile of this kind, scaled.
    ///
    /// # Errors
    /// A capacity of zero sectors, or beyond 2^48 of them.
    pub fn conservative(kind: DriveKind, capacity: SectorCount) -> Result<Self, ProfileError> {
        let mut spec = match kind {
            DriveKind::Rotating => Self::shipped("conservative-rotating"),
            DriveKind::SolidState => Self::shipped("conservative-solid-state"),
            DriveKind::File => Self::shipped("conservative-file"),
        }?
        .spec;
        if let Some(rotating) = &mut spec.rotating {
            check::bounded("capacity_sectors", capacity.get(), 1, check::SECTORS_MAX)?;
            scale(rotating, spec.capacity_sectors, capacity.get());
        }
        spec.capacity_sectors = capacity.get();
        Self::new(spec)
    }

    /// The drive with physical sectors of this size.
    ///
    /// # Errors
    /// No power of two from 512 to 65,536.
    pub fn in_sectors_of(&self, unit: Bytes) -> Result<Self, ProfileError> {
        let mut spec = self.spec.clone();
        spec.physical_sector_bytes = u32::try_from(unit.get()).unwrap_or(u32::MAX);
        Ok(Self {
            link: self.link,
            ..Self::new(spec)?
        })
    }

    /// The profile of a drive on which a request took `took_permille` thousandths of what this one
    /// predicts: the same up to 1,000, beyond that so much wider that the request would have kept within,
    /// but at most ten times as wide as its figures. Longer than that is a drive that failed.
    #[must_use]
    pub fn widened(&self, took_permille: u64) -> Self {
        let mut spec = self.spec.clone();
        let percent = 100 + spec.widened_percent;
        let wider = percent
            .saturating_mul(took_permille.max(1000))
            .div_ceil(1000);
        spec.widened_percent = (wider - 100).min(Self::WIDENED_PERCENT_MAX);
        Self {
            spec,
            link: self.link,
        }
    }

    /// The figures, marked as measured or not.
    #[must_use]
    pub fn vouched_for(&self, measured: bool) -> Self {
        let mut spec = self.spec.clone();
        spec.measured = measured;
        Self {
            spec,
            link: self.link,
        }
    }

    /// The profile of the drive on a link that it shares: its predictions allow for the other disks.
    #[must_use]
    pub fn on_link(&self, link: LinkShare) -> Self {
        Self {
            spec: self.spec.clone(),
            link: Some(link),
        }
    }

    /// The share of a link that its predictions are for; `None`: a link of its own.
    #[must_use]
    pub fn link(&self) -> Option<LinkShare> {
        self.link
    }

    /// The highest rate at which the medium reads or writes.
    #[must_use]
    pub fn fastest(&self) -> BytesPerSecond {
        let spec = &self.spec;
        let of_medium = spec.rotating.as_ref().map(|rotating| {
            let sectors = rotating.zones.iter().map(|zone| zone.sectors_per_track);
            let track_bytes = sectors.max().unwrap_or(1) * SECTOR_BYTES;
            // The rotation is rounded up.
            let rotation_us = rotating.rotation_us.saturating_sub(1).max(1);
            u128::from(track_bytes) * 1_000_000 / u128::from(rotation_us)
        });
        let of_flat = spec
            .flat
            .as_ref()
            .map(|flat| u128::from(flat.read_bytes_per_second.max(flat.write_bytes_per_second)));
        let rate = of_medium.or(of_flat).unwrap_or(1);
        BytesPerSecond(u64::try_from(rate).unwrap_or(u64::MAX).max(1))
    }

    /// The figures.
    #[must_use]
    pub fn spec(&self) -> &ProfileSpec {
        &self.spec
    }

    /// Name of the drive model.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Kind of device.
    #[must_use]
    pub fn kind(&self) -> DriveKind {
        self.spec.kind
    }

    /// True if the figures were measured. If not, each display of the profile says so.
    #[must_use]
    pub fn measured(&self) -> bool {
        self.spec.measured
    }

    /// The most requests given to the drive at a time.
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.spec.outstanding
    }

    /// Addressable sectors.
    #[must_use]
    pub fn capacity(&self) -> SectorCount {
        SectorCount(self.spec.capacity_sectors)
    }

    /// The measurement behind the figures, if the profile states one.
    #[must_use]
    pub fn measurement(&self) -> Option<&MeasurementSpec> {
        self.spec.measurement.as_ref()
    }

    /// The unit in which the medium is written.
    #[must_use]
    pub fn physical_sector(&self) -> Bytes {
        Bytes(u64::from(self.spec.physical_sector_bytes))
    }
}

/// Stretches or shrinks a geometry of one zone that holds `from` sectors to hold `to`.
fn scale(rotating: &mut RotatingSpec, from: u64, to: u64) {
    let scaled = |number: u64| {
        let number = u128::from(number) * u128::from(to);
        u64::try_from(number.div_ceil(u128::from(from))).unwrap_or(u64::MAX)
    };
    let mut first_cylinder = 0;
    for zone in &mut rotating.zones {
        zone.first_cylinder = first_cylinder;
        zone.cylinders = scaled(zone.cylinders).max(1);
        first_cylinder += zone.cylinders;
    }
    let mut points: Vec<SeekPoint> = Vec::new();
    for point in &rotating.seek {
        let cylinders = if point.cylinders <= 1 {
            point.cylinders
        } else {
            scaled(point.cylinders)
        };
        match points.last_mut() {
            // Distances that have become one: the larger bound holds for both.
            Some(last) if cylinders <= last.cylinders => last.us = point.us,
            _ => points.push(SeekPoint {
                cylinders,
                us: point.us,
            }),
        }
    }
    if let Some(last) = points.last_mut() {
        last.cylinders = last.cylinders.max(first_cylinder - 1);
    }
    rotating.seek = points;
}

#[cfg(test)]
mod tests;
