//! Blocks of the disks that become longer and shorter while they are recorded and played.

use testkit::rtsp::sized::{BLOCK, PACKETS_IN_BLOCK, number, packets, publisher, sessions, whole};
use testkit::rtsp::{Client, TCP, reservations, serving};
use testkit::site::{Site, call};
use testkit::until;

const TYPE: &str = "Content-Type: text/parameters\r\n";

/// The reserved rate, as the session is told.
fn reserved(client: &mut Client) -> String {
    let said = client.ask("GET_PARAMETER", "cam", TYPE, "block\r\nbuffers\r\n");
    said.is(200).body
}

fn set(client: &mut Client, blocks: u64) {
    let text = format!("block: {}\r\n", blocks * BLOCK);
    client.ask("SET_PARAMETER", "cam", TYPE, &text).is(200);
}

/// The only session, and its number.
fn only(site: &Site) -> (serde_json::Value, String) {
    let of = sessions(site).remove(0);
    let name = number(&of, "number").to_string();
    (of, name)
}

#[test]
fn blocks_become_longer_and_shorter_while_packets_go_on() {
    let (site, serve, address) = serving("");
    let mut client = publisher(address, 4_000);
    assert_eq!(reserved(&mut client), "block: 65536\r\nbuffers: 4\r\n");
    for (text, status, because) in [
        ("block: 5\r\n", 400, "must be a multiple of 64 KiB"),
        ("block: much\r\n", 400, "`block` must be a number of bytes"),
        ("block: 196608\r\n", 400, "divide the extent size"),
        (
            "block: 1048576\r\nbuffers: 63\r\n",
            400,
            "two blocks of 1 MiB",
        ),
        ("block: 262144\r\nrate: 900000000\r\n", 453, "would fit"),
    ] {
        let said = client.ask("SET_PARAMETER", "cam", TYPE, text).is(status);
        assert!(said.body.contains(because), "{text}: {said:?}");
        assert_eq!(reserved(&mut client), "block: 65536\r\nbuffers: 4\r\n");
    }
    // With four blocks of the volume each, there are fewer blocks.
    set(&mut client, 4);
    assert_eq!(reserved(&mut client), "block: 262144\r\nbuffers: 16\r\n");
    let sent = packets(0, 44, 0, 140);
    let (first, rest) = sent.split_at(24 * PACKETS_IN_BLOCK as usize);
    first.iter().for_each(|packet| client.packet(0, packet));
    until("what is full is written", || {
        let (of, _) = only(&site);
        number(&of, "blocks") >= 5
    });
    let (of, session) = only(&site);
    assert!(number(&of, "blocks") <= 7, "{of}");
    assert_eq!(number(&of, "block_bytes"), 4 * BLOCK);
    assert_eq!(number(&of, "buffer_bytes"), BLOCK);
    // Requests meanwhile change nothing, however many there are.
    for (turn, packet) in rest.iter().enumerate() {
        client.packet(0, packet);
        match turn % 200 {
            50 => set(&mut client, 2),
            100 => {
                let shown = site
                    .run(&["session", "set", &session, "--block", "512KiB"])
                    .done();
                assert!(shown.out.contains("of 512 KiB"), "{shown:?}");
            }
            150 => {
                let path = format!("/v1/sessions/{session}");
                let ask = r#"{"block_bytes": 65536, "buffers": 4}"#;
                let (status, of) = call(&site, "PATCH", &path, ask);
                assert_eq!((status, number(&of, "buffers")), (200, 4), "{of}");
            }
            _ => {}
        }
    }
    let (of, _) = only(&site);
    assert_eq!(number(&of, "misses"), 0, "{of}");
    client.ask("TEARDOWN", "cam", "", "").is(200);
    whole(&site, sent.len());
    until("the reservation is given back", || reservations(&site) == 0);

    // Played in blocks of another size, from anywhere on, and others while it is played.
    for (blocks, from) in [(2, 7), (4, 13), (8, 1), (16, 18)] {
        let mut player = Client::connect(address);
        until("there is room for another player", || {
            player.ask("SETUP", "cam/track0", TCP, "").status == 200
        });
        set(&mut player, blocks);
        let at_ms = from * 140;
        let range = format!("Range: npt={}.{:03}-\r\n", at_ms / 1_000, at_ms % 1_000);
        player.ask("PLAY", "cam", &range, "").is(200);
        let came = player.packets_on(0, 200);
        // The first recorded packet depends on the time of the first packet after RECORD.
        let begins = sent.iter().position(|packet| *packet == came[0]);
        let begins = begins.expect("it is one that was sent");
        assert!(
            begins <= (from * PACKETS_IN_BLOCK) as usize,
            "{from}: {begins}"
        );
        set(&mut player, 4);
        player.packets_on(0, 800);
        set(&mut player, 1);
        let came = player.packets_on(0, sent.len() - begins);
        assert!(came == sent[begins..], "blocks of {blocks} from {from}");
        let (of, _) = only(&site);
        assert_eq!((number(&of, "misses"), number(&of, "lost")), (0, 0), "{of}");
        player.ask("TEARDOWN", "cam", "", "").is(200);
    }
    serve.terminate();
}

/// Blocks that are to become longer wait until enough is read for that, unless nothing is played any more.
#[test]
fn player_is_read_ahead_for_and_may_pause_meanwhile() {
    let (site, serve, address) = serving("");
    let mut client = publisher(address, 4_000);
    let sent = packets(0, 44, 0, 140);
    sent.iter().for_each(|packet| client.packet(0, packet));
    client.ask("TEARDOWN", "cam", "", "").is(200);
    whole(&site, sent.len());
    until("the reservation is given back", || reservations(&site) == 0);

    let mut player = Client::connect(address);
    player.ask("SETUP", "cam/track0", TCP, "").is(200);
    let (of, _) = only(&site);
    let rate = number(&of, "rate_bytes_per_second");
    player.ask("PLAY", "cam", "", "").is(200);
    player.packets_on(0, 200);
    let text = format!("block: {}\r\n", 16 * BLOCK);
    let set = player.request("SET_PARAMETER", "cam", TYPE, &text);
    player.send(set.as_bytes());
    until("it is read faster, or has been", || {
        let (of, _) = only(&site);
        let is_longer = number(&of, "block_bytes") > BLOCK;
        is_longer || number(&of, "rate_bytes_per_second") > rate
    });
    let pause = player.request("PAUSE", "cam", "", "");
    player.send(pause.as_bytes());
    for _ in ["SET_PARAMETER", "PAUSE"] {
        player.answer().expect("an answer").is(200);
    }
    let (of, _) = only(&site);
    assert_eq!(number(&of, "block_bytes"), 16 * BLOCK, "{of}");
    assert_eq!(number(&of, "rate_bytes_per_second"), rate, "{of}");
    player.ask("PLAY", "cam", "", "").is(200);
    let came = player.packets_on(0, sent.len());
    assert!(came == sent, "{} of {}", came.len(), sent.len());
    // The disk is a file, so the host may make a block late.
    let (of, _) = only(&site);
    assert_eq!(number(&of, "lost"), 0, "{of}");
    player.ask("TEARDOWN", "cam", "", "").is(200);
    serve.terminate();
}
