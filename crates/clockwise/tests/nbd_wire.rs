//! The NBD server at the level of bytes: what clients may ask, and what broken ones do.

mod nbd_support;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use clockwise::export::nbd::NbdConfig;
use nbd_support::{Reply, Rig, Wire, cmd, pattern};
use sched::units::Bytes;

const MIB: u64 = 1 << 20;

const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;

#[test]
fn what_is_written_is_read_back_in_every_size_and_reply_form() {
    let rig = Rig::new(&[("v", 96)]);
    let mut wire = Wire::structured(&rig.socket, "v");
    // A sector, a page, across an extent, several parts, the most there may be.
    for (number, length) in [512, 4096, 3 << 20, (5 << 20) + 512, 32 << 20]
        .into_iter()
        .enumerate()
    {
        let offset = number as u64 * 512 + MIB;
        let data = pattern(number as u64, length);
        let flags = if number % 2 == 0 { 0 } else { cmd::FUA };
        assert_eq!(wire.write(flags, offset, &data).error, 0);
        assert!(
            wire.read_range(offset, length as u32) == data,
            "{length} bytes"
        );
        let whole = wire.ask(cmd::READ, cmd::DF, offset, length as u32);
        assert!(
            whole.data == [(offset, data.clone())],
            "{length} bytes unfragmented"
        );
        let mut simple = Wire::simple(&rig.socket, "v");
        simple.request(cmd::READ, 0, 5, offset, length as u32);
        let reply = simple.simple_reply(length);
        assert!(
            reply.cookie == 5 && reply.data[0].1 == data,
            "{length} bytes, simple"
        );
    }
}

#[test]
fn what_was_flushed_or_forced_is_there_after_a_restart() {
    let rig = Rig::new(&[("a", 8), ("b", 8)]);
    let mut a = Wire::structured(&rig.socket, "a");
    let mut other = Wire::structured(&rig.socket, "a");
    let mut b = Wire::structured(&rig.socket, "b");
    let (first, second, forced) = (pattern(1, 65536), pattern(2, 2 << 20), pattern(3, 3 << 20));
    assert_eq!(a.write(0, 0, &first).error, 0);
    assert_eq!(other.write(0, 4 * MIB, &second).error, 0);
    // A flush on one connection covers what was answered on another.
    assert_eq!(a.ask(cmd::FLUSH, 0, 0, 0).error, 0);
    assert_eq!(b.write(cmd::FUA, MIB, &forced).error, 0);
    let rig = rig.restart();
    let mut a = Wire::structured(&rig.socket, "a");
    assert!(a.read_range(0, 65536) == first);
    assert!(a.read_range(4 * MIB, 2 << 20) == second);
    assert!(Wire::structured(&rig.socket, "b").read_range(MIB, 3 << 20) == forced);
}

#[test]
fn requests_are_pipelined_and_every_one_is_answered_once() {
    let rig = Rig::new(&[("v", 64)]);
    let mut wire = Wire::structured(&rig.socket, "v");
    let count = 1000u64;
    let mut sent = Vec::new();
    for cookie in 0..count {
        let data = pattern(cookie, 4096);
        sent.extend(Wire::header(cmd::WRITE, 0, cookie, cookie * 8192, 4096));
        sent.extend(data);
    }
    let mut writer = wire.stream.try_clone().unwrap();
    let thread = std::thread::spawn(move || writer.write_all(&sent).unwrap());
    let mut seen = vec![false; count as usize];
    for _ in 0..count {
        let reply = wire.structured_reply();
        assert_eq!(reply.error, 0);
        assert!(!std::mem::replace(&mut seen[reply.cookie as usize], true));
    }
    thread.join().unwrap();
    let requests: Vec<u8> = (0..count)
        .flat_map(|c| Wire::header(cmd::READ, 0, c, c * 8192, 4096))
        .collect();
    let mut writer = wire.stream.try_clone().unwrap();
    let thread = std::thread::spawn(move || writer.write_all(&requests).unwrap());
    for _ in 0..count {
        let reply = wire.structured_reply();
        assert!(reply.data == [(reply.cookie * 8192, pattern(reply.cookie, 4096))]);
        assert!(std::mem::replace(&mut seen[reply.cookie as usize], false));
    }
    thread.join().unwrap();
    assert!(rig.server().status().requests >= 2 * count);
}

