//! The tasks of a run: they join, ask in their habits, withdraw, change and leave.

use sched::book::{Book, Span};
use sched::core::JobKey;
use sched::task::{TaskId, TaskParams};
use sched::units::{Nanos, Time};

use super::Run;
use crate::common::model::ModelTask;

/// Periods with a small common multiple, so that the naive slack is quick.
const PERIODS: [u64; 12] = [12, 15, 16, 18, 20, 24, 30, 36, 40, 60, 72, 80];

/// Habits of a task.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Habit {
    Periodic,
    Sporadic,
    /// Several at once, now and then.
    Bursty,
    /// Always another one queued.
    Greedy,
    /// A periodic server, its container in pieces.
    Server,
}

pub(super) struct Client {
    pub(super) habit: Habit,
    /// When it asks again.
    pub(super) next: u64,
}

impl Run {
    fn random_params(&mut self) -> TaskParams {
        let period = PERIODS[self.random.range(0, PERIODS.len() as u64 - 1) as usize];
        let service = self.random.range(1, period / 2);
        let service = if self.random.chance(70) {
            service.min(period / 5 + 1)
        } else {
            service
        };
        TaskParams::new(Nanos(service), Nanos(period)).expect("a task")
    }

    fn random_client(&mut self) -> Client {
        let habits = [
            Habit::Periodic,
            Habit::Sporadic,
            Habit::Server,
            Habit::Bursty,
            Habit::Greedy,
        ];
        let habit = habits[self.random.range(0, if self.early_allowed { 4 } else { 2 }) as usize];
        Client {
            habit,
            next: self.now + self.random.range(0, 30),
        }
    }

    pub(super) fn join(&mut self) {
        let (id, params) = (TaskId(self.next_id), self.random_params());
        if self
            .book
            .join(id, params, Span::since(Time(self.now)))
            .is_ok()
        {
            self.enter(id, params, self.now);
        }
    }

    /// An admitted task joins the core.
    fn enter(&mut self, id: TaskId, params: TaskParams, first_release: u64) {
        self.next_id = id.0 + 1;
        let release = self
            .core
            .join(Time(self.now), id, params, Time(first_release))
            .0;
        assert!(release >= first_release);
        self.counts.joined += 1;
        self.counts.deferred += u64::from(release > first_release);
        let (service, period) = (params.service().0, params.period().0);
        let client = self.random_client();
        self.clients.push(client);
        self.tasks.push(ModelTask {
            id,
            service,
            period,
            spent_until: release,
            first_release: release,
            queue: vec![],
            leaving: false,
        });
        self.tell_delta_l();
    }

    /// Delta-L of the set as it will be when those who leave have left.
    fn tell_delta_l(&mut self) {
        let settled = self.tasks.iter().filter(|task| !task.leaving);
        let mut book = Book::new();
        for task in settled {
            let params = TaskParams::new(Nanos(task.service), Nanos(task.period)).expect("a task");
            book.join(task.id, params, Span::since(Time(0)))
                .expect("admitted");
        }
        let (corrected, published) = (book.delta_l(Time(0)), book.delta_l_published(Time(0)));
        assert!(corrected.exact);
        self.core
            .set_delta_l(Time(self.now), corrected.value, published.value);
    }

    /// A random task leaves, perhaps to come back at another rate.
    pub(super) fn leave_or_change(&mut self) {
        let index = self.random.range(0, self.tasks.len() as u64 - 1) as usize;
        if self.tasks[index].leaving || self.tasks.len() < 2 {
            return;
        }
        let id = self.tasks[index].id;
        let free_from = self.core.leave(Time(self.now), id).expect("it is there");
        self.tasks[index].leave(self.now);
        assert_eq!(free_from.0, self.tasks[index].last().max(self.now));
        // A task that leaves before its beginning may itself follow one that has not left yet.
        let begins = self.book.get(id).map_or(free_from, |(_, span)| span.from);
        let (new, params) = (TaskId(self.next_id), self.random_params());
        if self.random.chance(50) && self.book.change(id, free_from, new, params).is_ok() {
            self.counts.changed += 1;
            self.enter(new, params, free_from.max(begins).0);
        } else {
            self.book.leave(id, free_from);
            self.counts.left += 1;
            self.tell_delta_l();
        }
    }

    fn arrive(&mut self, index: usize) {
        // A job that arrives at the very instant of a start is released a tick later.
        let seen = self.from();
        let task = &mut self.tasks[index];
        if task.leaving || task.queue.len() >= 4 {
            return;
        }
        let whole = self.clients[index].habit == Habit::Server || self.random.chance(60);
        let cost = if whole {
            task.service
        } else {
            self.random.range(1, task.service)
        };
        let key = JobKey(self.next_key);
        self.next_key += 1;
        let window = self
            .core
            .arrive(Time(self.now), task.id, key, Nanos(cost))
            .expect("accepted");
        assert_eq!(
            (window.release.0, window.deadline.0),
            task.push(key, seen, cost)
        );
    }

    pub(super) fn ask(&mut self, index: usize) {
        let period = self.tasks[index].period;
        match self.clients[index].habit {
            Habit::Periodic | Habit::Server => {
                self.arrive(index);
                self.clients[index].next += period;
            }
            Habit::Sporadic => {
                self.arrive(index);
                self.clients[index].next += period + self.random.range(0, period);
            }
            Habit::Bursty => {
                for _ in 0..self.random.range(1, 4) {
                    self.arrive(index);
                }
                self.clients[index].next += self.random.range(1, 5 * period);
            }
            Habit::Greedy => {
                if self.tasks[index].queue.len() < 2 {
                    self.arrive(index);
                }
                self.clients[index].next += self.random.range(1, period / 2);
            }
        }
    }

    pub(super) fn withdraw_one(&mut self) {
        let index = self.random.range(0, self.tasks.len() as u64 - 1) as usize;
        let task = &mut self.tasks[index];
        if task.queue.is_empty() {
            return;
        }
        let place = self.random.range(0, task.queue.len() as u64 - 1) as usize;
        let (key, touched) = (task.queue[place].key, task.queue[place].touched);
        assert_eq!(self.core.withdraw(Time(self.now), task.id, key), !touched);
        if !touched {
            task.withdraw(place);
            self.counts.withdrawn += 1;
            for job in &task.queue {
                let window = self.core.window(task.id, job.key).expect("queued");
                assert_eq!(
                    (window.release.0, window.deadline.0),
                    (job.release, job.deadline)
                );
            }
        }
    }
}
