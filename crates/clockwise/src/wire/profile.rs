//! Drive profiles.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A drive profile derived from a disk's service times.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProfileView {
    /// The disk's name.
    pub disk: String,
    /// The profile to use from the next start on, as the text of a TOML file: the present profile, widened so
    /// that the longest overrun would have fit.
    pub toml: String,
    /// The widening of its times, in percent.
    pub widened_percent: u64,
    /// The largest ratio of actual to predicted service time of a request, net of the host's own lateness.
    /// Above 1 it is an overrun.
    pub actual_over_predicted_max: f64,
    /// The time since when the disk has had the present profile, as RFC 3339 writes it.
    #[serde(default)]
    pub since: String,
    /// Number of requests since then, over all restarts of the server.
    #[serde(default)]
    pub count: u64,
}
