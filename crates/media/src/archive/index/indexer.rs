//! Building the index: while a recording is made, or while a lost section is rebuilt.

use super::{GAPS_MAX, Index, Key, Record, ends_group};
use crate::archive::block::{Entry, Kind};
use crate::archive::gap::{Gap, GapBefore};

/// A frame whose end is not known yet.
#[derive(Clone, Copy, Debug)]
struct OpenFrame {
    key: Key,
    is_key: bool,
}

/// Builds the sections of a recording from the entries of its packets.
#[derive(Debug)]
pub struct Indexer {
    index: Index,
    /// Record of the block that is being filled.
    record: Record,
    has_packet: bool,
    open: Option<OpenFrame>,
    /// Begin times of the earlier groups, in order.
    groups: Vec<u64>,
    /// Number of frames so far.
    frames: u64,
    /// Serial and first packet of the last key so far.
    last_key: Option<(u64, u32)>,
    /// The gap before the block that is being filled.
    gap: Option<GapBefore>,
}

impl Indexer {
    /// An indexer for a recording whose first block is `first`, and for the frames of a track.
    #[must_use]
    pub fn new(first: u64, track: u8) -> Self {
        Self {
            index: Index {
                first,
                track,
                ..Index::default()
            },
            record: Record::default(),
            has_packet: false,
            open: None,
            groups: Vec::new(),
            frames: 0,
            last_key: None,
            gap: None,
        }
    }

    /// The block that is being filled begins after a gap of the recording.
    pub fn begins_after(&mut self, gap: Option<GapBefore>) {
        self.gap = gap;
    }

    /// Serial of the block that is being filled.
    #[must_use]
    pub fn serial(&self) -> u64 {
        self.index.end()
    }

    /// Adds a packet with a body of `len` bytes to the block that is being filled.
    pub fn packet(&mut self, entry: &Entry, len: usize) {
        let serial = self.serial();
        let record = &mut self.record;
        if !self.has_packet {
            self.has_packet = true;
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
            self.open = Some(OpenFrame { key, is_key: false });
        }
        if let Some(open) = &mut self.open {
            open.key.end = Some(serial);
            open.key.bytes = open.key.bytes.saturating_add(len as u32);
            if entry.is_key && !open.is_key {
                // Parameter sets before the picture may have the time of the previous picture.
                open.is_key = true;
                open.key.media_ns = entry.media_ns;
            }
        }
    }

    fn close(&mut self) {
        if let Some(OpenFrame { key, is_key: true }) = self.open.take() {
            self.add_key(key);
        }
    }

    fn add_key(&mut self, key: Key) {
        self.last_key = Some((key.serial, key.packet));
        self.index.keys.push(key);
    }

    /// Ends the block that is being filled. If it ends a group or the recording, returns the encoded section,
    /// at most `bytes_max` bytes, and the section. The encoding is empty if there is no room even for the
    /// records, as may happen in the last block of a recording, which has no room reserved.
    pub fn block(&mut self, is_last: bool, bytes_max: usize) -> Option<(Vec<u8>, Index)> {
        let ends = ends_group(self.serial());
        self.finish_block();
        if !ends && !is_last {
            return None;
        }
        let index = self.section(is_last);
        let bytes = index.encode(bytes_max).unwrap_or_default();
        Some((bytes, index))
    }

    /// Ends the block that is being filled.
    pub fn finish_block(&mut self) {
        if let Some(gap) = self.gap.take() {
            let serial = self.serial();
            self.index.gaps.push(Gap {
                serial,
                last_before_ns: gap.last_before_ns,
                first_after_ns: self.record.media_ns,
                cause: gap.cause,
            });
            self.index.forget_early_gaps(GAPS_MAX);
        }
        self.index.records.push(std::mem::take(&mut self.record));
        self.has_packet = false;
    }

    /// Adds a damaged block. The end of a frame that continues there stays unknown.
    pub fn add_damaged_block(&mut self) {
        self.finish_open_frame(false);
        let before = self.index.records.last();
        let record = Record {
            media_ns: before.map_or(0, |before| before.media_ns),
            arrival_ns: before.map_or(0, |before| before.arrival_ns),
            ..Record::default()
        };
        self.index.records.push(record);
    }

    /// The section in the making, about the full blocks since the last section. It has no directory.
    #[must_use]
    pub fn so_far(&self) -> Index {
        let mut index = self.index.clone();
        let key = self.open.filter(|open| open.is_key).map(|open| open.key);
        index.keys.extend(key.map(|key| Key { end: None, ..key }));
        index
    }

    /// If there are more keys than `keys_max`, reduces them to half of that.
    pub fn thin(&mut self, keys_max: usize) {
        if self.index.keys.len() > keys_max {
            self.index.thin(keys_max.div_ceil(2));
        }
    }

    /// Ends the open frame: in the current block if the recording ends here, otherwise at an unknown place.
    fn finish_open_frame(&mut self, is_last: bool) {
        if let Some(OpenFrame { mut key, is_key }) = self.open.take() {
            key.end = key.end.filter(|_| is_last);
            if is_key {
                self.add_key(key);
            }
        }
    }

    /// Completes the section about the full blocks since the last section. With `is_last` the recording ends
    /// with them.
    pub fn section(&mut self, is_last: bool) -> Index {
        self.finish_open_frame(is_last);
        let mut index = std::mem::take(&mut self.index);
        // Damaged blocks at the start get the times of the first intact block.
        let intact = index.records.iter().position(|of| of.packets > 0);
        if let Some(intact) = intact {
            let (damaged, rest) = index.records.split_at_mut(intact);
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
            gaps: index.gaps.clone(),
            has_earlier_gaps: index.has_earlier_gaps,
            ..Index::default()
        };
        index
    }
}
