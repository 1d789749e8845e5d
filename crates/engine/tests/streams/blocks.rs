//! Blocks that are filled and used by whoever holds them.

use std::os::fd::AsFd;
use std::sync::Arc;

use engine::clock;
use engine::disk::Durability;
use engine::pool::{Pool, Volume};
use engine::stream::{BlockReader, BlockReport, BlockWriter, PaceError, Stream, StreamSpec};
use rustix::event::{PollFd, PollFlags};
use sched::request::Op;
use sched::units::{Bytes, Time};

use super::common::{MIB, Rig, client, stream_spec, volume};

const BLOCK: u64 = 65_536;

fn reserved(pool: &Pool, volume: &Arc<Volume>, op: Op) -> Stream {
    pool.reserve(StreamSpec {
        wraps: true,
        ..stream_spec(volume, op, 16 << 20, BLOCK)
    })
    .unwrap()
}

/// Sleeps as an event loop does.
fn sleep(event: std::os::fd::BorrowedFd<'_>, armed: bool, until: Option<Time>) {
    let left = until.map(|until| until.saturating_since(clock::now()));
    let left = if armed {
        left
    } else {
        Some(sched::units::Nanos::ZERO)
    };
    let mut fds = [PollFd::from_borrowed_fd(event.as_fd(), PollFlags::IN)];
    rustix::event::poll(&mut fds, left.map(clock::timespec_of).as_ref()).unwrap();
}

/// Writes so many blocks, block `n` full of the byte `n`; where each was written.
fn write(stream: &Stream, offset: u64, count: u8) -> Vec<BlockReport> {
    let mut writer = BlockWriter::new(stream, Bytes(offset)).unwrap();
    let mut reports = Vec::new();
    let mut next = 0;
    while next < count {
        writer.advance(&mut |block| reports.push(*block)).unwrap();
        while next < count
            && let Some(mut buffer) = writer.take()
        {
            buffer.with_mut(|bytes| bytes.fill(next)).unwrap();
            writer.put(buffer, Bytes(BLOCK));
            next += 1;
        }
        let armed = writer.arm();
        sleep(writer.event(), armed, writer.next_at());
        writer.drain();
    }
    let report = writer.finish(&mut |block| reports.push(*block)).unwrap();
    assert_eq!(report.blocks, u64::from(count));
    assert_eq!(report.bytes, u64::from(count) * BLOCK);
    assert_eq!(report.durable_bytes, report.bytes);
    reports
}

/// Asks for blocks by their numbers and reads what is in them.
fn read(reader: &mut BlockReader<'_>, wanted: &[u64]) -> Vec<u8> {
    wanted
        .iter()
        .for_each(|block| reader.ask(Bytes(block * BLOCK)));
    let mut got = Vec::new();
    while got.len() < wanted.len() {
        reader.advance(&mut |_| {}).unwrap();
        while let Some(block) = reader.take() {
            assert_eq!(block.offset, Bytes(wanted[got.len()] * BLOCK));
            assert_eq!(block.bytes, Bytes(BLOCK));
            got.push(
                block
                    .buffer
                    .with(|bytes| {
                        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
                        bytes[0]
                    })
                    .unwrap(),
            );
            reader.give_back(block.buffer);
        }
        if got.len() < wanted.len() {
            let armed = reader.arm();
            sleep(reader.event(), armed, reader.next_at());
            reader.drain();
        }
    }
    got
}

#[test]
fn blocks_are_written_around_and_read_in_any_order() {
    let (_rig, pool) = Rig::fresh(3, 64 * MIB, MIB, Durability::WriteThrough);
    let ring = volume(&pool, "ring", MIB);
    let recorder = reserved(&pool, &ring, Op::Write);
    let reports = write(&recorder, 14 * BLOCK, 20);
    let mut places: Vec<(u64, u64)> = reports.iter().map(|of| (of.index, of.offset)).collect();
    places.sort_unstable();
    let expected: Vec<(u64, u64)> = (0..20).map(|n| (n, (14 + n) % 16 * BLOCK)).collect();
    assert_eq!(places, expected);
    // Blocks of a period each, not sooner.
    let mut submitted: Vec<Time> = reports.iter().map(|of| of.submitted).collect();
    submitted.sort_unstable();
    let period = recorder.rate().period_of(Bytes(BLOCK)).unwrap();
    assert!(submitted[19] - submitted[0] >= sched::units::Nanos(period.0 * 18));
    drop(recorder);

    let player = reserved(&pool, &ring, Op::Read);
    let mut reader = BlockReader::new(&player).unwrap();
    assert_eq!(read(&mut reader, &[15, 0, 1, 3]), [17, 18, 19, 5]);
    // What was asked for and is not wanted any more does not come.
    [5, 6, 7]
        .iter()
        .for_each(|block| reader.ask(Bytes(block * BLOCK)));
    reader.advance(&mut |_| {}).unwrap();
    reader.clear(&mut |_| {}).unwrap();
    assert_eq!((reader.pending(), reader.take().is_none()), (0, true));
    assert_eq!(read(&mut reader, &[14, 13, 2]), [16, 15, 4]);
    drop(reader);
    // Another session has the buffers.
    let mut again = BlockReader::new(&player).unwrap();
    assert_eq!(read(&mut again, &[9]), [11]);
}

#[test]
fn a_session_of_the_other_direction_is_none() {
    let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    let ring = volume(&pool, "ring", MIB);
    client(&pool).write_at(&ring, Bytes(0), &[1; 4096]).unwrap();
    let recorder = reserved(&pool, &ring, Op::Write);
    let wrong = BlockReader::new(&recorder).unwrap_err();
    assert!(matches!(wrong, PaceError::Direction { .. }), "{wrong}");
    let within = BlockWriter::new(&recorder, Bytes(100)).unwrap_err();
    assert!(matches!(within, PaceError::Offset { .. }), "{within}");
    drop(recorder);
    let player = reserved(&pool, &ring, Op::Read);
    let wrong = BlockWriter::new(&player, Bytes(0)).unwrap_err();
    assert!(matches!(wrong, PaceError::Direction { .. }), "{wrong}");
    let mut reader = BlockReader::new(&player).unwrap();
    // What is not there is passed over.
    reader.ask(Bytes(MIB));
    reader.advance(&mut |_| {}).unwrap();
    assert!(reader.take().is_none());
}
