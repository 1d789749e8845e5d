//! Pools, streams and disks' threads, on disks in memory, in files and on block devices.

mod counting;

mod allocations;
mod client;
mod copies;
mod crash;
mod descriptors;
mod faults;
mod fresh;
mod handoffs;
mod links;
mod measuring;
mod memlock;
mod model;
mod moves;
mod order;
mod placement;
mod pool;
mod pool_allocations;
mod realtime;
mod realtime_refused;
mod repairs;
mod same_moment;
mod schedulers;
mod shutdown;
mod span_ends;
mod streams;

/// By the name under which `handoff`, compiled once more, knows it.
use handoffs::sync;
