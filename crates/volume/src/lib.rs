//! On-disk structures, placement and volume maps.
//!
//! No I/O and no clock: structures are read through [`Medium`], and changes are [`Transaction`]s,
//! lists of steps that the engine carries out; its module states the contract. `docs/design/format.md`
//! has the bytes on disk and what a crash leaves after each step.
//!
//! | module | what it is for |
//! |---|---|
//! | [`place`], [`limits`], [`name`] | places, sizes, limits, names for people |
//! | [`pool`] | the pool in memory; every change is planned here |
//! | [`transaction`] | what a plan is and how it is carried out |
//! | [`placement`], [`grade`] | where new extents go, and where not |
//! | [`map`], [`extent`] | from a request on a volume to requests on disks |
//! | [`moving`] | moving an extent in use |
//! | [`owner`] | whether the disks are still this server's |
//! | [`open`], [`check`] | opening, and why it fails; verifying |

#![forbid(unsafe_code)]

mod alloc;
pub mod check;
mod checkpoint;
pub mod chunks;
mod commit;
mod dirty;
mod draft;
pub mod error;
pub mod extent;
mod format;
#[doc(hidden)]
pub mod fuzzing;
pub mod grade;
mod identify;
mod image;
mod lending;
pub mod limits;
mod log;
pub mod map;
mod medium;
pub mod moving;
pub mod name;
mod node;
pub mod ondisk;
pub mod open;
pub mod owner;
pub mod place;
pub mod placement;
mod plan;
pub mod pool;
mod problem;
mod replay;
mod resize;
mod settle;
mod sync;
pub mod transaction;

pub use dirty::Mark;
pub use error::{MapError, Refused, VolumeError};
pub use grade::Grade;
pub use map::VolumeMap;
pub use medium::{Candidate, Medium};
pub use moving::Move;
pub use ondisk::Owner;
pub use place::{DiskNumber, Geometry, Place, Uuid, VolumeId};
pub use placement::{DiskRange, Placement};
pub use pool::{Committed, CreateSpec, FormatSpec, PoolDisk, PoolState};
pub use problem::{OpenError, Problem};
pub use transaction::{Step, Transaction};
