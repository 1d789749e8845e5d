//! A section of the index that is lost is made again from the blocks that it is about, as a crash leaves them.
//!
//! The entries of a block say of each packet what the recorder noted of it, so the same [`Indexer`] makes the same section
//! of them. Of a block no more is read than its entries, as best effort: 64 reads for a group, and 64 more where its
//! packets are small. The result is kept as sections that were read are, and no longer.
//!
//! # Why it is not written
//!
//! It would go into a block that is there and whole, and whose packets nobody else has. While that is written again it may
//! be torn, and then a minute of a camera is lost for what can be made again at any time.
//!
//! # Damaged blocks
//!
//! They are passed over. A block that was being written when power failed is found by its checksum, so those that may have
//! been, the last ones of a recording that was not ended, are read whole. Of others the trailer is checked, and that the
//! entries belong together.
//!
//! # Deliberately absent
//!
//! Frames and groups before the group, if the section before it is lost as well: the [outline](super::outline) knows when
//! groups begin.

use super::*;
use crate::archive::archives::DESCRIBED_WITHIN;
use crate::archive::block::Entry;
use crate::archive::index::{Indexer, keys_max};
use crate::sdp::Description;

/// The packets of a block, and how long their bodies are; whether the recording was ended with it.
pub(super) struct Packets {
    pub(super) packets: Vec<(Entry, usize)>,
    is_last: bool,
}

impl Archive {
    /// The section about the blocks of a recording in a group up to the last one; `None`: none of them is to be read.
    pub(super) fn rebuilt(
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
                true => self.packets_of_whole(client, recording, serial)?,
                false => self.packets(client, recording, serial)?,
            };
            let Some(block) = read else {
                indexer.damaged();
                continue;
            };
            for (entry, len) in &block.packets {
                indexer.packet(entry, *len);
            }
            indexer.whole();
            indexer.thin(keys_max);
            is_any = true;
            is_last = block.is_last && serial == last;
        }
        if !is_any {
            return Ok(None);
        }
        let mut section = indexer.section(is_last);
        if let Some(before) = first.checked_sub(1).filter(|of| *of >= recording.first)
            && let Some(before) = self.written(client, recording, before)?
        {
            section.follow(&before);
        }
        let volume = self.volume.name();
        tracing::info!(
            volume,
            recording = recording.number,
            block = last,
            "a section of the index was lost and is rebuilt from its blocks"
        );
        Ok(Some(section))
    }

    /// From which block on they may be torn: those that were written last before a crash.
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
        Ok(match trailer.is_some_and(|of| of.is_last) {
            true => recording.end,
            false => from,
        })
    }

    /// The track whose frames are in the index of a recording, by any section of it or its description.
    pub(super) fn track(
        &self,
        client: &Client,
        recording: &Recording,
        serials: std::ops::Range<u64>,
    ) -> Result<Option<u8>, ArchiveError> {
        let known = self.state().known(recording.number).track;
        if known.is_some() {
            return Ok(known);
        }
        for serial in serials.take(DESCRIBED_WITHIN) {
            let bytes = self.read_block(client, serial)?;
            let block = bytes.as_deref().and_then(|bytes| Block::parse(bytes).ok());
            let described = block.and_then(|block| Description::parse(block.text()).ok());
            if let Some(described) = described {
                let track = described.video_track();
                self.state().known(recording.number).track = Some(track);
                return Ok(Some(track));
            }
        }
        Ok(None)
    }

    /// The packets of a block, by its end alone; `None`: it is damaged or gone.
    pub(super) fn packets(
        &self,
        client: &Client,
        recording: &Recording,
        serial: u64,
    ) -> Result<Option<Packets>, ArchiveError> {
        let Some((trailer, mut tail)) = self.read_tail(client, recording, serial, 0)? else {
            return Ok(None);
        };
        if !self.lengthen(client, serial, &mut tail, trailer.entries_bytes())? {
            return Ok(None);
        }
        Ok(Packets::of(&trailer, &tail))
    }

    /// The same by all of it.
    fn packets_of_whole(
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
            is_last: trailer.is_last,
        })
    }
}
