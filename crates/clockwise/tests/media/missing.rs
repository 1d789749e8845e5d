//! Every packet that is not in a recording is counted, and the log says which they are and why.

use testkit::rtsp::sized::{number, sessions};
use testkit::rtsp::udp::Publisher;
use testkit::rtsp::{TCP, lines, logged, publisher, reservations, rtp, serving_logged};
use testkit::site::{Serve, Site};
use testkit::until;

/// Checks that the log says all of this of packets that are missing, as often each; all of the log.
#[track_caller]
fn tells(serve: Serve, said: &[&str], times: usize) -> String {
    let (_, log) = serve.terminate();
    let told = lines(&log, "packets are missing").join("\n");
    for said in said {
        let count = told.matches(said).count();
        assert!(count > 0 && count.is_multiple_of(times), "{said}: {log}");
    }
    log
}

/// Checks the numbers of packets in a recording and of missing ones.
#[track_caller]
fn has(site: &Site, recording: &str, packets: u64, lost: u64) {
    let found = site.json(&["recording", "check", "cam", recording]);
    let has = (number(&found, "packets"), number(&found, "lost"));
    assert_eq!(has, (packets, lost), "{found}");
}

/// An outage of thousands of packets is one as long as time goes on with the numbers; a sender that begins
/// anew is none.
#[test]
fn numbers_that_jump_are_of_packets_that_are_missing_if_time_says_so() {
    let (site, serve, address) = serving_logged("");
    let mut client = publisher(address, TCP);
    let mut send = |sequence, timestamp| {
        let body = u32::from(sequence).to_be_bytes();
        client.packet(0, &rtp(sequence, timestamp, 7, &body));
    };
    (65_530..=65_535).for_each(|number| send(number, u32::from(number)));
    // Six seconds later.
    send(8_000, 71_535);
    send(8_001, 71_536);
    // Before that.
    send(7_000, 70_535);
    // So long after it that numbers tell of no loss.
    send(8_003, 71_538);
    // Something else.
    send(40_000, 4_000_000_000);
    send(40_001, 4_000_000_001);
    client.ask("TEARDOWN", "cam", "", "").is(200);
    has(&site, "1", 12, 8_001);
    let said = [
        "track 0: 0 to 6999 at ",
        "track 0: 7001 to 7999 at ",
        "track 0: 8002 to 8002 at ",
        "s: not received",
        "track 0: 8004 to 39999 at ",
        "s: not counted: the sender restarted its sequence numbers",
    ];
    let log = tells(serve, &said, 1);
    assert!(log.contains(" lost=8001 lost_without_buffer=0 "), "{log}");
}

/// A packet that came and cannot be recorded is not reported as lost on its way.
#[test]
fn packets_that_are_too_long_or_none_are_said_to_be_that() {
    let (site, serve, address) = serving_logged("");
    // Longer than a block of 64 KiB has room for.
    let long = vec![1; 65_535 - 12 - 28];
    let none = |sequence| {
        let mut packet = rtp(sequence, 3, 7, &[250; 40]);
        // More contributing sources than it has bytes.
        packet[0] |= 15;
        packet
    };
    let packets = [
        rtp(1, 1, 7, b"one"),
        rtp(2, 2, 7, &long),
        none(3),
        // Lost on its way, and then another one.
        none(5),
        rtp(6, 6, 7, b"six"),
        rtp(7, 7, 7, b"seven"),
        // Numbers begin anew with it.
        none(30_000),
        // Somebody else's says nothing of that.
        rtp(1, 1, 8, b"who"),
        rtp(30_001, 8, 7, b"more"),
    ];
    for (recording, by_udp) in [("1", false), ("2", true)] {
        let mut source = Publisher::new(address, 800, by_udp);
        packets.iter().for_each(|packet| source.packet(packet));
        source.client.ask("TEARDOWN", "cam", "", "").is(200);
        until("the reservation is given back", || reservations(&site) == 0);
        has(&site, recording, 4, 5);
    }
    let said = [
        "track 0: 2 to 2 at ",
        "s: too long for a block",
        "track 0: 3 to 3 at ",
        "track 0: 5 to 5 at ",
        "s: not RTP packets",
        "track 0: 8 to 29999 at ",
        "track 0: 30000 to 30000 at ",
        "track 0: 4 to 4 at ",
        "s: not received",
    ];
    let log = tells(serve, &said, 2);
    assert_eq!(log.matches(" too_long=1 ").count(), 2, "{log}");
}

/// Packets that the kernel dropped are reported as that, also if none came behind them.
#[test]
fn packets_that_a_socket_has_no_room_for_are_counted_and_named() {
    let (site, serve, address) = serving_logged("");
    let mut source = Publisher::new(address, 80, true);
    let mut sent = 0_u64;
    let mut send = |count: u64, source: &mut Publisher| {
        for number in sent..sent + count {
            source.packet(&rtp(number as u16, (number * 9) as u32, 7, &[7; 100]));
        }
        sent += count;
    };
    // More than the kernel has room for, while nobody receives: more than are missing where numbers begin anew.
    serve.stop();
    send(30_000, &mut source);
    serve.go_on();
    // The first that there is room for shows the gap, and that what lay before it is received.
    until("it is known what is missing", || {
        send(1, &mut source);
        number(&sessions(&site)[0], "lost") > 0
    });
    send(50, &mut source);
    serve.stop();
    send(13_000, &mut source);
    serve.go_on();
    source.client.ask("TEARDOWN", "cam", "", "").is(200);
    let (_, log) = serve.terminate();
    let tally = lines(&log, "a recording ended").remove(0);
    let lost = logged(tally, "lost");
    assert!(lost > 1_000, "{log}");
    assert_eq!(logged(tally, "packets") + lost, sent, "{log}");
    assert_eq!(logged(tally, "lost_without_buffer"), 0, "{log}");
    let mut told = 0;
    for line in lines(&log, "packets are missing") {
        for range in line.split("track 0: ").skip(1) {
            assert!(range.contains("the socket was full"), "{log}");
            let (first, last) = range.split_once(" to ").unwrap();
            let last = last.split_whitespace().next().unwrap();
            told += 1 + last.parse::<u64>().unwrap() - first.parse::<u64>().unwrap();
        }
    }
    assert_eq!(told, lost, "{log}");
    assert!(log.contains(&format!(" to {} at ", sent - 1)), "{log}");
}
