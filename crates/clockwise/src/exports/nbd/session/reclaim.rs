//! The deadline by which a client must free memory that others need.

use sched::units::{Nanos, Time};

use super::DeadlineCheck;

/// Time that a client has for the memory it holds, after the pool's own deadline.
pub(super) const WITHIN: Nanos = Nanos::from_secs(1);

/// A check that runs this much after the deadline shows that the host delayed the server, and so the client too.
const HOST_DELAY: Nanos = Nanos::from_millis(100);

/// A client's progress since the session began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ClientProgress {
    /// Bytes of replies that the socket has accepted.
    pub(super) sent_bytes: u64,
    /// Payloads of parts that the client has sent completely.
    pub(super) payloads: u64,
}

/// The demand on a client, if there is one.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Reclaim(Option<Demand>);

#[derive(Clone, Copy, Debug)]
struct Demand {
    /// The progress that the client owes.
    owed: ClientProgress,
    until: Time,
    /// The deadline has been extended because of a delay of the host, which happens once.
    is_extended: bool,
}

impl Reclaim {
    /// Replaces the demand. Returns its deadline.
    pub(super) fn start(&mut self, owed: ClientProgress, now: Time) -> Time {
        let until = now + WITHIN;
        self.0 = Some(Demand {
            owed,
            until,
            is_extended: false,
        });
        until
    }

    /// Checks the demand, and drops it once it is met.
    pub(super) fn check(&mut self, progress: ClientProgress, now: Time) -> DeadlineCheck {
        let Some(demand) = &mut self.0 else {
            return DeadlineCheck::Clear;
        };
        let owed = demand.owed;
        if progress.sent_bytes >= owed.sent_bytes && progress.payloads >= owed.payloads {
            self.0 = None;
            return DeadlineCheck::Clear;
        }
        let late = now.saturating_since(demand.until);
        if late >= HOST_DELAY && !demand.is_extended {
            demand.is_extended = true;
            demand.until = now + WITHIN;
        }
        if demand.until > now {
            DeadlineCheck::Pending(demand.until)
        } else {
            DeadlineCheck::Missed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000_000_000);

    fn progress(sent_bytes: u64, payloads: u64) -> ClientProgress {
        ClientProgress {
            sent_bytes,
            payloads,
        }
    }

    fn started(sent_bytes: u64, payloads: u64) -> Reclaim {
        let mut reclaim = Reclaim::default();
        assert_eq!(
            reclaim.start(progress(sent_bytes, payloads), NOW),
            NOW + WITHIN
        );
        reclaim
    }

    #[test]
    fn demand_is_met_by_all_that_is_owed_and_by_nothing_less() {
        let end = NOW + WITHIN;
        let check = |sent, payloads, now| started(100, 3).check(progress(sent, payloads), now);
        assert_eq!(check(99, 3, NOW), DeadlineCheck::Pending(end));
        assert_eq!(check(100, 2, Time(end.0 - 1)), DeadlineCheck::Pending(end));
        assert_eq!(check(99, 4, end), DeadlineCheck::Missed);
        assert_eq!(check(100, 3, end), DeadlineCheck::Clear);
        // A late check of a demand that has been met.
        assert_eq!(
            check(100, 3, end + Nanos::from_secs(9)),
            DeadlineCheck::Clear
        );
    }

    #[test]
    fn delay_of_the_host_extends_the_deadline_once() {
        let mut reclaim = started(100, 0);
        let late = NOW + WITHIN + HOST_DELAY;
        let end = late + WITHIN;
        let none = progress(0, 0);
        assert_eq!(reclaim.check(none, late), DeadlineCheck::Pending(end));
        assert_eq!(
            reclaim.check(none, Time(end.0 - 1)),
            DeadlineCheck::Pending(end)
        );
        assert_eq!(reclaim.check(none, end + HOST_DELAY), DeadlineCheck::Missed);
        let in_time = Time((NOW + WITHIN + HOST_DELAY).0 - 1);
        assert_eq!(started(100, 0).check(none, in_time), DeadlineCheck::Missed);
    }
}
