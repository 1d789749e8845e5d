//! Time to list and to look up the index of a day of one camera, on a file in memory and on an idle emulated drive.
//!
//! `cargo bench -p clockwise --bench index`
//!
//! Only the parts of the day that are read are written: the ends of the blocks with a section of the index, and the
//! blocks that opening the archive needs. Each time is the median of several runs with a newly opened archive, which
//! has no section in memory. The time of opening is reported separately. A first playlist needs all sections, one
//! read after another; the last column is the time to read the blocks that hold them.

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
        "| disk | camera | opening the archive | listing the day, reads | blocks and key frames of a minute, reads | finding a time, reads | all sections | the blocks that hold them |\n\
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
        let made = drive(EmulatedDrive::create, &path);
        measure("emulated 8 TB drive", (name, camera), &memory, made, || {
            drive(EmulatedDrive::open, &path)
        });
    }
}

fn drive<E: std::fmt::Debug>(
    make: impl FnOnce(&Path, PlantSpec, &DriveOptions) -> Result<EmulatedDrive, E>,
    path: &Path,
) -> PoolDisk {
    let plant = PlantSpec::built_in(DRIVE).expect("a model");
    let drive = make(path, plant, &DriveOptions::default());
    PoolDisk {
        name: "disk".into(),
        disk: Box::new(drive.expect("a drive")),
        profile: Arc::new(DriveProfile::shipped(DRIVE).expect("a profile")),
        profile_is_measured: true,
    }
}

/// Opens the archive anew, without any section in memory.
fn opened(pool: &Pool, client: &Client) -> (Archive, Recording) {
    let volume = pool.open_volume("cam").expect("the volume");
    let archive = Archive::open(client, volume).expect("an archive");
    let recording = archive.recording(None).expect("a recording");
    (archive, recording)
}

/// Runs `work` on newly opened archives. Returns the median of its time in milliseconds, its reads, and the median of
/// the time of opening.
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
