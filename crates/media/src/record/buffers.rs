//! The blocks that packets are received into.
//!
//! At most one block is being filled. A full block is kept back until the next one holds a packet, because the last
//! block of a recording says that it is the last.

use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::Arc;

use sched::units::Nanos;

use super::RecordError;
use super::output::{BlockMemory, BlockPosition, Output};
use crate::archive::block::{Composer, Entry};
use crate::archive::gap::{GapBefore, GapCause};
use crate::session::demand::BlockSample;

/// The longest packet, in bytes.
pub(super) const PACKET_BYTES_MAX: usize = 65_536;

/// A block is written this long after its first packet even if it is not full: a crash loses what is not written.
const BLOCK_MAX: Nanos = Nanos::from_secs(60);

/// A block with fewer packets is not ended for times that it cannot express. Steps of media time are at most 20 s, so
/// one clock needs more packets to get that far.
const PACKETS_MIN: u64 = 100;

/// A block that is being filled.
pub(super) struct OpenBlock {
    pub(super) buffer: BlockMemory,
    pub(super) composer: Composer,
    /// The description that it ends with.
    pub(super) text: Arc<[u8]>,
    /// Times and counts of its packets.
    pub(super) seen: BlockSample,
    /// The gap before its first packet.
    pub(super) gap: Option<GapBefore>,
}

impl OpenBlock {
    /// True if its first packet is so old that the block has to be written; `now_ns` since the recording began.
    fn is_old(&self, now_ns: u64) -> bool {
        let begins_ns = self.composer.begins_ns();
        begins_ns.is_some_and(|begins| now_ns.saturating_sub(begins) > BLOCK_MAX.get())
    }
}

/// The block that is being filled and the full one before it.
pub(super) struct BlockBuffers {
    open: Option<OpenBlock>,
    full: Option<OpenBlock>,
    /// A part of a body has been received into the open block.
    is_receiving: bool,
    /// Receives the end of a datagram that is longer than the room in the open block.
    overflow: Vec<u8>,
    /// The gap before the next packet.
    gap: Option<GapBefore>,
    /// The latest media time so far; `None`: nothing was received.
    last_ns: Option<u64>,
}

impl BlockBuffers {
    pub(super) fn new() -> Self {
        Self {
            open: None,
            full: None,
            is_receiving: false,
            overflow: vec![0; PACKET_BYTES_MAX],
            gap: None,
            last_ns: None,
        }
    }

    /// The recording follows another one, which ended for this reason.
    pub(super) fn follow(&mut self, cause: GapCause) {
        self.gap = Some(GapBefore {
            cause,
            last_before_ns: 0,
        });
    }

    /// The next packet comes after a gap, so a block begins with it. The block before is kept back, because it is the
    /// last one if nothing follows.
    pub(super) fn begin_gap(&mut self, output: &mut Output<'_>, cause: GapCause) {
        let is_recorded = output.disks().is_some() && !self.is_receiving;
        let Some(last_before_ns) = self.last_ns.filter(|_| is_recorded) else {
            return;
        };
        self.gap = Some(GapBefore {
            cause,
            last_before_ns,
        });
        if let Some(open) = self.open.take_if(|of| !of.composer.is_empty()) {
            self.seal_full(output);
            self.full = Some(open);
        }
    }

    /// True if a gap precedes the next packet.
    pub(super) fn is_in_gap(&self) -> bool {
        self.gap.is_some()
    }

    pub(super) fn is_receiving(&self) -> bool {
        self.is_receiving
    }

    /// Gives up the body that is being received: the rest of it will not come.
    pub(super) fn cut(&mut self) {
        self.is_receiving = false;
    }

    /// True if the open block holds packets and has too little room for a body of `least` bytes.
    fn is_full(&self, least: usize) -> bool {
        // A packet without a body needs an entry, for which there is room where there is room for one byte.
        let least = least.max(1);
        let open = self.open.as_ref();
        open.is_some_and(|of| of.composer.room().len() < least && !of.composer.is_empty())
    }

    /// Sees to it that the open block has room for a body of `least` bytes; false if no buffer is free for one.
    pub(super) fn make_room(&mut self, output: &mut Output<'_>, least: usize, now_ns: u64) -> bool {
        if let Some(full) = self.full.take_if(|of| of.is_old(now_ns)) {
            output.seal(full, BlockPosition::Inner);
        }
        if self.is_receiving {
            return true;
        }
        if self.is_full(least) {
            self.full = self.open.take();
        } else if let Some(old) = self.open.take_if(|of| of.is_old(now_ns)) {
            output.seal(old, BlockPosition::Inner);
        }
        if self.open.is_none() {
            self.open = output.begin_block(usize::from(self.full.is_some()));
        }
        if self.open.is_none() {
            self.seal_full(output);
        }
        self.open.is_some()
    }

    /// Hands over the full block.
    pub(super) fn seal_full(&mut self, output: &mut Output<'_>) {
        if let Some(full) = self.full.take() {
            output.seal(full, BlockPosition::Inner);
        }
    }

