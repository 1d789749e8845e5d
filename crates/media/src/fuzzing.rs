//! Entry points of the fuzz targets. Their input is bytes of a peer or of a disk.

use crate::archive::block::{Block, Header, Trailer, mend};
use crate::archive::index::Index;
use crate::archive::retention_record::{COPY_BYTES, RANGES_MAX, RetentionRecord};
use crate::camera::source::{Credentials, Login};
use crate::files::mp4;
use crate::files::track::Track;
use crate::rtp::packet;
use crate::rtsp::connection;
use crate::rtsp::input::{Input, Next};
use crate::sdp::Description;

/// Bytes of an RTSP connection, in pieces. Each request is understood or refused.
pub fn input(data: &[u8]) {
    let mut input = Input::default();
    let piece = usize::from(data.first().copied().unwrap_or(0)) + 1;
    for bytes in data.chunks(piece) {
        input.add(bytes);
        loop {
            match input.next_item() {
                Err(_) => {
                    // As for a camera that sends bytes that are no message.
                    input.take(&mut [0]);
                    let left = input.unused().len();
                    let (passed, is_found) =
                        input.pass_stray(|channel, head| channel < 4 && head[0] >> 6 == 2);
                    assert_eq!(input.unused().len(), left - passed);
                    if !is_found {
                        break;
                    }
                }
                Ok(Next::More) => break,
                Ok(Next::Packet { len, .. }) => {
                    let mut out = vec![0; len];
                    input.take(&mut out);
                }
                Ok(Next::Request(request)) => connection::fuzzing::request(&request),
                Ok(Next::Response(_)) => {}
            }
        }
    }
}

/// An offer of a browser. It is answered or refused.
pub fn offer(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        crate::webrtc::answer_anything(text);
    }
}

/// Two challenges of a camera, a line each. The answers contain neither the password nor a line end.
pub fn login(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let mut login = Login::new(Some(Credentials {
        user: "us\"er".to_owned(),
        password: "never shown".to_owned(),
    }));
    for (number, challenge) in text.lines().take(2).enumerate() {
        let asked = login.ask(challenge, u32::from(number > 0));
        let said = asked.and_then(|()| login.header("PLAY", "rtsp://h/"));
        let said = said.map_or_else(|error| error.to_string(), Option::unwrap_or_default);
        assert!(!said.contains("never shown"), "{said:?}");
    }
}

/// Encodings that are exported, with clock rate, and the parameters of their formats.
const ENCODINGS: [(&str, &str); 14] = [
    ("H264/90000", "packetization-mode=1"),
    ("H265/90000", "sprop-max-don-diff=0"),
    (
        "MPEG4-GENERIC/48000/2",
        "sizelength=13;indexlength=3;indexdeltalength=3;config=1190",
    ),
    ("JPEG/90000", "x"),
    ("OPUS/48000/2", "x"),
    ("L16/44100", "x"),
    ("MP4A-LATM/44100/2", "cpresent=0;config=410024203fe080"),
    ("MP4A-LATM/44100/2", "cpresent=1"),
    ("VP8/90000", "x"),
    ("VP9/90000", "x"),
    ("PCMU/8000", "x"),
    ("AV1/90000", "x"),
    (
        "MP4V-ES/90000",
        "config=000001b001000001b58913000001000000012000c48d8800cd1404301443",
    ),
    ("MP4V-ES/90000", "x"),
];

