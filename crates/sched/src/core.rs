//! Chooses the next service of a disk. The guarantee rests on this module.
//!
//! # Problem
//!
//! A disk serves real-time jobs with deadlines and best-effort requests without; nothing on it can
//! be interrupted. Serve best effort as early as possible, and no job of an admitted set late.
//!
//! # Model
//!
//! Each task's jobs take slots a period apart ([`Window`]): a job is released when it arrives or when
//! the job before it is due, whichever is later, and is due a period after that. A job whose release
//! lies in the future is *early*. The disk is a place, or several, that [`Core::choose`] fills; the
//! caller reports [`Core::start`] and [`Core::finish`].
//!
//! # Algorithm
//!
//! Real-time jobs in order of deadline, undivided (non-preemptive EDF), and before them best effort
//! as the [`Policy`] allows. `exact`, with S(t) from [`crate::slack`]:
//!
//! 1. A best-effort request with E <= S(t) goes first.
//! 2. When one no longer fits while released jobs wait, a *burst* begins: released jobs only, so that
//!    the two long seeks between the real-time and the best-effort areas are paid once a burst and not
//!    once a job. It ends when no released job is left, or when S(t) has grown to the threshold.
//!    One that has to leave a reserve begins a burst for its kind only.
//! 3. With no released job queued, early jobs and best effort share what is left: the early job with
//!    the earliest deadline (the stream that exceeds its rate the least), against the best-effort
//!    request, in a stated proportion of time. An early job of deadline d needs only fit the slack of
//!    deadlines before d: at and after d it takes away as much demand as time.
//!
//! S is not computed for every decision. A value stays a lower bound once the time passed is taken
//! off it, because at a fixed deadline demand never grows; and the deadline at which it was found
//! tells, at one pass over the tasks, when it cannot have grown enough. Time alone never makes S
//! grow: for every fixed L the demand within [t, t + L] does not fall while t passes and nothing is
//! served (a queued deadline stays or comes into reach, an idle task's stays where it is relative to
//! t). So a wait ends by itself only at a release, or where a deadline leaves the range that an early
//! job is tested against.
//!
//! # Changes of the task set
//!
//! Admission says that the new set is schedulable from rest. Slack given away before the join may
//! be missing just when the new task's first deadlines fall due, and no test of the *set* can know
//! that; so [`Core::join`] moves the first release to where S(t), with the new task, is not negative.
//! A task that leaves keeps its share until its last deadline.
//!
//! # The instant of a start
//!
//! Condition 2 compares a blocker with jobs released *after* it was started. A job that is reported at
//! the very instant of a start, but after it, is released one nanosecond later.
//!
//! # Where the arm is left
//!
//! A job's cost may be what it takes from anywhere near the other jobs, instead of from anywhere. Then the first
//! job after best effort takes longer than its cost, by so much as the arm is *away*
//! ([`Core::start_ending_away`]). A best-effort request needs slack for that too, and the set a Delta-L of no
//! less than the most that the arm can be away (proof in docs/design/scheduling.md, section 13).
//!
//! # Several requests outstanding
//!
//! With N > 1 places slack is not consulted; the last free place takes real-time jobs only (proof in
//! docs/design/scheduling.md).
//!
//! # Deliberately absent
//!
//! The order among best-effort requests (the caller's), positions and predictions, clocks, counters of misses
//! and overruns.

mod busy;
mod changes;
mod choose;
mod known;
mod service;

use crate::allowance::Allowance;
use crate::heap::SlotHeap;
use crate::jobs::TaskJobs;
use crate::slack::{Line, Near};
use crate::task::TaskId;
use crate::units::{Nanos, Time};
use alloc::vec::Vec;

pub(crate) use changes::common_multiple;

pub use crate::policy::{Policy, UnknownPolicy};

/// Configuration of a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoreOptions {
    /// The rule.
    pub policy: Policy,
    /// The slack at which a real-time burst is left (`exact` only); zero: no bursts.
    pub burst_threshold: Nanos,
    /// The part of the time that early and best-effort requests share which stays with best
    /// effort while both wait, in percent; 100 at most.
    pub best_effort_share_percent: u8,
    /// Requests outstanding at the disk at a time. Slack is consulted only if this is 1.
    pub outstanding: u32,
    /// True: under `delta-l`, a best-effort request may go before a released job whose cost is less than its
    /// task's C by at least the request's time. The request is charged to that job (thesis 6.5.2). Exact
    /// slack contains this time already.
    pub gives_over_prediction: bool,
}

