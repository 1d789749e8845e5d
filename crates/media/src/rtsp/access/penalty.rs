//! Penalties against guessing of passwords: after a failed login, replies to further failures from that address are
//! delayed.
//!
//! A right password is never delayed, so one client cannot lock out others that share its address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use sched::units::{Nanos, Time};

use peers::connection_limits::network;

/// The delay of the first failure; each further one is delayed twice as long as the one before.
const WAIT_MIN: Nanos = Nanos::from_millis(100);

/// The longest delay.
const WAIT_MAX: Nanos = Nanos::from_secs(2);

/// An address is forgotten this long after its last failure.
const FORGOTTEN_AFTER: Nanos = Nanos::from_secs(600);

/// Addresses that are remembered. While there are so many, failures from others are delayed for the longest time.
const ADDRESSES_MAX: usize = 4_096;

/// Failed logins, by address.
#[derive(Default)]
pub(super) struct Penalties {
    /// The delay of the last failure, and its time.
    by_address: Mutex<HashMap<IpAddr, (Nanos, Time)>>,
}

impl Penalties {
    /// Counts a failed login; returns how long the reply is to be delayed.
    pub(super) fn failed(&self, peer: IpAddr, now: Time) -> Nanos {
        // The map is valid after a panic as well.
        let mut by = self
            .by_address
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let is_recent = |at: Time| now.saturating_since(at) < FORGOTTEN_AFTER;
        let peer = network(peer);
        if by.len() >= ADDRESSES_MAX && !by.contains_key(&peer) {
            by.retain(|_, (_, at)| is_recent(*at));
            if by.len() >= ADDRESSES_MAX {
                return WAIT_MAX;
            }
        }
        let before = by.get(&peer).filter(|(_, at)| is_recent(*at));
        let wait = before.map_or(WAIT_MIN, |(wait, _)| (*wait * 2).min(WAIT_MAX));
        by.insert(peer, (wait, now));
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_with_each_failure_until_the_address_is_forgotten() {
        let penalties = Penalties::default();
        let failed = |peer: &str, seconds: u64| {
            penalties
                .failed(peer.parse().unwrap(), Time(seconds * 1_000_000_000))
                .get()
                / 1_000_000
        };
        let costs: Vec<u64> = (0..7).map(|at| failed("192.0.2.1", at)).collect();
        assert_eq!(costs, [100, 200, 400, 800, 1_600, 2_000, 2_000]);
        assert_eq!(
            failed("192.0.2.2", 6),
            100,
            "other addresses are not delayed"
        );
        assert_eq!(failed("::ffff:192.0.2.2", 7), 200);
        assert_eq!(
            [failed("2001:db8::1", 8), failed("2001:db8::ffff:2", 9)],
            [100, 200]
        );
        assert_eq!(failed("192.0.2.1", 605), 2_000);
        assert_eq!(failed("192.0.2.1", 1_205), 100);
    }

    #[test]
    fn memory_for_addresses_is_bounded() {
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
