//! Sections of the index that are lost are made again from their blocks, and say what was written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::support::rig::Rig;
use crate::support::small::{BLOCK, Camera, PICTURE, Small, opened, tear_section, without_section};
use engine::volume_io::ClientOptions;
use media::archive::block::Block;
use media::archive::index::{GROUP, Index, Indexer, Key, KeyCoverage, section_bytes_max};
use media::archive::start;
use media::archive::{ActiveRecording, Archive, Recording};
use media::files::Source;
use media::files::cuts::Cuts;
use media::play::trick::KeyFrames;
use media::sdp::Description;
use media::session::Scale;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{Rng as _, SeedableRng as _};
use sched::units::Nanos;

fn camera(rng: &mut StdRng) -> Camera {
    Camera {
        number: 3,
        first: rng.random_range(0..150),
        blocks: rng.random_range(1..400),
        is_ended: rng.random_ratio(2, 3),
        gop: *[1, 7, 40, 300].choose(rng).unwrap(),
        packets: *[1, 5, 60, 600].choose(rng).unwrap(),
        parts: *[1, 3, 40].choose(rng).unwrap(),
    }
}

/// Expected contents of every section: the written one, or, at an end without one, the one that would have
/// been written.
fn expected(small: &Small, seed: u64) -> BTreeMap<u64, Index> {
    let ended = Camera {
        is_ended: true,
        ..small.camera
    };
    let mut would = Small::new(ended, small.header.blocks, seed).sections;
    let last = would.values_mut().next_back().unwrap();
    // The end of the last frame is unknown in a recording that was not ended.
    if !small.camera.is_ended
        && small.ends_with_key
        && let Some(key) = last.keys.last_mut()
    {
        key.end = None;
    }
    would
}

/// The first and the last one of each block.
fn ends(keys: &[Key]) -> Vec<Key> {
    let of_blocks = keys.chunk_by(|one, next| one.serial == next.serial);
    of_blocks.flat_map(|of| [of[0], of[of.len() - 1]]).collect()
}

/// All key frames whose ends are there: of one that goes on in the next group, the block there in which the
/// next frame begins, or with which the recording was ended.
fn ending(expected: &BTreeMap<u64, Index>, small: &Small) -> Vec<Key> {
    let keys = expected.values().flat_map(|of| &of.keys);
    let ending = keys.filter_map(|key| {
        let next = expected.values().find(|of| of.first > key.serial);
        let begins = next.and_then(|of| {
            let mut records = (of.first..).zip(&of.records);
            records.find(|(_, record)| record.frames > 0)
        });
        let last = next.map(|of| of.end() - 1);
        let last = last.filter(|last| small.camera.is_ended && last + 1 == small.end());
        let end = key.end.or(begins.map(|(serial, _)| serial)).or(last);
        end.is_some().then_some(Key { end, ..*key })
    });
    ending.collect()
}

fn compare(found: &Index, expected: &Index, is_followed: bool, what: &str) {
    assert_eq!(found.first, expected.first, "{what}");
    assert_eq!(found.track, expected.track, "{what}");
    assert_eq!(found.records, expected.records, "{what}");
    match (found.named, expected.named) {
        (KeyCoverage::All, KeyCoverage::All) => assert_eq!(found.keys, expected.keys, "{what}"),
        (KeyCoverage::Some, _) | (_, KeyCoverage::Some) => panic!("{what}: any may be missing"),
        _ => assert_eq!(ends(&found.keys), ends(&expected.keys), "{what}"),
    }
    if is_followed {
        assert_eq!(found.frames, expected.frames, "{what}");
        assert_eq!(found.groups, expected.groups, "{what}");
        assert_eq!(found.before, expected.before, "{what}");
    }
}

