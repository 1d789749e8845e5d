//! The transport and the keep-alive method that work with a camera. When one fails, the other is tried.
//!
//! | | first choice | switch to the other |
//! |---|---|---|
//! | transport | as the source was added, or the one by which packets arrived last | SETUP was refused for its transport twice in a row (a camera that is starting may refuse once), or no packet arrived. Never UDP with `rtsps` |
//! | keep-alive | GET_PARAMETER if `Public` lists it, otherwise OPTIONS | a session ended in less than twice its timeout although it was kept alive |
//!
//! A choice that has worked once stays. All of this is forgotten when the server ends.

use sched::units::Nanos;

use super::address::RedirectError;
use super::keep_alive::FirstMethod;
use super::{Address, LowerTransport, SourceError};

/// Refusals in a row after which the other transport is asked for.
const REFUSALS: u32 = 2;

/// The state of the fallbacks of one camera.
#[derive(Debug)]
pub(super) struct Fallbacks {
    /// The transport that the source was added with.
    configured: LowerTransport,
    transport: LowerTransport,
    /// Packets have arrived by `transport`.
    is_proven: bool,
    /// Refusals of `transport` since packets arrived.
    refusals: u32,
    /// Why `transport` was switched.
    reason: Option<String>,
    keep_alive: FirstMethod,
    /// A session has lasted, so the keep-alive works.
    has_lasted: bool,
    /// Where the camera's REDIRECT leads; the next attempt takes it.
    pub(super) redirect: Option<Result<Address, RedirectError>>,
}

impl Fallbacks {
    pub(super) const fn new(configured: LowerTransport) -> Self {
        Self {
            configured,
            transport: configured,
            is_proven: false,
            refusals: 0,
            reason: None,
            keep_alive: FirstMethod::Listed,
            has_lasted: false,
            redirect: None,
        }
    }

    /// The transport to ask for.
    pub(super) const fn transport(&self, is_secure: bool) -> LowerTransport {
        if is_secure {
            LowerTransport::Tcp
        } else {
            self.transport
        }
    }

    /// True if packets have arrived by the current transport.
    pub(super) const fn is_proven(&self) -> bool {
        self.is_proven
    }

    pub(super) const fn packets_arrived(&mut self) {
        self.is_proven = true;
        self.refusals = 0;
    }

    /// The camera refused SETUP by this transport.
    pub(super) fn transport_refused(&mut self, by: LowerTransport, error: &SourceError) {
        self.refusals += 1;
        if self.refusals >= REFUSALS {
            self.switch_transport(by, error);
        }
    }

    /// Asks for the other transport from the next attempt on.
    pub(super) fn switch_transport(&mut self, from: LowerTransport, error: &SourceError) {
        self.transport = from.other();
        (self.is_proven, self.refusals) = (false, 0);
        let why = match error {
            SourceError::TransportSilent { wait, .. } => format!("no packets for {wait}"),
            other => other.to_string(),
        };
        self.reason = Some(format!(
            "receiving by {}, not by {from}: {why}",
            self.transport
        ));
    }

    /// Why another transport is used than the source was added with; `None` if it is the same.
    pub(super) fn reason(&self) -> Option<String> {
        self.reason
            .clone()
            .filter(|_| self.transport != self.configured)
    }

    /// The method to begin the keep-alive with.
    pub(super) const fn keep_alive(&self) -> FirstMethod {
        self.keep_alive
    }

    /// A session ended at `age`. `timeout`: its duration without a keep-alive. `is_tried`: a keep-alive was sent.
    pub(super) fn session_ended(&mut self, age: Nanos, timeout: Nanos, is_tried: bool) {
        self.has_lasted |= age >= timeout * 2;
        if is_tried && !self.has_lasted {
            self.keep_alive = match self.keep_alive {
                FirstMethod::Listed => FirstMethod::Other,
                FirstMethod::Other => FirstMethod::Listed,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = Nanos::from_secs(1);

    #[test]
    fn transport_is_switched_after_two_refusals_in_a_row_or_silence() {
        let mut fallbacks = Fallbacks::new(LowerTransport::Tcp);
        assert_eq!(
            (fallbacks.transport(false), fallbacks.reason()),
            (LowerTransport::Tcp, None)
        );
        let refused = |fallbacks: &mut Fallbacks| {
            fallbacks.transport_refused(LowerTransport::Tcp, &SourceError::Transport);
            fallbacks.transport(false)
        };
        assert_eq!(refused(&mut fallbacks), LowerTransport::Tcp);
        fallbacks.packets_arrived();
        // Not in a row.
        assert_eq!(refused(&mut fallbacks), LowerTransport::Tcp);
        assert_eq!(refused(&mut fallbacks), LowerTransport::Udp);
        assert_eq!(fallbacks.transport(true), LowerTransport::Tcp);
        assert!(!fallbacks.is_proven());
        let reason = fallbacks.reason().unwrap();
        assert!(
            reason.starts_with("receiving by UDP, not by TCP: "),
            "{reason}"
        );
        let wait = SECOND * 10;
        fallbacks.switch_transport(
            LowerTransport::Udp,
            &SourceError::TransportSilent {
                by: LowerTransport::Udp,
                wait,
            },
        );
        assert_eq!(
            (fallbacks.transport(false), fallbacks.reason()),
            (LowerTransport::Tcp, None)
        );
    }

    #[test]
    fn keep_alive_is_switched_after_a_short_session_until_one_has_lasted() {
        let mut fallbacks = Fallbacks::new(LowerTransport::Tcp);
        let mut ends = |seconds: u64, is_tried| {
            fallbacks.session_ended(SECOND * seconds, SECOND * 60, is_tried);
            fallbacks.keep_alive() == FirstMethod::Other
        };
        // A session without a keep-alive says nothing about it.
        assert!(!ends(29, false));
        assert!(ends(61, true));
        assert!(!ends(70, true));
        assert!(ends(119, true));
        // This session has lasted, so the method stays.
        assert!(ends(120, true));
        assert!(ends(31, true));
    }
}
