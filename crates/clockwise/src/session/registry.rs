//! The sessions of a server.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use engine::stream::Stream;
use sched::units::{Bytes, Time};
use serde::Deserialize;

use super::account::{Session, TOKEN_DIGITS, lock};
use crate::wire::Problem;
use crate::wire::ask::StreamOp;
use crate::wire::streams::{SessionState, SessionView};
use crate::wire::view::PlannedView;

/// How long a reservation waits for its byte stream unless it says otherwise.
pub const RESERVATION_WAIT: Duration = Duration::from_secs(10);

/// Ended sessions whose reports are kept until they are deleted; older ones go first.
const ENDED_KEPT_MAX: usize = 256;

/// Why a session cannot do what is asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SessionError {
    /// There is none such.
    #[error("there is no stream {0}")]
    Unknown(SessionKey),
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

/// Which session is meant.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub enum SessionKey {
    /// The one of this number, which counts from 1 in each server process.
    Id(u64),
    /// The one of this token, which no session of another server process has: who outlives a server does
    /// not mean somebody else's stream with it.
    Token(String),
}

impl TryFrom<String> for SessionKey {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if text.len() == TOKEN_DIGITS {
            return Ok(Self::Token(text));
        }
        match text.parse() {
            Ok(id) => Ok(Self::Id(id)),
            Err(_) => Err("a stream is meant by its number or its token"),
        }
    }
}

impl Display for SessionKey {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Token(_) => f.write_str("of this token"),
        }
    }
}

#[derive(Default)]
struct Registry {
    next: u64,
    sessions: BTreeMap<u64, Arc<Session>>,
    is_closing: bool,
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
        let mut registry = lock(&self.registry);
        if registry.is_closing {
            return Err(SessionError::Closing);
        }
        let id = registry.next + 1;
        let session = Session::new(id, stream, op, limit, wait)
            .map_err(|error| SessionError::Host(error.to_string()))?;
        let session = Arc::new(session);
        registry.next = id;
        registry.sessions.insert(id, Arc::clone(&session));
        Self::forget_oldest(&mut registry);
        Ok(session)
    }

    fn forget_oldest(registry: &mut Registry) {
        let ended: Vec<u64> = registry
            .sessions
            .iter()
            .filter(|(_, session)| session.is_given_back())
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
    /// When there is none such.
    pub fn get(&self, key: &SessionKey) -> Result<Arc<Session>, SessionError> {
        let registry = lock(&self.registry);
        let found = match key {
            SessionKey::Id(id) => registry.sessions.get(id),
            SessionKey::Token(token) => {
                let mut sessions = registry.sessions.values();
                sessions.find(|session| session.token() == token)
            }
        };
        found
            .cloned()
            .ok_or_else(|| SessionError::Unknown(key.clone()))
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
        let open = sessions.filter(|session| !session.is_given_back());
        open.filter_map(|session| session.planned(now)).collect()
    }

    /// Ends a session, waits until its share is given back, and forgets it. One whose byte stream is ended
    /// by somebody who goes by its number is kept as those that have ended: its client asks for the report.
    ///
    /// # Errors
    /// When there is none such.
    pub fn delete(&self, key: &SessionKey) -> Result<SessionView, SessionError> {
        let session = self.get(key)?;
        let has_client = session.ask_to_end(SessionState::Stopped);
        session.wait_for_end();
        if !(has_client && matches!(key, SessionKey::Id(_))) {
            lock(&self.registry).sessions.remove(&session.id());
        }
        Ok(session.view())
    }

    /// Ends reservations that nobody connected to in time.
    pub fn expire(&self) {
        let now = Instant::now();
        for session in self.all() {
            if session.expire(now) {
                tracing::info!(
                    stream = session.id(),
                    "a reservation expired: nobody connected to it"
                );
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
        match self.get(&SessionKey::Token(token)) {
            Ok(session) if session.claim() => Ok(session),
            _ => Err(SessionError::Token.to_string()),
        }
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

impl From<SessionError> for Problem {
    fn from(error: SessionError) -> Self {
        let (status, help) = match error {
            SessionError::Unknown(_) => (
                StatusCode::NOT_FOUND,
                "`clockwise stream list` shows which there are",
            ),
            SessionError::Ended(_) => (
                StatusCode::CONFLICT,
                "`clockwise stream list` shows which there are; reserve a new one to go on",
            ),
            SessionError::Token => (
                StatusCode::CONFLICT,
                "reserve a stream and connect at once, with the token of the answer",
            ),
            SessionError::Closing => (
                StatusCode::SERVICE_UNAVAILABLE,
                "start the server again with `clockwise serve`",
            ),
            SessionError::Host(_) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "end other streams, or give the server more descriptors (`ulimit -n`)",
            ),
        };
        Self::new(status, error.to_string(), help)
    }
}
