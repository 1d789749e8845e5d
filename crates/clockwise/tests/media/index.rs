//! A day of one camera: its index is listed with a few reads, and of its blocks no more is read than their sections.

use std::io::{Read, Write};
use std::sync::Arc;

use crate::support::day::{self, Camera, Day, KEY_SECONDS, SECONDS};
use engine::pool::Pool;
use engine::volume_io::{Client, ClientOptions};
use media::archive::block::Trailer;
use media::archive::index::GROUP;
use media::archive::{Archive, Recording, groups_in};
use media::files::{Division, Source};
use media::sdp::Description;
use sched::units::Bytes;
use testkit::site::{Site, call, connect};

const CAMERAS: [Camera; 2] = [
    Camera {
        bytes_per_second: 1_000_000,
        block_bytes: 1 << 20,
        fast_ppm: 0,
    },
    Camera {
        bytes_per_second: 64_000,
        block_bytes: 64 << 10,
        fast_ppm: 0,
    },
];

const SECOND_NS: u64 = 1_000_000_000;

fn disk_bytes(camera: &Camera) -> u64 {
    day::volume_bytes(camera) + (4 << 30)
}

/// A pool on a file of which little is there, with a day of a camera in its volume `cam`.
fn recorded(site: &Site, camera: &Camera) -> (Arc<Pool>, Day) {
    recorded_with(site, camera, &[])
}

/// As `recorded`, with all blocks of these groups.
fn recorded_with(site: &Site, camera: &Camera, whole: &[u64]) -> (Arc<Pool>, Day) {
    let pool = day::pool(&site.path("disk-0"), disk_bytes(camera));
    let day = day::record(&pool, "cam", camera, whole);
    (pool, day)
}

/// The archive as it is when nothing of it is known, and its only recording.
fn opened(pool: &Pool) -> (Archive, Client, Recording) {
    let volume = pool.open_volume("cam").expect("it is there");
    let client = pool.client("test", ClientOptions::default());
    let client = client.expect("there is memory");
    let archive = Archive::open(&client, Arc::clone(&volume)).expect("an archive");
    let recording = archive.recording(None).expect("a recording");
    (archive, client, recording)
}

#[test]
fn a_day_is_listed_with_two_reads_and_a_time_of_it_with_one_more() {
    for camera in &CAMERAS {
        let site = Site::new(1);
        let (pool, day) = recorded(&site, camera);
        let (archive, client, recording) = opened(&pool);
        assert_eq!((recording.first, recording.end), (0, day.blocks()));
        let groups = archive.outline(&client, &recording).expect("an outline");
        assert!(
            archive.reads() <= 2,
            "{camera:?}: {} reads",
            archive.reads()
        );
        assert_eq!(groups.len() as u64, day::groups(day.blocks()));
        for (number, group) in (0..).zip(&groups) {
            assert_eq!(group.first, number * GROUP);
            assert_eq!(group.end, day.blocks().min((number + 1) * GROUP));
            assert_eq!(group.begins_ns, day.begins_ns[group.first as usize]);
        }
        // Half a minute, which may be in two groups.
        let before = archive.reads();
        let times = 40_001 * SECOND_NS..40_031 * SECOND_NS;
        let within = groups_in(&groups, &times);
        let window = archive.window(&client, &recording, within, &times);
        let window = window.expect("what is in it");
        let reads = archive.reads() - before;
        assert_eq!(reads, within.len() as u64, "{camera:?}");
        assert!(reads <= 2, "{camera:?}: {reads} reads");
        let begins = |serial: u64| day.begins_ns[serial as usize];
        let from = day.begins_ns.partition_point(|of| *of <= times.start) as u64 - 1;
        let to = day.begins_ns.partition_point(|of| *of < times.end) as u64;
        let serials: Vec<u64> = window.records.iter().map(|(serial, _)| *serial).collect();
        assert_eq!(serials, (from..to).collect::<Vec<_>>());
        for (serial, record) in &window.records {
            assert_eq!(record.media_ns, begins(*serial));
        }
        let keys: Vec<(u64, u64)> = window
            .keys
            .iter()
            .map(|of| (of.media_ns, of.serial))
            .collect();
        let expected: Vec<(u64, u64)> = (20_000..20_016)
            .map(|number| {
                (
                    number * KEY_SECONDS * SECOND_NS,
                    day.keys_in[number as usize],
                )
            })
            .collect();
        assert_eq!(keys, expected, "{camera:?}");
        drop((archive, client));
        // A time is found with the newest section and its own.
        for at in [0, 1, 12_345, SECONDS - 1] {
            let (archive, client, recording) = opened(&pool);
            let found = archive.index_at(&client, &recording, at * SECOND_NS);
            let found = found.expect("it can be read").expect("it has an index");
            assert!(
                archive.reads() <= 2,
                "{camera:?}: {} reads",
                archive.reads()
            );
            let key = found.key_at(at * SECOND_NS).expect("a key frame");
            assert_eq!(key.serial, day.keys_in[(at / KEY_SECONDS) as usize]);
        }
        pool.close().expect("it is closed");
    }
}

