//! GET_PARAMETER and SET_PARAMETER: the reservation of a session (`text/parameters`, RFC 2326, sections 10.8 and 10.9).
//!
//! A change takes as long as blocks are in flight. While packets are moved, it goes on beside them, and is answered
//! when it is done.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use engine::stream::{Change, ChangeResult, Changer, Refusal, StreamChange};
use rtsp_types::{Method, StatusCode};
use sched::units::{Bytes, BytesPerSecond};

use super::answer::refused;
use super::answer::{Answer, answer};
use super::target::target;
use super::{ClientRequest, Connection, Part, Role};
use crate::session::registry::Session;
use peers::log_throttle::SharedLogThrottle;

/// Changes of sessions that are refused, which any client can cause.
static UNGRANTED: SharedLogThrottle = SharedLogThrottle::few();

/// Bytes per second.
const RATE: &str = "rate";
/// Bytes that are written or read at a time: a multiple of the volume's block.
const BLOCK: &str = "block";
/// Buffers for this session alone, each of a block of the volume.
const BUFFERS: &str = "buffers";

/// The names and values in a body.
pub(super) fn lines(body: &[u8]) -> impl Iterator<Item = (&str, Option<&str>)> {
    let text = std::str::from_utf8(body).unwrap_or("(no text)");
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(|line| match line.split_once(':') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (line, None),
    })
}

/// The outcome of parsing a request.
enum Outcome {
    /// The reply, without the session.
    Reply(Answer),
    /// A change, which has to be done before the reply.
    Change(StreamChange),
}

fn outcome(request: &ClientRequest, member: Option<&Session>) -> Outcome {
    let said = |status| answer(Some(request), status);
    if lines(request.body()).next().is_none() {
        // It keeps the session alive.
        return Outcome::Reply(said(StatusCode::Ok));
    }
    let Some(changer) = member.and_then(Session::changer) else {
        let said = said(StatusCode::MethodNotValidInThisState);
        return Outcome::Reply(said.reason(
            "nothing is reserved: SETUP a track first; a live stream needs no reservation",
        ));
    };
    let unknown: Vec<&str> = lines(request.body())
        .map(|(name, _)| name)
        .filter(|name| ![RATE, BLOCK, BUFFERS].contains(name))
        .collect();
    if !unknown.is_empty() {
        let text = unknown.join("\r\n") + "\r\n";
        let said = said(StatusCode::ParameterNotUnderstood);
        return Outcome::Reply(said.body("text/parameters", text.into_bytes()));
    }
    match request.method() {
        Method::SetParameter => match wish(request) {
            Ok(wish) => Outcome::Change(wish),
            Err(said) => Outcome::Reply(said),
        },
        _ => Outcome::Reply(get(request, changer)),
    }
}

/// The reply to a request in a session without a reservation.
pub(super) fn without_reservation(request: &ClientRequest) -> Answer {
    match outcome(request, None) {
        Outcome::Reply(said) => said,
        Outcome::Change(_) => answer(Some(request), StatusCode::MethodNotValidInThisState),
    }
}

fn get(request: &ClientRequest, changer: &Changer) -> Answer {
    let mut text = String::new();
    let mut said: Vec<&str> = Vec::new();
    for (name, _) in lines(request.body()) {
        // Each name once: the length of the reply is bounded.
        if said.contains(&name) {
            continue;
        }
        said.push(name);
        let value = match name {
            RATE => changer.rate().0,
            BUFFERS => changer.buffers() as u64,
            _ => changer.block().get(),
        };
        text += &format!("{name}: {value}\r\n");
    }
    answer(Some(request), StatusCode::Ok).body("text/parameters", text.into_bytes())
}

fn wish(request: &ClientRequest) -> Result<StreamChange, Answer> {
    let said = |status| answer(Some(request), status);
    let mut wish = StreamChange::default();
    for (name, value) in lines(request.body()) {
        let number = value.and_then(|value| value.parse::<u64>().ok());
        let number = number.filter(|number| *number > 0);
        match (name, number) {
            (RATE, Some(rate)) => wish.rate = Some(BytesPerSecond(rate)),
            (BLOCK, Some(size)) => wish.block = Some(Bytes(size)),
            (BUFFERS, Some(count)) => {
                wish.buffers = Some(usize::try_from(count).unwrap_or(usize::MAX));
            }
            (RATE, None) => {
                return Err(said(StatusCode::BadRequest)
                    .reason("`rate` must be a number of bytes per second"));
            }
            (BLOCK, None) => {
                return Err(
                    said(StatusCode::BadRequest).reason("`block` must be a number of bytes")
                );
            }
            _ => {
                return Err(said(StatusCode::BadRequest).reason(
                    "`buffers` must be a number of buffers, each as long as a block of the volume",
                ));
            }
        }
    }
    Ok(wish)
}

/// The reply to a request whose change is done.
fn reply_to_change(
    request: &ClientRequest,
    member: &Session,
    wish: StreamChange,
    changed: Result<ChangeResult, Refusal>,
) -> Answer {
    match changed {
        Ok(granted) => {
            member.granted(wish, granted);
            answer(Some(request), StatusCode::Ok)
        }
        Err(refusal) => {
            let session = member.number();
            if let Some(untold) = UNGRANTED.turn(Instant::now()) {
                tracing::info!(session, %refusal, untold, "a change of a session is refused");
            }
            refused(request, &refusal)
        }
    }
}

