//! The lock-free structures of `handoff`, under every relevant interleaving, by a model checker.
//!
//! The module is compiled here a second time, with the atomics of `shuttle`: at each atomic operation any
//! other thread may continue. `shuttle` assumes sequential consistency, so the weaker orderings are justified
//! beside each operation: everything passed on is written before a release that the taker's acquire reads,
//! through read-modify-writes only.
//!
//! Each scenario is explored exhaustively up to a number of preemptions, without randomness. A failure prints
//! the schedule.

#![allow(
    clippy::print_stdout,
    reason = "how many schedules were tried belongs in a test's output"
)]

pub(crate) mod sync {
    pub(crate) use shuttle::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};
}

#[path = "../../../volume/tests/volume/interleavings/bounded.rs"]
mod bounded;
/// The module under test, compiled with the atomics of `sync`.
#[path = "../../src"]
#[allow(dead_code, reason = "the tests use a part of the library")]
mod under_test {
    pub(crate) mod handoff;
}
use under_test::handoff;

use std::sync::{Arc, Mutex};

use handoff::{IndexSet, IndexStack, Mailbox};

/// Runs a scenario under every schedule with at most `preemptions` preemptions; in the full test run one more.
fn explore(name: &str, preemptions: usize, scenario: impl Fn() + Send + Sync + 'static) {
    let preemptions = preemptions + usize::from(testkit::is_full());
    let mut config = shuttle::Config::new();
    // It warns that it does not model weaker orderings: see the header.
    config.silence_warnings = true;
    let scheduler = bounded::Bounded::new(preemptions);
    let schedules = shuttle::Runner::new(scheduler, config).run(scenario);
    println!("{name}: {schedules} schedules with at most {preemptions} preemptions");
    assert!(schedules > 100, "nothing ran at the same time");
}

/// Runs threads concurrently to their ends.
fn together(threads: Vec<Box<dyn FnOnce() + Send>>) {
    let handles: Vec<_> = threads.into_iter().map(shuttle::thread::spawn).collect();
    for handle in handles {
        handle.join().unwrap();
    }
}

/// Numbers pushed by two submitters arrive once and in each submitter's order, even if a number returns while
/// the taker still examines the list that it was on.
#[test]
fn numbers_arrive_once_and_in_order() {
    explore("two push, one takes and gives back", 3, || {
        let stack = Arc::new(IndexStack::new(4));
        let cells: Arc<[Mutex<Option<u32>>; 4]> = Arc::default();
        let taken = Arc::new(Mutex::new(Vec::new()));
        let pusher = |first: u32| -> Box<dyn FnOnce() + Send> {
            let (stack, cells) = (Arc::clone(&stack), Arc::clone(&cells));
            Box::new(move || {
                for (place, value) in [(first, 10 * first), (first + 1, 10 * first + 1)] {
                    *cells[place as usize].lock().unwrap() = Some(value);
                    stack.push(place);
                }
            })
        };
        let taker: Box<dyn FnOnce() + Send> = {
            let (stack, cells, taken) =
                (Arc::clone(&stack), Arc::clone(&cells), Arc::clone(&taken));
            Box::new(move || {
                let mut batch = Vec::new();
                let mut given_back = false;
                for _ in 0..3 {
                    let Some(place) = stack.take_first(&mut batch) else {
                        continue;
                    };
                    let value = cells[place as usize].lock().unwrap().take();
                    taken
                        .lock()
                        .unwrap()
                        .push(value.expect("filled before it is linked"));
                    if !given_back {
                        given_back = true;
                        *cells[place as usize].lock().unwrap() = Some(99);
                        stack.push(place);
                    }
                }
                stack.take_all(|place| batch.insert(0, place));
                for place in batch.into_iter().rev() {
                    let value = cells[place as usize].lock().unwrap().take();
                    taken
                        .lock()
                        .unwrap()
                        .push(value.expect("filled before it is linked"));
                }
            })
        };
        together(vec![pusher(0), pusher(2), taker]);
        let mut taken = std::mem::take(&mut *taken.lock().unwrap());
        stack.take_all(|place| taken.extend(cells[place as usize].lock().unwrap().take()));
        let mut sorted: Vec<_> = taken.iter().copied().filter(|value| *value != 99).collect();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 20, 21], "taken: {taken:?}");
    });
}

/// As above, without returning numbers, so that the whole order is known.
#[test]
fn each_submitters_numbers_arrive_in_its_order() {
    explore("two push, one takes", 3, || {
        let stack = Arc::new(IndexStack::new(4));
        let taken = Arc::new(Mutex::new(Vec::new()));
        let pusher = |first: u32| -> Box<dyn FnOnce() + Send> {
            let stack = Arc::clone(&stack);
            Box::new(move || {
                stack.push(first);
                stack.push(first + 1);
            })
        };
        let taker: Box<dyn FnOnce() + Send> = {
            let (stack, taken) = (Arc::clone(&stack), Arc::clone(&taken));
            Box::new(move || {
                let mut batch = Vec::new();
                for _ in 0..3 {
                    taken.lock().unwrap().extend(stack.take_first(&mut batch));
                }
                while let Some(left) = batch.pop() {
                    taken.lock().unwrap().push(left);
                }
            })
        };
        together(vec![pusher(0), pusher(2), taker]);
        let mut taken = std::mem::take(&mut *taken.lock().unwrap());
        let mut rest = Vec::new();
        while let Some(left) = stack.take_first(&mut rest) {
            taken.push(left);
        }
        let at = |number: u32| taken.iter().position(|taken| *taken == number).unwrap();
        assert_eq!(taken.len(), 4, "{taken:?}");
        assert!(at(0) < at(1) && at(2) < at(3), "{taken:?}");
    });
}

