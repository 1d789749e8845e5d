//! The description of a plant: a TOML file with units in the names of its keys.
//!
//! Nothing is optional that changes a service time, and an unknown key is an error: a drive that is
//! almost the one described would make every number measured on it worthless.

use serde::Deserialize;

use sched::request::Op;
use sched::units::{Nanos, SectorCount};

use super::controller::description::{Description, Layout};
use super::seek::{SeekCurve, SeekPoint};
use super::share;

mod check;

/// Why a file does not describe a plant.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// Not TOML, or an unknown, missing or mistyped key, with its place.
    #[error("{0}")]
    Parse(#[from] toml::de::Error),
    /// Well formed, but describes no drive.
    #[error("{key}: {problem}")]
    Invalid {
        /// The key that is wrong.
        key: &'static str,
        /// The fault.
        problem: String,
    },
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    description: String,
    sectors: u64,
    physical_sector_sectors: u64,
    mechanics: Mechanics,
    #[serde(default)]
    layout: Option<OrderLine>,
    seek_included_overhead_us: u64,
    seek: Vec<Seek>,
    zone: Vec<ZoneLine>,
    read: Read,
    write: Write,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mechanics {
    rotation_ns: u64,
    phase_ns: u64,
    heads: u64,
    head_switch_us: u64,
    cylinder_switch_us: u64,
}

/// An order of tracks.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum OrderLine {
    /// The cylinders of a band with one head, back with the next, then the next band.
    Serpentine {
        band_cylinders: u64,
        band_switch_us: u64,
    },
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Seek {
    distance_cylinders: u64,
    min_us: u64,
    mean_us: u64,
    max_us: u64,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ZoneLine {
    cylinders: u64,
    sectors_per_track: u64,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    overhead_us_min: u64,
    overhead_us_max: u64,
    bus_sector_ns: u64,
    policy: ReadPolicy,
}

/// Policy of a drive for data between media and bus.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ReadPolicy {
    /// Waits for the first sector, then reads in order; each sector goes out as it comes in.
    Streaming {},
    /// Reads whole tracks into a buffer, beginning anywhere (thesis 4.3.4).
    TrackBuffer {
        /// Up to this many percent of a track a request is served with zero latency: the bus
        /// transfer begins once `first_burst_track_percent` and the first sector are in the buffer.
        zero_latency_track_percent_max: u64,
        /// Part of a track that must be in the buffer, for requests served with zero latency.
        first_burst_track_percent: u64,
        /// Part of a track that must be in the buffer before it is moved, for longer requests.
        long_burst_track_percent: u64,
        /// The random delay of the burst of a zero-latency request of at least half a track is up
        /// to this.
        burst_delay_us_max: u64,
    },
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Write {
    overhead_us: u64,
    setup_us_max: u64,
    settle_us: u64,
    bus_sector_ns: u64,
    partial_tail_takes_rotation: bool,
}

/// A drive's description, checked.
#[derive(Clone, PartialEq, Debug)]
pub struct PlantSpec {
    /// Its mechanics; with a controller, what of them both kinds of files have.
    file: File,
    seeks: SeekCurve,
    controller: Option<Box<Description>>,
}

/// The kind of a file, which decides how the rest of it is read.
#[derive(Deserialize)]
struct Head {
    kind: Option<toml::Value>,
}

/// Names of the plants that are part of the library.
pub const BUILT_IN: [&str; 3] = [
    "quantum-atlas-ii",
    "hdd-8tb-7200",
    "hdd-8tb-7200-serpentine",
];

/// Those of them for which the scheduler comes with a profile of the same name.
pub const PROFILED: [&str; 2] = ["quantum-atlas-ii", "hdd-8tb-7200"];

impl PlantSpec {
    /// The plant of that name in [`BUILT_IN`], or `None`.
    #[must_use]
    pub fn built_in(name: &str) -> Option<Self> {
        let text = match name {
            "quantum-atlas-ii" => include_str!("../../plants/quantum-atlas-ii.toml"),
            "hdd-8tb-7200" => include_str!("../../plants/hdd-8tb-7200.toml"),
            "hdd-8tb-7200-serpentine" => {
                include_str!("../../plants/hdd-8tb-7200-serpentine.toml")
            }
            _ => return None,
        };
        Some(Self::parse(text).expect("the plants that are compiled in are checked by tests"))
    }

    /// Reads a description.
    ///
    /// # Errors
    /// When it is not one; the error names the place and the key.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let head: Head = toml::from_str(text)?;
        if head.kind.is_some() {
            return Self::of_controller(toml::from_str(text)?);
        }
        let file: File = toml::from_str(text)?;
        check::check(&file)?;
        let points = file
            .seek
            .iter()
            .map(|line| {
                let mechanical =
                    |us: u64| Nanos::from_micros(us.saturating_sub(file.seek_included_overhead_us));
                SeekPoint {
                    distance: line.distance_cylinders,
                    min: mechanical(line.min_us),
                    mean: mechanical(line.mean_us),
                    max: mechanical(line.max_us),
                }
            })
            .collect();
        let seeks = SeekCurve::new(points).map_err(|problem| SpecError::Invalid {
            key: "seek",
            problem,
        })?;
        Ok(Self {
            file,
            seeks,
            controller: None,
        })
    }

    /// A drive with a controller.
    pub(crate) fn of_controller(description: Description) -> Result<Self, SpecError> {
        let invalid = |(key, problem)| SpecError::Invalid { key, problem };
        description.check().map_err(invalid)?;
        let point = |distance, ns| SeekPoint {
            distance,
            min: Nanos(ns),
            mean: Nanos(ns),
            max: Nanos(ns),
        };
        let mut points: Vec<SeekPoint> = description
            .seek
            .iter()
            .map(|(distance, ns)| point(*distance, *ns))
            .collect();
        if let Some(first) = points.first().copied().filter(|first| first.distance > 1) {
            points.insert(0, point(1, first.mean.get() / first.distance));
        }
        let seeks = SeekCurve::new(points).map_err(|problem| invalid(("seek", problem)))?;
        Ok(Self {
            file: mechanics_of(&description),
            seeks,
            controller: Some(Box::new(description)),
        })
    }

    pub(crate) fn controller(&self) -> Option<&Description> {
        self.controller.as_deref()
    }

    /// The same drive with its cache turned off: no data of earlier requests, no reading ahead, no writing
    /// behind. A drive without a cache stays as it is.
    #[must_use]
    pub fn without_caches(&self) -> Self {
        let mut spec = self.clone();
        if let Some(controller) = &mut spec.controller {
            controller.cache.turn_off();
        }
        spec
    }

    /// The drive's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.file.name
    }

    /// The drive, and the source of its numbers.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.file.description
    }

    /// Number of addressable sectors.
    #[must_use]
    pub fn sectors(&self) -> SectorCount {
        SectorCount(self.file.sectors)
    }

    /// The logical sectors in a sector of the medium.
    #[must_use]
    pub fn physical_sectors(&self) -> u64 {
        self.file.physical_sector_sectors
    }

    /// The time of one rotation.
    #[must_use]
    pub fn rotation(&self) -> Nanos {
        Nanos(self.file.mechanics.rotation_ns)
    }

    /// The angle of the platters at time 0, as the time since the index mark passed.
    #[must_use]
    pub fn phase(&self) -> Nanos {
        Nanos(self.file.mechanics.phase_ns)
    }

    /// Number of heads: tracks in a cylinder.
    #[must_use]
    pub fn heads(&self) -> u64 {
        self.file.mechanics.heads
    }

    /// The time to switch to another head of the same cylinder.
    #[must_use]
    pub fn head_switch(&self) -> Nanos {
        match &self.controller {
            Some(controller) => Nanos(controller.mechanics.head_switch_ns),
            None => Nanos::from_micros(self.file.mechanics.head_switch_us),
        }
    }

    /// The time to go on to the first head of the next cylinder in the middle of a transfer.
    #[must_use]
    pub fn cylinder_switch(&self) -> Nanos {
        match &self.controller {
            Some(_) => self.seeks.at(1).mean,
            None => Nanos::from_micros(self.file.mechanics.cylinder_switch_us),
        }
    }

    /// Cylinders in a band of a serpentine drive, and the time to go on to the next band.
    pub(crate) fn band(&self) -> Option<(u64, Nanos)> {
        let OrderLine::Serpentine {
            band_cylinders,
            band_switch_us,
        } = self.file.layout.as_ref()?;
        Some((*band_cylinders, Nanos::from_micros(*band_switch_us)))
    }

    /// Mechanical seek times: as measured, less the overhead of the command that measured them.
    #[must_use]
    pub fn seeks(&self) -> &SeekCurve {
        &self.seeks
    }

    /// The part of a measured seek time that was the command and not the arm.
    #[must_use]
    pub fn seek_included_overhead(&self) -> Nanos {
        Nanos::from_micros(self.file.seek_included_overhead_us)
    }

    /// Cylinders and sectors per track of each zone, from the outside. A layout without zones is one zone with
    /// the tracks of its first sector.
    pub fn zones(&self) -> impl Iterator<Item = (u64, u64)> {
        self.file
            .zone
            .iter()
            .map(|zone| (zone.cylinders, zone.sectors_per_track))
    }

    /// Policy for data on its way from the media to the bus.
    #[must_use]
    pub fn read_policy(&self) -> ReadPolicy {
        self.file.read.policy
    }

    /// The time a sector takes on the bus.
    #[must_use]
    pub fn bus_sector(&self, op: Op) -> Nanos {
        Nanos(match op {
            Op::Read => self.file.read.bus_sector_ns,
            Op::Write => self.file.write.bus_sector_ns,
        })
    }

    /// The time from the command's issue until data of a write may cross the bus or the arm moves.
    pub(crate) fn overhead(&self, op: Op, luck: u32) -> Nanos {
        match op {
            Op::Read => {
                let Read {
                    overhead_us_min,
                    overhead_us_max,
                    ..
                } = self.file.read;
                let spread = Nanos::from_micros(overhead_us_max - overhead_us_min);
                Nanos::from_micros(overhead_us_min) + Nanos(share(spread.get(), luck))
            }
            Op::Write => Nanos::from_micros(self.file.write.overhead_us),
        }
    }

    /// The longest setup of a write inside the drive, beside the bus transfer.
    pub(crate) fn write_setup_max(&self) -> Nanos {
        Nanos::from_micros(self.file.write.setup_us_max)
    }

    /// Time by which a write waits longer than a read for the head to settle.
    pub(crate) fn write_settle(&self) -> Nanos {
        Nanos::from_micros(self.file.write.settle_us)
    }

    /// True if the last, partly written track of a long write takes a whole rotation.
    pub(crate) fn partial_tail_takes_rotation(&self) -> bool {
        self.file.write.partial_tail_takes_rotation
    }
}

