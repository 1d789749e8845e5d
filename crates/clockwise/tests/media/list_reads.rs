//! A list of a recording in progress is made of what is in memory.

use std::ops::Range;
use std::sync::Arc;

use crate::served::Rig;
use crate::support::tape::{BODY, begun, header, opened, reserved};
use media::archive::Archive;
use media::archive::archives::{Archives, RecordingInfo};
use media::archive::block::Kind;
use media::files::{Division, SegmentList, Source};
use media::record::RtpRecorder;
use testkit::until;

const SDP: &[u8] = b"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
    m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n";

const SECOND_NS: u64 = 1_000_000_000;

/// Records pictures of a packet each, 25 a second, with a key frame each two seconds.
fn record(tape: &mut RtpRecorder<'_>, numbers: Range<u32>) {
    for number in numbers {
        until("there is room", || {
            tape.drain();
            tape.advance().unwrap();
            tape.make_room(BODY)
        });
        let begin = match number % 50 {
            0 => [0x65, 0x88],
            _ => [0x41, 0x9a],
        };
        let filled = tape.fill(0, BODY, |out| {
            out[..BODY].fill(1);
            out[..2].copy_from_slice(&begin);
            Ok(BODY)
        });
        assert_eq!(filled.unwrap(), BODY);
        let mut header = header(number as u16);
        header[1] |= 0x80;
        header[4..8].copy_from_slice(&(number * 3_600).to_be_bytes());
        tape.packet(0, Kind::Rtp, &header, BODY);
    }
}

/// The list of the last two minutes, or of the first ones, and the number of reads that it takes.
fn listed(archives: &Archives, archive: &Arc<Archive>, is_end: bool) -> (SegmentList, u64) {
    let before = archive.reads();
    let recording = archive.recording(None).unwrap();
    let described = archives.describe(archive, recording).unwrap();
    let ends_ns = described.ends_ns;
    let length_ns = 120 * SECOND_NS;
    let times = match is_end {
        true => ends_ns.saturating_sub(length_ns)..u64::MAX,
        false => {
            let begins_ns = ends_ns - described.length_ns;
            begins_ns..begins_ns + length_ns
        }
    };
    let client = archives.client().unwrap();
    let description = described.description.unwrap();
    let mut source = Source::new(Arc::clone(archive), client, recording, description);
    let list = source.list(&times, ends_ns, false, Division::Usual);
    (list.unwrap(), archive.reads() - before)
}

#[test]
fn a_list_of_a_recording_in_progress_takes_no_read() {
    // The ring has some eighty blocks of three seconds each.
    let rig = Rig::new(&[("cam", 5)]);
    let (archives, archive) = opened(&rig);
    let (stream, member) = reserved(&archives, &archive);
    let mut tape = begun(&stream, &archive, SDP, member);
    let mut rounds = 0;
    for (round, from) in (0..20_000).step_by(1_000).enumerate() {
        record(&mut tape, from..from + 1_000);
        until("blocks are on the disks", || {
            tape.drain();
            tape.advance().unwrap();
            tape.waiting() == 0 && archive.recording(None).is_some()
        });
        let (list, reads) = listed(&archives, &archive, true);
        let recording = archive.recording(None).unwrap();
        // The first block, once: what precedes its first picture.
        assert!(reads <= u64::from(round == 0), "{reads} reads at {from}");
        if from >= 5_000 {
            assert!(
                (28..=31).contains(&list.parts.len()),
                "{} at {from}",
                list.parts.len()
            );
        }
        // The beginning moves on when the ring is full. The first group is read once.
        let (list, reads) = listed(&archives, &archive, false);
        assert!(reads <= 3, "{reads} reads at {from}");
        assert!(!list.parts.is_empty(), "{from}");
        let (again, reads) = listed(&archives, &archive, false);
        assert_eq!(again, list, "{from}");
        assert!(reads <= 1, "{reads} reads again at {from}");
        rounds += u64::from(recording.first > 0);
    }
    assert!(rounds > 5, "the ring is full for {rounds} rounds");
    // The list in memory agrees with the blocks.
    let recording = archive.recording(None).unwrap();
    let known = archives.describe(&archive, recording).unwrap();
    tape.finish().unwrap();
    stream.close();
    drop(archive);
    drop(archives);
    let (archives, archive) = opened(&rig);
    let now = archive.recording(None).unwrap();
    let read = archives.describe(&archive, now).unwrap();
    let tracks = |of: &RecordingInfo| of.description.as_ref().unwrap().tracks().to_vec();
    assert_eq!(tracks(&known), tracks(&read));
    assert!(read.ends_ns >= known.ends_ns);
    let client = archives.client().unwrap();
    let entries = archive
        .entries(&client, &now, recording.end - 1)
        .unwrap()
        .unwrap();
    let ends_ns = entries.iter().map(|of| of.media_ns).max();
    assert_eq!(ends_ns, Some(known.ends_ns));
}
