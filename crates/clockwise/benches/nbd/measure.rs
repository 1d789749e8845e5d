//! What is measured, and one measurement by fio.

use std::path::Path;
use std::process::Command;

use super::SIZE;
use super::peer::Peer;

/// What is measured.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    pub(crate) name: &'static str,
    pub(crate) rw: &'static str,
    block: &'static str,
    depth: &'static str,
}

pub(crate) const JOBS: [Job; 4] = [
    Job {
        name: "4 KiB random read, QD 32",
        rw: "randread",
        block: "4k",
        depth: "32",
    },
    Job {
        name: "4 KiB random write, QD 32",
        rw: "randwrite",
        block: "4k",
        depth: "32",
    },
    Job {
        name: "1 MiB sequential read, QD 8",
        rw: "read",
        block: "1M",
        depth: "8",
    },
    Job {
        name: "1 MiB sequential write, QD 8",
        rw: "write",
        block: "1M",
        depth: "8",
    },
];

/// One round of one job on one server.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) iops: f64,
    pub(crate) mib_per_second: f64,
    pub(crate) cpu_us_per_io: f64,
}

/// Processor time of a process so far, in microseconds.
fn cpu_us(pid: u32) -> f64 {
    /// Linux counts these in hundredths of a second whatever its own clock is.
    const TICK_US: f64 = 10_000.0;
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a living server");
    let after_name = text.rsplit_once(')').expect("a name").1;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |index: usize| fields[index].parse::<f64>().expect("a number of ticks");
    (ticks(11) + ticks(12)) * TICK_US
}

pub(crate) fn measure(peer: &Peer, job: Job, seconds: usize, folder: &Path) -> Sample {
    let so_far = || peer.pids().map(cpu_us).sum::<f64>();
    let before = so_far();
    let output = Command::new("fio")
        .arg("--name=bench")
        .args(&peer.target)
        .arg(format!("--aux-path={}", folder.display()))
        .args([format!("--rw={}", job.rw), format!("--bs={}", job.block)])
        .args([
            format!("--iodepth={}", job.depth),
            format!("--size={}", SIZE.0),
        ])
        .args([
            format!("--runtime={seconds}"),
            "--time_based".into(),
            "--randrepeat=0".into(),
        ])
        .args(["--norandommap", "--output-format=json"])
        .output()
        .expect("fio");
    let cpu = so_far() - before;
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "fio on {:?}: {text}{errors}",
        peer.target
    );
    // fio may say something before it comes to the point.
    let json = &text[text.find('{').expect("JSON from fio")..];
    let report: serde_json::Value = serde_json::from_str(json).expect("JSON from fio");
    let done = ["read", "write"].map(|way| &report["jobs"][0][way]);
    let sum = |key: &str| {
        done.iter()
            .map(|way| way[key].as_f64().unwrap_or(0.0))
            .sum::<f64>()
    };
    Sample {
        iops: sum("iops"),
        mib_per_second: sum("bw_bytes") / f64::from(1 << 20),
        cpu_us_per_io: cpu / sum("total_ios"),
    }
}
