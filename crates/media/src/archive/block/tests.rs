//! Encoding and parsing of blocks and headers, and detection of damage.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

const SIZE: usize = 65_536;

fn seal() -> Seal {
    Seal {
        archive: [7; 16],
        serial: 12,
        recording: 3,
        first: 10,
        begun_unix_ns: 1_700_000_000_000_000_000,
        gap: Some(GapBefore {
            cause: GapCause::Network,
            last_before_ns: 0x0102_0304,
        }),
        end: Some(GapCause::Server),
    }
}

fn entry(rng: &mut StdRng) -> Entry {
    let ns = |us: u64| us * 1_000;
    Entry {
        track: rng.random_range(0..3),
        kind: if rng.random_ratio(1, 9) {
            Kind::Rtcp
        } else {
            Kind::Rtp
        },
        begins_frame: rng.random(),
        is_key: rng.random(),
        arrival_ns: ns(rng.random_range(1_000_000..2_000_000)),
        media_ns: ns(rng.random_range(500_000..2_000_000)),
        header: rng.random(),
        lost: rng.random_range(0..3),
    }
}

/// A full block, and the packets in it.
fn full(rng: &mut StdRng, text: &[u8]) -> (Vec<u8>, Vec<(Entry, Vec<u8>)>) {
    let mut block = vec![0xEE; SIZE];
    let mut composer = Composer::new(SIZE, text.len(), 0);
    let mut packets = Vec::new();
    let first = Entry {
        arrival_ns: 1_000_000_000,
        media_ns: 900_000_000,
        ..entry(rng)
    };
    for number in 0.. {
        let entry = if number == 0 { first } else { entry(rng) };
        let body: Vec<u8> = (0..rng.random_range(0..1_500))
            .map(|_| rng.random())
            .collect();
        let room = composer.room();
        if body.len() > room.len() {
            break;
        }
        block[room.start..room.start + body.len()].copy_from_slice(&body);
        composer.push(&mut block, body.len(), &entry);
        packets.push((entry, body));
    }
    composer.seal(&mut block, text, b"", &seal());
    (block, packets)
}

#[test]
fn a_block_is_read_as_it_was_written() {
    let mut rng = StdRng::seed_from_u64(4);
    for text in [&b""[..], b"v=0", &[b'x'; 3_000]] {
        let (bytes, packets) = full(&mut rng, text);
        let block = Block::parse(&bytes).unwrap();
        assert_eq!(block.text(), text);
        assert_eq!(block.len(), packets.len());
        for (number, (entry, body)) in packets.iter().enumerate() {
            let (found, range) = block.packet(number).unwrap();
            assert_eq!((found, &bytes[range]), (*entry, &body[..]));
        }
        assert_eq!(block.packet(packets.len()), None);
        let trailer = Trailer::parse(&bytes[SIZE - 4_096..], SIZE as u64).unwrap();
        assert_eq!(trailer, block.trailer);
        assert_eq!(
            (trailer.serial, trailer.recording, trailer.first),
            (12, 3, 10)
        );
        assert_eq!((trailer.gap, trailer.end), (seal().gap, seal().end));
    }
}

/// The tail of a block is enough to read all entries, and to notice sectors that were not written.
#[test]
fn entries_are_read_without_the_block_and_checked_for_consistency() {
    let mut rng = StdRng::seed_from_u64(8);
    let (bytes, packets) = full(&mut rng, b"v=0");
    let trailer = Trailer::parse(&bytes, SIZE as u64).unwrap();
    let needed = trailer.entries_bytes() as usize;
    assert_eq!(needed, 128 + packets.len() * 32);
    let expected: Vec<(Entry, usize)> =
        packets.iter().map(|(of, body)| (*of, body.len())).collect();
    for more in [0, 1, 9_000] {
        let last = &bytes[SIZE - needed - more..];
        assert_eq!(trailer.packets(last).as_ref(), Ok(&expected));
    }
    let too_little = trailer.packets(&bytes[SIZE - needed + 1..]);
    assert_eq!(too_little, Err(FormatError::Damaged));
    // Any sector of entries as it was before the write: of another block, or zeros.
    let (other, _) = full(&mut rng, b"v=0");
    for from in (SIZE - needed).next_multiple_of(512)..SIZE - 512 {
        if !from.is_multiple_of(512) {
            continue;
        }
        for before in [&other[..], &[0; SIZE]] {
            let mut torn = bytes.clone();
            torn[from..from + 512].copy_from_slice(&before[from..from + 512]);
            assert_eq!(trailer.packets(&torn), Err(FormatError::Damaged), "{from}");
        }
    }
}

#[test]
fn a_changed_bit_in_a_block_is_detected() {
    let mut rng = StdRng::seed_from_u64(5);
    let (bytes, _) = full(&mut rng, b"v=0");
    for _ in 0..2_000 {
        let mut changed = bytes.clone();
        let bit = rng.random_range(0..8 * SIZE);
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(Block::parse(&changed).is_err(), "bit {bit}");
    }
    // A torn write: the start is of another block.
    let (other, _) = full(&mut rng, b"v=0");
    for sectors in [1, 64, 127] {
        let torn = [&other[..sectors * 512], &bytes[sectors * 512..]].concat();
        assert_eq!(Block::parse(&torn).unwrap_err(), FormatError::Damaged);
    }
    assert_eq!(Block::parse(&[0; SIZE]).unwrap_err(), FormatError::NotOne);
    assert_eq!(Block::parse(&[]).unwrap_err(), FormatError::NotOne);
}

