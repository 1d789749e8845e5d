//! Bad and slow places of a disk.

use std::sync::Arc;

use sched::units::Nanos;
use volume::Grade;

use crate::state::pool::core::PoolCore;
use crate::state::volume::VolumeCore;

/// Bad and slow places of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Places {
    pub(crate) bad: u64,
    pub(crate) slow: u64,
    /// The longest time beyond the prediction at a slow one.
    pub(crate) slow_extra_max: Nanos,
    /// Bad ones, and slow ones under a reservation, that hold data of a volume.
    pub(crate) to_leave: u64,
}

pub(crate) fn of(core: &PoolCore, index: usize) -> Places {
    let grades = core.io.disks[index].grades.lock().clone();
    let mut places = Places::default();
    if grades.is_empty() {
        return places;
    }
    for grade in grades.values() {
        match grade {
            Grade::Bad => places.bad += 1,
            Grade::Slow { extra_us } => {
                places.slow += 1;
                let extra = Nanos::from_micros(u64::from(*extra_us));
                places.slow_extra_max = places.slow_extra_max.max(extra);
            }
        }
    }
    let volumes: Vec<Arc<VolumeCore>> = core.volumes.read().values().cloned().collect();
    let bytes = core.io.extent_bytes().0;
    let admission = core.admission.lock();
    for volume in &volumes {
        for (at, place) in (0..).zip(volume.map().places()) {
            let grade = grades.get(&place.extent);
            let grade = grade.filter(|_| usize::from(place.disk.0) == index);
            let range = at * bytes..(at + 1) * bytes;
            let is_to_leave = match grade {
                None => false,
                Some(Grade::Bad) => true,
                Some(Grade::Slow { .. }) => admission.reserver(volume.id, Some(range)).is_some(),
            };
            places.to_leave += u64::from(is_to_leave);
        }
    }
    places
}
