//! What a connection's thread sleeps for.

use std::os::fd::BorrowedFd;

use engine::clock;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use sched::units::{Nanos, Time};

/// Descriptors that are waited for, each with what is done when it is ready.
pub(crate) struct Wait<'a, T> {
    fds: Vec<PollFd<'a>>,
    what: Vec<T>,
    at_once: Vec<T>,
}

impl<'a, T: Copy> Wait<'a, T> {
    pub(crate) fn new() -> Self {
        Self {
            fds: Vec::with_capacity(8),
            what: Vec::with_capacity(8),
            at_once: Vec::new(),
        }
    }

    pub(crate) fn readable(&mut self, fd: BorrowedFd<'a>, what: T) {
        self.add(fd, PollFlags::IN, what);
    }

    pub(crate) fn add(&mut self, fd: BorrowedFd<'a>, flags: PollFlags, what: T) {
        self.fds.push(PollFd::from_borrowed_fd(fd, flags));
        self.what.push(what);
    }

    /// Something that is ready already.
    pub(crate) fn at_once(&mut self, what: T) {
        self.at_once.push(what);
    }

    /// Sleeps until one is ready, or `until`; if it may not sleep (`armed` is false), it only looks.
    pub(crate) fn sleep(mut self, armed: bool, until: Option<Time>) -> std::io::Result<Vec<T>> {
        let left = until.map(|until| until.saturating_since(clock::now()));
        let may_sleep = armed && self.at_once.is_empty();
        let left = if may_sleep { left } else { Some(Nanos::ZERO) };
        match rustix::event::poll(&mut self.fds, left.map(clock::timespec_of).as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = self.fds.iter().zip(&self.what);
        let ready = ready.filter(|(fd, _)| !fd.revents().is_empty());
        Ok(ready.map(|(_, what)| *what).chain(self.at_once).collect())
    }
}
