//! Full blocks on their way to the disks: sealed, indexed, and handed to the stream's [`BlockWriter`]. Blocks of a
//! stream that is live only are given up.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use engine::stream::{BlockBuffer, BlockReport, BlockWriter, PaceError, PaceReport};
use sched::units::Bytes;

use super::block_text::BlockText;
use super::buffers::OpenBlock;
use super::counts::Tally;
use super::rate::RateControl;
use crate::archive::ActiveRecording;
use crate::archive::block::{Composer, Seal};
use crate::archive::gap::{GapBefore, GapCause};
use crate::archive::index::{self, Indexer};
use crate::session::demand::BlockSample;

/// The position of a block in its recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BlockPosition {
    Inner,
    Last,
}

/// The size of a block that is never written, in bytes.
const MEMORY_BLOCK_BYTES: usize = 256 << 10;

/// The memory of a block.
pub(super) enum BlockMemory {
    /// A buffer of the disks.
    Disks(BlockBuffer),
    /// Of a stream that is live only.
    Own(Box<[u8]>),
}

impl BlockMemory {
    pub(super) fn is_borrowed(&self) -> bool {
        matches!(self, Self::Disks(buffer) if buffer.is_borrowed())
    }
}

impl Deref for BlockMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Disks(buffer) => buffer,
            Self::Own(bytes) => bytes,
        }
    }
}

impl DerefMut for BlockMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Disks(buffer) => buffer,
            Self::Own(bytes) => bytes,
        }
    }
}

/// The destination of blocks.
pub(super) enum Output<'a> {
    /// The disks.
    Disks(Box<BlockOutput<'a>>),
    /// None: the stream is live only. Its one block is used again and again.
    Nowhere(Option<Box<[u8]>>),
}

impl<'a> Output<'a> {
    /// Of a stream that is live only.
    pub(super) fn nowhere() -> Self {
        Self::Nowhere(None)
    }

    pub(super) fn disks(&self) -> Option<&BlockOutput<'a>> {
        match self {
            Self::Disks(output) => Some(output),
            Self::Nowhere(_) => None,
        }
    }

    pub(super) fn disks_mut(&mut self) -> Option<&mut BlockOutput<'a>> {
        match self {
            Self::Disks(output) => Some(output),
            Self::Nowhere(_) => None,
        }
    }

    /// An empty block; `unsealed` blocks before it are not sealed yet. `None` if no buffer is free.
    pub(super) fn begin_block(&mut self, unsealed: usize) -> Option<OpenBlock> {
        match self {
            Self::Disks(output) => output.begin_block(unsealed),
            Self::Nowhere(spare) => {
                let bytes = spare
                    .take()
                    .unwrap_or_else(|| vec![0; MEMORY_BLOCK_BYTES].into());
                Some(OpenBlock {
                    composer: Composer::new(bytes.len(), 0, 0),
                    text: Arc::default(),
                    buffer: BlockMemory::Own(bytes),
                    seen: BlockSample::default(),
                    gap: None,
                })
            }
        }
    }

    /// Hands over a block that no more packets are added to. An empty block is given back.
    pub(super) fn seal(&mut self, block: OpenBlock, position: BlockPosition) {
        match (self, block.buffer) {
            (Self::Disks(output), BlockMemory::Disks(buffer)) => {
                let (text, seen, gap) = (&block.text, block.seen, block.gap);
                output.seal(buffer, block.composer, text, seen, gap, position);
            }
            (Self::Nowhere(spare), BlockMemory::Own(bytes)) => *spare = Some(bytes),
            // Each output has made its own blocks.
            (Self::Disks(_), BlockMemory::Own(_)) | (Self::Nowhere(_), BlockMemory::Disks(_)) => {}
        }
    }

    /// The longest body, in bytes, that every block has room for.
    pub(super) fn body_bytes_max(&self) -> usize {
        match self {
            Self::Disks(output) => output.body_bytes_max(),
            Self::Nowhere(_) => Composer::new(MEMORY_BLOCK_BYTES, 0, 0).room().len(),
        }
    }
}

