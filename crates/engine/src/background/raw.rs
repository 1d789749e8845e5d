//! The engine's own transfers: metadata, and the copies of moves. They are best effort, with buffers of their
//! own, and block the calling thread.

mod steps;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use sched::request::{Class, Op as Direction, Order, Urgency};
use sched::units::{SECTOR_BYTES, Sector, SectorCount};

pub(crate) use steps::{FailedStep, StepError, sync_all};

use crate::buffer::{Buffer, BufferError, Memory, MemoryError};
use crate::completion::{CompletionQueue, IoError};
use crate::dispatcher::Io;
use crate::state::disk::core::DiskCore;
use crate::state::error::{PoolError, host};
use crate::state::raw::RawIo;
use crate::state::request::IoFailure;

/// The most bytes of a request. Longer transfers are divided, to limit memory.
const PIECE_BYTES: usize = 256 << 10;

/// Requests in flight at a time.
const WINDOW: usize = 4;

/// Bytes of a request of a copy, in order of preference as memory permits: a drive with platters seeks twice for
/// each request. Like any best effort it is served in pieces, so it does not delay others for longer.
const COPY_BYTES: [usize; 2] = [4 << 20, 2 << 20];

/// Bytes of a request of a copy if memory is short: no more than other transfers use.
const COPY_BYTES_LEAST: usize = PIECE_BYTES * WINDOW;

/// The reason why resources for own transfers are not available.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RawError {
    #[error("memory for the pool's own transfers: {0}")]
    Memory(#[from] MemoryError),
    #[error("the pool's own completion queue: {0}")]
    Queue(#[from] std::io::Error),
}

/// Translates the failure to set up own transfers.
pub(crate) fn raw_failure(error: RawError) -> PoolError {
    match error {
        RawError::Memory(error) => PoolError::Host {
            what: "memory for the pool's own transfers",
            error: std::io::Error::other(error.to_string()),
        },
        RawError::Queue(error) => host("the pool's own completion queue", error),
    }
}

/// Data for a range of a disk.
pub(crate) struct RawWrite<'a> {
    pub(crate) disk: usize,
    pub(crate) start: Sector,
    pub(crate) data: &'a [u8],
}

/// A request in flight.
struct RequestInFlight {
    disk: usize,
    start: Sector,
    count: SectorCount,
    direction: Direction,
    buffer: Buffer,
}

impl RawIo {
    pub(crate) fn new(memory: &Memory, name: &str, urgency: Urgency) -> Result<Self, RawError> {
        Ok(Self {
            account: memory.open_account_for(name, PIECE_BYTES, WINDOW as u64)?,
            queue: CompletionQueue::new(WINDOW)?,
            urgency,
            piece_bytes: PIECE_BYTES,
            failed_medium: AtomicBool::new(false),
        })
    }

    /// Resources for copies: one request at a time, as large as memory permits.
    pub(crate) fn for_copies(
        memory: &Memory,
        name: &str,
        urgency: Urgency,
    ) -> Result<Self, RawError> {
        let mut sizes = COPY_BYTES.into_iter();
        let (account, piece_bytes) = loop {
            let bytes = sizes.next().unwrap_or(COPY_BYTES_LEAST);
            match memory.open_account_for(name, bytes, 1) {
                Ok(account) => break (account, bytes),
                Err(MemoryError::TooMuch { .. } | MemoryError::NotNow)
                    if bytes > COPY_BYTES_LEAST => {}
                Err(error) => return Err(error.into()),
            }
        };
        Ok(Self {
            account,
            queue: CompletionQueue::new(WINDOW)?,
            urgency,
            piece_bytes,
            failed_medium: AtomicBool::new(false),
        })
    }

