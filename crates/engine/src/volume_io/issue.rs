//! Division of a volume request into disk requests.
//!
//! A request begins ([`start`]) when no barrier of its volume precedes it ([`VolumeCore::enter`]) and the
//! requests that it has to wait for are complete. It is counted at the gate when it is submitted, so a later
//! barrier waits for it even while it waits for others. A part of a write that meets another first write of
//! its chunk, or an extent about to be switched by a move, is parked and begins later ([`retry`]).

mod track;

use std::sync::Arc;

use sched::request::{Class, Op as Direction, Order, Urgency};
use sched::units::{SECTOR_BYTES, Sector};
use smallvec::SmallVec;
use volume::chunks::ChunkSet;
use volume::extent::Extent;
use volume::map::{Source, WritePiece, WriteSpan};
use volume::{Refused, VolumeMap};

use super::after::{PREDECESSOR_FAILED, handed_over, keep_ids, must_fail};
use super::rounds;
use crate::buffer::{BufferError, Memory, Segments};
use crate::completion::{Sink, Target};
use crate::dispatcher::Io;
use crate::state::charge::Charge;
use crate::state::disk::feeder::SubmitMode;
use crate::state::op::{ActiveRequest, FailedWrite, Hold, Op, Part};
use crate::state::predecessors::ReadyRequests;
use crate::state::request::{IoFailure, VolumeOp};
use crate::state::volume::{Attempt, Parked, VolumeCore, WriteContent};

const CUT: IoFailure = IoFailure::Cancelled {
    reason: "the volume was shrunk and the range is not part of it any more",
};

/// Begins an op.
pub(crate) fn start(op: &Arc<Op>, mode: SubmitMode) {
    let mut planned = ReadyRequests::new();
    let mut parked = Vec::new();
    let (volume, flush, generation, follows) = {
        let mut state = op.state.lock();
        let active = state.active.as_mut().expect("only ops in flight start");
        let mut plan = Plan {
            op,
            active,
            planned: &mut planned,
            parked: &mut parked,
            attempt: Attempt::First,
        };
        plan.whole();
        let flush = active.kind == VolumeOp::Flush && active.failure.is_none();
        let volume = Arc::clone(&active.volume);
        active.outstanding = (planned.len() + parked.len()) as u32;
        let follows = active.predecessors.is_some();
        if let Some(predecessors) = &mut active.predecessors {
            active.outstanding += 1;
            predecessors.withhold(&mut planned);
        }
        if active.outstanding == 0 && !flush {
            op.transfers_done(&mut state);
        }
        (volume, flush, state.generation, follows)
    };
    if flush {
        rounds::join(op);
    }
    for parked in parked {
        volume.park(parked, &op.client.worker);
    }
    let mut ids: SmallVec<[_; 2]> = SmallVec::new();
    for (disk, io) in planned.drain(..) {
        ids.push(op.client.io.disks[disk].feeder.submit(io, mode));
    }
    if op.client.keeps_ids() {
        keep_ids(op, generation, &ids);
    }
    if follows {
        handed_over(op, mode);
    }
}

/// Retries the parked spans of a volume. Called by the worker.
pub(crate) fn retry(volume: &Arc<VolumeCore>) {
    for parked in volume.take_parked() {
        let op = Arc::clone(&parked.op);
        let mut planned = ReadyRequests::new();
        {
            let mut state = op.state.lock();
            let Some(active) = state.active.as_mut().filter(|active| !active.done) else {
                volume.forget_parked();
                continue;
            };
            let mut again = Vec::new();
            let mut plan = Plan {
                op: &op,
                active,
                planned: &mut planned,
                parked: &mut again,
                attempt: parked.attempt,
            };
            plan.span(parked.span, parked.content, false);
            if let Some(parked) = again.pop() {
                volume.park_again(parked);
                continue;
            }
            volume.forget_parked();
            if planned.is_empty() {
                op.unit_done(&mut state);
            } else if let Some(predecessors) = &mut active.predecessors {
                predecessors.withhold(&mut planned);
            }
        }
        for (disk, io) in planned.drain(..) {
            op.client.io.disks[disk]
                .feeder
                .submit(io, SubmitMode::NonBlocking);
        }
    }
}