impl Default for CoreOptions {
    /// `exact`, one request at a time, no bursts (the threshold belongs to the drive), half and half.
    fn default() -> Self {
        Self {
            policy: Policy::Exact,
            burst_threshold: Nanos::ZERO,
            best_effort_share_percent: 50,
            outstanding: 1,
            gives_over_prediction: false,
        }
    }
}

/// Names a job among those of its task; given by the caller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JobKey(pub u64);

/// When a job is released and due.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Window {
    /// Until then it is early and served only as best effort is.
    pub release: Time,
    /// When it is due.
    pub deadline: Time,
}

/// Why a job is not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ArriveError {
    /// No such task, or it is leaving.
    #[error("the task is not on this disk, or is leaving it")]
    NoTask,
    /// The cost is zero or above the task's worst-case service time.
    #[error("a job of {cost} does not fit the task's service time of {service}")]
    Cost {
        /// Predicted time of this job.
        cost: Nanos,
        /// The admitted service time C.
        service: Nanos,
    },
}

/// The next service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// This released job.
    RealTime(TaskId, JobKey),
    /// This job, whose release lies in the future.
    Early(TaskId, JobKey),
    /// The best-effort request asked about.
    BestEffort,
    /// Nothing before `until`, or before the next call that changes something.
    Wait {
        /// The answer cannot change by itself before then; `None`: it cannot change by itself.
        until: Option<Time>,
    },
}

/// A service that is started at the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// A whole job, the first of its task.
    Job(TaskId, JobKey),
    /// A piece of a job (a request in a container) of this predicted time, at most what is left.
    Piece(TaskId, JobKey, Nanos),
    /// A request of a sweep, of this planned time; what it does not use of that is free. It leaves the arm where the
    /// next of the sweep was planned from.
    Swept(TaskId, JobKey, Nanos),
    /// A best-effort request of this predicted time.
    BestEffort(Nanos),
}

/// A service that the disk is busy with.
#[derive(Clone, Copy, Debug)]
struct InService {
    service: Service,
    started: Time,
    /// When it should be over at the latest.
    until: Time,
    /// Since when it keeps released jobs waiting, if it has no claim of its own to the disk.
    delays_since: Option<Time>,
    /// True for services that run in slack: best effort and early jobs.
    in_slack: bool,
    /// When the job is released that it is, or is a piece of; `None`: best effort.
    release: Option<Time>,
}

/// Knowledge about S between two computations.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// With the disk free from `free` on, S is at least `value`.
    bound: Option<(i64, u64)>,
    /// The deadline at which S was found.
    witness: u64,
}

/// Released and early real-time jobs, slack and bursts of one disk.
#[derive(Clone, Debug)]
pub struct Core {
    options: CoreOptions,
    tasks: Vec<TaskJobs>,
    lines: Vec<Line>,
    shares: Vec<u64>,
    vacant: Vec<u32>,
    /// Slots by task id.
    index: Vec<(TaskId, u32)>,
    hyperperiod: Option<u64>,
    leaving: usize,
    /// First jobs of tasks: released, by deadline; early, by deadline and by release.
    released: SlotHeap,
    early: SlotHeap,
    releases: SlotHeap,
    in_service: Vec<InService>,
    last_start: Option<Time>,
    /// Since when some released job has been queued or in service at every instant.
    busy_since: Option<Time>,
    burst: bool,
    /// A burst for best effort that has to leave a reserve; the rest of it still goes.
    reserve_burst: bool,
    /// Debt of early jobs to best effort, in percent of a nanosecond. Below zero, best effort owes early
    /// jobs.
    owed: i64,
    /// The last choice was between the two, and went to the one whose turn it was.
    contended: bool,
    /// At the last choice the best-effort request was tried, with no released job queued, and did not fit.
    held_up: bool,
    /// At the last choice the best-effort request went at the cost of the first released job.
    credited: bool,
    /// Time by which the next job may exceed its cost, because best effort left the arm elsewhere.
    away: Nanos,
    /// A job has paid for that already.
    away_is_paid: bool,
    allowance: Allowance,
    known: Known,
    near: Near,
}

impl Core {
    /// A disk without tasks.
    #[must_use]
    pub fn new(options: CoreOptions) -> Self {
        Self {
            options,
            tasks: Vec::new(),
            lines: Vec::new(),
            shares: Vec::new(),
            vacant: Vec::new(),
            index: Vec::new(),
            hyperperiod: Some(1),
            leaving: 0,
            released: SlotHeap::default(),
            early: SlotHeap::default(),
            releases: SlotHeap::default(),
            in_service: Vec::with_capacity(options.outstanding as usize),
            last_start: None,
            busy_since: None,
            burst: false,
            reserve_burst: false,
            owed: 0,
            contended: false,
            held_up: false,
            credited: false,
            away: Nanos::ZERO,
            away_is_paid: false,
            allowance: Allowance::default(),
            known: Known::default(),
            near: Near::default(),
        }
    }

