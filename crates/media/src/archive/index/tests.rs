use super::*;
use crate::archive::block::{Entry, Kind};
use crate::archive::gap::{GapBefore, GapCause};

fn entry(track: u8, media_ns: u64, begins_frame: bool, is_key: bool) -> Entry {
    Entry {
        track,
        kind: Kind::Rtp,
        begins_frame,
        is_key,
        arrival_ns: media_ns + 5,
        media_ns,
        header: [0; 12],
        lost: 0,
    }
}

#[test]
fn sections_have_the_frames_that_were_added() {
    // Frames of three packets, ten milliseconds each, every fifth a key; two audio packets between them;
    // seven packets in a block.
    let mut indexer = Indexer::new(250, 1);
    let mut sections = Vec::new();
    let mut expected = Vec::new();
    let mut in_block = 0;
    let mut put = |indexer: &mut Indexer, entry: &Entry| {
        indexer.packet(entry, 100);
        in_block += 1;
        if in_block == 7 {
            in_block = 0;
            sections.extend(indexer.block(false, 16_384));
        }
    };
    for frame in 0..2_000_u64 {
        let at = frame * 10_000_000;
        let is_key = frame % 5 == 0;
        if is_key {
            expected.push((at, indexer.serial()));
        }
        for part in 0..3 {
            // The parameter sets come first; the packet after them is marked as key.
            put(&mut indexer, &entry(1, at, part == 0, is_key && part == 1));
        }
        put(&mut indexer, &entry(0, at, true, true));
        put(&mut indexer, &entry(0, at, true, true));
    }
    sections.extend(indexer.block(true, 16_384));
    let firsts: Vec<u64> = sections.iter().map(|(_, index)| index.first).collect();
    let expected_firsts: Vec<u64> = [250].into_iter().chain((256..1_679).step_by(64)).collect();
    assert_eq!(firsts, expected_firsts);
    let mut keys = 0;
    for (number, (bytes, index)) in sections.iter().enumerate() {
        assert_eq!(Index::parse(bytes).unwrap(), *index);
        assert_eq!(index.groups.len(), number);
        let before: Vec<u64> = sections[..number]
            .iter()
            .rev()
            .map(|(_, index)| index.begins_ns())
            .collect();
        assert_eq!(index.groups, before);
        for key in &index.keys {
            assert_eq!(index.key_at(key.media_ns + 49_999_999), Some(key));
            let block = index.block_at(key.media_ns);
            assert!((block..block + 2).contains(&key.serial) || key.serial + 1 == block);
            assert!(expected.contains(&(key.media_ns, key.serial)), "{key:?}");
            if let Some(end) = key.end {
                assert_eq!(key.bytes, 300);
                assert!(end == key.serial || end == key.serial + 1);
            }
        }
        keys += index.keys.len();
    }
    // A key is missed if its marked packet is in another group than its first packet.
    assert!((395..=400).contains(&keys), "{keys}");
    let frames: u64 = sections
        .iter()
        .flat_map(|(_, index)| &index.records)
        .map(|record| u64::from(record.frames))
        .sum();
    assert_eq!(frames, 2_000);
    let last = &sections[sections.len() - 1].1;
    let in_last: u32 = last.records.iter().map(|record| record.frames).sum();
    assert_eq!(last.frames + u64::from(in_last), 2_000);
}

