//! Our own server in a process of its own.

use std::path::Path;
use std::sync::Arc;

use clockwise::exports::fuse::FuseConfig;
use clockwise::exports::nbd::NbdConfig;
use clockwise::exports::{Exports, ExportsConfig};
use engine::buffer::{Memory, MemoryConfig};
use engine::pool::{CreateOptions, OpenOptions, Placement, Pool, PoolDisk, Volume, VolumeSpec};
use engine::stream::{Stream, StreamSpec};
use engine::volume_io::ClientOptions;
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond};

use super::{SIZE, VOLUME, block_of_bytes, disk, socket_of};

/// The line that the server prints once it is ready.
pub(super) const READY: &str = "ready";

/// The configuration of our server.
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "each comparison uses some of these")]
pub(crate) enum OwnServer {
    /// An NBD export.
    Idle,
    /// An NBD export, and a stream that is open on the same disk.
    BesideStream,
    /// An NBD export and a mount.
    Mounted,
}

/// Serves a volume with allocated content, of a pool on one file in memory, until standard input ends.
pub(super) fn serve(name: &str, own: OwnServer, folder: &Path) {
    let pool = pool(&folder.join(format!("{name}.img")));
    let volume = fill(&pool);
    let stream = (own == OwnServer::BesideStream).then(|| reserve(&pool, &volume));
    drop(volume);
    let mount = FuseConfig {
        mount: folder.join(format!("{name}.mount")),
        threads: None,
    };
    let config = ExportsConfig {
        nbd: Some(NbdConfig {
            unix: Some(socket_of(name, folder)),
            ..NbdConfig::default()
        }),
        fuse: (own == OwnServer::Mounted).then_some(mount),
        reservations: Vec::new(),
    };
    let exports = Exports::start(&pool, &config).expect("the exports");
    println!("{READY}");
    // Ends with the comparison's process.
    let _ = std::io::stdin().lines().next();
    exports.end(std::time::Duration::from_secs(5));
    drop(stream);
    pool.close().expect("closing the pool");
}

fn pool(path: &Path) -> Arc<Pool> {
    let file = std::fs::File::create(path).expect("a file in memory");
    file.set_len(SIZE.0 + (64 << 20)).expect("room in memory");
    let config = MemoryConfig {
        lock: false,
        ..MemoryConfig::new(Bytes::from_mib(256))
    };
    let memory = Memory::new(&config).expect("memory");
    // 64 requests at a time: at least as many as a client of the comparison has.
    let disk = || -> PoolDisk { disk::in_memory(path, &memory, 64, 1_000) };
    let create = CreateOptions {
        name: "bench".into(),
        ..CreateOptions::default()
    };
    Pool::create(&memory, vec![disk()], &create).expect("a new pool");
    Pool::open(memory.clone(), vec![disk()], OpenOptions::default()).expect("the pool")
}

/// Makes the volume and writes all of it.
fn fill(pool: &Pool) -> Arc<Volume> {
    let spec = VolumeSpec {
        name: VOLUME.into(),
        size: SIZE,
        placement: Placement::default(),
    };
    pool.create_volume(&spec).expect("a volume");
    let volume = pool.open_volume(VOLUME).expect("the volume");
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
    volume
}

fn reserve(pool: &Pool, volume: &Arc<Volume>) -> Stream {
    let spec = StreamSpec {
        name: "beside".into(),
        volume: Arc::clone(volume),
        range: None,
        rate: BytesPerSecond(1 << 20),
        block: Bytes::from_kib(256),
        op: Op::Read,
        span: None,
        wraps: true,
    };
    pool.reserve(spec).expect("a stream")
}
