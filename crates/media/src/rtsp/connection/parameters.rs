//! GET_PARAMETER and SET_PARAMETER: what a session has reserved (`text/parameters`, RFC 2326, sections 10.8 and 10.9).
//!
//! A change takes as long as blocks are in flight, so where packets move it goes on beside them, and is answered when
//! it is done.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use engine::stream::{Change, Granted, Refusal, Wish};
use rtsp_types::{Method, StatusCode};
use sched::units::{Bytes, BytesPerSecond};

use super::answer::refused;
use super::answer::{Answer, answer};
use super::target::target;
use super::{Asked, Connection, Part, Role};
use crate::session::registry::Session;
use peers::log_throttle::Sparing;

/// What a session asks for and is not given.
static UNGRANTED: Sparing = Sparing::few();

/// Bytes per second.
const RATE: &str = "rate";
/// Bytes that are written or read at a time: some of the volume's blocks.
const BLOCK: &str = "block";
/// Buffers that nobody else may use, each as long as the volume's blocks.
const BUFFERS: &str = "buffers";

/// The names in a body, and what they are to be.
pub(super) fn lines(body: &[u8]) -> impl Iterator<Item = (&str, Option<&str>)> {
    let text = std::str::from_utf8(body).unwrap_or("(no text)");
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(|line| match line.split_once(':') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (line, None),
    })
}

/// What is asked for: the answer, without the session, or a change that comes before it.
enum Asks {
    Said(Answer),
    Wished(Wish),
}

fn asks(request: &Asked, member: Option<&Session>) -> Asks {
    let said = |status| answer(Some(request), status);
    if lines(request.body()).next().is_none() {
        // It keeps the session alive.
        return Asks::Said(said(StatusCode::Ok));
    }
    let Some(member) = member else {
        let said = said(StatusCode::MethodNotValidInThisState);
        return Asks::Said(said.reason("nothing is reserved yet: SETUP a track first"));
    };
    let unknown: Vec<&str> = lines(request.body())
        .map(|(name, _)| name)
        .filter(|name| ![RATE, BLOCK, BUFFERS].contains(name))
        .collect();
    if !unknown.is_empty() {
        let text = unknown.join("\r\n") + "\r\n";
        let said = said(StatusCode::ParameterNotUnderstood);
        return Asks::Said(said.body("text/parameters", text.into_bytes()));
    }
    match request.method() {
        Method::SetParameter => match wish(request) {
            Ok(wish) => Asks::Wished(wish),
            Err(said) => Asks::Said(said),
        },
        _ => Asks::Said(get(request, member)),
    }
}

fn get(request: &Asked, member: &Session) -> Answer {
    let (changer, mut text) = (member.changer(), String::new());
    let mut said: Vec<&str> = Vec::new();
    for (name, _) in lines(request.body()) {
        // Once: the answer is no longer for who asks a thousand times.
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

fn wish(request: &Asked) -> Result<Wish, Answer> {
    let said = |status| answer(Some(request), status);
    let mut wish = Wish::default();
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
                return Err(said(StatusCode::BadRequest).reason("rate: how many bytes per second?"));
            }
            (BLOCK, None) => {
                return Err(said(StatusCode::BadRequest).reason("block: how many bytes?"));
            }
            _ => {
                return Err(said(StatusCode::BadRequest)
                    .reason("buffers: how many, each as long as a block of the volume?"));
            }
        }
    }
    Ok(wish)
}

/// What is said of a change.
fn changed(
    request: &Asked,
    member: &Session,
    wish: Wish,
    changed: Result<Granted, Refusal>,
) -> Answer {
    match changed {
        Ok(granted) => {
            member.granted(wish, granted);
            answer(Some(request), StatusCode::Ok)
        }
        Err(refusal) => {
            let session = member.number();
            if let Some(untold) = UNGRANTED.turn(Instant::now()) {
                tracing::info!(session, %refusal, untold, "what a session asks for is refused");
            }
            refused(request, &refusal)
        }
    }
}

