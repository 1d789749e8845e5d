//! The requests of one thread to one volume, with a client of the pool of their own.
//!
//! The thread submits a request to the pool and answers what has completed by then. The queue's completer answers later
//! completions. While there is no memory or no free slot for a request, the thread waits, and the kernel keeps further
//! requests.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use engine::buffer::Buffer;
use engine::event::EventFd;
use engine::pool::Volume;
use engine::volume_io::{Client, VolumeOp};
use fuser::{ReplyData, ReplyEmpty, ReplyWrite};

use super::Shared;
use crate::exports::requests::pending::PendingId;
use crate::exports::requests::transfer::{OnShortage, PartBuffer, Transfer, TransferOp};
use crate::exports::requests::{Durability, Errno, Requests};

/// The reply to a request.
#[derive(Debug)]
pub(super) enum PendingReply {
    /// Data: `bytes` of what was read, after the first `skip`.
    Data {
        reply: ReplyData,
        skip: usize,
        bytes: usize,
        /// Data of a read in several parts.
        gathered: Vec<u8>,
    },
    /// The number of bytes written.
    Written(ReplyWrite, u32),
    Done(ReplyEmpty),
    /// The reply has been sent.
    Sent,
}

impl PendingReply {
    fn error(self, errno: Errno) {
        let errno = fuser::Errno::from_i32(errno as i32);
        match self {
            Self::Data { reply, .. } => reply.error(errno),
            Self::Written(reply, _) => reply.error(errno),
            Self::Done(reply) => reply.error(errno),
            Self::Sent => {}
        }
    }
}

/// An event of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum QueueEvent {
    /// Requests have completed.
    Completions,
    /// The pool wants memory back, or has some again.
    Memory,
}

#[derive(Debug)]
pub(super) struct VolumeQueue {
    shared: Arc<Shared>,
    requests: Mutex<Requests<PendingReply>>,
    /// Notified after completions, events and the end of the mount.
    changed: Condvar,
}

type Guard<'a> = MutexGuard<'a, Requests<PendingReply>>;

