//! Blocks that become longer and shorter during a session.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use engine::disk::Durability;
use engine::pool::{Pool, Volume};
use engine::stream::{
    BUFFERS_MAX, BlockReader, BlockReport, BlockWriter, Change, Changer, PaceError, Recorder,
    Refusal, Stop, Stream, StreamChange, StreamSpec,
};
use engine::volume_io::{VolumeOp, VolumeRequest};
use rand::Rng;
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond, Nanos, Time};

use super::blocks::{come_in_turn, read, sleep};
use super::ranges::is_what;
use testkit::disks::{MIB, Rig, seeded, stream_spec, volume};
use testkit::until;

/// Size of a buffer in bytes.
const BUFFER: u64 = 65_536;

fn reserved(pool: &Pool, volume: &Arc<Volume>, op: Op, rate: u64) -> Stream {
    pool.reserve(StreamSpec {
        wraps: true,
        ..stream_spec(volume, op, rate, BUFFER)
    })
    .unwrap()
}

fn block(buffers: u64) -> StreamChange {
    StreamChange {
        block: Some(Bytes(buffers * BUFFER)),
        ..StreamChange::default()
    }
}

/// Asserts that no block crosses a boundary of the range's blocks, comes early, or is late. The first one is
/// a part of a block and was submitted after `begun`.
#[track_caller]
fn are_sound(reports: &[BlockReport], begun: Time, block: u64, period: Nanos) {
    for report in reports {
        let last = report.offset + report.bytes - 1;
        assert_eq!(report.offset / block, last / block, "{report:?}");
        assert_eq!(report.late_net, Nanos::ZERO, "{report:?}");
    }
    come_in_turn(reports, 1..reports.len(), begun, period);
}

/// Writes a buffer for each byte in `bytes`, filled with that byte.
fn write(writer: &mut BlockWriter<'_>, reports: &mut Vec<BlockReport>, bytes: std::ops::Range<u8>) {
    let mut next = bytes.start;
    while next < bytes.end {
        writer.advance(&mut |block| reports.push(*block)).unwrap();
        while next < bytes.end
            && let Some(mut buffer) = writer.take()
        {
            buffer.fill(next);
            writer.put(buffer, Bytes(BUFFER));
            next += 1;
        }
        let armed = writer.arm();
        sleep(writer.event(), armed, writer.next_at());
        writer.drain();
    }
}

#[test]
fn blocks_in_several_buffers_are_transferred_together_within_the_blocks_of_the_range() {
    let (_rig, pool) = Rig::fresh(3, 64 * MIB, MIB, Durability::WriteThrough);
    let ring = volume(&pool, "ring", 2 * MIB);
    let recorder = reserved(&pool, &ring, Op::Write, 8 << 20);
    recorder.changer().change(block(4)).unwrap();
    assert_eq!(
        (recorder.block(), recorder.buffer()),
        (Bytes(4 * BUFFER), Bytes(BUFFER))
    );
    assert_eq!(recorder.status().block_bytes, 4 * BUFFER);
    // Two blocks for each of two disks.
    assert_eq!(recorder.buffers(), 16);
    // Begins with the last buffer of a block, and wraps.
    let mut writer = BlockWriter::new(&recorder, Bytes(27 * BUFFER)).unwrap();
    let mut reports = Vec::new();
    let begun = engine::clock::now();
    write(&mut writer, &mut reports, 0..40);
    let period = recorder.rate().period_of(recorder.block()).unwrap();
    are_sound(&reports, begun, 4 * BUFFER, period);
    let report = writer.finish(&mut |of| reports.push(*of)).unwrap();
    assert_eq!((report.bytes, report.misses), (40 * BUFFER, 0));
    assert_eq!(report.durable_bytes, report.bytes);
    let mut lengths: Vec<(u64, u64)> = reports.iter().map(|of| (of.index, of.buffers)).collect();
    lengths.sort_unstable();
    let mut expected = vec![(0, 1)];
    expected.extend((0..9).map(|n| (1 + 4 * n, 4)));
    expected.push((37, 3));
    assert_eq!(lengths, expected);
    drop(recorder);

    let player = reserved(&pool, &ring, Op::Read, 8 << 20);
    player.changer().change(block(8)).unwrap();
    let mut reader = BlockReader::new(&player).unwrap();
    assert_eq!(reader.buffers(), 32);
    let all: Vec<u64> = (0..32).collect();
    let got = read(&mut reader, &all);
    assert_eq!(reader.report().blocks, 4);
    let place_of = |byte: u64| (27 + byte) % 32;
    for byte in 8..40 {
        assert_eq!(u64::from(got[place_of(byte) as usize]), byte);
    }
    // Requests that are not consecutive become separate blocks, in the order of the requests.
    let before = reader.report().blocks;
    let mixed = [5, 6, 9, 10, 11, 30, 31, 0, 1, 16, 15];
    let got = read(&mut reader, &mixed);
    let byte_at = |place: u64| (0..40).rev().find(|byte| place_of(*byte) == place).unwrap();
    let expected: Vec<u8> = mixed.iter().map(|place| byte_at(*place) as u8).collect();
    assert_eq!(got, expected);
    assert_eq!(reader.report().blocks - before, 6);
}

