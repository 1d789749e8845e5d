//! Disks in memory that can lose power and fail, pools of them, and what tests ask of a pool.

pub mod platter;
mod rig;

pub use rig::{MIB, Rig};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::buffer::{Buffer, Segments};
use engine::pool::{Placement, Pool, PoolError, Volume, VolumeSpec};
use engine::stream::StreamSpec;
use engine::volume_io::{Client, ClientOptions, VolumeOp};
use rand::SeedableRng;
use rand::rngs::StdRng;
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond};

pub const WRITE: VolumeOp = VolumeOp::Write { durable: false };

/// A new volume, open.
pub fn volume(pool: &Pool, name: &str, bytes: u64) -> Arc<Volume> {
    placed(pool, name, bytes, Placement::default())
}

/// A new volume on one disk, open.
pub fn volume_on(pool: &Pool, name: &str, disk: usize, bytes: u64) -> Arc<Volume> {
    placed(pool, name, bytes, on_disk(disk))
}

/// A new volume of two extents of a mebibyte, the first on disk 0 and the second on disk 1, open.
pub fn volume_on_two(pool: &Pool, name: &str) -> Arc<Volume> {
    let volume = volume_on(pool, name, 0, MIB);
    pool.grow(name, Bytes(2 * MIB), &on_disk(1)).unwrap();
    volume
}

fn placed(pool: &Pool, name: &str, bytes: u64, placement: Placement) -> Arc<Volume> {
    let spec = VolumeSpec {
        name: name.into(),
        size: Bytes(bytes),
        placement,
    };
    pool.create_volume(&spec)
        .unwrap_or_else(|error| panic!("{error}"));
    pool.open_volume(name).unwrap()
}

/// A stream over a whole volume, of so many bytes a second in blocks of so many.
pub fn stream_spec(volume: &Arc<Volume>, op: Op, rate: u64, block: u64) -> StreamSpec {
    StreamSpec {
        name: "camera".into(),
        volume: Arc::clone(volume),
        range: None,
        rate: BytesPerSecond(rate),
        block: Bytes(block),
        op,
        span: None,
        wraps: false,
    }
}

pub fn on_disk(disk: usize) -> Placement {
    Placement {
        disks: vec![format!("disk{disk}")],
        ..Placement::default()
    }
}

/// Moves all of a volume to a disk, for as long as `go_on` says so. How many of its extents that has moved.
pub fn moved_to(pool: &Pool, name: &str, disk: usize, go_on: impl Fn() -> bool) -> u64 {
    let on_disk_now = || {
        let info = pool.volume_info(name).unwrap();
        let on_it = (info.extents_by_disk.iter()).find(|(on, _)| *on == format!("disk{disk}"));
        on_it.map_or(0, |(_, extents)| *extents)
    };
    let before = on_disk_now();
    let result = pool.move_extents(name, &on_disk(disk), &mut |_| go_on());
    assert!(
        matches!(result, Ok(_) | Err(PoolError::Stopped)),
        "{result:?}"
    );
    on_disk_now() - before
}

pub fn client(pool: &Pool) -> Client {
    pool.client("test", ClientOptions::default()).unwrap()
}

/// A buffer full of `bytes`, pinned for a write.
pub fn filled(client: &Client, bytes: &[u8]) -> (Buffer, Segments) {
    let mut buffer = client.account().allocate_wait(bytes.len(), None).unwrap();
    buffer
        .with_mut(|memory| memory[..bytes.len()].copy_from_slice(bytes))
        .unwrap();
    let segments = buffer.segments(Op::Write, 0..bytes.len()).unwrap();
    (buffer, segments)
}

/// Sets a flag to this when it goes out of scope, also by a panic, so that threads that wait for it end.
pub struct OnDrop<'a>(pub &'a AtomicBool, pub bool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(self.1, Ordering::SeqCst);
    }
}

/// The random numbers of a test, from a seed that is given or new, and printed.
pub fn seeded(what: &str) -> StdRng {
    StdRng::seed_from_u64(testkit::seed(what, None))
}
