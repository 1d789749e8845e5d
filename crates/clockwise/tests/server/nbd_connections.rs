//! Connections to the NBD server: how they begin and end, how many there may be, and that one that breaks
//! is nobody else's trouble.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::served::Rig;
use clockwise::exports::nbd::NbdConfig;
use sched::units::Bytes;
use testkit::nbd::{Wire, cmd};
use testkit::{pattern, until};

const MIB: u64 = 1 << 20;

/// A connection that is served, after whatever came before it.
fn check_served(rig: &Rig, data: &[u8]) {
    let mut wire = Wire::structured(&rig.socket, "v");
    assert!(wire.read_range(0, data.len() as u32) == data);
}

fn filled(rig: &Rig) -> Vec<u8> {
    let data = pattern(4, 1 << 20);
    assert_eq!(
        Wire::structured(&rig.socket, "v")
            .write(cmd::FUA, 0, &data)
            .error,
        0
    );
    data
}

#[test]
fn garbage_ends_a_connection_and_nothing_else() {
    let rig = Rig::new(&[("v", 8)]);
    let data = filled(&rig);
    for seed in 0..50 {
        let mut stream = UnixStream::connect(&rig.socket).unwrap();
        // The server may hang up before all of it is sent.
        let _ = stream.write_all(&pattern(seed, 4000));
    }
    for seed in 0..50 {
        let mut wire = Wire::structured(&rig.socket, "v");
        let _ = wire.stream.write_all(&pattern(seed, 4000));
        assert!(wire.is_closed());
    }
    check_served(&rig, &data);
    assert!(rig.server().status().broken >= 50);
}

#[test]
fn enormous_lengths_end_a_connection_and_nothing_else() {
    let rig = Rig::new(&[("v", 8)]);
    let data = filled(&rig);
    let mut wire = Wire::structured(&rig.socket, "v");
    wire.request(cmd::WRITE, 0, 1, 0, u32::MAX - 511);
    // The client may get a reason before the connection ends. It must end, and not by a timeout.
    let mut rest = Vec::new();
    let ended = wire.stream.read_to_end(&mut rest);
    let failed = ended.as_ref().err().map(std::io::Error::kind);
    assert!(
        matches!(failed, None | Some(ErrorKind::ConnectionReset)),
        "{ended:?}"
    );
    let mut wire = Wire::connect(&rig.socket);
    wire.send(b"IHAVEOPT\x00\x00\x00\x07\xff\xff\xff\xff");
    assert!(wire.is_closed());
    check_served(&rig, &data);
}

#[test]
fn a_client_that_vanishes_leaves_nothing_behind() {
    let rig = Rig::new(&[("v", 64)]);
    let data = filled(&rig);
    for round in 0..200u64 {
        let mut wire = Wire::structured(&rig.socket, "v");
        match round % 4 {
            // Half a header.
            0 => wire.send(&Wire::header(cmd::READ, 0, 1, 0, 512)[..13]),
            // In the middle of a payload.
            1 => {
                wire.request(cmd::WRITE, 0, 1, 8 * MIB, 1 << 20);
                wire.send(&pattern(1, 70_000));
            }
            // With replies that nobody takes.
            2 => {
                for cookie in 0..20 {
                    wire.request(cmd::READ, 0, cookie, 0, 1 << 20);
                }
            }
            // With writes in flight.
            _ => {
                wire.request(cmd::WRITE, cmd::FUA, 1, 16 * MIB, 4096);
                wire.send(&pattern(2, 4096));
                wire.request(cmd::FLUSH, 0, 2, 0, 0);
            }
        }
    }
    check_served(&rig, &data);
    wait_for_connections(&rig, 0);
    let users = rig.pool.volume_info("v").unwrap().open_count;
    assert_eq!(users, 0, "the volume is still open");
}

/// Waits until the server has this many connections.
fn wait_for_connections(rig: &Rig, count: u64) {
    let what = format!("{count} connections, which the server has yet to notice");
    until(&what, || rig.server().status().connections == count);
}

#[test]
fn disconnecting_ends_a_connection_after_its_replies() {
    let rig = Rig::new(&[("v", 8)]);
    let mut wire = Wire::structured(&rig.socket, "v");
    for cookie in 0..8 {
        wire.request(cmd::READ, 0, cookie, cookie * 4096, 4096);
    }
    wire.request(cmd::DISC, 0, 9, 0, 0);
    let mut cookies: Vec<u64> = (0..8).map(|_| wire.structured_reply().cookie).collect();
    cookies.sort_unstable();
    assert_eq!(cookies, (0..8).collect::<Vec<_>>());
    assert!(wire.is_closed());
}

/// Opens half a thousand connections that say nothing and as many that are idle on `v`, and checks that others
/// are served meanwhile, by the other way in as well.
fn a_thousand_do_not_keep_others_out<A: Read, B>(
    rig: &Rig,
    data: &[u8],
    half_open: impl Fn() -> A,
    idle: impl Fn() -> B,
) {
    let mut half_open: Vec<_> = (0..500).map(|_| half_open()).collect();
    let idle: Vec<_> = (0..500).map(|_| idle()).collect();
    for silent in &mut half_open {
        let mut greeting = [0; 8];
        silent.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting, b"NBDMAGIC");
    }
    wait_for_connections(rig, 1_000);
    check_served(rig, data);
    let mut by_tcp = Wire::structured_by_tcp(rig.tcp, "v");
    assert!(by_tcp.read_range(0, data.len() as u32) == data);
    assert_eq!(rig.server().status().refused, 0);
    drop((half_open, idle, by_tcp));
    wait_for_connections(rig, 0);
}

