//! Requests on their way to the dispatcher.
//!
//! The slot that a request has taken is also where it is stored until the dispatcher takes it in. The
//! submitter first stores the request and then links the slot. The dispatcher therefore never finds a
//! half-done push that it would have to wait for.

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
    /// By slot. Only the slot's owner locks a cell, so no lock is ever contended.
    cells: Box<[Mutex<Option<Submitted>>]>,
    arrived: IndexStack,
}

impl Inbox {
    /// An inbox for this number of slots.
    pub(super) fn new(places: u32) -> Self {
        Self {
            cells: (0..places).map(|_| Mutex::default()).collect(),
            arrived: IndexStack::new(places),
        }
    }

    /// Stores a request in its slot and links the slot.
    pub(super) fn push(&self, id: RequestId, io: Io) {
        let index = index_of(id);
        *self.cells[index].lock() = Some(Submitted { id, io });
        self.arrived.push(index as u32);
    }

    /// The next request in order of arrival. The dispatcher passes the same `batch` in each call.
    pub(super) fn pop(&self, batch: &mut Vec<u32>) -> Option<Submitted> {
        loop {
            let index = self.arrived.take_first(batch)?;
            // The cell is empty if the inbox has been closed and cleared.
            if let Some(submitted) = self.cells[index as usize].lock().take() {
                return Some(submitted);
            }
        }
    }

    /// The number of slots.
    pub(super) fn capacity(&self) -> usize {
        self.cells.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.arrived.is_empty()
    }

    /// Drops all requests, also those in the dispatcher's batch; dropping a request answers it.
    pub(super) fn clear(&self) {
        for cell in &self.cells {
            drop(cell.lock().take());
        }
    }
}
