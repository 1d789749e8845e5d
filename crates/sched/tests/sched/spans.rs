//! Reservations that are planned: one ends before another begins, and together they would be more than
//! the disk.

use crate::common::disk::{atlas, request};
use sched::book::{Book, Span};
use sched::core::Policy;
use sched::disk::{DiskScheduler, SchedulerConfig, TaskKind};
use sched::request::{Class, Decision, Op, Served, Urgency};
use sched::task::{TaskId, TaskParams};
use sched::units::{Nanos, Sector, SectorCount, Time};

const CAPACITY: u64 = 8_890_760;
const SECTORS: u64 = 128;
/// By how much the periods differ.
const STEP: Nanos = Nanos(10_000);
const TODAY: TaskId = TaskId(1);
const LATER: TaskId = TaskId(2);

fn seconds(seconds: u64) -> Time {
    Time(seconds * 1_000_000_000)
}

struct Run {
    disk: DiskScheduler,
    book: Book,
    today: TaskParams,
    later: TaskParams,
    now: Time,
    next_id: u64,
    slack_pieces: u64,
}

impl Run {
    fn new(policy: Policy, percent: u64) -> Self {
        let config = SchedulerConfig {
            policy,
            ..SchedulerConfig::default()
        };
        let disk = atlas(config);
        let all = Sector(0)..Sector(CAPACITY);
        let service = disk
            .predictor()
            .worst_case(all, Op::Read, SectorCount(SECTORS));
        // Periods whose least common multiple is known, and so long that both tasks together would be
        // found to need more than the disk.
        let period = service.get() * 100 / percent / STEP.get() * STEP.get();
        let params = |period| TaskParams::new(service, Nanos(period)).expect("a task");
        Self {
            disk,
            book: Book::new(),
            today: params(period),
            later: params(period + STEP.get()),
            now: Time(0),
            next_id: 0,
            slack_pieces: 0,
        }
    }

    fn params(&self, id: TaskId) -> TaskParams {
        if id == TODAY { self.today } else { self.later }
    }

    fn join(&mut self, id: TaskId, span: Span) {
        let params = self.params(id);
        self.book.join(id, params, span).expect("they do not meet");
        self.disk
            .join(self.now, id, params, TaskKind::Stream, span.from)
            .expect("admitted");
        self.tell();
    }

    fn tell(&mut self) {
        let least = self.book.delta_l_min(Span::since(self.now)).value;
        self.disk.set_delta_l(self.now, least, least);
    }

    fn submit(&mut self, class: Class) {
        let start = Sector(self.next_id * 7_919_993 % (CAPACITY - SECTORS));
        let request = request(&mut self.next_id, class, Op::Read, start, SECTORS);
        self.disk.submit(self.now, request).expect("there is room");
    }

    /// The task at its rate from `from` to `until`, and always some best effort.
    fn play(&mut self, id: TaskId, from: Time, until: Time) {
        let (mut due, before) = (from, self.slack_pieces);
        while self.now < until {
            if due <= self.now {
                self.submit(Class::Stream(id));
                due = due.max(self.now) + self.params(id).period();
            }
            let report = self.disk.report(self.now);
            if report.queued_sync < 4 {
                self.submit(Class::BestEffort(Urgency::Sync));
            }
            match self.disk.decide(self.now) {
                Decision::Issue(piece) => {
                    self.slack_pieces += u64::from(piece.served == Served::Slack);
                    self.now += piece.predicted;
                    let done = self.disk.completed(self.now, piece.id).expect("issued");
                    assert_eq!(done.lateness, Nanos::ZERO, "{piece:?}");
                }
                Decision::Wait { until } => {
                    let wake = until.map_or(due, |until| until.min(due));
                    self.now = wake.max(self.now + Nanos(1));
                }
            }
        }
        let served = self.slack_pieces - before;
        assert!(
            served > 20,
            "{served} pieces of best effort until {until:?}"
        );
    }
}

#[test]
fn spans_that_do_not_meet_may_be_more_than_the_disk_together() {
    for policy in [Policy::Exact, Policy::DeltaL] {
        for percent in [40, 51, 60] {
            let mut run = Run::new(policy, percent);
            let today = Span {
                from: Time(0),
                until: seconds(9),
            };
            run.join(TODAY, today);
            run.join(LATER, Span::since(seconds(10)));
            run.play(TODAY, Time(0), seconds(8));
            run.disk.leave(run.now, TODAY);
            run.tell();
            run.play(LATER, seconds(10), seconds(20));
        }
    }
}
