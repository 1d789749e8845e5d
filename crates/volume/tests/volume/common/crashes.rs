//! Power cuts at every step of what a pool does, and what must be found after them.

use volume::check::check;
use volume::{Committed, Owner, PoolState, Step, Transaction};

use super::disks::*;
use super::model::*;
use super::world::World;
use testkit::Random;

/// Thoroughness of the crashes.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// All images if there are at most so many.
    pub all: u64,
    /// Otherwise so many at random.
    pub samples: u64,
}

impl Effort {
    /// The extremes only, for tests that are not about crashes.
    pub const QUICK: Self = Self { all: 1, samples: 0 };
}

impl World {
    /// Cuts the power here, in every way, and looks at what is found: one of `models`.
    pub fn crash(&mut self, models: &[&Model], doing: &str) {
        let Effort { all, samples } = self.effort;
        let deep = self.random.below(8) == 0;
        let mut inner = self.random.clone();
        let visited = for_each_crash(&self.disks, all, samples, &mut self.random, &mut |image| {
            let pool =
                open(image).unwrap_or_else(|error| panic!("while {doing}: does not open: {error}"));
            let why: Vec<_> = models
                .iter()
                .map(|model| agrees(image, &pool, model))
                .collect();
            if why.iter().all(Result::is_err) {
                panic!("while {doing}: {why:#?}");
            }
            // Examining takes as long as opening.
            if inner.below(4) == 0 {
                sound(image, doing);
            }
            if deep && inner.below(16) == 0 {
                recover(image, pool, models, &mut inner, doing);
            }
        });
        self.crashes += visited;
        self.points += 1;
    }

    /// Carries out a transaction, cutting the power before it, after each of its steps and after it.
    pub fn run(&mut self, transaction: Transaction, after: Model, doing: &str) -> Committed {
        let before = self.model.clone();
        self.crash(&[&before], doing);
        for step in transaction.steps() {
            execute(&mut self.disks, step);
            self.crash(
                &[&before, &after],
                &format!("{doing}, after {}", brief(step)),
            );
        }
        let committed = self.pool.commit(transaction);
        self.model = after.clone();
        self.crash(&[&after], &format!("after {doing}"));
        committed
    }

    /// The power fails, in a way chosen at random, and comes back.
    pub fn power_cut(&mut self) {
        let mut images = Vec::new();
        for_each_crash(&self.disks, 4, 1, &mut self.random, &mut |image| {
            images.push(image.to_vec())
        });
        let chosen = self.random.below(images.len() as u64) as usize;
        self.disks = images.swap_remove(chosen);
        self.pool = open(&self.disks).unwrap();
        agrees(&self.disks, &self.pool, &self.model).unwrap();
        for (_, map) in self.pool.volumes() {
            let seen = read(&self.disks, map);
            let cells = &mut self.model.get_mut(&map.volume()).unwrap().cells;
            *cells = seen.into_iter().map(Cell::holding).collect();
        }
        self.start();
    }
}

/// An examination of the disks finds no fault either.
fn sound(image: &[Disk], doing: &str) {
    let problems = check(&mut Live(image), &candidates(image)).problems;
    assert!(problems.is_empty(), "while {doing}: {problems:?}");
}

/// Every start has an owner of its own.
pub fn random_owner(random: &mut Random) -> Owner {
    random.next().to_le_bytes()
}

fn brief(step: &Step) -> String {
    match step {
        Step::Write { disk, start, data } => format!(
            "a write of {} B at {start:?} of disk {}",
            data.len(),
            disk.0
        ),
        Step::Flush { .. } | Step::Expect { .. } => format!("{step:?}"),
    }
}

/// Starts a pool found after a crash, with the power failing again at any step of that.
fn recover(
    image: &[Disk],
    mut pool: PoolState,
    models: &[&Model],
    random: &mut Random,
    doing: &str,
) {
    let mut disks = image.to_vec();
    let transaction = pool.start(random_owner(random)).unwrap();
    for step in transaction.steps() {
        execute(&mut disks, step);
        for_each_crash(&disks, 1, 2, random, &mut |again| {
            let pool =
                open(again).unwrap_or_else(|error| panic!("recovering from {doing}: {error}"));
            assert!(
                models
                    .iter()
                    .any(|model| agrees(again, &pool, model).is_ok()),
                "recovering from {doing}"
            );
            sound(again, &format!("recovering from {doing}"));
        });
    }
    pool.commit(transaction);
    let again = open(&disks).unwrap();
    assert!(
        models
            .iter()
            .any(|model| agrees(&disks, &again, model).is_ok()),
        "recovered from {doing}"
    );
}
