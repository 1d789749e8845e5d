//! A link that emulated drives share, in real time.

use std::sync::{Arc, Mutex};

use engine::clock;
use sched::request::Op;
use sched::units::{BytesPerSecond, Nanos, SectorCount, Time};

use super::lock;
use crate::link::{Link, Transfer, TransferId};
use crate::plant::Service;

/// A link that emulated drives share: a [`Link`] whose time is that of the host's monotonic clock.
#[derive(Debug)]
pub struct EmulatedLink(pub(super) Mutex<Link>);

impl EmulatedLink {
    /// A link that moves `rate`.
    ///
    /// # Panics
    /// When the rate is zero.
    #[must_use]
    pub fn new(rate: BytesPerSecond) -> Self {
        Self(Mutex::new(Link::new(rate)))
    }
}

/// The transfer of a request that has not ended on its link.
#[derive(Debug)]
pub(super) struct Crossing {
    link: Arc<EmulatedLink>,
    id: TransferId,
    /// Time from the end of the transfer until the request is over.
    extra: Nanos,
}

impl Crossing {
    pub(super) fn begin(
        link: Arc<EmulatedLink>,
        (op, count): (Op, SectorCount),
        service: Service,
        rotation: Nanos,
        extra: Nanos,
    ) -> Self {
        let id = lock(&link.0).begin(
            clock::now(),
            Transfer {
                op,
                start: Time(service.completed.get() - service.breakdown.transfer.get()),
                end: service.completed,
                bytes: count.bytes(),
                rotation,
            },
        );
        Self { link, id, extra }
    }

    /// When the transfer ends if no other begins.
    pub(super) fn ends(&self) -> Time {
        lock(&self.link.0).due(self.id)
    }

    pub(super) fn extra(&self) -> Nanos {
        self.extra
    }
}

impl Drop for Crossing {
    fn drop(&mut self) {
        lock(&self.link.0).finish(self.id, clock::now());
    }
}
