//! What a client has to have done, and until when, because others need the memory that it holds.

use sched::units::{Nanos, Time};

use super::Verdict;

/// How long a client has for what it holds up, once the time to give back is over.
const WITHIN: Nanos = Nanos::from_secs(1);

/// Who comes this much later than it wanted to was held up by the host, and the client with it.
const HELD_UP: Nanos = Nanos::from_millis(100);

/// What one client owes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Debt {
    /// How many bytes of replies it has to have taken since the session began.
    sent: u64,
    /// How many payloads it has to have sent.
    payloads: u64,
    until: Time,
    /// It has had more time once, because the server was not there when it was over.
    is_put_off: bool,
}

impl Debt {
    pub(super) fn new(sent: u64, payloads: u64, now: Time) -> Self {
        Self {
            sent,
            payloads,
            until: now + WITHIN,
            is_put_off: false,
        }
    }

    pub(super) fn until(&self) -> Time {
        self.until
    }

    /// Whether it is settled by a client that has taken and sent so much.
    pub(super) fn look(&mut self, sent: u64, payloads: u64, now: Time) -> Verdict {
        if sent >= self.sent && payloads >= self.payloads {
            return Verdict::Fine;
        }
        let late = now.saturating_since(self.until);
        if late >= HELD_UP && !self.is_put_off {
            self.is_put_off = true;
            self.until = now + WITHIN;
        }
        if self.until > now {
            Verdict::LookAt(self.until)
        } else {
            Verdict::Overdue
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000_000_000);

    #[test]
    fn it_is_settled_by_all_that_was_owed_and_by_nothing_less() {
        let end = NOW + WITHIN;
        let look = |sent, payloads, now| Debt::new(100, 3, NOW).look(sent, payloads, now);
        assert_eq!(look(99, 3, NOW), Verdict::LookAt(end));
        assert_eq!(look(100, 2, Time(end.0 - 1)), Verdict::LookAt(end));
        assert_eq!(look(99, 4, end), Verdict::Overdue);
        assert_eq!(look(100, 3, end), Verdict::Fine);
        // Settled is settled, however late it is seen.
        assert_eq!(look(100, 3, end + Nanos::from_secs(9)), Verdict::Fine);
    }

    #[test]
    fn who_is_not_there_when_the_time_is_over_puts_it_off_once() {
        let mut debt = Debt::new(100, 0, NOW);
        let late = NOW + WITHIN + HELD_UP;
        assert_eq!(debt.look(0, 0, late), Verdict::LookAt(late + WITHIN));
        assert_eq!(debt.until(), late + WITHIN);
        let end = late + WITHIN;
        assert_eq!(debt.look(0, 0, Time(end.0 - 1)), Verdict::LookAt(end));
        assert_eq!(debt.look(0, 0, end + HELD_UP), Verdict::Overdue);
        let mut other = Debt::new(100, 0, NOW);
        let in_time = Time((NOW + WITHIN + HELD_UP).0 - 1);
        assert_eq!(other.look(0, 0, in_time), Verdict::Overdue);
    }
}
