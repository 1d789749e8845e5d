//! Lines of the log about connections. Anybody may open as many as they like, so each kind of line is limited.

use std::fmt::Display;
use std::time::Instant;

use peers::log_throttle::Sparing;

/// Connections that had no export yet: a port scan, a health check.
static WITHOUT_EXPORT: Sparing = Sparing::one();

/// Connections that had one.
static WITH_EXPORT: Sparing = Sparing::few();

/// Of the host's making, and not drowned by what clients do.
static HOST: Sparing = Sparing::one();

/// A connection has ended as it should not.
pub(super) fn ended(error: &dyn Display, had_export: bool) {
    if had_export {
        if let Some(untold) = WITH_EXPORT.turn(Instant::now()) {
            tracing::info!(%error, untold, "a block export connection ended");
        }
    } else if let Some(untold) = WITHOUT_EXPORT.turn(Instant::now()) {
        tracing::info!(%error, untold, "a block export connection ended before it had an export");
    }
}

/// The host cannot have a connection served.
pub(super) fn unserved(error: &dyn Display) {
    if let Some(untold) = HOST.turn(Instant::now()) {
        tracing::warn!(%error, untold, "a block export connection cannot be served");
    }
}
