//! The dispatcher's thread: the loop around [`DispatcherState`].

use std::sync::Arc;

use sched::units::{Nanos, Time};
use smallvec::SmallVec;

use super::inbox::Submitted;
use super::loan;
use super::state::{Action, Answer, DispatcherState};
use super::{Control, Shared};
use crate::clock;
use crate::completion::Sink;
use crate::disk::{Disk, DiskError, Done};

/// Bytes issued in a row before completions are handled. A disk in memory moves data in `submit`, and the
/// first request should not wait for the last.
const ISSUE_BYTES_MAX: usize = 256 << 10;

/// The most bytes that a submitter transfers itself on a disk that completes at once, before it leaves the
/// rest to the disk's thread. A larger copy is worth a wake-up: another processor makes it while the
/// submitter receives further requests.
pub const HELP_BYTES_MAX: u64 = 128 << 10;

/// Clients that are woken together at the end of a batch.
const SINKS_INLINE: usize = 8;

/// Closes the inbox when the thread ends for any reason, so that no submitter waits for ever.
struct CloseOnExit<'a>(&'a Shared);

impl Drop for CloseOnExit<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Runs until stopped and all requests have been answered.
pub(super) fn run(shared: &Shared, state: DispatcherState, disk: Box<dyn Disk>) {
    let mut runner = Box::new(Runner {
        arrived: Vec::with_capacity(shared.inbox.capacity()),
        done: Vec::with_capacity(disk.places()),
        state,
        disk,
        sinks: SmallVec::new(),
    });
    // Dropped before the runner, so that nothing arrives while the runner's requests are answered.
    let _closing = CloseOnExit(shared);
    loop {
        runner.take_in(shared, clock::now());
        let until = runner.act(shared, clock::now());
        runner.wake_sinks();
        if runner.state.is_finished() {
            return;
        }
        if until.is_none() && runner.may_be_lent(shared) {
            let Some(back) = loan::lend(shared, runner) else {
                return;
            };
            runner = back;
        } else {
            runner.sleep(shared, until);
            runner.take_done(clock::now());
        }
    }
}

/// A disk and the state of its dispatcher. Only the owner of this value may use the disk.
pub(super) struct Runner {
    state: DispatcherState,
    disk: Box<dyn Disk>,
    /// Slots of requests that have arrived and are to be taken in; the oldest is last.
    arrived: Vec<u32>,
    done: Vec<Done>,
    /// Clients to wake at the end of the batch.
    sinks: SmallVec<[Arc<dyn Sink>; SINKS_INLINE]>,
}

impl Runner {
    /// True if threads other than the disk's may run it: no transfer is ever waited for, and there is no
    /// reservation that a thread without priority could delay.
    fn may_be_lent(&self, shared: &Shared) -> bool {
        shared.at_once
            && !self.state.has_promises()
            && !self.state.has_wait_failed()
            && !self.state.shares_places()
    }

    /// Serves submitted requests on a borrower's thread, as far as that is possible without waiting. Returns
    /// true if work is left for the disk's thread.
    pub(super) fn help(&mut self, shared: &Shared) -> bool {
        let mut taken_bytes = 0;
        loop {
            let mut now = clock::now();
            // A request that passes is never queued, so the next one need not be ordered against it.
            while let Some(Submitted { id, io }) = shared.inbox.pop(&mut self.arrived) {
                taken_bytes += io.count.bytes().0;
                if taken_bytes > HELP_BYTES_MAX {
                    self.state.submit(now, id, io);
                    break;
                }
                if !self.state.pass(now, id, io) {
                    break;
                }
                self.act(shared, now);
                now = self.disk.ready_at().unwrap_or_else(clock::now);
                self.poll_disk(shared);
                self.take_done(now);
            }
            taken_bytes += self.take_requests(shared, now);
            if taken_bytes > HELP_BYTES_MAX {
                return true;
            }
            let until = self.act(shared, now);
            self.wake_sinks();
            if !self.disk.has_ready() {
                return until.is_some();
            }
            self.poll_disk(shared);
            self.take_done(clock::now());
        }
    }

