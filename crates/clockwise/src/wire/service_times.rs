//! Service times of a disk: predicted against actual, overruns, and drift.

use std::fmt;

use sched::units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::quantity::{Size, Span};

/// A piece of a request on a disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PieceView {
    /// `read` or `write`.
    pub op: String,
    /// Its first sector of 512 bytes.
    pub sector: u64,
    /// The same in bytes.
    pub position_bytes: u64,
    /// Its length.
    pub length_bytes: u64,
}

/// A request, or a piece of one, that took longer than predicted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OverrunView {
    /// The time of its completion, as RFC 3339 writes it.
    pub at: String,
    /// The piece.
    pub piece: PieceView,
    /// Its user: `stream`, `sync` or `async`.
    pub user: String,
    /// The predicted service time.
    pub predicted_ns: u64,
    /// The time from issue to completion.
    pub actual_ns: u64,
    /// The host's part of that time.
    pub host_ns: u64,
    /// The piece that the disk served before it, which left the head where it was.
    pub before: Option<PieceView>,
    /// The time from the end of that piece to the issue of this one.
    pub idle_before_ns: u64,
}

impl fmt::Display for PieceView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} at sector {} (byte {})",
            self.op,
            Size(Bytes(self.length_bytes)),
            self.sector,
            self.position_bytes
        )
    }
}

impl fmt::Display for OverrunView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = |nanos| Span(Nanos(nanos));
        let user = match self.user.as_str() {
            "stream" => "for a stream",
            "sync" => "of synchronous best effort",
            _ => "of asynchronous best effort",
        };
        write!(
            f,
            "{} {user} at {}: predicted {}, took {}, {} of it by the host",
            self.piece,
            self.at,
            span(self.predicted_ns),
            span(self.actual_ns),
            span(self.host_ns)
        )?;
        let Some(before) = &self.before else {
            return Ok(());
        };
        let idle = span(self.idle_before_ns);
        write!(
            f,
            "; before it, {before}, which ended {idle} before it began"
        )
    }
}

/// Service times of one kind of request, for as long as the disk has its present profile.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct KindView {
    /// `read` or `write`.
    pub op: String,
    /// Their user: `stream`, `sync` or `async`.
    pub user: String,
    /// The greatest length; that of the next smaller kind is half of it.
    pub length_bytes_max: u64,
    /// Number of pieces.
    pub count: u64,
    /// Number of those that took longer than predicted, net of the host's own lateness.
    pub overruns: u64,
    /// The longest time by which one did.
    pub excess_max_ns: u64,
    /// Total actual over total predicted time.
    pub actual_over_predicted: f64,
    /// 99 % of the pieces kept within this ratio, rounded up to 0.05; 1.6 and more is `actual_over_predicted_max`.
    pub actual_over_predicted_p99: f64,
    /// The largest ratio.
    pub actual_over_predicted_max: f64,
}

/// The direction of a drift.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DriftDirection {
    /// More requests take longer than predicted than the profile's validation allows.
    Slower,
    /// All requests take so much less than predicted that a new measurement would admit more.
    Faster,
}

/// A lasting difference between a disk and its profile.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DriftView {
    /// Its direction.
    pub direction: DriftDirection,
    /// The time since when it has been known, as RFC 3339 writes it.
    pub since: String,
    /// The evidence, and what to do.
    pub what: String,
}

/// A disk's service times for as long as it has its present profile, over all restarts of the server.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ServiceTimesView {
    /// The time since when the disk has had the profile, as RFC 3339 writes it.
    pub since: String,
    /// Number of pieces completed.
    pub count: u64,
    /// Number of those that took longer than predicted, net of the host's own lateness.
    pub overruns: u64,
    /// The largest ratio of actual to predicted time.
    pub actual_over_predicted_max: f64,
    /// By kind.
    pub kinds: Vec<KindView>,
    /// The last overruns, the oldest first.
    pub last_overruns: Vec<OverrunView>,
    /// The difference from its profile, if there is one.
    pub drift: Option<DriftView>,
}
