//! Pools on disks in memory: every change to them, cut off at every step.

mod common;

mod crash;
mod format;
mod interleavings;
mod making;
mod map;
mod open;
mod threads;
mod volumes;

/// By the names under which the modules that are compiled once more know them.
use interleavings::{chunks, dirty, error, limits, place, sync};
