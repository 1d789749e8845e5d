//! The NBD export against `nbdkit file` and `qemu-nbd` in front of a file in memory: requests a second, bandwidth, and
//! processor time for a request. The export is measured twice: idle otherwise, and beside a stream on the same disk,
//! with which connections cannot use the disk directly.
//!
//! ```text
//! cargo bench -p clockwise --bench nbd
//! NBD_BENCH_ROUNDS=9 NBD_BENCH_SECONDS=2 NBD_BENCH_SERVERS=clockwise NBD_BENCH_JOBS=randread ...
//! ```
//!
//! The table goes to standard output, the same as JSON to `target/bench/nbd.json`. See [`comparison`].

#![allow(clippy::print_stdout, reason = "a report is what this program is for")]

#[path = "../support/comparison.rs"]
mod comparison;

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use comparison::{
    Candidate, Comparison, OwnServer, Role, Running, VOLUME, socket_of, start_own,
    wait_until_ready, write_file,
};

const NBDKIT: &str = "nbdkit";
const QEMU_NBD: &str = "qemu-nbd";

const CANDIDATES: [Candidate; 4] = [
    Candidate {
        name: "clockwise",
        own: Some(OwnServer::Idle),
        role: Role::Subject,
    },
    Candidate {
        name: "clockwise-stream",
        own: Some(OwnServer::BesideStream),
        role: Role::Subject,
    },
    Candidate {
        name: NBDKIT,
        own: None,
        role: Role::Peer,
    },
    Candidate {
        name: QEMU_NBD,
        own: None,
        role: Role::Peer,
    },
];

fn main() {
    let comparison = Comparison {
        name: "nbd",
        candidates: &CANDIDATES,
        rounds: 9,
        start,
    };
    if comparison.serve() {
        return;
    }
    let tools = ["fio", NBDKIT, QEMU_NBD];
    if tools.iter().all(|tool| testkit::skip::have(tool)) {
        comparison.run();
    }
}

fn start(candidate: &Candidate, folder: &Path) -> Running {
    let name = candidate.name;
    let socket = socket_of(name, folder);
    let (process, export) = if candidate.own.is_some() {
        (start_own(candidate, folder), VOLUME)
    } else {
        let file = folder.join(format!("{name}.img"));
        write_file(&file);
        let mut command = Command::new(name);
        if name == NBDKIT {
            command.args(["-f", "-U"]).arg(&socket).arg("file");
        } else {
            command
                .args(["-f", "raw", "-t", "--cache=writeback", "-k"])
                .arg(&socket);
        }
        command
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        (command.spawn().expect(name), "")
    };
    let uri = format!("nbd+unix:///{export}?socket={}", socket.display());
    let running = Running {
        processes: vec![process],
        mount: None,
        target: vec!["--ioengine=nbd".to_owned(), format!("--uri={uri}")],
    };
    wait_until_ready(name, || UnixStream::connect(&socket).is_ok());
    running
}
