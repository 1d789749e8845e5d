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
#[path = "../../../engine/tests/common/platter.rs"]
#[allow(
    unreachable_pub,
    reason = "the engine's tests share it in a module of their own"
)]
mod platter;
#[path = "../common/process.rs"]
mod process;
mod rig;
#[path = "../../../engine/tests/common/skip.rs"]
pub(crate) mod skip;
#[path = "../common/until.rs"]
mod until;
mod wire;

use std::io::Read;
use std::process::{Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

pub(crate) use bytes::pattern;
pub(crate) use process::Process;
pub(crate) use rig::Rig;
pub(crate) use until::until;
pub(crate) use wire::{Reply, Wire, cmd};

/// How long any client program may take.
const TOOL_WITHIN: Duration = Duration::from_secs(120);

/// Runs a program to its end, within the time limit, whatever its status.
pub(crate) fn output(tool: &str, arguments: &[&str]) -> Output {
    let mut command = skip::tool(tool);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut process = Process::spawn(&mut command);
    let (mut out, mut err) = (
        process.stdout.take().unwrap(),
        process.stderr.take().unwrap(),
    );
    let errors = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        err.read_to_end(&mut bytes).map(|_| bytes)
    });
    let (done, finished) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let result = out.read_to_end(&mut bytes).map(|_| bytes);
        // The test may have given up.
        let _ = done.send(result);
    });
    let stdout = match finished.recv_timeout(TOOL_WITHIN) {
        Ok(bytes) => bytes.unwrap(),
        Err(_) => {
            drop(process);
            let errors = errors.join().unwrap().unwrap();
            let errors = String::from_utf8_lossy(&errors);
            panic!("{tool} {arguments:?} took more than {TOOL_WITHIN:?}: {errors}");
        }
    };
    let status = process.wait().unwrap();
    let stderr = errors.join().unwrap().unwrap();
    Output {
        status,
        stdout,
        stderr,
    }
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
