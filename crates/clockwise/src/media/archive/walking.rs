//! From one section of the index to the next, as whoever plays faster or backwards goes, up to the blocks that have been
//! recorded last.

use super::super::index::Key;
use super::*;

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

    /// The block by which a frame ends that a section names; `None`: that is not known, as it is damaged there or has not
    /// been recorded yet. Where it goes on in the next group the section of that tells.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn end_of(
        &self,
        client: &Client,
        recording: &Recording,
        index: &Index,
        key: &Key,
    ) -> Result<Option<u64>, ArchiveError> {
        if key.end.is_some() || !index.goes_on_from(key.serial + 1) {
            return Ok(key.end);
        }
        let after = self.index_after(client, recording, index)?;
        Ok(after.and_then(|after| after.over_by(index.end())))
    }
}