#[test]
fn a_writer_waits_for_the_rest_of_a_block_no_longer_than_a_period() {
    let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    let ring = volume(&pool, "ring", 2 * MIB);
    let recorder = reserved(&pool, &ring, Op::Write, 1 << 20);
    recorder.changer().change(block(4)).unwrap();
    let period = recorder.rate().period_of(recorder.block()).unwrap();
    let mut writer = BlockWriter::new(&recorder, Bytes(0)).unwrap();
    let mut reports = Vec::new();
    let put = |writer: &mut BlockWriter<'_>, byte| {
        let mut buffer = writer.take().unwrap();
        buffer.fill(byte);
        writer.put(buffer, Bytes(BUFFER));
    };
    let before = engine::clock::now();
    put(&mut writer, 0);
    let full = engine::clock::now();
    put(&mut writer, 1);
    writer.advance(&mut |of| reports.push(*of)).unwrap();
    // Unless this thread was interrupted for a period.
    let is_early = engine::clock::now() < before.saturating_add(period);
    assert!(writer.waiting() == 2 || !is_early);
    let next = writer.next_at();
    assert!(next.is_some_and(|at| at <= full.saturating_add(period)) || !is_early);
    while reports.is_empty() {
        let armed = writer.arm();
        sleep(writer.event(), armed, writer.next_at());
        writer.drain();
        writer.advance(&mut |of| reports.push(*of)).unwrap();
    }
    assert_eq!((reports[0].buffers, writer.waiting()), (2, 0));
    // The rest completes the block.
    (2..4).for_each(|byte| put(&mut writer, byte));
    writer.advance(&mut |of| reports.push(*of)).unwrap();
    while reports.len() < 2 {
        let armed = writer.arm();
        sleep(writer.event(), armed, writer.next_at());
        writer.drain();
        writer.advance(&mut |of| reports.push(*of)).unwrap();
    }
    assert_eq!((reports[1].index, reports[1].buffers), (2, 2));
    // At the end the writer does not wait.
    put(&mut writer, 4);
    let report = writer.finish(&mut |of| reports.push(*of)).unwrap();
    assert_eq!(report.durable_bytes, 5 * BUFFER);
}

/// Reads until there are `count` reports.
fn blocks(reader: &mut BlockReader<'_>, reports: &mut Vec<BlockReport>, count: usize) {
    reader.advance(&mut |of| reports.push(*of)).unwrap();
    while reports.len() < count {
        let armed = reader.arm();
        sleep(reader.event(), armed, reader.next_at());
        reader.drain();
        reader.advance(&mut |of| reports.push(*of)).unwrap();
    }
}

#[test]
fn reader_waits_for_the_rest_of_a_block() {
    let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    let ring = volume(&pool, "ring", 2 * MIB);
    let player = reserved(&pool, &ring, Op::Read, 8 << 20);
    player.changer().change(block(4)).unwrap();
    let mut reader = BlockReader::new(&player).unwrap();
    reader.more_follow(true);
    (0..3).for_each(|place| reader.ask(Bytes(place * BUFFER)));
    reader.advance(&mut |_| {}).unwrap();
    assert_eq!((reader.pending(), reader.next_at()), (3, None));
    reader.ask(Bytes(3 * BUFFER));
    assert!(reader.next_at().is_some());
    let mut reports = Vec::new();
    blocks(&mut reader, &mut reports, 1);
    assert_eq!(reports[0].buffers, 4);
    // The reader waits for at most as many requests as it has buffers.
    let taken: Vec<_> = std::iter::from_fn(|| reader.take()).collect();
    assert_eq!((taken.len(), reader.buffers()), (4, 8));
    (4..12).for_each(|place| reader.ask(Bytes(place * BUFFER)));
    blocks(&mut reader, &mut reports, 2);
    assert_eq!(reader.next_at(), None);
    let mut taken = taken.into_iter().map(|block| block.buffer);
    (0..3).for_each(|_| reader.give_back(taken.next().unwrap()));
    assert_eq!(reader.next_at(), None);
    reader.give_back(taken.next().unwrap());
    assert!(reader.next_at().is_some());
}

