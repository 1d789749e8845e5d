//! The engine: dispatchers, buffers, and the data path of a pool.
//!
//! | module | contents |
//! |---|---|
//! | [`clock`] | the time |
//! | [`event`] | waking a thread that sleeps in the kernel |
//! | [`host`] | properties of the host |
//! | [`rt`] | real-time threads, as far as the host permits |
//! | [`panics`] | the panics that the process survives |
//! | [`buffer`] | memory for data on its way between socket and disk |
//! | [`completion`] | delivery of results to clients |
//! | [`disk`] | the interface between a dispatcher and a disk |
//! | [`uring`] | disks that are block devices or files |
//! | [`dispatcher`] | one thread per disk, which owns the disk and its queues |
//! | [`pool`] | the control plane: disks, volumes, reservations |
//! | [`volume_io`] | the data path: volume requests in, disk requests out |
//! | [`stream`] | reserved bandwidth, and sessions that use it at their pace |
//! | [`status`] | reports: reservations, counters, health |
//! | `state` | shared state of a pool, below all other modules of it |
//! | `background` | the pool's own work: metadata changes, moves, ends of reservations |
//!
//! # Where to start reading
//!
//! * A disk stalls: `dispatcher/state/faults.rs` (detection, giving up, return), `status/health.rs` (what
//!   the operator sees). A host sync that stalls: `state/disk/syncer.rs`.
//! * A volume grows: `pool/control.rs` ([`pool::Pool::grow`]), `background/metadata.rs` (`Meta::change`
//!   writes the plan), `crates/volume/src/resize.rs` (the plan).
//! * A request: `volume_io/submit.rs`, `volume_io/issue.rs`, `dispatcher/run.rs`.
//! * A flush: `volume_io/rounds.rs`, then the committer in `background/metadata.rs`.

mod background;
pub mod buffer;
pub mod clock;
pub mod completion;
pub mod disk;
pub mod dispatcher;
pub mod event;
mod handoff;
pub mod host;
mod latency;
pub mod panics;
pub mod pool;
pub mod rt;
mod state;
pub mod status;
pub mod stream;
mod sync;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
pub mod uring;
pub mod volume_io;

/// The name under which `testkit`'s disks in memory refer to this crate.
#[cfg(test)]
extern crate self as engine;
/// `testkit::disks`, compiled within this crate: `testkit` itself links another instance of the engine.
#[cfg(test)]
#[allow(dead_code, unreachable_pub, reason = "unit tests use some of it")]
#[path = "../../testkit/src"]
mod test_rig {
    pub mod disks;
}
