//! Buffers that a client keeps for its next requests, so that requests of one size need no allocation from the pool.
//!
//! Their sum is bounded, and they are dropped as soon as the pool wants memory back. A buffer whose data is still being
//! sent becomes usable once all replies have been sent.

use engine::buffer::Buffer;

/// The most that is kept: the memory of a client with 64 requests of 4 KiB.
const KEPT_BYTES_MAX: usize = 256 << 10;

#[derive(Debug, Default)]
pub(in crate::exports) struct SpareBuffers {
    free: Vec<Buffer>,
    sending: Vec<Buffer>,
    /// Sum of both lists.
    bytes: usize,
}

impl SpareBuffers {
    /// Takes a buffer of exactly `size` bytes, if there is one.
    pub(in crate::exports) fn take(&mut self, size: usize) -> Option<Buffer> {
        let last = self.free.last()?;
        if last.size() != size || last.is_wanted_back() {
            self.clear_free();
            return None;
        }
        self.bytes -= size;
        self.free.pop()
    }

    /// Keeps an unused buffer, if there is room.
    pub(in crate::exports) fn keep(&mut self, buffer: Buffer) {
        if self.reserve(&buffer) {
            self.free.push(buffer);
        }
    }

    /// Keeps a buffer whose data is being sent, if there is room.
    pub(in crate::exports) fn keep_when_sent(&mut self, buffer: Buffer) {
        if self.reserve(&buffer) {
            self.sending.push(buffer);
        }
    }

    fn reserve(&mut self, buffer: &Buffer) -> bool {
        let fits = self.bytes + buffer.size() <= KEPT_BYTES_MAX && !buffer.is_wanted_back();
        if fits {
            self.bytes += buffer.size();
        }
        fits
    }

    /// All replies have been sent.
    pub(in crate::exports) fn note_all_sent(&mut self) {
        self.free.append(&mut self.sending);
    }

    /// Drops all buffers. Data that is being sent keeps its memory until it has been sent.
    pub(in crate::exports) fn clear(&mut self) {
        self.clear_free();
        self.sending.clear();
        self.bytes = 0;
    }

    fn clear_free(&mut self) {
        self.bytes -= self
            .free
            .drain(..)
            .map(|buffer| buffer.size())
            .sum::<usize>();
    }
}
