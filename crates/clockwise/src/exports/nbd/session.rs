//! A connection in its transmission phase.
//!
//! | module | contents |
//! |---|---|
//! | `receiver` | bytes from the socket: headers, payloads, discarded payloads |
//! | `prefetch` | several writes received in one call |
//! | `busy_poll` | polling the socket for the rest of a payload |
//! | `receive` | the loop that reads requests |
//! | `commands` | requests without a transfer, refused ones, and the start of a transfer |
//! | `completions` | from completions of the pool to replies |
//! | `reply_queue` | replies to be sent |
//! | `reclaim` | memory that the client must free in time |
//!
//! [`Session::turn`] does everything that needs no waiting: it takes completions, sends replies, receives requests and
//! submits them to the pool. Requests are submitted as they arrive and answered as they complete, in any order.
//!
//! # Memory
//! A request gets its memory from the connection's own account before it goes to the disks, and the payload of a write
//! is received directly into it. While there is none, the connection receives nothing, so that the client experiences
//! a slow server. [`Requests`] divides requests and flushes, for every protocol.

mod busy_poll;
mod commands;
mod completions;
mod prefetch;
mod receive;
mod receiver;
mod reclaim;
mod reply_queue;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use engine::pool::Volume;
use engine::volume_io::Client;
use sched::units::{Nanos, Time};

use self::receiver::Receiver;
use self::reclaim::{ClientProgress, Reclaim};
use self::reply_queue::ReplyQueue;
use super::proto::request::TransmissionParameters;
use super::proto::{Errno, ProtocolError};
use crate::exports::requests::Requests;
use crate::exports::requests::counters::RequestCounts;
use crate::exports::requests::pending::PendingId;
use crate::exports::requests::transfer::Transfer;

/// Time until the next check of a client that is late because of a disk.
const RECHECK_AFTER: Nanos = Nanos::from_millis(100);

/// The result of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TurnOutcome {
    /// There is more to do at once.
    Ready,
    /// The next turn follows an event of the socket, the pool or the memory.
    Waiting,
    /// The connection has ended in order.
    Ended,
}

/// Reason why a connection ended out of order.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionError {
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error(transparent)]
    Socket(#[from] io::Error),
    #[error("the client closed the connection in the middle of a request")]
    Truncated,
}

/// The result of comparing a client's progress with its deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DeadlineCheck {
    /// The client has no deadline.
    Clear,
    /// The client has until this time, when it is checked again.
    Pending(Time),
    /// The client has missed its deadline.
    Missed,
}

/// The next bytes from the client.
#[derive(Debug)]
enum ReceiveState {
    /// The header of a request.
    Header,
    /// A transfer that needs memory or payload for its next part.
    Transfer(Transfer),
    /// The payload of a refused write: this many bytes are discarded before the reply.
    Discard(PendingId, usize),
    /// No further request is read.
    Closed,
}

/// Content of the reply to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReplyContent {
    /// Data, each part in a chunk of its own in order of completion.
    Chunks,
    /// Data, all at once.
    WholeData,
    /// No data.
    Empty,
}

/// The reply to a pending request.
#[derive(Clone, Copy, Debug)]
struct PendingReply {
    cookie: u64,
    content: ReplyContent,
}

/// A connection in its transmission phase.
#[derive(Debug)]
pub(super) struct Session {
    parameters: TransmissionParameters,
    state: ReceiveState,
    receiver: Receiver,
    requests: Requests<PendingReply>,
    replies: ReplyQueue,
    reclaim: Reclaim,
    /// The last receive stopped for lack of memory or of a free slot, which something under way will return.
    awaits_own: bool,
}

impl Session {
    /// Starts a session on `volume`. `received` is at most [`BULK_BYTES`](super::input::BULK_BYTES) that came with the
    /// handshake.
    pub(super) fn new(
        client: Client,
        volume: Arc<Volume>,
        parameters: TransmissionParameters,
        received: &[u8],
    ) -> Self {
        Self {
            parameters,
            state: ReceiveState::Header,
            receiver: Receiver::new(received),
            requests: Requests::new(client, volume),
            replies: ReplyQueue::new(parameters.reply_format),
            reclaim: Reclaim::default(),
            awaits_own: false,
        }
    }

    pub(super) fn client(&self) -> &Client {
        self.requests.client()
    }

    /// Takes the counts since the last call.
    pub(super) fn take_counts(&mut self) -> RequestCounts {
        std::mem::take(&mut self.requests.counts)
    }

