//! Order between requests: tags and barriers (thesis 6.3.3).
//!
//! # Model
//!
//! A request may name earlier ones that must be complete before it starts, and may be a barrier in
//! its space: it waits for everything of the space that was queued before it, and everything queued
//! after it waits for it. Both point backwards in order of arrival only, so nothing waits in a circle, and the
//! oldest request of all never waits.
//!
//! # Structure
//!
//! Slots of the request table, linked. A tag is an edge in the list of those that wait for its
//! target. A space is a list of its requests in order of arrival. A request is *behind* when a
//! barrier before it in its space is not complete; it keeps the last such barrier. When the first barrier
//! completes, the requests up to and including the next barrier stop being behind. The cost of an operation
//! is proportional to the edges and list entries that it changes for good; only the cancellation of a barrier
//! in the middle visits all requests up to the next barrier.
//!
//! Deliberately absent: the consequence of a failed request for those that waited for it. They may start.
//! Their client is told of the failure and can cancel them.

use crate::position::NONE;
use crate::request::ORDER_AFTER_MAX;
use alloc::vec;
use alloc::vec::Vec;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

#[derive(Clone, Copy, Debug)]
struct Member {
    space: u32,
    /// Neighbours in the space, in order of arrival.
    before: u32,
    after: u32,
    /// The last barrier before it that is not complete.
    barrier_before: u32,
    barrier: bool,
    /// True if the request is in a space. A stream's request is in none; others may wait for it.
    in_space: bool,
    /// Tags not yet met.
    tags: u8,
    /// The first edge of those that wait for it.
    waiting: u32,
}

/// A tag: edge `slot * ORDER_AFTER_MAX + n` belongs to the n-th tag of `slot`.
#[derive(Clone, Copy, Debug)]
struct Edge {
    target: u32,
    before: u32,
    after: u32,
}

#[derive(Clone, Copy, Debug)]
struct Space {
    first: u32,
    last: u32,
    last_barrier: u32,
}

const NO_MEMBER: Member = Member {
    space: 0,
    before: NONE,
    after: NONE,
    barrier_before: NONE,
    barrier: false,
    in_space: false,
    tags: 0,
    waiting: NONE,
};
const NO_EDGE: Edge = Edge {
    target: NONE,
    before: NONE,
    after: NONE,
};
const EMPTY_SPACE: Space = Space {
    first: NONE,
    last: NONE,
    last_barrier: NONE,
};

/// The waits between the requests of one disk.
#[derive(Clone, Debug)]
pub(crate) struct Ordering {
    members: Vec<Member>,
    edges: Vec<Edge>,
    spaces: HashMap<u32, Space, FxBuildHasher>,
    /// Those that have become ready and were not collected yet.
    ready: Vec<u32>,
}

