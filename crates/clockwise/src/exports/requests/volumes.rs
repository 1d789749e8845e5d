//! The pool's volumes as exports of every protocol: listing them, opening them, and the disk time reserved for them.

use std::collections::HashMap;
use std::sync::Arc;

use engine::pool::{Pool, Volume, VolumeInfo};
use engine::stream::Refusal;
use engine::volume_io::{BestEffortReservation, Client, ClientOptions, ReservedShare};
use sched::units::{Bytes, Time};

use super::pending::REQUESTS_MAX;
use super::transfer::{FIXED_BYTES, PARTS_MAX};

/// Disk time that is reserved for an export: on every disk, for all of its clients of all protocols together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportReservation {
    /// Name of the volume.
    pub volume: String,
    /// The time on each disk.
    pub share: BestEffortReservation,
}

/// A volume as its clients see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::exports) struct ExportedVolume {
    pub(in crate::exports) name: String,
    /// A multiple of `block_bytes`.
    pub(in crate::exports) size_bytes: u64,
    /// Alignment of offsets and lengths of requests.
    pub(in crate::exports) block_bytes: u64,
    pub(in crate::exports) written_bytes: u64,
    /// A disk has failed, and the volume accepts no more writes.
    pub(in crate::exports) is_read_only: bool,
    /// Time of the last change of its content.
    pub(in crate::exports) changed: Time,
}

/// Reason why a volume cannot be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::exports) enum OpenError {
    /// There is no such volume.
    Unknown(String),
    /// The pool has no memory for a client.
    Refused(String),
}

/// A kind of user that opens volumes.
#[derive(Clone, Copy, Debug)]
pub(in crate::exports) struct Opener {
    /// Its name in the pool's list of users, which refuses the deletion of a volume in use.
    pub(in crate::exports) user: &'static str,
    /// The unit that has memory of its own, for messages.
    pub(in crate::exports) memory_owner: &'static str,
}

/// A pool whose volumes are exported.
#[derive(Debug)]
pub struct Volumes {
    pool: Arc<Pool>,
    /// Reserved disk time by name of the volume.
    shares: HashMap<String, Arc<ReservedShare>>,
}

impl Volumes {
    /// Reserves disk time for exports. A reservation that the disks cannot carry becomes a warning of the pool, and
    /// that export stays best effort.
    #[must_use]
    pub fn new(pool: Arc<Pool>, reservations: &[ExportReservation]) -> Arc<Self> {
        let shares = reserve(&pool, reservations);
        Arc::new(Self { pool, shares })
    }

    pub(in crate::exports) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Names of the exports with reserved disk time, in order. A volume of that name need not exist.
    pub(in crate::exports) fn reserved(&self) -> Vec<String> {
        let mut exports: Vec<String> = self.shares.keys().cloned().collect();
        exports.sort_unstable();
        exports
    }

    /// All volumes in order of name.
    pub(in crate::exports) fn list(&self) -> Vec<ExportedVolume> {
        let all = self.pool.volumes().into_iter();
        all.map(|info| self.exported(info)).collect()
    }

    /// The volume of exactly this name.
    pub(in crate::exports) fn find(&self, name: &str) -> Option<ExportedVolume> {
        let info = self.pool.volume_info(name).ok()?;
        Some(self.exported(info))
    }

    fn exported(&self, info: VolumeInfo) -> ExportedVolume {
        let block_bytes = self.pool.alignment().0;
        ExportedVolume {
            name: info.name,
            size_bytes: whole_blocks(info.size_bytes, block_bytes),
            block_bytes,
            written_bytes: info.written_bytes,
            is_read_only: info.poisoned.is_some(),
            changed: info.changed,
        }
    }

    pub(in crate::exports) fn open(
        &self,
        name: &str,
        opener: &Opener,
    ) -> Result<Arc<Volume>, OpenError> {
        let opened = self.pool.open_volume_for(name, opener.user);
        opened.map_err(|error| OpenError::Unknown(error.to_string()))
    }

    /// Makes a client of the pool for requests to `volume`. The client is called `name`.
    pub(in crate::exports) fn client(
        &self,
        volume: &str,
        name: &str,
        opener: &Opener,
    ) -> Result<Client, OpenError> {
        let client = self.pool.client(name, self.options(volume));
        client.map_err(|refusal| OpenError::Refused(refusal_message(&refusal, opener)))
    }

    /// Makes `count` clients, or none. See [`Self::client`].
    pub(in crate::exports) fn clients(
        &self,
        volume: &str,
        name: &str,
        opener: &Opener,
        count: usize,
    ) -> Result<Vec<Client>, OpenError> {
        let mut clients = Vec::with_capacity(count);
        for made in 0..count {
            let client = self.pool.client(name, self.options(volume));
            let client = client.map_err(|refusal| match refusal {
                // The clients before this one are dropped, and their memory is free again.
                Refusal::Memory { needed, available } => Refusal::Memory {
                    needed: needed * count as u64,
                    available: available + needed * made as u64,
                },
                refusal => refusal,
            });
            let client =
                client.map_err(|refusal| OpenError::Refused(refusal_message(&refusal, opener)));
            clients.push(client?);
        }
        Ok(clients)
    }

    fn options(&self, volume: &str) -> ClientOptions {
        ClientOptions {
            fixed: Bytes(FIXED_BYTES as u64),
            in_flight_max: PARTS_MAX + REQUESTS_MAX,
            reservation: self.shares.get(volume).cloned(),
        }
    }
}

/// Rounds a size down to whole blocks. Volumes of old pools may end within a block, which is not exported.
pub(in crate::exports) fn whole_blocks(size_bytes: u64, block_bytes: u64) -> u64 {
    size_bytes / block_bytes * block_bytes
}

fn refusal_message(refusal: &Refusal, opener: &Opener) -> String {
    match refusal {
        Refusal::Memory { needed, available } => format!(
            "{} needs {} of reserved memory, but streams and other connections leave only {}; close some of them, or ask the \
             server's operator to raise `total` in [memory]",
            opener.memory_owner,
            Bytes(*needed),
            Bytes(*available)
        ),
        refusal => refusal.to_string(),
    }
}

fn reserve(pool: &Pool, reservations: &[ExportReservation]) -> HashMap<String, Arc<ReservedShare>> {
    let mut shares = HashMap::new();
    for ExportReservation { volume, share } in reservations {
        match pool.reserve_share(&format!("export {volume}"), *share) {
            Ok(share) => {
                shares.insert(volume.clone(), share);
            }
            Err(refusal) => {
                pool.warn(format!(
                    "export {volume} has no reservation and is served as best effort: {refusal}"
                ));
            }
        }
    }
    shares
}
