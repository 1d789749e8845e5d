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
//! A long request is done in parts of at most [`PART_BYTES`], and of [`FIXED_BYTES`], which are the
//! connection's own, when memory is so short that nothing else of it is under way.
//!
//! # Durability
//! A forced write is one durable write, or, in several parts, writes with a flush after them. A
//! flush covers every write that the pool has completed before it, whichever connection it came by.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use engine::buffer::{Buffer, MemoryError, SendQueue};
use engine::front::{Client, IoFailure, SubmitError, VolumeCompletion, VolumeOp, VolumeRequest};
use engine::pool::Volume;
use sched::request::Op;
use sched::units::{Bytes, Time};

use super::ahead::{self, AHEAD_BYTES_MAX, AHEAD_MAX, Ahead, STREAK_MIN};
use super::input::{Input, Received};
use super::pending::{Answer, Part, PendingId, PendingTable};
use super::proto::reply::{self, StatusExtent};
use super::proto::request::{self, Agreed, Command, RequestHeader};
use super::proto::{Errno, Fatal, PAYLOAD_SKIP_BYTES_MAX, Refusal, STATUS_EXTENTS_MAX};
use super::spare::Spare;
use super::stats::Turn;

/// The largest transfer that is handed to the pool: large enough to be nearly all transfer on a
/// rotating disk, small enough that its memory is soon free again.
pub(super) const PART_BYTES: usize = 1 << 20;

/// The memory of a connection that nobody can take away: progress, however short memory is.
pub(super) const FIXED_BYTES: usize = 64 << 10;

/// The most pool requests in flight for one connection.
pub(super) const PARTS_MAX: usize = 512;

/// Bytes of replies that the client has not taken, from which on no new request is taken up.
const BACKLOG_BYTES_MAX: usize = 8 << 20;

/// How many receives one turn may have before other connections have theirs.
const RECEIVES_PER_TURN: usize = 64;

/// The longest header that a send queue takes at once.
const SEND_HEADER_BYTES: usize = 64;

