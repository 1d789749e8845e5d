//! The description of a drive with a controller: a TOML file, all times in nanoseconds.
//!
//! Every key is required, and an unknown key is an error. `docs/reference/plant.md` describes them.

use serde::{Deserialize, Serialize};

/// Marks the file as one of this kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    Controller,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Description {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) sectors: u64,
    /// Distances in cylinders, and the time of a seek over each; straight lines between and beyond.
    pub(crate) seek: Vec<(u64, u64)>,
    pub(crate) mechanics: Mechanics,
    pub(crate) bus: Bus,
    pub(crate) overhead: Overhead,
    pub(crate) cache: Cache,
    pub(crate) layout: Layout,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mechanics {
    pub(crate) access: Access,
    pub(crate) rotation_ns: u64,
    pub(crate) heads: u64,
    pub(crate) head_switch_ns: u64,
    /// Added to each seek and head switch before a write; may be negative.
    pub(crate) write_settle_ns: i64,
}

/// The parts of the mechanics that are modelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Access {
    /// Seeks, and the angle of the platters.
    Full,
    /// Seeks, and half a rotation before each first sector.
    HalfRotation,
    /// Every access takes `head_switch_ns`, wherever it is. No seeks, no rotation.
    Constant,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bus {
    pub(crate) read_sector_ns: u64,
    pub(crate) write_sector_ns: u64,
    pub(crate) arbitration_ns: u64,
    /// Whether the drive keeps the bus while it has nothing to send, or no room.
    pub(crate) hold_for_read: bool,
    pub(crate) hold_for_write: bool,
    pub(crate) never_disconnect: bool,
}

/// Times that the controller takes, by case. `after` is the operation of the request before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Overhead {
    pub(crate) request_ns: u64,
    pub(crate) read_hit_after_read_ns: u64,
    pub(crate) read_hit_after_write_ns: u64,
    pub(crate) read_miss_after_read_ns: u64,
    pub(crate) read_miss_after_write_ns: u64,
    pub(crate) write_hit_after_read_ns: u64,
    pub(crate) write_hit_after_write_ns: u64,
    pub(crate) write_miss_after_read_ns: u64,
    pub(crate) write_miss_after_write_ns: u64,
    pub(crate) read_completion_ns: u64,
    pub(crate) write_completion_ns: u64,
    pub(crate) data_preparation_ns: u64,
    pub(crate) first_reselect_ns: u64,
    pub(crate) other_reselect_ns: u64,
    pub(crate) read_disconnect_after_read_ns: u64,
    pub(crate) read_disconnect_after_write_ns: u64,
    pub(crate) write_disconnect_ns: u64,
    /// The least time between a write's command and its media access, unless it continues the one before.
    pub(crate) write_seek_min_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) extra_write_disconnect: Option<ExtraDisconnect>,
}

/// The behaviour of drives that disconnect between the command and the data of a write after a write.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExtraDisconnect {
    pub(crate) command_ns: u64,
    pub(crate) disconnect_ns: u64,
    pub(crate) between_ns: u64,
    pub(crate) second_disconnect_ns: u64,
    pub(crate) seek_delay_ns: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cache {
    pub(crate) enabled: bool,
    pub(crate) segments: u64,
    pub(crate) segment_sectors: u64,
    pub(crate) write_segments: u64,
    pub(crate) separate_write_segment: bool,
    pub(crate) read_hits_on_written: bool,
    pub(crate) fast_write: bool,
    pub(crate) combine_writes: bool,
    pub(crate) write_hit_stops_read_ahead: bool,
    pub(crate) hit_on_sector_being_read: bool,
    pub(crate) partial_hit_at_once: bool,
    /// Marks at which the drive connects again, in parts of a million.
    pub(crate) read_mark_ppm: u64,
    pub(crate) write_mark_ppm: u64,
    pub(crate) marks_of: MarksOf,
    pub(crate) read_ahead: ReadAhead,
    pub(crate) read_ahead_min_sectors: u64,
    pub(crate) read_ahead_max_sectors: u64,
    pub(crate) read_ahead_over_requested: Requested,
    pub(crate) read_ahead_after_hit: bool,
    pub(crate) stop_within_sector: bool,
    pub(crate) finish_seek_in_background: bool,
    pub(crate) read_before_requested: bool,
    pub(crate) zero_latency_read: bool,
    pub(crate) zero_latency_write: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum MarksOf {
    Request,
    Segment,
}

/// How far the drive reads on after a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ReadAhead {
    None,
    ToTrackEnd,
    ToCylinderEnd,
    ToSegmentEnd,
    /// To the end of the track, and of the next one if the segment also holds sectors of the track before.
    TrackAhead,
}

