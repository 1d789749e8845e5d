//! GET_PARAMETER and SET_PARAMETER: what a session has reserved (`text/parameters`, RFC 2326, sections 10.8 and 10.9).

use std::cell::Cell;

use engine::stream::Stream;
use rtsp_types::{Method, StatusCode};
use sched::units::BytesPerSecond;

use super::answer::{Answer, answer};
use super::setup::refused;
use super::{Asked, Connection, Role};

/// What a session has reserved.
#[derive(Clone, Copy)]
pub(super) struct Held<'a> {
    pub(super) stream: &'a Stream,
    /// What a player has for playing it as it was.
    pub(super) rate: Option<&'a Cell<BytesPerSecond>>,
}

/// Bytes per second.
const RATE: &str = "rate";
/// Bytes that are written or read at a time.
const BLOCK: &str = "block";

/// The names in a body, and what they are to be.
fn lines(body: &[u8]) -> impl Iterator<Item = (&str, Option<&str>)> {
    let text = std::str::from_utf8(body).unwrap_or("(no text)");
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(|line| match line.split_once(':') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (line, None),
    })
}

/// What is answered, without the session.
pub(super) fn parameters(request: &Asked, held: Option<Held<'_>>) -> Answer {
    let said = |status| answer(Some(request), status);
    if lines(request.body()).next().is_none() {
        // It keeps the session alive.
        return said(StatusCode::Ok);
    }
    let Some(held) = held else {
        return said(StatusCode::MethodNotValidInThisState)
            .reason("nothing is reserved yet: SETUP a track first");
    };
    let unknown: Vec<&str> = lines(request.body())
        .map(|(name, _)| name)
        .filter(|name| ![RATE, BLOCK].contains(name))
        .collect();
    if !unknown.is_empty() {
        let text = unknown.join("\r\n") + "\r\n";
        return said(StatusCode::ParameterNotUnderstood).body("text/parameters", text.into_bytes());
    }
    match request.method() {
        Method::SetParameter => set(request, held),
        _ => get(request, held),
    }
}

fn get(request: &Asked, held: Held<'_>) -> Answer {
    let mut text = String::new();
    for (name, _) in lines(request.body()) {
        let value = match name {
            RATE => held.stream.rate().0,
            _ => held.stream.block().get(),
        };
        text += &format!("{name}: {value}\r\n");
    }
    answer(Some(request), StatusCode::Ok).body("text/parameters", text.into_bytes())
}

fn set(request: &Asked, held: Held<'_>) -> Answer {
    let said = |status| answer(Some(request), status);
    if lines(request.body()).any(|(name, _)| name == BLOCK) {
        return said(StatusCode::ParameterIsReadOnly)
            .reason("blocks are as long as the volume's first recording had them");
    }
    for (_, value) in lines(request.body()) {
        let rate = value.and_then(|value| value.parse().ok());
        let Some(rate) = rate.filter(|rate: &u64| *rate > 0).map(BytesPerSecond) else {
            return said(StatusCode::BadRequest).reason("rate: how many bytes per second?");
        };
        if let Err(refusal) = held.stream.change_rate(rate) {
            tracing::info!(stream = held.stream.name(), %refusal, "another rate is refused");
            return refused(request, &refusal);
        }
        if let Some(of_player) = held.rate {
            of_player.set(rate);
        }
    }
    said(StatusCode::Ok)
}

impl Connection<'_> {
    /// The same while nothing moves.
    pub(super) fn parameters_in_session(&self, request: &Asked) -> Answer {
        let held = self
            .session
            .as_ref()
            .and_then(|session| match &session.role {
                Role::Publisher { reserved, .. } => {
                    let (stream, _) = reserved.as_ref()?;
                    Some(Held { stream, rate: None })
                }
                Role::Player { reserved, rate, .. } => Some(Held {
                    stream: reserved,
                    rate: Some(rate),
                }),
            });
        let said = parameters(request, held);
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
