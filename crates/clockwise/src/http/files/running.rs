//! Who has a place to make or send something, and who gives one up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::error::SendTimeoutError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

/// Why a piece is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Untaken {
    /// Nobody takes it any more.
    Closed,
    /// Nobody has for long, and somebody else wants the places.
    Stalled,
    /// The server ends.
    Ends,
}

/// What is being made or sent, each in a place or several.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) places: Arc<Semaphore>,
    /// Somebody was refused so many of them, and nobody has got any since; 0: nobody was.
    wanted: AtomicUsize,
    /// The server ends.
    pub(super) ends: watch::Sender<bool>,
}

impl Running {
    pub(super) fn new(most: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(most)),
            wanted: AtomicUsize::new(0),
            ends: watch::Sender::new(false),
        }
    }

    pub(super) fn is_ending(&self) -> bool {
        *self.ends.borrow()
    }

    pub(super) fn permit(&self) -> Option<OwnedSemaphorePermit> {
        self.permits(1)
    }

    pub(super) fn permits(&self, count: usize) -> Option<OwnedSemaphorePermit> {
        let places = Arc::clone(&self.places);
        let places = places.try_acquire_many_owned(count as u32).ok();
        let places = places.filter(|_| !self.is_ending());
        let is_had = places.is_some();
        let wanted = |wanted: usize| match is_had {
            // Who wants more has not got any.
            true if count < wanted => wanted,
            true => 0,
            false => wanted.max(count),
        };
        let (set, get) = (Ordering::AcqRel, Ordering::Acquire);
        let _ = self.wanted.fetch_update(set, get, |of| Some(wanted(of)));
        places
    }

    /// Hands a piece to who takes it, whose sender has so many places. Who has paused may take it when he likes, as long as
    /// nobody else needs them.
    pub(super) async fn hand_on<T>(
        &self,
        send: &mpsc::Sender<T>,
        mut piece: T,
        own: usize,
        within: Duration,
    ) -> Result<(), Untaken> {
        let mut ends = self.ends.subscribe();
        loop {
            let sent = tokio::select! {
                sent = send.send_timeout(piece, within) => sent,
                _ = ends.wait_for(|ends| *ends) => return Err(Untaken::Ends),
            };
            piece = match sent {
                Ok(()) => return Ok(()),
                Err(SendTimeoutError::Closed(_)) => return Err(Untaken::Closed),
                Err(SendTimeoutError::Timeout(_)) if self.gives_up(own) => {
                    return Err(Untaken::Stalled);
                }
                Err(SendTimeoutError::Timeout(piece)) => piece,
            };
        }
    }

    /// Whether places are to be given up for somebody by who has so many: as many do as are needed for that.
    pub(super) fn gives_up(&self, own: usize) -> bool {
        let mut is_needed = false;
        let (set, get) = (Ordering::AcqRel, Ordering::Acquire);
        let _ = self.wanted.fetch_update(set, get, |wanted| {
            let free = self.places.available_permits();
            is_needed = wanted > free;
            (is_needed && free + own >= wanted).then_some(0)
        });
        is_needed
    }
}
