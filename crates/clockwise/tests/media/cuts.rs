//! Cuts of a recording that goes on, and of one whose beginning has been overwritten.

use std::collections::BTreeMap;

use crate::support::made::{CAMERA, Made, TEXT};
use crate::support::small::{BLOCK, Camera, PICTURE, Small};
use media::archive::block::{Composer, Entry, Header, Kind, Seal};
use media::archive::index::GROUP;
use media::files::Source;
use media::files::cuts::Cuts;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

/// Packets of a frame, of which the second one says whether it is a key frame.
const PARTS: u64 = 3;

/// From one key frame to the next.
const GOP: u64 = 4;

/// The places of all that come.
fn all(cuts: &mut Cuts, source: &mut Source) -> Vec<(u64, usize)> {
    let mut places = Vec::new();
    while let Some(cut) = cuts.next_cut(source).unwrap() {
        places.push((cut.place.serial, cut.place.packet as usize));
    }
    places
}

/// The block of a key frame and its packet there, and the block in which it is said that it is one.
type Late = ((u64, usize), u64);

/// A recording whose frames begin with a packet that does not say what they are; its key frames, and where it
/// is said that they are.
fn told_late(rng: &mut StdRng, blocks: u64) -> (Small, Vec<Late>) {
    let header = Header {
        archive: rng.random(),
        block_bytes: BLOCK,
        blocks: blocks + 8,
    };
    let (mut packets, mut keys) = (0, Vec::new());
    let mut all = BTreeMap::new();
    for serial in 0..blocks {
        let mut block = vec![0; BLOCK as usize];
        let mut composer = Composer::new(block.len(), TEXT.len(), 0);
        for number in 0..rng.random_range(1..8) {
            let (frame, part) = (packets / PARTS, packets % PARTS);
            let is_key = frame.is_multiple_of(GOP);
            match part {
                0 if is_key => keys.push(((serial, number), u64::MAX)),
                1 if is_key => keys.last_mut().unwrap().1 = serial,
                _ => {}
            }
            let entry = Entry {
                track: PICTURE,
                kind: Kind::Rtp,
                begins_frame: part == 0,
                is_key: is_key && part > 0,
                arrival_ns: packets * 1_000_000,
                media_ns: frame * 3_000_000,
                header: [0; 12],
                lost: 0,
            };
            composer.push(&mut block, 1, &entry);
            packets += 1;
        }
        let seal = Seal {
            archive: header.archive,
            serial,
            recording: 1,
            first: 0,
            begun_unix_ns: 5,
            gap: None,
            end: None,
        };
        composer.seal(&mut block, TEXT.as_bytes(), b"", &seal);
        all.insert(serial, block);
    }
    let small = Small {
        header,
        camera: Camera {
            number: 1,
            first: 0,
            blocks,
            is_ended: false,
            gop: GOP,
            packets: 7,
            parts: PARTS,
        },
        blocks: all,
        sections: BTreeMap::new(),
        keys: Vec::new(),
        ends_ns: 0,
        ends_with_key: false,
    };
    (small, keys)
}

