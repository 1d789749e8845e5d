//! Performing the steps of a transaction.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;

use sched::units::Sector;
use volume::Step;

use super::RawWrite;
use crate::state::disk::core::DiskCore;
use crate::state::raw::RawIo;
use crate::state::request::IoFailure;

/// The reason why a step failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum StepError {
    #[error(transparent)]
    Io(#[from] IoFailure),
    /// Another server has the disk.
    #[error("{what}")]
    TakenOver { disk: usize, what: String },
}

/// The first step that failed.
pub(crate) struct FailedStep {
    /// Its index; earlier steps have been performed.
    pub(crate) at: usize,
    /// The reason.
    pub(crate) error: StepError,
}

impl RawIo {
    /// Performs the steps of a transaction in order; [`volume::transaction`] has the rules.
    ///
    /// # Errors
    /// The first failure; no later step has been performed.
    pub(crate) fn perform(&self, disks: &[DiskCore], steps: &[Step]) -> Result<(), FailedStep> {
        let alike = |a: &Step, b: &Step| std::mem::discriminant(a) == std::mem::discriminant(b);
        let mut at = 0;
        for group in steps.chunk_by(alike) {
            let done = self.perform_group(disks, group);
            done.map_err(|error| FailedStep { at, error })?;
            at += group.len();
        }
        Ok(())
    }

    /// Checks that a disk holds `data`.
    pub(crate) fn expect(
        &self,
        disks: &[DiskCore],
        disk: usize,
        start: Sector,
        data: &[u8],
    ) -> Result<(), StepError> {
        let mut found = vec![0; data.len()];
        self.read(disks, disk, start, &mut found)?;
        if found == data {
            return Ok(());
        }
        let (name, why) = (&disks[disk].name, volume::owner::why_not(data, &found));
        Err(StepError::TakenOver {
            disk,
            what: format!("{name}: {why}"),
        })
    }

    fn perform_group(&self, disks: &[DiskCore], group: &[Step]) -> Result<(), StepError> {
        let _under_way = PendingMetadata::new(disks, group);
        let mut writes = Vec::new();
        let mut flushes = Vec::new();
        for step in group {
            match step {
                Step::Write { disk, start, data } => writes.push(RawWrite {
                    disk: usize::from(disk.0),
                    start: *start,
                    data,
                }),
                Step::Flush { disk } => flushes.push(&disks[usize::from(disk.0)]),
                Step::Expect { disk, start, data } => {
                    self.expect(disks, usize::from(disk.0), *start, data)?;
                }
            }
        }
        self.write(disks, &writes)?;
        sync_all(&flushes)?;
        Ok(())
    }
}

/// Counts a group of metadata steps at its disks while it is being performed, so that `status` can name the disk
/// that flushes wait for.
struct PendingMetadata<'a> {
    disks: &'a [DiskCore],
    group: &'a [Step],
}

impl<'a> PendingMetadata<'a> {
    fn new(disks: &'a [DiskCore], group: &'a [Step]) -> Self {
        let under_way = Self { disks, group };
        for disk in under_way.disks() {
            disk.metadata.fetch_add(1, Relaxed);
        }
        under_way
    }

    fn disks(&self) -> impl Iterator<Item = &DiskCore> {
        self.group
            .iter()
            .map(|step| &self.disks[usize::from(step.disk().0)])
    }
}

impl Drop for PendingMetadata<'_> {
    fn drop(&mut self) {
        for disk in self.disks() {
            disk.metadata.fetch_sub(1, Relaxed);
        }
    }
}

/// Makes all completed writes of these disks durable, concurrently, and waits.
pub(crate) fn sync_all(disks: &[&DiskCore]) -> Result<(), IoFailure> {
    let (sender, receiver) = mpsc::channel();
    for disk in disks {
        let sender = sender.clone();
        disk.sync(Box::new(move |result| {
            // The receiver may have gone after another disk's failure.
            let _: Result<(), _> = sender.send(result);
        }));
    }
    drop(sender);
    receiver.into_iter().collect()
}
