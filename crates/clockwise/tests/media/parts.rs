//! Into which segments a recording is divided for who plays it, and what is read for that.

use std::ops::Range;
use std::sync::Arc;

use crate::support::made::{CAMERA, Made};
use crate::support::small::{Camera, Small};
use engine::volume_io::ClientOptions;
use media::archive::index::GROUP;
use media::files::cuts::Place;
use media::files::mp4::TrackHead;
use media::files::{Division, Part, SegmentCache, SegmentList, Source};
use media::sdp::Description;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

/// One that sends no key frame but the first.
const WITHOUT_KEYS: Camera = Camera {
    gop: u64::MAX,
    ..CAMERA
};

const ALL: Range<u64> = 0..u64::MAX;
const S: u64 = 1_000_000_000;

/// The segments of a range of a recording that goes on or has ended.
fn list(made: &Made, source: &mut Source, times: &Range<u64>, is_over: bool) -> SegmentList {
    let recording = *source.recording();
    let ends_ns = made.archive.extent(&made.rig.client, &recording);
    source
        .list(times, ends_ns.unwrap().end, is_over, Division::Usual)
        .unwrap()
}

fn all(made: &Made, is_over: bool) -> SegmentList {
    list(made, &mut made.source(), &ALL, is_over)
}

/// A list reads the sections about its range and no others, and costs the same in a short recording as in a long one.
#[test]
fn a_list_of_a_range_names_the_segments_of_the_whole() {
    let rng = &mut StdRng::seed_from_u64(7);
    for camera in [CAMERA, WITHOUT_KEYS] {
        let mut made = Made::new(Small::new(camera, 1_000, 1));
        let mut recorded = 0;
        for groups in [4, 8, 14] {
            // The group that is being recorded has no section here.
            made.records(recorded..groups * GROUP);
            recorded = groups * GROUP;
            let whole = all(&made, true);
            let ends_ns = whole.parts[whole.parts.len() - 1].ends.media_ns;
            for _ in 0..20 {
                let from = rng.random_range(0..ends_ns);
                let times = from..from + rng.random_range(1..10 * S);
                let before = made.archive.reads();
                let listed = list(&made, &mut made.source(), &times, true);
                let reads = made.archive.reads() - before;
                assert!(reads <= 8, "{groups} groups: {reads} reads");
                let is_in = |part: &&Part| {
                    part.ends.media_ns > times.start + S / 20 && part.begins.media_ns < times.end
                };
                let wanted: Vec<Part> = whole.parts.iter().filter(is_in).copied().collect();
                assert_eq!(listed.parts, wanted, "{times:?} of {camera:?}");
            }
        }
    }
}

/// Listed segments stay as they are while the recording grows, until they are overwritten.
#[test]
fn listed_segments_stay_while_a_recording_grows() {
    for (camera, seed) in [
        (CAMERA, 1),
        (WITHOUT_KEYS, 2),
        (Camera { gop: 300, ..CAMERA }, 3),
    ] {
        let mut made = Made::new(Small::new(camera, 700, seed));
        let mut before: Vec<Part> = Vec::new();
        for serial in (0..900).step_by(30) {
            made.records(serial..serial + 30);
            let now = all(&made, false).parts;
            let Some(first) = now.first() else {
                assert!(before.is_empty() || serial > 600, "{camera:?}");
                continue;
            };
            let there = before
                .iter()
                .position(|of| of == first)
                .unwrap_or(before.len());
            let kept = &before[there..];
            assert_eq!(kept, &now[..kept.len()], "{serial} blocks of {camera:?}");
            before = now;
        }
        assert!(before.len() > 1, "{before:?}");
    }
}

/// A segment of which a part went while it was made is not there any more, and one that is damaged is.
#[test]
fn part_overwritten_while_it_is_made_is_not_sent() {
    let mut made = Made::new(Small::new(CAMERA, 300, 2));
    made.records(0..200);
    let source = &mut made.source();
    let listed = list(&made, source, &ALL, false);
    let part = &listed.parts[1];
    let places = part.places();
    let whole = source.alone(part).unwrap().unwrap();
    assert!(whole.is_whole);
    // A block in its middle is not what was written.
    let middle = (places.start.serial + places.end.serial) / 2;
    made.small.blocks.get_mut(&middle).unwrap().fill(1);
    made.writes(middle..middle + 1);
    let source = &mut made.source();
    let damaged = source.alone(part).unwrap().unwrap();
    assert!(!damaged.is_whole);
    // Its first block has gone when it is read.
    let source = &mut made.source();
    made.records(200..300 + places.start.serial + 1);
    assert!(source.recording().first <= places.start.serial);
    assert!(source.alone(part).unwrap().is_none());
}

/// A segment without key frames is bounded by the memory that makes it.
#[test]
fn a_segment_is_made_in_memory_however_much_comes() {
    const MIB: u64 = 1 << 20;
    let camera = Camera {
        blocks: 200,
        ..WITHOUT_KEYS
    };
    let mut made = Made::new(Small::of_blocks(MIB, camera, 210, 3));
    made.records(0..200);
    let listed = all(&made, false);
    assert!(listed.parts.len() > 3, "{listed:?}");
    for part in &listed.parts {
        let blocks = part.ends.place.serial - part.begins.place.serial;
        // Frames do not begin in each.
        assert!((30..70).contains(&blocks), "{part:?}");
    }
}

/// A browser waits for each track that it is told of: one that is described and never comes is not in what it
/// plays, and is not looked for each time.
#[test]
fn a_track_that_is_silent_is_not_in_segments() {
    let text = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
        m=audio 0 RTP/AVP 0\r\na=rtpmap:0 OPUS/48000/2\r\na=control:sound\r\n\
        m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:picture\r\n\
        a=fmtp:96 sprop-parameter-sets=Z0LACtoR7ARAAAADAEAAAAMCg8SJqA==,aM4BNyA=\r\n\
        m=audio 0 RTP/AVP 98\r\na=rtpmap:98 OPUS/48000/2\r\na=control:silence\r\n";
    let mut made = Made::new(Small::new(CAMERA, 300, 5));
    made.records(0..200);
    let source = || {
        let client = made.rig.pool.client("heads", ClientOptions::default());
        let recording = made.archive.recording(None).unwrap();
        let description = Description::parse(text.as_bytes()).unwrap();
        let archive = Arc::clone(&made.archive);
        Source::new(archive, Arc::new(client.unwrap()), recording, description)
    };
    let known = SegmentCache::default();
    let heads = || {
        let source = &mut source();
        let first = list(&made, source, &ALL, true).first.place;
        let before = made.archive.reads();
        let heads = known.heads(source, first).unwrap();
        let tracks: Vec<usize> = heads.iter().map(TrackHead::track).collect();
        assert_eq!(source.tracks(), Some(&tracks));
        (tracks, made.archive.reads() - before)
    };
    let (tracks, reads) = heads();
    assert_eq!(tracks, [0, 1]);
    assert!((32..80).contains(&reads), "{reads} reads");
    assert_eq!(heads(), (tracks, 0));
    // A file may have one in which nothing is.
    let mut source = source();
    let from = Place {
        serial: source.first_there(),
        packet: 0,
    };
    let tracks = source.heads(from).unwrap();
    let tracks: Vec<usize> = tracks.iter().map(TrackHead::track).collect();
    assert_eq!(tracks, [0, 1, 2]);
}
