//! The mount that makes volumes files, from its beginning to its end: servers that end or are killed, users
//! that stay, others that unmount it or mount over it.

#![allow(clippy::print_stdout, reason = "a random test prints its seed")]

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use testkit::nbd::Wire;
use testkit::site::{Site, call, clockwise, outcome, read_text};
use testkit::skip::{have, skipped, tool};
use testkit::{pattern, seed, until};

use crate::fuse_support::{
    Mounted, Undo, errno, is_mounted, is_mounted_from, may_mount, open_with, read_at, run,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::fs::OFlags;
use rustix::io::Errno;

const MIB: u64 = 1 << 20;

/// Number of kills, and of blocks that are written meanwhile.
const ROUNDS: u64 = 4;
const BLOCKS: u64 = 256;

/// Writes ever newer versions of blocks, each made durable before `durable` says so, until the server is gone.
fn write_until_gone(file: &File, first: u64, durable: &[AtomicU64]) {
    for version in first.. {
        let block = version * 7 % BLOCKS;
        let mut data = pattern(version, 4096);
        data[..8].copy_from_slice(&version.to_le_bytes());
        let written = file.write_all_at(&data, block * 4096);
        if written.and_then(|()| file.sync_data()).is_err() {
            return;
        }
        durable[block as usize].store(version, Ordering::Release);
    }
}

#[test]
fn synced_data_survives_a_kill_and_the_dead_mount_is_cleared() {
    let Some(mut mounted) = Mounted::new(&[("v", 4)]) else {
        return;
    };
    let durable: Vec<AtomicU64> = (0..BLOCKS).map(|_| AtomicU64::new(0)).collect();
    let mut rng = StdRng::seed_from_u64(seed("kills", None));
    for round in 0..ROUNDS {
        let file = mounted.open("v");
        let first = 1 + round * 1_000_000;
        let server = mounted.server.take().expect("a server");
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| write_until_gone(&file, first, &durable));
            let enough = rng.random_range(1..300);
            until("it is written", || {
                let newest = durable.iter().map(|of| of.load(Ordering::Acquire)).max();
                newest >= Some(first + enough)
            });
            server.kill();
            writer.join().expect("the writer ends with the server");
        });
        drop(file);
        let dead = std::fs::metadata(mounted.file("v")).expect_err("nobody serves it");
        assert_eq!(errno(&dead), Some(Errno::NOTCONN));
        mounted.serve();
        let file = mounted.open("v");
        for block in 0..BLOCKS {
            let least = durable[block as usize].load(Ordering::Acquire);
            let data = read_at(&file, block * 4096, 4096);
            let version = u64::from_le_bytes(data[..8].try_into().expect("eight bytes"));
            assert!(
                version >= least,
                "block {block}: {version} instead of {least}"
            );
            if version > 0 {
                assert!(
                    data[8..] == pattern(version, 4096)[8..],
                    "block {block} is torn"
                );
            }
        }
    }
    mounted.end();
    assert!(!is_mounted(&mounted.mount()), "one mount, and it is gone");
}

/// Number of chunks that are written to a server that is killed.
const CHUNKS: u64 = 4096;

/// The first forced write to a chunk makes it durable that the chunk has data.
#[test]
fn o_dsync_writes_survive_a_kill() {
    let names = ["a", "b", "c"];
    let Some(mut mounted) = Mounted::new(&names.map(|name| (name, CHUNKS * 4096 / MIB))) else {
        return;
    };
    let mut rng = StdRng::seed_from_u64(seed("kills of forced writes", None));
    for (name, flags) in names
        .into_iter()
        .zip([OFlags::DSYNC, OFlags::SYNC, OFlags::DSYNC])
    {
        let file = open_with(&mounted.file(name), flags).expect("it can be opened");
        let server = mounted.server.take().expect("a server");
        let answered = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for chunk in 0..CHUNKS {
                    if file
                        .write_all_at(&pattern(chunk, 4096), chunk * 4096)
                        .is_err()
                    {
                        return;
                    }
                    answered.store(chunk + 1, Ordering::Release);
                }
            });
            let enough = rng.random_range(1..200);
            until("it is written", || {
                answered.load(Ordering::Acquire) >= enough
            });
            server.kill();
            writer.join().expect("the writer ends with the server");
        });
        drop(file);
        mounted.serve();
        let file = mounted.open(name);
        for chunk in 0..answered.into_inner() {
            assert!(
                read_at(&file, chunk * 4096, 4096) == pattern(chunk, 4096),
                "chunk {chunk}"
            );
        }
    }
}

