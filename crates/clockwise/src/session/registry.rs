//! The sessions of a server.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use engine::stream::{BlockReport, PaceError, PaceReport, Player, Recorder, Stop, Stream};
use hdrhistogram::Histogram;
use sched::units::{Bytes, Time};

use super::blocks::Blocks;
use super::planned::Planned;
use super::{BlockView, PaceView, SessionState, SessionView};
use crate::http::ask::StreamOp;
use crate::http::view::{LatencyView, PlannedView, StreamView};

/// How long a reservation waits for its byte stream unless it says otherwise.
pub const RESERVATION_WAIT: Duration = Duration::from_secs(10);

/// Ended sessions whose reports are kept until they are deleted; older ones go first.
const ENDED_KEPT_MAX: usize = 256;

/// Why a session cannot do what is asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SessionError {
    /// There is none of that number.
    #[error("there is no stream {0}")]
    Unknown(u64),
    /// No reservation waits for that token.
    #[error(
        "no reservation waits for this token; it expired, was cancelled, or is connected already"
    )]
    Token,
    /// It ended.
    #[error("stream {0} has ended")]
    Ended(u64),
    /// The server is going down.
    #[error("the server is ending")]
    Closing,
    /// The host gave no descriptor or no random numbers.
    #[error("no stream can be taken on: {0}")]
    Host(String),
}

/// How a session came to its end.
pub type Ended = SessionState;

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

/// A reservation and its byte stream.
pub struct Session {
    id: u64,
    op: StreamOp,
    offset: Bytes,
    limit: Option<Bytes>,
    token: String,
    expires: Instant,
    stop: Stop,
    planned: Option<Planned>,
    account: Mutex<Account>,
    /// Beside the account, whose lock is held while a reservation is given back: that may wait for a disk.
    is_given_back: AtomicBool,
    ended: Condvar,
}

fn histogram() -> Histogram<u64> {
    // Nanoseconds to two digits, from zero up to what comes: it grows.
    Histogram::new(2).expect("two significant digits are allowed")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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
            state: account.state.clone(),
            stream,
            pace,
            margin: latency(&account.margin),
            response: latency(&account.response),
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

    /// Tells the client of a session that it [claimed](Sessions::claim) that it may begin, and moves its
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
            StreamOp::Record => {
                let recorder = Recorder::new(&stream, self.offset);
                let recorder = match self.limit {
                    Some(limit) => recorder.limit(limit),
                    None => recorder,
                };
                recorder.run(connection, &self.stop, &mut on_block)
            }
            StreamOp::Play => {
                let player = Player::new(&stream, self.offset);
                let player = match self.limit {
                    Some(limit) => player.limit(limit),
                    None => player,
                };
                player.run(connection, &self.stop, &mut on_block)
            }
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
        self.give_back(&mut account, state);
    }

    /// Ends the reservation, keeps its last word.
    fn give_back(&self, account: &mut Account, state: SessionState) {
        account.state = state;
        if let Some(stream) = account.stream.take() {
            account.pace.durable_bytes = stream.durable_bytes();
            account.last = Some(StreamView::from(match Arc::try_unwrap(stream) {
                Ok(stream) => stream.close(),
                // Somebody is asking it something at this moment; the last one to drop it closes it.
                Err(shared) => shared.status(),
            }));
        }
        self.is_given_back.store(true, Ordering::Release);
        self.ended.notify_all();
    }

    /// Asks it to end; a session without a byte stream ends at once.
    fn ask_to_end(&self, state: SessionState) {
        let mut account = lock(&self.account);
        match account.state {
            SessionState::Reserved => self.give_back(&mut account, state),
            SessionState::Running => {
                account.state = SessionState::Stopped;
                self.stop.stop();
            }
            SessionState::Stopped | SessionState::Done | SessionState::Failed(_) => {}
        }
    }

    /// Waits until it has given its reservation back.
    fn wait_for_end(&self) {
        let account = lock(&self.account);
        drop(
            self.ended
                .wait_while(account, |account| account.stream.is_some())
                .unwrap_or_else(PoisonError::into_inner),
        );
    }
}

#[derive(Default)]
struct Registry {
    next: u64,
    sessions: BTreeMap<u64, Arc<Session>>,
    is_closing: bool,
}

/// Gives the reservation back even when the thread that moved the bytes panics.
struct EndGuard<'a>(&'a Session);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        let mut account = lock(&self.0.account);
        if account.stream.is_some() {
            self.0.give_back(
                &mut account,
                SessionState::Failed("the server failed at this stream".to_owned()),
            );
        }
    }
}

/// All sessions of a server.
#[derive(Default)]
pub struct Sessions {
    registry: Mutex<Registry>,
}

