//! Packets of whatever shape come back as they were sent, to the last bit of their headers.

use testkit::rtsp::udp::{Pair, Publisher};
use testkit::rtsp::{Client, played, reservations, rtp, serving};
use testkit::until;

/// Bytes of the sequence number and the timestamp of a packet.
const NUMBERED: std::ops::Range<usize> = 2..8;

const MARKER: u8 = 0x80;
const PADDED: u8 = 0x20;
const EXTENDED: u8 = 0x10;

/// Packets of all shapes that RFC 3550, section 5.1, and RFC 8285 know, and of two payload types.
fn shapes() -> Vec<Vec<u8>> {
    let sources = [[0, 0, 0, 1], [0xff; 4]].concat();
    // One-byte headers as of RFC 8285, two words of them.
    let extension = [0xbe, 0xde, 0, 2, 0x10, 0xaa, 0x22, 1, 2, 3, 0, 0];
    // A time of ONVIF's, three words.
    let onvif = [
        0xab, 0xac, 0, 3, 1, 2, 3, 4, 5, 6, 7, 8, 0x80, 9, 0xff, 0xff,
    ];
    let padding = [0, 0, 0, 4];
    let body = [7; 300];
    let all = [&sources[..], &onvif, &body, &padding].concat();
    let shapes: [(u8, u8, Vec<u8>); 8] = [
        (0, 96, body.to_vec()),
        (0, MARKER | 96, body.to_vec()),
        (0, 97, body.to_vec()),
        (2, 96, [&sources[..], &body].concat()),
        (EXTENDED, 96, [&extension[..], &body].concat()),
        (PADDED, 96, [&body[..], &padding].concat()),
        (PADDED | EXTENDED | 2, MARKER | 127, all),
        // Nothing but padding, as servers probe with.
        (PADDED, 96, vec![0, 0, 0, 4]),
    ];
    let shapes = (0..).zip(shapes);
    let packets = shapes.map(|(number, (first, second, rest))| {
        let mut packet = rtp(number, 40 * u32::from(number), 7, &rest);
        packet[0] |= first;
        packet[1] = second;
        packet
    });
    packets.collect()
}

#[test]
fn packets_of_any_shape_are_played_as_they_came() {
    let (site, serve, address) = serving("");
    let sent = shapes();
    for by_udp in [false, true] {
        let mut source = Publisher::new(address, 800, by_udp);
        sent.iter().for_each(|packet| source.packet(packet));
        source.client.ask("TEARDOWN", "cam", "", "").is(200);
        until("the reservation is given back", || reservations(&site) == 0);
        let check = site.json(&["recording", "check", "cam", if by_udp { "2" } else { "1" }]);
        assert_eq!(
            (&check["packets"], &check["lost"]),
            (&sent.len().into(), &0.into()),
            "{check}"
        );
        assert_eq!(played(address, "cam", "", sent.len()), sent);
        // At another Scale they have other numbers and times, and nothing else.
        let slower = played(address, "cam", "Scale: 0.5\r\n", sent.len());
        assert_eq!(slower.len(), sent.len());
        for (came, sent) in slower.iter().zip(&sent) {
            assert_eq!(came[..NUMBERED.start], sent[..NUMBERED.start]);
            assert_eq!(came[NUMBERED.end..], sent[NUMBERED.end..]);
        }
        let pair = Pair::new();
        let mut player = Client::connect(address);
        let transport = pair.transport();
        let said = player.ask("SETUP", "cam/track0", &transport, "").is(200);
        pair.agreed(address, &said);
        player.ask("PLAY", "cam", "", "").is(200);
        let mut bytes = [0; 2_000];
        for packet in &sent {
            assert_eq!(pair.receive(&mut bytes), Some(&packet[..]));
        }
    }
    serve.terminate();
}
