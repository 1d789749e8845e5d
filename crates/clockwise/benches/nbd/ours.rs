//! Our server, in a process of its own.

use std::path::Path;
use std::sync::Arc;

use clockwise::exports::fuse::FuseConfig;
use clockwise::exports::nbd::NbdConfig;
use clockwise::exports::{Exports, ExportsConfig};
use engine::buffer::{Memory, MemoryConfig};
use engine::pool::{CreateOptions, OpenOptions, Placement, Pool, PoolDisk, VolumeSpec};
use engine::stream::StreamSpec;
use engine::volume_io::ClientOptions;
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond};

use super::SIZE;
use super::peer::{BESIDE, block_of_bytes, mount_of};

/// Our server: a pool on one file in memory, a volume written from end to end.
pub(crate) fn serve(name: &str, folder: &Path) {
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
    let config = ExportsConfig {
        nbd: Some(NbdConfig {
            unix: Some(folder.join(format!("{name}.sock"))),
            ..NbdConfig::default()
        }),
        fuse: mount_of(name, folder).map(|mount| FuseConfig {
            mount,
            threads: None,
        }),
        reservations: Vec::new(),
    };
    let exports = Exports::start(&pool, &config).expect("the exports");
    println!("ready");
    // Until whoever started this is gone.
    let _ = std::io::stdin().lines().next();
    exports.end(std::time::Duration::from_secs(5));
    drop(stream);
    pool.close().expect("closing the pool");
}

/// It takes as many requests at a time as a client has, and no time to speak of.
fn disk(path: &Path, memory: &Memory) -> PoolDisk {
    super::disk::in_memory(path, memory, 64, 1_000)
}