/// The last frame that is on the disks may be a key frame of which that is said in the next block only.
#[test]
fn each_key_frame_is_found_as_soon_as_it_is_known_to_be_one() {
    for seed in 0..20 {
        let rng = &mut StdRng::seed_from_u64(seed);
        let (small, keys) = told_late(rng, 150);
        let mut made = Made::new(small);
        let mut cuts: Option<Cuts> = None;
        let mut found = Vec::new();
        let mut serial = 0;
        while serial < 150 {
            let next = (serial + rng.random_range(1..4)).min(150);
            made.records(serial..next);
            serial = next;
            let source = &mut made.source();
            if cuts.is_none() {
                cuts = Some(Cuts::new(source, 0, 1).unwrap());
            }
            let cuts = cuts.as_mut().unwrap();
            if cuts.begin(source).unwrap() {
                found.extend(all(cuts, source));
                let first = cuts.first().place;
                let places: Vec<_> = [(first.serial, first.packet as usize)]
                    .into_iter()
                    .chain(found.iter().copied())
                    .collect();
                // No section of the index names one that is told of in the next group.
                let is_known = |key: &&Late| {
                    let ((begins, _), told) = **key;
                    told < serial && told / GROUP == begins / GROUP
                };
                let known = keys.iter().filter(is_known);
                let known: Vec<_> = known.map(|(place, _)| *place).collect();
                assert_eq!(places, known, "seed {seed}: {serial} blocks");
                // Nothing is read again as long as nothing comes.
                let (source, before) = (&mut made.source(), made.archive.reads());
                assert_eq!(all(cuts, source), []);
                assert_eq!(made.archive.reads(), before, "seed {seed}: {serial} blocks");
            }
        }
        assert!(found.len() > 20, "seed {seed}: {}", found.len());
    }
}

#[test]
fn overwritten_blocks_are_not_read() {
    let mut made = Made::new(Small::new(CAMERA, 128, 4));
    made.records(0..100);
    let source = &mut made.source();
    let mut cuts = Cuts::new(source, 0, 1).unwrap();
    all(&mut cuts, source);
    made.records(100..900);
    let source = &mut made.source();
    let first = source.recording().first;
    let before = made.archive.reads();
    let found = all(&mut cuts, source);
    let reads = made.archive.reads() - before;
    // The number of its blocks; some of them have to be read whole.
    assert!(reads <= 128 + 8, "{reads} reads");
    let keys = made.small.keys.iter().map(|of| (of.1, of.2));
    let there: Vec<_> = keys.filter(|of| of.0 >= first).collect();
    assert!(there.len() > 50);
    assert_eq!(found, there);
}

/// Wherever something is to begin, it begins with a key frame: also where none is left before that.
#[test]
fn cut_begins_with_a_decodable_frame() {
    let (mut without, mut only_others) = (0, 0);
    for seed in 0..60 {
        let rng = &mut StdRng::seed_from_u64(seed);
        let camera = Camera {
            blocks: 6 * GROUP,
            gop: 400,
            ..CAMERA
        };
        let mut made = Made::new(Small::new(camera, 128, seed));
        // Whole groups, of which the index says where key frames are.
        made.records(0..GROUP * rng.random_range(3..7));
        let source = &mut made.source();
        let recording = *source.recording();
        let (begins_ns, ends_ns) = (
            made.small.begins_ns(recording.first),
            made.small.begins_ns(recording.end - 1),
        );
        let there = |key: &&(u64, u64, usize)| (recording.first..recording.end).contains(&key.1);
        let keys: Vec<_> = made.small.keys.iter().filter(there).collect();
        let Some(earliest) = keys.first() else {
            // Then it begins with the oldest remaining packet.
            let first = Cuts::new(source, 0, 1).unwrap().first();
            assert_eq!(
                (first.place.serial, first.media_ns),
                (recording.first, begins_ns)
            );
            only_others += 1;
            continue;
        };
        for _ in 0..20 {
            let at = rng.random_range(begins_ns..ends_ns);
            without += u64::from(at < earliest.0);
            let first = Cuts::new(source, at, 1).unwrap().first();
            let place = (first.place.serial, first.place.packet as usize);
            let is_it = |of: &&&(u64, u64, usize)| (of.1, of.2) == place;
            let key = keys.iter().find(is_it);
            // Or with the sound before the first picture.
            let is_heard = place == (recording.first, 0) && earliest.1 == recording.first;
            assert!(
                key.is_some() || is_heard,
                "seed {seed}: {place:?} at {at} ns, of {keys:?}"
            );
            if let Some(key) = key.filter(|key| key.0 > at) {
                assert_eq!(key, earliest, "seed {seed}: at {at} ns");
            }
        }
    }
    assert!(without > 20, "{without} times nothing was before it");
    assert!(only_others > 0, "in each there was one");
}
