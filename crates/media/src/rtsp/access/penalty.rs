//! Guessing costs time: who has failed waits for being told that it has failed again.
//!
//! Nobody waits whose password is right, so an address that many share is not locked out by one of them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use sched::units::{Nanos, Time};

use peers::connection_limits::network;

/// What the first failure costs; each one after it costs twice as much as the one before.
const WAIT_MIN: Nanos = Nanos::from_millis(100);

/// The most that one costs.
const WAIT_MAX: Nanos = Nanos::from_secs(2);

/// Failures are forgotten after that long without another.
const FORGOTTEN_AFTER: Nanos = Nanos::from_secs(600);

/// Addresses that are remembered; while they are all taken, others wait the longest time.
const ADDRESSES_MAX: usize = 4_096;

/// Failed logins, by address.
#[derive(Default)]
pub(super) struct Penalties {
    /// What the last one cost, and when that was.
    by: Mutex<HashMap<IpAddr, (Nanos, Time)>>,
}

impl Penalties {
    /// Counts one more; how long it takes to be told.
    pub(super) fn failed(&self, peer: IpAddr, now: Time) -> Nanos {
        // Numbers are numbers after any panic.
        let mut by = self.by.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = |at: Time| now.saturating_since(at) < FORGOTTEN_AFTER;
        let peer = network(peer);
        if by.len() >= ADDRESSES_MAX && !by.contains_key(&peer) {
            by.retain(|_, (_, at)| is_known(*at));
            if by.len() >= ADDRESSES_MAX {
                return WAIT_MAX;
            }
        }
        let before = by.get(&peer).filter(|(_, at)| is_known(*at));
        let wait = before.map_or(WAIT_MIN, |(wait, _)| (*wait * 2).min(WAIT_MAX));
        by.insert(peer, (wait, now));
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_costs_more_until_none_has_been_for_long() {
        let penalties = Penalties::default();
        let failed = |peer: &str, seconds: u64| {
            penalties
                .failed(peer.parse().unwrap(), Time(seconds * 1_000_000_000))
                .get()
                / 1_000_000
        };
        let costs: Vec<u64> = (0..7).map(|at| failed("192.0.2.1", at)).collect();
        assert_eq!(costs, [100, 200, 400, 800, 1_600, 2_000, 2_000]);
        assert_eq!(failed("192.0.2.2", 6), 100, "others do not pay for it");
        assert_eq!(failed("::ffff:192.0.2.2", 7), 200);
        assert_eq!(
            [failed("2001:db8::1", 8), failed("2001:db8::ffff:2", 9)],
            [100, 200]
        );
        assert_eq!(failed("192.0.2.1", 605), 2_000);
        assert_eq!(failed("192.0.2.1", 1_205), 100);
    }

    #[test]
    fn a_crowd_of_addresses_takes_a_bounded_memory() {
        let penalties = Penalties::default();
        let failed = |number: usize, at| {
            let peer = std::net::Ipv4Addr::from_bits(number as u32);
            penalties.failed(peer.into(), Time(at))
        };
        (0..ADDRESSES_MAX).for_each(|number| assert_eq!(failed(number, 0), WAIT_MIN));
        assert_eq!(failed(ADDRESSES_MAX, 1), WAIT_MAX);
        assert_eq!(failed(ADDRESSES_MAX, FORGOTTEN_AFTER.get()), WAIT_MIN);
    }
}