#[test]
fn a_section_that_is_lost_is_rebuilt_as_it_was_written() {
    let mut lost_in_all = 0;
    for seed in 0..60 {
        let rig = Rig::new(64 << 20);
        let volume = rig.volume("cam", 601 * BLOCK);
        let rng = &mut StdRng::seed_from_u64(seed);
        let small = Small::new(camera(rng), 600, seed);
        let expected = expected(&small, seed);
        let mut torn = small.clone();
        let ends = small.group_ends();
        let part = *[0.3, 0.7, 1.0].choose(rng).unwrap();
        let mut lost: BTreeSet<u64> = BTreeSet::new();
        // A block whose section is torn is not played, so the recording would end earlier; and of one that
        // was not ended the last ones are read whole.
        let is_verified =
            |end: u64| end + 1 == small.end() || (!small.camera.is_ended && end + 8 >= small.end());
        for end in &ends {
            let block = torn.blocks.get_mut(end).unwrap();
            if !small.sections.contains_key(end) {
                lost.insert(*end);
            } else if rng.random_bool(part) {
                lost.insert(*end);
                match rng.random() || is_verified(*end) {
                    true => without_section(block),
                    false => tear_section(block),
                }
            }
        }
        lost_in_all += lost.len();
        torn.write(&rig.client, &volume);
        let what = format!("seed {seed}, {:?}, lost {lost:?}", small.camera);

        let (archive, recording) = opened(&rig.client, &volume);
        assert_eq!(
            (recording.first, recording.end),
            (small.camera.first, small.end())
        );
        let mut order: Vec<(usize, u64)> = ends.iter().copied().enumerate().collect();
        order.shuffle(rng);
        let mut most = 0;
        for (place, end) in &order {
            let group = small.camera.first.max(end / GROUP * GROUP);
            let before = archive.reads();
            let found = archive
                .index_at(&rig.client, &recording, small.begins_ns(group))
                .unwrap();
            most = most.max(archive.reads() - before);
            let found = found.unwrap_or_else(|| panic!("{what}: nothing of {end}"));
            let is_followed =
                *place == 0 || !lost.contains(&ends[place - 1]) || !lost.contains(end);
            compare(
                &found,
                &expected[end],
                is_followed,
                &format!("{what}: {end}"),
            );
        }
        // Its blocks, the last ones of them whole, and a few more to find out which they are.
        assert!(most <= GROUP + 24, "{what}: {most} reads");
        let before = archive.reads();
        for (_, end) in &order {
            let begins = small.begins_ns(*end);
            assert!(
                archive
                    .index_at(&rig.client, &recording, begins)
                    .unwrap()
                    .is_some()
            );
        }
        assert_eq!(archive.reads(), before, "{what}: read again");
        finds(&rig, &archive, &recording, &small, &expected, &what);

        if !expected.values().any(|of| of.named != KeyCoverage::All) {
            is_cut_at_each_key(&rig, &archive, &small, &what);
        }

        let (archive, recording) = opened(&rig.client, &volume);
        let groups = archive.outline(&rig.client, &recording).unwrap();
        assert!(
            archive.reads() <= 4 + 2 * lost.len() as u64,
            "{what}: {} reads",
            archive.reads()
        );
        let begins: Vec<(u64, u64)> = groups.iter().map(|of| (of.first, of.begins_ns)).collect();
        let firsts = ends
            .iter()
            .map(|end| small.camera.first.max(end / GROUP * GROUP));
        let should: Vec<(u64, u64)> = firsts.map(|of| (of, small.begins_ns(of))).collect();
        assert_eq!(begins, should, "{what}");
        let all = archive
            .window(&rig.client, &recording, &groups, &(0..u64::MAX))
            .unwrap();
        assert_eq!(all.missing, 0, "{what}");
        assert_eq!(all.records.len() as u64, small.camera.blocks, "{what}");
        finds(&rig, &archive, &recording, &small, &expected, &what);
    }
    assert!(lost_in_all > 60, "{lost_in_all} sections were lost");
}

/// Checks that it is cut at each key frame of the index, without a search through blocks.
fn is_cut_at_each_key(rig: &Rig, archive: &Arc<Archive>, small: &Small, what: &str) {
    let client = rig.pool.client("cuts", ClientOptions::default()).unwrap();
    let recording = archive.recording(None).unwrap();
    let block = Block::parse(&small.blocks[&recording.first]).unwrap();
    let description = Description::parse(block.text()).unwrap();
    let mut source = Source::new(
        Arc::clone(archive),
        Arc::new(client),
        recording,
        description,
    );
    let before = archive.reads();
    let mut cuts = Cuts::new(&mut source, 0, 1).unwrap();
    let mut places = Vec::new();
    while let Some(cut) = cuts.next_cut(&mut source).unwrap() {
        places.push((cut.media_ns, cut.place.serial, cut.place.packet as usize));
    }
    let first = small
        .keys
        .first()
        .filter(|of| of.1 / GROUP == recording.first / GROUP);
    let after = small.keys.iter().skip(usize::from(first.is_some()));
    assert_eq!(places, after.copied().collect::<Vec<_>>(), "{what}");
    // The first block, for what is heard before the first picture.
    let reads = archive.reads() - before;
    assert!(reads <= 1, "{what}: {reads} reads");
}

