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

/// What every volume can do.
const VOLUME_FLAGS: u16 = flags::HAS_FLAGS
    | flags::SEND_FLUSH
    | flags::SEND_FUA
    | flags::SEND_TRIM
    | flags::SEND_WRITE_ZEROES
    | flags::SEND_FAST_ZERO
    | flags::CAN_MULTI_CONN;

/// A user of a volume, as the pool tells it.
pub(crate) const USER: &str = "an NBD client";

const OPENER: Opener = Opener {
    user: USER,
    what: "a connection",
};

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
        format!("a volume of pool {}", self.shared.volumes.pool().name())
    }
}

impl Exports for PoolExports {
    fn list(&self) -> Vec<(String, String)> {
        let description = self.description();
        let all = self.shared.volumes.list().into_iter();
        all.map(|one| (one.name, description.clone())).collect()
    }

    fn find(&self, name: &str) -> Option<ExportInfo> {
        let one = self.shared.volumes.find(name)?;
        let read_only = if one.is_read_only {
            flags::READ_ONLY
        } else {
            0
        };
        Some(ExportInfo {
            name: one.name,
            description: self.description(),
            size_bytes: one.size_bytes,
            block_bytes: u32::try_from(one.block_bytes)
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
