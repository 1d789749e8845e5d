//! Open reservations.

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

/// An open reservation: guaranteed bandwidth, with buffers of its own. Dropping it gives it back soon
/// after, and does not wait for that.
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

    /// Bytes from the beginning of the recording that is made through it, or was made last, that survive a
    /// power cut.
    #[must_use]
    pub fn durable_bytes(&self) -> u64 {
        self.core.durable_bytes()
    }

    pub(crate) fn set_durable(&self, bytes: u64) {
        self.core.evidence.durable_bytes.store(bytes, Relaxed);
    }

    /// The client that holds its buffers (two for every disk it touches) and through which
    /// its blocks are submitted.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The range it is reserved for, in bytes of the volume.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.core.range()
    }

    /// The present size of a block.
    #[must_use]
    pub fn block(&self) -> Bytes {
        self.core.block()
    }

    /// The size of a buffer, which is that of a block as it was reserved at first.
    #[must_use]
    pub fn buffer(&self) -> Bytes {
        self.core.buffer
    }

    /// The present rate.
    #[must_use]
    pub fn rate(&self) -> BytesPerSecond {
        self.core.rate()
    }

    /// How many disks its range lies on.
    #[must_use]
    pub fn disk_count(&self) -> usize {
        self.core.disk_count()
    }

    /// Whether it reads or writes.
    #[must_use]
    pub fn op(&self) -> Op {
        self.core.op
    }

    /// The longest period of its tasks: within it every block that is asked for in time is done.
    #[must_use]
    pub fn longest_period(&self) -> Nanos {
        self.core.longest_period()
    }

    /// From when to when it holds; `None` is from its reservation until it is closed.
    #[must_use]
    pub fn span(&self) -> Option<Span> {
        self.core.span
    }

    /// Whether its first block follows its last.
    #[must_use]
    pub fn wraps(&self) -> bool {
        self.core.wraps
    }

    /// What happened to its blocks so far.
    #[must_use]
    pub fn status(&self) -> StreamStatus {
        streams::stream(&self.pool.io, &self.core)
    }

    /// Ends the reservation: waits for its blocks in flight, and says what happened to it. Its share
    /// of the disks is free from the last deadline on.
    pub fn close(self) -> StreamStatus {
        self.give_back();
        streams::stream(&self.pool.io, &self.core)
    }

    /// Does the same without taking the stream, which takes no more blocks then. The pool's own threads must not call it: they do
    /// the work that it waits for.
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

/// Puts a stream together.
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
