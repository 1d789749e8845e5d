//! Volumes as files of a mounted file system: real programs and the kernel's own loop devices on them.

#![allow(clippy::print_stdout, reason = "a random test prints its seed")]

use std::fs::File;
use std::io::{ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use testkit::nbd::Wire;
use testkit::site::{call, read_text};
use testkit::skip::have;
use testkit::{pattern, seed, until};

use crate::fuse_support::{
    Mounted, attach, detach, errno, may_mount, mount, open_with, read_at, run,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::Errno;

const MIB: u64 = 1 << 20;

const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

#[test]
fn each_volume_is_a_file_that_only_its_owner_may_use() {
    let Some(mounted) = Mounted::new(&[("films", 8), ("db", 4)]) else {
        return;
    };
    assert_eq!(mounted.names(), ["db", "films"]);
    let data = std::fs::metadata(mounted.file("films")).expect("a file");
    assert!(data.is_file());
    assert_eq!((data.len(), data.mode() & 0o777), (8 * MIB, 0o600));
    assert_eq!((data.uid(), data.blocks()), (0, 0));
    let folder = std::fs::metadata(mounted.mount()).expect("a folder");
    assert_eq!(folder.mode() & 0o777, 0o700);
    mounted
        .open("db")
        .write_all_at(&pattern(1, 4096), 0)
        .expect("a write");
    let data = std::fs::metadata(mounted.file("db")).expect("a file");
    assert!(data.blocks() > 0, "what was written takes up blocks");
    // Operations that volumes do not have.
    let refused = [
        File::create(mounted.file("new")).map(drop),
        File::create(mounted.file("films")).map(drop),
        std::fs::create_dir(mounted.file("folder")),
        std::fs::remove_file(mounted.file("films")),
        std::fs::rename(mounted.file("films"), mounted.file("movies")),
        mounted.open("films").set_len(MIB),
        mounted.open("films").set_len(9 * MIB),
    ];
    for (index, result) in refused.into_iter().enumerate() {
        let error = result.expect_err("it is refused");
        assert_eq!(errno(&error), Some(Errno::PERM), "{index}: {error}");
    }
    mounted
        .open("films")
        .set_len(8 * MIB)
        .expect("that is its size");
    assert_eq!(mounted.names(), ["db", "films"]);
}

#[test]
fn volumes_that_are_made_deleted_and_resized_are_seen() {
    let Some(mounted) = Mounted::new(&[("a", 4)]) else {
        return;
    };
    mounted.create("b", 4);
    assert_eq!(mounted.names(), ["a", "b"]);
    let file = mounted.open("b");
    let site = &mounted.site;
    site.run(&["volume", "shrink", "b", "--size", "2MiB"])
        .fails(
            1,
            &["in use through its export by the FUSE mount", "--force"],
        );
    site.run(&["volume", "delete", "b"])
        .fails(1, &["in use by the FUSE mount"]);
    site.run(&["volume", "grow", "b", "--size", "8MiB"]).done();
    assert_eq!(file.metadata().expect("it is open").len(), 8 * MIB);
    file.write_all_at(&pattern(2, 4096), 6 * MIB)
        .expect("there is room");
    assert!(read_at(&file, 6 * MIB, 4096) == pattern(2, 4096));
    drop(file);
    // The kernel closes a file a moment after its last user has.
    until("it is deleted", || {
        site.run(&["volume", "delete", "b"]).code == 0
    });
    assert_eq!(mounted.names(), ["a"]);
    let gone = File::open(mounted.file("b")).expect_err("it is gone");
    assert_eq!(gone.kind(), ErrorKind::NotFound);
}

#[test]
fn partial_blocks_are_read_and_their_writes_refused() {
    let Some(mounted) = Mounted::new(&[("v", 4)]) else {
        return;
    };
    let file = mounted.open("v");
    let data = pattern(3, 8192);
    file.write_all_at(&data, 0).expect("a write");
    assert!(read_at(&file, 100, 5000) == data[100..5100]);
    assert!(read_at(&file, 4 * MIB - 10, 10) == [0; 10]);
    let mut buffer = [1; 100];
    assert_eq!(
        file.read_at(&mut buffer, 4 * MIB - 10).expect("the end"),
        10
    );
    assert_eq!(file.read_at(&mut buffer, 4 * MIB).expect("the end"), 0);
    for (offset, length, wants) in [
        (1, 512, Errno::INVAL),
        (0, 100, Errno::INVAL),
        (4 * MIB, 512, Errno::NOSPC),
        (4 * MIB - 512, 1024, Errno::NOSPC),
    ] {
        let error = file
            .write_at(&data[..length], offset)
            .expect_err("it is refused");
        assert_eq!(errno(&error), Some(wants), "{length} at {offset}");
    }
    assert!(read_at(&file, 0, 8192) == data);
    let part = file
        .write_at(&data[512..1536 + 100], 512)
        .expect("whole blocks of it");
    assert_eq!(part, 1024, "the rest is no whole block");
    // Longer than a request, and not at the beginning of a page.
    let long = pattern(9, 2 << 20);
    for skip in [16, 100] {
        let long = &long[skip..skip + (3 << 19)];
        file.write_all_at(long, MIB).expect("whole blocks in all");
        assert!(read_at(&file, MIB, long.len()) == long);
    }
    assert!(read_at(&file, 0, 8192) == data);
    assert_eq!(fallocate(&file, PUNCH, 1, 512), Err(Errno::INVAL));
    let collapse = FallocateFlags::COLLAPSE_RANGE;
    assert_eq!(fallocate(&file, collapse, 0, 4096), Err(Errno::OPNOTSUPP));
    assert_eq!(fallocate(&file, FallocateFlags::empty(), 0, MIB), Ok(()));
    let past = fallocate(&file, FallocateFlags::empty(), 0, 5 * MIB);
    assert_eq!(past, Err(Errno::NOSPC));
    assert_eq!(fallocate(&file, PUNCH, 3 * MIB, 2 * MIB), Ok(()));
}

#[test]
fn holes_are_zeros_and_can_be_found() {
    let Some(mounted) = Mounted::new(&[("v", 4)]) else {
        return;
    };
    let mut file = mounted.open("v");
    file.write_all_at(&pattern(4, MIB as usize), MIB)
        .expect("a write");
    let mut seek = |to| file.seek(to).expect("it is found");
    assert_eq!(seek(SeekFrom::End(0)), 4 * MIB);
    let data = |offset| rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(offset));
    let hole = |offset| rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(offset));
    assert_eq!((data(0), hole(0)), (Ok(MIB), Ok(0)));
    assert_eq!((data(MIB + 5), hole(MIB)), (Ok(MIB + 5), Ok(2 * MIB)));
    assert_eq!(
        (data(2 * MIB), hole(4 * MIB)),
        (Err(Errno::NXIO), Err(Errno::NXIO))
    );
    for mode in [PUNCH, FallocateFlags::ZERO_RANGE] {
        file.write_all_at(&pattern(4, MIB as usize), MIB)
            .expect("a write");
        fallocate(&file, mode, MIB + 512, MIB / 2).expect("zeros");
        let read = read_at(&file, MIB, MIB as usize);
        let wants = pattern(4, MIB as usize);
        let end = 512 + MIB as usize / 2;
        assert!(read[..512] == wants[..512] && read[end..] == wants[end..]);
        assert!(read[512..end].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn status_tells_of_the_mount_beside_nbd() {
    let Some(mounted) = Mounted::new(&[("v", 4)]) else {
        return;
    };
    let file = mounted.open("v");
    file.write_all_at(&pattern(5, 8192), 0).expect("a write");
    read_at(&file, 0, 4096);
    file.write_at(&[0; 10], 0).expect_err("no whole block");
    let exports = || {
        let (status, said) = call(&mounted.site, "GET", "/v1/status", "");
        assert_eq!(status, 200);
        said["exports"].as_array().expect("exports").clone()
    };
    // A request is counted a moment after its answer.
    until("both are counted", || {
        let fuse = &exports()[1];
        fuse["written_bytes"] == 8192 && fuse["read_bytes"] == 4096
    });
    let exports = exports();
    let protocols: Vec<_> = exports.iter().map(|of| &of["protocol"]).collect();
    assert_eq!(protocols, ["nbd", "fuse"]);
    let fuse = &exports[1];
    assert_eq!(
        fuse["at"][0],
        mounted
            .mount()
            .canonicalize()
            .expect("it is there")
            .display()
            .to_string()
    );
    assert_eq!(fuse["clients"], 1);
    let text = mounted.site.run(&["status"]).done().out;
    assert!(text.contains("EXPORT") && text.contains("fuse"), "{text}");
}

/// A file system on a loop device on a volume: made, used, trimmed, checked, and there after a restart.
fn a_file_system_lives(kind: &str, make: &[&str], check: &[&str]) {
    if !may_mount()
        || !["losetup", make[0], check[0], "fstrim"]
            .iter()
            .all(|tool| have(tool))
    {
        return;
    }
    let Some(mut mounted) = Mounted::new(&[("v", 640)]) else {
        return;
    };
    let data = pattern(6, 20 << 20);
    let Some((device, undo)) = attach(&mounted.file("v")) else {
        return;
    };
    run(make[0], &[&make[1..], &[&device]].concat());
    if let Some((folder, _unmounted)) = mount(&mounted.site, kind, &device) {
        std::fs::write(folder.join("film"), &data).expect("room");
        for number in 0..200 {
            let note = pattern(number, 3000);
            std::fs::write(folder.join(format!("note-{number}")), note).expect("room");
        }
        let shown = folder.display().to_string();
        run("sync", &["-f", &shown]);
        let before = written(&mounted);
        std::fs::remove_file(folder.join("film")).expect("it is there");
        run("sync", &["-f", &shown]);
        run("fstrim", &[&shown]);
        assert!(written(&mounted) < before, "what is not used is trimmed");
        std::fs::write(folder.join("film"), &data).expect("room");
        run("umount", &[&shown]);
    }
    run(check[0], &[&check[1..], &[&device]].concat());
    detach(&device, undo);
    mounted.end();
    mounted.serve();
    let (device, undo) = attach(&mounted.file("v")).expect("as before");
    run(check[0], &[&check[1..], &[&device]].concat());
    if let Some((folder, _unmounted)) = mount(&mounted.site, kind, &device) {
        assert!(std::fs::read(folder.join("film")).expect("it is there") == data);
        for number in 0..200 {
            let note = std::fs::read(folder.join(format!("note-{number}")));
            assert!(
                note.expect("it is there") == pattern(number, 3000),
                "note {number}"
            );
        }
        run("umount", &[&folder.display().to_string()]);
    }
    detach(&device, undo);
}

/// Bytes of data in volume `v`.
fn written(mounted: &Mounted) -> u64 {
    let said = mounted.site.json(&["volume", "show", "v"]);
    said["written_bytes"].as_u64().expect("a number")
}

#[test]
fn ext4_lives_on_a_volume() {
    a_file_system_lives("ext4", &["mkfs.ext4", "-q"], &["e2fsck", "-fn"]);
}

#[test]
fn xfs_lives_on_a_volume() {
    a_file_system_lives("xfs", &["mkfs.xfs", "-q"], &["xfs_repair", "-n"]);
}

#[test]
fn btrfs_lives_on_a_volume() {
    let check = ["btrfs", "check", "--readonly"];
    a_file_system_lives("btrfs", &["mkfs.btrfs", "-q"], &check);
}

#[test]
fn a_loop_device_takes_note_of_a_new_size() {
    let Some(mounted) = Mounted::new(&[("v", 4)]) else {
        return;
    };
    let Some((device, undo)) = attach(&mounted.file("v")) else {
        return;
    };
    let size = || {
        let name = device.trim_start_matches("/dev/");
        let sectors = read_text(Path::new(&format!("/sys/block/{name}/size")));
        sectors.trim().parse::<u64>().expect("a number") * 512
    };
    assert_eq!(size(), 4 * MIB);
    let grow = ["volume", "grow", "v", "--size", "8MiB"];
    mounted.site.run(&grow).done();
    let data = std::fs::metadata(mounted.file("v")).expect("a file");
    assert_eq!(data.len(), 8 * MIB);
    run("losetup", &["--set-capacity", &device]);
    assert_eq!(size(), 8 * MIB);
    detach(&device, undo);
}

#[test]
fn fio_finds_what_it_wrote() {
    if !have("fio") {
        return;
    }
    let Some(mounted) = Mounted::new(&[("v", 128)]) else {
        return;
    };
    let file = format!("--filename={}", mounted.file("v").display());
    for job in [
        ["--rw=randwrite", "--bs=4k", "--iodepth=32"],
        ["--rw=randrw", "--bsrange=512-256k", "--iodepth=8"],
        ["--rw=write", "--bs=1M", "--iodepth=4"],
    ] {
        let mut arguments = vec!["--name=fuse", &file, "--ioengine=libaio", "--direct=1"];
        arguments.extend(job);
        arguments.extend(["--numjobs=4", "--size=32M", "--offset_increment=32M"]);
        arguments.extend(["--verify=crc32c", "--verify_fatal=1", "--do_verify=1"]);
        // Its state would lie in the folder of whoever runs the test.
        arguments.extend(["--verify_state_save=0"]);
        arguments.extend(["--fsync=64", "--randseed=7", "--bs_unaligned=0"]);
        let text = run("fio", &arguments);
        assert!(text.contains("err= 0"), "{job:?}: {text}");
    }
}

/// Number of random operations, and size of the volume.
const OPERATIONS: usize = 3_000;
const MODEL_MIB: u64 = 4;

/// As fsx does: random operations, each read compared with a model.
#[test]
fn random_operations_agree_with_a_model() {
    let Some(mounted) = Mounted::new(&[("v", MODEL_MIB)]) else {
        return;
    };
    let mut rng = StdRng::seed_from_u64(seed("random operations", None));
    let mut model = vec![0u8; (MODEL_MIB * MIB) as usize];
    let mut file = mounted.open("v");
    for number in 0..OPERATIONS {
        let sectors = model.len() / 512;
        let begin = rng.random_range(0..sectors);
        let most = if rng.random_bool(0.1) { 2048 } else { 32 };
        let end = (begin + rng.random_range(1..=most)).min(sectors);
        let range = begin * 512..end * 512;
        let offset = range.start as u64;
        match rng.random_range(0..100) {
            0..40 => {
                let data = pattern(number as u64, range.len());
                file.write_all_at(&data, offset).expect("a write");
                model[range].copy_from_slice(&data);
            }
            40..80 => {
                // Any bytes, not only whole blocks.
                let from = (range.start + rng.random_range(0..512)).min(range.end - 1);
                let read = read_at(&file, from as u64, range.end - from);
                assert!(
                    read == model[from..range.end],
                    "operation {number} at {from}"
                );
            }
            way @ 80..92 => {
                let mode = if way < 86 {
                    PUNCH
                } else {
                    FallocateFlags::ZERO_RANGE
                };
                fallocate(&file, mode, offset, range.len() as u64).expect("zeros");
                model[range].fill(0);
            }
            92..97 => file.sync_data().expect("a flush"),
            _ => {
                let flags = [OFlags::empty(), OFlags::DSYNC, OFlags::SYNC];
                let flags = flags[rng.random_range(0..flags.len())];
                file = open_with(&mounted.file("v"), flags).expect("it can be opened again");
            }
        }
    }
    assert!(read_at(&file, 0, model.len()) == model, "all of it");
}

#[test]
fn a_file_is_newer_after_each_change_whoever_made_it() {
    let Some(mut mounted) = Mounted::new(&[("v", 4), ("other", 4)]) else {
        return;
    };
    let newest = |mounted: &Mounted, name| {
        let data = std::fs::metadata(mounted.file(name)).expect("a file");
        let [changed, status] = [
            (data.mtime(), data.mtime_nsec()),
            (data.ctime(), data.ctime_nsec()),
        ];
        assert_eq!(changed, status);
        changed
    };
    let other = newest(&mounted, "other");
    let mut last = newest(&mounted, "v");
    let mut is_newer = |mounted: &Mounted, what: &str| {
        let now = newest(mounted, "v");
        assert!(now > last, "{what}: {now:?} after {last:?}");
        last = now;
    };
    let file = mounted.open("v");
    let mut wire = Wire::structured(&mounted.site.path("nbd.sock"), "v");
    for _ in 0..3 {
        file.write_all_at(&pattern(1, 4096), 0).expect("a write");
        is_newer(&mounted, "a write");
        fallocate(&file, PUNCH, 0, MIB).expect("a hole");
        is_newer(&mounted, "a hole");
        assert_eq!(wire.write(0, 0, &pattern(2, 4096)).error, 0);
        is_newer(&mounted, "a write by NBD");
    }
    let resize = |command: &str, more: &[&str]| {
        let resize = [&["volume", command, "v", "--size"], more].concat();
        mounted.site.run(&resize).done();
    };
    resize("shrink", &["2MiB", "--force"]);
    resize("grow", &["4MiB"]);
    is_newer(&mounted, "another size");
    let before = newest(&mounted, "v");
    read_at(&file, 0, 8192);
    file.sync_all().expect("a flush");
    assert_eq!(newest(&mounted, "v"), before, "nothing has changed");
    assert_eq!(newest(&mounted, "other"), other);
    drop((file, wire));
    mounted.end();
    mounted.serve();
    is_newer(&mounted, "another server");
}

#[test]
fn short_memory_makes_requests_wait_and_opening_fail_until_there_is_some() {
    let Some(mut mounted) = Mounted::with("8MiB", &[("v", 16)]) else {
        return;
    };
    let file = mounted.open("v");
    let names: Vec<_> = (0..70).map(|number| format!("v{number}")).collect();
    for name in &names {
        let body = format!("{{\"name\": {name:?}, \"size_bytes\": {MIB}}}");
        assert_eq!(call(&mounted.site, "POST", "/v1/volumes", &body).0, 201);
    }
    let try_open = |name: &String| File::open(mounted.file(name));
    let mut open: Vec<_> = names.iter().map(try_open).collect();
    let refused = open.iter().filter_map(|file| file.as_ref().err());
    let refused: Vec<_> = refused.map(errno).collect();
    assert!(!refused.is_empty(), "all of them have memory");
    assert!(refused.iter().all(|errno| *errno == Some(Errno::NOMEM)));
    std::thread::scope(|scope| {
        for part in 0..4 {
            let file = &file;
            scope.spawn(move || {
                for round in 0..4 {
                    let data = pattern(part * 10 + round, 3 * MIB as usize);
                    file.write_all_at(&data, part * 4 * MIB).expect("a write");
                    assert!(read_at(file, part * 4 * MIB, data.len()) == data);
                }
            });
        }
    });
    open.clear();
    let last = names.last().expect("there are some");
    until("there is memory again", || try_open(last).is_ok());
    drop(file);
    let log = mounted.end();
    // For each thread, of which there are four at most.
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let needs = format!("an open file needs {} KiB", 64 * threads.min(4));
    assert!(log.contains(&needs), "{log}");
}
