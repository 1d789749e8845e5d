//! One connection in its transmission phase.
//!
//! [`Session::turn`] does everything that can be done without waiting: takes completions, sends
//! replies, receives requests and hands them to the pool. Requests are handed over as they come and
//! answered as they complete, in any order.
//!
//! # Memory
//! A request gets its memory from the connection's own account before it goes to the disks, and the
//! payload of a write is received straight into it. Where there is none at the moment, the
//! connection receives nothing more until there is, so that the client feels it as a slow server.
//! How long requests are divided, and what a flush covers, is the same for [every export](Requests).

mod debt;
mod parts;
mod receive;
mod replies;
mod start;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use engine::buffer::SendQueue;
use engine::pool::Volume;
use engine::volume_io::Client;
use sched::units::{Nanos, Time};

use self::debt::Debt;
use super::ahead::Ahead;
use super::input::Input;
use super::linger::Linger;
use super::proto::request::Agreed;
use super::proto::{Errno, Fatal};
use crate::exports::requests::Requests;
use crate::exports::requests::counters::Turn;
use crate::exports::requests::parts::Parts;
use crate::exports::requests::pending::PendingId;

/// Requests after which the disks are told and what is done is answered, although the socket has more:
/// so the client works on answers while the rest is being done, instead of by turns with the server.
const BATCH_REQUESTS: usize = 8;

/// How long to wait before looking again at a client whose time is up because of a disk.
const LOOK_AGAIN: Nanos = Nanos::from_millis(100);

/// What a turn came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// There is more to do now.
    Again,
    /// Nothing to do before the socket, the pool or the memory says so.
    Sleep,
    /// The connection is at its end, in order.
    Ended,
}

/// Why a connection ended out of order.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error(transparent)]
    Protocol(#[from] Fatal),
    #[error(transparent)]
    Socket(#[from] io::Error),
    #[error("the client went away in the middle of a request")]
    Gone,
}

/// What the next bytes from the client are.
#[derive(Debug)]
enum Next {
    /// A header.
    Header,
    /// A request has been read and waits for memory or a place for its next part.
    Parts(Parts),
    /// The payload of a write that has failed: it is thrown away, so many bytes of it, before the answer.
    Skip(PendingId, u32),
    /// Nothing more is taken.
    Nothing,
}

/// What a request will be answered with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Data, each part in a chunk of its own as it comes.
    Chunks,
    /// Data, all at once and in order.
    Whole,
    /// That it is done.
    Done,
}

/// How a request is answered.
#[derive(Clone, Copy, Debug)]
struct Answer {
    cookie: u64,
    kind: Kind,
}

/// A connection in its transmission phase.
#[derive(Debug)]
pub(super) struct Session {
    requests: Requests<Answer>,
    agreed: Agreed,
    input: Input,
    linger: Linger,
    next: Next,
    replies: SendQueue,
    /// There was no memory for the next part, or no place for the next request, while something was
    /// under way that would bring some.
    awaits_own: bool,
    scratch: Vec<u8>,
    /// Writes that came with the payload of the one before.
    ahead: Ahead,
    /// How many to expect: one more than last time.
    foresight: usize,
    /// The size of the last payload, zero if the last request had none, and how many of that size
    /// came in a row.
    streak: (u32, u32),
    /// The socket may have something. Cleared by a receive that brought less than was asked for:
    /// epoll tells of what comes later. Not so once the client has hung up, which is told once.
    pub(super) readable: bool,
    pub(super) hung_up: bool,
    pub(super) writable: bool,
    /// Bytes of replies that the client has taken, and payloads that it has sent.
    sent: u64,
    payloads: u64,
    debt: Option<Debt>,
}

/// What a look at the time came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Nothing has to be done by any time.
    Fine,
    /// To be looked at again then.
    LookAt(Time),
    /// Its time is up.
    Overdue,
}

impl Session {
    /// A session on `volume`, beginning with what was received after the handshake.
    pub(super) fn new(
        client: Client,
        volume: Arc<Volume>,
        agreed: Agreed,
        received: &[u8],
    ) -> Self {
        Self {
            requests: Requests::new(client, volume),
            agreed,
            input: Input::new(received),
            linger: Linger::default(),
            next: Next::Header,
            replies: SendQueue::default(),
            awaits_own: false,
            scratch: Vec::new(),
            ahead: Ahead::new(),
            foresight: 1,
            streak: (0, 0),
            readable: true,
            hung_up: false,
            writable: true,
            sent: 0,
            payloads: 0,
            debt: None,
        }
    }

