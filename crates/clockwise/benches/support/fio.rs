//! Measurements by fio.

use std::path::Path;
use std::process::Command;

use super::{Running, SIZE};

/// A job of fio.
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

/// The result of one round of one job on one server.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) iops: f64,
    pub(crate) mib_per_second: f64,
    pub(crate) cpu_us_per_io: f64,
}

/// Processor time that a process has used, in microseconds.
fn cpu_us(pid: u32) -> f64 {
    /// Linux reports hundredths of a second on all machines (proc(5)).
    const TICK_US: f64 = 10_000.0;
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a running server");
    let after_name = text.rsplit_once(')').expect("a name").1;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |index: usize| fields[index].parse::<f64>().expect("a number of ticks");
    (ticks(11) + ticks(12)) * TICK_US
}

pub(crate) fn measure(server: &Running, job: Job, seconds: usize, folder: &Path) -> Sample {
    let processes = || server.processes.iter();
    let cpu_us = || processes().map(|process| cpu_us(process.id())).sum::<f64>();
    let before = cpu_us();
    let output = Command::new("fio")
        .arg("--name=bench")
        .args(&server.target)
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
    let cpu = cpu_us() - before;
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "fio on {:?}: {text}{errors}",
        server.target
    );
    // fio may print notes before the report.
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
