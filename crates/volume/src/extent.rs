//! A volume's extent at run time: where it is, what of it is written, and who is using it.
//!
//! Shared by every snapshot of the volume's map and touched by callers' threads, by completions in
//! dispatcher threads and by the control plane without a lock. Three protocols meet here.
//!
//! * **First writes.** A chunk that was never written has no bit, reads as zeros and holds what its
//!   last owner left. Whoever writes to it first *claims* it, so that two writers that widen the same
//!   chunk do not wipe each other's data, and sets the bit once the data is on the disk. A write to
//!   a chunk that has a bit needs no claim and sets no bit: if a discard clears the bit meanwhile,
//!   the write has been overtaken by it, and the old data beside it stays hidden.
//! * **Use.** Every request counts itself in `in_flight` before it goes to the place it read, and
//!   checks the place again after counting (the counter is per *phase*, which each move flips). So a
//!   place that has been left is free of requests for good once its counter was seen at zero, and a
//!   deleted extent likewise after `GONE`.
//! * **Moving.** While `TRACKING`, completed writes note the chunks they touched. While `FROZEN`, no
//!   write begins, and `writers` falls to zero; then place and phase change in one store.
//!
//! All flags and counters that pair up (raise mine, look at yours) are sequentially consistent.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};

use crate::chunks::{ChunkSet, WORDS};
use crate::dirty::Shared;
use crate::error::Refused;
use crate::place::{DiskNumber, Place};

const GONE: u32 = 1;
const TRACKING: u32 = 2;
const FROZEN: u32 = 4;

/// One extent of a volume, wherever it is.
pub struct Extent {
    index: u32,
    place: AtomicU64,
    in_flight: [AtomicU32; 2],
    writers: AtomicU32,
    flags: AtomicU32,
    /// What every bit is as long as there is no `detail`.
    uniform: bool,
    detail: OnceLock<Box<Detail>>,
    volume: Arc<Shared>,
}

#[derive(Default)]
struct Detail {
    written: Words,
    claimed: Words,
    touched: Words,
}

#[derive(Default)]
struct Words([AtomicU64; WORDS]);

impl Words {
    fn load(&self) -> ChunkSet {
        ChunkSet(std::array::from_fn(|word| self.0[word].load(SeqCst)))
    }

    fn insert(&self, set: &ChunkSet) {
        for (word, bits) in self.0.iter().zip(set.0).filter(|(_, bits)| *bits != 0) {
            word.fetch_or(bits, SeqCst);
        }
    }

    /// Whether anything changed.
    fn remove(&self, set: &ChunkSet) -> bool {
        let mut changed = false;
        for (word, bits) in self.0.iter().zip(set.0) {
            if word.load(SeqCst) & bits != 0 {
                changed |= word.fetch_and(!bits, SeqCst) & bits != 0;
            }
        }
        changed
    }

    /// All of `set`, or none.
    fn try_claim(&self, set: &ChunkSet) -> bool {
        for (index, bits) in set.0.iter().enumerate().filter(|(_, bits)| **bits != 0) {
            let before = self.0[index].fetch_or(*bits, SeqCst);
            if before & bits != 0 {
                self.0[index].fetch_and(before | !bits, SeqCst);
                for (word, bits) in self.0.iter().zip(set.0).take(index) {
                    word.fetch_and(!bits, SeqCst);
                }
                return false;
            }
        }
        true
    }

