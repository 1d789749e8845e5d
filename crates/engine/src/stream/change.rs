//! Changing what a stream has reserved: its rate, where its range ends, how long its blocks are, and how many buffers it
//! has.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use sched::request::Op as Direction;
use sched::units::{Bytes, BytesPerSecond, Nanos};

use super::check::check_other_block;
use super::exchange::{self, Changed, Reserved};
use crate::buffer::Account;
use crate::state::client::ClientCore;
use crate::state::pool::core::PoolCore;
use crate::state::refusal::{Refusal, memory_refusal};
use crate::state::stream::ahead::Target;
use crate::state::stream::core::StreamCore;
use crate::state::volume::VolumeCore;
use crate::status::streams::{self, StreamStatus};
use crate::volume_io::stream::Stream;

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
    /// How long a block is: what is transferred at a time. A multiple of a [buffer](Stream::buffer), which stays as it is,
    /// that divides the extent size or is a multiple of it. Longer blocks take less of the disks and more buffers, which
    /// are added if none are wished for. Of a stream through which bytes are moved it stays.
    pub block: Option<Bytes>,
    /// Buffers that nobody else may use: two blocks for each disk at least, [`BUFFERS_MAX`] at most.
    pub buffers: Option<usize>,
    /// For how long at most to have read ahead before blocks become longer that a [`BlockReader`](super::BlockReader)
    /// reads, as the first of them comes later: at up to twice the rate meanwhile, or as many times as there are disks
    /// between which blocks alternate, where these carry that. Without it they become longer at once. Not for the thread that
    /// reads, which would wait for itself.
    pub within: Option<Duration>,
}

impl Wish {
    /// Whether it is about nothing but where the range ends.
    fn is_of_range(&self) -> bool {
        self.rate.is_none() && self.block.is_none() && self.buffers.is_none()
    }
}

/// What came of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Granted {
    /// How much later what is read may come once, at most, where it was to be [read ahead](Wish::within) and less was than
    /// that takes, or the disks did not carry what it takes to begin with that.
    pub late: Nanos,
}

/// Changes what a stream has reserved, from any thread. Clones are of the same stream; it may have been closed.
#[derive(Clone)]
pub struct Changer {
    pool: Arc<PoolCore>,
    volume: Arc<VolumeCore>,
    core: Arc<StreamCore>,
    client: Arc<ClientCore>,
}

/// A change that goes on beside whoever asked for it.
#[derive(Clone, Debug)]
pub struct Change(Arc<Outcome>);

#[derive(Debug, Default)]
struct Outcome {
    changed: Mutex<Option<Result<Granted, Refusal>>>,
    is_there: Condvar,
}

impl Change {
    /// What came of it, once; `None`: it is not over. Whoever waits at the stream's client is woken when it is.
    #[must_use]
    pub fn take(&self) -> Option<Result<Granted, Refusal>> {
        self.0.changed.lock().take()
    }

