//! A pool on an emulated drive, in real time: what costs a disk much and nobody waits for costs a stream
//! no deadline. Misses are net of the host's own lateness.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use drives::emulator::{DriveOptions, EmulatedDrive};
use drives::plant::PlantSpec;
use engine::buffer::{Memory, MemoryConfig};
use engine::pool::{
    CreateOptions, OpenOptions, Placement, Pool, PoolDisk, PoolError, Volume, VolumeSpec,
};
use engine::stream::{BlockReport, PaceReport, Player, Recorder, Stop, Stream, StreamSpec};
use engine::volume_io::{Client, ClientOptions};
use sched::profile::DriveProfile;
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond};

const DRIVE: &str = "quantum-atlas-ii";
const EXTENT: u64 = 1 << 20;
/// A block of a MiB in 1.25 s.
const RATE: BytesPerSecond = BytesPerSecond((EXTENT * 4).div_ceil(5));
/// About four fifths of the drive in worst-case service times, with the floor.
const STREAMS: usize = 6;
const BLOCKS: u64 = 4;
/// After so many blocks, a minute, a stream no longer waits for what is to be done beside it.
const BLOCKS_MAX: u64 = 12 * BLOCKS;

/// Workers beside the streams: enough that one always waits, so a scheduler that lets all of them go first
/// makes streams late.
const WORKERS: u64 = 4;

/// Load beside the streams.
#[derive(Default, Debug)]
struct Beside {
    done: AtomicU64,
    is_over: AtomicBool,
}

impl Beside {
    fn did(&self, more: u64) {
        self.done.fetch_add(more, Ordering::SeqCst);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}

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

    /// Plays and records all streams, round and round, until `at_least` of `work` is done beside them. None of
    /// them has missed a deadline then. Each worker does as many rounds of it as it can until they are done.
    /// `work` gets the worker's number and the round's, and has a limit, so that streams that are kept waiting
    /// come to their end as well.
    fn streams_beside(
        &self,
        rounds_max: u64,
        at_least: u64,
        work: impl Fn(u64, u64, &Beside) + Sync,
    ) {
        let streams: Vec<Stream> = (0..STREAMS).map(|number| self.reserve(number)).collect();
        let beside = Beside::default();
        let is_enough = || beside.done.load(Ordering::SeqCst) >= at_least;
        std::thread::scope(|scope| {
            let sessions: Vec<_> = streams
                .iter()
                .map(|stream| scope.spawn(|| run(stream, is_enough)))
                .collect();
            let (work, beside) = (&work, &beside);
            for worker in 0..WORKERS {
                scope.spawn(move || {
                    (0..rounds_max)
                        .take_while(|_| !beside.is_over())
                        .for_each(|round| work(worker, round, beside));
                });
            }
            let reports: Vec<_> = sessions.into_iter().map(|session| session.join()).collect();
            // Also where one has failed: workers go on until they are told.
            beside.is_over.store(true, Ordering::SeqCst);
            for report in reports {
                let report = report.unwrap();
                assert!(report.blocks >= BLOCKS && report.misses == 0, "{report:?}");
            }
            assert!(is_enough(), "{beside:?} in {BLOCKS_MAX} blocks");
        });
        let status = self.pool.status();
        let disk = &status.disks[0];
        assert!(disk.utilization_promised > 0.75, "{disk:?}");
        assert_eq!(disk.misses, 0, "{disk:?}");
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
            wraps: true,
        };
        self.pool.reserve(spec).unwrap()
    }
}

fn run(stream: &Stream, is_enough: impl Fn() -> bool) -> PaceReport {
    let peer = |path| File::options().read(true).write(true).open(path).unwrap();
    let stop = Stop::new().unwrap();
    let on_block = &mut |block: &BlockReport| {
        let blocks = block.index + 1;
        if blocks >= BLOCKS_MAX || (blocks >= BLOCKS && is_enough()) {
            stop.stop();
        }
    };
    let report = match stream.op() {
        Op::Read => Player::new(stream, Bytes::ZERO).run(peer("/dev/null"), &stop, on_block),
        Op::Write => Recorder::new(stream, Bytes::ZERO).run(peer("/dev/zero"), &stop, on_block),
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
    let halves: [Range<u64>; 2] = [1 << 29..1 << 30, 1 << 30..3 << 29];
    rig.streams_beside(20, 1, |worker, round, beside| {
        let placement = Placement {
            bytes: Some(halves[round as usize % 2].clone()),
            ..Placement::default()
        };
        // All of them lie in the other half, or before both.
        let mut done = 0;
        let result = rig.pool.move_extents(&name(worker), &placement, &mut |at| {
            beside.did(at.done - done);
            done = at.done;
            !beside.is_over()
        });
        assert!(
            matches!(result, Ok(_) | Err(PoolError::Stopped)),
            "{result:?}"
        );
    });
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
    rig.streams_beside(1_000, WORKERS + 1, |worker, round, beside| {
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
        beside.did(1);
    });
    drop(clients);
    rig.pool.close().unwrap();
}
