//! What the predictor of `sched` promises is never less than what a simulated drive takes. The two
//! share neither code nor figures' files, only the facts about the drives.

#![allow(clippy::print_stdout, reason = "a test says its seed")]

#[path = "../../sched/tests/common/random.rs"]
#[allow(
    dead_code,
    reason = "the scheduler's tests', of which this uses a part"
)]
mod random;
#[path = "../../sched/tests/common/seed.rs"]
mod seed;

use random::Random;
use sched::predict::Predictor;
use sched::profile::DriveProfile;
use sched::request::Op;
use sched::units::{Nanos, Sector, SectorCount, Time};
use seed::seed;
use sim::plant::{Plant, PlantSpec};

struct Request {
    op: Op,
    start: u64,
    count: u64,
}

/// Random places and sizes, with the awkward ones often: around track and zone boundaries, next to
/// the head, at the far end.
fn choose(random: &mut Random, predictor: &Predictor, head: u64, unit: u64) -> Request {
    let capacity = predictor.capacity().get();
    let count = match random.below(4) {
        0 => 1 + random.below(16),
        1 => 1 + random.below(600),
        2 => 1 << random.below(12),
        _ => 1 + random.below(9_000),
    };
    let count = if random.below(8) == 0 {
        count
    } else {
        count.next_multiple_of(unit)
    };
    let place = match random.below(6) {
        0 => head + 1,
        1 => head.saturating_sub(random.below(20_000)),
        2 => {
            let zone = random.below(predictor.zone_count() as u64) as usize;
            let end = predictor
                .zone_range(zone)
                .map_or(0, |range| range.end.get());
            end.saturating_sub(random.below(2 * count))
        }
        3 => random.below(2) * capacity,
        _ => random.below(capacity),
    };
    let start = place.min(capacity - count);
    let start = if random.below(8) == 0 {
        start
    } else {
        start - start % unit
    };
    let op = if random.below(2) == 0 {
        Op::Read
    } else {
        Op::Write
    };
    Request { op, start, count }
}

fn never_slower_than_predicted(name: &str) {
    let seed = seed(name, Some(1));
    let profile = DriveProfile::shipped(name).expect("it is shipped");
    let predictor = Predictor::new(&profile);
    let mut plant = Plant::new(PlantSpec::built_in(name).expect("it is built in"), seed);
    assert_eq!(plant.sectors(), predictor.capacity());
    let mut random = Random(seed);
    let mut now = Time(0);
    let mut head = None;
    let unit = profile.physical_sector().get() / 512;
    let (mut predicted_sum, mut actual_sum) = (0, 0);
    for number in 0..400_000 {
        let place = head.map_or(0, |head: Sector| head.get());
        let Request { op, start, count } = choose(&mut random, &predictor, place, unit);
        let (start, count) = (Sector(start), SectorCount(count));
        now += Nanos(random.below(20_000_000));
        let service = plant.service(now, op, start, count);
        let actual = service.completed - now;
        let predicted = predictor.predict(head, op, start, count);
        assert!(
            actual <= predicted,
            "{name}, seed {seed}, request {number}: {op:?} {count:?} at {start:?} from {head:?} took \
             {actual}, predicted {predicted}; {:?}",
            service.breakdown
        );
        (predicted_sum, actual_sum) = (predicted_sum + predicted.get(), actual_sum + actual.get());
        now = service.completed;
        head = Some(Sector(start.get() + count.get() - 1));
    }
    println!(
        "{name}: predicted is {:.3} of actual",
        predicted_sum as f64 / actual_sum as f64
    );
}

#[test]
fn the_atlas_is_never_slower_than_predicted() {
    never_slower_than_predicted("quantum-atlas-ii");
}

#[test]
fn the_drive_of_today_is_never_slower_than_predicted() {
    never_slower_than_predicted("hdd-8tb-7200");
}
