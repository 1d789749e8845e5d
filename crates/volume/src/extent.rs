//! A volume's extent at run time: its place, its written chunks, and the requests that use it.
//!
//! Shared by every snapshot of the volume's map and touched by callers' threads, by completions in
//! dispatcher threads and by the control plane without a lock. Four protocols meet here.
//!
//! * **First writes.** A chunk that was never written has no bit, reads as zeros and holds what its
//!   last owner left. Its first writer *claims* it, so that two writers that widen the same chunk do not wipe
//!   each other's data. It then reads the bits again, because another writer may have held the claim until
//!   just before. It sets the bit once the data is on the disk. A write to a chunk
//!   that has a bit needs no claim and sets no bit: if a discard clears the bit meanwhile, the write
//!   has been overtaken by it, and the old data beside it stays hidden.
//! * **Writing.** The flags and the number of writes under way are one word. A write is counted by
//!   the step that sees that the extent is neither frozen nor gone, and only then looks where the
//!   extent is. So a frozen extent counts no new writer, its number of writers only falls, and an
//!   extent with a writer stays where it is. (A write that is refused because of a claim or a
//!   loss is counted for an instant, but never once the extent is frozen.)
//! * **Reading.** A read counts itself, then reads the bits, then looks whether the extent is still
//!   where it was, and begins anew if not. The count comes before the look: so a place that was left is free
//!   of reads for good once its count was seen at zero afterwards. The same holds for the place of an extent
//!   that is gone. (The count is per *phase*, which each move flips; a move begins only
//!   when no read of the place before is left.) The bits come before the look: so they were true of that
//!   place, and not set by a first write to the next place while this one holds old data of another owner.
//! * **Moving.** While `TRACKING`, writes note the chunks they touched before they are counted off.
//!   A write that does not see `TRACKING` set its bits before the mover looks for the first time.
//!   While `FROZEN` and without writers the last chunks are copied; then place and phase change in
//!   one store, and only then may writes begin again.
//!
//! **Lost chunks.** A move that cannot read a chunk may leave it behind. The chunk is then *lost*: it has no bit,
//! and reads of it fail instead of finding zeros, until all of it is written or it is discarded. A write of a part is
//! refused, because the rest would read as zeros. The bit is set before the chunk stops being lost, and a chunk is lost before its bit is cleared. A read looks at what is lost before and after
//! it looks at the bits: so it never takes a lost chunk, or one just written again, for a hole.
//!
//! A read that began before a move ended may go to the place before it: nothing is written there as
//! long as it is counted, and a write that it misses began after it.
//!
//! All operations on what is shared are sequentially consistent, for most of them pair up (raise
//! mine, look at yours). `tests/volume/interleavings` has this module run by a model checker.

mod in_use;
mod words;

use std::fmt;
use std::ops::Range;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, OnceLock};

pub use self::in_use::{InUse, WriteInUse};
use self::words::Words;
use crate::chunks::ChunkSet;
use crate::dirty::Shared;
use crate::error::Refused;
use crate::place::{DiskNumber, Place};
use crate::sync::{AtomicU32, AtomicU64};

/// Cut off the volume: no request begins any more.
const GONE: u32 = 1;
/// Being moved: writes note what they touch.
const TRACKING: u32 = 2;
/// About to change place: no write begins.
const FROZEN: u32 = 4;
/// One write under way; what lies above the flags counts them.
const WRITER: u32 = 8;

/// One extent of a volume, wherever it is.
pub struct Extent {
    index: u32,
    place: AtomicU64,
    /// Reads under way to the place that it had in each phase.
    readers: [AtomicU32; 2],
    /// Flags, and above them the writes under way.
    state: AtomicU32,
    /// Value of every bit as long as there is no `detail`.
    uniform: bool,
    detail: OnceLock<Box<Detail>>,
    /// Absent as long as nothing was ever lost.
    lost: OnceLock<Box<Words>>,
    volume: Arc<Shared>,
}

/// Content of an extent's chunks; those in neither set read as zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Chunks {
    /// They hold data.
    pub(crate) written: ChunkSet,
    /// They have lost it.
    pub(crate) lost: ChunkSet,
}

#[derive(Default)]
struct Detail {
    written: Words,
    claimed: Words,
    touched: Words,
}

impl Detail {
    fn written(written: &ChunkSet) -> Box<Self> {
        Box::new(Self {
            written: Words::of(written),
            ..Self::default()
        })
    }
}

