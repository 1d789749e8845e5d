//! The rest of a track that a reading stream keeps for its next block.

use std::sync::Arc;

use engine::disk::Durability;
use engine::pool::{Pool, Volume};
use engine::stream::{BlockReader, Stream};
use sched::profile::DriveProfile;
use sched::request::Op;
use sched::units::Bytes;
use testkit::disks::{MIB, Rig, client, stream_spec, volume};

use super::blocks::sleep;

const BLOCK: u64 = 512 << 10;
const RATE: u64 = 5 << 19;
const BLOCKS: u64 = 14;

/// The beginning of an Atlas-II, which reads whole tracks.
fn atlas() -> DriveProfile {
    let mut spec = DriveProfile::shipped("quantum-atlas-ii")
        .unwrap()
        .spec()
        .clone();
    spec.capacity_sectors = 64 * MIB / 512;
    DriveProfile::new(spec).unwrap()
}

/// A pool of one drive, and a volume whose bytes tell where they are.
fn filled(profile: DriveProfile) -> (Rig, Arc<Pool>, Arc<Volume>) {
    let rig = Rig::of_drives(1, profile, Durability::WriteThrough);
    rig.create(4 * MIB);
    let pool = rig.open();
    let film = volume(&pool, "film", BLOCKS * BLOCK);
    client(&pool)
        .write_at(&film, Bytes(0), &content(0))
        .unwrap();
    (rig, pool, film)
}

/// The volume's bytes, of this edition.
fn content(edition: u64) -> Vec<u8> {
    let words = 0..BLOCKS * BLOCK / 8;
    words
        .flat_map(|word| (word + (edition << 32)).to_le_bytes())
        .collect()
}

fn player(pool: &Pool, film: &Arc<Volume>) -> Stream {
    pool.reserve(stream_spec(film, Op::Read, RATE, BLOCK))
        .unwrap()
}

/// Reads a block and checks that it is of this edition.
#[track_caller]
fn read(reader: &mut BlockReader<'_>, block: u64, edition: u64) {
    reader.ask(Bytes(block * BLOCK));
    let read = loop {
        reader.advance(&mut |_| {}).unwrap();
        if let Some(read) = reader.take() {
            break read;
        }
        let armed = reader.arm();
        sleep(reader.event(), armed, reader.next_at());
        reader.drain();
    };
    let range = (block * BLOCK) as usize..((block + 1) * BLOCK) as usize;
    let is_right = read
        .buffer
        .with(|bytes| bytes[..BLOCK as usize] == content(edition)[range])
        .unwrap();
    assert!(is_right, "block {block} of edition {edition}");
    reader.give_back(read.buffer);
}

#[test]
fn sequential_reader_keeps_the_rest_of_each_last_track() {
    let (_rig, pool, film) = filled(atlas());
    let stream = player(&pool, &film);
    let mut reader = BlockReader::new(&stream).unwrap();
    for block in 0..BLOCKS {
        read(&mut reader, block, 0);
    }
    drop(reader);
    let kept = stream.status().kept_bytes;
    // A rest is half a track of 179 sectors on average.
    assert!(kept > BLOCKS * 20_000, "{kept} bytes of {BLOCKS} blocks");
    assert_eq!(stream.status().errors, 0);
}

#[test]
fn kept_bytes_are_not_used_after_a_write() {
    let (_rig, pool, film) = filled(atlas());
    let stream = player(&pool, &film);
    let mut reader = BlockReader::new(&stream).unwrap();
    let mut used = Vec::new();
    for block in 0..BLOCKS {
        // Every fourth block is read after the whole volume was written anew.
        let edition = block / 4;
        if block % 4 == 0 && block > 0 {
            let bytes = content(edition);
            client(&pool).write_at(&film, Bytes(0), &bytes).unwrap();
        }
        let before = stream.status().kept_bytes;
        read(&mut reader, block, edition);
        used.push(stream.status().kept_bytes > before);
    }
    assert!(used.iter().any(|used| *used), "{used:?}");
    let after_a_write = used.iter().step_by(4);
    assert!(after_a_write.clone().all(|used| !used), "{used:?}");
}

#[test]
fn jumps_and_drives_without_tracks_keep_nothing() {
    let (_rig, pool, film) = filled(atlas());
    let stream = player(&pool, &film);
    let mut reader = BlockReader::new(&stream).unwrap();
    for block in [0, 2, 4, 3, 7] {
        read(&mut reader, block, 0);
    }
    assert_eq!(stream.status().kept_bytes, 0);
    drop(reader);
    let mut flat = atlas().spec().clone();
    let rotating = flat.rotating.as_mut().unwrap();
    rotating.track_reads = false;
    let (_rig, pool, film) = filled(DriveProfile::new(flat).unwrap());
    let stream = player(&pool, &film);
    let mut reader = BlockReader::new(&stream).unwrap();
    for block in 0..4 {
        read(&mut reader, block, 0);
    }
    assert_eq!(stream.status().kept_bytes, 0);
}