#[test]
fn a_client_that_changes_its_mind_in_the_middle_is_understood() {
    let rig = Rig::new(&[("v", 64)]);
    let mut wire = Wire::structured(&rig.socket, "v");
    // Runs of small writes, which the server foresees, broken off by everything else, in one stream
    // that arrives in pieces of all sizes.
    let mut stream = Vec::new();
    let mut expected = vec![0; 4 << 20];
    let mut cookies = 0;
    let mut random = pattern(77, 4096).into_iter().cycle();
    let mut next = move || usize::from(random.next().unwrap());
    for round in 0..40u64 {
        let size = [512, 4096, 4096, 8192][round as usize % 4];
        for _ in 0..next() % 24 {
            let at = (next() * 256 + next()) * 512 % (expected.len() - size) / 8192 * 8192;
            let data = pattern(cookies, size);
            // Writes in flight may overtake each other: each place is written once.
            if expected[at..at + 8192].iter().all(|byte| *byte == 0) {
                stream.extend(Wire::header(cmd::WRITE, 0, cookies, at as u64, size as u32));
                stream.extend(&data);
                expected[at..at + size].copy_from_slice(&data);
                cookies += 1;
            }
        }
        for _ in 0..next() % 3 {
            match next() % 4 {
                0 => stream.extend(Wire::header(cmd::READ, 0, cookies, 32 << 20, 4096)),
                1 => stream.extend(Wire::header(cmd::FLUSH, 0, cookies, 0, 0)),
                // Refused, with a payload of the foreseen size.
                2 => {
                    stream.extend(Wire::header(cmd::WRITE, 0, cookies, 1, size as u32));
                    stream.extend(vec![9; size]);
                }
                _ => {
                    stream.extend(Wire::header(cmd::WRITE, 0, cookies, 40 << 20, 100 * 512));
                    stream.extend(pattern(1, 100 * 512));
                }
            }
            cookies += 1;
        }
    }
    let mut writer = wire.stream.try_clone().unwrap();
    let thread = std::thread::spawn(move || {
        let mut rest = &stream[..];
        while !rest.is_empty() {
            let count = (1 + next() * next() % 40_000).min(rest.len());
            writer.write_all(&rest[..count]).unwrap();
            rest = &rest[count..];
        }
    });
    let mut seen = vec![false; cookies as usize];
    for _ in 0..cookies {
        let reply = wire.structured_reply();
        assert!(!std::mem::replace(&mut seen[reply.cookie as usize], true));
    }
    thread.join().unwrap();
    assert!(wire.read_range(0, expected.len() as u32) == expected);
}

/// What the runs of a block status reply say of each sector.
fn holes(reply: &Reply) -> Vec<bool> {
    assert_eq!(reply.error, 0, "{}", reply.text);
    let runs = reply.status.iter();
    runs.flat_map(|&(length, state)| {
        assert!(state == 0 || state == 3, "state {state}");
        std::iter::repeat_n(state == 3, length as usize / 512)
    })
    .collect()
}

#[test]
fn holes_are_told_and_zeros_are_zeros() {
    let rig = Rig::new(&[("v", 16)]);
    let mut wire = Wire::structured(&rig.socket, "v");
    let whole = 16 << 20;
    let fresh = wire.ask(cmd::BLOCK_STATUS, 0, 0, whole);
    assert!(holes(&fresh).iter().all(|hole| *hole));
    assert_eq!(wire.read_range(0, 1 << 20), vec![0; 1 << 20]);

    let data = pattern(9, 4 << 20);
    assert_eq!(wire.write(0, 4 * MIB, &data).error, 0);
    let written = holes(&wire.ask(cmd::BLOCK_STATUS, 0, 0, whole));
    let sectors = |mib: u64| (mib * MIB / 512) as usize;
    assert!(written[..sectors(4)].iter().all(|hole| *hole));
    assert!(written[sectors(4)..sectors(8)].iter().all(|hole| !*hole));
    let one = wire.ask(cmd::BLOCK_STATUS, cmd::REQ_ONE, 0, whole);
    assert_eq!(one.status.len(), 1);

    assert_eq!(wire.ask(cmd::TRIM, 0, 5 * MIB, 1 << 20).error, 0);
    assert_eq!(
        wire.ask(cmd::WRITE_ZEROES, cmd::FAST_ZERO, 6 * MIB, 1 << 20)
            .error,
        0
    );
    assert_eq!(
        wire.ask(cmd::WRITE_ZEROES, cmd::NO_HOLE | cmd::FUA, 7 * MIB, 1 << 20)
            .error,
        0
    );
    // A range that begins and ends within chunks.
    assert_eq!(wire.ask(cmd::WRITE_ZEROES, 0, 4 * MIB + 512, 1024).error, 0);
    let after = holes(&wire.ask(cmd::BLOCK_STATUS, 0, 0, whole));
    assert!(after[sectors(5)..sectors(7)].iter().all(|hole| *hole));
    let mut expected = data;
    expected[512..1536].fill(0);
    expected[1 << 20..].fill(0);
    assert!(wire.read_range(4 * MIB, 4 << 20) == expected);
    let refused = wire.ask(cmd::WRITE_ZEROES, cmd::NO_HOLE | cmd::FAST_ZERO, 0, 4096);
    assert_eq!(refused.error, 95, "{}", refused.text);
}

