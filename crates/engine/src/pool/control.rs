//! Entry points of the control plane.
//!
//! # How a volume is changed
//!
//! [`Pool::create_volume`], [`Pool::grow`], [`Pool::shrink`] and [`Pool::delete_volume`] follow one scheme:
//!
//! 1. Resolve the placement (`placement`) and lock the metadata. From here on no other change runs.
//! 2. Check users and reservations. While a stream reserves part of a volume, the volume grows only on disks
//!    and zones that it has, and does not shrink into the reserved range.
//! 3. `Meta::change` (`background/metadata.rs`) plans the transaction (`volume::PoolState`), writes its steps
//!    to the disks, and installs the new map, which requests use from then on.
//!
//! A change is durable when the call returns. If a disk does not accept the metadata, the change is refused or
//! stays pending: see `state::pool::meta::Meta`.

use std::io;
use std::sync::Arc;

use sched::task::TaskParams;
use sched::units::Bytes;
use volume::CreateSpec;

use super::placement;
use crate::background::measuring::{MeasuredWrites, Measuring};
use crate::background::mover;
use crate::buffer::Memory;
use crate::clock;
use crate::event::EventFd;
use crate::state::error::{PoolError, host, reserved};
use crate::state::options::{Placement, Progress, VolumeSpec};
use crate::state::pool::core::PoolCore;
use crate::state::refusal::{Refusal, memory_refusal};
use crate::state::volume::VolumeCore;
use crate::state::warning::Warning;
use crate::status::health::{self, PoolHealth};
use crate::status::volumes::{self, PlaceRun, VolumeInfo};
use crate::status::{self, PoolStatus, WaitStatus};
use crate::stream::open;
use crate::stream::spec::StreamSpec;
use crate::volume_io::client::{Client, ClientOptions};
use crate::volume_io::share::{BestEffortReservation, ReservedShare};
use crate::volume_io::stream::Stream;
use crate::volume_io::volume::Volume;

/// Disks that are served together. See the [module](super).
///
/// Dropping the last handle stops the dispatchers without making anything durable; [`Pool::close`] ends in
/// good order. Clients, volumes and streams may outlive the pool; their requests are refused then.
pub struct Pool {
    pub(crate) core: Arc<PoolCore>,
}

impl Pool {
    /// The pool's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Warnings for the operator, such as missing permissions, unmeasured profiles, or no best-effort floor.
    #[must_use]
    pub fn warnings(&self) -> Vec<Warning> {
        self.core.warnings.lock().clone()
    }

    /// Adds a warning that the caller has found.
    pub fn warn(&self, what: String) {
        let concerns = Vec::new();
        self.core.warnings.lock().push(Warning { what, concerns });
    }

