//! Validation of a stream's parameters.

use std::sync::Arc;

use sched::request::Op as Direction;
use sched::units::{Bytes, SECTOR_BYTES};

use super::needs::Path;
use super::spec::StreamSpec;
use crate::state::disk::core::DiskCore;
use crate::state::error::PoolError;
use crate::state::pool::admission::need::Need;
use crate::state::pool::io::IoCore;
use crate::state::refusal::Refusal;
use crate::state::stream::core::StreamCore;
use crate::state::volume::VolumeCore;
use crate::volume_io::request::REQUEST_BYTES_MAX;

/// Remedy for an invalid block size.
const BLOCK_REMEDY: &str =
    "give a size such as 256 KiB or 1 MiB, or none: the pool then proposes one";

/// Remedy for a volume on a disk that borrows its place on a link.
const BORROWS_REMEDY: &str = "move the volume to disks that promise (`clockwise volume move`), or set admission = \"inflate\" for the link";

/// Remedy for an invalid range.
const RANGE_REMEDY: &str = "give a range within the volume, in whole sectors of its disks (sizes in MiB or GiB are), or grow the volume";

/// Remedy for an invalid rate.
pub(super) const RATE_REMEDY: &str =
    "give the rate at which the stream moves bytes, such as 1.2 MB/s";

pub(super) fn invalid(
    what: &'static str,
    reason: impl Into<String>,
    remedy: &'static str,
) -> Refusal {
    Refusal::Invalid {
        what,
        reason: reason.into(),
        remedy,
    }
}

/// Number of distinct disks in `needs`, which is sorted by disk.
pub(super) fn disks_of(needs: &[Need]) -> u64 {
    let mut disks: Vec<usize> = needs.iter().map(|need| need.disk).collect();
    disks.dedup();
    disks.len() as u64
}

/// A range with exact byte offsets, because they are the error.
pub(super) fn described(range: &std::ops::Range<u64>) -> String {
    format!("from {} B to {} B", range.start, range.end)
}

/// Checks the parameters. Returns the stream's way through the volume.
pub(super) fn check(io: &Arc<IoCore>, spec: &StreamSpec) -> Result<Path, Refusal> {
    let volume = &spec.volume;
    if !Arc::ptr_eq(volume.io(), io) {
        return Err(invalid(
            "the volume",
            "it belongs to another pool",
            "open it in the pool that is to carry the stream",
        ));
    }
    if spec.rate.0 == 0 {
        return Err(invalid(
            "the rate",
            "it must be at least 1 B/s",
            RATE_REMEDY,
        ));
    }
    let grain = volume.alignment().0;
    check_block(io, grain, spec.block)?;
    let size = volume.size().0;
    let range = spec.range.clone().unwrap_or(0..size / grain * grain);
    check_range(io, volume.core(), &range)?;
    if spec.op == Direction::Write
        && let Some(reason) = volume.poisoned()
    {
        return Err(PoolError::Poisoned {
            volume: volume.name().to_owned(),
            reason,
        }
        .into());
    }
    Ok(Path {
        range,
        block: spec.block,
        op: spec.op,
        wraps: spec.wraps,
    })
}

/// Checks a block size.
fn check_block(io: &IoCore, grain: u64, block: Bytes) -> Result<(), Refusal> {
    let extent = io.geometry.extent_bytes().0;
    let size = block.0;
    let fits = size != 0 && (extent.is_multiple_of(size) || size.is_multiple_of(extent));
    let reason = if !size.is_multiple_of(grain) || !fits {
        format!(
            "{block} ({size} B) must be a multiple of {}, and either divide the extent size of {} or be a multiple of it",
            Bytes(grain),
            Bytes(extent)
        )
    } else if block > REQUEST_BYTES_MAX {
        format!("{block} exceed the maximum length of a request, {REQUEST_BYTES_MAX}")
    } else {
        return Ok(());
    };
    Err(invalid("the block size", reason, BLOCK_REMEDY))
}

/// Checks a changed block size.
pub(super) fn check_other_block(
    io: &IoCore,
    stream: &StreamCore,
    block: Bytes,
) -> Result<(), Refusal> {
    if block == stream.block() {
        return Ok(());
    }
    check_block(io, stream.buffer.0, block)
}

/// Checks a range.
pub(super) fn check_range(
    io: &IoCore,
    volume: &VolumeCore,
    range: &std::ops::Range<u64>,
) -> Result<(), Refusal> {
    let size = volume.reservable().0;
    let grain = io.block_bytes.max(SECTOR_BYTES);
    if range.start >= range.end || range.end > size {
        let reason = format!(
            "{} is empty or reaches past the volume's end at {}",
            described(range),
            Bytes(size)
        );
        return Err(invalid("the range", reason, RANGE_REMEDY));
    }
    if !range.start.is_multiple_of(grain) || !range.end.is_multiple_of(grain) {
        return Err(invalid(
            "the range",
            format!(
                "{} is not whole sectors of {}",
                described(range),
                Bytes(grain)
            ),
            RANGE_REMEDY,
        ));
    }
    Ok(())
}

/// The stream's current demand on the disks. The volume may have shrunk since the stream was checked.
pub(super) fn needs_now(
    io: &IoCore,
    volume: &VolumeCore,
    path: &Path,
) -> Result<Vec<Need>, Refusal> {
    let map = volume.map();
    let size = volume.reservable().min(map.size());
    if path.range.end > size.0 {
        let reason = format!(
            "{} reaches past the volume's end, which was just moved to {size}",
            described(&path.range),
        );
        return Err(invalid("the range", reason, RANGE_REMEDY));
    }
    let needs = path.needs(&map, &io.disks);
    let mut disks = needs.iter().map(|need| &io.disks[need.disk]);
    let borrower = disks.find_map(|disk| Some((disk, disk.borrowed_link()?)));
    if let Some((disk, link)) = borrower {
        let promises = |disk: &&DiskCore| {
            let of = disk.link.as_ref();
            of.is_some_and(|of| of.name == link && !of.borrows)
        };
        let promising: Vec<&str> = io
            .disks
            .iter()
            .filter(promises)
            .map(|of| &*of.name)
            .collect();
        let reason = format!(
            "its disk {} has no place of its own on link {link:?}, and serves best effort only; disks with a place: {}",
            disk.name,
            promising.join(", ")
        );
        return Err(invalid("the volume", reason, BORROWS_REMEDY));
    }
    Ok(needs)
}
