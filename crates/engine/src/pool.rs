//! The pool: disks that are served together, their volumes, and the reservations on them.
//!
//! [`Pool`] is the control plane. It owns the metadata and the admission books, opens volumes and clients,
//! and reports ([`Pool::status`]). Requests do not pass through it: they go from the
//! [`Client`](crate::volume_io::Client) straight to the disks.
//!
//! `control` has the entry points, among them those that make, grow, shrink, move and delete volumes; its
//! header describes how a change reaches the disks. `open` and `start` make and open a pool, `close` ends it.

mod check;
mod close;
pub(crate) mod control;
mod learned;
mod marks;
pub(crate) mod open;
mod placement;
mod proposal;
mod start;
mod warnings;

pub use crate::background::measuring::{
    MeasuredIo, MeasuredTimes, MeasuredWrites, Measuring, MeasuringError, MeasuringStop,
};
pub use crate::dispatcher::StallLimits;
pub use crate::state::error::PoolError;
pub use crate::state::options::{
    CreateOptions, Floor, Link, OpenOptions, Placement, PoolDisk, Progress, VolumeSpec,
};
pub use crate::status::volumes::{PlaceRun, VolumeInfo};
pub use crate::volume_io::volume::{BlockRun, Volume};
pub use check::{CheckFinding, CheckReport};
pub use control::Pool;
pub use learned::{DiskIdentity, LearnedProfile, ObservedTimes};
pub use marks::{MARKED_BYTES, mark_of};
pub use open::TWO_SERVERS_REMEDY;