/// Any time is found, all key frames are shown at any scale up to the end, and that is known.
fn finds(
    rig: &Rig,
    archive: &Archive,
    recording: &Recording,
    small: &Small,
    expected: &BTreeMap<u64, Index>,
    what: &str,
) {
    let client = &rig.client;
    let extent = archive.extent(client, recording).unwrap();
    assert_eq!(
        extent,
        small.begins_ns(recording.first)..small.ends_ns,
        "{what}"
    );
    let rng = &mut StdRng::seed_from_u64(9);
    let begins: Vec<(u64, u64)> = (recording.first..recording.end)
        .map(|serial| (small.begins_ns(serial), serial))
        .collect();
    let mut known = 0;
    for _ in 0..30 {
        let at = rng.random_range(extent.clone().start..=extent.end);
        let video = usize::from(PICTURE);
        let found = start::start_at(archive, client, recording, at, video, None).unwrap();
        let key = small.keys.iter().rfind(|(of, ..)| *of <= at);
        let (_, block) = begins.iter().rfind(|(of, _)| *of <= at).unwrap();
        // One that is further away is named by a section that was written, or not known.
        let is_near = |key: &&(u64, u64, usize)| key.1 / GROUP + 1 >= block / GROUP;
        if let Some(key) = key.filter(is_near) {
            known += 1;
            let start = found.start;
            assert_eq!(
                (start.media_ns, start.serial, start.packet),
                *key,
                "{what}: at {at}"
            );
        }
    }
    assert!(known > 0, "{what}");
    let is_thinned = expected.values().any(|of| of.named != KeyCoverage::All);
    for scale in [8_000, -3_000] {
        let from = if scale > 0 { 0 } else { u64::MAX };
        let mut keys = KeyFrames::new(archive, client, *recording, Scale(scale), from);
        let mut shown = Vec::new();
        while let Some(key) = keys.next_key(|_, _| Nanos(0)).unwrap() {
            shown.push(key);
        }
        if scale < 0 {
            shown.reverse();
        }
        let all = ending(expected, small);
        match is_thinned {
            true => assert_eq!(ends(&shown), ends(&all), "{what}"),
            false => assert_eq!(shown, all, "{what}"),
        }
    }
}

