//! A link that moves a unit a tick, for any disk that fairness allows.
//!
//! A service of some units takes a time alone: its last unit comes from the medium a tick before its end, and each one
//! before that as much earlier as the medium takes for a unit. A disk with a unit to move is passed over at most m - 1
//! times in a row.

use super::{Disk, Link};
use crate::dice::Dice;

/// Times of a link's disks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Times {
    disks: u64,
    /// Ticks that the medium takes for a unit. 0: all units of a service come at once, as from the buffer of a track.
    medium: u64,
    /// True if the disks count on longer times.
    inflates: bool,
}

impl Times {
    /// The medium is from much faster than a disk's part of the link to a little slower.
    pub(super) fn drawn(disks: u64, inflates: bool, dice: &mut Dice) -> Self {
        Self {
            disks,
            medium: dice.below(disks + 2),
            inflates,
        }
    }

    /// D of docs/design/scheduling.md, section 16, with a burst of one unit.
    fn delay(self, units: u64) -> u64 {
        if !self.inflates {
            return 0;
        }
        units * self.disks.saturating_sub(self.medium) + self.disks - 1
    }

    /// The shortest service of so many units, with D.
    pub(super) fn least(self, units: u64) -> u64 {
        (units - 1) * self.medium + 1 + self.delay(units)
    }

    /// Units of a service that takes this long with D: half of all services have as many as possible.
    fn units(self, service: u64, dice: &mut Dice) -> u64 {
        let most = (1..=service).take_while(|units| self.least(*units) <= service);
        let most = most.last().unwrap_or(1);
        match dice.below(2) {
            0 => most,
            _ => 1 + dice.below(most),
        }
    }
}

/// A service on a disk.
#[derive(Clone, Copy)]
struct Transfer {
    /// When the next unit has come from the medium. [`u64::MAX`]: nothing is on the disk.
    ready: u64,
    /// When it is over at the latest, by its prediction.
    until: u64,
    /// Units that have not crossed the link.
    left: u64,
    /// How often the disk has been passed over since it has had a unit to move.
    passed_over: u64,
}

impl Transfer {
    const NONE: Self = Self {
        ready: u64::MAX,
        until: 0,
        left: 0,
        passed_over: 0,
    };
}

/// The disk that is passed over as often as the link may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Starved {
    /// The one with the nearest deadline.
    Nearest,
    /// This one.
    Disk(usize),
    /// Another one each time.
    Any,
}

/// A link, while it is played.
pub(super) struct Inflated {
    times: Times,
    starved: Starved,
    /// By disk.
    transfers: Vec<Transfer>,
    is_beyond: bool,
    dice: Dice,
}

impl Inflated {
    pub(super) fn new(times: Times, mut dice: Dice) -> Self {
        let starved = match dice.below(4) {
            0 | 1 => Starved::Nearest,
            2 => Starved::Disk(dice.below(times.disks) as usize),
            _ => Starved::Any,
        };
        Self {
            times,
            starved,
            transfers: vec![Transfer::NONE; times.disks as usize],
            is_beyond: false,
            dice,
        }
    }

    /// True if each of the others can still have one of the next units in time after this disk gets the next.
    fn is_fair(&self, now: u64, chosen: usize) -> bool {
        let m = self.times.disks;
        // The number of disks that fairness serves within the next `units`.
        let within = |units: u64| {
            let others = self.transfers.iter().enumerate();
            let is_within = |(disk, other): &(usize, &Transfer)| {
                *disk != chosen && other.ready <= now && other.passed_over + 1 + units >= m
            };
            others.filter(is_within).count() as u64
        };
        (0..m).all(|units| within(units) <= units)
    }

    /// The disk that gets the next unit.
    fn chosen(&mut self, now: u64, disks: &[Disk<'_>]) -> Option<usize> {
        let mut chosen = None;
        for (number, disk) in disks.iter().enumerate() {
            if self.transfers[number].ready > now || !self.is_fair(now, number) {
                continue;
            }
            let key = match self.starved {
                Starved::Nearest => disk.game().next_deadline().unwrap_or(u64::MAX),
                Starved::Disk(starved) => u64::from(number != starved),
                Starved::Any => self.dice.below(1 << 32),
            };
            chosen = chosen.max(Some((key, number)));
        }
        chosen.map(|(_, number)| number)
    }
}

impl Link for Inflated {
    fn begin(&mut self, now: u64, number: usize, disk: &mut Disk<'_>) {
        let Some(until) = disk.game().busy_until() else {
            return;
        };
        let left = self.times.units(until - now, &mut self.dice);
        let alone_until = until - self.times.delay(left);
        self.transfers[number] = Transfer {
            ready: alone_until - 1 - (left - 1) * self.times.medium,
            until,
            left,
            passed_over: 0,
        };
        disk.end_at(u64::MAX);
    }

    fn pass(&mut self, now: u64, disks: &mut [Disk<'_>]) -> u64 {
        let Some(chosen) = self.chosen(now, disks) else {
            let wakes = disks.iter().map(|disk| disk.wakes);
            let ready = self.transfers.iter().map(|transfer| transfer.ready);
            return wakes.chain(ready).min().unwrap_or(u64::MAX);
        };
        for (number, transfer) in self.transfers.iter_mut().enumerate() {
            if number == chosen {
                transfer.left -= 1;
                transfer.passed_over = 0;
                transfer.ready += self.times.medium;
            } else if transfer.ready <= now {
                transfer.passed_over += 1;
            }
        }
        let Transfer { left, until, .. } = self.transfers[chosen];
        if left == 0 {
            self.is_beyond |= now + 1 > until;
            self.transfers[chosen] = Transfer::NONE;
            disks[chosen].end_at(now + 1);
        }
        now + 1
    }

    fn is_beyond_bounds(&self) -> bool {
        self.is_beyond
    }
}
