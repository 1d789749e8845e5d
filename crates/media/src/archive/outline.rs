//! Finding times in a recording: when its groups begin, and which section of the index is about a time.
//!
//! Each section has the begin times of the groups before it, so the newest section has nearly all of them and
//! is read first. If it is lost, the section before it is read. The begin time of a group that no section
//! names is read from the trailer of its first block when it is needed. What has been read of a recording as
//! a whole is cached as long as the recording exists, apart from the sections: a seek then reads only the
//! section of its time, however many other sections have been read since.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use super::frames::Lead;
use super::*;
use crate::archive::index::{Key, KeyCoverage, Record};

/// A group of blocks of a recording; one section of the index is about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    /// Serial of its first remaining block.
    pub first: u64,
    /// Serial after its last block.
    pub end: u64,
    /// Begin time, in nanoseconds of the recording's time.
    pub begins_ns: u64,
}

/// Index entries of the blocks between two times of a recording.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Window {
    /// Serials and records of the blocks, from the block that has the start time.
    pub records: Vec<(u64, Record)>,
    /// Key frames from the last one at or before the start time, if it is in the group of these blocks.
    pub keys: Vec<Key>,
    /// Track of the key frames.
    pub track: u8,
    /// True if a section left keys out.
    pub is_thinned: bool,
    /// Number of groups with blocks that are damaged or have no record.
    pub missing: u64,
}

/// Caches of deleted recordings are dropped only when there are more than this many.
const CACHES_MIN: usize = 64;

/// Begin time of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GroupStart {
    At(u64),
    /// The first blocks of the group are damaged.
    Damaged,
}

/// Cached values of a recording as a whole: about 32 bytes for each remaining group.
#[derive(Debug, Default)]
pub(super) struct RecordingCache {
    /// Begin times by the number of the group, as far as they have been read.
    starts: BTreeMap<u64, GroupStart>,
    /// Groups whose start a section has named.
    named: Range<u64>,
    /// Begin time of the recording while its first block has this serial: (serial, time).
    begin: Option<(u64, u64)>,
    /// End time of the recording while its blocks end before this serial: (serial, time).
    end: Option<(u64, u64)>,
    /// The packets of the first block before one of them: serial, packet and track, and what lies before it.
    pub(super) lead: Option<((u64, u32, u8), Lead)>,
    /// The track of the keys in its index.
    pub(super) track: Option<u8>,
    /// Bytes to read at the end of a block for its section: the most that a known section needed, and an
    /// eighth more.
    pub(super) tail_bytes: u64,
    /// Blocks of the longest known section that left no keys out. Short sections predict the length of others badly.
    pub(super) section_blocks_max: usize,
}

impl State {
    /// The cache of a recording.
    pub(super) fn cache(&mut self, number: u64) -> &mut RecordingCache {
        // Drops the caches of deleted recordings whenever the count reaches a power of two.
        let count = self.caches.len();
        if count >= CACHES_MIN && count.is_power_of_two() && !self.caches.contains_key(&number) {
            let oldest = self.deleted.first_kept(self.oldest());
            let remaining = self.recordings.iter().filter(|of| of.end > oldest);
            let remaining: HashSet<u64> = remaining.map(|of| of.number).collect();
            self.caches.retain(|of, _| remaining.contains(of));
        }
        self.caches.entry(number).or_default()
    }

    /// Caches the end of a recording whose blocks end before the serial `end`.
    pub(super) fn note_end(&mut self, number: u64, end: u64, ends_ns: u64) {
        self.cache(number).end = Some((end, ends_ns));
    }

    /// Caches what a section, complete or in the making, says of its group.
    pub(super) fn note_group(&mut self, number: u64, section: &Index) {
        let cache = self.cache(number);
        cache.track = Some(section.track);
        let tail_bytes = section.tail_bytes_about();
        // A section that left keys out was limited by its room, so it does not predict the length of others.
        let blocks = match section.named {
            KeyCoverage::All => section.records.len(),
            KeyCoverage::EndsOfBlocks | KeyCoverage::Some => 1,
        };
        cache.tail_bytes = cache.tail_bytes.max(tail_bytes + tail_bytes / 8);
        cache.section_blocks_max = cache.section_blocks_max.max(blocks);
        let group = section.first / GROUP;
        cache
            .starts
            .insert(group, GroupStart::At(section.begins_ns()));
    }

    /// Caches what a section says of its group and of the groups before.
    pub(super) fn note_section(&mut self, number: u64, section: &Index) {
        self.note_group(number, section);
        let oldest = self.oldest() / GROUP;
        let group = section.first / GROUP;
        let cache = self.cache(number);
        let named = group
            .saturating_sub(section.groups.len() as u64)
            .max(oldest)..group;
        // Usually an earlier section has named the same groups.
        let is_known = cache.named.start <= named.start && named.end <= cache.named.end;
        if !is_known {
            let starts = section.groups.iter().map(|begin| GroupStart::At(*begin));
            cache.starts.extend(named.clone().rev().zip(starts));
            cache.named = named;
        }
        if cache.named.end == group {
            cache.named.end += 1;
        }
        // Groups that were overwritten are not needed.
        let has_old =
            |cache: &RecordingCache| cache.starts.keys().next().is_some_and(|of| *of < oldest);
        while has_old(cache) {
            cache.starts.pop_first();
        }
    }
}

