//! Sections of the index: read without the rest of their blocks, and cached.

use super::*;

/// Sections that are cached.
const SECTIONS_CACHED: usize = 64;

/// Earlier groups that are kept with each cached section. The outline caches the begin times of all groups.
const GROUPS_CACHED: usize = 1_024;

/// Bytes that are read at the end of a block. This includes the section and the entries of nearly every
/// block. More are read where other sections of the recording were longer.
const TAIL_READ_BYTES: u64 = 65_536;

/// A section about fewer blocks does not predict the length of others. Then half a block is read, of which a
/// quarter is reserved for the section.
const PREDICTING_BLOCKS_MIN: usize = 16;

/// Reads are a multiple of this.
const READ_GRAIN_BYTES: u64 = 4_096;

/// A section of the index, or the knowledge that it cannot be read.
#[derive(Debug)]
pub(super) struct CachedSection {
    recording: u64,
    /// The block that has the section, or should have it.
    serial: u64,
    /// `None`: none of the blocks that it should be about can be read.
    section: Option<Arc<Index>>,
}

/// The most recently used section is the last.
pub(super) type Sections = VecDeque<CachedSection>;

/// Parses the section in the block of this serial.
pub(super) fn parse_section(bytes: &[u8], serial: u64) -> Result<Index, FormatError> {
    let section = Index::parse(bytes)?;
    match section.end() == serial + 1 {
        true => Ok(section),
        false => Err(FormatError::Impossible("index section about other blocks")),
    }
}

/// Limits the memory that a cached section takes.
fn limit_groups(section: Arc<Index>) -> Arc<Index> {
    if section.groups.len() <= GROUPS_CACHED {
        return section;
    }
    let mut limited = Index::clone(&section);
    limited.groups = limited.groups[..GROUPS_CACHED].to_vec();
    Arc::new(limited)
}

impl State {
    /// Drops all that is cached of a recording number, when a recording begins: an earlier one with the
    /// number may have failed before its first block was written.
    pub(super) fn forget(&mut self, number: u64) {
        self.caches.remove(&number);
        self.sections.retain(|of| of.recording != number);
        self.so_far.retain(|(of, _)| *of != number);
        self.described.take_if(|(of, _)| *of == number);
    }
}

impl Archive {
    /// Caches the section that a block of a recording has or should have.
    pub(crate) fn keep(&self, number: u64, serial: u64, section: Option<Arc<Index>>) {
        let mut state = self.state();
        if let Some(section) = &section {
            state.note_section(number, section);
        }
        let section = section.map(limit_groups);
        state.sections.retain(|of| of.serial != serial);
        if state.sections.len() == SECTIONS_CACHED {
            state.sections.pop_front();
        }
        state.sections.push_back(CachedSection {
            recording: number,
            serial,
            section,
        });
    }

    /// Keeps the section in the making of the group that is being recorded, up to the last full block.
    pub(super) fn set_so_far(&self, number: u64, index: Arc<Index>) {
        let mut state = self.state();
        state.note_group(number, &index);
        // An earlier group is needed until all of its blocks are on the disks; many full blocks may be
        // waiting.
        let next = state.next;
        let is_needed = |of: u64, kept: &Index| of == number && kept.end() > next;
        state
            .so_far
            .retain(|(of, kept)| is_needed(*of, kept) && kept.first != index.first);
        state.so_far.push_back((number, index));
    }

    /// The section in the making about the last block of a recording that is being made. Its own last block
    /// may not be on the disks yet. `None` if there is none about that block.
    #[must_use]
    pub fn so_far(&self, recording: &Recording) -> Option<Arc<Index>> {
        let last = recording.end.checked_sub(1)?;
        if last < recording.first {
            return None;
        }
        let state = self.state();
        let has_block = |(number, index): &&(u64, Arc<Index>)| {
            *number == recording.number && (index.first..index.end()).contains(&last)
        };
        let found = state.so_far.iter().find(has_block);
        found.map(|(_, index)| Arc::clone(index))
    }

    /// The cached section: the outer `None` if nothing is cached, the inner one if it cannot be read.
    pub(super) fn cached_section(
        &self,
        recording: &Recording,
        serial: u64,
    ) -> Option<Option<Arc<Index>>> {
        let mut state = self.state();
        let sections = &mut state.sections;
        let place = sections
            .iter()
            .position(|of| (of.recording, of.serial) == (recording.number, serial))?;
        let cached = sections.remove(place)?;
        let section = cached.section.clone();
        sections.push_back(cached);
        Some(section)
    }

