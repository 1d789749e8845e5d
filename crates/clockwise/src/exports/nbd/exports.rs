//! The pool's volumes as exports.

use std::cell::RefCell;
use std::sync::Arc;

use engine::front::{Client, ClientOptions};
use engine::pool::{Volume, VolumeInfo};
use engine::stream::Refusal;
use sched::units::Bytes;

use super::negotiate::Exports;
use super::proto::BLOCK_BYTES_MIN_MAX;
use super::proto::option::{ExportInfo, RefusalKind};
use super::proto::transmission_flags as flags;
use super::session::{FIXED_BYTES, PARTS_MAX};
use super::worker::Shared;
use crate::exports::requests::pending::REQUESTS_MAX;

/// What every volume can do.
const VOLUME_FLAGS: u16 = flags::HAS_FLAGS
    | flags::SEND_FLUSH
    | flags::SEND_FUA
    | flags::SEND_TRIM
    | flags::SEND_WRITE_ZEROES
    | flags::SEND_FAST_ZERO
    | flags::CAN_MULTI_CONN;

/// The users of a volume that is exported, as the pool tells them.
const USER: &str = "an NBD client";

/// How many clients use a volume through its export.
pub(crate) fn clients_of(volume: &VolumeInfo) -> usize {
    volume.users.iter().filter(|user| *user == USER).count()
}

/// The exports that one connection can choose from, and the one that it chose.
pub(super) struct PoolExports {
    shared: Arc<Shared>,
    /// The connection's name, under which the pool knows its client.
    name: String,
    /// Why the connection may choose none.
    refused: Option<String>,
    opened: RefCell<Option<(Client, Arc<Volume>)>>,
}

impl PoolExports {
    pub(super) fn new(shared: Arc<Shared>, name: String, refused: Option<String>) -> Self {
        Self {
            shared,
            name,
            refused,
            opened: RefCell::new(None),
        }
    }

    /// What was opened, once.
    pub(super) fn take_opened(&self) -> Option<(Client, Arc<Volume>)> {
        self.opened.borrow_mut().take()
    }

    fn description(&self) -> String {
        format!("a volume of pool {}", self.shared.pool.name())
    }
}

impl Exports for PoolExports {
    fn list(&self) -> Vec<(String, String)> {
        let description = self.description();
        self.shared
            .pool
            .volumes()
            .into_iter()
            .map(|info| (info.name, description.clone()))
            .collect()
    }

    fn find(&self, name: &str) -> Option<ExportInfo> {
        let volume = self.shared.pool.open_volume(name).ok()?;
        let read_only = if volume.poisoned().is_some() {
            flags::READ_ONLY
        } else {
            0
        };
        Some(ExportInfo {
            name: volume.name().to_owned(),
            description: self.description(),
            // Of a volume that was made before sizes were whole blocks, the last one is not there.
            size_bytes: volume.size().0 / volume.alignment().0 * volume.alignment().0,
            block_bytes: u32::try_from(volume.alignment().0)
                .ok()
                .filter(|block| *block <= BLOCK_BYTES_MIN_MAX)?,
            flags: VOLUME_FLAGS | read_only,
        })
    }

    fn open(&self, name: &str) -> Result<(), (RefusalKind, String)> {
        if let Some(reason) = &self.refused {
            return Err((RefusalKind::Policy, reason.clone()));
        }
        let volume = self
            .shared
            .pool
            .open_volume_for(name, USER)
            .map_err(|error| (RefusalKind::Unknown, error.to_string()))?;
        let options = ClientOptions {
            fixed: Bytes(FIXED_BYTES as u64),
            in_flight_max: PARTS_MAX + REQUESTS_MAX,
            reservation: self.shared.shares.get(name).cloned(),
        };
        let client = self
            .shared
            .pool
            .client(&self.name, options)
            .map_err(|refusal| (RefusalKind::Policy, told(&refusal)))?;
        *self.opened.borrow_mut() = Some((client, volume));
        Ok(())
    }
}

/// Why a connection gets no client of the pool.
fn told(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Memory { needed, available } => format!(
            "a connection needs {} of memory of its own, and streams and other connections leave {}; close some, or have the server's \
             operator set `total` in [memory] higher",
            Bytes(*needed),
            Bytes(*available)
        ),
        refusal => refusal.to_string(),
    }
}

impl std::fmt::Debug for PoolExports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PoolExports")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
