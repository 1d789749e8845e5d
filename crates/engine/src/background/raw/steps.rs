//! The steps of a transaction.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;

use sched::units::Sector;
use volume::Step;

use super::RawWrite;
use crate::state::disk::core::DiskCore;
use crate::state::raw::RawIo;
use crate::state::request::IoFailure;

/// Why the steps of a transaction were not all carried out.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Unperformed {
    #[error(transparent)]
    Io(#[from] IoFailure),
    /// The disk is not this server's any more.
    #[error("{what}")]
    TakenOver { disk: usize, what: String },
}

/// Steps that could not be carried out.
pub(crate) struct Undone {
    /// Those before it were.
    pub(crate) at: usize,
    /// Why not the others.
    pub(crate) why: Unperformed,
}

impl RawIo {
    /// Carries out the steps of a transaction, as [`volume::transaction`] demands.
    ///
    /// # Errors
    /// What failed, or whose disk has another owner; no later step has been carried out.
    pub(crate) fn perform(&self, disks: &[DiskCore], steps: &[Step]) -> Result<(), Undone> {
        let alike = |a: &Step, b: &Step| std::mem::discriminant(a) == std::mem::discriminant(b);
        let mut at = 0;
        for group in steps.chunk_by(alike) {
            let done = self.perform_group(disks, group);
            done.map_err(|why| Undone { at, why })?;
            at += group.len();
        }
        Ok(())
    }

    /// Whether a disk holds this.
    pub(crate) fn expect(
        &self,
        disks: &[DiskCore],
        disk: usize,
        start: Sector,
        data: &[u8],
    ) -> Result<(), Unperformed> {
        let mut found = vec![0; data.len()];
        self.read(disks, disk, start, &mut found)?;
        if found == data {
            return Ok(());
        }
        let (name, why) = (&disks[disk].name, volume::owner::why_not(data, &found));
        Err(Unperformed::TakenOver {
            disk,
            what: format!("{name}: {why}"),
        })
    }

    fn perform_group(&self, disks: &[DiskCore], group: &[Step]) -> Result<(), Unperformed> {
        let _under_way = UnderWay::new(disks, group);
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

/// A group of metadata on its way to its disks; counted there, so that `status` can say what waits for a
/// disk that does not answer.
struct UnderWay<'a> {
    disks: &'a [DiskCore],
    group: &'a [Step],
}

impl<'a> UnderWay<'a> {
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

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        for disk in self.disks() {
            disk.metadata.fetch_sub(1, Relaxed);
        }
    }
}

/// Has all these disks make what is complete durable, at the same time, and waits.
pub(crate) fn sync_all(disks: &[&DiskCore]) -> Result<(), IoFailure> {
    let (sender, receiver) = mpsc::channel();
    for disk in disks {
        let sender = sender.clone();
        disk.sync(Box::new(move |result| {
            // Whoever asked may have given up after another disk's failure.
            let _: Result<(), _> = sender.send(result);
        }));
    }
    drop(sender);
    receiver.into_iter().collect()
}