    pub(super) fn client(&self) -> &Client {
        self.requests.client()
    }

    /// What it has done since this was last asked.
    pub(super) fn take_turn(&mut self) -> Turn {
        std::mem::take(&mut self.requests.turn)
    }

    /// Looks whether the client gives back in time.
    ///
    /// A client that has not when the time is over has as long again for just what it holds up then:
    /// it may have got its reply a moment ago. A disk's part in this is not the client's to hurry.
    pub(super) fn look(&mut self, now: Time) -> Verdict {
        if let Some(debt) = &mut self.debt {
            match debt.look(self.sent, self.payloads, now) {
                Verdict::Fine => self.debt = None,
                verdict => return verdict,
            }
        }
        match self.requests.give_back_until() {
            None => Verdict::Fine,
            Some(until) if until > now => Verdict::LookAt(until),
            Some(_) => Verdict::LookAt(self.note_debt(now).unwrap_or(now + LOOK_AGAIN)),
        }
    }

    /// Notes what memory is held by what the client does not take, or does not send the rest of.
    /// Returns until when it has to have done so, if there is any.
    fn note_debt(&mut self, now: Time) -> Option<Time> {
        let sends =
            matches!(&self.next, Next::Parts(parts) if parts.filling.is_some() && !self.readable);
        let takes = self.replies.pending() > 0 && !self.writable;
        let pending = if takes { self.replies.pending() } else { 0 };
        self.debt = (sends || takes).then(|| {
            Debt::new(
                self.sent + pending as u64,
                self.payloads + u64::from(sends),
                now,
            )
        });
        self.debt.map(|debt| debt.until())
    }

    /// Memory may have been asked back, or have become free.
    pub(super) fn memory_event(&mut self) {
        self.requests.memory_event();
    }

    /// Takes no more requests; what is in flight is still answered.
    pub(super) fn close_input(&mut self) {
        let id = match std::mem::replace(&mut self.next, Next::Nothing) {
            Next::Parts(Parts { id, .. }) | Next::Skip(id, _) => id,
            Next::Header | Next::Nothing => return,
        };
        let pending = self.requests.get(id);
        pending.fail(Errno::Shutdown, "the server is shutting down".to_owned());
        pending.complete = true;
        self.finish_if_done(id);
    }

    /// Does what can be done without waiting.
    pub(super) fn turn(&mut self, socket: BorrowedFd<'_>) -> Result<Outcome, Broken> {
        let result = self.steps(socket);
        // However it ended: what has been submitted holds the volume until it is done.
        self.requests.end_batch();
        result
    }

    fn steps(&mut self, socket: BorrowedFd<'_>) -> Result<Outcome, Broken> {
        self.awaits_own = false;
        self.linger.begin_turn();
        if self.requests.is_asked_back() {
            self.memory_event();
        }
        self.take_completions();
        self.send(socket)?;
        let again = self.receive(socket)?;
        self.requests.end_batch();
        self.take_completions();
        self.send(socket)?;
        if matches!(self.next, Next::Nothing)
            && self.requests.is_empty()
            && self.replies.pending() == 0
        {
            return Ok(Outcome::Ended);
        }
        if again || self.is_wait_over() || (self.requests.is_in_flight() && !self.client().arm()) {
            return Ok(Outcome::Again);
        }
        Ok(Outcome::Sleep)
    }

    /// Whether what it waited for when it received came later in the same turn: nobody will say so
    /// again.
    fn is_wait_over(&mut self) -> bool {
        let was_asked = self.requests.is_asked_back();
        if was_asked {
            self.memory_event();
        }
        was_asked != self.requests.is_asked_back()
            || (self.awaits_own && !self.is_anything_under_way())
    }

    /// Whether memory will come back from a disk or the socket.
    fn is_anything_under_way(&self) -> bool {
        self.requests.is_in_flight() || self.replies.pending() > 0
    }

    fn send(&mut self, socket: BorrowedFd<'_>) -> Result<(), Broken> {
        let pending = self.replies.pending();
        if self.writable && pending > 0 {
            self.writable = self.replies.send(socket)?;
            self.sent += (pending - self.replies.pending()) as u64;
            if self.writable {
                self.requests.spare.sent();
            }
        }
        Ok(())
    }

    fn take_completions(&mut self) {
        while let Some((id, number)) = self.requests.completed() {
            self.completed(id, number);
        }
    }
}
