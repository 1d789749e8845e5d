//! Blocking transfers, for tools, tests, and callers with nothing else to do.

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
    /// The request was refused.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// No buffer is available.
    #[error(transparent)]
    Buffer(#[from] MemoryError),
    /// The buffer was revoked.
    #[error(transparent)]
    Taken(#[from] BufferError),
    /// The request failed.
    #[error(transparent)]
    Io(#[from] IoFailure),
}

/// Blocking transfers are divided into requests of this size.
const SYNC_PIECE_BYTES: usize = 1 << 20;

impl Client {
    /// Reads `bytes`, a whole number of sectors, into a buffer of the client's memory, and waits. Nothing is
    /// copied.
    ///
    /// # Errors
    /// When no memory is available, the buffer is revoked meanwhile, or a request is refused or fails.
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

    /// Reads into `out`, a whole number of sectors, and waits. Copies; for tools and tests.
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

    /// Writes `data`, a whole number of sectors, and waits. Copies; for tools and tests.
    ///
    /// # Errors
    /// When a request is refused or fails.
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

    /// Makes all writes durable that were answered before, and waits.
    ///
    /// # Errors
    /// When the request is refused or fails.
    pub fn flush(&self, volume: &Volume) -> Result<(), SyncError> {
        let request = VolumeRequest::command(volume, VolumeOp::Flush, Bytes::ZERO, Bytes::ZERO);
        Ok(self.execute(request)?.result?)
    }
}
