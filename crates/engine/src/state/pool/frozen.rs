//! Whether the pool's metadata can be written, for those who ask while it is being written.

use std::sync::Arc;

use parking_lot::Mutex;
use sched::units::Time;

use crate::clock;
use crate::state::error::PoolError;

/// Why the metadata is frozen.
#[derive(Clone, Debug)]
pub(crate) struct Frozen {
    /// What failed.
    pub(crate) reason: Arc<str>,
    pub(crate) since: Time,
    /// Whether it goes on when the disk takes the write that failed.
    pub(crate) goes_on: bool,
}

impl Frozen {
    /// What somebody is told whose change was not begun.
    pub(crate) fn refusal(&self) -> PoolError {
        let reason = self.reason.to_string();
        if self.goes_on {
            PoolError::MetadataFrozen {
                reason,
                is_pending: false,
            }
        } else {
            PoolError::MetadataFailed(reason)
        }
    }
}

/// What is known of the metadata's health.
#[derive(Clone, Debug, Default)]
pub(crate) struct MetaHealth {
    pub(crate) frozen: Option<Frozen>,
    /// How often it has been frozen.
    pub(crate) freezes: u64,
    /// How often it has gone on.
    pub(crate) resumes: u64,
}

/// The same, shared.
#[derive(Default)]
pub(crate) struct MetaWatch(Mutex<MetaHealth>);

impl MetaWatch {
    pub(crate) fn health(&self) -> MetaHealth {
        self.0.lock().clone()
    }

    pub(crate) fn frozen(&self) -> Option<Frozen> {
        self.0.lock().frozen.clone()
    }

    /// A write of it has failed. While it is frozen the first reason stays, unless it does not go on any more.
    pub(crate) fn freeze(&self, reason: &str, goes_on: bool) {
        let mut health = self.0.lock();
        match &mut health.frozen {
            Some(frozen) if frozen.goes_on == goes_on => {}
            Some(frozen) => {
                frozen.reason = reason.into();
                frozen.goes_on = goes_on;
            }
            none => {
                *none = Some(Frozen {
                    reason: reason.into(),
                    since: clock::now(),
                    goes_on,
                });
                health.freezes += 1;
            }
        }
    }

    /// It can be written again.
    pub(crate) fn resume(&self) {
        let mut health = self.0.lock();
        if health.frozen.take().is_some() {
            health.resumes += 1;
        }
    }
}