    /// Writes everything, in any order, and waits.
    pub(crate) fn write(
        &self,
        disks: &[DiskCore],
        writes: &[RawWrite<'_>],
    ) -> Result<(), IoFailure> {
        let mut window = RequestWindow::new(self, disks);
        for write in writes {
            let mut at = write.start;
            for piece in write.data.chunks(self.piece_bytes) {
                // Before allocating: the only free buffer may be that of a request in flight.
                window.make_room();
                let mut buffer = self.buffer()?;
                buffer
                    .with_mut(|bytes| bytes[..piece.len()].copy_from_slice(piece))
                    .map_err(memory_failure)?;
                let flight = RequestInFlight {
                    disk: write.disk,
                    start: at,
                    count: SectorCount(piece.len() as u64 / SECTOR_BYTES),
                    direction: Direction::Write,
                    buffer,
                };
                at += flight.count;
                window.issue(flight)?;
            }
        }
        window.finish()
    }

    /// Fills `out` from a disk and waits.
    pub(crate) fn read(
        &self,
        disks: &[DiskCore],
        disk: usize,
        start: Sector,
        out: &mut [u8],
    ) -> Result<(), IoFailure> {
        let mut at = start;
        for piece in out.chunks_mut(self.piece_bytes) {
            let count = SectorCount(piece.len() as u64 / SECTOR_BYTES);
            let buffer = self.buffer()?;
            let buffer = self.one(disks, disk, at, count, Direction::Read, buffer)?;
            buffer
                .with(|bytes| piece.copy_from_slice(&bytes[..piece.len()]))
                .map_err(memory_failure)?;
            at += count;
        }
        Ok(())
    }

    /// Copies a range of sectors, piece by piece, and waits. Calls `go_on` before each piece; returns `Ok(false)` if
    /// that returned false.
    pub(crate) fn copy(
        &self,
        disks: &[DiskCore],
        from: (usize, Sector),
        to: (usize, Sector),
        count: SectorCount,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<bool, IoFailure> {
        let step = SectorCount(self.piece_bytes as u64 / SECTOR_BYTES);
        let mut done = SectorCount::ZERO;
        while done < count {
            if !go_on() {
                return Ok(false);
            }
            let piece = step.min(count - done);
            let buffer = self.buffer()?;
            let (source, target) = (from.1 + done, to.1 + done);
            let buffer = self.one(disks, from.0, source, piece, Direction::Read, buffer)?;
            self.one(disks, to.0, target, piece, Direction::Write, buffer)?;
            done += piece;
        }
        Ok(true)
    }

    /// A buffer for one request. The account has a fixed part for as many as may be in flight, so this waits only for
    /// requests of this caller.
    fn buffer(&self) -> Result<Buffer, IoFailure> {
        self.account
            .allocate_wait(self.piece_bytes, None)
            .map_err(|_| NO_MEMORY)
    }

    fn one(
        &self,
        disks: &[DiskCore],
        disk: usize,
        start: Sector,
        count: SectorCount,
        direction: Direction,
        buffer: Buffer,
    ) -> Result<Buffer, IoFailure> {
        let flight = RequestInFlight {
            disk,
            start,
            count,
            direction,
            buffer,
        };
        let mut window = RequestWindow::new(self, disks);
        window.issue(flight)?;
        window.last()
    }
}

/// Requests of one caller in flight, at most [`WINDOW`].
struct RequestWindow<'a> {
    raw: &'a RawIo,
    disks: &'a [DiskCore],
    flights: [Option<RequestInFlight>; WINDOW],
    failure: Option<IoFailure>,
}

impl<'a> RequestWindow<'a> {
    fn new(raw: &'a RawIo, disks: &'a [DiskCore]) -> Self {
        Self {
            raw,
            disks,
            flights: [const { None }; WINDOW],
            failure: None,
        }
    }

    /// Waits until there is a free entry; returns its index.
    fn make_room(&mut self) -> usize {
        loop {
            if let Some(free) = self.flights.iter().position(Option::is_none) {
                return free;
            }
            self.reap();
        }
    }

