//! How long the index of a day of one camera takes to be listed and looked up, on a file in memory and on one emulated
//! drive that has nothing else to do.
//!
//! `cargo bench -p clockwise --bench index`
//!
//! The day is written as far as it is read: the ends of the blocks that have a section of the index, and what the archive is
//! opened by. Each time is the median of several with an archive that was opened anew, so that no section is known; what
//! opening takes is told apart. A first playlist needs all sections, one read after another; beside them stands what reading the
//! blocks takes that they lie in.

#![allow(clippy::print_stdout, reason = "a report is what this program is for")]

/// Shared with the tests.
#[allow(dead_code, reason = "this benchmark uses some of it")]
#[path = "../tests/media/support/day.rs"]
mod day;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use day::{Camera, SECONDS};
use drives::emulator::{DriveOptions, EmulatedDrive};
use drives::plant::PlantSpec;
use engine::buffer::Memory;
use engine::pool::{CreateOptions, OpenOptions, Placement, Pool, PoolDisk, VolumeSpec};
use engine::volume_io::{Client, ClientOptions};
use media::archive::index::GROUP;
use media::archive::{Archive, Recording, groups_in};
use sched::profile::DriveProfile;
use sched::units::Bytes;

const CAMERAS: [(&str, Camera); 2] = [
    (
        "1 MB/s, blocks of 1 MiB",
        Camera {
            bytes_per_second: 1_000_000,
            block_bytes: 1 << 20,
            fast_ppm: 0,
        },
    ),
    (
        "64 KB/s, blocks of 64 KiB",
        Camera {
            bytes_per_second: 64_000,
            block_bytes: 64 << 10,
            fast_ppm: 0,
        },
    ),
];

const DRIVE: &str = "hdd-8tb-7200";
const TIMES: u64 = 21;
const SECOND_NS: u64 = 1_000_000_000;

fn main() {
    println!(
        "| disk | camera | opening the archive | the day listed, reads | a minute's blocks and key frames, reads | a time found, reads | all sections | the blocks that they are in |\n\
         |---|---|---|---|---|---|---|---|"
    );
    for (name, camera) in &CAMERAS {
        let folder = tempfile::tempdir_in("/dev/shm").expect("memory");
        let path = folder.path().join("disk");
        let size = day::volume_bytes(camera) + (4 << 30);
        let file = File::create(&path).expect("a file");
        file.set_len(size).expect("a size");
        let memory = day::memory();
        let disk = || day::disk(&path, &memory);
        measure("file in memory", (name, camera), &memory, disk(), disk);
    }
    for (name, camera) in &CAMERAS {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("drive");
        let memory = day::memory();
        let made = drive(&path, true);
        measure("emulated 8 TB drive", (name, camera), &memory, made, || {
            drive(&path, false)
        });
    }
}

fn drive(path: &Path, is_new: bool) -> PoolDisk {
    let plant = PlantSpec::built_in(DRIVE).expect("a model");
    let options = DriveOptions::default();
    let drive = match is_new {
        true => EmulatedDrive::create(path, plant, &options),
        false => EmulatedDrive::open(path, plant, &options),
    };
    PoolDisk {
        name: "disk".into(),
        disk: Box::new(drive.expect("a drive")),
        profile: Arc::new(DriveProfile::shipped(DRIVE).expect("a profile")),
        profile_is_measured: true,
    }
}

/// An archive of which nothing is known yet.
fn opened(pool: &Pool, client: &Client) -> (Archive, Recording) {
    let volume = pool.open_volume("cam").expect("the volume");
    let archive = Archive::open(client, volume).expect("an archive");
    let recording = archive.recording(None).expect("a recording");
    (archive, recording)
}

/// The median of what `work` takes on archives that are opened anew, with the reads that it makes; both of opening as well.
fn median(
    pool: &Pool,
    client: &Client,
    times: u64,
    mut work: impl FnMut(u64, &Archive, &Recording),
) -> (f64, u64, f64) {
    let (mut took, mut opening, mut reads) = (Vec::new(), Vec::new(), 0);
    for number in 0..times {
        let begun = Instant::now();
        let (archive, recording) = opened(pool, client);
        opening.push(begun.elapsed().as_secs_f64() * 1e3);
        let (begun, before) = (Instant::now(), archive.reads());
        work(number, &archive, &recording);
        took.push(begun.elapsed().as_secs_f64() * 1e3);
        reads = reads.max(archive.reads() - before);
    }
    let middle = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    (middle(&mut took), reads, middle(&mut opening))
}

fn measure(
    disk: &str,
    (name, camera): (&str, &Camera),
    memory: &Memory,
    made: PoolDisk,
    again: impl Fn() -> PoolDisk,
) {
    let options = CreateOptions {
        extent_bytes: Some(Bytes::from_mib(64)),
        ..CreateOptions::default()
    };
    Pool::create(memory, vec![made], &options).expect("a new pool");
    let pool = Pool::open(memory.clone(), vec![again()], OpenOptions::default());
    let pool = pool.expect("the pool");
    let spec = VolumeSpec {
        name: "cam".into(),
        size: Bytes(day::volume_bytes(camera)),
        placement: Placement::default(),
    };
    pool.create_volume(&spec).expect("there is room");
    let volume = pool.open_volume("cam").expect("the volume");
    let client = pool.client("bench", ClientOptions::default());
    let client = client.expect("there is memory");
    let day = day::write(&client, &volume, camera);
    drop(volume);

    let (list, list_reads, opening) = median(&pool, &client, TIMES, |_, archive, recording| {
        archive.outline(&client, recording).expect("an outline");
    });
    let (minute, minute_reads, _) = median(&pool, &client, TIMES, |number, archive, recording| {
        let from = number * (SECONDS / TIMES) * SECOND_NS;
        let times = from..from + 60 * SECOND_NS;
        let groups = archive.outline(&client, recording).expect("an outline");
        let within = groups_in(&groups, &times);
        let window = archive.window(&client, recording, within, &times);
        assert!(window.expect("a minute").keys.len() >= 30);
    });
    let (found, found_reads, _) = median(&pool, &client, TIMES, |number, archive, recording| {
        let at = number * (SECONDS / TIMES) * SECOND_NS;
        let found = archive.index_at(&client, recording, at);
        assert!(found.expect("it can be read").is_some());
    });
    let (sections, _, _) = median(&pool, &client, 3, |_, archive, recording| {
        let groups = archive.outline(&client, recording).expect("an outline");
        let window = archive.window(&client, recording, &groups, &(0..u64::MAX));
        assert_eq!(window.expect("all of it").missing, 0);
    });
    let (blocks, _, _) = median(&pool, &client, 3, |_, archive, recording| {
        for group in 0..day::groups(day.blocks()) {
            let serial = ((group + 1) * GROUP).min(recording.end) - 1;
            archive.read_block(&client, serial).expect("it can be read");
        }
    });
    println!(
        "| {disk} | {name}: {} blocks in {} groups | {opening:.2} ms | {list:.2} ms, {list_reads} | {minute:.2} ms, {minute_reads} | \
         {found:.2} ms, {found_reads} | {sections:.0} ms | {blocks:.0} ms |",
        day.blocks(),
        day::groups(day.blocks()),
    );
    drop(client);
    pool.close().expect("it is closed");
}
