//! Disk requests, and reasons for refusing them.

use sched::request::{Class, Op, Order};
use sched::units::{Sector, SectorCount};

use crate::buffer::{AccountId, Segments};
use crate::completion::Target;

/// A request to one disk.
#[derive(Debug)]
pub struct Io {
    /// The requester; the segments must belong to this account.
    pub account: AccountId,
    /// The direction.
    pub op: Op,
    /// The first sector on the disk.
    pub start: Sector,
    /// Number of sectors; at least one.
    pub count: SectorCount,
    /// Its class for the scheduler.
    pub class: Class,
    /// Its order relative to other requests, by the ids that
    /// [`DispatcherHandle::submit`](super::DispatcherHandle::submit) returned.
    pub order: Order,
    /// The write must be durable when it completes (FUA), where the disk supports that.
    pub durable: bool,
    /// The memory, of exactly `count` sectors.
    pub segments: Segments,
    /// Receives the answer.
    pub target: Target,
}

/// The reason for refusing a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RejectReason {
    /// Every slot for requests of its class is taken.
    #[error("the disk's queue is full")]
    Full,
    /// The dispatcher has stopped.
    #[error("the disk's dispatcher has stopped")]
    Stopped,
    /// No sectors, past the end, not aligned to the disk's blocks, or segments that do not match.
    #[error("the disk does not support this transfer")]
    Invalid,
    /// The buffers belong to another account.
    #[error("the buffer belongs to another account")]
    Foreign,
}

/// A refused request. It is returned with its target unanswered.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Rejected {
    /// The request.
    pub io: Box<Io>,
    /// The reason.
    pub reason: RejectReason,
}

impl Rejected {
    /// A request for which there is no slot at the moment.
    pub(crate) fn full(io: Io) -> Self {
        Self {
            io: Box::new(io),
            reason: RejectReason::Full,
        }
    }
}

/// The limits of a disk that requests are checked against.
#[derive(Clone, Copy, Debug)]
pub(super) struct DiskLimits {
    pub(super) capacity: SectorCount,
    /// Alignment of transfers, in sectors.
    pub(super) block: u64,
}

impl Io {
    pub(super) fn check(&self, limits: DiskLimits) -> Result<(), RejectReason> {
        let end = self.start.checked_add(self.count);
        let sound = !self.count.is_zero()
            && end.is_some_and(|end| end.0 <= limits.capacity.0)
            && self.start.0.is_multiple_of(limits.block)
            && self.count.0.is_multiple_of(limits.block)
            && self.segments.op() == self.op
            && self.segments.size() as u64 == self.count.bytes().0;
        if !sound {
            return Err(RejectReason::Invalid);
        }
        match self.segments.account() {
            Some(owner) if owner != self.account => Err(RejectReason::Foreign),
            _ => Ok(()),
        }
    }
}
