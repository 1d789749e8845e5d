//! Open streams.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond, Nanos};

use super::client::Client;
use super::volume::Volume;
use crate::state::pool::core::PoolCore;
use crate::state::stream::core::{Span, StreamCore};
use crate::status::streams::{self, StreamStatus};

/// An open stream: guaranteed bandwidth, with buffers of its own. Dropping it releases the reservation soon,
/// without waiting for that.
pub struct Stream {
    core: Arc<StreamCore>,
    client: Client,
    volume: Arc<Volume>,
    pool: Arc<PoolCore>,
}

impl Stream {
    pub(crate) fn core(&self) -> &Arc<StreamCore> {
        &self.core
    }

    pub(crate) fn pool(&self) -> &Arc<PoolCore> {
        &self.pool
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Its volume.
    #[must_use]
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// Durable bytes, from the beginning, of the recording that is made through it, or was made last.
    #[must_use]
    pub fn durable_bytes(&self) -> u64 {
        self.core.durable_bytes()
    }

    pub(crate) fn set_durable(&self, bytes: u64) {
        self.core.stats.durable_bytes.store(bytes, Relaxed);
    }

    /// The client that holds its buffers (two for every disk that it touches) and submits its blocks.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The reserved range, in bytes of the volume.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.core.range()
    }

    /// The current block size.
    #[must_use]
    pub fn block(&self) -> Bytes {
        self.core.block()
    }

    /// The buffer size, which is the block size at admission.
    #[must_use]
    pub fn buffer(&self) -> Bytes {
        self.core.buffer
    }

    /// The current rate.
    #[must_use]
    pub fn rate(&self) -> BytesPerSecond {
        self.core.rate()
    }

    /// Number of disks that its range lies on.
    #[must_use]
    pub fn disk_count(&self) -> usize {
        self.core.disk_count()
    }

    /// Its direction.
    #[must_use]
    pub fn op(&self) -> Op {
        self.core.op
    }

    /// The longest period of its tasks. A block submitted in time completes within it.
    #[must_use]
    pub fn longest_period(&self) -> Nanos {
        self.core.longest_period()
    }

    /// The time of the reservation; `None` is from its admission until it is closed.
    #[must_use]
    pub fn span(&self) -> Option<Span> {
        self.core.span
    }

    /// True if its first block follows its last.
    #[must_use]
    pub fn wraps(&self) -> bool {
        self.core.wraps
    }

    /// Statistics of its blocks so far.
    #[must_use]
    pub fn status(&self) -> StreamStatus {
        streams::stream(&self.pool.io, &self.core)
    }

    /// Ends the reservation: waits for blocks in flight, and returns the statistics. Its share of the disks
    /// is free from the last deadline on.
    pub fn close(self) -> StreamStatus {
        self.give_back();
        streams::stream(&self.pool.io, &self.core)
    }

    /// As [`close`](Self::close), without consuming the stream, which then accepts no more blocks. The pool's
    /// own threads must not call it, because it waits for their work.
    pub fn give_back(&self) {
        self.pool.keeper.begin_close(&self.core);
        self.core.wait_left();
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.pool.keeper.begin_close(&self.core);
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream")
            .field("name", &self.core.name)
            .field("rate", &self.core.rate())
            .finish_non_exhaustive()
    }
}

/// Assembles a stream.
pub(crate) fn stream(
    pool: Arc<PoolCore>,
    core: Arc<StreamCore>,
    client: Client,
    volume: Arc<Volume>,
) -> Stream {
    Stream {
        core,
        client,
        volume,
        pool,
    }
}
