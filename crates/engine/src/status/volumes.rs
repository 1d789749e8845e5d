//! Reports on volumes and their places.

use std::collections::BTreeMap;

use sched::units::{SECTOR_BYTES, Time};

use crate::state::pool::io::IoCore;
use crate::state::volume::VolumeCore;

/// Consecutive extents of a volume that are also consecutive on a disk, in one zone.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct PlaceRun {
    /// Start in the volume, in bytes.
    pub offset_bytes: u64,
    /// Number of extents.
    pub extents: u64,
    /// The disk's name.
    pub disk: String,
    /// Start on the disk, in bytes.
    pub from_byte: u64,
    /// End on the disk, in bytes.
    pub to_byte: u64,
    /// The zone of the disk.
    pub zone: u64,
}

/// Information about a volume.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct VolumeInfo {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Bytes written, rounded up to whole chunks.
    pub written_bytes: u64,
    /// Number of extents.
    pub extents: u64,
    /// Number of extents on each disk, by the disk's name.
    pub extents_by_disk: Vec<(String, u64)>,
    /// Number of users that have it open.
    pub open_count: u64,
    /// Names of its users: clients and streams.
    pub users: Vec<String>,
    /// The reason why it accepts no more writes, if it does not.
    pub poisoned: Option<String>,
    /// The last change of its content, or the opening of the pool if that was later.
    pub changed: Time,
}

/// Places of a volume's extents in its own order: at most `limit` runs, from the extent with the byte `from`
/// on.
pub(crate) fn places(io: &IoCore, volume: &VolumeCore, from: u64, limit: usize) -> Vec<PlaceRun> {
    let map = volume.map();
    let geometry = map.geometry();
    let extent_bytes = geometry.extent_bytes().0;
    let first = usize::try_from(from / extent_bytes).unwrap_or(usize::MAX);
    let mut runs: Vec<PlaceRun> = Vec::new();
    for (index, extent) in map.extents().iter().enumerate().skip(first) {
        let place = extent.place();
        let disk = &io.disks[usize::from(place.disk.0)];
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

/// Information about a volume.
pub(crate) fn info(io: &IoCore, volume: &VolumeCore) -> VolumeInfo {
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
            .map(|(disk, count)| (io.disks[disk].name.clone(), count))
            .collect(),
        open_count: users.len() as u64,
        users,
        poisoned: volume.poisoned().map(|reason| reason.to_string()),
        changed: volume.changed(),
    }
}
