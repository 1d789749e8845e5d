use super::*;
use crate::rtp::packet::Header;

/// A sequence header of 322 by 242 pixels, and the beginnings of a key frame and of another one.
const SEQUENCE: [u8; 12] = [
    0x08, 0x00, 0x00, 0x00, 0x04, 0x3d, 0x07, 0xc4, 0xda, 0xf9, 0x00, 0x40,
];
const KEY: u8 = 0x10;
const OTHER: u8 = 0x30;

/// A packet: marker, missing packets before it, time, and payload.
type Sent<'a> = (bool, bool, u32, &'a [u8]);

fn receive(packets: &[Sent<'_>]) -> (Av1, Vec<Unit>) {
    let mut av1 = Av1::default();
    let mut units = Vec::new();
    for (has_marker, is_after_loss, timestamp, payload) in packets {
        let marker = if *has_marker { 0xe0 } else { 0x60 };
        let mut head = [0x80, marker, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        head[4..8].copy_from_slice(&timestamp.to_be_bytes());
        let packet = Packet {
            header: Header::parse(&head).unwrap(),
            payload,
            media_ns: u64::from(*timestamp),
            is_after_loss: *is_after_loss,
        };
        av1.push(&packet, &mut units);
    }
    units.extend(av1.finish());
    (av1, units)
}

/// A sequence header and the beginning of a key frame.
fn key_begins() -> Vec<u8> {
    [&[0x68, 12][..], &SEQUENCE, &[0x30, KEY, 1]].concat()
}

#[test]
fn temporal_units_are_joined_from_fragments() {
    let begin = key_begins();
    let (av1, units) = receive(&[
        (false, false, 7, &begin),
        (false, false, 7, &[0xd0, 2, 3]),
        (true, false, 7, &[0x90, 4]),
        // Delimiter, padding, metadata and a frame with its length.
        (
            true,
            false,
            9,
            &[0x00, 1, 0x10, 2, 0x78, 0, 2, 0x28, 5, 4, 0x32, 2, OTHER, 6],
        ),
    ]);
    let sequence = [&[0x0a, 11][..], &SEQUENCE[1..]].concat();
    let key = [&sequence[..], &[0x32, 5, KEY, 1, 2, 3, 4]].concat();
    let other = [0x2a, 1, 5, 0x32, 2, OTHER, 6];
    let found: Vec<_> = units
        .iter()
        .map(|of| (of.is_key, of.timestamp, &of.data[..]))
        .collect();
    assert_eq!(found, [(true, 7, &key[..]), (false, 9, &other)]);
    assert_eq!(av1.left_out, 0);
    let head = av1.sequence.unwrap();
    assert_eq!((head.size, head.obu), ((322, 242), sequence));
}

#[test]
fn markers_may_be_absent() {
    let begin = key_begins();
    let (av1, units) = receive(&[
        (false, false, 7, &begin),
        (false, false, 7, &[0x90, 2]),
        (false, false, 9, &[0x10, 0x30, OTHER]),
    ]);
    assert_eq!((units.len(), av1.left_out), (2, 0));
    // With markers the last one is incomplete.
    let (av1, units) = receive(&[
        (true, false, 7, &[0x10, 0x30, KEY]),
        (false, false, 9, &[0x10, 0x30, OTHER]),
    ]);
    assert_eq!((units.len(), av1.left_out), (1, 0));
}

/// Returns the times of the temporal units, and the number of those that were left out.
fn times(packets: &[Sent<'_>]) -> (Vec<u32>, u64) {
    let (av1, units) = receive(packets);
    (units.iter().map(|of| of.timestamp).collect(), av1.left_out)
}

#[test]
fn incomplete_temporal_units_are_left_out() {
    let (frame, begin, end): (&[u8], &[u8], &[u8]) =
        (&[0x10, 0x30, OTHER], &[0x50, 0x30, OTHER], &[0x90, 9]);
    let whole = |timestamp| (true, false, timestamp, frame);
    // The end is missing, and the next unit is whole.
    assert_eq!(
        times(&[(false, false, 1, begin), (true, true, 2, frame)]),
        (vec![2], 1)
    );
    // A fragment in the middle is missing.
    let middle = [(false, false, 1, begin), (true, true, 1, end), whole(2)];
    assert_eq!(times(&middle), (vec![2], 1));
    // Between units: the beginning of the second one may be missing.
    assert_eq!(
        times(&[whole(1), (true, true, 2, frame), whole(3)]),
        (vec![1, 3], 1)
    );
    // A sequence header surely begins a unit.
    let key = [&key_begins()[..], &[]].concat();
    let anew = [whole(1), (false, true, 2, &key), (true, false, 2, end)];
    assert_eq!(times(&anew), (vec![1, 2], 0));
    // The beginning is missing.
    assert_eq!(times(&[(true, false, 1, end), whole(2)]), (vec![2], 1));
    // The end never came, and no packet is missing.
    assert_eq!(times(&[(false, false, 1, begin), whole(2)]), (vec![2], 1));
    // Elements that are not OBUs, lengths that are too long, no payload at all, and no frame.
    for wrong in [
        &[0x10, 0xb0, 1][..],
        &[0x10],
        &[0x00, 9, 0x30],
        &[],
        &[0x10, 0x32, 5, 1],
        &[0x10, 0x08, 0],
    ] {
        assert_eq!(
            times(&[(true, false, 1, wrong), whole(2)]),
            (vec![2], 1),
            "{wrong:x?}"
        );
    }
}
