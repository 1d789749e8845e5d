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

/// Default time for which a reservation waits for its byte stream.
pub const RESERVATION_WAIT: Duration = Duration::from_secs(10);

/// The most ended sessions whose reports are kept. The oldest are dropped first.
const ENDED_KEPT_MAX: usize = 256;

/// Reason why an operation on a session fails.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SessionError {
    /// There is no such session.
    #[error("there is no stream {0}")]
    Unknown(SessionKey),
    /// No reservation waits for this token.
    #[error(
        "no reservation waits for this token; it expired, was cancelled, or is connected already"
    )]
    Token,
    /// The session has ended.
    #[error("stream {0} has ended")]
    Ended(u64),
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Closing,
    /// The host has no descriptor or no random numbers.
    #[error("no stream can be reserved: {0}")]
    Host(String),
}

/// The identification of a session.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub enum SessionKey {
    /// The number of a session. Each server process counts from 1.
    Id(u64),
    /// The token of a session, which no session of another server process has. A client that outlives a server process
    /// cannot hit the stream of another client with it.
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
            Err(_) => Err("name a stream by its number or its token"),
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
    /// Adds a reservation, which waits for its byte stream at most for the time `wait`.
    ///
    /// # Errors
    /// If the server is shutting down, or the host has no descriptor or no random numbers.
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
        Self::drop_oldest(&mut registry);
        Ok(session)
    }

    fn drop_oldest(registry: &mut Registry) {
        let ended: Vec<u64> = registry
            .sessions
            .iter()
            .filter(|(_, session)| session.is_freed())
            .map(|(id, _)| *id)
            .collect();
        for id in ended
            .iter()
            .take(ended.len().saturating_sub(ENDED_KEPT_MAX))
        {
            registry.sessions.remove(id);
        }
    }

    /// Finds a session.
    ///
    /// # Errors
    /// If there is no such session.
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

    /// All sessions in order of reservation.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Session>> {
        lock(&self.registry).sessions.values().cloned().collect()
    }

    /// The sessions with a time span in order of reservation, relative to `now`.
    #[must_use]
    pub fn planned(&self, now: Time) -> Vec<PlannedView> {
        let registry = lock(&self.registry);
        let sessions = registry.sessions.values();
        let open = sessions.filter(|session| !session.is_freed());
        open.filter_map(|session| session.planned(now)).collect()
    }

    /// Ends a session, waits until its reservation is free, and removes it. A session that is named by its number and
    /// has a connected client stays among the ended ones, because that client will ask for the report.
    ///
    /// # Errors
    /// If there is no such session.
    pub fn delete(&self, key: &SessionKey) -> Result<SessionView, SessionError> {
        let session = self.get(key)?;
        let has_client = session.request_end(SessionState::Stopped);
        session.wait_for_end();
        if !(has_client && matches!(key, SessionKey::Id(_))) {
            lock(&self.registry).sessions.remove(&session.id());
        }
        Ok(session.view())
    }

    /// Ends the reservations to which no client has connected in time.
    pub fn expire(&self) {
        let now = Instant::now();
        for session in self.all() {
            if session.expire(now) {
                tracing::info!(
                    stream = session.id(),
                    "a reservation expired: no client connected to it"
                );
            }
        }
    }

    /// Reads the token from a new connection to the data socket, for at most the time `within`, and claims its
    /// session. The caller then [serves](Session::serve) it; no other connection can claim it.
    ///
    /// # Errors
    /// The refusal for the client: the greeting is late, invalid, or has an unknown token.
    pub fn claim(&self, connection: &UnixStream, within: Duration) -> Result<Arc<Session>, String> {
        let token = super::data::accept(connection, within).map_err(|error| error.to_string())?;
        match self.get(&SessionKey::Token(token)) {
            Ok(session) if session.claim() => Ok(session),
            _ => Err(SessionError::Token.to_string()),
        }
    }

    /// Ends all sessions and waits for them. No further session can be added.
    pub fn close(&self) {
        lock(&self.registry).is_closing = true;
        let sessions = self.all();
        for session in &sessions {
            session.request_end(SessionState::Stopped);
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
                "`clockwise stream list` shows all streams",
            ),
            SessionError::Ended(_) => (
                StatusCode::CONFLICT,
                "reserve a new one; `clockwise stream list` shows all streams",
            ),
            SessionError::Token => (
                StatusCode::CONFLICT,
                "reserve a stream and connect at once with the token of the response",
            ),
            SessionError::Closing => (
                StatusCode::SERVICE_UNAVAILABLE,
                "start the server again with `clockwise serve`",
            ),
            SessionError::Host(_) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "end other streams, or raise the server's limit of descriptors (`ulimit -n`)",
            ),
        };
        Self::new(status, error.to_string(), help)
    }
}
