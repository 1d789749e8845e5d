//! The largest number of streams without a late request.

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
            one(seed + 1 + index as u64, guess)
        });
        let all = || std::iter::once(&first).chain(&rest);
        Runs {
            runs: all().map(|(outcome, _)| outcome.clone()).collect(),
            simulated: all().map(|(_, simulated)| simulated).sum(),
        }
    }

    fn run(&mut self, streams: u32) -> Outcome {
        let outcome = self.server.run(streams, self.seed, true);
        self.simulated += outcome.requests;
        outcome
    }

    /// Searches outwards from a guess, in steps that double, and then between. A number of streams that is too large is taken to
    /// mean that every larger one is.
    fn largest(&mut self, guess: u32) -> Outcome {
        let most = self.server.most_streams();
        let mut good: Option<Outcome> = None;
        let mut bad = most + 1;
        let mut step = STEP;
        let mut next = guess.clamp(1, most);
        loop {
            let outcome = self.run(next);
            let smooth = outcome.is_smooth();
            if smooth {
                good = Some(outcome);
            } else {
                bad = next;
            }
            let low = good.as_ref().map_or(0, |good| good.streams);
            if low + 1 >= bad {
                return good.unwrap_or_else(|| Outcome::new(self.server, 0, Vec::new()));
            }
            let is_between = low > 0 && bad <= most;
            next = if is_between {
                u32::midpoint(low, bad)
            } else if smooth {
                (next + step).min(most)
            } else {
                next.saturating_sub(step).max(1)
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
