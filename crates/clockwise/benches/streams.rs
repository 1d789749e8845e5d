//! The processor time of streams: 500 MB/s, half recorded and half played, on files in memory. Prints the processor
//! time in all and by thread, as shares of one core. Compares it with plain copies between the same sockets and
//! files: through one buffer, which stays in the processor's cache, and through as many buffers as the streams have,
//! which do not.
//!
//! ```text
//! cargo bench -p clockwise --bench streams
//! STREAMS_BENCH_SECONDS=10 ...
//! ```
//!
//! Played volumes have been written before. Sources and sinks are unix sockets, as in the server. The process at their
//! other end is not measured. The kernel copies each byte twice, between socket, buffer and file.

#![allow(clippy::print_stdout, reason = "a report is what this program is for")]

#[path = "support/disk.rs"]
mod disk;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::buffer::{Memory, MemoryConfig};
use engine::pool::{CreateOptions, OpenOptions, Placement, Pool, PoolDisk, VolumeSpec};
use engine::stream::{Player, Recorder, Stop, Stream, StreamSpec};
use engine::volume_io::ClientOptions;
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond};

const STREAMS: u64 = 20;
const RATE: BytesPerSecond = BytesPerSecond(25_000_000);
const BLOCK: Bytes = Bytes::from_mib(1);
const VOLUME: Bytes = Bytes::from_mib(64);
const DISKS: usize = 3;
/// Two for each disk of each stream. Every stream is on all disks.
const BUFFERS: usize = 2 * DISKS * STREAMS as usize;

/// The goal: at most a quarter of a core for 500 MB/s in and out.
const SHARE_MAX: f64 = 0.25;

/// Set to the path of the socket in the process at the other end of the streams.
const PEER: &str = "STREAMS_BENCH_PEER";

fn main() {
    if let Some(socket) = std::env::var_os(PEER) {
        be_peer(Path::new(&socket));
        return;
    }
    let seconds = std::env::var("STREAMS_BENCH_SECONDS")
        .map_or(10, |text| text.parse().expect("STREAMS_BENCH_SECONDS"));
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
    let pool = open(folder.path());
    let peer = Peer::start(folder.path());
    let plain = [1, BUFFERS].map(|buffers| plain_share(&peer, folder.path(), buffers));
    let streams: Vec<Stream> = (0..STREAMS).map(|number| reserve(&pool, number)).collect();
    let stop = Stop::new().expect("an event");
    let reports = std::thread::scope(|scope| {
        let threads: Vec<_> = streams
            .iter()
            .map(|stream| {
                let (stop, connection) = (&stop, peer.connection(stream.op()));
                scope.spawn(move || run(stream, &connection, stop))
            })
            .collect();
        // The first second fills buffers and touches pages.
        std::thread::sleep(Duration::from_secs(1));
        let (began, before, read) = (Instant::now(), cpu_by_thread(), read_bytes(&pool));
        std::thread::sleep(Duration::from_secs(seconds));
        let (elapsed, after) = (began.elapsed().as_secs_f64(), cpu_by_thread());
        let read = (read_bytes(&pool) - read) as f64 / elapsed / 1e6;
        stop.stop();
        report(elapsed, &before, &after, &plain);
        println!("{read:.0} MB/s of that read from the disks");
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a session"))
            .collect::<Vec<_>>()
    });
    let misses: u64 = reports.iter().map(|report| report.misses).sum();
    let bytes: u64 = reports.iter().map(|report| report.bytes).sum();
    println!("{bytes} bytes moved, {misses} deadlines missed net of the host's lateness");
    drop(streams);
    pool.close().expect("closing the pool");
}

fn run(stream: &Stream, connection: &UnixStream, stop: &Stop) -> engine::stream::PaceReport {
    match stream.op() {
        Op::Write => Recorder::new(stream, Bytes::ZERO).run(connection, stop, &mut |_| {}),
        Op::Read => Player::new(stream, Bytes::ZERO).run(connection, stop, &mut |_| {}),
    }
    .expect("a session to its end")
}

