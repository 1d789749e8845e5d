//! What a disk's scheduler says of what happened. Everything here is counted when it happens; nothing is
//! taken from configuration.

use super::TaskKind;
use crate::request::{Class, Served};
use crate::task::{TaskId, TaskParams};
use crate::units::{Nanos, Time};
use alloc::vec::Vec;

/// What came of a piece that the disk has completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completed {
    /// Whether the whole request is done; otherwise its next piece is queued.
    pub finished: bool,
    /// On whose account it was queued.
    pub class: Class,
    /// Why it was served when it was.
    pub served: Served,
    /// When it was due, if it was.
    pub deadline: Option<Time>,
    /// How long after its deadline it was completed.
    pub lateness: Nanos,
    /// When the request was submitted.
    pub submitted: Time,
    /// What it was predicted to take.
    pub predicted: Nanos,
    /// What it took, from issue to completion.
    pub actual: Nanos,
    /// How much longer than predicted it took.
    pub overrun: Nanos,
}

/// Requests served, by why they were served when they were.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct ServedCounts {
    /// Released real-time requests.
    pub real_time: u64,
    /// Real-time requests before their release.
    pub early: u64,
    /// Best effort in slack.
    pub slack: u64,
    /// Best effort in containers.
    pub container: u64,
}

/// What was promised to a task and what has come of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskReport {
    /// Which.
    pub id: TaskId,
    /// What it stands for.
    pub kind: TaskKind,
    /// C and T.
    pub params: TaskParams,
    /// Requests queued.
    pub queued: u64,
    /// Requests completed.
    pub completed: u64,
    /// Requests that came before the deadline of the one before.
    pub early: u64,
    /// Deadlines missed.
    pub missed: u64,
    /// The worst lateness.
    pub lateness_max: Nanos,
    /// Requests that took longer than predicted.
    pub overruns: u64,
}

/// What a disk's scheduler has promised and what has come of it.
#[derive(Clone, PartialEq, Debug)]
pub struct DiskReport {
    /// Sum of C/T of the tasks on the disk, in millionths.
    pub utilization_ppm: u64,
    /// Delta-L of the tasks on the disk.
    pub delta_l: Nanos,
    /// How long a best-effort request that starts now may take; `None`: any time.
    pub slack: Option<Nanos>,
    /// The floor's task, if there is one.
    pub floor: Option<TaskId>,
    /// Stream requests queued.
    pub queued_stream: u64,
    /// Synchronous best-effort requests queued, reserved ones included.
    pub queued_sync: u64,
    /// Asynchronous best-effort requests queued, reserved ones included.
    pub queued_async: u64,
    /// Pieces served.
    pub served: ServedCounts,
    /// Deadlines missed.
    pub missed: u64,
    /// The worst lateness.
    pub lateness_max: Nanos,
    /// Pieces that took longer than predicted.
    pub overruns: u64,
    /// Sum of predicted service times of completed pieces.
    pub predicted: Nanos,
    /// Sum of their actual service times.
    pub actual: Nanos,
    /// Per task.
    pub tasks: Vec<TaskReport>,
}

impl ServedCounts {
    pub(super) fn add(&mut self, served: Served) {
        match served {
            Served::RealTime => self.real_time += 1,
            Served::Early => self.early += 1,
            Served::Slack => self.slack += 1,
            Served::Container => self.container += 1,
        }
    }
}
