//! What a pool is made of and how it is opened.

use std::ops::Range;
use std::sync::Arc;

use sched::profile::DriveProfile;
use sched::units::{Bytes, Nanos};
use volume::{Geometry, VolumeError};

use super::error::PoolError;
use crate::disk::Disk;
use crate::dispatcher::Patience;
use crate::rt::Denied;

/// A disk of a pool.
pub struct PoolDisk {
    /// A name for people: the path of the device or file.
    pub name: String,
    /// The disk.
    pub disk: Box<dyn Disk>,
    /// What is known of its service times.
    pub profile: Arc<DriveProfile>,
    /// Whether the profile was measured on this disk, or is a conservative guess by kind.
    pub profile_is_measured: bool,
}

/// How to make a pool.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CreateOptions {
    /// The pool's name, for messages; it is not kept on the disks.
    pub name: String,
    /// The extent size; `None` is the size at which reading a whole extent is about nine parts
    /// transfer and one part positioning on the slowest disk.
    pub extent_bytes: Option<Bytes>,
    /// Whether to take disks that belong to a pool already. What is on them is lost.
    pub force: bool,
}

impl CreateOptions {
    /// Checks what can be checked without disks.
    ///
    /// # Errors
    /// When the extent size is none.
    pub fn check(&self) -> Result<(), PoolError> {
        match self.extent_bytes {
            Some(size) if Geometry::new(size).is_none() => {
                Err(PoolError::from_plan(VolumeError::BadExtentSize(size), size))
            }
            _ => Ok(()),
        }
    }
}

/// The part of every disk that best effort without a reservation keeps, whatever streams reserve.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Floor {
    /// No such part: where streams fill a disk, best effort may wait for ever.
    None,
    /// This share of the disk's time, in thousandths. The slice is the longest best-effort piece,
    /// and the period follows.
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
    /// One part in twenty.
    fn default() -> Self {
        Self::Share { permille: 50 }
    }
}

/// How to open a pool.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// The pool's name, for people.
    pub name: String,
    /// The scheduler: `exact`, `delta-l`, `delta-l-published`, `lst` or `edf`.
    pub scheduler: String,
    /// What best effort keeps of each disk.
    pub floor: Floor,
    /// Whether the dispatchers ask for real-time priority. Without permission they run without, and
    /// [`Pool::warnings`](crate::pool::Pool::warnings) says so.
    pub realtime: bool,
    /// What the host has denied the process already, to be told with what it denies the pool: see
    /// [`lock_process_memory`](crate::rt::lock_process_memory).
    pub denied: Denied,
    /// How long a disk may not answer.
    pub patience: Patience,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            name: "pool".into(),
            scheduler: "exact".into(),
            floor: Floor::default(),
            realtime: true,
            denied: Denied::default(),
            patience: Patience::default(),
        }
    }
}

/// Where a volume's extents are to lie. The default is on all disks in turn, first fit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Placement {
    /// On these disks, by name; empty is all.
    pub disks: Vec<String>,
    /// In this zone of each disk (0 is the outermost).
    pub zone: Option<usize>,
    /// In these bytes of each disk.
    pub bytes: Option<Range<u64>>,
    /// How many neighbouring extents on one disk before the next disk is taken. 0: one, or where a
    /// volume grows, as many as it has.
    pub run_extents: u32,
}

impl Placement {
    /// Whether it leaves out any place of the pool.
    pub(crate) fn says_where(&self) -> bool {
        !self.disks.is_empty() || self.zone.is_some() || self.bytes.is_some()
    }
}

/// A volume to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeSpec {
    /// Its name: 1 to 255 bytes, not blanks alone; no slash, no characters that are not seen.
    pub name: String,
    /// Its size; rounded up to whole sectors.
    pub size: Bytes,
    /// Where it goes.
    pub placement: Placement,
}

/// How far a long operation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Progress {
    /// Units done.
    pub done: u64,
    /// Units in all.
    pub total: u64,
}
