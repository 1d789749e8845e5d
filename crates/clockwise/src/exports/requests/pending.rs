//! The requests of one client that have no reply yet.
//!
//! A fixed number of places; a place keeps its list of parts when its request is done, so that a
//! client that has warmed up allocates nothing for a request.

use engine::buffer::Buffer;

use super::Errno;

/// The most requests that a client may have in flight; the busiest one known, the kernel's, has 128.
/// Further ones wait where they come from.
pub(in crate::exports) const REQUESTS_MAX: usize = 256;

/// A contiguous piece of a request, on the disks as one request of the pool.
#[derive(Debug)]
pub(in crate::exports) struct Part {
    pub(in crate::exports) offset: u64,
    pub(in crate::exports) bytes: usize,
    /// Its memory, until the reply is on its way.
    pub(in crate::exports) buffer: Option<Buffer>,
}

/// A request without a reply, and how it is to be answered.
#[derive(Debug)]
pub(in crate::exports) struct Pending<A> {
    pub(in crate::exports) answer: A,
    /// Parts that are on the disks.
    pub(in crate::exports) in_flight: usize,
    /// No part is to come any more.
    pub(in crate::exports) complete: bool,
    /// When all parts are done, a flush follows before the reply.
    pub(in crate::exports) flush: bool,
    /// What went wrong first.
    pub(in crate::exports) error: Option<(Errno, String)>,
    pub(in crate::exports) parts: Vec<Part>,
}

impl<A> Pending<A> {
    /// Notes an error; the first one counts.
    pub(in crate::exports) fn fail(&mut self, errno: Errno, text: String) {
        self.error.get_or_insert((errno, text));
    }

    /// Whether nothing is left to wait for but perhaps a flush.
    pub(in crate::exports) fn is_finished(&self) -> bool {
        self.complete && self.in_flight == 0
    }
}

/// The places.
#[derive(Debug)]
pub(in crate::exports) struct PendingTable<A> {
    places: Vec<Pending<A>>,
    free: Vec<u32>,
}

/// Names a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::exports) struct PendingId(u32);

impl<A> Default for PendingTable<A> {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<A> PendingTable<A> {
    /// Whether every place is taken.
    pub(in crate::exports) fn is_full(&self) -> bool {
        self.free.is_empty() && self.places.len() == REQUESTS_MAX
    }

    /// Whether no place is taken.
    pub(in crate::exports) fn is_empty(&self) -> bool {
        self.free.len() == self.places.len()
    }

    /// Takes a place. The table must not be full.
    pub(in crate::exports) fn insert(&mut self, answer: A) -> PendingId {
        let Some(id) = self.free.pop() else {
            self.places.push(Pending {
                answer,
                in_flight: 0,
                complete: false,
                flush: false,
                error: None,
                parts: Vec::new(),
            });
            return PendingId((self.places.len() - 1) as u32);
        };
        let place = &mut self.places[id as usize];
        debug_assert!(place.parts.is_empty() && place.in_flight == 0);
        place.answer = answer;
        (place.complete, place.flush, place.error) = (false, false, None);
        PendingId(id)
    }

    pub(in crate::exports) fn get(&mut self, id: PendingId) -> &mut Pending<A> {
        &mut self.places[id.0 as usize]
    }

    /// Gives a place back, dropping what memory it still has.
    pub(in crate::exports) fn remove(&mut self, id: PendingId) {
        self.places[id.0 as usize].parts.clear();
        self.free.push(id.0);
    }
}

impl PendingId {
    /// The pool request of part `part`, as a number.
    pub(in crate::exports) fn user_data(self, part: usize) -> u64 {
        u64::from(self.0) << 32 | part as u64
    }

    /// Takes such a number apart.
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
    fn places_are_used_again_and_have_a_limit() {
        let mut table = PendingTable::default();
        assert!(table.is_empty());
        let ids: Vec<_> = (0..REQUESTS_MAX).map(|n| table.insert(n as u64)).collect();
        assert!(table.is_full());
        table.remove(ids[7]);
        assert!(!table.is_full() && !table.is_empty());
        assert_eq!(table.insert(1000), ids[7]);
        assert_eq!(table.get(ids[7]).answer, 1000);
        assert!(table.is_full());
    }

    #[test]
    fn a_part_is_named_by_one_number() {
        let mut table = PendingTable::default();
        table.insert(());
        let id = table.insert(());
        assert_eq!(PendingId::from_user_data(id.user_data(3)), (id, 3));
    }
}
