//! Code that the tests of several crates share. Only tests and benchmarks depend on this crate.
//!
//! | module | what it is |
//! |---|---|
//! | [`seed`](mod@seed), [`random`], [`cases`](mod@cases) | random tests, which print their seed |
//! | [`mod@full`] | tests that have a full form, for `make soak` |
//! | [`bytes`] | bytes that look random |
//! | [`skip`] | needs of a test that a machine may lack |
//! | [`until`](mod@until) | waiting for a condition without an event |
//! | [`process`] | programs that do not outlive their test |
//! | [`own_process`](mod@own_process) | tests that need a process of their own |
//! | [`threads`], [`rights`] | a test's threads as the kernel sees them, and rights that it denies |
//! | [`folders`], [`host`] | files, file systems and block devices, also faulty ones |
//! | [`disks`] | disks in memory that lose power and fail, and pools of them |
//! | [`site`] | a configuration, the program, a server |
//! | [`nbd`] | a client of block exports that can break every rule |
//! | [`rtsp`] | cameras, players and browsers |
//! | [`fuzz_targets`] | fuzz targets |
//!
//! The unit tests of a crate see that crate twice: as their own crate, and as a dependency of this one. So
//! they use only modules that do not mention its types. The unit tests of the engine compile [`disks`] once
//! more.

#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    clippy::new_without_default,
    clippy::should_implement_trait,
    reason = "only tests use it"
)]

pub mod bytes;
pub mod cases;
pub mod disks;
pub mod folders;
pub mod full;
pub mod fuzz_targets;
pub mod host;
pub mod nbd;
pub mod own_process;
pub mod process;
pub mod random;
pub mod rights;
pub mod rtsp;
pub mod seed;
pub mod site;
pub mod skip;
pub mod threads;
pub mod until;

pub use bytes::pattern;
pub use cases::cases;
pub use full::is_full;
pub use own_process::own_process;
pub use random::Random;
pub use seed::seed;
pub use until::until;

/// By the name under which [`disks`], compiled once more, know it.
extern crate self as testkit;
