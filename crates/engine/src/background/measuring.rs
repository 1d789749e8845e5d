//! Measurements of a disk while the pool runs: requests of the measurement's choice as best effort of low urgency, one at
//! a time.
//!
//! * They are served in slack like any best effort, so no stream misses a deadline by them. A request is at most one
//!   piece long, so that the dispatcher does not divide it, except where it crosses a boundary of the zones of the
//!   present profile.
//! * Reads may be anywhere. Writes go to free extents that the pool has [lent](volume::PoolState::lend) for the time of
//!   the measurement, so nothing of a volume is written.
//! * They count in the disk's counters as best effort, also where they take longer than the present profile says.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use sched::request::{Class, Op as Direction, Order, RequestId, Urgency};
use sched::units::{Bytes, Nanos, SECTOR_BYTES, Sector, SectorCount, Time};
use volume::{DiskNumber, Place};

use crate::buffer::{Account, Buffer};
use crate::clock;
use crate::completion::{CompletionQueue, IoError};
use crate::dispatcher::{DispatcherHandle, Io};
use crate::state::disk::core::DiskCore;
use crate::state::error::{PoolError, host};
use crate::state::pool::core::PoolCore;

/// The most extents that are lent.
const LENT_MAX: u32 = 64;
/// The largest request, so that its memory is affordable.
const REQUEST_BYTES_MAX: Bytes = Bytes(4 << 20);
/// So long before an instant the thread stops sleeping.
const SPIN: Nanos = Nanos(100_000);
/// The longest wait before a request.
const WAIT_MAX: Nanos = Nanos::from_secs(60);

/// The places that a measurement may write to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MeasuredWrites {
    /// Nothing.
    Nowhere,
    /// Free extents.
    ToFreeExtents,
}

/// A request of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MeasuredIo {
    /// The direction.
    pub op: Direction,
    /// The first sector on the disk.
    pub start: Sector,
    /// Number of sectors.
    pub count: SectorCount,
    /// It is not issued before this instant.
    pub not_before: Time,
}

/// Times of a served request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MeasuredTimes {
    /// When it was given to the disk.
    pub issued: Time,
    /// When the disk completed it.
    pub completed: Time,
    /// True if it was given to the disk whole, and nothing else was since the measurement's request before.
    pub alone: bool,
    /// The error number, if the disk failed it.
    pub errno: Option<i32>,
}

/// The reason why a request was not served.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MeasuringError {
    /// The measurement may not make this request.
    #[error("{0}")]
    Refused(String),
    /// The measurement is over.
    #[error("{0}")]
    Ended(String),
}

/// A measurement of a disk of an open pool. Dropping it gives the lent extents back.
pub struct Measuring {
    pool: Arc<PoolCore>,
    disk: usize,
    account: Account,
    queue: CompletionQueue,
    read: Buffer,
    /// Random bytes, because a device that compresses stores zeros faster.
    written: Option<Buffer>,
    lent: Vec<Place>,
    writable: Vec<Range<Sector>>,
    request_max: SectorCount,
    /// The number of the last piece of the last request.
    last_piece: Option<u64>,
    stop: MeasuringStop,
}

/// Stops a measurement from any thread.
#[derive(Clone)]
pub struct MeasuringStop(Arc<StopState>);

struct StopState {
    handle: DispatcherHandle,
    state: Mutex<StopNow>,
    stopped: Condvar,
}

#[derive(Default)]
struct StopNow {
    is_wanted: bool,
    under_way: Option<RequestId>,
}

impl MeasuringStop {
    /// Ends the request under way if it is not on the disk, and every later one.
    pub fn stop(&self) {
        let mut state = self.0.state.lock();
        state.is_wanted = true;
        let under_way = state.under_way;
        drop(state);
        self.0.stopped.notify_all();
        if let Some(id) = under_way {
            self.0.handle.cancel(id);
        }
    }

    /// Notes the request under way, or that there is none.
    fn set_under_way(&self, id: Option<RequestId>) {
        let mut state = self.0.state.lock();
        state.under_way = id;
        let is_wanted = state.is_wanted;
        drop(state);
        // A stop that came before has not seen the request.
        if let (true, Some(id)) = (is_wanted, id) {
            self.0.handle.cancel(id);
        }
    }

    fn wait_until(&self, instant: Time) -> Result<(), MeasuringError> {
        let wake = Time(instant.0.saturating_sub(SPIN.0));
        let mut state = self.0.state.lock();
        loop {
            if state.is_wanted {
                return Err(ended("the measurement was stopped"));
            }
            let left = wake.saturating_since(clock::now());
            if left.is_zero() {
                break;
            }
            self.0
                .stopped
                .wait_for(&mut state, Duration::from_nanos(left.0));
        }
        drop(state);
        while clock::now() < instant {
            std::hint::spin_loop();
        }
        Ok(())
    }
}

