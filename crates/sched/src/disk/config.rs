//! What a disk's scheduler is told, and what it refuses.

use crate::best_effort::BestEffortOrder;
use crate::core::Policy;
use crate::request::RequestId;
use crate::task::TaskId;
use crate::units::{Nanos, Sector, SectorCount};
use core::ops::Range;

/// What a task on a disk stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskKind {
    /// A stream: each of its requests gets a release and a deadline.
    Stream,
    /// Streams of one period, whose requests are served in sweeps of the arm
    /// ([`Predictor::seeks_of_sweep`](crate::predict::Predictor::seeks_of_sweep)). Only on disks that serve all streams so.
    Sweep,
    /// A periodic server for a best-effort client with a reservation: (slice, period).
    Server,
    /// The periodic server for best effort without a reservation. At most one on a disk.
    Floor,
}

/// What becomes of the time by which a stream's request is shorter, where it lies, than what was reserved for it:
/// in a faster zone than the slowest that its stream uses.
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

/// How a disk is scheduled.
#[derive(Clone, Debug)]
pub struct SchedulerConfig {
    /// The rule by which best effort goes before real-time requests.
    pub policy: Policy,
    /// Where all requests of streams lie, if admission went by [`Predictor::worst_within`] these sectors: whatever
    /// leaves the arm elsewhere is charged for the way back. Best effort may go anywhere. Of no effect on a disk that
    /// is given several requests at a time.
    ///
    /// [`Predictor::worst_within`]: crate::predict::Predictor::worst_within
    pub streams_within: Option<Range<Sector>>,
    /// Whether streams are served in sweeps over where they lie, all of them: whatever leaves the arm anywhere is charged
    /// for the whole way to there. Of no effect on a disk that is given several requests at a time.
    pub sweeps: bool,
    /// What becomes of time that was reserved for a request and that it does not need where it lies.
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
    /// As many requests are queued as the configuration allows.
    #[error("the disk's queue is full ({max} requests)")]
    Full {
        /// The limit.
        max: usize,
    },
    /// No task of that id has joined, or it is leaving.
    #[error("task {} is not on this disk", .0.0)]
    NoSuchTask(TaskId),
    /// The task is of another kind than the request's class needs.
    #[error("task {} is a {kind:?}, which takes no such request", .task.0)]
    WrongKind {
        /// The task.
        task: TaskId,
        /// What it is.
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
        /// How many.
        count: SectorCount,
        /// What the disk has.
        capacity: SectorCount,
    },
    /// A stream's request outside of where requests of streams lie.
    #[error(
        "{count:?} from sector {start} are not where streams lie on this disk ({first} to {end})"
    )]
    OutsideOfStreams {
        /// The first sector asked for.
        start: u64,
        /// How many.
        count: SectorCount,
        /// Where streams begin to lie.
        first: u64,
        /// Where they end to, exclusive.
        end: u64,
    },
    /// A stream's request that would take longer than its task's service time allows for.
    #[error("the request may take {worst}, the reservation allows {service}")]
    LongerThanReserved {
        /// What the request may take.
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
    /// As many tasks have joined as the configuration allows.
    #[error("the disk serves as many tasks as it may ({max})")]
    Full {
        /// The limit.
        max: usize,
    },
    /// Streams are served in sweeps on this disk, or are not, and the task is of the other kind.
    #[error("task {} is a {kind:?}, and streams are {}served in sweeps on this disk", .task.0, if *.sweeps { "" } else { "not " })]
    NotSoServed {
        /// The task.
        task: TaskId,
        /// What it is.
        kind: TaskKind,
        /// Whether they are.
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
        /// What it must hold at least.
        piece_max: Nanos,
    },
    /// A server that was admitted as one that keeps the disk for less than the longest piece does.
    #[error("pieces of at most {longest} were admitted, and one may take {piece_max}")]
    PieceTooLong {
        /// What was admitted.
        longest: Nanos,
        /// What it must be at least.
        piece_max: Nanos,
    },
}