    fn take(&self) -> ChunkSet {
        ChunkSet(std::array::from_fn(|word| self.0[word].swap(0, SeqCst)))
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
            let filled = Box::<Detail>::default();
            filled.written.insert(written);
            let _: Result<(), _> = detail.set(filled);
        }
        Self {
            index,
            place: AtomicU64::new(pack(place, 0)),
            in_flight: Default::default(),
            writers: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            uniform,
            detail,
            volume,
        }
    }

    /// Which extent of the volume, from 0.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Where it is now. Only a request that has begun may rely on it.
    #[must_use]
    pub fn place(&self) -> Place {
        unpack(self.place.load(SeqCst)).0
    }

    /// The chunks that hold data; the others read as zeros.
    #[must_use]
    pub fn written(&self) -> ChunkSet {
        match self.detail.get() {
            Some(detail) => detail.written.load(),
            None if self.uniform => ChunkSet::of(0..self.volume.geometry().chunks()),
            None => ChunkSet::EMPTY,
        }
    }

    fn detail(&self) -> &Detail {
        self.detail.get_or_init(|| {
            let detail = Box::<Detail>::default();
            if self.uniform {
                detail
                    .written
                    .insert(&ChunkSet::of(0..self.volume.geometry().chunks()));
            }
            detail
        })
    }

    /// Clears bits: the chunks read as zeros from now on, durably so after the volume's next flush.
    pub(crate) fn clear(&self, chunks: &ChunkSet) {
        let untouched_and_empty = self.detail.get().is_none() && !self.uniform;
        if !untouched_and_empty && self.detail().written.remove(chunks) {
            self.volume.mark(self.index);
        }
    }

    fn enter(&self) -> Result<(Place, usize), Refused> {
        loop {
            let packed = self.place.load(SeqCst);
            let (place, phase) = unpack(packed);
            self.in_flight[phase].fetch_add(1, SeqCst);
            if self.place.load(SeqCst) == packed {
                if self.flags.load(SeqCst) & GONE != 0 {
                    self.in_flight[phase].fetch_sub(1, SeqCst);
                    return Err(Refused::Gone);
                }
                return Ok((place, phase));
            }
            self.in_flight[phase].fetch_sub(1, SeqCst);
        }
    }

    pub(crate) fn begin_read(self: &Arc<Self>) -> Result<(Place, InUse), Refused> {
        let (place, phase) = self.enter()?;
        Ok((
            place,
            InUse {
                extent: Arc::clone(self),
                phase,
            },
        ))
    }

    /// Begins a write that touches `range` of the chunks. The guard's `first` are the chunks that it
    /// must fill wholly, for they hold nothing of this volume.
    pub(crate) fn begin_write(
        self: &Arc<Self>,
        range: Range<u32>,
    ) -> Result<(Place, WriteInUse), Refused> {
        let (place, phase) = self.enter()?;
        let in_use = InUse {
            extent: Arc::clone(self),
            phase,
        };
        self.writers.fetch_add(1, SeqCst);
        let range = ChunkSet::of(range);
        let mut guard = WriteInUse {
            range,
            first: ChunkSet::EMPTY,
            in_use,
        };
        if self.flags.load(SeqCst) & FROZEN != 0 {
            return Err(guard.never_issued());
        }
        let wanted = range.without(&self.written());
        if wanted.is_empty() {
            return Ok((place, guard));
        }
        let detail = self.detail();
        if !detail.claimed.try_claim(&wanted) {
            return Err(guard.never_issued());
        }
        // A first write that completed between the look and the claim has set its bits by now.
        let overtaken = wanted.and(&detail.written.load());
        detail.claimed.remove(&overtaken);
        guard.first = wanted.without(&overtaken);
        Ok((place, guard))
    }

    /// Cut off the volume: no request begins any more.
    pub(crate) fn retire(&self) {
        self.flags.fetch_or(GONE, SeqCst);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.flags.load(SeqCst) & GONE != 0
    }

    /// Whether requests may still be on their way to the place it had before its last move, or to
    /// any place if it is gone.
    pub(crate) fn lingers(&self) -> bool {
        let present = unpack(self.place.load(SeqCst)).1;
        let previous = self.in_flight[1 - present].load(SeqCst) != 0;
        previous || (self.is_gone() && self.in_flight[present].load(SeqCst) != 0)
    }

    /// Notes what is written from now on.
    pub(crate) fn track(&self) {
        self.detail().touched.take();
        self.flags.fetch_or(TRACKING, SeqCst);
    }

    pub(crate) fn untrack(&self) {
        self.flags.fetch_and(!(TRACKING | FROZEN), SeqCst);
    }

    pub(crate) fn freeze(&self) {
        self.flags.fetch_or(FROZEN, SeqCst);
    }

    pub(crate) fn thaw(&self) {
        self.flags.fetch_and(!FROZEN, SeqCst);
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.flags.load(SeqCst) & FROZEN != 0
    }

    pub(crate) fn writers(&self) -> u32 {
        self.writers.load(SeqCst)
    }

    pub(crate) fn take_touched(&self) -> ChunkSet {
        self.detail().touched.take()
    }

    pub(crate) fn touched(&self) -> ChunkSet {
        self.detail().touched.load()
    }

    pub(crate) fn touch(&self, chunks: &ChunkSet) {
        self.detail().touched.insert(chunks);
    }

    /// Changes place. Frozen and without writers, so that only reads of the old place are in flight.
    pub(crate) fn switch(&self, to: Place) {
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

/// A request that is, or is about to be, on its way to the extent's place. Dropping it says that the
/// disk has answered.
pub struct InUse {
    extent: Arc<Extent>,
    phase: usize,
}

impl InUse {
    /// The extent.
    #[must_use]
    pub fn extent(&self) -> &Extent {
        &self.extent
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.extent.in_flight[self.phase].fetch_sub(1, SeqCst);
    }
}

impl fmt::Debug for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in use: {:?}", self.extent)
    }
}

/// A write on its way. [`WriteInUse::written`] when the disk has answered well; dropping it otherwise
/// says that the write failed or was never issued.
pub struct WriteInUse {
    range: ChunkSet,
    first: ChunkSet,
    in_use: InUse,
}

impl WriteInUse {
    /// The chunks that the write fills for the first time.
    #[must_use]
    pub fn first(&self) -> &ChunkSet {
        &self.first
    }

    /// The extent.
    #[must_use]
    pub fn extent(&self) -> &Extent {
        self.in_use.extent()
    }

    /// The data is on the disk as far as the disk's kind of durability goes. Call it before the
    /// write is answered to whoever asked for it.
    pub fn written(self) {
        if !self.first.is_empty() {
            let extent = &self.in_use.extent;
            extent.detail().written.insert(&self.first);
            extent.volume.mark(extent.index);
        }
    }

    fn never_issued(mut self) -> Refused {
        self.range = ChunkSet::EMPTY;
        Refused::Busy
    }
}

impl Drop for WriteInUse {
    /// Bits, then touched chunks, then claims, then the counters: whoever sees a later one gone sees
    /// the earlier ones done. A failed write has touched its chunks, too.
    fn drop(&mut self) {
        let extent = &self.in_use.extent;
        if extent.flags.load(SeqCst) & TRACKING != 0 && !self.range.is_empty() {
            extent.touch(&self.range);
        }
        if !self.first.is_empty() {
            extent.detail().claimed.remove(&self.first);
        }
        extent.writers.fetch_sub(1, SeqCst);
    }
}

impl fmt::Debug for WriteInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "write in use, {} first: {:?}",
            self.first.len(),
            self.in_use.extent
        )
    }
}
