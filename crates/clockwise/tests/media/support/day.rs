//! A day of a camera on a volume, of which no more is written than is read of it: what ends a group of
//! blocks, and what an archive is opened by.

use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use engine::buffer::{Memory, MemoryConfig};
use engine::disk::Disk;
use engine::pool::{CreateOptions, OpenOptions, Placement, Pool, PoolDisk, Volume, VolumeSpec};
use engine::uring::UringDisk;
use engine::volume_io::{Client, ClientOptions};
use media::archive::block::{Composer, Entry, Header, Kind, Seal};
use media::archive::gap::GapCause;
use media::archive::index::{self, GROUP, Indexer};
use sched::profile::{DriveKind, DriveProfile};
use sched::units::Bytes;

use testkit::rtsp::rtp;
use testkit::rtsp::together::CLOCK;
use testkit::site::Site;

/// Its length.
pub(crate) const SECONDS: u64 = 86_400;
/// Frames in a second, and from one key frame to the next.
pub(crate) const FRAMES_PER_SECOND: u64 = 25;
pub(crate) const KEY_SECONDS: u64 = 2;
/// Bytes of a packet's body.
const BODY_BYTES: u64 = 1_400;
/// The end of a block that is written where the rest is not read.
const TAIL_BYTES: usize = 65_536;

/// Parameters of a camera's stream and of its archive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Camera {
    pub(crate) bytes_per_second: u64,
    pub(crate) block_bytes: u64,
    /// Excess speed of its clock over the host's, in millionths.
    pub(crate) fast_ppm: i64,
}

impl Camera {
    /// When a time of its recording was by the host's clock, both in nanoseconds from the beginning.
    pub(crate) fn host_ns(&self, media_ns: u64) -> u64 {
        let parts = i128::from(1_000_000 + self.fast_ppm);
        (i128::from(media_ns) * 1_000_000 / parts) as u64
    }
}

/// The written contents.
#[derive(Debug, Default)]
pub(crate) struct Day {
    /// When each block begins, in nanoseconds of the recording.
    pub(crate) begins_ns: Vec<u64>,
    /// The serials of the blocks in which key frames begin, one each two seconds.
    pub(crate) keys_in: Vec<u64>,
}

impl Day {
    pub(crate) fn blocks(&self) -> u64 {
        self.begins_ns.len() as u64
    }
}

fn description(camera: &Camera) -> String {
    format!(
        "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=day\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=video 0 RTP/AVP 96\r\n\
         b=TIAS:{}\r\na=rtpmap:96 H264/90000\r\na=control:track0\r\n",
        camera.bytes_per_second * 8
    )
}

/// Header of a packet of a frame, by their numbers.
fn header(packet: u64, frame: u64) -> [u8; 12] {
    let timestamp = (frame * u64::from(CLOCK) / FRAMES_PER_SECOND) as u32;
    let header = rtp(packet as u16, timestamp, 7, b"");
    header.try_into().expect("it has no body")
}

/// Action on a full block.
type Sealed<'a> = &'a mut dyn FnMut(u64, Composer, &mut [u8], Option<Vec<u8>>, bool);

/// The packets of a day, in blocks.
fn packets(camera: &Camera, sealed: Sealed<'_>) -> Day {
    let size = camera.block_bytes as usize;
    let text = description(camera).len();
    let new = |serial: u64| match index::ends_group(serial) {
        true => Composer::new(size, text, index::section_bytes_max(size)),
        false => Composer::new(size, text, 0),
    };
    let frame_bytes = camera.bytes_per_second / FRAMES_PER_SECOND;
    let packets = frame_bytes.div_ceil(BODY_BYTES);
    let len = (frame_bytes / packets) as usize;
    let mut day = Day::default();
    let mut indexer = Indexer::new(0, 0);
    let mut block = vec![0; size];
    let mut composer = new(0);
    let mut end = |indexer: &mut Indexer, composer: Composer, block: &mut [u8], is_last| {
        let serial = indexer.serial();
        let section = indexer.block(is_last, composer.index_room());
        sealed(serial, composer, block, section.map(|of| of.0), is_last);
    };
    for frame in 0..SECONDS * FRAMES_PER_SECOND {
        let media_ns = frame * 1_000_000_000 / FRAMES_PER_SECOND;
        let is_key = frame.is_multiple_of(KEY_SECONDS * FRAMES_PER_SECOND);
        for packet in 0..packets {
            if composer.room().len() < len {
                let full = std::mem::replace(&mut composer, new(indexer.serial() + 1));
                end(&mut indexer, full, &mut block, false);
            }
            if composer.is_empty() {
                day.begins_ns.push(media_ns);
            }
            if is_key && packet == 0 {
                day.keys_in.push(indexer.serial());
            }
            let entry = Entry {
                track: 0,
                kind: Kind::Rtp,
                begins_frame: packet == 0,
                is_key,
                arrival_ns: camera.host_ns(media_ns) + 5_000_000,
                media_ns,
                header: header(frame * packets + packet, frame),
                lost: 0,
            };
            // The block holds a picture's first bytes and its number.
            let begins = &mut block[composer.room()];
            begins[..2].copy_from_slice(&[if is_key { 0x65 } else { 0x41 }, 0x80]);
            begins[2..6].copy_from_slice(&(frame as u32).to_be_bytes());
            composer.push(&mut block, len, &entry);
            indexer.packet(&entry, len);
        }
    }
    end(&mut indexer, composer, &mut block, true);
    day
}