    fn take_in(&mut self, shared: &Shared, now: Time) {
        self.take_requests(shared, now);
        for control in shared.control.take_all() {
            // Requests submitted before a cancel or a stop come before it.
            self.take_requests(shared, now);
            self.handle_control(now, control);
        }
    }

    /// Takes in all submitted requests; returns their bytes.
    fn take_requests(&mut self, shared: &Shared, now: Time) -> u64 {
        let mut bytes = 0;
        while let Some(Submitted { id, io }) = shared.inbox.pop(&mut self.arrived) {
            bytes += io.count.bytes().0;
            self.state.submit(now, id, io);
        }
        bytes
    }

    fn handle_control(&mut self, now: Time, control: Control) {
        // The caller waits for the reply. If it has gone, the reply is dropped.
        fn send_reply<T>(reply: oneshot::Sender<T>, answer: T) {
            let _ = reply.send(answer);
        }
        match control {
            Control::Join {
                id,
                params,
                kind,
                first_release,
                reply,
            } => {
                send_reply(reply, self.state.join(now, id, params, kind, first_release));
            }
            Control::Leave { id, reply } => {
                self.state.leave(
                    now,
                    id,
                    Box::new(move |free_from| send_reply(reply, free_from)),
                );
            }
            Control::EndSpan { id, last_deadline } => self.state.end_span(now, id, last_deadline),
            Control::SetDeltaL {
                corrected,
                published,
            } => self.state.set_delta_l(now, corrected, published),
            Control::SetSlow { range, extra } => self.state.set_slow(range, extra),
            Control::Cancel(id) => self.state.cancel(now, id),
            Control::Report(reply) => send_reply(reply, self.state.report(now)),
            Control::Health(reply) => send_reply(reply, self.state.health(now)),
            Control::Stop { drain } => self.state.stop(now, drain),
        }
    }

    /// Carries out actions until there is none or enough has been issued. Returns until when to sleep.
    fn act(&mut self, shared: &Shared, mut now: Time) -> Option<Time> {
        let mut issued_bytes = 0;
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
                    let issued = self.disk.ready_at().unwrap_or_else(clock::now);
                    // Where `submit` moves the data, its duration is the disk's time and not the host's.
                    if !shared.at_once {
                        self.state.issued_late(tag, issued.saturating_since(now));
                    }
                    if issued_bytes >= ISSUE_BYTES_MAX {
                        return Some(Time::ZERO);
                    }
                    now = issued;
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

    fn sleep(&mut self, shared: &Shared, until: Option<Time>) {
        let bell = &shared.bell;
        if until == Some(Time::ZERO) || self.disk.has_ready() {
            // The thread will not sleep, so the doorbell stays disarmed.
            self.poll_disk(shared);
            return;
        }
        bell.arm();
        let until = if shared.has_work() || self.state.has_link_news() {
            Some(Time::ZERO)
        } else {
            until
        };
        if shared.at_once || self.state.has_wait_failed() {
            bell.event().wait(until);
        } else {
            self.wait_for_disk(shared, until);
        }
        bell.disarm();
    }

    /// Takes completions from the disk without waiting.
    fn poll_disk(&mut self, shared: &Shared) {
        if !self.state.has_wait_failed() && (self.disk.has_ready() || !shared.at_once) {
            self.wait_for_disk(shared, Some(Time::ZERO));
        }
    }

    fn wait_for_disk(&mut self, shared: &Shared, until: Option<Time>) {
        let waited = self.disk.wait(until, shared.bell.event(), &mut self.done);
        if let Err(error) = waited {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            self.state
                .wait_failed(clock::now(), DiskError::Gone { errno });
        }
    }

    fn take_done(&mut self, now: Time) {
        for done in self.done.drain(..) {
            self.state.done(now, &done);
        }
    }
}
