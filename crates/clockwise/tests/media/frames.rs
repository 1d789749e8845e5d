//! Each frame of a recording can be listed: its number, when it came and is to be played, where it lies and
//! how long it is.

use std::time::Instant;

use serde_json::Value;
use testkit::rtsp::files::damage;
use testkit::rtsp::frames::*;
use testkit::rtsp::{serving, serving_logged};
use testkit::site::{Site, call};
use testkit::until;

/// The index at a time, with its frames.
fn listed(site: &Site, times: &str) -> Value {
    let path = format!("/v1/volumes/cam/recordings/1/index?{times}&frames=true");
    let (status, said) = call(site, "GET", &path, "");
    assert_eq!(status, 200, "{said}");
    said
}

fn frames_of(said: &Value) -> Vec<Value> {
    said["frames"].as_array().expect("frames").clone()
}

fn number(of: &Value, name: &str) -> u64 {
    of[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name} of {of}"))
}

/// Checks the listing of a publisher's frame, except for its position and arrival time.
fn is_frame(of: &Value, frame: u64, begins_ns: u64) {
    let each_ns = 1_000_000_000 / FRAMES_PER_SECOND;
    assert_eq!(number(of, "number"), frame, "{of}");
    assert_eq!(number(of, "packets"), PARTS, "{of}");
    assert_eq!(number(of, "bytes"), PARTS * 1_400, "{of}");
    assert_eq!(of["is_key"], frame.is_multiple_of(GOP), "{of}");
    assert_eq!(number(of, "lost"), 0, "{of}");
    // Units of the clock are no whole nanoseconds.
    let apart = (number(of, "begins_ns") - begins_ns).abs_diff(frame * each_ns);
    assert!(apart < 1_000_000, "{of}");
}

#[test]
fn every_frame_is_listed_with_where_it_lies() {
    let all = 400;
    let (site, serve, _) = recorded(all);
    let said = listed(&site, "from_ns=0");
    let frames = frames_of(&said);
    assert_eq!(frames.len() as u64, all, "{said}");
    let begins_ns = number(&frames[0], "begins_ns");
    for (frame, of) in (0..).zip(&frames) {
        is_frame(of, frame, begins_ns);
    }
    // Bodies lie back to back in a block, and the entries say which packet each is.
    for pair in frames.windows(2) {
        let [before, of] = pair else { continue };
        if before["block"] == of["block"] {
            let packets = number(of, "packet") - number(before, "packet");
            assert_eq!(packets, PARTS);
            let bytes = number(of, "offset_bytes") - number(before, "offset_bytes");
            assert_eq!(bytes, number(before, "bytes"));
        }
    }
    let blocks = number(frames.last().expect("one"), "block");
    assert!(blocks > 64, "{blocks} blocks are one group");
    // The keys are those that the index names, and its blocks have as many frames.
    let keys: Vec<_> = frames.iter().filter(|of| of["is_key"] == true).collect();
    let named = said["keys"].as_array().expect("keys");
    assert_eq!(keys.len(), named.len());
    for (key, named) in keys.iter().zip(named) {
        for name in ["begins_ns", "block", "packet", "bytes"] {
            assert_eq!(key[name], named[name]);
        }
    }
    for block in said["blocks"].as_array().expect("blocks") {
        let begun = frames.iter().filter(|of| of["block"] == block["block"]);
        assert_eq!(begun.count() as u64, number(block, "frames"), "{block}");
    }
    // A time of it, from the middle of the second group, and one in which there is nothing.
    let from_ns = number(&frames[350], "begins_ns");
    let to_ns = number(&frames[380], "begins_ns");
    let some = frames_of(&listed(&site, &format!("from_ns={from_ns}&to_ns={to_ns}")));
    assert_eq!(some, frames[350..380]);
    let nothing = listed(&site, "from_ns=99000000000&to_ns=99500000000");
    assert_eq!(frames_of(&nothing), [] as [Value; 0]);
    let shown = site.run(&["recording", "index", "cam", "1", "--to", "1s", "--frames"]);
    let shown = shown.done().out;
    assert!(shown.contains("OFFSET") && shown.contains("key"), "{shown}");
    let path = "/v1/volumes/cam/recordings/1/index?frames=true";
    let (status, said) = call(&site, "GET", path, "");
    assert_eq!(status, 400, "{said}");
    // A damaged block has no frames. Frames behind it keep their numbers if the index knows them.
    if damage(&site, 11 * 65_536, 65_536) {
        let said = listed(&site, "from_ns=0");
        assert_eq!(number(&said, "blocks_missing"), 1, "{said}");
        let left = frames_of(&said);
        assert!(left.len() < frames.len() && left.len() > frames.len() - 10);
        assert_eq!(left.last(), frames.last());
    }
    serve.terminate();
}

