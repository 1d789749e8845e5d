//! Configuration of a disk's scheduler, and its refusals.

use crate::best_effort::BestEffortOrder;
use crate::core::Policy;
use crate::request::RequestId;
use crate::task::TaskId;
use crate::units::{Nanos, Sector, SectorCount};
use core::ops::Range;

/// The kind of a task on a disk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskKind {
    /// A stream: each of its requests gets a release and a deadline.
    Stream,
    /// Streams of one period, whose requests are served in sweeps of the arm
    /// ([`Predictor::seeks_of_sweep`](crate::predict::Predictor::seeks_of_sweep)). Only on disks that serve
    /// all streams so.
    Sweep,
    /// A periodic server for a best-effort client with a reservation: (slice, period).
    Server,
    /// The periodic server for best effort without a reservation. At most one on a disk.
    Floor,
}

/// Use of the time by which a stream's request is shorter, at its position, than the reserved time: in a
/// faster zone than the slowest zone of its stream.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, Debug, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum OverPrediction {
    /// Nothing: each request counts for as long as was reserved.
    Unused,
    /// Requests count for as long as they may take. Rules that look at what is queued, `exact` and `lst`, have more
    /// slack for that.
    #[default]
    Known,
    /// Under delta-L, too, best effort that fits into that time goes before the request (thesis 6.5.2).
    Given,
}

/// Configuration of a disk's scheduler.
#[derive(Clone, Debug)]
pub struct SchedulerConfig {
    /// The rule by which best effort goes before real-time requests.
    pub policy: Policy,
    /// Sectors of all streams, if admission used [`Predictor::worst_within`] on them. A request that leaves
    /// the arm outside them is charged for the way back. Best effort may go anywhere. No effect on a disk
    /// with several requests outstanding.
    ///
    /// [`Predictor::worst_within`]: crate::predict::Predictor::worst_within
    pub streams_within: Option<Range<Sector>>,
    /// True: all streams are served in sweeps over their sectors. A request that leaves the arm anywhere is
    /// charged for the whole way to them. No effect on a disk with several requests outstanding.
    pub sweeps: bool,
    /// Use of reserved time that a request does not need at its position.
    pub over_prediction: OverPrediction,
    /// The order among best-effort requests.
    pub order: BestEffortOrder,
    /// The slack at which a real-time burst ends; the profile's when `None`.
    pub burst_threshold: Option<Nanos>,
    /// The longest predicted time of a best-effort piece; the profile's when `None`.
    pub piece_limit: Option<Nanos>,
    /// A synchronous request older than this is aged.
    pub sync_age_limit: Nanos,
    /// An asynchronous request older than this is aged.
    pub async_age_limit: Nanos,
    /// The most of the slack, in percent, that early requests of streams get while best effort waits.
    pub early_share_percent: u8,
    /// The most requests queued at a time, of all classes together.
    pub queue_max: usize,
    /// The most tasks joined at a time.
    pub tasks_max: usize,
}

impl Default for SchedulerConfig {
    /// `exact`, elevator order, what the profile proposes; one second and five until requests are aged,
    /// as Linux's mq-deadline has it for its slower queue and twice its faster one.
    fn default() -> Self {
        Self {
            policy: Policy::Exact,
            streams_within: None,
            sweeps: false,
            over_prediction: OverPrediction::default(),
            order: BestEffortOrder::Scan,
            burst_threshold: None,
            piece_limit: None,
            sync_age_limit: Nanos::from_secs(1),
            async_age_limit: Nanos::from_secs(5),
            early_share_percent: 50,
            queue_max: 4096,
            tasks_max: 16_384,
        }
    }
}

/// Why a request was not queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SubmitError {
    /// The queue holds the configured maximum of requests.
    #[error("the disk's queue is full ({max} requests)")]
    Full {
        /// The limit.
        max: usize,
    },
    /// No task of that id has joined, or it is leaving.
    #[error("task {} is not on this disk", .0.0)]
    NoSuchTask(TaskId),
    /// The task is of another kind than the request's class needs.
    #[error("task {} is a {kind:?} and takes no such request", .task.0)]
    WrongKind {
        /// The task.
        task: TaskId,
        /// Its kind.
        kind: TaskKind,
    },
    /// A request of that id is queued already.
    #[error("a request with id {} is queued already", .0.0)]
    DuplicateId(RequestId),
    /// No sectors, or sectors that the disk does not have.
    #[error("{count:?} from sector {start} are not on this disk of {capacity:?}")]
    OutOfRange {
        /// The first sector asked for.
        start: u64,
        /// Number of sectors.
        count: SectorCount,
        /// Sectors of the disk.
        capacity: SectorCount,
    },
    /// A stream's request outside of where requests of streams lie.
    #[error(
        "{count:?} from sector {start} are outside the sectors of streams on this disk ({first} to {end})"
    )]
    OutsideOfStreams {
        /// The first sector asked for.
        start: u64,
        /// Number of sectors.
        count: SectorCount,
        /// First sector of streams.
        first: u64,
        /// First sector behind those of streams.
        end: u64,
    },
    /// A stream's request that would take longer than its task's service time allows for.
    #[error("the request may take {worst}, but the reservation allows {service}")]
    LongerThanReserved {
        /// Longest service time of the request.
        worst: Nanos,
        /// C of the task.
        service: Nanos,
    },
}

/// Why a task did not join.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JoinError {
    /// The id is in use, or its task has not left completely.
    #[error("task {} is on this disk already", .0.0)]
    DuplicateTask(TaskId),
    /// The configured maximum of tasks has joined.
    #[error("the disk serves its maximum of {max} tasks")]
    Full {
        /// The limit.
        max: usize,
    },
    /// Streams are served in sweeps on this disk, or are not, and the task is of the other kind.
    #[error("task {} is a {kind:?}, and streams are {}served in sweeps on this disk", .task.0, if *.sweeps { "" } else { "not " })]
    NotSoServed {
        /// The task.
        task: TaskId,
        /// Its kind.
        kind: TaskKind,
        /// True if the disk serves streams in sweeps.
        sweeps: bool,
    },
    /// There is a floor already.
    #[error("the disk has a floor already (task {})", .0.0)]
    SecondFloor(TaskId),
    /// A server whose slice is shorter than the longest piece could serve nothing.
    #[error("a slice of {slice} is shorter than the longest piece of a request ({piece_max})")]
    SliceTooShort {
        /// The slice asked for.
        slice: Nanos,
        /// Smallest slice that would do.
        piece_max: Nanos,
    },
    /// A server that was admitted as one that keeps the disk for less than the longest piece does.
    #[error("pieces of at most {longest} were admitted, but one may take {piece_max}")]
    PieceTooLong {
        /// Longest admitted service time.
        longest: Nanos,
        /// Smallest value that would do.
        piece_max: Nanos,
    },
}