/// A playlist of two minutes costs the same at the beginning of a day as at its end.
#[test]
fn a_list_of_a_range_of_a_day_takes_few_reads() {
    let text = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=day\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
                m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n";
    for camera in &CAMERAS {
        let site = Site::new(1);
        let (pool, _) = recorded(&site, camera);
        for at_s in [200, 43_200, SECONDS - 200] {
            let (archive, client, recording) = opened(&pool);
            let (archive, client) = (Arc::new(archive), Arc::new(client));
            let description = Description::parse(text.as_bytes()).expect("a description");
            let mut source = Source::new(Arc::clone(&archive), client, recording, description);
            let times = at_s * SECOND_NS..(at_s + 120) * SECOND_NS;
            let listed = source.list(&times, SECONDS * SECOND_NS, true, Division::Usual);
            let listed = listed.expect("it can be read");
            assert_eq!(listed.parts.len(), 30, "{camera:?}: at {at_s} s");
            assert_eq!(listed.parts[0].begins.media_ns, times.start);
            let reads = archive.reads();
            assert!(reads <= 8, "{camera:?}: {reads} reads at {at_s} s");
        }
        pool.close().expect("it is closed");
    }
}

/// Body of a path, as text.
fn got(site: &Site, path: &str) -> String {
    let mut socket = connect(&site.path("api.sock"));
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).expect("it is asked");
    let mut text = String::new();
    socket.read_to_string(&mut text).expect("it answers");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head}");
    body.to_owned()
}

