//! Sections of the index, read without the rest of their blocks, and kept.

use super::*;

/// So many sections of the index are kept.
const SECTIONS_KEPT: usize = 64;

/// And of each so many of the groups before it: when the others begin, the outline knows.
const GROUPS_KEPT: usize = 1_024;

/// The end of a block is read in so many bytes, which have the section of nearly every block that has one, and the
/// entries of nearly every block; for a section in more, where others of its recording are longer.
const TAIL_READ_BYTES: u64 = 65_536;

/// A section about fewer blocks does not tell how long others are: then half a block is read, which has a quarter for its
/// section.
const TELLING_BLOCKS: usize = 16;

/// What is read is a whole number of these.
const READ_GRAIN_BYTES: u64 = 4_096;

/// Sections that are kept: of a recording, by the serials of the blocks that have them or should have; those used last at
/// the end. `None`: nothing is known of these blocks.
pub(super) type Sections = VecDeque<(u64, u64, Option<Arc<Index>>)>;

/// What a section says that is in the block of this serial.
pub(super) fn section_of(bytes: &[u8], serial: u64) -> Result<Index, FormatError> {
    let section = Index::parse(bytes)?;
    match section.end() == serial + 1 {
        true => Ok(section),
        false => Err(FormatError::Impossible("an index of other blocks")),
    }
}

/// A section as it is kept.
fn within(section: Arc<Index>) -> Arc<Index> {
    if section.groups.len() <= GROUPS_KEPT {
        return section;
    }
    let mut less = Index::clone(&section);
    less.groups = less.groups[..GROUPS_KEPT].to_vec();
    Arc::new(less)
}

impl State {
    /// Nothing is known of a recording that begins: one with its number may have failed before its first block was written.
    pub(super) fn forget(&mut self, number: u64) {
        self.known.remove(&number);
        self.sections.retain(|(of, ..)| *of != number);
        self.so_far.retain(|(of, _)| *of != number);
    }
}

impl Archive {
    /// Keeps the section of the index that is in a block of a recording, or was to be there.
    pub(crate) fn keep(&self, number: u64, serial: u64, section: Option<Arc<Index>>) {
        let mut state = self.state();
        if let Some(section) = &section {
            state.learn(number, section);
        }
        let section = section.map(within);
        state.sections.retain(|(_, of, _)| *of != serial);
        if state.sections.len() == SECTIONS_KEPT {
            state.sections.pop_front();
        }
        state.sections.push_back((number, serial, section));
    }

    /// Keeps what the index says of the group that is being recorded, up to a block that is full, which may be its last.
    pub(super) fn keep_so_far(&self, number: u64, index: Arc<Index>) {
        let mut state = self.state();
        state.learn_group(number, &index);
        // Many blocks may be full before the first of them is on the disks.
        let next = state.next;
        let is_needed = |of: u64, kept: &Index| of == number && kept.end() > next;
        state
            .so_far
            .retain(|(of, kept)| is_needed(*of, kept) && kept.first != index.first);
        state.so_far.push_back((number, index));
    }

    /// What the index says of the last blocks of a recording that is being made, of which the last may not be on the disks
    /// yet; `None`: nothing is known of them without reading.
    #[must_use]
    pub fn so_far(&self, recording: &Recording) -> Option<Arc<Index>> {
        let last = recording.end.checked_sub(1)?;
        if last < recording.first {
            return None;
        }
        let state = self.state();
        let is_it = |(number, index): &&(u64, Arc<Index>)| {
            *number == recording.number && (index.first..index.end()).contains(&last)
        };
        let found = state.so_far.iter().find(is_it);
        found.map(|(_, index)| Arc::clone(index))
    }

    /// The section that is kept; `None`: none is.
    fn kept_section(&self, recording: &Recording, serial: u64) -> Option<Option<Arc<Index>>> {
        let mut state = self.state();
        let sections = &mut state.sections;
        let place = sections
            .iter()
            .position(|(number, of, _)| (*number, *of) == (recording.number, serial))?;
        let kept = sections.remove(place)?;
        let section = kept.2.clone();
        sections.push_back(kept);
        Some(section)
    }

