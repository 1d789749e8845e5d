//! Events: the last of them in memory, for clients that follow them.
//!
//! The ring keeps [`KEPT`] events. A client has nothing but the number of the last event that it has got, so a slow
//! client costs no memory: it is told how many events it has missed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use crate::wire::events::{EventKind, EventView};

/// The most events that are kept.
const KEPT: usize = 1_000;

/// Numbers of one run of the server. The first number of a run is its start in Unix seconds times this.
const NUMBERS_PER_SECOND: u64 = 1_000_000;

/// The events of this run of the server.
pub struct Events {
    ring: Mutex<Ring>,
    /// The number of the newest event, or of the one before the first; closed with the ring.
    newest: watch::Sender<u64>,
}

struct Ring {
    /// The first number of this run.
    first: u64,
    kept: VecDeque<EventView>,
    is_closed: bool,
}

impl Default for Events {
    fn default() -> Self {
        Self::above(0)
    }
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}

impl Events {
    /// The events of a run of the server, with numbers above this one: the clock may have gone back since the last run.
    #[must_use]
    pub fn above(number: u64) -> Self {
        let by_clock = unix_ns() / 1_000_000_000 * NUMBERS_PER_SECOND;
        Self::starting_at(by_clock.max(number.saturating_add(1)))
    }

    /// `first` is the number of the first event; it is at least 1.
    fn starting_at(first: u64) -> Self {
        let first = first.max(1);
        Self {
            ring: Mutex::new(Ring {
                first,
                kept: VecDeque::new(),
                is_closed: false,
            }),
            newest: watch::Sender::new(first - 1),
        }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        // Each change is one step.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event that happens now. Its number and time are set here. Never waits for a client.
    pub fn emit(&self, event: EventView) {
        let mut ring = self.ring();
        let id = *self.newest.borrow() + 1;
        if ring.kept.len() == KEPT {
            ring.kept.pop_front();
        }
        ring.kept.push_back(EventView {
            id,
            at_unix_ns: unix_ns(),
            ..event
        });
        self.newest.send_replace(id);
    }

    /// Ends all readers.
    pub fn close(&self) {
        self.ring().is_closed = true;
        self.newest.send_modify(|_| ());
    }

    /// The number of the newest event, or of the one before the first.
    #[must_use]
    pub fn newest(&self) -> u64 {
        *self.newest.borrow()
    }

    /// A reader of the events after the one with the number `last`; without it, of those that come.
    #[must_use]
    pub fn read(self: &Arc<Self>, last: Option<u64>) -> EventReader {
        let news = self.newest.subscribe();
        let last = last.unwrap_or_else(|| *news.borrow());
        EventReader {
            events: Arc::clone(self),
            last,
            news,
        }
    }
}

/// A client's place in the events.
pub struct EventReader {
    events: Arc<Events>,
    /// The number of the last event that it has returned.
    last: u64,
    news: watch::Receiver<u64>,
}

impl EventReader {
    /// Waits for the next event; `None` at the end of the server. May be dropped at any time without losing an event.
    pub async fn next(&mut self) -> Option<EventView> {
        loop {
            self.news.mark_unchanged();
            if let Some(event) = self.present() {
                return event;
            }
            // The events own the sender, and the reader owns the events.
            self.news.changed().await.ok()?;
        }
    }

    /// The next event if it is there.
    pub fn next_now(&mut self) -> Option<EventView> {
        self.present().flatten()
    }