/// So many wait for their turn.
const TURNS_MAX: usize = 8;

/// A request, what it is about, and the change that has begun for it.
type Turn = (Box<Asked>, Arc<Session>, Option<(Wish, Change)>);

/// Changes that go on beside packets, and what is asked for after them: each is answered in its turn.
#[derive(Default)]
pub(super) struct Changes(VecDeque<Turn>);

impl Changes {
    /// Takes a request; the answer, without the session, unless it has to wait.
    pub(super) fn ask(&mut self, request: Box<Asked>, member: &Arc<Session>) -> Option<Answer> {
        if self.0.len() == TURNS_MAX {
            let said = answer(Some(&request), StatusCode::ServiceUnavailable);
            return Some(said.reason("too much has been asked for before that is not done yet"));
        }
        if !self.0.is_empty() {
            self.0.push_back((request, Arc::clone(member), None));
            return None;
        }
        match begun(&request, member) {
            Ok(change) => {
                self.0
                    .push_back((request, Arc::clone(member), Some(change)));
                None
            }
            Err(said) => Some(said),
        }
    }

    /// The next answer that does not have to wait any more.
    pub(super) fn answered(&mut self) -> Option<Answer> {
        let (request, member, change) = self.0.front_mut()?;
        let said = match change {
            Some((wish, change)) => changed(request, member, *wish, change.take()?),
            None => match begun(request, member) {
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

    /// Packets do not move any more: what is said of all of them, when it is done.
    pub(super) fn settled(self) -> Vec<Answer> {
        let turns = self.0.into_iter();
        let said = turns.map(|(request, member, change)| {
            let change = change.map_or_else(|| begun(&request, &member), Ok);
            match change {
                Ok((wish, change)) => changed(&request, &member, wish, change.wait()),
                Err(said) => said,
            }
        });
        said.collect()
    }

    /// The session ends: what those are told whose turn has not come.
    pub(super) fn given_up(self) -> impl Iterator<Item = Answer> {
        self.0.into_iter().map(|(request, _, _)| {
            answer(Some(&request), StatusCode::ServiceUnavailable)
                .reason("the session has ended before that was done")
        })
    }
}

/// A change that has begun, or what is said at once.
fn begun(request: &Asked, member: &Session) -> Result<(Wish, Change), Answer> {
    let wish = match asks(request, Some(member)) {
        Asks::Said(said) => return Err(said),
        Asks::Wished(wish) => wish,
    };
    let change = member.begin(wish).map_err(|error| {
        answer(Some(request), StatusCode::InternalServerError).reason(error.to_string())
    })?;
    Ok((wish, change))
}

/// Which of the parts that are played a request is about: that whose volume it names, or the only one.
pub(super) fn named<'b>(request: &Asked, parts: &'b [Part]) -> Result<&'b Arc<Session>, Answer> {
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
        answer(Some(request), StatusCode::AggregateOperationNotAllowed)
            .reason("each recording has its own: name one of those that are played together")
    })
}

impl Connection<'_> {
    /// The same while nothing moves.
    pub(super) fn parameters_in_session(&self, request: &Asked) -> Answer {
        let session = self.session.as_ref();
        let member = session.and_then(|session| match &session.role {
            Role::Publisher { reserved, .. } => Some(Ok(&reserved.as_ref()?.member)),
            Role::Player { parts, .. } => Some(named(request, parts)),
        });
        let said = match member.transpose() {
            Ok(member) => match (asks(request, member.map(|member| &**member)), member) {
                (Asks::Wished(wish), Some(member)) => {
                    changed(request, member, wish, member.changer().change(wish))
                }
                (Asks::Said(said), _) => said,
                (Asks::Wished(_), None) => answer(Some(request), StatusCode::InternalServerError),
            },
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