/// Seals blocks and writes them.
pub(super) struct BlockOutput<'a> {
    pub(super) writer: BlockWriter<'a>,
    pub(super) writing: ActiveRecording,
    pub(super) text: BlockText,
    pub(super) indexer: Indexer,
    pub(super) rate: RateControl<'a>,
    /// Why the recording ends.
    pub(super) end: GapCause,
}

impl<'a> BlockOutput<'a> {
    /// Does what is due for the disks.
    pub(super) fn advance(&mut self) -> Result<(), PaceError> {
        let (writer, writing) = (&mut self.writer, &mut self.writing);
        writer.advance(&mut |block: &BlockReport| writing.written(block.index, block.buffers))
    }

    /// Adapts the reserved rate, and the description to it.
    pub(super) fn look(&mut self, tally: Tally) {
        self.rate.settle();
        self.text.raise_rate(self.rate.reserved());
        self.rate.look(self.writer.buffers(), tally);
    }

    /// An empty block; `unsealed` blocks before it are not sealed yet. `None` if no buffer is free.
    fn begin_block(&mut self, unsealed: usize) -> Option<OpenBlock> {
        let buffer = self.writer.take()?;
        let serial = self.indexer.serial() + unsealed as u64;
        let index_bytes = match index::ends_group(serial) {
            true => index::section_bytes_max(buffer.len()),
            false => 0,
        };
        let text = self.text.current();
        Some(OpenBlock {
            composer: Composer::new(buffer.len(), text.len(), index_bytes),
            text,
            buffer: BlockMemory::Disks(buffer),
            seen: BlockSample::default(),
            gap: None,
        })
    }

    /// The longest body, in bytes, that every block has room for.
    fn body_bytes_max(&self) -> usize {
        let block_bytes = self.writing.archive().header().block_bytes as usize;
        let index_bytes = index::section_bytes_max(block_bytes);
        Composer::new(block_bytes, self.text.bytes_max(), index_bytes)
            .room()
            .len()
    }

    /// Hands over a block that no more packets are added to. An empty block is given back.
    fn seal(
        &mut self,
        mut buffer: BlockBuffer,
        composer: Composer,
        text: &[u8],
        seen: BlockSample,
        gap: Option<GapBefore>,
        position: BlockPosition,
    ) {
        if composer.is_empty() {
            self.writer.give_back(buffer);
            return;
        }
        let is_last = position == BlockPosition::Last;
        let seal = Seal {
            archive: self.writing.archive().header().archive,
            serial: self.indexer.serial(),
            recording: self.writing.number(),
            first: self.writing.first(),
            begun_unix_ns: self.writing.begun_unix_ns(),
            gap,
            end: is_last.then_some(self.end),
        };
        let is_first = seal.serial == seal.first;
        self.indexer.begins_after(gap.filter(|_| !is_first));
        self.rate.note_block(seen);
        self.writing.sealed(seal.serial, composer.ends_ns());
        self.writing.describe(self.text.described());
        let section = self.indexer.block(is_last, composer.index_room());
        self.indexer.thin(index::keys_max(buffer.len()));
        let (section, index) = section.unzip();
        composer.seal(&mut buffer, text, &section.unwrap_or_default(), &seal);
        let buffer_bytes = buffer.len();
        self.writer.put(buffer, Bytes(buffer_bytes as u64));
        let archive = self.writing.archive();
        let index = match index {
            Some(mut index) => {
                // The index in memory names as many keys as one that is read from the disks.
                index.thin(index::keys_max(index::section_bytes_max(buffer_bytes)));
                let index = Arc::new(index);
                archive.keep(seal.recording, seal.serial, Some(Arc::clone(&index)));
                index
            }
            None => Arc::new(self.indexer.so_far()),
        };
        self.writing.indexed(index);
    }

    /// Waits until all blocks are durable.
    pub(super) fn finish(self) -> Result<PaceReport, PaceError> {
        let Self {
            writer,
            mut writing,
            ..
        } = self;
        writer.finish(&mut |block: &BlockReport| writing.written(block.index, block.buffers))
    }
}
