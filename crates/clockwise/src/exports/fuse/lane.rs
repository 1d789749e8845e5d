//! The requests of one thread to one volume: as of one connection, with a client of the pool of its own.
//!
//! The thread hands a request to the pool and answers what is complete by then; what completes later is
//! answered by the lane's completer. Where there is no memory for a request, or no place, the thread
//! waits, and the kernel keeps what comes after it.

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
use crate::exports::requests::parts::{Parts, Transfer};
use crate::exports::requests::pending::PendingId;
use crate::exports::requests::{Errno, Requests};

/// How a request is answered.
#[derive(Debug)]
pub(super) enum Answer {
    /// With so many bytes of what is read, less some at the beginning.
    Data {
        reply: ReplyData,
        skip: usize,
        bytes: usize,
        /// Data that came in several parts. The next answer uses its memory again.
        gathered: Vec<u8>,
    },
    Written(ReplyWrite, u32),
    Done(ReplyEmpty),
    /// It has been.
    Given,
}

impl Answer {
    fn error(self, errno: Errno) {
        let errno = fuser::Errno::from_i32(errno as i32);
        match self {
            Self::Data { reply, .. } => reply.error(errno),
            Self::Written(reply, _) => reply.error(errno),
            Self::Done(reply) => reply.error(errno),
            Self::Given => {}
        }
    }
}

/// The requests, and those who wait for them to change.
#[derive(Debug)]
pub(super) struct Lane {
    shared: Arc<Shared>,
    requests: Mutex<Requests<Answer>>,
    changed: Condvar,
}

type Guard<'a> = MutexGuard<'a, Requests<Answer>>;

impl Lane {
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

    /// Does something with the events of its completions and of its memory.
    pub(super) fn events<R>(&self, what: impl FnOnce(&EventFd, &EventFd) -> R) -> R {
        let requests = self.lock();
        let client = requests.client();
        what(client.event(), client.account().event())
    }

    /// Reads a range of whole blocks, and answers with `bytes` of it after the first `skip`.
    pub(super) fn read(&self, range: Range<u64>, skip: usize, bytes: usize, reply: ReplyData) {
        let gathered = Vec::new();
        let answer = Answer::Data {
            reply,
            skip,
            bytes,
            gathered,
        };
        let Some((mut requests, id)) = self.begin(answer) else {
            return;
        };
        let mut parts = requests.transfer(id, Transfer::Read, range);
        while parts.left > 0 {
            let Some((with_memory, buffer)) = self.memory_for(requests, &parts) else {
                return;
            };
            requests = with_memory;
            parts.filling = Some((buffer, 0));
            requests.submit_part(&mut parts);
        }
        self.submitted(requests, id);
    }

    /// Writes whole blocks.
    pub(super) fn write(&self, offset: u64, data: &[u8], forced: bool, reply: ReplyWrite) {
        let answer = Answer::Written(reply, data.len() as u32);
        let Some((mut requests, id)) = self.begin(answer) else {
            return;
        };
        let range = offset..offset + data.len() as u64;
        let mut parts = requests.transfer(id, Transfer::Write { forced }, range);
        while parts.left > 0 {
            let Some((with_memory, mut buffer)) = self.memory_for(requests, &parts) else {
                return;
            };
            requests = with_memory;
            let size = buffer.size().min(parts.left);
            let from = data.len() - parts.left;
            let part = &data[from..from + size];
            // Where it has been taken since, another does as well.
            if buffer
                .with_mut(|bytes| bytes[..size].copy_from_slice(part))
                .is_ok()
            {
                parts.filling = Some((buffer, size));
                requests.submit_part(&mut parts);
            }
        }
        self.submitted(requests, id);
    }

    /// A request without data.
    pub(super) fn command(&self, op: VolumeOp, range: Range<u64>, reply: ReplyEmpty) {
        if let Some((mut requests, id)) = self.begin(Answer::Done(reply)) {
            requests.command(id, op, range.start, range.end - range.start);
            self.submitted(requests, id);
        }
    }

    /// Takes a place for a request, when there is one. `None` if there will be none: it has been answered.
    fn begin(&self, answer: Answer) -> Option<(Guard<'_>, PendingId)> {
        let mut requests = self.lock();
        while !self.is_ended() && (requests.is_full() || requests.is_asked_back()) {
            requests = self.wait(requests);
        }
        if self.is_ended() || self.shared.is_draining.load(Ordering::Acquire) {
            drop(requests);
            answer.error(Errno::Shutdown);
            return None;
        }
        let id = requests.insert(answer);
        Some((requests, id))
    }

