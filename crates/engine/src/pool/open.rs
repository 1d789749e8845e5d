//! Making and opening a pool.

use std::sync::Arc;

use sched::core::Policy;
use sched::disk::TaskKind;
use sched::predict::Predictor;
use sched::request::Urgency;
use sched::task::TaskParams;
use sched::units::{Bytes, Nanos, SECTOR_BYTES, Sector};
use volume::ondisk::superblock::Superblock;
use volume::{Candidate, FormatSpec, Medium, OpenError, Owner, PoolState, Problem, Uuid};

use super::Pool;
use super::marks::mark_of;
use super::start::{Service, Started, StartedMedium, start};
use crate::background::raw::{StepError, raw_failure};
use crate::buffer::Memory;
use crate::clock;
use crate::rt::{DISPATCHER_FIFO_PRIORITY, ThreadParams};
use crate::state::disk::core::DiskCore;
use crate::state::error::{PoolError, host};
use crate::state::options::{CreateOptions, Floor, OpenOptions, PoolDisk};
use crate::state::pool::committer::Committer;
use crate::state::pool::core::{CoreParts, PoolCore};
use crate::state::pool::io::IoCore;
use crate::state::pool::keeper::Keeper;
use crate::state::pool::meta::Meta;
use crate::state::pool::repair::Repairs;
use crate::state::raw::RawIo;
use crate::state::worker::Worker;
use crate::volume_io::jobs;

/// The least extent size; used where no drive profile asks for a larger one.
const EXTENT_BYTES_LEAST: Bytes = Bytes::from_mib(1);

/// The name of the best-effort floor's task in messages.
const FLOOR: &str = "the floor";

/// Remedy for a floor that a disk cannot carry.
const FLOOR_REMEDY: &str = "give best effort a smaller share or a longer period, or no floor";

/// Remedy for two servers on one pool.
pub const TWO_SERVERS_REMEDY: &str = "find the other server (its names of the disks may differ, and it may run on another host), decide which server is to serve the pool, and start only that one";

/// Resources for metadata transfers.
pub(super) fn raw(memory: &Memory) -> Result<RawIo, PoolError> {
    RawIo::new(memory, "metadata", Urgency::Sync).map_err(raw_failure)
}

/// Translates the reasons why a pool does not open.
pub(super) fn open_failure(name: &str, error: &OpenError) -> PoolError {
    let mut remedies: Vec<&str> = error.problems.iter().map(Problem::remedy).collect();
    let mut seen = std::collections::HashSet::new();
    remedies.retain(|remedy| seen.insert(*remedy));
    let remedy = remedies.join("; ");
    let is_missing = |problem: &Problem| matches!(problem, Problem::Missing { .. });
    if error.problems.iter().any(is_missing) {
        return PoolError::Missing {
            pool: name.to_owned(),
            missing: error.to_string(),
            remedy,
        };
    }
    PoolError::Disk {
        disk: String::new(),
        reason: error.to_string(),
        remedy,
    }
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N], PoolError> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        filled +=
            rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
                .map_err(|error| host("random numbers", error.into()))?;
    }
    Ok(bytes)
}

/// An extent size for all disks: the largest that one of their profiles proposes.
fn proposed_extent(disks: &[DiskCore]) -> Bytes {
    let proposed = disks.iter().map(|disk| disk.predictor.extent_bytes()).max();
    let proposed = proposed
        .unwrap_or(EXTENT_BYTES_LEAST)
        .max(EXTENT_BYTES_LEAST);
    Bytes(proposed.0.next_power_of_two()).min(volume::limits::EXTENT_BYTES_MAX)
}

impl Pool {
    /// Makes a pool of `disks` and writes its structures to them. Returns its extent size. The pool has to be opened
    /// before use. `memory` is the memory that the disks were opened with.
    ///
    /// # Errors
    /// When a disk is too small, belongs to a pool or has content (without `force`), is given twice, or fails.
    pub fn create(
        memory: &Memory,
        disks: Vec<PoolDisk>,
        options: &CreateOptions,
    ) -> Result<Bytes, PoolError> {
        let raw = raw(memory)?;
        let started = start(disks, Service::default(), &[])?;
        let result = format(&raw, &started, options);
        started.stop();
        result
    }

