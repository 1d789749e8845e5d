//! Requests to a disk, and decisions about them.

use crate::task::TaskId;
use crate::units::{Nanos, Sector, SectorCount, Time};

/// Names a request among those queued at one disk; given by the caller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u64);

/// The direction of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// From the disk.
    Read,
    /// To the disk.
    Write,
}

/// Tells if a client waits for a best-effort request (thesis 6.3.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Urgency {
    /// Somebody waits: a read, a forced write, what a flush waits for. Goes first.
    Sync,
    /// Nobody waits: write-back, read-ahead, copies, scrubs.
    Async,
}

/// The order that a best-effort request must keep with others of the same volume on this disk.
///
/// A request may name earlier ones that must be complete before it starts (tags, as soft updates
/// need them), or be a barrier: everything of its volume queued before it completes first, and
/// nothing queued after it starts before it has completed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Order {
    /// The space in which a barrier holds, usually a volume.
    pub space: u32,
    /// Requests on this disk that must be complete first; ids no longer queued count as complete.
    pub after: [Option<RequestId>; ORDER_AFTER_MAX],
    /// True if this request is a barrier in its space.
    pub barrier: bool,
}

/// The most requests that one request can name in [`Order::after`]. A constant, so that a request
/// is a plain value and queueing one allocates nothing; whoever needs more names a barrier.
pub const ORDER_AFTER_MAX: usize = 4;

/// On whose account a request is served.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// A request of a stream's task: it gets a release and a deadline. Never split.
    Stream(TaskId),
    /// A request of this member of a task that is served in sweeps. Never split.
    Swept(TaskId, u32),
    /// A best-effort request of a client that holds a reservation (slice, period): a periodic
    /// server gives it a container, and slack may serve it sooner.
    Reserved(TaskId, Urgency),
    /// Best effort without a reservation; the disk's floor, if it has one, is its container.
    BestEffort(Urgency),
}

impl Class {
    /// The task, if it is that of streams.
    #[must_use]
    pub const fn of_stream(self) -> Option<TaskId> {
        match self {
            Self::Stream(task) | Self::Swept(task, _) => Some(task),
            Self::Reserved(..) | Self::BestEffort(_) => None,
        }
    }
}

/// A request to one disk, contiguous there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Request {
    /// The caller's name for it.
    pub id: RequestId,
    /// The direction.
    pub op: Op,
    /// The first sector.
    pub start: Sector,
    /// Number of sectors; at least one.
    pub count: SectorCount,
    /// On whose account.
    pub class: Class,
    /// The order to keep. Ignored for streams, whose requests are served in order of arrival.
    pub order: Order,
}

/// Why a request is served now.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Served {
    /// A released real-time request in its turn.
    RealTime,
    /// A real-time request before its release, in slack.
    Early,
    /// Best effort in slack.
    Slack,
    /// Best effort in the container of a periodic server or of the floor.
    Container,
}

/// An order to the disk: this piece of that request, now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dispatch {
    /// The request.
    pub id: RequestId,
    /// The direction.
    pub op: Op,
    /// The first sector of the piece, on the disk.
    pub start: Sector,
    /// The sectors in the piece.
    pub count: SectorCount,
    /// Offset of the piece in the request. A long best-effort request is split, and one piece of it is on the
    /// disk at a time.
    pub offset: SectorCount,
    /// The service time predicted, an upper bound.
    pub predicted: Nanos,
    /// Why now.
    pub served: Served,
    /// When it is due, if it has a deadline.
    pub deadline: Option<Time>,
}

impl Dispatch {
    /// The last sector of the piece.
    #[must_use]
    pub fn last(&self) -> Sector {
        Sector((self.start + self.count).get().saturating_sub(1))
    }
}

/// The action for a disk that has a free place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Issue this.
    Issue(Dispatch),
    /// Issue nothing before `until`, or before the next submission, completion or change of tasks.
    Wait {
        /// `None`: nothing will change by itself.
        until: Option<Time>,
    },
}
