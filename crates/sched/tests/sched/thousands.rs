//! Admission to disks with thousands of tasks, all but full, against a sweep over every length.

#![allow(
    clippy::print_stderr,
    reason = "a test that searches says how much it has searched"
)]

use crate::common;
use crate::common::{Pair, params, random_set};
use sched::admission::{Admission, RefusedBy};
use sched::task::TaskId;
use sched::units::Nanos;
use testkit::{Random, seed};

const TASKS: usize = 2_000;
const PERIOD_MAX: u64 = 5_000;
/// Closer to 1 than this a sum of floating-point numbers does not tell.
const DOUBTFUL: f64 = 1e-9;

/// Condition 1, or nothing where the sum is too close to tell.
fn fits_whole_disk(tasks: &[Pair]) -> Option<bool> {
    let used: f64 = tasks.iter().map(|&(c, t)| c as f64 / t as f64).sum();
    ((used - 1.0).abs() > DOUBTFUL).then_some(used < 1.0)
}

/// The least room that condition 2 leaves at any length, less than nothing where it fails; nothing
/// where there is no such length.
///
/// A task whose period is L or longer has nothing due before L, so in the sum of condition 2 all tasks
/// may be counted, and of those that block only the longest matters.
fn least_room(tasks: &[Pair]) -> Option<i64> {
    let shortest = tasks.iter().map(|&(_, t)| t).min()?;
    let longest = tasks.iter().map(|&(_, t)| t).max()?;
    let mut due_at = vec![0; longest as usize + 1];
    let mut blocking = vec![0; longest as usize + 1];
    for &(c, t) in tasks {
        for at in (t..=longest).step_by(t as usize) {
            due_at[at as usize] += c;
        }
        blocking[t as usize] = blocking[t as usize].max(c);
    }
    for length in (0..longest as usize).rev() {
        blocking[length] = blocking[length].max(blocking[length + 1]);
    }
    let mut due = 0;
    (1..longest)
        .filter_map(|length| {
            due += due_at[length as usize - 1];
            let blocked = blocking[length as usize + 1];
            (length > shortest).then(|| length as i64 - (blocked + due) as i64)
        })
        .min()
}

fn schedulable(tasks: &[Pair]) -> Option<bool> {
    let fits = fits_whole_disk(tasks)?;
    Some(fits && least_room(tasks).is_none_or(|room| room >= 0))
}

/// Fills the disk up to this share, or a little further, by services of at most so much more each.
fn fill(random: &mut Random, tasks: &mut [Pair], aim: f64, longest: u64) {
    let mut used: f64 = tasks.iter().map(|&(c, t)| c as f64 / t as f64).sum();
    while used < aim {
        let (c, t) = &mut tasks[random.below(TASKS as u64) as usize];
        let more = random.range(1, longest).min(*t - *c);
        // The last steps are small ones, or most sets would be over the brim.
        let more = more.min(((aim - used) * *t as f64) as u64 + 1);
        *c += more;
        used += more as f64 / *t as f64;
    }
}

/// Some that come often and others, of a few periods or of many; half of the time one takes about as
/// long as the most frequent come, so that it blocks them, or all but does.
fn some_often(random: &mut Random, aim: f64) -> Vec<Pair> {
    let kinds = [5, 50, PERIOD_MAX][random.below(3) as usize];
    let periods: Vec<u64> = (0..kinds)
        .map(|_| random.range(PERIOD_MAX / 2, PERIOD_MAX))
        .collect();
    let (often, shortest) = (random.range(1, 12) as usize, random.range(60, 900));
    let mut tasks: Vec<Pair> = (0..TASKS)
        .map(|index| match index {
            index if index < often => (1, random.range(shortest, 2 * shortest)),
            _ => (1, periods[random.below(kinds) as usize]),
        })
        .collect();
    if random.chance(50) {
        tasks[TASKS - 1].0 = random.range(shortest / 2, shortest + shortest / 4);
    }
    let longest = random.range(1, shortest);
    fill(random, &mut tasks, aim, longest);
    tasks
}

/// All in much the same time, so that hundreds of periods have passed before the length at which a
/// rare and long request may block them.
fn alike(random: &mut Random, aim: f64) -> Vec<Pair> {
    let (from, width) = (PERIOD_MAX / 2, random.range(100, 1_500));
    let mut tasks: Vec<Pair> = (1..TASKS)
        .map(|_| (1, random.range(from, from + width)))
        .collect();
    tasks.push((random.range(1, from), PERIOD_MAX));
    fill(random, &mut tasks, aim, 3);
    tasks
}

/// Many tasks that all but fill the disk, or ask for a little more.
fn near_full_set(random: &mut Random) -> Vec<Pair> {
    let aim = random.range(850, 1_020) as f64 / 1_000.0;
    if random.chance(50) {
        some_often(random, aim)
    } else {
        alike(random, aim)
    }
}

fn numbered(tasks: &[Pair]) -> impl Iterator<Item = (TaskId, sched::task::TaskParams)> {
    let ids = (0..).map(TaskId);
    ids.zip(tasks.iter().map(|&task| params(task)))
}

