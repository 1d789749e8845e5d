//! Sets that follow one another: what is asked of two of them together, where one task leaves and
//! another takes its place, is in neither.

#![allow(
    clippy::print_stderr,
    reason = "a test that searches says how much it has searched"
)]

use crate::common::{Pair, admit, params};
use sched::core::{Choice, Core, CoreOptions, JobKey, Service};
use sched::task::TaskId;
use sched::units::{Nanos, Time};
use testkit::{Random, seed};

const ORIGIN: Time = Time(1_000);
const LEAVING: TaskId = TaskId(0);
const JOINING: TaskId = TaskId(100);

/// One task leaves with early requests queued and another joins in its place, while the rest stay.
#[derive(Clone, Debug)]
struct Change {
    leaving: Pair,
    joining: Pair,
    staying: Vec<Pair>,
    /// The staying task that is started a tick before everything else is released.
    blocker: usize,
    /// Requests that the leaving task has queued.
    early: u64,
}

impl Change {
    fn set(&self, other: Pair) -> Vec<Pair> {
        [vec![other], self.staying.clone()].concat()
    }

    /// True if each set by itself can be guaranteed.
    fn is_admitted(&self) -> bool {
        admit(&self.set(self.leaving)).is_ok() && admit(&self.set(self.joining)).is_ok()
    }

    /// Time that the blocker and all that follows need of some interval beyond its length, if the one task
    /// begins where the other ends: by the definition, at every length.
    fn is_too_much_back_to_back(&self) -> bool {
        let (blocker, end) = (self.staying[self.blocker], self.early * self.leaving.1);
        (2..blocker.1).any(|length| {
            let others: u64 = (self.staying.iter())
                .map(|&(service, period)| (length - 1) / period * service)
                .sum();
            let left = ((length - 1) / self.leaving.1).min(self.early) * self.leaving.0;
            let joined = (length - 1).saturating_sub(end) / self.joining.1 * self.joining.0;
            let asked = others + left + joined;
            asked > 0 && blocker.0 + asked > length
        })
    }

    /// Plays it: everybody asks as soon and as often as allowed. Whether anybody is late, and how
    /// long after the end of the one task the other may begin.
    fn play(&self) -> (bool, u64) {
        let mut core = Core::new(CoreOptions::default());
        let params_of = |id: TaskId| match id {
            LEAVING => self.leaving,
            JOINING => self.joining,
            TaskId(other) => self.staying[other as usize - 1],
        };
        for id in 0..=self.staying.len() as u64 {
            core.join(ORIGIN, TaskId(id), params(params_of(TaskId(id))), ORIGIN);
        }
        let asked = |core: &mut Core, now: Time, id: TaskId| {
            let window = core.arrive(now, id, JobKey(now.0), Nanos(params_of(id).0));
            window.expect("it has joined").deadline
        };
        asked(&mut core, ORIGIN, LEAVING);
        let first = Service::Job(LEAVING, JobKey(ORIGIN.0));
        core.start(ORIGIN, first);
        core.finish(ORIGIN + Nanos(self.leaving.0), first);
        // The next ones are released from a tick after this on.
        let start = ORIGIN + Nanos(self.leaving.1 - 1);
        let (blocker, mut due) = (TaskId(self.blocker as u64 + 1), Vec::new());
        for key in 0..self.early {
            let cost = Nanos(self.leaving.0);
            let window = core.arrive(start, LEAVING, JobKey(key), cost);
            due.push((LEAVING, JobKey(key), window.expect("it stays").deadline));
        }
        let end = core.leave(start, LEAVING).expect("it is there");
        let begin = core.join(start, JOINING, params(self.joining), end);
        let at_start = asked(&mut core, start, blocker);
        due.push((blocker, JobKey(start.0), at_start));
        let mut next: Vec<(TaskId, Time)> = (1..=self.staying.len() as u64)
            .map(|id| (TaskId(id), start + Nanos(1)))
            .chain([(JOINING, begin)])
            .collect();
        next[self.blocker].1 = at_start;
        let (mut now, mut busy) = (start, None);
        while now < begin + Nanos(200) {
            if let Some((service, until)) = busy
                && until == now
            {
                core.finish(now, service);
                busy = None;
            }
            for (id, at) in &mut next {
                if *at == now {
                    *at = asked(&mut core, now, *id);
                    due.push((*id, JobKey(now.0), *at));
                }
            }
            if busy.is_none()
                && let Choice::RealTime(id, job) = core.choose(now, None)
            {
                let until = now + Nanos(params_of(id).0);
                let known = due.iter().find(|entry| (entry.0, entry.1) == (id, job));
                if until > known.expect("it was asked for").2 {
                    return (true, (begin - end).0);
                }
                core.start(now, Service::Job(id, job));
                busy = Some((Service::Job(id, job), until));
            }
            now += Nanos(1);
        }
        (false, (begin - end).0)
    }
}

