//! Who is told of what is written.

use std::io;
use std::sync::{Arc, Weak};

use engine::event::EventFd;

/// Events that are signalled as long as somebody keeps them.
#[derive(Debug, Default)]
pub(super) struct Listeners(Vec<Weak<EventFd>>);

impl Listeners {
    /// One more. Where nothing is written nobody else looks who has gone.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub(super) fn add(&mut self) -> io::Result<Arc<EventFd>> {
        let event = Arc::new(EventFd::new()?);
        self.0.retain(|of| of.strong_count() > 0);
        self.0.push(Arc::downgrade(&event));
        Ok(event)
    }

    /// Signals all that are kept.
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
    fn who_listens_is_told_and_who_has_gone_is_forgotten() {
        let mut listeners = Listeners::default();
        let kept = listeners.add().unwrap();
        for _ in 0..1_000 {
            drop(listeners.add().unwrap());
        }
        assert_eq!(listeners.0.len(), 2);
        assert!(!kept.drain());
        listeners.tell();
        assert!(kept.drain());
    }
}
