//! Open volumes.

use std::ops::Range;
use std::sync::Arc;

use sched::units::Bytes;

use crate::state::pool::io::IoCore;
use crate::state::volume::VolumeCore;

/// An open volume. The volume cannot be deleted while one exists.
pub struct Volume {
    core: Arc<VolumeCore>,
    io: Arc<IoCore>,
    /// Its entry among the volume's users; `None` for the pool's own use.
    key: Option<u64>,
}

/// Neighbouring chunks of one kind.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct BlockRun {
    /// The range, in bytes of the volume.
    pub bytes: Range<u64>,
    /// True if it was never written, or discarded; it reads as zeros.
    pub hole: bool,
}

impl Volume {
    /// A handle for `user`; `None` when the volume is being deleted.
    pub(crate) fn open(io: &Arc<IoCore>, core: Arc<VolumeCore>, user: &str) -> Option<Self> {
        let key = core.open(user)?;
        Some(Self {
            core,
            io: Arc::clone(io),
            key: Some(key),
        })
    }

    /// A handle for the pool itself, which does not prevent deletion.
    pub(crate) fn internal(io: &Arc<IoCore>, core: Arc<VolumeCore>) -> Self {
        Self {
            core,
            io: Arc::clone(io),
            key: None,
        }
    }

    pub(crate) fn core(&self) -> &Arc<VolumeCore> {
        &self.core
    }

    pub(crate) fn io(&self) -> &Arc<IoCore> {
        &self.io
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Its current size.
    #[must_use]
    pub fn size(&self) -> Bytes {
        self.core.size()
    }

    /// The size of a chunk, the unit of holes and discards.
    #[must_use]
    pub fn chunk(&self) -> Bytes {
        self.core.map().geometry().chunk_bytes()
    }

    /// The alignment of offsets and lengths of requests: 512, or more if a disk of the pool has larger blocks.
    #[must_use]
    pub fn alignment(&self) -> Bytes {
        self.io.alignment()
    }

    /// The recommended alignment of writes, with which no drive of the pool has to read before it writes: the
    /// largest physical sector, a multiple of the [alignment](Self::alignment).
    #[must_use]
    pub fn write_grain(&self) -> Bytes {
        let sectors = self
            .io
            .disks
            .iter()
            .map(|disk| disk.profile.physical_sector());
        sectors.max().unwrap_or_default().max(self.alignment())
    }

    /// True if every disk of the pool completes a transfer while taking it, as a file in memory does. Any of
    /// these disks may come to hold the volume.
    #[must_use]
    pub fn completes_at_once(&self) -> bool {
        let mut disks = self.io.disks.iter();
        disks.all(|disk| disk.feeder.completes_at_once())
    }

    /// Data and holes of a range, as runs in order; at most `limit` runs, so the last one may end before the
    /// range does. Empty for a range that is not whole sectors of the volume.
    #[must_use]
    pub fn block_status(&self, range: Range<u64>, limit: usize) -> Vec<BlockRun> {
        let len = range.end.saturating_sub(range.start);
        let map = self.core.map();
        let Ok(runs) = map.block_status(range.start, len) else {
            return Vec::new();
        };
        runs.take(limit)
            .map(|run| BlockRun {
                bytes: run.bytes,
                hole: !run.data,
            })
            .collect()
    }

    /// The reason why it accepts no more writes, if it does not.
    #[must_use]
    pub fn poisoned(&self) -> Option<String> {
        self.core.poisoned().map(|reason| reason.to_string())
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.core.release(key);
        }
    }
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Volume").field(&self.core.name).finish()
    }
}
