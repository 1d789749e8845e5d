//! The engine's time.
//!
//! [`Time`] is nanoseconds of the kernel's `CLOCK_MONOTONIC`. All threads and processes of a host agree on
//! it, and it can be passed to the kernel as an absolute timeout without conversion.
//!
//! Deliberately absent: wall-clock time. Nothing in the engine depends on the date.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, Timespec};
use sched::units::{Nanos, Time};

/// A source of time: the host in the server, virtual time in the simulator.
pub trait Clock: Send + Sync {
    /// The current time. Never earlier than a time returned before.
    fn now(&self) -> Time;
}

/// The kernel's monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    fn now(&self) -> Time {
        now()
    }
}

/// The current time of the kernel's monotonic clock.
#[must_use]
pub fn now() -> Time {
    let spec = rustix::time::clock_gettime(ClockId::Monotonic);
    Time(spec.tv_sec as u64 * 1_000_000_000 + spec.tv_nsec as u64)
}

/// A clock that is advanced by its user: for tests and virtual time.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock that shows `start`.
    #[must_use]
    pub fn new(start: Time) -> Self {
        Self(Arc::new(AtomicU64::new(start.0)))
    }

    /// Advances the clock to `to`; a time in the past has no effect.
    pub fn advance_to(&self, to: Time) {
        self.0.fetch_max(to.0, Ordering::AcqRel);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        Time(self.0.load(Ordering::Acquire))
    }
}

/// Converts a duration for the kernel.
#[must_use]
pub fn timespec_of(length: Nanos) -> Timespec {
    Timespec {
        tv_sec: (length.0 / 1_000_000_000) as i64,
        tv_nsec: (length.0 % 1_000_000_000) as i64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_never_goes_back() {
        let clock = ManualClock::new(Time(5));
        clock.advance_to(Time(9));
        clock.advance_to(Time(7));
        assert_eq!(clock.now(), Time(9));
    }

    #[test]
    fn the_monotonic_clock_does_not_go_back() {
        let earlier = MonotonicClock.now();
        assert!(MonotonicClock.now() >= earlier);
    }
}
