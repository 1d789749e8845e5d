//! The NBD export against `nbdkit file` and `qemu-nbd`, each a process of its own in front of a file
//! in memory, all driven by fio: requests a second, bandwidth, and the server's processor time for
//! a request. Rounds alternate between the servers; figures are medians of rounds, ratios the
//! medians of each round's ratio to the better of the two others, with the least and the greatest.
//! The export is measured twice: as it is, and with a stream open on the disk, which is then not
//! lent to connections.
//!
//! ```text
//! cargo bench -p clockwise --bench nbd
//! NBD_BENCH_ROUNDS=9 NBD_BENCH_SECONDS=2 NBD_BENCH_SERVERS=clockwise NBD_BENCH_JOBS=randread ...
//! ```
//!
//! The table goes to standard output, the same as JSON to `target/bench/nbd.json`.

#![allow(clippy::print_stdout, reason = "a report is what this program is for")]

#[path = "../support/disk.rs"]
mod disk;
mod measure;
mod ours;
mod peer;
mod report;

use std::path::Path;

use measure::{JOBS, measure};
use peer::{Peer, SERVE, SERVE_AS, SERVERS, start};
use sched::units::Bytes;

/// The size of the export that is worked on.
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
        number("NBD_BENCH_ROUNDS", 9),
        number("NBD_BENCH_SECONDS", 2),
    );
    let chosen = |name: &str, item: &str| {
        std::env::var(name).map_or(true, |list| list.split(',').any(|word| word == item))
    };
    let tools = ["fio", "nbdkit", "qemu-nbd"];
    if !tools.iter().all(|tool| testkit::skip::have(tool)) {
        return;
    }
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
    let names: Vec<&str> = SERVERS
        .into_iter()
        .filter(|name| chosen("NBD_BENCH_SERVERS", name))
        .collect();
    let peers: Vec<Peer> = names
        .iter()
        .map(|name| start(name, folder.path()))
        .collect();
    let mut results = Vec::new();
    for job in JOBS
        .into_iter()
        .filter(|job| chosen("NBD_BENCH_JOBS", job.rw))
    {
        let mut samples = vec![Vec::new(); peers.len()];
        for round in 0..rounds {
            for turn in 0..peers.len() {
                let index = (turn + round) % peers.len();
                samples[index].push(measure(&peers[index], job, seconds, folder.path()));
            }
        }
        results.push((job, samples));
    }
    report::report(&names, &results, "nbd.json");
}