#[test]
fn the_index_of_a_day_is_asked_for_and_its_playlist_needs_no_more() {
    let camera = CAMERAS[0];
    let site = Site::new(1);
    let (pool, day) = recorded(&site, &camera);
    day::configure(&site, pool, disk_bytes(&camera), "");
    let serve = site.serve_json();
    let path = "/v1/volumes/cam/recordings/1/index";
    let (status, all) = call(&site, "GET", path, "");
    assert_eq!(status, 200, "{all}");
    let groups = all["groups"].as_array().expect("groups");
    assert_eq!(groups.len() as u64, day::groups(day.blocks()));
    let hundredth = serde_json::json!({
        "block": 6_400, "blocks": 64, "begins_ns": day.begins_ns[6_400],
    });
    assert_eq!(groups[100], hundredth);
    assert!(all["blocks"].is_null() && all["keys"].is_null() && all["track"].is_null());
    assert_eq!(site.json(&["recording", "index", "cam", "1"]), all);
    let table = site.run(&["recording", "index", "cam", "1"]).done().out;
    assert_eq!(table.lines().count(), groups.len() + 1);

    let hour = [
        "recording",
        "index",
        "cam",
        "1",
        "--from",
        "1h",
        "--to",
        "3610s",
    ];
    let window = site.json(&hour);
    let keys = window["keys"].as_array().expect("keys");
    let times: Vec<_> = keys.iter().map(|of| of["begins_ns"].as_u64()).collect();
    let expected = (1_800..1_805).map(|of| Some(of * KEY_SECONDS * SECOND_NS));
    assert_eq!(times, expected.collect::<Vec<_>>());
    let blocks = window["blocks"].as_array().expect("blocks");
    assert!((9..=12).contains(&blocks.len()), "{} blocks", blocks.len());
    let frames: u64 = blocks.iter().filter_map(|of| of["frames"].as_u64()).sum();
    assert!((240..=300).contains(&frames), "{frames} frames");
    assert_eq!(
        (&window["track"], &window["groups_missing"]),
        (&0.into(), &0.into())
    );
    let said = site.run(&hour).done().out;
    assert!(
        said.contains("KEY FRAME") && said.contains("PACKETS"),
        "{said}"
    );
    for (query, status) in [
        ("?from_ns=5&to_ns=5", 422),
        ("?from_ns=0", 422),
        ("?from=5", 400),
        ("?from_ns=9&to_ns=5", 422),
        ("?to_ns=0", 422),
        ("?from_ns=-5", 400),
    ] {
        let (got, said) = call(&site, "GET", &format!("{path}{query}"), "");
        assert_eq!(got, status, "{query}: {said}");
    }
    nothing_is_outside(&site, path, &all);
    let none = "/v1/volumes/cam/recordings/2/index";
    assert_eq!(call(&site, "GET", none, "").0, 404);

    // Blocks that end a group have only their sections: the rest was never written.
    let count = |query: &str| {
        let playlist = got(&site, &format!("/media/cam/1/media.m3u8{query}"));
        assert!(playlist.len() < 20_000, "{}", playlist.len());
        let segments = playlist.lines().filter(|line| line.starts_with("#EXTINF"));
        segments.count()
    };
    // Without a range, the first hour; with one, 20 minutes at most.
    assert_eq!(count(""), 300);
    assert_eq!(count("?from=43200&until=43300"), 25);
    assert_eq!(count("?from=43200&until=80000"), 300);
    assert_eq!(count("?from=100000"), 0);
    serve.terminate();
}

