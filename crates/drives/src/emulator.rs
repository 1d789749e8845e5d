//! The real-time drive emulator: a disk whose requests complete when a [plant](crate::plant) says so.
//!
//! # What it is for
//!
//! Guarantees have to be shown on drives whose mechanics are known, on machines that have none. An
//! [`EmulatedDrive`] is an `engine::Disk` like any other: the server records and plays on it, file
//! systems lie on it, its data is real and lives in a sparse file.
//!
//! # How
//!
//! A thread of its own, real-time where permitted, takes each request, asks the plant when it
//! completes given the instant of its issue, moves the data between the request's memory and the
//! file, sleeps until a little before the instant, and wakes whoever waits for the completion. That
//! thread spins the rest: to wake two threads one after the other takes a host longer than the
//! accuracy that is wanted, and is over by then. How much is a little depends on the host, and the
//! drive follows that ([`DriveOptions::lead`]). The platters turn with the host's monotonic clock.
//!
//! # When the host is late
//!
//! A host is not a drive: it may wake the thread late, or take longer for the file than the model
//! for the medium. A completion says by how much it came after the model's instant
//! (`Done::host_late`), and [`DriveStats`] keep the distribution and tell the causes apart, so that the
//! host's hiccups are neither blamed on a scheduler nor hidden. The model's clock is not affected: the
//! next request is timed from its own issue.
//!
//! # Drives that share a link
//!
//! Drives of one [`DriveOptions::link`] complete when its [model](crate::link) says so. A transfer that begins on
//! another drive may delay a request until its own transfer has ended, so the drive asks the link again at that time.
//!
//! # Durability
//!
//! A write that has completed is in the host's page cache: it survives the death of this process
//! (SIGKILL at any instant), not that of the host. With [`DriveOptions::sync`] it is on the host's medium
//! before it completes, and the host's own disk then decides how late that is. With
//! [`DriveOptions::volatile_cache`] the drive has a write cache that loses power with
//! [`DriveControl::power_cut`]: of the sectors that were neither forced nor destaged, any may be lost.
//!
//! # Deliberately absent
//!
//! Reordering inside the drive: requests are served in order of issue.

mod fault;
mod lead;
mod link;
mod stats;
mod store;
mod worker;

use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use engine::clock;
use engine::disk::{Disk, DiskError, DiskIo, Done, Durability};
use engine::event::EventFd;
use engine::rt::{self, DeniedResources, ThreadParams};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use sched::units::{Nanos, Sector, SectorCount, Time};

pub use fault::{FaultId, RangeFault};
pub use link::EmulatedLink;
pub use stats::{DriveStats, LATE_LIMIT, LatenessSummary, ServiceLogEntry};

use crate::plant::{Plant, PlantSpec};
use lead::Lead;
use stats::Recorder;
use store::Store;
use worker::{Finished, Job, State};

/// Transfers that the drive holds at a time. It serves them one after another.
pub const PLACES: usize = 4;

/// The priority of the drive's thread: above dispatchers, which are to find a drive that does not
/// depend on how busy they are.
const FIFO_PRIORITY: u8 = 80;

/// Options of an emulated drive.
#[derive(Clone, Debug, Default)]
pub struct DriveOptions {
    /// Decides the drive's luck with seeks and overheads, and what a power cut loses.
    pub seed: u64,
    /// True if a write is on the host's medium before it completes.
    pub sync: bool,
    /// A write cache of so many sectors that a power cut empties; `None` for a drive whose cache is
    /// off.
    pub volatile_cache: Option<SectorCount>,
    /// Time before a completion at which the drive's thread wakes the waiting thread, which spins for the
    /// rest. Both may wake late by this much without a late completion. `None`: the time that this host takes
    /// to wake both, except one time in 200; between 0.1 and 0.5 ms.
    pub lead: Option<Nanos>,
    /// The link that it shares with other drives; `None` for a drive with a link of its own.
    pub link: Option<Arc<EmulatedLink>>,
}

/// Shared between the dispatcher's side, the drive's thread and whoever holds a control.
struct Shared {
    state: Mutex<State>,
    /// The state changed in a way that somebody may wait for.
    changed: Condvar,
    /// Wakes the drive's thread.
    work: EventFd,
    /// Wakes the dispatcher.
    finished: EventFd,
    recorder: Mutex<Recorder>,
    store_file: Arc<std::fs::File>,
}

/// Locks even if a holder panicked: every critical section leaves the state whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A drive that exists as a model and a sparse file.
pub struct EmulatedDrive {
    shared: Arc<Shared>,
    sectors: SectorCount,
    durability: Durability,
    denied: DeniedResources,
    thread: Option<JoinHandle<()>>,
    handed_over: Vec<Finished>,
}

