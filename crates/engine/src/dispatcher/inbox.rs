//! Requests on their way to the dispatcher.
//!
//! The place that a request has taken is also where it lies until the dispatcher takes it in: the
//! submitter puts it there first and links the place afterwards, so there is nothing half done that the
//! dispatcher could find and have to wait for.

use parking_lot::Mutex;
use sched::request::RequestId;

use super::request::Io;
use super::slots::index_of;
use crate::handoff::IndexStack;

/// A request on its way in.
pub(super) struct Submitted {
    pub(super) id: RequestId,
    pub(super) io: Io,
}

/// See the [module](self).
pub(super) struct Inbox {
    /// By place. Only who has the place locks it, so nobody ever waits.
    cells: Box<[Mutex<Option<Submitted>>]>,
    arrived: IndexStack,
}

impl Inbox {
    /// For so many places.
    pub(super) fn new(places: u32) -> Self {
        Self {
            cells: (0..places).map(|_| Mutex::default()).collect(),
            arrived: IndexStack::new(places),
        }
    }

    /// Puts a request into its place.
    pub(super) fn push(&self, id: RequestId, io: Io) {
        let index = index_of(id);
        *self.cells[index].lock() = Some(Submitted { id, io });
        self.arrived.push(index as u32);
    }

    /// The next request in the order in which they came. `batch` is the dispatcher's, always the same.
    pub(super) fn pop(&self, batch: &mut Vec<u32>) -> Option<Submitted> {
        loop {
            let index = self.arrived.take_first(batch)?;
            // It is gone already if the way in has been closed and cleared.
            if let Some(submitted) = self.cells[index as usize].lock().take() {
                return Some(submitted);
            }
        }
    }

    /// How many requests fit.
    pub(super) fn capacity(&self) -> usize {
        self.cells.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.arrived.is_empty()
    }

    /// Drops what is here, also what the dispatcher was about to take, which answers it.
    pub(super) fn clear(&self) {
        for cell in &self.cells {
            drop(cell.lock().take());
        }
    }
}
