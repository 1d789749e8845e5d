//! Bodies of requests for volumes and streams.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Where to place a volume's extents. The default is on all disks in turn, first fit.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PlacementAsk {
    /// The disks, by name; empty for all.
    pub disks: Vec<String>,
    /// The zone of each disk; 0 is the outermost.
    pub zone: Option<usize>,
    /// The first byte of each disk that may be used.
    pub from_byte: Option<u64>,
    /// The end of the bytes of each disk that may be used, exclusive.
    pub to_byte: Option<u64>,
    /// Neighbouring extents on one disk before the next disk is taken. 0: one, or for a volume that grows, as
    /// many as it has.
    pub run_extents: u32,
}

impl PlacementAsk {
    /// The placement in the engine's form.
    #[must_use]
    pub fn placement(&self) -> engine::pool::Placement {
        let bytes = (self.from_byte.is_some() || self.to_byte.is_some())
            .then(|| self.from_byte.unwrap_or(0)..self.to_byte.unwrap_or(u64::MAX));
        engine::pool::Placement {
            disks: self.disks.clone(),
            zone: self.zone,
            bytes,
            run_extents: self.run_extents,
        }
    }
}

/// A volume to create.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateVolume {
    /// Its name: 1 to 255 bytes, no slash, no invisible characters, not only blanks.
    pub name: String,
    /// Its size; rounded up to whole sectors of 512 bytes.
    pub size_bytes: u64,
    /// The placement of its extents.
    #[serde(default)]
    pub placement: PlacementAsk,
}

/// A new size of a volume. A larger one grows it, a smaller one shrinks it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeVolume {
    /// The new size; rounded up to whole sectors of 512 bytes.
    pub size_bytes: u64,
    /// The permitted change: `grow`, `shrink`, or both if absent. A size that would need the other change is
    /// an error.
    #[serde(default)]
    pub direction: Option<Direction>,
    /// The placement of new extents; an error if the volume shrinks, which needs none.
    #[serde(default)]
    pub placement: PlacementAsk,
    /// True to shrink even if data is lost: recordings, a file system, written data past the new size, or a
    /// volume in use through its export.
    #[serde(default)]
    pub force: bool,
}

/// The direction of a change of size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// To a larger size only.
    Grow,
    /// To a smaller size only. Data past it is lost.
    Shrink,
}

/// The direction of a stream's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StreamOp {
    /// To the volume.
    Record,
    /// From the volume.
    Play,
}

/// A stream to reserve.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReserveStream {
    /// A name for people, with the rules of a volume's name; if absent, the volume's name.
    #[serde(default)]
    pub name: Option<String>,
    /// The volume.
    pub volume: String,
    /// The direction.
    pub op: StreamOp,
    /// True to record even over recordings (then from the volume's beginning on), a file system, or a volume
    /// in use through its export.
    #[serde(default)]
    pub force: bool,
    /// Its rate.
    pub rate_bytes_per_second: u64,
    /// The size of a block; if absent, the pool proposes one.
    #[serde(default)]
    pub block_bytes: Option<u64>,
    /// The start of its range in the volume.
    #[serde(default)]
    pub offset_bytes: u64,
    /// The length of its range; if absent, to the end of the volume.
    #[serde(default)]
    pub length_bytes: Option<u64>,
    /// The number of bytes after which it ends, at least one.
    #[serde(default)]
    pub limit_bytes: Option<u64>,
    /// True to continue at the beginning of its range when the end is reached.
    #[serde(default)]
    pub wraps: bool,
    /// When it begins, in milliseconds from now; if absent, at once.
    #[serde(default)]
    pub starts_in_ms: Option<u64>,
    /// When it ends, in milliseconds from now; if absent, it runs until it is ended.
    #[serde(default)]
    pub ends_in_ms: Option<u64>,
    /// The time for which the reservation waits for its data connection, in milliseconds from its start
    /// (default 10,000, at most 3,600,000).
    #[serde(default)]
    pub connect_within_ms: Option<u64>,
}

/// A stream's new rate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeRate {
    /// The rate.
    pub rate_bytes_per_second: u64,
}

/// A move of a volume's extents.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveVolume {
    /// The new placement.
    pub placement: PlacementAsk,
}

/// The progress of a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct MoveProgress {
    /// Extents moved.
    pub done: u64,
    /// Extents to move.
    pub total: u64,
}
