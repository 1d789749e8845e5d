//! Reaction to another server that has taken over the disks: this server writes nothing more.

use volume::Step;

use super::raw::StepError;
use crate::state::error::PoolError;
use crate::state::pool::core::PoolCore;
use crate::state::pool::meta::Meta;
use crate::state::warning::Warning;

impl PoolCore {
    /// # Errors
    /// When another server has the disks.
    pub(crate) fn check_ownership(&self) -> Result<(), PoolError> {
        match self.taken_over.get() {
            Some(what) => Err(PoolError::TakenOver(what.clone())),
            None => Ok(()),
        }
    }

    /// Records that another server has the disks, and poisons all volumes.
    pub(crate) fn mark_taken_over(&self, what: &str) -> PoolError {
        let error = PoolError::TakenOver(what.to_owned());
        if self.taken_over.set(what.to_owned()).is_ok() {
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
    /// Checks that the table's disk still belongs to this server.
    ///
    /// # Errors
    /// When it does not, or cannot be read.
    pub(crate) fn verify(&self, pool: &PoolCore) -> Result<(), PoolError> {
        pool.check_ownership()?;
        let steps: [Step; 1] = [self.state.expectation()];
        self.perform(pool, &steps).map_err(|failure| match failure {
            StepError::Io(failure) => PoolError::Io(failure),
            StepError::TakenOver { what, .. } => pool.mark_taken_over(&what),
        })
    }
}
