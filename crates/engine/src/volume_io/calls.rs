//! Transfers of a client that waits for each: for tools and tests, and wherever there is nothing else to do.

use sched::request::Op as Direction;
use sched::units::Bytes;

use super::client::Client;
use super::request::{SubmitError, VolumeRequest};
use super::volume::Volume;
use crate::buffer::{Buffer, BufferError, MemoryError};
use crate::state::request::{IoFailure, VolumeOp};

/// A synchronous call failed.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// It was not taken.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// There was no buffer for it.
    #[error(transparent)]
    Buffer(#[from] MemoryError),
    /// Its buffer was taken away.
    #[error(transparent)]
    Taken(#[from] BufferError),
    /// It failed.
    #[error(transparent)]
    Io(#[from] IoFailure),
}

/// Synchronous transfers are divided into pieces of this size.
const SYNC_PIECE_BYTES: usize = 1 << 20;

impl Client {
    /// Reads so many bytes, a whole number of sectors, into a buffer of the client's memory, and waits for it. What is in
    /// the buffer is where the disks put it: nothing is copied.
    ///
    /// # Errors
    /// When there is no memory for it, or it is taken back meanwhile, and what submitting or a request itself can fail
    /// with.
    pub fn read(&self, volume: &Volume, offset: Bytes, bytes: usize) -> Result<Buffer, SyncError> {
        let buffer = self.core().account.allocate_wait(bytes, None)?;
        for from in (0..bytes).step_by(SYNC_PIECE_BYTES) {
            let to = bytes.min(from + SYNC_PIECE_BYTES);
            let memory = buffer.segments(Direction::Read, from..to)?;
            let at = offset + Bytes(from as u64);
            let request = VolumeRequest::transfer(volume, VolumeOp::Read, at, memory);
            self.execute(request)?.result?;
        }
        Ok(buffer)
    }

    /// Reads into `out`, a whole number of sectors, and waits for it. Copies; for tools and tests.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_at(&self, volume: &Volume, offset: Bytes, out: &mut [u8]) -> Result<(), SyncError> {
        let mut at = offset;
        for piece in out.chunks_mut(SYNC_PIECE_BYTES) {
            let buffer = self.read(volume, at, piece.len())?;
            buffer.with(|bytes| piece.copy_from_slice(&bytes[..piece.len()]))?;
            at += Bytes(piece.len() as u64);
        }
        Ok(())
    }

    /// Writes `data`, a whole number of sectors, and waits for it. Copies; for tools and tests.
    ///
    /// # Errors
    /// What submitting or the request itself can fail with.
    pub fn write_at(&self, volume: &Volume, offset: Bytes, data: &[u8]) -> Result<(), SyncError> {
        let mut at = offset;
        for piece in data.chunks(SYNC_PIECE_BYTES) {
            let mut buffer = self.core().account.allocate_wait(piece.len(), None)?;
            buffer.with_mut(|bytes| bytes[..piece.len()].copy_from_slice(piece))?;
            let memory = buffer.segments(Direction::Write, 0..piece.len())?;
            let op = VolumeOp::Write { durable: false };
            self.execute(VolumeRequest::transfer(volume, op, at, memory))?
                .result?;
            at += Bytes(piece.len() as u64);
        }
        Ok(())
    }

    /// Makes everything durable that was answered before, and waits for it.
    ///
    /// # Errors
    /// What submitting or the request itself can fail with.
    pub fn flush(&self, volume: &Volume) -> Result<(), SyncError> {
        let request = VolumeRequest::command(volume, VolumeOp::Flush, Bytes::ZERO, Bytes::ZERO);
        Ok(self.execute(request)?.result?)
    }
}
