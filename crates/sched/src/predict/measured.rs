//! Worst cases that were measured (thesis table 6.1).

use alloc::vec::Vec;

use super::NANOS_PER_MICRO;
use crate::profile::WorstCaseSpec;
use crate::units::{Nanos, SECTOR_BYTES};

/// A row of measured worst cases: (sectors, nanoseconds), ascending.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) zone: usize,
    points: Vec<(u64, u64)>,
}

impl Measured {
    pub(super) fn new(row: &WorstCaseSpec) -> Self {
        let points = row.bytes.iter().zip(&row.service_us);
        Self {
            zone: usize::try_from(row.zone).unwrap_or(usize::MAX),
            points: points
                .map(|(bytes, us)| (bytes / SECTOR_BYTES, us * NANOS_PER_MICRO))
                .collect(),
        }
    }

    pub(super) fn at(&self, count: u64) -> Option<Nanos> {
        let index = self.points.partition_point(|point| point.0 < count);
        let &(to, above) = self.points.get(index)?;
        let Some(&(from, below)) = index.checked_sub(1).map(|before| &self.points[before]) else {
            return Some(Nanos(above));
        };
        let more = u128::from(above - below) * u128::from(count - from);
        let more = more.div_ceil(u128::from(to - from));
        // The count is no more than that of the point above, and so is the time.
        Some(Nanos(
            u64::try_from(more).map_or(above, |more| below + more),
        ))
    }
}