    /// Hands over blocks in borrowed buffers, except one into which a body is being received.
    pub(super) fn seal_borrowed(&mut self, output: &mut Output<'_>) {
        let is_borrowed = |of: &mut OpenBlock| of.buffer.is_borrowed();
        let full = self.full.take_if(is_borrowed);
        let is_receiving = self.is_receiving;
        let open = self.open.take_if(|of| !is_receiving && is_borrowed(of));
        for block in full.into_iter().chain(open) {
            output.seal(block, BlockPosition::Inner);
        }
    }

    /// Hands over all blocks at the end of the recording.
    pub(super) fn seal_last(&mut self, output: &mut Output<'_>) {
        for block in self.full.take().into_iter().chain(self.open.take()) {
            output.seal(block, BlockPosition::Last);
        }
    }

    /// Receives with `receive` into the next body of `len` bytes, from byte `filled` on; returns the number of bytes.
    pub(super) fn fill(
        &mut self,
        filled: usize,
        len: usize,
        receive: impl FnOnce(&mut [u8]) -> Result<usize, RecordError>,
    ) -> Result<usize, RecordError> {
        let Some(open) = &mut self.open else {
            return Ok(0);
        };
        let from = open.composer.room().start;
        let count = receive(&mut open.buffer[from + filled..from + len])?;
        self.is_receiving = (1..len).contains(&(filled + count));
        Ok(count)
    }

    /// The room that a datagram is received into, and the room for what does not fit there; `None` if there is no block
    /// or a body is being received.
    pub(super) fn room(&mut self) -> Option<(Range<usize>, [IoSliceMut<'_>; 2])> {
        let open = self.open.as_mut().filter(|_| !self.is_receiving)?;
        let room = open.composer.room();
        let parts = [
            IoSliceMut::new(&mut open.buffer[room.clone()]),
            IoSliceMut::new(&mut self.overflow),
        ];
        Some((room, parts))
    }

    /// Room for a datagram that is not recorded.
    pub(super) fn scratch(&mut self) -> &mut [u8] {
        &mut self.overflow
    }

    /// Moves a body of `len` bytes, of which the first are in `room` of the full block and the others in the
    /// overflow, to the open block; false if either block is missing.
    pub(super) fn move_body(&mut self, room: Range<usize>, len: usize) -> bool {
        let (Some(full), Some(open)) = (&self.full, &mut self.open) else {
            return false;
        };
        let from = open.composer.room().start;
        let (head, rest) = open.buffer[from..from + len].split_at_mut(room.len());
        head.copy_from_slice(&full.buffer[room]);
        rest.copy_from_slice(&self.overflow[..rest.len()]);
        true
    }

    /// The body of `len` bytes that has been received behind the last packet; `None` if there is no block.
    pub(super) fn body(&self, len: usize) -> Option<&[u8]> {
        let open = self.open.as_ref()?;
        let from = open.composer.room().start;
        Some(&open.buffer[from..from + len])
    }

    /// Sees to it that the open block can express the times of a packet whose body of `len` bytes has been received: a
    /// block expresses 35 minutes of media, which a file that is sent fast may exceed. Returns false if that needs
    /// another block and no buffer is free. In a block of few packets the nearest time is taken instead, or tracks with
    /// clocks that far apart would begin a block with each packet.
    pub(super) fn fit(&mut self, output: &mut Output<'_>, entry: &mut Entry, len: usize) -> bool {
        let Some(open) = &self.open else {
            return true;
        };
        if open.composer.takes(entry.arrival_ns, entry.media_ns) {
            return true;
        }
        if open.seen.packets >= PACKETS_MIN {
            return self.move_on(output, len);
        }
        entry.media_ns = open.composer.nearest_media_ns(entry.media_ns);
        true
    }

    /// Hands over the open block without the body of `len` bytes that has been received, and moves that to another
    /// block; false if no buffer is free for one.
    fn move_on(&mut self, output: &mut Output<'_>, len: usize) -> bool {
        let Some(mut next) = output.begin_block(usize::from(self.open.is_some())) else {
            return false;
        };
        if let Some(open) = self.open.take() {
            let (from, to) = (open.composer.room().start, next.composer.room().start);
            next.buffer[to..to + len].copy_from_slice(&open.buffer[from..from + len]);
            output.seal(open, BlockPosition::Inner);
        }
        self.open = Some(next);
        true
    }

    /// Adds the packet whose body of `len` bytes has been received, if there is a block. `lost` counts the missing
    /// packets before it that a higher rate would have recorded.
    pub(super) fn push(&mut self, entry: &Entry, len: usize, lost: u32) {
        let Some(open) = &mut self.open else {
            return;
        };
        if open.composer.is_empty() {
            open.gap = self.gap.take();
        }
        self.last_ns = self.last_ns.max(Some(entry.media_ns));
        open.composer.push(&mut open.buffer, len, entry);
        let seen = &mut open.seen;
        if seen.packets == 0 {
            (seen.arrival_ns, seen.media_ns) = (entry.arrival_ns, entry.media_ns);
        }
        seen.packets += 1;
        seen.missing += u64::from(lost);
    }
}
