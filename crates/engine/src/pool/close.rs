//! Closing a pool.

use sched::units::Bytes;

use super::Pool;
use crate::background::raw::sync_all;
use crate::state::disk::core::DiskCore;
use crate::state::error::{PoolError, host};
use crate::state::pool::core::PoolCore;
use crate::state::request::VolumeOp;
use crate::volume_io::client::Client;
use crate::volume_io::request::VolumeRequest;
use crate::volume_io::volume::Volume;

impl Pool {
    /// Closes the pool: waits for requests in flight, makes everything durable, and stops the dispatchers. Later
    /// requests are refused.
    ///
    /// # Errors
    /// When data could not be made durable; the pool is closed in any case.
    pub fn close(&self) -> Result<(), PoolError> {
        let core = &self.core;
        if !core.io.begin_close() {
            return Ok(());
        }
        let result = self.settle_all();
        core.shut_down();
        result
    }

    /// Waits for everything in flight and makes it durable, by a flush on each volume that is a barrier.
    fn settle_all(&self) -> Result<(), PoolError> {
        let core = &self.core;
        let volumes: Vec<_> = core.volumes.read().values().cloned().collect();
        let account = core
            .io
            .memory
            .open_account("close", Bytes::ZERO)
            .map_err(|error| PoolError::Metadata(error.to_string()))?;
        let client =
            Client::new("close", core, account, None, 1).map_err(|error| host("closing", error))?;
        let mut result = Ok(());
        for volume in volumes {
            let handle = Volume::internal(&core.io, volume);
            let mut flush =
                VolumeRequest::command(&handle, VolumeOp::Flush, Bytes::ZERO, Bytes::ZERO);
            flush.barrier = true;
            let flushed = match client.execute_at_close(flush) {
                Ok(completion) => completion.result.map_err(PoolError::Io),
                Err(refused) => Err(PoolError::Metadata(refused.to_string())),
            };
            result = result.and(flushed);
        }
        let mut meta = core.meta.lock();
        if result.is_ok() && core.check_ownership().is_ok() {
            result = meta.stop(core);
        }
        // After closing there is no retry, so a freeze is a failure.
        match core.meta_watch.frozen() {
            Some(frozen) => Err(PoolError::MetadataFailed(frozen.reason.to_string())),
            None => result,
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.core.io.begin_close() {
            self.core.shut_down();
        }
    }
}

impl PoolCore {
    /// Ends all threads. Queued requests fail.
    pub(crate) fn shut_down(&self) {
        self.keeper.stop();
        for disk in &self.io.disks {
            disk.stop();
        }
        self.repairs.stop();
        // Requests under way now fail at the disks, one after another, and their waiters are answered.
        let volumes: Vec<_> = self.volumes.read().values().cloned().collect();
        let disks: Vec<&DiskCore> = self.io.disks.iter().collect();
        while !volumes.iter().all(|volume| volume.is_quiet()) {
            self.worker.fence();
            // The result has been delivered to the waiting requests.
            drop(sync_all(&disks));
            self.committer.fence();
        }
        self.committer.stop();
        self.worker.stop();
    }
}