    fn issue(&mut self, flight: RequestInFlight) -> Result<(), IoFailure> {
        let free = self.make_room();
        if let Some(failure) = self.failure.take() {
            self.drain();
            return Err(failure);
        }
        let bytes = flight.count.bytes().0 as usize;
        let segments = match flight.buffer.segments(flight.direction, 0..bytes) {
            Ok(segments) => segments,
            Err(error) => {
                self.drain();
                return Err(memory_failure(error));
            }
        };
        let disk = &self.disks[flight.disk];
        let target = self
            .raw
            .queue
            .target(free as u64)
            .expect("the queue has a place for each of the window");
        let io = Io {
            account: self.raw.account.id(),
            op: flight.direction,
            start: flight.start,
            count: flight.count,
            class: Class::BestEffort(self.raw.urgency),
            order: Order::default(),
            durable: disk.issues_durable(flight.direction),
            segments,
            target,
        };
        self.flights[free] = Some(flight);
        // A refused request is dropped, which answers its target.
        drop(disk.handle.submit(io));
        Ok(())
    }

    /// Waits for one answer; returns its buffer if it succeeded.
    fn reap(&mut self) -> Option<Buffer> {
        let completion = self
            .raw
            .queue
            .wait(None)
            .expect("waiting without a limit ends with an answer");
        let flight = self.flights[completion.token as usize]
            .take()
            .expect("an answer is to a request in flight");
        let disk = &self.disks[flight.disk];
        match completion.result {
            Ok(()) => {
                disk.transferred(flight.direction, flight.count);
                Some(flight.buffer)
            }
            Err(error) => {
                let is_of_medium = matches!(error, IoError::Disk(error) if error.is_of_medium());
                self.raw.failed_medium.store(is_of_medium, Relaxed);
                let (direction, start, count) = (flight.direction, flight.start, flight.count);
                let failure = disk.failure(direction, start, count, error, &completion.timing);
                self.failure.get_or_insert(failure);
                None
            }
        }
    }

    fn drain(&mut self) {
        while self.flights.iter().any(Option::is_some) {
            self.reap();
        }
    }

    fn last(&mut self) -> Result<Buffer, IoFailure> {
        let buffer = self.reap();
        match (buffer, self.failure.take()) {
            (Some(buffer), None) => Ok(buffer),
            (_, failure) => Err(failure.unwrap_or(IoFailure::Cancelled {
                reason: "the transfer did not return its buffer",
            })),
        }
    }

    fn finish(mut self) -> Result<(), IoFailure> {
        self.drain();
        self.failure.take().map_or(Ok(()), Err)
    }
}

/// Cannot happen: the account's buffers are fixed, so they are always available and never revoked.
const NO_MEMORY: IoFailure = IoFailure::Cancelled {
    reason: "the pool has no memory for its own transfers",
};

fn memory_failure(_: BufferError) -> IoFailure {
    NO_MEMORY
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::buffer::BUFFER_ALIGN_BYTES;
    use crate::disk::Durability;
    use crate::test_rig::disks::{MIB, Rig, volume};

    #[test]
    fn long_writes_need_no_more_memory_than_their_own() {
        let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
        let volume = volume(&pool, "v", MIB);
        let disks = &volume.io().disks;
        let pool_memory = pool.memory();
        let raw = RawIo::new(pool_memory, "test", Urgency::Sync).unwrap();
        // Reserves all memory, so that nothing is left but other accounts' fixed parts.
        let taken: Vec<_> = [PIECE_BYTES, BUFFER_ALIGN_BYTES]
            .into_iter()
            .flat_map(|size| {
                std::iter::from_fn(move || pool_memory.open_account_for("all", size, 1).ok())
            })
            .collect();
        let data: Vec<u8> = (0..3 * MIB + 512).map(|byte| (byte % 251) as u8).collect();
        let mut back = vec![0; data.len()];
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            let (raw, data, back) = (&raw, &data, &mut back);
            scope.spawn(move || {
                let start = Sector(32 * MIB / SECTOR_BYTES);
                let write = RawWrite {
                    disk: 0,
                    start,
                    data,
                };
                raw.write(disks, &[write]).unwrap();
                raw.read(disks, 0, start, back).unwrap();
                sender.send(()).unwrap();
            });
            let ended = receiver.recv_timeout(Duration::from_secs(30));
            // Released in any case, so that the test ends even if the thread waits for memory.
            assert!(!taken.is_empty());
            drop(taken);
            ended.expect("the transfers end");
        });
        assert!(back == data);
    }
}
