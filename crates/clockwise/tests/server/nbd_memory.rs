//! The NBD server when the pool's memory is short: clients wait, and none fails or is kept out.

use crate::served::Rig;
use clockwise::exports::nbd::NbdConfig;
use engine::volume_io::ClientOptions;
use sched::units::Bytes;
use testkit::nbd::{Wire, cmd};
use testkit::{pattern, until};

const MIB: u64 = 1 << 20;

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
                        // With short memory, a reply comes in many parts, in any order.
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
    until("much is read for them", || {
        rig.server().status().read_bytes >= 4 * MIB
    });
    // Connected clients go on.
    for base in [8, 16, 24] {
        let reply = other.write(0, base * MIB, &data);
        assert_eq!(reply.error, 0, "{}", reply.text);
    }
    // A new client is told to come again at worst.
    let mut newcomer = Wire::connect(&rig.socket);
    until("a newcomer gets memory", || match newcomer.try_go("v") {
        Ok(()) => true,
        Err(text) => {
            assert!(text.contains("no memory is free"), "{text}");
            false
        }
    });
    newcomer.request(cmd::READ, 0, 1, 24 * MIB, 4096);
    assert!(newcomer.simple_reply(4096).data == [(0, data[..4096].to_vec())]);
    drop(stuck);
    assert!(other.read_range(8 * MIB, 6 << 20) == data);
}

#[test]
fn idle_clients_leave_half_of_the_memory_to_others() {
    let rig = Rig::with(&[("v", 64)], NbdConfig::default(), Bytes::from_mib(8));
    // 64 KiB for each.
    let memory = rig.pool.memory().promisable();
    let count = memory.0 / 2 / (64 << 10);
    let idle: Vec<_> = (0..count)
        .map(|_| Wire::structured(&rig.socket, "v"))
        .collect();
    let told = Wire::connect(&rig.socket).try_go("v").unwrap_err();
    let connections = format!("{count} connections");
    for words in [&connections, "half of its memory", "`total` in [memory]"] {
        assert!(told.contains(words), "no {words:?} in {told}");
    }
    let left = rig.pool.memory().promisable();
    assert!(
        left.0 >= memory.0 / 2 && left < memory,
        "{left} of {memory}"
    );
    drop(idle);
}

#[test]
fn a_connection_for_which_streams_leave_no_memory_is_told_so() {
    let rig = Rig::with(&[("v", 64)], NbdConfig::default(), Bytes::from_mib(8));
    let options = ClientOptions {
        fixed: rig.pool.memory().promisable(),
        ..ClientOptions::default()
    };
    let streams = rig.pool.client("streams", options).unwrap();
    let told = Wire::connect(&rig.socket).try_go("v").unwrap_err();
    for words in [
        "a connection needs 64 KiB",
        "leave only 0 B",
        "`total` in [memory]",
    ] {
        assert!(told.contains(words), "no {words:?} in {told}");
    }
    drop(streams);
    Wire::structured(&rig.socket, "v");
}
