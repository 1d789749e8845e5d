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
//! A long request is done in parts of at most [`PART_BYTES`], or [`AT_ONCE_PART_BYTES`], and of
//! [`FIXED_BYTES`], which are the connection's own, when memory is so short that nothing else of it is
//! under way.
//!
//! # Durability
//! A forced write is one durable write, or, in several parts, writes with a flush after them. A
//! flush covers every write that the pool has completed before it, whichever connection it came by.

mod debt;
mod parts;
mod receive;
mod replies;
mod start;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use engine::buffer::{Buffer, SendQueue};
use engine::dispatcher::HELP_BYTES_MAX;
use engine::front::{Client, VolumeOp};
use engine::pool::Volume;
use sched::units::{Nanos, Time};

use self::debt::Debt;
use super::ahead::Ahead;
use super::input::Input;
use super::linger::Linger;
use super::proto::request::Agreed;
use super::proto::{Errno, Fatal};
use super::stats::Turn;
use crate::exports::requests::pending::{PendingId, PendingTable};
use crate::exports::requests::spare::Spare;

/// The largest transfer that is handed to the pool: large enough to be nearly all transfer on a
/// rotating disk, small enough that its memory is soon free again.
pub(super) const PART_BYTES: usize = 1 << 20;

/// The largest transfer of a write that need not be durable, to disks that complete at once. Such a disk
/// is written by the thread that has just received the data and has it in its processor's cache, as
/// long as it is no more than this.
const AT_ONCE_PART_BYTES: usize = HELP_BYTES_MAX as usize;

/// The memory of a connection that nobody can take away: progress, however short memory is.
pub(super) const FIXED_BYTES: usize = 64 << 10;

/// The most pool requests in flight for one connection.
pub(super) const PARTS_MAX: usize = 512;

/// Requests after which the disks are told and what is done is answered, although the socket has more:
/// so the client works on answers while the rest is being done, instead of by turns with the server.
const BATCH_REQUESTS: usize = 8;

/// A transfer of which the disks are told at once: it takes longer than being told, and while the
/// payload of the next is received the disk can be at work. So are they of the parts of a write to disks
/// that complete at once, which are smaller.
const LARGE_BYTES: usize = 256 << 10;

/// How long to wait before looking again at a client whose time is up because of a disk.
const LOOK_AGAIN: Nanos = Nanos::from_millis(100);

const _: () = assert!(FIXED_BYTES.is_multiple_of(4096) && PART_BYTES.is_multiple_of(FIXED_BYTES));
const _: () = assert!(AT_ONCE_PART_BYTES.is_multiple_of(FIXED_BYTES));

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

/// A request on its way to the pool, part by part.
#[derive(Debug)]
struct Parts {
    id: PendingId,
    op: VolumeOp,
    offset: u64,
    left: usize,
    /// The part whose payload is being received, and how much of it is there.
    filling: Option<(Buffer, usize)>,
}

/// A connection in its transmission phase.
#[derive(Debug)]
pub(super) struct Session {
    client: Client,
    volume: Arc<Volume>,
    /// The largest transfer of a write that need not be durable.
    write_part_bytes: usize,
    agreed: Agreed,
    input: Input,
    linger: Linger,
    next: Next,
    pending: PendingTable,
    parts_in_flight: usize,
    /// Requests that have been submitted of which the disks have not been told.
    batch: usize,
    replies: SendQueue,
    spare: Spare,
    /// Memory has been asked back and not yet given.
    asked_back: bool,
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
    pub(super) turn: Turn,
    /// Bytes of replies that the client has taken, and payloads that it has sent.
    sent: u64,
    payloads: u64,
    debt: Option<Debt>,
    /// A request has failed at the pool.
    has_failed: bool,
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
        let write_part_bytes = if volume.completes_at_once() {
            AT_ONCE_PART_BYTES
        } else {
            PART_BYTES
        };
        Self {
            client,
            volume,
            write_part_bytes,
            agreed,
            input: Input::new(received),
            linger: Linger::default(),
            next: Next::Header,
            pending: PendingTable::default(),
            parts_in_flight: 0,
            batch: 0,
            replies: SendQueue::default(),
            spare: Spare::default(),
            asked_back: false,
            awaits_own: false,
            scratch: Vec::new(),
            ahead: Ahead::new(),
            foresight: 1,
            streak: (0, 0),
            readable: true,
            hung_up: false,
            writable: true,
            turn: Turn::default(),
            sent: 0,
            payloads: 0,
            debt: None,
            has_failed: false,
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Until when memory has to be given back, if it is asked for.
    pub(super) fn give_back_until(&self) -> Option<Time> {
        self.client.account().asked_back().map(|(_, until)| until)
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
        match self.give_back_until() {
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
        self.asked_back = self.give_back_until().is_some();
        if self.asked_back {
            self.spare.clear();
        }
    }

    /// Takes no more requests; what is in flight is still answered.
    pub(super) fn close_input(&mut self) {
        let id = match std::mem::replace(&mut self.next, Next::Nothing) {
            Next::Parts(Parts { id, .. }) | Next::Skip(id, _) => id,
            Next::Header | Next::Nothing => return,
        };
        let pending = self.pending.get(id);
        pending.fail(Errno::Shutdown, "the server is shutting down".to_owned());
        pending.complete = true;
        self.finish_if_done(id);
    }

    /// Does what can be done without waiting.
    pub(super) fn turn(&mut self, socket: BorrowedFd<'_>) -> Result<Outcome, Broken> {
        let result = self.steps(socket);
        // However it ended: what has been submitted holds the volume until it is done.
        self.end_batch();
        result
    }

    fn steps(&mut self, socket: BorrowedFd<'_>) -> Result<Outcome, Broken> {
        self.awaits_own = false;
        self.linger.begin_turn();
        if self.asked_back {
            self.memory_event();
        }
        self.take_completions();
        self.send(socket)?;
        let again = self.receive(socket)?;
        self.end_batch();
        self.take_completions();
        self.send(socket)?;
        if matches!(self.next, Next::Nothing)
            && self.pending.is_empty()
            && self.replies.pending() == 0
        {
            return Ok(Outcome::Ended);
        }
        if again || self.is_wait_over() || (self.parts_in_flight > 0 && !self.client.arm()) {
            return Ok(Outcome::Again);
        }
        Ok(Outcome::Sleep)
    }

    /// Whether what it waited for when it received came later in the same turn: nobody will say so
    /// again.
    fn is_wait_over(&mut self) -> bool {
        let was_asked = self.asked_back;
        if was_asked {
            self.memory_event();
        }
        was_asked != self.asked_back || (self.awaits_own && !self.is_anything_under_way())
    }

    /// Whether memory will come back from a disk or the socket.
    fn is_anything_under_way(&self) -> bool {
        self.parts_in_flight > 0 || self.replies.pending() > 0
    }

    /// Tells the disks of what has been submitted.
    fn end_batch(&mut self) {
        if std::mem::take(&mut self.batch) > 0 {
            self.client.submit_end();
        }
    }

    fn send(&mut self, socket: BorrowedFd<'_>) -> Result<(), Broken> {
        let pending = self.replies.pending();
        if self.writable && pending > 0 {
            self.writable = self.replies.send(socket)?;
            self.sent += (pending - self.replies.pending()) as u64;
            if self.writable {
                self.spare.sent();
            }
        }
        Ok(())
    }

    fn take_completions(&mut self) {
        while let Some(completion) = self.client.poll() {
            self.completed(&completion);
        }
    }
}
