//! Random sequences against a model that says what tags and barriers mean and nothing of how.

use super::*;
use alloc::collections::{BTreeMap, BTreeSet};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use testkit::seed;

const RUNS: u64 = 2_000;
const SLOTS: usize = 24;

/// A request of the model. It lives until it is complete, has failed or is withdrawn.
struct Queued {
    slot: u32,
    /// `None`: a stream's request.
    space: Option<u32>,
    barrier: bool,
    /// Requests that it names, by number.
    after: Vec<u64>,
    started: bool,
}

/// All that are queued, by number in order of arrival.
#[derive(Default)]
struct Model {
    queued: BTreeMap<u64, Queued>,
    arrivals: u64,
}

impl Model {
    /// The requests that this one has to wait for, straight from the definition.
    fn waits_for(&self, number: u64) -> BTreeSet<u64> {
        let request = &self.queued[&number];
        let named = |other: &u64| request.after.contains(other);
        let separated = |other: &Queued| {
            let same_space = request.space.is_some() && request.space == other.space;
            same_space && (request.barrier || other.barrier)
        };
        let earlier = self.queued.range(..number);
        let blocking = earlier.filter(|(other, queued)| named(other) || separated(queued));
        blocking.map(|(other, _)| *other).collect()
    }

    fn is_ready(&self, number: u64) -> bool {
        self.waits_for(number).is_empty()
    }

    fn number_of(&self, slot: u32) -> u64 {
        let found = self.queued.iter().find(|(_, queued)| queued.slot == slot);
        *found.expect("a slot in use").0
    }

    fn ready(&self) -> BTreeSet<u64> {
        let numbers = self.queued.keys().copied();
        numbers.filter(|number| self.is_ready(*number)).collect()
    }
}

struct Run {
    random: StdRng,
    ordering: Ordering,
    model: Model,
    free: Vec<u32>,
}

impl Run {
    fn new(seed: u64) -> Self {
        Self {
            random: StdRng::seed_from_u64(seed),
            ordering: Ordering::new(SLOTS),
            model: Model::default(),
            free: (0..SLOTS as u32).collect(),
        }
    }

    fn any(&mut self, of: &[u64]) -> Option<u64> {
        (!of.is_empty()).then(|| of[self.random.random_range(0..of.len())])
    }

    fn arrive(&mut self) {
        let Some(slot) = self.free.pop() else { return };
        let number = self.model.arrivals;
        self.model.arrivals += 1;
        let live: Vec<u64> = self.model.queued.keys().copied().collect();
        let best_effort = self.random.random_bool(0.9);
        // Often one request named twice: nobody forbids it.
        let tags = self
            .random
            .random_range(0..=ORDER_AFTER_MAX)
            .min(live.len());
        let tags = if self.random.random_bool(0.5) {
            0
        } else {
            tags
        };
        let after: Vec<u64> = (0..tags).filter_map(|_| self.any(&live)).collect();
        let queued = Queued {
            slot,
            space: best_effort.then(|| self.random.random_range(0..3)),
            barrier: best_effort && self.random.random_bool(0.3),
            after: if best_effort { after } else { Vec::new() },
            started: false,
        };
        if let Some(space) = queued.space {
            let targets: Vec<u32> = queued
                .after
                .iter()
                .map(|number| self.model.queued[number].slot)
                .collect();
            let ready = self
                .ordering
                .add(slot, space, queued.barrier, targets.into_iter());
            self.model.queued.insert(number, queued);
            assert_eq!(ready, self.model.is_ready(number));
        } else {
            self.ordering.add_plain(slot);
            self.model.queued.insert(number, queued);
        }
    }

    /// One that may start does; whoever it had to wait for is gone by the model's account, too.
    fn start(&mut self) {
        let waiting = self.model.queued.iter();
        let startable: Vec<u64> = waiting
            .filter(|(_, queued)| !queued.started && self.ordering.is_ready(queued.slot))
            .map(|(number, _)| *number)
            .collect();
        if let Some(number) = self.any(&startable) {
            assert!(self.model.is_ready(number), "started before what it names");
            self.model.queued.get_mut(&number).expect("queued").started = true;
        }
    }

    /// One goes: started, then it is complete or has failed; not started, then it is withdrawn.
    fn go(&mut self, started: bool) {
        let queued = self.model.queued.iter();
        let may: Vec<u64> = queued
            .filter(|(_, queued)| queued.started == started)
            .map(|(number, _)| *number)
            .collect();
        let Some(number) = self.any(&may) else { return };
        let before = self.model.ready();
        let gone = self.model.queued.remove(&number).expect("queued");
        self.ordering.remove(gone.slot);
        self.free.push(gone.slot);
        let after = self.model.ready();
        let released: Vec<u64> = core::iter::from_fn(|| self.ordering.next_ready())
            .map(|slot| self.model.number_of(slot))
            .collect();
        let expected: BTreeSet<u64> = after.difference(&before).copied().collect();
        assert_eq!(released.len(), expected.len(), "released twice, or not");
        assert_eq!(BTreeSet::from_iter(released), expected);
    }

    /// Each waits for just what the model says, directly or by what its blockers wait for; all of it
    /// came before, so that nothing waits in a circle.
    fn check(&self) {
        let mut known: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        let mut expected: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for (number, queued) in &self.model.queued {
            assert_eq!(
                self.ordering.is_ready(queued.slot),
                self.model.is_ready(*number)
            );
            let mut direct = BTreeSet::new();
            self.ordering.blockers(queued.slot, |slot| {
                direct.insert(self.model.number_of(slot));
            });
            assert!(direct.iter().all(|blocker| blocker < number));
            closure(&mut known, *number, direct);
            closure(&mut expected, *number, self.model.waits_for(*number));
        }
        assert_eq!(known, expected);
    }
}

fn closure(of: &mut BTreeMap<u64, BTreeSet<u64>>, number: u64, direct: BTreeSet<u64>) {
    let indirect = direct.iter().flat_map(|blocker| of[blocker].clone());
    let all: BTreeSet<u64> = indirect.chain(direct.iter().copied()).collect();
    of.insert(number, all);
}

#[test]
fn requests_start_in_the_order_that_tags_and_barriers_demand() {
    let base = seed("order", Some(1));
    for seed in base..base + RUNS {
        let mut run = Run::new(seed);
        // Some runs keep the queue short, some let it fill.
        let arrivals = run.random.random_range(0.25..0.6);
        for _ in 0..60 {
            match run.random.random::<f64>() {
                draw if draw < arrivals => run.arrive(),
                draw if draw < arrivals + 0.2 => run.start(),
                draw if draw < arrivals + 0.35 => run.go(true),
                _ => run.go(false),
            }
            run.check();
        }
        // Nothing waits for ever: with no more arrivals, starting and completing empties the queue.
        while !run.model.queued.is_empty() {
            let before = run.model.queued.len();
            run.start();
            run.go(true);
            run.check();
            assert_eq!(run.model.queued.len(), before - 1, "all wait, seed {seed}");
        }
        assert!(run.ordering.spaces.is_empty());
    }
}