#[test]
fn a_thousand_connections_do_not_keep_another_from_being_served() {
    // However long a slow machine takes for so many, those that say nothing stay.
    let config = NbdConfig {
        handshake_within: Duration::from_secs(600),
        ..NbdConfig::default()
    };
    let rig = Rig::with(&[("v", 8)], config, Bytes::from_mib(256));
    let data = filled(&rig);
    let (socket, tcp) = (&rig.socket, rig.tcp);
    a_thousand_do_not_keep_others_out(
        &rig,
        &data,
        || UnixStream::connect(socket).unwrap(),
        || Wire::structured(socket, "v"),
    );
    a_thousand_do_not_keep_others_out(
        &rig,
        &data,
        || TcpStream::connect(tcp).unwrap(),
        || Wire::structured_by_tcp(tcp, "v"),
    );
}

#[test]
fn one_connection_too_many_is_told_so() {
    let config = NbdConfig {
        connections_max: 4,
        ..NbdConfig::default()
    };
    let rig = Rig::with(&[("v", 8)], config, Bytes::from_mib(256));
    let mut served: Vec<_> = (0..4).map(|_| Wire::structured(&rig.socket, "v")).collect();
    let mut late = Wire::connect(&rig.socket);
    late.option(7, &[0, 0, 0, 1, b'v', 0, 0]);
    let (option, kind, text) = late.option_reply();
    assert_eq!((option, kind), (7, (1 << 31) | 2));
    assert!(String::from_utf8(text).unwrap().contains("4 connections"));
    assert_eq!(served[3].read_range(0, 512), [0; 512]);
    assert_eq!(rig.server().status().refused, 1);
    drop((late, served));
    wait_for_connections(&rig, 0);
    Wire::structured(&rig.socket, "v");
}

#[test]
fn a_handshake_that_takes_too_long_is_ended() {
    let config = NbdConfig {
        handshake_within: Duration::from_millis(100),
        ..NbdConfig::default()
    };
    let rig = Rig::with(&[("v", 8)], config, Bytes::from_mib(256));
    let mut slow = Wire::connect(&rig.socket);
    slow.send(b"IHAVE");
    assert!(slow.is_closed());
    assert_eq!(rig.server().status().broken, 1);
}

#[test]
fn shutting_down_answers_what_is_in_flight() {
    let mut rig = Rig::new(&[("v", 8)]);
    let mut wire = Wire::structured(&rig.socket, "v");
    let data = pattern(1, 1 << 20);
    // The reply to the read says that the server has begun with what came before.
    wire.request(cmd::WRITE, 0, 1, 0, 1 << 20);
    wire.send(&data);
    wire.request(cmd::READ, 0, 2, 4 * MIB, 512);
    let mut cookies = vec![wire.structured_reply().cookie];
    rig.shutdown();
    cookies.push(wire.structured_reply().cookie);
    cookies.sort_unstable();
    assert_eq!(cookies, [1, 2]);
    assert!(wire.is_closed());
    assert!(!rig.socket.exists());
    let rig = rig.restart();
    assert!(Wire::structured(&rig.socket, "v").read_range(0, 1 << 20) == data);
}

/// Questions of a client about one volume, as `nbdinfo --list` sends them: three options.
fn questions(volume: &str) -> Vec<u8> {
    let name = [&(volume.len() as u32).to_be_bytes(), volume.as_bytes()].concat();
    let option = |code: u32, rest: &[u8]| {
        let length = (name.len() + rest.len()) as u32;
        let head = [&b"IHAVEOPT"[..], &code.to_be_bytes(), &length.to_be_bytes()].concat();
        [&head, &name, rest].concat()
    };
    let context = [&[0, 0, 0, 1, 0, 0, 0, 15], &b"base:allocation"[..]].concat();
    [
        option(10, &context),
        option(6, &[0, 1, 0, 3]),
        option(9, &[0, 0, 0, 0]),
    ]
    .concat()
}

/// Takes the replies to as many options.
fn take_acknowledgements(wire: &mut Wire, mut count: usize) {
    while count > 0 {
        let (option, kind, data) = wire.option_reply();
        assert!(
            kind < 1 << 31,
            "option {option}: {}",
            String::from_utf8_lossy(&data)
        );
        count -= usize::from(kind == 1);
    }
}

#[test]
fn a_client_may_ask_about_thousands_of_volumes_in_one_handshake() {
    let rig = Rig::new(&[("v", 8)]);
    let mut wire = Wire::connect(&rig.socket);
    wire.option(8, &[]);
    wire.option(3, &[]);
    take_acknowledgements(&mut wire, 2);
    for _ in 0..8_192 / 64 {
        wire.send(&questions("v").repeat(64));
        take_acknowledgements(&mut wire, 3 * 64);
    }
    wire.try_go("v").unwrap();
    assert_eq!(wire.read_range(0, 512), [0; 512]);
    assert_eq!(rig.server().status().broken, 0);
}

#[test]
fn a_handshake_may_go_on_for_as_long_as_it_goes_on() {
    let within = Duration::from_secs(2);
    let config = NbdConfig {
        handshake_within: within,
        ..NbdConfig::default()
    };
    let rig = Rig::with(&[("v", 8)], config, Bytes::from_mib(256));
    let mut wire = Wire::connect(&rig.socket);
    wire.option(8, &[]);
    take_acknowledgements(&mut wire, 1);
    let begun = Instant::now();
    while begun.elapsed() < within + within / 4 {
        wire.send(&questions("v"));
        take_acknowledgements(&mut wire, 3);
    }
    wire.try_go("v").unwrap();
    assert_eq!(rig.server().status().broken, 0);
}
