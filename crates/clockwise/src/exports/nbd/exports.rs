//! The pool's volumes as exports.

use std::cell::RefCell;
use std::sync::Arc;

use engine::pool::Volume;
use engine::volume_io::Client;

use super::negotiate::Exports;
use super::proto::BLOCK_BYTES_MIN_MAX;
use super::proto::option::{ExportInfo, RefusalKind};
use super::proto::transmission_flags as flags;
use super::worker::Shared;
use crate::exports::requests::volumes::{OpenError, Opener};

/// The transmission flags of every volume.
const VOLUME_FLAGS: u16 = flags::HAS_FLAGS
    | flags::SEND_FLUSH
    | flags::SEND_FUA
    | flags::SEND_TRIM
    | flags::SEND_WRITE_ZEROES
    | flags::SEND_FAST_ZERO
    | flags::CAN_MULTI_CONN;

/// The name of an NBD client in the pool's list of users of a volume.
pub(crate) const USER: &str = "an NBD client";

const OPENER: Opener = Opener {
    user: USER,
    memory_owner: "a connection",
};

/// The exports for one connection, and the one that it has opened.
pub(super) struct PoolExports {
    shared: Arc<Shared>,
    /// Name of the connection's client of the pool.
    name: String,
    /// Reason for which the connection may not open an export.
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

    /// Takes the opened export.
    pub(super) fn take_opened(&self) -> Option<(Client, Arc<Volume>)> {
        self.opened.borrow_mut().take()
    }

    fn description(&self) -> String {
        format!("a volume of pool {}", self.shared.volumes.pool().name())
    }
}

impl Exports for PoolExports {
    fn list(&self) -> Vec<(String, String)> {
        let description = self.description();
        let volumes = self.shared.volumes.list().into_iter();
        volumes
            .map(|volume| (volume.name, description.clone()))
            .collect()
    }

    fn find(&self, name: &str) -> Option<ExportInfo> {
        let volume = self.shared.volumes.find(name)?;
        let read_only = if volume.is_read_only {
            flags::READ_ONLY
        } else {
            0
        };
        Some(ExportInfo {
            name: volume.name,
            description: self.description(),
            size_bytes: volume.size_bytes,
            block_bytes: u32::try_from(volume.block_bytes)
                .ok()
                .filter(|block| *block <= BLOCK_BYTES_MIN_MAX)?,
            flags: VOLUME_FLAGS | read_only,
        })
    }

    fn open(&self, name: &str) -> Result<(), (RefusalKind, String)> {
        if let Some(reason) = &self.refused {
            return Err((RefusalKind::Policy, reason.clone()));
        }
        let volumes = &self.shared.volumes;
        let opened = volumes.open(name, &OPENER).and_then(|volume| {
            let client = volumes.client(name, &self.name, &OPENER)?;
            Ok((client, volume))
        });
        let opened = opened.map_err(|error| match error {
            OpenError::Unknown(text) => (RefusalKind::Unknown, text),
            OpenError::Refused(text) => (RefusalKind::Policy, text),
        })?;
        *self.opened.borrow_mut() = Some(opened);
        Ok(())
    }
}

impl std::fmt::Debug for PoolExports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PoolExports")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
