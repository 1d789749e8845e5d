//! A session: a reservation, its byte stream, and the account of its blocks.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use engine::stream::{BlockReport, PaceError, PaceReport, Player, Recorder, Stop, Stream};
use hdrhistogram::Histogram;
use sched::units::{Bytes, Time};

use super::SessionError;
use super::blocks::Blocks;
use super::planned::Planned;
use crate::wire::ask::StreamOp;
use crate::wire::streams::{BlockView, PaceView, SessionState, SessionView};
use crate::wire::view::{LatencyView, PlannedView, StreamView};

/// How many hexadecimal digits a token has.
pub(super) const TOKEN_DIGITS: usize = 32;

/// What a session keeps of its blocks.
struct Account {
    state: SessionState,
    /// Set until the session ends; then its last word is in `last`.
    stream: Option<Arc<Stream>>,
    last: Option<StreamView>,
    pace: PaceView,
    margin: Histogram<u64>,
    response: Histogram<u64>,
    blocks: Blocks,
}

impl Account {
    /// Whether its byte stream may still come.
    fn waits(&self) -> bool {
        self.state == SessionState::Reserved && self.stream.is_some()
    }
}

/// A reservation and its byte stream.
pub struct Session {
    id: u64,
    op: StreamOp,
    limit: Option<Bytes>,
    token: String,
    expires: Instant,
    stop: Stop,
    planned: Option<Planned>,
    account: Mutex<Account>,
    /// Not at once when the account has no stream any more: giving it back may wait for a disk.
    is_given_back: AtomicBool,
    ended: Condvar,
}

