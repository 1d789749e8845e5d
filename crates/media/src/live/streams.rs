//! The live streams of a server, by their names.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use engine::event::EventFd;

use sched::units::Time;

use super::feed::{LiveFeed, LiveWriter};
use crate::sdp::Description;

/// Another source sends to the stream.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("stream {0:?} has a source already")]
pub struct LiveBusy(String);

/// A camera is pulled for this long after its stream was wanted last.
const WANTED_FOR: Duration = Duration::from_secs(10);

/// The demand for a stream whose camera is pulled only while it is watched.
#[derive(Debug)]
pub struct LiveDemand {
    event: EventFd,
    wanted_at: Mutex<Option<Instant>>,
}

impl LiveDemand {
    /// Readable when the stream has been wanted.
    #[must_use]
    pub fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Drains the event.
    pub fn drain(&self) {
        self.event.drain();
    }

    /// True if the stream was wanted a moment ago.
    #[must_use]
    pub fn is_recent(&self) -> bool {
        let wanted_at = self.wanted_at.lock();
        let wanted_at = *wanted_at.unwrap_or_else(PoisonError::into_inner);
        wanted_at.is_some_and(|at| at.elapsed() < WANTED_FOR)
    }

    /// The stream is watched now.
    pub fn note_watched(&self) {
        let wanted_at = self.wanted_at.lock();
        *wanted_at.unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

/// The live streams of a server.
#[derive(Debug, Default)]
pub struct LiveStreams {
    by_name: Mutex<BTreeMap<String, Arc<LiveFeed>>>,
    /// Streams that come when they are wanted.
    demands: Mutex<BTreeMap<String, Weak<LiveDemand>>>,
    /// Signalled when a stream can be played; with `by_name`.
    arrived: Condvar,
}

impl LiveStreams {
    fn by_name(&self) -> MutexGuard<'_, BTreeMap<String, Arc<LiveFeed>>> {
        // Each change is one step.
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stream of this name, if a source sends to it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<LiveFeed>> {
        self.by_name().get(name).map(Arc::clone)
    }

    /// The stream of this name. If its camera is pulled only on demand, it is pulled now, and the first key frame is
    /// waited for, at most `within`.
    #[must_use]
    pub fn want(&self, name: &str, within: Duration) -> Option<Arc<LiveFeed>> {
        let demands = self.demands.lock();
        let demands = demands.unwrap_or_else(PoisonError::into_inner);
        let demand = demands.get(name).and_then(Weak::upgrade);
        drop(demands);
        let Some(demand) = demand else {
            return self.get(name);
        };
        demand.note_watched();
        demand.event.signal();
        let until = Instant::now() + within;
        let mut by_name = self.by_name();
        loop {
            let found = by_name.get(name).map(Arc::clone);
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || found.as_ref().is_some_and(|feed| feed.has_picture()) {
                return found;
            }
            let waited = self.arrived.wait_timeout(by_name, left);
            by_name = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// True if the stream arrives, or comes when it is wanted.
    #[must_use]
    pub fn is_known(&self, name: &str) -> bool {
        let demands = self.demands.lock();
        let demands = demands.unwrap_or_else(PoisonError::into_inner);
        let is_offered = demands.get(name).is_some_and(|of| of.strong_count() > 0);
        drop(demands);
        is_offered || self.by_name().contains_key(name)
    }

    /// Offers a stream that comes when it is wanted, until the result is dropped.
    ///
    /// # Errors
    /// When the process has no free file descriptor.
    pub fn offer(&self, name: &str) -> io::Result<Arc<LiveDemand>> {
        let demand = Arc::new(LiveDemand {
            event: EventFd::new()?,
            wanted_at: Mutex::default(),
        });
        let demands = self.demands.lock();
        let mut demands = demands.unwrap_or_else(PoisonError::into_inner);
        demands.retain(|_, of| of.strong_count() > 0);
        demands.insert(name.to_owned(), Arc::downgrade(&demand));
        Ok(demand)
    }

    /// A stream can be played now.
    pub(super) fn tell_arrival(&self) {
        // With the lock, nobody is between a look and a wait.
        drop(self.by_name());
        self.arrived.notify_all();
    }

    /// All streams, by their names.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<LiveFeed>> {
        self.by_name().values().map(Arc::clone).collect()
    }

    /// Whether a stream of this name may begin.
    ///
    /// # Errors
    /// When another source sends to it.
    pub fn is_free(&self, name: &str) -> Result<(), LiveBusy> {
        match self.by_name().contains_key(name) {
            true => Err(LiveBusy(name.to_owned())),
            false => Ok(()),
        }
    }

    /// Begins a stream at this time, in nanoseconds since 1970 and on the monotonic clock; `recording` is the number of
    /// its recording in the volume of that name.
    ///
    /// # Errors
    /// When another source sends to it.
    pub fn begin(
        self: &Arc<Self>,
        name: &str,
        recording: Option<u64>,
        description: &Description,
        (begun_unix_ns, begun): (u64, Time),
    ) -> Result<LiveWriter, LiveBusy> {
        let mut by_name = self.by_name();
        if by_name.contains_key(name) {
            return Err(LiveBusy(name.to_owned()));
        }
        let feed = LiveFeed::new(
            name.to_owned(),
            recording,
            description.clone(),
            (begun_unix_ns, begun),
        );
        let feed = Arc::new(feed);
        by_name.insert(name.to_owned(), Arc::clone(&feed));
        Ok(LiveWriter::new(feed, Arc::clone(self)))
    }

    /// Ends a stream.
    pub(super) fn end(&self, feed: &Arc<LiveFeed>) {
        let mut by_name = self.by_name();
        if by_name
            .get(feed.name())
            .is_some_and(|of| Arc::ptr_eq(of, feed))
        {
            by_name.remove(feed.name());
        }
    }
}
