//! Slots limit the transfers at a time. A transfer whose client takes nothing loses its slots when another
//! transfer needs them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::error::SendTimeoutError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

/// Why a piece could not be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SendError {
    /// The client has disconnected.
    Closed,
    /// The client has taken nothing for long, and another transfer needs the slots.
    Stalled,
    /// The server is ending.
    ServerEnds,
}

/// The slots of a kind of transfer. A transfer has one slot or several.
#[derive(Debug)]
pub(super) struct Slots {
    /// The free slots.
    pub(super) free: Arc<Semaphore>,
    /// The largest number of slots that was refused since the last time that as many were granted; 0 if none
    /// was.
    wanted: AtomicUsize,
    /// True when the server is ending.
    ends: watch::Sender<bool>,
}

impl Slots {
    pub(super) fn new(count: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(count)),
            wanted: AtomicUsize::new(0),
            ends: watch::Sender::new(false),
        }
    }

    /// Ends all transfers, and refuses new ones.
    pub(super) fn close(&self) {
        self.ends.send_replace(true);
    }

    pub(super) fn is_closed(&self) -> bool {
        *self.ends.borrow()
    }

    /// Takes one slot.
    pub(super) fn permit(&self) -> Option<OwnedSemaphorePermit> {
        self.permits(1)
    }

    /// Takes `count` slots. If they are not free, transfers that stall will give up as many.
    pub(super) fn permits(&self, count: usize) -> Option<OwnedSemaphorePermit> {
        let free = Arc::clone(&self.free);
        let permits = free.try_acquire_many_owned(count as u32).ok();
        let permits = permits.filter(|_| !self.is_closed());
        let is_granted = permits.is_some();
        let wanted = |wanted: usize| match is_granted {
            // A transfer that needs more slots still waits.
            true if count < wanted => wanted,
            true => 0,
            false => wanted.max(count),
        };
        let (set, get) = (Ordering::AcqRel, Ordering::Acquire);
        let _ = self.wanted.fetch_update(set, get, |of| Some(wanted(of)));
        permits
    }

    /// Sends a piece to a client, for a transfer that holds `own` slots. The client may take it at any time,
    /// unless it takes longer than `within` and another transfer needs the slots.
    pub(super) async fn send<T>(
        &self,
        queue: &mpsc::Sender<T>,
        mut piece: T,
        own: usize,
        within: Duration,
    ) -> Result<(), SendError> {
        let mut ends = self.ends.subscribe();
        loop {
            let sent = tokio::select! {
                sent = queue.send_timeout(piece, within) => sent,
                _ = ends.wait_for(|ends| *ends) => return Err(SendError::ServerEnds),
            };
            piece = match sent {
                Ok(()) => return Ok(()),
                Err(SendTimeoutError::Closed(_)) => return Err(SendError::Closed),
                Err(SendTimeoutError::Timeout(_)) if self.must_yield(own) => {
                    return Err(SendError::Stalled);
                }
                Err(SendTimeoutError::Timeout(piece)) => piece,
            };
        }
    }

    /// True if a transfer with `own` slots has to give them up for another one. Only as many transfers get
    /// true as are needed.
    pub(super) fn must_yield(&self, own: usize) -> bool {
        let mut is_needed = false;
        let (set, get) = (Ordering::AcqRel, Ordering::Acquire);
        let _ = self.wanted.fetch_update(set, get, |wanted| {
            let free = self.free.available_permits();
            is_needed = wanted > free;
            (is_needed && free + own >= wanted).then_some(0)
        });
        is_needed
    }
}
