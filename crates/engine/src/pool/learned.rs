//! Profiles that are refined by observed service times.

use sched::profile::DriveProfile;

use super::Pool;

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

impl Pool {
    /// The refined profile of the disk with this number; `None` if there is no such disk or it is not served any
    /// more. The pool continues to use its current profile until it is closed, because reservations rest on it.
    #[must_use]
    pub fn learned_profile(&self, number: usize) -> Option<LearnedProfile> {
        let disk = self.core.io.disks.get(number)?;
        let took_permille = disk.handle.report().ok()?.counters.took_permille_max;
        let profile = disk.profile.widened(took_permille);
        Some(LearnedProfile {
            disk: disk.name.clone(),
            took_permille,
            // Saving a profile does not turn a guess into a measurement.
            profile: profile.vouched_for(disk.profile_is_measured),
        })
    }
}
