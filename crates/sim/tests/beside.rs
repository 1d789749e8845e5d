//! A pool on an emulated drive, in real time: what costs a disk much and nobody waits for costs a stream
//! no deadline. Misses are net of the host's own lateness.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use engine::buffer::{Memory, MemoryConfig};
use engine::front::{Client, ClientOptions};
use engine::pool::{
    CreateOptions, OpenOptions, Placement, Pool, PoolDisk, PoolError, Volume, VolumeSpec,
};
use engine::stream::{Player, Recorder, Stop, Stream, StreamSpec};
use sched::profile::DriveProfile;
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond};
use sim::emulator::{DriveOptions, EmulatedDrive};
use sim::plant::PlantSpec;

const DRIVE: &str = "quantum-atlas-ii";
const EXTENT: u64 = 1 << 20;
/// A block of a MiB in 1.25 s.
const RATE: BytesPerSecond = BytesPerSecond((EXTENT * 4).div_ceil(5));
/// About four fifths of the drive in worst-case service times, with the floor.
const STREAMS: usize = 6;
const BLOCKS: u64 = 4;

/// As many do the same beside the streams, so that something always waits: a scheduler that gives way to
/// all of it makes streams late.
const WORKERS: u64 = 4;

/// A pool of one drive, with a volume of [`BLOCKS`] extents for each stream, all of them written.
struct Rig {
    pool: Arc<Pool>,
    _folder: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = MemoryConfig {
            lock: false,
            ..MemoryConfig::new(Bytes::from_mib(64))
        };
        let memory = Memory::new(&config).unwrap();
        let spec = || PlantSpec::built_in(DRIVE).unwrap();
        let path = folder.path().join("drive");
        let options = DriveOptions::default();
        let disk = |drive| PoolDisk {
            name: DRIVE.into(),
            disk: Box::new(drive),
            profile: Arc::new(DriveProfile::shipped(DRIVE).unwrap()),
            profile_is_measured: true,
        };
        let create = CreateOptions {
            name: "beside".into(),
            extent_bytes: Some(Bytes(EXTENT)),
            force: false,
        };
        let drive = EmulatedDrive::create(&path, spec(), &options).unwrap();
        Pool::create(&memory, vec![disk(drive)], &create).unwrap();
        let drive = EmulatedDrive::open(&path, spec(), &options).unwrap();
        let pool = Pool::open(memory, vec![disk(drive)], OpenOptions::default()).unwrap();
        let rig = Self {
            pool,
            _folder: folder,
        };
        for number in 0..STREAMS {
            rig.written(&format!("v{number}"), BLOCKS);
        }
        rig
    }

    fn client(&self) -> Client {
        let options = ClientOptions::default();
        self.pool.client("test", options).unwrap()
    }

    fn volume(&self, name: &str, extents: u64) -> Arc<Volume> {
        let spec = VolumeSpec {
            name: name.into(),
            size: Bytes(extents * EXTENT),
            placement: Placement::default(),
        };
        self.pool.create_volume(&spec).unwrap();
        self.pool.open_volume(name).unwrap()
    }

    /// A volume with something in every extent; each extent has its number in all of its bytes.
    fn written(&self, name: &str, extents: u64) -> Arc<Volume> {
        let volume = self.volume(name, extents);
        let client = self.client();
        for number in 0..extents {
            let data = vec![number as u8 + 1; EXTENT as usize];
            client
                .write_at(&volume, Bytes(number * EXTENT), &data)
                .unwrap();
        }
        volume
    }

    /// Plays and records all streams, beside as many rounds of `work` as each worker can do until they are
    /// done; how many that is in all. None of them has missed a deadline then. `work` gets the worker's
    /// number, the round's, and whether it is over. It has a limit, so that streams that are kept waiting
    /// come to their end as well.
    fn streams_beside(&self, rounds_max: u64, work: impl Fn(u64, u64, &AtomicBool) + Sync) -> u64 {
        let streams: Vec<Stream> = (0..STREAMS).map(|number| self.reserve(number)).collect();
        let (stop, is_over) = (Stop::new().unwrap(), AtomicBool::new(false));
        let rounds = std::thread::scope(|scope| {
            let sessions: Vec<_> = streams
                .iter()
                .map(|stream| scope.spawn(|| run(stream, &stop)))
                .collect();
            let (work, is_over) = (&work, &is_over);
            let workers = (0..WORKERS).map(|worker| {
                scope.spawn(move || {
                    let mut rounds = 0;
                    while rounds < rounds_max && !is_over.load(Ordering::SeqCst) {
                        work(worker, rounds, is_over);
                        rounds += 1;
                    }
                    rounds
                })
            });
            let workers: Vec<_> = workers.collect();
            let reports: Vec<_> = sessions.into_iter().map(|session| session.join()).collect();
            // Also where one has failed: workers go on until they are told.
            is_over.store(true, Ordering::SeqCst);
            for report in reports {
                let report = report.unwrap();
                assert_eq!((report.blocks, report.misses), (BLOCKS, 0), "{report:?}");
            }
            workers
                .into_iter()
                .map(|worker| worker.join().unwrap())
                .sum()
        });
        let status = self.pool.status();
        let disk = &status.disks[0];
        assert!(disk.utilization_promised > 0.75, "{disk:?}");
        assert_eq!(disk.misses, 0, "{disk:?}");
        rounds
    }

    /// Every other stream plays.
    fn reserve(&self, number: usize) -> Stream {
        let name = format!("v{number}");
        let spec = StreamSpec {
            volume: self.pool.open_volume(&name).unwrap(),
            name,
            range: None,
            rate: RATE,
            block: Bytes(EXTENT),
            op: [Op::Read, Op::Write][number % 2],
            span: None,
            wraps: false,
        };
        self.pool.reserve(spec).unwrap()
    }
}

