//! Reports on reserved disk time of best-effort clients.

use sched::task::TaskId;
use serde::Serialize;

use crate::state::pool::core::PoolCore;

/// A reservation's part of one disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ShareDisk {
    /// The disk's name.
    pub disk: String,
    /// Requests queued now.
    pub queued: u64,
    /// Requests completed since the reservation, including those served in slack.
    pub completed: u64,
}

/// Reserved disk time of best-effort clients.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ShareStatus {
    /// Its name.
    pub name: String,
    /// Disk time in each period, on each disk.
    pub slice_ns: u64,
    /// The period.
    pub period_ns: u64,
    /// Counters for each disk.
    pub disks: Vec<ShareDisk>,
}

/// The reservations in force.
pub(crate) fn shares(core: &PoolCore) -> Vec<ShareStatus> {
    let mut tasks: Vec<Vec<TaskId>> = Vec::new();
    let mut shares = Vec::new();
    for server in core.admission.lock().servers.values() {
        tasks.push(server.tasks.to_vec());
        shares.push(ShareStatus {
            name: server.name.clone(),
            slice_ns: server.params.service().0,
            period_ns: server.params.period().0,
            disks: Vec::new(),
        });
    }
    if shares.is_empty() {
        return shares;
    }
    for (index, disk) in core.io.disks.iter().enumerate() {
        // A disk that is not served any more has no report.
        let Ok(report) = disk.handle.report() else {
            continue;
        };
        for (share, tasks) in shares.iter_mut().zip(&tasks) {
            let mut of_disk = report.scheduler.tasks.iter();
            if let Some(task) = of_disk.find(|task| task.id == tasks[index]) {
                share.disks.push(ShareDisk {
                    disk: disk.name.clone(),
                    queued: task.queued,
                    completed: task.completed,
                });
            }
        }
    }
    shares
}
