//! Drive profiles.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What is known of a disk's service times.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProfileView {
    /// The disk's name.
    pub disk: String,
    /// The profile to serve it by from the next start on, as the text of its TOML file: the one that it is
    /// served by, widened such that the longest overrun would have kept within it.
    pub toml: String,
    /// By how much its figures are widened, in percent.
    pub widened_percent: u64,
    /// The longest that a request took of what was predicted for it, net of the host's own lateness. More
    /// than 1 is an overrun.
    pub actual_over_predicted_max: f64,
}
