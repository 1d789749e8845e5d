//! The pool: the disks that are served together, their volumes, and who may use how much of them.
//!
//! [`Pool`] is the control plane. It owns the metadata and the admission books, opens volumes and
//! clients, and answers for what happened ([`Pool::status`]). No request of a client passes through
//! it: those go from the [`Client`](crate::front::Client) straight to the disks.

pub(crate) mod admission;
mod check;
pub(crate) mod control;
pub(crate) mod core;
pub(crate) mod disks;
mod error;
pub(crate) mod frozen;
pub(crate) mod keeper;
mod marks;
pub(crate) mod meta;
mod notices;
pub(crate) mod open;
mod options;
mod ownership;
mod placement;
mod proposal;
mod start;
pub(crate) mod syncer;
pub(crate) mod volumes;

pub use crate::dispatcher::Patience;
pub use check::{CheckFinding, CheckReport};
pub use control::Pool;
pub use disks::LearnedProfile;
pub use error::PoolError;
pub use marks::{MARKED_BYTES, mark_of};
pub use open::TWO_SERVERS_REMEDY;
pub use options::{CreateOptions, Floor, OpenOptions, Placement, PoolDisk, Progress, VolumeSpec};
pub use volumes::{BlockRun, PlaceRun, Volume, VolumeInfo};
