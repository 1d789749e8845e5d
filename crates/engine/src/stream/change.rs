//! Changing what a stream has reserved: its rate, where its range ends, and how many buffers it has.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use sched::units::{Bytes, BytesPerSecond};

use super::core::StreamCore;
use super::open::{self, BUFFERS_PER_DISK, Changed};
use super::reserve::{Refusal, Stream};
use crate::front::client::ClientCore;
use crate::pool::control::memory_refusal;
use crate::status::StreamStatus;

/// The most buffers that a stream can have: each that is added has an account, and with it a descriptor, of its own.
pub const BUFFERS_MAX: usize = 64;

/// What is to be reserved from now on; what is `None` stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wish {
    /// The rate.
    pub rate: Option<BytesPerSecond>,
    /// Where its range ends, in bytes of the volume; it begins where it did. What is behind that is not reserved any
    /// more, and the volume may be cut there. It may not touch more disks than the stream was admitted with.
    pub end: Option<Bytes>,
    /// Buffers of a block each that nobody else may use: two for each disk at least, [`BUFFERS_MAX`] at most.
    pub buffers: Option<usize>,
}

/// Changes what a stream has reserved, from any thread. Clones are of the same stream; it may have been closed.
#[derive(Clone)]
pub struct Changer {
    core: Arc<StreamCore>,
    client: Arc<ClientCore>,
}

/// A change that goes on beside whoever asked for it.
#[derive(Clone, Debug)]
pub struct Change(Arc<Outcome>);

#[derive(Debug, Default)]
struct Outcome {
    changed: Mutex<Option<Result<(), Refusal>>>,
    is_there: Condvar,
}

impl Change {
    /// What came of it, once; `None`: it is not over. Whoever waits at the stream's client is woken when it is.
    #[must_use]
    pub fn take(&self) -> Option<Result<(), Refusal>> {
        self.0.changed.lock().take()
    }

    /// Waits until it is over: what came of it, which nobody has taken.
    ///
    /// # Errors
    /// As [`Changer::change`].
    pub fn wait(self) -> Result<(), Refusal> {
        let mut changed = self.0.changed.lock();
        loop {
            if let Some(changed) = changed.take() {
                return changed;
            }
            self.0.is_there.wait(&mut changed);
        }
    }
}

impl Stream {
    /// What changes it.
    #[must_use]
    pub fn changer(&self) -> Changer {
        Changer {
            core: Arc::clone(self.core()),
            client: Arc::clone(self.client().core()),
        }
    }

    /// How many buffers nobody else may use.
    #[must_use]
    pub fn buffers(&self) -> usize {
        self.changer().buffers()
    }

    /// Whether its rate or its range is being changed: a block that is submitted now waits until that is done.
    #[must_use]
    pub fn is_changing(&self) -> bool {
        self.core().is_changing()
    }

    /// Changes its rate; it keeps the old one when there is no room for the new one. Blocks submitted
    /// meanwhile wait until those in flight are complete.
    ///
    /// # Errors
    /// As for a new reservation. A stream that one of its disks has left without a share, which takes a disk
    /// that is not served any more, is closed with that.
    pub fn change_rate(&self, rate: BytesPerSecond) -> Result<(), Refusal> {
        self.changer().change(Wish {
            rate: Some(rate),
            ..Wish::default()
        })
    }
}

impl Changer {
    /// The present rate.
    #[must_use]
    pub fn rate(&self) -> BytesPerSecond {
        self.core.rate()
    }

    /// The size of a block.
    #[must_use]
    pub fn block(&self) -> Bytes {
        self.core.block
    }

    /// How many buffers nobody else may use.
    #[must_use]
    pub fn buffers(&self) -> usize {
        self.buffers_min() + self.client.more.accounts().len()
    }

    /// What happened to the stream's blocks so far.
    #[must_use]
    pub fn status(&self) -> StreamStatus {
        self.core.status()
    }

    /// The bytes of the volume that it is reserved for now.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.core.range()
    }

    fn buffers_min(&self) -> usize {
        BUFFERS_PER_DISK as usize * self.core.disks_max
    }

    /// Has it reserve what is wished for, all of it or nothing, after whatever else is being changed. Waits for blocks in flight if the rate or the range
    /// changes, and for others who have to give back memory. A block that is submitted meanwhile and is not in the
    /// range any more fails.
    ///
    /// # Errors
    /// As [`change_rate`](Stream::change_rate), when there is not that much memory, and when the range would reach past
    /// the volume's end or touch more disks.
    pub fn change(&self, wish: Wish) -> Result<(), Refusal> {
        let turn = self.core.changes.lock();
        let before = self.buffers();
        let changed = wish
            .buffers
            .map_or(Ok(()), |count| self.change_buffers(count));
        let changed = changed.and_then(|()| {
            let changed = self.change_tasks(wish);
            if changed.is_err() && wish.buffers.is_some() {
                // There were as many before: what was added goes, or what was given up is asked for again.
                self.change_buffers(before)?;
            }
            changed
        });
        drop(turn);
        // Whoever sleeps until the next block looks again when that is, or whether there is one.
        self.client.nudge();
        changed
    }

    /// The same on a thread of its own.
    ///
    /// # Errors
    /// When the host has no thread for it.
    pub fn begin(self, wish: Wish) -> io::Result<Change> {
        let change = Change(Arc::default());
        let result = Arc::clone(&change.0);
        std::thread::Builder::new()
            .name("change".to_owned())
            .spawn(move || {
                let changed = self.change(wish);
                *result.changed.lock() = Some(changed);
                result.is_there.notify_all();
                self.client.nudge();
            })?;
        Ok(change)
    }

    fn change_tasks(&self, wish: Wish) -> Result<(), Refusal> {
        if wish.rate.is_none() && wish.end.is_none() {
            return Ok(());
        }
        let to = Changed {
            rate: wish.rate.unwrap_or_else(|| self.core.rate()),
            end: wish.end.map_or(self.core.range().end, |end| end.0),
        };
        open::change(&self.core, to)
    }

    fn change_buffers(&self, count: usize) -> Result<(), Refusal> {
        let least = self.buffers_min();
        if !(least..=BUFFERS_MAX).contains(&count) {
            return Err(Refusal::Invalid {
                what: "the buffers",
                reason: format!(
                    "{count} of them are not between {least}, two for each disk that the stream touches, and {BUFFERS_MAX}"
                ),
                remedy: "ask for that many, each of a block",
            });
        }
        let more = &self.client.more;
        more.shorten(count - least);
        let memory = &self.core.pool.memory;
        let missing = (count - least).saturating_sub(more.accounts().len());
        let mut added = Vec::new();
        while added.len() < missing {
            let block = self.core.block.0;
            let account = memory.open_account_for(&self.core.name, block as usize, 1);
            let account = account.map_err(|error| match memory_refusal(error) {
                Refusal::Memory { available, .. } => Refusal::Memory {
                    needed: missing as u64 * block,
                    available: available + added.len() as u64 * block,
                },
                other => other,
            });
            added.push(account?);
        }
        more.add(added);
        Ok(())
    }
}

impl std::fmt::Debug for Changer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Changer")
            .field("stream", &self.core.name)
            .finish_non_exhaustive()
    }
}
