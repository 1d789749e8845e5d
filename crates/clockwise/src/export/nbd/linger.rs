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
use sched::units::Nanos;

/// How long to look: as long as it takes to be put to sleep and to be woken, so that it costs at most
/// twice of what it can save.
const ONCE: Nanos = Nanos::from_micros(30);

/// How long in one turn of a connection. Others wait for theirs.
const PER_TURN: Nanos = Nanos::from_micros(1_000);

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
    /// How long it has looked in this turn.
    spent: Nanos,
}

impl Linger {
    /// Another turn begins.
    pub(super) fn begin_turn(&mut self) {
        self.spent = Nanos::ZERO;
    }

    /// Looks for a moment whether something comes, if that is likely.
    pub(super) fn look(&mut self, socket: BorrowedFd<'_>) -> bool {
        if *IS_ALONE || !self.is_chance_taken() {
            return false;
        }
        let begun = clock::now();
        loop {
            let mut waits = [PollFd::new(&socket, PollFlags::IN)];
            let came = poll(&mut waits, Some(&Timespec::default())).is_ok_and(|count| count > 0);
            let looked = clock::now().saturating_since(begun);
            if came || looked >= ONCE {
                self.note(came, looked);
                return came;
            }
            std::hint::spin_loop();
        }
    }

    fn is_chance_taken(&mut self) -> bool {
        let is_taken = self.pass_over == 0 && self.spent < PER_TURN;
        self.pass_over = self.pass_over.saturating_sub(1);
        is_taken
    }

    fn note(&mut self, came: bool, looked: Nanos) {
        self.spent += looked;
        if came {
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

    #[test]
    fn who_is_slow_is_looked_for_ever_less_often() {
        let mut linger = Linger::default();
        let mut taken = Vec::new();
        for chance in 0..3_000 {
            linger.begin_turn();
            if linger.is_chance_taken() {
                linger.note(false, ONCE);
                taken.push(chance);
            }
        }
        assert_eq!(
            taken,
            [0, 1, 2, 3, 5, 9, 17, 33, 65, 129, 257, 513, 1_025, 2_049]
        );
        // Once it was quick it is believed again.
        while !linger.is_chance_taken() {}
        linger.note(true, Nanos(1));
        assert!(linger.is_chance_taken());
        for _ in 0..=IN_VAIN_FREE {
            assert!(linger.is_chance_taken());
            linger.note(false, ONCE);
        }
        assert!(!linger.is_chance_taken());
    }

    #[test]
    fn a_turn_has_its_limit_however_quick_the_client_is() {
        let mut linger = Linger::default();
        let looks = (0..1_000).take_while(|_| {
            let is_taken = linger.is_chance_taken();
            linger.note(true, Nanos(PER_TURN.get() / 10));
            is_taken
        });
        assert_eq!(looks.count(), 10);
        linger.begin_turn();
        assert!(linger.is_chance_taken());
    }

    #[test]
    fn what_is_there_is_seen() {
        let (mut client, server) = UnixStream::pair().expect("a pair");
        let mut linger = Linger::default();
        assert!(!linger.look(server.as_fd()));
        client.write_all(b"x").expect("it can be written");
        assert_eq!(linger.look(server.as_fd()), !*IS_ALONE);
    }
}
