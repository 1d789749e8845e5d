//! Changing a stream: its rate, the end of its range, its block size, and its number of buffers.
//!
//! [`Changer::change`] is the entry. [`exchange`] replaces the tasks. If blocks become longer while a
//! reader runs, the reader first reads ahead ([`crate::state::stream::ahead`]).

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use sched::request::Op as Direction;
use sched::units::{Bytes, BytesPerSecond, Nanos};

use super::check::check_other_block;
use super::exchange::{self, StreamContext, StreamParameters};
use crate::buffer::Account;
use crate::state::client::ClientCore;
use crate::state::pool::core::PoolCore;
use crate::state::refusal::{Refusal, memory_refusal};
use crate::state::stream::ahead::ReadAheadTarget;
use crate::state::stream::core::StreamCore;
use crate::state::volume::VolumeCore;
use crate::status::streams::{self, StreamStatus};
use crate::volume_io::stream::Stream;

/// The most buffers of a stream. Each additional buffer has an account, and a descriptor, of its own.
pub const BUFFERS_MAX: usize = 64;

/// The changes requested of a stream; `None` leaves a parameter unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamChange {
    /// The rate.
    pub rate: Option<BytesPerSecond>,
    /// The end of its range, in bytes of the volume; the start is fixed. The rest behind the end is released,
    /// and the volume may shrink to it. The range may not touch more disks than at admission.
    pub end: Option<Bytes>,
    /// The size of a block, the unit of transfer: a multiple of the [buffer size](Stream::buffer), which is fixed,
    /// that divides the extent size or is a multiple of it. Longer blocks need less disk time and more buffers,
    /// which are added if `buffers` is `None`. It cannot be changed while bytes are moved through the stream.
    pub block: Option<Bytes>,
    /// Number of reserved buffers: from two blocks for each disk up to [`BUFFERS_MAX`].
    pub buffers: Option<usize>,
    /// Time limit for reading ahead before the blocks of a [`BlockReader`](super::BlockReader) become longer,
    /// because the first longer block arrives later. Meanwhile the stream reads at up to twice its rate, or at as
    /// many times its rate as there are disks that blocks alternate between, as far as the disks carry that.
    /// `None`: blocks become longer at once. Not to be set by the reader's own thread, which would wait for itself.
    pub within: Option<Duration>,
}

impl StreamChange {
    /// True if only the end of the range is changed.
    fn is_of_range(&self) -> bool {
        self.rate.is_none() && self.block.is_none() && self.buffers.is_none()
    }
}

/// The result of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChangeResult {
    /// The most by which data may be late once, because less than needed was [read ahead](StreamChange::within), or
    /// because the disks could not carry the faster rate. Zero if nothing is late.
    pub late: Nanos,
}

/// A handle that changes a stream, from any thread. Clones refer to the same stream, which may be closed.
#[derive(Clone)]
pub struct Changer {
    pool: Arc<PoolCore>,
    volume: Arc<VolumeCore>,
    core: Arc<StreamCore>,
    client: Arc<ClientCore>,
}

/// A change that runs on a thread of its own.
#[derive(Clone, Debug)]
pub struct Change(Arc<Outcome>);

#[derive(Debug, Default)]
struct Outcome {
    changed: Mutex<Option<Result<ChangeResult, Refusal>>>,
    is_there: Condvar,
}

impl Change {
    /// Takes the result; `None` while the change runs, or after the result was taken. When the change ends, the
    /// thread that waits at the stream's client is woken.
    #[must_use]
    pub fn take(&self) -> Option<Result<ChangeResult, Refusal>> {
        self.0.changed.lock().take()
    }

