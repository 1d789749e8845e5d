//! Requests to a volume on their way to the pool and back, for every export protocol.
//!
//! | module | contents |
//! |---|---|
//! | `volumes` | the pool's volumes, and opening one with a client of the pool |
//! | `transfer` | reads and writes divided into parts, and the memory of each part |
//! | `pending` | requests that have no reply yet |
//! | `spare_buffers` | buffers kept for the next request |
//! | `counters` | counts of requests and bytes |
//! | `errno` | errors as numbers of the protocols |
//!
//! [`Requests`] holds the requests of one client to one volume. They go to the pool as they arrive and complete in any
//! order. A protocol that has read a request calls [`insert`](Requests::insert). A request without data then goes to
//! [`submit_command`](Requests::submit_command). A request with data goes to
//! [`begin_transfer`](Requests::begin_transfer), and each of its parts to
//! [`allocate_part`](Requests::allocate_part) and [`submit_part`](Requests::submit_part). After each
//! [`poll_completion`](Requests::poll_completion) the protocol calls [`try_complete`](Requests::try_complete). Once
//! that returns true, it sends the reply and calls [`remove`](Requests::remove).
//!
//! # Memory
//! A request gets its memory from the client's own account before it goes to the disks. While there is none, the
//! protocol takes no more requests, so that its client experiences a slow server.
//!
//! # Durability
//! A write with [`Durability::BeforeReply`] is one durable write, or, in several parts, plain writes with a flush after
//! them. A flush covers every write that the pool has completed before it, from all clients.

pub(super) mod counters;
mod errno;
pub(super) mod pending;
pub(super) mod spare_buffers;
pub(super) mod transfer;
pub(super) mod volumes;

use std::sync::Arc;
use std::time::Instant;

use engine::pool::Volume;
use engine::volume_io::{Client, SubmitError, VolumeOp, VolumeRequest};
use sched::units::{Bytes, Time};

use self::counters::RequestCounts;
use self::pending::{PendingId, PendingRequest, PendingTable};
use self::spare_buffers::SpareBuffers;
use self::transfer::{AT_ONCE_PART_BYTES, PART_BYTES};
use peers::log_throttle::SharedLogThrottle;

pub use errno::Errno;

/// Limits the log lines about requests that failed at a disk.
static FAILURES: SharedLogThrottle = SharedLogThrottle::few();

/// The time at which a write is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// After the next flush.
    AfterFlush,
    /// Before its reply: forced unit access, `O_DSYNC`.
    BeforeReply,
}

/// The requests of one client to one volume. `R` is the protocol's state for the reply to a request.
#[derive(Debug)]
pub(super) struct Requests<R> {
    client: Client,
    volume: Arc<Volume>,
    /// The largest part of a write that need not be durable.
    write_part_bytes: usize,
    pending: PendingTable<R>,
    /// Requests of the pool in flight.
    in_flight: usize,
    /// Requests of the pool that are submitted in the current batch.
    batch: usize,
    pub(super) spare: SpareBuffers,
    /// The pool had asked for memory back at the last [`Self::memory_event`].
    is_asked_back: bool,
    /// A failed request of this client has been considered for the log.
    has_failed: bool,
    pub(super) counts: RequestCounts,
}