/// Requests that wait, at most.
const QUEUED_MAX: usize = 8;

/// A request, its session, and its change if that has begun.
type QueuedRequest = (
    Box<ClientRequest>,
    Arc<Session>,
    Option<(StreamChange, Change)>,
);

/// Changes that go on while packets are moved, and requests that wait for them. They are answered in order.
#[derive(Default)]
pub(super) struct Changes(VecDeque<QueuedRequest>);

impl Changes {
    /// Takes a request; returns the reply, without the session, unless the request has to wait.
    pub(super) fn ask(
        &mut self,
        request: Box<ClientRequest>,
        member: &Arc<Session>,
    ) -> Option<Answer> {
        if self.0.len() == QUEUED_MAX {
            let said = answer(Some(&request), StatusCode::ServiceUnavailable);
            return Some(said.reason("too many changes are in progress: wait for their replies"));
        }
        if !self.0.is_empty() {
            self.0.push_back((request, Arc::clone(member), None));
            return None;
        }
        match begin_change(&request, member) {
            Ok(change) => {
                self.0
                    .push_back((request, Arc::clone(member), Some(change)));
                None
            }
            Err(said) => Some(said),
        }
    }

    /// The reply to the oldest request, if its change is done.
    pub(super) fn answered(&mut self) -> Option<Answer> {
        let (request, member, change) = self.0.front_mut()?;
        let said = match change {
            Some((wish, change)) => reply_to_change(request, member, *wish, change.take()?),
            None => match begin_change(request, member) {
                Ok(begun) => {
                    *change = Some(begun);
                    return None;
                }
                Err(said) => said,
            },
        };
        self.0.pop_front();
        Some(said)
    }

    /// Waits for all changes, when no packets are moved any more; returns the replies.
    pub(super) fn settled(self) -> Vec<Answer> {
        let said = self.0.into_iter().map(|(request, member, change)| {
            let change = change.map_or_else(|| begin_change(&request, &member), Ok);
            match change {
                Ok((wish, change)) => reply_to_change(&request, &member, wish, change.wait()),
                Err(said) => said,
            }
        });
        said.collect()
    }

    /// The refusals of all requests that wait, when the session ends.
    pub(super) fn given_up(self) -> impl Iterator<Item = Answer> {
        self.0.into_iter().map(|(request, _, _)| {
            answer(Some(&request), StatusCode::ServiceUnavailable)
                .reason("the session ended before the change was made")
        })
    }
}

/// Begins the change of a request.
///
/// # Errors
/// The reply, if there is no change.
fn begin_change(
    request: &ClientRequest,
    member: &Session,
) -> Result<(StreamChange, Change), Answer> {
    let wish = match outcome(request, Some(member)) {
        Outcome::Reply(said) => return Err(said),
        Outcome::Change(wish) => wish,
    };
    let change = member.begin(wish).map_err(|error| {
        answer(Some(request), StatusCode::InternalServerError).reason(error.to_string())
    })?;
    Ok((wish, change))
}

/// The part of a player that a request is for: the one whose volume it names, or the only one.
pub(super) fn named_part<'b>(
    request: &ClientRequest,
    parts: &'b [Part],
) -> Result<&'b Arc<Session>, Answer> {
    let is_about_all = lines(request.body()).next().is_none();
    if let [only] = parts {
        return Ok(&only.member);
    }
    let volumes = target(request).map(|target| target.volumes);
    let is_it = |part: &&Part| {
        let volume = part.archive.volume().name();
        is_about_all || volumes.as_ref().is_some_and(|named| *named == [volume])
    };
    let part = parts.iter().find(is_it);
    part.map(|part| &part.member).ok_or_else(|| {
        answer(Some(request), StatusCode::AggregateOperationNotAllowed).reason(
            "each recording has its own parameters: name one of those that are played together",
        )
    })
}

impl Connection<'_> {
    /// The reply while no packets are moved.
    pub(super) fn parameters_in_session(&self, request: &ClientRequest) -> Answer {
        let session = self.session.as_ref();
        let member = session.and_then(|session| match &session.role {
            Role::Publisher { reserved, .. } => Some(Ok(&reserved.as_ref()?.member)),
            Role::Player { parts } => Some(named_part(request, parts)),
            Role::Viewer { .. } => None,
        });
        let said = match member.transpose() {
            Ok(member) => {
                let changer = member.and_then(|member| Some((member, member.changer()?)));
                match (outcome(request, member.map(|member| &**member)), changer) {
                    (Outcome::Change(wish), Some((member, changer))) => {
                        reply_to_change(request, member, wish, changer.change(wish))
                    }
                    (Outcome::Reply(said), _) => said,
                    (Outcome::Change(_), None) => {
                        answer(Some(request), StatusCode::InternalServerError)
                    }
                }
            }
            Err(said) => said,
        };
        match &self.session {
            Some(session) => said.session(&session.id, self.shared.config.timeout),
            None => said,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_lines() {
        let read: Vec<_> = lines(b"rate: 5\r\n\r\nblock\r\n x : \r\n").collect();
        assert_eq!(
            read,
            [("rate", Some("5")), ("block", None), ("x", Some(""))]
        );
        assert_eq!(lines(b"").next(), None);
        assert_eq!(lines(b"\r\n").next(), None);
        assert_eq!(lines(&[0xff]).next(), Some(("(no text)", None)));
    }
}