    /// Waits for the result, which must not have been taken.
    ///
    /// # Errors
    /// As [`Changer::change`].
    pub fn wait(self) -> Result<ChangeResult, Refusal> {
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
    /// A handle that changes the stream.
    #[must_use]
    pub fn changer(&self) -> Changer {
        Changer {
            pool: Arc::clone(self.pool()),
            volume: Arc::clone(self.volume().core()),
            core: Arc::clone(self.core()),
            client: Arc::clone(self.client().core()),
        }
    }

    /// Number of reserved buffers.
    #[must_use]
    pub fn buffers(&self) -> usize {
        self.changer().buffers()
    }

    /// True if its rate, range or block size is being changed: a block that is submitted then has to wait.
    #[must_use]
    pub fn is_changing(&self) -> bool {
        self.core().is_changing()
    }

    /// Changes its rate, after any change under way. If the new rate does not fit, it keeps the old one. Blocks
    /// submitted meanwhile wait until those in flight are complete. Does nothing if the rate is the same.
    ///
    /// # Errors
    /// As for a new reservation. If a disk is not served any more, the stream may lose its share on it; then the
    /// stream is closed.
    pub fn change_rate(&self, rate: BytesPerSecond) -> Result<(), Refusal> {
        let wish = StreamChange {
            rate: Some(rate),
            ..StreamChange::default()
        };
        self.changer().change(wish).map(drop)
    }
}

impl Changer {
    /// The current rate.
    #[must_use]
    pub fn rate(&self) -> BytesPerSecond {
        self.core.rate()
    }

    /// The size of a block.
    #[must_use]
    pub fn block(&self) -> Bytes {
        self.core.block()
    }

    /// The size of a buffer.
    #[must_use]
    pub fn buffer(&self) -> Bytes {
        self.core.buffer
    }

    /// Number of reserved buffers.
    #[must_use]
    pub fn buffers(&self) -> usize {
        self.core.buffers_min(self.core.buffer) + self.client.extra_accounts.accounts().len()
    }

    /// Statistics of the stream's blocks so far.
    #[must_use]
    pub fn status(&self) -> StreamStatus {
        streams::stream(&self.pool.io, &self.core)
    }

    /// See [`Stream::durable_bytes`].
    #[must_use]
    pub fn durable_bytes(&self) -> u64 {
        self.core.durable_bytes()
    }

    /// The byte range of the volume that it is reserved for.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.core.range()
    }

    /// Makes all requested changes or none, after any change under way. Waits for blocks in flight unless only the
    /// buffers change, for others that have to give back memory, and for [reading ahead](StreamChange::within). A block
    /// that is submitted meanwhile and lies outside of the new range fails.
    ///
    /// # Errors
    /// As [`change_rate`](Stream::change_rate); when memory is short; when the range would reach past the
    /// volume's end or touch more disks; and when the block size is invalid.
    pub fn change(&self, wish: StreamChange) -> Result<ChangeResult, Refusal> {
        if wish.is_of_range() {
            let byte_sessions = self.core.byte_sessions.lock();
            let changed = match (self.change_tasks(wish), self.core.read_ahead.rate_before()) {
                // The faster rate for reading ahead is temporary, so it may be given up.
                (Err(Refusal::Load { .. }), Some(rate)) => self.change_tasks(StreamChange {
                    rate: Some(rate),
                    ..wish
                }),
                (changed, _) => changed,
            };
            drop(byte_sessions);
            self.client.wake();
            return changed.map(|()| ChangeResult::default());
        }
        let turn = self.core.change_lock.lock();
        let changed = match self.read_ahead_limit(wish) {
            Some(within) => self.change_after_reading_ahead(wish, within),
            None => self.change_now(wish).map(|()| ChangeResult::default()),
        };
        drop(turn);
        // A thread that sleeps until the next block has to compute that time again.
        self.client.wake();
        changed
    }

    /// Runs [`change`](Self::change) on a thread of its own.
    ///
    /// # Errors
    /// When the host refuses a thread.
    pub fn begin(self, wish: StreamChange) -> io::Result<Change> {
        let change = Change(Arc::default());
        let result = Arc::clone(&change.0);
        std::thread::Builder::new()
            .name("change".to_owned())
            .spawn(move || {
                let changed = self.change(wish);
                *result.changed.lock() = Some(changed);
                result.is_there.notify_all();
                self.client.wake();
            })?;
        Ok(change)
    }