#[test]
fn invalid_block_size_is_refused_without_effect() {
    let (_rig, pool) = Rig::fresh(3, 64 * MIB, MIB, Durability::WriteThrough);
    let ring = volume(&pool, "ring", 6 * MIB);
    let stream = reserved(&pool, &ring, Op::Write, 8 << 20);
    let changer = stream.changer();
    let as_it_was = || {
        assert_eq!(stream.block(), Bytes(BUFFER));
        assert_eq!(
            (stream.rate(), stream.buffers()),
            (BytesPerSecond(8 << 20), 6)
        );
        assert_eq!(stream.status().disks.len(), 3);
    };
    for (wrong, because) in [
        (0, "must be a multiple of"),
        (BUFFER / 2, "must be a multiple of"),
        (3 * BUFFER, "divide the extent size"),
        (65 * MIB, "the maximum length of a request"),
    ] {
        let wish = StreamChange {
            block: Some(Bytes(wrong)),
            ..StreamChange::default()
        };
        is_what(changer.change(wish).unwrap_err(), "the block size", because);
        as_it_was();
    }
    // Two blocks of 16 buffers for each of three disks exceed the limit.
    is_what(
        changer.change(block(16)).unwrap_err(),
        "the buffers",
        "96 buffers of 64 KiB",
    );
    as_it_was();
    let few = StreamChange {
        buffers: Some(23),
        ..block(4)
    };
    is_what(
        changer.change(few).unwrap_err(),
        "the buffers",
        "24 (two blocks",
    );
    as_it_was();
    // The disks do not carry it: the additional buffers are removed again.
    let fast = StreamChange {
        rate: Some(BytesPerSecond(1 << 50)),
        ..block(4)
    };
    assert!(matches!(changer.change(fast), Err(Refusal::Load { .. })));
    as_it_was();
    // Sessions that move bytes need blocks of one buffer.
    changer.change(block(2)).unwrap();
    let record = || {
        let recorder = Recorder::new(&stream, Bytes::ZERO).limit(Bytes(4 * BUFFER));
        recorder.run(
            File::open("/dev/zero").unwrap(),
            &Stop::new().unwrap(),
            &mut |_| {
                is_what(
                    changer.change(block(2)).unwrap_err(),
                    "the block size",
                    "moves bytes",
                );
            },
        )
    };
    let refused = record().unwrap_err();
    assert!(matches!(refused, PaceError::Block { .. }), "{refused}");
    changer.change(block(1)).unwrap();
    assert_eq!(record().unwrap().blocks, 4);
    // Additional buffers stay until they are removed.
    assert_eq!(stream.buffers(), 12);
    let least = StreamChange {
        buffers: Some(6),
        ..StreamChange::default()
    };
    changer.change(least).unwrap();
    changer.change(block(2)).unwrap();
}

/// Longer blocks need less disk time.
#[test]
fn longer_blocks_leave_room_for_others() {
    let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    let ring = volume(&pool, "ring", 8 * MIB);
    let stream = reserved(&pool, &ring, Op::Write, 1 << 20);
    let share = || {
        let disks = stream.status().disks;
        disks[0].service_ns as f64 / disks[0].period_ns as f64
    };
    let short = share();
    stream.changer().change(block(8)).unwrap();
    assert!(share() < short / 2.0, "{} and {short}", share());
}

/// A series of changes at random times.
struct ChangeLoop {
    changer: Changer,
    under_way: Option<Change>,
}

impl ChangeLoop {
    fn of(stream: &Stream) -> Self {
        Self {
            changer: stream.changer(),
            under_way: None,
        }
    }