fn ended(why: &str) -> MeasuringError {
    MeasuringError::Ended(why.to_owned())
}

impl Measuring {
    pub(crate) fn begin(
        pool: &Arc<PoolCore>,
        disk: usize,
        writes: MeasuredWrites,
    ) -> Result<Self, PoolError> {
        let Some(core) = pool.io.disks.get(disk) else {
            return Err(PoolError::BadPlacement(format!("there is no disk {disk}")));
        };
        let request_max = request_max(core);
        let size = request_max.bytes().0 as usize;
        let buffers = match writes {
            MeasuredWrites::Nowhere => 1,
            MeasuredWrites::ToFreeExtents => 2,
        };
        let account = (pool.io.memory)
            .open_account_for("measurement", size, buffers)
            .map_err(no_memory)?;
        let buffer = || account.allocate_wait(size, None).map_err(no_memory);
        let read = buffer()?;
        let written = match writes {
            MeasuredWrites::Nowhere => None,
            MeasuredWrites::ToFreeExtents => Some(random(buffer()?)?),
        };
        let queue = CompletionQueue::new(1);
        let queue = queue.map_err(|error| host("the measurement's completion queue", error))?;
        let stop = MeasuringStop(Arc::new(StopState {
            handle: core.handle.clone(),
            state: Mutex::default(),
            stopped: Condvar::new(),
        }));
        let lent = match writes {
            MeasuredWrites::Nowhere => Vec::new(),
            MeasuredWrites::ToFreeExtents => lend(pool, disk)?,
        };
        let geometry = pool.io.geometry;
        let sectors = lent.iter().map(|place| geometry.sector_of(*place));
        let writable = sectors.map(|start| start..start + geometry.extent_sectors());
        Ok(Self {
            pool: Arc::clone(pool),
            disk,
            account,
            queue,
            read,
            written,
            writable: writable.collect(),
            lent,
            request_max,
            last_piece: None,
            stop,
        })
    }

    /// The disk's name.
    #[must_use]
    pub fn disk_name(&self) -> &str {
        &self.core().name
    }

    /// The disk's size.
    #[must_use]
    pub fn capacity(&self) -> SectorCount {
        self.core().capacity
    }

    /// The alignment of requests.
    #[must_use]
    pub fn unit(&self) -> SectorCount {
        unit(self.core())
    }

    /// The physical sector of the disk's present profile.
    #[must_use]
    pub fn physical(&self) -> SectorCount {
        physical(self.core())
    }

    /// The largest request.
    #[must_use]
    pub fn request_max(&self) -> SectorCount {
        self.request_max
    }

    /// The sectors that may be written, ascending.
    #[must_use]
    pub fn writable(&self) -> &[Range<Sector>] {
        &self.writable
    }

    /// Stops it.
    #[must_use]
    pub fn stop_handle(&self) -> MeasuringStop {
        self.stop.clone()
    }

    fn core(&self) -> &DiskCore {
        &self.pool.io.disks[self.disk]
    }

    /// Serves a request, and waits for it.
    ///
    /// # Errors
    /// When the request is not permitted, or the measurement is over: stopped, or the disk or the pool cannot be used
    /// any more.
    pub fn serve(&mut self, request: &MeasuredIo) -> Result<MeasuredTimes, MeasuringError> {
        let memory = self.check(request)?;
        let bytes = request.count.bytes().0 as usize;
        let segments = memory.segments(request.op, 0..bytes);
        let segments = segments.map_err(|error| MeasuringError::Ended(error.to_string()))?;
        self.stop.wait_until(request.not_before)?;
        if request.op == Direction::Write {
            // Extents that are free here may be in use on another server.
            let owned = self.pool.check_ownership();
            owned.map_err(|error| MeasuringError::Ended(error.to_string()))?;
        }
        let disk = self.core();
        let io = Io {
            account: self.account.id(),
            op: request.op,
            start: request.start,
            count: request.count,
            class: Class::BestEffort(Urgency::Async),
            order: Order::default(),
            durable: disk.issues_durable(request.op),
            segments,
            target: (self.queue.target(0)).expect("one request at a time has a place"),
        };
        // A refused request is dropped, which answers its target.
        if let Ok(id) = disk.handle.submit(io) {
            self.stop.set_under_way(Some(id));
        }
        let completion = (self.queue.wait(None)).expect("a wait without a limit has an answer");
        self.stop.set_under_way(None);
        let timing = completion.timing;
        let errno = match completion.result {
            Ok(()) => {
                disk.transferred(request.op, request.count);
                None
            }
            Err(IoError::Cancelled) => return Err(ended("the measurement was stopped")),
            Err(error) => {
                let (op, start, count) = (request.op, request.start, request.count);
                let failure = disk.failure(op, start, count, error, &timing);
                let of_transfer = match error {
                    IoError::Disk(error) => error.errno(),
                    _ => None,
                };
                if of_transfer.is_none() {
                    return Err(self.lost(op, &failure.to_string()));
                }
                of_transfer
            }
        };
        let (first, last) = timing.pieces;
        let before = self.last_piece.replace(last);
        Ok(MeasuredTimes {
            issued: timing.issued,
            completed: timing.disk_completed.max(timing.issued),
            alone: first == last && before.is_some_and(|before| before + 1 == first),
            errno,
        })
    }