#[test]
fn requests_that_make_no_sense_are_refused_and_the_connection_goes_on() {
    let rig = Rig::new(&[("v", 8)]);
    let end = 8 * MIB;
    let mut wire = Wire::structured(&rig.socket, "v");
    for (kind, flags, offset, length, error) in [
        (cmd::READ, 0, end - 512, 1024, EINVAL),
        (cmd::READ, 0, end, 512, EINVAL),
        (cmd::READ, 0, u64::MAX - 511, 512, EINVAL),
        (cmd::READ, 0, 1, 512, EINVAL),
        (cmd::READ, 0, 0, 100, EINVAL),
        (cmd::READ, 0, 0, u32::MAX - 511, EINVAL),
        (cmd::READ, 1 << 12, 0, 512, EINVAL),
        (cmd::TRIM, 0, end, 512, EINVAL),
        (cmd::WRITE_ZEROES, 0, end, 512, ENOSPC),
        (cmd::BLOCK_STATUS, 0, end, 512, EINVAL),
        (42, 0, 0, 0, EINVAL),
    ] {
        let reply = wire.ask(kind, flags, offset, length);
        assert_eq!(
            reply.error, error,
            "command {kind} at {offset}, {length} bytes"
        );
        assert!(!reply.text.is_empty());
    }
    // A refused write's payload is thrown away, not taken for requests.
    assert_eq!(wire.write(0, end - 512, &[1; 1024]).error, ENOSPC);
    assert_eq!(wire.write(0, 3, &[1; 512]).error, EINVAL);
    assert_eq!(wire.write(0, 0, &[1; 700]).error, EINVAL);
    assert_eq!(wire.write(0, 0, &vec![1; (32 << 20) + 512]).error, ENOSPC);
    for kind in [cmd::READ, cmd::TRIM, cmd::WRITE_ZEROES, cmd::BLOCK_STATUS] {
        assert_eq!(
            wire.ask(kind, 0, 0, 0).error,
            0,
            "command {kind} of no length"
        );
    }
    assert_eq!(wire.write(0, 0, &[]).error, 0);
    assert!(wire.read_range(0, 8 << 20).iter().all(|byte| *byte == 0));
    assert_eq!(rig.server().status().broken, 0);
}

#[test]
fn a_simple_client_is_refused_without_data() {
    let rig = Rig::new(&[("v", 8)]);
    let mut wire = Wire::simple(&rig.socket, "v");
    wire.request(cmd::READ, 0, 1, 8 * MIB, 512);
    assert_eq!(wire.simple_reply(512).error, EINVAL);
    wire.request(cmd::READ, cmd::DF, 2, 0, 512);
    assert_eq!(wire.simple_reply(512).error, EINVAL);
    wire.request(cmd::BLOCK_STATUS, 0, 3, 0, 512);
    assert_eq!(wire.simple_reply(0).error, EINVAL);
    wire.request(cmd::READ, 0, 4, 0, 512);
    assert_eq!(wire.simple_reply(512).data, [(0, vec![0; 512])]);
}

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
    // It may be told why before the connection ends.
    let mut rest = Vec::new();
    let _ = std::io::Read::read_to_end(&mut wire.stream, &mut rest);
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
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while rig.server().status().connections != count {
        assert!(
            std::time::Instant::now() < until,
            "{:?}",
            rig.server().status()
        );
        // There is no event for what the server has not yet noticed.
        std::thread::yield_now();
    }
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