    /// Now and then begins a change of the block size, the rate or the number of buffers.
    fn maybe_begin(&mut self, rng: &mut impl Rng) {
        if let Some(change) = &self.under_way {
            match change.take() {
                None => return,
                Some(changed) => drop(changed.unwrap()),
            }
            self.under_way = None;
        }
        if rng.random_bool(0.8) {
            return;
        }
        let buffers = 1 << rng.random_range(0..4);
        let least = usize::try_from(4 * buffers).unwrap();
        let wish = StreamChange {
            rate: rng
                .random_bool(0.5)
                .then(|| BytesPerSecond(rng.random_range(4 << 20..16 << 20))),
            buffers: rng
                .random_bool(0.5)
                .then(|| rng.random_range(least..=BUFFERS_MAX)),
            within: rng
                .random_bool(0.5)
                .then(|| Duration::from_millis(rng.random_range(1..500))),
            ..block(buffers)
        };
        self.under_way = Some(self.changer.clone().begin(wish).unwrap());
    }

    fn settle(self) {
        if let Some(change) = self.under_way {
            change.wait().unwrap();
        }
    }
}

/// `count` places, in runs of consecutive ones.
fn runs(rng: &mut impl Rng, places: u64, count: usize) -> Vec<u64> {
    let mut all = Vec::new();
    while all.len() < count {
        let (from, len) = (rng.random_range(0..places), rng.random_range(1..24));
        all.extend((from..from + len).map(|place| place % places));
    }
    all.truncate(count);
    all
}

#[test]
fn data_is_written_and_read_correctly_during_random_changes() {
    let mut rng = seeded("longer");
    let (_rig, pool) = Rig::fresh(2, 64 * MIB, MIB, Durability::WriteThrough);
    let ring = volume(&pool, "ring", 12 * MIB);
    let places = 12 * MIB / BUFFER;
    let recorder = reserved(&pool, &ring, Op::Write, 16 << 20);
    // Blocks in flight may overtake each other, so no place is written twice within the number of buffers.
    let mut to: Vec<u64> = Vec::new();
    for place in runs(&mut rng, places, 250) {
        let latest = &to[to.len().saturating_sub(BUFFERS_MAX)..];
        if !latest.contains(&place) {
            to.push(place);
        }
    }
    let mut written = BTreeMap::new();
    let mut reports = Vec::new();
    let mut restless = ChangeLoop::of(&recorder);
    {
        let writer = BlockWriter::new(&recorder, Bytes::ZERO).unwrap();
        let mut writer = writer.placed(|index| Bytes(to[index as usize] * BUFFER));
        writer.borrow_at_most(3);
        let mut next = 0;
        while next < to.len() {
            writer.advance(&mut |of| reports.push(*of)).unwrap();
            restless.maybe_begin(&mut rng);
            while next < to.len()
                && let Some(mut buffer) = writer.take()
            {
                buffer.fill(next as u8);
                written.insert(to[next], next as u8);
                writer.put(buffer, Bytes(BUFFER));
                next += 1;
            }
            let armed = writer.arm();
            sleep(writer.event(), armed, writer.next_at());
            writer.drain();
        }
        let report = writer.finish(&mut |of| reports.push(*of)).unwrap();
        assert_eq!(report.bytes, to.len() as u64 * BUFFER);
        let late: Vec<_> = reports.iter().filter(|of| !of.late_net.is_zero()).collect();
        assert!(late.is_empty(), "{late:?}");
        assert_eq!(report.durable_bytes, report.bytes);
    }
    restless.settle();
    let buffers: u64 = reports.iter().map(|of| of.buffers).sum();
    assert_eq!(buffers, to.len() as u64);
    assert!(reports.iter().any(|of| of.buffers > 1));
    drop(recorder);

    let player = reserved(&pool, &ring, Op::Read, 16 << 20);
    let mut restless = ChangeLoop::of(&player);
    let mut reader = BlockReader::new(&player).unwrap();
    let wanted = runs(&mut rng, places, 250);
    let wanted: Vec<u64> = wanted
        .into_iter()
        .filter(|of| written.contains_key(of))
        .collect();
    let (mut asked, mut got) = (0, 0);
    let mut held = Vec::new();
    while got < wanted.len() {
        while asked < wanted.len() && asked - got + held.len() < reader.buffers() {
            reader.ask(Bytes(wanted[asked] * BUFFER));
            asked += 1;
        }
        reader.more_follow(asked < wanted.len());
        reader.advance(&mut |_| {}).unwrap();
        restless.maybe_begin(&mut rng);
        while let Some(read) = reader.take() {
            assert_eq!(read.offset, Bytes(wanted[got] * BUFFER));
            let byte = read.buffer.with(|bytes| bytes[0]).unwrap();
            assert_eq!(Some(&byte), written.get(&wanted[got]));
            got += 1;
            held.push(read.buffer);
        }
        // Buffers are kept for a while before they are given back.
        let gone = rng.random_range(0..=held.len());
        held.drain(..gone)
            .for_each(|buffer| reader.give_back(buffer));
        let may_ask = asked < wanted.len() && asked - got < reader.buffers();
        if held.is_empty() && got < asked && !may_ask {
            let armed = reader.arm();
            sleep(reader.event(), armed, reader.next_at());
            reader.drain();
        }
    }
    reader.settle();
    restless.settle();
    assert_eq!(reader.report().misses, 0);
}

