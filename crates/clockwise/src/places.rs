//! How many may be connected at a time, and how many of them from one address: who connects and says nothing keeps
//! neither descriptors nor places from the others.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::seldom::Seldom;

/// The most connections of a kind.
const PLACES_MAX: usize = 1_024;

/// Places for connections of a kind.
pub(crate) struct Places {
    all: usize,
    each: usize,
    taken: Mutex<BTreeMap<IpAddr, usize>>,
}

/// Why there is no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Full {
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
                    "{of} has {count} connections, and gets no more: half of all are for others"
                )
            }
        }
    }
}

/// Warnings of those that get no place: that there is none for anybody is not drowned by who has too many.
#[derive(Default)]
pub(crate) struct Denials {
    all: Seldom,
    each: Seldom,
}

impl Denials {
    /// As [`Seldom::turn`].
    pub(crate) fn turn(&mut self, full: Full, now: Instant) -> Option<u64> {
        match full {
            Full::All(_) => self.all.turn(now),
            Full::Each(..) => self.each.turn(now),
        }
    }
}

/// What addresses are counted by: a host has as many of IPv6 as it likes.
pub(crate) fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(of) => of.into(),
        IpAddr::V6(of) => {
            let network = of.to_bits() >> 64 << 64;
            std::net::Ipv6Addr::from_bits(network).into()
        }
    }
}

impl Places {
    /// A quarter of so many descriptors at most, and half of that for each address.
    pub(crate) fn of(descriptors: usize) -> Arc<Self> {
        let all = PLACES_MAX.min(descriptors / 4).max(2);
        Arc::new(Self {
            all,
            each: all / 2,
            taken: Mutex::default(),
        })
    }

    fn now(&self) -> MutexGuard<'_, BTreeMap<IpAddr, usize>> {
        // Numbers are numbers after any panic.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many are taken.
    pub(crate) fn taken(&self) -> usize {
        self.now().values().sum()
    }

    /// Takes one.
    ///
    /// # Errors
    /// When there is none for that address.
    pub(crate) fn take(self: &Arc<Self>, address: IpAddr) -> Result<Held, Full> {
        let address = network(address);
        let mut taken = self.now();
        if taken.values().sum::<usize>() >= self.all {
            return Err(Full::All(self.all));
        }
        let count = taken.entry(address).or_default();
        if *count >= self.each {
            return Err(Full::Each(address, self.each));
        }
        *count += 1;
        Ok(Held {
            places: Arc::clone(self),
            address,
        })
    }
}

/// A place that is taken, until it is dropped.
pub(crate) struct Held {
    places: Arc<Places>,
    address: IpAddr,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut taken = self.places.now();
        if let Some(count) = taken.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_gets_half_of_them_and_all_together_no_more_than_there_are() {
        let places = Places::of(24);
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
        let more: Vec<_> = (0..2).map(|_| places.take(neighbour).unwrap()).collect();
        let full = places.take(c).err();
        assert_eq!(full, Some(Full::Each(network(c), 3)));
        drop(more);
        assert_eq!(places.taken(), 3);
        let again = places.take(a).unwrap();
        drop((others, again));
        assert_eq!((places.taken(), places.now().len()), (0, 0));
    }

    #[test]
    fn descriptors_are_left_for_whatever_else_there_is() {
        let all = [usize::MAX, 1 << 20, 1_024, 4].map(|of| Places::of(of).all);
        assert_eq!(all, [1_024, 1_024, 256, 2]);
    }
}
