//! What a camera takes, as far as its sessions have shown: where one way fails, the other is tried.
//!
//! | what | the first way | the other way, which is tried next |
//! |---|---|---|
//! | packets | as the source was added, or as they have come | by UDP or TCP, where SETUP is refused for its transport twice in a row, as one that is starting may refuse it once, or no packet comes; from `rtsps` never by UDP |
//! | keep-alive | GET_PARAMETER if `Public` names it, or OPTIONS | the other one, where a session has ended in less than twice its timeout although it was kept alive |
//!
//! What has worked once stays. None of it outlives the server.

use sched::units::Nanos;

use super::address::RedirectError;
use super::{Address, Lower, SourceError};

/// How often a transport is refused in a row before the other one is asked for.
const REFUSALS: u32 = 2;

/// What is known of a camera.
#[derive(Debug)]
pub(super) struct Habits {
    asked: Lower,
    lower: Lower,
    /// Packets have come so.
    is_proven: bool,
    /// How often it was refused since.
    refusals: u32,
    /// Why they are asked for otherwise than the source was added.
    why: Option<String>,
    /// A session is kept alive by the other method than the camera's `Public` says.
    pub(super) keeps_otherwise: bool,
    /// A session has lasted by what keeps it alive.
    is_kept: bool,
    /// Where it has said that what is asked for is from now on, if that can be gone to.
    pub(super) sent_to: Option<Result<Address, RedirectError>>,
}

impl Habits {
    /// Of one of which nothing is known.
    pub(super) const fn new(asked: Lower) -> Self {
        Self {
            asked,
            lower: asked,
            is_proven: false,
            refusals: 0,
            why: None,
            keeps_otherwise: false,
            is_kept: false,
            sent_to: None,
        }
    }

    /// How packets are asked for.
    pub(super) const fn lower(&self, is_secure: bool) -> Lower {
        if is_secure { Lower::Tcp } else { self.lower }
    }

    /// Whether packets have come so.
    pub(super) const fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// They have come.
    pub(super) const fn proves(&mut self) {
        self.is_proven = true;
        self.refusals = 0;
    }

    /// A camera has refused this way.
    pub(super) fn is_refused(&mut self, by: Lower, error: &SourceError) {
        self.refusals += 1;
        if self.refusals >= REFUSALS {
            self.goes_otherwise(by, error);
        }
    }

    /// They do not come by this way, and are asked for by the other one from now on.
    pub(super) fn goes_otherwise(&mut self, by: Lower, error: &SourceError) {
        self.lower = by.other();
        (self.is_proven, self.refusals) = (false, 0);
        let why = match error {
            SourceError::SilentBy { wait, .. } => format!("nothing has come for {wait}"),
            other => other.to_string(),
        };
        self.why = Some(format!("packets come by {}: by {by}, {why}", self.lower));
    }

    /// Why packets come otherwise than the source was added; `None`: they come so.
    pub(super) fn otherwise(&self) -> Option<String> {
        self.why.clone().filter(|_| self.lower != self.asked)
    }

    /// A session of the camera that lasts so long if it is not kept alive has ended after `age`; `is_tried`: it was kept alive.
    pub(super) fn session_ended(&mut self, age: Nanos, timeout: Nanos, is_tried: bool) {
        self.is_kept |= age >= timeout * 2;
        if is_tried && !self.is_kept {
            self.keeps_otherwise = !self.keeps_otherwise;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = Nanos::from_secs(1);

    #[test]
    fn packets_are_asked_for_by_the_other_way_where_one_fails() {
        let mut habits = Habits::new(Lower::Tcp);
        assert_eq!(
            (habits.lower(false), habits.otherwise()),
            (Lower::Tcp, None)
        );
        let is_refused = |habits: &mut Habits| {
            habits.is_refused(Lower::Tcp, &SourceError::Transport);
            habits.lower(false)
        };
        assert_eq!(is_refused(&mut habits), Lower::Tcp);
        habits.proves();
        // Not in a row.
        assert_eq!(is_refused(&mut habits), Lower::Tcp);
        assert_eq!(is_refused(&mut habits), Lower::Udp);
        assert_eq!(habits.lower(true), Lower::Tcp);
        assert!(!habits.is_proven());
        let why = habits.otherwise().unwrap();
        assert!(why.starts_with("packets come by UDP: by TCP, "), "{why}");
        let wait = SECOND * 10;
        habits.goes_otherwise(
            Lower::Udp,
            &SourceError::SilentBy {
                by: Lower::Udp,
                wait,
            },
        );
        assert_eq!(
            (habits.lower(false), habits.otherwise()),
            (Lower::Tcp, None)
        );
    }

    #[test]
    fn a_session_that_ends_early_is_kept_alive_otherwise_until_one_has_lasted() {
        let mut habits = Habits::new(Lower::Tcp);
        let mut ends = |seconds: u64, is_tried| {
            habits.session_ended(SECOND * seconds, SECOND * 60, is_tried);
            habits.keeps_otherwise
        };
        // Before it was kept alive at all nothing is known.
        assert!(!ends(29, false));
        assert!(ends(61, true));
        assert!(!ends(70, true));
        assert!(ends(119, true));
        // This one does it.
        assert!(ends(120, true));
        assert!(ends(31, true));
    }
}
