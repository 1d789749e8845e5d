//! A disk of an open pool: its dispatcher and its counters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use sched::disk::TaskKind;
use sched::predict::Predictor;
use sched::profile::DriveProfile;
use sched::request::Op as Direction;
use sched::task::{TaskId, TaskParams};
use sched::units::{BytesPerSecond, Nanos, Sector, SectorCount, Time};
use volume::{Geometry, Grade, Place};

use crate::clock;
use crate::completion::{IoError, Timing};
use crate::disk::{Durability, HostSync};
use crate::dispatcher::{Dispatcher, DispatcherHandle, StallLimits};
use crate::latency::Histogram;
use crate::state::disk::feeder::Feeder;
use crate::state::request::IoFailure;

use super::suspects::Suspects;
use super::syncer::{SyncDone, SyncHealth, Syncer};

/// A disk of an open pool.
pub(crate) struct DiskCore {
    pub(crate) name: String,
    pub(crate) handle: DispatcherHandle,
    pub(crate) feeder: Feeder,
    dispatcher: Mutex<Option<Dispatcher>>,
    pub(crate) durability: Durability,
    syncer: Option<Syncer>,
    pub(crate) profile: Arc<DriveProfile>,
    pub(crate) profile_is_measured: bool,
    pub(crate) predictor: Predictor,
    pub(crate) capacity: SectorCount,
    pub(crate) block_bytes: u64,
    /// Latency of best-effort requests in the window.
    pub(crate) latency: Histogram,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    /// Requests that failed on the disk.
    pub(crate) read_errors: AtomicU64,
    pub(crate) write_errors: AtomicU64,
    /// Groups of metadata writes that are being written or made durable.
    pub(crate) metadata: AtomicU64,
    last_error: Mutex<Option<String>>,
    /// Errors and overruns by place.
    pub(crate) suspects: Suspects,
    /// The grades of its extents, as recorded.
    pub(crate) grades: Mutex<BTreeMap<u32, Grade>>,
    /// The link that it shares.
    pub(crate) link: Option<DiskLink>,
    /// Start of the window for measured utilisation, and the disk's busy time at that point.
    window: Mutex<(Time, Nanos)>,
}

/// Parts of a new disk core.
pub(crate) struct DiskParts {
    pub(crate) name: String,
    pub(crate) dispatcher: Dispatcher,
    pub(crate) durability: Durability,
    pub(crate) host_sync: Option<Arc<dyn HostSync>>,
    pub(crate) patience: StallLimits,
    pub(crate) profile: Arc<DriveProfile>,
    pub(crate) profile_is_measured: bool,
    pub(crate) capacity: SectorCount,
    pub(crate) block_bytes: u64,
    pub(crate) link: Option<DiskLink>,
}

/// The link that a disk shares.
#[derive(Clone, Debug)]
pub(crate) struct DiskLink {
    pub(crate) name: String,
    pub(crate) rate: BytesPerSecond,
    /// True if it borrows a place there for each piece, so that it promises nothing.
    pub(crate) borrows: bool,
}

impl DiskCore {
    /// The longest service time of a best-effort piece.
    pub(crate) fn piece_max(&self) -> Nanos {
        self.predictor.piece_max(self.predictor.piece_limit())
    }

    pub(crate) fn new(parts: DiskParts) -> Self {
        let handle = parts.dispatcher.handle();
        let syncer = parts
            .host_sync
            .map(|sync| Syncer::new(parts.name.clone(), sync, parts.patience));
        Self {
            feeder: Feeder::new(handle.clone()),
            handle,
            dispatcher: Mutex::new(Some(parts.dispatcher)),
            durability: parts.durability,
            syncer,
            predictor: Predictor::new(&parts.profile),
            profile: parts.profile,
            profile_is_measured: parts.profile_is_measured,
            capacity: parts.capacity,
            block_bytes: parts.block_bytes,
            latency: Histogram::new(),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            read_errors: AtomicU64::new(0),
            write_errors: AtomicU64::new(0),
            metadata: AtomicU64::new(0),
            last_error: Mutex::new(None),
            suspects: Suspects::new(),
            grades: Mutex::default(),
            link: parts.link,
            window: Mutex::new((clock::now(), Nanos::ZERO)),
            name: parts.name,
        }
    }

    /// True if a transfer in this direction is issued such that it is durable when it completes.
    pub(crate) fn issues_durable(&self, direction: Direction) -> bool {
        direction == Direction::Write && self.durability == Durability::Fua
    }