impl Ordering {
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            members: vec![NO_MEMBER; slots],
            edges: vec![NO_EDGE; slots * ORDER_AFTER_MAX],
            // Twice the entries: a table this empty cleans up in place and never grows.
            spaces: HashMap::with_capacity_and_hasher(2 * slots, FxBuildHasher),
            ready: Vec::with_capacity(slots),
        }
    }

    /// A stream's request: others may wait for it, it waits for nothing.
    pub(crate) fn add_plain(&mut self, slot: u32) {
        self.members[slot as usize] = NO_MEMBER;
    }

    /// A best-effort request. `after`: the queued requests that it names. Whether it may start.
    pub(crate) fn add(
        &mut self,
        slot: u32,
        space: u32,
        barrier: bool,
        after: impl Iterator<Item = u32>,
    ) -> bool {
        let list = self.spaces.entry(space).or_insert(EMPTY_SPACE);
        let (last, barrier_before) = (list.last, list.last_barrier);
        if last == NONE {
            list.first = slot;
        }
        list.last = slot;
        if barrier {
            list.last_barrier = slot;
        }
        if last != NONE {
            self.members[last as usize].after = slot;
        }
        let mut tags = 0;
        for (number, target) in after.take(ORDER_AFTER_MAX).enumerate() {
            let edge = slot * ORDER_AFTER_MAX as u32 + number as u32;
            let first = self.members[target as usize].waiting;
            self.edges[edge as usize] = Edge {
                target,
                before: NONE,
                after: first,
            };
            if first != NONE {
                self.edges[first as usize].before = edge;
            }
            self.members[target as usize].waiting = edge;
            tags += 1;
        }
        self.members[slot as usize] = Member {
            space,
            before: last,
            after: NONE,
            barrier_before,
            barrier,
            in_space: true,
            tags,
            waiting: NONE,
        };
        self.is_ready(slot)
    }

    /// True if the request waits for nothing.
    pub(crate) fn is_ready(&self, slot: u32) -> bool {
        let member = &self.members[slot as usize];
        member.tags == 0
            && member.barrier_before == NONE
            && (!member.barrier || member.before == NONE)
    }

    /// Calls `visit` for what a waiting request waits for directly. A barrier before it stands for
    /// all that the barrier waits for in turn.
    pub(crate) fn blockers(&self, slot: u32, mut visit: impl FnMut(u32)) {
        let member = &self.members[slot as usize];
        if member.tags > 0 {
            let first = slot as usize * ORDER_AFTER_MAX;
            let edges = &self.edges[first..first + ORDER_AFTER_MAX];
            edges
                .iter()
                .filter(|edge| edge.target != NONE)
                .for_each(|edge| visit(edge.target));
        }
        if member.barrier {
            let mut before = member.before;
            while before != NONE && before != member.barrier_before {
                visit(before);
                before = self.members[before as usize].before;
            }
        }
        if member.barrier_before != NONE {
            visit(member.barrier_before);
        }
    }

    /// A request is complete, or cancelled. Those that this makes ready are to be collected from
    /// [`Ordering::next_ready`].
    pub(crate) fn remove(&mut self, slot: u32) {
        self.release_waiting(slot);
        self.drop_tags(slot);
        if self.members[slot as usize].in_space {
            self.leave_space(slot);
        }
        self.members[slot as usize] = NO_MEMBER;
    }

    /// A request that [`Ordering::remove`] has made ready.
    pub(crate) fn next_ready(&mut self) -> Option<u32> {
        self.ready.pop()
    }

    fn release_waiting(&mut self, slot: u32) {
        let mut edge = self.members[slot as usize].waiting;
        while edge != NONE {
            let after = self.edges[edge as usize].after;
            self.edges[edge as usize] = NO_EDGE;
            let waiter = edge / ORDER_AFTER_MAX as u32;
            self.members[waiter as usize].tags -= 1;
            self.note_ready(waiter);
            edge = after;
        }
    }

    fn drop_tags(&mut self, slot: u32) {
        let first = slot as usize * ORDER_AFTER_MAX;
        for edge in first..first + ORDER_AFTER_MAX {
            let Edge {
                target,
                before,
                after,
            } = core::mem::replace(&mut self.edges[edge], NO_EDGE);
            if target == NONE {
                continue;
            }
            if before == NONE {
                self.members[target as usize].waiting = after;
            } else {
                self.edges[before as usize].after = after;
            }
            if after != NONE {
                self.edges[after as usize].before = before;
            }
        }
    }

    fn leave_space(&mut self, slot: u32) {
        let Member {
            space,
            before,
            after,
            barrier_before,
            barrier,
            ..
        } = self.members[slot as usize];
        let Some(list) = self.spaces.get_mut(&space) else {
            return;
        };
        if before == NONE {
            list.first = after
        } else {
            self.members[before as usize].after = after
        }
        if after == NONE {
            list.last = before
        } else {
            self.members[after as usize].before = before
        }
        if list.last_barrier == slot {
            list.last_barrier = barrier_before;
        }
        if list.first == NONE {
            self.spaces.remove(&space);
        }
        if barrier {
            let mut next = after;
            while next != NONE {
                let member = &mut self.members[next as usize];
                member.barrier_before = barrier_before;
                let (is_barrier, follows) = (member.barrier, member.after);
                self.note_ready(next);
                if is_barrier {
                    break;
                }
                next = follows;
            }
        } else if before == NONE && after != NONE && self.members[after as usize].barrier {
            self.note_ready(after);
        }
    }

    fn note_ready(&mut self, slot: u32) {
        if self.is_ready(slot) {
            self.ready.push(slot);
        }
    }
}

#[cfg(test)]
mod tests;
