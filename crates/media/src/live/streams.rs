//! The live streams of a server, by their names.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sched::units::Time;

use super::feed::{LiveFeed, LiveWriter};
use crate::sdp::Description;

/// Another source sends to the stream.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("stream {0:?} has a source already")]
pub struct LiveBusy(String);

/// The live streams of a server.
#[derive(Debug, Default)]
pub struct LiveStreams {
    by_name: Mutex<BTreeMap<String, Arc<LiveFeed>>>,
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