    /// Records the state of the socket as reported by epoll.
    pub(super) fn socket_event(&mut self, is_readable: bool, is_writable: bool, is_hung_up: bool) {
        self.receiver.socket_event(is_readable, is_hung_up);
        self.replies.socket_event(is_writable || is_hung_up);
    }

    /// Handles an event of the memory account: the pool may want memory back, or has some again.
    pub(super) fn memory_event(&mut self) {
        self.requests.memory_event();
    }

    /// Checks if the client frees memory in time that others need.
    ///
    /// A client has until the pool's own deadline. Then it gets [`reclaim::WITHIN`] for the memory that it alone holds
    /// at that time: it may have received its replies a moment ago. The client is not responsible for memory that a
    /// disk holds.
    pub(super) fn check_deadline(&mut self, now: Time) -> DeadlineCheck {
        match self.reclaim.check(self.progress(), now) {
            DeadlineCheck::Clear => {}
            check => return check,
        }
        match self.requests.give_back_until() {
            None => DeadlineCheck::Clear,
            Some(until) if until > now => DeadlineCheck::Pending(until),
            Some(_) => {
                let until = self.start_reclaim(now);
                DeadlineCheck::Pending(until.unwrap_or(now + RECHECK_AFTER))
            }
        }
    }

    fn progress(&self) -> ClientProgress {
        ClientProgress {
            sent_bytes: self.replies.sent_bytes(),
            payloads: self.receiver.payloads(),
        }
    }

    /// Demands that the client accepts pending replies and sends the rest of a payload, if memory depends on it.
    /// Returns the deadline.
    fn start_reclaim(&mut self, now: Time) -> Option<Time> {
        let owes_payload = !self.receiver.is_readable()
            && matches!(&self.state, ReceiveState::Transfer(transfer) if transfer.part.is_some());
        let blocked_bytes = self.replies.blocked_bytes();
        if !owes_payload && blocked_bytes == 0 {
            return None;
        }
        let mut owed = self.progress();
        owed.sent_bytes += blocked_bytes as u64;
        owed.payloads += u64::from(owes_payload);
        Some(self.reclaim.start(owed, now))
    }

    /// Reads no more requests. Those in flight are still answered.
    pub(super) fn close_input(&mut self) {
        let id = match std::mem::replace(&mut self.state, ReceiveState::Closed) {
            ReceiveState::Transfer(Transfer { id, .. }) | ReceiveState::Discard(id, _) => id,
            ReceiveState::Header | ReceiveState::Closed => return,
        };
        let pending = self.requests.get(id);
        pending.fail(Errno::Shutdown, "the server is shutting down".to_owned());
        pending.is_submitted = true;
        self.finish_if_done(id);
    }

    /// Does everything that needs no waiting.
    pub(super) fn turn(&mut self, socket: BorrowedFd<'_>) -> Result<TurnOutcome, ConnectionError> {
        let result = self.run_turn(socket);
        // Also after an error: submitted requests keep the volume in use until they complete.
        self.requests.end_batch();
        result
    }

    fn run_turn(&mut self, socket: BorrowedFd<'_>) -> Result<TurnOutcome, ConnectionError> {
        self.awaits_own = false;
        self.receiver.begin_turn();
        if self.requests.is_asked_back() {
            self.memory_event();
        }
        self.take_completions();
        self.send(socket)?;
        let progress = self.receive(socket)?;
        self.requests.end_batch();
        self.take_completions();
        self.send(socket)?;
        if matches!(self.state, ReceiveState::Closed)
            && self.requests.is_empty()
            && self.replies.pending_bytes() == 0
        {
            return Ok(TurnOutcome::Ended);
        }
        if progress == receive::Progress::Continue
            || self.has_wait_ended()
            || (self.requests.is_in_flight() && !self.client().arm())
        {
            return Ok(TurnOutcome::Ready);
        }
        Ok(TurnOutcome::Waiting)
    }

    /// True if the awaited memory or slot arrived later in the same turn, for which no further event comes.
    fn has_wait_ended(&mut self) -> bool {
        let was_asked_back = self.requests.is_asked_back();
        if was_asked_back {
            self.memory_event();
        }
        was_asked_back != self.requests.is_asked_back()
            || (self.awaits_own && !self.will_memory_return())
    }

    /// True if a disk or the socket will return memory of this connection.
    fn will_memory_return(&self) -> bool {
        self.requests.is_in_flight() || self.replies.pending_bytes() > 0
    }

    fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        if self.replies.send(socket)? {
            self.requests.spare.note_all_sent();
        }
        Ok(())
    }

    fn take_completions(&mut self) {
        while let Some((id, number)) = self.requests.poll_completion() {
            self.complete_part(id, number);
        }
    }
}
