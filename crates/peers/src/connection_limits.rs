//! How many may be connected at a time, and how many of them from one address: who connects and says nothing keeps
//! neither descriptors nor places from the others.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::log_throttle::LogThrottle;

/// The most connections of a kind.
const PLACES_MAX: usize = 1_024;

/// ConnectionLimits for connections of a kind.
pub struct ConnectionLimits {
    all: usize,
    each: usize,
    taken: Mutex<BTreeMap<Of, usize>>,
}

/// What they are counted by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Of {
    Host(IpAddr),
    Network(IpAddr),
}

/// Why there is no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Full {
    /// For nobody.
    All(usize),
    /// For who has so many already.
    Each(IpAddr, usize),
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All(count) => write!(f, "there are {count} connections, and no more are taken"),
            Self::Each(of, count) => {
                write!(
                    f,
                    "{of} has {count} connections, and gets no more: the others are for others"
                )
            }
        }
    }
}

/// Warnings of those that get no place: that there is none for anybody is not drowned by who has too many.
#[derive(Default)]
pub struct Denials {
    all: LogThrottle,
    each: LogThrottle,
}

impl Denials {
    /// As [`LogThrottle::turn`].
    pub fn turn(&mut self, full: Full, now: Instant) -> Option<u64> {
        match full {
            Full::All(_) => self.all.turn(now),
            Full::Each(..) => self.each.turn(now),
        }
    }
}

/// What addresses are counted by: a host has as many of IPv6 as it likes.
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
    /// A quarter of so many descriptors at most, and half of that for each address; of IPv6 half for each network, and a
    /// quarter for each address of it.
    pub fn of(descriptors: usize) -> Arc<Self> {
        let all = PLACES_MAX.min(descriptors / 4).max(2);
        Arc::new(Self {
            all,
            each: all / 2,
            taken: Mutex::default(),
        })
    }

    fn now(&self) -> MutexGuard<'_, BTreeMap<Of, usize>> {
        // Numbers are numbers after any panic.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        self.all_of(&self.now())
    }

    fn all_of(&self, taken: &BTreeMap<Of, usize>) -> usize {
        let hosts = taken.iter().filter(|(of, _)| matches!(of, Of::Host(_)));
        hosts.map(|(_, count)| count).sum()
    }

    /// What a connection from there counts for, and how many each may have.
    fn counted(&self, address: IpAddr) -> Vec<(Of, usize)> {
        let address = address.to_canonical();
        match address {
            IpAddr::V4(_) => vec![(Of::Host(address), self.each)],
            IpAddr::V6(_) => vec![
                (Of::Network(network(address)), self.each),
                (Of::Host(address), self.each.div_ceil(2)),
            ],
        }
    }

    /// Takes one.
    ///
    /// # Errors
    /// When there is none for that address.
    pub fn take(self: &Arc<Self>, address: IpAddr) -> Result<Held, Full> {
        let mut taken = self.now();
        if self.all_of(&taken) >= self.all {
            return Err(Full::All(self.all));
        }
        let counted = self.counted(address);
        for (of, most) in &counted {
            let (Of::Host(address) | Of::Network(address)) = of;
            if taken.get(of).is_some_and(|count| count >= most) {
                return Err(Full::Each(*address, *most));
            }
        }
        let counted: Vec<Of> = counted.into_iter().map(|(of, _)| of).collect();
        for of in &counted {
            *taken.entry(*of).or_default() += 1;
        }
        Ok(Held {
            places: Arc::clone(self),
            counted,
        })
    }
}

/// A place that is taken, until it is dropped.
pub struct Held {
    places: Arc<ConnectionLimits>,
    counted: Vec<Of>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut taken = self.places.now();
        for of in &self.counted {
            if let Some(count) = taken.get_mut(of) {
                *count -= 1;
                if *count == 0 {
                    taken.remove(of);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_gets_half_of_them_and_all_together_no_more_than_there_are() {
        let places = ConnectionLimits::of(24);
        let [a, b, c] = ["192.0.2.1", "192.0.2.2", "2001:db8::1"].map(|of| of.parse().unwrap());
        let taken: Vec<_> = (0..3).map(|_| places.take(a).unwrap()).collect();
        let mapped = "::ffff:192.0.2.1".parse().unwrap();
        for same in [a, mapped] {
            let full = places.take(same).err();
            assert_eq!(full, Some(Full::Each(a, 3)));
        }
        let others = [b, b, c].map(|of| places.take(of).unwrap());
        assert_eq!(places.take(c).err(), Some(Full::All(6)));
        assert_eq!(places.taken(), 6);
        let neighbour = "2001:db8::2".parse().unwrap();
        drop(taken);
        // Of IPv6 a host has no more than half of its network's.
        let more = places.take(c).unwrap();
        assert_eq!(places.take(c).err(), Some(Full::Each(c, 2)));
        let near = places.take(neighbour).unwrap();
        let full = places.take(neighbour).err();
        assert_eq!(full, Some(Full::Each(network(c), 3)));
        drop((more, near));
        assert_eq!(places.taken(), 3);
        let again = places.take(a).unwrap();
        drop((others, again));
        assert_eq!((places.taken(), places.now().len()), (0, 0));
    }

    #[test]
    fn descriptors_are_left_for_whatever_else_there_is() {
        let all = [usize::MAX, 1 << 20, 1_024, 4].map(|of| ConnectionLimits::of(of).all);
        assert_eq!(all, [1_024, 1_024, 256, 2]);
    }
}