    /// The section of the index about the blocks of a recording in a group up to the last one. Where that is lost it is
    /// rebuilt; `None`: these blocks are being recorded, or none of them is to be read.
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
        if let Some(kept) = self.kept_section(recording, last) {
            return Ok(kept);
        }
        if !index::ends_group(last) && !self.ends_with(recording, last) {
            return Ok(None);
        }
        if let Some(written) = self.written(client, recording, last)? {
            return Ok(Some(written));
        }
        let rebuilt = self.rebuilt(client, recording, last)?.map(Arc::new);
        self.keep(recording.number, last, rebuilt.clone());
        Ok(rebuilt)
    }

    /// Whether a recording has ended, and with this block.
    fn ends_with(&self, recording: &Recording, serial: u64) -> bool {
        let now = self.recording(Some(recording.number));
        !self.goes_on(recording) && now.is_some_and(|now| now.end == serial + 1)
    }

    /// The section of the index that is in a block of a recording; `None`: it has none, or it is damaged, or not there any
    /// more.
    pub(super) fn written(
        &self,
        client: &Client,
        recording: &Recording,
        serial: u64,
    ) -> Result<Option<Arc<Index>>, ArchiveError> {
        if let Some(Some(kept)) = self.kept_section(recording, serial) {
            return Ok(Some(kept));
        }
        let section = self.read_section(client, recording, serial)?.map(Arc::new);
        if section.is_some() {
            self.keep(recording.number, serial, section.clone());
        }
        Ok(section)
    }

    /// How many of the last bytes of a block are read for its section, as far as others tell.
    fn tail_about(&self, recording: &Recording) -> u64 {
        let (bytes, blocks) = self.state().known(recording.number).tail;
        match (1..TELLING_BLOCKS).contains(&blocks) {
            true => bytes.max(self.header.block_bytes / 2),
            false => bytes,
        }
    }

    /// Reads it with as little of the block as has it.
    fn read_section(
        &self,
        client: &Client,
        recording: &Recording,
        serial: u64,
    ) -> Result<Option<Index>, ArchiveError> {
        let about = self.tail_about(recording);
        let Some((trailer, mut tail)) = self.read_tail(client, recording, serial, about)? else {
            return Ok(None);
        };
        if !trailer.has_section() {
            return Ok(None);
        }
        let Some(needed) = trailer.section_bytes() else {
            // One of the first days, which only the checksum of the block is about.
            let block = self.read_block(client, serial)?;
            let block = block.as_deref().and_then(|bytes| Block::parse(bytes).ok());
            return Ok(block.and_then(|block| section_of(block.index(), serial).ok()));
        };
        if !self.lengthen(client, serial, &mut tail, needed)? {
            return Ok(None);
        }
        let section = trailer.section(&tail);
        Ok(section.and_then(|section| section_of(section, serial)).ok())
    }

    /// The trailer of a block of a recording and the last bytes of it that have been read, as many as are needed `about`;
    /// `None`: it is damaged or not there any more.
    pub(super) fn read_tail(
        &self,
        client: &Client,
        recording: &Recording,
        serial: u64,
        about: u64,
    ) -> Result<Option<(Trailer, Vec<u8>)>, ArchiveError> {
        let size = self.header.block_bytes;
        let bytes = about
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

    /// Reads so many of the last bytes of a block if it was fewer; `false`: they are not there any more.
    pub(super) fn lengthen(
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

    /// The last bytes of a block; `None`: it is not there any more.
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
            Err(error) => self.unless_cut(&reader, error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A camera that is recorded for years has very many groups, and each of its sections would have them all.
    #[test]
    fn what_is_kept_of_a_section_does_not_grow_with_its_recording() {
        let section = |groups: usize| {
            Arc::new(Index {
                first: 5,
                groups: (0..groups as u64).rev().collect(),
                ..Index::default()
            })
        };
        for groups in [0, 1, GROUPS_KEPT, GROUPS_KEPT + 1, 100 * GROUPS_KEPT] {
            let kept = within(section(groups));
            assert_eq!(kept.first, 5);
            let newest = &section(groups).groups[..groups.min(GROUPS_KEPT)];
            assert_eq!(kept.groups, newest);
            assert!(kept.groups.capacity() <= GROUPS_KEPT);
        }
    }
}
