//! Schedulers of disks that share a link, against tasks and a link that do all they may to make them late.
//!
//! # What it is for
//!
//! The two answers of [`sched::link`] are tried on random sets of tasks, one for each disk that promises. On each disk
//! the scheduler's own core is attacked as on a disk of its own. The link and the borrowers decide when a service is
//! over. Proofs are in docs/design/scheduling.md, section 16.
//!
//! # Deliberately absent
//!
//! Bytes and rates: times are in ticks, and a burst is what the link moves in a tick. Cases that can be
//! [replayed](super::replay): the seed and the number of a set repeat it.

mod inflate;
mod lend;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use sched::policy::Policy;
use serde::Serialize;

use super::attack::{Attack, Pattern};
use super::play::{Game, Happening, TaskSet};
use super::{CaseTask, each_set, seed_of};
use crate::dice::Dice;

/// How the disks of a link share it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// All disks promise. Each service may take D longer than alone.
    Inflate,
    /// Some disks have a place and promise, one or more but not all. They lend the places to the others for best
    /// effort.
    Lend,
}

/// Options of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkOptions {
    /// The rule of each disk.
    pub scheduler: Policy,
    /// How the disks share the link.
    pub sharing: Sharing,
    /// Disks of the link, 2 or more.
    pub disks: usize,
    /// Number of links, each with an admitted set for each disk that promises.
    pub sets: u64,
    /// Decides everything that is random.
    pub seed: u64,
    /// Number of threads.
    pub threads: usize,
    /// Breaks the rule of sharing, to see that the search finds it: services are as long as if D were zero, or each
    /// place comes back a tick after the time that it was lent for.
    pub breaks_rule: bool,
}

/// Result of a search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkFindings {
    /// Links tried.
    pub sets: u64,
    /// Links with which a job was late.
    pub sets_with_misses: u64,
    /// Links on which a service took longer than alone and D, or more disks transferred than there are places although
    /// no piece overran.
    pub sets_beyond_bounds: u64,
    /// The first miss of the first link with one.
    pub first_miss: Option<LinkMiss>,
}

/// A job that was late.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LinkMiss {
    /// Number of the link, from 1.
    pub set: u64,
    /// The tasks of each disk that promises, with the times that were admitted.
    pub tasks: Vec<Vec<CaseTask>>,
    /// The disk.
    pub disk: usize,
    /// The task of that disk.
    pub task: usize,
    /// When the job was due.
    pub deadline: u64,
    /// By how much it was late.
    pub late_by: u64,
}

/// A disk that promises.
struct Disk<'a> {
    attack: Attack<'a>,
    /// When it is asked again.
    wakes: u64,
}

impl Disk<'_> {
    fn game(&self) -> &Game<'_> {
        &self.attack.game
    }

    /// The service on the disk is over at this time.
    fn end_at(&mut self, until: u64) {
        self.attack.game.end_at(until);
        self.wakes = self.wakes.min(until);
    }
}