    /// The time limit for reading ahead, if blocks become longer and there is a reader.
    fn read_ahead_limit(&self, wish: StreamChange) -> Option<Duration> {
        let is_longer = wish.block.is_some_and(|block| block > self.core.block());
        let is_read = self.core.op == Direction::Read && self.core.read_ahead.has_reader();
        wish.within.filter(|_| is_longer && is_read)
    }

    /// Changes after reading ahead: when the data read lasts until the first longer block is due, or when no more
    /// can be read. The caller holds `change_lock`.
    fn change_after_reading_ahead(
        &self,
        wish: StreamChange,
        within: Duration,
    ) -> Result<ChangeResult, Refusal> {
        const DAY: Duration = Duration::from_secs(86_400);
        let until = Instant::now() + within.min(DAY);
        let (core, more) = (&self.core, &self.client.extra_accounts);
        let byte_sessions = core.byte_sessions.lock();
        let after = self.check(wish, *byte_sessions)?;
        let (rate, to) = (core.rate(), self.changed_to(wish));
        let longest = exchange::try_change(self.reserved(), to)?;
        let before = more.accounts().len();
        more.add(self.accounts(after.saturating_sub(before))?);
        let lasts = rate.period_of(core.buffer).unwrap_or(Nanos::MAX);
        // The last old block is due one old period after its submission; only then is the first new one submitted.
        let awaited = longest.saturating_add(core.longest_period());
        let buffers_in = |time: Nanos| {
            let buffers = time.0.div_ceil(lasts.0.max(1));
            usize::try_from(buffers).unwrap_or(usize::MAX)
        };
        let wanted = core.read_ahead.request(ReadAheadTarget {
            block: to.block.0,
            buffers: buffers_in(awaited),
            buffer: core.buffer.0,
            period: buffers_in(longest),
            rate,
        });
        let faster = self.read_faster(rate.max(to.rate));
        drop(byte_sessions);
        self.client.wake();
        let missing = wanted.wait(until, Duration::from_nanos(lasts.0) * 2);
        let changed = self.change_now(StreamChange {
            rate: Some(to.rate),
            ..wish
        });
        if changed.is_err() {
            if faster.is_some() {
                // This fits, because it reduces the reservation. If the stream is closed, it holds nothing anyway.
                let _: Result<_, _> = self.change_now(StreamChange {
                    rate: Some(rate),
                    ..StreamChange::default()
                });
            }
            more.truncate(before);
        }
        let late = Nanos(lasts.0.saturating_mul(missing as u64));
        let late = late.max(faster.unwrap_or_default());
        changed.map(|()| ChangeResult { late })
    }

    /// Reads ahead at a faster rate: at `rate` times the number of disks, at least twice, or at the largest rate
    /// that fits. Returns the time by which data may be late because of this change, or `None` if the rate was not
    /// raised.
    ///
    /// The last block before the change is due when a period of the old tasks is over, and the next one a period
    /// of the new tasks later; but it is needed when it is played. Where blocks lie on several disks in turn, the
    /// tasks' periods are that many times as long, so the rate has to be that many times as high.
    fn read_faster(&self, rate: BytesPerSecond) -> Option<Nanos> {
        let core = &self.core;
        let before = core.rate();
        let plays = before.period_of(core.block()).unwrap_or(Nanos::MAX);
        // Rounded to the nearest, because periods are rounded.
        let disks = core.longest_period().0.saturating_add(plays.0 / 2) / plays.0.max(1);
        // Tested first, so that nothing is paused for a rate that does not fit.
        let at = |rate| {
            let to = self.changed_to(StreamChange {
                rate: Some(rate),
                ..StreamChange::default()
            });
            exchange::try_change(self.reserved(), to).map(|longest| (to, longest))
        };
        let fits = match at(BytesPerSecond(rate.0.saturating_mul(disks.max(2)))) {
            Err(Refusal::Load {
                rate_that_fits: Some(fits),
                ..
            }) if fits > before => at(fits),
            tried => tried,
        };
        let (to, longest) = fits.ok()?;
        exchange::change(self.reserved(), to).ok()?;
        Some(longest.saturating_sub(plays))
    }