/// The chunks of its extent that a failed write replaces.
pub(crate) fn replaced_by(write: &FailedWrite) -> ChunkSet {
    let mut state = write.op.state.lock();
    let active = state.active.as_mut().expect("it waits for this to end");
    span_of(active, write.extent).map_or(ChunkSet::EMPTY, |span| span.whole())
}

/// The span of a write in an extent of its volume, unless that has been cut off.
fn span_of(active: &ActiveRequest, extent: u32) -> Option<WriteSpan> {
    let map = active.volume.map();
    let mut spans = map.writes(active.offset, active.len as usize).ok()?;
    spans.find(|span| span.extent() == extent)
}

/// Makes a failed write again, after its extent has moved to another place.
pub(crate) fn rewrite(write: FailedWrite) {
    let FailedWrite {
        op, volume, extent, ..
    } = write;
    let mut planned = ReadyRequests::new();
    let mut parked = Vec::new();
    {
        let mut state = op.state.lock();
        let active = state.active.as_mut().expect("it waits for this to end");
        let span = span_of(active, extent);
        let content = match active.kind {
            VolumeOp::Write { .. } => WriteContent::Data,
            _ => WriteContent::Zeros,
        };
        let mut plan = Plan {
            op: &op,
            active,
            planned: &mut planned,
            parked: &mut parked,
            attempt: Attempt::Again,
        };
        match span {
            Some(span) => plan.span(span, content, false),
            None => plan.failed(CUT),
        }
        if planned.is_empty() && parked.is_empty() {
            op.unit_done(&mut state);
        }
    }
    for parked in parked {
        volume.park(parked, &op.client.worker);
    }
    for (disk, io) in planned.drain(..) {
        op.client.io.disks[disk]
            .feeder
            .submit(io, SubmitMode::NonBlocking);
    }
}

/// Fails a write that cannot be made elsewhere.
pub(crate) fn give_up(write: FailedWrite) {
    let mut state = write.op.state.lock();
    if let Some(active) = &mut state.active {
        active.failure.get_or_insert(write.failure);
        write.op.unit_done(&mut state);
    }
}

/// The division of an op into disk requests.
struct Plan<'a> {
    op: &'a Arc<Op>,
    active: &'a mut ActiveRequest,
    planned: &'a mut ReadyRequests,
    parked: &'a mut Vec<Parked>,
    attempt: Attempt,
}

/// A read of an extent that may be extended over a hole.
struct OpenRead {
    /// Index of the extent within the op's range.
    extent: usize,
    lane: usize,
    part: Part,
    memory: Segments,
}

impl OpenRead {
    /// Extends the read to `end`; the last sectors go to `memory`, the hole before them to the sink.
    fn extend_to(
        &mut self,
        shared: &Memory,
        end: Sector,
        memory: Segments,
    ) -> Result<(), BufferError> {
        let bytes = (end - self.part.start).bytes().0 as usize;
        let hole = bytes - self.memory.size() - memory.size();
        self.memory.push_filler(shared, hole)?;
        self.memory.append(memory)?;
        self.part.count = end - self.part.start;
        Ok(())
    }
}

