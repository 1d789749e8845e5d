use super::*;
use crate::rtp::packet::HEADER_BYTES;

const SDP: &str = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
    m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=fmtp:96 packetization-mode=1;\
    sprop-parameter-sets=Z0LAHtkDxWhAAAADAEAAAAwDxYuS,aMuMsg==\r\nm=application 0 RTP/AVP 97\r\na=rtpmap:97 X/1000\r\n";

/// Pushes a picture of 25 a second; returns true if a part was completed.
fn push(packager: &mut Packager, frame: u32, is_key: bool) -> bool {
    let mut header = [0; HEADER_BYTES];
    header[..2].copy_from_slice(&[0x80, 0x80 | 96]);
    header[2..4].copy_from_slice(&(frame as u16).to_be_bytes());
    header[4..8].copy_from_slice(&(frame * 3_600).to_be_bytes());
    let at_ns = u64::from(frame) * 40_000_000;
    let body = match is_key {
        true => [0x65, 0x88, 0x80, 0x10],
        false => [0x41, 0x9a, 0x80, 0x10],
    };
    let packet = LivePacket {
        track: 0,
        begins_frame: true,
        is_key,
        arrival_ns: at_ns,
        media_ns: at_ns,
        header,
        body: body.into(),
    };
    packager.push(&packet).unwrap()
}

fn packager() -> Packager {
    let description = Description::parse(SDP.as_bytes()).unwrap();
    Packager::new(&description, 1_700_000_000_000_000_000, FIRST).unwrap()
}

const FIRST: u64 = 1_700_000_000;

#[test]
fn parts_and_segments_follow_the_pictures() {
    let mut packager = packager();
    assert_eq!(
        (packager.init().unwrap(), packager.codecs()),
        (None, String::new())
    );
    // Pictures before the first key frame are in no part.
    (0..5).for_each(|frame| assert!(!push(&mut packager, frame, false)));
    let ready = |packager: &Packager, sequence, part| {
        let sequence = Some(sequence);
        packager.is_ready(PlaylistRequest {
            sequence,
            part,
            skips: false,
        })
    };
    let parts = (5..150).filter(|frame| push(&mut packager, *frame, (frame - 5) % 25 == 0));
    assert_eq!(parts.count(), 14);
    // Five seconds and 19 pictures: segments of two seconds with parts of ten pictures.
    assert_eq!(packager.next(), (FIRST + 2, 4));
    assert_eq!(packager.whole(FIRST).unwrap().len(), 5);
    assert!(packager.whole(FIRST + 2).is_none() && packager.part(FIRST + 2, 3).is_some());
    assert!(packager.part(FIRST + 2, 4).is_none() && packager.part(0, 0).is_none());
    assert_eq!(packager.codecs(), "avc1.42c01e");
    assert!(packager.init().unwrap().is_some());
    assert_eq!(ready(&packager, FIRST + 2, Some(3)), Some(true));
    assert_eq!(ready(&packager, FIRST + 2, Some(4)), Some(false));
    assert_eq!(ready(&packager, FIRST + 2, None), Some(false));
    assert_eq!(ready(&packager, FIRST + 1, None), Some(true));
    assert_eq!(ready(&packager, FIRST + 5, None), None, "too far ahead");
    insta::assert_snapshot!(packager.playlist(false));
}

/// Without key frames a segment ends after six seconds, and old segments go.
#[test]
fn segments_are_limited() {
    let mut packager = packager();
    for frame in 0..2_500 {
        push(&mut packager, frame, frame == 0);
    }
    let (last, _) = packager.next();
    assert_eq!(packager.segments.len(), SEGMENTS_KEPT + 1);
    assert_eq!(last, FIRST + 2_499 / 150);
    let lengths = packager.segments.iter().map(LiveSegment::length_ns);
    let lengths: Vec<u64> = lengths.take(SEGMENTS_KEPT).collect();
    assert_eq!(lengths, [SEGMENT_MAX_NS; SEGMENTS_KEPT]);
    let (all, some) = (packager.playlist(false), packager.playlist(true));
    assert_eq!(all.matches("#EXTINF").count(), SEGMENTS_KEPT);
    // Those that ended more than 42 s ago are left out.
    assert!(some.contains("#EXT-X-SKIP:SKIPPED-SEGMENTS=1\n"), "{some}");
    assert_eq!(some.matches("#EXTINF").count(), SEGMENTS_KEPT - 1);
    assert!(all.len() < 20_000);
}

#[test]
fn stream_without_a_supported_track_is_refused() {
    let sdp = SDP.replace("H264/90000", "X-OTHER/90000");
    let description = Description::parse(sdp.as_bytes()).unwrap();
    assert!(Packager::new(&description, 0, 0).is_err());
}

/// The first part waits for the sound, at most a second; then all parts have it.
#[test]
fn first_part_waits_for_the_sound() {
    let sdp = SDP.replace(
        "m=application 0 RTP/AVP 97\r\na=rtpmap:97 X/1000",
        "m=audio 0 RTP/AVP 97\r\na=rtpmap:97 OPUS/48000/2",
    );
    let description = Description::parse(sdp.as_bytes()).unwrap();
    let sound = |packager: &mut Packager, at_ns: u64| {
        let mut header = [0; HEADER_BYTES];
        header[..2].copy_from_slice(&[0x80, 0x80 | 97]);
        let packet = LivePacket {
            track: 1,
            begins_frame: true,
            is_key: true,
            arrival_ns: at_ns,
            media_ns: at_ns,
            header,
            body: [1; 20].into(),
        };
        packager.push(&packet).unwrap()
    };
    for (sound_at, codecs) in [(18, "avc1.42c01e,opus"), (40, "avc1.42c01e")] {
        let mut packager = Packager::new(&description, 0, FIRST).unwrap();
        let mut first = None;
        for frame in 0..60 {
            if frame == sound_at {
                sound(&mut packager, u64::from(frame) * 40_000_000);
            }
            let is_new = push(&mut packager, frame, frame == 0);
            first = first.or(is_new.then_some(frame));
        }
        assert_eq!(first, Some(sound_at.min(26)));
        assert_eq!(packager.codecs(), codecs);
    }
}

/// Sound without pictures is no reason to fill the memory.
#[test]
fn sound_that_waits_for_a_picture_is_limited() {
    let sdp = SDP.replace(
        "m=application 0 RTP/AVP 97\r\na=rtpmap:97 X/1000",
        "m=audio 0 RTP/AVP 97\r\na=rtpmap:97 OPUS/48000/2",
    );
    let description = Description::parse(sdp.as_bytes()).unwrap();
    let mut packager = Packager::new(&description, 0, FIRST).unwrap();
    push(&mut packager, 0, true);
    push(&mut packager, 1, false);
    for number in 0..10_000_u16 {
        let mut header = [0x80, 97, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        header[2..4].copy_from_slice(&number.to_be_bytes());
        let packet = LivePacket {
            track: 1,
            begins_frame: true,
            is_key: true,
            arrival_ns: 0,
            media_ns: 0,
            header,
            body: [1; 1_000].into(),
        };
        packager.push(&packet).unwrap();
        let waiting = packager.tracks.iter().map(|of| of.waiting_bytes);
        assert!(waiting.sum::<usize>() <= WAITING_BYTES_MAX + 10_000);
    }
}
