//! The sessions of a server: their counts, and changes of their reservation from outside.
//!
//! A session is listed from its reservation until that is given back, and one of a live stream, which has none, from
//! its first SETUP to its end. It publishes its counts here, so that a list of
//! sessions never waits for one of them.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use engine::event::EventFd;
use engine::status::StreamStatus;
use engine::stream::{BufferUse, Change, ChangeResult, Changer, Refusal, Stream, StreamChange};
use sched::units::BytesPerSecond;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::session::Scale;

/// How long a change to longer blocks may wait until enough has been read ahead to bridge the first of them.
const AHEAD_WITHIN: Duration = Duration::from_secs(20);

/// The use of a session's reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[schema(as = SessionDoes)]
pub enum SessionUse {
    /// It records what is published.
    Records,
    /// It records from a camera that is pulled from.
    Pulls,
    /// It plays.
    Plays,
    /// It plays a live stream from memory, without a reservation.
    Watches,
    /// It sends or pulls a stream that is live only, without a reservation.
    Relays,
}

/// The peer of a session, and what it records or plays.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionSubject {
    /// The peer: an address, or the name of a source.
    pub who: String,
    /// The use of its reservation.
    pub does: SessionUse,
    /// The volume, or the name of a stream that is live only.
    pub volume: String,
    /// The recording in it; 0 of a stream that is live only.
    pub recording: u64,
}

/// Counts of a session.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = SessionCounts)]
pub struct Counts {
    /// Buffers borrowed from memory that no other stream wants at the moment.
    pub buffers_borrowed: u64,
    /// Buffers that it may borrow at most.
    pub buffers_borrowed_max: u64,
    /// Buffers that are full or on their way to or from the disks, of all of them.
    pub buffers_full: u64,
    /// The highest value of `buffers_full`.
    pub buffers_full_max: u64,
    /// RTP packets that were recorded or played.
    pub packets: u64,
    /// RTCP packets that were recorded; of a player 0.
    pub reports: u64,
    /// Bytes of both.
    pub bytes: u64,
    /// Packets that did not arrive or could not be recorded; of a player, blocks that could not be played; of a player
    /// of a live stream, packets that it was too slow for.
    pub lost: u64,
    /// Packets among `lost` before which no buffer was free.
    pub lost_without_buffer: u64,
    /// Number of times it has changed its rate by itself.
    pub rate_changes: u64,
    /// Why its last request for another rate was refused, if it was.
    pub refused: Option<String>,
}

impl Counts {
    /// Sets the counts of buffers.
    pub(crate) fn use_buffers(&mut self, buffers: BufferUse) {
        self.buffers_borrowed = buffers.borrowed as u64;
        self.buffers_full = buffers.full as u64;
        self.buffers_full_max = self.buffers_full_max.max(self.buffers_full);
    }
}

/// A session.
pub struct Session {
    number: u64,
    about: SessionSubject,
    /// The handle to its reservation, if it has one.
    changer: Option<Changer>,
    /// The rate that was asked for at first, or last from outside, in bytes per second.
    promised: AtomicU64,
    /// The speed at which it is sent, in thousandths of the one at which it is shown: `promised` times this is
    /// reserved.
    speed: AtomicI64,
    counts: Mutex<Counts>,
    /// Signalled when it is to end, and never drained.
    end: EventFd,
    removal: Arc<RemovalNotice>,
}

/// Wakes those that wait for the end of a session.
#[derive(Default)]
struct RemovalNotice {
    lock: Mutex<()>,
    removed: Condvar,
}

impl RemovalNotice {
    fn locked(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.removal.locked());
        self.removal.removed.notify_all();
    }
}

impl Session {
    /// Its number, which is unique in this server.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Its peer, and what it records or plays.
    #[must_use]
    pub fn about(&self) -> &SessionSubject {
        &self.about
    }

    /// The handle to its reservation; `None` if it has none.
    #[must_use]
    pub fn changer(&self) -> Option<&Changer> {
        self.changer.as_ref()
    }

    /// The rate that was asked for at first, or last from outside; of a player the rate at the original speed.
    #[must_use]
    pub fn promised(&self) -> BytesPerSecond {
        BytesPerSecond(self.promised.load(Ordering::Relaxed))
    }

    pub(crate) fn promise(&self, rate: BytesPerSecond) {
        self.promised.store(rate.0, Ordering::Relaxed);
    }

    /// It is sent at this speed, and its reservation is that many times the promised one.
    pub(crate) fn plays_at(&self, speed: Scale) {
        self.speed.store(speed.0, Ordering::Relaxed);
    }

    /// The state of its reserved stream; `None` if it has none.
    #[must_use]
    pub fn status(&self) -> Option<StreamStatus> {
        self.changer.as_ref().map(Changer::status)
    }