/// Data that begins within a buffer of the grid is a separate block and is written to its offset.
#[test]
fn data_that_begins_within_a_buffer_is_a_block_of_its_own() {
    const PART: u64 = BUFFER / 4;
    let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    let ring = volume(&pool, "ring", 2 * MIB);
    let recorder = reserved(&pool, &ring, Op::Write, 8 << 20);
    recorder.changer().change(block(4)).unwrap();
    let mut writer = BlockWriter::new(&recorder, Bytes(PART)).unwrap();
    for (byte, bytes) in [(1, BUFFER - PART), (2, BUFFER), (3, BUFFER)] {
        let mut buffer = writer.take().unwrap();
        buffer.fill(byte);
        writer.put(buffer, Bytes(bytes));
    }
    writer.finish(&mut |_| {}).unwrap();
    drop(recorder);
    let player = reserved(&pool, &ring, Op::Read, 8 << 20);
    player.changer().change(block(4)).unwrap();
    let mut reader = BlockReader::new(&player).unwrap();
    for from in [PART, BUFFER, 2 * BUFFER] {
        reader.ask(Bytes(from));
    }
    let mut reports = Vec::new();
    blocks(&mut reader, &mut reports, 2);
    for (byte, bytes) in [(1, BUFFER - PART), (2, BUFFER), (3, BUFFER)] {
        let read = reader.take().unwrap();
        assert_eq!(read.bytes, Bytes(bytes));
        let is_it = |all: &[u8]| all[..bytes as usize].iter().all(|of| *of == byte);
        assert!(read.buffer.with(is_it).unwrap(), "{byte}");
    }
}

/// A client that submits blocks directly gets an error if they have become shorter than its request.
#[test]
fn a_request_that_waited_while_blocks_became_shorter_is_refused() {
    let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    let ring = volume(&pool, "ring", 2 * MIB);
    let player = reserved(&pool, &ring, Op::Read, 8 << 20);
    let changer = player.changer();
    let [is_done, is_told] = [const { AtomicBool::new(false) }; 2];
    let turns = AtomicU64::new(0);
    let is_seen = || is_done.load(Ordering::Acquire) && is_told.load(Ordering::Acquire);
    std::thread::scope(|scope| {
        // A change waits for blocks of other threads that have begun, and later blocks wait for the change.
        for _ in 0..3 {
            scope.spawn(|| {
                let memory = player.client().account().allocate(BUFFER as usize).unwrap();
                until("one is done, and one is told", || {
                    let mut two = memory.segments(Op::Read, 0..BUFFER as usize).unwrap();
                    let again = memory.segments(Op::Read, 0..BUFFER as usize).unwrap();
                    two.append(again).unwrap();
                    let request = VolumeRequest::transfer(&ring, VolumeOp::Read, Bytes::ZERO, two);
                    let done = player.client().execute(request.on(&player));
                    match done.map(|of| of.result) {
                        Ok(Ok(())) => is_done.store(true, Ordering::Release),
                        Ok(Err(failure)) => {
                            let text = failure.to_string();
                            assert!(text.contains("became shorter"), "{text}");
                            is_told.store(true, Ordering::Release);
                        }
                        Err(refused) => {
                            let text = refused.to_string();
                            assert!(text.contains("reserved"), "{text}");
                        }
                    }
                    turns.fetch_add(1, Ordering::AcqRel);
                    is_seen()
                });
            });
        }
        until("one is done, and one is told", || {
            for blocks in [4, 1] {
                changer.change(block(blocks)).unwrap();
                // The next change is made only after others have submitted.
                let before = turns.load(Ordering::Acquire);
                let have_had = || turns.load(Ordering::Acquire) > before + 3;
                until("others have had their turn", || is_seen() || have_had());
            }
            is_seen()
        });
    });
    assert_eq!(player.status().misses, 0);
}
