//! Sleeping until one of several descriptors is ready.

use std::os::fd::BorrowedFd;

use engine::clock;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use sched::units::{Nanos, Time};

/// Descriptors to wait for, each with an event that stands for it.
pub(crate) struct Wait<'a, T> {
    fds: Vec<PollFd<'a>>,
    events: Vec<T>,
    /// Events that are ready without a descriptor.
    at_once: Vec<T>,
}

impl<'a, T: Copy> Wait<'a, T> {
    pub(crate) fn new() -> Self {
        Self {
            fds: Vec::with_capacity(8),
            events: Vec::with_capacity(8),
            at_once: Vec::new(),
        }
    }

    pub(crate) fn readable(&mut self, fd: BorrowedFd<'a>, event: T) {
        self.add(fd, PollFlags::IN, event);
    }

    pub(crate) fn add(&mut self, fd: BorrowedFd<'a>, flags: PollFlags, event: T) {
        self.fds.push(PollFd::from_borrowed_fd(fd, flags));
        self.events.push(event);
    }

    /// Adds an event that is ready already.
    pub(crate) fn at_once(&mut self, event: T) {
        self.at_once.push(event);
    }

    /// Sleeps until one is ready, or `until`; returns the events that are ready. If `armed` is false, it does not
    /// sleep.
    pub(crate) fn sleep(mut self, armed: bool, until: Option<Time>) -> std::io::Result<Vec<T>> {
        let left = until.map(|until| until.saturating_since(clock::now()));
        let may_sleep = armed && self.at_once.is_empty();
        let left = if may_sleep { left } else { Some(Nanos::ZERO) };
        match rustix::event::poll(&mut self.fds, left.map(clock::timespec_of).as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = self.fds.iter().zip(&self.events);
        let ready = ready.filter(|(fd, _)| !fd.revents().is_empty());
        Ok(ready.map(|(_, event)| *event).chain(self.at_once).collect())
    }
}