    /// The next event if it is there; `Some(None)` at the end.
    fn present(&mut self) -> Option<Option<EventView>> {
        let events = Arc::clone(&self.events);
        let ring = events.ring();
        let oldest = ring.kept.front().map_or(ring.first, |of| of.id);
        let newest = ring.kept.back().map_or(ring.first - 1, |of| of.id);
        if self.last == 0 {
            self.last = ring.first - 1;
        }
        if self.last + 1 < oldest {
            // How many events an earlier run of the server had after that number is not known.
            let is_of_this_run = self.last + 1 >= ring.first;
            let lost = is_of_this_run.then(|| oldest - self.last - 1);
            self.last = oldest - 1;
            return Some(Some(self.lost(lost)));
        }
        // A number from a run whose clock was ahead.
        self.last = self.last.min(newest);
        let next = usize::try_from(self.last + 1 - oldest).ok();
        if let Some(event) = next.and_then(|next| ring.kept.get(next)) {
            self.last = event.id;
            return Some(Some(event.clone()));
        }
        ring.is_closed.then_some(None)
    }

    /// The event that says how many are gone. It has the number of the last of them.
    fn lost(&self, lost: Option<u64>) -> EventView {
        let what = match lost {
            Some(count) => format!("{count} events are gone; the server keeps the last {KEPT}"),
            None => "events before the start of the server are gone".to_owned(),
        };
        EventView {
            id: self.last,
            at_unix_ns: unix_ns(),
            lost,
            ..EventView::new(EventKind::Lost, what)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn emit(events: &Events, count: usize) {
        for _ in 0..count {
            events.emit(EventView::new(EventKind::DiskBack, "it is back".to_owned()));
        }
    }

    /// The events for a reader now: the number, and how many are lost.
    fn seen(reader: &mut EventReader) -> Vec<(u64, bool, Option<u64>)> {
        let mut seen = Vec::new();
        loop {
            let next = std::pin::pin!(reader.next());
            let mut context = Context::from_waker(Waker::noop());
            match std::future::Future::poll(next, &mut context) {
                Poll::Ready(Some(event)) => {
                    seen.push((event.id, event.kind == EventKind::Lost, event.lost));
                }
                Poll::Ready(None) | Poll::Pending => return seen,
            }
        }
    }

    #[test]
    fn numbers_go_on_where_the_clock_has_gone_back() {
        let in_an_hour = (unix_ns() / 1_000_000_000 + 3_600) * NUMBERS_PER_SECOND;
        assert_eq!(Events::above(in_an_hour).newest(), in_an_hour);
        let now = Events::above(7).newest();
        assert!(now > 7 && now < in_an_hour, "{now}");
    }

    #[test]
    fn reader_gets_what_follows_its_number_and_is_told_what_is_gone() {
        let events = Arc::new(Events::starting_at(500));
        let mut new = events.read(None);
        let mut whole = events.read(Some(0));
        assert_eq!(seen(&mut whole), []);
        emit(&events, 3);
        let three = [(500, false, None), (501, false, None), (502, false, None)];
        assert_eq!(seen(&mut new), three);
        assert_eq!(seen(&mut whole), three);
        assert_eq!(seen(&mut new), []);
        assert_eq!(seen(&mut events.read(Some(501))), three[2..]);
        // Of an earlier run, and of one whose clock was ahead.
        let earlier = seen(&mut events.read(Some(77)));
        assert_eq!((earlier[0], &earlier[1..]), ((499, true, None), &three[..]));
        let mut ahead = events.read(Some(9_000));
        assert_eq!(seen(&mut ahead), []);
        emit(&events, 1);
        assert_eq!(seen(&mut ahead), [(503, false, None)]);
        // The ring is full and has lost 500 to 504.
        let mut slow = events.read(Some(501));
        emit(&events, KEPT + 1);
        let late = seen(&mut slow);
        assert_eq!(late[0], (504, true, Some(3)));
        assert_eq!((late[1].0, late.len()), (505, KEPT + 1));
        let all = seen(&mut events.read(Some(0)));
        assert_eq!((all[0], all.len()), ((504, true, Some(5)), KEPT + 1));
    }

    #[test]
    fn readers_end_with_the_server() {
        let events = Arc::new(Events::default());
        let mut reader = events.read(None);
        emit(&events, 1);
        events.close();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            assert!(reader.next().await.is_some());
            assert!(reader.next().await.is_none());
        });
    }
}
