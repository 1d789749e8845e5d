//! Disks in memory that can lose power and fail, and pools of them.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::print_stdout,
    reason = "each test uses some of it, and seeds are printed"
)]

pub mod host;
pub mod skip;

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use engine::buffer::{Memory, MemoryConfig, Segments};
use engine::clock;
use engine::disk::{Disk, DiskError, DiskIo, Done, Durability, HostSync};
use engine::event::EventFd;
use engine::front::{Client, ClientOptions};
use engine::pool::{
    CreateOptions, Floor, OpenOptions, Placement, Pool, PoolDisk, PoolError, Volume, VolumeSpec,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sched::profile::{DriveKind, DriveProfile, FlatSpec, ProfileSpec};
use sched::request::Op;
use sched::units::{Bytes, Nanos, SectorCount, Time};

const SECTOR: usize = 512;

pub type SectorData = [u8; SECTOR];

/// What a disk holds, and what of it would survive a power cut.
#[derive(Clone, Default)]
struct Content {
    current: HashMap<u64, SectorData>,
    /// For each sector written since the last sync, what it holds after a power cut at the latest:
    /// what it held then.
    unsynced: HashMap<u64, Option<SectorData>>,
}

impl Content {
    /// Loses any part of what was not made durable, sector by sector.
    fn cut_power(&mut self, rng: &mut StdRng) {
        let mut unsynced: Vec<_> = std::mem::take(&mut self.unsynced).into_iter().collect();
        unsynced.sort_unstable_by_key(|(sector, _)| *sector);
        for (sector, before) in unsynced {
            if rng.random_bool(0.5) {
                match before {
                    Some(data) => self.current.insert(sector, data),
                    None => self.current.remove(&sector),
                };
            }
        }
    }
}

/// The platters: what stays when a pool is dropped.
pub struct Platter {
    content: Mutex<Content>,
    sectors: u64,
    pub durability: Durability,
    pub syncs: AtomicU64,
    pub writes: AtomicU64,
    pub reads: AtomicU64,
    /// Writes fail from now on.
    pub fail_writes: AtomicBool,
    /// Writes that begin with this byte fail; zero is none.
    pub fail_filled: AtomicU64,
    pub fail_reads: AtomicBool,
    pub fail_syncs: AtomicBool,
    /// Nothing is answered from now on.
    pub stalled: AtomicBool,
    /// Every transfer takes this long, in nanoseconds.
    pub delay_ns: AtomicU64,
    /// The time of the last completion, transfers being one after another.
    free_at: AtomicU64,
    /// While true, syncs wait.
    held: Mutex<bool>,
    released: Condvar,
}

impl Platter {
    pub fn new(bytes: u64, durability: Durability) -> Arc<Self> {
        Arc::new(Self {
            content: Mutex::default(),
            sectors: bytes / SECTOR as u64,
            durability,
            syncs: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            fail_writes: AtomicBool::new(false),
            fail_filled: AtomicU64::new(0),
            fail_reads: AtomicBool::new(false),
            fail_syncs: AtomicBool::new(false),
            stalled: AtomicBool::new(false),
            delay_ns: AtomicU64::new(0),
            free_at: AtomicU64::new(0),
            held: Mutex::new(false),
            released: Condvar::new(),
        })
    }

    /// Has syncs wait from now on, or go on.
    pub fn hold_syncs(&self, held: bool) {
        *self.held.lock().unwrap() = held;
        self.released.notify_all();
    }

    /// The sectors that are full of this byte, in order.
    pub fn sectors_full_of(&self, byte: u8) -> Vec<u64> {
        let content = self.content.lock().unwrap();
        let full = content
            .current
            .iter()
            .filter(|(_, data)| **data == [byte; SECTOR]);
        let mut sectors: Vec<u64> = full.map(|(sector, _)| *sector).collect();
        sectors.sort_unstable();
        sectors
    }

    fn write(&self, start: u64, bytes: &[u8], durable: bool) {
        let mut content = self.content.lock().unwrap();
        for (index, data) in bytes.chunks_exact(SECTOR).enumerate() {
            let sector = start + index as u64;
            let before = content
                .current
                .insert(sector, data.try_into().expect("whole sectors"));
            if durable {
                content.unsynced.remove(&sector);
            } else {
                content.unsynced.entry(sector).or_insert(before);
            }
        }
    }

    fn read(&self, start: u64, bytes: &mut [u8]) {
        let content = self.content.lock().unwrap();
        for (index, data) in bytes.chunks_exact_mut(SECTOR).enumerate() {
            match content.current.get(&(start + index as u64)) {
                Some(sector) => data.copy_from_slice(sector),
                // What a disk holds that nobody of this pool has written.
                None => data.fill(0xEE),
            }
        }
    }
}

/// Makes a platter's content durable.
struct PlatterSync(Arc<Platter>);

impl HostSync for PlatterSync {
    fn sync(&self) -> io::Result<()> {
        let mut held = self.0.held.lock().unwrap();
        while *held {
            held = self.0.released.wait(held).unwrap();
        }
        drop(held);
        self.0.syncs.fetch_add(1, Ordering::SeqCst);
        if self.0.fail_syncs.load(Ordering::SeqCst) {
            return Err(io::Error::other("the test fails it"));
        }
        self.0.content.lock().unwrap().unsynced.clear();
        Ok(())
    }
}

/// A disk over a platter. Transfers are one after another and take the platter's delay.
pub struct MemDisk {
    platter: Arc<Platter>,
    queue: std::collections::VecDeque<(DiskIo, Time)>,
}

impl MemDisk {
    pub fn new(platter: &Arc<Platter>) -> Self {
        Self {
            platter: Arc::clone(platter),
            queue: std::collections::VecDeque::new(),
        }
    }

    fn perform(&self, io: &DiskIo) -> Result<(), DiskError> {
        let platter = &self.platter;
        let error = Err(DiskError::Io {
            errno: 5,
            start: io.start,
        });
        let size = (io.count.0 as usize) * SECTOR;
        match io.op {
            Op::Read => {
                platter.reads.fetch_add(1, Ordering::SeqCst);
                if platter.fail_reads.load(Ordering::SeqCst) {
                    return error;
                }
                let mut bytes = vec![0; size];
                platter.read(io.start.0, &mut bytes);
                io.segments.copy_from(0, &bytes);
            }
            Op::Write => {
                platter.writes.fetch_add(1, Ordering::SeqCst);
                if platter.fail_writes.load(Ordering::SeqCst) {
                    return error;
                }
                let mut bytes = vec![0; size];
                io.segments.copy_to(0, &mut bytes);
                let fails = platter.fail_filled.load(Ordering::SeqCst);
                if fails != 0 && u64::from(bytes[0]) == fails {
                    return error;
                }
                let durable = match platter.durability {
                    Durability::WriteThrough => true,
                    Durability::Fua => io.durable,
                    Durability::Host => false,
                };
                platter.write(io.start.0, &bytes, durable);
            }
        }
        Ok(())
    }
}

impl Disk for MemDisk {
    fn capacity(&self) -> SectorCount {
        SectorCount(self.platter.sectors)
    }

    fn places(&self) -> usize {
        8
    }

    fn durability(&self) -> Durability {
        self.platter.durability
    }

    fn host_sync(&self) -> Option<Arc<dyn HostSync>> {
        match self.platter.durability {
            Durability::Host => Some(Arc::new(PlatterSync(Arc::clone(&self.platter)))),
            _ => None,
        }
    }

    fn submit(&mut self, io: DiskIo) -> Result<(), DiskError> {
        let delay = self.platter.delay_ns.load(Ordering::SeqCst);
        let begin = clock::now()
            .0
            .max(self.platter.free_at.load(Ordering::SeqCst));
        let end = begin + delay;
        self.platter.free_at.store(end, Ordering::SeqCst);
        self.queue.push_back((io, Time(end)));
        Ok(())
    }

    fn wait(&mut self, until: Option<Time>, wake: &EventFd, out: &mut Vec<Done>) -> io::Result<()> {
        let ready = |(_, at): &(DiskIo, Time)| *at <= clock::now();
        if !self.platter.stalled.load(Ordering::SeqCst) {
            while self.queue.front().is_some_and(ready) {
                let (io, _) = self.queue.pop_front().expect("it was there");
                let result = self.perform(&io);
                out.push(Done {
                    tag: io.tag,
                    result,
                    at: clock::now(),
                    host_late: Nanos::ZERO,
                });
            }
        }
        if out.is_empty() {
            let next = self.queue.front().map(|(_, at)| *at);
            let stalled = self.platter.stalled.load(Ordering::SeqCst);
            // A stalled disk looks now and then whether it still is.
            let next = if stalled {
                Some(clock::now() + Nanos::from_millis(1))
            } else {
                next
            };
            let until = match (until, next) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            wake.wait(until);
        }
        Ok(())
    }
}

/// The disks of a pool.
pub struct Rig {
    pub platters: Vec<Arc<Platter>>,
    pub memory: Memory,
    pub profile: Arc<DriveProfile>,
    pub options: OpenOptions,
}

pub const MIB: u64 = 1 << 20;

impl Rig {
    /// `count` disks of `bytes` each.
    pub fn new(count: usize, bytes: u64, durability: Durability) -> Self {
        let sectors = SectorCount(bytes / SECTOR as u64);
        let profile = DriveProfile::new(ProfileSpec {
            name: "memory".into(),
            kind: DriveKind::SolidState,
            measured: false,
            sources: Vec::new(),
            outstanding: 1,
            capacity_sectors: sectors.0,
            physical_sector_bytes: 512,
            rotating: None,
            flat: Some(FlatSpec {
                read_overhead_us: 200,
                write_overhead_us: 200,
                read_bytes_per_second: 500_000_000,
                write_bytes_per_second: 500_000_000,
            }),
            worst_case: Vec::new(),
        })
        .unwrap();
        Self::of_drives(count, profile, durability)
    }

    /// `count` disks as large and, to the scheduler, as slow as such a drive.
    pub fn of_drives(count: usize, profile: DriveProfile, durability: Durability) -> Self {
        let bytes = profile.capacity().0 * SECTOR as u64;
        let platter = |_| Platter::new(bytes, durability);
        let platters: Vec<_> = (0..count).map(platter).collect();
        let mut config = MemoryConfig::new(Bytes::from_mib(64));
        config.lock = false;
        Self {
            platters,
            memory: Memory::new(&config).unwrap(),
            profile: Arc::new(profile),
            options: OpenOptions {
                name: "test".into(),
                floor: Floor::Share { permille: 50 },
                realtime: false,
                ..OpenOptions::default()
            },
        }
    }

    pub fn disks(&self) -> Vec<PoolDisk> {
        let disk = |(index, platter): (usize, &Arc<Platter>)| PoolDisk {
            name: format!("disk{index}"),
            disk: Box::new(MemDisk::new(platter)),
            profile: Arc::clone(&self.profile),
            profile_is_measured: false,
        };
        self.platters.iter().enumerate().map(disk).collect()
    }

    /// Makes a pool with extents of `extent_bytes`.
    pub fn create(&self, extent_bytes: u64) {
        let options = CreateOptions {
            name: "test".into(),
            extent_bytes: Some(Bytes(extent_bytes)),
            force: false,
        };
        Pool::create(&self.memory, self.disks(), &options).unwrap();
    }

    pub fn try_open(&self) -> Result<Arc<Pool>, PoolError> {
        Pool::open(self.memory.clone(), self.disks(), self.options.clone())
    }

    pub fn open(&self) -> Arc<Pool> {
        self.try_open().unwrap_or_else(|error| panic!("{error}"))
    }

    /// A new pool, open.
    pub fn fresh(
        count: usize,
        bytes: u64,
        extent_bytes: u64,
        durability: Durability,
    ) -> (Self, Arc<Pool>) {
        let rig = Self::new(count, bytes, durability);
        rig.create(extent_bytes);
        let pool = rig.open();
        (rig, pool)
    }

    /// The disks as they would be if the power were cut at this instant.
    pub fn after_power_cut(&self, rng: &mut StdRng) -> Self {
        let held: Vec<_> = self
            .platters
            .iter()
            .map(|platter| platter.content.lock().unwrap())
            .collect();
        let mut contents: Vec<Content> = held.iter().map(|content| (**content).clone()).collect();
        drop(held);
        contents
            .iter_mut()
            .for_each(|content| content.cut_power(rng));
        let platters = self.platters.iter().zip(contents).map(|(old, content)| {
            let new = Platter::new(old.sectors * SECTOR as u64, old.durability);
            *new.content.lock().unwrap() = content;
            new
        });
        Self {
            platters: platters.collect(),
            memory: self.memory.clone(),
            profile: Arc::clone(&self.profile),
            options: self.options.clone(),
        }
    }
}

pub fn volume(pool: &Pool, name: &str, bytes: u64) -> Arc<Volume> {
    let spec = VolumeSpec {
        name: name.into(),
        size: Bytes(bytes),
        placement: Placement::default(),
    };
    pool.create_volume(&spec)
        .unwrap_or_else(|error| panic!("{error}"));
    pool.open_volume(name).unwrap()
}

pub fn on_disk(disk: usize) -> Placement {
    Placement {
        disks: vec![format!("disk{disk}")],
        ..Placement::default()
    }
}

pub fn client(pool: &Pool) -> Client {
    pool.client("test", ClientOptions::default()).unwrap()
}

/// A buffer full of `bytes`, pinned for a write.
pub fn filled(client: &Client, bytes: &[u8]) -> (engine::buffer::Buffer, Segments) {
    let mut buffer = client.account().allocate_wait(bytes.len(), None).unwrap();
    buffer
        .with_mut(|memory| memory[..bytes.len()].copy_from_slice(bytes))
        .unwrap();
    let segments = buffer.segments(Op::Write, 0..bytes.len()).unwrap();
    (buffer, segments)
}

/// Sets a flag when it goes out of scope, also by a panic, so that threads that wait for it end.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The seed of a random test: from CLOCKWISE_SEED, or a new one; printed.
#[allow(clippy::print_stdout, reason = "a random test prints its seed")]
pub fn seeded(what: &str) -> StdRng {
    let given = std::env::var("CLOCKWISE_SEED").ok();
    let seed = given
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(rand::random);
    println!("{what}: CLOCKWISE_SEED={seed}");
    StdRng::seed_from_u64(seed)
}
