//! A session: a reservation, its byte stream, and the report about its blocks.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use engine::stream::{BlockReport, PaceError, PaceReport, Player, Recorder, Stop, Stream};
use hdrhistogram::Histogram;
use sched::units::{Bytes, Time};

use super::SessionError;
use super::blocks::{BlockOrder, Blocks};
use super::planned::Planned;
use crate::wire::ask::StreamOp;
use crate::wire::streams::{BlockView, PaceView, SessionState, SessionView};
use crate::wire::view::{LatencyView, PlannedView, StreamView};

/// Number of hexadecimal digits of a token.
pub(super) const TOKEN_DIGITS: usize = 32;

/// The state and the report of a session.
struct Account {
    state: SessionState,
    stream: Reservation,
    pace: PaceView,
    margin: Histogram<u64>,
    response: Histogram<u64>,
    blocks: Blocks,
}

/// The stream of a session.
enum Reservation {
    Open(Arc<Stream>),
    /// The session has ended. This is the last state of the stream.
    Freed(Box<StreamView>),
}

impl Account {
    /// True if the session waits for its byte stream.
    fn awaits_connection(&self) -> bool {
        self.state == SessionState::Reserved && self.stream().is_some()
    }

    fn stream(&self) -> Option<&Arc<Stream>> {
        match &self.stream {
            Reservation::Open(stream) => Some(stream),
            Reservation::Freed(_) => None,
        }
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
    /// Set after the account has lost its stream: freeing the reservation may wait for a disk.
    is_freed: AtomicBool,
    ended: Condvar,
}

fn histogram() -> Histogram<u64> {
    // Nanoseconds to two digits. The range grows as needed.
    Histogram::new(2).expect("two significant digits are allowed")
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // These locks protect counters and lists, which are valid after any panic.
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
    /// Makes a session that waits for its byte stream, at most for the time `wait`.
    ///
    /// # Errors
    /// If the host has no descriptor or no random numbers.
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
            planned: Planned::new(&stream),
            account: Mutex::new(Account {
                state: SessionState::Reserved,
                stream: Reservation::Open(Arc::new(stream)),
                pace: PaceView::default(),
                margin: histogram(),
                response: histogram(),
                blocks: Blocks::default(),
            }),
            is_freed: AtomicBool::new(false),
            ended: Condvar::new(),
        })
    }

    /// The session's number.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The token for the data socket.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The session's reservation.
    ///
    /// # Errors
    /// If the session has ended.
    pub fn stream(&self) -> Result<Arc<Stream>, SessionError> {
        lock(&self.account)
            .stream()
            .cloned()
            .ok_or(SessionError::Ended(self.id))
    }

    /// The time span relative to `now`, if the session is reserved for one.
    pub(super) fn planned(&self, now: Time) -> Option<PlannedView> {
        Some(self.planned.as_ref()?.view(self.id, now))
    }

    /// True if the session has ended and its reservation is free.
    pub(super) fn is_freed(&self) -> bool {
        self.is_freed.load(Ordering::Acquire)
    }

    /// Ends the session if no client has connected in time. Returns true if it did.
    pub(super) fn expire(&self, now: Instant) -> bool {
        let account = lock(&self.account);
        let is_late = self.expires <= now && account.awaits_connection();
        if is_late {
            let reason = "no client connected in time".to_owned();
            self.free(account, SessionState::Failed(reason));
        }
        is_late
    }

    /// Marks the session as connected. Returns false if it is connected already, or has ended.
    pub(super) fn claim(&self) -> bool {
        let mut account = lock(&self.account);
        let is_free = account.awaits_connection();
        if is_free {
            account.state = SessionState::Running;
        }
        is_free
    }

    /// The state and the report of the session.
    #[must_use]
    pub fn view(&self) -> SessionView {
        let account = lock(&self.account);
        let mut pace = account.pace;
        let stream = match &account.stream {
            Reservation::Open(stream) => {
                pace.durable_bytes = stream.durable_bytes();
                StreamView::from(stream.status())
            }
            Reservation::Freed(last) => last.as_ref().clone(),
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

    /// The current state. The account does not record when the time span begins.
    fn state(&self, account: &Account) -> SessionState {
        let is_to_come = |planned: &Planned| planned.begins_after(engine::clock::now());
        match account.state {
            SessionState::Running if self.planned.as_ref().is_some_and(is_to_come) => {
                SessionState::Planned
            }
            ref state => state.clone(),
        }
    }

    /// The reported blocks from number `from` on, at most `limit`. While the session runs, they end before the first
    /// block in flight.
    #[must_use]
    pub fn blocks(&self, from: u64, limit: usize) -> Vec<BlockView> {
        let account = lock(&self.account);
        let order = match account.stream {
            Reservation::Open(_) => BlockOrder::Contiguous,
            Reservation::Freed(_) => BlockOrder::WithGaps,
        };
        account.blocks.list(from, limit, order)
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
        // A histogram of this kind accepts every value.
        if let Some(deadline) = block.deadline {
            let margin = deadline.saturating_since(block.completed);
            let _ = account.margin.record(margin.get());
        }
        let _ = account.response.record(response.get());
        account.blocks.add(BlockView::from(block));
    }

    /// Grants the client of a [claimed](super::Sessions::claim) session its byte stream, and moves its bytes on the
    /// calling thread until the stream ends.
    pub fn serve(&self, mut connection: UnixStream) {
        match super::data::grant(&mut connection) {
            Ok(()) => self.run(&connection),
            Err(error) => self.end(Err(PaceError::Peer(error))),
        }
    }

    fn run(&self, connection: &UnixStream) {
        let Ok(stream) = self.stream() else { return };
        let _guard = FreeGuard(self);
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
        self.free(account, state);
    }

    /// Frees the reservation and keeps the last state of the stream. This may wait for a disk, without the lock. The
    /// session counts as ended afterwards.
    fn free(&self, mut account: MutexGuard<'_, Account>, state: SessionState) {
        let Some(stream) = account.stream().cloned() else {
            return;
        };
        account.pace.durable_bytes = stream.durable_bytes();
        account.stream = Reservation::Freed(Box::new(StreamView::from(stream.status())));
        drop(account);
        let last = match Arc::try_unwrap(stream) {
            Ok(stream) => stream.close(),
            // Another thread is reading its status. The last reference closes it.
            Err(shared) => shared.status(),
        };
        let mut account = lock(&self.account);
        account.stream = Reservation::Freed(Box::new(StreamView::from(last)));
        account.state = state;
        self.is_freed.store(true, Ordering::Release);
        self.ended.notify_all();
    }

    /// Requests the end of the session. Without a byte stream it ends at once. Returns true if a client was connected.
    pub(super) fn request_end(&self, state: SessionState) -> bool {
        let mut account = lock(&self.account);
        match account.state {
            SessionState::Reserved => self.free(account, state),
            SessionState::Planned | SessionState::Running => {
                account.state = SessionState::Stopped;
                self.stop.stop();
                return true;
            }
            SessionState::Stopped | SessionState::Done | SessionState::Failed(_) => {}
        }
        false
    }

    /// Waits until the reservation is free.
    pub(super) fn wait_for_end(&self) {
        let account = lock(&self.account);
        drop(
            self.ended
                .wait_while(account, |_| !self.is_freed())
                .unwrap_or_else(PoisonError::into_inner),
        );
    }
}

/// Frees the reservation even if the thread that moves the bytes panics.
struct FreeGuard<'a>(&'a Session);

impl Drop for FreeGuard<'_> {
    fn drop(&mut self) {
        let reason = "the server failed while it served this stream".to_owned();
        let account = lock(&self.0.account);
        self.0.free(account, SessionState::Failed(reason));
    }
}

/// 128 random bits in hexadecimal, so that no client can guess the token of another.
fn token() -> io::Result<String> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
