//! Admission reserves at least the time of a plant: the predictor's worst case over a range, and its
//! prediction for a head at any position, for every place, size and direction.

#![allow(clippy::print_stdout, reason = "a test says its seed")]

use drives::plant::spec::BUILT_IN;
use drives::plant::{Plant, PlantSpec};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use sched::predict::Predictor;
use sched::profile::DriveProfile;
use sched::request::Op;
use sched::units::{Nanos, Sector, SectorCount};

const SEEDS: [u64; 4] = [1, 2, 3, 2026];
const REQUESTS: u64 = 60_000;
/// Up to 48 MiB, beyond any block that a pool proposes to a stream.
const SECTORS_MAX_LOG2: u64 = 16;

struct Requests {
    random: Xoshiro256PlusPlus,
    sectors: u64,
    boundaries: Vec<u64>,
    last_end: u64,
}

impl Requests {
    fn below(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound
    }

    /// Sizes evenly over their logarithm, half of them multiples of 4 KiB; places anywhere, near
    /// the last one, right after it, or across the boundary of two zones.
    fn next(&mut self) -> (Op, Sector, SectorCount) {
        let op = if self.below(2) == 0 {
            Op::Read
        } else {
            Op::Write
        };
        let top = 1 << self.below(SECTORS_MAX_LOG2 + 1);
        let aligned = self.below(2) == 0;
        let count = if aligned {
            (top + 7) & !7
        } else {
            top / 2 + 1 + self.below(top)
        };
        let room = self.sectors - count;
        let mut start = match self.below(4) {
            0 => self.below(room + 1),
            1 => (self.last_end + self.below(100_000))
                .saturating_sub(50_000)
                .min(room),
            2 => self.last_end.min(room),
            _ => {
                let which = self.below(self.boundaries.len() as u64) as usize;
                self.boundaries[which]
                    .saturating_sub(self.below(count + 1))
                    .min(room)
            }
        };
        if aligned {
            start &= !7;
        }
        self.last_end = start + count;
        (op, Sector(start), SectorCount(count))
    }
}

#[derive(Default)]
struct Verdict {
    requests: u64,
    overruns: Vec<String>,
    predicted: u64,
    within: u64,
    swept: u64,
    actual: u64,
}

fn compare(name: &str, seed: u64, verdict: &mut Verdict) {
    let mut plant = Plant::new(PlantSpec::built_in(name).unwrap(), seed);
    let predictor = Predictor::new(&DriveProfile::shipped(name).unwrap());
    assert_eq!(predictor.capacity(), plant.sectors());
    let boundaries = plant
        .zones()
        .iter()
        .map(|zone| zone.first_sector.get())
        .collect();
    let sectors = plant.sectors().get();
    let random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut requests = Requests {
        random,
        sectors,
        boundaries,
        last_end: 0,
    };
    let mut head = None;
    for _ in 0..REQUESTS {
        let (op, mut start, count) = requests.next();
        if requests.below(4) == 0
            && let Some(track) = predictor.track(start)
        {
            start = track.start;
        }
        let idle = if requests.below(2) == 0 {
            0
        } else {
            requests.below(20_000_000)
        };
        let now = plant.busy_until() + Nanos(idle);
        let from = plant.cylinder();
        let breakdown = plant.service(now, op, start, count).breakdown;
        let actual = breakdown.total();
        let anywhere = predictor.predict(None, op, start, count);
        // Around it, and aligned to physical sectors only if it is: then the worst case is of
        // requests that are.
        let before = (requests.below(1_000_000) & !7).min(start.get() & !7);
        let after = requests
            .below(1_000_000)
            .min(sectors - (start + count).get());
        let around = Sector(start.get() - before)..start + count + SectorCount(after);
        let worst = predictor.worst_case(around.clone(), op, count);
        let within = predictor.worst_within(&around, op, start, count);
        let near = within + predictor.way_back(&around, head);
        let seek = head.map_or(predictor.way_into(&around, None), |head| {
            predictor.seek_in_sweep(head, start)
        });
        let swept = predictor.swept(op, start, count) + seek;
        head = Some(Sector((start + count).get() - 1));
        for (what, bound) in [
            ("predict anywhere", anywhere),
            ("worst case", worst),
            ("worst case within, and the way back", near),
            ("in a sweep, and the seek there", swept),
        ] {
            if actual > bound && verdict.overruns.len() < 10 {
                verdict.overruns.push(format!(
                    "{name}, seed {seed}: {what} {bound}, took {actual}: {op:?} {count:?} at {start:?} \
                     from cylinder {from}: {breakdown:?}"
                ));
            }
        }
        verdict.requests += 1;
        verdict.predicted += anywhere.get();
        verdict.within += within.get();
        verdict.swept += swept.get();
        verdict.actual += actual.get();
    }
}

#[test]
fn no_request_takes_longer_than_what_is_reserved_for_it() {
    for name in BUILT_IN {
        let mut verdict = Verdict::default();
        for seed in SEEDS {
            compare(name, seed, &mut verdict);
        }
        println!(
            "{name}: {} requests, seeds {SEEDS:?}, anywhere is {:.2} times what they took, within a region {:.2}, in a sweep {:.2}",
            verdict.requests,
            verdict.predicted as f64 / verdict.actual as f64,
            verdict.within as f64 / verdict.actual as f64,
            verdict.swept as f64 / verdict.actual as f64
        );
        assert!(verdict.overruns.is_empty(), "{:#?}", verdict.overruns);
        // A bound that is never anywhere near would hold whatever the plant does.
        assert!(verdict.within <= verdict.predicted && verdict.predicted < 4 * verdict.actual);
    }
}
