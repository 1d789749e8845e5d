//! Scatter-gather lists.
//!
//! [`Segments`] describe the memory of one transfer and pin it while they exist. They are plain values of
//! up to four parts without an allocation, and can be sliced and appended without touching the data.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use sched::request::Op;
use smallvec::SmallVec;

use super::mapping::{FILLER_BYTES, SINK_OFFSET, ZERO_OFFSET};
use super::slot::Use;
use super::{AccountId, Buffer, BufferError, Inner, Memory};

/// Parts that a list holds without an allocation: enough for a block that spans two extents, widened at both
/// ends.
const INLINE_PARTS: usize = 4;

/// A contiguous part of a list. Lists are moved with requests, so parts are small: shorter than 4 GiB.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Offset in the mapping; for filler, the offset of the filler.
    offset: usize,
    size: u32,
    /// The buffer's slot, or `FILLER`.
    slot: u32,
}

const FILLER: u32 = u32::MAX;

/// A scatter-gather list of buffer ranges of one account (or several accounts of one client) and filler.
/// Filler reads as zeros and discards data written to it.
pub struct Segments {
    op: Op,
    size: usize,
    account: Option<AccountId>,
    inner: Option<Arc<Inner>>,
    parts: SmallVec<[Part; INLINE_PARTS]>,
}

impl Segments {
    /// An empty list. `op` is the direction: `Read` is from a disk or socket into memory.
    #[must_use]
    pub fn empty(op: Op) -> Self {
        Self {
            op,
            size: 0,
            account: None,
            inner: None,
            parts: SmallVec::new(),
        }
    }

    /// The direction.
    #[must_use]
    pub fn op(&self) -> Op {
        self.op
    }

    /// The sum of all parts in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// The account of its buffers; `None` if it has none.
    #[must_use]
    pub fn account(&self) -> Option<AccountId> {
        self.account
    }

    fn how(&self) -> Use {
        match self.op {
            Op::Read => Use::Fill,
            Op::Write => Use::Source,
        }
    }

    /// Appends a range of a buffer.
    ///
    /// # Errors
    /// When the buffer has been revoked, the processor is using it, the range is not within it or has 4 GiB or
    /// more, or the buffer belongs to another account than those before it.
    pub fn push(&mut self, buffer: &Buffer, range: Range<usize>) -> Result<(), BufferError> {
        if range.start > range.end || range.end > buffer.size() {
            return Err(BufferError::Range);
        }
        self.check_mixes(Some(buffer.account()), buffer.inner())?;
        if range.is_empty() {
            return Ok(());
        }
        let size = u32::try_from(range.len()).map_err(|_| BufferError::Range)?;
        buffer.inner().slots[buffer.slot() as usize].begin(self.how())?;
        self.adopt(Some(buffer.account()), buffer.inner());
        self.size += range.len();
        self.parts.push(Part {
            slot: buffer.slot(),
            offset: buffer.offset() + range.start,
            size,
        });
        Ok(())
    }

    /// All of a buffer, taking over a transfer out of it that has been begun.
    pub(super) fn begun(buffer: &Buffer) -> Self {
        let mut all = Self::empty(Op::Write);
        all.adopt(Some(buffer.account()), buffer.inner());
        all.size = buffer.size();
        all.parts.push(Part {
            slot: buffer.slot(),
            offset: buffer.offset(),
            // `Buffer::fill` refuses buffers of 4 GiB and more.
            size: buffer.size() as u32,
        });
        all
    }

    /// Appends `size` bytes of filler.
    ///
    /// # Errors
    /// When the list belongs to another memory, or `size` is 4 GiB or more.
    pub fn push_filler(&mut self, memory: &Memory, size: usize) -> Result<(), BufferError> {
        self.check_mixes(None, &memory.0.inner)?;
        let bytes = u32::try_from(size).map_err(|_| BufferError::Range)?;
        if bytes > 0 {
            self.adopt(None, &memory.0.inner);
            self.size += size;
            let offset = if self.op == Op::Write {
                ZERO_OFFSET
            } else {
                SINK_OFFSET
            };
            self.parts.push(Part {
                slot: FILLER,
                offset,
                size: bytes,
            });
        }
        Ok(())
    }

    /// Appends all of `other`.
    ///
    /// # Errors
    /// When they have different directions or belong to different accounts.
    pub fn append(&mut self, other: Segments) -> Result<(), BufferError> {
        let account = other.account;
        self.append_of(account, other)
    }

