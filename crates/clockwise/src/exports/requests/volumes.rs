//! The pool's volumes as exports, whatever the protocol: which there are, disk time that is reserved for
//! them, and opening one.

use std::collections::HashMap;
use std::sync::Arc;

use engine::pool::{Pool, Volume, VolumeInfo};
use engine::stream::Refusal;
use engine::volume_io::{BestEffortReservation, Client, ClientOptions, ReservedShare};
use sched::units::{Bytes, Time};

use super::parts::{FIXED_BYTES, PARTS_MAX};
use super::pending::REQUESTS_MAX;

/// Disk time that is reserved for an export: on every disk, for all of its clients together, whatever
/// their protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportReservation {
    /// The volume.
    pub volume: String,
    /// How much.
    pub share: BestEffortReservation,
}

/// A volume as its clients see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::exports) struct Exported {
    pub(in crate::exports) name: String,
    /// Whole blocks.
    pub(in crate::exports) size_bytes: u64,
    /// What offsets and lengths of requests must be multiples of.
    pub(in crate::exports) block_bytes: u64,
    pub(in crate::exports) written_bytes: u64,
    /// A disk has failed, and it takes no more writes.
    pub(in crate::exports) is_read_only: bool,
    /// The last change of its content, by anybody.
    pub(in crate::exports) changed: Time,
}

/// Why a volume is not opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::exports) enum OpenError {
    /// There is no such volume.
    Unknown(String),
    /// The pool has no memory for a client.
    Refused(String),
}

/// Who opens volumes.
#[derive(Clone, Copy, Debug)]
pub(in crate::exports) struct Opener {
    /// As the pool tells it to those who would delete the volume.
    pub(in crate::exports) user: &'static str,
    /// What has memory of its own.
    pub(in crate::exports) what: &'static str,
}

/// A pool whose volumes are exported.
#[derive(Debug)]
pub struct Volumes {
    pool: Arc<Pool>,
    /// Disk time reserved for exports, by volume.
    shares: HashMap<String, Arc<ReservedShare>>,
}

impl Volumes {
    /// Those of a pool, of which some have disk time reserved. What of that the disks cannot carry is a
    /// warning of the pool, and the export is best effort like any other.
    #[must_use]
    pub fn new(pool: Arc<Pool>, reservations: &[ExportReservation]) -> Arc<Self> {
        let shares = reserve(&pool, reservations);
        Arc::new(Self { pool, shares })
    }

    pub(in crate::exports) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The exports that disk time is reserved for, by name, whether or not there are such volumes.
    pub(in crate::exports) fn reserved(&self) -> Vec<String> {
        let mut exports: Vec<String> = self.shares.keys().cloned().collect();
        exports.sort_unstable();
        exports
    }

    /// All, by name.
    pub(in crate::exports) fn list(&self) -> Vec<Exported> {
        let all = self.pool.volumes().into_iter();
        all.map(|info| self.exported(info)).collect()
    }

    /// One by its exact name.
    pub(in crate::exports) fn find(&self, name: &str) -> Option<Exported> {
        let info = self.pool.volume_info(name).ok()?;
        Some(self.exported(info))
    }

    fn exported(&self, info: VolumeInfo) -> Exported {
        let block_bytes = self.pool.alignment().0;
        Exported {
            name: info.name,
            size_bytes: whole_blocks(info.size_bytes, block_bytes),
            block_bytes,
            written_bytes: info.written_bytes,
            is_read_only: info.poisoned.is_some(),
            changed: info.changed,
        }
    }

    /// Opens one.
    pub(in crate::exports) fn open(
        &self,
        name: &str,
        opener: &Opener,
    ) -> Result<Arc<Volume>, OpenError> {
        let opened = self.pool.open_volume_for(name, opener.user);
        opened.map_err(|error| OpenError::Unknown(error.to_string()))
    }

    /// A client of the pool for requests to volume `of`; `name` is what the pool calls it.
    pub(in crate::exports) fn client(
        &self,
        of: &str,
        name: &str,
        opener: &Opener,
    ) -> Result<Client, OpenError> {
        let client = self.pool.client(name, self.options(of));
        client.map_err(|refusal| OpenError::Refused(told(&refusal, opener)))
    }

    /// Makes `count` clients, or none.
    pub(in crate::exports) fn clients(
        &self,
        of: &str,
        name: &str,
        opener: &Opener,
        count: usize,
    ) -> Result<Vec<Client>, OpenError> {
        let mut clients = Vec::with_capacity(count);
        for made in 0..count {
            let client = self.pool.client(name, self.options(of));
            let client = client.map_err(|refusal| match refusal {
                // The clients before this one are dropped, and their memory is free again.
                Refusal::Memory { needed, available } => Refusal::Memory {
                    needed: needed * count as u64,
                    available: available + needed * made as u64,
                },
                refusal => refusal,
            });
            let client = client.map_err(|refusal| OpenError::Refused(told(&refusal, opener)));
            clients.push(client?);
        }
        Ok(clients)
    }

    fn options(&self, of: &str) -> ClientOptions {
        ClientOptions {
            fixed: Bytes(FIXED_BYTES as u64),
            in_flight_max: PARTS_MAX + REQUESTS_MAX,
            reservation: self.shares.get(of).cloned(),
        }
    }
}

/// Of a volume that was made before sizes were whole blocks, the last one is not there.
pub(in crate::exports) fn whole_blocks(size_bytes: u64, block_bytes: u64) -> u64 {
    size_bytes / block_bytes * block_bytes
}

/// Why there is no client of the pool.
fn told(refusal: &Refusal, opener: &Opener) -> String {
    match refusal {
        Refusal::Memory { needed, available } => format!(
            "{} needs {} of memory of its own, and streams and other connections leave {}; close some, or have the server's \
             operator set `total` in [memory] higher",
            opener.what,
            Bytes(*needed),
            Bytes(*available)
        ),
        refusal => refusal.to_string(),
    }
}

/// Reserves disk time for exports, by volume.
fn reserve(pool: &Pool, reservations: &[ExportReservation]) -> HashMap<String, Arc<ReservedShare>> {
    let mut shares = HashMap::new();
    for ExportReservation { volume, share } in reservations {
        match pool.reserve_share(&format!("export {volume}"), *share) {
            Ok(share) => {
                shares.insert(volume.clone(), share);
            }
            Err(refusal) => {
                pool.warn(format!(
                    "export {volume} has no reservation, it is served like any other: {refusal}"
                ));
            }
        }
    }
    shares
}
