//! Into which segments a recording is divided for who plays it, and what is read for that.

use std::sync::{Arc, Barrier};
use std::thread;

use crate::support::made::{CAMERA, Made};
use crate::support::small::{Camera, Small};
use engine::volume_io::ClientOptions;
use media::files::cuts::Place;
use media::files::mp4::TrackHead;
use media::files::{SegmentList, SegmentListCache, Source};
use media::sdp::Description;

/// Number of simultaneous requests.
const ASKING: usize = 8;

/// One that sends no key frame but the first.
const WITHOUT_KEYS: Camera = Camera {
    gop: u64::MAX,
    ..CAMERA
};

/// The list of a recording that goes on or has ended.
fn list(made: &Made, known: &SegmentListCache, source: &mut Source, is_over: bool) -> SegmentList {
    let recording = *source.recording();
    let ends_ns = made.archive.extent(&made.rig.client, &recording);
    known.list(source, ends_ns.unwrap().end, is_over).unwrap()
}

/// As `list`, with the number of reads.
fn counted(made: &Made, known: &SegmentListCache, is_over: bool) -> (SegmentList, u64) {
    let source = &mut made.source();
    let before = made.archive.reads();
    let listed = list(made, known, source, is_over);
    (listed, made.archive.reads() - before)
}

/// The order of requests does not matter, and no part is searched for again: not even if nobody has asked
/// before.
#[test]
fn simultaneous_requests_get_the_same_answer() {
    let mut made = Made::new(Small::new(CAMERA, 300, 1));
    made.records(0..340);
    // Sections that were read are not read again from here on.
    counted(&made, &SegmentListCache::default(), false);
    let (alone, known) = (SegmentListCache::default(), SegmentListCache::default());
    for end in [340, 400, 700] {
        made.records(made.source().recording().end..end);
        let (wanted, first) = counted(&made, &alone, false);
        let (again, later) = counted(&made, &alone, false);
        assert_eq!(wanted, again, "{end} blocks");
        assert!(wanted.parts.len() > 4, "{wanted:?}");
        let barrier = Barrier::new(ASKING);
        let before = made.archive.reads();
        let ask = || {
            let source = &mut made.source();
            barrier.wait();
            list(&made, &known, source, false)
        };
        let all: Vec<SegmentList> = thread::scope(|scope| {
            let asking: Vec<_> = (0..ASKING).map(|_| scope.spawn(ask)).collect();
            let told = asking.into_iter().map(|of| of.join().unwrap());
            told.collect()
        });
        let reads = made.archive.reads() - before;
        let most = first + (ASKING as u64 - 1) * later;
        assert!(first > 2 * later + 8, "{first}, then {later}");
        assert!(reads <= most, "{end} blocks: {reads} reads of {most}");
        for told in all {
            assert_eq!(told, wanted, "{end} blocks");
        }
    }
}

/// A segment of which a part went while it was made is not there any more, and one that is damaged is.
#[test]
fn part_overwritten_while_it_is_made_is_not_sent() {
    let mut made = Made::new(Small::new(CAMERA, 300, 2));
    made.records(0..200);
    let source = &mut made.source();
    let listed = list(&made, &SegmentListCache::default(), source, false);
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
    let (listed, _) = counted(&made, &SegmentListCache::default(), false);
    assert_eq!(listed.parts.len(), 3, "{listed:?}");
    for part in &listed.parts {
        let blocks = part.ends.place.serial - part.begins.place.serial;
        // Frames do not begin in each.
        assert!((64..70).contains(&blocks), "{part:?}");
        assert!(part.length_ns() < 20_000_000_000, "{part:?}");
    }
}

/// In a ring without key frames, only the blocks since the last request are read.
#[test]
fn a_ring_without_key_frames_is_searched_once() {
    let mut made = Made::new(Small::new(WITHOUT_KEYS, 128, 4));
    made.records(0..350);
    let known = SegmentListCache::default();
    let (listed, first) = counted(&made, &known, false);
    assert!(listed.parts.is_empty(), "{listed:?}");
    for serial in 350..370 {
        made.records(serial..serial + 1);
        let (listed, reads) = counted(&made, &known, false);
        assert!(listed.parts.is_empty(), "{listed:?}");
        assert!(4 * reads < first, "{serial}: {reads} of {first} reads");
    }
    // When nothing comes any more, it is what there is.
    let (listed, _) = counted(&made, &known, true);
    assert!(!listed.parts.is_empty(), "{listed:?}");
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
    let known = SegmentListCache::default();
    let heads = || {
        let source = &mut source();
        let listed = list(&made, &known, source, true);
        let before = made.archive.reads();
        let heads = known.heads(source, &listed).unwrap();
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