fn histogram() -> Histogram<u64> {
    // Nanoseconds to two digits, from zero up to what comes: it grows.
    Histogram::new(2).expect("two significant digits are allowed")
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is kept under these locks is counters and lists: valid after any panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn latency(histogram: &Histogram<u64>) -> LatencyView {
    LatencyView {
        count: histogram.len(),
        mean_ns: histogram.mean() as u64,
        p50_ns: histogram.value_at_quantile(0.5),
        p99_ns: histogram.value_at_quantile(0.99),
        max_ns: histogram.max(),
    }
}

impl Session {
    /// A reservation that waits for its byte stream, at most `wait`.
    ///
    /// # Errors
    /// When the host has no descriptor or randomness left.
    pub(super) fn new(
        id: u64,
        stream: Stream,
        op: StreamOp,
        limit: Option<Bytes>,
        wait: Duration,
    ) -> io::Result<Self> {
        Ok(Self {
            id,
            op,
            limit,
            token: token()?,
            expires: Instant::now() + wait,
            stop: Stop::new()?,
            planned: Planned::of(&stream),
            account: Mutex::new(Account {
                state: SessionState::Reserved,
                stream: Some(Arc::new(stream)),
                last: None,
                pace: PaceView::default(),
                margin: histogram(),
                response: histogram(),
                blocks: Blocks::default(),
            }),
            is_given_back: AtomicBool::new(false),
            ended: Condvar::new(),
        })
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// What to send on the data socket.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Its reservation, until it ends.
    ///
    /// # Errors
    /// When it has ended.
    pub fn stream(&self) -> Result<Arc<Stream>, SessionError> {
        lock(&self.account)
            .stream
            .clone()
            .ok_or(SessionError::Ended(self.id))
    }

    /// Its span, as that is seen at `now`, if it is reserved for one.
    pub(super) fn planned(&self, now: Time) -> Option<PlannedView> {
        Some(self.planned.as_ref()?.view(self.id, now))
    }

    /// Whether it has ended and its share is free.
    pub(super) fn is_given_back(&self) -> bool {
        self.is_given_back.load(Ordering::Acquire)
    }

    /// Ends it if nobody has connected to it in time; whether it did.
    pub(super) fn expire(&self, now: Instant) -> bool {
        let account = lock(&self.account);
        let is_late = self.expires <= now && account.waits();
        if is_late {
            let reason = "nobody connected to it in time".to_owned();
            self.give_back(account, SessionState::Failed(reason));
        }
        is_late
    }

    /// Takes it for the byte stream that has come, unless there is one already or it has ended.
    pub(super) fn claim(&self) -> bool {
        let mut account = lock(&self.account);
        let waits = account.waits();
        if waits {
            account.state = SessionState::Running;
        }
        waits
    }

    /// How things stand.
    #[must_use]
    pub fn view(&self) -> SessionView {
        let account = lock(&self.account);
        let mut pace = account.pace;
        if let Some(stream) = &account.stream {
            pace.durable_bytes = stream.durable_bytes();
        }
        let stream = match (&account.stream, &account.last) {
            (Some(stream), _) => StreamView::from(stream.status()),
            (None, Some(last)) => last.clone(),
            (None, None) => unreachable!("a session without a stream keeps the stream's last word"),
        };
        SessionView {
            id: self.id,
            op: self.op,
            state: self.state(&account),
            stream,
            pace,
            margin: latency(&account.margin),
            response: latency(&account.response),
        }
    }

    /// What stage it is at now. Its account does not hear of the moment when its time begins.
    fn state(&self, account: &Account) -> SessionState {
        let is_to_come = |planned: &Planned| planned.begins_after(engine::clock::now());
        match account.state {
            SessionState::Running if self.planned.as_ref().is_some_and(is_to_come) => {
                SessionState::Planned
            }
            ref state => state.clone(),
        }
    }

    /// The blocks kept, from number `from` on, at most `limit`: while it runs, those before the first
    /// that is not done.
    #[must_use]
    pub fn blocks(&self, from: u64, limit: usize) -> Vec<BlockView> {
        let account = lock(&self.account);
        account.blocks.from(from, limit, account.stream.is_some())
    }

    fn note(&self, block: &BlockReport) {
        let mut account = lock(&self.account);
        account.pace.blocks += 1;
        account.pace.bytes += block.bytes;
        account.pace.misses += u64::from(!block.late_net.is_zero());
        account.pace.misses_gross += u64::from(!block.late.is_zero());
        account.pace.late_max_ns = account.pace.late_max_ns.max(block.late.get());
        account.pace.late_net_max_ns = account.pace.late_net_max_ns.max(block.late_net.get());
        let response = block.completed.saturating_since(block.submitted);
        // A histogram that grows takes every value.
        if let Some(deadline) = block.deadline {
            let margin = deadline.saturating_since(block.completed);
            let _ = account.margin.record(margin.get());
        }
        let _ = account.response.record(response.get());
        account.blocks.add(BlockView::from(block));
    }

    /// Tells the client of a session that it [claimed](super::Sessions::claim) that it may begin, and moves its
    /// bytes to the end on the calling thread.
    pub fn serve(&self, mut connection: UnixStream) {
        match super::data::grant(&mut connection) {
            Ok(()) => self.run(&connection),
            Err(error) => self.end(Err(PaceError::Peer(error))),
        }
    }

    /// Moves its bytes; returns when that has ended.
    fn run(&self, connection: &UnixStream) {
        let Ok(stream) = self.stream() else { return };
        let _guard = EndGuard(self);
        let mut on_block = |block: &BlockReport| self.note(block);
        let result = match self.op {
            StreamOp::Record => Recorder::new(&stream, Bytes::ZERO).limit(self.limit).run(
                connection,
                &self.stop,
                &mut on_block,
            ),
            StreamOp::Play => Player::new(&stream, Bytes::ZERO).limit(self.limit).run(
                connection,
                &self.stop,
                &mut on_block,
            ),
        };
        drop(stream);
        self.end(result);
    }

    fn end(&self, result: Result<PaceReport, PaceError>) {
        let mut account = lock(&self.account);
        let state = match result {
            Ok(report) => {
                account.pace = PaceView::from(report);
                if account.state == SessionState::Stopped {
                    SessionState::Stopped
                } else {
                    SessionState::Done
                }
            }
            Err(error) => {
                tracing::warn!(stream = self.id, %error, "a stream ended early");
                SessionState::Failed(error.to_string())
            }
        };
        self.give_back(account, state);
    }

    /// Ends the reservation, keeps its last word. Giving a share back may wait for a disk: meanwhile
    /// others may look at the account, which says so only afterwards.
    fn give_back(&self, mut account: MutexGuard<'_, Account>, state: SessionState) {
        let Some(stream) = account.stream.take() else {
            return;
        };
        account.pace.durable_bytes = stream.durable_bytes();
        account.last = Some(StreamView::from(stream.status()));
        drop(account);
        let last = match Arc::try_unwrap(stream) {
            Ok(stream) => stream.close(),
            // Somebody is asking it something at this moment; the last one to drop it closes it.
            Err(shared) => shared.status(),
        };
        let mut account = lock(&self.account);
        account.last = Some(StreamView::from(last));
        account.state = state;
        self.is_given_back.store(true, Ordering::Release);
        self.ended.notify_all();
    }

    /// Asks it to end; a session without a byte stream ends at once.
    /// Whether it ended a byte stream that somebody is connected to.
    pub(super) fn ask_to_end(&self, state: SessionState) -> bool {
        let mut account = lock(&self.account);
        match account.state {
            SessionState::Reserved => self.give_back(account, state),
            SessionState::Planned | SessionState::Running => {
                account.state = SessionState::Stopped;
                self.stop.stop();
                return true;
            }
            SessionState::Stopped | SessionState::Done | SessionState::Failed(_) => {}
        }
        false
    }

    /// Waits until it has given its reservation back.
    pub(super) fn wait_for_end(&self) {
        let account = lock(&self.account);
        drop(
            self.ended
                .wait_while(account, |_| !self.is_given_back())
                .unwrap_or_else(PoisonError::into_inner),
        );
    }
}

/// Gives the reservation back even when the thread that moved the bytes panics.
struct EndGuard<'a>(&'a Session);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        let reason = "the server failed at this stream".to_owned();
        let account = lock(&self.0.account);
        self.0.give_back(account, SessionState::Failed(reason));
    }
}

/// 128 random bits, as text: nobody guesses somebody else's stream.
fn token() -> io::Result<String> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