/// Exports packets of any content. The input is an encoding (1 byte), and packets: flags (1 byte; 1: marker, 2: another
/// timestamp, 4 and 8: a sequence number further on or back), a length (1 byte) and a body.
///
/// # Panics
/// When the file is longer than the packets and its headers.
pub fn export(data: &[u8]) {
    let Some((kind, mut rest)) = data.split_first() else {
        return;
    };
    let (encoding, parameters) = ENCODINGS[usize::from(*kind) % ENCODINGS.len()];
    let text = format!(
        "v=0\r\no=- 0 0 IN IP4 0.0.0.0\r\ns=x\r\nt=0 0\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 {encoding}\r\n\
         a=fmtp:96 {parameters}\r\n"
    );
    let description = Description::parse(text.as_bytes()).expect("a description");
    let new = || Track::new(0, &description.tracks()[0], 5).expect("it can be exported");
    let (mut track, mut alone) = (new(), new());
    let (mut sequence, mut timestamp, mut bytes) = (65_530_u16, u32::MAX - 9_000, 0);
    while let [flags, length, behind @ ..] = rest {
        let (body, behind) = behind.split_at(behind.len().min(usize::from(*length)));
        rest = behind;
        let step = u16::from(flags >> 2 & 1) * 3 + 1;
        sequence = match flags & 8 {
            0 => sequence.wrapping_add(step),
            _ => sequence.wrapping_sub(step),
        };
        timestamp = timestamp.wrapping_add(u32::from(flags >> 1 & 1) * 3_600);
        let mut header = [0x80, 96 | flags << 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        header[2..4].copy_from_slice(&sequence.to_be_bytes());
        header[4..8].copy_from_slice(&timestamp.to_be_bytes());
        track.push(header, body, u64::from(timestamp));
        alone.push(header, body, u64::from(timestamp));
        bytes += body.len();
    }
    track.finish();
    alone.finish();
    let all = 0..u64::MAX;
    let units = track.take(&all);
    let mut raw = alone.raw_head();
    for unit in alone.take(&all) {
        alone.raw(unit, &mut raw);
    }
    // Twice, as parameter sets are repeated at the beginning. An image has 623 bytes of headers; its tables may be from
    // another image.
    assert!(
        raw.len() <= 2 * (bytes + bytes * 4) + (units.len() + 1) * 1_024,
        "{} of {bytes}",
        raw.len()
    );
    let samples: Vec<_> = units.into_iter().map(|unit| track.sample(unit)).collect();
    if let Some(head) = track.head() {
        let _ = mp4::init(&[head], None);
    }
    let run = mp4::Run {
        id: 1,
        samples: &samples,
        next_ticks: None,
        usual_ticks: track.usual_ticks(),
    };
    let written = mp4::fragment(1, &[run]);
    let held: usize = samples.iter().map(|sample| sample.data.len()).sum();
    assert!(written.is_ok_and(|written| written.len() > held));
}

/// An `Authorization` header, and a file of users: understood or refused.
pub fn credentials(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = crate::rtsp::access::parse(text);
        if let Ok(users) = crate::rtsp::access::parse_users(text) {
            assert!(
                users
                    .keys()
                    .all(|name| !name.is_empty() && !name.contains(':'))
            );
        }
    }
}

/// A description is understood or refused. What is made of it for players, and of a camera's description, is understood
/// again.
pub fn description(data: &[u8]) {
    for is_secure in [false, true] {
        if let Ok(had) = Description::of_camera(data, is_secure) {
            let is_kept: Vec<bool> = (0..had.tracks().len())
                .map(|track| track % 2 == 0)
                .collect();
            let kept = is_kept.iter().filter(|is_kept| **is_kept).count();
            // It may be too long when it is written anew.
            if let Ok(some) = had.with_just(&is_kept) {
                assert_eq!(some.tracks().len(), kept);
            }
        }
    }
    if let Ok(description) = Description::parse(data) {
        // Blocks contain its text.
        let again = Description::parse(description.text()).expect("it is read again");
        assert_eq!(again.tracks(), description.tracks());
        let given = description.for_players(0, Some(1));
        if given.len() <= crate::sdp::TEXT_BYTES_MAX {
            let again = Description::parse(&given).expect("what is given is a description");
            assert_eq!(again.tracks().len(), description.tracks().len());
        }
        let tracks = description.tracks().len();
        if let Ok(needed) = description.needing(sched::units::BytesPerSecond(1_000)) {
            assert_eq!(needed.tracks().len(), tracks);
        }
    }
}

