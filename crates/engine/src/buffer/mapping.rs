//! The one mapping that all buffers lie in.
//!
//! Layout: zeros, then a sink, then the pages that are shared out. The zeros are the source of
//! whatever must be written but has no content (a write widened to a whole chunk); the sink takes what
//! is read and not wanted. Both lie in the mapping so that they can be registered with a ring like
//! any buffer.
//!
//! Whether memory is huge-paged, locked and present is a matter of speed and of predictable time, not
//! of correctness: what the host refuses is noted and done without.

use std::io;
use std::ptr::NonNull;

/// Bytes of a page, the unit in which memory is shared out.
pub(crate) const PAGE_BYTES: usize = super::BUFFER_ALIGN_BYTES;

/// Bytes that read as zeros, and bytes of the sink. Transfers of more repeat them.
pub(crate) const FILLER_BYTES: usize = 1 << 20;

/// Where the zeros begin.
pub(crate) const ZERO_OFFSET: usize = 0;

/// Where the sink begins.
pub(crate) const SINK_OFFSET: usize = FILLER_BYTES;

/// Where the pages begin.
pub(crate) const PAGES_OFFSET: usize = 2 * FILLER_BYTES;

/// What mappings are rounded up to: a huge page of x86-64.
const HUGE_PAGE_BYTES: usize = 2 << 20;

const _: () = assert!(PAGES_OFFSET.is_multiple_of(HUGE_PAGE_BYTES));

/// Memory from the kernel, given back when dropped. Does not move.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    size: usize,
}

// SAFETY: a mapping is an address and a length; what is done with the memory behind them is up to
// the slots, which are synchronised.
#[allow(unsafe_code)]
unsafe impl Send for Mapping {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the filler and at least `pages_bytes` of pages. Returns what was refused, in words.
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
        // One huge page more than needed, to be able to begin on a boundary of one.
        let wide = size
            .checked_add(HUGE_PAGE_BYTES)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing of ours.
        let raw = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                wide,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        let lead = raw.cast::<u8>().align_offset(HUGE_PAGE_BYTES);
        // SAFETY: `lead` is less than a huge page, by which the mapping is longer than `size`; both
        // pieces that are unmapped lie in the mapping just made and nobody knows of them.
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

    /// Under the interpreter that looks for undefined behaviour, which has no kernel below it.
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
        // SAFETY: the range is this mapping. Advice and locking do not change its content: a child
        // process would lose it, which is the point, as it must not hold pages that a disk writes to.
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

    /// Its length in bytes, filler included.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The whole pages that can be shared out.
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
        // SAFETY: whoever could reach the memory holds the mapping alive, so nobody can any more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.size) };
        #[cfg(miri)]
        // SAFETY: allocated in `map` with the same layout; nobody can reach the memory any more.
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