impl<R> Requests<R> {
    pub(super) fn new(client: Client, volume: Arc<Volume>) -> Self {
        let write_part_bytes = if volume.completes_at_once() {
            AT_ONCE_PART_BYTES
        } else {
            PART_BYTES
        };
        Self {
            client,
            volume,
            write_part_bytes,
            pending: PendingTable::default(),
            in_flight: 0,
            batch: 0,
            spare: SpareBuffers::default(),
            is_asked_back: false,
            has_failed: false,
            counts: RequestCounts::default(),
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn volume(&self) -> &Volume {
        &self.volume
    }

    /// True if no further request can be inserted.
    pub(super) fn is_full(&self) -> bool {
        self.pending.is_full()
    }

    /// True if every request has its reply.
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// True if the pool has not completed all that was submitted.
    pub(super) fn is_in_flight(&self) -> bool {
        self.in_flight > 0
    }

    /// Adds a request. There must be room ([`Self::is_full`]).
    pub(super) fn insert(&mut self, reply: R) -> PendingId {
        self.pending.insert(reply)
    }

    pub(super) fn get(&mut self, id: PendingId) -> &mut PendingRequest<R> {
        self.pending.get(id)
    }

    /// Removes a request that has its reply.
    pub(super) fn remove(&mut self, id: PendingId) {
        self.pending.remove(id);
    }

    /// Submits a request without data: a flush (of an empty range), a discard, or zeros.
    pub(super) fn submit_command(&mut self, id: PendingId, op: VolumeOp, offset: u64, bytes: u64) {
        let request = VolumeRequest::command(&self.volume, op, Bytes(offset), Bytes(bytes));
        let result = self
            .client
            .submit_batched(request.user_data(id.user_data(0)));
        self.note_submitted(id, op, result.map(|_| ()));
        self.pending.get(id).is_submitted = true;
    }

    /// Returns true if the reply to a request is due. Submits the flush that the request needs after its parts.
    pub(super) fn try_complete(&mut self, id: PendingId) -> bool {
        let pending = self.pending.get(id);
        if !pending.are_parts_done() {
            return false;
        }
        if std::mem::take(&mut pending.needs_flush) && pending.error.is_none() {
            let request =
                VolumeRequest::command(&self.volume, VolumeOp::Flush, Bytes::ZERO, Bytes::ZERO);
            let number = pending.parts.len();
            let result = self
                .client
                .submit_batched(request.user_data(id.user_data(number)));
            self.note_submitted(id, VolumeOp::Flush, result.map(|_| ()));
        }
        self.pending.get(id).in_flight == 0
    }

    fn note_submitted(&mut self, id: PendingId, op: VolumeOp, result: Result<(), SubmitError>) {
        let pending = self.pending.get(id);
        match result {
            Ok(()) => {
                pending.in_flight += 1;
                self.in_flight += 1;
                self.batch += 1;
            }
            Err(error) => pending.fail(Errno::from_submit_error(&error, op), error.to_string()),
        }
    }

    /// Takes one completion of the pool: the request and the number of its part, which is 0 for a command. A failure
    /// is recorded in the request.
    pub(super) fn poll_completion(&mut self) -> Option<(PendingId, usize)> {
        let completion = self.client.poll()?;
        let (id, number) = PendingId::from_user_data(completion.user_data);
        self.in_flight -= 1;
        let pending = self.pending.get(id);
        pending.in_flight -= 1;
        if let Err(failure) = &completion.result {
            // Later failures of the same client rarely have another cause.
            if !std::mem::replace(&mut self.has_failed, true)
                && let Some(untold) = FAILURES.turn(Instant::now())
            {
                let volume = self.volume.name();
                tracing::warn!(volume, %failure, untold, "a request to the block export failed");
            }
            pending.fail(Errno::from_io_failure(failure), failure.to_string());
        }
        Some((id, number))
    }

    /// Number of requests of the pool in the current batch.
    pub(super) fn batch(&self) -> usize {
        self.batch
    }

    /// Ends the batch: the disks start what has been submitted.
    pub(super) fn end_batch(&mut self) {
        if std::mem::take(&mut self.batch) > 0 {
            self.client.submit_end();
        }
    }

    /// The time until which the pool wants memory back, if it does.
    pub(super) fn give_back_until(&self) -> Option<Time> {
        self.client.account().asked_back().map(|(_, until)| until)
    }

    /// Handles an event of the memory account: the pool may want memory back, or has some again.
    pub(super) fn memory_event(&mut self) {
        self.is_asked_back = self.give_back_until().is_some();
        if self.is_asked_back {
            self.spare.clear();
        }
    }

    /// True if the pool wanted memory back at the last [`Self::memory_event`].
    pub(super) fn is_asked_back(&self) -> bool {
        self.is_asked_back
    }
}
