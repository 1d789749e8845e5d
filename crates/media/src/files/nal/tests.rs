use super::*;
use crate::rtp::packet::Header;

fn header(timestamp: u8, has_marker: bool) -> Header {
    let kind = if has_marker { 96 | 0x80 } else { 96 };
    Header::parse(&[0x80, kind, 0, 0, 0, 0, 0, timestamp, 0, 0, 0, 1]).unwrap()
}

fn push(nals: &mut Nals, timestamp: u8, payload: &[u8], is_after_loss: bool) -> Option<Unit> {
    let packet = Packet {
        header: header(timestamp, false),
        payload,
        media_ns: u64::from(timestamp) * 1_000,
        is_after_loss,
    };
    let mut units = Vec::new();
    nals.push(&packet, &mut units);
    assert!(units.len() < 2);
    units.pop()
}

/// The frames of packets (timestamp, marker, payload): their timestamps, numbers of NAL units, and if they
/// are key frames.
fn frames(codec: Codec, packets: &[(u8, bool, &[u8])]) -> Vec<(u32, usize, bool)> {
    let mut nals = Nals::new(codec, Parameters::default());
    let mut units = Vec::new();
    for (timestamp, has_marker, payload) in packets {
        let packet = Packet {
            header: header(*timestamp, *has_marker),
            payload,
            media_ns: u64::from(*timestamp) * 1_000,
            is_after_loss: false,
        };
        nals.push(&packet, &mut units);
    }
    units.extend(nals.finish());
    let count = |unit: &Unit| {
        let (mut at, mut count) = (0, 0);
        while let Some(length) = unit.data.get(at..at + 4) {
            at += 4 + u32::from_be_bytes(length.try_into().unwrap()) as usize;
            count += 1;
        }
        count
    };
    let frames = units.iter();
    frames
        .map(|unit| {
            assert_eq!(unit.media_ns, u64::from(unit.timestamp) * 1_000);
            (unit.timestamp, count(unit), unit.is_key)
        })
        .collect()
}

/// Cameras of Reolink send parameter sets with the previous picture's time, and the marker on the SPS.
#[test]
fn parameters_belong_to_the_next_picture() {
    let packets: [(u8, bool, &[u8]); 7] = [
        (1, true, &[0x65, 0x88, 1]),
        (2, true, &[0x41, 0x9a, 2]),
        (2, true, &[0x67, 1, 2]),
        (2, false, &[0x68, 3]),
        (3, false, &[0x65, 0x88, 4]),
        (3, true, &[0x65, 0x20, 5]),
        (4, true, &[0x41, 0x9a, 6]),
    ];
    let expected = [(1, 1, true), (2, 1, false), (3, 4, true), (4, 1, false)];
    assert_eq!(frames(Codec::Avc, &packets), expected);
    let packets: [(u8, bool, &[u8]); 6] = [
        (1, true, &[0x26, 1, 0xa0]),
        (2, true, &[0x02, 1, 0xd0]),
        (2, true, &[0x40, 1, 1]),
        (2, false, &[0x42, 1, 2]),
        (2, false, &[0x44, 1, 3]),
        (3, true, &[0x26, 1, 0xa0]),
    ];
    let expected = [(1, 1, true), (2, 1, false), (3, 4, true)];
    assert_eq!(frames(Codec::Hevc, &packets), expected);
}

