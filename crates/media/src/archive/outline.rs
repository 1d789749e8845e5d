//! Where in a recording a time is: when its groups begin, which makes its outline, and the section of one of them.
//!
//! When a group begins is said by the sections behind it, so the newest one is read first, and then all of it is known.
//! Where that one is lost the one before it is asked, and of a group that none tells of the trailer of its first block
//! does, when that is looked for. What is known of a recording as a whole is kept as long as the recording is there, apart
//! from the sections: who seeks needs the one section that a time is in, however many have been read since.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use super::*;
use crate::archive::index::{Key, Named, Record};

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
    /// Groups of which blocks are not known.
    pub missing: u64,
}

/// Of fewer recordings what is known is kept also when they are not there any more.
const KNOWN_MIN: usize = 64;

/// When a group begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Begin {
    At(u64),
    /// Its first blocks are damaged.
    Damaged,
}

/// What is known of a recording as a whole: two numbers for each group of its blocks that is there.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// When its groups begin, by their numbers, as far as that has been looked at.
    begins: BTreeMap<u64, Begin>,
    /// Of these a section has told.
    told: Range<u64>,
    /// A serial, and when the recording begins if that is its first.
    begun: Option<(u64, u64)>,
    /// A serial, and when the recording ends if its blocks end before that.
    ended: Option<(u64, u64)>,
    /// The track whose frames are in its index.
    pub(super) track: Option<u8>,
    /// How many of the last bytes of a block are read for its section: as many as any that is known would need, and some
    /// more; and about how many blocks the section is that is about most of those that are known and had room for all.
    pub(super) tail: (u64, usize),
}

impl State {
    /// What is known of a recording, to be added to.
    pub(super) fn known(&mut self, number: u64) -> &mut Known {
        // Now and then those go that are not there any more.
        let count = self.known.len();
        if count >= KNOWN_MIN && count.is_power_of_two() && !self.known.contains_key(&number) {
            let oldest = self.gone.after(self.oldest());
            let there = self.recordings.iter().filter(|of| of.end > oldest);
            let there: HashSet<u64> = there.map(|of| of.number).collect();
            self.known.retain(|of, _| there.contains(of));
        }
        self.known.entry(number).or_default()
    }

    /// Notes what a section says of its group of blocks, or of a part of it.
    pub(super) fn learn_group(&mut self, number: u64, section: &Index) {
        let known = self.known(number);
        known.track = Some(section.track);
        let about = section.tail_bytes_about();
        let (bytes, blocks) = known.tail;
        // One that had too little room does not tell what others have in more.
        let telling = match section.named {
            Named::All => section.records.len(),
            Named::EndsOfBlocks | Named::Some => 1,
        };
        known.tail = (bytes.max(about + about / 8), blocks.max(telling));
        let group = section.first / GROUP;
        known.begins.insert(group, Begin::At(section.begins_ns()));
    }

    /// Notes what a section says of its recording.
    pub(super) fn learn(&mut self, number: u64, section: &Index) {
        self.learn_group(number, section);
        let oldest = self.oldest() / GROUP;
        let group = section.first / GROUP;
        let known = self.known(number);
        let told = group
            .saturating_sub(section.groups.len() as u64)
            .max(oldest)..group;
        // Sections say of most groups what others have said.
        let is_told = known.told.start <= told.start && told.end <= known.told.end;
        if !is_told {
            let begins = section.groups.iter().map(|begin| Begin::At(*begin));
            known.begins.extend(told.clone().rev().zip(begins));
            known.told = told;
        }
        if known.told.end == group {
            known.told.end += 1;
        }
        // What was overwritten is asked for no more.
        let is_old = |known: &Known| known.begins.keys().next().is_some_and(|of| *of < oldest);
        while is_old(known) {
            known.begins.pop_first();
        }
    }
}

impl Archive {
    /// When a recording begins, and when it ends at this moment, in nanoseconds of its time.
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

