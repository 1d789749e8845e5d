use super::*;
use crate::rtp::packet::Header;

fn push(jpeg: &mut Jpeg, marker: bool, payload: &[u8]) -> Option<Unit> {
    let marker = if marker { 0x9a } else { 0x1a };
    let header = Header::parse(&[0x80, marker, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1]).unwrap();
    let packet = Packet {
        header,
        payload,
        media_ns: 5,
        is_after_loss: false,
    };
    let mut images = Vec::new();
    jpeg.push(&packet, &mut images);
    assert!(images.len() < 2);
    images.pop()
}

/// An image of 32 by 24 pixels; each value of its tables is its index.
fn with_tables(quality: u8, precision: u8, length: u16) -> Vec<u8> {
    let [high, low] = length.to_be_bytes();
    let mut image = vec![0, 0, 0, 0, 1, quality, 4, 3, 0, precision, high, low];
    image.extend((0..length).map(|of| of as u8));
    image.push(99);
    image
}

/// The quantisation tables of an image: precision and number, the first value, and the length.
fn tables(image: &Unit) -> Vec<(u8, u8, usize)> {
    let mut at = 2;
    let mut tables = Vec::new();
    while image.data[at + 1] == 0xdb {
        let length = usize::from(u16::from_be_bytes([image.data[at + 2], image.data[at + 3]]));
        tables.push((image.data[at + 4], image.data[at + 5], length - 3));
        at += 2 + length;
    }
    tables
}

/// A C922 through live555 sends three tables; some cameras announce two bytes and send one.
#[test]
fn tables_of_any_layout_are_read() {
    let mut jpeg = Jpeg::default();
    for (precision, length, expected) in [
        (0, 64, [(0, 0, 64), (1, 0, 64)]),
        (0, 128, [(0, 0, 64), (1, 64, 64)]),
        (0, 192, [(0, 0, 64), (1, 64, 64)]),
        (3, 256, [(0x10, 0, 128), (0x11, 128, 128)]),
        (2, 192, [(0, 0, 64), (0x11, 64, 128)]),
        (3, 128, [(0x10, 0, 128), (0x11, 0, 128)]),
        (255, 192, [(0, 0, 64), (1, 64, 64)]),
    ] {
        let image = push(&mut jpeg, true, &with_tables(255, precision, length)).unwrap();
        assert_eq!(tables(&image), expected, "{precision} {length}");
    }
    // A truncated table.
    assert_eq!(push(&mut jpeg, true, &with_tables(255, 0, 63)), None);
    // Each quality has its own tables.
    let first = push(&mut jpeg, true, &with_tables(200, 0, 128)).unwrap();
    push(&mut jpeg, true, &with_tables(201, 0, 64)).unwrap();
    let again = push(&mut jpeg, true, &with_tables(200, 0, 0)).unwrap();
    assert_eq!(again, first);
}

#[test]
fn large_images_have_the_described_size() {
    let mut jpeg = Jpeg::new(Some((2_592, 1_944)));
    let image = push(&mut jpeg, true, &[0, 0, 0, 0, 1, 50, 0, 243, 9]).unwrap();
    let frame = [0xff, 0xc0, 0, 17, 8, 0x07, 0x98, 0x0a, 0x20];
    assert!(image.data.windows(frame.len()).any(|of| of == frame));
    let mut unsized_one = Jpeg::default();
    let none = push(&mut unsized_one, true, &[0, 0, 0, 0, 1, 50, 0, 243, 9]);
    assert_eq!((none, unsized_one.left_out), (None, 1));
}

#[test]
fn an_image_without_marker_and_with_own_headers_is_complete() {
    let mut jpeg = Jpeg::default();
    let own = [0, 0, 0, 0, 1, 50, 4, 3, 0xff, 0xd8, 0xff, 0xdb];
    assert_eq!(push(&mut jpeg, false, &own), None);
    assert_eq!(push(&mut jpeg, false, &[0, 0, 0, 4, 1, 50, 4, 3, 7]), None);
    let image = push(&mut jpeg, false, &own).unwrap();
    assert_eq!(image.data, [0xff, 0xd8, 0xff, 0xdb, 7, 0xff, 0xd9]);
    assert!(jpeg.finish().is_some());
}

#[test]
fn omitted_headers_are_added() {
    let mut jpeg = Jpeg::default();
    assert_eq!(
        push(&mut jpeg, false, &[0, 0, 0, 0, 1, 50, 4, 3, 10, 11]),
        None
    );
    let image = push(&mut jpeg, true, &[0, 0, 0, 2, 1, 50, 4, 3, 12]).unwrap();
    assert!(
        image
            .data
            .starts_with(&[0xff, 0xd8, 0xff, 0xdb, 0, 67, 0, 16, 11])
    );
    assert!(image.data.ends_with(&[0, 63, 0, 10, 11, 12, 0xff, 0xd9]));
    let frame = [0xff, 0xc0, 0, 17, 8, 0, 24, 0, 32, 3, 1, 0x22, 0];
    assert!(image.data.windows(frame.len()).any(|of| of == frame));
    // Tables that are sent with one image and not again.
    let mut first = vec![0, 0, 0, 0, 64, 255, 4, 3, 0, 7, 0xff, 0xff, 0, 0, 0, 128];
    first.extend((0..128).map(|of| of + 1));
    first.push(99);
    let image = push(&mut jpeg, true, &first).unwrap();
    assert!(
        image
            .data
            .windows(6)
            .any(|of| of == [0xff, 0xdd, 0, 4, 0, 7])
    );
    let again = push(
        &mut jpeg,
        true,
        &[0, 0, 0, 0, 64, 255, 4, 3, 0, 7, 0xff, 0xff, 0, 0, 0, 0, 99],
    );
    assert_eq!(again, Some(image));
    assert_eq!(jpeg.left_out, 0);
}

#[test]
fn incomplete_images_are_left_out() {
    let mut jpeg = Jpeg::default();
    // Without the first part, with a part missing, without tables, of an unknown type, truncated.
    assert_eq!(push(&mut jpeg, true, &[0, 0, 0, 2, 1, 50, 4, 3, 12]), None);
    push(&mut jpeg, false, &[0, 0, 0, 0, 1, 50, 4, 3, 10]);
    assert_eq!(push(&mut jpeg, true, &[0, 0, 0, 2, 1, 50, 4, 3, 12]), None);
    assert_eq!(
        push(&mut jpeg, true, &[0, 0, 0, 0, 1, 255, 4, 3, 0, 0, 0, 0]),
        None
    );
    assert_eq!(push(&mut jpeg, true, &[0, 0, 0, 0, 9, 50, 4, 3, 1]), None);
    assert_eq!(push(&mut jpeg, true, &[0, 0, 0]), None);
    assert_eq!(jpeg.left_out, 4);
}

#[test]
fn tables_are_scaled_by_quality() {
    assert_eq!(tables_for_quality(50).of[0], LUMINANCE);
    assert_eq!(tables_for_quality(99).of[0][..3], [1, 1, 1]);
    assert_eq!(tables_for_quality(25).of[1][..2], [34, 36]);
}
