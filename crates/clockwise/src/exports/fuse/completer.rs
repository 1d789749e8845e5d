//! A thread that answers what the disks complete: one epoll for the completions and the memory of the
//! lanes that it has, edge-triggered, so that nothing is registered, changed or drained for a request.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use engine::event::EventFd;
use rustix::event::epoll;

use super::lane::Lane;

/// How many events are fetched at a time.
const EVENTS: usize = 64;

/// The number of the event that ends the thread; no lane has it.
const STOP: u64 = u64::MAX;

/// The state that the thread and others share.
#[derive(Debug)]
pub(super) struct Completer {
    epoll: OwnedFd,
    stop: EventFd,
    lanes: Mutex<HashMap<u64, Arc<Lane>>>,
    numbers: AtomicU64,
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
            lanes: Mutex::default(),
            numbers: AtomicU64::new(0),
        })
    }

    /// Answers what is completed in a lane from now on; the number by which it is [removed](Self::remove).
    pub(super) fn add(&self, lane: &Arc<Lane>) -> io::Result<u64> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        self.lanes().insert(number, Arc::clone(lane));
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let watched = lane.events(|completions, memory| {
            let data = |event| epoll::EventData::new_u64(number << 1 | event);
            epoll::add(&self.epoll, completions, data(0), flags)?;
            epoll::add(&self.epoll, memory, data(1), flags)
        });
        if let Err(error) = watched {
            self.remove(number);
            return Err(error.into());
        }
        Ok(number)
    }

    pub(super) fn remove(&self, number: u64) {
        let lane = self.lanes().remove(&number);
        if let Some(lane) = lane {
            lane.events(|completions, memory| {
                // Requests in flight keep the events open, and with them their places in epoll. One that could not be
                // added is not there.
                let _ = epoll::delete(&self.epoll, completions);
                let _ = epoll::delete(&self.epoll, memory);
            });
        }
    }

    fn lanes(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<Lane>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        self.stop.signal();
    }

    /// The thread.
    pub(super) fn run(&self) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        loop {
            let space = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, space, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                // Only a broken descriptor table does this; without events nothing can be answered, and the server ends.
                Err(error) => panic!("the FUSE export cannot wait for events: {error}"),
            }
            for event in events.drain(..) {
                let data = event.data.u64();
                if data == STOP {
                    return;
                }
                let lane = self.lanes().get(&(data >> 1)).cloned();
                if let Some(lane) = lane {
                    lane.event(data & 1 == 1);
                }
            }
        }
    }
}
