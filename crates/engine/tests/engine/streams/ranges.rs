//! Ranges that change during a session.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use engine::disk::Durability;
use engine::pool::{Placement, Pool, PoolError, Volume};
use engine::stream::{
    BlockBuffer, BlockReader, BlockWriter, PaceError, Refusal, Stream, StreamChange, StreamSpec,
};
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond};

use super::blocks::{read, sleep};
use super::rate_that_fits;
use testkit::disks::{MIB, Rig, stream_spec, volume, volume_on};

const BLOCK: u64 = 65_536;

fn reserved(pool: &Pool, volume: &Arc<Volume>, op: Op, range: std::ops::Range<u64>) -> Stream {
    pool.reserve(StreamSpec {
        wraps: true,
        range: Some(range),
        ..stream_spec(volume, op, 16 << 20, BLOCK)
    })
    .unwrap()
}

fn end(end: u64) -> StreamChange {
    StreamChange {
        end: Some(Bytes(end)),
        ..StreamChange::default()
    }
}

fn taken(writer: &mut BlockWriter<'_>) -> Result<BlockBuffer, PaceError> {
    loop {
        writer.advance(&mut |_| {})?;
        if let Some(block) = writer.take() {
            return Ok(block);
        }
        let armed = writer.arm();
        sleep(writer.event(), armed, writer.next_at());
        writer.drain();
    }
}

/// A writer whose blocks go to the places sent over the channel.
fn placed(stream: &Stream) -> (BlockWriter<'_>, Sender<u8>) {
    let (to, places) = channel();
    let writer = BlockWriter::new(stream, Bytes(0)).unwrap();
    let place = move |_| Bytes(u64::from(places.try_recv().unwrap()) * BLOCK);
    (writer.placed(place), to)
}

/// Writes blocks to these places, each filled with the number of its place.
fn write(writer: &mut BlockWriter<'_>, to: &Sender<u8>, places: &[u8]) -> Result<(), PaceError> {
    for place in places {
        let mut block = taken(writer)?;
        block.fill(*place);
        to.send(*place).unwrap();
        writer.put(block, Bytes(BLOCK));
    }
    Ok(())
}