impl Archive {
    /// Begin of the remaining part of a recording and its end so far, in nanoseconds of the recording's time.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn extent(
        &self,
        client: &Client,
        recording: &Recording,
    ) -> Result<Range<u64>, ArchiveError> {
        let begins = self.begins(client, recording)?;
        Ok(begins..self.ends(client, recording)?.unwrap_or(begins))
    }

    /// Begin of the remaining part of a recording, in nanoseconds of the recording's time.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn begins(&self, client: &Client, recording: &Recording) -> Result<u64, ArchiveError> {
        let cached = self.state().cache(recording.number).begin;
        if let Some((_, begins)) = cached.filter(|(of, _)| *of == recording.first) {
            return Ok(begins);
        }
        let serials = recording.first..recording.end;
        let begins = match self.begin_in_known_section(recording) {
            Some(begins) => Some(begins),
            None => self.first_begin(client, recording, serials)?,
        };
        let Some(begins) = begins else {
            return Ok(0);
        };
        self.state().cache(recording.number).begin = Some((recording.first, begins));
        Ok(begins)
    }

    /// As [`begins`](Self::begins), if the section about the first block is in memory. While a full ring is recorded to,
    /// the first block is another one for each block that is written.
    fn begin_in_known_section(&self, recording: &Recording) -> Option<u64> {
        let first = recording.first;
        let last = recording.last_serial_of(first / GROUP);
        let cached = self.cached_section(recording, last).flatten();
        let section = cached.or_else(|| self.so_far(recording))?;
        section.record_of(first).map(|record| record.media_ns)
    }

    /// Media time of the last packet; `None` if the last blocks are damaged.
    fn ends(&self, client: &Client, recording: &Recording) -> Result<Option<u64>, ArchiveError> {
        let cached = self.state().cache(recording.number).end;
        if let Some((_, ends)) = cached.filter(|(of, _)| *of == recording.end) {
            return Ok(Some(ends));
        }
        let serials = (recording.first..recording.end).rev();
        for serial in serials.take(LOOK_BEHIND as usize) {
            let bytes = self.read_block(client, serial)?;
            let Some(block) = bytes.as_deref().and_then(|bytes| Block::parse(bytes).ok()) else {
                continue;
            };
            let packets = (0..block.len()).filter_map(|number| block.packet(number));
            if let Some(ends) = packets.map(|(entry, _)| entry.media_ns).max() {
                self.state().cache(recording.number).end = Some((recording.end, ends));
                return Ok(Some(ends));
            }
        }
        Ok(None)
    }

    /// Begin time of the first intact block among the first [`LOOK_BEHIND`] of `serials`.
    fn first_begin(
        &self,
        client: &Client,
        recording: &Recording,
        serials: Range<u64>,
    ) -> Result<Option<u64>, ArchiveError> {
        for serial in serials.take(LOOK_BEHIND as usize) {
            let trailer = self.trailer(client, serial)?;
            if let Some(trailer) = trailer.filter(|of| of.recording == recording.number) {
                return Ok(Some(trailer.media_ns));
            }
        }
        Ok(None)
    }

    /// Reads the newest section of a recording, or the one before it, unless one of them is cached.
    fn read_newest_section(
        &self,
        client: &Client,
        recording: &Recording,
    ) -> Result<(), ArchiveError> {
        let groups = recording.groups();
        for group in groups.rev().take(2) {
            let serial = recording.last_serial_of(group);
            if !index::ends_group(serial) && self.goes_on(recording) {
                continue;
            }
            let mut state = self.state();
            if state.cache(recording.number).starts.contains_key(&group) {
                return Ok(());
            }
            drop(state);
            if self.stored_section(client, recording, serial)?.is_some() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Begin time of a group of a recording; `None` if its first blocks are damaged.
    fn group_begins(
        &self,
        client: &Client,
        recording: &Recording,
        group: u64,
    ) -> Result<Option<u64>, ArchiveError> {
        let cached = self
            .state()
            .cache(recording.number)
            .starts
            .get(&group)
            .copied();
        let start = match cached {
            Some(start) => start,
            None => {
                let serials = recording.serials_of(group);
                let found = self.first_begin(client, recording, serials)?;
                let start = found.map_or(GroupStart::Damaged, GroupStart::At);
                let mut state = self.state();
                state.cache(recording.number).starts.insert(group, start);
                start
            }
        };
        Ok(match start {
            GroupStart::At(begins) => Some(begins),
            GroupStart::Damaged => None,
        })
    }

    /// Number of the last group of a recording that begins at or before this time; of its first group if none
    /// does.
    fn group_at(
        &self,
        client: &Client,
        recording: &Recording,
        media_ns: u64,
    ) -> Result<u64, ArchiveError> {
        self.read_newest_section(client, recording)?;
        let groups = recording.groups();
        let (mut from, mut to) = (groups.start, groups.end);
        while from + 1 < to {
            let middle = from + (to - from) / 2;
            // A damaged group counts as later, so that playing begins before it.
            let begins = self.group_begins(client, recording, middle)?;
            match begins.is_some_and(|begins| begins <= media_ns) {
                true => from = middle,
                false => to = middle,
            }
        }
        Ok(from)
    }

    /// The section of the index that is about this time of a recording; `None` if it is being recorded or all
    /// of its blocks are damaged.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn index_at(
        &self,
        client: &Client,
        recording: &Recording,
        media_ns: u64,
    ) -> Result<Option<Arc<Index>>, ArchiveError> {
        if recording.end <= recording.first {
            return Ok(None);
        }
        let group = self.group_at(client, recording, media_ns)?;
        self.section(client, recording, recording.last_serial_of(group))
    }

    /// Serial of the last block of a recording that begins at or before this time; of its first block if none
    /// does.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn block_at(
        &self,
        client: &Client,
        recording: &Recording,
        media_ns: u64,
    ) -> Result<u64, ArchiveError> {
        let group = self.group_at(client, recording, media_ns)?;
        let serials = recording.serials_of(group);
        let index = match self.section(client, recording, serials.end - 1)? {
            None if serials.end == recording.end => self.so_far(recording),
            index => index,
        };
        if let Some(index) = index {
            let serial = index.block_at(media_ns);
            return Ok(serial.clamp(recording.first, recording.end - 1));
        }
        let (mut from, mut to) = (serials.start, serials.end);
        while from + 1 < to {
            let middle = from + (to - from) / 2;
            let trailer = self.trailer(client, middle)?;
            match trailer.is_some_and(|of| of.media_ns <= media_ns) {
                true => from = middle,
                false => to = middle,
            }
        }
        Ok(from)
    }

    /// Begin times of all groups of a recording, in order. The newest section names those before it, so this
    /// takes one or two reads, and one more for each group that no section names.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn outline(
        &self,
        client: &Client,
        recording: &Recording,
    ) -> Result<Vec<Group>, ArchiveError> {
        if recording.end <= recording.first {
            return Ok(Vec::new());
        }
        self.read_newest_section(client, recording)?;
        let numbers = recording.groups();
        for group in numbers.clone().rev() {
            let mut state = self.state();
            let is_known = state.cache(recording.number).starts.contains_key(&group);
            drop(state);
            let serial = recording.last_serial_of(group);
            if !is_known && (index::ends_group(serial) || !self.goes_on(recording)) {
                self.stored_section(client, recording, serial)?;
            }
        }
        let mut groups = Vec::new();
        let mut begins_ns = 0;
        for group in numbers {
            let serials = recording.serials_of(group);
            let begins = match !serials.start.is_multiple_of(GROUP) && groups.is_empty() {
                // The begin of the oldest group may be overwritten.
                true => Some(self.begins(client, recording)?),
                false => self.group_begins(client, recording, group)?,
            };
            begins_ns = begins.unwrap_or(begins_ns);
            groups.push(Group {
                first: serials.start,
                end: serials.end,
                begins_ns,
            });
        }
        Ok(groups)
    }

    /// The records and keys of these groups of the outline between `times.start` and `times.end`, in
    /// nanoseconds of the recording's time.
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
            window.is_thinned |= section.named != KeyCoverage::All;
            let from = section.block_at(times.start).max(group.first);
            let key_ns = section
                .key_at(times.start)
                .map_or(times.start, |of| of.media_ns);
            let there = (section.first..).zip(&section.records);
            let there = there.filter(|(serial, _)| *serial >= group.first);
            let is_whole = there.clone().all(|(_, of)| of.packets > 0);
            window.missing += u64::from(!is_whole);
            let records = there.filter(|(serial, of)| {
                *serial >= from && of.media_ns < times.end && of.packets > 0
            });
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
}

impl Recording {
    /// Numbers of the groups that its blocks are in.
    fn groups(&self) -> Range<u64> {
        self.first / GROUP..self.end.div_ceil(GROUP)
    }

    /// Its blocks in a group.
    fn serials_of(&self, group: u64) -> Range<u64> {
        (group * GROUP).max(self.first)..((group + 1) * GROUP).min(self.end)
    }

    /// The last of its blocks in a group, which has the section about them.
    pub(super) fn last_serial_of(&self, group: u64) -> u64 {
        self.serials_of(group).end.saturating_sub(1)
    }
}

/// The groups of an outline that overlap a range of times.
#[must_use]
pub fn groups_in<'a>(groups: &'a [Group], times: &Range<u64>) -> &'a [Group] {
    let begun = groups.partition_point(|of| of.begins_ns <= times.start);
    let from = begun.saturating_sub(1);
    let to = groups.partition_point(|of| of.begins_ns < times.end);
    groups.get(from..to).unwrap_or_default()
}
