//! Tasks and a scheduler, played event by event; whoever asks is told what goes on and answers as it likes.

use sched::core::{Choice, Core, CoreOptions, JobKey, Service};
use sched::policy::Policy;
use sched::task::TaskId;
use sched::units::{Nanos, Time};

use super::case::{Ask, Case, CaseEvent, CaseTask, Way};

/// A set that was admitted, with its Delta-L.
#[derive(Clone, Debug)]
pub(super) struct TaskSet {
    pub(super) tasks: Vec<CaseTask>,
    pub(super) delta_l: u64,
    pub(super) published: u64,
    pub(super) way: Way,
}

/// Something that went on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Happening {
    /// A job was released and is due then.
    Released {
        /// Its task.
        task: usize,
        /// When it is due.
        deadline: u64,
    },
    /// A best-effort request was offered and did not get the disk.
    Declined {
        /// Its length.
        length: u64,
    },
    /// A best-effort request has the disk.
    BestEffort {
        /// Its length.
        length: u64,
        /// Released jobs that it goes before.
        before: usize,
    },
    /// A job has the disk.
    Job {
        /// Its task.
        task: usize,
        /// For how long.
        service: u64,
        /// When it is due.
        deadline: u64,
    },
    /// The disk is done.
    Done,
    /// A job was complete after its deadline.
    Late {
        /// Its task.
        task: usize,
        /// When it was due.
        deadline: u64,
        /// By how much.
        by: u64,
    },
}

/// Something that happened at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// When.
    pub at: u64,
    /// The event.
    pub what: Happening,
}

/// Position of the arm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Arm {
    AmongJobs,
    /// At the next request of this task's sweep.
    At(usize),
    Away,
}

/// The service on the disk.
#[derive(Clone, Copy, Debug)]
struct OnDisk {
    service: Service,
    until: u64,
    /// Task and deadline of a job.
    job: Option<(usize, u64)>,
}

/// A game of tasks against a scheduler.
pub(super) struct Game<'a> {
    set: &'a TaskSet,
    pub(super) core: Core,
    pub(super) now: u64,
    on_disk: Option<OnDisk>,
    /// By task: when it may release its next job.
    pub(super) earliest: Vec<u64>,
    /// By task: the deadlines of its queued jobs in order.
    queued: Vec<Vec<u64>>,
    /// By task: how many requests of its first sweep have been on the disk.
    served: Vec<u64>,
    arm: Arm,
    jobs: u64,
    pub(super) events: Vec<CaseEvent>,
    steps: Option<Vec<Step>>,
    pub(super) late: Option<Step>,
}

/// A service that the disk was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Given {
    BestEffort {
        until: u64,
    },
    /// A job, and whether it was the last that was queued.
    Job {
        until: u64,
        is_last: bool,
    },
    Nothing {
        until: Option<u64>,
    },
}

impl<'a> Game<'a> {
    pub(super) fn new(set: &'a TaskSet, policy: Policy, records: bool) -> Self {
        let mut core = Core::new(CoreOptions {
            policy,
            ..CoreOptions::default()
        });
        for (id, task) in (0..).zip(&set.tasks) {
            let params = task
                .params(set.way)
                .expect("the tasks of a case are checked");
            let begins = core.join(Time::ZERO, TaskId(id), params, Time::ZERO);
            assert_eq!(begins, Time::ZERO, "an idle disk is there at once");
        }
        core.set_delta_l(Time::ZERO, Nanos(set.delta_l), Nanos(set.published));
        Self {
            core,
            now: 0,
            on_disk: None,
            earliest: vec![0; set.tasks.len()],
            queued: vec![Vec::new(); set.tasks.len()],
            served: vec![0; set.tasks.len()],
            arm: Arm::AmongJobs,
            jobs: 0,
            events: Vec::new(),
            steps: records.then(Vec::new),
            late: None,
            set,
        }
    }

    fn note(&mut self, what: Happening) {
        let at = self.now;
        if let Some(steps) = &mut self.steps {
            steps.push(Step { at, what });
        }
    }

    /// When the disk is done; `None`: it is free.
    pub(super) fn busy_until(&self) -> Option<u64> {
        self.on_disk.map(|on_disk| on_disk.until)
    }

    /// The service on the disk is over at this time instead.
    pub(super) fn end_at(&mut self, until: u64) {
        if let Some(on_disk) = &mut self.on_disk {
            on_disk.until = until;
        }
    }

    /// True if a best-effort request is on the disk.
    pub(super) fn serves_best_effort(&self) -> bool {
        self.on_disk.is_some_and(|on_disk| on_disk.job.is_none())
    }

