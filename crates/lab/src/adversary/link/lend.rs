//! Places that are lent to disks without one.
//!
//! A disk with a place lends it for each best-effort request while a disk without one is idle, for as long as it
//! accepts. Pieces end early, at their end, or overrun. After its time the place is taken back.

use super::{Disk, Link};
use crate::dice::Dice;

/// The longest overrun.
const OVERRUN_MAX: u64 = 60;

/// When services end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ends {
    AsPredicted,
    /// Half of them early.
    Early,
    /// Half of the pieces on a lent place late.
    Late,
}

/// Places and the disks without one, while they are played.
pub(super) struct Lent {
    pub(super) ends: Ends,
    /// By disk without a place: until when it transfers.
    borrowers: Vec<u64>,
    /// By disk with a place: true if the service on it is a loan.
    is_lent: Vec<bool>,
    /// Ticks by which a place comes back too late.
    too_late: u64,
    /// The most disks that transferred at a time.
    pub(super) transferring_max: usize,
    dice: Dice,
}

impl Lent {
    pub(super) fn new(places: usize, borrowers: usize, breaks_rule: bool, mut dice: Dice) -> Self {
        let ends = match dice.below(3) {
            0 => Ends::AsPredicted,
            1 => Ends::Early,
            _ => Ends::Late,
        };
        Self {
            ends,
            borrowers: vec![0; borrowers],
            is_lent: vec![false; places],
            too_late: u64::from(breaks_rule),
            transferring_max: 0,
            dice,
        }
    }
}

impl Link for Lent {
    fn begin(&mut self, now: u64, number: usize, disk: &mut Disk<'_>) {
        let Some(mut until) = disk.game().busy_until() else {
            return;
        };
        let is_otherwise = self.dice.below(2) == 0;
        if self.ends == Ends::Early && is_otherwise {
            until = now + 1 + self.dice.below(until - now);
        }
        let idle = self.borrowers.iter_mut().find(|until| **until <= now);
        let borrower = idle.filter(|_| disk.game().serves_best_effort());
        self.is_lent[number] = borrower.is_some();
        if let Some(borrower) = borrower {
            until += self.too_late;
            *borrower = until;
            if self.ends == Ends::Late && is_otherwise {
                *borrower += 1 + self.dice.below(OVERRUN_MAX);
            }
        }
        disk.end_at(until);
    }

    fn pass(&mut self, now: u64, disks: &mut [Disk<'_>]) -> u64 {
        let own = disks.iter().zip(&self.is_lent);
        let own = own.filter(|(disk, is_lent)| disk.game().busy_until().is_some() && !**is_lent);
        let borrowers = self.borrowers.iter().filter(|until| **until > now);
        self.transferring_max = self.transferring_max.max(own.count() + borrowers.count());
        let wakes = disks.iter().map(|disk| disk.wakes);
        wakes.min().unwrap_or(u64::MAX)
    }

    fn is_beyond_bounds(&self) -> bool {
        self.ends != Ends::Late && self.transferring_max > self.is_lent.len()
    }
}