/// When packets came is what the clock says, whatever their timestamps do: two groups of frames, a second and
/// more apart, of one moment by their own clock.
#[test]
fn when_a_frame_came_is_when_it_was_received() {
    let (site, serve, address) = serving("");
    let mut client = publisher(address);
    let packets = |site: &Site| number(&call(site, "GET", "/v1/sessions", "").1[0], "packets");
    let before = Instant::now();
    publish(&mut client, 0..10);
    until("they have come", || packets(&site) == 10 * PARTS);
    let between = Instant::now();
    until("a second has gone", || {
        between.elapsed().as_millis() > 1_200
    });
    let behind = Instant::now();
    publish(&mut client, 10..20);
    until("they have come", || packets(&site) == 20 * PARTS);
    let end = Instant::now();
    client.ask("TEARDOWN", "cam", "", "").is(200);
    until("the recording is closed", || {
        recordings(&site)[0]["is_recorded"] == false
    });
    let said = listed(&site, "from_ns=0");
    let frames = frames_of(&said);
    assert_eq!(frames.len(), 20, "{said}");
    let came = |frame: usize| number(&frames[frame], "arrived_ns");
    assert!(
        (1..20).all(|frame| came(frame) >= came(frame - 1)),
        "{said}"
    );
    let apart = u128::from(came(10) - came(9));
    assert!(apart >= (behind - between).as_nanos(), "{said}");
    assert!(apart <= (end - before).as_nanos(), "{said}");
    let all = u128::from(came(19) - came(0));
    assert!(all <= (end - before).as_nanos(), "{said}");
    // The index has the same of blocks.
    let blocks = said["blocks"].as_array().expect("blocks");
    let first = number(&blocks[0], "arrived_ns");
    assert_eq!(first, came(0), "{said}");
    serve.terminate();
}

/// A network, or a host, that stands for some seconds changes nothing of that: what it has kept comes at once.
#[test]
fn late_packets_are_played_as_they_were_sent() {
    let (site, serve, address) = serving_logged("");
    let mut client = publisher(address);
    let packets = |site: &Site| number(&call(site, "GET", "/v1/sessions", "").1[0], "packets");
    publish(&mut client, 0..10);
    until("they have come", || packets(&site) == 10 * PARTS);
    serve.stop();
    let stands = Instant::now();
    publish(&mut client, 10..20);
    until("more than ten seconds have gone", || {
        stands.elapsed().as_millis() > 10_700
    });
    serve.go_on();
    publish(&mut client, 20..300);
    client.ask("TEARDOWN", "cam", "", "").is(200);
    until("the recording is closed", || {
        recordings(&site)[0]["is_recorded"] == false
    });
    let frames = frames_of(&listed(&site, "from_ns=0"));
    assert_eq!(frames.len(), 300, "{frames:?}");
    let came = |frame: usize| number(&frames[frame], "arrived_ns");
    assert!(came(10) - came(9) > 10_500_000_000, "{frames:?}");
    let begins_ns = number(&frames[0], "begins_ns");
    for (frame, of) in (0..).zip(&frames) {
        is_frame(of, frame, begins_ns);
    }
    let (status, log) = serve.terminate();
    assert_eq!(status, Some(0), "{log}");
}

/// A packet that comes late, as over several ways, is of the frame before: it begins none, and makes none a key.
#[test]
fn a_packet_that_comes_late_begins_no_frame() {
    let (site, serve, address) = serving("");
    let mut client = publisher(address);
    let all: Vec<_> = (0..20 * PARTS).map(|of| (of / PARTS, of % PARTS)).collect();
    let mut mixed = all.clone();
    // The last part of each other frame after the first of the next one.
    for frame in (0..19).step_by(2) {
        let last = (frame * PARTS + PARTS - 1) as usize;
        mixed.swap(last, last + 1);
    }
    for (frame, number) in mixed {
        client.packet(0, &part(frame, number));
    }
    client.ask("TEARDOWN", "cam", "", "").is(200);
    let frames = frames_of(&listed(&site, "from_ns=0"));
    assert_eq!(frames.len(), 20, "{frames:?}");
    for (frame, of) in (0..).zip(&frames) {
        assert_eq!(number(of, "number"), frame, "{of}");
        assert_eq!(of["is_key"], frame.is_multiple_of(GOP), "{of}");
    }
    serve.terminate();
}
