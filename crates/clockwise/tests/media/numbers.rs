//! Frame numbers in a listing when the beginning of the recording is overwritten and sections of its index
//! are lost; and the length of listings.

use crate::support::rig::Rig;
use crate::support::small::{BLOCK, Camera, PICTURE, Small, opened, without_section};
use media::archive::block::{Block, Kind};
use media::archive::index::GROUP;
use media::archive::{FRAMES_MAX, Frame};

const CAMERA: Camera = Camera {
    number: 3,
    first: 0,
    blocks: 4 * GROUP,
    is_ended: true,
    gop: 5,
    packets: 12,
    parts: 3,
};

/// The block and the packet of each frame, in the order of their numbers.
fn frames_of(small: &Small) -> Vec<(u64, u32)> {
    let mut all = Vec::new();
    for (serial, bytes) in &small.blocks {
        let block = Block::parse(bytes).unwrap();
        for packet in 0..block.len() {
            let (entry, _) = block.packet(packet).unwrap();
            if entry.track == PICTURE && entry.kind == Kind::Rtp && entry.begins_frame {
                all.push((*serial, packet as u32));
            }
        }
    }
    all
}

/// All that is listed of what is there.
fn listed(small: &Small) -> Vec<Frame> {
    let rig = Rig::new(64 << 20);
    let volume = rig.volume("cam", small.bytes());
    small.write(&rig.client, &volume);
    let (archive, recording) = opened(&rig.client, &volume);
    let serials = recording.first..recording.end;
    let found = archive.frames(&rig.client, &recording, serials, &(0..u64::MAX));
    let found = found.unwrap();
    assert_eq!(found.missing, 0);
    assert!(!found.are_too_many);
    found.frames
}

#[test]
fn a_frame_has_its_number_or_none() {
    for seed in 0..10 {
        // A part of the first or second group is left.
        let ring = 2 * GROUP + 8 * (seed + 2);
        let small = Small::new(CAMERA, ring, seed);
        let numbers = frames_of(&small);
        let number = |of: &Frame| {
            let place = (of.serial, of.packet);
            numbers.iter().position(|of| *of == place).unwrap() as u64
        };
        let all = listed(&small);
        assert!(all.len() > 100, "seed {seed}: {}", all.len());
        for frame in &all {
            assert_eq!(frame.number, Some(number(frame)), "seed {seed}: {frame:?}");
        }
        // The section that says how many are before what is left is lost.
        let oldest = all[0].serial / GROUP;
        let mut lost = small.clone();
        let end = (oldest + 1) * GROUP - 1;
        without_section(lost.blocks.get_mut(&end).unwrap());
        let of_lost = listed(&lost);
        assert_eq!(of_lost.len(), all.len(), "seed {seed}");
        for frame in &of_lost {
            let known = (frame.serial / GROUP > oldest).then(|| number(frame));
            assert_eq!(frame.number, known, "seed {seed}: {frame:?}");
        }
    }
}

#[test]
fn no_more_than_so_many_are_listed_at_a_time() {
    let camera = Camera {
        blocks: 450,
        packets: 600,
        parts: 1,
        ..CAMERA
    };
    let small = Small::new(camera, 500, 5);
    let there = frames_of(&small).len();
    assert!(there > FRAMES_MAX, "{there}");
    let rig = Rig::new(64 << 20);
    let volume = rig.volume("cam", 501 * BLOCK);
    small.write(&rig.client, &volume);
    let (archive, recording) = opened(&rig.client, &volume);
    let found = |serials| archive.frames(&rig.client, &recording, serials, &(0..u64::MAX));
    assert!(found(0..450).unwrap().are_too_many);
    let some = found(0..100).unwrap();
    assert!(!some.are_too_many && some.frames.len() > 1_000);
}