    /// Changes at once. The caller holds `change_lock`.
    fn change_now(&self, wish: StreamChange) -> Result<(), Refusal> {
        let byte_sessions = self.core.byte_sessions.lock();
        let more = &self.client.extra_accounts;
        let after = self.check(wish, *byte_sessions)?;
        let before = more.accounts().len();
        let added = self.accounts(after.saturating_sub(before))?;
        more.add(added);
        let changed = self.change_tasks(wish);
        more.truncate(if changed.is_ok() { after } else { before });
        changed
    }

    /// Checks the block size, given the number of sessions that move bytes. Returns the number of buffers beside
    /// those of the admission.
    fn check(&self, wish: StreamChange, of_bytes: usize) -> Result<usize, Refusal> {
        let core = &self.core;
        let block = wish.block.unwrap_or_else(|| core.block());
        if block != core.block() && of_bytes > 0 {
            return Err(Refusal::Invalid {
                what: "the block size",
                reason: "a session moves bytes through the stream, so its block size cannot change"
                    .to_owned(),
                remedy: "reserve a new stream",
            });
        }
        check_other_block(&self.pool.io, core, block)?;
        self.additional_buffers(wish, block)
    }

    fn reserved(&self) -> StreamContext<'_> {
        StreamContext {
            pool: &self.pool,
            volume: &self.volume,
            core: &self.core,
        }
    }

    fn current(&self) -> StreamParameters {
        StreamParameters {
            rate: self.core.rate(),
            end: self.core.range().end,
            block: self.core.block(),
        }
    }

    fn changed_to(&self, wish: StreamChange) -> StreamParameters {
        let now = self.current();
        StreamParameters {
            rate: wish.rate.unwrap_or(now.rate),
            end: wish.end.map_or(now.end, |end| end.0),
            block: wish.block.unwrap_or(now.block),
        }
    }

    fn change_tasks(&self, wish: StreamChange) -> Result<(), Refusal> {
        if wish.rate.is_none() && wish.end.is_none() && wish.block.is_none() {
            return Ok(());
        }
        let (core, to) = (&self.core, self.changed_to(wish));
        // For a closed stream the exchange reports the error.
        if to == self.current() && !core.is_closing() {
            return Ok(());
        }
        exchange::change(self.reserved(), to)
    }

    /// The number of buffers beside those of the admission, for blocks of this size.
    fn additional_buffers(&self, wish: StreamChange, block: Bytes) -> Result<usize, Refusal> {
        let (core, now) = (&self.core, self.buffers());
        let first = core.buffers_min(core.buffer);
        let least = core.buffers_min(block);
        let count = wish.buffers.unwrap_or(now.max(least));
        let is_possible = (least..=BUFFERS_MAX).contains(&count);
        if is_possible || wish.buffers.is_none() && count == now {
            return Ok(count - first);
        }
        Err(Refusal::Invalid {
            what: "the buffers",
            reason: format!(
                "{count} buffers of {} each are outside the range of {least} (two blocks of {block} for each disk of the stream) to {BUFFERS_MAX}",
                core.buffer
            ),
            remedy: "request a number in that range, or blocks of another size",
        })
    }

    /// Opens accounts of one buffer each.
    fn accounts(&self, count: usize) -> Result<Vec<Account>, Refusal> {
        let (memory, buffer) = (&self.pool.io.memory, self.core.buffer.0);
        let mut added = Vec::with_capacity(count);
        while added.len() < count {
            let account = memory.open_account_for(&self.core.name, buffer as usize, 1);
            let account = account.map_err(|error| match memory_refusal(error) {
                Refusal::Memory { available, .. } => Refusal::Memory {
                    needed: count as u64 * buffer,
                    available: available + added.len() as u64 * buffer,
                },
                other => other,
            });
            added.push(account?);
        }
        Ok(added)
    }
}

impl std::fmt::Debug for Changer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Changer")
            .field("stream", &self.core.name)
            .finish_non_exhaustive()
    }
}
