//! Admission, slack and disk scheduling: the theory Clockwise runs on, as a library of pure decisions.
//!
//! Nothing here reads a clock, performs I/O, starts a thread or uses `unsafe`. Every function that
//! depends on the time takes it as an argument, so the same objects run in the server, in the
//! simulator and under an exhaustive search of their state space.
//!
//! | module | what it decides |
//! |---|---|
//! | [`units`] | quantities in types |
//! | [`task`] | what a reservation is to one disk |
//! | [`admission`] | whether a set of tasks can be guaranteed, and why not |
//! | [`book`] | the same for tasks with time spans |
//! | [`delta_l`] | the slack of the worst moment, corrected and as published |
//! | [`link`] | what disks that share a link can be promised |
//! | [`core`](mod@core) | what goes next: released and early jobs, exact slack, bursts |
//! | [`request`] | what a disk is asked to do, and what is decided about it |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod admission;
mod allowance;
pub mod best_effort;
pub mod book;
pub mod core;
pub mod delta_l;
mod demand;
pub mod disk;
mod heap;
mod jobs;
pub mod link;
pub mod memory;
mod ordering;
pub mod policy;
mod position;
pub mod predict;
pub mod profile;
pub mod request;
pub mod server;
mod slack;
mod sweep;
pub mod task;
pub mod units;