/// A number is owned by one thread at a time, and none is lost.
#[test]
fn a_number_has_one_owner() {
    explore("three take and give back", 3, || {
        let set = Arc::new(IndexSet::full(5..7));
        let owned = Arc::new(Mutex::new([false; 2]));
        let owner = || -> Box<dyn FnOnce() + Send> {
            let (set, owned) = (Arc::clone(&set), Arc::clone(&owned));
            Box::new(move || {
                if let Some(number) = set.take() {
                    let at = number as usize - 5;
                    let was = std::mem::replace(&mut owned.lock().unwrap()[at], true);
                    assert!(!was, "{number} has two owners");
                    shuttle::thread::yield_now();
                    owned.lock().unwrap()[at] = false;
                    set.give(number);
                }
            })
        };
        together(vec![owner(), owner(), owner()]);
        assert_eq!(
            (set.take(), set.take(), set.take()),
            (Some(5), Some(6), None)
        );
    });
}

/// With as many threads as numbers, each gets one if none is returned meanwhile.
#[test]
fn each_taker_finds_a_number_if_there_are_enough() {
    explore("three take of three", 3, || {
        let set = Arc::new(IndexSet::full(0..3));
        let taken = Arc::new(Mutex::new(Vec::new()));
        let taker = || -> Box<dyn FnOnce() + Send> {
            let (set, taken) = (Arc::clone(&set), Arc::clone(&taken));
            Box::new(move || {
                let number = set.take().expect("there is one for each");
                taken.lock().unwrap().push(number);
            })
        };
        together(vec![taker(), taker(), taker()]);
        let mut taken = std::mem::take(&mut *taken.lock().unwrap());
        taken.sort_unstable();
        assert_eq!(taken, [0, 1, 2]);
    });
}

/// Values arrive once, in each sender's order, and values not taken are dropped with the mailbox.
#[test]
fn mailbox_values_arrive_once_and_none_is_leaked() {
    // Without places, so that all are allocated; and with one place, which is reused.
    letters(0, 3);
    letters(1, 2);
}

fn letters(places: u32, preemptions: usize) {
    let name = format!("two send to {places} places, one takes");
    explore(&name, preemptions, move || {
        let counted = Arc::new(());
        let mailbox = Arc::new(Mailbox::new(places));
        let taken = Arc::new(Mutex::new(Vec::new()));
        let sender = |first: u32| -> Box<dyn FnOnce() + Send> {
            let (mailbox, counted) = (Arc::clone(&mailbox), Arc::clone(&counted));
            Box::new(move || {
                mailbox.push((first, Arc::clone(&counted)));
                mailbox.push((first + 1, counted));
            })
        };
        let taker: Box<dyn FnOnce() + Send> = {
            let (mailbox, taken) = (Arc::clone(&mailbox), Arc::clone(&taken));
            Box::new(move || {
                let mut mail = mailbox.take_all();
                let first = mail.next();
                taken
                    .lock()
                    .unwrap()
                    .extend(first.map(|(number, _)| number));
                let rest = mail.map(|(number, _)| number);
                taken.lock().unwrap().extend(rest);
            })
        };
        together(vec![sender(0), sender(2), taker]);
        let mut taken = std::mem::take(&mut *taken.lock().unwrap());
        let left = Arc::strong_count(&counted) - 1;
        assert_eq!(taken.len() + left, 4, "{taken:?} were taken");
        // Taken in part: the rest is dropped with the iterator.
        let mut mail = mailbox.take_all();
        taken.extend(mail.next().map(|(number, _)| number));
        drop(mail);
        assert_eq!(Arc::strong_count(&counted), 1, "letters leaked");
        let at = |number: u32| taken.iter().position(|taken| *taken == number);
        for (first, second) in [(0, 1), (2, 3)] {
            if let Some(second) = at(second) {
                assert!(at(first).is_some_and(|first| first < second), "{taken:?}");
            }
        }
        mailbox.push((4, Arc::clone(&counted)));
        drop(mailbox);
        assert_eq!(
            Arc::strong_count(&counted),
            1,
            "letters leaked with the mailbox"
        );
    });
}

testkit::full! {
    "soak: one more preemption",
    numbers_arrive_once_and_in_order => numbers_arrive_once_and_in_order_full,
    each_submitters_numbers_arrive_in_its_order => each_submitters_numbers_arrive_in_its_order_full,
    a_number_has_one_owner => a_number_has_one_owner_full,
    each_taker_finds_a_number_if_there_are_enough => whoever_looks_finds_what_is_there_full,
    mailbox_values_arrive_once_and_none_is_leaked => letters_arrive_once_and_none_is_leaked_full,
}