/// A time behind the end lists nothing, and says so; the frame shown at the end is listed.
fn nothing_is_outside(site: &Site, path: &str, all: &serde_json::Value) {
    let number = |of: &serde_json::Value| of.as_u64().expect("a number");
    let (begins, ends) = (number(&all["begins_ns"]), number(&all["ends_ns"]));
    assert_eq!(begins, 0);
    assert_eq!(ends / SECOND_NS, SECONDS - 1);
    for (from, blocks) in [(ends, 1), (ends + 1, 0), (99_999_999_000_000_000, 0)] {
        let query = format!("{path}?from_ns={from}");
        let (status, said) = call(site, "GET", &query, "");
        assert_eq!(status, 200, "{query}: {said}");
        let listed = said["blocks"].as_array().expect("blocks");
        assert_eq!(listed.len(), blocks, "{query}: {listed:?}");
        assert_eq!(said["groups_missing"], 0);
        if blocks == 0 {
            assert_eq!(said["keys"], serde_json::json!([]));
            assert!(said["track"].is_null());
        }
    }
    let late = ["recording", "index", "cam", "1", "--from", "25h"];
    let said = site.run(&late).done().out;
    let nothing = "nothing was recorded in that time range: the recording begins at 0 and ends at ";
    assert!(said.starts_with(nothing), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    for (from, to) in [("9s", "5s"), ("5s", "5s"), ("25h", "24h")] {
        let reversed = ["recording", "index", "cam", "1", "--from", from, "--to", to];
        site.run(&reversed).fails(2, &["is not after --from"]);
    }
    let before = ["recording", "index", "cam", "1", "--from", "-5s"];
    site.run(&before).fails(2, &["--from", "-5s"]);
}

#[test]
fn sections_of_the_first_days_are_read_with_their_blocks_and_torn_ones_are_rebuilt() {
    let camera = CAMERAS[1];
    let site = Site::new(1);
    let (pool, day) = recorded_with(&site, &camera, &[200]);
    let volume = pool.open_volume("cam").expect("it is there");
    let client = pool.client("test", ClientOptions::default());
    let client = client.expect("there is memory");
    let size = camera.block_bytes;
    let at = |group: u64| Bytes((group * GROUP + GROUP) * size);
    let number = |block: &[u8], at: usize| {
        let bytes = block[at..at + 4].try_into().expect("four");
        u32::from_le_bytes(bytes) as usize
    };
    let sum = |parts: &[u8]| crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, parts);
    // One as it was before there was a checksum of it, and one that was torn.
    let mut block = vec![0; size as usize];
    client
        .read_at(&volume, at(100), &mut block)
        .expect("a block");
    let trailer = block.len() - 128;
    let [bodies, text, entries, index] = [96, 100, 104, 108].map(|at| number(&block, trailer + at));
    let from = trailer - entries * 32 - index;
    block.copy_within(from..from + index, bodies + text);
    block[from..from + index].fill(0);
    block[trailer + 112..].fill(0);
    let content = sum(&block[..trailer]);
    block[trailer + 24..trailer + 32].copy_from_slice(&content.to_le_bytes());
    block[trailer + 16..trailer + 24].fill(0);
    let all = sum(&block[trailer..]);
    block[trailer + 16..trailer + 24].copy_from_slice(&all.to_le_bytes());
    assert!(Trailer::parse(&block, size).is_ok_and(|of| of.section_bytes().is_none()));
    client
        .write_at(&volume, at(100), &block)
        .expect("it is written");
    client
        .read_at(&volume, at(200), &mut block)
        .expect("a block");
    let entries = number(&block, trailer + 104);
    block[trailer - entries * 32 - 1] ^= 1;
    client
        .write_at(&volume, at(200), &block)
        .expect("it is written");

    let (archive, reader, recording) = opened(&pool);
    let groups = archive.outline(&reader, &recording).expect("an outline");
    let window = |group: usize| {
        let times = groups[group].begins_ns..groups[group].begins_ns + 1;
        let window = archive.window(&reader, &recording, &groups[group..=group], &times);
        window.expect("it can be read")
    };
    let before = archive.reads();
    let old = window(100);
    assert_eq!(archive.reads() - before, 2, "its end, and then all of it");
    assert_eq!(old.missing, 0);
    assert_eq!(old.records[0].1.media_ns, day.begins_ns[6_400]);
    assert_eq!(window(201).missing, 0);
    // All of its group is known by its blocks, of which no more is read than their ends.
    let before = archive.reads();
    let all = groups[200].begins_ns..groups[201].begins_ns;
    let rebuilt = archive.window(&reader, &recording, &groups[200..201], &all);
    let rebuilt = rebuilt.expect("it can be read");
    // The end that should have it, and the section before, which says how many frames there were.
    assert_eq!(archive.reads() - before, 2 + GROUP);
    assert_eq!((rebuilt.missing, rebuilt.is_thinned), (0, false));
    let begins = (200 * GROUP..).zip(&rebuilt.records);
    let begins: Vec<(u64, u64)> = begins.map(|(serial, of)| (serial, of.1.media_ns)).collect();
    let expected =
        (200 * GROUP..201 * GROUP).map(|serial| (serial, day.begins_ns[serial as usize]));
    assert_eq!(begins, expected.collect::<Vec<_>>());
    let keys: Vec<u64> = rebuilt.keys.iter().map(|of| of.serial).collect();
    let in_group = |serial: &&u64| **serial / GROUP == 200;
    assert_eq!(
        keys,
        day.keys_in
            .iter()
            .filter(in_group)
            .copied()
            .collect::<Vec<_>>()
    );
    let before = archive.reads();
    assert_eq!(window(200).missing, 0);
    assert_eq!(archive.reads(), before, "it is kept");
    drop((archive, client, reader, volume));
    pool.close().expect("it is closed");
}
