//! Going from one section of the index to the next, for playing faster or backwards, up to the blocks that
//! were recorded last.

use super::*;
use crate::archive::index::{FrameEnd, Key};

/// End of a key frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It ends in or before the block of this serial, which is on the disks.
    By(u64),
    /// It ends in a block that is not on the disks yet.
    NotYet,
    /// Unknown: a block is damaged, or the frame is longer than the next group.
    Unknown,
}

impl Archive {
    /// The section of the index that is about this time of a recording; for the group that is being recorded,
    /// the section in the making. `None` if there is none or all of its blocks are damaged.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn index_so_far_at(
        &self,
        client: &Client,
        recording: &Recording,
        media_ns: u64,
    ) -> Result<Option<Arc<Index>>, ArchiveError> {
        let index = self.index_at(client, recording, media_ns)?;
        // If the section before it is lost, the section in the making is not about earlier times.
        let has_time =
            |index: &Arc<Index>| index.begins_ns() <= media_ns || index.first <= recording.first;
        Ok(index.or_else(|| self.so_far(recording).filter(has_time)))
    }

    /// As [`index_so_far_at`](Self::index_so_far_at), for a block.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn index_so_far_of(
        &self,
        client: &Client,
        recording: &Recording,
        serial: u64,
    ) -> Result<Option<Arc<Index>>, ArchiveError> {
        if !(recording.first..recording.end).contains(&serial) {
            return Ok(None);
        }
        let last = recording.last_serial_of(serial / GROUP);
        let index = self.section(client, recording, last)?;
        let has_block = |index: &Arc<Index>| (index.first..index.end()).contains(&serial);
        Ok(index.or_else(|| self.so_far(recording).filter(has_block)))
    }

    /// The section of the group before `index`; `None` if there is none.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn index_before(
        &self,
        client: &Client,
        recording: &Recording,
        index: &Index,
    ) -> Result<Option<Arc<Index>>, ArchiveError> {
        match (index.first / GROUP * GROUP).checked_sub(1) {
            Some(serial) => self.section(client, recording, serial),
            None => Ok(None),
        }
    }

    /// The section after `index`. For the group that is being recorded it is the section in the making, which
    /// may be a longer one of the same group. `None` if there is no later block.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn index_after(
        &self,
        client: &Client,
        recording: &Recording,
        index: &Index,
    ) -> Result<Option<Arc<Index>>, ArchiveError> {
        let group_end = (index.end() / GROUP + 1) * GROUP - 1;
        let serial = group_end.min(recording.end.saturating_sub(1));
        if serial < index.end() {
            return Ok(None);
        }
        let after = self.section(client, recording, serial)?;
        let has_block = |so_far: &Arc<Index>| (so_far.first..so_far.end()).contains(&serial);
        Ok(after.or_else(|| self.so_far(recording).filter(has_block)))
    }

    /// The end of a key frame of the section `index`. If the frame goes on in the next group, that group's
    /// section has its end.
    pub fn end_of(&self, client: &Client, recording: &Recording, index: &Index, key: &Key) -> End {
        // A section in the making may be about blocks that are not on the disks yet.
        let by = |end: u64| match end < recording.end {
            true => End::By(end),
            false => End::NotYet,
        };
        if let Some(end) = key.end {
            return by(end);
        }
        if index.frame_end_from(key.serial + 1) != FrameEnd::AfterSection {
            return End::Unknown;
        }
        let Ok(after) = self.index_after(client, recording, index) else {
            return End::Unknown;
        };
        // It may be a longer section of the same group.
        if let Some(after) = &after
            && let Some(again) = after.same_key(key)
        {
            return self.end_of(client, recording, after, again);
        }
        let frame_end = after
            .as_ref()
            .map(|after| after.frame_end_from(index.end()));
        let known_to = after.map_or(index.end(), |after| after.end());
        match frame_end {
            Some(FrameEnd::By(end)) => by(end),
            Some(FrameEnd::Unknown) => End::Unknown,
            // It is the last frame of the recording.
            Some(FrameEnd::AfterSection) if self.is_ended_by(client, recording, known_to) => {
                by(known_to - 1)
            }
            _ if known_to >= recording.end => End::NotYet,
            _ if known_to.is_multiple_of(GROUP) => End::Unknown,
            _ => End::NotYet,
        }
    }

    /// True if a recording ended properly with the block before `end`.
    fn is_ended_by(&self, client: &Client, recording: &Recording, end: u64) -> bool {
        let is_last = || {
            let trailer = self.trailer(client, end - 1).ok().flatten();
            trailer.is_some_and(|trailer| trailer.is_last())
        };
        end == recording.end && !self.goes_on(recording) && is_last()
    }
}