    /// Opens the pool on `disks`. All buffers of its clients come from `memory`, which the disks were opened with.
    ///
    /// # Errors
    /// When disks are missing, given twice, of another pool, stale or damaged; each is named.
    pub fn open(
        memory: Memory,
        disks: Vec<PoolDisk>,
        options: OpenOptions,
    ) -> Result<Arc<Self>, PoolError> {
        let policy: Policy = options
            .scheduler
            .parse()
            .map_err(|_| PoolError::NoSuchScheduler(options.scheduler.clone()))?;
        let raw = raw(&memory)?;
        let started = start(disks, Service::new(policy, &options), &options.links)?;
        let mut medium = StartedMedium {
            raw: &raw,
            disks: &started.disks,
        };
        let state = match PoolState::open(&mut medium, &started.candidates) {
            Ok(state) => state,
            Err(error) => {
                started.stop();
                return Err(open_failure(&options.name, &error));
            }
        };
        let core = assemble(memory, started, Meta::new(state, raw), policy, &options)?;
        let pool = Arc::new(Self {
            core: Arc::clone(&core),
        });
        // From here on dropping the pool ends everything that was started.
        core.committer.start(&core);
        core.keeper.start(&core);
        let owner: Owner = random()?;
        let started = core.meta.lock().change(&core, |state| state.start(owner));
        started.map_err(PoolError::of_start)?;
        core.repairs.start(&core);
        core.repairs.sweep();
        raise_floors(&core, options.floor)?;
        Ok(pool)
    }
}

/// Writes a pool's structures.
fn format(raw: &RawIo, started: &Started, options: &CreateOptions) -> Result<Bytes, PoolError> {
    for (index, candidate) in started.candidates.iter().enumerate() {
        let twice = |other: &&Candidate| other.name == candidate.name;
        if started.candidates[..index]
            .iter()
            .any(|other| twice(&other))
        {
            return Err(PoolError::Disk {
                disk: candidate.name.clone(),
                reason: format!("{}: given twice", candidate.name),
                remedy: "name each disk once".to_owned(),
            });
        }
    }
    let extent_bytes = match options.extent_bytes {
        Some(bytes) => bytes,
        None => proposed_extent(&started.disks),
    };
    let mut disks: Vec<(Uuid, Candidate)> = Vec::new();
    for candidate in &started.candidates {
        disks.push((random()?, candidate.clone()));
    }
    let spec = FormatSpec {
        pool: random()?,
        disks,
        extent_bytes,
    };
    let steps =
        PoolState::format(&spec).map_err(|error| PoolError::from_plan(error, extent_bytes))?;
    // Only after planning: a disk that is too small for a pool cannot be examined for one either.
    if !options.force {
        refuse_pools(raw, started)?;
        refuse_others(raw, started)?;
    }
    let written = raw.perform(&started.disks, &steps);
    written.map_err(|failed| match failed.error {
        StepError::Io(failure) => PoolError::Io(failure),
        StepError::TakenOver { disk, .. } => given_twice(raw, started, &spec, disk),
    })?;
    Ok(extent_bytes)
}

/// The error when a disk was overwritten during creation: it was given under two names, or something else wrote
/// to it. Wipes the traces of the pool.
fn given_twice(raw: &RawIo, started: &Started, spec: &FormatSpec, disk: usize) -> PoolError {
    let mut medium = StartedMedium {
        raw,
        disks: &started.disks,
    };
    let mut block = vec![0; volume::limits::BLOCK_BYTES as usize];
    let now = medium.read(disk, Sector::ZERO, &mut block).ok();
    let now = now.and_then(|()| Superblock::parse(&block).ok());
    let name = |number: usize| started.candidates[number].name.as_str();
    let other = now
        .filter(|now| now.pool == spec.pool)
        .map(|now| usize::from(now.number.0));
    let reason = match other.filter(|other| *other != disk && *other < started.candidates.len()) {
        Some(other) => format!(
            "{} and {} are two names of one disk",
            name(disk.min(other)),
            name(disk.max(other))
        ),
        None => format!(
            "{}: another program wrote to it while the pool was made",
            name(disk)
        ),
    };
    let remedy = match raw.perform(&started.disks, &PoolState::wipe(spec)) {
        Ok(()) => "name each disk once, and make sure that nothing else uses them",
        Err(_) => {
            "name each disk once, and make sure that nothing else uses them; --force is needed, because parts of a pool are on them"
        }
    };
    PoolError::Unsuited { reason, remedy }
}

/// Refuses disks that belong to any pool, even if that pool would not open.
fn refuse_pools(raw: &RawIo, started: &Started) -> Result<(), PoolError> {
    for (index, candidate) in started.candidates.iter().enumerate() {
        let mut medium = StartedMedium {
            raw,
            disks: std::slice::from_ref(&started.disks[index]),
        };
        let opened = PoolState::open(&mut medium, std::slice::from_ref(candidate));
        let is_free = match &opened {
            Ok(_) => false,
            Err(error) => error
                .problems
                .iter()
                .all(|problem| matches!(problem, Problem::NotOurs { .. })),
        };
        if !is_free {
            return Err(PoolError::Taken {
                disk: candidate.name.clone(),
            });
        }
    }
    Ok(())
}

/// Bytes at the beginning and at the end of a disk that contain the signatures of file systems, partition tables
/// and volume managers.
const MARKS: [u64; 2] = [1 << 20, 64 << 10];

