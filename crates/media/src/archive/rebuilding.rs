//! Rebuilding a section of the index that is lost, as after a crash, from the blocks that it is about.
//!
//! The entries of a block have what the recorder noted of each packet, so the same [`Indexer`] makes the same
//! section from them. Only the entries of each block are read, as best effort: 64 reads for a group, and 64
//! more where packets are small. The result is cached like sections that were read.
//!
//! # Why the result is not written
//!
//! It would be written into an intact block whose packets exist nowhere else. A torn write would lose a
//! minute of a camera for what can be rebuilt at any time.
//!
//! # Damaged blocks
//!
//! They are skipped. A torn block is detected by the checksum of the whole block, so the blocks that a crash
//! may have torn, the last ones of a recording that did not end properly, are read whole. Of other blocks,
//! the trailer's checksum and the consistency of the entries are verified.
//!
//! # Limits
//!
//! If the section before it is lost as well, a rebuilt section does not count earlier frames and does not
//! name earlier groups. The [outline](super::outline) finds those groups in another way.

use super::*;
use crate::archive::archives::DESCRIPTION_BLOCKS_MAX;
use crate::archive::block::Entry;
use crate::archive::gap::GapBefore;
use crate::archive::index::{Indexer, keys_max};
use crate::sdp::Description;

/// The entries and body lengths of a block's packets.
pub(super) struct Packets {
    pub(super) packets: Vec<(Entry, usize)>,
    /// True if the recording ended properly with this block.
    is_last: bool,
    /// The gap before it.
    gap: Option<GapBefore>,
}

impl Archive {
    /// Rebuilds the section about a group's blocks of a recording, of which `last` is the last one; `None` if
    /// none of them can be read.
    pub(super) fn rebuild_section(
        &self,
        client: &Client,
        recording: &Recording,
        last: u64,
    ) -> Result<Option<Index>, ArchiveError> {
        let first = (last / GROUP * GROUP).max(recording.first);
        let Some(track) = self.track(client, recording, first..last + 1)? else {
            return Ok(None);
        };
        let keys_max = keys_max(self.header.block_bytes as usize);
        let torn_from = self.torn_from(client, recording, last)?;
        let mut indexer = Indexer::new(first, track);
        let (mut is_any, mut is_last) = (false, false);
        for serial in first..=last {
            let read = match serial >= torn_from {
                true => self.packets_of_whole_block(client, recording, serial)?,
                false => self.packets(client, recording, serial)?,
            };
            let Some(block) = read else {
                indexer.add_damaged_block();
                continue;
            };
            indexer.begins_after(block.gap.filter(|_| serial > recording.first));
            for (entry, len) in &block.packets {
                indexer.packet(entry, *len);
            }
            indexer.finish_block();
            indexer.thin(keys_max);
            is_any = true;
            is_last = block.is_last && serial == last;
        }
        if !is_any {
            return Ok(None);
        }
        let mut section = indexer.section(is_last);
        if let Some(before) = first.checked_sub(1).filter(|of| *of >= recording.first)
            && let Some(before) = self.stored_section(client, recording, before)?
        {
            section.follow(&before);
        } else {
            section.has_earlier_gaps = first > recording.first;
        }
        let volume = self.volume.name();
        tracing::info!(
            volume,
            recording = recording.number,
            block = last,
            "rebuilt a lost section of the index from its blocks"
        );
        Ok(Some(section))
    }

    /// The first serial that a crash may have torn; the end of the recording if it ended properly.
    fn torn_from(
        &self,
        client: &Client,
        recording: &Recording,
        last: u64,
    ) -> Result<u64, ArchiveError> {
        let from = recording.end.saturating_sub(LOOK_BEHIND);
        if from > last {
            return Ok(from);
        }
        let trailer = self.trailer(client, recording.end - 1)?;
        Ok(match trailer.is_some_and(|of| of.is_last()) {
            true => recording.end,
            false => from,
        })
    }

    /// The track whose frames are in the index of a recording, from its cache or its description.
    pub(super) fn track(
        &self,
        client: &Client,
        recording: &Recording,
        serials: std::ops::Range<u64>,
    ) -> Result<Option<u8>, ArchiveError> {
        let cached = self.state().cache(recording.number).track;
        if cached.is_some() {
            return Ok(cached);
        }
        for serial in serials.take(DESCRIPTION_BLOCKS_MAX) {
            let bytes = self.read_block(client, serial)?;
            let block = bytes.as_deref().and_then(|bytes| Block::parse(bytes).ok());
            let described = block.and_then(|block| Description::parse(block.text()).ok());
            if let Some(described) = described {
                let track = described.video_track();
                self.state().cache(recording.number).track = Some(track);
                return Ok(Some(track));
            }
        }
        Ok(None)
    }

    /// The packets of a block, from its tail; `None` if it is damaged or has gone.
    pub(super) fn packets(
        &self,
        client: &Client,
        recording: &Recording,
        serial: u64,
    ) -> Result<Option<Packets>, ArchiveError> {
        let Some((trailer, mut tail)) = self.read_tail(client, recording, serial, 0)? else {
            return Ok(None);
        };
        if !self.extend_tail(client, serial, &mut tail, trailer.entries_bytes())? {
            return Ok(None);
        }
        Ok(Packets::of(&trailer, &tail))
    }

    /// As [`packets`](Self::packets), but reads and verifies the whole block.
    fn packets_of_whole_block(
        &self,
        client: &Client,
        recording: &Recording,
        serial: u64,
    ) -> Result<Option<Packets>, ArchiveError> {
        let bytes = self.read_block(client, serial)?;
        let block = bytes.as_deref().and_then(|bytes| Block::parse(bytes).ok());
        let block = block.filter(|block| block.trailer.recording == recording.number);
        Ok(block.and_then(|block| Packets::of(&block.trailer, block.bytes())))
    }
}

impl Packets {
    fn of(trailer: &Trailer, last: &[u8]) -> Option<Self> {
        Some(Self {
            packets: trailer.packets(last).ok()?,
            is_last: trailer.is_last(),
            gap: trailer.gap,
        })
    }
}
