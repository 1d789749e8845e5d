//! Parameters for making and opening a pool.

use std::ops::Range;
use std::sync::Arc;

use sched::profile::DriveProfile;
use sched::units::{Bytes, BytesPerSecond, Nanos};
use volume::{Geometry, VolumeError};

use super::error::PoolError;
use crate::disk::Disk;
use crate::dispatcher::StallLimits;
use crate::rt::DeniedResources;

/// A disk of a pool.
pub struct PoolDisk {
    /// A name for people: the path of the device or file.
    pub name: String,
    /// The disk.
    pub disk: Box<dyn Disk>,
    /// Its service-time profile.
    pub profile: Arc<DriveProfile>,
    /// True if the profile was measured on this disk; false if it is a conservative default for its kind.
    pub profile_is_measured: bool,
}

/// Options for making a pool.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CreateOptions {
    /// The pool's name, for messages; it is not kept on the disks.
    pub name: String,
    /// The extent size. `None` chooses the size at which reading a whole extent takes about nine parts
    /// transfer and one part positioning on the slowest disk.
    pub extent_bytes: Option<Bytes>,
    /// Overwrite disks that belong to a pool already. Their content is lost.
    pub force: bool,
}

impl CreateOptions {
    /// Checks the options that do not depend on the disks.
    ///
    /// # Errors
    /// When the extent size is invalid.
    pub fn check(&self) -> Result<(), PoolError> {
        match self.extent_bytes {
            Some(size) if Geometry::new(size).is_none() => {
                Err(PoolError::from_plan(VolumeError::BadExtentSize(size), size))
            }
            _ => Ok(()),
        }
    }
}

/// The share of every disk that best effort without a reservation keeps, whatever streams reserve.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Floor {
    /// No share: where streams fill a disk, best effort may starve.
    None,
    /// A share of the disk's time, in thousandths. The slice is the longest best-effort piece; the
    /// period follows from it.
    Share {
        /// Thousandths of the disk's time.
        permille: u32,
    },
    /// A slice of disk time in each period.
    Server {
        /// Disk time; at least that of the longest best-effort piece.
        slice: Nanos,
        /// The period.
        period: Nanos,
    },
}

impl Default for Floor {
    /// 50 thousandths.
    fn default() -> Self {
        Self::Share { permille: 50 }
    }
}

/// A link that disks share. If only the first of them promise, the others serve best effort in the place that one of
/// these lends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// Its rate.
    pub rate: BytesPerSecond,
    /// The names of its disks: first those that promise.
    pub disks: Vec<String>,
    /// Number of disks that promise; at least one.
    pub promising: usize,
}

/// Options for opening a pool.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// The pool's name, for people.
    pub name: String,
    /// The scheduler: `exact`, `delta-l`, `delta-l-published`, `lst` or `edf`.
    pub scheduler: String,
    /// The best-effort share of each disk.
    pub floor: Floor,
    /// Ask for real-time priority for the dispatchers. Without permission they run without, and
    /// [`Pool::warnings`](crate::pool::Pool::warnings) reports it.
    pub realtime: bool,
    /// Resources that the host has denied the process so far; reported together with those denied to the
    /// pool. See [`lock_process_memory`](crate::rt::lock_process_memory).
    pub denied: DeniedResources,
    /// Time limits for disks that do not answer.
    pub patience: StallLimits,
    /// Links that disks share. No disk is on two of them.
    pub links: Vec<Link>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            name: "pool".into(),
            scheduler: "exact".into(),
            floor: Floor::default(),
            realtime: true,
            denied: DeniedResources::default(),
            patience: StallLimits::default(),
            links: Vec::new(),
        }
    }
}

/// Where a volume's extents may lie. The default is all disks in turn, first fit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Placement {
    /// On these disks, by name; empty means all.
    pub disks: Vec<String>,
    /// In this zone of each disk (0 is the outermost).
    pub zone: Option<usize>,
    /// In this byte range of each disk.
    pub bytes: Option<Range<u64>>,
    /// Number of neighbouring extents on one disk before the next disk is taken. 0 means one, or for a
    /// volume that grows, the number that it has.
    pub run_extents: u32,
}

impl Placement {
    /// True if it excludes any place of the pool.
    pub(crate) fn says_where(&self) -> bool {
        !self.disks.is_empty() || self.zone.is_some() || self.bytes.is_some()
    }
}

/// Parameters of a new volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeSpec {
    /// Its name: 1 to 255 bytes, not only blanks; no slash and no invisible characters.
    pub name: String,
    /// Its size; rounded up to whole sectors.
    pub size: Bytes,
    /// Where it goes.
    pub placement: Placement,
}

/// Progress of a long operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Progress {
    /// Units done.
    pub done: u64,
    /// Units in all.
    pub total: u64,
}
