//! What the API is asked.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Where a volume's extents are to lie. Empty: on all disks in turn, first fit.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PlacementAsk {
    /// On these disks, by name; empty is all.
    pub disks: Vec<String>,
    /// In this zone of each disk; 0 is the outermost.
    pub zone: Option<usize>,
    /// From this byte of each disk on.
    pub from_byte: Option<u64>,
    /// Up to this byte of each disk, exclusive.
    pub to_byte: Option<u64>,
    /// Neighbouring extents on one disk before the next disk is taken. 0: one, or where a volume
    /// grows, as many as it has.
    pub run_extents: u32,
}

impl PlacementAsk {
    /// As the engine takes it.
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

/// A volume to be made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateVolume {
    /// Its name: 1 to 255 bytes, not blanks alone; no slash, no characters that are not seen.
    pub name: String,
    /// Its size; rounded up to whole sectors of 512 bytes.
    pub size_bytes: u64,
    /// Where it goes.
    #[serde(default)]
    pub placement: PlacementAsk,
}

/// A volume's new size: larger grows it, smaller shrinks it where nothing is lost by that.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeVolume {
    /// The new size; rounded up to whole sectors of 512 bytes.
    pub size_bytes: u64,
    /// What is to happen: `grow`, `shrink`, or either when absent. A size on the other side of the
    /// present one is an error.
    #[serde(default)]
    pub direction: Option<Direction>,
    /// Where new extents go; an error when it shrinks, which makes none.
    #[serde(default)]
    pub placement: PlacementAsk,
    /// Whether it shrinks although something is lost: recordings, a file system, written data past the
    /// new size, or what is in use through its export.
    #[serde(default)]
    pub force: bool,
}

/// Which way a volume's size may change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Only to a larger size.
    Grow,
    /// Only to a smaller size; what lies past it is lost.
    Shrink,
}

/// Which way a stream's data goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StreamOp {
    /// To the volume.
    Record,
    /// From the volume.
    Play,
}

/// A stream to be reserved.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReserveStream {
    /// A name for people, of the form of a volume's; the volume's when absent.
    #[serde(default)]
    pub name: Option<String>,
    /// The volume.
    pub volume: String,
    /// Which way.
    pub op: StreamOp,
    /// Whether it records over recordings (then from the volume's beginning on), a file system, or what is in use
    /// through its export.
    #[serde(default)]
    pub force: bool,
    /// Its rate.
    pub rate_bytes_per_second: u64,
    /// The size of a block; proposed by the pool when absent.
    #[serde(default)]
    pub block_bytes: Option<u64>,
    /// Where in the volume it begins.
    #[serde(default)]
    pub offset_bytes: u64,
    /// How much of the volume from there is its range; all the rest when absent.
    #[serde(default)]
    pub length_bytes: Option<u64>,
    /// Ends it after this many bytes, at least one.
    #[serde(default)]
    pub limit_bytes: Option<u64>,
    /// Whether it starts over at the beginning of its range when it reaches the end.
    #[serde(default)]
    pub wraps: bool,
    /// When it begins, in milliseconds from now; at once when absent.
    #[serde(default)]
    pub starts_in_ms: Option<u64>,
    /// When it ends, in milliseconds from now; when it is ended when absent.
    #[serde(default)]
    pub ends_in_ms: Option<u64>,
    /// How long the reservation waits for its data connection, in milliseconds (default 10,000, at most
    /// 3,600,000), counted from its beginning.
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
    /// Where they are to lie.
    pub placement: PlacementAsk,
}

/// How far a move is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct MoveProgress {
    /// Extents moved.
    pub done: u64,
    /// Extents to move.
    pub total: u64,
}
