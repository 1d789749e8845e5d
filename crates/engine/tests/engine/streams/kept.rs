//! Durable data of a recording: after a power cut, and over an earlier recording.

use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use engine::disk::Durability;
use engine::pool::{Floor, Pool, Volume};
use engine::stream::{PaceError, PaceReport, Recorder, Stop, Stream, StreamSpec};
use engine::volume_io::{VolumeOp, VolumeRequest};
use rand::Rng;
use sched::profile::DriveProfile;
use sched::request::Op;
use sched::units::Bytes;

use testkit::disks::{MIB, Rig, client, filled, seeded, stream_spec, volume};

const BLOCK: u64 = 65_536;

/// Number of blocks for four seconds at 1 MiB/s, with a flush every two seconds.
const ENOUGH: u64 = 64;

fn record(stream: &Stream, data: &[u8]) -> Result<PaceReport, PaceError> {
    let mut source = tempfile::tempfile().unwrap();
    source.write_all(data).unwrap();
    std::io::Seek::rewind(&mut source).unwrap();
    Recorder::new(stream, Bytes::ZERO).run(source, &Stop::new().unwrap(), &mut |_| {})
}

fn beginning(pool: &Pool, volume: &Arc<Volume>, len: u64) -> Vec<u8> {
    let mut back = vec![0; len.next_multiple_of(4096) as usize];
    client(pool).read_at(volume, Bytes(0), &mut back).unwrap();
    back.truncate(len as usize);
    back
}

#[test]
fn a_recording_that_is_done_survives_a_power_cut() {
    let mut rng = seeded("kept");
    for durability in [Durability::WriteThrough, Durability::Fua, Durability::Host] {
        let (rig, pool) = Rig::fresh(2, 64 * MIB, MIB, durability);
        let video = volume(&pool, "video", 4 * MIB);
        let stream = pool
            .reserve(stream_spec(&video, Op::Write, 64 << 20, BLOCK))
            .unwrap();
        let data: Vec<u8> = (0..MIB + 12_345).map(|_| rng.random()).collect();
        let report = record(&stream, &data).unwrap();
        assert_eq!(report.durable_bytes, data.len() as u64);
        let cut = rig.after_power_cut(&mut rng);
        let after = cut.open();
        let kept = after.open_volume("video").unwrap();
        assert!(
            beginning(&after, &kept, report.durable_bytes) == data,
            "{durability:?}"
        );
    }
}

#[test]
fn running_recording_survives_up_to_its_durable_bytes() {
    let mut rng = seeded("kept");
    for durability in [Durability::WriteThrough, Durability::Fua, Durability::Host] {
        let (rig, pool) = Rig::fresh(2, 64 * MIB, MIB, durability);
        let video = volume(&pool, "video", 4 * MIB);
        let spec = StreamSpec {
            wraps: true,
            ..stream_spec(&video, Op::Write, 1 << 20, BLOCK)
        };
        let stream = pool.reserve(spec).unwrap();
        let data: Vec<u8> = (0..4 * MIB).map(|_| rng.random()).collect();
        let (mut source, sink) = UnixStream::pair().unwrap();
        let stop = Stop::new().unwrap();
        let (mut first, mut cut, mut blocks) = (None, None, 0);
        let all = &data;
        std::thread::scope(|scope| {
            scope.spawn(move || while source.write_all(all).is_ok() {});
            // Closed when the recording ends for any reason, which ends the source.
            let sink = sink;
            Recorder::new(&stream, Bytes::ZERO)
                .run(&sink, &stop, &mut |_| {
                    blocks += 1;
                    // The first flush comes with the first block, the next after two seconds.
                    let durable = stream.durable_bytes();
                    if first.is_none() && durable > 0 {
                        first = Some(durable);
                    }
                    if cut.is_none() && first.is_some_and(|first| durable > first) {
                        cut = Some((rig.after_power_cut(&mut rng), durable));
                    }
                    if cut.is_some() || blocks == ENOUGH {
                        stop.stop();
                    }
                })
                .unwrap();
        });
        let (cut, durable) = cut.unwrap();
        let after = cut.open();
        let kept = after.open_volume("video").unwrap();
        let back = beginning(&after, &kept, durable);
        assert!(back == data[..durable as usize], "{durability:?}");
    }
}

/// A pool on a drive with physical sectors of 4,096 bytes, where a write of part of a sector takes another
/// rotation.
fn on_a_drive() -> (Rig, Arc<Pool>) {
    let shipped = DriveProfile::shipped("hdd-8tb-7200").unwrap();
    let mut beginning = shipped.spec().clone();
    beginning.capacity_sectors = 128 * MIB / 512;
    let drive = DriveProfile::new(beginning).unwrap();
    assert_eq!(drive.physical_sector(), Bytes(4_096));
    let mut rig = Rig::of_drives(1, drive, Durability::WriteThrough);
    rig.options.floor = Floor::None;
    rig.create(MIB);
    let pool = rig.open();
    (rig, pool)
}

fn slow(volume: &Arc<Volume>, block: u64) -> StreamSpec {
    stream_spec(volume, Op::Write, 1_000_000, block)
}

