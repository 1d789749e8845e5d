//! The requests of one client that have no reply yet.
//!
//! The table has a fixed number of slots. A free slot keeps its list of parts, so that a client allocates nothing for a
//! request once its slots have been used.

use engine::buffer::Buffer;

use super::Errno;

/// The most requests that a client may have in flight. The busiest client known, the kernel's, has 128. Further
/// requests wait in the socket or in the kernel.
pub(in crate::exports) const REQUESTS_MAX: usize = 256;

/// A contiguous piece of a request, which is one request of the pool.
#[derive(Debug)]
pub(in crate::exports) struct Part {
    pub(in crate::exports) offset: u64,
    pub(in crate::exports) bytes: usize,
    /// Its memory, until the reply is being sent.
    pub(in crate::exports) buffer: Option<Buffer>,
}

/// A request without a reply. `R` is the protocol's state for the reply.
#[derive(Debug)]
pub(in crate::exports) struct PendingRequest<R> {
    pub(in crate::exports) reply: R,
    /// Requests of the pool in flight for this request.
    pub(in crate::exports) in_flight: usize,
    /// All parts have been submitted.
    pub(in crate::exports) is_submitted: bool,
    /// A flush follows the parts, before the reply.
    pub(in crate::exports) needs_flush: bool,
    /// The first error.
    pub(in crate::exports) error: Option<(Errno, String)>,
    pub(in crate::exports) parts: Vec<Part>,
}

impl<R> PendingRequest<R> {
    /// Records an error, unless there is one already.
    pub(in crate::exports) fn fail(&mut self, errno: Errno, text: String) {
        self.error.get_or_insert((errno, text));
    }

    /// True if all parts are done. The flush after them may be missing.
    pub(in crate::exports) fn are_parts_done(&self) -> bool {
        self.is_submitted && self.in_flight == 0
    }
}

#[derive(Debug)]
pub(in crate::exports) struct PendingTable<R> {
    slots: Vec<PendingRequest<R>>,
    free: Vec<u32>,
}

/// The index of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::exports) struct PendingId(u32);

impl<R> Default for PendingTable<R> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<R> PendingTable<R> {
    pub(in crate::exports) fn is_full(&self) -> bool {
        self.free.is_empty() && self.slots.len() == REQUESTS_MAX
    }

    pub(in crate::exports) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Takes a slot. The table must not be full.
    pub(in crate::exports) fn insert(&mut self, reply: R) -> PendingId {
        let Some(id) = self.free.pop() else {
            self.slots.push(PendingRequest {
                reply,
                in_flight: 0,
                is_submitted: false,
                needs_flush: false,
                error: None,
                parts: Vec::new(),
            });
            return PendingId((self.slots.len() - 1) as u32);
        };
        let slot = &mut self.slots[id as usize];
        debug_assert!(slot.parts.is_empty() && slot.in_flight == 0);
        slot.reply = reply;
        (slot.is_submitted, slot.needs_flush, slot.error) = (false, false, None);
        PendingId(id)
    }

    pub(in crate::exports) fn get(&mut self, id: PendingId) -> &mut PendingRequest<R> {
        &mut self.slots[id.0 as usize]
    }

    /// Frees a slot and drops the memory that it still has.
    pub(in crate::exports) fn remove(&mut self, id: PendingId) {
        self.slots[id.0 as usize].parts.clear();
        self.free.push(id.0);
    }
}

impl PendingId {
    /// Encodes a part of this request as the user data of a request of the pool.
    pub(in crate::exports) fn user_data(self, part: usize) -> u64 {
        u64::from(self.0) << 32 | part as u64
    }

    /// Decodes [`Self::user_data`].
    pub(in crate::exports) fn from_user_data(number: u64) -> (Self, usize) {
        (
            Self((number >> 32) as u32),
            (number & u64::from(u32::MAX)) as usize,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_reused_and_limited() {
        let mut table = PendingTable::default();
        assert!(table.is_empty());
        let ids: Vec<_> = (0..REQUESTS_MAX).map(|n| table.insert(n as u64)).collect();
        assert!(table.is_full());
        table.remove(ids[7]);
        assert!(!table.is_full() && !table.is_empty());
        assert_eq!(table.insert(1000), ids[7]);
        assert_eq!(table.get(ids[7]).reply, 1000);
        assert!(table.is_full());
    }

    #[test]
    fn part_and_request_survive_as_user_data() {
        let mut table = PendingTable::default();
        table.insert(());
        let id = table.insert(());
        assert_eq!(PendingId::from_user_data(id.user_data(3)), (id, 3));
    }
}
