//! Clips of an archive whose times are all known: gaps within a recording and between recordings.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use crate::support::rig::Rig;
use crate::support::small::BLOCK;
use media::archive::archives::Archives;
use media::archive::block::{Composer, Entry, Header, Kind, Seal};
use media::archive::gap::GapCause;
use media::archive::index::Indexer;
use media::files::clips::{Clip, ClipError, GapsInFile};
use sched::units::Bytes;
use testkit::rtsp::rtp;

const TEXT: &str = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
    m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:picture\r\n\
    a=fmtp:96 sprop-parameter-sets=Z0LACtoR7ARAAAADAEAAAAMCg8SJqA==,aM4BNyA=\r\n";
const S: u64 = 1_000_000_000;
const BEGUN: u64 = 1_700_000_000 * S;
const FRAME_NS: u64 = S / 25;
const BLOCKS: u64 = 32;

/// Writes a recording whose frames are at these times, in frames from its beginning; a key frame is each tenth.
fn write(rig: &Rig, number: u64, first: u64, begun_unix_ns: u64, frames: &[Range<u64>]) -> u64 {
    let volume = rig.pool.open_volume("cam").unwrap();
    let times: Vec<u64> = frames.iter().cloned().flatten().collect();
    let mut indexer = Indexer::new(first, 0);
    let blocks: Vec<&[u64]> = times.chunks(37).collect();
    for (serial, times) in (first..).zip(&blocks) {
        let is_last = serial + 1 == first + blocks.len() as u64;
        let mut block = vec![0; BLOCK as usize];
        let mut composer = Composer::new(block.len(), TEXT.len(), 0);
        for frame in *times {
            let is_key = frame.is_multiple_of(10);
            let body = [
                if is_key { 0x65 } else { 0x41 },
                0x88,
                0x80,
                0x10,
                *frame as u8,
            ];
            let header = rtp(*frame as u16, (frame * 3_600) as u32, 7, b"");
            let entry = Entry {
                track: 0,
                kind: Kind::Rtp,
                begins_frame: true,
                is_key,
                arrival_ns: frame * FRAME_NS,
                media_ns: frame * FRAME_NS,
                header: header.try_into().unwrap(),
                lost: 0,
            };
            let from = composer.room().start;
            block[from..from + body.len()].copy_from_slice(&body);
            composer.push(&mut block, body.len(), &entry);
            indexer.packet(&entry, body.len());
        }
        let section = indexer.block(is_last, composer.index_room());
        let seal = Seal {
            archive: [7; 16],
            serial,
            recording: number,
            first,
            begun_unix_ns,
            gap: None,
            end: is_last.then_some(GapCause::Camera),
        };
        let section = section.map(|of| of.0).unwrap_or_default();
        composer.seal(&mut block, TEXT.as_bytes(), &section, &seal);
        let at = Bytes((serial + 1) * BLOCK);
        rig.client.write_at(&volume, at, &block).unwrap();
    }
    first + blocks.len() as u64
}

/// Frames 0..100 and 600..700 of a recording (24 s later), and 0..100 of one that begins after a minute.
fn archives() -> (Rig, Archives) {
    let rig = Rig::new(64 << 20);
    let volume = rig.volume("cam", (BLOCKS + 1) * BLOCK);
    let header = Header {
        archive: [7; 16],
        block_bytes: BLOCK,
        blocks: BLOCKS,
    };
    rig.client
        .write_at(&volume, Bytes(0), &header.encode())
        .unwrap();
    drop(volume);
    let next = write(&rig, 1, 0, BEGUN, &[0..100, 600..700]);
    write(
        &rig,
        2,
        next,
        BEGUN + 60 * S,
        std::slice::from_ref(&(0..100)),
    );
    let archives = Archives::new(Arc::clone(&rig.pool), Bytes(BLOCK), |_| false);
    (rig, archives)
}

fn clip(archives: &Archives, times_s: Range<u64>, gaps: GapsInFile) -> Result<Clip, ClipError> {
    let times = BEGUN + times_s.start * S..BEGUN + times_s.end * S;
    Clip::new(archives, "cam", &times, gaps)
}

/// Begin in milliseconds and number of frames of each fragment.
fn fragments(clip: &mut Clip) -> Vec<(u64, u32)> {
    let mut file = Vec::new();
    let made = clip.make(&mut |bytes| {
        file.extend(bytes);
        ControlFlow::Continue(())
    });
    made.unwrap();
    let all = |name: &'static [u8]| {
        let places = (0..file.len() - 4).filter(|at| &file[*at..*at + 4] == name);
        places.collect::<Vec<_>>()
    };
    let (begins, runs) = (all(b"tfdt"), all(b"trun"));
    let fragments = begins.into_iter().zip(runs).map(|(tfdt, trun)| {
        let number = |from: usize, to: usize| {
            file[from..to]
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let begin = match file[tfdt + 4] {
            0 => number(tfdt + 8, tfdt + 12),
            _ => number(tfdt + 8, tfdt + 16),
        };
        (begin / 90, number(trun + 8, trun + 12) as u32)
    });
    fragments.collect()
}

/// The times of a clip, in frames since the first recording began.
fn recorded(clip: &Clip) -> Vec<Range<u64>> {
    let frames = |unix_ns: u64| (unix_ns - BEGUN) / FRAME_NS;
    let all = clip.recorded();
    all.map(|of| frames(of.start)..frames(of.end)).collect()
}