impl Sessions {
    /// Keeps a reservation until its byte stream comes, at most `wait`.
    ///
    /// # Errors
    /// When the server is ending, or has no descriptor or randomness left.
    pub fn add(
        &self,
        stream: Stream,
        op: StreamOp,
        limit: Option<Bytes>,
        wait: Duration,
    ) -> Result<Arc<Session>, SessionError> {
        let host = |error: std::io::Error| SessionError::Host(error.to_string());
        let token = token().map_err(host)?;
        let stop = Stop::new().map_err(host)?;
        let mut registry = lock(&self.registry);
        if registry.is_closing {
            return Err(SessionError::Closing);
        }
        registry.next += 1;
        let session = Arc::new(Session {
            id: registry.next,
            op,
            offset: Bytes::ZERO,
            limit,
            token,
            expires: Instant::now() + wait,
            stop,
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
        });
        registry.sessions.insert(session.id, Arc::clone(&session));
        Self::forget_oldest(&mut registry);
        Ok(session)
    }

    fn forget_oldest(registry: &mut Registry) {
        let ended: Vec<u64> = registry
            .sessions
            .iter()
            .filter(|(_, session)| session.is_given_back.load(Ordering::Acquire))
            .map(|(id, _)| *id)
            .collect();
        for id in ended
            .iter()
            .take(ended.len().saturating_sub(ENDED_KEPT_MAX))
        {
            registry.sessions.remove(id);
        }
    }

    /// One session.
    ///
    /// # Errors
    /// When there is none of that number.
    pub fn get(&self, id: u64) -> Result<Arc<Session>, SessionError> {
        lock(&self.registry)
            .sessions
            .get(&id)
            .cloned()
            .ok_or(SessionError::Unknown(id))
    }

    /// All of them, in order of reservation.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Session>> {
        lock(&self.registry).sessions.values().cloned().collect()
    }

    /// Those that are reserved for a time span, in order of reservation, as that is seen at `now`.
    #[must_use]
    pub fn planned(&self, now: Time) -> Vec<PlannedView> {
        let registry = lock(&self.registry);
        let sessions = registry.sessions.values();
        let open = sessions.filter(|session| !session.is_given_back.load(Ordering::Acquire));
        let planned =
            |session: &Arc<Session>| Some(session.planned.as_ref()?.view(session.id, now));
        open.filter_map(planned).collect()
    }

    /// Ends a session, waits until its share is given back, and forgets it.
    ///
    /// # Errors
    /// When there is none of that number.
    pub fn delete(&self, id: u64) -> Result<SessionView, SessionError> {
        let session = self.get(id)?;
        session.ask_to_end(SessionState::Stopped);
        session.wait_for_end();
        lock(&self.registry).sessions.remove(&id);
        Ok(session.view())
    }

    /// Ends reservations that nobody connected to in time.
    pub fn expire(&self) {
        let now = Instant::now();
        for session in self.all() {
            if session.expires <= now && lock(&session.account).state == SessionState::Reserved {
                tracing::info!(
                    stream = session.id,
                    "a reservation expired: nobody connected to it"
                );
                session.ask_to_end(SessionState::Failed(
                    "nobody connected to it in time".to_owned(),
                ));
            }
        }
    }

    /// The session that a new connection to the data socket says is its own, which it has `within` to
    /// do. Nobody else gets it then: it is to be [served](Session::serve).
    ///
    /// # Errors
    /// What the client is to be told: it says nothing in time, nothing that makes sense, or nothing
    /// that is known.
    pub fn claim(&self, connection: &UnixStream, within: Duration) -> Result<Arc<Session>, String> {
        let token = super::data::accept(connection, within).map_err(|error| error.to_string())?;
        self.by_token(&token).map_err(|error| error.to_string())
    }

    fn by_token(&self, token: &str) -> Result<Arc<Session>, SessionError> {
        let session = self
            .all()
            .into_iter()
            .find(|session| session.token == token)
            .ok_or(SessionError::Token)?;
        let mut account = lock(&session.account);
        if account.state != SessionState::Reserved {
            return Err(SessionError::Token);
        }
        account.state = SessionState::Running;
        drop(account);
        Ok(session)
    }

    /// Ends all sessions and waits for them; none is taken on afterwards.
    pub fn close(&self) {
        lock(&self.registry).is_closing = true;
        let sessions = self.all();
        for session in &sessions {
            session.ask_to_end(SessionState::Stopped);
        }
        for session in &sessions {
            session.wait_for_end();
        }
    }
}

/// 128 random bits, as text: nobody guesses somebody else's stream.
fn token() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