    /// The end by a disk that is gone or does not answer. A write that it still holds may reach the medium later, so
    /// the lent extents stay lent until the pool is opened again.
    fn lost(&mut self, op: Direction, why: &str) -> MeasuringError {
        if op == Direction::Write {
            self.lent.clear();
        }
        self.stop.stop();
        ended(why)
    }

    /// Checks a request, and chooses its memory.
    fn check(&self, request: &MeasuredIo) -> Result<&Buffer, MeasuringError> {
        let refused = |what: String| Err(MeasuringError::Refused(what));
        if self.pool.io.is_closed() {
            return Err(ended("the pool is closed"));
        }
        let MeasuredIo {
            op, start, count, ..
        } = *request;
        if count.is_zero() || count > self.request_max {
            let most = self.request_max.0;
            return refused(format!(
                "a request has 1 to {most} sectors, and not {}",
                count.0
            ));
        }
        let end = start
            .checked_add(count)
            .filter(|end| end.0 <= self.capacity().0);
        let unit = self.unit().0;
        if end.is_none() || !start.0.is_multiple_of(unit) || !count.0.is_multiple_of(unit) {
            return refused(format!(
                "{} sectors from sector {} are not within the disk, or not multiples of {unit}",
                count.0, start.0
            ));
        }
        if request.not_before > clock::now() + WAIT_MAX {
            return refused(format!("it waits for more than {WAIT_MAX}"));
        }
        match (op, &self.written) {
            (Direction::Read, _) => Ok(&self.read),
            (Direction::Write, Some(memory)) if self.is_writable(start, count) => Ok(memory),
            (Direction::Write, _) => refused(format!(
                "{} sectors from sector {} are not lent to the measurement, so they are not written",
                count.0, start.0
            )),
        }
    }

    fn is_writable(&self, start: Sector, count: SectorCount) -> bool {
        let holds = |range: &Range<Sector>| range.start <= start && start + count <= range.end;
        self.writable.iter().any(holds)
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        if !self.lent.is_empty() {
            let lent = std::mem::take(&mut self.lent);
            self.pool.meta.lock().state.give_back(lent);
        }
    }
}

impl std::fmt::Debug for Measuring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Measuring")
            .field("disk", &self.disk)
            .field("lent", &self.lent)
            .finish_non_exhaustive()
    }
}

fn unit(disk: &DiskCore) -> SectorCount {
    SectorCount((disk.block_bytes / SECTOR_BYTES).max(1))
}

fn physical(disk: &DiskCore) -> SectorCount {
    let bytes = u64::from(disk.profile.spec().physical_sector_bytes);
    SectorCount((bytes / SECTOR_BYTES).max(1))
}

/// The most sectors that are one piece in every zone.
fn request_max(disk: &DiskCore) -> SectorCount {
    let predictor = &disk.predictor;
    let limit = predictor.piece_limit();
    let piece = (0..predictor.zone_count())
        .map(|zone| predictor.piece_sectors(zone, limit).0)
        .fold(REQUEST_BYTES_MAX.0 / SECTOR_BYTES, u64::min);
    let whole = unit(disk).0.max(physical(disk).0);
    SectorCount((piece / whole * whole).max(whole))
}

fn lend(pool: &PoolCore, disk: usize) -> Result<Vec<Place>, PoolError> {
    let mut meta = pool.meta.lock();
    meta.resume(pool)?;
    // If another server has opened the pool, places that are free here may be in use there.
    meta.verify(pool)?;
    let lent = meta.state.lend(DiskNumber(disk as u16), LENT_MAX);
    lent.map_err(|error| PoolError::from_plan(error, pool.io.extent_bytes()))
}

fn no_memory(error: impl std::fmt::Display) -> PoolError {
    let error = std::io::Error::other(error.to_string());
    host("memory for the measurement", error)
}

fn random(mut buffer: Buffer) -> Result<Buffer, PoolError> {
    let filled = buffer.with_mut(|bytes| {
        for part in bytes.chunks_mut(1 << 20) {
            // If the host has no random bytes, the buffer is written as it is.
            let _ = rustix::rand::getrandom(part, rustix::rand::GetRandomFlags::empty());
        }
    });
    filled.map_err(no_memory)?;
    Ok(buffer)
}