#[test]
fn gaps_are_closed_or_kept() {
    let (_rig, archives) = archives();
    let all = [0..99, 600..699, 1_500..1_599];
    let mut closed = clip(&archives, 0..100, GapsInFile::Close).unwrap();
    assert_eq!(recorded(&closed), all);
    let found = fragments(&mut closed);
    let frames: u32 = found.iter().map(|of| of.1).sum();
    assert_eq!(frames, 300, "{found:?}");
    let begins: Vec<u64> = found.iter().map(|of| of.0).collect();
    assert_eq!(begins, [0, 2_000, 4_000, 6_000, 8_000, 10_000], "{found:?}");
    let mut kept = clip(&archives, 0..100, GapsInFile::Keep).unwrap();
    assert_eq!(recorded(&kept), all);
    let begins: Vec<u64> = fragments(&mut kept).iter().map(|of| of.0).collect();
    assert_eq!(begins, [0, 2_000, 24_000, 26_000, 60_000, 62_000]);
}

/// A recording without a mark of its end ended with the server; of a gap within one that no block tells of, nothing is
/// known.
#[test]
fn a_timeline_has_the_causes_of_the_ends() {
    let (rig, archives) = archives();
    let archive = archives.open("cam", None).unwrap();
    let range = BEGUN..BEGUN + 100 * S;
    let timeline = archive.timeline(&rig.client, &range).unwrap();
    let seconds = |of: &Range<u64>| (of.start - BEGUN) / S..(of.end - BEGUN) / S;
    let recorded: Vec<_> = timeline
        .recorded
        .iter()
        .map(|of| seconds(&of.unix_ns))
        .collect();
    assert_eq!(recorded, [0..27, 60..63]);
    let gaps = timeline.gaps.iter();
    let gaps: Vec<_> = gaps.map(|of| (seconds(&of.unix_ns), of.cause)).collect();
    assert_eq!(
        gaps,
        [(27..60, GapCause::Camera), (63..100, GapCause::Camera)]
    );
    // A part of a gap.
    let part = BEGUN + 40 * S..BEGUN + 50 * S;
    let timeline = archive.timeline(&rig.client, &part).unwrap();
    assert!(timeline.recorded.is_empty());
    assert_eq!(timeline.gaps.len(), 1);
    assert_eq!(timeline.gaps[0].unix_ns, part);
}

/// An archive of version 1 is read as it is, and becomes one of version 2 when it is opened to be recorded to.
#[test]
fn an_archive_of_version_1_is_upgraded_before_it_is_recorded_to() {
    let (rig, archives) = archives();
    let volume = rig.pool.open_volume("cam").unwrap();
    let version = || {
        let mut bytes = [0; 4_096];
        rig.client.read_at(&volume, Bytes(0), &mut bytes).unwrap();
        bytes
    };
    let mut old = version();
    assert_eq!(old[8], 2);
    old[8] = 1;
    old[16..24].fill(0);
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, &old);
    old[16..24].copy_from_slice(&sum.to_le_bytes());
    rig.client.write_at(&volume, Bytes(0), &old).unwrap();
    assert_eq!(archives.recordings("cam", || true).unwrap().len(), 2);
    assert_eq!(version()[8], 1);
    let archive = archives.open("cam", Some(Bytes(BLOCK))).unwrap();
    assert_eq!(version()[8], 2);
    assert_eq!(archive.recordings().len(), 2);
}

#[test]
fn a_clip_is_what_was_recorded_in_its_time() {
    let (_rig, archives) = archives();
    // It begins with a key frame within the first recording, and ends after the gap.
    let mut part = clip(&archives, 3..26, GapsInFile::Close).unwrap();
    assert_eq!(recorded(&part), [70..99, 600..650]);
    let frames: u32 = fragments(&mut part).iter().map(|of| of.1).sum();
    assert_eq!(frames, 30 + 50);
    // It begins in the gap.
    let mut part = clip(&archives, 10..25, GapsInFile::Close).unwrap();
    assert_eq!(recorded(&part), std::slice::from_ref(&(600..625)));
    assert_eq!(fragments(&mut part), [(0, 25)]);
    // From the gap within one recording to the next one.
    let part = clip(&archives, 28..61, GapsInFile::Keep).unwrap();
    assert_eq!(recorded(&part), std::slice::from_ref(&(1_500..1_525)));
    let nothing = |times_s: Range<u64>, before: Option<u64>, after: Option<u64>| {
        let at = |frame: Option<u64>| frame.map(|frame| BEGUN + frame * FRAME_NS);
        match clip(&archives, times_s.clone(), GapsInFile::Close) {
            Err(ClipError::Nothing {
                before_unix_ns,
                after_unix_ns,
            }) => {
                assert_eq!(
                    (before_unix_ns, after_unix_ns),
                    (at(before), at(after)),
                    "{times_s:?}"
                );
            }
            other => panic!("{times_s:?}: {other:?}"),
        }
    };
    nothing(10..15, Some(99), Some(600));
    nothing(30..40, Some(699), Some(1_500));
    nothing(70..80, Some(1_599), None);
    assert_eq!(BEGUN % S, 0);
    let early = Clip::new(&archives, "cam", &(S..2 * S), GapsInFile::Close);
    match early {
        Err(ClipError::Nothing {
            before_unix_ns: None,
            after_unix_ns,
        }) => {
            assert_eq!(after_unix_ns, Some(BEGUN));
        }
        other => panic!("{other:?}"),
    }
}
