//! Buffers that are kept for a client's next requests, so that one that does much of one size does not
//! go to the pool's memory for each.
//!
//! What is kept is bounded, and given up as soon as the memory is asked back. A buffer whose data is
//! on its way to the client is kept apart until everything has been sent.

use engine::buffer::Buffer;

/// The most that is kept: the memory of a client with 64 requests of 4 KiB.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// The buffers.
#[derive(Debug, Default)]
pub(in crate::exports) struct Spare {
    free: Vec<Buffer>,
    sending: Vec<Buffer>,
    bytes: usize,
}

impl Spare {
    /// A buffer of exactly `size` bytes, if one is at hand.
    pub(in crate::exports) fn take(&mut self, size: usize) -> Option<Buffer> {
        let last = self.free.last()?;
        if last.size() != size || last.is_wanted_back() {
            self.clear_free();
            return None;
        }
        self.bytes -= size;
        self.free.pop()
    }

    /// Keeps a buffer that nothing uses any more.
    pub(in crate::exports) fn keep(&mut self, buffer: Buffer) {
        if self.has_room(&buffer) {
            self.free.push(buffer);
        }
    }

    /// Keeps a buffer for when everything has been sent.
    pub(in crate::exports) fn keep_when_sent(&mut self, buffer: Buffer) {
        if self.has_room(&buffer) {
            self.sending.push(buffer);
        }
    }

    fn has_room(&mut self, buffer: &Buffer) -> bool {
        let fits = self.bytes + buffer.size() <= KEPT_BYTES_MAX && !buffer.is_wanted_back();
        if fits {
            self.bytes += buffer.size();
        }
        fits
    }

    /// Everything has been sent.
    pub(in crate::exports) fn sent(&mut self) {
        self.free.append(&mut self.sending);
    }

    /// Gives up all that it has; data that is being sent stays until it has been.
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