    pub(crate) fn transferred(&self, direction: Direction, count: SectorCount) {
        let counter = match direction {
            Direction::Write => &self.written_bytes,
            Direction::Read => &self.read_bytes,
        };
        counter.fetch_add(count.bytes().0, Relaxed);
    }

    /// Describes a failed transfer, and counts it if it had reached the disk.
    pub(crate) fn failure(
        &self,
        direction: Direction,
        start: Sector,
        sectors: SectorCount,
        error: IoError,
        timing: &Timing,
    ) -> IoFailure {
        let reason = error.to_string();
        let (op, errors) = match direction {
            Direction::Write => ("write", &self.write_errors),
            Direction::Read => ("read", &self.read_errors),
        };
        // A request that was refused because the disk is gone or given up never reached it.
        let was_on_disk = timing.issued > Time::ZERO;
        if was_on_disk && matches!(error, IoError::Disk(_) | IoError::Stalled) {
            errors.fetch_add(1, Relaxed);
            *self.last_error.lock() = Some(format!("{op}: {reason}"));
        }
        IoFailure::Disk {
            disk: self.name.clone(),
            op,
            sector: start.0,
            sectors,
            reason,
        }
    }

    /// Takes a grade over that has been recorded: best effort at a slow place is predicted to take longer.
    pub(crate) fn set_grade(&self, geometry: Geometry, place: Place, grade: Grade) {
        if let Grade::Slow { extra_us } = grade {
            let start = geometry.sector_of(place);
            let range = start..start + geometry.extent_sectors();
            let extra = Nanos::from_micros(u64::from(extra_us));
            self.handle.set_slow(range, extra);
        }
        self.grades.lock().insert(place.extent, grade);
    }

    pub(crate) fn last_error(&self) -> Option<String> {
        self.last_error.lock().clone()
    }

    pub(crate) fn window(&self) -> (Time, Nanos) {
        *self.window.lock()
    }

    /// Begins a new window.
    pub(crate) fn reset_window(&self) {
        self.latency.reset();
        if let Ok(report) = self.handle.report() {
            *self.window.lock() = (report.at, report.counters.busy);
        }
    }

    /// Makes all completed writes durable and calls `done`; on another thread unless there is nothing to
    /// do.
    pub(crate) fn sync(&self, done: SyncDone) {
        match &self.syncer {
            Some(syncer) => syncer.post(done),
            None => done(Ok(())),
        }
    }

    /// True if it serves requests: it is not gone and not given up.
    pub(crate) fn answers(&self) -> bool {
        let health = self.handle.health();
        let is_well = health.is_ok_and(|(health, _)| health.gone.is_none() && !health.given_up);
        is_well && !self.sync_health().given_up
    }

    /// State of its host syncs; the default if it needs none.
    pub(crate) fn sync_health(&self) -> SyncHealth {
        self.syncer.as_ref().map(Syncer::health).unwrap_or_default()
    }

    /// Joins an admitted task at the dispatcher.
    ///
    /// # Errors
    /// The reason why the scheduler refuses it.
    pub(crate) fn join(
        &self,
        id: TaskId,
        params: TaskParams,
        kind: TaskKind,
        first_release: Time,
    ) -> Result<(), String> {
        if let Some(link) = self.borrowed_link() {
            return Err(format!(
                "it has no place of its own on link {link:?}, and serves best effort only"
            ));
        }
        self.handle
            .join(id, params, kind, first_release)
            .map_err(|error| error.to_string())
    }

    /// The link on which it borrows a place, so that it promises nothing.
    pub(crate) fn borrowed_link(&self) -> Option<&str> {
        let link = self.link.as_ref().filter(|link| link.borrows)?;
        Some(&link.name)
    }

    /// Removes a task. Returns the time from which its share is free; `None` if the disk does not know the
    /// task or is not served any more.
    pub(crate) fn leave(&self, id: TaskId) -> Option<Time> {
        self.handle.leave(id).ok().flatten()
    }

    /// Stops its dispatcher; queued requests fail.
    pub(crate) fn stop(&self) {
        let dispatcher = self.dispatcher.lock().take();
        if let Some(dispatcher) = dispatcher {
            dispatcher.stop(false);
        }
        if let Some(syncer) = &self.syncer {
            syncer.end();
        }
    }
}
