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

#[path = "../../engine/tests/common/skip.rs"]
mod skip;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use clockwise::export::nbd::{NbdConfig, Server};
use comfy_table::Table;
use engine::buffer::{Memory, MemoryConfig};
use engine::disk::Disk;
use engine::front::ClientOptions;
use engine::pool::{CreateOptions, OpenOptions, Placement, Pool, PoolDisk, VolumeSpec};
use engine::stream::StreamSpec;
use engine::uring::UringDisk;
use sched::profile::{DriveKind, DriveProfile, FlatSpec, ProfileSpec};
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond};

/// The size of the export that is worked on.
const SIZE: Bytes = Bytes::from_mib(512);

/// Set, with the folder as its value, in the process that is to be our server, and which of them.
const SERVE: &str = "NBD_BENCH_SERVE";
const SERVE_AS: &str = "NBD_BENCH_SERVE_AS";

/// What is measured.
#[derive(Clone, Copy)]
struct Job {
    name: &'static str,
    rw: &'static str,
    block: &'static str,
    depth: &'static str,
}

const JOBS: [Job; 4] = [
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

const SERVERS: [&str; 4] = [ALONE, BESIDE, "nbdkit", "qemu-nbd"];

/// Our server with nothing promised, and with a stream open.
const ALONE: &str = "clockwise";
const BESIDE: &str = "clockwise-stream";

fn is_ours(name: &str) -> bool {
    [ALONE, BESIDE].contains(&name)
}

/// One round of one job on one server.
#[derive(Clone, Copy)]
struct Sample {
    iops: f64,
    mib_per_second: f64,
    cpu_us_per_io: f64,
}

/// A running server, killed when dropped.
struct Peer {
    child: Child,
    uri: String,
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn main() {
    if let Some(folder) = std::env::var_os(SERVE) {
        let name = std::env::var(SERVE_AS).expect("which server to be");
        serve(&name, Path::new(&folder));
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
    if !tools.iter().all(|tool| skip::have(tool)) {
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
    report(&names, &results);
}

/// Starts one of [`SERVERS`], and returns when it takes connections.
fn start(name: &str, folder: &Path) -> Peer {
    let socket = folder.join(format!("{name}.sock"));
    let volume = if is_ours(name) { "bench" } else { "" };
    let uri = format!("nbd+unix:///{volume}?socket={}", socket.display());
    let file = folder.join(format!("{name}.img"));
    let mut command = match name {
        ALONE | BESIDE => {
            let mut command = Command::new(std::env::current_exe().expect("this program"));
            command.env(SERVE, folder).env(SERVE_AS, name);
            command
        }
        "nbdkit" => {
            fill(&file);
            let mut command = Command::new("nbdkit");
            command
                .arg("-f")
                .arg("-U")
                .arg(&socket)
                .arg("file")
                .arg(&file);
            command
        }
        _ => {
            fill(&file);
            let mut command = Command::new("qemu-nbd");
            command
                .args(["-f", "raw", "-t", "--cache=writeback", "-k"])
                .arg(&socket)
                .arg(&file);
            command
        }
    };
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect(name);
    if is_ours(name) {
        let mut line = String::new();
        let output = child.stdout.take().expect("piped");
        BufReader::new(output)
            .read_line(&mut line)
            .expect("our server's first line");
        assert_eq!(line.trim(), "ready", "our server did not start");
    }
    let peer = Peer { child, uri };
    // The others do not say when they are ready: when one can connect to them.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let ready = || std::os::unix::net::UnixStream::connect(&socket).is_ok();
    while !ready() {
        assert!(std::time::Instant::now() < until, "{name} did not start");
        std::thread::yield_now();
    }
    peer
}

/// A file of random-looking bytes, all of its pages there.
fn fill(path: &Path) {
    let block = block_of_bytes();
    let mut file = std::fs::File::create(path).expect("a file in memory");
    for _ in 0..SIZE.0 / block.len() as u64 {
        std::io::Write::write_all(&mut file, &block).expect("room in memory");
    }
}

fn block_of_bytes() -> Vec<u8> {
    (0..1u32 << 20)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

/// Our server: a pool on one file in memory, a volume written from end to end.
fn serve(name: &str, folder: &Path) {
    let path = folder.join(format!("{name}.img"));
    let file = std::fs::File::create(&path).expect("a file in memory");
    file.set_len(SIZE.0 + (64 << 20)).expect("room in memory");
    let config = MemoryConfig {
        lock: false,
        ..MemoryConfig::new(Bytes::from_mib(256))
    };
    let memory = Memory::new(&config).expect("memory");
    let create = CreateOptions {
        name: "bench".into(),
        ..CreateOptions::default()
    };
    Pool::create(&memory, vec![disk(&path, &memory)], &create).expect("a new pool");
    let pool = Pool::open(
        memory.clone(),
        vec![disk(&path, &memory)],
        OpenOptions::default(),
    )
    .expect("the pool");
    let spec = VolumeSpec {
        name: "bench".into(),
        size: SIZE,
        placement: Placement::default(),
    };
    pool.create_volume(&spec).expect("a volume");
    let volume = pool.open_volume("bench").expect("the volume");
    let client = pool
        .client("fill", ClientOptions::default())
        .expect("a client");
    let block = block_of_bytes();
    for at in (0..SIZE.0).step_by(block.len()) {
        client
            .write_at(&volume, Bytes(at), &block)
            .expect("a write");
    }
    client.flush(&volume).expect("a flush");
    let stream = (name == BESIDE).then(|| {
        pool.reserve(StreamSpec {
            name: "beside".into(),
            volume: Arc::clone(&volume),
            range: None,
            rate: BytesPerSecond(1 << 20),
            block: Bytes::from_kib(256),
            op: Op::Read,
            span: None,
            wraps: true,
        })
        .expect("a stream")
    });
    drop((client, volume));
    let config = NbdConfig {
        unix: Some(folder.join(format!("{name}.sock"))),
        ..NbdConfig::default()
    };
    let server = Server::start(Arc::clone(&pool), &config).expect("the server");
    println!("ready");
    // Until whoever started this is gone.
    let _ = std::io::stdin().lines().next();
    server.shutdown(std::time::Duration::from_secs(5));
    drop(stream);
    pool.close().expect("closing the pool");
}

/// A file in memory, of which more is known than the cautious profile of a file says: it takes as
/// many requests at a time as a client has, and no time to speak of.
fn disk(path: &Path, memory: &Memory) -> PoolDisk {
    const OUTSTANDING: u32 = 64;
    let disk = UringDisk::open(path, memory, OUTSTANDING as usize).expect("the file");
    let spec = ProfileSpec {
        name: "memory".into(),
        kind: DriveKind::File,
        measured: false,
        sources: Vec::new(),
        outstanding: OUTSTANDING,
        capacity_sectors: disk.capacity().0,
        physical_sector_bytes: 512,
        rotating: None,
        flat: Some(FlatSpec {
            read_overhead_us: 1000,
            write_overhead_us: 1000,
            read_bytes_per_second: 500_000_000,
            write_bytes_per_second: 500_000_000,
        }),
        worst_case: Vec::new(),
    };
    PoolDisk {
        name: path.display().to_string(),
        disk: Box::new(disk),
        profile: Arc::new(DriveProfile::new(spec).expect("a profile")),
        profile_is_measured: false,
    }
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

fn measure(peer: &Peer, job: Job, seconds: usize, folder: &Path) -> Sample {
    let before = cpu_us(peer.child.id());
    let output = Command::new("fio")
        .arg("--name=nbd")
        .arg("--ioengine=nbd")
        .arg(format!("--uri={}", peer.uri))
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
    let cpu = cpu_us(peer.child.id()) - before;
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "fio on {}: {text}{errors}",
        peer.uri
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

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Ours over the best of the peers, in each round.
fn ratios(
    ours: &[Sample],
    peers: &[&Vec<Sample>],
    of: impl Fn(&Sample) -> f64,
    best: fn(f64, f64) -> f64,
) -> Vec<f64> {
    let of_round = |(round, sample): (usize, &Sample)| {
        let others = peers.iter().map(|peer| of(&peer[round]));
        Some(of(sample) / others.reduce(best)?)
    };
    ours.iter().enumerate().filter_map(of_round).collect()
}

/// The median, the least and the greatest; nothing of none.
fn spread(values: &[f64]) -> String {
    let least = values.iter().copied().reduce(f64::min);
    let greatest = values.iter().copied().reduce(f64::max);
    let text = least.zip(greatest).map(|(least, greatest)| {
        let median = median(values.iter().copied());
        format!("{median:.2} ({least:.2} to {greatest:.2})")
    });
    text.unwrap_or_default()
}

fn report(names: &[&str], results: &[(Job, Vec<Vec<Sample>>)]) {
    let mut table = Table::new();
    table.set_header([
        "",
        "server",
        "IOPS",
        "MiB/s",
        "CPU us/IO",
        "speed ratio",
        "CPU ratio",
    ]);
    let mut json = Vec::new();
    for (job, samples) in results {
        let named = || names.iter().zip(samples);
        let peers: Vec<_> = named()
            .filter(|(name, _)| !is_ours(name))
            .map(|(_, rounds)| rounds)
            .collect();
        let mut servers = serde_json::Map::new();
        for (index, (name, rounds)) in named().enumerate() {
            let iops = median(rounds.iter().map(|sample| sample.iops));
            let mib = median(rounds.iter().map(|sample| sample.mib_per_second));
            let us = median(rounds.iter().map(|sample| sample.cpu_us_per_io));
            let [speed, cpu] = if is_ours(name) {
                [
                    ratios(rounds, &peers, |sample| sample.iops, f64::max),
                    ratios(rounds, &peers, |sample| sample.cpu_us_per_io, f64::min),
                ]
            } else {
                [Vec::new(), Vec::new()]
            };
            let title = if index == 0 { job.name } else { "" };
            table.add_row([
                title.to_owned(),
                (*name).to_owned(),
                format!("{iops:.0}"),
                format!("{mib:.0}"),
                format!("{us:.2}"),
                spread(&speed),
                spread(&cpu),
            ]);
            let figures = serde_json::json!({
                "iops": iops, "mib_per_second": mib, "cpu_us_per_io": us,
                "speed_ratios": speed, "cpu_ratios": cpu,
            });
            servers.insert((*name).to_owned(), figures);
        }
        json.push(serde_json::json!({ "job": job.name, "servers": servers }));
    }
    println!("{table}");
    println!(
        "speed ratio: ours / the better of the others, to be at least 1; of rounds the median, least and greatest"
    );
    println!("CPU ratio: ours / the smaller of the others, to be at most 1");
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/bench");
    std::fs::create_dir_all(&folder).expect("a place for the report");
    let text = serde_json::to_string_pretty(&json).expect("plain values");
    std::fs::write(folder.join("nbd.json"), text).expect("the report");
}
