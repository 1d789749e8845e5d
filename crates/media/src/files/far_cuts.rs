//! Where a recording is divided when its key frames are far apart: segments are made in memory, and viewers of an
//! active recording wait for a whole one.
//!
//! Such a cut is the first frame of a block. The times and serials of the blocks, and the last cut at a key frame,
//! determine it. So it does not depend on where the search begins.

use std::ops::Range;

use super::cuts::{Cut, first_frame};
use super::{BEHIND_NS, ExportError, Source};

/// A block that begins in another interval of this length than the block before it may be cut.
const GRID_NS: u64 = 15_000_000_000;

/// No cut is as near as this to the key frame before it.
const NEAR_NS: u64 = 30_000_000_000;

/// A segment has at most twice as many bytes of blocks.
pub(super) const GRID_BYTES: u64 = 32 << 20;

/// The cuts between a key frame and the next one.
#[derive(Debug, Default)]
pub(super) struct FarCuts {
    /// In order.
    pub(super) cuts: Vec<Cut>,
    /// True if earlier ones were not looked for.
    pub(super) is_rest: bool,
}

impl Source {
    /// When a block begins, in nanoseconds of the recording's time; `None` if it is damaged.
    pub(super) fn block_begins(&self, serial: u64) -> Result<Option<u64>, ExportError> {
        let (archive, client) = (&self.archive, &self.client);
        let index = archive.index_so_far_of(client, &self.recording, serial)?;
        if let Some(index) = index {
            return Ok(index.record_of(serial).map(|of| of.media_ns));
        }
        let trailer = archive.trailer(client, serial)?;
        let trailer = trailer.filter(|of| of.recording == self.recording.number);
        Ok(trailer.map(|of| of.media_ns))
    }

    /// The times of the frames that may begin in a block: packets lie in the order of their arrival.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn times_of_block(&self, serial: u64) -> Result<Range<u64>, ExportError> {
        let begins = self.block_begins(serial)?.unwrap_or(0);
        let ends = match serial + 1 < self.recording.end {
            true => self.block_begins(serial + 1)?,
            false => None,
        };
        let ends = ends.map_or(u64::MAX, |ends| ends.max(begins) + BEHIND_NS);
        Ok(begins.saturating_sub(BEHIND_NS)..ends)
    }

    /// The block with this time.
    pub(super) fn block_at(&self, media_ns: u64) -> Result<u64, ExportError> {
        Ok(self
            .archive
            .block_at(&self.client, &self.recording, media_ns)?)
    }

    /// The cuts after the key frame at `from`, or after frames without any, and before `to`. Cuts before the block
    /// of the time `since_ns` are not looked for.
    pub(super) fn far_cuts(
        &self,
        from: Cut,
        is_key: bool,
        to: Cut,
        since_ns: u64,
    ) -> Result<FarCuts, ExportError> {
        let blocks = (GRID_BYTES / self.archive.header().block_bytes).max(1);
        let mut found = FarCuts::default();
        let has_time = to.media_ns > from.media_ns.saturating_add(NEAR_NS);
        if !has_time && to.place.serial <= from.place.serial + blocks {
            return Ok(found);
        }
        let mut first = from.place.serial + 1;
        if since_ns > from.media_ns {
            let since = self.block_at(since_ns)?;
            found.is_rest = since > first;
            first = first.max(since);
        }
        let track = self.description.video_track();
        let end = (to.place.serial + 1).min(self.recording.end);
        let mut before = self.block_begins(first - 1)?;
        // A block without the begin of a frame cannot be cut; the next one is.
        let (mut is_due, mut last_ns) = (false, from.media_ns);
        for serial in first..end {
            let begins = self.block_begins(serial)?;
            let Some(at) = begins.or(before) else {
                continue;
            };
            let is_line = before.is_some_and(|of| of / GRID_NS != at / GRID_NS);
            let is_far_off = !is_key || at > from.media_ns.saturating_add(NEAR_NS);
            let is_large = !is_key || serial > from.place.serial + blocks;
            is_due |= is_line && is_far_off || serial.is_multiple_of(blocks) && is_large;
            before = Some(at);
            if !is_due {
                continue;
            }
            let (archive, client) = (&self.archive, &self.client);
            let entries = archive.entries(client, &self.recording, serial)?;
            let cut = entries.and_then(|entries| first_frame(serial, &entries, track));
            if let Some(cut) = cut.filter(|cut| cut.media_ns > last_ns && cut.place < to.place) {
                found.cuts.push(cut);
                (is_due, last_ns) = (false, cut.media_ns);
            }
        }
        found.is_rest &= !found.cuts.is_empty();
        Ok(found)
    }
}