#[test]
fn pictures_of_one_time_are_separated() {
    // The marker ends each picture. The first picture has two slices, each with the marker.
    let packets: [(u8, bool, &[u8]); 5] = [
        (1, true, &[0x65, 0x88, 1]),
        (1, true, &[0x65, 0x20, 2]),
        (1, true, &[0x41, 0x9a, 3]),
        (1, false, &[0x7c, 0x81, 0x9a]),
        (1, true, &[0x7c, 0x41, 4]),
    ];
    let expected = [(1, 2, true), (1, 1, false), (1, 1, false)];
    assert_eq!(frames(Codec::Avc, &packets), expected);
    // Without a marker these are fields of a frame or redundant slices; a delimiter separates pictures.
    let packets: [(u8, bool, &[u8]); 4] = [
        (1, false, &[0x65, 0x88, 1]),
        (1, false, &[0x41, 0x9a, 2]),
        (1, false, &[0x09, 0x10]),
        (1, true, &[0x41, 0x9a, 3]),
    ];
    assert_eq!(frames(Codec::Avc, &packets), [(1, 2, true), (1, 2, false)]);
    // In H.265 a flag begins a picture.
    let packets: [(u8, bool, &[u8]); 3] = [
        (1, false, &[0x26, 1, 0xa0]),
        (1, false, &[0x02, 1, 0x50]),
        (1, true, &[0x02, 1, 0xd0]),
    ];
    assert_eq!(frames(Codec::Hevc, &packets), [(1, 2, true), (1, 1, false)]);
}

/// Some cameras send parameter sets before each picture.
#[test]
fn parameters_alone_make_no_key_frame() {
    let packets: [(u8, bool, &[u8]); 6] = [
        // An I slice that is not an IDR picture, and a P slice.
        (1, false, &[0x67, 1]),
        (1, true, &[0x41, 0x88, 1]),
        (2, false, &[0x67, 1]),
        (2, true, &[0x41, 0x9a, 2]),
        // A recovery point.
        (3, false, &[0x06, 6, 1, 0x84, 0x80]),
        (3, true, &[0x41, 0x9a, 3]),
    ];
    let expected = [(1, 2, true), (2, 2, false), (3, 2, true)];
    assert_eq!(frames(Codec::Avc, &packets), expected);
}

/// Fragments follow each other by their sequence numbers, and SEI messages may come between the slices of a
/// picture.
#[test]
fn a_picture_in_pieces_is_one_frame() {
    let packets: [(u8, bool, &[u8]); 6] = [
        (1, false, &[0x7c, 0x85, 0x88]),
        (2, false, &[0x7c, 0x05, 7]),
        (1, false, &[0x7c, 0x45, 8]),
        (1, false, &[0x06, 5, 1, 9, 0x80]),
        (1, true, &[0x65, 0x20, 5]),
        (3, true, &[0, 0, 0, 1, 0x41, 0x9a, 0, 0, 1, 0x41, 0x20]),
    ];
    let expected = [(1, 3, true), (3, 2, false)];
    assert_eq!(frames(Codec::Avc, &packets), expected);
}

#[test]
fn h264_packets_of_all_kinds_are_read() {
    let mut nals = Nals::new(Codec::Avc, Parameters::default());
    // SPS and PPS in one packet, a key frame in three fragments, another slice of it.
    let parameters = [0x78, 0, 3, 0x67, 1, 2, 0, 2, 0x68, 3];
    assert_eq!(push(&mut nals, 1, &parameters, false), None);
    for (flags, body) in [(0x85, 10), (0x05, 11), (0x45, 12)] {
        assert_eq!(push(&mut nals, 1, &[0x7c, flags, body], false), None);
    }
    push(&mut nals, 1, &[0x65, 20, 21], false);
    let frame = push(&mut nals, 2, &[0x41, 30], false).unwrap();
    let expected = [
        &[0, 0, 0, 3, 0x67, 1, 2][..],
        &[0, 0, 0, 2, 0x68, 3],
        &[0, 0, 0, 4, 0x65, 10, 11, 12],
        &[0, 0, 0, 3, 0x65, 20, 21],
    ];
    assert_eq!(frame.data, expected.concat());
    assert!(frame.is_key);
    assert_eq!((frame.timestamp, frame.media_ns), (1, 1_000));
    assert!(nals.parameters().is_whole(Codec::Avc));
    let mut raw = frame.data.clone();
    to_annex_b(&mut raw);
    assert!(raw.starts_with(&[0, 0, 0, 1, 0x67]) && raw.ends_with(&[0, 0, 0, 1, 0x65, 20, 21]));
    let last = nals.finish().unwrap();
    assert_eq!(last.data, [0, 0, 0, 2, 0x41, 30]);
    assert!(!last.is_key);
    assert_eq!((nals.finish(), nals.left_out), (None, 0));
}