/// The process at the other end: it sends to recorders and receives from players.
struct Peer {
    child: Child,
    listener: UnixListener,
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Peer {
    fn start(folder: &Path) -> Self {
        let socket = folder.join("peer.sock");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        let child = command.env(PEER, socket).spawn().expect("the peer");
        Self { child, listener }
    }

    /// A connection on which the peer sends or receives.
    fn connection(&self, op: Op) -> UnixStream {
        let (mut connection, _) = self.listener.accept().expect("the peer connects");
        let command = if op == Op::Write { b"s" } else { b"r" };
        connection.write_all(command).expect("the peer reads");
        connection
    }
}

/// Opens connections until it is killed, and sends or receives on each as commanded.
fn be_peer(socket: &Path) {
    while let Ok(mut connection) = UnixStream::connect(socket) {
        let mut command = [0];
        if connection.read_exact(&mut command).is_err() {
            return;
        }
        std::thread::spawn(move || {
            let mut block = block_of_bytes();
            // Until the connection ends.
            if command == *b"s" {
                while connection.write_all(&block).is_ok() {}
            } else {
                while connection.read(&mut block).is_ok_and(|count| count > 0) {}
            }
        });
    }
}

fn block_of_bytes() -> Vec<u8> {
    testkit::pattern(1, BLOCK.get() as usize)
}

/// The share of a core for copying as much as the streams do, at full speed through `buffers` buffers in turn: from a
/// socket to a file, and from a file to a socket. The file is as long as all volumes together.
fn plain_share(peer: &Peer, folder: &Path, buffers: usize) -> f64 {
    const BYTES: u64 = 2 * STREAMS * VOLUME.get();
    let path = folder.join("plain");
    let mut options = File::options();
    let options = options.create(true).truncate(true).read(true).write(true);
    let file = options.open(&path).expect("a file");
    let mut blocks = vec![block_of_bytes(); buffers];
    let places = || (0..BYTES / BLOCK.get()).map(|number| number * BLOCK.get() % (BYTES / 2));
    let mut seconds = 0.0;
    let mut source = peer.connection(Op::Write);
    // The first round touches the pages.
    for is_counted in [false, true] {
        let before = cpu_by_thread();
        for (turn, at) in places().enumerate() {
            let block = &mut blocks[turn % buffers];
            source.read_exact(block).expect("the peer sends");
            file.write_all_at(block, at).expect("room in memory");
        }
        seconds += if is_counted { cpu_since(&before) } else { 0.0 };
    }
    let mut sink = peer.connection(Op::Read);
    let before = cpu_by_thread();
    for (turn, at) in places().enumerate() {
        let block = &mut blocks[turn % buffers];
        file.read_exact_at(block, at).expect("it was written");
        sink.write_all(block).expect("the peer takes it");
    }
    seconds += cpu_since(&before);
    std::fs::remove_file(path).expect("it was there");
    seconds / (2 * BYTES) as f64 * (STREAMS * RATE.get()) as f64
}

fn read_bytes(pool: &Pool) -> u64 {
    let status = pool.status();
    status.disks.iter().map(|disk| disk.read_bytes).sum()
}

fn open(folder: &Path) -> Arc<Pool> {
    let config = MemoryConfig {
        lock: false,
        ..MemoryConfig::new(Bytes::from_mib(512))
    };
    let memory = Memory::new(&config).expect("memory");
    let disks = || -> Vec<PoolDisk> {
        (0..DISKS)
            .map(|number| disk(&folder.join(format!("disk-{number}")), &memory))
            .collect()
    };
    for number in 0..DISKS {
        let file = File::create(folder.join(format!("disk-{number}"))).expect("a file");
        file.set_len(1 << 30).expect("room in memory");
    }
    let create = CreateOptions {
        name: "bench".into(),
        extent_bytes: Some(BLOCK),
        force: false,
    };
    Pool::create(&memory, disks(), &create).expect("a new pool");
    let pool = Pool::open(memory.clone(), disks(), OpenOptions::default()).expect("the pool");
    for number in 0..STREAMS {
        let spec = VolumeSpec {
            name: format!("v{number}"),
            size: VOLUME,
            placement: Placement::default(),
        };
        pool.create_volume(&spec).expect("a volume");
    }
    let options = ClientOptions::default();
    let client = pool.client("fill", options).expect("a client");
    let block = block_of_bytes();
    for number in 0..STREAMS {
        let volume = pool.open_volume(&format!("v{number}")).expect("the volume");
        for at in (0..VOLUME.get()).step_by(block.len()) {
            client
                .write_at(&volume, Bytes(at), &block)
                .expect("a write");
        }
    }
    drop(client);
    pool
}

fn disk(path: &Path, memory: &Memory) -> PoolDisk {
    disk::in_memory(path, memory, 1, 500)
}

fn reserve(pool: &Pool, number: u64) -> Stream {
    let name = format!("v{number}");
    let spec = StreamSpec {
        volume: pool.open_volume(&name).expect("the volume"),
        name,
        range: None,
        rate: RATE,
        block: BLOCK,
        op: if number.is_multiple_of(2) {
            Op::Write
        } else {
            Op::Read
        },
        span: None,
        wraps: true,
    };
    pool.reserve(spec).expect("room for the stream")
}

/// Processor time that the threads of this process have used, in seconds by name of the thread.
fn cpu_by_thread() -> BTreeMap<String, f64> {
    let mut by_name = BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task")
        .expect("threads")
        .flatten()
    {
        // A thread may end while the list is read.
        let Ok(name) = std::fs::read_to_string(task.path().join("comm")) else {
            continue;
        };
        let Ok(text) = std::fs::read_to_string(task.path().join("schedstat")) else {
            continue;
        };
        let nanos = text
            .split_whitespace()
            .next()
            .and_then(|text| text.parse::<f64>().ok());
        *by_name.entry(name.trim().to_owned()).or_default() += nanos.unwrap_or(0.0) / 1e9;
    }
    by_name
}

fn cpu_since(before: &BTreeMap<String, f64>) -> f64 {
    let after = cpu_by_thread();
    after.values().sum::<f64>() - before.values().sum::<f64>()
}

fn report(
    elapsed: f64,
    before: &BTreeMap<String, f64>,
    after: &BTreeMap<String, f64>,
    plain: &[f64; 2],
) {
    let rate = STREAMS as f64 * RATE.0 as f64 / 1e6;
    println!("{STREAMS} streams, {rate:.0} MB/s in all, {elapsed:.1} s; shares of one core:");
    let mut sum = 0.0;
    for (name, seconds) in after {
        let share = (seconds - before.get(name).copied().unwrap_or(0.0)) / elapsed;
        sum += share;
        println!("  {name:<16} {:6.2} %", share * 100.0);
    }
    println!(
        "  {:<16} {:6.2} %, goal under {:.0} %",
        "all",
        sum * 100.0,
        SHARE_MAX * 100.0
    );
    for (name, plain) in ["one buffer", "as many buffers"].iter().zip(plain) {
        println!(
            "  {name:<16} {:6.2} %: copying alone; ours is {:.2} times that",
            plain * 100.0,
            sum / plain
        );
    }
}