fn run(stream: &Stream, stop: &Stop) -> engine::stream::PaceReport {
    let peer = |path| File::options().read(true).write(true).open(path).unwrap();
    let report = match stream.op() {
        Op::Read => Player::new(stream, Bytes::ZERO).run(peer("/dev/null"), stop, &mut |_| {}),
        Op::Write => Recorder::new(stream, Bytes::ZERO).run(peer("/dev/zero"), stop, &mut |_| {}),
    };
    report.unwrap()
}

#[test]
fn extents_that_are_moved_cost_streams_no_deadline() {
    const EXTENTS: u64 = 3;
    let rig = Rig::new();
    let name = |worker| format!("files-{worker}");
    let files: Vec<_> = (0..WORKERS)
        .map(|worker| rig.written(&name(worker), EXTENTS))
        .collect();
    let moved = AtomicU64::new(0);
    let halves: [Range<u64>; 2] = [1 << 29..1 << 30, 1 << 30..3 << 29];
    rig.streams_beside(20, |worker, round, is_over| {
        let placement = Placement {
            bytes: Some(halves[round as usize % 2].clone()),
            ..Placement::default()
        };
        // All of them lie in the other half, or before both.
        let mut done = 0;
        let result = rig.pool.move_extents(&name(worker), &placement, &mut |at| {
            done = at.done;
            !is_over.load(Ordering::SeqCst)
        });
        moved.fetch_add(done, Ordering::SeqCst);
        assert!(
            matches!(result, Ok(_) | Err(PoolError::Stopped)),
            "{result:?}"
        );
    });
    assert!(moved.into_inner() > 0, "no extent was moved");
    let mut back = vec![0; (EXTENTS * EXTENT) as usize];
    for files in &files {
        rig.client().read_at(files, Bytes(0), &mut back).unwrap();
        let right =
            |(number, part): (usize, &[u8])| part.iter().all(|&byte| byte == number as u8 + 1);
        assert!(back.chunks(EXTENT as usize).enumerate().all(right));
    }
    rig.pool.close().unwrap();
}

/// The first byte that is written of an extent makes all of it this volume's.
#[test]
fn extents_that_are_fresh_cost_streams_no_deadline() {
    const EXTENTS: u64 = 400;
    let rig = Rig::new();
    let fresh = rig.volume("fresh", EXTENTS);
    let clients: Vec<Client> = (0..WORKERS).map(|_| rig.client()).collect();
    let begun = rig.streams_beside(1_000, |worker, round, _| {
        let client = &clients[worker as usize];
        let at = (round * WORKERS + worker) % EXTENTS * EXTENT;
        client
            .write_at(&fresh, Bytes(at + 8192), &[7; 4096])
            .unwrap();
        let mut back = [1; 4096];
        client
            .read_at(&fresh, Bytes(at + 65_536), &mut back)
            .unwrap();
        assert!(back.iter().all(|&byte| byte == 0));
    });
    assert!(begun > WORKERS, "{begun}");
    drop(clients);
    rig.pool.close().unwrap();
}
