//! What is handed to a dispatcher, and why it may not be taken.

use sched::request::{Class, Op, Order};
use sched::units::{Sector, SectorCount};

use crate::buffer::{AccountId, Segments};
use crate::completion::Target;

/// A request to one disk.
#[derive(Debug)]
pub struct Io {
    /// Who asks; only segments of this account are taken.
    pub account: AccountId,
    /// The direction.
    pub op: Op,
    /// The first sector on the disk.
    pub start: Sector,
    /// How many sectors; at least one.
    pub count: SectorCount,
    /// On whose account it is scheduled.
    pub class: Class,
    /// The order to keep. Names requests by what
    /// [`DispatcherHandle::submit`](super::DispatcherHandle::submit) returned.
    pub order: Order,
    /// Whether the write must be durable when it completes (FUA), where the disk can do that.
    pub durable: bool,
    /// The memory, of exactly `count` sectors.
    pub segments: Segments,
    /// Where the answer goes.
    pub target: Target,
}

/// Why a request was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Reason {
    /// Every place for requests of its class is taken.
    #[error("the disk's queue is full")]
    Full,
    /// The dispatcher has stopped.
    #[error("the disk's dispatcher has stopped")]
    Stopped,
    /// No sectors, past the end, not in the disk's blocks, or segments that do not match.
    #[error("not a transfer this disk can do")]
    Invalid,
    /// The buffers are not the asker's own.
    #[error("the buffer belongs to another account")]
    Foreign,
}

/// A request that was not taken. It comes back, its target unanswered.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Rejected {
    /// The request.
    pub io: Box<Io>,
    /// Why.
    pub reason: Reason,
}

impl Rejected {
    /// There is no place for it now.
    pub(crate) fn full(io: Io) -> Self {
        Self {
            io: Box::new(io),
            reason: Reason::Full,
        }
    }
}

/// What a disk can be asked to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) capacity: SectorCount,
    /// Sectors that transfers begin and end on multiples of.
    pub(super) block: u64,
}

impl Io {
    pub(super) fn check(&self, shape: Shape) -> Result<(), Reason> {
        let end = self.start.checked_add(self.count);
        let sound = !self.count.is_zero()
            && end.is_some_and(|end| end.0 <= shape.capacity.0)
            && self.start.0.is_multiple_of(shape.block)
            && self.count.0.is_multiple_of(shape.block)
            && self.segments.op() == self.op
            && self.segments.size() as u64 == self.count.bytes().0;
        if !sound {
            return Err(Reason::Invalid);
        }
        match self.segments.account() {
            Some(owner) if owner != self.account => Err(Reason::Foreign),
            _ => Ok(()),
        }
    }
}
