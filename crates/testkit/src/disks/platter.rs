//! Disks in memory: what they hold and what of it would survive a power cut, and how they fail, stall and
//! take their time.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use engine::clock;
use engine::disk::{Disk, DiskError, DiskIo, Done, Durability, HostSync};
use engine::event::EventFd;
use rand::Rng;
use rand::rngs::StdRng;
use sched::request::Op;
use sched::units::{Nanos, SectorCount, Time};

pub(super) const SECTOR: usize = 512;

/// Boxed, for a map that grows moves what it holds: megabytes of it would keep a stream's block waiting.
pub type SectorData = Box<[u8; SECTOR]>;

/// Contents of a disk, and the part that survives a power cut.
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

/// A fault of transfers that touch a range of sectors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlaceFault {
    pub sectors: Range<u64>,
    /// The direction; both if there is none.
    pub op: Option<Op>,
    /// The transfer fails; otherwise it only takes longer.
    pub fails: bool,
    /// The time that it takes longer, in nanoseconds.
    pub longer_ns: u64,
}

/// The platters: what stays when a pool is dropped.
pub struct Platter {
    content: Mutex<Content>,
    sectors: u64,
    pub durability: Durability,
    pub syncs: AtomicU64,
    /// Syncs that have come, also those that are held.
    pub syncs_begun: AtomicU64,
    pub writes: AtomicU64,
    pub reads: AtomicU64,
    /// Writes fail from now on.
    pub fail_writes: AtomicBool,
    /// Writes that begin with this byte fail; zero is none.
    pub fail_filled: AtomicU64,
    pub fail_reads: AtomicBool,
    pub fail_syncs: AtomicBool,
    /// Places that fail, or take longer.
    pub faults: Mutex<Vec<PlaceFault>>,
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
            syncs_begun: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            fail_writes: AtomicBool::new(false),
            fail_filled: AtomicU64::new(0),
            fail_reads: AtomicBool::new(false),
            fail_syncs: AtomicBool::new(false),
            faults: Mutex::default(),
            stalled: AtomicBool::new(false),
            delay_ns: AtomicU64::new(0),
            free_at: AtomicU64::new(0),
            held: Mutex::new(false),
            released: Condvar::new(),
        })
    }

    /// True if a place fails this transfer, and the time that it takes longer.
    fn fault_of(&self, io: &DiskIo) -> (bool, u64) {
        let faults = self.faults.lock().unwrap();
        let end = io.start.0 + io.count.0;
        let met = faults.iter().filter(|fault| {
            let is_here = fault.sectors.start < end && io.start.0 < fault.sectors.end;
            is_here && fault.op.is_none_or(|only| only == io.op)
        });
        met.fold((false, 0), |(fails, longer), fault| {
            (fails || fault.fails, longer + fault.longer_ns)
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
            .filter(|(_, data)| ***data == [byte; SECTOR]);
        let mut sectors: Vec<u64> = full.map(|(sector, _)| *sector).collect();
        sectors.sort_unstable();
        sectors
    }

    /// The platters as they would be if the power were cut at this instant.
    pub fn after_power_cut(platters: &[Arc<Self>], rng: &mut StdRng) -> Vec<Arc<Self>> {
        let held: Vec<_> = platters
            .iter()
            .map(|platter| platter.content.lock().unwrap())
            .collect();
        let contents: Vec<Content> = held.iter().map(|content| (**content).clone()).collect();
        drop(held);
        let cut = platters.iter().zip(contents).map(|(old, mut content)| {
            content.cut_power(rng);
            let new = Self::new(old.sectors * SECTOR as u64, old.durability);
            *new.content.lock().unwrap() = content;
            new
        });
        cut.collect()
    }

    fn write(&self, start: u64, bytes: &[u8], durable: bool) {
        let mut content = self.content.lock().unwrap();
        for (index, data) in bytes.chunks_exact(SECTOR).enumerate() {
            let sector = start + index as u64;
            let data = Box::new(data.try_into().expect("whole sectors"));
            let before = content.current.insert(sector, data);
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
                Some(sector) => data.copy_from_slice(&sector[..]),
                // Data on a disk that this pool has not written.
                None => data.fill(0xEE),
            }
        }
    }
}

/// Makes a platter's content durable.
struct PlatterSync(Arc<Platter>);

impl HostSync for PlatterSync {
    fn sync(&self) -> io::Result<()> {
        self.0.syncs_begun.fetch_add(1, Ordering::SeqCst);
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
    queue: VecDeque<(DiskIo, Time)>,
}

impl MemDisk {
    pub fn new(platter: &Arc<Platter>) -> Self {
        Self {
            platter: Arc::clone(platter),
            queue: VecDeque::new(),
        }
    }

    fn perform(&self, io: &DiskIo) -> Result<(), DiskError> {
        let platter = &self.platter;
        let error = Err(DiskError::Io {
            errno: 5,
            start: io.start,
        });
        if platter.fault_of(io).0 {
            return error;
        }
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
        let end = begin + delay + self.platter.fault_of(&io).1;
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