    /// Appends all of `other`, which may belong to another account of the same client. The result counts as the
    /// first account's.
    ///
    /// # Errors
    /// When they have different directions or memories.
    pub(crate) fn append_own(&mut self, other: Segments) -> Result<(), BufferError> {
        self.append_of(None, other)
    }

    fn append_of(
        &mut self,
        account: Option<AccountId>,
        mut other: Segments,
    ) -> Result<(), BufferError> {
        if self.op != other.op {
            return Err(BufferError::Foreign);
        }
        if let Some(inner) = other.inner.take() {
            if let Err(error) = self.check_mixes(account, &inner) {
                other.inner = Some(inner);
                return Err(error);
            }
            self.adopt(other.account, &inner);
            self.size += other.size;
            // The uses move with the parts.
            self.parts.extend(other.parts.drain(..));
        }
        Ok(())
    }

    /// The bytes of `range`, as a list of its own.
    ///
    /// # Errors
    /// When the range is not within the list, or a use counter of a buffer is at its limit.
    pub fn slice(&self, range: Range<usize>) -> Result<Segments, BufferError> {
        if range.start > range.end || range.end > self.size {
            return Err(BufferError::Range);
        }
        let mut slice = Self::empty(self.op);
        let Some(inner) = &self.inner else {
            return Ok(slice);
        };
        for part in self.overlaps(range) {
            if part.slot != FILLER {
                inner.slots[part.slot as usize].begin_again(self.how())?;
                slice.account = self.account;
            }
            slice.inner.get_or_insert_with(|| Arc::clone(inner));
            slice.size += part.size as usize;
            slice.parts.push(part);
        }
        Ok(slice)
    }

    fn check_mixes(
        &self,
        account: Option<AccountId>,
        inner: &Arc<Inner>,
    ) -> Result<(), BufferError> {
        let same_memory = self
            .inner
            .as_ref()
            .is_none_or(|mine| Arc::ptr_eq(mine, inner));
        let same_account = self.account.is_none() || account.is_none() || self.account == account;
        if same_memory && same_account {
            Ok(())
        } else {
            Err(BufferError::Foreign)
        }
    }

    fn adopt(&mut self, account: Option<AccountId>, inner: &Arc<Inner>) {
        self.account = self.account.or(account);
        self.inner.get_or_insert_with(|| Arc::clone(inner));
    }

    /// The parts that contain the bytes of `range`.
    fn overlaps(&self, range: Range<usize>) -> impl Iterator<Item = Part> + '_ {
        let mut before = 0;
        self.parts.iter().filter_map(move |part| {
            let begin = before;
            before += part.size as usize;
            let from = range.start.clamp(begin, before);
            let to = range.end.clamp(begin, before);
            // All filler is alike, so a slice of it starts at the beginning.
            let skip = if part.slot == FILLER { 0 } else { from - begin };
            (to > from).then(|| Part {
                slot: part.slot,
                offset: part.offset + skip,
                // Fits, because the part that contains it does.
                size: (to - from) as u32,
            })
        })
    }

    /// The memory of `range` in order, as (offset in the mapping, length).
    fn pieces(&self, range: Range<usize>) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.overlaps(range).flat_map(|part| {
            let step = if part.slot == FILLER {
                FILLER_BYTES
            } else {
                usize::MAX
            };
            let size = part.size as usize;
            (0..size.div_ceil(step)).map(move |index| {
                let done = index * step;
                (part.offset, step.min(size - done))
            })
        })
    }

    /// Appends the memory from byte `from` on to `out` as I/O vectors, until `out` has `limit` entries. The
    /// addresses are valid while the segments exist.
    pub(crate) fn gather(
        &self,
        from: usize,
        limit: usize,
        out: &mut SmallVec<[libc::iovec; INLINE_IOVECS]>,
    ) {
        let Some(inner) = &self.inner else { return };
        for (offset, size) in self.pieces(from..self.size) {
            if out.len() >= limit {
                return;
            }
            out.push(libc::iovec {
                iov_base: inner.mapping.at(offset).cast(),
                iov_len: size,
            });
        }
    }

    /// Copies `bytes` into the memory, from byte `offset` on; for disks in memory.
    ///
    /// # Panics
    /// When the direction is wrong or the segments are too short.
    pub fn copy_from(&self, offset: usize, bytes: &[u8]) {
        assert!(
            self.op == Op::Read && offset + bytes.len() <= self.size,
            "not a place to put the bytes"
        );
        let mut rest = bytes;
        self.each_piece(offset..offset + bytes.len(), |at, size| {
            let (head, tail) = rest.split_at(size);
            store(at, head);
            rest = tail;
        });
    }

    /// Copies memory into `bytes`, from byte `offset` on; for disks in memory.
    ///
    /// # Panics
    /// When the direction is wrong or the segments are too short.
    pub fn copy_to(&self, offset: usize, bytes: &mut [u8]) {
        assert!(
            self.op == Op::Write && offset + bytes.len() <= self.size,
            "not a source of the bytes"
        );
        let range = offset..offset + bytes.len();
        let mut done = 0;
        self.each_piece(range, |at, size| {
            load(at, &mut bytes[done..done + size]);
            done += size;
        });
    }

    /// Fills memory with zeros.
    ///
    /// # Panics
    /// When the direction is wrong.
    pub fn fill_zero(&self) {
        const ZEROS: [u8; 4096] = [0; 4096];
        assert!(self.op == Op::Read, "not a place to put zeros");
        self.each_piece(0..self.size, |at, size| {
            for begin in (0..size).step_by(ZEROS.len()) {
                store(
                    at.wrapping_add(begin),
                    &ZEROS[..ZEROS.len().min(size - begin)],
                );
            }
        });
    }

    fn each_piece(&self, range: Range<usize>, mut action: impl FnMut(*mut u8, usize)) {
        if let Some(inner) = &self.inner {
            for (offset, size) in self.pieces(range) {
                action(inner.mapping.at(offset), size);
            }
        }
    }
}