const fn pack(place: Place, phase: usize) -> u64 {
    ((phase as u64) << 48) | ((place.disk.0 as u64) << 32) | place.extent as u64
}

const fn unpack(packed: u64) -> (Place, usize) {
    let place = Place {
        disk: DiskNumber((packed >> 32) as u16),
        extent: packed as u32,
    };
    (place, (packed >> 48) as usize)
}

impl Extent {
    pub(crate) fn new(index: u32, place: Place, written: &ChunkSet, volume: Arc<Shared>) -> Self {
        let all = ChunkSet::of(0..volume.geometry().chunks());
        let uniform = *written == all;
        let detail = OnceLock::new();
        if !uniform && !written.is_empty() {
            let _: Result<(), _> = detail.set(Detail::written(written));
        }
        Self {
            index,
            place: AtomicU64::new(pack(place, 0)),
            readers: Default::default(),
            state: AtomicU32::new(0),
            uniform,
            detail,
            lost: OnceLock::new(),
            volume,
        }
    }

    /// Number of the extent in its volume, from 0.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Its place now. Only a request that has begun may rely on it.
    #[must_use]
    pub fn place(&self) -> Place {
        unpack(self.place.load(SeqCst)).0
    }

    /// The chunks that hold data; the others read as zeros.
    #[must_use]
    pub fn written(&self) -> ChunkSet {
        match self.detail.get() {
            Some(detail) => detail.written.load(),
            None => self.uniformly(),
        }
    }

    /// The chunks that hold data, and those that have lost it.
    pub(crate) fn chunks(&self) -> Chunks {
        let before = self.lost();
        let written = self.written();
        let lost = before.or(&self.lost()).without(&written);
        Chunks { written, lost }
    }

    /// True if all of `range` holds data.
    fn holds(&self, range: &ChunkSet) -> bool {
        match self.detail.get() {
            Some(detail) => detail.written.has_all(range),
            None => self.uniform,
        }
    }

    fn uniformly(&self) -> ChunkSet {
        if self.uniform {
            ChunkSet::of(0..self.volume.geometry().chunks())
        } else {
            ChunkSet::EMPTY
        }
    }

    fn detail(&self) -> &Detail {
        self.detail
            .get_or_init(|| Detail::written(&self.uniformly()))
    }

    /// Clears bits: the chunks read as zeros from now on, durably so after the volume's next flush.
    pub(crate) fn clear(&self, chunks: &ChunkSet) {
        let untouched_and_empty = self.detail.get().is_none() && !self.uniform;
        let cleared = !untouched_and_empty && self.detail().written.remove(chunks);
        let found = self.found(chunks);
        if cleared || found {
            self.volume.mark(self.index);
        }
    }

    /// The chunks whose data was lost, and that have not been written since.
    #[must_use]
    pub fn lost(&self) -> ChunkSet {
        self.lost.get().map_or(ChunkSet::EMPTY, |lost| lost.load())
    }

    /// Loses chunks: they lose their bits, and reads of them fail.
    pub(crate) fn lose(&self, chunks: &ChunkSet) {
        if chunks.is_empty() {
            return;
        }
        self.lost.get_or_init(Box::default).insert(chunks);
        if self.detail().written.remove(chunks) {
            self.volume.mark(self.index);
        }
    }

    /// Takes the loss of chunks back, because they have stayed where they were.
    pub(crate) fn unlose(&self, chunks: &ChunkSet) {
        // A discard meanwhile has found some of them.
        let kept = self.lost().and(chunks);
        if !kept.is_empty() {
            self.detail().written.insert(&kept);
            self.found(&kept);
            self.volume.mark(self.index);
        }
    }

    /// Chunks have content again. True if some of them were lost.
    fn found(&self, chunks: &ChunkSet) -> bool {
        self.lost.get().is_some_and(|lost| lost.remove(chunks))
    }

    /// Begins a read: where it goes, and which chunks hold data there or have lost it.
    pub(crate) fn begin_read(self: &Arc<Self>) -> Result<(Place, Chunks, InUse), Refused> {
        loop {
            let packed = self.place.load(SeqCst);
            let (place, phase) = unpack(packed);
            self.readers[phase].fetch_add(1, SeqCst);
            let in_use = InUse::counted(Arc::clone(self), phase);
            let chunks = self.chunks();
            if self.place.load(SeqCst) != packed {
                continue;
            }
            if self.is_gone() {
                return Err(Refused::Gone);
            }
            return Ok((place, chunks, in_use));
        }
    }