    /// The earliest deadline of the jobs that are queued or on the disk.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        let on_disk = self.on_disk.and_then(|on_disk| on_disk.job);
        let on_disk = on_disk.map(|(_, deadline)| deadline);
        let queued = self.queued.iter().filter_map(|jobs| jobs.first().copied());
        queued.chain(on_disk).min()
    }

    /// Released jobs that are queued.
    pub(super) fn waiting(&self) -> usize {
        self.queued.iter().map(Vec::len).sum()
    }

    pub(super) fn release(&mut self, task: usize) {
        let CaseTask { service, period } = self.set.tasks[task];
        debug_assert!(self.earliest[task] <= self.now);
        self.jobs += 1;
        let key = JobKey(self.jobs);
        let window = self
            .core
            .arrive(Time(self.now), TaskId(task as u64), key, Nanos(service))
            .expect("a job of an admitted task is taken");
        let deadline = self.now + period;
        debug_assert!(window.deadline.get() >= deadline);
        self.earliest[task] = deadline;
        self.queued[task].push(deadline);
        self.events.push(CaseEvent {
            at: self.now,
            ask: Ask::Release(task),
        });
        self.note(Happening::Released { task, deadline });
    }

    /// Moves on to `to`, at which the disk may be done.
    pub(super) fn advance(&mut self, to: u64) {
        self.now = to;
        let Some(OnDisk { service, job, .. }) = self.on_disk.take_if(|on_disk| on_disk.until <= to)
        else {
            return;
        };
        self.core.finish(Time(to), service);
        if let Service::Swept(id, key, _) = service
            && self.served[id.0 as usize] == 0
        {
            let way = Nanos(self.set.way.sweep);
            self.core.end_sweep(Time(to), id, key, way);
        }
        self.note(Happening::Done);
        if let Some((task, deadline)) = job.filter(|(_, deadline)| *deadline < to) {
            let by = to - deadline;
            let what = Happening::Late { task, deadline, by };
            self.note(what);
            self.late.get_or_insert(Step { at: to, what });
        }
    }

    /// The longest best-effort request that would be taken now, at most `most`: found by asking copies.
    pub(super) fn longest(&self, most: u64) -> u64 {
        let is_taken = |length: u64| {
            let choice = self
                .core
                .clone()
                .choose(Time(self.now), Some(Nanos(length + self.set.way.away)));
            choice == Choice::BestEffort
        };
        let (mut taken, mut refused) = (0, most + 1);
        while taken + 1 < refused {
            let middle = taken + (refused - taken) / 2;
            if is_taken(middle) {
                taken = middle;
            } else {
                refused = middle;
            }
        }
        taken
    }

    /// Asks what the free disk does, given a best-effort request of this length.
    pub(super) fn decide(&mut self, best_effort: Option<u64>) -> Given {
        let now = Time(self.now);
        let away = self.set.way.away;
        let choice = self
            .core
            .choose(now, best_effort.map(|length| Nanos(length + away)));
        if let Some(length) = best_effort {
            self.events.push(CaseEvent {
                at: self.now,
                ask: Ask::BestEffort(length),
            });
            if choice != Choice::BestEffort {
                self.note(Happening::Declined { length });
            }
        }
        match choice {
            Choice::BestEffort => {
                let length = best_effort.expect("the request that goes was offered");
                let service = Service::BestEffort(Nanos(length));
                self.core.start_ending_away(now, service, Nanos(away));
                self.arm = Arm::Away;
                let until = self.now + length;
                self.on_disk = Some(OnDisk {
                    service,
                    until,
                    job: None,
                });
                let before = self.waiting();
                self.note(Happening::BestEffort { length, before });
                Given::BestEffort { until }
            }
            Choice::RealTime(id, key) | Choice::Early(id, key) => {
                let task = id.0 as usize;
                let deadline = self.queued[task][0];
                let (on_disk, service) = self.next_of(id, key);
                self.core.start(now, on_disk);
                let until = self.now + service;
                self.on_disk = Some(OnDisk {
                    service: on_disk,
                    until,
                    job: Some((task, deadline)),
                });
                self.note(Happening::Job {
                    task,
                    service,
                    deadline,
                });
                let is_last = self.waiting() == 0;
                Given::Job { until, is_last }
            }
            Choice::Wait { until } => Given::Nothing {
                until: until.map(Time::get),
            },
        }
    }
}

impl Game<'_> {
    /// The next service of this job, and its length.
    fn next_of(&mut self, id: TaskId, key: JobKey) -> (Service, u64) {
        let task = id.0 as usize;
        let (service, owed) = (self.set.tasks[task].service, self.core.away().get());
        let Way { away, sweep } = self.set.way;
        if sweep == 0 {
            self.queued[task].remove(0);
            return (Service::Job(id, key), service + owed);
        }
        let begins = self.served[task] == 0;
        self.served[task] += 1;
        if self.served[task] == service - 2 * sweep {
            self.served[task] = 0;
            self.queued[task].remove(0);
        }
        let planned = if begins {
            sweep + 1
        } else {
            1 + self.core.comes_back(id, key).get()
        };
        let seek = match self.arm {
            Arm::At(at) if at == task && !begins => 0,
            Arm::Away => away,
            Arm::At(_) | Arm::AmongJobs => sweep,
        };
        self.arm = Arm::At(task);
        // It takes its charge, or longer if its charge was too small.
        let takes = (planned + owed).max(seek + 1);
        (Service::Swept(id, key, Nanos(planned)), takes)
    }
}

/// Plays a case again. Returns the events, and the first late job.
#[must_use]
pub fn replay(case: &Case) -> (Vec<Step>, Option<Step>) {
    let set = super::set_of(case.task.clone(), case.way);
    let mut game = Game::new(&set, case.scheduler, true);
    let mut events = case.event.iter().peekable();
    loop {
        while let Some(event) =
            events.next_if(|event| event.at <= game.now && matches!(event.ask, Ask::Release(_)))
        {
            if let Ask::Release(task) = event.ask {
                game.release(task);
            }
        }
        let mut until = None;
        if game.busy_until().is_none() {
            let offered = events.next_if(|event| event.at <= game.now);
            let length = offered.and_then(|event| match event.ask {
                Ask::BestEffort(length) => Some(length),
                Ask::Release(_) => None,
            });
            if let Given::Nothing { until: wait } = game.decide(length) {
                until = wait;
            }
        } else {
            // An offer is for an instant, at which the disk is not free.
            while events
                .next_if(|event| event.at <= game.now && matches!(event.ask, Ask::BestEffort(_)))
                .is_some()
            {}
        }
        let next = [
            game.busy_until(),
            until.filter(|until| *until > game.now),
            events.peek().map(|event| event.at.max(game.now + 1)),
        ];
        let Some(next) = next.into_iter().flatten().min() else {
            break;
        };
        game.advance(next);
    }
    (game.steps.unwrap_or_default(), game.late)
}