#[test]
fn a_section_is_read_without_the_block_and_checked() {
    let mut rng = StdRng::seed_from_u64(6);
    let section: Vec<u8> = (0..3_000).map(|_| rng.random()).collect();
    let mut bytes = vec![0xEE; SIZE];
    let mut composer = Composer::new(SIZE, 3, section.len());
    for _ in 0..40 {
        composer.push(&mut bytes, 500, &entry(&mut rng));
    }
    composer.seal(&mut bytes, b"v=0", &section, &seal());
    assert_eq!(Block::parse(&bytes).unwrap().index(), section);
    let trailer = Trailer::parse(&bytes[SIZE - 128..], SIZE as u64).unwrap();
    let needed = trailer.section_bytes().unwrap() as usize;
    assert_eq!(needed, 128 + 40 * 32 + 3_000);
    for more in [0, 1, 9_000] {
        let last = &bytes[SIZE - needed - more..];
        assert_eq!(trailer.section(last), Ok(&section[..]));
    }
    let too_little = trailer.section(&bytes[SIZE - needed + 1..]);
    assert_eq!(too_little, Err(FormatError::NotOne));
    for _ in 0..500 {
        let mut last = bytes[SIZE - needed..].to_vec();
        let bit = rng.random_range(0..8 * section.len());
        last[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(trailer.section(&last), Err(FormatError::Damaged), "{bit}");
    }
    // A block of an early version: the section follows the text and has no checksum of its own.
    let mut old = bytes.clone();
    let at = 40 * 500 + 3;
    old[SIZE - needed..SIZE - needed + section.len()].fill(0);
    old[at..at + section.len()].copy_from_slice(&section);
    old[SIZE - 16..SIZE - 8].fill(0);
    mend(&mut old);
    let block = Block::parse(&old).unwrap();
    assert_eq!(block.index(), section);
    assert!(block.trailer.has_section() && block.trailer.section_bytes().is_none());
    assert_eq!(block.trailer.section(&old), Err(FormatError::NotOne));
}

#[test]
fn a_header_is_read_as_it_was_written() {
    let header = Header {
        archive: *b"0123456789abcdef",
        block_bytes: 262_144,
        blocks: 4_095,
    };
    let bytes = header.encode();
    assert_eq!(Header::parse(&bytes), Ok(header));
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        assert!(Header::parse(&changed).is_err(), "byte {at}");
    }
    let odd = Header {
        block_bytes: 100_000,
        ..header
    };
    let error = Header::parse(&odd.encode()).unwrap_err().to_string();
    assert!(error.contains("block size"), "{error}");
}

#[test]
fn encoded_bytes_match_the_format() {
    let header = Header {
        archive: [9; 16],
        block_bytes: 65_536,
        blocks: 3,
    };
    let mut block = vec![0; SIZE];
    let mut composer = Composer::new(SIZE, 3, 5);
    block[..4].copy_from_slice(b"body");
    let entry = Entry {
        track: 1,
        kind: Kind::Rtp,
        begins_frame: true,
        is_key: true,
        arrival_ns: 5_000_000,
        media_ns: 4_000_000,
        header: *b"rtp-header-0",
        lost: 2,
    };
    composer.push(&mut block, 4, &entry);
    composer.seal(&mut block, b"v=0", b"index", &seal());
    let hex = |bytes: &[u8]| -> String {
        let lines = bytes.chunks(32).map(|line| {
            let digits: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            digits.concat()
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!(format!(
        "header\n{}\nbodies and text\n{}\nindex, entry and trailer\n{}",
        hex(&header.encode()[..64]),
        hex(&block[..32]),
        hex(&block[SIZE - TRAILER_BYTES - 2 * ENTRY_BYTES..])
    ));
}

/// Blocks of version 1 do not tell of gaps, and their last block not why the recording ended.
#[test]
fn blocks_of_version_1_are_read() {
    let mut rng = StdRng::seed_from_u64(5);
    let (mut block, packets) = full(&mut rng, b"text");
    let trailer = SIZE - TRAILER_BYTES;
    block[trailer + 8..trailer + 12].copy_from_slice(&1_u32.to_le_bytes());
    block[trailer + 12..trailer + 16].copy_from_slice(&FLAG_LAST.to_le_bytes());
    block[trailer + 120..].fill(0);
    mend(&mut block);
    let read = Block::parse(&block).unwrap();
    assert_eq!(read.len(), packets.len());
    assert_eq!(
        (read.trailer.gap, read.trailer.end),
        (None, Some(GapCause::Unknown))
    );
    block[trailer + 8..trailer + 12].copy_from_slice(&3_u32.to_le_bytes());
    mend(&mut block);
    assert_eq!(Block::parse(&block).unwrap_err(), FormatError::Newer(3));
}