/// Whether data read ahead may take the room of data that was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Requested {
    /// It stays.
    Kept,
    /// Data read ahead may take its room.
    Replaced,
    /// It is dropped when it has been sent.
    Dropped,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Layout {
    /// Zones whose tracks all look alike, but for slips, defects and spares.
    Zones {
        order: Order,
        sparing: Sparing,
        range_cylinders: u64,
        zone: Vec<ZoneLine>,
    },
    /// A list of runs of sectors on tracks.
    Extents { extent: Vec<Extent> },
    /// Patterns of patterns of tracks.
    Tree {
        track: Vec<TrackPattern>,
        node: Vec<Vec<Entry>>,
        /// Offset and number of sectors that are left out.
        slip: Vec<(u64, u64)>,
        remap: Vec<Remap>,
    },
}

/// The order of tracks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    /// Always from the first head to the last.
    Cylinders,
    /// Every second cylinder of a zone from the last head to the first.
    SerpentineInZones,
    /// Every cylinder with an odd number from the last head to the first.
    Serpentine,
}

/// The place of spare sectors, and what slipped sectors do to the numbering.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Sparing {
    None,
    /// Whole tracks at the end of a zone; slips and defects are tracks.
    Tracks,
    CylinderEnd,
    TrackEnd,
    CylinderEndSlipToEnd,
    CylinderFront,
    CylinderFrontSlipToEnd,
    DiskEnd,
    RangeEnd,
    ZoneEnd,
    ZoneEndSlipToEnd,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ZoneLine {
    pub(crate) first_cylinder: u64,
    pub(crate) last_cylinder: u64,
    pub(crate) sectors_per_track: u64,
    pub(crate) first_sector: Skew,
    pub(crate) head_skew: Skew,
    pub(crate) cylinder_skew: Skew,
    pub(crate) reserved_sectors: u64,
    pub(crate) spares: u64,
    pub(crate) slips: Vec<u64>,
    /// Defective place, and the place that is used instead.
    pub(crate) defects: Vec<(u64, u64)>,
}

/// An angle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Skew {
    Sectors(u64),
    /// Billionths of a revolution.
    Ppb(u64),
}

/// Sectors that lie behind each other on a track.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Extent {
    pub(crate) first: u64,
    pub(crate) count: u64,
    pub(crate) cylinder: u64,
    pub(crate) head: u64,
    pub(crate) sectors_per_track: u64,
    /// Where the first sector begins, in billionths of a revolution.
    pub(crate) angle_ppb: u64,
}

/// Sectors `low` to `high` of a track of `sectors_per_track` have numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TrackPattern {
    pub(crate) low: u64,
    pub(crate) high: u64,
    pub(crate) sectors_per_track: u64,
}

/// A pattern that is repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    /// Relative to the node.
    pub(crate) first: u64,
    pub(crate) cylinder: i64,
    pub(crate) angle_ppb: u64,
    /// Of one repetition.
    pub(crate) sectors: u64,
    pub(crate) cylinders: i64,
    pub(crate) turn_ppb: u64,
    /// Of all repetitions.
    pub(crate) run_sectors: u64,
    pub(crate) run_cylinders: i64,
    pub(crate) child: Child,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Child {
    Node(u64),
    Track { pattern: u64, head: u64 },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Remap {
    pub(crate) first: u64,
    pub(crate) count: u64,
    pub(crate) cylinder: u64,
    pub(crate) head: u64,
    pub(crate) sector: u64,
    pub(crate) sectors_per_track: u64,
}

impl Cache {
    /// Leaves a buffer for transfers alone.
    pub(crate) fn turn_off(&mut self) {
        self.enabled = false;
        self.fast_write = false;
        self.read_ahead = ReadAhead::None;
        self.read_ahead_min_sectors = 0;
        self.read_ahead_max_sectors = 0;
        self.read_before_requested = false;
    }
}
