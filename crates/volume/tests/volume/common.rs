//! Disks that lose power, and a model of what a pool on them may hold afterwards.
//!
//! A disk has what is durable and, for each sector, what has been written since and may or may not
//! survive: whichever of the unflushed versions of each sector, independently of all other sectors.
//! That covers dropped, reordered and torn writes. Sectors themselves are atomic.
//!
//! Every sector of data carries a stamp that is never used twice, so that a reader knows not only
//! that data is there but whose it is and which write it came from.

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