    /// The memory that it was opened with.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.core.io.memory
    }

    /// The extent size.
    #[must_use]
    pub fn extent(&self) -> Bytes {
        self.core.io.extent_bytes()
    }

    /// Free space for volumes.
    #[must_use]
    pub fn free(&self) -> Bytes {
        Bytes(self.core.free_bytes())
    }

    fn find(&self, name: &str) -> Result<Arc<VolumeCore>, PoolError> {
        self.core
            .find(name)
            .ok_or_else(|| PoolError::NoSuchVolume(name.to_owned()))
    }

    fn open_check(&self) -> Result<(), PoolError> {
        if self.core.io.is_closed() {
            return Err(PoolError::Closed);
        }
        Ok(())
    }

    /// `size` rounded up to whole blocks of the pool's disks. A size that would overflow is returned unchanged,
    /// and is refused later.
    fn whole(&self, size: Bytes) -> Bytes {
        let blocks = size.0.checked_next_multiple_of(self.core.io.block_bytes);
        blocks.map_or(size, Bytes)
    }

    /// Makes a volume; durable on return. Its size is rounded up to whole blocks of the pool's disks.
    ///
    /// # Errors
    /// When the name is taken or invalid, or there is not enough space where the placement allows.
    pub fn create_volume(&self, spec: &VolumeSpec) -> Result<VolumeInfo, PoolError> {
        self.open_check()?;
        let placement = placement::resolve(&self.core, &spec.placement)?;
        let create = CreateSpec {
            name: spec.name.clone(),
            size: self.whole(spec.size),
            placement,
        };
        let mut meta = self.core.meta.lock();
        meta.change(&self.core, |state| state.create(&create))?;
        drop(meta);
        self.volume_info(&spec.name)
    }

    /// The alignment of offsets and lengths of requests to volumes.
    #[must_use]
    pub fn alignment(&self) -> Bytes {
        self.core.io.alignment()
    }

    /// All volumes, by name.
    #[must_use]
    pub fn volumes(&self) -> Vec<VolumeInfo> {
        let volumes: Vec<_> = self.core.volumes.read().values().cloned().collect();
        volumes
            .iter()
            .map(|volume| volumes::info(&self.core.io, volume))
            .collect()
    }

    /// One volume.
    ///
    /// # Errors
    /// When there is no such volume.
    pub fn volume_info(&self, name: &str) -> Result<VolumeInfo, PoolError> {
        Ok(volumes::info(&self.core.io, &*self.find(name)?))
    }

    /// Places of a volume's extents in its own order: at most `limit` runs, from the extent with the byte `from`
    /// on.
    ///
    /// # Errors
    /// When there is no such volume.
    pub fn volume_places(
        &self,
        name: &str,
        from: u64,
        limit: usize,
    ) -> Result<Vec<PlaceRun>, PoolError> {
        Ok(volumes::places(
            &self.core.io,
            &*self.find(name)?,
            from,
            limit,
        ))
    }

    /// Opens a volume for I/O. A volume may be opened several times.
    ///
    /// # Errors
    /// When there is no such volume.
    pub fn open_volume(&self, name: &str) -> Result<Arc<Volume>, PoolError> {
        self.open_volume_for(name, "a client of this process")
    }

    /// As [`open_volume`](Self::open_volume), with the name of the user for messages about a volume in use.
    ///
    /// # Errors
    /// When there is no such volume.
    pub fn open_volume_for(&self, name: &str, user: &str) -> Result<Arc<Volume>, PoolError> {
        self.open_check()?;
        let opened = Volume::open(&self.core.io, self.find(name)?, user);
        opened
            .map(Arc::new)
            .ok_or_else(|| PoolError::NoSuchVolume(name.to_owned()))
    }

    /// Grows a volume to `size`, whether or not it is in use; durable on return. New extents lie in runs of the
    /// same length as the existing ones, unless `placement` sets a length. While a stream reserves part of it, the
    /// volume grows only on the disks and zones that it has.
    ///
    /// # Errors
    /// When it has that size already, when space is missing where the placement allows, or when a stream reserves
    /// part of it and `placement` names disks, a zone or bytes.
    pub fn grow(
        &self,
        name: &str,
        size: Bytes,
        placement: &Placement,
    ) -> Result<VolumeInfo, PoolError> {
        self.open_check()?;
        let size = self.whole(size);
        let mut asked = placement::resolve(&self.core, placement)?;
        let zones = placement::all_zones(&self.core);
        let mut meta = self.core.meta.lock();
        // Found under the lock, here and below, so that it cannot be deleted meanwhile.
        let volume = self.find(name)?;
        let reserver = self.core.admission.lock().reserver(volume.id, None);
        if placement.run_extents == 0 {
            let own = meta.state.run_of(volume.id);
            asked.run = own.map_err(|error| PoolError::from_plan(error, self.extent()))?;
        }
        let placement = match reserver {
            Some(stream) if placement.says_where() => {
                return Err(reserved(
                    &volume.name,
                    stream,
                    "the volume grows only on its disks and zones; omit the placement",
                ));
            }
            Some(_) => {
                let like = meta.state.placement_like(volume.id, &zones);
                let like = like.map_err(|error| PoolError::from_plan(error, self.extent()))?;
                volume::Placement {
                    run: asked.run,
                    ..like
                }
            }
            None => asked,
        };
        meta.change(&self.core, |state| state.grow(volume.id, size, &placement))?;
        drop(meta);
        Ok(volumes::info(&self.core.io, &volume))
    }

    /// Shrinks a volume to `size`, whether or not it is in use. Data behind that is lost, and requests to it fail.
    ///
    /// # Errors
    /// When it has that size already, or a stream reserves part of the rest.
    pub fn shrink(&self, name: &str, size: Bytes) -> Result<VolumeInfo, PoolError> {
        self.open_check()?;
        let size = self.whole(size);
        let mut meta = self.core.meta.lock();
        let volume = self.find(name)?;
        let admission = self.core.admission.lock();
        if let Some(stream) = admission.reserver(volume.id, Some(size.0..u64::MAX)) {
            return Err(reserved(
                &volume.name,
                stream,
                "the range that it reserves cannot be cut off",
            ));
        }
        // The record is written under the admission lock, so that no stream can reserve the rest meanwhile. Shrinking
        // is rare, and a reservation can wait for it.
        let shrunk = meta.change(&self.core, |state| state.shrink(volume.id, size));
        if is_pending(&shrunk) {
            volume.set_pending_end(size);
        }
        shrunk?;
        drop(admission);
        drop(meta);
        Ok(volumes::info(&self.core.io, &volume))
    }

    /// Moves a volume's extents to where `placement` allows, whether or not it is in use. Copies are best effort
    /// of low urgency. Each extent's move is durable by itself: after an error or a crash some extents are moved
    /// and others not. Return `false` from `progress` to stop.
    ///
    /// # Errors
    /// When there is no space, a stream's reservation forbids it, or a disk fails.
    pub fn move_extents(
        &self,
        name: &str,
        placement: &Placement,
        progress: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<VolumeInfo, PoolError> {
        self.open_check()?;
        let volume = self.find(name)?;
        let placement = placement::resolve(&self.core, placement)?;
        // An open volume cannot be deleted.
        let moved = self.open_volume_for(name, "a move of its extents")?;
        mover::run(&self.core, moved.core(), &placement, progress)?;
        // Closed first, so that the returned information does not list it as a user.
        drop(moved);
        Ok(volumes::info(&self.core.io, &volume))
    }

    /// Deletes a volume.
    ///
    /// # Errors
    /// When it is in use; the error has its users.
    pub fn delete_volume(&self, name: &str) -> Result<(), PoolError> {
        self.open_check()?;
        let mut meta = self.core.meta.lock();
        let volume = self.find(name)?;
        let was_claimed = volume
            .claim_for_deletion()
            .map_err(|users| PoolError::InUse {
                volume: name.to_owned(),
                users,
            })?;
        let deleted = meta.change(&self.core, |state| state.delete(volume.id));
        // If the deletion is pending because the metadata is frozen, the claim stays.
        if deleted.is_err() && !is_pending(&deleted) && !was_claimed {
            volume.users.lock().deleted = false;
        }
        deleted.map(|_| ())
    }

    /// Reserves disk time for best-effort clients: admitted on all disks or refused.
    ///
    /// # Errors
    /// When a disk cannot carry it (with a period that all could carry), or the parameters are invalid.
    pub fn reserve_share(
        &self,
        name: &str,
        reservation: BestEffortReservation,
    ) -> Result<Arc<ReservedShare>, Refusal> {
        self.open_check()?;
        let core = &self.core;
        let params = TaskParams::new(reservation.slice, reservation.period);
        let params = params.map_err(|error| Refusal::Invalid {
            what: "the reservation",
            reason: error.to_string(),
            remedy: "ask for a slice that is shorter than its period",
        })?;
        let mut admission = core.admission.lock();
        // Checked again: the pool may have been closed while this thread waited for the lock.
        self.open_check()?;
        let reserved = admission.reserve_server(&core.io.disks, name, params, clock::now());
        drop(admission);
        let (key, tasks) = reserved.map_err(|unreserved| {
            core.keeper.freed_at(unreserved.free_from);
            unreserved.into_refusal()
        })?;
        Ok(Arc::new(ReservedShare {
            pool: Arc::clone(core),
            key,
            tasks,
        }))
    }

    /// Makes a client: a memory account and a completion queue.
    ///
    /// # Errors
    /// When the memory cannot be guaranteed, or its reservation belongs to another pool.
    pub fn client(&self, name: &str, options: ClientOptions) -> Result<Client, Refusal> {
        self.open_check()?;
        let core = &self.core;
        if let Some(share) = &options.reservation
            && !Arc::ptr_eq(&share.pool, core)
        {
            return Err(Refusal::Invalid {
                what: "the reservation",
                reason: "it belongs to another pool".to_owned(),
                remedy: "reserve disk time of this pool",
            });
        }
        let account = core
            .io
            .memory
            .open_account(name, options.fixed)
            .map_err(memory_refusal)?;
        let (share, limit) = (options.reservation, options.in_flight_max);
        Client::new(name, core, account, share, limit)
            .map_err(|error| host("a client's completion queue", error).into())
    }

    /// Reserves bandwidth for a stream: admitted on every disk that its range lies on, or refused.
    ///
    /// # Errors
    /// The refusal has the disk that cannot carry it, the disk's load, the failed condition, and a rate that would
    /// fit.
    pub fn reserve(&self, spec: StreamSpec) -> Result<Stream, Refusal> {
        open::open(&self.core, spec)
    }

    /// An event that is signalled each time that reserved disk time becomes free, as when a stream has ended or has
    /// lowered its rate: a refused stream may fit then.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn freed_time(&self) -> io::Result<Arc<EventFd>> {
        self.core.keeper.listen()
    }

    /// Begins to measure a disk, by its number, beside everything else.
    ///
    /// # Errors
    /// When there is no such disk, no memory, or no free extents can be lent because of the metadata's state.
    pub fn measure_disk(
        &self,
        disk: usize,
        writes: MeasuredWrites,
    ) -> Result<Measuring, PoolError> {
        self.open_check()?;
        Measuring::begin(&self.core, disk, writes)
    }

    /// Statistics and reservations.
    #[must_use]
    pub fn status(&self) -> PoolStatus {
        status::pool(&self.core)
    }

    /// Health of its disks and its metadata, with counts of past faults.
    #[must_use]
    pub fn health(&self) -> PoolHealth {
        health::pool(&self.core)
    }

    /// The evidence that another server has opened the pool, if one has. Reads the superblock of the table's disk,
    /// unless the metadata is being changed: a change makes its own checks. If this returns `Some`, this pool writes
    /// nothing more and has to be closed.
    ///
    /// A disk that cannot be read is no evidence.
    #[must_use]
    pub fn taken_over(&self) -> Option<String> {
        let core = &self.core;
        if core.check_ownership().is_ok()
            && !core.io.is_closed()
            && let Some(meta) = core.meta.try_lock()
        {
            // The result is kept in the core and read below.
            drop(meta.verify(core));
        }
        core.check_ownership().err().map(|error| error.to_string())
    }

    /// Flushes that wait for a disk that does not answer.
    #[must_use]
    pub fn waits(&self) -> Vec<WaitStatus> {
        status::waits(&self.core)
    }

    /// Waits until the pool's worker has done all that was posted to it before. The worker never waits for a disk, so
    /// this soon returns unless the engine hangs. May not return once the pool is being closed.
    pub fn await_worker(&self) {
        self.core.worker.fence();
    }

    /// Begins a new window for best-effort latency in [`PoolStatus`].
    pub fn reset_window(&self) {
        self.core.io.reset_window();
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Pool").field(&self.core.name).finish()
    }
}

/// True if a change takes effect once the metadata goes on.
fn is_pending<T>(changed: &Result<T, PoolError>) -> bool {
    matches!(
        changed,
        Err(PoolError::MetadataFrozen {
            is_pending: true,
            ..
        })
    )
}
