//! Recordings that are deleted, or older or more than is kept, are gone: also for who plays them, and after SIGKILL.

use std::io::{Read, Write};
use std::net::SocketAddr;

use serde_json::Value;
use testkit::nbd::Wire;
use testkit::rtsp::{
    Client, SDP_TYPE, TCP, publisher, rtp, sdp, serve, serve_logged, serving, with_blocks_of,
    with_rtsp,
};
use testkit::site::{Site, call};
use testkit::until;

/// Bytes of a packet's body: 46 fill a block.
const BODY: usize = 1_360;

fn send(client: &mut Client, numbers: std::ops::Range<u16>, apart_ms: u32) {
    for number in numbers {
        let body = vec![number as u8; BODY];
        client.packet(0, &rtp(number, u32::from(number) * apart_ms, 7, &body));
    }
}

fn recordings(site: &Site) -> Vec<Value> {
    let (status, said) = call(site, "GET", "/v1/volumes/cam/recordings", "");
    assert_eq!(status, 200, "{said}");
    said.as_array().expect("a list").clone()
}

fn numbers(site: &Site) -> Vec<u64> {
    let number = |of: &Value| of["number"].as_u64().expect("a number");
    recordings(site).iter().map(number).collect()
}

fn blocks(site: &Site) -> u64 {
    let blocks = |of: &Value| of["blocks"].as_u64().expect("a number");
    recordings(site).iter().map(blocks).sum()
}

/// A recording of so many packets, which has ended.
fn record(site: &Site, address: SocketAddr, packets: u16) {
    record_of(site, publisher(address, TCP), packets);
}

fn record_of(site: &Site, mut client: Client, packets: u16) {
    send(&mut client, 0..packets, 1);
    client.ask("TEARDOWN", "cam", "", "").is(200);
    until("the recording is closed", || {
        recordings(site).iter().all(|of| of["is_recorded"] == false)
    });
}

/// All that is played of a recording arrives; what it is: the numbers in its packets.
#[track_caller]
fn plays(address: SocketAddr, number: u64, packets: u16) {
    let path = format!("cam/{number}");
    let mut client = Client::connect(address);
    client.ask("DESCRIBE", &path, "", "").is(200);
    let track = format!("{path}/track0");
    client.ask("SETUP", &track, TCP, "").is(200);
    client.ask("PLAY", &path, "Range: npt=0-\r\n", "").is(200);
    let played = client.packets_on(0, usize::from(packets));
    assert_eq!(played.len(), usize::from(packets));
    for (number, packet) in played.iter().enumerate() {
        assert_eq!(packet[12..], vec![number as u8; BODY], "packet {number}");
    }
}

#[test]
fn deleted_recording_is_gone_for_good_and_no_other_is() {
    let (site, server, address) = serving("");
    let packets = 120;
    (0..3).for_each(|_| record(&site, address, packets));
    assert_eq!(numbers(&site), [1, 2, 3]);
    let written = |site: &Site| site.json(&["volume", "show", "cam"])["written_bytes"].as_u64();
    let before = written(&site);

    let deleted = site.json(&["recording", "delete", "cam", "2"]);
    assert_eq!(deleted[0]["number"], 2);
    assert_eq!(numbers(&site), [1, 3]);
    assert!(written(&site) < before, "nothing was discarded");
    drop(server);
    let (server, address) = serve(&site);
    assert_eq!(numbers(&site), [1, 3]);
    Client::connect(address)
        .ask("DESCRIBE", "cam/2", "", "")
        .is(404);
    plays(address, 1, packets);
    plays(address, 3, packets);

    // The newest and all others: numbers and places go on behind them.
    site.run(&["recording", "delete", "cam", "3", "1"]).done();
    drop(server);
    let (server, address) = serve(&site);
    assert_eq!(numbers(&site), [0; 0]);
    record(&site, address, packets);
    assert_eq!(numbers(&site), [4]);
    drop(server);
    let (server, address) = serve(&site);
    assert_eq!(numbers(&site), [4]);
    plays(address, 4, packets);

    site.run(&["recording", "delete", "cam", "3"])
        .fails(2, &["there is no recording 3 in volume", "recording list"]);
    let path = "/v1/volumes/cam/recordings/4x";
    assert_eq!(call(&site, "DELETE", path, "").0, 400);
    let path = "/v1/volumes/none/recordings/4";
    assert_eq!(call(&site, "DELETE", path, "").0, 404);
    server.terminate();
}

