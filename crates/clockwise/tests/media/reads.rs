//! Reads of the index and of a recording for a start at a time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::support::rig::Rig;
use crate::support::small::{BLOCK, Camera, PICTURE, Small, opened};
use engine::pool::Volume;
use engine::stream::{Stream, StreamSpec};
use media::archive::block::Block;
use media::archive::index::{GROUP, KeyCoverage};
use media::archive::start;
use media::play::{Origin, OutPacket, Playback, PlaybackTerms, Upcoming};
use media::session::Scale;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{Rng as _, SeedableRng as _};
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond, Time};

/// A recording in a volume of its size.
fn written(small: &Small) -> (Rig, Arc<Volume>) {
    let rig = Rig::new(small.bytes() + (64 << 20));
    let volume = rig.volume("cam", small.bytes());
    small.write(&rig.client, &volume);
    (rig, volume)
}

/// A reservation to play what is in such a volume.
fn player(rig: &Rig, volume: &Arc<Volume>, small: &Small) -> Stream {
    let spec = StreamSpec {
        name: "player".into(),
        volume: Arc::clone(volume),
        range: Some(BLOCK..small.bytes()),
        rate: BytesPerSecond(BLOCK),
        block: Bytes(BLOCK),
        op: Op::Read,
        span: None,
        wraps: true,
    };
    rig.pool.reserve(spec).unwrap()
}

/// A recording of more groups than sections are kept of, described once: then a time is found and the first
/// of it is there to be sent with the section of its group and the block that it begins in, each read once.
#[test]
fn playing_from_any_time_takes_two_reads_and_no_more() {
    let camera = Camera {
        number: 3,
        first: 0,
        blocks: 70 * GROUP + 17,
        is_ended: true,
        gop: 90,
        packets: 12,
        parts: 6,
    };
    let small = Small::new(camera, camera.blocks + 9, 77);
    assert!(
        small
            .sections
            .values()
            .all(|of| of.named == KeyCoverage::All)
    );
    let (rig, volume) = written(&small);
    let stream = player(&rig, &volume, &small);
    let (archive, recording) = opened(&rig.client, &volume);
    let disk = || rig.platter.reads.load(Ordering::SeqCst);
    // Best-effort reads come in pieces, each of which leaves room for deadlines.
    let before = disk();
    archive.read_block(&rig.client, 5).unwrap();
    let pieces = disk() - before;
    // The reads of DESCRIBE and SETUP.
    let extent = archive.extent(&rig.client, &recording).unwrap();
    let rng = &mut StdRng::seed_from_u64(5);
    let mut times: Vec<u64> = (0..400).map(|_| rng.random_range(extent.clone())).collect();
    // Beginnings of groups, which need not be key frames, and the end of all.
    for end in small.group_ends() {
        let begins = small.begins_ns(end / GROUP * GROUP);
        times.extend([begins.saturating_sub(1), begins, begins + 1]);
    }
    times.extend([0, extent.end, u64::MAX]);
    times.shuffle(rng);
    let (mut most, mut earlier) = (0, 0);
    for at in times {
        let before = (archive.reads(), disk());
        let video = usize::from(PICTURE);
        let by = Some(&stream);
        let found = start::start_at(&archive, &rig.client, &recording, at, video, by);
        let mut found = found.unwrap();
        let key = small.keys.iter().rfind(|(of, ..)| *of <= at);
        let start = found.start;
        if let Some(key) = key {
            assert_eq!(
                (start.media_ns, start.serial, start.packet),
                *key,
                "at {at}"
            );
            earlier += u64::from(
                start.serial / GROUP
                    < archive.block_at(&rig.client, &recording, at).unwrap() / GROUP,
            );
        }
        // The data for RTP-Info.
        let looked_into = found.look_into(&archive, &stream, |block| block.len());
        assert!(looked_into.unwrap().is_some());
        let block = found.block.as_ref().unwrap();
        let memory = block.with(<[u8]>::as_ptr_range).unwrap();
        let manner = PlaybackTerms {
            scale: Scale::ONE,
            speed: Scale::ONE,
            until_ns: None,
            track: PICTURE,
            clock_rates: vec![8_000, 90_000],
        };
        let origin = Origin {
            at: engine::clock::now(),
            media_ns: i128::from(start.media_ns),
        };
        let client = &rig.client;
        let playback = Playback::new(&stream, &archive, client, recording, found, manner, origin);
        let mut playback = playback.unwrap();
        let reads = (archive.reads() - before.0, disk() - before.1);
        assert!(
            reads.0 <= 2 && reads.1 <= 2 * pieces,
            "{reads:?} reads at {at}"
        );
        // The first packet is there without another one, and the blocks behind its own are asked for already.
        let upcoming = playback.advance().unwrap();
        assert!(
            matches!(upcoming, Upcoming::Packet { .. }),
            "{upcoming:?} at {at}"
        );
        assert_eq!(archive.reads() - before.0, reads.0, "at {at}");
        let behind = recording.end - start.serial - 1;
        let asked = playback.reader().buffers().min(behind as usize);
        assert_eq!(playback.reader().pending(), asked, "at {at}");
        if key.is_some() {
            assert_eq!(playback.position(), start);
        }
        // It is sent from the buffers that the disks filled.
        let are_there = |packets: &[OutPacket<'_>]| {
            for packet in packets {
                let body = packet.body.as_ptr_range();
                assert!(memory.start <= body.start && body.end <= memory.end);
            }
        };
        let sent = playback.with_due(Time::ZERO, 1, |_| true, are_there);
        assert!(sent.unwrap().is_some());
        most = most.max(reads.0);
    }
    // Most are not kept, and in many a group is begun before its first key frame.
    assert!(most == 2 && earlier > 30, "{most}, {earlier}");
    stream.close();
}

