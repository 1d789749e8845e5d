//! The thread of an emulated drive.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::Arc;

use engine::clock;
use engine::disk::{DiskError, DiskIo};
use rustix::io::Errno;
use sched::request::Op;
use sched::units::{Sector, SectorCount, Time};

use super::fault::{Faults, Verdict};
use super::lead::Lead;
use super::link::{Crossing, EmulatedLink};
use super::store::Store;
use super::{PLACES, Shared, lock};
use crate::plant::{Plant, Service};

/// State shared between the drive's thread and the others.
pub(super) struct State {
    /// Requests not yet begun.
    pub(super) queue: VecDeque<Job>,
    /// Requests that are over, or will be at an instant close by, and not yet handed over.
    pub(super) finished: Vec<Finished>,
    /// Requests in the drive, from submission until they are handed over.
    pub(super) held: usize,
    /// When the last request on the link is over, as far as is known.
    pub(super) linked_until: Time,
    pub(super) faults: Faults,
    /// Since when it has been stalled, if it is.
    pub(super) stalled: Option<Time>,
    /// The error number with which everything fails while the drive is gone.
    pub(super) gone: Option<i32>,
    /// The power was cut and the cache has not felt it yet.
    pub(super) cut_power: bool,
    /// The thread has seen that the drive is gone, and nothing is in service.
    pub(super) settled: bool,
    pub(super) has_cache: bool,
    pub(super) lead: Lead,
    pub(super) shut_down: bool,
    /// The thread has ended.
    pub(super) ended: bool,
}

impl State {
    pub(super) fn new(lead: Lead) -> Self {
        Self {
            queue: VecDeque::with_capacity(PLACES),
            finished: Vec::with_capacity(PLACES),
            held: 0,
            linked_until: Time::ZERO,
            faults: Faults::default(),
            stalled: None,
            gone: None,
            cut_power: false,
            settled: false,
            has_cache: false,
            lead,
            shut_down: false,
            ended: false,
        }
    }

    /// Takes what is over by `now`, in order. Returns when the next will be, if it is known.
    pub(super) fn take_finished(&mut self, now: Time, out: &mut Vec<Finished>) -> Option<Time> {
        for called_at in self
            .finished
            .iter_mut()
            .filter_map(|one| one.called_at.take())
        {
            self.lead.learn(now.saturating_since(called_at));
        }
        self.ask_link(now);
        let by = self.stalled.map_or(now, |since| since.min(now));
        let is_over = |finished: &&Finished| {
            finished.due <= by || matches!(finished.result, Err(DiskError::Gone { .. }))
        };
        let count = self.finished.iter().take_while(is_over).count();
        out.extend(self.finished.drain(..count));
        self.held -= count;
        let next = self.finished.first().filter(|_| self.stalled.is_none());
        next.map(|finished| finished.due)
    }

    /// Asks the link when the last request is over. Returns when to ask again, unless its transfer has ended.
    fn ask_link(&mut self, now: Time) -> Option<Time> {
        let last = self.finished.last_mut()?;
        let crossing = last.crossing.as_ref()?;
        let ends = crossing.ends();
        last.due = last.due.max(ends + crossing.extra());
        self.linked_until = last.due;
        if ends > now {
            return Some(ends);
        }
        last.crossing = None;
        None
    }

    /// Goes on after a stall: what was not over when it began is over now at the earliest.
    pub(super) fn resume(&mut self, now: Time) {
        if let Some(since) = self.stalled.take() {
            let late = self
                .finished
                .iter_mut()
                .filter(|finished| finished.due > since);
            late.for_each(|finished| finished.due = finished.due.max(now));
        }
    }

    /// Fails what is not over yet: the drive is gone.
    pub(super) fn fail_unfinished(&mut self, now: Time, errno: i32) {
        self.ask_link(now);
        let by = self.stalled.map_or(now, |since| since.min(now));
        for finished in self
            .finished
            .iter_mut()
            .filter(|finished| finished.due > by)
        {
            finished.due = now;
            finished.result = Err(DiskError::Gone { errno });
            finished.host_failed = false;
            finished.crossing = None;
        }
    }
}

/// A request that was issued.
pub(super) struct Job {
    pub(super) io: DiskIo,
    pub(super) issued: Time,
}

