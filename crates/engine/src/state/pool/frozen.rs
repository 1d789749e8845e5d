//! Health of the pool's metadata, readable while the metadata is being written.

use std::sync::Arc;

use parking_lot::Mutex;
use sched::units::Time;

use crate::clock;
use crate::state::error::PoolError;

/// The way a freeze ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Recovery {
    /// When the disk accepts the write that failed, which is retried.
    ByRetry,
    /// Only when the pool is reopened.
    AfterRestart,
}

/// A freeze of the metadata.
#[derive(Clone, Debug)]
pub(crate) struct Frozen {
    /// The failure.
    pub(crate) reason: Arc<str>,
    pub(crate) since: Time,
    pub(crate) recovery: Recovery,
}

impl Frozen {
    /// The error of a change that was not begun.
    pub(crate) fn refusal(&self) -> PoolError {
        let reason = self.reason.to_string();
        if self.recovery == Recovery::ByRetry {
            PoolError::MetadataFrozen {
                reason,
                is_pending: false,
            }
        } else {
            PoolError::MetadataFailed(reason)
        }
    }
}

/// Health of the metadata.
#[derive(Clone, Debug, Default)]
pub(crate) struct MetaHealth {
    pub(crate) frozen: Option<Frozen>,
    /// Number of freezes so far.
    pub(crate) freezes: u64,
    /// Number of freezes that have ended.
    pub(crate) resumes: u64,
}

/// Shared access to the metadata's health, under a lock that is never held over I/O.
#[derive(Default)]
pub(crate) struct MetaWatch(Mutex<MetaHealth>);

impl MetaWatch {
    pub(crate) fn health(&self) -> MetaHealth {
        self.0.lock().clone()
    }

    pub(crate) fn frozen(&self) -> Option<Frozen> {
        self.0.lock().frozen.clone()
    }

    /// Records a failed write. During a freeze the first reason stays, unless the freeze becomes permanent.
    pub(crate) fn freeze(&self, reason: &str, recovery: Recovery) {
        let mut health = self.0.lock();
        match &mut health.frozen {
            Some(frozen) if frozen.recovery == recovery => {}
            Some(frozen) => {
                frozen.reason = reason.into();
                frozen.recovery = recovery;
            }
            none => {
                *none = Some(Frozen {
                    reason: reason.into(),
                    since: clock::now(),
                    recovery,
                });
                health.freezes += 1;
            }
        }
    }

    /// Ends the freeze.
    pub(crate) fn resume(&self) {
        let mut health = self.0.lock();
        if health.frozen.take().is_some() {
            health.resumes += 1;
        }
    }
}
