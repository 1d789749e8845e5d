//! Full blocks on their way to the disks: sealed, indexed, and handed to the stream's [`BlockWriter`].

use std::sync::Arc;

use engine::stream::{BlockReport, BlockWriter, PaceError, PaceReport};
use sched::units::Bytes;

use super::block_text::BlockText;
use super::buffers::OpenBlock;
use super::rate::RateControl;
use crate::archive::ActiveRecording;
use crate::archive::block::{Composer, Seal};
use crate::archive::index::{self, Indexer};
use crate::session::demand::BlockSample;

/// The position of a block in its recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BlockPosition {
    Inner,
    Last,
}

/// Seals blocks and writes them.
pub(super) struct BlockOutput<'a> {
    pub(super) writer: BlockWriter<'a>,
    pub(super) writing: ActiveRecording,
    pub(super) text: BlockText,
    pub(super) indexer: Indexer,
    pub(super) rate: RateControl<'a>,
}

impl<'a> BlockOutput<'a> {
    /// Does what is due for the disks.
    pub(super) fn advance(&mut self) -> Result<(), PaceError> {
        let (writer, writing) = (&mut self.writer, &mut self.writing);
        writer.advance(&mut |block: &BlockReport| writing.written(block.index, block.buffers))
    }

    /// An empty block; `unsealed` blocks before it are not sealed yet. `None` if no buffer is free.
    pub(super) fn begin_block(&mut self, unsealed: usize) -> Option<OpenBlock> {
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
            buffer,
            seen: BlockSample::default(),
        })
    }

    /// The longest body, in bytes, that every block has room for.
    pub(super) fn body_bytes_max(&self) -> usize {
        let block_bytes = self.writing.archive().header().block_bytes as usize;
        let index_bytes = index::section_bytes_max(block_bytes);
        Composer::new(block_bytes, self.text.bytes_max(), index_bytes)
            .room()
            .len()
    }

    /// Hands over a block that no more packets are added to. An empty block is given back.
    pub(super) fn seal(&mut self, block: OpenBlock, position: BlockPosition) {
        let OpenBlock {
            mut buffer,
            composer,
            text,
            seen,
        } = block;
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
            is_last,
        };
        self.rate.note_block(seen);
        let section = self.indexer.block(is_last, composer.index_room());
        self.indexer.thin(index::keys_max(buffer.len()));
        let (section, index) = section.unzip();
        composer.seal(&mut buffer, &text, &section.unwrap_or_default(), &seal);
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
