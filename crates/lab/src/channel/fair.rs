//! The host's part of the fair discipline: which disk may send, by tokens (Chen and Thapar, figure 4).
//!
//! A disk may send a request if it has its access right and there is an idle token. It loses the right with that, and gets it
//! back when no disk with a right has anything to send.

use super::run::{Channel, Watch};

impl<W: Watch> Channel<'_, W> {
    /// A PRE-FETCH is done.
    pub(super) fn fetch_done(&mut self, rank: usize) {
        if self.disks[rank].has_right && self.idle_tokens > 0 {
            self.serve(rank);
        }
    }

    /// A READ is done: its token goes to the next disk that may send.
    pub(super) fn read_done(&mut self, rank: usize) {
        self.refill(rank);
        self.idle_tokens += 1;
        if self.pass(rank) {
            return;
        }
        self.disks.iter_mut().for_each(|disk| disk.has_right = true);
        self.pass(rank);
    }

    /// Gives an idle token to the next disk behind `rank` that has a right and something to send.
    fn pass(&mut self, rank: usize) -> bool {
        let count = self.disks.len();
        let mut next = (rank + 1..count).chain(0..=rank);
        let may_send = |rank: &usize| {
            let disk = &self.disks[*rank];
            disk.has_right && disk.notified != disk.asked
        };
        let found = next.find(may_send);
        if let Some(rank) = found {
            self.serve(rank);
        }
        found.is_some()
    }

    fn serve(&mut self, rank: usize) {
        self.disks[rank].has_right = false;
        self.idle_tokens -= 1;
        self.ask(rank);
    }
}
