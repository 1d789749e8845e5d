//! Busy polling: polling the socket for the rest of a payload before the thread sleeps.
//!
//! A unix socket holds less than a large write, so client and server take turns. A side that finds nothing to do sleeps
//! and has to be woken, which takes longer than the other side needs for the next bytes. Polling for a moment avoids
//! this. It pays only if the client is fast, so after futile polls a connection polls less and less often.

use std::os::fd::BorrowedFd;
use std::sync::LazyLock;

use engine::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sched::units::{Nanos, Time};

/// Duration of a poll: the time that it takes to fall asleep and to be woken. So polling costs at most twice of what it
/// can save.
const POLL_TIME: Nanos = Nanos::from_micros(30);

/// The most time for polls in one turn of a connection. Other connections wait meanwhile.
const TIME_PER_TURN: Nanos = Nanos::from_micros(2_000);

/// A poll that brings this many bytes, or all that are missing, was worth its time. The server does not wait for a
/// client that sends small pieces, as over a network.
const WORTH_BYTES: usize = 16 << 10;

/// Number of consecutive futile polls without effect: the host interrupts a fast client now and then.
const FUTILE_FREE: u32 = 3;

/// After [`FUTILE_FREE`], each futile poll doubles the number of polls that are skipped, at most this many times.
const DOUBLINGS_MAX: u32 = 10;

/// With a single processor the client cannot run during a poll.
static HAS_ONE_PROCESSOR: LazyLock<bool> =
    LazyLock::new(|| std::thread::available_parallelism().is_ok_and(|count| count.get() == 1));

/// The value of a poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Worth {
    Useful,
    Futile,
}

impl Worth {
    /// The value of a poll that brought `bytes`, which complete the payload or not.
    pub(super) fn of(bytes: usize, is_complete: bool) -> Self {
        if is_complete || bytes >= WORTH_BYTES {
            Self::Useful
        } else {
            Self::Futile
        }
    }
}

/// The polling of one connection.
#[derive(Debug, Default)]
pub(super) struct BusyPoll {
    /// Consecutive futile polls.
    futile: u32,
    /// Polls that are still to be skipped.
    skipped: u32,
    /// Time of the first poll in this turn.
    since: Option<Time>,
    /// A poll found the socket readable, and its worth is not known yet.
    is_undecided: bool,
}

impl BusyPoll {
    pub(super) fn begin_turn(&mut self) {
        self.since = None;
    }

    /// Polls the socket for a moment, if that is likely to be useful. Returns true if the socket is readable.
    pub(super) fn poll(&mut self, socket: BorrowedFd<'_>) -> bool {
        let begun = clock::now();
        if *HAS_ONE_PROCESSOR || !self.may_poll(begun) {
            return false;
        }
        loop {
            let mut fds = [PollFd::new(&socket, PollFlags::IN)];
            self.is_undecided =
                poll(&mut fds, Some(&Timespec::default())).is_ok_and(|count| count > 0);
            if self.is_undecided {
                return true;
            }
            if clock::now().saturating_since(begun) >= POLL_TIME {
                self.note(Worth::Futile);
                return false;
            }
            std::hint::spin_loop();
        }
    }

    /// Records a receive. It decides the worth of the poll before it, if there was one.
    pub(super) fn note_received(&mut self, worth: Worth) {
        if std::mem::take(&mut self.is_undecided) {
            self.note(worth);
        }
    }

    fn may_poll(&mut self, now: Time) -> bool {
        let since = *self.since.get_or_insert(now);
        let may_poll = self.skipped == 0 && now.saturating_since(since) < TIME_PER_TURN;
        self.skipped = self.skipped.saturating_sub(1);
        may_poll
    }

    fn note(&mut self, worth: Worth) {
        match worth {
            Worth::Useful => self.futile = 0,
            Worth::Futile => {
                self.futile = (self.futile + 1).min(FUTILE_FREE + DOUBLINGS_MAX);
                self.skipped = (1 << self.futile.saturating_sub(FUTILE_FREE)) - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    const NOW: Time = Time(1_000_000_000);

    #[test]
    fn slow_client_is_polled_less_and_less_often() {
        let mut polling = BusyPoll::default();
        let mut taken = Vec::new();
        for chance in 0..3_000 {
            if polling.may_poll(NOW) {
                polling.note(Worth::Futile);
                taken.push(chance);
            }
        }
        assert_eq!(
            taken,
            [0, 1, 2, 3, 5, 9, 17, 33, 65, 129, 257, 513, 1_025, 2_049]
        );
        // One useful poll resets this.
        while !polling.may_poll(NOW) {}
        polling.note(Worth::Useful);
        for _ in 0..=FUTILE_FREE {
            assert!(polling.may_poll(NOW));
            polling.note(Worth::Futile);
        }
        assert!(!polling.may_poll(NOW));
    }

    #[test]
    fn polling_time_per_turn_is_limited_for_a_fast_client() {
        let mut polling = BusyPoll::default();
        assert!(polling.may_poll(NOW));
        polling.note(Worth::Useful);
        assert!(polling.may_poll(NOW + TIME_PER_TURN - Nanos(1)));
        polling.note(Worth::Useful);
        assert!(!polling.may_poll(NOW + TIME_PER_TURN));
        polling.begin_turn();
        assert!(polling.may_poll(NOW + TIME_PER_TURN));
    }

    #[test]
    fn small_pieces_are_futile_except_the_last() {
        for (bytes, is_complete, worth) in [
            (1_448, false, Worth::Futile),
            (1_448, true, Worth::Useful),
            (WORTH_BYTES, false, Worth::Useful),
        ] {
            let (mut client, server) = UnixStream::pair().expect("a pair");
            client.write_all(b"x").expect("it can be written");
            let mut polling = BusyPoll {
                futile: 1,
                ..BusyPoll::default()
            };
            if !polling.poll(server.as_fd()) {
                assert!(*HAS_ONE_PROCESSOR);
                return;
            }
            polling.note_received(Worth::of(bytes, is_complete));
            assert_eq!(polling.futile == 0, worth == Worth::Useful);
            // Bytes that were received without a poll change nothing.
            let before = polling.futile;
            polling.note_received(Worth::of(1, false));
            assert_eq!(polling.futile, before);
        }
    }

    #[test]
    fn poll_of_an_empty_socket_ends() {
        let (_client, server) = UnixStream::pair().expect("a pair");
        let mut polling = BusyPoll::default();
        assert!(!polling.poll(server.as_fd()));
        assert_eq!(polling.futile > 0, !*HAS_ONE_PROCESSOR);
    }
}
