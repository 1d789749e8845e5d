//! Random sets of up to six tasks on up to three lenders, whose borrowers take the longest loans.

use super::Promising;
use crate::common::{Pair, admit, random_set};
use sched::core::{Choice, Service};
use sched::units::{Nanos, Time};
use testkit::Random;

struct Busy {
    service: Service,
    since: Time,
    until: u64,
    /// True if the place is lent.
    is_lent: bool,
}

struct Lender {
    tasks: Vec<Pair>,
    disk: Promising,
    busy: Option<Busy>,
    /// Tasks ask as often as they may until then.
    rushes_until: u64,
}

impl Lender {
    fn drawn(random: &mut Random) -> Self {
        let tasks = loop {
            let tasks = random_set(random, 6, 60);
            if admit(&tasks).is_ok() {
                break tasks;
            }
        };
        Self {
            disk: Promising::new(&tasks),
            tasks,
            busy: None,
            rushes_until: 0,
        }
    }

    fn ask(&mut self, now: u64, random: &mut Random) {
        if random.chance(2) {
            self.rushes_until = now + random.range(1, 120);
        }
        for task in 0..self.tasks.len() {
            let may_ask = self.disk.queued[task].is_none() && self.disk.last[task] <= now;
            if may_ask && (now < self.rushes_until || random.chance(2)) {
                self.disk.ask(now, task, self.tasks[task].0);
            }
        }
    }

    /// The longest loan that would be made now; zero: none.
    fn longest(&self, now: u64) -> u64 {
        let is_lent = |length: u64| {
            let choice = self
                .disk
                .core
                .clone()
                .choose(Time(now), Some(Nanos(length)));
            choice == Choice::BestEffort
        };
        (1..)
            .take_while(|&length| is_lent(length))
            .last()
            .unwrap_or(0)
    }

    /// Lends the place for as long as it may, or serves what is queued.
    fn decide(&mut self, now: u64, may_lend: bool, beyond: u64, random: &mut Random) {
        let longest = if may_lend {
            self.longest(now) + beyond
        } else {
            0
        };
        let (service, cost) = if longest > 0 {
            (Service::BestEffort(Nanos(longest)), longest)
        } else if let Choice::RealTime(id, job) = self.disk.core.choose(Time(now), None) {
            self.disk.queued[id.0 as usize] = None;
            (Service::Job(id, job), self.tasks[id.0 as usize].0)
        } else {
            return;
        };
        self.disk.core.start(Time(now), service);
        let is_lent = longest > 0;
        // Some loans come back early.
        let takes = if is_lent && random.chance(20) {
            random.range(1, cost)
        } else {
            cost
        };
        if is_lent && random.chance(20) {
            self.rushes_until = now + cost + random.range(1, 120);
        }
        self.busy = Some(Busy {
            service,
            since: Time(now),
            until: now + takes,
            is_lent,
        });
    }

    fn end(&mut self, now: u64) {
        if let Some(busy) = self.busy.take_if(|busy| busy.until == now) {
            self.disk
                .core
                .finish_one(Time(now), busy.service, busy.since);
        }
    }
}

/// Plays a random link. Returns the number of loans, or `None` if a job was late.
fn played(random: &mut Random, beyond: u64) -> Option<usize> {
    let places = random.range(1, 3) as usize;
    let borrowers = random.range(1, 3) as usize;
    let mut lenders: Vec<_> = (0..places).map(|_| Lender::drawn(random)).collect();
    let mut loans = 0;
    for now in super::ORIGIN.0..super::ORIGIN.0 + 720 {
        for index in 0..places {
            lenders[index].end(now);
            lenders[index].ask(now, random);
            let is_lent = |lender: &&Lender| lender.busy.as_ref().is_some_and(|busy| busy.is_lent);
            let out = lenders.iter().filter(is_lent).count();
            let lender = &mut lenders[index];
            if lender.disk.is_late(now, &lender.tasks) {
                return None;
            }
            if lender.busy.is_none() {
                let may_lend = out < borrowers && random.chance(50);
                lender.decide(now, may_lend, beyond, random);
                loans += usize::from(lender.busy.as_ref().is_some_and(|busy| busy.is_lent));
            }
        }
    }
    Some(loans)
}

/// Number of links on which somebody was late, and of loans.
fn late(links: usize, beyond: u64) -> (usize, usize) {
    let mut random = Random(testkit::seed("random links", None));
    let (mut late, mut loans) = (0, 0);
    for _ in 0..links {
        match played(&mut random, beyond) {
            None => late += 1,
            Some(of_link) => loans += of_link,
        }
    }
    (late, loans)
}

#[test]
fn nobody_is_late_on_random_links_that_lend_the_longest_times() {
    let links = if testkit::is_full() { 20_000 } else { 1_000 };
    let (late_links, loans) = late(links, 0);
    assert_eq!(late_links, 0);
    assert!(loans > 10 * links, "{loans}");
}

#[test]
fn somebody_is_late_on_random_links_that_lend_a_tick_more() {
    assert!(late(100, 1).0 > 50);
}

testkit::full! {
    "soak: 20,000 random links",
    nobody_is_late_on_random_links_that_lend_the_longest_times => nobody_is_late_on_random_links_that_lend_the_longest_times_full,
}
