//! The mapping that contains all buffers.
//!
//! Layout: zeros, then a sink, then the pages for buffers. The zeros are the source for writes without
//! content (a write widened to a whole chunk); the sink receives data that is read and not needed. Both
//! lie in the mapping so that a ring can register them like any buffer.
//!
//! Huge pages, locking and presence of the memory affect speed and predictability, not correctness. So a
//! refusal by the host is only reported.

use std::io;
use std::ptr::NonNull;

/// Bytes of a page, the unit of allocation.
pub(crate) const PAGE_BYTES: usize = super::BUFFER_ALIGN_BYTES;

/// Size of the zeros and of the sink, in bytes. Larger transfers repeat them.
pub(crate) const FILLER_BYTES: usize = 1 << 20;

/// Offset of the zeros.
pub(crate) const ZERO_OFFSET: usize = 0;

/// Offset of the sink.
pub(crate) const SINK_OFFSET: usize = FILLER_BYTES;

/// Offset of the pages.
pub(crate) const PAGES_OFFSET: usize = 2 * FILLER_BYTES;

/// Mappings are rounded up to this size: a huge page of x86-64.
const HUGE_PAGE_BYTES: usize = 2 << 20;

const _: () = assert!(PAGES_OFFSET.is_multiple_of(HUGE_PAGE_BYTES));

/// Memory from the kernel, unmapped when dropped. Does not move.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    size: usize,
}

// SAFETY: a mapping is an address and a length. Accesses to the memory are synchronised by the slots.
#[allow(unsafe_code)]
unsafe impl Send for Mapping {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the filler and at least `pages_bytes` of pages. Also returns messages about denied resources.
    pub(crate) fn new(pages_bytes: usize, lock: bool) -> io::Result<(Self, Vec<String>)> {
        let size = pages_bytes
            .checked_add(PAGES_OFFSET)
            .and_then(|size| size.checked_next_multiple_of(HUGE_PAGE_BYTES))
            .filter(|&size| size <= isize::MAX as usize)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Self::map(size)?;
        let refused = mapping.advise(lock);
        Ok((mapping, refused))
    }

    #[cfg(not(miri))]
    #[allow(unsafe_code)]
    fn map(size: usize) -> io::Result<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
        // One huge page more than needed, so that the base can be aligned to a huge page.
        let wide = size
            .checked_add(HUGE_PAGE_BYTES)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: an anonymous mapping at an address of the kernel's choice affects no existing memory.
        let raw = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                wide,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        let lead = raw.cast::<u8>().align_offset(HUGE_PAGE_BYTES);
        // SAFETY: `lead` is less than a huge page, by which the mapping is longer than `size`. Both unmapped
        // pieces lie in the mapping just made, to which no other reference exists.
        let base = unsafe {
            let base = raw.cast::<u8>().add(lead);
            if lead > 0 {
                munmap(raw, lead)?;
            }
            if lead < HUGE_PAGE_BYTES {
                munmap(base.add(size).cast(), HUGE_PAGE_BYTES - lead)?;
            }
            base
        };
        Ok(Self {
            base: NonNull::new(base).expect("the kernel maps nothing at address zero"),
            size,
        })
    }

    /// For Miri, which has no kernel below it.
    #[cfg(miri)]
    #[allow(unsafe_code)]
    fn map(size: usize) -> io::Result<Self> {
        let layout = std::alloc::Layout::from_size_align(size, PAGE_BYTES).expect("a sane size");
        // SAFETY: the size is not zero.
        let base = unsafe { std::alloc::alloc_zeroed(layout) };
        Ok(Self {
            base: NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?,
            size,
        })
    }

    #[cfg(not(miri))]
    #[allow(unsafe_code)]
    fn advise(&self, lock: bool) -> Vec<String> {
        use rustix::mm::{Advice, madvise, mlock};
        let mut refused = Vec::new();
        let mut note = |what: &str, result: rustix::io::Result<()>| {
            if let Err(error) = result {
                refused.push(format!("{what}: {error}"));
            }
        };
        let base = self.base.as_ptr().cast();
        // SAFETY: the range is this mapping. Neither advice nor locking changes its content. A child process
        // does not inherit the range, which is intended: it must not hold pages that a disk writes to.
        unsafe {
            note(
                "huge pages for buffers",
                madvise(base, self.size, Advice::LinuxHugepage),
            );
            note(
                "buffers kept from child processes",
                madvise(base, self.size, Advice::LinuxDontFork),
            );
            if lock {
                note(
                    "buffers locked in memory (RLIMIT_MEMLOCK or CAP_IPC_LOCK)",
                    mlock(base, self.size),
                );
            }
        }
        refused
    }

    #[cfg(miri)]
    fn advise(&self, _lock: bool) -> Vec<String> {
        Vec::new()
    }

    /// Its size in bytes, including the filler.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Number of pages for buffers.
    pub(crate) fn page_count(&self) -> u32 {
        let pages = (self.size - PAGES_OFFSET) / PAGE_BYTES;
        u32::try_from(pages).unwrap_or(u32::MAX)
    }

    /// The address of the byte at `offset`, which must lie within the mapping.
    #[allow(unsafe_code)]
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.size, "an address outside the mapping");
        // SAFETY: within the mapping or one past its end, by the assertion.
        unsafe { self.base.as_ptr().add(offset) }
    }
}

impl Drop for Mapping {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        #[cfg(not(miri))]
        // SAFETY: every user of the memory keeps the mapping alive, so there is none left.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.size) };
        #[cfg(miri)]
        // SAFETY: allocated in `map` with the same layout, and no user of the memory is left.
        unsafe {
            let layout =
                std::alloc::Layout::from_size_align(self.size, PAGE_BYTES).expect("as in map");
            std::alloc::dealloc(self.base.as_ptr(), layout);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_begins_on_a_page_and_holds_what_was_asked() {
        let (mapping, _) = Mapping::new(10 * PAGE_BYTES, false).unwrap();
        assert!((mapping.at(0) as usize).is_multiple_of(PAGE_BYTES));
        assert!(mapping.page_count() >= 10);
        assert_eq!(
            mapping.at(PAGES_OFFSET) as usize - mapping.at(0) as usize,
            PAGES_OFFSET
        );
    }

    #[test]
    fn an_impossible_size_is_an_error() {
        assert!(Mapping::new(usize::MAX - 1, false).is_err());
    }
}
