//! What is noted of a recording while it is made, or while a section of its index is made again.

use super::{Index, Key, Record, ends_group};
use crate::archive::block::{Entry, Kind};

/// A frame whose end is not known yet.
#[derive(Clone, Copy, Debug)]
struct Open {
    key: Key,
    is_key: bool,
}

/// What is noted of a recording while it is made.
#[derive(Debug)]
pub struct Indexer {
    index: Index,
    /// Of the block that is being filled.
    record: Record,
    is_begun: bool,
    open: Option<Open>,
    /// Groups before this one, the first first.
    groups: Vec<u64>,
    /// Frames up to here.
    frames: u64,
    /// The block and the packet that the last key up to here begins with.
    last_key: Option<(u64, u32)>,
}

impl Indexer {
    /// Of a recording whose first block has this serial, and the frames of this track.
    #[must_use]
    pub fn new(first: u64, track: u8) -> Self {
        Self {
            index: Index {
                first,
                track,
                ..Index::default()
            },
            record: Record::default(),
            is_begun: false,
            open: None,
            groups: Vec::new(),
            frames: 0,
            last_key: None,
        }
    }

    /// The serial of the block that is being filled.
    #[must_use]
    pub fn serial(&self) -> u64 {
        self.index.end()
    }

    /// A packet went into the block that is being filled, with a body of so many bytes.
    pub fn packet(&mut self, entry: &Entry, len: usize) {
        let serial = self.serial();
        let record = &mut self.record;
        if !self.is_begun {
            self.is_begun = true;
            record.media_ns = entry.media_ns;
            record.arrival_ns = entry.arrival_ns;
        }
        let packet = record.packets;
        record.packets += 1;
        record.bytes += len as u32;
        record.lost = record.lost.saturating_add(entry.lost);
        if entry.track != self.index.track || entry.kind != Kind::Rtp {
            return;
        }
        if entry.begins_frame {
            record.frames += 1;
            self.frames += 1;
            self.close();
            let key = Key {
                serial,
                packet,
                end: Some(serial),
                media_ns: entry.media_ns,
                bytes: 0,
            };
            self.open = Some(Open { key, is_key: false });
        }
        if let Some(open) = &mut self.open {
            open.key.end = Some(serial);
            open.key.bytes = open.key.bytes.saturating_add(len as u32);
            if entry.is_key && !open.is_key {
                // Parameters before the picture may have the time of the picture before.
                open.is_key = true;
                open.key.media_ns = entry.media_ns;
            }
        }
    }

    fn close(&mut self) {
        if let Some(Open { key, is_key: true }) = self.open.take() {
            self.note_key(key);
        }
    }

    fn note_key(&mut self, key: Key) {
        self.last_key = Some((key.serial, key.packet));
        self.index.keys.push(key);
    }

    /// The block that is being filled is full. The section that goes into it, at most so long, and what it says, if it is
    /// to have one: where it ends a group, or is the last. It has none where not even its records fit, as no room is kept
    /// in a block of which nobody knew that it would be the last.
    pub fn block(&mut self, is_last: bool, bytes_max: usize) -> Option<(Vec<u8>, Index)> {
        let ends = ends_group(self.serial());
        self.whole();
        if !ends && !is_last {
            return None;
        }
        let index = self.section(is_last);
        let bytes = index.encode(bytes_max).unwrap_or_default();
        Some((bytes, index))
    }

    /// The block that is being filled is full.
    pub fn whole(&mut self) {
        self.index.records.push(std::mem::take(&mut self.record));
        self.is_begun = false;
    }

    /// The next block is damaged: nothing is known of it, nor where a frame ends that goes on there.
    pub fn damaged(&mut self) {
        self.end_open(false);
        let before = self.index.records.last();
        let record = Record {
            media_ns: before.map_or(0, |before| before.media_ns),
            arrival_ns: before.map_or(0, |before| before.arrival_ns),
            ..Record::default()
        };
        self.index.records.push(record);
    }

    /// What is known of the blocks since the last section that are full, which may be less than a group. When the groups before
    /// theirs begin is not in it.
    #[must_use]
    pub fn so_far(&self) -> Index {
        let mut index = self.index.clone();
        let key = self.open.filter(|open| open.is_key).map(|open| open.key);
        index.keys.extend(key.map(|key| Key { end: None, ..key }));
        index
    }

    /// Leaves keys out where there are more than so many: half of that many stay.
    pub fn thin(&mut self, keys_max: usize) {
        if self.index.keys.len() > keys_max {
            self.index.thin(keys_max.div_ceil(2));
        }
    }

    /// A frame that goes on is told of where it began; it ends here, or who knows where.
    fn end_open(&mut self, is_last: bool) {
        if let Some(Open { mut key, is_key }) = self.open.take() {
            key.end = key.end.filter(|_| is_last);
            if is_key {
                self.note_key(key);
            }
        }
    }

    /// What is known of the blocks since the last section, or the beginning; a recording may end with them.
    pub fn section(&mut self, is_last: bool) -> Index {
        self.end_open(is_last);
        let mut index = std::mem::take(&mut self.index);
        // Those that are damaged at the beginning begin when the first one does that is not.
        let there = index.records.iter().position(|of| of.packets > 0);
        if let Some(there) = there {
            let (damaged, rest) = index.records.split_at_mut(there);
            for record in damaged {
                record.media_ns = rest[0].media_ns;
                record.arrival_ns = rest[0].arrival_ns;
            }
        }
        index.groups = self.groups.iter().rev().copied().collect();
        self.groups.push(index.begins_ns());
        self.index = Index {
            first: index.end(),
            frames: self.frames,
            track: index.track,
            before: self.last_key,
            ..Index::default()
        };
        index
    }
}
