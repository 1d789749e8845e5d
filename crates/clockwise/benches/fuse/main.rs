//! A volume as a file of the server's own mount, against the NBD export of the same server through `nbdfuse`, and
//! against `bindfs`, a file system that passes requests through to a file in memory. Direct I/O.
//!
//! ```text
//! cargo bench -p clockwise --bench fuse
//! FUSE_BENCH_ROUNDS=9 FUSE_BENCH_SECONDS=2 ...
//! ```
//!
//! The table goes to standard output, the same as JSON to `target/bench/fuse.json`. See [`comparison`].

#![allow(clippy::print_stdout, reason = "a report is what this program is for")]

#[path = "../support/comparison.rs"]
mod comparison;

use std::path::Path;
use std::process::Command;

use comparison::{
    Candidate, Comparison, OwnServer, Role, Running, SIZE, VOLUME, socket_of, start_own,
    wait_until_ready, write_file,
};

const NBDFUSE: &str = "nbdfuse";
const BINDFS: &str = "bindfs";

const CANDIDATES: [Candidate; 3] = [
    Candidate {
        name: "clockwise",
        own: Some(OwnServer::Mounted),
        role: Role::Subject,
    },
    Candidate {
        name: NBDFUSE,
        own: Some(OwnServer::Idle),
        role: Role::Peer,
    },
    Candidate {
        name: BINDFS,
        own: None,
        role: Role::Peer,
    },
];

fn main() {
    let comparison = Comparison {
        name: "fuse",
        candidates: &CANDIDATES,
        rounds: 5,
        start,
    };
    if comparison.serve() {
        return;
    }
    let tools = ["fio", NBDFUSE, BINDFS, "umount"];
    if tools.iter().all(|tool| testkit::skip::have(tool)) && testkit::skip::is_root("mounting") {
        comparison.run();
    }
}

fn start(candidate: &Candidate, folder: &Path) -> Running {
    let name = candidate.name;
    let mount = folder.join(format!("{name}.mount"));
    std::fs::create_dir(&mount).expect("a mount point");
    let file = mount.join(VOLUME);
    let mut running = Running {
        processes: Vec::new(),
        mount: Some(mount.clone()),
        target: vec![
            "--ioengine=libaio".to_owned(),
            "--direct=1".to_owned(),
            format!("--filename={}", file.display()),
        ],
    };
    if candidate.own.is_some() {
        running.processes.push(start_own(candidate, folder));
    }
    match name {
        BINDFS => {
            let source = folder.join("source");
            std::fs::create_dir(&source).expect("a folder in memory");
            write_file(&source.join(VOLUME));
            let mut bindfs = Command::new(BINDFS);
            bindfs
                .args(["-f", "--multithreaded"])
                .arg(source)
                .arg(mount);
            running.processes.push(bindfs.spawn().expect(name));
        }
        NBDFUSE => {
            let socket = socket_of(name, folder);
            let uri = format!("nbd+unix:///{VOLUME}?socket={}", socket.display());
            let mut nbdfuse = Command::new(NBDFUSE);
            nbdfuse.arg(&file).arg(uri);
            running.processes.push(nbdfuse.spawn().expect(name));
        }
        _ => {}
    }
    wait_until_ready(name, || {
        std::fs::metadata(&file).is_ok_and(|file| file.len() == SIZE.0)
    });
    running
}