/// A request that is over.
pub(super) struct Finished {
    pub(super) tag: u64,
    pub(super) op: Op,
    pub(super) start: Sector,
    pub(super) count: SectorCount,
    pub(super) result: Result<(), DiskError>,
    /// True if the host's file failed.
    pub(super) host_failed: bool,
    pub(super) issued: Time,
    pub(super) service: Service,
    /// When it was over by the model.
    pub(super) due: Time,
    /// When the host had moved its data.
    pub(super) moved: Time,
    /// When the thread was done with it: before it is due, unless the host was late.
    pub(super) posted: Time,
    /// When the thread was to call whoever waits for it, until that one has looked.
    pub(super) called_at: Option<Time>,
    /// Its transfer, until that has ended on the link.
    pub(super) crossing: Option<Crossing>,
}

/// Next action of the thread.
enum Next {
    Serve(Job, Verdict),
    /// Fail everything queued.
    Gone(i32),
    Sleep,
    End,
}

pub(super) struct Worker {
    shared: Arc<Shared>,
    plant: Plant,
    store: Store,
    link: Option<Arc<EmulatedLink>>,
}

impl Worker {
    pub(super) fn new(
        shared: Arc<Shared>,
        plant: Plant,
        store: Store,
        link: Option<Arc<EmulatedLink>>,
    ) -> Self {
        lock(&shared.state).has_cache = store.has_cache();
        Self {
            shared,
            plant,
            store,
            link,
        }
    }