/// The part of a description that drives with and without a controller share.
fn mechanics_of(description: &Description) -> File {
    let micros = |ns: u64| ns.div_ceil(1_000);
    let overhead = &description.overhead;
    let zone = match &description.layout {
        Layout::Zones { zone, .. } => zone
            .iter()
            .map(|line| ZoneLine {
                cylinders: line.last_cylinder - line.first_cylinder + 1,
                sectors_per_track: line.sectors_per_track,
            })
            .collect(),
        Layout::Extents { extent } => one_zone(
            extent.iter().map(|extent| extent.cylinder).max(),
            extent.first().map(|extent| extent.sectors_per_track),
        ),
        Layout::Tree { node, track, .. } => one_zone(
            node.last()
                .and_then(|root| root.iter().map(|entry| entry.cylinder.unsigned_abs()).max()),
            track.first().map(|track| track.sectors_per_track),
        ),
    };
    File {
        name: description.name.clone(),
        description: description.description.clone(),
        sectors: description.sectors,
        physical_sector_sectors: 1,
        mechanics: Mechanics {
            rotation_ns: description.mechanics.rotation_ns,
            phase_ns: 0,
            heads: description.mechanics.heads,
            head_switch_us: micros(description.mechanics.head_switch_ns),
            cylinder_switch_us: 0,
        },
        layout: None,
        seek_included_overhead_us: 0,
        seek: Vec::new(),
        zone,
        read: Read {
            overhead_us_min: micros(overhead.read_miss_after_read_ns),
            overhead_us_max: micros(overhead.read_miss_after_write_ns),
            bus_sector_ns: description.bus.read_sector_ns,
            policy: ReadPolicy::Streaming {},
        },
        write: Write {
            overhead_us: micros(overhead.write_miss_after_read_ns),
            setup_us_max: 0,
            settle_us: micros(description.mechanics.write_settle_ns.max(0) as u64),
            bus_sector_ns: description.bus.write_sector_ns,
            partial_tail_takes_rotation: false,
        },
    }
}

fn one_zone(last_cylinder: Option<u64>, sectors_per_track: Option<u64>) -> Vec<ZoneLine> {
    vec![ZoneLine {
        cylinders: last_cylinder.unwrap_or(0) + 1,
        sectors_per_track: sectors_per_track.unwrap_or(1),
    }]
}

#[cfg(test)]
mod tests;
