//! Changes of a volume since its last commit, noted by completions without a lock.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::SeqCst;

use crate::limits::{MARK_WORDS, VOLUME_EXTENTS_MAX};
use crate::place::{Geometry, VolumeId};
use crate::sync::AtomicU64;

const LEAF_EXTENTS: u32 = MARK_WORDS as u32 * 64;
const LEAVES: usize = VOLUME_EXTENTS_MAX.div_ceil(LEAF_EXTENTS) as usize;

/// A moment in a volume's history of changes that a flush has to make durable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Mark(pub(crate) u64);

/// State that all snapshots of a volume's map share.
pub(crate) struct Shared {
    id: VolumeId,
    geometry: Geometry,
    leaves: Box<[OnceLock<Box<Leaf>>]>,
    marked: AtomicU64,
    durable: AtomicU64,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (marked, durable) = (self.now().0, self.durable.load(SeqCst));
        write!(
            f,
            "volume {}: {marked} changes, {durable} durable",
            self.id.0
        )
    }
}

type Leaf = [AtomicU64; MARK_WORDS];

impl Shared {
    pub(crate) fn new(id: VolumeId, geometry: Geometry) -> Self {
        Self {
            id,
            geometry,
            leaves: (0..LEAVES).map(|_| OnceLock::new()).collect(),
            marked: AtomicU64::new(0),
            durable: AtomicU64::new(0),
        }
    }

    pub(crate) fn id(&self) -> VolumeId {
        self.id
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Makes room to mark `extents` extents, so that a completion never allocates.
    pub(crate) fn make_room(&self, extents: u32) {
        for leaf in &self.leaves[..extents.div_ceil(LEAF_EXTENTS) as usize] {
            leaf.get_or_init(|| Box::new([const { AtomicU64::new(0) }; MARK_WORDS]));
        }
    }

    /// Extent `index` has changed. The change itself is made before.
    pub(crate) fn mark(&self, index: u32) {
        self.remark(index);
        self.marked.fetch_add(1, SeqCst);
    }

    /// Extent `index` has to be looked at again, for a commit of it was cancelled.
    pub(crate) fn remark(&self, index: u32) {
        if let Some(leaf) = self.leaves[(index / LEAF_EXTENTS) as usize].get() {
            leaf[(index % LEAF_EXTENTS / 64) as usize].fetch_or(1 << (index % 64), SeqCst);
        }
    }

    pub(crate) fn now(&self) -> Mark {
        Mark(self.marked.load(SeqCst))
    }

    pub(crate) fn is_durable(&self, mark: Mark) -> bool {
        self.durable.load(SeqCst) >= mark.0
    }

    pub(crate) fn set_durable(&self, mark: Mark) {
        self.durable.fetch_max(mark.0, SeqCst);
    }

    /// The extents changed since the last call, ascending. Take [`Shared::now`] first.
    pub(crate) fn take(&self) -> Vec<u32> {
        let mut changed = Vec::new();
        for (number, leaf) in self.leaves.iter().enumerate() {
            let Some(leaf) = leaf.get() else { continue };
            for (word, bits) in leaf.iter().enumerate() {
                if bits.load(SeqCst) == 0 {
                    continue;
                }
                let mut bits = bits.swap(0, SeqCst);
                let base = number as u32 * LEAF_EXTENTS + word as u32 * 64;
                while bits != 0 {
                    changed.push(base + bits.trailing_zeros());
                    bits &= bits - 1;
                }
            }
        }
        changed
    }
}
