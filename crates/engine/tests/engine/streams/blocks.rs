//! Blocks that the caller fills and uses (`BlockWriter`, `BlockReader`).

use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;

use engine::clock;
use engine::disk::Durability;
use engine::pool::{Pool, Volume};
use engine::stream::{
    BlockReader, BlockReport, BlockWriter, Change, PaceError, Refusal, Stream, StreamChange,
    StreamSpec,
};
use rustix::event::{PollFd, PollFlags};
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond, Nanos, Time};

use testkit::disks::{MIB, Rig, client, stream_spec, volume};

const BLOCK: u64 = 65_536;

fn reserved(pool: &Pool, volume: &Arc<Volume>, op: Op) -> Stream {
    pool.reserve(StreamSpec {
        wraps: true,
        ..stream_spec(volume, op, 16 << 20, BLOCK)
    })
    .unwrap()
}

/// Sleeps as an event loop does.
pub(super) fn sleep(event: std::os::fd::BorrowedFd<'_>, armed: bool, until: Option<Time>) {
    let left = until.map(|until| until.saturating_since(clock::now()));
    let left = if armed { left } else { Some(Nanos::ZERO) };
    let mut fds = [PollFd::from_borrowed_fd(event.as_fd(), PollFlags::IN)];
    rustix::event::poll(&mut fds, left.map(clock::timespec_of).as_ref()).unwrap();
}

