//! Tests of dispatchers on a disk in memory whose faults the test controls.

mod faults;
mod host;
mod machine;
mod requests;

use std::collections::HashMap;
use std::sync::Mutex;

use proptest::prelude::*;
use sched::disk::{SchedulerConfig, SubmitError};
use sched::profile::{DriveKind, DriveProfile};
use sched::request::{Class, Op, Order, Urgency};
use sched::units::{Bytes, Sector, SectorCount};

use super::*;
use crate::buffer::{Account, AccountId, Memory, MemoryConfig, Segments};
use crate::clock;
use crate::completion::{Completion, CompletionQueue, IoError};
use crate::disk::{DiskError, DiskIo, Done, Durability};
use crate::event::EventFd;
use testkit::until;

const SECTORS: SectorCount = SectorCount(2048);
const SYNC: Class = Class::BestEffort(Urgency::Sync);
const FEW: Places = Places {
    stream: 2,
    reserved: 2,
    best_effort: 4,
};

fn scheduler() -> DiskScheduler {
    let profile = DriveProfile::conservative(DriveKind::File, SECTORS).unwrap();
    DiskScheduler::new(Arc::new(profile), SchedulerConfig::default())
}

/// Limits that no slow host exceeds, for tests that are not about stalls.
const NEVER: StallLimits = StallLimits {
    stalled_after: Nanos::from_secs(100_000),
    give_up_after: Nanos::from_secs(100_000),
};

/// A stalled disk is given up at once.
const LITTLE: StallLimits = StallLimits {
    stalled_after: Nanos::from_millis(30),
    give_up_after: Nanos::from_millis(30),
};

/// Faults that a test injects.
#[derive(Debug, Default)]
struct InjectedFaults {
    /// Nothing completes while set.
    frozen: AtomicBool,
    /// Writes fail while set.
    fails_writes: AtomicBool,
    /// Transfers fail while set: the disk is gone.
    vanished: AtomicBool,
    /// Waiting fails.
    wait_failed: AtomicBool,
    /// Panics in the next submission.
    panics: AtomicBool,
}

struct MemoryDisk {
    bytes: Vec<u8>,
    held: Vec<DiskIo>,
    faults: Arc<InjectedFaults>,
    served: Arc<Mutex<Vec<(Op, Sector)>>>,
}

impl Disk for MemoryDisk {
    fn capacity(&self) -> SectorCount {
        SECTORS
    }

    fn places(&self) -> usize {
        1
    }

    fn durability(&self) -> Durability {
        Durability::WriteThrough
    }

    fn submit(&mut self, io: DiskIo) -> Result<(), DiskError> {
        assert!(!self.faults.panics.load(Ordering::SeqCst), "on purpose");
        if self.faults.vanished.load(Ordering::SeqCst) {
            return Err(DiskError::Gone {
                errno: libc::ENODEV,
            });
        }
        self.held.push(io);
        Ok(())
    }

    fn wait(&mut self, until: Option<Time>, wake: &EventFd, out: &mut Vec<Done>) -> io::Result<()> {
        if self.faults.wait_failed.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if self.held.is_empty() || self.faults.frozen.load(Ordering::SeqCst) {
            wake.wait(until);
            return Ok(());
        }
        for io in self.held.drain(..) {
            let at = (io.start.0 * SECTOR_BYTES) as usize;
            let range = at..at + io.segments.size();
            let fails = io.op == Op::Write && self.faults.fails_writes.load(Ordering::SeqCst);
            match io.op {
                Op::Read => io.segments.copy_from(0, &self.bytes[range]),
                Op::Write if fails => {}
                Op::Write => io.segments.copy_to(0, &mut self.bytes[range]),
            }
            self.served.lock().unwrap().push((io.op, io.start));
            let result = if fails {
                Err(DiskError::Io {
                    errno: libc::EIO,
                    start: io.start,
                })
            } else {
                Ok(())
            };
            out.push(Done {
                tag: io.tag,
                result,
                at: clock::now(),
                host_late: Nanos::ZERO,
            });
        }
        Ok(())
    }
}