#[test]
fn damaged_block_is_skipped_and_the_rest_of_its_group_is_indexed() {
    for seed in 100..130 {
        let rig = Rig::new(64 << 20);
        let volume = rig.volume("cam", 601 * BLOCK);
        let rng = &mut StdRng::seed_from_u64(seed);
        let camera = Camera {
            blocks: rng.random_range(65..300),
            packets: 20,
            ..camera(rng)
        };
        let small = Small::new(camera, 600, seed);
        let expected = expected(&small, seed);
        let mut torn = small.clone();
        let mut damaged = BTreeSet::new();
        for (serial, block) in &mut torn.blocks {
            let is_end = small.sections.contains_key(serial);
            // Its end is known by that alone.
            if rng.random_ratio(1, 9) && serial + 1 < small.end() {
                damaged.insert(*serial);
                // A section is read apart from the entries behind it.
                match rng.random_range(if is_end { 1 } else { 0 }..3) {
                    // An entry is of what was there before, nothing was written, or the trailer is torn.
                    0 => block[BLOCK as usize - 128 - 32] ^= 1,
                    1 => block.fill(0),
                    _ => block[BLOCK as usize - 30] ^= 1,
                }
            }
            if is_end && !damaged.contains(serial) {
                without_section(block);
            }
        }
        torn.write(&rig.client, &volume);
        let (archive, recording) = opened(&rig.client, &volume);
        let what = format!("seed {seed}: {camera:?}, damaged {damaged:?}");
        assert_eq!(recording.end, small.end(), "{what}");
        let groups = archive.outline(&rig.client, &recording).unwrap();
        assert!(groups.is_sorted_by_key(|of| of.begins_ns), "{what}");
        let window = archive
            .window(&rig.client, &recording, &groups, &(0..u64::MAX))
            .unwrap();
        let of_groups: BTreeSet<u64> = damaged.iter().map(|of| of / GROUP).collect();
        assert_eq!(window.missing, of_groups.len() as u64, "{what}");
        let found: Vec<u64> = window.records.iter().map(|(serial, _)| *serial).collect();
        let there = (recording.first..recording.end).filter(|of| !damaged.contains(of));
        assert_eq!(found, there.collect::<Vec<_>>(), "{what}");
        let known = expected
            .values()
            .flat_map(|of| (of.first..).zip(&of.records));
        let known: BTreeMap<u64, _> = known.collect();
        assert!(
            window
                .records
                .iter()
                .all(|(serial, of)| known[serial] == of),
            "{what}"
        );
        let all: Vec<_> = expected.values().flat_map(|of| &of.keys).collect();
        for key in &window.keys {
            let is_it = |of: &&&_| same_key(of, key);
            let of = all
                .iter()
                .find(is_it)
                .unwrap_or_else(|| panic!("{what}: {key:?}"));
            // One whose end is lost is not said to be whole.
            let end = of.end.unwrap_or(key.serial);
            let next = damaged.range(key.serial..).next();
            let is_broken = next.is_some_and(|damaged| {
                (end + 1..*damaged).all(|between| known[&between].frames == 0)
            });
            assert!(
                key.end == of.end || (is_broken && key.end.is_none()),
                "{what}: {key:?}, {of:?}"
            );
        }
        let keys_there = all.iter().filter(|key| !damaged.contains(&key.serial));
        assert_eq!(window.keys.len(), keys_there.count(), "{what}");
        shows_what_is_whole(
            &rig, &archive, &recording, &small, &expected, &damaged, &what,
        );
        for at in [0, small.ends_ns / 2, small.ends_ns, u64::MAX] {
            let block = archive.block_at(&rig.client, &recording, at).unwrap();
            let group = of_groups.contains(&(block / GROUP));
            assert!(
                !damaged.contains(&block) || !group,
                "{what}: {block} at {at}"
            );
        }
    }
}

/// Nothing is shown of which a block is damaged.
fn shows_what_is_whole(
    rig: &Rig,
    archive: &Archive,
    recording: &Recording,
    small: &Small,
    expected: &BTreeMap<u64, Index>,
    damaged: &BTreeSet<u64>,
    what: &str,
) {
    let ending = ending(expected, small);
    let is_whole = |key: &&Key| {
        let end = key.end.unwrap_or(key.serial);
        damaged.range(key.serial..=end).next().is_none()
    };
    let whole: Vec<Key> = ending.iter().filter(is_whole).copied().collect();
    for scale in [8_000, -3_000] {
        let from = if scale > 0 { 0 } else { u64::MAX };
        let mut keys = KeyFrames::new(archive, &rig.client, *recording, Scale(scale), from);
        let mut shown = 0;
        while let Some(key) = keys.next_key(|_, _| Nanos(0)).unwrap() {
            assert!(whole.contains(&key), "{what}: {key:?}");
            shown += 1;
        }
        // The ends of some frames are unknown, because the blocks behind them are damaged.
        let least = whole.len().saturating_sub(damaged.len());
        assert!(
            (least..=whole.len()).contains(&shown),
            "{what}: {shown} of {}",
            whole.len()
        );
    }
}

fn same_key(one: &Key, other: &Key) -> bool {
    (one.serial, one.packet, one.media_ns) == (other.serial, other.packet, other.media_ns)
}

/// An archive in which a recording has been begun, with its blocks on the disks before that is said of any.
fn being_recorded(small: &Small) -> (Rig, Arc<Archive>, ActiveRecording) {
    let rig = Rig::new(64 << 20);
    let volume = rig.volume("cam", small.bytes());
    // Nothing is there of it yet but the archive.
    let mut empty = small.clone();
    empty.blocks.clear();
    empty.write(&rig.client, &volume);
    let archive = Arc::new(Archive::open(&rig.client, Arc::clone(&volume)).unwrap());
    let writing = archive.record().unwrap();
    small.write(&rig.client, &volume);
    (rig, archive, writing)
}