impl EmulatedDrive {
    /// Makes the drive's file, which must not exist, and starts the drive. The file has the drive's
    /// size and takes no room on the host until it is written.
    ///
    /// # Errors
    /// When the file exists, cannot be made or is too large for the host's file system, or the thread
    /// cannot be started.
    pub fn create(path: &Path, spec: PlantSpec, options: &DriveOptions) -> io::Result<Self> {
        Self::start(Store::create(path, spec.sectors(), options)?, spec, options)
    }

    /// Starts the drive of an existing file.
    ///
    /// # Errors
    /// When there is no such file, it is not of the drive's size, another drive uses it, or the thread
    /// cannot be started.
    pub fn open(path: &Path, spec: PlantSpec, options: &DriveOptions) -> io::Result<Self> {
        Self::start(Store::open(path, spec.sectors(), options)?, spec, options)
    }

    fn start(store: Store, spec: PlantSpec, options: &DriveOptions) -> io::Result<Self> {
        let plant = Plant::new(spec, options.seed);
        let sectors = plant.sectors();
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new(Lead::new(options.lead))),
            changed: Condvar::new(),
            work: EventFd::new()?,
            finished: EventFd::new()?,
            recorder: Mutex::new(Recorder::new()),
            store_file: store.file(),
        });
        let params = ThreadParams {
            name: "emulated-drive".into(),
            fifo_priority: Some(FIFO_PRIORITY),
            cpus: None,
            io_flusher: true,
        };
        let worker = worker::Worker::new(Arc::clone(&shared), plant, store, options.link.clone());
        let (thread, denied) = rt::spawn(&params, move || worker.run())?;
        Ok(Self {
            shared,
            sectors,
            durability: match options.volatile_cache {
                None => Durability::WriteThrough,
                Some(_) => Durability::Fua,
            },
            denied,
            thread: Some(thread),
            handed_over: Vec::with_capacity(PLACES),
        })
    }

    /// Rights that the host denied to the drive's thread, in words for the operator.
    #[must_use]
    pub fn denied(&self) -> &DeniedResources {
        &self.denied
    }

    /// Statistics, faults and power, from any thread.
    #[must_use]
    pub fn control(&self) -> DriveControl {
        DriveControl(Arc::clone(&self.shared))
    }

    /// Hands over what is over. Returns when the next request will be, if that is close by.
    fn collect(&mut self, out: &mut Vec<Done>) -> Option<Time> {
        let next = lock(&self.shared.state).take_finished(clock::now(), &mut self.handed_over);
        if self.handed_over.is_empty() {
            return next;
        }
        let at = clock::now();
        let mut recorder = lock(&self.shared.recorder);
        for finished in self.handed_over.drain(..) {
            let host_late = at.saturating_since(finished.due);
            recorder.record(&finished, at);
            out.push(Done {
                tag: finished.tag,
                result: finished.result,
                at,
                host_late,
            });
        }
        next
    }

    /// Sleeps until the drive's thread has something, `until` has come or `wake` is signalled. Whether
    /// it was only the first.
    fn sleep(&self, until: Option<Time>, wake: &EventFd) -> io::Result<bool> {
        let left = until.map(|until| clock::timespec_of(until.saturating_since(clock::now())));
        let mut fds = [
            PollFd::new(&self.shared.finished, PollFlags::IN),
            PollFd::new(wake, PollFlags::IN),
        ];
        match rustix::event::poll(&mut fds, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [finished, woken] = [0, 1].map(|i| !fds[i].revents().is_empty());
        if woken {
            wake.drain();
        }
        if finished {
            self.shared.finished.drain();
        }
        Ok(finished && !woken)
    }
}

impl Drop for EmulatedDrive {
    fn drop(&mut self) {
        lock(&self.shared.state).shut_down = true;
        self.shared.work.signal();
        if let Some(thread) = self.thread.take() {
            // A drive's thread that panicked has said so; there is nothing to add here.
            let _ = thread.join();
        }
    }
}

impl Disk for EmulatedDrive {
    fn capacity(&self) -> SectorCount {
        self.sectors
    }

    fn places(&self) -> usize {
        PLACES
    }

    fn durability(&self) -> Durability {
        self.durability
    }

    /// The drive's thread runs already; what it was denied is told like what the owner's is.
    fn attach(&mut self) -> io::Result<DeniedResources> {
        Ok(self.denied.clone())
    }

