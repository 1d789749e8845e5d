//! Admission over time spans.

use crate::common;
use crate::common::{Pair, params};
use sched::admission::RefusedBy;
use sched::book::{Book, Span, SpanError};
use sched::task::TaskId;
use sched::units::{Nanos, Time};
use testkit::{Random, seed};

fn span(from: u64, until: u64) -> Span {
    Span {
        from: Time(from),
        until: Time(until),
    }
}

#[test]
fn a_set_is_schedulable_at_every_instant_and_nothing_less_is_accepted() {
    let mut random = Random(seed("book", Some(21)));
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..500 {
        let mut book = Book::new();
        let mut inside: Vec<(Pair, Span)> = Vec::new();
        for id in 0..12 {
            let period = random.range(4, 30);
            let task = (random.range(1, period / 2), period);
            let from = random.range(0, 40);
            let span = span(from, from + random.range(1, 30));
            let at = |t: u64| -> Vec<Pair> {
                let there = inside
                    .iter()
                    .filter(|(_, other)| other.from.0 <= t && t < other.until.0);
                there.map(|(task, _)| *task).chain([task]).collect()
            };
            let first_fault = (span.from.0..span.until.0).find(|&t| !common::schedulable(&at(t)));
            match book.join(TaskId(id), params(task), span) {
                Ok(()) => {
                    assert_eq!(first_fault, None);
                    inside.push((task, span));
                    accepted += 1;
                }
                Err(SpanError::Refused { at, .. }) => {
                    assert_eq!(first_fault, Some(at.0));
                    refused += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
        let least = (0..70)
            .map(|t| book.delta_l(Time(t)).value)
            .min()
            .expect("an instant");
        assert_eq!(book.delta_l_min(span(0, 70)).value, least);
        let published = (0..70).map(|t| book.delta_l_published(Time(t)).value);
        assert_eq!(
            Some(book.delta_l_published_min(span(0, 70)).value),
            published.min()
        );
    }
    assert!(accepted > 1_000 && refused > 1_000);
}

#[test]
fn a_share_is_free_from_the_end_of_its_span_and_not_before() {
    let mut book = Book::new();
    book.join(TaskId(0), params((5, 10)), span(0, 100))
        .expect("room");
    let rest = params((6, 12));
    assert!(
        book.test(TaskId(1), params((6, 11)), span(99, 200))
            .is_err()
    );
    book.join(TaskId(1), params((6, 11)), span(100, 200))
        .expect("free from 100 on");
    assert!(
        book.test(TaskId(2), rest, span(50, 101)).is_err(),
        "it would meet the second"
    );
    assert_eq!(
        book.test(TaskId(0), rest, span(0, 1)),
        Err(SpanError::Id {
            id: TaskId(0),
            there: true
        })
    );
    assert_eq!(
        book.test(TaskId(3), rest, span(7, 7)),
        Err(SpanError::Empty)
    );
    assert!((book.utilization(Time(99)) - 0.5).abs() < 1e-12);
    assert_eq!(
        book.tasks(Time(100))
            .map(|(id, _)| id.0)
            .collect::<Vec<_>>(),
        [1]
    );
    book.prune(Time(100));
    assert_eq!(
        (book.get(TaskId(0)), book.get(TaskId(1)).is_some()),
        (None, true)
    );
}

#[test]
fn a_change_of_rate_is_both_or_neither() {
    let mut book = Book::new();
    book.join(TaskId(0), params((4, 10)), Span::since(Time(0)))
        .expect("room");
    book.join(TaskId(1), params((4, 10)), Span::since(Time(0)))
        .expect("room");
    let said = |book: &mut Book| {
        let times = [0, 49, 50, 51].map(Time);
        times.map(|at| (book.tasks(at).collect::<Vec<_>>(), book.delta_l(at)))
    };
    let before = said(&mut book);
    let refused = book.change(TaskId(1), Time(50), TaskId(2), params((7, 10)));
    assert!(
        matches!(refused, Err(SpanError::Refused { at: Time(50), refusal }) if refusal.by == RefusedBy::Utilization)
    );
    assert_eq!(said(&mut book), before);
    book.change(TaskId(1), Time(50), TaskId(2), params((6, 10)))
        .expect("it fits in place of the old one");
    assert_eq!(
        book.get(TaskId(1)).map(|(_, span)| span.until),
        Some(Time(50))
    );
    assert_eq!(
        book.get(TaskId(2)).map(|(_, span)| span),
        Some(Span::since(Time(50)))
    );
    assert!(!book.leave(TaskId(9), Time(0)));
    assert!(
        book.change(TaskId(9), Time(0), TaskId(10), params((1, 10)))
            .is_err()
    );
}

/// A book that has been changed says what a new one with the same entries says, and has another version
/// whenever that is something else.
#[test]
fn a_book_that_is_kept_says_what_a_new_one_says() {
    let mut random = Random(seed("kept book", Some(22)));
    let mut changes = 0;
    for _ in 0..300 {
        let mut book = Book::new();
        let (mut now, mut said, mut version) = (0, Vec::new(), None);
        for id in 0..40 {
            let period = random.range(4, 60);
            let task = params((random.range(1, period / 4 + 1), period));
            let other = TaskId(random.range(0, id));
            match random.range(0, 5) {
                0 => {
                    now += random.range(0, 10);
                    book.prune(Time(now));
                }
                1 => {
                    let _ = book.leave(other, Time(now + random.range(0, 9)));
                }
                2 => {
                    let _ = book.leave(other, Time::ZERO);
                }
                3 => {
                    let _ = book.change(other, Time(now + random.range(0, 9)), TaskId(id), task);
                }
                _ => {
                    let from = now + random.range(0, 9);
                    let until = [Time(from + random.range(1, 40)), Time::MAX];
                    let until = until[random.range(0, 1) as usize];
                    let span = Span {
                        from: Time(from),
                        until,
                    };
                    let _ = book.join(TaskId(id), task, span);
                }
            }
            let mut new = Book::new();
            for id in (0..=id).map(TaskId) {
                if let Some((params, span)) = book.get(id) {
                    new.join(id, params, span).expect("it was admitted");
                }
            }
            let times = || (now..now + 60).map(Time);
            let before = std::mem::take(&mut said);
            for at in times() {
                let tasks: Vec<_> = book.at(at).tasks().collect();
                assert_eq!(tasks, new.at(at).tasks().collect::<Vec<_>>());
                assert_eq!(book.delta_l(at), new.delta_l(at));
                said.push((at, tasks));
            }
            let span = Span::since(Time(now));
            assert_eq!(book.delta_l_min(span), new.delta_l_min(span));
            let differs = |(at, tasks)| said.iter().any(|(now, new)| *now == at && *new != tasks);
            if before.into_iter().any(differs) {
                assert_ne!(version, Some(book.version()));
                changes += 1;
            }
            version = Some(book.version());
        }
    }
    assert!(changes > 2_000, "{changes}");
}

#[test]
fn the_largest_rate_is_that_of_the_busiest_instant() {
    let mut book = Book::new();
    book.join(TaskId(0), params((5, 20)), span(0, 100))
        .expect("room");
    book.join(TaskId(1), params((10, 20)), span(50, 80))
        .expect("room");
    assert_eq!(
        book.smallest_period(Nanos(5), span(0, 50)),
        Some(Nanos(9)),
        "5 + 5 within 10"
    );
    assert_eq!(book.smallest_period(Nanos(5), span(0, 60)), Some(Nanos(20)));
    assert_eq!(
        book.smallest_period(Nanos(5), span(100, 160)),
        Some(Nanos(5))
    );
}
