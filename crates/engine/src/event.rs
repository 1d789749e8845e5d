//! Waking a thread that sleeps in the kernel.
//!
//! An [`EventFd`] is a file descriptor that becomes readable when signalled, so one system call can wait for
//! it together with I/O or a socket. A [`Doorbell`] adds a protocol that keeps the fast path free of system
//! calls: a producer signals only if the consumer has announced that it is about to sleep.
//!
//! Deliberately absent: counting. Any number of signals before a wait is one signal.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::io::{Errno, ReadWriteFlags};
use sched::units::Time;

use crate::clock;

/// The offset for `preadv2` of a descriptor without positions.
const NO_POSITION: u64 = u64::MAX;

/// A signal that a thread can sleep on, alone or together with other descriptors.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// An event that is not signalled.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn new() -> io::Result<Self> {
        // The descriptor is blocking; `drain` asks for a non-blocking read.
        Ok(Self(rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?))
    }

    /// Signals the event: current and future waits return.
    pub fn signal(&self) {
        // A write to an eventfd fails only if the counter would overflow, and then it is signalled already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Consumes the signal. Returns true if there was one.
    pub fn drain(&self) -> bool {
        let mut count = [0u8; 8];
        let mut into = [IoSliceMut::new(&mut count)];
        rustix::io::preadv2(&self.0, &mut into, NO_POSITION, ReadWriteFlags::NOWAIT).is_ok()
    }

    /// Sleeps until the event is signalled, at most until `until` (`None`: without limit), and consumes the
    /// signal. Returns true if there was one.
    pub fn wait(&self, until: Option<Time>) -> bool {
        let Some(until) = until else {
            let mut count = [0u8; 8];
            while rustix::io::read(&self.0, &mut count) == Err(Errno::INTR) {}
            return true;
        };
        loop {
            let left = until.saturating_since(clock::now());
            if left.is_zero() {
                return self.drain();
            }
            let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
            match rustix::event::poll(&mut fds, Some(&clock::timespec_of(left))) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => {
                    if self.drain() {
                        return true;
                    }
                }
                Err(error) => unreachable!("poll of one open descriptor failed: {error}"),
            }
        }
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// An event that costs a system call only if a thread sleeps.
///
/// Consumer: [`arm`](Self::arm), look for work once more, sleep on [`event`](Self::event),
/// [`disarm`](Self::disarm). Producer: publish the work, then [`ring`](Self::ring).
#[derive(Debug)]
pub struct Doorbell {
    event: EventFd,
    armed: AtomicBool,
}

impl Doorbell {
    /// A doorbell without a waiting consumer.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            event: EventFd::new()?,
            armed: AtomicBool::new(false),
        })
    }

    /// The event that a ring signals.
    #[must_use]
    pub fn event(&self) -> &EventFd {
        &self.event
    }

    /// Announces that the consumer is about to sleep. It must look for work once more before it sleeps,
    /// because work published before this call did not ring.
    pub fn arm(&self) {
        self.armed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Announces that the consumer is awake.
    pub fn disarm(&self) {
        self.armed.store(false, Ordering::Relaxed);
    }

    /// Wakes the consumer if it sleeps or is about to. Returns true if that took a system call.
    pub fn ring(&self) -> bool {
        fence(Ordering::SeqCst);
        if self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::Relaxed) {
            self.event.signal();
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use sched::units::Nanos;

    #[test]
    fn a_signal_is_taken_once() {
        let event = EventFd::new().unwrap();
        assert!(!event.drain());
        event.signal();
        event.signal();
        assert!(event.wait(None));
        assert!(!event.wait(Some(clock::now())));
    }

    #[test]
    fn waiting_without_a_limit_ends_with_a_signal_and_not_before() {
        let shared = Arc::new((EventFd::new().unwrap(), AtomicU64::new(0)));
        let waiting = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            assert!(waiting.0.wait(None));
            waiting.1.load(Ordering::Acquire)
        });
        // Long enough for a broken wait to return early; a correct wait is not affected.
        let until = clock::now() + Nanos::from_millis(20);
        assert!(!EventFd::new().unwrap().wait(Some(until)));
        shared.1.store(1, Ordering::Release);
        shared.0.signal();
        assert_eq!(thread.join().unwrap(), 1);
    }

    #[test]
    fn a_doorbell_rings_only_for_a_sleeper() {
        let bell = Doorbell::new().unwrap();
        assert!(!bell.ring());
        bell.arm();
        assert!(bell.ring());
        assert!(!bell.ring());
        assert!(bell.event().drain());
    }

    #[test]
    fn rings_between_two_threads_are_not_lost() {
        const ITEMS: u64 = 20_000;
        let shared = Arc::new((Doorbell::new().unwrap(), AtomicU64::new(0)));
        let producer = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            for _ in 0..ITEMS {
                producer.1.fetch_add(1, Ordering::Release);
                producer.0.ring();
            }
        });
        let (bell, published) = &*shared;
        let mut seen = 0;
        while seen < ITEMS {
            let now_published = published.load(Ordering::Acquire);
            if now_published > seen {
                seen = now_published;
                continue;
            }
            bell.arm();
            if published.load(Ordering::Acquire) == seen {
                bell.event().wait(None);
            }
            bell.disarm();
        }
        thread.join().unwrap();
    }
}