    fn submit(&mut self, io: DiskIo) -> Result<(), DiskError> {
        let issued = clock::now();
        let (start, count) = (io.start, io.count);
        let end = start.checked_add(count).map_or(u64::MAX, Sector::get);
        let bytes = io.segments.size() as u64;
        let fits = bytes == 0 || bytes == count.bytes().get();
        if count.is_zero() || end > self.sectors.get() || !fits || io.segments.op() != io.op {
            return Err(DiskError::Invalid { start, count });
        }
        let mut state = lock(&self.shared.state);
        if let Some(errno) = state.gone {
            return Err(DiskError::Gone { errno });
        }
        if state.held == PLACES {
            return Err(DiskError::Busy);
        }
        state.held += 1;
        state.queue.push_back(Job { io, issued });
        drop(state);
        self.shared.work.signal();
        Ok(())
    }

    fn wait(&mut self, until: Option<Time>, wake: &EventFd, out: &mut Vec<Done>) -> io::Result<()> {
        loop {
            let next = self.collect(out);
            if !out.is_empty() {
                return Ok(());
            }
            if let Some(due) = next {
                let end = until.map_or(due, |until| until.min(due));
                while clock::now() < end {
                    std::hint::spin_loop();
                }
                if end == due {
                    continue;
                }
            }
            if !self.sleep(until, wake)? {
                self.collect(out);
                return Ok(());
            }
        }
    }
}

/// Statistics, faults and power of an emulated drive, from any thread. It may outlive the drive.
#[derive(Clone)]
pub struct DriveControl(Arc<Shared>);

impl DriveControl {
    /// Counters of the drive, and the host's lateness.
    #[must_use]
    pub fn stats(&self) -> DriveStats {
        let lead = lock(&self.0.state).lead.get();
        DriveStats {
            lead,
            ..lock(&self.0.recorder).stats()
        }
    }

    /// Begins to keep a log of every request and what the model said, at most `entries_max` long.
    pub fn keep_log(&self, entries_max: usize) {
        lock(&self.0.recorder).keep_log(entries_max);
    }

    /// The log since [`Self::keep_log`], which goes on empty.
    #[must_use]
    pub fn take_log(&self) -> Vec<ServiceLogEntry> {
        lock(&self.0.recorder).take_log()
    }

    /// Makes requests that touch a range take longer or fail, from the next one on.
    pub fn inject(&self, fault: RangeFault) -> FaultId {
        lock(&self.0.state).faults.add(fault)
    }

    /// Heals a range. `false`: there was no such fault.
    pub fn heal(&self, id: FaultId) -> bool {
        lock(&self.0.state).faults.remove(id)
    }

    /// Stops the drive: nothing completes until [`Self::resume`], the request in service included.
    pub fn stall(&self) {
        lock(&self.0.state).stalled.get_or_insert_with(clock::now);
        self.0.work.signal();
    }

    /// Lets a stalled drive go on. Requests that were due meanwhile complete now.
    pub fn resume(&self) {
        lock(&self.0.state).resume(clock::now());
        self.0.work.signal();
        self.0.finished.signal();
    }

    /// Pulls the drive's cable: its requests fail as [`DiskError::Gone`], and so does every later one.
    /// Returns when the drive is gone. It keeps its cached data.
    pub fn tear_off(&self) {
        self.go(false);
    }

    /// Cuts the power: as [`Self::tear_off`], and of the sectors in the volatile cache, those of
    /// the request in service included, each is lost or kept by chance.
    pub fn power_cut(&self) {
        self.go(true);
    }

    fn go(&self, loses_cache: bool) {
        let mut state = lock(&self.0.state);
        let errno = Errno::NODEV.raw_os_error();
        state.gone = Some(errno);
        state.fail_unfinished(clock::now(), errno);
        state.cut_power |= loses_cache;
        state.settled = false;
        self.0.work.signal();
        self.0.finished.signal();
        while !state.settled && !state.ended {
            state = self
                .0
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Puts a drive that is gone back: requests are served again.
    pub fn reattach(&self) {
        lock(&self.0.state).gone = None;
    }

    /// Gives the host's room for these sectors back; they read as zeros. Outside the model: it takes
    /// no time, and must not overlap a request.
    ///
    /// # Errors
    /// When the host's file system cannot, the drive has a cache that may hold some of them, or it
    /// is no longer running.
    pub fn discard(&self, start: Sector, count: SectorCount) -> io::Result<()> {
        let state = lock(&self.0.state);
        if state.has_cache {
            return Err(io::Error::from(Errno::OPNOTSUPP));
        }
        if state.ended {
            return Err(io::Error::from(Errno::NODEV));
        }
        store::punch(&self.0.store_file, start, count)
    }

    /// The room that the drive's file takes on the host, in bytes.
    ///
    /// # Errors
    /// When the host cannot say.
    pub fn host_bytes(&self) -> io::Result<u64> {
        store::host_bytes(&self.0.store_file)
    }
}

#[cfg(test)]
mod tests;
