//! Notification of players about new blocks and the end of a recording.

use std::io;
use std::sync::{Arc, Weak};

use engine::event::EventFd;

/// Events that are signalled as long as they have another owner.
#[derive(Debug, Default)]
pub(super) struct Listeners(Vec<Weak<EventFd>>);

impl Listeners {
    /// Adds an event. Events without another owner are dropped here, not in [`tell`](Self::tell), which is
    /// not called while nothing is recorded.
    ///
    /// # Errors
    /// When the process has no free file descriptor.
    pub(super) fn add(&mut self) -> io::Result<Arc<EventFd>> {
        let event = Arc::new(EventFd::new()?);
        self.0.retain(|of| of.strong_count() > 0);
        self.0.push(Arc::downgrade(&event));
        Ok(event)
    }

    /// Signals all events that have another owner.
    pub(super) fn tell(&self) {
        for event in self.0.iter().filter_map(Weak::upgrade) {
            event.signal();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_signalled_until_they_are_dropped() {
        let mut listeners = Listeners::default();
        let listener = listeners.add().unwrap();
        for _ in 0..1_000 {
            drop(listeners.add().unwrap());
        }
        assert_eq!(listeners.0.len(), 2);
        assert!(!listener.drain());
        listeners.tell();
        assert!(listener.drain());
    }
}
