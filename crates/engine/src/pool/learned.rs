//! What has been learned of the disks while they were served.

use sched::profile::DriveProfile;

use super::Pool;

/// What is known of a disk's service times now.
#[derive(Clone, Debug)]
pub struct LearnedProfile {
    /// The disk's name.
    pub disk: String,
    /// The longest that a request took of what was predicted for it, net of the host's lateness, in
    /// thousandths.
    pub took_permille: u64,
    /// The profile to serve it by from the next start on: widened such that this request would have kept
    /// within, and measured only if the one that it is served by was measured on this disk.
    pub profile: DriveProfile,
}

impl Pool {
    /// What is known of the service times of the disk of this number in the pool's order; `None` when there
    /// is none, or it is not served any more. What has been promised rests on the profile that the disk is
    /// served by, so that one stays until the pool is closed.
    #[must_use]
    pub fn learned_profile(&self, number: usize) -> Option<LearnedProfile> {
        let disk = self.core.io.disks.get(number)?;
        let took_permille = disk.handle.report().ok()?.counters.took_permille_max;
        let profile = disk.profile.widened(took_permille);
        Some(LearnedProfile {
            disk: disk.name.clone(),
            took_permille,
            // Nobody vouches for a profile by saving it.
            profile: profile.vouched_for(disk.profile_is_measured),
        })
    }
}
