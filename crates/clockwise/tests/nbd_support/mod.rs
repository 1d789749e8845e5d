//! What the NBD tests share: a real pool on files with the real server in front, real client
//! programs with a time limit, and a client of our own that speaks bytes.
//!
//! Everything is undone when it is dropped, so also when a test panics.

#![allow(
    dead_code,
    missing_docs,
    unused_imports,
    clippy::duplicate_mod,
    reason = "each test binary uses its part"
)]

#[path = "../common/bytes.rs"]
mod bytes;
#[path = "../../../engine/tests/engine/common/platter.rs"]
#[allow(
    unreachable_pub,
    reason = "the engine's tests share it in a module of their own"
)]
mod platter;
#[path = "../common/process.rs"]
mod process;
mod rig;
#[path = "../../../engine/tests/engine/common/skip.rs"]
pub(crate) mod skip;
#[path = "../common/until.rs"]
mod until;
mod wire;

use std::process::Output;

pub(crate) use bytes::pattern;
pub(crate) use process::{Process, WITHIN};
pub(crate) use rig::Rig;
pub(crate) use until::until;
pub(crate) use wire::{Reply, Wire, cmd};

/// Runs a program to its end, within the time that a test waits for anything, whatever its status.
pub(crate) fn output(tool: &str, arguments: &[&str]) -> Output {
    Process::captured(skip::tool(tool).args(arguments)).output()
}

/// Runs a program that must succeed; what it printed.
pub(crate) fn run(tool: &str, arguments: &[&str]) -> String {
    let output = output(tool, arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{tool} {arguments:?}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}