/// Whenever the server is killed, a recording is deleted or there, as a whole.
#[test]
fn a_deletion_that_is_killed_is_made_or_not() {
    let (site, mut server, mut address) = serving("");
    let packets = 60;
    let mut there: Vec<u64> = Vec::new();
    for round in 1..=6 {
        record(&site, address, packets);
        there.push(round);
        assert_eq!(numbers(&site), there);
        let mut socket = testkit::site::connect(&site.path("api.sock"));
        let ask = format!(
            "DELETE /v1/volumes/cam/recordings/{round} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        );
        socket.write_all(ask.as_bytes()).expect("it is sent");
        // The first is killed at once, others a while later, the last when it has answered.
        for _ in 1..round {
            recordings(&site);
        }
        let mut said = String::new();
        if round == 6 {
            socket.read_to_string(&mut said).expect("an answer");
            assert!(said.starts_with("HTTP/1.1 200"), "{said}");
        }
        drop(server);
        (server, address) = serve(&site);
        let found = numbers(&site);
        let without: Vec<u64> = there.iter().copied().filter(|of| *of != round).collect();
        let is_deleted = found == without;
        assert!(
            is_deleted || (round < 6 && found == there),
            "{found:?}, {there:?}"
        );
        there = found;
        there.iter().for_each(|of| plays(address, *of, packets));
    }
    server.terminate();
}

/// In a ring of nine blocks, over which three recordings go that are deleted while the next one is made.
#[test]
fn recording_over_and_beside_deleted_blocks_is_whole() {
    let (site, mut server, mut address) = serving("");
    site.run(&["volume", "delete", "cam"]).done();
    site.run(&["volume", "create", "cam", "--size", "640KiB"])
        .done();
    let packets = 120;
    for round in 1..=7 {
        let mut client = publisher(address, TCP);
        send(&mut client, 0..60, 1);
        until("a block is written", || numbers(&site).contains(&round));
        if round > 1 {
            let before = (round - 1).to_string();
            site.run(&["recording", "delete", "cam", &before]).done();
        }
        send(&mut client, 60..packets, 1);
        client.ask("TEARDOWN", "cam", "", "").is(200);
        until("the recording is closed", || {
            recordings(&site)
                .iter()
                .all(|of| of["is_recorded"] == false)
        });
        if round % 2 == 0 {
            drop(server);
            (server, address) = serve(&site);
        }
        assert_eq!((numbers(&site), blocks(&site)), (vec![round], 3));
        plays(address, round, packets);
    }
    server.terminate();
}

#[test]
fn one_that_goes_on_is_not_deleted_and_one_that_is_played_ends_there() {
    let (site, server, address) = serving("");
    let mut client = publisher(address, TCP);
    // Seconds apart, so that whoever plays it waits in the middle of it.
    send(&mut client, 0..120, 2_000);
    until("a block is written", || blocks(&site) > 0);
    site.run(&["recording", "delete", "cam", "1"]).fails(
        1,
        &[
            "recording 1 in volume",
            "is in progress",
            "end the recording first",
        ],
    );
    assert_eq!(
        call(&site, "DELETE", "/v1/volumes/cam/recordings/1", "").0,
        409
    );
    client.ask("TEARDOWN", "cam", "", "").is(200);
    until("the recording is closed", || {
        recordings(&site)[0]["is_recorded"] == false
    });

    let mut player = Client::connect(address);
    player.ask("SETUP", "cam/1/track0", TCP, "").is(200);
    player.ask("PLAY", "cam/1", "", "").is(200);
    player.packets_on(0, 1);
    site.run(&["recording", "delete", "cam", "1"]).done();
    // A report with the first packet, and the farewell: receiver report and BYE.
    let reports = player.packets_on(1, 2);
    let last = reports.last().expect("a report");
    assert_eq!(last[9], 203, "no BYE: {last:?}");
    let played = player.packets_on(0, 1).len();
    assert!(played < 120, "all of it was played");
    player.ask("PLAY", "cam/1", "", "").is(404);
    // The session and its connection are as they were.
    player.ask("TEARDOWN", "cam/1", "", "").is(200);
    server.terminate();
}

#[test]
fn no_more_than_is_to_be_kept_is_there_while_it_is_recorded_and_after_a_crash() {
    let (site, server, address) = serving("");
    site.run(&["recording", "keep", "cam"])
        .fails(1, &["nothing has been recorded"]);
    let too_little = || site.run(&["recording", "keep", "cam", "--size", "64KiB"]);
    too_little().fails(2, &["less than 256 KiB"]);
    site.run(&["recording", "keep", "cam"])
        .fails(1, &["nothing has been recorded"]);
    record(&site, address, 60);
    too_little().fails(2, &["less than 256 KiB"]);
    let kept = site.json(&["recording", "keep", "cam", "--size", "320KiB"]);
    assert_eq!(kept["keep_bytes"], 320 << 10);

    let mut client = publisher(address, TCP);
    send(&mut client, 0..500, 1);
    until("the first recording is too much", || numbers(&site) == [2]);
    until("more is written than is kept", || blocks(&site) == 5);
    client.ask("TEARDOWN", "cam", "", "").is(200);
    assert_eq!((numbers(&site), blocks(&site)), (vec![2], 5));
    drop(server);
    let (server, _) = serve(&site);
    assert_eq!((numbers(&site), blocks(&site)), (vec![2], 5));
    assert_eq!(site.json(&["recording", "keep", "cam"]), kept);
    // Expired recordings do not come back when more is kept.
    let kept = site.json(&["recording", "keep", "cam", "--everything"]);
    assert_eq!(kept["keep_bytes"], Value::Null);
    drop(server);
    let (server, address) = serve(&site);
    assert_eq!((numbers(&site), blocks(&site)), (vec![2], 5));
    record(&site, address, 60);
    assert_eq!((numbers(&site), blocks(&site)), (vec![2, 3], 7));
    server.terminate();
}

#[test]
fn old_part_of_a_live_recording_expires() {
    let (site, server, address) = serving("");
    let mut client = publisher(address, TCP);
    send(&mut client, 0..300, 1);
    until("blocks are written", || blocks(&site) > 3);
    let kept = site.json(&["recording", "keep", "cam", "--for", "1s", "--force"]);
    assert_eq!(kept["keep_for_ns"], 1_000_000_000);
    // Nothing more comes, and all that is there becomes too old.
    until("what was recorded is gone", || blocks(&site) == 0);
    drop(server);
    drop(client);
    let (server, address) = serve(&site);
    assert_eq!(blocks(&site), 0);
    // The policy is the volume's: it is in force after a crash without anybody saying so.
    record(&site, address, 60);
    until("that has gone as well", || blocks(&site) == 0);
    site.run(&["volume", "delete", "cam"]).done();
    server.terminate();
}

const MIB: u64 = 1 << 20;

/// Length of the volume, in MiB.
fn volume_mib(site: &Site) -> u64 {
    let shown = site.json(&["volume", "show", "cam"]);
    shown["size_bytes"].as_u64().expect("a size") / MIB
}

fn free_bytes(site: &Site) -> u64 {
    let (status, said) = call(site, "GET", "/v1/status", "");
    assert_eq!(status, 200, "{said}");
    said["free_bytes"].as_u64().expect("a size")
}

/// A blank volume of so long, of which something is kept.
fn growing(site: &Site, size: &str, keep: &[&str]) -> Value {
    site.run(&["volume", "delete", "cam"]).done();
    site.run(&["volume", "create", "cam", "--size", size])
        .done();
    site.json(&[&["recording", "keep", "cam"], keep].concat())
}

/// Sets a track up, when what has ended or changed has given its share of the disks back.
fn set_up(client: &mut Client, track: &str) {
    until("there is room on the disks", || {
        let said = client.ask("SETUP", track, TCP, "");
        assert!([200, 453].contains(&said.status), "{said:?}");
        said.status == 200
    });
}

/// A publisher of three blocks a second.
fn fast_publisher(address: SocketAddr) -> Client {
    publisher_of(address, 1_600)
}

fn publisher_of(address: SocketAddr, kbit: u64) -> Client {
    let mut client = Client::connect(address);
    client.ask("ANNOUNCE", "cam", SDP_TYPE, &sdp(kbit)).is(200);
    set_up(&mut client, "cam/one");
    client.ask("RECORD", "cam", "", "").is(200);
    client
}

fn fast_record(site: &Site, address: SocketAddr, packets: u16) {
    record_of(site, fast_publisher(address), packets);
}

/// A player that began when the volume was shorter plays the blocks that were added, without a gap. Unused
/// space goes back when it ends.
#[test]
fn a_volume_grows_while_it_is_recorded_and_played_and_is_trimmed_at_the_end() {
    let (site, server, address) = serving("");
    let kept = growing(&site, "1MiB", &["--grow-to", "30MiB", "--for", "1d"]);
    assert_eq!(kept["grow_to_bytes"], 30 * MIB);
    assert_eq!(kept["pool_free_bytes"], Value::Null);
    assert_eq!((numbers(&site), volume_mib(&site)), (vec![], 1));
    let packets = 46 * 60;
    let mut publisher = fast_publisher(address);
    let mut player = Client::connect(address);
    // The player's reservation covers the volume before it grows.
    send(&mut publisher, 0..46 * 4, 1);
    until("a block is written", || blocks(&site) > 0);
    set_up(&mut player, "cam/1/track0");
    let at_first = volume_mib(&site);
    let sending = std::thread::spawn(move || {
        send(&mut publisher, 46 * 4..packets, 1);
        publisher.ask("TEARDOWN", "cam", "", "").is(200);
    });
    player.ask("PLAY", "cam/1", "Range: npt=0-\r\n", "").is(200);
    let played = player.packets_on(0, usize::from(packets));
    sending.join().expect("all of it is taken");
    for (number, packet) in played.iter().enumerate() {
        assert_eq!(packet[12..], vec![number as u8; BODY], "packet {number}");
    }
    let at_last = volume_mib(&site);
    assert!(at_last > at_first, "{at_first} MiB, then {at_last}");
    // The volume shrinks to its limit when nobody needs the rest.
    player.ask("TEARDOWN", "cam/1", "", "").is(200);
    let used = (blocks(&site) + 1).div_ceil(16);
    assert!(used > at_first, "the player did not come so far");
    until("the rest is given back", || volume_mib(&site) == used);
    assert_eq!(blocks(&site), 60);
    // The next one has room before it begins.
    fast_record(&site, address, 46 * 20);
    let found = (numbers(&site), blocks(&site));
    // The last block of a group has less room.
    assert_eq!(found, (vec![1, 2], 81));
    drop(server);
    let (server, address) = serve(&site);
    assert_eq!((numbers(&site), blocks(&site)), found);
    plays(address, 1, packets);
    plays(address, 2, 46 * 20);
    server.terminate();
}

/// A ring that ends where it began, on the same disk, would take twice as much of that from every stream.
#[test]
fn ring_across_disks_is_trimmed() {
    let site = Site::new(3);
    // One to an extent, so that each is on the next disk.
    with_blocks_of(&site, "1MiB", "");
    site.run(&["pool", "create"]).done();
    let (server, address) = serve(&site);
    site.run(&["volume", "create", "cam", "--size", "12MiB"])
        .done();
    site.run(&["recording", "keep", "cam", "--grow-to", "60MiB"])
        .done();
    record_of(&site, publisher_of(address, 40_000), 746 * 13);
    let ring = blocks(&site).next_multiple_of(3);
    assert_ne!(ring, blocks(&site), "it is even as it is");
    until("the rest is given back", || volume_mib(&site) == ring + 1);
    // Other volumes get the space that they need.
    let free = format!("{}B", free_bytes(&site) + MIB);
    site.run(&["recording", "keep", "cam", "--free", &free])
        .done();
    until("that is given back", || volume_mib(&site) == ring);
    server.terminate();
}

#[test]
fn a_volume_that_is_as_long_as_it_may_be_goes_round() {
    let (site, server, address) = serving("");
    growing(&site, "640KiB", &["--grow-to", "2MiB"]);
    fast_record(&site, address, 46 * 20);
    fast_record(&site, address, 46 * 20);
    // The first of two is overwritten in part.
    assert_eq!((numbers(&site), blocks(&site)), (vec![1, 2], 31));
    assert_eq!(volume_mib(&site), 2);
    fast_record(&site, address, 46 * 20);
    assert_eq!((numbers(&site), blocks(&site)), (vec![2, 3], 31));
    // The volume may grow again, for a few of the oldest blocks, when the writer is at the end.
    site.run(&["recording", "keep", "cam", "--grow-to", "4MiB"])
        .done();
    (0..2).for_each(|_| fast_record(&site, address, 46 * 20));
    assert!(blocks(&site) > 31);
    let shown = site.run(&["recording", "keep", "cam"]).done();
    assert!(shown.out.contains("4 MiB"), "{shown:?}");
    drop(server);
    let (server, address) = serve(&site);
    let found = numbers(&site);
    assert!(found.ends_with(&[4, 5]), "{found:?}");
    plays(address, 5, 46 * 20);
    server.terminate();
}

#[test]
fn space_left_to_others_is_not_taken_and_is_given_back() {
    let (site, server, address) = serving("");
    growing(&site, "1MiB", &["--grow-to", "30MiB"]);
    let left = (free_bytes(&site) - MIB).to_string();
    let kept = site.json(&["recording", "keep", "cam", "--free", &left]);
    assert_eq!(kept["pool_free_bytes"].to_string(), left);
    fast_record(&site, address, 46 * 40);
    // A MiB more, and then it goes round.
    assert_eq!((volume_mib(&site), blocks(&site)), (2, 31));
    assert_eq!(free_bytes(&site).to_string(), left);
    site.run(&["recording", "delete", "cam", "1"]).done();

    // Space that was never used goes back at once, as much as is missing.
    growing(&site, "6MiB", &["--grow-to", "0"]);
    fast_record(&site, address, 46 * 20);
    let left = (free_bytes(&site) + 2 * MIB).to_string();
    site.run(&["recording", "keep", "cam", "--free", &left])
        .done();
    until("two are given back", || volume_mib(&site) == 4);
    assert_eq!(blocks(&site), 20);
    // While it is recorded the ring ends where there is enough, and goes round there.
    let mut publisher = fast_publisher(address);
    send(&mut publisher, 0..46 * 4, 1);
    until("blocks are written", || blocks(&site) > 21);
    let left = (free_bytes(&site) + 2 * MIB).to_string();
    site.run(&["recording", "keep", "cam", "--free", &left])
        .done();
    until("two more are given back", || volume_mib(&site) == 2);
    send(&mut publisher, 46 * 4..46 * 20, 1);
    publisher.ask("TEARDOWN", "cam", "", "").is(200);
    until("the recording is closed", || {
        recordings(&site)
            .iter()
            .all(|of| of["is_recorded"] == false)
    });
    assert_eq!((numbers(&site), blocks(&site)), (vec![1, 2], 31));
    plays(address, 2, 46 * 20);
    fast_record(&site, address, 46 * 14);
    // In a later round it does when the recording comes to where the ring ends then, and the oldest goes for it.
    let left = (free_bytes(&site) + MIB).to_string();
    site.run(&["recording", "keep", "cam", "--free", &left])
        .done();
    fast_record(&site, address, 46 * 50);
    assert_eq!(volume_mib(&site), 1);
    assert_eq!((numbers(&site), blocks(&site)), (vec![4], 15));
    let check = site.json(&["recording", "check", "cam", "4"]);
    assert_eq!(
        (&check["damaged"], &check["blocks"]),
        (&0.into(), &15.into())
    );
    server.terminate();
}

/// Whenever the server is killed, all that was flushed is there, and what comes next is.
#[test]
fn a_volume_that_grows_is_whole_after_it_is_killed() {
    let (site, mut server, mut address) = serving("");
    growing(&site, "640KiB", &["--grow-to", "30MiB"]);
    let mut there = Vec::new();
    for (round, at_least) in (1..).zip([8, 14, 60]) {
        let mut publisher = fast_publisher(address);
        let sending = std::thread::spawn(move || {
            // It ends with the server, and not before.
            for number in 0..46 * 90 {
                let body = vec![number as u8; BODY];
                let packet = rtp(number, u32::from(number), 7, &body);
                let [high, low] = (packet.len() as u16).to_be_bytes();
                let mut bytes = vec![b'$', 0, high, low];
                bytes.extend(packet);
                if publisher.socket.write_all(&bytes).is_err() {
                    break;
                }
            }
            publisher
        });
        let number = |of: &Value| of["number"].as_u64();
        let count = |site: &Site| {
            let all = recordings(site);
            let of = all.iter().find(|of| number(of) == Some(round));
            of.and_then(|of| of["blocks"].as_u64()).unwrap_or(0)
        };
        until("blocks are written", || count(&site) >= at_least);
        Wire::flush(&site.path("nbd.sock"), "cam");
        drop(server);
        drop(sending.join().expect("it ends"));
        (server, address) = serve(&site);
        there.push(round);
        assert_eq!(numbers(&site), there);
        let has = count(&site);
        assert!(has >= at_least, "round {round}: {has}");
        let mut packets = 0;
        for of in recordings(&site) {
            let number = of["number"].to_string();
            let check = site.json(&["recording", "check", "cam", &number]);
            assert_eq!(
                (&check["damaged"], &check["blocks"]),
                (&0.into(), &of["blocks"])
            );
            packets = check["packets"].as_u64().expect("a number");
        }
        plays(address, round, packets as u16);
    }
    server.terminate();
}

/// If its disk or the pool is full, the oldest recordings go, and the log says why.
#[test]
fn a_volume_that_is_refused_more_goes_round_and_says_why() {
    let site = Site::new(2);
    with_rtsp(&site, "");
    site.run(&["pool", "create"]).done();
    let (server, address) = serve_logged(&site);
    let create = |name: &str, size: &str, disk: &str| {
        let made = ["volume", "create", name, "--size", size, "--disk", disk];
        site.run(&made).code == 0
    };
    let fill = |disk: &str| {
        for size in ["16MiB", "4MiB", "1MiB"] {
            let name = |number: u32| format!("full-{disk}-{size}-{number}");
            (0..).find(|number| !create(&name(*number), size, disk));
        }
    };
    assert!(create("cam", "640KiB", "0"));
    // While somebody has reserved something on it, a volume grows on the disks that it has: this one is full.
    fill("0");
    let mut publisher = fast_publisher(address);
    send(&mut publisher, 0..46 * 4, 1);
    until("a block is written", || blocks(&site) > 1);
    site.run(&["recording", "keep", "cam", "--grow-to", "30MiB"])
        .done();
    send(&mut publisher, 46 * 4..46 * 30, 1);
    publisher.ask("TEARDOWN", "cam", "", "").is(200);
    // Its own extent at most.
    assert!([9, 15].contains(&blocks(&site)), "{}", blocks(&site));
    fill("1");
    fast_record(&site, address, 46 * 30);
    assert!([9, 15].contains(&blocks(&site)), "{}", blocks(&site));
    let found = site.json(&["recording", "check", "cam", "2"]);
    assert_eq!(
        (&found["lost"], &found["is_sound"]),
        (&0.into(), &true.into()),
        "{found}"
    );
    let (_, log) = server.terminate();
    let why = "cannot grow; the oldest blocks are overwritten volume=\"cam\" error=1 extents (1 MiB) are needed";
    assert!(log.contains(why), "{log}");
    assert!(log.contains("free on disk 0"), "{log}");
    assert!(
        log.contains("does not grow because the pool is full"),
        "{log}"
    );
}

#[test]
fn limits_that_make_no_sense_change_nothing() {
    let (site, server, _) = serving("");
    let before = site.json(&[
        "recording",
        "keep",
        "cam",
        "--grow-to",
        "50MiB",
        "--for",
        "9d",
    ]);
    for (more, words) in [
        (["--grow-to", "39MiB"], ["39 MiB is less", "volume shrink"]),
        (["--grow-to", "1TiB"], ["--grow-to", "the pool has"]),
        (["--free", "1TiB"], ["--free", "the pool has"]),
    ] {
        let keep = [&["recording", "keep", "cam", "--for", "1d"][..], &more].concat();
        site.run(&keep).fails(2, &words);
        assert_eq!(site.json(&["recording", "keep", "cam"]), before);
    }
    // At its present length, and without a limit.
    site.run(&["recording", "keep", "cam", "--grow-to", "40MiB"])
        .done();
    site.run(&["recording", "keep", "cam", "--grow-to", "0", "--free", "0"])
        .done();
    server.terminate();
}

#[test]
fn a_time_that_was_recorded_over_begins_with_what_is_there() {
    let (site, server, address) = serving("");
    site.run(&["volume", "delete", "cam"]).done();
    site.run(&["volume", "create", "cam", "--size", "640KiB"])
        .done();
    let mut client = publisher(address, TCP);
    send(&mut client, 0..1_000, 100);
    client.ask("TEARDOWN", "cam", "", "").is(200);
    until("the recording is closed", || {
        recordings(&site)
            .iter()
            .all(|of| of["is_recorded"] == false)
    });
    let shown = call(&site, "GET", "/v1/volumes/cam/recordings/1", "").1;
    let begins_ns = shown["begins_ns"].as_u64().expect("a number");
    assert!(begins_ns > 30_000_000_000, "{shown}");
    let mut player = Client::connect(address);
    let described = player.ask("DESCRIBE", "cam", "", "").is(200).body;
    let seconds = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    let range = format!("a=range:npt={}-", seconds(begins_ns));
    assert!(described.contains(&range), "{range}: {described}");
    player.ask("SETUP", "cam/track0", TCP, "").is(200);
    let begins = format!(
        "npt={}.{:03}-",
        begins_ns / 1_000_000_000,
        begins_ns / 1_000_000 % 1_000
    );
    for asked in ["npt=0-", "npt=0.5-", "npt=20-", "clock=19700101T000000Z-"] {
        let said = player.ask("PLAY", "cam", &format!("Range: {asked}\r\n"), "");
        let said = said.is(200);
        let range = said.header("Range").unwrap_or_default();
        assert!(
            range == begins || asked.starts_with("clock"),
            "{asked}: {range}"
        );
        player.packets.clear();
        assert!(!player.packets_on(0, 1).is_empty(), "{asked}");
        player.ask("PAUSE", "cam", "", "").is(200);
    }
    player.ask("TEARDOWN", "cam", "", "").is(200);
    server.terminate();
}

#[test]
fn bytes_are_not_recorded_over_recordings() {
    let (site, server, address) = serving("");
    record(&site, address, 120);
    let over = [
        "stream",
        "record",
        "--volume",
        "cam",
        "--rate",
        "100KB/s",
        "--block",
        "64KiB",
        "--seconds",
        "1",
        "--from",
        "/dev/zero",
    ];
    site.run(&over)
        .fails(1, &["holds recordings", "volume delete cam"]);
    // Also while one is made, and when all of them are gone: others may be made.
    let client = publisher(address, TCP);
    site.run(&over).fails(1, &["holds recordings"]);
    // A live recording is not destroyed by force either.
    let forced = [&over[..], &["--force"]].concat();
    site.run(&forced).fails(
        1,
        &[
            "RTSP sessions are recording or playing volume",
            "session list",
        ],
    );
    drop(client);
    until("the recording is closed", || {
        recordings(&site)
            .iter()
            .all(|of| of["is_recorded"] == false)
    });
    plays(address, 1, 120);
    site.run(&["recording", "delete", "cam", "1"]).done();
    site.run(&over)
        .fails(1, &["holds recordings (0 at present)", "--force"]);
    site.run(&["volume", "create", "bytes", "--size", "4MiB"])
        .done();
    let mut other = over;
    other[3] = "bytes";
    site.run(&other).done();
    until("nobody looks at the recordings any more", || {
        site.json(&["volume", "show", "cam"])["open_count"] == 0
    });
    // Its beginning, which makes it a volume of recordings, does not stay.
    let further = [&forced[..], &["--offset", "64KiB"]].concat();
    site.run(&further)
        .fails(1, &["--offset", "holds recordings", "from 64 KiB on"]);
    site.run(&forced).done();
    assert!(recordings(&site).is_empty());
    site.run(&further).done();
    server.terminate();
}

#[test]
fn live_recording_is_neither_cut_off_nor_released_by_retention() {
    let (site, server, address) = serving("");
    record(&site, address, 500);
    let all = blocks(&site);
    assert!(all > 5, "{all}");
    // The archive is as long as its volume, wherever its recordings lie.
    let size = volume_mib(&site) - 1;
    let ask = format!("{{\"size_bytes\":{}}}", size * MIB);
    let (status, problem) = call(&site, "PATCH", "/v1/volumes/cam", &ask);
    assert_eq!(status, 409, "{problem}");
    let what = problem["what"].as_str().unwrap_or_default();
    assert!(what.contains("holds recordings (1 at present)"), "{what}");
    // Five blocks of 64 KiB are kept, and the others would go.
    let lost = format!("{} KiB of the recordings", (all - 5) * 64);
    let keep = |more: &[&str]| site.run(&[&["recording", "keep", "cam"], more].concat());
    keep(&["--size", "320KiB"]).fails(1, &[&lost, "at once", "--force"]);
    assert_eq!(blocks(&site), all);
    keep(&["--for", "1d"]).done();
    keep(&["--size", "320KiB", "--force"]).done();
    assert_eq!(blocks(&site), 5);
    // Limits that hold already are no reason to refuse wider ones.
    keep(&["--size", "320KiB", "--for", "2d"]).done();
    server.terminate();
}

/// A client that has attached a blank volume is about to write to it.
#[test]
fn nothing_is_recorded_in_a_blank_volume_that_an_nbd_client_has_open() {
    let (site, server, address) = serving("");
    let client = Wire::simple(&site.path("nbd.sock"), "cam");
    let mut camera = Client::connect(address);
    let said = camera.ask("ANNOUNCE", "cam", SDP_TYPE, &sdp(800)).is(403);
    assert!(said.body.contains("in use through its export"), "{said:?}");
    drop(client);
    until("the client has gone", || {
        site.json(&["volume", "show", "cam"])["open_count"] == 0
    });
    camera.ask("ANNOUNCE", "cam", SDP_TYPE, &sdp(800)).is(200);
    server.terminate();
}
