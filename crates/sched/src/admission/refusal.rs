//! Why a task is not admitted, in figures and in words.

use crate::task::TaskId;
use crate::units::Nanos;
use core::fmt;

/// The condition that a set violates.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusedBy {
    /// Condition 1: the tasks ask for more than the whole disk.
    Utilization,
    /// Condition 2: a request that cannot be interrupted would make others late.
    Blocking,
}

impl fmt::Display for RefusedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Utilization => "utilization",
            Self::Blocking => "blocking",
        })
    }
}

/// Why a task is not admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub struct Refusal {
    /// The condition that fails.
    pub by: RefusedBy,
    /// Utilization: the longest period of the set. Blocking: the length L at which condition 2 fails.
    pub interval: Nanos,
    /// Disk time that the tasks may need within `interval`, less `interval`. Utilization: (U - 1) times the
    /// interval, with the part of each period rounded up to a nanosecond. Blocking: the requests due within
    /// it, and the one that blocks them.
    pub short_by: Nanos,
    /// The task at fault: the one asked for (utilization), or the one whose request blocks.
    pub task: TaskId,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            by,
            interval,
            short_by,
            task,
        } = self;
        match by {
            RefusedBy::Utilization => write!(
                f,
                "with task {} the disk would be promised more than all of its time: {short_by} too much in every {interval}",
                task.0
            ),
            RefusedBy::Blocking => write!(
                f,
                "a request of task {} cannot be interrupted and would delay others: the work due within {interval} of its start would take {short_by} longer than that",
                task.0
            ),
        }
    }
}
