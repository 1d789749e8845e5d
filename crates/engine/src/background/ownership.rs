//! What a server does that finds that the disks are another's: it writes nothing more.

use std::sync::OnceLock;

use volume::{Owner, Step};

use crate::background::metadata::Meta;
use crate::background::raw::Unperformed;
use crate::pool::Pool;
use crate::state::error::PoolError;
use crate::state::pool::core::PoolCore;
use crate::state::warning::Warning;

/// Whether the disks are another server's, and how that shows.
#[derive(Default)]
pub(crate) struct Ownership(OnceLock<String>);

impl PoolCore {
    /// # Errors
    /// The disks are another server's.
    pub(crate) fn still_ours(&self) -> Result<(), PoolError> {
        match self.ownership.0.get() {
            Some(what) => Err(PoolError::TakenOver(what.clone())),
            None => Ok(()),
        }
    }

    /// The disks are another server's: no volume takes a change from now on.
    pub(crate) fn lose(&self, what: &str) -> PoolError {
        let error = PoolError::TakenOver(what.to_owned());
        if self.ownership.0.set(what.to_owned()).is_ok() {
            let what = error.to_string();
            let concerns = Vec::new();
            self.warnings.lock().push(Warning { what, concerns });
        }
        for volume in self.volumes.read().values() {
            volume.poison(&error);
        }
        error
    }
}

impl Meta {
    /// Looks whether the table's disk is still this server's.
    ///
    /// # Errors
    /// It is another's, or cannot be read.
    pub(crate) fn verify(&self, pool: &PoolCore) -> Result<(), PoolError> {
        pool.still_ours()?;
        let steps: [Step; 1] = [self.state.expectation()];
        self.perform(pool, &steps).map_err(|failure| match failure {
            Unperformed::Io(failure) => PoolError::Io(failure),
            Unperformed::TakenOver { what, .. } => pool.lose(&what),
        })
    }
}

impl Pool {
    /// How it shows that another server has opened the pool, if one has: by a look at the table's disk,
    /// unless the metadata is being changed, which looks by itself where it matters. This pool writes
    /// nothing more then, and is to be closed.
    ///
    /// A disk that cannot be read says nothing.
    #[must_use]
    pub fn taken_over(&self) -> Option<String> {
        let core = &self.core;
        if core.still_ours().is_ok()
            && !core.is_closed()
            && let Some(meta) = core.meta.try_lock()
        {
            // Who is the owner now is kept.
            drop(meta.verify(core));
        }
        core.still_ours().err().map(|error| error.to_string())
    }
}

/// An owner for a start.
///
/// # Errors
/// The host has no random numbers.
pub(crate) fn new_owner() -> Result<Owner, PoolError> {
    crate::pool::open::random()
}
