//! Dispatchers, buffers and the data path.
//!
//! | module | what it is |
//! |---|---|
//! | [`clock`] | the time |
//! | [`event`] | waking a thread that sleeps in the kernel |
//! | [`rt`] | real-time threads, as far as the host permits |
//! | [`panics`] | which panics a program survives |
//! | [`buffer`] | memory for data on its way between socket and disk |
//! | [`completion`] | how a client learns that its request has ended |
//! | [`disk`] | what a dispatcher needs of a disk |
//! | [`uring`] | block devices and files |
//! | [`dispatcher`] | one thread per disk that owns its queues and the disk |
//! | [`pool`] | the control plane: disks, volumes, reservations |
//! | [`volume_io`] | the data path: volume requests in, physical requests out |
//! | [`stream`] | reserved bandwidth, and sessions that use it at their pace |
//! | [`status`] | what is promised and what happened |

mod background;
pub mod buffer;
pub mod clock;
pub mod completion;
pub mod disk;
pub mod dispatcher;
pub mod event;
mod handoff;
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

/// By the name under which the tests' disks in memory know it.
#[cfg(test)]
extern crate self as engine;
/// `testkit::disks` of this very crate: those of `testkit` are of the one that it was linked with.
#[cfg(test)]
#[allow(dead_code, unreachable_pub, reason = "unit tests use some of it")]
#[path = "../../testkit/src"]
mod test_rig {
    pub mod disks;
}
