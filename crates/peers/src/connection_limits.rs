//! Limits on connections, in all and from one address: clients that connect and send nothing cannot take all
//! descriptors and places.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::log_throttle::LogThrottle;

/// The most connections to a server.
const PLACES_MAX: usize = 1_024;

/// The connections to a server and their limits.
pub struct ConnectionLimits {
    all_max: usize,
    each_max: usize,
    taken: Mutex<BTreeMap<CountKey, usize>>,
}

/// Connections are counted by these.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum CountKey {
    Host(IpAddr),
    Network(IpAddr),
}

/// The limit that a connection would exceed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitReached {
    /// That of all connections.
    All(usize),
    /// That of this address or network.
    Each(IpAddr, usize),
}

impl fmt::Display for LimitReached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All(count) => write!(f, "connection limit reached ({count})"),
            Self::Each(of, count) => {
                write!(f, "per-address limit reached for {of} ({count})")
            }
        }
    }
}

/// Throttles the warnings of refused connections, for each limit on its own: one address with too many connections
/// does not hide that the limit of all is reached.
#[derive(Default)]
pub struct Denials {
    all: LogThrottle,
    each: LogThrottle,
}

impl Denials {
    /// As [`LogThrottle::turn`].
    pub fn turn(&mut self, limit: LimitReached, now: Instant) -> Option<u64> {
        match limit {
            LimitReached::All(_) => self.all.turn(now),
            LimitReached::Each(..) => self.each.turn(now),
        }
    }
}

/// The address, or for IPv6 its /64 network: a host has as many addresses of its network as it likes.
pub fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(of) => of.into(),
        IpAddr::V6(of) => {
            let network = of.to_bits() >> 64 << 64;
            std::net::Ipv6Addr::from_bits(network).into()
        }
    }
}

impl ConnectionLimits {
    /// A quarter of the descriptors, at least 2 and at most 1,024 connections. An IPv4 address and an IPv6 network
    /// may have half of them, an IPv6 address a quarter.
    pub fn of(descriptors: usize) -> Arc<Self> {
        let all_max = PLACES_MAX.min(descriptors / 4).max(2);
        Arc::new(Self {
            all_max,
            each_max: all_max / 2,
            taken: Mutex::default(),
        })
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<CountKey, usize>> {
        // The counters are valid after a panic as well.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of connections.
    pub fn taken(&self) -> usize {
        total(&self.locked())
    }

    /// The keys that a connection from an address counts for, with their limits.
    fn keys(&self, address: IpAddr) -> Vec<(CountKey, usize)> {
        let address = address.to_canonical();
        match address {
            IpAddr::V4(_) => vec![(CountKey::Host(address), self.each_max)],
            IpAddr::V6(_) => vec![
                (CountKey::Network(network(address)), self.each_max),
                (CountKey::Host(address), self.each_max.div_ceil(2)),
            ],
        }
    }

    /// Counts a connection from an address until the result is dropped.
    ///
    /// # Errors
    /// When a limit is reached.
    pub fn take(self: &Arc<Self>, address: IpAddr) -> Result<Held, LimitReached> {
        let mut taken = self.locked();
        if total(&taken) >= self.all_max {
            return Err(LimitReached::All(self.all_max));
        }
        let keys = self.keys(address);
        for (key, most) in &keys {
            let (CountKey::Host(address) | CountKey::Network(address)) = key;
            if taken.get(key).is_some_and(|count| count >= most) {
                return Err(LimitReached::Each(*address, *most));
            }
        }
        let keys: Vec<CountKey> = keys.into_iter().map(|(key, _)| key).collect();
        for key in &keys {
            *taken.entry(*key).or_default() += 1;
        }
        Ok(Held {
            limits: Arc::clone(self),
            keys,
        })
    }
}

fn total(taken: &BTreeMap<CountKey, usize>) -> usize {
    let hosts = taken
        .iter()
        .filter(|(key, _)| matches!(key, CountKey::Host(_)));
    hosts.map(|(_, count)| count).sum()
}

/// A connection that is counted until this is dropped.
pub struct Held {
    limits: Arc<ConnectionLimits>,
    keys: Vec<CountKey>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut taken = self.limits.locked();
        for key in &self.keys {
            if let Some(count) = taken.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    taken.remove(key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_gets_half_of_the_connections_and_a_network_of_ipv6_too() {
        let places = ConnectionLimits::of(24);
        let [a, b, c] = ["192.0.2.1", "192.0.2.2", "2001:db8::1"].map(|of| of.parse().unwrap());
        let taken: Vec<_> = (0..3).map(|_| places.take(a).unwrap()).collect();
        let mapped = "::ffff:192.0.2.1".parse().unwrap();
        for same in [a, mapped] {
            let full = places.take(same).err();
            assert_eq!(full, Some(LimitReached::Each(a, 3)));
        }
        let others = [b, b, c].map(|of| places.take(of).unwrap());
        assert_eq!(places.take(c).err(), Some(LimitReached::All(6)));
        assert_eq!(places.taken(), 6);
        let neighbour = "2001:db8::2".parse().unwrap();
        drop(taken);
        // An IPv6 host gets half of the connections of its network.
        let more = places.take(c).unwrap();
        assert_eq!(places.take(c).err(), Some(LimitReached::Each(c, 2)));
        let near = places.take(neighbour).unwrap();
        let full = places.take(neighbour).err();
        assert_eq!(full, Some(LimitReached::Each(network(c), 3)));
        drop((more, near));
        assert_eq!(places.taken(), 3);
        let again = places.take(a).unwrap();
        drop((others, again));
        assert_eq!((places.taken(), places.locked().len()), (0, 0));
    }

    #[test]
    fn limits_leave_three_quarters_of_the_descriptors() {
        let all = [usize::MAX, 1 << 20, 1_024, 4].map(|of| ConnectionLimits::of(of).all_max);
        assert_eq!(all, [1_024, 1_024, 256, 2]);
    }
}
