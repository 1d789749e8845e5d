//! Sections of the index, read without the rest of their blocks, and the outline of a recording that they make.

use std::ops::Range;

use super::super::index::{Key, Record};
use super::*;

/// The end of a block is read in so many bytes, which have the section of nearly every block that has one.
const TAIL_READ_BYTES: u64 = 65_536;

/// What is read is a whole number of these.
const READ_GRAIN_BYTES: u64 = 4_096;

/// A group of blocks of a recording, which one section of the index is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    /// The serial of its first block that is there.
    pub first: u64,
    /// The serial after its last.
    pub end: u64,
    /// When it begins, in nanoseconds of the recording.
    pub begins_ns: u64,
}

/// What is said of the blocks between two times of a recording.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Window {
    /// The blocks, from the one that is shown at the first time on.
    pub records: Vec<(u64, Record)>,
    /// Frames that can be decoded alone, from the one before the first time on as far as that is in these blocks' groups.
    pub keys: Vec<Key>,
    /// The track whose frames these are.
    pub track: u8,
    /// Whether keys are missing between these.
    pub is_thinned: bool,
    /// Groups of which there is no section.
    pub missing: u64,
}

impl Archive {
    /// When each group of a recording begins, in order. The newest section names those before it, so a day is a read or
    /// two; what has no section, as at the end of a recording that goes on, is one more.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn outline(
        &self,
        client: &Client,
        recording: &Recording,
    ) -> Result<Vec<Group>, ArchiveError> {
        let mut groups = Vec::new();
        let mut end = recording.end;
        let mut put = |end: &mut u64, begins_ns| {
            let first = ((*end - 1) / GROUP * GROUP).max(recording.first);
            groups.push(Group {
                first,
                end: *end,
                begins_ns,
            });
            *end = first;
        };
        while end > recording.first {
            let has_one = index::ends_group(end - 1) || !self.goes_on(recording);
            let section = match has_one {
                true => self.section(client, recording, end - 1)?,
                false => None,
            };
            let Some(section) = section else {
                let first = ((end - 1) / GROUP * GROUP).max(recording.first);
                let begins = self.trailer(client, first)?.map(|of| of.media_ns);
                put(&mut end, begins.unwrap_or(0));
                continue;
            };
            put(&mut end, section.begins_ns());
            for begins_ns in &section.groups {
                if end <= recording.first {
                    break;
                }
                put(&mut end, *begins_ns);
            }
        }
        groups.reverse();
        // Of the oldest the beginning may be overwritten.
        if let Some(oldest) = groups.first_mut().filter(|of| of.first % GROUP != 0)
            && let Some(trailer) = self.trailer(client, oldest.first)?
        {
            oldest.begins_ns = trailer.media_ns;
        }
        Ok(groups)
    }

    /// What the sections of these groups say, one after another as they are in the outline, of the time from `times.start`
    /// to `times.end`.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn window(
        &self,
        client: &Client,
        recording: &Recording,
        groups: &[Group],
        times: &Range<u64>,
    ) -> Result<Window, ArchiveError> {
        let mut window = Window::default();
        for group in groups {
            let Some(section) = self.section(client, recording, group.end - 1)? else {
                window.missing += 1;
                continue;
            };
            window.track = section.track;
            window.is_thinned |= section.is_thinned;
            let from = section.block_at(times.start).max(group.first);
            let key_ns = section
                .key_at(times.start)
                .map_or(times.start, |of| of.media_ns);
            let records = (section.first..).zip(&section.records);
            let records = records.filter(|(serial, of)| *serial >= from && of.media_ns < times.end);
            window
                .records
                .extend(records.map(|(serial, of)| (serial, *of)));
            let keys = section.keys.iter().filter(|key| {
                key.serial >= group.first && (key_ns..times.end).contains(&key.media_ns)
            });
            window.keys.extend(keys);
        }
        Ok(window)
    }

    /// The section of the index that is in a block, read with as little of that as has it; `None`: it has none, or it is
    /// damaged, or not there any more.
    pub(super) fn read_section(
        &self,
        client: &Client,
        serial: u64,
    ) -> Result<Option<Index>, ArchiveError> {
        let size = self.header.block_bytes;
        let Some(end) = self.end_of(serial) else {
            return Ok(None);
        };
        let reader = self.reader(client);
        let mut tail = match self.tail(&reader, end, TAIL_READ_BYTES.min(size)) {
            Ok(tail) => tail,
            Err(error) => return self.unless_cut(&reader, error),
        };
        let trailer = Trailer::parse(&tail, size).ok();
        let trailer = trailer.filter(|of| self.is_of(of, serial) && of.has_section());
        let Some(trailer) = trailer else {
            return Ok(None);
        };
        let Some(needed) = trailer.section_bytes() else {
            // One of the first days, which only the checksum of the block is about.
            let block = self.read_block(client, serial)?;
            let block = block.as_deref().and_then(|bytes| Block::parse(bytes).ok());
            return Ok(block.and_then(|block| Index::parse(block.index()).ok()));
        };
        if needed > tail.len() as u64 {
            tail = match self.tail(&reader, end, needed.next_multiple_of(READ_GRAIN_BYTES)) {
                Ok(tail) => tail,
                Err(error) => return self.unless_cut(&reader, error),
            };
        }
        let section = trailer.section(&tail);
        Ok(section.and_then(Index::parse).ok())
    }

    /// Where in the volume a block ends; `None`: it does not count any more.
    fn end_of(&self, serial: u64) -> Option<u64> {
        let offset = self.offset(serial)?;
        Some(self.range().start + offset.get() + self.header.block_bytes)
    }

    /// The last bytes of a block that ends there.
    fn tail(&self, reader: &Reader<'_>, end: u64, bytes: u64) -> Result<Vec<u8>, ArchiveError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let mut tail = vec![0; bytes as usize];
        reader.read(end - bytes, &mut tail)?;
        Ok(tail)
    }
}

/// The groups of an outline that a time is in.
#[must_use]
pub fn groups_in<'a>(groups: &'a [Group], times: &Range<u64>) -> &'a [Group] {
    let begun = groups.partition_point(|of| of.begins_ns <= times.start);
    let from = begun.saturating_sub(1);
    let to = groups.partition_point(|of| of.begins_ns < times.end);
    groups.get(from..to).unwrap_or_default()
}