    pub(super) fn run(mut self) {
        // Real-time threads have no timer slack; this is for those that were denied the priority,
        // and without it they are later by 50 us at most.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        loop {
            match self.next() {
                Next::Serve(job, verdict) => self.serve(job, verdict),
                Next::Gone(errno) => self.settle(errno),
                Next::Sleep => {
                    self.shared.work.wait(None);
                }
                Next::End => break,
            }
        }
        // A later opening of the file finds the data that the drive had cached. A host that cannot take it
        // has failed requests before.
        let _ = self.store.shut_down();
        let mut state = lock(&self.shared.state);
        state.queue.clear();
        state.finished.clear();
        state.ended = true;
        self.shared.changed.notify_all();
    }

    fn next(&self) -> Next {
        let mut state = lock(&self.shared.state);
        if state.shut_down {
            return Next::End;
        }
        if let Some(errno) = state.gone {
            let nothing_to_do = state.settled && state.queue.is_empty() && !state.cut_power;
            return if nothing_to_do {
                Next::Sleep
            } else {
                Next::Gone(errno)
            };
        }
        let Some(job) = state.queue.pop_front() else {
            return Next::Sleep;
        };
        let rotation = self.plant.spec().rotation();
        let verdict = state
            .faults
            .judge(job.io.op, job.io.start, job.io.count, rotation);
        Next::Serve(job, verdict)
    }

    fn serve(&mut self, job: Job, verdict: Verdict) {
        let Job { io, issued } = job;
        let service = self.plant.service(issued, io.op, io.start, io.count);
        let crossing = self.link.clone().map(|link| {
            let rotation = self.plant.spec().rotation();
            Crossing::begin(link, (io.op, io.count), service, rotation, verdict.extra)
        });
        let transferred = verdict
            .fails
            .map_or(io.count, |(_, before)| SectorCount(before));
        let mut outcome = self.store.transfer(&io, transferred);
        let moved = clock::now();
        let held = self.hold(service.completed + verdict.extra, crossing);
        self.plant.busy_at_least_until(held.until);
        if outcome.is_ok() && held.gone.is_none() && io.op == Op::Write && io.durable {
            outcome = self.store.force(io.start, transferred);
        }
        let host_failed = held.gone.is_none() && outcome.is_err();
        let result = match (held.gone, outcome, verdict.fails) {
            (Some(errno), _, _) => Err(DiskError::Gone { errno }),
            (None, Err(error), _) => {
                let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
                Err(DiskError::Io {
                    errno,
                    start: io.start,
                })
            }
            (None, Ok(()), Some((errno, _))) => Err(DiskError::from_errno(errno, io.start)),
            (None, Ok(()), None) => Ok(()),
        };
        self.finish(io, issued, service, held, moved, result, host_failed);
        self.await_link();
    }

    /// Waits until nothing can delay the transfer of the last request: the drive is busy with it until then.
    fn await_link(&mut self) {
        loop {
            let again = {
                let mut state = lock(&self.shared.state);
                let again = state.ask_link(clock::now());
                self.plant.busy_at_least_until(state.linked_until);
                again.filter(|_| !state.shut_down)
            };
            if again.is_none() {
                return;
            }
            self.shared.work.wait(again);
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the fields of the one struct that it makes"
    )]
    fn finish(
        &self,
        io: DiskIo,
        issued: Time,
        service: Service,
        held: Held,
        moved: Time,
        result: Result<(), DiskError>,
        host_failed: bool,
    ) {
        let DiskIo {
            tag,
            op,
            start,
            count,
            segments,
            ..
        } = io;
        // The memory is the client's again before it hears of it.
        drop(segments);
        let mut state = lock(&self.shared.state);
        state.finished.push(Finished {
            tag,
            op,
            start,
            count,
            result,
            host_failed,
            issued,
            service,
            due: held.until,
            moved,
            posted: clock::now(),
            called_at: held.called_at,
            crossing: held.crossing,
        });
        if let Some(errno) = state.gone {
            // The drive may have gone since the thread last looked.
            state.fail_unfinished(clock::now(), errno);
        }
        drop(state);
        self.shared.finished.signal();
    }

    /// Waits until a little before `due`, later if the drive is stalled meanwhile, or until it is gone.
    fn hold(&self, mut due: Time, crossing: Option<Crossing>) -> Held {
        let mut was_stalled = false;
        let mut called_at = None;
        loop {
            let (gone, stalled, shut_down, lead) = {
                let state = lock(&self.shared.state);
                let lead = state.lead.get();
                (state.gone, state.stalled.is_some(), state.shut_down, lead)
            };
            if let Some(crossing) = &crossing {
                due = due.max(crossing.ends() + crossing.extra());
            }
            let now = clock::now();
            if gone.is_some() || shut_down {
                let gone = gone.or(Some(Errno::SHUTDOWN.raw_os_error()));
                return Held {
                    until: now.min(due),
                    gone,
                    called_at: None,
                    crossing: None,
                };
            }
            if stalled {
                was_stalled = true;
                called_at = None;
                self.shared.work.wait(None);
                continue;
            }
            if std::mem::take(&mut was_stalled) {
                due = due.max(now);
            }
            let post_at = Time(due.get().saturating_sub(lead.get()));
            if now >= post_at {
                return Held {
                    until: due,
                    gone: None,
                    // The lead may have grown while the thread slept.
                    called_at: called_at.map(|at: Time| at.min(now)),
                    crossing,
                };
            }
            called_at = Some(post_at);
            self.shared.work.wait(called_at);
        }
    }

    /// Fails what is queued and lets the cache feel a power cut.
    fn settle(&mut self, errno: i32) {
        let (jobs, cut_power) = {
            let mut state = lock(&self.shared.state);
            let jobs: Vec<Job> = state.queue.drain(..).collect();
            (jobs, std::mem::take(&mut state.cut_power))
        };
        if cut_power {
            // Data that the host could not write is lost like the rest.
            let _ = self.store.power_cut();
        }
        let now = clock::now();
        for Job { io, issued } in jobs {
            let breakdown = crate::plant::Breakdown::default();
            let service = Service {
                begun: now,
                completed: now,
                breakdown,
            };
            let held = Held {
                until: now,
                gone: Some(errno),
                called_at: None,
                crossing: None,
            };
            self.finish(
                io,
                issued,
                service,
                held,
                now,
                Err(DiskError::Gone { errno }),
                false,
            );
        }
        let mut state = lock(&self.shared.state);
        state.settled = state.queue.is_empty() && !state.cut_power;
        self.shared.changed.notify_all();
    }
}

/// Result of waiting for the end of a request.
struct Held {
    until: Time,
    gone: Option<i32>,
    /// When the thread was to wake, if it slept until then.
    called_at: Option<Time>,
    crossing: Option<Crossing>,
}

#[cfg(test)]
mod tests;