struct Rig {
    dispatcher: Option<Dispatcher>,
    handle: DispatcherHandle,
    faults: Arc<InjectedFaults>,
    served: Arc<Mutex<Vec<(Op, Sector)>>>,
    account: Account,
    queue: CompletionQueue,
}

fn rig_with(places: Places, patience: StallLimits) -> Rig {
    let faults = Arc::new(InjectedFaults::default());
    let served = Arc::default();
    let disk = MemoryDisk {
        bytes: vec![0; SECTORS.bytes().0 as usize],
        held: Vec::new(),
        faults: Arc::clone(&faults),
        served: Arc::clone(&served),
    };
    let (dispatcher, _) = Dispatcher::start(DispatcherConfig {
        name: "memory".into(),
        disk: Box::new(disk),
        scheduler: scheduler(),
        thread: ThreadParams::ordinary("test-disk"),
        places,
        patience,
        link: None,
    })
    .unwrap();
    let config = MemoryConfig {
        lock: false,
        ..MemoryConfig::new(Bytes::from_mib(4))
    };
    let account = Memory::new(&config)
        .unwrap()
        .open_account("test", Bytes(0))
        .unwrap();
    let handle = dispatcher.handle();
    let queue = CompletionQueue::new(256).unwrap();
    Rig {
        dispatcher: Some(dispatcher),
        handle,
        faults,
        served,
        account,
        queue,
    }
}

/// Lets the dispatcher of a failed test end: it waits for its disk.
impl Drop for Rig {
    fn drop(&mut self) {
        self.faults.frozen.store(false, Ordering::SeqCst);
    }
}

fn rig() -> Rig {
    rig_with(Places::default(), NEVER)
}

impl Rig {
    fn io(&self, token: u64, op: Op, start: u64, segments: Segments) -> Io {
        Io {
            account: self.account.id(),
            op,
            start: Sector(start),
            count: SectorCount(segments.size() as u64 / SECTOR_BYTES),
            class: SYNC,
            order: Order::default(),
            durable: false,
            segments,
            target: self.queue.target(token).unwrap(),
        }
    }

    /// A 4 KiB transfer that owns its buffer.
    fn small(&self, token: u64, op: Op, start: u64) -> Io {
        let buffer = self.account.allocate(4096).unwrap();
        self.io(token, op, start, buffer.segments(op, 0..4096).unwrap())
    }

    fn join_stream(&self) -> Result<(), ControlError> {
        let params = TaskParams::new(Nanos::from_millis(500), Nanos::from_secs(5)).unwrap();
        self.handle
            .join(TaskId(1), params, TaskKind::Stream, Time::ZERO)
    }

    /// A block of that stream.
    fn of_stream(&self, token: u64) -> Io {
        Io {
            class: Class::Stream(TaskId(1)),
            ..self.small(token, Op::Read, 0)
        }
    }

    fn answer(&self) -> Completion {
        self.queue.wait(None).unwrap()
    }

    fn results(&self, count: usize) -> HashMap<u64, Result<(), IoError>> {
        (0..count)
            .map(|_| self.answer())
            .map(|answer| (answer.token, answer.result))
            .collect()
    }

    /// Waits until the disk's thread has taken in everything submitted before.
    fn settle(&self) -> DispatcherReport {
        self.handle.report().unwrap()
    }

    fn thaw(&self) {
        self.faults.frozen.store(false, Ordering::SeqCst);
        self.settle();
    }

    /// Keeps the disk busy with one read, token 0, until [`thaw`](Self::thaw).
    fn freeze(&self) {
        self.faults.frozen.store(true, Ordering::SeqCst);
        self.handle.try_submit(self.small(0, Op::Read, 0)).unwrap();
        until("it is on the disk", || self.settle().on_disk > 0);
    }
}