#[test]
fn a_thousand_connections_do_not_keep_another_from_being_served() {
    let rig = Rig::new(&[("v", 8)]);
    let data = filled(&rig);
    let half_open: Vec<_> = (0..500)
        .map(|_| UnixStream::connect(&rig.socket).unwrap())
        .collect();
    let idle: Vec<_> = (0..500)
        .map(|_| Wire::structured(&rig.socket, "v"))
        .collect();
    check_served(&rig, &data);
    assert_eq!(rig.server().status().refused, 0);
    drop((half_open, idle));
    wait_for_connections(&rig, 0);
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
fn short_memory_makes_clients_slow_and_not_fail() {
    let rig = Rig::with(&[("v", 64)], NbdConfig::default(), Bytes::from_mib(8));
    let clients: Vec<_> = (0..6u64)
        .map(|number| {
            let socket = rig.socket.clone();
            std::thread::spawn(move || {
                let mut wire = Wire::structured(&socket, "v");
                let base = number * 8 * MIB;
                for round in 0..6 {
                    let data = pattern(number * 100 + round, 6 << 20);
                    let reply = wire.write(0, base, &data);
                    assert_eq!(reply.error, 0, "{}", reply.text);
                    assert!(wire.read_range(base, 6 << 20) == data);
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
}

/// A disk that has more to do than it can in the time in which memory is to be given back.
#[test]
fn memory_that_is_short_on_a_slow_disk_makes_nobody_fail() {
    let rig = Rig::slow(&[("v", 64)], Bytes::from_mib(8));
    let data = pattern(1, 4 << 20);
    let mut writer = Wire::structured(&rig.socket, "v");
    assert_eq!(writer.write(0, 0, &data).error, 0);
    let readers: Vec<_> = (0..6)
        .map(|_| {
            let (socket, data) = (rig.socket.clone(), data.clone());
            std::thread::spawn(move || {
                let mut wire = Wire::structured(&socket, "v");
                for _ in 0..2 {
                    for cookie in 0..4 {
                        wire.request(cmd::READ, 0, cookie, cookie * MIB, 1 << 20);
                    }
                    for _ in 0..4 {
                        let reply = wire.structured_reply();
                        assert_eq!(reply.error, 0, "{}", reply.text);
                        // Where memory is short a reply comes in many parts, in any order.
                        let mut parts = reply.data;
                        parts.sort_by_key(|(offset, _)| *offset);
                        let mut offset = reply.cookie * MIB;
                        for (at, bytes) in &parts {
                            assert_eq!(*at, offset, "of the reply to {}", reply.cookie);
                            let expected = &data[offset as usize..][..bytes.len()];
                            assert!(bytes == expected, "other bytes at {offset}");
                            offset += bytes.len() as u64;
                        }
                        assert_eq!(offset, (reply.cookie + 1) * MIB);
                    }
                }
            })
        })
        .collect();
    for reader in readers {
        reader.join().unwrap();
    }
}

#[test]
fn clients_that_take_no_replies_keep_nobody_out() {
    let rig = Rig::with(&[("v", 64)], NbdConfig::default(), Bytes::from_mib(8));
    let connect = || Wire::structured(&rig.socket, "v");
    let (mut other, mut stuck) = (connect(), [connect(), connect(), connect()]);
    let data = pattern(1, 6 << 20);
    assert_eq!(other.write(0, 0, &data).error, 0);
    // Replies to all of these are far more than there is memory, and none of them is taken.
    for wire in &mut stuck {
        for cookie in 0..32 {
            wire.request(cmd::READ, 0, cookie, cookie % 6 * MIB, 1 << 20);
        }
    }
    while rig.server().status().read_bytes < 4 * MIB {
        std::thread::yield_now();
    }
    // Whoever is connected goes on.
    for base in [8, 16, 24] {
        let reply = other.write(0, base * MIB, &data);
        assert_eq!(reply.error, 0, "{}", reply.text);
    }
    // Whoever comes is told to come again at worst.
    let mut newcomer = Wire::connect(&rig.socket);
    while let Err(text) = newcomer.try_go("v") {
        assert!(text.contains("no memory is free"), "{text}");
    }
    newcomer.request(cmd::READ, 0, 1, 24 * MIB, 4096);
    assert!(newcomer.simple_reply(4096).data == [(0, data[..4096].to_vec())]);
    drop(stuck);
    assert!(other.read_range(8 * MIB, 6 << 20) == data);
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

#[test]
fn a_volume_that_grows_or_shrinks_is_no_surprise() {
    let rig = Rig::new(&[("v", 8)]);
    let mut wire = Wire::structured(&rig.socket, "v");
    rig.pool
        .grow("v", Bytes::from_mib(16), &Default::default())
        .unwrap();
    // The client was told 8 MiB, and holds to that; who comes now is told 16.
    assert_eq!(wire.ask(cmd::READ, 0, 12 * MIB, 512).error, EINVAL);
    let mut grown = Wire::structured(&rig.socket, "v");
    assert_eq!(grown.write(0, 12 * MIB, &[7; 512]).error, 0);
    rig.pool.shrink("v", Bytes::from_mib(4)).unwrap();
    assert_ne!(wire.ask(cmd::READ, 0, 6 * MIB, 512).error, 0);
    assert_ne!(grown.write(0, 12 * MIB, &[7; 512]).error, 0);
    assert_eq!(grown.read_range(0, 4096), [0; 4096]);
}