    /// The configuration.
    #[must_use]
    pub fn options(&self) -> CoreOptions {
        self.options
    }

    /// Time by which the next job may exceed its cost.
    #[must_use]
    pub fn away(&self) -> Nanos {
        self.away
    }

    /// The next job may take so much longer than its cost: nothing is on the disk, and where its arm is was not
    /// decided by what was started. No set may have joined whose Delta-L is less.
    pub fn set_away(&mut self, away: Nanos) {
        self.away_is_paid &= self.away == away;
        self.away = away;
    }

    fn slot(&self, id: TaskId) -> Option<u32> {
        self.index
            .binary_search_by_key(&id, |entry| entry.0)
            .ok()
            .map(|place| self.index[place].1)
    }

    /// A job arrives; `cost` is its predicted worst-case time, at most the task's C. A container
    /// arrives with the whole C.
    ///
    /// # Errors
    /// When there is no such task, or the cost is not one that was admitted.
    pub fn arrive(
        &mut self,
        now: Time,
        id: TaskId,
        job: JobKey,
        cost: Nanos,
    ) -> Result<Window, ArriveError> {
        self.arrived(now, now, id, job, cost)
    }

    /// A job arrived at `since`, and nothing has been asked or told since then that this is not told before.
    ///
    /// # Errors
    /// As [`Core::arrive`].
    pub(crate) fn arrived(
        &mut self,
        now: Time,
        since: Time,
        id: TaskId,
        job: JobKey,
        cost: Nanos,
    ) -> Result<Window, ArriveError> {
        let slot = self.slot(id).ok_or(ArriveError::NoTask)?;
        self.note_busy(now);
        let earliest = self.earliest_release(since);
        let task = &mut self.tasks[slot as usize];
        if task.leaving {
            return Err(ArriveError::NoTask);
        }
        let service = task.params.service();
        if cost.is_zero() || cost > service {
            return Err(ArriveError::Cost { cost, service });
        }
        let window = task.push(job, earliest, cost);
        if task.queue.len() == 1 {
            if window.release < now {
                let since = self.busy_since.get_or_insert(window.release);
                *since = window.release.min(*since);
            }
            self.refresh(slot, now);
        }
        Ok(window)
    }

    /// A job of which nothing was served is taken back; later ones of the task move up to earlier
    /// slots where they may (see [`Core::window`]). False if there is no such job.
    pub fn withdraw(&mut self, now: Time, id: TaskId, job: JobKey) -> bool {
        self.note_busy(now);
        let Some((slot, index)) = self.find(id, job) else {
            return false;
        };
        let task = &mut self.tasks[slot as usize];
        if task.queue[index].touched {
            return false;
        }
        task.withdraw(index);
        self.refresh(slot, now);
        self.rest(now);
        true
    }

    /// A job that was served in pieces is over, whatever is left of it; its slot is spent. False if
    /// there is no such job at the head of its task.
    pub fn end_job(&mut self, now: Time, id: TaskId, job: JobKey) -> bool {
        self.note_busy(now);
        let Some((slot, 0)) = self.find(id, job) else {
            return false;
        };
        self.tasks[slot as usize].spend_first();
        self.refresh(slot, now);
        self.rest(now);
        true
    }

    /// Ends the sweep of this job; its slot is spent. `way` is the time that it had left for its way back. It
    /// goes to the sweep that it has interrupted, if there is one, because the arm has to return there. False
    /// if there is no such job at the head of its task.
    pub fn end_sweep(&mut self, now: Time, id: TaskId, job: JobKey, way: Nanos) -> bool {
        debug_assert!(
            self.remaining(id, job).is_none_or(|left| left >= way),
            "a sweep has the way back left"
        );
        if !self.end_job(now, id, job) {
            return false;
        }
        let head = |slot: &u32| self.tasks[*slot as usize].queue.front();
        let slots = self.index.iter().map(|(_, slot)| *slot);
        let begun = slots.filter(|slot| head(slot).is_some_and(|job| job.is_sweep));
        let due = |slot: &u32| {
            let deadline = head(slot).map(|job| job.window.deadline);
            (deadline, self.tasks[*slot as usize].id)
        };
        if let Some(slot) = begun.min_by_key(due) {
            let interrupted = &mut self.tasks[slot as usize].queue[0];
            if interrupted.comes_back.is_zero() {
                interrupted.comes_back = way;
                interrupted.remaining += way;
                self.refresh(slot, now);
            }
        }
        true
    }

