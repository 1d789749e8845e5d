//! Requests in order of time, where those of a trace are a little out of order: tools that collect from several
//! processors, or that write a request down when it is done, do not quite keep it.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use sched::units::{Nanos, Time};

use crate::trace::TraceRequest;

/// A request that is no more than so much earlier than one before it is put in its place.
const LATE_MAX: Nanos = Nanos(1_000_000_000);

/// A request and its time in terms of the trace.
struct Waiting {
    at_ns: u64,
    /// Its number: at equal times the first goes first.
    number: u64,
    request: TraceRequest,
}

/// The requests that one yet to be read may go before.
#[derive(Default)]
pub(super) struct Order {
    waiting: BinaryHeap<Reverse<Waiting>>,
    first_ns: Option<u64>,
    latest_ns: u64,
    count: u64,
}

impl Order {
    /// Checks that a request of this time can still be put in its place.
    pub(super) fn has_place(&self, at_ns: u64) -> Result<(), String> {
        let back = Nanos(self.latest_ns.saturating_sub(at_ns));
        if back > LATE_MAX {
            return Err(format!(
                "it is {back} earlier than a previous record, and only up to {LATE_MAX} are reordered: sort the trace by time"
            ));
        }
        Ok(())
    }

    /// Takes a request that has its place.
    pub(super) fn put(&mut self, at_ns: u64, request: TraceRequest) {
        self.latest_ns = self.latest_ns.max(at_ns);
        self.count += 1;
        self.waiting.push(Reverse(Waiting {
            at_ns,
            number: self.count,
            request,
        }));
    }

    /// The next request, if none that goes before it may come: as far as times tell, or because it is the next one
    /// anyway (`is_next`). The first is at time zero.
    pub(super) fn take(&mut self, is_next: bool) -> Option<TraceRequest> {
        let next_ns = self.waiting.peek()?.0.at_ns;
        if !is_next && self.latest_ns - next_ns < LATE_MAX.get() {
            return None;
        }
        let Reverse(Waiting { mut request, .. }) = self.waiting.pop()?;
        let first_ns = *self.first_ns.get_or_insert(next_ns);
        request.at = Time::ZERO + Nanos(next_ns - first_ns);
        Some(request)
    }

    /// Forgets what waits.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }
}

impl Waiting {
    fn key(&self) -> (u64, u64) {
        (self.at_ns, self.number)
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Waiting {}
