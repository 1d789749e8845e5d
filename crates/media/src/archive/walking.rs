//! From one section of the index to the next, as whoever plays faster or backwards goes, up to the blocks that have been
//! recorded last.

use super::*;
use crate::archive::index::{Key, Over};

/// Where a key frame ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// By that block, which is on the disks.
    By(u64),
    /// In what has not been recorded yet, or is on its way to the disks.
    NotYet,
    /// Who knows: it is damaged there, or longer than the group behind its own.
    Unknown,
}

impl Archive {
    /// The section of the index that is about this time of a recording; of the group that is being recorded, what is known
    /// of it so far. `None`: that is not known, or all of it is damaged.
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
        // Where the section of the group before is lost it says nothing of that.
        let is_it =
            |index: &Arc<Index>| index.begins_ns() <= media_ns || index.first <= recording.first;
        Ok(index.or_else(|| self.so_far(recording).filter(is_it)))
    }

    /// The same about a block.
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
        let index = self.section(client, recording, recording.last_of(serial / GROUP))?;
        let is_it = |index: &Arc<Index>| (index.first..index.end()).contains(&serial);
        Ok(index.or_else(|| self.so_far(recording).filter(is_it)))
    }

    /// The section of the index before another, if that one is not the first of its recording.
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

    /// The section of the index after another, as far as there is one: of the group that is being recorded, what is known of
    /// it so far, which may be more of the same group.
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
        let is_it = |so_far: &Arc<Index>| (so_far.first..so_far.end()).contains(&serial);
        Ok(after.or_else(|| self.so_far(recording).filter(is_it)))
    }

    /// Where a frame ends that a section names. Where it goes on in the next group the section of that tells, if it can be
    /// read.
    pub fn end_of(&self, client: &Client, recording: &Recording, index: &Index, key: &Key) -> End {
        // What is being recorded may not have been written as far as is known of it.
        let by = |end: u64| match end < recording.end {
            true => End::By(end),
            false => End::NotYet,
        };
        if let Some(end) = key.end {
            return by(end);
        }
        if index.over_by(key.serial + 1) != Over::Behind {
            return End::Unknown;
        }
        let Ok(after) = self.index_after(client, recording, index) else {
            return End::Unknown;
        };
        // It may be more of the same group.
        if let Some(after) = &after
            && let Some(again) = after.named_again(key)
        {
            return self.end_of(client, recording, after, again);
        }
        let over = after.as_ref().map(|after| after.over_by(index.end()));
        let known_to = after.map_or(index.end(), |after| after.end());
        match over {
            Some(Over::By(end)) => by(end),
            Some(Over::Damaged) => End::Unknown,
            // No frame is behind the last one.
            Some(Over::Behind) if self.is_ended_by(client, recording, known_to) => by(known_to - 1),
            _ if known_to >= recording.end => End::NotYet,
            _ if known_to.is_multiple_of(GROUP) => End::Unknown,
            _ => End::NotYet,
        }
    }

    /// Whether a recording was ended with the block before that one.
    fn is_ended_by(&self, client: &Client, recording: &Recording, end: u64) -> bool {
        let is_last = || {
            let trailer = self.trailer(client, end - 1).ok().flatten();
            trailer.is_some_and(|trailer| trailer.is_last)
        };
        end == recording.end && !self.goes_on(recording) && is_last()
    }
}
