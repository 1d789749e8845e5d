//! The definitions, written down a second time as naively as possible: every L is looked at.

#![allow(
    dead_code,
    unused_imports,
    reason = "every test file uses a part of it"
)]

pub(crate) mod design;
pub(crate) mod disk;
pub(crate) mod model;

use std::io::Write;

use sched::admission::{Admission, Refusal};
use sched::task::{TaskId, TaskParams};
use sched::units::Nanos;
use testkit::Random;

/// (C, T).
pub(crate) type Pair = (u64, u64);

/// Says what a search of state spaces has seen, on the process's own standard error: what a test prints is
/// not shown of one that passes, and how much was searched is to be read in the log of every run.
pub(crate) fn report_search(name: &str, sets: usize, states: usize, missing: usize) {
    let [sets, states, missing] = [sets, states, missing].map(design::number);
    // One line in one write, which what other tests say at the same time cannot part.
    let line = format!("searched {name}: {sets} task sets, {states} states, misses in {missing}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

pub(crate) fn params((service, period): Pair) -> TaskParams {
    TaskParams::new(Nanos(service), Nanos(period)).expect("a task")
}

/// Puts the tasks in, in this order.
pub(crate) fn admit(tasks: &[Pair]) -> Result<Admission, Refusal> {
    let mut set = Admission::new();
    for (index, &task) in tasks.iter().enumerate() {
        set.insert(TaskId(index as u64), params(task))?;
    }
    Ok(set)
}

/// Admits tasks that are served in pieces of that length.
pub(crate) fn admit_in_pieces(tasks: &[Pair], piece: Option<u64>) -> Result<Admission, Refusal> {
    let params = tasks.iter().map(|&task| match piece {
        None => params(task),
        Some(piece) => params(task).in_pieces(Nanos(piece)),
    });
    Admission::of((0..).map(TaskId).zip(params))
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

pub(crate) fn hyperperiod(tasks: &[Pair]) -> u64 {
    tasks
        .iter()
        .fold(1, |cycle, &(_, period)| cycle / gcd(cycle, period) * period)
}

/// Condition 1, over the hyperperiod.
pub(crate) fn fits_whole_disk(tasks: &[Pair]) -> bool {
    let cycle = hyperperiod(tasks);
    tasks.iter().map(|&(c, t)| cycle / t * c).sum::<u64>() <= cycle
}

/// The disk time that tasks may need in this long: the part of those of each period, rounded up.
pub(crate) fn share_of(tasks: &[Pair], interval: u64) -> u64 {
    let mut by_period = std::collections::BTreeMap::new();
    for &(c, t) in tasks {
        *by_period.entry(t).or_insert(0) += c;
    }
    let parts = by_period.iter().map(|(t, c)| (c * interval).div_ceil(*t));
    parts.sum()
}

/// L - C_i - sum over j < i of floor((L - 1) / T_j) C_j, tasks in order of period.
pub(crate) fn n(sorted: &[Pair], i: usize, l: u64) -> i64 {
    let before: u64 = sorted[..i].iter().map(|&(c, t)| (l - 1) / t * c).sum();
    l as i64 - (sorted[i].0 + before) as i64
}

/// L - sum over j of floor(L / T_j) C_j.
pub(crate) fn m(tasks: &[Pair], l: u64) -> i64 {
    l as i64 - tasks.iter().map(|&(c, t)| l / t * c).sum::<u64>() as i64
}

pub(crate) fn sorted(tasks: &[Pair]) -> Vec<Pair> {
    let mut sorted = tasks.to_vec();
    sorted.sort_by_key(|&(c, t)| (t, c));
    sorted
}

/// Conditions 1 and 2, for every i and every L.
pub(crate) fn schedulable(tasks: &[Pair]) -> bool {
    let s = sorted(tasks);
    fits_whole_disk(tasks) && (1..s.len()).all(|i| (s[0].1 + 1..s[i].1).all(|l| n(&s, i, l) >= 0))
}

/// dL as defined, corrected: M up to a hyperperiod and a longest period.
pub(crate) fn delta_l(tasks: &[Pair]) -> i64 {
    let last = tasks.iter().map(|t| t.1).max().unwrap_or(0);
    least(tasks, hyperperiod(tasks) + last, |period| period)
}

/// dL as published: M and every N up to the longest period.
pub(crate) fn delta_l_published(tasks: &[Pair]) -> i64 {
    let last = tasks.iter().map(|t| t.1).max().unwrap_or(0);
    least(tasks, last, |_| last)
}

fn least(tasks: &[Pair], m_until: u64, n_until: impl Fn(u64) -> u64) -> i64 {
    let s = sorted(tasks);
    let first = s[0].1;
    let in_order = (first..=m_until).map(|l| m(&s, l));
    let blocked = (1..s.len())
        .flat_map(|i| (first..=n_until(s[i].1)).map(move |l| (i, l)))
        .map(|(i, l)| n(&s, i, l));
    in_order.chain(blocked).min().expect("there is an L")
}

/// A set of up to `n_max` tasks with periods up to `period_max`, often near a full disk.
pub(crate) fn random_set(random: &mut Random, n_max: u64, period_max: u64) -> Vec<Pair> {
    let n = random.range(1, n_max);
    let mut left = 1000;
    (0..n)
        .map(|k| {
            let period = random.range(2, period_max);
            let part = if k + 1 == n {
                left
            } else {
                random.range(0, left)
            };
            left -= part;
            ((period * part / 1000).clamp(1, period), period)
        })
        .collect()
}
