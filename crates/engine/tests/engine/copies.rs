//! Between a socket and a disk the data stays in one place, and no instruction of the process touches it:
//! zero bytes are copied per byte moved. The processor's watchpoints watch words in the middle of the
//! buffers, and count copies by any thread.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use testkit::own_process;

use engine::buffer::{Account, Buffer, Segments};
use engine::disk::Durability;
use engine::pool::{CreateOptions, Pool, PoolDisk, Volume};
use engine::stream::{PaceReport, Player, Recorder, Stop, Stream};
use engine::testing::Watch;
use engine::uring::UringDisk;
use engine::volume_io::{VolumeOp, VolumeRequest};
use sched::request::Op;
use sched::units::Bytes;
use testkit::disks::{MIB, Rig, WRITE, client, stream_spec, volume};
use testkit::folders::folders;
use testkit::skip::skipped;

const BLOCK: usize = 65536;
/// A stream's buffers on one disk; the request in pieces uses the same number.
const BUFFERS: usize = 2;

/// A pool on one file in `folder`.
fn pool_in(folder: &Path) -> Arc<Pool> {
    let path = folder.join("disk");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(32 * MIB).unwrap();
    let rig = Rig::new(1, 32 * MIB, Durability::Host);
    let disk = || {
        let disk = UringDisk::open(&path, &rig.memory, 4).unwrap();
        vec![PoolDisk {
            name: "disk0".into(),
            disk: Box::new(disk),
            profile: Arc::clone(&rig.profile),
            profile_is_measured: false,
        }]
    };
    let options = CreateOptions {
        extent_bytes: Some(Bytes(MIB)),
        ..CreateOptions::default()
    };
    Pool::create(&rig.memory, disk(), &options).unwrap();
    Pool::open(rig.memory.clone(), disk(), rig.options.clone()).unwrap()
}

/// Data that differs in every word of every block.
fn data() -> Vec<u8> {
    (0..MIB / 8).flat_map(u64::to_ne_bytes).collect()
}

/// The buffers that the next user of the account will get.
fn buffers(account: &Account) -> Vec<Buffer> {
    let buffer = |_| account.allocate_wait(BLOCK, None).unwrap();
    (0..BUFFERS).map(buffer).collect()
}

fn watch(buffers: &[Buffer]) -> std::io::Result<Watch> {
    let middle = |buffer: &Buffer| buffer.with(|bytes| (&raw const bytes[BLOCK / 2]).addr());
    let words: Vec<usize> = buffers
        .iter()
        .map(|buffer| middle(buffer).unwrap())
        .collect();
    Watch::new(&words)
}

/// Asserts that nothing has touched the buffers, and that the data went through them.
fn assert_untouched(watch: &Watch, buffers: &[Buffer], data: &[u8], what: &str) {
    assert_eq!(watch.touched(), 0, "{what}");
    for buffer in buffers {
        let block = |bytes: &[u8]| data.chunks(BLOCK).any(|block| block == bytes);
        assert!(
            buffer.with(block).unwrap(),
            "{what}: other buffers were used"
        );
    }
    let looked = buffers.len() as u64;
    assert!(watch.touched() >= looked, "the watch does not see a look");
}

fn stream(pool: &Pool, volume: &Arc<Volume>, op: Op) -> Stream {
    pool.reserve(stream_spec(volume, op, 16 * MIB, BLOCK as u64))
        .unwrap()
}

/// Runs a session whose buffers are watched.
fn session(stream: &Stream, data: &[u8], run: impl FnOnce() -> PaceReport, what: &str) {
    let account = stream.client().account();
    let watch = watch(&buffers(account)).unwrap();
    assert_eq!(run().bytes, data.len() as u64);
    assert_untouched(&watch, &buffers(account), data, what);
}

fn record(stream: &Stream, data: &[u8]) {
    let (mut far, near) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || far.write_all(data).unwrap());
        let recorder = Recorder::new(stream, Bytes::ZERO).limit(Bytes(data.len() as u64));
        let stop = Stop::new().unwrap();
        let run = || recorder.run(near, &stop, &mut |_| {}).unwrap();
        session(stream, data, run, "recording");
    });
}

fn play(stream: &Stream, data: &[u8]) {
    let (mut far, near) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut got = Vec::new();
            far.read_to_end(&mut got).unwrap();
            assert!(got == data);
        });
        let player = Player::new(stream, Bytes::ZERO).limit(Bytes(data.len() as u64));
        let stop = Stop::new().unwrap();
        let run = || player.run(near, &stop, &mut |_| {}).unwrap();
        session(stream, data, run, "playing");
    });
}

/// A read before a session leaves the data where the disk put it, too.
fn read_before(stream: &Stream, data: &[u8]) {
    let client = stream.client();
    let watch = watch(&buffers(client.account())).unwrap();
    let read: Vec<Buffer> = (0..BUFFERS)
        .map(|number| {
            let offset = Bytes((number * BLOCK) as u64);
            client.read(stream.volume(), offset, BLOCK).unwrap()
        })
        .collect();
    assert_untouched(&watch, &read, data, "reading before a session");
}

/// Both buffers in one list, the second before the first.
fn both(buffers: &[Buffer], op: Op) -> Segments {
    let mut segments = Segments::empty(op);
    for buffer in buffers.iter().rev() {
        segments.push(buffer, 0..BLOCK).unwrap();
    }
    segments
}

/// Data received in pieces and written by one request is read and sent in the same way.
fn transfer(pool: &Pool, volume: &Arc<Volume>, data: &[u8]) {
    let client = client(pool);
    let buffers = buffers(client.account());
    let watch = watch(&buffers).unwrap();
    let data = &data[..BUFFERS * BLOCK];
    let (mut far, near) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut got = vec![0; data.len()];
            far.write_all(data).unwrap();
            far.read_exact(&mut got).unwrap();
            assert!(got == data);
        });
        let received = both(&buffers, Op::Read);
        let mut count = 0;
        while count < data.len() {
            count += received.receive(&near, count, &mut []).unwrap();
        }
        drop(received);
        // Two extents that meet in the middle of a buffer.
        let offset = Bytes(3 * MIB - BLOCK as u64 / 2);
        let execute = |op, memory| {
            let request = VolumeRequest::transfer(volume, op, offset, memory);
            client.execute(request).unwrap().result.unwrap();
        };
        execute(WRITE, both(&buffers, Op::Write));
        execute(VolumeOp::Read, both(&buffers, Op::Read));
        let sent = both(&buffers, Op::Write);
        let mut count = 0;
        while count < data.len() {
            count += sent.send(&near, count).unwrap();
        }
    });
    assert_untouched(&watch, &buffers, data, "a request in pieces");
}

#[test]
fn data_between_a_socket_and_a_disk_is_never_copied() {
    own_process(|| {
        let data = data();
        for folder in folders() {
            let pool = pool_in(folder.path());
            if let Err(error) = watch(&buffers(client(&pool).account())) {
                skipped(&format!("the host does not permit watchpoints: {error}"));
                return;
            }
            let volume = volume(&pool, "v", 4 * MIB);
            let recorder = stream(&pool, &volume, Op::Write);
            record(&recorder, &data);
            recorder.close();
            let player = stream(&pool, &volume, Op::Read);
            play(&player, &data);
            read_before(&player, &data);
            player.close();
            transfer(&pool, &volume, &data);
            pool.close().unwrap();
        }
    });
}
