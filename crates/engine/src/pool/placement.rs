//! Translating a placement from names and zones of disks to numbers and sectors.

use sched::units::{Bytes, SECTOR_BYTES, Sector};
use volume::{DiskNumber, DiskRange};

use crate::state::error::PoolError;
use crate::state::options::Placement;
use crate::state::pool::core::PoolCore;

/// The placement in terms of the pool's metadata.
///
/// # Errors
/// When it names a disk, zone or bytes that do not exist.
pub(crate) fn resolve(
    pool: &PoolCore,
    placement: &Placement,
) -> Result<volume::Placement, PoolError> {
    let mut disks = Vec::with_capacity(placement.disks.len());
    for name in &placement.disks {
        let found = pool.io.disks.iter().position(|disk| disk.name == *name);
        let number = found.ok_or_else(|| {
            let names: Vec<&str> = pool
                .io
                .disks
                .iter()
                .map(|disk| disk.name.as_str())
                .collect();
            PoolError::BadPlacement(format!(
                "the pool has no disk {name:?}; it has {}",
                names.join(", ")
            ))
        })?;
        disks.push(DiskNumber(number as u16));
    }
    if disks.is_empty() {
        disks = promising(pool);
    }
    let mut within = Vec::new();
    if placement.zone.is_some() || placement.bytes.is_some() {
        let all = (0..pool.io.disks.len()).map(|number| DiskNumber(number as u16));
        let on: Vec<DiskNumber> = if disks.is_empty() {
            all.collect()
        } else {
            disks.clone()
        };
        for disk in on {
            within.extend(stretch(pool, disk, placement)?);
        }
        if within.is_empty() {
            return Err(PoolError::BadPlacement(nothing_of(placement)));
        }
    }
    Ok(volume::Placement {
        disks,
        within,
        run: placement.run_extents.max(1),
        strict: false,
    })
}

/// The disks that promise, if some do not: a volume that names no disks can be reserved. Otherwise none, which means all.
fn promising(pool: &PoolCore) -> Vec<DiskNumber> {
    let numbers = (0..).map(DiskNumber).zip(&pool.io.disks);
    let (promising, others): (Vec<_>, Vec<_>) =
        numbers.partition(|(_, disk)| disk.borrowed_link().is_none());
    if others.is_empty() {
        return Vec::new();
    }
    promising.into_iter().map(|(number, _)| number).collect()
}

/// Describes a placement that allows no place.
fn nothing_of(placement: &Placement) -> String {
    let of = match placement.zone {
        Some(zone) => format!("zone {zone} of no disk"),
        None => "no disk".to_owned(),
    };
    let bytes = placement.bytes.clone().unwrap_or(0..u64::MAX);
    let (from, to) = (Bytes(bytes.start), Bytes(bytes.end));
    if to == Bytes::MAX {
        format!("{of} has a part behind {from}")
    } else {
        format!("{of} has a part between {from} and {to}")
    }
}

/// The part of a disk that the placement allows, if any.
fn stretch(
    pool: &PoolCore,
    number: DiskNumber,
    placement: &Placement,
) -> Result<Option<DiskRange>, PoolError> {
    let disk = &pool.io.disks[usize::from(number.0)];
    let mut allowed = Sector::ZERO..Sector(disk.capacity.0);
    if let Some(zone) = placement.zone {
        let zones = disk.predictor.zone_count();
        let range = disk.predictor.zone_range(zone).ok_or_else(|| {
            PoolError::BadPlacement(format!(
                "disk {:?} has zones 0 to {}, but no zone {zone}",
                disk.name,
                zones.saturating_sub(1)
            ))
        })?;
        allowed = range.start.max(allowed.start)..range.end.min(allowed.end);
    }
    if let Some(bytes) = &placement.bytes {
        let from = Sector(bytes.start.div_ceil(SECTOR_BYTES));
        let to = Sector(bytes.end / SECTOR_BYTES);
        allowed = from.max(allowed.start)..to.min(allowed.end);
    }
    let count = allowed.end.saturating_since(allowed.start);
    Ok((!count.is_zero()).then_some(DiskRange {
        disk: number,
        start: allowed.start,
        count,
    }))
}

/// The zones of all disks.
pub(crate) fn all_zones(pool: &PoolCore) -> Vec<DiskRange> {
    let mut zones = Vec::new();
    for (number, disk) in pool.io.disks.iter().enumerate() {
        for zone in 0..disk.predictor.zone_count() {
            if let Some(range) = disk.predictor.zone_range(zone) {
                let end = range.end.min(Sector(disk.capacity.0));
                zones.push(DiskRange {
                    disk: DiskNumber(number as u16),
                    start: range.start,
                    count: end.saturating_since(range.start),
                });
            }
        }
    }
    zones
}