impl VolumeQueue {
    pub(super) fn new(shared: Arc<Shared>, client: Client, volume: Arc<Volume>) -> Self {
        Self {
            shared,
            requests: Mutex::new(Requests::new(client, volume)),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> Guard<'_> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `use_events` with the events of completions and of memory.
    pub(super) fn with_events<T>(&self, use_events: impl FnOnce(&EventFd, &EventFd) -> T) -> T {
        let requests = self.lock();
        let client = requests.client();
        use_events(client.event(), client.account().event())
    }

    /// Reads a range of whole blocks, and replies with `bytes` of it after the first `skip`.
    pub(super) fn read(&self, range: Range<u64>, skip: usize, bytes: usize, reply: ReplyData) {
        let reply = PendingReply::Data {
            reply,
            skip,
            bytes,
            gathered: Vec::new(),
        };
        let Some((mut requests, id)) = self.insert(reply) else {
            return;
        };
        let mut transfer = requests.begin_transfer(id, TransferOp::Read, range);
        while transfer.left > 0 {
            let Some((with_memory, buffer)) = self.allocate_part(requests, &transfer) else {
                return;
            };
            requests = with_memory;
            transfer.part = Some(PartBuffer { buffer, filled: 0 });
            requests.submit_part(&mut transfer);
        }
        self.end_request(requests, id);
    }

    /// Writes whole blocks.
    pub(super) fn write(
        &self,
        offset: u64,
        data: &[u8],
        durability: Durability,
        reply: ReplyWrite,
    ) {
        let reply = PendingReply::Written(reply, data.len() as u32);
        let Some((mut requests, id)) = self.insert(reply) else {
            return;
        };
        let range = offset..offset + data.len() as u64;
        let mut transfer = requests.begin_transfer(id, TransferOp::Write(durability), range);
        while transfer.left > 0 {
            let Some((with_memory, mut buffer)) = self.allocate_part(requests, &transfer) else {
                return;
            };
            requests = with_memory;
            let filled = buffer.size().min(transfer.left);
            let from = data.len() - transfer.left;
            let part = &data[from..from + filled];
            // If the pool has revoked the buffer since, the loop allocates another.
            if buffer
                .with_mut(|bytes| bytes[..filled].copy_from_slice(part))
                .is_ok()
            {
                transfer.part = Some(PartBuffer { buffer, filled });
                requests.submit_part(&mut transfer);
            }
        }
        self.end_request(requests, id);
    }

    /// Submits a request without data.
    pub(super) fn command(&self, op: VolumeOp, range: Range<u64>, reply: ReplyEmpty) {
        if let Some((mut requests, id)) = self.insert(PendingReply::Done(reply)) {
            requests.submit_command(id, op, range.start, range.end - range.start);
            self.end_request(requests, id);
        }
    }

    /// Adds a request, and waits for a free slot. Returns `None` after an error reply if the mount ends.
    fn insert(&self, reply: PendingReply) -> Option<(Guard<'_>, PendingId)> {
        let mut requests = self.lock();
        while !self.is_stopped() && (requests.is_full() || requests.is_asked_back()) {
            requests = self.wait(requests);
        }
        if self.is_stopped() || self.shared.is_draining.load(Ordering::Acquire) {
            drop(requests);
            reply.error(Errno::Shutdown);
            return None;
        }
        let id = requests.insert(reply);
        Some((requests, id))
    }

    /// Waits for memory for the next part of a transfer. Returns `None` if there will be none. The request then gets an
    /// error reply once its submitted parts are done.
    fn allocate_part<'a>(
        &'a self,
        mut requests: Guard<'a>,
        transfer: &Transfer,
    ) -> Option<(Guard<'a>, Buffer)> {
        loop {
            let on_shortage = if requests.is_in_flight() {
                OnShortage::Wait
            } else {
                OnShortage::UseFixed
            };
            let (errno, text) = match requests.allocate_part(transfer, on_shortage) {
                Ok(Some(buffer)) => return Some((requests, buffer)),
                Ok(None) if !self.is_stopped() => {
                    requests = self.wait(requests);
                    continue;
                }
                Ok(None) => (Errno::Shutdown, "the server is shutting down".to_owned()),
                Err(text) => (Errno::NoMemory, text),
            };
            requests.get(transfer.id).fail(errno, text);
            self.end_request(requests, transfer.id);
            return None;
        }
    }

    fn is_stopped(&self) -> bool {
        self.shared.is_stopped.load(Ordering::Acquire)
    }

    /// Waits until slots or memory may have changed.
    fn wait<'a>(&'a self, mut requests: Guard<'a>) -> Guard<'a> {
        let was_asked_back = requests.is_asked_back();
        if was_asked_back {
            requests.memory_event();
        }
        if self.settle(&mut requests) || was_asked_back != requests.is_asked_back() {
            return requests;
        }
        let woken = self.changed.wait(requests);
        woken.unwrap_or_else(PoisonError::into_inner)
    }

    /// All parts of a request have been submitted.
    fn end_request(&self, mut requests: Guard<'_>, id: PendingId) {
        requests.get(id).is_submitted = true;
        self.finish_if_done(&mut requests, id);
        self.settle(&mut requests);
        drop(requests);
        self.changed.notify_all();
    }

    /// Ends the batch and handles completions until the completer will get an event for the rest. Returns true if there
    /// were completions.
    fn settle(&self, requests: &mut Requests<PendingReply>) -> bool {
        let mut has_completed = false;
        loop {
            requests.end_batch();
            let mut may_have_more = false;
            while let Some((id, number)) = requests.poll_completion() {
                may_have_more = true;
                complete_part(requests, id, number);
                self.finish_if_done(requests, id);
            }
            has_completed |= may_have_more;
            if !may_have_more && (!requests.is_in_flight() || requests.client().arm()) {
                return has_completed;
            }
        }
    }

    fn finish_if_done(&self, requests: &mut Requests<PendingReply>, id: PendingId) {
        if requests.try_complete(id) {
            send_reply(requests, id);
            requests.remove(id);
            self.shared.counters.add(&mut requests.counts);
        }
    }

    pub(super) fn handle(&self, event: QueueEvent) {
        let mut requests = self.lock();
        if event == QueueEvent::Memory {
            requests.memory_event();
        }
        self.settle(&mut requests);
        drop(requests);
        self.changed.notify_all();
    }

    /// Waits until all requests have been answered, at most until `until`.
    pub(super) fn drain(&self, until: Instant) {
        let mut requests = self.lock();
        while !requests.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(requests, left);
            requests = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Wakes the threads that wait, after the mount has been stopped.
    pub(super) fn wake(&self) {
        drop(self.lock());
        self.changed.notify_all();
    }
}

/// Handles the completion of part `number` of a request.
fn complete_part(requests: &mut Requests<PendingReply>, id: PendingId, number: usize) {
    let pending = requests.get(id);
    let has_one_part = pending.is_submitted && pending.parts.len() == 1;
    let begin = pending.parts.first().map_or(0, |part| part.offset);
    let Some(part) = pending.parts.get_mut(number) else {
        return;
    };
    let (at, size) = ((part.offset - begin) as usize, part.bytes);
    match &mut pending.reply {
        // The reply is sent from the buffer.
        PendingReply::Data { .. } if has_one_part => {}
        PendingReply::Data { gathered, .. } => {
            let Some(buffer) = part.buffer.take() else {
                return;
            };
            gathered.resize(gathered.len().max(at + size), 0);
            let copied =
                buffer.with(|bytes| gathered[at..at + size].copy_from_slice(&bytes[..size]));
            if let Err(error) = copied {
                pending.fail(Errno::NoMemory, error.to_string());
            }
            requests.spare.keep(buffer);
        }
        _ => {
            if let Some(buffer) = part.buffer.take() {
                requests.spare.keep(buffer);
            }
        }
    }
}

/// Sends the reply to a request that is done.
fn send_reply(requests: &mut Requests<PendingReply>, id: PendingId) {
    let pending = requests.get(id);
    let error = pending.error.take();
    let reply = std::mem::replace(&mut pending.reply, PendingReply::Sent);
    let part = pending.parts.first_mut();
    let buffer = part.and_then(|part| part.buffer.take());
    let counts = &mut requests.counts;
    counts.requests += 1;
    match (reply, error) {
        (reply, Some((errno, _))) => {
            counts.errors += 1;
            reply.error(errno);
        }
        (
            PendingReply::Data {
                reply,
                skip,
                bytes,
                gathered,
            },
            None,
        ) => {
            let range = skip..skip + bytes;
            match &buffer {
                Some(buffer) => counts.errors += u64::from(!send_from(buffer, range, reply)),
                None => reply.data(&gathered[range]),
            }
            counts.read_bytes += bytes as u64;
        }
        (PendingReply::Written(reply, bytes), None) => {
            counts.written_bytes += u64::from(bytes);
            reply.written(bytes);
        }
        (PendingReply::Done(reply), None) => reply.ok(),
        (PendingReply::Sent, None) => {}
    }
    if let Some(buffer) = buffer {
        requests.spare.keep(buffer);
    }
}

/// Replies with a range of a buffer. Returns false after an error reply: the pool revoked the buffer between the disk's
/// completion and this call.
fn send_from(buffer: &Buffer, range: Range<usize>, reply: ReplyData) -> bool {
    let mut reply = Some(reply);
    let sent = buffer.with(|data| {
        if let Some(reply) = reply.take() {
            reply.data(&data[range]);
        }
    });
    match reply.filter(|_| sent.is_err()) {
        Some(reply) => {
            reply.error(fuser::Errno::ENOMEM);
            false
        }
        None => true,
    }
}