const _: () = assert!(FIXED_BYTES.is_multiple_of(4096) && PART_BYTES.is_multiple_of(FIXED_BYTES));

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
    /// The payload of a refused write, thrown away.
    Skip(u32),
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
    agreed: Agreed,
    input: Input,
    next: Next,
    pending: PendingTable,
    parts_in_flight: usize,
    /// Requests have been submitted of which the disks have not been told.
    submitted: bool,
    replies: SendQueue,
    spare: Spare,
    /// Memory has been asked back and not yet given.
    asked_back: bool,
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
            client,
            volume,
            agreed,
            input: Input::new(received),
            next: Next::Header,
            pending: PendingTable::default(),
            parts_in_flight: 0,
            submitted: false,
            replies: SendQueue::default(),
            spare: Spare::default(),
            asked_back: false,
            scratch: Vec::new(),
            ahead: Ahead::new(),
            foresight: 1,
            streak: (0, 0),
            readable: true,
            hung_up: false,
            writable: true,
            turn: Turn::default(),
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Until when memory has to be given back, if it is asked for.
    pub(super) fn give_back_until(&self) -> Option<Time> {
        self.client.account().asked_back().map(|(_, until)| until)
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
        if let Next::Parts(parts) = std::mem::replace(&mut self.next, Next::Nothing) {
            let pending = self.pending.get(parts.id);
            pending.fail(Errno::Shutdown, "the server is shutting down".to_owned());
            pending.complete = true;
            self.finish_if_done(parts.id);
        }
    }

    /// Does what can be done without waiting.
    pub(super) fn turn(&mut self, socket: BorrowedFd<'_>) -> Result<Outcome, Broken> {
        let result = self.steps(socket);
        // However it ended: what has been submitted holds the volume until it is done.
        self.end_batch();
        result
    }

    fn steps(&mut self, socket: BorrowedFd<'_>) -> Result<Outcome, Broken> {
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
        if again || (self.parts_in_flight > 0 && !self.client.arm()) {
            return Ok(Outcome::Again);
        }
        Ok(Outcome::Sleep)
    }

    /// Tells the disks of what has been submitted.
    fn end_batch(&mut self) {
        if std::mem::take(&mut self.submitted) {
            self.client.submit_end();
        }
    }

    fn send(&mut self, socket: BorrowedFd<'_>) -> Result<(), Broken> {
        if self.writable && self.replies.pending() > 0 {
            self.writable = self.replies.send(socket)?;
            if self.writable {
                self.spare.sent();
            }
        }
        Ok(())
    }

    /// Receives and starts requests. Whether there is more to be had at once.
    fn receive(&mut self, socket: BorrowedFd<'_>) -> Result<bool, Broken> {
        for _ in 0..RECEIVES_PER_TURN {
            match std::mem::replace(&mut self.next, Next::Nothing) {
                Next::Nothing => return Ok(false),
                Next::Header => {
                    self.next = Next::Header;
                    if self.is_congested() {
                        return Ok(false);
                    }
                    if self.input.filled().is_empty() && self.begin_ahead()? {
                        continue;
                    }
                    if let Some(bytes) = self.input.header() {
                        self.begin(RequestHeader::decode(&bytes)?)?;
                        continue;
                    }
                    if !self.readable {
                        return Ok(false);
                    }
                    self.receive_headers(socket)?;
                }
                Next::Skip(left) => {
                    self.next = Next::Skip(left);
                    if !self.skip(socket, left)? {
                        return Ok(false);
                    }
                }
                Next::Parts(parts) => {
                    if !self.advance(socket, parts)? {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    fn is_congested(&self) -> bool {
        self.pending.is_full() || self.replies.pending() > BACKLOG_BYTES_MAX || self.asked_back
    }

    fn receive_headers(&mut self, socket: BorrowedFd<'_>) -> Result<(), Broken> {
        let (received, short) = self.input.receive(socket, self.streak.0 == 0)?;
        match received {
            Received::Bytes(_) => self.readable = !short || self.hung_up,
            Received::Nothing => self.readable = false,
            Received::End if self.input.filled().is_empty() => self.next = Next::Nothing,
            Received::End => return Err(Broken::Gone),
        }
        Ok(())
    }

    /// Begins the next of the requests that came ahead. False if there is none, or what came is
    /// not what was foreseen and has become input.
    fn begin_ahead(&mut self) -> Result<bool, Broken> {
        let Some(message) = self.ahead.pop_front() else {
            return Ok(false);
        };
        let size = message.buffer.as_ref().map_or(0, Buffer::size);
        if message.header_bytes < message.header.len() {
            // The last that came; the buffers behind it are empty.
            self.input.append(&message.header[..message.header_bytes]);
            let buffers = self.ahead.drain(..).filter_map(|message| message.buffer);
            buffers
                .chain(message.buffer)
                .for_each(|buffer| self.spare.keep(buffer));
            return Ok(false);
        }
        let header = RequestHeader::decode(&message.header)?;
        self.begin(header)?;
        match &mut self.next {
            Next::Parts(parts) if parts.op != VolumeOp::Read && header.length as usize == size => {
                parts.filling = message.buffer.map(|buffer| (buffer, message.payload_bytes));
            }
            _ => {
                ahead::spill_payload(
                    message.buffer.as_ref(),
                    message.payload_bytes,
                    &mut self.input,
                )?;
                ahead::spill(&mut self.ahead, &mut self.input)?;
            }
        }
        Ok(true)
    }

    /// Acts on a request's header.
    fn begin(&mut self, header: RequestHeader) -> Result<(), Broken> {
        let payload = header.payload_bytes();
        self.streak = match self.streak {
            (size, count) if size == payload => (size, count.saturating_add(1)),
            _ => (payload, 1),
        };
        match request::check(&header, &self.agreed) {
            Ok(command) => self.start(&header, command),
            Err(refusal) => {
                self.refuse(header.cookie, refusal);
                if payload > PAYLOAD_SKIP_BYTES_MAX {
                    return Err(Fatal::PayloadLength(payload).into());
                }
                if payload > 0 {
                    self.next = Next::Skip(payload);
                }
            }
        }
        Ok(())
    }

    fn start(&mut self, header: &RequestHeader, command: Command) {
        let cookie = header.cookie;
        let one_part = header.length as usize <= PART_BYTES;
        match command {
            Command::Disconnect => self.next = Next::Nothing,
            Command::Nothing | Command::Cache => {
                let id = self.pending.insert(cookie, Answer::Done);
                self.pending.get(id).complete = true;
                self.finish(id);
            }
            Command::Read { unfragmented } => {
                let chunks = self.agreed.structured && !unfragmented;
                let answer = if chunks {
                    Answer::Chunks
                } else {
                    Answer::Whole
                };
                self.begin_parts(header, VolumeOp::Read, answer);
            }
            Command::Write { forced } => {
                let op = VolumeOp::Write {
                    durable: forced && one_part,
                };
                let id = self.begin_parts(header, op, Answer::Done);
                self.pending.get(id).flush = forced && !one_part;
            }
            Command::Flush => self.command(header, VolumeOp::Flush),
            Command::Trim { forced } => {
                let id = self.command_then(header, VolumeOp::Discard);
                self.pending.get(id).flush = forced;
                self.finish_if_done(id);
            }
            Command::WriteZeroes {
                no_hole: true,
                fast: true,
                ..
            } => self.refuse(
                cookie,
                Refusal {
                    errno: Errno::NotSupported,
                    text: "zeros without a hole are written",
                },
            ),
            Command::WriteZeroes {
                forced, no_hole, ..
            } => {
                self.command(
                    header,
                    VolumeOp::WriteZeroes {
                        no_hole,
                        durable: forced,
                    },
                );
            }
            Command::BlockStatus { one } => self.block_status(header, one),
        }
    }

    fn begin_parts(&mut self, header: &RequestHeader, op: VolumeOp, answer: Answer) -> PendingId {
        let id = self.pending.insert(header.cookie, answer);
        self.next = Next::Parts(Parts {
            id,
            op,
            offset: header.offset,
            left: header.length as usize,
            filling: None,
        });
        id
    }

    /// A request without data.
    fn command(&mut self, header: &RequestHeader, op: VolumeOp) {
        let id = self.command_then(header, op);
        self.finish_if_done(id);
    }

    fn command_then(&mut self, header: &RequestHeader, op: VolumeOp) -> PendingId {
        let id = self.pending.insert(header.cookie, Answer::Done);
        let (offset, length) = match op {
            VolumeOp::Flush => (0, 0),
            _ => (header.offset, u64::from(header.length)),
        };
        let request = VolumeRequest::command(&self.volume, op, Bytes(offset), Bytes(length));
        let result = self
            .client
            .submit_batched(request.user_data(id.user_data(0)));
        self.note_submitted(id, result.map(|_| ()));
        self.pending.get(id).complete = true;
        id
    }

    fn note_submitted(&mut self, id: PendingId, result: Result<(), SubmitError>) {
        let pending = self.pending.get(id);
        match result {
            Ok(()) => {
                pending.in_flight += 1;
                self.parts_in_flight += 1;
                self.submitted = true;
            }
            Err(error) => pending.fail(errno_of_submit(&error), error.to_string()),
        }
    }

    /// Gets a request on its way as far as possible. False if it has to wait.
    fn advance(&mut self, socket: BorrowedFd<'_>, mut parts: Parts) -> Result<bool, Broken> {
        while parts.left > 0 {
            if parts.filling.is_none() {
                match self.memory_for(&parts) {
                    Ok(Some(buffer)) => parts.filling = Some((buffer, 0)),
                    Ok(None) => {
                        self.next = Next::Parts(parts);
                        return Ok(false);
                    }
                    Err(text) => {
                        self.abandon(&parts, text);
                        return Ok(true);
                    }
                }
            }
            if parts.op != VolumeOp::Read && !self.fill(socket, &mut parts)? {
                let again = self.readable;
                self.next = Next::Parts(parts);
                return Ok(again);
            }
            self.submit_part(&mut parts);
        }
        let id = parts.id;
        self.pending.get(id).complete = true;
        self.next = Next::Header;
        self.finish_if_done(id);
        Ok(true)
    }

    /// Gives up a request for which there will never be memory.
    fn abandon(&mut self, parts: &Parts, text: String) {
        let pending = self.pending.get(parts.id);
        pending.fail(Errno::NoMemory, text);
        pending.complete = true;
        self.next = match parts.op {
            VolumeOp::Read => Next::Header,
            _ => Next::Skip(parts.left as u32),
        };
        self.finish_if_done(parts.id);
    }

    /// Memory for the next part; `None` if there is none now, an explanation if there never will be.
    fn memory_for(&mut self, parts: &Parts) -> Result<Option<Buffer>, String> {
        if self.parts_in_flight >= PARTS_MAX {
            return Ok(None);
        }
        let size = parts.left.min(PART_BYTES);
        if let Some(buffer) = self.spare.take(size) {
            return Ok(Some(buffer));
        }
        let account = self.client.account();
        match account.allocate(size) {
            Ok(buffer) => Ok(Some(buffer)),
            // With nothing under way, nothing will come back either: go on with what is our own.
            Err(MemoryError::NotNow | MemoryError::TooMuch { .. })
                if self.parts_in_flight == 0 && self.replies.pending() == 0 =>
            {
                match account.allocate(size.min(FIXED_BYTES)) {
                    Ok(buffer) => Ok(Some(buffer)),
                    // Its earlier parts hold what there was, and can only be sent all together.
                    Err(error) if !self.pending.get(parts.id).parts.is_empty() => {
                        Err(error.to_string())
                    }
                    Err(MemoryError::NotNow) => Ok(None),
                    Err(error) => Err(error.to_string()),
                }
            }
            Err(MemoryError::NotNow | MemoryError::TooMuch { .. }) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Receives payload into the part at hand. False if it is not there whole yet.
    fn fill(&mut self, socket: BorrowedFd<'_>, parts: &mut Parts) -> Result<bool, Broken> {
        let Some((buffer, filled)) = &mut parts.filling else {
            return Ok(false);
        };
        let size = buffer.size().min(parts.left);
        let there = self.input.filled();
        let count = there.len().min(size - *filled);
        if count > 0 {
            let range = *filled..*filled + count;
            let copied = buffer.with_mut(|bytes| bytes[range].copy_from_slice(&there[..count]));
            copied.map_err(io::Error::other)?;
            self.input.consume(count);
            *filled += count;
        }
        if *filled < size {
            // Nothing can have come behind what is not there itself.
            self.give_back_ahead();
        }
        let likely = self.streak.1 >= STREAK_MIN && size <= AHEAD_BYTES_MAX;
        if *filled < size && self.readable && likely && size == parts.left {
            let memory = buffer
                .segments(Op::Read, 0..size)
                .map_err(io::Error::other)?;
            let spares = spare_buffers(&mut self.spare, &self.client, size, self.foresight);
            let brought = ahead::receive(socket, &memory, *filled, spares, &mut self.ahead)?;
            *filled += brought.payload_bytes;
            match brought.received {
                Received::Bytes(_) => self.readable = brought.full || self.hung_up,
                Received::Nothing => self.readable = false,
                Received::End => return Err(Broken::Gone),
            }
            let came = self
                .ahead
                .iter()
                .filter(|message| message.header_bytes > 0)
                .count();
            self.foresight = (came + 1).min(AHEAD_MAX);
        }
        if *filled < size {
            let memory = buffer
                .segments(Op::Read, 0..size)
                .map_err(io::Error::other)?;
            while *filled < size && self.readable {
                let tail: &mut [u8] = if size == parts.left {
                    self.input.header_space()
                } else {
                    &mut []
                };
                let missing = size - *filled;
                let asked = missing + tail.len();
                match Received::from_result(memory.receive(socket, *filled, tail))? {
                    Received::Bytes(count) => {
                        *filled += count.min(missing);
                        self.input.came(count.saturating_sub(missing));
                        self.readable = count == asked || self.hung_up;
                    }
                    Received::Nothing => self.readable = false,
                    Received::End => return Err(Broken::Gone),
                }
            }
        }
        Ok(*filled == size)
    }

    /// Keeps the buffers for what was to come ahead and did not.
    fn give_back_ahead(&mut self) {
        let buffers = self.ahead.drain(..).filter_map(|message| message.buffer);
        buffers.for_each(|buffer| self.spare.keep(buffer));
    }

    /// Hands the part at hand to the pool.
    fn submit_part(&mut self, parts: &mut Parts) {
        let Some((buffer, _)) = parts.filling.take() else {
            return;
        };
        let size = buffer.size().min(parts.left);
        let pending = self.pending.get(parts.id);
        let number = pending.parts.len();
        let direction = if parts.op == VolumeOp::Read {
            Op::Read
        } else {
            Op::Write
        };
        let submitted = match buffer.segments(direction, 0..size) {
            Err(error) => {
                pending.fail(Errno::NoMemory, error.to_string());
                None
            }
            Ok(data) => {
                let request =
                    VolumeRequest::transfer(&self.volume, parts.op, Bytes(parts.offset), data)
                        .user_data(parts.id.user_data(number));
                let waits = parts.op != VolumeOp::Write { durable: false } || pending.flush;
                let request = if waits {
                    request
                } else {
                    request.asynchronous()
                };
                Some(self.client.submit_batched(request))
            }
        };
        pending.parts.push(Part {
            offset: parts.offset,
            bytes: size,
            buffer: Some(buffer),
        });
        if let Some(result) = submitted {
            self.note_submitted(parts.id, result.map(|_| ()));
        }
        parts.offset += size as u64;
        parts.left -= size;
    }

    /// Throws away payload. False if there is none to throw away now.
    fn skip(&mut self, socket: BorrowedFd<'_>, left: u32) -> Result<bool, Broken> {
        let mut left = left as usize;
        let there = self.input.filled().len().min(left);
        self.input.consume(there);
        left -= there;
        if left > 0 && self.readable {
            self.scratch.resize(left.min(PART_BYTES / 16), 0);
            let result = rustix::io::read(socket, &mut self.scratch[..]);
            match Received::from_result(result.map_err(io::Error::from))? {
                Received::Bytes(count) => left -= count,
                Received::Nothing => self.readable = false,
                Received::End => return Err(Broken::Gone),
            }
        }
        self.next = if left > 0 {
            Next::Skip(left as u32)
        } else {
            Next::Header
        };
        Ok(left == 0 || self.readable)
    }

    fn take_completions(&mut self) {
        while let Some(completion) = self.client.poll() {
            self.completed(&completion);
        }
    }

    fn completed(&mut self, completion: &VolumeCompletion) {
        let (id, number) = PendingId::from_user_data(completion.user_data);
        self.parts_in_flight -= 1;
        let pending = self.pending.get(id);
        pending.in_flight -= 1;
        if let Err(failure) = &completion.result {
            pending.fail(errno_of(failure), failure.to_string());
        }
        match pending.answer {
            Answer::Chunks if pending.error.is_none() => {
                let last = pending.is_finished();
                self.send_chunk(id, number, last);
                if last {
                    self.pending.remove(id);
                }
                return;
            }
            Answer::Whole => {}
            Answer::Chunks | Answer::Done => {
                let part = pending.parts.get_mut(number);
                if let Some(buffer) = part.and_then(|part| part.buffer.take()) {
                    self.spare.keep(buffer);
                }
            }
        }
        self.finish_if_done(id);
    }

    /// Sends one part of a read that is answered in chunks.
    fn send_chunk(&mut self, id: PendingId, number: usize, last: bool) {
        let pending = self.pending.get(id);
        let part = &mut pending.parts[number];
        let Some(buffer) = part.buffer.take() else {
            return;
        };
        match buffer.segments(Op::Write, 0..part.bytes) {
            Ok(data) => {
                let head = reply::offset_data(pending.cookie, part.offset, part.bytes as u32, last);
                self.turn.read_bytes += part.bytes as u64;
                self.turn.requests += u64::from(last);
                self.replies.push(head.as_bytes(), Some(data));
                self.spare.keep_when_sent(buffer);
            }
            Err(error) => {
                // Taken back in the moment between disk and socket.
                let cookie = pending.cookie;
                pending.fail(Errno::NoMemory, error.to_string());
                if last {
                    self.send_error(cookie, Errno::NoMemory, &error.to_string());
                }
            }
        }
    }

    fn finish_if_done(&mut self, id: PendingId) {
        if self.pending.get(id).is_finished() {
            self.finish(id);
        }
    }

    /// All parts of a request are done: flush if it has to be, then answer.
    fn finish(&mut self, id: PendingId) {
        let pending = self.pending.get(id);
        if std::mem::take(&mut pending.flush) && pending.error.is_none() {
            let request =
                VolumeRequest::command(&self.volume, VolumeOp::Flush, Bytes::ZERO, Bytes::ZERO);
            let number = pending.parts.len();
            let result = self
                .client
                .submit_batched(request.user_data(id.user_data(number)));
            self.note_submitted(id, result.map(|_| ()));
            if self.pending.get(id).in_flight > 0 {
                return;
            }
        }
        self.answer(id);
        self.pending.remove(id);
    }

    fn answer(&mut self, id: PendingId) {
        let pending = self.pending.get(id);
        let cookie = pending.cookie;
        if let Some((errno, text)) = pending.error.take() {
            self.send_error(cookie, errno, &text);
            return;
        }
        let whole = pending.answer == Answer::Whole;
        let mut data = None;
        if whole {
            match gather(&pending.parts) {
                Ok(gathered) => data = Some(gathered),
                Err(text) => {
                    self.send_error(cookie, Errno::NoMemory, &text);
                    return;
                }
            }
        }
        self.turn.requests += 1;
        let bytes = pending
            .parts
            .iter()
            .map(|part| part.bytes as u64)
            .sum::<u64>();
        match pending.answer {
            Answer::Whole => self.turn.read_bytes += bytes,
            Answer::Done => self.turn.written_bytes += bytes,
            // Counted as they were sent; what is sent here is only that there are no more.
            Answer::Chunks => {}
        }
        let head = match (self.agreed.structured, whole) {
            (true, true) => reply::offset_data(cookie, pending.parts[0].offset, bytes as u32, true),
            (true, false) => reply::done(cookie),
            (false, _) => reply::simple(cookie, None),
        };
        self.replies.push(head.as_bytes(), data);
    }

    fn refuse(&mut self, cookie: u64, refusal: Refusal) {
        self.send_error(cookie, refusal.errno, refusal.text);
    }

    fn send_error(&mut self, cookie: u64, errno: Errno, text: &str) {
        self.turn.requests += 1;
        self.turn.errors += 1;
        if self.agreed.structured {
            let mut bytes = std::mem::take(&mut self.scratch);
            bytes.clear();
            reply::error(&mut bytes, cookie, errno, text);
            self.send_bytes(&bytes);
            self.scratch = bytes;
        } else {
            self.replies
                .push(reply::simple(cookie, Some(errno)).as_bytes(), None);
        }
    }

    fn send_bytes(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(SEND_HEADER_BYTES) {
            self.replies.push(piece, None);
        }
    }

    fn block_status(&mut self, header: &RequestHeader, one: bool) {
        let range = header.offset..header.offset + u64::from(header.length);
        let limit = if one { 1 } else { STATUS_EXTENTS_MAX };
        let runs: Vec<StatusExtent> = self
            .volume
            .block_status(range, limit)
            .into_iter()
            .map(|run| StatusExtent {
                length: (run.bytes.end - run.bytes.start) as u32,
                state: if run.hole {
                    reply::STATE_HOLE | reply::STATE_ZERO
                } else {
                    0
                },
            })
            .collect();
        if runs.is_empty() {
            let text = "the volume has become shorter";
            self.send_error(header.cookie, Errno::Invalid, text);
            return;
        }
        self.turn.requests += 1;
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.clear();
        reply::block_status(&mut bytes, header.cookie, &runs);
        self.send_bytes(&bytes);
        self.scratch = bytes;
    }
}

/// Buffers for up to `count` writes of `size` bytes.
fn spare_buffers(spare: &mut Spare, client: &Client, size: usize, count: usize) -> Vec<Buffer> {
    let one = || {
        spare
            .take(size)
            .or_else(|| client.account().allocate(size).ok())
    };
    std::iter::from_fn(one).take(count).collect()
}

/// All parts in order as one piece of data to send.
fn gather(parts: &[Part]) -> Result<engine::buffer::Segments, String> {
    let mut data = engine::buffer::Segments::empty(Op::Write);
    for part in parts {
        let Some(buffer) = &part.buffer else { continue };
        data.push(buffer, 0..part.bytes)
            .map_err(|error| error.to_string())?;
    }
    Ok(data)
}

fn errno_of(failure: &IoFailure) -> Errno {
    match failure {
        IoFailure::Disk { .. } | IoFailure::Poisoned { .. } => Errno::Io,
        IoFailure::Cancelled { .. } => Errno::Shutdown,
    }
}

fn errno_of_submit(error: &SubmitError) -> Errno {
    match error {
        SubmitError::Poisoned { .. } => Errno::Io,
        SubmitError::Closed => Errno::Shutdown,
        SubmitError::PastEnd { .. } => Errno::NoSpace,
        SubmitError::Busy { .. } => Errno::NoMemory,
        _ => Errno::Invalid,
    }
}