    /// Time by which the next request of a sweep exceeds its plan, because another sweep was served in
    /// between. That sweep has paid for it.
    #[must_use]
    pub fn comes_back(&self, id: TaskId, job: JobKey) -> Nanos {
        self.find(id, job).map_or(Nanos::ZERO, |(slot, index)| {
            self.tasks[slot as usize].queue[index].comes_back
        })
    }

    fn find(&self, id: TaskId, job: JobKey) -> Option<(u32, usize)> {
        let slot = self.slot(id)?;
        self.tasks[slot as usize]
            .position(job)
            .map(|index| (slot, index))
    }

    /// A queued job's window now.
    #[must_use]
    pub fn window(&self, id: TaskId, job: JobKey) -> Option<Window> {
        self.find(id, job)
            .map(|(slot, index)| self.tasks[slot as usize].queue[index].window)
    }

    /// True if the task is present, if only until its last deadline.
    pub(crate) fn has_task(&mut self, now: Time, id: TaskId) -> bool {
        self.catch_up(now);
        self.slot(id).is_some()
    }

    /// A task's period.
    pub(crate) fn period(&self, id: TaskId) -> Option<Nanos> {
        let slot = self.slot(id)?;
        Some(self.tasks[slot as usize].params.period())
    }

    /// The remaining cost of a queued job.
    #[must_use]
    pub fn remaining(&self, id: TaskId, job: JobKey) -> Option<Nanos> {
        self.find(id, job)
            .map(|(slot, index)| self.tasks[slot as usize].queue[index].remaining)
    }

    /// Number of tasks with a released job queued, and with only early jobs queued.
    #[must_use]
    pub fn queued(&self) -> (usize, usize) {
        (self.released.len(), self.early.len())
    }

    fn head(&self, slot: u32) -> JobKey {
        self.tasks[slot as usize].queue[0].key
    }

    /// Puts the first job of `slot` where it belongs.
    fn refresh(&mut self, slot: u32, now: Time) {
        let task = &self.tasks[slot as usize];
        let (id, head) = (task.id, task.queue.front().copied());
        self.lines[slot as usize] = task.line(self.shares[slot as usize]);
        for heap in [&mut self.released, &mut self.early, &mut self.releases] {
            heap.remove(slot);
        }
        let Some(job) = head.filter(|job| !job.remaining.is_zero()) else {
            return;
        };
        if job.window.release <= now {
            self.released.insert((job.window.deadline, id), slot);
            self.busy_since.get_or_insert(now);
            self.note_release(job.window.release);
        } else {
            self.early.insert((job.window.deadline, id), slot);
            self.releases.insert((job.window.release, id), slot);
        }
    }

    /// Everything that later choices depend on, relative to `now`, if no job is withdrawn: two cores
    /// with the same options and digest behave alike. For searches of the state space.
    pub fn digest(&self, now: Time, out: &mut Vec<u64>) {
        let relative = |at: Time| at.0.wrapping_sub(now.0);
        for &(id, slot) in &self.index {
            let task = &self.tasks[slot as usize];
            let flags = u64::from(task.leaving)
                | u64::from(task.in_service) << 1
                | (task.queue.len() as u64) << 8;
            out.extend([id.0, flags, task.spent_until.saturating_since(now).0]);
            for job in &task.queue {
                out.extend([relative(job.window.release), relative(job.window.deadline)]);
                out.push(job.remaining.0 << 1 | u64::from(job.touched));
                out.push(job.comes_back.0);
            }
        }
        for entry in &self.in_service {
            out.push(relative(entry.until));
            if matches!(entry.service, Service::Piece(..)) {
                out.push(relative(entry.started));
            }
            if self.options.policy == Policy::DeltaL {
                out.push(u64::from(entry.in_slack));
                out.push(entry.delays_since.map_or(1, relative));
            }
        }
        out.push(u64::from(self.last_start == Some(now)));
        out.push(self.away.0 << 1 | u64::from(self.away_is_paid));
        out.extend(match self.options.policy {
            Policy::Exact => [
                u64::from(self.burst) | u64::from(self.reserve_burst) << 1,
                self.owed as u64,
            ],
            Policy::DeltaL => [self.allowance.left as u64, self.owed as u64],
            Policy::DeltaLPublished => [self.allowance.published_left as u64, self.owed as u64],
            Policy::Lst | Policy::Edf => [0, self.owed as u64],
        });
    }
}

/// A length of time among values of slack, which can be negative; a caller's "for ever" stays that.
fn signed(time: Nanos) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}