/// So it does where a section, and what is behind it in its block, is longer than what is read where nothing
/// is known: the newest section tells about how long others are, or that it does not tell.
#[test]
fn long_sections_take_two_reads_as_well() {
    const SIZE: u64 = 4 * BLOCK;
    for blocks in [4 * GROUP + 17, 4 * GROUP + 1] {
        let camera = Camera {
            number: 3,
            first: 0,
            blocks,
            is_ended: true,
            gop: 19,
            packets: 1_800,
            parts: 2,
        };
        let small = Small::of_blocks(SIZE, camera, camera.blocks + 9, 78);
        assert!(
            small
                .sections
                .values()
                .all(|of| of.named == KeyCoverage::All)
        );
        let (rig, volume) = written(&small);
        let mut long = 0;
        for end in small.sections.keys() {
            let bytes = &small.blocks[end];
            let needed = Block::parse(bytes).unwrap().trailer.section_bytes();
            long += u64::from(needed.unwrap() > BLOCK);
            // Nothing is known but what DESCRIBE and SETUP ask for.
            let (archive, recording) = opened(&rig.client, &volume);
            archive.extent(&rig.client, &recording).unwrap();
            let (before, at) = (archive.reads(), small.begins_ns(*end));
            let (client, video) = (&rig.client, usize::from(PICTURE));
            let found = start::start_at(&archive, client, &recording, at, video, None).unwrap();
            let key = small.keys.iter().rfind(|(of, ..)| *of <= at).unwrap();
            let start = found.start;
            assert_eq!((start.media_ns, start.serial, start.packet), *key);
            // The block of an earlier group's key frame tells the time; other blocks are not read for that.
            let is_read = start.serial / GROUP < end / GROUP;
            let reads = archive.reads() - before;
            let most = 1 + u64::from(is_read);
            assert!(reads <= most, "{reads} reads for {needed:?} bytes of {end}");
        }
        assert!(long >= 3, "{long} are long");
    }
}

/// A newest section that has too little room for its key frames does not tell how long others are that have more.
#[test]
fn a_section_that_is_longer_than_the_newest_takes_one_read() {
    const SIZE: u64 = 4 * BLOCK;
    let camera = Camera {
        number: 3,
        first: 0,
        blocks: 2 * GROUP + 17,
        is_ended: true,
        gop: 1,
        packets: 1,
        parts: 1,
    };
    let small = Small::of_full_blocks(SIZE, camera, camera.blocks + 9, 80, 11_000);
    let bytes: Vec<u64> = small
        .sections
        .keys()
        .map(|end| Block::parse(&small.blocks[end]).unwrap())
        .map(|of| of.trailer.section_bytes().unwrap())
        .collect();
    assert_eq!(bytes.len(), 3);
    assert!(
        small
            .sections
            .values()
            .all(|of| of.named == KeyCoverage::EndsOfBlocks)
    );
    let (rig, volume) = written(&small);
    let (archive, recording) = opened(&rig.client, &volume);
    archive.extent(&rig.client, &recording).unwrap();
    let newest = small.sections.values().next_back().unwrap();
    let told = newest.tail_bytes_about() * 9 / 8;
    assert!(
        told < bytes[0].min(bytes[1]),
        "{told} bytes tell of {bytes:?}"
    );
    for group in 0..2 {
        let before = archive.reads();
        let at = small.begins_ns(group * GROUP + 30);
        assert!(
            archive
                .index_at(&rig.client, &recording, at)
                .unwrap()
                .is_some()
        );
        assert_eq!(archive.reads() - before, 1, "{bytes:?}");
    }
}