pub(super) fn is_what(refused: Refusal, expected: &str, because: &str) {
    match refused {
        Refusal::Invalid { what, reason, .. } => {
            assert_eq!(what, expected);
            assert!(reason.contains(because), "{reason}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_volume_grows_and_shrinks_under_a_stream_whose_range_follows() {
    let (_rig, pool) = Rig::fresh(2, 64 * MIB, MIB, Durability::WriteThrough);
    let ring = volume(&pool, "ring", 4 * MIB);
    let recorder = reserved(&pool, &ring, Op::Write, MIB..4 * MIB);
    let player = reserved(&pool, &ring, Op::Read, MIB..3 * MIB);
    let (mut writer, to) = placed(&recorder);
    write(&mut writer, &to, &[40, 3, 4, 5]).unwrap();
    let beyond = recorder.changer().change(end(8 * MIB)).unwrap_err();
    is_what(beyond, "the range", "past the volume's end");
    pool.grow("ring", Bytes(8 * MIB), &Placement::default())
        .unwrap();
    recorder.changer().change(end(8 * MIB)).unwrap();
    assert_eq!(recorder.range(), MIB..8 * MIB);
    write(&mut writer, &to, &[100, 6, 101, 111]).unwrap();
    writer.finish(&mut |_| {}).unwrap();
    let (mut writer, to) = placed(&recorder);
    // The reserved part cannot be cut off; a released part can.
    let reserved_by = |size: u64| match pool.shrink("ring", Bytes(size)) {
        Err(PoolError::Reserved { .. }) => true,
        other => {
            other.unwrap();
            false
        }
    };
    assert!(reserved_by(7 * MIB));
    let changed = recorder.changer().begin(end(4 * MIB)).unwrap();
    let changed = loop {
        writer.advance(&mut |_| {}).unwrap();
        if let Some(changed) = changed.take() {
            break changed;
        }
        let armed = writer.arm();
        sleep(writer.event(), armed, writer.next_at());
        writer.drain();
    };
    changed.unwrap();
    assert!(!reserved_by(4 * MIB));
    write(&mut writer, &to, &[47, 0, 1]).unwrap();
    writer.finish(&mut |_| {}).unwrap();

    // The player's range does not include all of that until it is changed.
    let mut reader = BlockReader::new(&player).unwrap();
    assert_eq!(read(&mut reader, &[3, 4, 5, 6]), [3, 4, 5, 6]);
    player.changer().change(end(4 * MIB)).unwrap();
    assert_eq!(read(&mut reader, &[40, 47, 0, 1]), [40, 47, 0, 1]);
}

#[test]
fn range_changes_together_with_other_parameters_or_not_at_all() {
    let (_rig, pool) = Rig::fresh(2, 64 * MIB, MIB, Durability::WriteThrough);
    let ring = volume(&pool, "ring", 8 * MIB);
    let stream = reserved(&pool, &ring, Op::Write, 0..4 * MIB);
    let as_it_was = || {
        assert_eq!(stream.range(), 0..4 * MIB);
        assert_eq!(stream.rate(), BytesPerSecond(16 << 20));
        assert_eq!(stream.buffers(), 4);
        assert_eq!(stream.status().disks.len(), 2);
    };
    let changer = stream.changer();
    let both = StreamChange {
        rate: Some(BytesPerSecond(1 << 50)),
        buffers: Some(9),
        end: Some(Bytes(8 * MIB)),
        ..StreamChange::default()
    };
    assert!(rate_that_fits(&changer.change(both).unwrap_err()) > 0);
    as_it_was();
    for (wrong, because) in [
        (0, "is empty"),
        (9 * MIB, "past the volume's end"),
        (4 * MIB + 100, "not whole sectors"),
    ] {
        is_what(
            changer.change(end(wrong)).unwrap_err(),
            "the range",
            because,
        );
        as_it_was();
    }
    // All changes at once.
    let all = StreamChange {
        rate: Some(BytesPerSecond(8 << 20)),
        buffers: Some(9),
        end: Some(Bytes(6 * MIB)),
        ..StreamChange::default()
    };
    changer.change(all).unwrap();
    assert_eq!((stream.range(), stream.buffers()), (0..6 * MIB, 9));
    assert_eq!(stream.rate(), BytesPerSecond(8 << 20));
}

#[test]
fn a_range_on_more_disks_than_there_are_buffers_for_is_refused_and_on_fewer_is_not() {
    let (_rig, pool) = Rig::fresh(3, 64 * MIB, MIB, Durability::WriteThrough);
    let wide = volume(&pool, "wide", 6 * MIB);
    let stream = reserved(&pool, &wide, Op::Write, 0..2 * MIB);
    assert_eq!(stream.disk_count(), 2);
    let more = stream.changer().change(end(3 * MIB)).unwrap_err();
    is_what(more, "the range", "on 3 disks");
    stream.changer().change(end(MIB)).unwrap();
    assert_eq!((stream.disk_count(), stream.buffers()), (1, 4));
    let (mut writer, to) = placed(&stream);
    assert_eq!(writer.buffers().own, 4);
    write(&mut writer, &to, &[0, 9, 3]).unwrap();
    stream.changer().change(end(2 * MIB)).unwrap();
    write(&mut writer, &to, &[20, 31, 5]).unwrap();
    writer.finish(&mut |_| {}).unwrap();
    drop(stream);
    // A volume that grows on the same disk needs no buffers for more disks.
    let narrow = volume_on(&pool, "narrow", 1, 2 * MIB);
    let stream = reserved(&pool, &narrow, Op::Write, 0..2 * MIB);
    pool.grow("narrow", Bytes(6 * MIB), &Placement::default())
        .unwrap();
    stream.changer().change(end(6 * MIB)).unwrap();
    assert_eq!(stream.disk_count(), 1);
}

#[test]
fn block_is_written_where_it_is_placed_or_refused() {
    let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    let ring = volume(&pool, "ring", 2 * MIB);
    let stream = reserved(&pool, &ring, Op::Write, 0..MIB);
    let (mut writer, to) = placed(&stream);
    write(&mut writer, &to, &[15, 2, 7]).unwrap();
    writer.finish(&mut |_| {}).unwrap();
    let (mut writer, to) = placed(&stream);
    write(&mut writer, &to, &[16]).unwrap();
    let failed = writer.finish(&mut |_| {}).unwrap_err();
    assert!(
        matches!(failed, PaceError::Place { offset: Bytes(MIB) }),
        "{failed}"
    );
    drop(stream);
    let player = reserved(&pool, &ring, Op::Read, 0..MIB);
    let mut reader = BlockReader::new(&player).unwrap();
    assert_eq!(read(&mut reader, &[2, 7, 15]), [2, 7, 15]);
}

#[test]
fn concurrent_changes_of_different_parameters_both_take_effect() {
    let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    let ring = volume(&pool, "ring", 8 * MIB);
    let stream = reserved(&pool, &ring, Op::Write, 0..4 * MIB);
    for round in 0..40_u64 {
        let (mut writer, to) = placed(&stream);
        // In flight while both changes are requested.
        write(&mut writer, &to, &[0, 1]).unwrap();
        writer.advance(&mut |_| {}).unwrap();
        let rate = BytesPerSecond((1 << 20) + round);
        let to_end = (4 + round % 4) * MIB;
        std::thread::scope(|scope| {
            let (rates, ends) = (stream.changer(), stream.changer());
            let faster = StreamChange {
                rate: Some(rate),
                ..StreamChange::default()
            };
            scope.spawn(move || rates.change(faster).unwrap());
            scope.spawn(move || ends.change(end(to_end)).unwrap());
        });
        assert_eq!((stream.rate(), stream.range().end), (rate, to_end));
        writer.finish(&mut |_| {}).unwrap();
    }
}

/// A ring ends so that its first block follows its last on another disk, as within the ring.
#[test]
fn ring_needs_no_more_of_a_disk_at_its_wrap() {
    let (_rig, pool) = Rig::fresh(3, 64 * MIB, MIB, Durability::WriteThrough);
    let ring = volume(&pool, "ring", 40 * MIB);
    for blocks in 1..39 {
        let even = ring.ring(MIB..(blocks + 1) * MIB, Bytes(MIB));
        let expected = if blocks < 3 { blocks } else { blocks / 3 * 3 };
        assert_eq!(even, MIB..(expected + 1) * MIB, "{blocks} blocks");
    }
    // Then each disk carries a third of the reservation.
    let fits = |range| {
        let spec = StreamSpec {
            wraps: true,
            range: Some(range),
            ..stream_spec(&ring, Op::Read, 1 << 40, MIB)
        };
        rate_that_fits(&pool.reserve(spec).expect_err("no disk carries that"))
    };
    let (odd, even) = (MIB..38 * MIB, MIB..37 * MIB);
    assert_eq!(ring.ring(odd.clone(), Bytes(MIB)), even);
    assert!(fits(even) > 2 * fits(odd));
    // If neighbours share a disk anyway, a shorter ring gains nothing; nor does a range behind the volume's
    // end.
    for (range, block) in [(MIB..38 * MIB, MIB / 4), (MIB..42 * MIB, MIB)] {
        assert_eq!(ring.ring(range.clone(), Bytes(block)), range);
    }
}