/// V380 and other cameras send key frames so.
#[test]
fn parameters_and_picture_may_come_as_one_unit() {
    let mut nals = Nals::new(Codec::Avc, Parameters::default());
    push(
        &mut nals,
        1,
        &[0x7c, 0x87, 1, 2, 0, 0, 0, 1, 0x68, 3, 0],
        false,
    );
    push(&mut nals, 1, &[0x7c, 0x07, 0, 1, 0x65, 4, 0, 0], false);
    push(&mut nals, 1, &[0x7c, 0x47, 3, 0, 0, 3, 5], false);
    let frame = push(&mut nals, 2, &[0x41, 30], false).unwrap();
    let expected = [
        &[0, 0, 0, 3, 0x67, 1, 2][..],
        &[0, 0, 0, 2, 0x68, 3],
        &[0, 0, 0, 9, 0x65, 4, 0, 0, 3, 0, 0, 3, 5],
    ];
    assert_eq!(frame.data, expected.concat());
    assert!(frame.is_key && nals.parameters().is_whole(Codec::Avc));
    assert_eq!(nals.left_out, 0);
}

#[test]
fn h265_packets_of_all_kinds_are_read() {
    let mut nals = Nals::new(Codec::Hevc, Parameters::default());
    let parameters = [
        0x60, 1, 0, 3, 0x40, 1, 7, 0, 3, 0x42, 1, 8, 0, 3, 0x44, 1, 9,
    ];
    push(&mut nals, 1, &parameters, false);
    for (flags, body) in [(0x93, 10), (0x13, 11), (0x53, 12)] {
        push(&mut nals, 1, &[0x62, 1, flags, body], false);
    }
    let frame = push(&mut nals, 2, &[0x02, 1, 30], false).unwrap();
    assert!(
        frame.data.ends_with(&[0, 0, 0, 5, 0x26, 1, 10, 11, 12]),
        "{frame:?}"
    );
    assert!(frame.is_key && nals.parameters().is_whole(Codec::Hevc));
    assert!(!nals.finish().unwrap().is_key);
}

#[test]
fn incomplete_units_are_left_out() {
    let mut nals = Nals::new(Codec::Avc, Parameters::default());
    push(&mut nals, 1, &[0x41, 1], false);
    push(&mut nals, 1, &[0x7c, 0x81, 10], false);
    // The middle fragment is missing, so the NAL unit is left out.
    push(&mut nals, 1, &[0x7c, 0x41, 12], true);
    push(&mut nals, 1, &[0x41, 2], false);
    // A truncated packet, an interleaved one, an empty one.
    push(&mut nals, 1, &[0x78, 0, 9, 1], false);
    push(&mut nals, 1, &[0x79, 0, 0, 1], false);
    push(&mut nals, 1, &[], false);
    let frame = nals.finish().unwrap();
    assert_eq!(frame.data, [0, 0, 0, 2, 0x41, 1, 0, 0, 0, 2, 0x41, 2]);
    assert_eq!(nals.left_out, 4);
}

#[test]
fn parameters_that_come_alone_go_with_the_next_frame() {
    let mut nals = Nals::new(Codec::Avc, Parameters::default());
    push(&mut nals, 1, &[0x67, 1], false);
    assert_eq!(push(&mut nals, 2, &[0x65, 2], false), None);
    let frame = nals.finish().unwrap();
    assert_eq!(frame.data, [0, 0, 0, 2, 0x67, 1, 0, 0, 0, 2, 0x65, 2]);
    assert_eq!((frame.timestamp, frame.is_key), (2, true));
}