    /// Memory for the next part of a request, when there is some. `None` if there will be none: it has been
    /// answered, or will be when what has been submitted of it is done.
    fn memory_for<'a>(
        &'a self,
        mut requests: Guard<'a>,
        parts: &Parts,
    ) -> Option<(Guard<'a>, Buffer)> {
        loop {
            let is_in_flight = requests.is_in_flight();
            let failed = match requests.memory_for(parts, is_in_flight) {
                Ok(Some(buffer)) => return Some((requests, buffer)),
                Ok(None) if !self.is_ended() => {
                    requests = self.wait(requests);
                    continue;
                }
                Ok(None) => (Errno::Shutdown, "the server is shutting down".to_owned()),
                Err(text) => (Errno::NoMemory, text),
            };
            requests.get(parts.id).fail(failed.0, failed.1);
            self.submitted(requests, parts.id);
            return None;
        }
    }

    fn is_ended(&self) -> bool {
        self.shared.is_stopped.load(Ordering::Acquire)
    }

    /// Waits until something may have changed.
    fn wait<'a>(&'a self, mut requests: Guard<'a>) -> Guard<'a> {
        let was_asked = requests.is_asked_back();
        if was_asked {
            requests.memory_event();
        }
        if self.settle(&mut requests) || was_asked != requests.is_asked_back() {
            return requests;
        }
        let woken = self.changed.wait(requests);
        woken.unwrap_or_else(PoisonError::into_inner)
    }

    /// All of a request is with the pool.
    fn submitted(&self, mut requests: Guard<'_>, id: PendingId) {
        requests.get(id).complete = true;
        self.finish_if_done(&mut requests, id);
        self.settle(&mut requests);
        drop(requests);
        self.changed.notify_all();
    }

    /// Tells the disks of what is to be done, and answers what is done, until the completer will be told of
    /// the rest. Whether anything was done.
    fn settle(&self, requests: &mut Requests<Answer>) -> bool {
        let mut is_any = false;
        loop {
            requests.end_batch();
            let mut is_more = false;
            while let Some((id, number)) = requests.completed() {
                is_more = true;
                part_done(requests, id, number);
                self.finish_if_done(requests, id);
            }
            is_any |= is_more;
            if !is_more && (!requests.is_in_flight() || requests.client().arm()) {
                return is_any;
            }
        }
    }

    fn finish_if_done(&self, requests: &mut Requests<Answer>, id: PendingId) {
        if requests.is_done(id) {
            answer(requests, id);
            requests.remove(id);
            self.shared.counters.add(&mut requests.turn);
        }
    }

    /// Something is complete, or something is new about its memory.
    pub(super) fn event(&self, is_of_memory: bool) {
        let mut requests = self.lock();
        if is_of_memory {
            requests.memory_event();
        }
        self.settle(&mut requests);
        drop(requests);
        self.changed.notify_all();
    }

    /// Waits until all is answered, or it is that late.
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

    /// Whoever waits is to look whether it is at an end.
    pub(super) fn wake(&self) {
        drop(self.lock());
        self.changed.notify_all();
    }
}

/// Part `number` of a request is done.
fn part_done(requests: &mut Requests<Answer>, id: PendingId, number: usize) {
    let pending = requests.get(id);
    let is_alone = pending.complete && pending.parts.len() == 1;
    let begin = pending.parts.first().map_or(0, |part| part.offset);
    let Some(part) = pending.parts.get_mut(number) else {
        return;
    };
    let (at, size) = ((part.offset - begin) as usize, part.bytes);
    match &mut pending.answer {
        Answer::Data { gathered, .. } if !is_alone => {
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
        // Its answer is sent from there.
        Answer::Data { .. } => {}
        _ => {
            if let Some(buffer) = part.buffer.take() {
                requests.spare.keep(buffer);
            }
        }
    }
}

/// Answers a request that is done.
fn answer(requests: &mut Requests<Answer>, id: PendingId) {
    let pending = requests.get(id);
    let error = pending.error.take();
    let answer = std::mem::replace(&mut pending.answer, Answer::Given);
    let part = pending.parts.first_mut();
    let buffer = part.and_then(|part| part.buffer.take());
    let mut turn = requests.turn;
    turn.requests += 1;
    match (answer, error) {
        (answer, Some((errno, _))) => {
            turn.errors += 1;
            answer.error(errno);
        }
        (
            Answer::Data {
                reply,
                skip,
                bytes,
                gathered,
            },
            None,
        ) => {
            let range = skip..skip + bytes;
            match &buffer {
                Some(buffer) => {
                    let mut reply = Some(reply);
                    let sent = buffer.with(|data| {
                        if let Some(reply) = reply.take() {
                            reply.data(&data[range]);
                        }
                    });
                    // Taken back in the moment between disk and kernel.
                    if let Some(reply) = reply.filter(|_| sent.is_err()) {
                        turn.errors += 1;
                        reply.error(fuser::Errno::ENOMEM);
                    }
                }
                None => reply.data(&gathered[range]),
            }
            turn.read_bytes += bytes as u64;
        }
        (Answer::Written(reply, bytes), None) => {
            turn.written_bytes += u64::from(bytes);
            reply.written(bytes);
        }
        (Answer::Done(reply), None) => reply.ok(),
        (Answer::Given, None) => {}
    }
    requests.turn = turn;
    if let Some(buffer) = buffer {
        requests.spare.keep(buffer);
    }
}