/// I/O vectors that are passed to the kernel without an allocation.
pub(crate) const INLINE_IOVECS: usize = 16;

/// Writes bytes that other transfers may be writing too. The resulting mixture is unspecified, not
/// undefined.
#[allow(unsafe_code)]
fn store(at: *mut u8, bytes: &[u8]) {
    let lead = at.align_offset(align_of::<u64>()).min(bytes.len());
    let (lead_bytes, rest) = bytes.split_at(lead);
    let (words, tail) = rest.as_chunks::<{ size_of::<u64>() }>();
    // SAFETY: `at..at + bytes.len()` is a piece of segments that the caller holds, so it is mapped and no
    // reference to it exists. All concurrent accesses are atomic or made by the kernel.
    unsafe {
        for (index, &byte) in lead_bytes.iter().enumerate() {
            AtomicU8::from_ptr(at.add(index)).store(byte, Ordering::Relaxed);
        }
        let at = at.add(lead);
        for (index, &word) in words.iter().enumerate() {
            AtomicU64::from_ptr(at.cast::<u64>().add(index))
                .store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
        let at = at.add(size_of_val(words));
        for (index, &byte) in tail.iter().enumerate() {
            AtomicU8::from_ptr(at.add(index)).store(byte, Ordering::Relaxed);
        }
    }
}

/// Reads bytes that transfers may be writing.
#[allow(unsafe_code)]
fn load(at: *mut u8, bytes: &mut [u8]) {
    let lead = at.align_offset(align_of::<u64>()).min(bytes.len());
    let (lead_bytes, rest) = bytes.split_at_mut(lead);
    let (words, tail) = rest.as_chunks_mut::<{ size_of::<u64>() }>();
    // SAFETY: as in `store`; shared references of readers may exist as well, and only read.
    unsafe {
        for (index, byte) in lead_bytes.iter_mut().enumerate() {
            *byte = AtomicU8::from_ptr(at.add(index)).load(Ordering::Relaxed);
        }
        let at = at.add(lead);
        for (index, word) in words.iter_mut().enumerate() {
            *word = AtomicU64::from_ptr(at.cast::<u64>().add(index))
                .load(Ordering::Relaxed)
                .to_ne_bytes();
        }
        let at = at.add(size_of_val(words));
        for (index, byte) in tail.iter_mut().enumerate() {
            *byte = AtomicU8::from_ptr(at.add(index)).load(Ordering::Relaxed);
        }
    }
}

impl Drop for Segments {
    fn drop(&mut self) {
        if let Some(inner) = &self.inner {
            for part in self.parts.iter().filter(|part| part.slot != FILLER) {
                inner.end_use(part.slot, self.how());
            }
        }
    }
}

impl std::fmt::Debug for Segments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Segments")
            .field("op", &self.op)
            .field("size", &self.size)
            .field("account", &self.account)
            .field("parts", &self.parts.len())
            .finish()
    }
}