/// Writes `count` blocks, block `n` filled with the byte `n`; returns their reports.
fn write(stream: &Stream, offset: u64, count: u8) -> Vec<BlockReport> {
    let mut writer = BlockWriter::new(stream, Bytes(offset)).unwrap();
    let mut reports = Vec::new();
    let mut next = 0;
    while next < count {
        writer.advance(&mut |block| reports.push(*block)).unwrap();
        while next < count
            && let Some(mut buffer) = writer.take()
        {
            buffer.fill(next);
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

/// Requests blocks by number and returns the first byte of each.
pub(super) fn read(reader: &mut BlockReader<'_>, wanted: &[u64]) -> Vec<u8> {
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

/// Asserts that the blocks `which` were submitted at least a period apart. Counted from `begun`, before all
/// of them, because a late host may have submitted the first one late.
#[track_caller]
pub(super) fn come_in_turn(
    reports: &[BlockReport],
    which: Range<usize>,
    begun: Time,
    period: Nanos,
) {
    let mut submitted: Vec<Time> = reports.iter().map(|of| of.submitted).collect();
    submitted.sort_unstable();
    let mut turn = begun;
    for at in &submitted[which] {
        assert!(*at >= turn, "since {begun:?}: {submitted:?}");
        turn = turn.saturating_add(period);
    }
}

#[test]
fn blocks_are_written_around_and_read_in_any_order() {
    let (_rig, pool) = Rig::fresh(3, 64 * MIB, MIB, Durability::WriteThrough);
    let ring = volume(&pool, "ring", MIB);
    let recorder = reserved(&pool, &ring, Op::Write);
    let begun = clock::now();
    let reports = write(&recorder, 14 * BLOCK, 20);
    let mut places: Vec<(u64, u64)> = reports.iter().map(|of| (of.index, of.offset)).collect();
    places.sort_unstable();
    let expected: Vec<(u64, u64)> = (0..20).map(|n| (n, (14 + n) % 16 * BLOCK)).collect();
    assert_eq!(places, expected);
    // A period apart; blocks that are full when the writer ends are submitted at once.
    let period = recorder.rate().period_of(Bytes(BLOCK)).unwrap();
    come_in_turn(&reports, 0..20 - recorder.buffers(), begun, period);
    drop(recorder);

    let player = reserved(&pool, &ring, Op::Read);
    let mut reader = BlockReader::new(&player).unwrap();
    assert_eq!(read(&mut reader, &[15, 0, 1, 3]), [17, 18, 19, 5]);
    // Cancelled requests yield nothing.
    [5, 6, 7]
        .iter()
        .for_each(|block| reader.ask(Bytes(block * BLOCK)));
    reader.advance(&mut |_| {}).unwrap();
    reader.clear(&mut |_| {}).unwrap();
    assert_eq!((reader.pending(), reader.take().is_none()), (0, true));
    assert_eq!(read(&mut reader, &[14, 13, 2]), [16, 15, 4]);
    drop(reader);
    // A new session finds the buffers.
    let mut again = BlockReader::new(&player).unwrap();
    assert_eq!(read(&mut again, &[9]), [11]);
}

#[test]
fn session_of_the_other_direction_is_refused() {
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
    // Offsets outside of the range are skipped.
    reader.ask(Bytes(MIB));
    reader.advance(&mut |_| {}).unwrap();
    assert!(reader.take().is_none());
}

/// Data read before a session begins is in one of the stream's buffers, and the session takes that buffer back.
#[test]
fn a_buffer_that_was_read_before_is_one_of_the_readers() {
    let (rig, pool) = Rig::fresh(3, 64 * MIB, MIB, Durability::WriteThrough);
    let ring = volume(&pool, "ring", 3 * MIB);
    let recorder = reserved(&pool, &ring, Op::Write);
    write(&recorder, 0, 16);
    drop(recorder);
    let player = reserved(&pool, &ring, Op::Read);
    let first = |client: &engine::volume_io::Client| {
        let read = client
            .read(&ring, Bytes(5 * BLOCK), BLOCK as usize)
            .unwrap();
        assert!(
            read.with(|bytes| bytes.iter().all(|byte| *byte == 5))
                .unwrap()
        );
        read
    };
    let read_before = first(player.client());
    let mut reader = BlockReader::beside(&player, &read_before).unwrap();
    let own = reader.buffers();
    assert_eq!(own, 6);
    // All other buffers are used for reading until that one is given back.
    let all: Vec<u64> = (6..6 + own as u64).collect();
    all.iter()
        .for_each(|block| reader.ask(Bytes(block * BLOCK)));
    let mut count = 0;
    while count < own - 1 {
        reader.advance(&mut |_| {}).unwrap();
        sleep(reader.event(), reader.arm(), reader.next_at());
        reader.drain();
        count = reader.use_of_buffers().full;
    }
    assert_eq!(reader.next_at(), None);
    reader.give_back(read_before);
    assert!(reader.next_at().is_some());
    drop(reader);
    // A buffer of another client does not count as the reader's, and is dropped.
    let other = client(&pool);
    let foreign = first(&other);
    let mut reader = BlockReader::beside(&player, &foreign).unwrap();
    assert_eq!(reader.buffers(), own);
    reader.give_back(foreign);
    assert_eq!(read(&mut reader, &all), [6, 7, 8, 9, 10, 11]);
    let usage = rig.memory.usage();
    assert!(
        usage.iter().all(|of| of.variable == Bytes::ZERO),
        "{usage:?}"
    );
}

/// Fills and puts `count` blocks, block `n` with the byte `first + n`, as fast as there are buffers; returns
/// the largest number of borrowed buffers.
fn burst(writer: &mut BlockWriter<'_>, first: u8, count: u8) -> usize {
    let (mut next, mut borrowed) = (0, 0);
    while next < count {
        writer.advance(&mut |_| {}).unwrap();
        while next < count
            && let Some(mut block) = writer.take()
        {
            block.fill(first + next);
            writer.put(block, Bytes(BLOCK));
            next += 1;
            borrowed = borrowed.max(writer.buffers().borrowed);
        }
        if next < count {
            let armed = writer.arm();
            sleep(writer.event(), armed, writer.next_at());
            writer.drain();
        }
    }
    borrowed
}

#[test]
fn a_burst_borrows_buffers_and_gives_each_back_when_it_is_written() {
    let (rig, pool) = Rig::fresh(3, 64 * MIB, MIB, Durability::WriteThrough);
    let ring = volume(&pool, "ring", 3 * MIB);
    let recorder = reserved(&pool, &ring, Op::Write);
    let variable = || {
        let usage = rig.memory.usage();
        usage.iter().map(|of| of.variable.0).sum::<u64>()
    };
    let mut writer = BlockWriter::new(&recorder, Bytes(0)).unwrap();
    let own = writer.buffers().own;
    assert_eq!(own, 6);
    // Without permission to borrow there are only the stream's own buffers.
    let taken: Vec<_> = std::iter::from_fn(|| writer.take()).collect();
    assert_eq!(taken.len(), own);
    taken.into_iter().for_each(|block| writer.give_back(block));
    writer.borrow_at_most(4);
    assert_eq!(burst(&mut writer, 0, 10), 4);
    assert!(writer.take().is_none());
    assert!(variable() >= 4 * BLOCK, "{}", variable());
    let used = writer.buffers();
    assert_eq!((used.own, used.full), (6, 10));
    let report = writer.finish(&mut |_| {}).unwrap();
    assert_eq!((report.blocks, report.misses), (10, 0));
    assert_eq!(variable(), 0);
    drop(recorder);
    let player = reserved(&pool, &ring, Op::Read);
    let mut reader = BlockReader::new(&player).unwrap();
    let all: Vec<u64> = (0..10).collect();
    assert_eq!(read(&mut reader, &all), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn borrowed_buffers_that_are_wanted_back_are_written_early() {
    let (rig, pool) = Rig::fresh(3, 64 * MIB, MIB, Durability::WriteThrough);
    let ring = volume(&pool, "ring", 12 * MIB);
    // One block a second: no account waits for memory that long.
    let slow = StreamSpec {
        wraps: true,
        ..stream_spec(&ring, Op::Write, BLOCK, BLOCK)
    };
    let recorder = pool.reserve(slow).unwrap();
    let mut writer = BlockWriter::new(&recorder, Bytes(0)).unwrap();
    writer.borrow_at_most(150);
    assert_eq!(burst(&mut writer, 0, 155), 149);
    // One more is being filled.
    let mut last = writer.take().unwrap();
    last.fill(155);
    assert!(!writer.are_wanted_back() && !last.is_wanted_back());
    let opened = std::thread::scope(|scope| {
        let memory = rig.memory.clone();
        let all = memory.promisable();
        let opening = scope.spawn(move || memory.open_account("who needs it all", all));
        let mut filling = Some(last);
        while !opening.is_finished() {
            writer.advance(&mut |_| {}).unwrap();
            if writer.are_wanted_back()
                && let Some(block) = filling.take()
            {
                writer.put(block, Bytes(BLOCK));
            }
            let armed = writer.arm();
            let soon = clock::now() + Nanos::from_millis(5);
            sleep(writer.event(), armed, Some(soon));
            writer.drain();
        }
        if let Some(block) = filling {
            writer.put(block, Bytes(BLOCK));
        }
        opening.join().unwrap()
    });
    opened.unwrap();
    // Memory within the reserve may stay borrowed.
    let lent = writer.buffers().borrowed as u64;
    assert!(lent <= 64 * MIB / 32 / BLOCK, "{lent}");
    recorder.change_rate(BytesPerSecond(16 << 20)).unwrap();
    let report = writer.finish(&mut |_| {}).unwrap();
    assert_eq!((report.blocks, report.misses), (156, 0));
    drop(recorder);
    let player = reserved(&pool, &ring, Op::Read);
    let mut reader = BlockReader::new(&player).unwrap();
    let all: Vec<u64> = (0..156).collect();
    let bytes: Vec<u8> = (0..156).collect();
    assert_eq!(read(&mut reader, &all), bytes);
}

#[test]
fn rate_and_buffers_are_changed_beside_what_is_written() {
    let (rig, pool) = Rig::fresh(2, 64 * MIB, MIB, Durability::WriteThrough);
    let ring = volume(&pool, "ring", 2 * MIB);
    let recorder = reserved(&pool, &ring, Op::Write);
    let mut writer = BlockWriter::new(&recorder, Bytes(0)).unwrap();
    let wait = |writer: &mut BlockWriter<'_>, change: &Change| loop {
        writer.advance(&mut |_| {}).unwrap();
        if let Some(changed) = change.take() {
            // The change may have ended after the writer looked at its buffers.
            writer.advance(&mut |_| {}).unwrap();
            return changed;
        }
        let armed = writer.arm();
        sleep(writer.event(), armed, writer.next_at());
        writer.drain();
    };
    let begin = |wish| recorder.changer().begin(wish).unwrap();
    let rate = |rate| StreamChange {
        rate: Some(BytesPerSecond(rate)),
        ..StreamChange::default()
    };
    let buffers = |count| StreamChange {
        buffers: Some(count),
        ..StreamChange::default()
    };
    burst(&mut writer, 0, 4);
    wait(&mut writer, &begin(rate(8 << 20))).unwrap();
    assert_eq!(recorder.rate(), BytesPerSecond(8 << 20));
    let fixed = || -> u64 { rig.memory.usage().iter().map(|of| of.fixed.0).sum() };
    let before = fixed();
    wait(&mut writer, &begin(buffers(9))).unwrap();
    assert_eq!((recorder.buffers(), writer.buffers().own), (9, 9));
    assert_eq!(fixed(), before + 5 * BLOCK);
    burst(&mut writer, 4, 9);
    // Fewer than the disks need, more than the limit, or more than memory permits: nothing changes.
    for count in [3, 0, 65] {
        let refused = wait(&mut writer, &begin(buffers(count))).unwrap_err();
        assert!(
            matches!(
                refused,
                Refusal::Invalid {
                    what: "the buffers",
                    ..
                }
            ),
            "{refused}"
        );
    }
    let all = Bytes(rig.memory.promisable().0 - 2 * BLOCK);
    let account = rig.memory.open_account("most of it", all).unwrap();
    let refused = wait(&mut writer, &begin(buffers(12))).unwrap_err();
    assert!(matches!(refused, Refusal::Memory { .. }), "{refused}");
    assert_eq!(recorder.buffers(), 9);
    drop(account);
    // All or nothing.
    let both = StreamChange {
        rate: Some(BytesPerSecond(u64::MAX)),
        buffers: Some(12),
        ..StreamChange::default()
    };
    wait(&mut writer, &begin(both)).unwrap_err();
    assert_eq!((recorder.buffers(), recorder.rate().0), (9, 8 << 20));
    // Buffers that are full when they are removed are still written.
    burst(&mut writer, 13, 9);
    wait(&mut writer, &begin(buffers(4))).unwrap();
    assert_eq!(writer.buffers().own, 4);
    let report = writer.finish(&mut |_| {}).unwrap();
    assert_eq!((report.blocks, report.misses), (22, 0));
    assert_eq!(fixed(), before);
    drop(recorder);
    let player = reserved(&pool, &ring, Op::Read);
    let mut reader = BlockReader::new(&player).unwrap();
    let all: Vec<u64> = (0..22).collect();
    let bytes: Vec<u8> = (0..22).collect();
    assert_eq!(read(&mut reader, &all), bytes);
}

#[test]
fn finishing_writer_does_not_wait_for_the_pace() {
    let (_rig, pool) = Rig::fresh(2, 64 * MIB, MIB, Durability::WriteThrough);
    let ring = volume(&pool, "ring", 2 * MIB);
    // A block in half a minute.
    let slow = StreamSpec {
        wraps: true,
        ..stream_spec(&ring, Op::Write, BLOCK / 32, BLOCK)
    };
    let recorder = pool.reserve(slow).unwrap();
    let mut writer = BlockWriter::new(&recorder, Bytes(0)).unwrap();
    for _ in 0..4 {
        let mut block = writer.take().unwrap();
        block.fill(7);
        writer.put(block, Bytes(BLOCK));
    }
    let report = writer.finish(&mut |_| {}).unwrap();
    assert_eq!((report.blocks, report.misses), (4, 0));
    assert!(recorder.status().early >= 2, "{:?}", recorder.status());
}
