//! A volume as a file by the server's own mount, against the same server by NBD through `nbdfuse`, and against
//! `bindfs`, a plain file system that passes requests through to a file in memory. All are driven by fio with
//! direct I/O. Rounds alternate between them; figures are medians of rounds, ratios the medians of each round's
//! ratio to the better of the two others, with the least and the greatest. Processor time is that of all
//! processes that serve.
//!
//! ```text
//! cargo bench -p clockwise --bench fuse
//! FUSE_BENCH_ROUNDS=9 FUSE_BENCH_SECONDS=2 ...
//! ```
//!
//! The table goes to standard output, the same as JSON to `target/bench/fuse.json`.

#![allow(clippy::print_stdout, reason = "a report is what this program is for")]

#[path = "../support/disk.rs"]
mod disk;
#[path = "../nbd/measure.rs"]
mod measure;
#[path = "../nbd/ours.rs"]
mod ours;
mod peer;
#[path = "../nbd/report.rs"]
mod report;

use std::path::Path;

use measure::{JOBS, measure};
use peer::{Peer, SERVE, SERVE_AS, SERVERS, start};
use sched::units::Bytes;

/// The size of the file that is worked on.
const SIZE: Bytes = Bytes::from_mib(512);

fn main() {
    if let Some(folder) = std::env::var_os(SERVE) {
        let name = std::env::var(SERVE_AS).expect("which server to be");
        ours::serve(&name, Path::new(&folder));
        return;
    }
    let number = |name: &str, default: usize| {
        std::env::var(name).map_or(default, |text| text.parse().expect(name))
    };
    let (rounds, seconds) = (
        number("FUSE_BENCH_ROUNDS", 5),
        number("FUSE_BENCH_SECONDS", 2),
    );
    let tools = ["fio", "nbdfuse", "bindfs", "umount"];
    if !tools.iter().all(|tool| testkit::skip::have(tool)) || !testkit::skip::is_root("mounting") {
        return;
    }
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
    let peers: Vec<Peer> = SERVERS
        .iter()
        .map(|name| start(name, folder.path()))
        .collect();
    let mut results = Vec::new();
    for job in JOBS {
        let mut samples = vec![Vec::new(); peers.len()];
        for round in 0..rounds {
            for turn in 0..peers.len() {
                let index = (turn + round) % peers.len();
                samples[index].push(measure(&peers[index], job, seconds, folder.path()));
            }
        }
        results.push((job, samples));
    }
    report::report(&SERVERS, &results, "fuse.json");
}