impl Plan<'_> {
    /// Plans the whole op.
    fn whole(&mut self) {
        if self.active.failure.is_some() {
            return;
        }
        if must_fail(self.op, self.active.kind) {
            return self.failed(PREDECESSOR_FAILED);
        }
        let map = self.active.volume.map();
        if self.active.kind.is_change() || self.active.kind == VolumeOp::Flush {
            self.active.failure = self.active.volume.poison_failure();
            if self.active.failure.is_some() {
                return;
            }
        }
        let (offset, len) = (self.active.offset, self.active.len);
        match self.active.kind {
            VolumeOp::Flush => {}
            VolumeOp::Read => self.reads(&map, offset, len as usize),
            VolumeOp::Write { .. } => self.spans(&map, offset, len, WriteContent::Data),
            VolumeOp::WriteZeroes { no_hole: true, .. } => {
                self.spans(&map, offset, len, WriteContent::Zeros)
            }
            // Uses the current map: a discard to the end of the volume includes its last, partial chunk,
            // which contains more data if the volume has grown.
            VolumeOp::Discard => {
                let discarded = self.active.volume.with_map(|map| map.discard(offset, len));
                if discarded.is_err() {
                    self.failed(CUT);
                }
            }
            VolumeOp::WriteZeroes { no_hole: false, .. } => {
                match self.active.volume.with_map(|map| map.zero(offset, len)) {
                    Ok(left) => {
                        for range in left {
                            self.spans(
                                &map,
                                range.start,
                                range.end - range.start,
                                WriteContent::Zeros,
                            );
                        }
                    }
                    Err(_) => self.failed(CUT),
                }
            }
        }
    }

    fn failed(&mut self, failure: IoFailure) {
        self.active.failure.get_or_insert(failure);
    }

    /// A stream has one reserved request per extent of a block. So its reads extend over the holes between
    /// written parts, and the data of the holes is discarded.
    fn reads(&mut self, map: &VolumeMap, offset: u64, len: usize) {
        let Ok(pieces) = map.reads(offset, len) else {
            return self.failed(CUT);
        };
        let is_stream = matches!(self.active.charge, Charge::Stream(_));
        let extent_of = |at: u64| (at / map.geometry().extent_bytes().0) as usize;
        let extents = &map.extents()[extent_of(offset)..];
        let mut open: Option<OpenRead> = None;
        for piece in pieces {
            let Ok(piece) = piece else {
                return self.failed(CUT);
            };
            let extent = extent_of(offset + piece.buffer.start as u64) - extent_of(offset);
            let whole = piece.buffer == (0..len);
            let Some(memory) = self.memory(piece.buffer, whole) else {
                return;
            };
            let (disk, start, count, in_use) = match piece.source {
                Source::Disk {
                    disk,
                    start,
                    count,
                    in_use,
                } => (disk, start, count, in_use),
                Source::Zeros => {
                    memory.fill_zero();
                    continue;
                }
                Source::Lost => return self.failed(IoFailure::Lost),
            };
            if let Some(before) = open.as_mut().filter(|of| is_stream && of.extent == extent) {
                let shared = &self.op.client.io.memory;
                if let Err(error) = before.extend_to(shared, start + count, memory) {
                    return self.failed(memory_failure(error));
                }
                continue;
            }
            let on_disk = |of: &&Arc<Extent>| of.place().disk == disk;
            let next = OpenRead {
                extent,
                lane: extents[..extent].iter().filter(on_disk).count(),
                part: Part {
                    disk: usize::from(disk.0),
                    start,
                    count,
                    hold: Hold::Read { _in_use: in_use },
                    id: None,
                    attempt: Attempt::First,
                },
                memory,
            };
            if let Some(whole) = open.replace(next) {
                self.part(whole.part, whole.lane, Direction::Read, whole.memory);
            }
        }
        if let Some(mut last) = open {
            if is_stream && last.extent == extent_of(offset + len as u64 - 1) - extent_of(offset) {
                self.read_ahead(map, &mut last, offset + len as u64);
            }
            self.part(last.part, last.lane, Direction::Read, last.memory);
        }
    }

    fn spans(&mut self, map: &VolumeMap, offset: u64, len: u64, content: WriteContent) {
        let Ok(spans) = map.writes(offset, len as usize) else {
            return self.failed(CUT);
        };
        for span in spans {
            let whole = span.buffer == (0..len as usize);
            self.span(span, content, whole);
        }
    }

    fn span(&mut self, span: WriteSpan, content: WriteContent, whole: bool) {
        if must_fail(self.op, self.active.kind) {
            return self.failed(PREDECESSOR_FAILED);
        }
        match span.begin() {
            Ok(piece) => self.write(piece, content, whole),
            Err(Refused::Busy) => self.parked.push(Parked {
                op: Arc::clone(self.op),
                span,
                content,
                attempt: self.attempt,
            }),
            Err(Refused::Gone) => self.failed(CUT),
            Err(Refused::Lost) => {
                self.failed(IoFailure::Lost);
                // It was counted as a write for an instant, in which a move may have begun to wait for it.
                self.active.volume.write_ended(&self.op.client.worker);
            }
        }
    }

    fn write(&mut self, piece: WritePiece, content: WriteContent, whole: bool) {
        let padded = !piece.lead.is_zero() || !piece.tail.is_zero();
        let bytes = piece.count.bytes().0 as usize;
        let memory = if content == WriteContent::Zeros {
            let mut memory = Segments::empty(Direction::Write);
            match memory.push_filler(&self.op.client.io.memory, bytes) {
                Ok(()) => memory,
                Err(error) => return self.failed(memory_failure(error)),
            }
        } else {
            let Some(data) = self.memory(piece.buffer.clone(), whole) else {
                return;
            };
            if padded {
                match self.padded(data, &piece) {
                    Ok(memory) => memory,
                    Err(error) => return self.failed(memory_failure(error)),
                }
            } else {
                data
            }
        };
        let part = Part {
            disk: usize::from(piece.disk.0),
            start: piece.start,
            count: piece.count,
            hold: Hold::Write(piece.in_use),
            id: None,
            attempt: self.attempt,
        };
        let on_disk =
            |earlier: &&Part| earlier.disk == part.disk && earlier.attempt == Attempt::First;
        let lane = self.active.parts.iter().filter(on_disk).count();
        self.part(part, lane, Direction::Write, memory);
    }

    /// `data` surrounded by the zeros that fill up its chunks on their first write.
    fn padded(&self, data: Segments, piece: &WritePiece) -> Result<Segments, BufferError> {
        let shared = &self.op.client.io.memory;
        let mut memory = Segments::empty(Direction::Write);
        memory.push_filler(shared, (piece.lead.0 * SECTOR_BYTES) as usize)?;
        memory.append(data)?;
        memory.push_filler(shared, (piece.tail.0 * SECTOR_BYTES) as usize)?;
        Ok(memory)
    }

    /// The memory of a part of the op. The whole memory of a read is passed on without slicing; that of a write is kept,
    /// because the write may have to be made again.
    fn memory(&mut self, range: std::ops::Range<usize>, whole: bool) -> Option<Segments> {
        if whole
            && self.active.kind == VolumeOp::Read
            && let Some(data) = self.active.data.take()
        {
            return Some(data);
        }
        let sliced = match &self.active.data {
            Some(data) => data.slice(range),
            None => Err(BufferError::Range),
        };
        match sliced {
            Ok(memory) => Some(memory),
            Err(error) => {
                self.failed(memory_failure(error));
                None
            }
        }
    }

    /// Adds a request to a disk, in this lane of a stream ([`crate::stream::needs`]).
    fn part(&mut self, part: Part, lane: usize, direction: Direction, memory: Segments) {
        let disks = &self.op.client.io.disks;
        let active = &mut *self.active;
        let class = match self.attempt {
            Attempt::First => active.charge.class(part.disk, lane, active.urgency),
            Attempt::Again => Some(Class::BestEffort(Urgency::Sync)),
        };
        let Some(class) = class else {
            return self.failed(IoFailure::Cancelled {
                reason: "the stream has not reserved that part of the volume",
            });
        };
        let sink: Arc<dyn Sink> = Arc::<Op>::clone(self.op);
        // The account was checked when the request was submitted.
        let account = memory.account();
        let account = account.unwrap_or(self.op.client.account.id());
        let io = Io {
            account,
            op: direction,
            start: part.start,
            count: part.count,
            class,
            order: active
                .predecessors
                .as_ref()
                .map_or_else(Order::default, |found| found.order(part.disk)),
            durable: disks[part.disk].issues_durable(direction),
            segments: memory,
            target: Target::new(sink, active.parts.len() as u64),
        };
        self.planned.push((part.disk, io));
        active.parts.push(part);
    }
}

fn memory_failure(error: BufferError) -> IoFailure {
    match error {
        BufferError::Revoked => IoFailure::Cancelled {
            reason: "the buffer was taken back",
        },
        _ => IoFailure::Cancelled {
            reason: "the buffer is in use in a way that excludes this request",
        },
    }
}
