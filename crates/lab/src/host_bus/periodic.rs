//! Adapters that ask for the bus at fixed times, however long they wait: the thesis's program behind figure 4.18.

use sched::units::{Nanos, Time};

use super::bus::{Account, Masters, run};
use super::spec::{Adapter, HostBus};
use super::times::{Direction, Transaction};

/// An adapter that asks at fixed times.
#[derive(Clone, Copy, Debug)]
pub struct Periodic<'a> {
    /// The adapter; each time it does one burst.
    pub adapter: &'a Adapter,
    /// The way of its data.
    pub direction: Direction,
    /// The first time.
    pub first: Time,
    /// From one time to the next.
    pub period: Nanos,
    /// The number of times.
    pub times: u64,
}

impl Masters for [Periodic<'_>] {
    fn count(&self) -> usize {
        self.len()
    }

    fn ready(&self, master: usize) -> Option<Time> {
        (self[master].times > 0).then_some(self[master].first)
    }

    fn adapter(&self, master: usize) -> &Adapter {
        self[master].adapter
    }

    fn transaction(&self, master: usize) -> Transaction {
        let Periodic {
            adapter, direction, ..
        } = self[master];
        Transaction {
            direction,
            size: adapter.burst(direction),
            offset: 0,
        }
    }

    fn done(&mut self, master: usize, _began: Time, _ended: Time) {
        let own = &mut self[master];
        own.first += own.period;
        own.times -= 1;
    }
}

/// Runs the adapters until each has asked so often.
#[must_use]
pub fn run_periodic(bus: &HostBus, adapters: &mut [Periodic<'_>]) -> Account {
    run(bus, adapters)
}
