//! The rest of the track at the end of a stream's block, read for the stream's next block.

use sched::units::{SECTOR_BYTES, Sector, SectorCount};
use volume::VolumeMap;
use volume::map::Source;

use super::{OpenRead, Plan};
use crate::state::charge::Charge;

impl Plan<'_> {
    /// Extends the last read of a block, which ends at byte `end` of the volume, to the end of its track, if the
    /// request brought memory for that, the stream's promise covers it, and the sectors belong to the same extent
    /// and are written.
    pub(super) fn read_ahead(&mut self, map: &VolumeMap, last: &mut OpenRead, end: u64) {
        let Some(memory) = self.active.ahead.take() else {
            return;
        };
        let Some(rest) = self.rest_of_track(map, last, end, memory.size()) else {
            return;
        };
        // Memory that was taken back keeps nothing; the block itself does not need it.
        let Ok(memory) = memory.slice(0..rest.bytes().0 as usize) else {
            return;
        };
        if last.memory.append_own(memory).is_ok() {
            last.part.count += rest;
            self.active.ahead_bytes = rest.bytes().0;
        }
    }

    /// Number of sectors by which a read is extended.
    fn rest_of_track(
        &self,
        map: &VolumeMap,
        last: &OpenRead,
        end: u64,
        room: usize,
    ) -> Option<SectorCount> {
        let Charge::Stream(stream) = &self.active.charge else {
            return None;
        };
        let disk = &self.op.client.io.disks[last.part.disk];
        let service = stream.service(last.part.disk, last.lane)?;
        let geometry = map.geometry();
        let extent_bytes = geometry.extent_bytes().0;
        let left = extent_bytes - (end - 1) % extent_bytes - 1;
        // A sector beyond the stream's range must not make one of its blocks fail.
        let range_end = stream.range().end.min(map.size().0);
        let left = left.min(range_end.saturating_sub(end)).min(room as u64);
        let read_to = last.part.start + last.part.count;
        let limit: Sector = read_to + SectorCount(left / SECTOR_BYTES);
        let predictor = &disk.predictor;
        let rest = predictor.rest_of_track(last.part.start, last.part.count, limit, service);
        let unit = (disk.block_bytes / SECTOR_BYTES).max(1);
        let rest = rest.0 - rest.0 % unit;
        if rest == 0 {
            return None;
        }
        // Only sectors that are written and follow on the disk: a move may have switched the extent meanwhile.
        let bytes = (rest * SECTOR_BYTES) as usize;
        let piece = map.reads(end, bytes).ok()?.next()?.ok()?;
        match piece.source {
            Source::Disk {
                disk, start, count, ..
            } if usize::from(disk.0) == last.part.disk && start == read_to => {
                let count = count.0.min(rest);
                Some(SectorCount(count - count % unit)).filter(|count| !count.is_zero())
            }
            _ => None,
        }
    }
}
