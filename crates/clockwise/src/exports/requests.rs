//! What an export needs of a volume, whatever its protocol: requests on their way to the pool and back.
//!
//! | module | what it is |
//! |---|---|
//! | `volumes` | the pool's volumes, and opening one with a client of the pool |
//! | `parts` | long requests divided, and the memory of each part |
//! | `pending` | requests without an answer |
//! | `spare` | buffers kept for the next request |
//! | `counters` | what was done |
//! | `failed` | errors as numbers that clients know |
//!
//! [`Requests`] are those of one client of one volume. They are handed to the pool as they come, and
//! complete in any order. A protocol that reads a request calls [`insert`](Requests::insert), then
//! [`command`](Requests::command), or [`transfer`](Requests::transfer) and for each part
//! [`memory_for`](Requests::memory_for) and [`submit_part`](Requests::submit_part). Whenever a part is
//! [`completed`](Requests::completed) it asks whether the request [is done](Requests::is_done), answers it
//! as its protocol does, and [removes](Requests::remove) it.
//!
//! # Memory
//! A request gets its memory from the client's own account before it goes to the disks. Where there is
//! none at the moment the protocol takes no more requests until there is, so that its client feels it as
//! a slow server.
//!
//! # Durability
//! A forced write is one durable write, or, in several parts, writes with a flush after them. A flush
//! covers every write that the pool has completed before it, whichever client it came from.

pub(super) mod counters;
mod failed;
pub(super) mod parts;
pub(super) mod pending;
pub(super) mod spare;
pub(super) mod volumes;

use std::sync::Arc;
use std::time::Instant;

use engine::pool::Volume;
use engine::volume_io::{Client, SubmitError, VolumeOp, VolumeRequest};
use sched::units::{Bytes, Time};

use self::counters::Turn;
use self::parts::{AT_ONCE_PART_BYTES, PART_BYTES};
use self::pending::{Pending, PendingId, PendingTable};
use self::spare::Spare;
use peers::log_throttle::Sparing;

pub use failed::Errno;

/// Requests that failed at a disk, in the log.
static FAILURES: Sparing = Sparing::few();

/// The requests of one client to one volume; each is answered by an `A`.
#[derive(Debug)]
pub(super) struct Requests<A> {
    client: Client,
    volume: Arc<Volume>,
    /// The largest transfer of a write that need not be durable.
    write_part_bytes: usize,
    pending: PendingTable<A>,
    /// Requests of the pool in flight.
    in_flight: usize,
    /// Requests of the pool that have been submitted of which the disks have not been told.
    batch: usize,
    pub(super) spare: Spare,
    /// Memory has been asked back and not yet given.
    is_asked_back: bool,
    /// A request has failed at the pool.
    has_failed: bool,
    pub(super) turn: Turn,
}

impl<A> Requests<A> {
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
            spare: Spare::default(),
            is_asked_back: false,
            has_failed: false,
            turn: Turn::default(),
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Whether there is no place for one more.
    pub(super) fn is_full(&self) -> bool {
        self.pending.is_full()
    }

    /// Whether all have been answered.
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether a disk has something of them.
    pub(super) fn is_in_flight(&self) -> bool {
        self.in_flight > 0
    }

    /// Takes a place for a request. There must be one.
    pub(super) fn insert(&mut self, answer: A) -> PendingId {
        self.pending.insert(answer)
    }

    pub(super) fn get(&mut self, id: PendingId) -> &mut Pending<A> {
        self.pending.get(id)
    }

    /// Forgets a request that has been answered.
    pub(super) fn remove(&mut self, id: PendingId) {
        self.pending.remove(id);
    }

    /// Starts a request without data: a flush (of no range), a discard, or zeros.
    pub(super) fn command(&mut self, id: PendingId, op: VolumeOp, offset: u64, bytes: u64) {
        let request = VolumeRequest::command(&self.volume, op, Bytes(offset), Bytes(bytes));
        let result = self
            .client
            .submit_batched(request.user_data(id.user_data(0)));
        self.note_submitted(id, op, result.map(|_| ()));
        self.pending.get(id).complete = true;
    }

    /// Whether a request is to be answered now. A flush that it owes begins when all else of it is done.
    pub(super) fn is_done(&mut self, id: PendingId) -> bool {
        let pending = self.pending.get(id);
        if !pending.is_finished() {
            return false;
        }
        if std::mem::take(&mut pending.flush) && pending.error.is_none() {
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
            Err(error) => pending.fail(failed::of_submit(&error, op), error.to_string()),
        }
    }

    /// Something that the pool has completed: the request, and which part of it, or a command. A failure
    /// is noted with the request.
    pub(super) fn completed(&mut self) -> Option<(PendingId, usize)> {
        let completion = self.client.poll()?;
        let (id, number) = PendingId::from_user_data(completion.user_data);
        self.in_flight -= 1;
        let pending = self.pending.get(id);
        pending.in_flight -= 1;
        if let Err(failure) = &completion.result {
            // Once for a client: what comes after it fails likewise.
            if !std::mem::replace(&mut self.has_failed, true)
                && let Some(untold) = FAILURES.turn(Instant::now())
            {
                let volume = self.volume.name();
                tracing::warn!(volume, %failure, untold, "a request to the block export failed");
            }
            pending.fail(failed::of_io(failure), failure.to_string());
        }
        Some((id, number))
    }

    /// How many requests of the pool the disks have not been told of.
    pub(super) fn batch(&self) -> usize {
        self.batch
    }

    /// Tells the disks of what has been submitted.
    pub(super) fn end_batch(&mut self) {
        if std::mem::take(&mut self.batch) > 0 {
            self.client.submit_end();
        }
    }

    /// Until when memory has to be given back, if it is asked for.
    pub(super) fn give_back_until(&self) -> Option<Time> {
        self.client.account().asked_back().map(|(_, until)| until)
    }

    /// Memory may have been asked back, or have become free.
    pub(super) fn memory_event(&mut self) {
        self.is_asked_back = self.give_back_until().is_some();
        if self.is_asked_back {
            self.spare.clear();
        }
    }

    /// Whether memory was asked back when that was last looked at.
    pub(super) fn is_asked_back(&self) -> bool {
        self.is_asked_back
    }
}
