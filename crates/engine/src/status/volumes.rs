//! Open volumes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use sched::units::{Bytes, SECTOR_BYTES};

use crate::state::pool::core::PoolCore;
use crate::state::volume::VolumeCore;

/// A volume in use. The volume cannot be deleted while one exists.
pub struct Volume {
    core: Arc<VolumeCore>,
    pool: Arc<PoolCore>,
    /// Its entry among the volume's users; none for the pool's own use.
    key: Option<u64>,
}

/// Neighbouring chunks of one kind.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct BlockRun {
    /// Where, in bytes of the volume.
    pub bytes: Range<u64>,
    /// Whether it was never written, or discarded, and reads as zeros.
    pub hole: bool,
}

/// Neighbouring extents of a volume that are neighbours in one zone of a disk as well.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct PlaceRun {
    /// Where in the volume they begin, in bytes.
    pub offset_bytes: u64,
    /// How many there are.
    pub extents: u64,
    /// The disk's name.
    pub disk: String,
    /// Where on the disk they begin, in bytes.
    pub from_byte: u64,
    /// Where on the disk they end, in bytes.
    pub to_byte: u64,
    /// The zone of the disk.
    pub zone: u64,
}

/// What is known of a volume.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct VolumeInfo {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// How much of it was written, in bytes, to whole chunks.
    pub written_bytes: u64,
    /// How many extents it has.
    pub extents: u64,
    /// How many of its extents lie on which disk, by the disk's name.
    pub extents_by_disk: Vec<(String, u64)>,
    /// How many users have it open.
    pub open_count: u64,
    /// Who uses it: clients and streams, by name.
    pub users: Vec<String>,
    /// Why it takes no more writes, if it does not.
    pub poisoned: Option<String>,
}

impl Volume {
    /// A handle for `user`; `None` when the volume is being deleted.
    pub(crate) fn open(pool: &Arc<PoolCore>, core: Arc<VolumeCore>, user: &str) -> Option<Self> {
        let key = core.open(user)?;
        Some(Self {
            core,
            pool: Arc::clone(pool),
            key: Some(key),
        })
    }

    /// A handle of the pool's own, which keeps nobody from deleting the volume.
    pub(crate) fn internal(pool: &Arc<PoolCore>, core: Arc<VolumeCore>) -> Self {
        Self {
            core,
            pool: Arc::clone(pool),
            key: None,
        }
    }

    pub(crate) fn core(&self) -> &Arc<VolumeCore> {
        &self.core
    }

    pub(crate) fn pool(&self) -> &Arc<PoolCore> {
        &self.pool
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Its present size.
    #[must_use]
    pub fn size(&self) -> Bytes {
        self.core.size()
    }

    /// The size of a chunk, the unit in which holes are kept and discard works.
    #[must_use]
    pub fn chunk(&self) -> Bytes {
        self.core.map().geometry().chunk_bytes()
    }

    /// What offsets and lengths of requests must be multiples of: 512, or more where a disk of the
    /// pool has larger blocks.
    #[must_use]
    pub fn alignment(&self) -> Bytes {
        Bytes(self.pool.block_bytes.max(SECTOR_BYTES))
    }

    /// What a write should begin and end at multiples of so that no drive of the pool has to read what
    /// it writes part of: the largest physical sector, a multiple of the [alignment](Self::alignment).
    #[must_use]
    pub fn write_grain(&self) -> Bytes {
        let sectors = self
            .pool
            .disks
            .iter()
            .map(|disk| disk.profile.physical_sector());
        sectors.max().unwrap_or_default().max(self.alignment())
    }

    /// Whether every disk of the pool, any of which may come to hold the volume, has completed a transfer
    /// when it has taken it: as a file in memory does.
    #[must_use]
    pub fn completes_at_once(&self) -> bool {
        let mut disks = self.pool.disks.iter();
        disks.all(|disk| disk.feeder.completes_at_once())
    }

    /// Which parts of a range hold data and which are holes, as runs in order; at most `limit`
    /// runs, so that the last one may end before the range does. Empty for a range that is not
    /// whole sectors of the volume.
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

    /// Why it takes no more writes, if it does not.
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

/// Where a volume lies, in its own order: at most `limit` runs, from the extent with the byte `from` on.
pub(crate) fn places(
    pool: &PoolCore,
    volume: &VolumeCore,
    from: u64,
    limit: usize,
) -> Vec<PlaceRun> {
    let map = volume.map();
    let geometry = map.geometry();
    let extent_bytes = geometry.extent_bytes().0;
    let first = usize::try_from(from / extent_bytes).unwrap_or(usize::MAX);
    let mut runs: Vec<PlaceRun> = Vec::new();
    for (index, extent) in map.extents().iter().enumerate().skip(first) {
        let place = extent.place();
        let disk = &pool.disks[usize::from(place.disk.0)];
        let start = geometry.sector_of(place);
        let zone = disk.predictor.zone_of(start) as u64;
        let from_byte = start.0 * SECTOR_BYTES;
        let is_full = runs.len() == limit;
        match runs.last_mut() {
            Some(run) if run.disk == disk.name && run.to_byte == from_byte && run.zone == zone => {
                run.extents += 1;
                run.to_byte += extent_bytes;
            }
            _ if is_full => break,
            _ => runs.push(PlaceRun {
                offset_bytes: index as u64 * extent_bytes,
                extents: 1,
                disk: disk.name.clone(),
                from_byte,
                to_byte: from_byte + extent_bytes,
                zone,
            }),
        }
    }
    runs
}

/// What is known of a volume.
pub(crate) fn info(pool: &PoolCore, volume: &VolumeCore) -> VolumeInfo {
    let map = volume.map();
    let chunk_bytes = map.geometry().chunk_bytes().0;
    let mut by_disk: BTreeMap<usize, u64> = BTreeMap::new();
    let mut written = 0;
    for extent in map.extents() {
        *by_disk
            .entry(usize::from(extent.place().disk.0))
            .or_default() += 1;
        written += u64::from(extent.written().len()) * chunk_bytes;
    }
    let users = volume.user_names();
    VolumeInfo {
        name: volume.name.clone(),
        size_bytes: map.size().0,
        written_bytes: written.min(map.size().0),
        extents: map.extents().len() as u64,
        extents_by_disk: by_disk
            .into_iter()
            .map(|(disk, count)| (pool.disks[disk].name.clone(), count))
            .collect(),
        open_count: users.len() as u64,
        users,
        poisoned: volume.poisoned().map(|reason| reason.to_string()),
    }
}