#[test]
fn recording_of_any_length_may_overwrite_another() {
    let (_rig, pool) = on_a_drive();
    let video = volume(&pool, "video", 4 * MIB);
    let before = vec![1; 3 * MIB as usize / 2];
    for (data, end) in [
        (before.as_slice(), before.len()),
        // Padded to the end of the physical sector; the data behind it is unchanged.
        (&[2; 300_001], 74 * 4_096),
        (&[3; 513], 4_096),
        (&[4; 4_096], 4_096),
    ] {
        let stream = pool.reserve(slow(&video, 131_072)).unwrap();
        let report = record(&stream, data).unwrap();
        assert_eq!((report.bytes, report.misses), (data.len() as u64, 0));
        let back = beginning(&pool, &video, end as u64 + 1);
        assert!(back[..data.len()] == *data);
        assert!(back[data.len()..end].iter().all(|byte| *byte == 0));
        assert!(data == before || back[end] > 0, "{}", data.len());
    }
    let disk = &pool.status().disks[0];
    assert_eq!((disk.errors, disk.misses), (0, 0));
}

#[test]
fn recording_cut_by_a_limit_is_padded_with_zeros() {
    let (_rig, pool) = on_a_drive();
    let video = volume(&pool, "video", 4 * MIB);
    let stream = pool.reserve(slow(&video, 65_536)).unwrap();
    // Fills the buffers with other data first.
    let zero = File::open("/dev/zero").unwrap();
    record(&stream, &[7; 512 * 1024]).unwrap();
    let report = Recorder::new(&stream, Bytes::ZERO)
        .limit(Bytes(65_536 + 100))
        .run(zero, &Stop::new().unwrap(), &mut |_| {})
        .unwrap();
    assert_eq!(report.bytes, 65_636);
    let back = beginning(&pool, &video, 65_536 + 4_097);
    assert!(back[..65_536 + 4_096].iter().all(|byte| *byte == 0));
    assert_eq!(back[65_536 + 4_096], 7);
}

#[test]
fn blocks_of_partial_physical_sectors_are_reserved_as_such() {
    let (_rig, pool) = on_a_drive();
    let video = volume(&pool, "video", 4 * MIB);
    let service = |range| {
        let spec = StreamSpec {
            range,
            ..slow(&video, 65_536)
        };
        let stream = pool.reserve(spec).unwrap();
        // First writes, and overwrites.
        for byte in [1, 2] {
            let report = record(&stream, &[byte; 300_000]).unwrap();
            assert_eq!((report.bytes, report.misses), (300_000, 0));
        }
        stream.status().disks[0].service_ns
    };
    let whole = service(Some(0..MIB));
    let odd = service(Some(2 * MIB + 512..3 * MIB));
    assert!(odd > whole, "{odd} ns, {whole} ns");
    let stream = pool.reserve(slow(&video, 65_536)).unwrap();
    let source = File::open("/dev/zero").unwrap();
    let within = Recorder::new(&stream, Bytes(512)).run(source, &Stop::new().unwrap(), &mut |_| {});
    match within {
        Err(PaceError::Offset { offset, grain }) => {
            assert_eq!((offset, grain), (Bytes(512), Bytes(4_096)));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_write_that_the_scheduler_refuses_harms_neither_volume_nor_disk() {
    let (_rig, pool) = on_a_drive();
    let video = volume(&pool, "video", 4 * MIB);
    let stream = pool.reserve(slow(&video, 65_536)).unwrap();
    record(&stream, &[5; 100_000]).unwrap();
    // Not a reserved request: it begins within a physical sector, which would have to be read first.
    let (_buffer, segments) = filled(stream.client(), &[6; 65_536 - 512]);
    let write = VolumeOp::Write { durable: false };
    let within = VolumeRequest::transfer(&video, write, Bytes(512), segments).on(&stream);
    let refused = stream.client().execute(within).unwrap().result;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("the reservation allows"), "{refused}");
    assert_eq!(pool.status().disks[0].errors, 0);
    assert_eq!(pool.volume_info("video").unwrap().poisoned, None);
    let report = record(&stream, &[7; 100_000]).unwrap();
    assert_eq!(report.durable_bytes, 100_000);
    client(&pool).flush(&video).unwrap();
}

#[test]
fn data_received_before_the_source_broke_is_kept() {
    let (_rig, pool) = Rig::fresh(2, 64 * MIB, MIB, Durability::Fua);
    let video = volume(&pool, "video", 4 * MIB);
    let stream = pool
        .reserve(stream_spec(&video, Op::Write, 16 << 20, BLOCK))
        .unwrap();
    let (mut source, mut sink) = UnixStream::pair().unwrap();
    // Closing a socket with unread data resets the connection.
    sink.write_all(b"unread").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || source.write_all(&[3; 10 * BLOCK as usize]));
        // Closed when the recording ends for any reason, which ends the source.
        let sink = sink;
        let mut blocks = 0;
        let broken =
            Recorder::new(&stream, Bytes::ZERO)
                .run(&sink, &Stop::new().unwrap(), &mut |_| blocks += 1);
        assert!(matches!(broken, Err(PaceError::Peer(_))), "{broken:?}");
        assert!(blocks > 0);
        assert_eq!(stream.durable_bytes(), blocks * BLOCK);
    });
    let kept = beginning(&pool, &video, stream.durable_bytes());
    assert!(kept.iter().all(|byte| *byte == 3));
}
