//! The dispatcher's thread: the loop around [`DispatcherState`].

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use sched::units::{Nanos, Time};
use smallvec::SmallVec;

use super::state::{Action, Answer, DispatcherState};
use super::{Control, Shared, Submitted};
use crate::clock;
use crate::completion::Sink;
use crate::disk::{Disk, DiskError, Done};

/// Bytes issued in a row before completions are looked at. A disk in memory moves them in `submit`,
/// and the first of them should not wait for the last.
const ISSUE_BYTES_MAX: usize = 256 << 10;

/// Clients woken together at the end of a batch.
const SINKS_INLINE: usize = 8;

/// Closes the way in when the thread ends, however it ends, so that nobody waits for ever.
struct Closing<'a>(&'a Shared);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Runs until told to stop and everything has been answered.
pub(super) fn run(shared: &Shared, state: DispatcherState, disk: Box<dyn Disk>) {
    let places = disk.places();
    let mut runner = Runner {
        shared,
        state,
        disk,
        done: Vec::with_capacity(places),
        sinks: SmallVec::new(),
    };
    // Dropped before the runner: nothing new comes in while what it holds is answered.
    let _closing = Closing(shared);
    while !runner.round() {}
}

struct Runner<'a> {
    shared: &'a Shared,
    state: DispatcherState,
    disk: Box<dyn Disk>,
    done: Vec<Done>,
    /// Whom to wake at the end of the batch.
    sinks: SmallVec<[Arc<dyn Sink>; SINKS_INLINE]>,
}

impl Runner<'_> {
    /// Takes in, acts, sleeps. True when it is over.
    fn round(&mut self) -> bool {
        self.take_in(clock::now());
        let until = self.act();
        self.wake_sinks();
        if self.state.is_finished() {
            return true;
        }
        self.sleep(until);
        let now = clock::now();
        for done in self.done.drain(..) {
            self.state.done(now, &done);
        }
        false
    }

    fn take_in(&mut self, now: Time) {
        self.take_requests(now);
        while let Some(control) = self.shared.control.pop() {
            // Whoever submitted and then cancelled, or stopped, means it in that order.
            self.take_requests(now);
            self.obey(now, control);
        }
    }

    fn take_requests(&mut self, now: Time) {
        while let Some(Submitted { id, io }) = self.shared.inbox.pop() {
            self.state.submit(now, id, io);
        }
    }

    fn obey(&mut self, now: Time, control: Control) {
        // Who asks waits for the answer, unless it has been dropped since: no matter.
        fn tell<T>(reply: &SyncSender<T>, answer: T) {
            let _ = reply.try_send(answer);
        }
        match control {
            Control::Join {
                id,
                params,
                kind,
                first_release,
                reply,
            } => {
                tell(
                    &reply,
                    self.state.join(now, id, params, kind, first_release),
                );
            }
            Control::Leave { id, reply } => {
                self.state
                    .leave(now, id, Box::new(move |free_from| tell(&reply, free_from)));
            }
            Control::SetDeltaL {
                corrected,
                published,
            } => self.state.set_delta_l(now, corrected, published),
            Control::Cancel(id) => self.state.cancel(now, id),
            Control::Poison => self.state.poison(now),
            Control::Report(reply) => tell(&reply, self.state.report(now)),
            Control::Stop { drain } => self.state.stop(now, drain),
        }
    }

    /// Acts until there is nothing to do, or enough has been issued. Returns until when to sleep.
    fn act(&mut self) -> Option<Time> {
        let mut issued_bytes = 0;
        let mut now = clock::now();
        loop {
            match self.state.next_action(now) {
                Action::Answer(answer) => self.answer(answer),
                Action::Issue(io) => {
                    issued_bytes += io.segments.size();
                    let tag = io.tag;
                    if let Err(error) = self.disk.submit(io) {
                        let at = clock::now();
                        self.state.done(
                            at,
                            &Done {
                                tag,
                                result: Err(error),
                                at,
                                host_late: Nanos::ZERO,
                            },
                        );
                    }
                    if issued_bytes >= ISSUE_BYTES_MAX {
                        return Some(Time::ZERO);
                    }
                    now = clock::now();
                }
                Action::Sleep { until } => return until,
            }
        }
    }

    fn answer(&mut self, answer: Answer) {
        let sink = answer.target.complete(answer.result, answer.timing);
        let id = sink.wake_id();
        if self.sinks.iter().any(|known| known.wake_id() == id) {
            return;
        }
        if self.sinks.len() == SINKS_INLINE {
            self.wake_sinks();
        }
        self.sinks.push(sink);
    }

    fn wake_sinks(&mut self) {
        for sink in self.sinks.drain(..) {
            sink.wake();
        }
    }

    fn sleep(&mut self, until: Option<Time>) {
        let bell = &self.shared.bell;
        if self.state.is_deaf() {
            bell.arm();
            if !self.shared.has_work() {
                bell.event().wait(until);
            }
            bell.disarm();
            return;
        }
        let sleeps = until != Some(Time::ZERO) && !self.disk.has_ready();
        let waited = if sleeps {
            bell.arm();
            let until = if self.shared.has_work() {
                Some(Time::ZERO)
            } else {
                until
            };
            let waited = self.disk.wait(until, bell.event(), &mut self.done);
            bell.disarm();
            waited
        } else {
            // Nobody needs to ring.
            self.disk
                .wait(Some(Time::ZERO), bell.event(), &mut self.done)
        };
        if let Err(error) = waited {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            self.state.deaf(clock::now(), DiskError::Gone { errno });
        }
    }
}