    /// Waits until it is over: what came of it, which nobody has taken.
    ///
    /// # Errors
    /// As [`Changer::change`].
    pub fn wait(self) -> Result<Granted, Refusal> {
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
            pool: Arc::clone(self.pool()),
            volume: Arc::clone(self.volume().core()),
            core: Arc::clone(self.core()),
            client: Arc::clone(self.client().core()),
        }
    }

    /// How many buffers nobody else may use.
    #[must_use]
    pub fn buffers(&self) -> usize {
        self.changer().buffers()
    }

    /// Whether its rate, its range or its block is being changed: a block that is submitted now waits until that is done.
    #[must_use]
    pub fn is_changing(&self) -> bool {
        self.core().is_changing()
    }

    /// Changes its rate, after whatever else is being changed; it keeps the old one when there is no room for the new one.
    /// Blocks submitted meanwhile wait until those in flight are complete. Nothing is done if that is its rate.
    ///
    /// # Errors
    /// As for a new reservation. A stream that one of its disks has left without a share, which takes a disk
    /// that is not served any more, is closed with that.
    pub fn change_rate(&self, rate: BytesPerSecond) -> Result<(), Refusal> {
        let wish = Wish {
            rate: Some(rate),
            ..Wish::default()
        };
        self.changer().change(wish).map(drop)
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
        self.core.block()
    }

    /// The size of a buffer.
    #[must_use]
    pub fn buffer(&self) -> Bytes {
        self.core.buffer
    }

    /// How many buffers nobody else may use.
    #[must_use]
    pub fn buffers(&self) -> usize {
        self.core.buffers_min(self.core.buffer) + self.client.more.accounts().len()
    }

    /// What happened to the stream's blocks so far.
    #[must_use]
    pub fn status(&self) -> StreamStatus {
        streams::stream(&self.pool.io, &self.core)
    }

    /// As of [the stream](Stream::durable_bytes).
    #[must_use]
    pub fn durable_bytes(&self) -> u64 {
        self.core.durable_bytes()
    }

    /// The bytes of the volume that it is reserved for now.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.core.range()
    }

    /// Has it reserve what is wished for, all of it or nothing, after whatever else is being changed. Waits for blocks in flight unless only the
    /// buffers change, for others who have to give back memory, and for what is to be [read ahead](Wish::within). A block that is submitted meanwhile and is not in the
    /// range any more fails.
    ///
    /// # Errors
    /// As [`change_rate`](Stream::change_rate), when there is not that much memory, when the range would reach past
    /// the volume's end or touch more disks, and when a block cannot be as long.
    pub fn change(&self, wish: Wish) -> Result<Granted, Refusal> {
        if wish.is_of_range() {
            let turn = self.core.changes.lock();
            let changed = match (self.change_tasks(wish), self.core.ahead.rate_before()) {
                // What is reserved beside that for a while may go.
                (Err(Refusal::Load { .. }), Some(rate)) => self.change_tasks(Wish {
                    rate: Some(rate),
                    ..wish
                }),
                (changed, _) => changed,
            };
            drop(turn);
            self.client.nudge();
            return changed.map(|()| Granted::default());
        }
        let turn = self.core.turns.lock();
        let changed = match self.ahead_within(wish) {
            Some(within) => self.change_ahead(wish, within),
            None => self.change_now(wish).map(|()| Granted::default()),
        };
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

    /// For how long to read ahead before a change, if somebody reads what has longer blocks then.
    fn ahead_within(&self, wish: Wish) -> Option<Duration> {
        let is_longer = wish.block.is_some_and(|block| block > self.core.block());
        let is_read = self.core.op == Direction::Read && self.core.ahead.is_read();
        wish.within.filter(|_| is_longer && is_read)
    }

    /// The same in its turn, when what is read lasts until the first longer block is due, or nothing more can be read
    /// for that.
    fn change_ahead(&self, wish: Wish, within: Duration) -> Result<Granted, Refusal> {
        const DAY: Duration = Duration::from_secs(86_400);
        let until = Instant::now() + within.min(DAY);
        let (core, more) = (&self.core, &self.client.more);
        let turn = core.changes.lock();
        let after = self.check(wish, *turn)?;
        let (rate, to) = (core.rate(), self.changed_to(wish));
        let longest = exchange::try_change(self.reserved(), to)?;
        let before = more.accounts().len();
        more.add(self.accounts(after.saturating_sub(before))?);
        let lasts = rate.period_of(core.buffer).unwrap_or(Nanos::MAX);
        // What has been asked for last is due a period after that, and then the first of the new ones is asked for.
        let awaited = longest.saturating_add(core.longest_period());
        let buffers_in = |time: Nanos| {
            let buffers = time.0.div_ceil(lasts.0.max(1));
            usize::try_from(buffers).unwrap_or(usize::MAX)
        };
        let wanted = core.ahead.want(Target {
            block: to.block.0,
            buffers: buffers_in(awaited),
            buffer: core.buffer.0,
            period: buffers_in(longest),
            rate,
        });
        let faster = self.hurry(rate.max(to.rate));
        drop(turn);
        self.client.nudge();
        let missing = wanted.wait(until, Duration::from_nanos(lasts.0) * 2);
        let changed = self.change_now(Wish {
            rate: Some(to.rate),
            ..wish
        });
        if changed.is_err() {
            if faster.is_some() {
                // It fits, as less than what there is; or the stream is closed, and has nothing any more.
                let _: Result<_, _> = self.change_now(Wish {
                    rate: Some(rate),
                    ..Wish::default()
                });
            }
            more.shorten(before);
        }
        let late = Nanos(lasts.0.saturating_mul(missing as u64));
        let late = late.max(faster.unwrap_or_default());
        changed.map(|()| Granted { late })
    }

    /// Has it read at twice that rate, or as many times as it takes for nothing to come late for that, or at what fits of
    /// it; how much later something may come for that, or `None`: it is not faster than before.
    ///
    /// What was asked for last is due when a period of the old tasks is over, and what follows it one of the new ones later, but
    /// is to be there when it is played. So where blocks lie on several disks in turn, whose periods are as many times as
    /// long, it takes as many times the rate.
    fn hurry(&self, rate: BytesPerSecond) -> Option<Nanos> {
        let core = &self.core;
        let before = core.rate();
        let plays = before.period_of(core.block()).unwrap_or(Nanos::MAX);
        // Periods are rounded.
        let disks = core.longest_period().0.saturating_add(plays.0 / 2) / plays.0.max(1);
        // What does not fit is found out before anything waits for it.
        let at = |rate| {
            let to = self.changed_to(Wish {
                rate: Some(rate),
                ..Wish::default()
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

    /// The same at once, in its turn.
    fn change_now(&self, wish: Wish) -> Result<(), Refusal> {
        let turn = self.core.changes.lock();
        let more = &self.client.more;
        let after = self.check(wish, *turn)?;
        let before = more.accounts().len();
        let added = self.accounts(after.saturating_sub(before))?;
        more.add(added);
        let changed = self.change_tasks(wish);
        more.shorten(if changed.is_ok() { after } else { before });
        changed
    }

    /// Whether its blocks can be so long, while so many sessions move bytes, and how many buffers there are to be then
    /// beside those that it was admitted with.
    fn check(&self, wish: Wish, of_bytes: usize) -> Result<usize, Refusal> {
        let core = &self.core;
        let block = wish.block.unwrap_or_else(|| core.block());
        if block != core.block() && of_bytes > 0 {
            return Err(Refusal::Invalid {
                what: "the block size",
                reason: "the stream moves bytes, whose blocks stay as they are".to_owned(),
                remedy: "reserve a new one",
            });
        }
        check_other_block(&self.pool.io, core, block)?;
        self.more_buffers(wish, block)
    }

    fn reserved(&self) -> Reserved<'_> {
        Reserved {
            pool: &self.pool,
            volume: &self.volume,
            core: &self.core,
        }
    }

    fn as_it_is(&self) -> Changed {
        Changed {
            rate: self.core.rate(),
            end: self.core.range().end,
            block: self.core.block(),
        }
    }

    fn changed_to(&self, wish: Wish) -> Changed {
        let now = self.as_it_is();
        Changed {
            rate: wish.rate.unwrap_or(now.rate),
            end: wish.end.map_or(now.end, |end| end.0),
            block: wish.block.unwrap_or(now.block),
        }
    }

    fn change_tasks(&self, wish: Wish) -> Result<(), Refusal> {
        if wish.rate.is_none() && wish.end.is_none() && wish.block.is_none() {
            return Ok(());
        }
        let (core, to) = (&self.core, self.changed_to(wish));
        // Of one that is closed it is said.
        if to == self.as_it_is() && !core.is_closing() {
            return Ok(());
        }
        exchange::change(self.reserved(), to)
    }

    /// How many buffers there are to be beside those that it was admitted with, if a block is so long.
    fn more_buffers(&self, wish: Wish, block: Bytes) -> Result<usize, Refusal> {
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
                "{count} of {} each are not between {least}, which hold two blocks of {block} for each disk that the stream touches, and {BUFFERS_MAX}",
                core.buffer
            ),
            remedy: "ask for that many, or for blocks of another size",
        })
    }

    /// Accounts of a buffer each.
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