/// A mount as the kernel ends it: without a word about files that are open.
#[test]
fn a_server_goes_on_when_its_mount_is_forced_away() {
    let Some(mut mounted) = Mounted::new(&[("v", 4), ("w", 4)]) else {
        return;
    };
    let at = mounted.mount().display().to_string();
    let file = mounted.open("v");
    file.write_all_at(&pattern(1, 4096), 0).expect("a write");
    mounted
        .site
        .run(&["volume", "delete", "v"])
        .fails(1, &["in use by the FUSE mount"]);
    // It fails because a file is open, and has ended the connection.
    let _ = outcome(tool("umount").args(["--force", &at]));
    let gone = file.write_at(&pattern(1, 4096), 0).expect_err("it is gone");
    assert_eq!(errno(&gone), Some(Errno::NOTCONN), "{gone}");
    until("the volume is not in use", || {
        mounted.site.run(&["volume", "delete", "v"]).code == 0
    });
    until("nothing is mounted", || !is_mounted(&mounted.mount()));
    let (_, said) = call(&mounted.site, "GET", "/v1/status", "");
    assert_eq!(said["exports"][1]["clients"], 0);
    let mut wire = Wire::structured(&mounted.site.path("nbd.sock"), "w");
    assert_eq!(wire.write(0, 0, &pattern(2, 4096)).error, 0);
    drop(wire);
    let log = mounted.end();
    assert!(log.contains("the mount of the volumes has ended"), "{log}");
    assert!(!is_mounted(&mounted.mount()));
    drop(file);
    mounted.serve();
    assert!(read_at(&mounted.open("w"), 0, 4096) == pattern(2, 4096));
}

#[test]
fn foreign_mount_over_the_volumes_stays() {
    let Some(mut mounted) = Mounted::new(&[("v", 4)]) else {
        return;
    };
    let at = mounted.mount().display().to_string();
    let there = || is_mounted_from(Path::new(&at), "something");
    let file = mounted.open("v");
    run("mount", &["-t", "tmpfs", "something", &at]);
    let _undo = Undo::new("umount", &[&at]);
    let log = mounted.end();
    assert!(log.contains("mounted something over it"), "{log}");
    assert!(there(), "what is mounted over it stays: {log}");
    let gone = file.write_at(&[0; 512], 0).expect_err("nobody serves it");
    assert!(
        [Some(Errno::NOTCONN), Some(Errno::CONNABORTED)].contains(&errno(&gone)),
        "{gone}"
    );
    drop(file);
    run("umount", &[&at]);
    mounted.serve();
    run("umount", &[&at]);
    run("mount", &["-t", "tmpfs", "something", &at]);
    let log = mounted.end();
    assert!(there(), "what is mounted instead stays: {log}");
    run("umount", &[&at]);
}

/// The user and group that others' files do not belong to.
const NOBODY: u32 = 65534;

