//! The largest number of streams without a late request.

use sched::units::Time;
use serde::{Deserialize, Serialize};

use super::{Outcome, Server};
use crate::sweep::Sweep;

/// Runs of a server, one for each seed: with the largest number of streams without a late request, or with a given number.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Runs {
    /// In order of seeds. A search that finds even one stream late ends with none.
    pub runs: Vec<Outcome>,
    /// Requests of all runs, with those of the search that are not shown.
    pub simulated: u64,
}

impl Runs {
    /// The mean over the seeds.
    #[must_use]
    pub fn streams(&self) -> f64 {
        let sum: u32 = self.runs.iter().map(|run| run.streams).sum();
        f64::from(sum) / self.runs.len().max(1) as f64
    }

    /// The least and the most of the seeds.
    #[must_use]
    pub fn range(&self) -> (u32, u32) {
        let streams = || self.runs.iter().map(|run| run.streams);
        (streams().min().unwrap_or(0), streams().max().unwrap_or(0))
    }
}

/// A search with one seed.
pub struct Search<'a> {
    server: &'a Server,
    seed: u64,
    simulated: u64,
}

/// The first step away from the guess.
const STEP: u32 = 4;

/// The begin of a run that is searched first: all viewers have begun, and few have ended.
const BEGIN: Time = Time(900_000_000_000);

impl<'a> Search<'a> {
    /// The largest number of each of so many seeds, the first of which is `seed`. The search of the first one is the guess of the
    /// others.
    #[must_use]
    pub fn all(server: &Server, seed: u64, runs: u64, sweep: &Sweep<'_>) -> Runs {
        let one = |seed: u64, guess: u32| {
            let mut search = Search {
                server,
                seed,
                simulated: 0,
            };
            (search.largest(guess), search.simulated)
        };
        let first = one(seed, server.guess());
        let guess = first.0.streams;
        let rest = sweep.each(runs.saturating_sub(1) as usize, |index| {
            one(seed.wrapping_add(1 + index as u64), guess)
        });
        let all = || std::iter::once(&first).chain(&rest);
        Runs {
            runs: all().map(|(outcome, _)| outcome.clone()).collect(),
            simulated: all().map(|(_, simulated)| simulated).sum(),
        }
    }

    /// The largest number without a late request. A number of streams that is too large is taken to mean that every larger one
    /// is. First the begin of runs is searched: a number that is late there is late in the whole run.
    fn largest(&mut self, guess: u32) -> Outcome {
        let (_, late) = self.between(BEGIN, guess, None, STEP);
        let most = late.map_or(self.server.most_streams(), |late| late - 1);
        let none = || Outcome::new(self.server, 0, Vec::new());
        if most == 0 {
            return none();
        }
        let (found, _) = self.between(Time::MAX, most, late, 1);
        found.unwrap_or_else(none)
    }

    /// Searches runs until a time outwards from a guess, in steps that double, and then by halving. Returns the run with the
    /// largest number that is not late, and the next number, if it is late. `late` is known to be.
    fn between(
        &mut self,
        until: Time,
        guess: u32,
        mut late: Option<u32>,
        mut step: u32,
    ) -> (Option<Outcome>, Option<u32>) {
        let most = self.server.most_streams();
        let mut found: Option<Outcome> = None;
        let mut next = guess.clamp(1, most);
        loop {
            let outcome = self.server.run_until(until, next, self.seed, true);
            self.simulated += outcome.requests;
            if outcome.is_smooth() {
                found = Some(outcome);
            } else {
                late = Some(next);
            }
            let low = found.as_ref().map_or(0, |found| found.streams);
            if low + 1 >= late.unwrap_or(most + 1) {
                return (found, late);
            }
            next = match (low, late) {
                (0, Some(late)) => late.saturating_sub(step).max(1),
                (_, Some(late)) => u32::midpoint(low, late),
                (_, None) => (low + step).min(most),
            };
            step *= 2;
        }
    }
}

impl Server {
    /// More streams need more than the channels can carry, or than a run has movies.
    #[must_use]
    pub fn most_streams(&self) -> u32 {
        let bytes = u128::from(self.bus.rate.get()) * u128::from(self.channels);
        let streams = bytes / u128::from(self.rate.get()) + 1;
        (streams as u32).min(self.movies)
    }

    /// Where a search begins: streams that would keep disks and channels 85 % busy, with seeks over a twentieth of the disk.
    fn guess(&self) -> u32 {
        let places = &self.stripe.places;
        let media: u64 = places.iter().map(|place| place.media.get()).sum();
        let drive = self.stripe.drive();
        let service = media / places.len().max(1) as u64
            + drive.rotation().get() / 2
            + drive.seek(drive.cylinders() / 20).get();
        let disks = u64::from(self.channels) * self.ids.len() as u64;
        let streams = self.period().get() * disks * 85 / (service * 100);
        (streams as u32).min(self.most_streams() * 85 / 100)
    }
}