    /// Begins a write that touches `range` of the chunks, and replaces `whole` of them. Those that the guard says
    /// it is the first to fill ([`WriteInUse::is_first`]) it must fill wholly, for they hold nothing of this volume.
    pub(crate) fn begin_write(
        self: &Arc<Self>,
        range: Range<u32>,
        whole: Range<u32>,
    ) -> Result<(Place, WriteInUse), Refused> {
        let counted = self.state.try_update(SeqCst, SeqCst, |state| {
            (state & (GONE | FROZEN) == 0).then_some(state + WRITER)
        });
        if let Err(state) = counted {
            return Err(if state & GONE != 0 {
                Refused::Gone
            } else {
                Refused::Busy
            });
        }
        let guard = WriteInUse::counted(Arc::clone(self), range.clone());
        let place = self.place();
        let range = ChunkSet::of(range);
        if self.holds(&range) {
            return Ok((place, guard));
        }
        let wanted = range.without(&self.written());
        // Nothing is lost as long as a write is counted, so this stays true.
        let in_part = wanted.without(&ChunkSet::of(whole));
        if !in_part.and(&self.lost()).is_empty() {
            return Err(guard.never_issued(Refused::Lost));
        }
        let detail = self.detail();
        if !detail.claimed.try_claim(&wanted) {
            return Err(guard.never_issued(Refused::Busy));
        }
        // A first write that completed between the look and the claim has set its bits by now.
        let overtaken = wanted.and(&detail.written.load());
        detail.claimed.remove(&overtaken);
        Ok((place, guard.claimed(wanted.without(&overtaken))))
    }

    /// Cut off the volume: no request begins any more.
    pub(crate) fn retire(&self) {
        self.state.fetch_or(GONE, SeqCst);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.state.load(SeqCst) & GONE != 0
    }

    /// True if requests may still go to the place before its last move, or to any place if the extent is
    /// gone.
    pub(crate) fn lingers(&self) -> bool {
        let present = unpack(self.place.load(SeqCst)).1;
        let state = self.state.load(SeqCst);
        let read = |phase: usize| self.readers[phase].load(SeqCst) != 0;
        read(1 - present) || (state & GONE != 0 && (state >= WRITER || read(present)))
    }

    /// Notes what is written from now on.
    pub(crate) fn track(&self) {
        self.detail().touched.take();
        self.state.fetch_or(TRACKING, SeqCst);
    }

    pub(crate) fn untrack(&self) {
        self.state.fetch_and(!(TRACKING | FROZEN), SeqCst);
    }

    pub(crate) fn freeze(&self) {
        self.state.fetch_or(FROZEN, SeqCst);
    }

    pub(crate) fn thaw(&self) {
        self.state.fetch_and(!FROZEN, SeqCst);
    }

    /// True if a move keeps writes from beginning.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.state.load(SeqCst) & FROZEN != 0
    }

    pub(crate) fn writers(&self) -> u32 {
        self.state.load(SeqCst) / WRITER
    }

    /// The chunks that a pass of a move has to copy: in the first pass all written ones, then those touched
    /// since the pass before. Taken before the bits are read, so a chunk touched later belongs to the next
    /// pass, whatever this pass sees of it.
    pub(crate) fn take_pass(&self, first: bool) -> ChunkSet {
        let touched = self.detail().touched.take();
        let written = self.written();
        if first {
            written
        } else {
            written.and(&touched)
        }
    }

    pub(crate) fn touched(&self) -> ChunkSet {
        self.detail().touched.load()
    }

    pub(crate) fn touch(&self, chunks: &ChunkSet) {
        self.detail().touched.insert(chunks);
    }

    /// Changes place. Frozen and without writers, so that only reads of the old place are in flight.
    pub(crate) fn switch(&self, to: Place) {
        debug_assert!(self.is_frozen() && self.writers() == 0);
        let (_, phase) = unpack(self.place.load(SeqCst));
        // First: no request may be answered from the new place while a flush could still believe
        // that nothing has changed.
        self.volume.mark(self.index);
        self.place.store(pack(to, 1 - phase), SeqCst);
        self.untrack();
    }
}

impl fmt::Debug for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "extent {} at {} ({} chunks written)",
            self.index,
            self.place(),
            self.written().len()
        )
    }
}