    /// Readable when it was ended from outside.
    pub(crate) fn ends(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }

    /// Its counts.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.locked().clone()
    }

    /// Changes its counts.
    pub(crate) fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.locked());
    }

    fn locked(&self) -> MutexGuard<'_, Counts> {
        // The counts are valid after a panic as well.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes its reservation, all of it or nothing, and waits for that. Must not be called by the session's own
    /// thread.
    ///
    /// # Errors
    /// As [`Changer::change`].
    pub fn change(&self, wish: StreamChange) -> Result<(), Refusal> {
        let Some(changer) = &self.changer else {
            return Err(Refusal::Invalid {
                what: "session",
                reason: format!(
                    "session {} plays or sends a live stream and has no reservation",
                    self.number
                ),
                remedy: "`clockwise session list` shows the sessions that have one",
            });
        };
        let granted = changer.change(in_time(wish))?;
        self.granted(wish, granted);
        Ok(())
    }

    /// Begins a change of its reservation; [`granted`](Self::granted) has to be called when it is done.
    pub(crate) fn begin(&self, wish: StreamChange) -> io::Result<Change> {
        let changer = self.changer.clone();
        let changer = changer.ok_or_else(|| io::Error::other("the session has no reservation"))?;
        changer.begin(in_time(wish))
    }

    /// A change of its reservation is done.
    pub(crate) fn granted(&self, wish: StreamChange, ChangeResult { late }: ChangeResult) {
        if !late.is_zero() {
            let session = self.number;
            let block_bytes = self.changer.as_ref().map_or(0, |of| of.block().get());
            let late_ms = late.get() / 1_000_000;
            tracing::warn!(
                session,
                block_bytes,
                late_ms,
                "the block size grows beyond the data that is read ahead: packets may be late once"
            );
        }
        if let Some(rate) = wish.rate {
            let speed = Scale(self.speed.load(Ordering::Relaxed));
            self.promise(speed.as_it_was(rate));
        }
    }
}

/// A wish whose change waits until enough has been read ahead: packets are sent in time meanwhile.
fn in_time(wish: StreamChange) -> StreamChange {
    StreamChange {
        within: Some(AHEAD_WITHIN),
        ..wish
    }
}

/// The sessions of a server.
#[derive(Default)]
pub struct SessionRegistry {
    last: AtomicU64,
    members: Mutex<BTreeMap<u64, Weak<Session>>>,
    removal: Arc<RemovalNotice>,
}

impl SessionRegistry {
    fn locked(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<Session>>> {
        // The map is valid after a panic: each change of it is one step.
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists a session that has reserved a stream, until the result is dropped.
    ///
    /// # Errors
    /// When the host has no descriptor left.
    pub fn join(&self, about: SessionSubject, stream: &Stream) -> io::Result<Arc<Session>> {
        self.add(about, Some((stream.changer(), stream.rate())))
    }

    /// Lists a session without a reservation, until the result is dropped.
    ///
    /// # Errors
    /// When the host has no descriptor left.
    pub fn join_live(&self, about: SessionSubject) -> io::Result<Arc<Session>> {
        self.add(about, None)
    }

    fn add(
        &self,
        about: SessionSubject,
        reserved: Option<(Changer, BytesPerSecond)>,
    ) -> io::Result<Arc<Session>> {
        let (changer, rate) = reserved.unzip();
        let member = Arc::new(Session {
            number: self.last.fetch_add(1, Ordering::Relaxed) + 1,
            about,
            changer,
            promised: AtomicU64::new(rate.map_or(0, |rate| rate.0)),
            speed: AtomicI64::new(Scale::ONE.0),
            counts: Mutex::default(),
            end: EventFd::new()?,
            removal: Arc::clone(&self.removal),
        });
        let mut members = self.locked();
        members.retain(|_, of| of.strong_count() > 0);
        members.insert(member.number, Arc::downgrade(&member));
        Ok(member)
    }

    /// Ends a session, and waits until it has given back its reservation. Everything it has recorded is durable then.
    pub fn end(&self, member: Arc<Session>) {
        member.end.signal();
        let session = Arc::downgrade(&member);
        drop(member);
        let mut lock = self.removal.locked();
        while session.strong_count() > 0 {
            let removed = self.removal.removed.wait(lock);
            lock = removed.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// All sessions, oldest first.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Session>> {
        self.locked().values().filter_map(Weak::upgrade).collect()
    }

    /// A session by its number.
    #[must_use]
    pub fn get(&self, number: u64) -> Option<Arc<Session>> {
        self.locked().get(&number)?.upgrade()
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("number", &self.number)
            .field("about", &self.about)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for SessionRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionRegistry").finish_non_exhaustive()
    }
}
