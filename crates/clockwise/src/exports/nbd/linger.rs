//! Looking for the rest of a payload once more before going to sleep.
//!
//! A unix socket holds less than a large write, so client and server take turns, and each that finds
//! nothing to do goes to sleep and has to be woken, which takes a processor longer than the other
//! needs for what is awaited. Who looks again for a moment gets it. That is worth its time only where
//! the client is quick, so one that was not is believed to be slow for ever longer.

use std::os::fd::BorrowedFd;
use std::sync::LazyLock;

use engine::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sched::units::{Nanos, Time};

/// How long to look: as long as it takes to be put to sleep and to be woken, so that it costs at most
/// twice of what it can save.
const ONCE: Nanos = Nanos::from_micros(30);

/// How long a turn of a connection may be prolonged by it. Others wait for theirs.
const PER_TURN: Nanos = Nanos::from_micros(2_000);

/// What was looked for is worth it if so much came, or all that was awaited: a client that sends in small
/// pieces, as over a network, is not held up by who takes them.
const WORTH_BYTES: usize = 16 << 10;

/// So many times in a row it may be in vain: even a quick client is put to sleep now and then.
const IN_VAIN_FREE: u32 = 3;

/// From then on twice as many chances are passed over each time, until it has been so often.
const DOUBLINGS_MAX: u32 = 10;

/// With one processor the client cannot do anything while it is looked for.
static IS_ALONE: LazyLock<bool> =
    LazyLock::new(|| std::thread::available_parallelism().is_ok_and(|count| count.get() == 1));

/// Whether to look, of one connection.
#[derive(Debug, Default)]
pub(super) struct Linger {
    /// How often in a row it was in vain.
    in_vain: u32,
    /// How many chances are still to be passed over.
    pass_over: u32,
    /// When it first looked in this turn.
    since: Option<Time>,
    /// Something came; how much is not known yet.
    came: bool,
}

impl Linger {
    /// Another turn begins.
    pub(super) fn begin_turn(&mut self) {
        self.since = None;
    }

    /// Looks for a moment whether something comes, if that is likely.
    pub(super) fn look(&mut self, socket: BorrowedFd<'_>) -> bool {
        let begun = clock::now();
        if *IS_ALONE || !self.is_chance_taken(begun) {
            return false;
        }
        loop {
            let mut waits = [PollFd::new(&socket, PollFlags::IN)];
            self.came = poll(&mut waits, Some(&Timespec::default())).is_ok_and(|count| count > 0);
            if self.came {
                return true;
            }
            if clock::now().saturating_since(begun) >= ONCE {
                self.note(false);
                return false;
            }
            std::hint::spin_loop();
        }
    }

    /// So much was received, which is all that was awaited or not.
    pub(super) fn brought(&mut self, bytes: usize, is_all: bool) {
        if std::mem::take(&mut self.came) {
            self.note(is_all || bytes >= WORTH_BYTES);
        }
    }

    fn is_chance_taken(&mut self, now: Time) -> bool {
        let since = *self.since.get_or_insert(now);
        let is_taken = self.pass_over == 0 && now.saturating_since(since) < PER_TURN;
        self.pass_over = self.pass_over.saturating_sub(1);
        is_taken
    }

    fn note(&mut self, was_worth_it: bool) {
        if was_worth_it {
            self.in_vain = 0;
        } else {
            self.in_vain = (self.in_vain + 1).min(IN_VAIN_FREE + DOUBLINGS_MAX);
            self.pass_over = (1 << self.in_vain.saturating_sub(IN_VAIN_FREE)) - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Any time.
    const NOW: Time = Time(1_000_000_000);

    #[test]
    fn who_is_slow_is_looked_for_ever_less_often() {
        let mut linger = Linger::default();
        let mut taken = Vec::new();
        for chance in 0..3_000 {
            if linger.is_chance_taken(NOW) {
                linger.note(false);
                taken.push(chance);
            }
        }
        assert_eq!(
            taken,
            [0, 1, 2, 3, 5, 9, 17, 33, 65, 129, 257, 513, 1_025, 2_049]
        );
        // Once it was quick it is believed again.
        while !linger.is_chance_taken(NOW) {}
        linger.note(true);
        for _ in 0..=IN_VAIN_FREE {
            assert!(linger.is_chance_taken(NOW));
            linger.note(false);
        }
        assert!(!linger.is_chance_taken(NOW));
    }

    #[test]
    fn a_turn_has_its_limit_however_quick_the_client_is() {
        let mut linger = Linger::default();
        assert!(linger.is_chance_taken(NOW));
        linger.note(true);
        assert!(linger.is_chance_taken(NOW + PER_TURN - Nanos(1)));
        linger.note(true);
        assert!(!linger.is_chance_taken(NOW + PER_TURN));
        linger.begin_turn();
        assert!(linger.is_chance_taken(NOW + PER_TURN));
    }

    #[test]
    fn what_comes_in_small_pieces_is_in_vain_but_for_the_last() {
        for (bytes, is_all, was_worth_it) in [
            (1_448, false, false),
            (1_448, true, true),
            (WORTH_BYTES, false, true),
        ] {
            let (mut client, server) = UnixStream::pair().expect("a pair");
            client.write_all(b"x").expect("it can be written");
            let mut linger = Linger {
                in_vain: 1,
                ..Linger::default()
            };
            if !linger.look(server.as_fd()) {
                assert!(*IS_ALONE);
                return;
            }
            linger.brought(bytes, is_all);
            assert_eq!(linger.in_vain == 0, was_worth_it);
            // What comes without having been looked for says nothing.
            let before = linger.in_vain;
            linger.brought(1, false);
            assert_eq!(linger.in_vain, before);
        }
    }

    #[test]
    fn what_is_not_there_is_not_waited_for() {
        let (_client, server) = UnixStream::pair().expect("a pair");
        let mut linger = Linger::default();
        assert!(!linger.look(server.as_fd()));
        assert_eq!(linger.in_vain > 0, !*IS_ALONE);
    }
}
