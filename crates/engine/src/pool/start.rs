//! Starting a dispatcher for each disk, before it is known which pool the disks form.

use std::collections::HashMap;
use std::sync::Arc;

use sched::core::Policy;
use sched::disk::{DiskScheduler, SchedulerConfig};
use sched::profile::DriveProfile;
use sched::units::{Bytes, SECTOR_BYTES, Sector, SectorCount};
use volume::{Candidate, Medium};

use super::warnings::WarningList;
use crate::dispatcher::{Dispatcher, DispatcherConfig, LinkEnd, LinkPlaces, Places, StallLimits};
use crate::rt::ThreadParams;
use crate::state::disk::core::{DiskCore, DiskLink, DiskParts};
use crate::state::error::{PoolError, host};
use crate::state::options::{Link, OpenOptions, PoolDisk};
use crate::state::raw::RawIo;

/// The most tasks in a disk's scheduler.
const TASKS_MAX: usize = 10_000;

/// Options for serving disks.
#[derive(Clone, Copy, Default)]
pub(super) struct Service {
    pub(super) policy: Policy,
    pub(super) realtime: bool,
    pub(super) patience: StallLimits,
}

impl Service {
    pub(super) fn new(policy: Policy, options: &OpenOptions) -> Self {
        Self {
            policy,
            realtime: options.realtime,
            patience: options.patience,
        }
    }
}

/// Disks with running dispatchers that are not yet a pool, in the order in which they were given.
pub(super) struct Started {
    pub(super) disks: Vec<DiskCore>,
    pub(super) candidates: Vec<Candidate>,
    pub(super) warnings: WarningList,
}

impl Started {
    /// Stops their dispatchers.
    pub(super) fn stop(&self) {
        for disk in &self.disks {
            disk.stop();
        }
    }
}

/// Starts a dispatcher for each disk.
pub(super) fn start(
    disks: Vec<PoolDisk>,
    service: Service,
    links: &[Link],
) -> Result<Started, PoolError> {
    if disks.is_empty() {
        return Err(PoolError::NoDisks);
    }
    let mut ends = link_ends(links).map_err(|error| host("setting up links", error))?;
    let mut started = Started {
        disks: Vec::new(),
        candidates: Vec::new(),
        warnings: WarningList::default(),
    };
    for (index, disk) in disks.into_iter().enumerate() {
        let name = disk.name.clone();
        let link = ends.remove(&name);
        let one = start_one(index, disk, service, link, &mut started.warnings);
        match one {
            Ok(disk) => {
                started.candidates.push(Candidate {
                    name: disk.name.clone(),
                    sectors: disk.capacity,
                });
                started.disks.push(disk);
            }
            Err(error) => {
                started.stop();
                return Err(PoolError::Disk {
                    reason: format!("{name}: cannot be used: {error}"),
                    remedy:
                        "check the disk, and the limits on threads and descriptors of this process"
                            .to_owned(),
                    disk: name,
                });
            }
        }
    }
    Ok(started)
}

/// For each disk on a link: the link, and its end of it if places are lent there.
fn link_ends(links: &[Link]) -> std::io::Result<HashMap<String, (DiskLink, Option<LinkEnd>)>> {
    let mut ends = HashMap::new();
    for link in links {
        let lends = link.promising < link.disks.len();
        let places = lends.then(|| LinkPlaces::new(link.disks.len(), link.promising));
        let places = places.transpose()?;
        for (place, disk) in link.disks.iter().enumerate() {
            let of_disk = DiskLink {
                name: link.name.clone(),
                rate: link.rate,
                borrows: place >= link.promising,
            };
            let end = places.as_ref().map(|places| places.end(place));
            ends.insert(disk.clone(), (of_disk, end));
        }
    }
    Ok(ends)
}

fn start_one(
    index: usize,
    given: PoolDisk,
    service: Service,
    link: Option<(DiskLink, Option<LinkEnd>)>,
    warnings: &mut WarningList,
) -> std::io::Result<DiskCore> {
    let PoolDisk {
        name,
        disk,
        profile,
        profile_is_measured,
    } = given;
    let capacity = SectorCount(disk.capacity().0.min(profile.capacity().0));
    if capacity < disk.capacity() {
        let what = format!(
            "the profile {:?} ends at {}; the rest of the disk is not used",
            profile.name(),
            capacity.bytes()
        );
        warnings.add(what, &name);
    }
    if !profile_is_measured {
        let what = format!(
            "the profile {:?} was not measured on this disk; the promises rely on it",
            profile.name()
        );
        warnings.add(what, &name);
    }
    let places = Places::default();
    let config = scheduler_config(service.policy, places);
    let thread = format!("disk {index}");
    let thread = if service.realtime {
        ThreadParams::dispatcher(thread)
    } else {
        ThreadParams::ordinary(thread)
    };
    for caveat in disk.caveats() {
        warnings.add(caveat, &name);
    }
    let durability = disk.durability();
    let host_sync = disk.host_sync();
    let block_bytes = u64::from(disk.block_bytes());
    let profile = in_sectors_of(Bytes(block_bytes), profile, warnings, &name)?;
    let (link, end) = link.unzip();
    let (dispatcher, denied) = Dispatcher::start(DispatcherConfig {
        name: name.clone(),
        scheduler: DiskScheduler::new(Arc::clone(&profile), config),
        disk,
        thread,
        places,
        patience: service.patience,
        link: end.flatten(),
    })?;
    warnings.add_denied(&denied, &name);
    Ok(DiskCore::new(DiskParts {
        name,
        dispatcher,
        durability,
        host_sync,
        patience: service.patience,
        profile,
        profile_is_measured,
        capacity,
        block_bytes,
        link,
    }))
}

/// Adapts a profile to a disk with blocks of `unit`: requests must not be cut into smaller pieces.
fn in_sectors_of(
    unit: Bytes,
    profile: Arc<DriveProfile>,
    warnings: &mut WarningList,
    subject: &str,
) -> std::io::Result<Arc<DriveProfile>> {
    let sector = profile.physical_sector();
    if sector >= unit {
        return Ok(profile);
    }
    let what = format!(
        "the profile {:?} has sectors of {sector}; the disk's, of {unit}, are used",
        profile.name(),
    );
    warnings.add(what, subject);
    let coarser = profile.in_sectors_of(unit);
    Ok(Arc::new(coarser.map_err(std::io::Error::other)?))
}

fn scheduler_config(policy: Policy, places: Places) -> SchedulerConfig {
    SchedulerConfig {
        policy,
        queue_max: places.total() as usize,
        tasks_max: TASKS_MAX,
        ..SchedulerConfig::default()
    }
}

/// Reads from disks that are not yet a pool.
pub(super) struct StartedMedium<'a> {
    pub(super) raw: &'a RawIo,
    pub(super) disks: &'a [DiskCore],
}

impl Medium for StartedMedium<'_> {
    fn read(&mut self, candidate: usize, start: Sector, buffer: &mut [u8]) -> std::io::Result<()> {
        let sectors = buffer.len() as u64 / SECTOR_BYTES;
        let capacity = self.disks[candidate].capacity;
        if start
            .0
            .checked_add(sectors)
            .is_none_or(|end| end > capacity.0)
        {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        self.raw
            .read(self.disks, candidate, start, buffer)
            .map_err(std::io::Error::other)
    }
}