/// An RTP packet, header and body, and the same bytes as RTCP.
pub fn packet(data: &[u8]) {
    compound(data);
    let Some((first, body)) = data.split_first_chunk() else {
        return;
    };
    if let Some(header) = packet::Header::parse(first)
        && let Some(payload) = header.payload(body)
    {
        for encoding in ["H264", "H265", "MP4V-ES", "JPEG", "VP8", "VP9", "AV1", ""] {
            let mut frames = packet::Frames::new(packet::Coding::of(encoding));
            for is_after_loss in [false, true] {
                let _ = frames.packet(&header, payload, is_after_loss);
            }
            let _ = frames.is_late_key(&header, payload);
        }
    }
}

/// RTCP: the bytes as they are, and as one packet of a known type and the right length, which random changes rarely
/// make.
fn compound(data: &[u8]) {
    let _ = packet::said(data);
    let mut whole = data[..data.len().min(65_536) / 4 * 4].to_vec();
    let Some(words) = (whole.len() / 4).checked_sub(1) else {
        return;
    };
    whole[0] = 0x80 | whole[0] & 0x3f;
    // 200 is a sender report.
    whole[1] = 200 + whole[1] % 8;
    whole[2..4].copy_from_slice(&(words as u16).to_be_bytes());
    let said = packet::said(&whole);
    assert!(said.report.is_none() || whole[1] == 200);
    assert!(said.leaving.is_empty() || whole[1] == 203);
}

/// A section of an index. One that is understood is written with the same contents.
pub fn index(data: &[u8]) {
    if let Ok(index) = Index::parse(data) {
        let written = index.encode(usize::MAX).expect("there is room");
        assert_eq!(Index::parse(&written).expect("it is an index"), index);
        for key in &index.keys {
            assert!((index.first..index.end()).contains(&key.serial));
        }
        for time_ns in [0, index.begins_ns(), u64::MAX] {
            assert!((index.first..index.end()).contains(&index.block_at(time_ns)));
            assert!(
                index
                    .key_at(time_ns)
                    .is_none_or(|key| key.media_ns <= time_ns)
            );
        }
    }
}

/// A block of a disk, a trailer alone, the header of an archive, and its retention record.
pub fn block(data: &[u8]) {
    understood(data);
    // With correct checksums, which random changes do not have.
    let mut mended = data.to_vec();
    mend(&mut mended);
    understood(&mended);
    let mut copy = data.to_vec();
    copy.resize(COPY_BYTES, 0);
    kept(&copy);
    crate::archive::retention_record::mend(&mut copy);
    kept(&copy);
}

/// A retention record that is understood has ranges in order, and is written with the same contents.
fn kept(copy: &[u8]) {
    // The first version of the format had room for a few ranges more.
    let parsed = RetentionRecord::parse(copy).ok();
    if let Some(kept) = parsed.filter(|kept| kept.gone.ranges().len() <= RANGES_MAX) {
        let ranges = kept.gone.ranges();
        assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
        assert_eq!(RetentionRecord::parse(&kept.encode()), Ok(kept));
    }
}

fn understood(data: &[u8]) {
    let _ = Header::parse(data);
    let _ = Trailer::parse(data, 65_536);
    if let Ok(block) = Block::parse(data) {
        let (_, index) = (block.text(), block.index());
        if let Ok(section) = block.trailer.section(data) {
            assert_eq!(section, index);
        }
        for number in 0..block.len() {
            if let Some((_, body)) = block.packet(number) {
                assert!(body.end <= data.len());
            }
        }
        // Entries that are understood from the end of the block alone are those of the block.
        let needed = block.trailer.entries_bytes() as usize;
        let last = &data[data.len() - needed..];
        if let Ok(packets) = block.trailer.packets(last) {
            let all = (0..block.len()).filter_map(|number| block.packet(number));
            assert!(all.map(|(entry, body)| (entry, body.len())).eq(packets));
        }
    }
}