/// So it does where a section has no room for all key frames: which block has the one to begin with is known
/// by those that it names, and that block is played.
#[test]
fn key_frames_that_are_left_out_take_two_reads_as_well() {
    let camera = Camera {
        number: 3,
        first: 0,
        blocks: 5 * GROUP + 40,
        is_ended: true,
        gop: 2,
        packets: 600,
        parts: 2,
    };
    let small = Small::new(camera, camera.blocks + 9, 79);
    let full = small.sections.values().take(5);
    assert!(full.clone().all(|of| of.named == KeyCoverage::EndsOfBlocks));
    let (rig, volume) = written(&small);
    let stream = player(&rig, &volume, &small);
    let rng = &mut StdRng::seed_from_u64(6);
    let mut times: Vec<u64> = (0..200)
        .map(|_| rng.random_range(0..small.ends_ns))
        .collect();
    for end in small.group_ends() {
        let begins = small.begins_ns(end / GROUP * GROUP);
        times.extend([begins.saturating_sub(1), begins, begins + 1]);
    }
    let named: BTreeSet<u64> = small
        .sections
        .values()
        .flat_map(|of| &of.keys)
        .map(|key| key.media_ns)
        .collect();
    let keys: Vec<u64> = small.keys.iter().map(|of| of.0).collect();
    times.extend(keys.choose_multiple(rng, 100));
    let (mut most, mut unnamed) = (0, 0);
    for at in times {
        let (archive, recording) = opened(&rig.client, &volume);
        archive.extent(&rig.client, &recording).unwrap();
        let before = archive.reads();
        let (client, video) = (&rig.client, usize::from(PICTURE));
        let by = Some(&stream);
        let found = start::start_at(&archive, client, &recording, at, video, by);
        let mut found = found.unwrap();
        found
            .look_into(&archive, &stream, |block| block.len())
            .unwrap()
            .unwrap();
        let reads = archive.reads() - before;
        assert!(reads <= 2, "{reads} reads at {at}");
        most = most.max(reads);
        if let Some(key) = small.keys.iter().rfind(|(of, ..)| *of <= at) {
            let start = found.start;
            let found = (start.media_ns, start.serial, start.packet);
            assert_eq!(found, *key, "at {at}");
            unnamed += usize::from(!named.contains(&key.0));
        }
    }
    assert!(most == 2 && unnamed > 50, "{most}, {unnamed}");
    stream.close();
}

/// The position of fast play before its first read is the key frame that it has asked for first, and not the
/// last one. It goes on from there at normal speed.
#[test]
fn fast_play_is_where_it_has_asked_first() {
    let camera = Camera {
        number: 3,
        first: 0,
        blocks: 2 * GROUP,
        is_ended: true,
        gop: 5,
        packets: 8,
        parts: 3,
    };
    let small = Small::new(camera, 3 * GROUP, 7);
    let (rig, volume) = written(&small);
    let (archive, recording) = opened(&rig.client, &volume);
    let stream = player(&rig, &volume, &small);
    let manner = PlaybackTerms {
        scale: Scale(8_000),
        speed: Scale::ONE,
        until_ns: None,
        track: PICTURE,
        clock_rates: vec![8_000, 90_000],
    };
    let begin = |at: u64| {
        let video = usize::from(PICTURE);
        let found = start::start_at(&archive, &rig.client, &recording, at, video, None);
        let found = found.unwrap();
        let origin = Origin {
            at: engine::clock::now(),
            media_ns: i128::from(found.start.media_ns),
        };
        let client = &rig.client;
        let manner = manner.clone();
        Playback::new(&stream, &archive, client, recording, found, manner, origin).unwrap()
    };
    // Index sections are known from here on.
    for serial in 0..recording.end {
        drop(begin(small.begins_ns(serial)));
        archive.section(&rig.client, &recording, serial).unwrap();
    }
    let stall = |is| rig.platter.stalled.store(is, Ordering::SeqCst);
    let mut seen = 0;
    for (at, serial, packet) in small.keys.iter().take(20) {
        stall(true);
        let mut playback = begin(*at);
        assert!(matches!(playback.advance().unwrap(), Upcoming::Unread));
        seen += usize::from(playback.reader().pending() > 1);
        let position = playback.position();
        assert_eq!(
            (position.serial, position.packet),
            (*serial, *packet),
            "at {at}"
        );
        // It is not given up before its requested blocks have come.
        stall(false);
    }
    assert!(seen > 10, "{seen}");
}