    /// When a recording begins, as far as it is there.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn begins(&self, client: &Client, recording: &Recording) -> Result<u64, ArchiveError> {
        let begun = self.state().known(recording.number).begun;
        if let Some((_, begins)) = begun.filter(|(of, _)| *of == recording.first) {
            return Ok(begins);
        }
        let serials = recording.first..recording.end;
        let Some(begins) = self.first_begin(client, recording, serials)? else {
            return Ok(0);
        };
        self.state().known(recording.number).begun = Some((recording.first, begins));
        Ok(begins)
    }

    /// When the last packet is to be played; `None`: the last blocks are damaged.
    fn ends(&self, client: &Client, recording: &Recording) -> Result<Option<u64>, ArchiveError> {
        let ended = self.state().known(recording.number).ended;
        if let Some((_, ends)) = ended.filter(|(of, _)| *of == recording.end) {
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
                self.state().known(recording.number).ended = Some((recording.end, ends));
                return Ok(Some(ends));
            }
        }
        Ok(None)
    }

    /// When the first of these blocks begins that is not damaged, if that is among the first of them.
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

    /// Reads the newest section that is there of a recording, or the one before it, if nothing has told of its groups.
    fn ask_newest(&self, client: &Client, recording: &Recording) -> Result<(), ArchiveError> {
        let groups = recording.groups();
        for group in groups.rev().take(2) {
            let serial = recording.last_of(group);
            if !index::ends_group(serial) && self.goes_on(recording) {
                continue;
            }
            let mut state = self.state();
            if state.known(recording.number).begins.contains_key(&group) {
                return Ok(());
            }
            drop(state);
            if self.written(client, recording, serial)?.is_some() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// When a group of a recording begins; `None`: its first blocks are damaged.
    fn group_begins(
        &self,
        client: &Client,
        recording: &Recording,
        group: u64,
    ) -> Result<Option<u64>, ArchiveError> {
        let known = self
            .state()
            .known(recording.number)
            .begins
            .get(&group)
            .copied();
        let begin = match known {
            Some(begin) => begin,
            None => {
                let serials = recording.serials_of(group);
                let found = self.first_begin(client, recording, serials)?;
                let begin = found.map_or(Begin::Damaged, Begin::At);
                let mut state = self.state();
                state.known(recording.number).begins.insert(group, begin);
                begin
            }
        };
        Ok(match begin {
            Begin::At(begins) => Some(begins),
            Begin::Damaged => None,
        })
    }

    /// The number of the last group of a recording that begins no later than this time of its; of its first if none does.
    fn group_at(
        &self,
        client: &Client,
        recording: &Recording,
        media_ns: u64,
    ) -> Result<u64, ArchiveError> {
        self.ask_newest(client, recording)?;
        let groups = recording.groups();
        let (mut from, mut to) = (groups.start, groups.end);
        while from + 1 < to {
            let middle = from + (to - from) / 2;
            // One that is damaged counts as later: what is before it is played then.
            let begins = self.group_begins(client, recording, middle)?;
            match begins.is_some_and(|begins| begins <= media_ns) {
                true => from = middle,
                false => to = middle,
            }
        }
        Ok(from)
    }

    /// The section of the index that is about this time of a recording; `None`: it is being recorded, or all of it is
    /// damaged.
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
        self.section(client, recording, recording.last_of(group))
    }

    /// The serial of the last block of a recording that begins no later than this time of its; of its first if none
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

    /// When each group of a recording begins, in order. The newest section names those before it, so a day is a read or
    /// two. Where sections are lost it is one more for each group that none tells of.
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
        self.ask_newest(client, recording)?;
        let numbers = recording.groups();
        for group in numbers.clone().rev() {
            let mut state = self.state();
            let is_known = state.known(recording.number).begins.contains_key(&group);
            drop(state);
            let serial = recording.last_of(group);
            if !is_known && (index::ends_group(serial) || !self.goes_on(recording)) {
                self.written(client, recording, serial)?;
            }
        }
        let mut groups = Vec::new();
        let mut begins_ns = 0;
        for group in numbers {
            let serials = recording.serials_of(group);
            let begins = match !serials.start.is_multiple_of(GROUP) && groups.is_empty() {
                // Of the oldest the beginning may be overwritten.
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
            window.is_thinned |= section.named != Named::All;
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
    /// The numbers of the groups that its blocks are in.
    fn groups(&self) -> Range<u64> {
        self.first / GROUP..self.end.div_ceil(GROUP)
    }

    /// Its blocks in a group.
    fn serials_of(&self, group: u64) -> Range<u64> {
        (group * GROUP).max(self.first)..((group + 1) * GROUP).min(self.end)
    }

    /// The last of these, which has the section that is about them.
    pub(super) fn last_of(&self, group: u64) -> u64 {
        self.serials_of(group).end.saturating_sub(1)
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
