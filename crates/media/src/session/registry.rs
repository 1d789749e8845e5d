//! Who has something reserved over RTSP: what each has, how full its buffers are, and what changes it from outside.
//!
//! A session is a member from its reservation on until that is given back. What it counts it says here each time it
//! has counted, so that whoever lists sessions never waits for one.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use engine::event::EventFd;
use engine::status::StreamStatus;
use engine::stream::{BufferUse, Change, Changer, Granted, Refusal, Stream, Wish};
use sched::units::BytesPerSecond;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::session::Scale;

/// How long blocks may wait to become longer until what is played lasts until the first of those comes.
const AHEAD_WITHIN: Duration = Duration::from_secs(20);

/// What a session does with its reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[schema(as = SessionDoes)]
pub enum Does {
    /// It records what is published.
    Records,
    /// It records from a camera that is pulled from.
    Pulls,
    /// It plays.
    Plays,
}

/// What a session is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct About {
    /// Who is at the other end: an address, or the name of a source.
    pub who: String,
    /// What it does.
    pub does: Does,
    /// The volume.
    pub volume: String,
    /// The recording in it.
    pub recording: u64,
}

/// What a session has counted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = SessionCounts)]
pub struct Counts {
    /// Buffers that are borrowed from what nobody else wants at the moment.
    pub buffers_borrowed: u64,
    /// How many it may borrow at most.
    pub buffers_borrowed_max: u64,
    /// Buffers that are full or on their way to or from the disks, of all of them.
    pub buffers_full: u64,
    /// How many that were at most.
    pub buffers_full_max: u64,
    /// RTP packets that were recorded or played.
    pub packets: u64,
    /// What senders said of them, which is recorded as well (RTCP); of a player 0.
    pub reports: u64,
    /// Bytes of both.
    pub bytes: u64,
    /// Packets that never came or could not be recorded; of a player, blocks that could not be played.
    pub lost: u64,
    /// Packets among them before which no buffer was free.
    pub lost_without_buffer: u64,
    /// How often it has changed its rate by itself.
    pub rate_changes: u64,
    /// Why it did not get the rate that it asked for last, if it did not.
    pub refused: Option<String>,
}

impl Counts {
    /// Its buffers are used like this now.
    pub(crate) fn use_buffers(&mut self, buffers: BufferUse) {
        self.buffers_borrowed = buffers.borrowed as u64;
        self.buffers_full = buffers.full as u64;
        self.buffers_full_max = self.buffers_full_max.max(self.buffers_full);
    }
}

/// A session that has something reserved.
pub struct Session {
    number: u64,
    about: About,
    changer: Changer,
    /// What was asked for at first, or by somebody since, in bytes per second.
    promised: AtomicU64,
    /// How fast it is sent, of how fast it is shown, in thousandths: as much more is reserved than was promised.
    speed: AtomicI64,
    counts: Mutex<Counts>,
    /// Signalled when it is to end, and never drained.
    end: EventFd,
    gone: Arc<Gone>,
}

/// Tells that sessions have gone.
#[derive(Default)]
struct Gone {
    lock: Mutex<()>,
    told: Condvar,
}

impl Gone {
    fn locked(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.gone.locked());
        self.gone.told.notify_all();
    }
}

impl Session {
    /// Its number, which no other session of this server has.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What it is about.
    #[must_use]
    pub fn about(&self) -> &About {
        &self.about
    }

    /// What changes its reservation.
    #[must_use]
    pub fn changer(&self) -> &Changer {
        &self.changer
    }

    /// What was asked for at first, or by somebody since: for a player what playing the recording as it was takes.
    #[must_use]
    pub fn promised(&self) -> BytesPerSecond {
        BytesPerSecond(self.promised.load(Ordering::Relaxed))
    }

    pub(crate) fn promise(&self, rate: BytesPerSecond) {
        self.promised.store(rate.0, Ordering::Relaxed);
    }

    /// It is sent so fast now, of how fast it is shown, and has as much more reserved.
    pub(crate) fn plays_at(&self, speed: Scale) {
        self.speed.store(speed.0, Ordering::Relaxed);
    }

    /// What happened to its blocks.
    #[must_use]
    pub fn status(&self) -> StreamStatus {
        self.changer.status()
    }

    /// Readable when somebody has ended it.
    pub(crate) fn ends(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }

    /// What it has counted.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.locked().clone()
    }

    /// Counts.
    pub(crate) fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.locked());
    }

    fn locked(&self) -> MutexGuard<'_, Counts> {
        // Numbers are numbers after any panic.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has it reserve what somebody wishes, all of it or nothing; waits until it has. Not for the session's own thread.
    ///
    /// # Errors
    /// As [`Changer::change`].
    pub fn change(&self, wish: Wish) -> Result<(), Refusal> {
        let granted = self.changer.change(in_time(wish))?;
        self.granted(wish, granted);
        Ok(())
    }

    /// The same beside what the session does; [`granted`](Self::granted) has to follow.
    pub(crate) fn begin(&self, wish: Wish) -> io::Result<Change> {
        self.changer.clone().begin(in_time(wish))
    }

    /// It has what somebody wished.
    pub(crate) fn granted(&self, wish: Wish, Granted { late }: Granted) {
        if !late.is_zero() {
            let session = self.number;
            let block_bytes = self.changer.block().get();
            let late_ms = late.get() / 1_000_000;
            tracing::warn!(
                session,
                block_bytes,
                late_ms,
                "blocks become longer and less is read ahead than that takes: packets may come late once"
            );
        }
        if let Some(rate) = wish.rate {
            let speed = Scale(self.speed.load(Ordering::Relaxed));
            self.promise(speed.as_it_was(rate));
        }
    }
}

/// What is played is to come in time also while that is granted.
fn in_time(wish: Wish) -> Wish {
    Wish {
        within: Some(AHEAD_WITHIN),
        ..wish
    }
}

/// The sessions of a server.
#[derive(Default)]
pub struct SessionRegistry {
    last: AtomicU64,
    members: Mutex<BTreeMap<u64, Weak<Session>>>,
    gone: Arc<Gone>,
}

impl SessionRegistry {
    fn locked(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<Session>>> {
        // A list, changed in one step.
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session has reserved a stream; it is listed for as long as this is kept.
    ///
    /// # Errors
    /// When the host has no descriptors left.
    pub fn join(&self, about: About, stream: &Stream) -> io::Result<Arc<Session>> {
        let member = Arc::new(Session {
            number: self.last.fetch_add(1, Ordering::Relaxed) + 1,
            about,
            changer: stream.changer(),
            promised: AtomicU64::new(stream.rate().0),
            speed: AtomicI64::new(Scale::ONE.0),
            counts: Mutex::default(),
            end: EventFd::new()?,
            gone: Arc::clone(&self.gone),
        });
        let mut members = self.locked();
        members.retain(|_, of| of.strong_count() > 0);
        members.insert(member.number, Arc::downgrade(&member));
        Ok(member)
    }

    /// Ends a session, and waits until it has given back what it reserved: what it has recorded is durable then.
    pub fn end(&self, member: Arc<Session>) {
        member.end.signal();
        let left = Arc::downgrade(&member);
        drop(member);
        let mut lock = self.gone.locked();
        while left.strong_count() > 0 {
            let told = self.gone.told.wait(lock);
            lock = told.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// All sessions, in the order in which they came.
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
