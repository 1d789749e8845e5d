//! The NBD server at the level of bytes: what clients may ask, and what they are answered.

use std::io::{ErrorKind, Read, Write};

use crate::served::Rig;
use rustix::net::sockopt::set_socket_send_buffer_size;
use sched::units::Bytes;
use testkit::nbd::{Reply, Wire, cmd};
use testkit::{pattern, until};

const MIB: u64 = 1 << 20;

const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;

#[test]
fn written_data_is_read_back_in_every_size_and_reply_form() {
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
fn answered_writes_survive_an_orderly_restart() {
    let rig = Rig::new(&[("a", 8), ("b", 8)]);
    let mut a = Wire::structured(&rig.socket, "a");
    let mut other = Wire::structured(&rig.socket, "a");
    let mut b = Wire::structured(&rig.socket, "b");
    let (first, second, forced) = (pattern(1, 65536), pattern(2, 2 << 20), pattern(3, 3 << 20));
    assert_eq!(a.write(0, 0, &first).error, 0);
    assert_eq!(other.write(0, 4 * MIB, &second).error, 0);
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
    // A worker counts what it has answered at the end of its turn.
    until("all that was answered is counted", || {
        rig.server().status().requests >= 2 * count
    });
    assert_eq!(rig.server().status().requests, 2 * count);
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

/// Holes by sector, from the runs of a block status reply.
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

/// Many a client, libnbd for one, takes no answer to what it is still sending.
#[test]
fn a_refused_write_is_answered_when_all_of_it_has_come() {
    let rig = Rig::new(&[("v", 8)]);
    let end = 8 * MIB;
    // A payload that is on its way is more than the socket holds.
    let room = 16 << 10;
    for (offset, length, error) in [
        (end, 256 << 10, ENOSPC),
        (end - 512, 1 << 20, ENOSPC),
        (3, 256 << 10, EINVAL),
        (0, (32 << 20) + 512, ENOSPC),
    ] {
        for is_structured in [true, false] {
            let mut wire = match is_structured {
                true => Wire::structured(&rig.socket, "v"),
                false => Wire::simple(&rig.socket, "v"),
            };
            set_socket_send_buffer_size(&wire.stream, room).unwrap();
            wire.request(cmd::WRITE, 0, 1, offset, length);
            let payload = vec![1; length as usize];
            let (most, rest) = payload.split_at(payload.len() - 512);
            wire.send(most);
            // The server has taken the part that the socket does not hold.
            wire.stream.set_nonblocking(true).unwrap();
            let early = wire.stream.read(&mut [0]).map_err(|error| error.kind());
            assert_eq!(early, Err(ErrorKind::WouldBlock), "{length} at {offset}");
            wire.stream.set_nonblocking(false).unwrap();
            wire.send(rest);
            let reply = match is_structured {
                true => wire.structured_reply(),
                false => wire.simple_reply(0),
            };
            assert_eq!((reply.error, reply.cookie), (error, 1));
            wire.request(cmd::DISC, 0, 2, 0, 0);
            assert!(wire.is_closed());
        }
    }
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