    /// The section of the index about a group's blocks of a recording, of which `last` is the last one. A
    /// lost section is rebuilt. `None` if these blocks are being recorded, or none of them can be read.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn section(
        &self,
        client: &Client,
        recording: &Recording,
        last: u64,
    ) -> Result<Option<Arc<Index>>, ArchiveError> {
        if !(recording.first..recording.end).contains(&last) {
            return Ok(None);
        }
        if let Some(cached) = self.cached_section(recording, last) {
            return Ok(cached);
        }
        if !index::ends_group(last) && !self.ends_with(recording, last) {
            return Ok(None);
        }
        if let Some(stored) = self.stored_section(client, recording, last)? {
            return Ok(Some(stored));
        }
        let rebuilt = self.rebuild_section(client, recording, last)?.map(Arc::new);
        self.keep(recording.number, last, rebuilt.clone());
        Ok(rebuilt)
    }

    /// True if a recording has ended with this block.
    fn ends_with(&self, recording: &Recording, serial: u64) -> bool {
        let now = self.recording(Some(recording.number));
        !self.goes_on(recording) && now.is_some_and(|now| now.end == serial + 1)
    }

    /// The section in a block of a recording; `None` if the block has none, is damaged or has gone, or the
    /// section is damaged.
    pub(super) fn stored_section(
        &self,
        client: &Client,
        recording: &Recording,
        serial: u64,
    ) -> Result<Option<Arc<Index>>, ArchiveError> {
        if let Some(Some(cached)) = self.cached_section(recording, serial) {
            return Ok(Some(cached));
        }
        let section = self.read_section(client, recording, serial)?.map(Arc::new);
        if section.is_some() {
            self.keep(recording.number, serial, section.clone());
        }
        Ok(section)
    }

    /// Expected length of a block's tail that includes its section, from other sections of the recording.
    fn tail_bytes_expected(&self, recording: &Recording) -> u64 {
        let mut state = self.state();
        let cache = state.cache(recording.number);
        match (1..PREDICTING_BLOCKS_MIN).contains(&cache.section_blocks_max) {
            true => cache.tail_bytes.max(self.header.block_bytes / 2),
            false => cache.tail_bytes,
        }
    }

    /// Reads a section with as little else of the block as possible.
    fn read_section(
        &self,
        client: &Client,
        recording: &Recording,
        serial: u64,
    ) -> Result<Option<Index>, ArchiveError> {
        let expected = self.tail_bytes_expected(recording);
        let Some((trailer, mut tail)) = self.read_tail(client, recording, serial, expected)? else {
            return Ok(None);
        };
        if !trailer.has_section() {
            return Ok(None);
        }
        let Some(needed) = trailer.section_bytes() else {
            // A block of an early version: only the checksum of the whole block covers the section.
            let block = self.read_block(client, serial)?;
            let block = block.as_deref().and_then(|bytes| Block::parse(bytes).ok());
            return Ok(block.and_then(|block| parse_section(block.index(), serial).ok()));
        };
        if !self.extend_tail(client, serial, &mut tail, needed)? {
            return Ok(None);
        }
        let section = trailer.section(&tail);
        Ok(section
            .and_then(|section| parse_section(section, serial))
            .ok())
    }

    /// The trailer of a block of a recording, and its last bytes, at least `expected` of them; `None` if it
    /// is damaged or has gone.
    pub(super) fn read_tail(
        &self,
        client: &Client,
        recording: &Recording,
        serial: u64,
        expected: u64,
    ) -> Result<Option<(Trailer, Vec<u8>)>, ArchiveError> {
        let size = self.header.block_bytes;
        let bytes = expected
            .next_multiple_of(READ_GRAIN_BYTES)
            .max(TAIL_READ_BYTES);
        let Some(tail) = self.tail(client, serial, bytes.min(size))? else {
            return Ok(None);
        };
        let trailer = Trailer::parse(&tail, size).ok();
        let trailer =
            trailer.filter(|of| self.is_of(of, serial) && of.recording == recording.number);
        Ok(trailer.map(|trailer| (trailer, tail)))
    }

    /// Reads more of the end of a block if `tail` is shorter than needed; `false` if the block has gone.
    pub(super) fn extend_tail(
        &self,
        client: &Client,
        serial: u64,
        tail: &mut Vec<u8>,
        needed: u64,
    ) -> Result<bool, ArchiveError> {
        if needed <= tail.len() as u64 {
            return Ok(true);
        }
        let needed = needed.next_multiple_of(READ_GRAIN_BYTES);
        let longer = self.tail(client, serial, needed)?;
        let is_there = longer.is_some();
        *tail = longer.unwrap_or_default();
        Ok(is_there)
    }

    /// The last bytes of a block; `None` if the block has gone.
    fn tail(
        &self,
        client: &Client,
        serial: u64,
        bytes: u64,
    ) -> Result<Option<Vec<u8>>, ArchiveError> {
        let reader = self.reader(client);
        let Some(place) = reader.geometry.place(serial) else {
            return Ok(None);
        };
        self.reads.fetch_add(1, Ordering::Relaxed);
        let mut tail = vec![0; bytes as usize];
        let end = (place + 2) * self.header.block_bytes;
        match reader.read(end - bytes, &mut tail) {
            Ok(()) => Ok(Some(tail)),
            Err(error) => self.none_if_resized(&reader, error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A recording of years has very many groups, and each of its sections would keep them all in memory.
    #[test]
    fn cached_sections_do_not_grow_with_their_recording() {
        let section = |groups: usize| {
            Arc::new(Index {
                first: 5,
                groups: (0..groups as u64).rev().collect(),
                ..Index::default()
            })
        };
        for groups in [0, 1, GROUPS_CACHED, GROUPS_CACHED + 1, 100 * GROUPS_CACHED] {
            let kept = limit_groups(section(groups));
            assert_eq!(kept.first, 5);
            let newest = &section(groups).groups[..groups.min(GROUPS_CACHED)];
            assert_eq!(kept.groups, newest);
            assert!(kept.groups.capacity() <= GROUPS_CACHED);
        }
    }
}