/// Both sets can be guaranteed. From the start of (4, 64), 4 + 5 and both (3, 16) and the first
/// (3, 6) would be due within 17: 18.
#[test]
fn a_task_does_not_begin_where_early_requests_of_another_end() {
    let change = Change {
        leaving: (5, 10),
        joining: (3, 6),
        staying: vec![(3, 16), (3, 16), (4, 64)],
        blocker: 2,
        early: 1,
    };
    assert!(change.is_admitted() && change.is_too_much_back_to_back());
    assert_eq!(
        change.play(),
        (false, 10),
        "the longer of the periods of the two lies between"
    );
}

/// With nothing queued there is nothing to meet, and no gap.
#[test]
fn a_task_that_leaves_with_nothing_queued_is_followed_at_once() {
    let mut core = Core::new(CoreOptions::default());
    core.join(ORIGIN, LEAVING, params((5, 10)), ORIGIN);
    core.arrive(ORIGIN, LEAVING, JobKey(0), Nanos(5))
        .expect("it has joined");
    let service = Service::Job(LEAVING, JobKey(0));
    core.start(ORIGIN, service);
    core.finish(ORIGIN + Nanos(5), service);
    let now = ORIGIN + Nanos(6);
    let end = core.leave(now, LEAVING).expect("it is there");
    assert_eq!(end, ORIGIN + Nanos(10));
    assert_eq!(core.join(now, JOINING, params((3, 6)), end), end);
}

/// Planned and called off, as often as anybody likes.
#[test]
fn a_task_that_leaves_before_it_begins_leaves_nothing_behind() {
    let mut core = Core::new(CoreOptions::default());
    let begin = ORIGIN + Nanos(1_000_000);
    for number in 0..3 {
        let id = TaskId(number);
        assert_eq!(core.join(ORIGIN, id, params((3, 10)), begin), begin);
        assert_eq!(
            core.leave(ORIGIN, id),
            Some(ORIGIN),
            "its share is free at once"
        );
        assert_eq!(core.choose(ORIGIN, None), Choice::Wait { until: None });
        assert_eq!(core.leave(ORIGIN, id), None, "and it is forgotten");
    }
}

#[test]
fn nobody_is_late_whoever_follows_whom() {
    let mut random = Random(seed("transitions", Some(31)));
    let (mut played, mut too_much) = (0, 0);
    while played < 20_000 {
        let large = |random: &mut Random| {
            let period = random.range(4, 16);
            (random.range(period / 4, period * 2 / 3), period)
        };
        let (leaving, joining) = (large(&mut random), large(&mut random));
        let small = (random.range(1, 4), random.range(8, 30));
        let staying = vec![small; random.range(2, 4) as usize];
        // The longest blocker that both sets bear, which seldom asks.
        let period = random.range(40, 120);
        let change = (1..period).map_while(|service| {
            let change = Change {
                leaving,
                joining,
                staying: [staying.clone(), vec![(service, period)]].concat(),
                blocker: staying.len(),
                early: 1,
            };
            change.is_admitted().then_some(change)
        });
        let Some(mut change) = change.last() else {
            continue;
        };
        change.early = random.range(1, 2);
        played += 1;
        too_much += u64::from(change.is_too_much_back_to_back());
        assert!(!change.play().0, "{change:?}");
    }
    eprintln!("{played} changes, {too_much} of which would be too much back to back");
    assert!(too_much > 20, "some need the gap");
}