/// The groups of blocks in which these times of it are, in nanoseconds.
pub(crate) fn groups_at(camera: &Camera, times: &[Range<u64>]) -> Vec<u64> {
    let begins_ns = packets(camera, &mut |_, _, _, _, _| {}).begins_ns;
    let group = |at: u64| begins_ns.partition_point(|of| *of <= at) as u64 / GROUP;
    let groups = times.iter().flat_map(|of| group(of.start)..=group(of.end));
    groups.collect()
}

/// The places that are looked at when a ring is opened that has been filled once.
fn looked_at(blocks: u64) -> BTreeSet<u64> {
    let mut places: BTreeSet<u64> = (0..8).chain(blocks - 8..blocks).collect();
    let mut from = 7;
    while from + 1 < blocks {
        from += (blocks - from) / 2;
        places.insert(from);
    }
    places
}

/// Writes it to a volume that has room for it, as an archive that it fills.
pub(crate) fn write(client: &Client, volume: &Volume, camera: &Camera) -> Day {
    write_with(client, volume, camera, &[])
}

/// As `write`, with all blocks of these groups.
pub(crate) fn write_with(client: &Client, volume: &Volume, camera: &Camera, whole: &[u64]) -> Day {
    let blocks = packets(camera, &mut |_, _, _, _, _| {}).blocks();
    let header = Header {
        archive: [7; 16],
        block_bytes: camera.block_bytes,
        blocks,
    };
    let put = |at: u64, bytes: &[u8]| {
        client
            .write_at(volume, Bytes(at), bytes)
            .expect("the volume takes it");
    };
    put(0, &header.encode());
    let opened_by = looked_at(blocks);
    let text = description(camera);
    let day = packets(camera, &mut |serial, composer, block, section, is_last| {
        let is_whole = whole.contains(&(serial / GROUP));
        if section.is_none() && !opened_by.contains(&serial) && !is_whole {
            return;
        }
        let seal = Seal {
            archive: header.archive,
            serial,
            recording: 1,
            first: 0,
            begun_unix_ns: 1_700_000_000_000_000_000,
            gap: None,
            end: is_last.then_some(GapCause::Camera),
        };
        composer.seal(block, text.as_bytes(), &section.unwrap_or_default(), &seal);
        // The block with the description is read whole; others that have a section are not.
        let from = match serial == 0 || is_last || is_whole {
            true => 0,
            false => block.len() - TAIL_BYTES,
        };
        let at = (serial + 1) * camera.block_bytes;
        put(at + from as u64, &block[from..]);
    });
    client.flush(volume).expect("it is durable");
    day
}

/// Bytes of a volume that has room for it.
pub(crate) fn volume_bytes(camera: &Camera) -> u64 {
    let day = SECONDS * camera.bytes_per_second;
    (day + day / 8).next_multiple_of(1 << 30)
}

/// Memory of a pool that reads it.
pub(crate) fn memory() -> Memory {
    Memory::new(&MemoryConfig::new(Bytes::from_mib(64))).expect("there is memory")
}

/// A file as the only disk of a pool.
pub(crate) fn disk(path: &Path, memory: &Memory) -> PoolDisk {
    let disk = UringDisk::open(path, memory, 4).expect("a file can be a disk");
    let profile = DriveProfile::conservative(DriveKind::File, disk.capacity());
    PoolDisk {
        name: "disk".into(),
        disk: Box::new(disk),
        profile: Arc::new(profile.expect("a profile")),
        profile_is_measured: false,
    }
}

/// A pool on a file of so many bytes, of which little is there.
pub(crate) fn pool(path: &Path, bytes: u64) -> Arc<Pool> {
    let file = File::create(path).expect("a file");
    file.set_len(bytes).expect("a size");
    let memory = memory();
    let options = CreateOptions {
        extent_bytes: Some(Bytes::from_mib(64)),
        ..CreateOptions::default()
    };
    Pool::create(&memory, vec![disk(path, &memory)], &options).expect("a new pool");
    let disks = vec![disk(path, &memory)];
    Pool::open(memory, disks, OpenOptions::default()).expect("the pool")
}

/// A day in a new volume, with all blocks of groups.
pub(crate) fn record(pool: &Pool, name: &str, camera: &Camera, whole: &[u64]) -> Day {
    let spec = VolumeSpec {
        name: name.into(),
        size: Bytes(volume_bytes(camera)),
        placement: Placement::default(),
    };
    pool.create_volume(&spec).expect("there is room");
    let volume = pool.open_volume(name).expect("it is there");
    let client = pool.client("day", ClientOptions::default());
    write_with(&client.expect("there is memory"), &volume, camera, whole)
}

/// Has a server open what is in a file of so many bytes, which a pool was on.
pub(crate) fn configure(site: &Site, pool: Arc<Pool>, bytes: u64, more: &str) {
    pool.close().expect("it is closed");
    drop(pool);
    let text = format!(
        "[server]\napi = \"api.sock\"\nrealtime = false\n[nbd]\nunix = \"nbd.sock\"\n[memory]\ntotal = \"64MiB\"\n\
         [[disk]]\npath = \"disk-0\"\nkind = \"file\"\nsize = \"{bytes}B\"\n{more}"
    );
    std::fs::write(site.config(), text).expect("the configuration can be written");
}

/// Number of groups of this many blocks.
pub(crate) fn groups(blocks: u64) -> u64 {
    blocks.div_ceil(GROUP)
}
