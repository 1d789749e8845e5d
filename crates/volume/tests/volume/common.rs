//! Disks that lose power, and a model of what a pool on them may hold afterwards.
//!
//! A disk has durable data and, for each sector, unflushed versions. A crash keeps any one version of each
//! sector, independently of all other sectors. That covers dropped, reordered and torn writes. Sectors
//! themselves are atomic.
//!
//! Every sector of data carries a stamp that is never used twice, so that a reader knows the owner of the
//! data and the write that it came from.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    missing_docs,
    reason = "each test file uses a part, and only tests do"
)]

mod crashes;
mod disks;
mod model;
mod world;

pub use crashes::*;
pub use disks::*;
pub use model::*;
pub use world::*;
