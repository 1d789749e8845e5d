//! Observed service times of disks, and profiles that are refined by them.

use std::sync::Arc;

use sched::profile::DriveProfile;
use sched::units::Time;
use volume::Uuid;

use super::Pool;
use crate::clock;
use crate::dispatcher::ServiceTimes;

/// A disk's profile, refined by the observed service times.
#[derive(Clone, Debug)]
pub struct LearnedProfile {
    /// The disk's name.
    pub disk: String,
    /// The largest ratio of actual to predicted service time of a request, net of the host's lateness, in
    /// thousandths.
    pub took_permille: u64,
    /// The profile to use from the next start on: widened so that this request would have kept to it. It counts as
    /// measured only if the current profile was measured on this disk.
    pub profile: DriveProfile,
}

/// Service times of a disk since the pool was opened.
#[derive(Clone, Debug)]
pub struct ObservedTimes {
    /// Time of the observation.
    pub at: Time,
    /// The times.
    pub times: ServiceTimes,
}

/// Identity of a disk of an open pool.
#[derive(Clone, Debug)]
pub struct DiskIdentity {
    /// The identity that the pool gave it.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// The profile in use.
    pub profile: Arc<DriveProfile>,
    /// True if the profile was measured on this disk.
    pub profile_is_measured: bool,
}

impl Pool {
    /// The refined profile of the disk with this number; `None` if there is no such disk or it is not served any
    /// more. `took_permille_before` is the largest ratio of earlier runs with the same profile. The pool continues
    /// to use its current profile until it is closed, because reservations rest on it.
    #[must_use]
    pub fn learned_profile(
        &self,
        number: usize,
        took_permille_before: u64,
    ) -> Option<LearnedProfile> {
        let disk = self.core.io.disks.get(number)?;
        let of_this_run = disk.handle.report().ok()?.counters.took_permille_max;
        let took_permille = of_this_run.max(took_permille_before);
        let profile = disk.profile.widened(took_permille);
        Some(LearnedProfile {
            disk: disk.name.clone(),
            took_permille,
            // Saving a profile does not turn a guess into a measurement.
            profile: profile.vouched_for(disk.profile_is_measured),
        })
    }

    /// The service times of the disk with this number; `None` if there is no such disk or it is not served any
    /// more.
    #[must_use]
    pub fn service_times(&self, number: usize) -> Option<ObservedTimes> {
        let report = self.core.io.disks.get(number)?.handle.report().ok()?;
        Some(ObservedTimes {
            at: clock::now(),
            times: report.counters.service_times,
        })
    }

    /// The identities of the pool and of its disks, in the order of their numbers.
    #[must_use]
    pub fn identities(&self) -> (Uuid, Vec<DiskIdentity>) {
        let meta = self.core.meta.lock();
        let disks = self.core.io.disks.iter().zip(meta.state.disks());
        let disks = disks.map(|(disk, numbered)| DiskIdentity {
            id: numbered.id,
            name: disk.name.clone(),
            profile: Arc::clone(&disk.profile),
            profile_is_measured: disk.profile_is_measured,
        });
        (meta.state.id(), disks.collect())
    }
}