/// Refuses disks with non-zero bytes where other software keeps its signatures.
fn refuse_others(raw: &RawIo, started: &Started) -> Result<(), PoolError> {
    for disk in &started.disks {
        let mut medium = StartedMedium {
            raw,
            disks: std::slice::from_ref(disk),
        };
        // Rounded down to whole blocks of the disk.
        let size = disk.capacity.bytes().0 / disk.block_bytes * disk.block_bytes;
        let [head, tail] = MARKS.map(|bytes| bytes.min(size));
        for (start, bytes) in [(0, head), (size - tail, tail)] {
            let mut buffer = vec![0; bytes as usize];
            medium
                .read(0, Sector(start / SECTOR_BYTES), &mut buffer)
                .map_err(|error| host("the beginning and end of a disk", error))?;
            if let Some(at) = buffer.iter().position(|byte| *byte != 0) {
                let beginning = if start == 0 { &buffer[..] } else { &[] };
                return Err(PoolError::Occupied {
                    disk: disk.name.clone(),
                    what: mark_of(beginning).unwrap_or("unknown data"),
                    at: Bytes(start + at as u64),
                });
            }
        }
    }
    Ok(())
}

/// Assembles an opened pool, with the disks in the order of their numbers.
fn assemble(
    memory: Memory,
    started: Started,
    meta: Meta,
    policy: Policy,
    options: &OpenOptions,
) -> Result<Arc<PoolCore>, PoolError> {
    let Started {
        disks,
        mut warnings,
        ..
    } = started;
    let numbered = meta.state.disks();
    let mut given: Vec<Option<DiskCore>> = disks.into_iter().map(Some).collect();
    let in_order: Vec<DiskCore> = numbered
        .iter()
        .filter_map(|disk| given[disk.candidate].take())
        .collect();
    let worker = Worker::new().map_err(|error| host("the pool's worker", error))?;
    let params = ThreadParams {
        // Below the dispatchers, above all ordinary threads.
        fifo_priority: options.realtime.then_some(DISPATCHER_FIFO_PRIORITY - 1),
        ..ThreadParams::ordinary("pool worker")
    };
    let (committer, keeper) = (Arc::new(Committer::default()), Arc::new(Keeper::default()));
    let repairs = Arc::new(Repairs::default());
    let denied = {
        let (committer, keeper) = (Arc::clone(&committer), Arc::clone(&keeper));
        let repairs = Arc::clone(&repairs);
        worker.start(&params, move |job| {
            jobs::perform(job, &committer, &keeper, &repairs);
        })
    };
    let denied = denied.map_err(|error| host("the pool's worker", error))?;
    warnings.add_denied(&denied, "the pool's worker");
    warnings.add_denied(&options.denied, "the server");
    for refused in memory.refused() {
        warnings.add_refused(refused, "the buffers");
    }
    if !policy.guarantees() {
        warnings.add_of_pool(format!(
            "the scheduler {} is only for comparison: with it, streams can miss deadlines",
            policy.name()
        ));
    }
    if options.floor == Floor::None {
        warnings.add_of_pool(
            "best effort has no floor: if streams use all the time of a disk, file systems on it may wait forever",
        );
    }
    Ok(PoolCore::new(CoreParts {
        name: options.name.clone(),
        io: IoCore::new(memory, in_order.into_boxed_slice(), meta.state.geometry()),
        worker,
        committer,
        keeper,
        repairs,
        meta,
        policy,
        warnings: warnings.into_warnings(),
    }))
}

/// Joins the floor's task on every disk.
fn raise_floors(pool: &Arc<PoolCore>, floor: Floor) -> Result<(), PoolError> {
    let now = clock::now();
    let mut admission = pool.admission.lock();
    for (index, disk) in pool.io.disks.iter().enumerate() {
        let Some(params) = floor_params(floor, &disk.predictor)? else {
            continue;
        };
        if disk.borrowed_link().is_some() {
            continue;
        }
        admission
            .join_now(&pool.io.disks, index, FLOOR, params, TaskKind::Floor, now)
            .map_err(|unjoined| PoolError::BadSize {
                what: "the floor",
                reason: unjoined.to_string(),
                remedy: FLOOR_REMEDY,
            })?;
        admission.floors[index] = Some(params);
    }
    admission.publish_delta_l(&pool.io.disks, now);
    Ok(())
}

fn floor_params(floor: Floor, predictor: &Predictor) -> Result<Option<TaskParams>, PoolError> {
    let piece = predictor.piece_max(predictor.piece_limit());
    let (slice, period) = match floor {
        Floor::None | Floor::Share { permille: 0 } => return Ok(None),
        Floor::Share { permille } => {
            let period = piece.0.saturating_mul(1000) / u64::from(permille);
            (piece, Nanos(period))
        }
        Floor::Server { slice, period } => (slice, period),
    };
    TaskParams::new(slice, period)
        .map(|params| Some(params.in_pieces(piece)))
        .map_err(|error| PoolError::BadSize {
            what: "the floor",
            reason: error.to_string(),
            remedy: FLOOR_REMEDY,
        })
}