#[test]
fn volumes_are_mounted_by_a_server_that_is_not_roots() {
    if !may_mount() || !have("fusermount3") {
        return;
    }
    let device = std::fs::metadata("/dev/fuse").expect("it is there");
    if device.mode() & 0o006 != 0o006 {
        return skipped("only root may open /dev/fuse");
    }
    let mut mounted = Mounted::configured("64MiB");
    let site = &mounted.site;
    let chown = |path: &Path| {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).expect("it is root's");
    };
    for path in [site.folder.path(), &site.config(), &mounted.mount()] {
        chown(path);
    }
    // Other users may not look into the folder of the build.
    let program = site.path("program");
    std::fs::copy(clockwise().get_program(), &program).expect("room");
    let by_nobody = |program: &Path| {
        let mut command = std::process::Command::new(program);
        command.uid(NOBODY).gid(NOBODY);
        command
    };
    let command = |arguments: &[&str]| {
        let mut command = by_nobody(&program);
        command.arg("--config").arg(site.config());
        command.args(arguments);
        command
    };
    outcome(&mut command(&["pool", "create"])).done();
    let server = site.serve_by(by_nobody(&program));
    outcome(&mut command(&["volume", "create", "v", "--size", "4MiB"])).done();
    let (from, to) = (site.path("from"), site.path("to"));
    std::fs::write(&from, pattern(1, MIB as usize)).expect("room");
    let copy = |from: &Path, to: &Path| {
        let mut copy = by_nobody(Path::new("dd"));
        copy.arg(format!("if={}", from.display()));
        copy.arg(format!("of={}", to.display()));
        outcome(copy.args(["bs=64K", "count=16", "conv=notrunc,fsync"])).done();
    };
    copy(&from, &mounted.file("v"));
    copy(&mounted.file("v"), &to);
    assert!(std::fs::read(&to).expect("it is there") == pattern(1, MIB as usize));
    let (code, log) = server.terminate();
    assert_eq!(code, Some(0), "{log}");
    assert!(!is_mounted(&mounted.mount()), "{log}");
    // In use, and killed: the next one clears what is left.
    let server = site.serve_by(by_nobody(&program));
    server.kill();
    assert!(is_mounted(&mounted.mount()));
    mounted.server = Some(site.serve_by(by_nobody(&program)));
    mounted.end();
    assert!(!is_mounted(&mounted.mount()));
}

#[test]
fn a_mount_point_in_use_is_refused_and_named() {
    let Some(mut mounted) = Mounted::new(&[]) else {
        return;
    };
    let other = Mounted::new(&[]).expect("as before");
    let text = read_text(&other.site.config());
    let at = mounted.mount().display().to_string();
    let same = text.replace("\"volumes\"", &format!("{at:?}"));
    let try_at = |text: &str, words: &[&str]| {
        let third = Site::new(1);
        std::fs::write(third.config(), text).expect("it can be written");
        third.run(&["pool", "create"]).done();
        third
            .run(&["serve"])
            .fails(1, &[words, &[at.as_str()]].concat());
    };
    try_at(&same, &["another server has its volumes mounted"]);
    mounted.end();
    assert!(!is_mounted(&mounted.mount()));
    std::fs::write(mounted.file("note"), "mine").expect("an ordinary folder again");
    try_at(&same, &["is not empty"]);
    std::fs::remove_file(mounted.file("note")).expect("it is there");
    run("mount", &["-t", "tmpfs", "something", &at]);
    try_at(&same, &["something (tmpfs) is mounted"]);
    run("umount", &[&at]);
    std::fs::remove_dir(mounted.mount()).expect("an empty folder");
    try_at(&same, &["no mount point", "mkdir"]);
}

#[test]
fn a_server_ends_though_its_mount_is_in_use() {
    let Some(mut mounted) = Mounted::new(&[("v", 16)]) else {
        return;
    };
    let file = mounted.open("v");
    file.write_all_at(&pattern(8, 4096), 0).expect("a write");
    let log = mounted.end();
    assert!(log.contains("still in use through their mount"), "{log}");
    assert!(!is_mounted(&mounted.mount()));
    let gone = file
        .write_at(&pattern(8, 4096), 0)
        .expect_err("nobody serves it");
    assert!(
        [Some(Errno::NOTCONN), Some(Errno::CONNABORTED)].contains(&errno(&gone)),
        "{gone}"
    );
    drop(file);
    mounted.serve();
    assert!(read_at(&mounted.open("v"), 0, 4096) == pattern(8, 4096));
}

#[test]
fn unmount_by_another_user_does_not_stop_the_server() {
    let Some(mut mounted) = Mounted::new(&[("v", 4)]) else {
        return;
    };
    run("umount", &[&mounted.mount().display().to_string()]);
    let fuse = || {
        let (_, said) = call(&mounted.site, "GET", "/v1/status", "");
        said["exports"][1]["at"].as_array().map(Vec::len)
    };
    until("the server knows", || fuse() == Some(0));
    let log = mounted.end();
    assert!(log.contains("the mount of the volumes has ended"), "{log}");
}
