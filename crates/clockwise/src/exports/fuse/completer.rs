//! A thread that answers completions. One edge-triggered epoll watches the completions and the memory of all its
//! queues, so that a request needs no change of the watched set and no read of an event counter.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::event::EventFd;
use rustix::event::epoll;

use super::volume_queue::{QueueEvent, VolumeQueue};

/// The most events that one call returns.
const EVENTS: usize = 64;

/// Epoll data of the event that ends the thread. No queue has this identifier.
const STOP: u64 = u64::MAX;

/// The state that the thread shares with the others.
#[derive(Debug)]
pub(super) struct Completer {
    epoll: OwnedFd,
    stop: EventFd,
    queues: Mutex<HashMap<u64, Arc<VolumeQueue>>>,
    next_id: AtomicU64,
}

/// The epoll data of an event of queue `id`.
fn event_data(id: u64, event: QueueEvent) -> epoll::EventData {
    epoll::EventData::new_u64(id << 1 | u64::from(event == QueueEvent::Memory))
}

/// Decodes [`event_data`].
fn decode(data: u64) -> (u64, QueueEvent) {
    let event = match data & 1 {
        0 => QueueEvent::Completions,
        _ => QueueEvent::Memory,
    };
    (data >> 1, event)
}

impl Completer {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let stop = EventFd::new()?;
        let data = epoll::EventData::new_u64(STOP);
        epoll::add(&epoll, &stop, data, epoll::EventFlags::IN)?;
        Ok(Self {
            epoll,
            stop,
            queues: Mutex::default(),
            next_id: AtomicU64::new(0),
        })
    }

    /// Adds a queue whose completions are answered from now on. Returns its identifier for [`Self::remove`].
    pub(super) fn add(&self, queue: &Arc<VolumeQueue>) -> io::Result<u64> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.queues().insert(id, Arc::clone(queue));
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let watched = queue.with_events(|completions, memory| {
            let data = event_data(id, QueueEvent::Completions);
            epoll::add(&self.epoll, completions, data, flags)?;
            epoll::add(
                &self.epoll,
                memory,
                event_data(id, QueueEvent::Memory),
                flags,
            )
        });
        if let Err(error) = watched {
            self.remove(id);
            return Err(error.into());
        }
        Ok(id)
    }

    pub(super) fn remove(&self, id: u64) {
        let queue = self.queues().remove(&id);
        if let Some(queue) = queue {
            queue.with_events(|completions, memory| {
                // Requests in flight keep the events open, and so in epoll. An event that could not be added is absent.
                let _ = epoll::delete(&self.epoll, completions);
                let _ = epoll::delete(&self.epoll, memory);
            });
        }
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<u64, Arc<VolumeQueue>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        self.stop.signal();
    }

    /// The body of the thread.
    pub(super) fn run(&self) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        loop {
            let space = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, space, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                // Only an invalid descriptor fails here. The thread cannot answer anything without events.
                Err(error) => panic!("the FUSE export cannot wait for events: {error}"),
            }
            for event in events.drain(..) {
                let data = event.data.u64();
                if data == STOP {
                    return;
                }
                let (id, event) = decode(data);
                let queue = self.queues().get(&id).cloned();
                if let Some(queue) = queue {
                    queue.handle(event);
                }
            }
        }
    }
}