#[test]
fn keys_without_room_are_left_out_evenly() {
    let mut indexer = Indexer::new(0, 0);
    for number in 0..3_200_u64 {
        indexer.packet(&entry(0, number * 1_000_000, true, true), 10);
        if number % 50 == 49 && number < 3_199 {
            assert!(indexer.block(false, 16_384).is_none());
        }
    }
    let (bytes, whole) = indexer.block(false, 16_384).expect("a group has ended");
    assert!(bytes.len() <= 16_384);
    assert_eq!(whole.named, KeyCoverage::All);
    let fixed = 32 + 64 * 32;
    // Room for exactly the first and the last key of each block, for more, and for less.
    for (room, named) in [
        (16_384, KeyCoverage::EndsOfBlocks),
        (fixed + 128 * 16, KeyCoverage::EndsOfBlocks),
        (fixed + 127 * 16, KeyCoverage::Some),
        (fixed + 16, KeyCoverage::Some),
        (fixed, KeyCoverage::Some),
    ] {
        let index = Index::parse(&whole.encode(room).unwrap()).unwrap();
        assert_eq!(index.records, whole.records);
        assert_eq!(index.named, named, "{room}");
        assert_eq!(index.keys.len(), (room - fixed) / 16);
        let all = &whole.keys;
        let is_end = |at: usize| [0, 49].contains(&(at % 50));
        let mut ends = all.iter().enumerate().filter(|(at, _)| is_end(*at));
        if named == KeyCoverage::EndsOfBlocks {
            assert!(ends.all(|(_, key)| index.keys.contains(key)), "{room}");
        }
        assert!(index.keys.is_sorted_by_key(|key| key.media_ns));
        assert!(index.keys.first().is_none_or(|key| *key == all[0]));
        let apart = index.keys.windows(2);
        let apart = apart.map(|pair| pair[1].media_ns - pair[0].media_ns);
        let evenly = match room {
            16_384 => 5_000_000,
            _ => 49_000_000,
        };
        assert!(apart.max() <= Some(evenly), "{room}");
    }
    assert!(whole.encode(fixed - 1).is_none());
    // Thinning in steps gives as many keys as thinning once.
    let mut twice = whole.clone();
    for keys in [2_000, 500, 128] {
        twice.thin(keys);
        assert_eq!(
            (twice.keys.len(), twice.named),
            (keys, KeyCoverage::EndsOfBlocks)
        );
    }
    twice.thin(100);
    twice.thin(200);
    assert_eq!((twice.keys.len(), twice.named), (100, KeyCoverage::Some));
}

#[test]
fn encoded_bytes_match_the_format() {
    let index = Index {
        first: 0x1122,
        frames: 7,
        track: 1,
        before: Some((0x1120, 0x66)),
        records: vec![
            Record {
                media_ns: 0x33,
                arrival_ns: 0x44,
                frames: 2,
                packets: 3,
                bytes: 4,
                lost: 5,
            },
            Record::default(),
        ],
        keys: vec![Key {
            serial: 0x1122,
            packet: 9,
            end: None,
            media_ns: 5_000_000 + 0x33,
            bytes: 0x10,
        }],
        named: KeyCoverage::All,
        groups: vec![0x55],
        gaps: vec![Gap {
            serial: 0x1121,
            last_before_ns: 0x77,
            first_after_ns: 0x88,
            cause: GapCause::Network,
        }],
        has_earlier_gaps: true,
    };
    let bytes = index.encode(1_000).unwrap();
    let text: Vec<String> = bytes
        .chunks(16)
        .map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    insta::assert_snapshot!(text.join("\n"));
    assert_eq!(Index::parse(&bytes).unwrap(), index);
}

/// Each section names the latest gaps of all groups up to its own.
#[test]
fn sections_name_the_gaps_of_earlier_groups() {
    let mut indexer = Indexer::new(0, 0);
    let mut sections = Vec::new();
    for serial in 0..6 * GROUP {
        let second = 1_000_000_000;
        // Every block begins after a gap of a second, which is more than a section names.
        indexer.begins_after((serial > 0).then(|| GapBefore {
            cause: GapCause::Camera,
            last_before_ns: (2 * serial - 1) * second,
        }));
        indexer.packet(&entry(0, 2 * serial * second, true, true), 10);
        if let Some((bytes, _)) = indexer.block(false, 16_384) {
            sections.push(Index::parse(&bytes).unwrap());
        }
    }
    assert_eq!(sections.len(), 6);
    for (group, section) in (1..).zip(&sections) {
        let serials: Vec<u64> = section.gaps.iter().map(|gap| gap.serial).collect();
        let most = serials.len() as u64;
        assert!(most > GROUP - 2 && most <= GAPS_MAX as u64, "{most}");
        let end = group * GROUP;
        assert_eq!(serials, (end - most..end).collect::<Vec<_>>());
        assert_eq!(section.has_earlier_gaps, end - most > 1);
        let last = section.gaps[section.gaps.len() - 1];
        assert_eq!(last.first_after_ns - last.last_before_ns, 1_000_000_000);
    }
    assert!(sections[5].has_earlier_gaps);
    // One that is rebuilt takes over those before it.
    let mut rebuilt = Index {
        first: 6 * GROUP,
        records: vec![Record::default()],
        ..Index::default()
    };
    rebuilt.follow(&sections[5]);
    assert_eq!(rebuilt.gaps, sections[5].gaps);
    assert!(rebuilt.has_earlier_gaps);
}
