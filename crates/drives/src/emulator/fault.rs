//! Faults at ranges of sectors.
//!
//! A drive that meets a bad sector tries again, a rotation for each attempt (thesis 7.2.6), and
//! then has it or gives up. A write that fails has written what lies before the bad sector.

use sched::request::Op;
use sched::units::{Nanos, Sector, SectorCount};

/// Names an injected fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FaultId(u64);

/// Fault of requests that touch a range of sectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangeFault {
    /// The first sector.
    pub start: Sector,
    /// Number of sectors.
    pub count: SectorCount,
    /// Direction; `None` for both.
    pub op: Option<Op>,
    /// Rotations spent on retries.
    pub rotations: u32,
    /// The error number with which the request fails in the end; `None` if it succeeds.
    pub errno: Option<i32>,
}

/// Effect of the faults on a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Verdict {
    pub(super) extra: Nanos,
    /// The error, and how many sectors before the first bad one are transferred.
    pub(super) fails: Option<(i32, u64)>,
}

/// The faults of a drive.
#[derive(Debug, Default)]
pub(super) struct Faults {
    next: u64,
    ranges: Vec<(FaultId, RangeFault)>,
}

impl Faults {
    pub(super) fn add(&mut self, fault: RangeFault) -> FaultId {
        let id = FaultId(self.next);
        self.next += 1;
        self.ranges.push((id, fault));
        id
    }

    pub(super) fn remove(&mut self, id: FaultId) -> bool {
        let before = self.ranges.len();
        self.ranges.retain(|&(other, _)| other != id);
        self.ranges.len() < before
    }

    pub(super) fn judge(
        &self,
        op: Op,
        start: Sector,
        count: SectorCount,
        rotation: Nanos,
    ) -> Verdict {
        let mut verdict = Verdict::default();
        let (first, end) = (start.get(), start.get() + count.get());
        for (_, fault) in &self.ranges {
            let bad = fault.start.get().max(first);
            let bad_end = fault.start.saturating_add(fault.count).get().min(end);
            if bad >= bad_end || fault.op.is_some_and(|only| only != op) {
                continue;
            }
            verdict.extra += rotation * u64::from(fault.rotations);
            if let Some(errno) = fault.errno {
                let before = bad - first;
                if verdict.fails.is_none_or(|(_, known)| before < known) {
                    verdict.fails = Some((errno, before));
                }
            }
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROTATION: Nanos = Nanos(8);

    fn fault(start: u64, count: u64, op: Option<Op>, errno: Option<i32>) -> RangeFault {
        let (start, count) = (Sector(start), SectorCount(count));
        RangeFault {
            start,
            count,
            op,
            rotations: 2,
            errno,
        }
    }

    #[test]
    fn a_request_meets_the_faults_it_touches_and_fails_at_the_first_bad_sector() {
        let mut faults = Faults::default();
        faults.add(fault(100, 10, None, Some(5)));
        let healed = faults.add(fault(90, 1, Some(Op::Write), Some(7)));
        let judge = |faults: &Faults, op, start, count| {
            faults.judge(op, Sector(start), SectorCount(count), ROTATION)
        };
        assert_eq!(judge(&faults, Op::Read, 80, 20), Verdict::default());
        assert_eq!(judge(&faults, Op::Read, 110, 20), Verdict::default());
        assert_eq!(judge(&faults, Op::Read, 80, 21).fails, Some((5, 20)));
        assert_eq!(judge(&faults, Op::Read, 105, 1).fails, Some((5, 0)));
        let both = Verdict {
            extra: Nanos(32),
            fails: Some((7, 10)),
        };
        assert_eq!(judge(&faults, Op::Write, 80, 40), both);
        assert!(faults.remove(healed) && !faults.remove(healed));
        assert_eq!(judge(&faults, Op::Write, 80, 40).fails, Some((5, 20)));
    }

    #[test]
    fn a_soft_fault_only_takes_time() {
        let mut faults = Faults::default();
        faults.add(fault(0, u64::MAX, None, None));
        let verdict = faults.judge(Op::Read, Sector(7), SectorCount(1), ROTATION);
        assert_eq!(
            verdict,
            Verdict {
                extra: Nanos(16),
                fails: None
            }
        );
    }
}