/// The link, which decides when services end.
trait Link {
    /// A service has begun on this disk, and ends as predicted if nothing else is said.
    fn begin(&mut self, now: u64, number: usize, disk: &mut Disk<'_>);

    /// Moves on to the next time at which a disk has to be asked.
    fn pass(&mut self, now: u64, disks: &mut [Disk<'_>]) -> u64;

    /// True if the link has not kept what it promises to the disks.
    fn is_beyond_bounds(&self) -> bool;
}

/// Plays until a job is late: its disk, task, deadline, and by how much.
fn late_job(link: &mut dyn Link, disks: &mut [Disk<'_>]) -> Option<(usize, usize, u64, u64)> {
    let end = disks.iter().map(|disk| disk.attack.end()).max();
    let mut now = 0;
    while Some(now) < end {
        for (number, disk) in disks.iter_mut().enumerate() {
            if disk.wakes > now {
                continue;
            }
            disk.attack.game.advance(now);
            if let Some(step) = disk.game().late
                && let Happening::Late { task, deadline, by } = step.what
            {
                return Some((number, task, deadline, by));
            }
            let was_free = disk.game().busy_until().is_none();
            disk.wakes = disk.attack.act().unwrap_or(u64::MAX);
            if was_free && disk.game().busy_until().is_some() {
                link.begin(now, number, disk);
            }
        }
        now = link.pass(now, disks);
    }
    None
}

/// A link with its tasks.
struct LinkSet {
    /// Of each disk that promises.
    sets: Vec<TaskSet>,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Inflate(inflate::Times),
    Lend { borrowers: usize },
}

impl LinkSet {
    fn drawn(options: &LinkOptions, dice: &mut Dice) -> Self {
        let disks = options.disks as u64;
        let (promise, least, kind) = match options.sharing {
            Sharing::Inflate => {
                let times = inflate::Times::drawn(disks, !options.breaks_rule, dice);
                (disks, times.least(1), Kind::Inflate(times))
            }
            Sharing::Lend => {
                let places = 1 + dice.below(disks - 1);
                let borrowers = (disks - places) as usize;
                (places, 1, Kind::Lend { borrowers })
            }
        };
        let sets = (0..promise).map(|_| super::drawn(dice, super::Way::default(), least));
        Self {
            sets: sets.collect(),
            kind,
        }
    }

    /// Plays all patterns on each disk, each time with others on the other disks. Returns the first late job, and if
    /// the link was beyond its bounds.
    fn played(&self, options: &LinkOptions, seed: u64) -> (Option<(usize, usize, u64, u64)>, bool) {
        let mut beyond_bounds = false;
        for game in 0..Pattern::ALL.len() {
            let seed = seed_of(seed, game as u64);
            let dice = Dice(Xoshiro256PlusPlus::seed_from_u64(seed));
            let (least, mut link): (u64, Box<dyn Link>) = match self.kind {
                Kind::Inflate(times) => (
                    times.least(1),
                    Box::new(inflate::Inflated::new(times, dice)),
                ),
                Kind::Lend { borrowers } => {
                    let lent =
                        lend::Lent::new(self.sets.len(), borrowers, options.breaks_rule, dice);
                    (1, Box::new(lent))
                }
            };
            let disk = |(number, set)| {
                let pattern = Pattern::ALL[(game * (number + 1)) % Pattern::ALL.len()];
                let seed = seed_of(seed, number as u64 + 1);
                Disk {
                    attack: Attack::new(set, options.scheduler, pattern, least, seed),
                    wakes: 0,
                }
            };
            let mut disks: Vec<Disk<'_>> = self.sets.iter().enumerate().map(disk).collect();
            let late = late_job(link.as_mut(), &mut disks);
            beyond_bounds |= link.is_beyond_bounds();
            if late.is_some() {
                return (late, beyond_bounds);
            }
        }
        (None, beyond_bounds)
    }
}

/// Tries to make a disk of a link late. `progress` is told how many sets have been tried, from any thread.
#[must_use]
pub fn search(options: &LinkOptions, progress: &(dyn Fn(u64) + Sync)) -> LinkFindings {
    let (late_sets, sets_beyond) = (AtomicU64::new(0), AtomicU64::new(0));
    let first: Mutex<Option<LinkMiss>> = Mutex::default();
    each_set(options.sets, options.threads, progress, &|number| {
        let seed = seed_of(options.seed, number);
        let dice = &mut Dice(Xoshiro256PlusPlus::seed_from_u64(seed));
        let set = LinkSet::drawn(options, dice);
        let (late, is_beyond) = set.played(options, seed);
        sets_beyond.fetch_add(u64::from(is_beyond), Ordering::Relaxed);
        let Some((disk, task, deadline, late_by)) = late else {
            return;
        };
        late_sets.fetch_add(1, Ordering::Relaxed);
        let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
        if first.as_ref().is_none_or(|first| number + 1 < first.set) {
            *first = Some(LinkMiss {
                set: number + 1,
                tasks: set.sets.into_iter().map(|set| set.tasks).collect(),
                disk,
                task,
                deadline,
                late_by,
            });
        }
    });
    LinkFindings {
        sets: options.sets,
        sets_with_misses: late_sets.into_inner(),
        sets_beyond_bounds: sets_beyond.into_inner(),
        first_miss: first.into_inner().unwrap_or_else(PoisonError::into_inner),
    }
}

#[cfg(test)]
mod tests;
