//! From a request on a volume to requests on disks.

#![allow(
    clippy::single_range_in_vec_init,
    reason = "lists of ranges is what zeroing returns"
)]

use crate::common::{Durability, EXTENT, Effort, World};
use sched::units::{Bytes, SectorCount};
use volume::map::{ReadPiece, Source};
use volume::{DiskNumber, MapError, Placement, Refused, VolumeId, VolumeMap};

fn world(bytes: u64) -> (World, VolumeId, std::sync::Arc<VolumeMap>) {
    let mut world = World::new(2, 24, Durability::Forced, 1, Effort::QUICK);
    let volume = world.create("v", bytes, Placement::default()).unwrap();
    let map = world.map(volume);
    (world, volume, map)
}

fn reads(map: &VolumeMap, offset: u64, length: usize) -> Vec<ReadPiece> {
    map.reads(offset, length)
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap()
}

fn data(map: &VolumeMap) -> Vec<(u64, u64)> {
    let runs = map
        .block_status(0, map.size().0)
        .unwrap()
        .filter(|run| run.data);
    runs.map(|run| (run.bytes.start, run.bytes.end)).collect()
}

#[test]
fn requests_are_whole_sectors_inside_the_volume() {
    let (_world, _, map) = world(EXTENT + 512);
    let size = EXTENT + 512;
    for (offset, length) in [(1, 512), (0, 511), (513, 1024)] {
        assert_eq!(
            map.reads(offset, length).err(),
            Some(MapError::Misaligned {
                offset,
                length: length as u64
            })
        );
        assert!(map.writes(offset, length).is_err() && map.zero(offset, length as u64).is_err());
    }
    for (offset, length) in [
        (size, 512),
        (0, size + 512),
        (u64::MAX - 511, 512),
        (512, u64::MAX - 511),
    ] {
        let past = Some(MapError::PastEnd {
            offset,
            length,
            size,
        });
        assert_eq!(map.block_status(offset, length).err(), past);
        assert_eq!(map.discard(offset, length).err(), past);
    }
    assert_eq!(reads(&map, size, 0).len(), 0);
    assert_eq!(reads(&map, EXTENT, 512).len(), 1);
}

#[test]
fn unwritten_range_reads_as_zeros_without_a_request() {
    let (mut world, volume, map) = world(2 * EXTENT);
    assert!(
        reads(&map, 0, 2 * EXTENT as usize)
            .iter()
            .all(|piece| matches!(piece.source, Source::Zeros))
    );
    world.write(volume, 8, 8);
    world.write(volume, 120, 16);
    let pieces = reads(&map, 0, 2 * EXTENT as usize);
    let shape: Vec<_> = pieces
        .iter()
        .map(|piece| match piece.source {
            Source::Zeros | Source::Lost => (piece.buffer.clone(), None),
            Source::Disk {
                disk, start, count, ..
            } => (piece.buffer.clone(), Some((disk.0, start.0, count.0))),
        })
        .collect();
    assert_eq!(
        shape,
        [
            (0..4096, None),
            (4096..8192, Some((1, 2048 + 8, 8))),
            (8192..61440, None),
            (61440..65536, Some((1, 2048 + 120, 8))),
            (65536..69632, Some((0, 2048, 8))),
            (69632..131_072, None),
        ]
    );
    assert_eq!(data(&map), [(4096, 8192), (61440, 69632)]);
}

#[test]
fn a_first_write_is_widened_to_whole_chunks_and_no_further() {
    let (mut world, volume, map) = world(EXTENT);
    let begin = |first: u64, count: usize| {
        map.writes(first * 512, count * 512)
            .unwrap()
            .next()
            .unwrap()
            .begin()
            .unwrap()
    };
    let shape = |first, count| {
        let piece = begin(first, count);
        assert_eq!(piece.disk, DiskNumber(1));
        (
            piece.start.0 - 2048,
            piece.count.0,
            piece.lead.0,
            piece.tail.0,
        )
    };
    assert_eq!(shape(3, 2), (0, 8, 3, 3));
    assert_eq!(shape(3, 10), (0, 16, 3, 3));
    assert_eq!(shape(8, 8), (8, 8, 0, 0));
    world.write(volume, 0, 8);
    assert_eq!(
        shape(3, 2),
        (3, 2, 0, 0),
        "a chunk that has been written needs no more"
    );
    assert_eq!(shape(3, 10), (3, 13, 0, 3));
    world.write(volume, 16, 8);
    assert_eq!(shape(9, 10), (8, 11, 1, 0));
    assert_eq!(
        shape(1, 20),
        (1, 20, 0, 0),
        "a first chunk in the middle is covered anyway"
    );
    // A piece that was dropped unwritten left no bit and no claim behind.
    assert_eq!(data(&map), [(0, 4096), (8192, 12288)]);
}

#[test]
fn two_first_writers_of_a_chunk_take_turns() {
    let (_world, _, map) = world(EXTENT);
    let span = |first: u64, count: usize| {
        map.writes(first * 512, count * 512)
            .unwrap()
            .next()
            .unwrap()
    };
    let first = span(9, 1).begin().unwrap();
    assert_eq!(span(10, 1).begin().unwrap_err(), Refused::Busy);
    assert_eq!(span(0, 100).begin().unwrap_err(), Refused::Busy);
    let elsewhere = span(0, 8).begin().unwrap();
    first.in_use.written();
    let second = span(10, 1).begin().unwrap();
    assert_eq!(
        (second.count, second.lead),
        (SectorCount(1), SectorCount(0)),
        "the other one's data stays"
    );
    drop(elsewhere);
    let failed = span(0, 1).begin().unwrap();
    drop(failed);
    assert_eq!(
        data(&map),
        [(4096, 8192)],
        "a write that failed shows nothing"
    );
}

#[test]
fn a_write_overtaken_by_a_discard_brings_nothing_back() {
    let (mut world, volume, map) = world(EXTENT);
    world.write(volume, 0, 8);
    let overwriting = map
        .writes(512, 512)
        .unwrap()
        .next()
        .unwrap()
        .begin()
        .unwrap();
    map.discard(0, 4096).unwrap();
    overwriting.in_use.written();
    assert_eq!(data(&map), [], "what lies beside it has been discarded");
}

#[test]
fn zeroing_leaves_only_parts_of_written_chunks_to_write() {
    let (mut world, volume, map) = world(2 * EXTENT + 1024);
    assert_eq!(map.zero(512, 2 * EXTENT).unwrap(), [], "nothing is there");
    world.write(volume, 0, 258);
    assert_eq!(map.zero(512, 1024).unwrap(), [512..1536]);
    assert_eq!(map.zero(3584, 1024).unwrap(), [3584..4096, 4096..4608]);
    assert_eq!(map.zero(512, 16384).unwrap(), [512..4096, 16384..16896]);
    assert_eq!(data(&map), [(0, 4096), (16384, 2 * EXTENT + 1024)]);
    // To the end of the volume, the last chunk goes whole.
    assert_eq!(
        map.zero(EXTENT + 512, EXTENT + 512).unwrap(),
        [EXTENT + 512..EXTENT + 4096]
    );
    assert_eq!(map.zero(0, map.size().0).unwrap(), []);
    assert_eq!(data(&map), []);
    assert_eq!(map.size(), Bytes(2 * EXTENT + 1024));
}