/// A live recording has no section of its newest group yet, and none is made at each look.
#[test]
fn the_group_that_is_being_recorded_is_not_rebuilt() {
    let camera = Camera {
        number: 1,
        first: 0,
        blocks: 100,
        is_ended: false,
        gop: 5,
        packets: 8,
        parts: 3,
    };
    let small = Small::new(camera, 120, 3);
    let (rig, archive, mut writing) = being_recorded(&small);
    for index in 0..camera.blocks {
        writing.written(index, 1);
    }
    let recording = archive.recording(None).unwrap();
    let end = small.begins_ns(99);
    for _ in 0..3 {
        let before = archive.reads();
        assert!(
            archive
                .index_at(&rig.client, &recording, end)
                .unwrap()
                .is_none()
        );
        let block = archive.block_at(&rig.client, &recording, end + 1).unwrap();
        assert_eq!(block, 99);
        assert!(
            archive.reads() - before <= 8,
            "{}",
            archive.reads() - before
        );
    }
    let groups = archive.outline(&rig.client, &recording).unwrap();
    let window = archive
        .window(&rig.client, &recording, &groups, &(0..u64::MAX))
        .unwrap();
    assert_eq!((window.missing, window.records.len()), (1, 64));
    drop(writing);
    let window = archive
        .window(&rig.client, &recording, &groups, &(0..u64::MAX))
        .unwrap();
    assert_eq!((window.missing, window.records.len()), (0, 100));
}

/// A follower of a recording at another scale gets each key frame once, when it is complete, however far the
/// recorder is ahead of the disks.
#[test]
fn live_recording_is_shown_up_to_its_end() {
    for seed in 200..260 {
        let rng = &mut StdRng::seed_from_u64(seed);
        let camera = Camera {
            number: 1,
            first: 0,
            packets: *[1, 5, 60].choose(rng).unwrap(),
            ..camera(rng)
        };
        let what = format!("seed {seed}: {camera:?}");
        let small = Small::new(camera, 600, seed);
        let (rig, archive, mut writing) = being_recorded(&small);
        let mut indexer = Indexer::new(0, PICTURE);
        let room = section_bytes_max(BLOCK as usize);
        let ahead_max = *[1, 5, 130].choose(rng).unwrap();
        let (mut full, mut written) = (0, 0);
        let mut keys: Option<KeyFrames<'_>> = None;
        let mut shown = Vec::new();
        while written < camera.blocks {
            if full < camera.blocks && full < written + ahead_max && rng.random_bool(0.6) {
                let block = Block::parse(&small.blocks[&full]).unwrap();
                for number in 0..block.len() {
                    let (entry, body) = block.packet(number).unwrap();
                    indexer.packet(&entry, body.len());
                }
                full += 1;
                let is_last = camera.is_ended && full == camera.blocks;
                let section = indexer.block(is_last, room).map(|(_, index)| index);
                writing.indexed(Arc::new(section.unwrap_or_else(|| indexer.so_far())));
            } else if written < full {
                writing.written(written, 1);
                written += 1;
                let recording = archive.recording(None).unwrap();
                let known = archive.index_so_far_of(&rig.client, &recording, written - 1);
                assert!(known.unwrap().is_some(), "{what}: {written} of {full}");
                let keys = keys.get_or_insert_with(|| {
                    KeyFrames::new(&archive, &rig.client, recording, Scale(8_000), 0)
                });
                while let Some(key) = keys.next_key(|_, _| Nanos(0)).unwrap() {
                    assert!(key.end < Some(written), "{what}: {key:?} of {written}");
                    shown.push(key);
                }
            }
        }
        drop(writing);
        let mut keys = keys.unwrap();
        while let Some(key) = keys.next_key(|_, _| Nanos(0)).unwrap() {
            shown.push(key);
        }
        let all = ending(&expected(&small, seed), &small);
        assert_eq!(shown.len(), all.len(), "{what}");
        for (key, of) in shown.iter().zip(&all) {
            assert!(same_key(key, of), "{what}: {key:?}, {of:?}");
            assert_eq!(key.end, of.end, "{what}: {key:?}");
        }
    }
}
