//! Requests on their way to an extent: what they keep from happening to it, until they are dropped.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use super::{Extent, TRACKING, WRITER};
use crate::chunks::ChunkSet;
use crate::error::Refused;

/// A read that is, or is about to be, on its way to the extent's place: nobody else gets that place.
/// Dropping it says that the disk has answered.
pub struct InUse {
    extent: Arc<Extent>,
    phase: usize,
}

impl InUse {
    /// A read that is counted already.
    pub(super) fn counted(extent: Arc<Extent>, phase: usize) -> Self {
        Self { extent, phase }
    }

    /// The extent.
    #[must_use]
    pub fn extent(&self) -> &Extent {
        &self.extent
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.extent.readers[self.phase].fetch_sub(1, SeqCst);
    }
}

impl fmt::Debug for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in use: {:?}", self.extent)
    }
}

/// A write on its way: the extent stays where it is. [`WriteInUse::written`] when the disk has
/// answered well; dropping it otherwise says that the write failed or was never issued.
pub struct WriteInUse {
    extent: Arc<Extent>,
    /// The chunks that it touches.
    range: Range<u32>,
    /// Those of them that it is the first to fill; most writes fill none for the first time.
    first: Option<Box<ChunkSet>>,
}

impl WriteInUse {
    /// A write that is counted already.
    pub(super) fn counted(extent: Arc<Extent>, range: Range<u32>) -> Self {
        Self {
            extent,
            range,
            first: None,
        }
    }

    /// Notes that the write has claimed `first`.
    pub(super) fn claimed(mut self, first: ChunkSet) -> Self {
        self.first = (!first.is_empty()).then(|| Box::new(first));
        self
    }

    /// True if the write fills `chunk` for the first time.
    #[must_use]
    pub fn is_first(&self, chunk: u32) -> bool {
        self.first.as_ref().is_some_and(|first| first.has(chunk))
    }

    /// The extent.
    #[must_use]
    pub fn extent(&self) -> &Extent {
        &self.extent
    }

    /// The data is on the disk as far as the disk's kind of durability goes. Call it before the
    /// write is answered to whoever asked for it.
    pub fn written(self) {
        if let Some(first) = &self.first {
            self.extent.detail().written.insert(first);
            self.extent.found(first);
            self.extent.volume.mark(self.extent.index);
        }
    }

    pub(super) fn never_issued(mut self, why: Refused) -> Refused {
        self.range = 0..0;
        why
    }
}

impl Drop for WriteInUse {
    /// Bits, then touched chunks, then claims, then the count: whoever sees a later one gone sees
    /// the earlier ones done. A failed write has touched its chunks, too.
    fn drop(&mut self) {
        let extent = &self.extent;
        if extent.state.load(SeqCst) & TRACKING != 0 && !self.range.is_empty() {
            extent.touch(&ChunkSet::of(self.range.clone()));
        }
        if let Some(first) = &self.first {
            extent.detail().claimed.remove(first);
        }
        extent.state.fetch_sub(WRITER, SeqCst);
    }
}

impl fmt::Debug for WriteInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "write in use, {} first: {:?}",
            self.first.as_ref().map_or(0, |first| first.len()),
            self.extent
        )
    }
}