#[test]
fn the_sweep_says_what_the_definition_says() {
    let mut random = Random(seed("the sweep", Some(1)));
    let mut compared = 0;
    for _ in 0..3_000 {
        let tasks = random_set(&mut random, 6, 40);
        if let Some(verdict) = schedulable(&tasks) {
            compared += 1;
            assert_eq!(verdict, common::schedulable(&tasks), "{tasks:?}");
        }
    }
    assert!(compared > 1_000, "{compared} compared");
}

#[test]
fn thousands_of_tasks_are_judged_as_at_every_length() {
    let mut random = Random(seed("admission of thousands", Some(11)));
    let (mut admitted, mut by_utilization, mut by_blocking) = (0, 0, 0);
    for round in 0..if testkit::is_full() { 10_000 } else { 1_000 } {
        let tasks = near_full_set(&mut random);
        let Some(expected) = schedulable(&tasks) else {
            continue;
        };
        match Admission::of(numbered(&tasks)).map_err(|refusal| refusal.by) {
            verdict @ Ok(_) => {
                admitted += 1;
                assert_eq!(verdict.is_ok(), expected, "round {round}");
            }
            Err(RefusedBy::Utilization) => {
                by_utilization += 1;
                assert_eq!(fits_whole_disk(&tasks), Some(false), "round {round}");
            }
            Err(RefusedBy::Blocking) => {
                by_blocking += 1;
                assert_eq!(fits_whole_disk(&tasks), Some(true), "round {round}");
                assert!(!expected, "round {round}");
            }
        }
    }
    eprintln!(
        "of {TASKS} tasks each: {admitted} sets admitted, {by_utilization} refused by utilization, {by_blocking} by blocking"
    );
    assert!(admitted.min(by_utilization).min(by_blocking) >= 20);
}

/// The longest service time with this period beside these tasks, none where not even the shortest fits.
fn longest_service(tasks: &[Pair], period: u64) -> u64 {
    let fits = |service: &u64| {
        let mut with = tasks.to_vec();
        with.push((*service, period));
        schedulable(&with) == Some(true)
    };
    let (mut fitting, mut too_long) = (0, period + 1);
    while too_long - fitting > 1 {
        let middle = fitting.midpoint(too_long);
        if fits(&middle) {
            fitting = middle;
        } else {
            too_long = middle;
        }
    }
    fitting
}

#[test]
fn one_more_beside_thousands_is_admitted_up_to_the_last_nanosecond() {
    let mut random = Random(seed("one more beside thousands", Some(12)));
    let (mut sets, mut by_utilization, mut by_blocking, mut periods) = (0, 0, 0, 0);
    while sets < if testkit::is_full() { 1_000 } else { 100 } {
        let tasks = near_full_set(&mut random);
        let Ok(set) = Admission::of(numbered(&tasks)) else {
            continue;
        };
        sets += 1;
        let id = TaskId(TASKS as u64);
        let period = random.range(60, PERIOD_MAX);
        let service = longest_service(&tasks, period);
        if service > 0 {
            assert_eq!(set.test(id, params((service, period))), Ok(()));
        }
        let mut with = tasks.clone();
        with.push((service + 1, period));
        if service < period && fits_whole_disk(&with).is_some() {
            let refusal = set
                .test(id, params((service + 1, period)))
                .expect_err("one nanosecond too many");
            match refusal.by {
                RefusedBy::Utilization => by_utilization += 1,
                RefusedBy::Blocking => {
                    by_blocking += 1;
                    let room = least_room(&with).expect("there is a length");
                    assert!(
                        room < 0 && refusal.short_by.0 <= room.unsigned_abs(),
                        "{room} {refusal:?}"
                    );
                }
            }
        }
        // The smallest period of a service time that fits for a longer one at the latest.
        let service = random.range(1, service.max(1));
        let smallest = set.smallest_period(Nanos(service)).map(|period| period.0);
        if let Some(smallest) = smallest.filter(|smallest| *smallest < 20 * PERIOD_MAX) {
            periods += 1;
            let verdict = |period: u64| {
                let mut with = tasks.clone();
                with.push((service, period));
                schedulable(&with)
            };
            assert_ne!(verdict(smallest), Some(false), "{service} in {smallest}");
            if smallest > service {
                assert_ne!(verdict(smallest - 1), Some(true), "{service} in {smallest}");
            }
        }
    }
    eprintln!(
        "{sets} sets: one nanosecond more refused {by_utilization} times by utilization, {by_blocking} by blocking; {periods} smallest periods"
    );
    assert!(by_utilization.min(by_blocking) >= 5 && periods >= 20);
}

testkit::full! {
    "soak: ten times as many sets",
    thousands_of_tasks_are_judged_as_at_every_length => thousands_of_tasks_are_judged_as_at_every_length_full,
    one_more_beside_thousands_is_admitted_up_to_the_last_nanosecond => one_more_beside_thousands_is_admitted_up_to_the_last_nanosecond_full,
}
