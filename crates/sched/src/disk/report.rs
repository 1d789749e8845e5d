//! Reports of a disk's scheduler. All values are counted when they happen; none is taken from configuration.

use super::TaskKind;
use crate::request::{Class, Served};
use crate::task::{TaskId, TaskParams};
use crate::units::{Nanos, Time};
use alloc::vec::Vec;

/// Result of a piece that the disk has completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completed {
    /// True if the whole request is done; otherwise its next piece is queued.
    pub finished: bool,
    /// On whose account it was queued.
    pub class: Class,
    /// Why it was served when it was.
    pub served: Served,
    /// When it was due, if it was.
    pub deadline: Option<Time>,
    /// Time from its deadline to its completion.
    pub lateness: Nanos,
    /// When the request was submitted.
    pub submitted: Time,
    /// Predicted service time.
    pub predicted: Nanos,
    /// Time from issue to completion.
    pub actual: Nanos,
    /// Time by which it exceeded its prediction.
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

/// The promise to a task and its results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskReport {
    /// The task.
    pub id: TaskId,
    /// Its kind.
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

/// The promises of a disk's scheduler and their results.
#[derive(Clone, PartialEq, Debug)]
pub struct DiskReport {
    /// Sum of C/T of the tasks on the disk, in millionths.
    pub utilization_ppm: u64,
    /// Delta-L of the tasks on the disk.
    pub delta_l: Nanos,
    /// Longest best-effort request that may start now; `None`: no limit.
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
