//! Log lines about connections. Clients can cause any number of them, so each kind of line is limited.

use std::fmt::Display;
use std::time::Instant;

use peers::log_throttle::SharedLogThrottle;

/// Connections that ended without an export, such as port scans and health checks.
static WITHOUT_EXPORT: SharedLogThrottle = SharedLogThrottle::one();

/// Connections that ended with an export.
static WITH_EXPORT: SharedLogThrottle = SharedLogThrottle::few();

/// Failures of the host, counted separately so that clients cannot suppress them.
static HOST: SharedLogThrottle = SharedLogThrottle::one();

/// The stage that a connection had reached at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// No export was selected.
    Handshake,
    Transmission,
}

/// Logs a connection that ended out of order.
pub(super) fn connection_ended(error: &dyn Display, stage: Stage) {
    match stage {
        Stage::Transmission => {
            if let Some(untold) = WITH_EXPORT.turn(Instant::now()) {
                tracing::info!(%error, untold, "a block export connection ended");
            }
        }
        Stage::Handshake => {
            if let Some(untold) = WITHOUT_EXPORT.turn(Instant::now()) {
                tracing::info!(%error, untold, "a block export connection ended before it had an export");
            }
        }
    }
}

/// Logs a connection for which the host lacks resources.
pub(super) fn connection_not_served(error: &dyn Display) {
    if let Some(untold) = HOST.turn(Instant::now()) {
        tracing::warn!(%error, untold, "a block export connection cannot be served");
    }
}
