//! Requests to a camera and its answers, and the camera's own requests.

use std::os::fd::AsFd;

use engine::clock;
use rtsp_types::headers::{
    AUTHORIZATION, CSEQ, HeaderName, RANGE, SESSION, USER_AGENT, WWW_AUTHENTICATE,
};
use rtsp_types::{Method, Request, StatusCode, Url, Version};
use rustix::event::PollFlags;
use sched::units::Time;

use super::CameraConnection;
use crate::camera::source::answers::{Answer, is_refusal, redirect, session};
use crate::camera::source::connect::{ANSWER_WITHIN, WaitFor, Waiter};
use crate::camera::source::{SourceError, camera_requests};
use crate::rtsp::input::{InputError, Next};

/// True if PLAY of the presentation with this answer may succeed for each track: the camera allows no aggregate control
/// (459), or has another name for the presentation (404).
fn wants_play_per_track(status: u16) -> bool {
    matches!(status, 404 | 459)
}

/// A request that has not been answered.
pub(super) struct PendingRequest {
    number: u32,
    method: Method,
    uri: String,
    headers: Vec<(HeaderName, String)>,
    is_keep_alive: bool,
    sent_at: Time,
    /// When the answer is too late.
    due: Time,
    /// It has `Authorization`.
    has_login: bool,
    /// Times that it was sent again after 401.
    repeats: u32,
    /// PLAY for a single track: the number of the track.
    track: Option<usize>,
}

impl PendingRequest {
    pub(super) fn new(method: Method, uri: String, headers: Vec<(HeaderName, String)>) -> Self {
        Self {
            number: 0,
            method,
            uri,
            headers,
            is_keep_alive: false,
            sent_at: Time::ZERO,
            due: Time::ZERO,
            has_login: false,
            repeats: 0,
            track: None,
        }
    }

    pub(super) fn into_keep_alive(self) -> Self {
        Self {
            is_keep_alive: true,
            ..self
        }
    }
}

impl CameraConnection {
    /// When the pending answer is too late; `None` if no request is pending.
    pub(in super::super) fn answer_due(&self) -> Option<Time> {
        self.pending.as_ref().map(|request| request.due)
    }

    /// Extends the limits for silence and for the pending answer, because nothing is read while no buffer is free. A
    /// keep-alive that is pending for long is given up, so that the next one can be sent.
    pub(in super::super) fn extend_deadlines(&mut self) {
        self.heard = clock::now();
        let due = |from: Time| from.saturating_add(ANSWER_WITHIN);
        let given_up = self.pending.take_if(|request| {
            request.due = due(self.heard);
            request.is_keep_alive && self.heard >= due(request.sent_at)
        });
        self.given_up = given_up.map_or(self.given_up, |request| request.number);
    }

    /// Handles an answer that has not arrived in time. That is tolerated for a keep-alive, or if packets arrive
    /// (`has_packets`), which show that the camera is there.
    ///
    /// # Errors
    /// The answer was needed, or the other keep-alive cannot be sent.
    pub(in super::super) fn answer_missing(
        &mut self,
        has_packets: bool,
        waiter: &mut Waiter<'_, '_>,
    ) -> Result<(), SourceError> {
        let Some(request) = self.pending.take() else {
            return Ok(());
        };
        if !request.is_keep_alive && !has_packets {
            return Err(SourceError::AnswerTimeout(ANSWER_WITHIN));
        }
        self.given_up = request.number;
        match request.is_keep_alive && self.keep_alive.failed() {
            true => self.keep_alive(waiter),
            false => Ok(()),
        }
    }

    /// Takes an answer. Returns it if it completes the pending request, and `None` if it is late or the request was sent
    /// again.
    ///
    /// # Errors
    /// The camera refuses what is needed.
    pub(in super::super) fn take_answer(
        &mut self,
        answer: Answer,
        waiter: &mut Waiter<'_, '_>,
    ) -> Result<Option<Answer>, SourceError> {
        let number = answer.header(&CSEQ);
        let number = number.and_then(|number| number.as_str().trim().parse::<u32>().ok());
        // Some cameras omit CSeq or state another one. At most one request is pending, so any other answer is its.
        let is_late = |number: u32| number <= self.given_up;
        if number.is_some_and(is_late) {
            return Ok(None);
        }
        let Some(request) = self.pending.take() else {
            return Ok(None);
        };
        self.is_understood = true;
        if answer.status() == StatusCode::Unauthorized {
            return self.log_in(request, &answer, waiter).map(|()| None);
        }
        if request.has_login {
            self.login.accepted();
        }
        let is_success = answer.status().is_success();
        if request.is_keep_alive {
            match is_success {
                true => self.keep_alive.succeeded(),
                false => self.keep_alive_refused(request, &answer, waiter)?,
            }
        } else if request.method == Method::Play {
            self.take_play_answer(request, &answer, waiter)?;
        } else {
            let is_redirect = request.method == Method::Describe && redirect(&answer).is_some();
            // OPTIONS may be refused.
            if !is_success && !is_redirect && request.method != Method::Options {
                return Err(refused(request.method, &answer));
            }
        }
        self.note_session(&answer);
        Ok(Some(answer))
    }

    /// Sends a request again with the answer to the challenge of a 401.
    fn log_in(
        &mut self,
        request: PendingRequest,
        answer: &Answer,
        waiter: &mut Waiter<'_, '_>,
    ) -> Result<(), SourceError> {
        let challenge = answer.header(&WWW_AUTHENTICATE);
        let challenge = challenge.map_or("", |value| value.as_str());
        match self.login.ask(challenge, request.repeats) {
            Ok(()) => {
                let repeats = request.repeats + 1;
                self.send(PendingRequest { repeats, ..request }, waiter)
            }
            Err(_) if request.is_keep_alive => self.keep_alive_refused(request, answer, waiter),
            Err(error) => Err(error.into()),
        }
    }

    /// Tries the other keep-alive method. If both are refused the session goes on, unless the camera does not know it
    /// any more (454): a camera that supports neither method may still send packets.
    fn keep_alive_refused(
        &mut self,
        request: PendingRequest,
        answer: &Answer,
        waiter: &mut Waiter<'_, '_>,
    ) -> Result<(), SourceError> {
        if self.keep_alive.failed() {
            return self.keep_alive(waiter);
        }
        match answer.status() {
            StatusCode::SessionNotFound => Err(refused(request.method, answer)),
            _ => Ok(()),
        }
    }

    /// Takes an answer to PLAY. A refused PLAY is sent again for each track, or with a range. The range is not sent at
    /// first, because some cameras would begin with their oldest recording.
    fn take_play_answer(
        &mut self,
        request: PendingRequest,
        answer: &Answer,
        waiter: &mut Waiter<'_, '_>,
    ) -> Result<(), SourceError> {
        let status = u16::from(answer.status());
        let next = match request.track {
            None if answer.status().is_success() => return Ok(()),
            Some(track) if answer.status().is_success() => track + 1,
            None if wants_play_per_track(status) => 0,
            None if request.headers.is_empty() && is_refusal(status) => {
                let headers = vec![(RANGE, "npt=0.000-".to_owned())];
                return self.send(PendingRequest { headers, ..request }, waiter);
            }
            _ => return Err(refused(request.method, answer)),
        };
        let Some(uri) = self.tracks.get(next).cloned() else {
            return Ok(());
        };
        let track = Some(next);
        let request = PendingRequest::new(Method::Play, uri, Vec::new());
        self.send(PendingRequest { track, ..request }, waiter)
    }

    fn note_session(&mut self, answer: &Answer) {
        let Some(header) = answer.header(&SESSION) else {
            return;
        };
        let (id, timeout) = session(header.as_str());
        if let Some(id) = id {
            self.session = Some(id.to_owned());
        }
        self.timeout = timeout.unwrap_or(self.timeout);
    }

    /// Answers a request of the camera.
    ///
    /// # Errors
    /// The request ends the session, or the answer cannot be sent.
    pub(in super::super) fn answer_request(
        &mut self,
        request: &Request<Vec<u8>>,
        waiter: &mut Waiter<'_, '_>,
    ) -> Result<(), SourceError> {
        let (answer, end) = camera_requests::answer(request);
        let mut bytes = self.reports.rest();
        // Writing to memory does not fail.
        let _ = answer.write(&mut bytes);
        self.write(&bytes, clock::now().saturating_add(ANSWER_WITHIN), waiter)?;
        end.map_or(Ok(()), Err)
    }

    /// Sends a request and waits for the answer.
    pub(super) fn ask(
        &mut self,
        method: Method,
        uri: &str,
        headers: Vec<(HeaderName, String)>,
        waiter: &mut Waiter<'_, '_>,
    ) -> Result<Answer, SourceError> {
        self.send(PendingRequest::new(method, uri.to_owned(), headers), waiter)?;
        loop {
            match self.input.next_item() {
                Ok(Next::Response(answer)) => {
                    if let Some(answer) = self.take_answer(*answer, waiter)? {
                        return Ok(answer);
                    }
                }
                Ok(Next::Request(request)) => self.answer_request(&request, waiter)?,
                Ok(Next::Packet { len, .. }) => self.discard(len, waiter)?,
                Ok(Next::More) => self.wait_for_bytes(waiter)?,
                // A body may be longer than its Content-Length: the rest is skipped up to the next answer.
                Err(InputError::Syntax) if self.is_understood => {
                    self.input.take(&mut [0]);
                    self.input.pass_stray(|_, _| false);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Skips a packet that arrives before PLAY.
    fn discard(&mut self, len: usize, waiter: &mut Waiter<'_, '_>) -> Result<(), SourceError> {
        let mut left = len;
        let mut scratch = [0; 4_096];
        while left > 0 {
            let most = left.min(scratch.len());
            let taken = self.input.take(&mut scratch[..most]);
            left -= taken;
            if taken == 0 {
                self.wait_for_bytes(waiter)?;
            }
        }
        Ok(())
    }

    fn wait_for_bytes(&mut self, waiter: &mut Waiter<'_, '_>) -> Result<(), SourceError> {
        let until = self.answer_due().unwrap_or_else(clock::now);
        loop {
            if !waiter.sleep(Some(WaitFor::Data(&self.link)), until)? {
                return Err(SourceError::AnswerTimeout(ANSWER_WITHIN));
            }
            match self.receiver().receive(4_096)? {
                None => {}
                Some(0) => return Err(SourceError::Closed),
                Some(_) => return Ok(()),
            }
        }
    }

    /// The bytes of a request, and true if it has `Authorization`.
    pub(super) fn request(
        &mut self,
        method: &Method,
        uri: &str,
        headers: &[(HeaderName, String)],
    ) -> Result<(Vec<u8>, bool), SourceError> {
        self.number += 1;
        let url = Url::parse(uri).map_err(|_| SourceError::Control(uri.to_owned()))?;
        let login = self.login.header(method.into(), url.as_str())?;
        let has_login = login.is_some();
        let mut request = Request::builder(method.clone(), Version::V1_0)
            .request_uri(url)
            .header(CSEQ, self.number.to_string())
            .header(USER_AGENT, concat!("clockwise/", env!("CARGO_PKG_VERSION")));
        if let Some(session) = &self.session {
            request = request.header(SESSION, session.as_str());
        }
        if let Some(login) = login {
            request = request.header(AUTHORIZATION, login);
        }
        for (name, value) in headers {
            request = request.header(name.clone(), value.as_str());
        }
        let mut bytes = Vec::new();
        let written = request.empty().write(&mut bytes);
        written.map_err(|_| SourceError::Control(uri.to_owned()))?;
        Ok((bytes, has_login))
    }

    pub(super) fn send(
        &mut self,
        request: PendingRequest,
        waiter: &mut Waiter<'_, '_>,
    ) -> Result<(), SourceError> {
        let (bytes, has_login) = self.request(&request.method, &request.uri, &request.headers)?;
        let bytes = [self.reports.rest(), bytes].concat();
        let sent_at = clock::now();
        let due = sent_at.saturating_add(ANSWER_WITHIN);
        self.write(&bytes, due, waiter)?;
        self.pending = Some(PendingRequest {
            number: self.number,
            sent_at,
            due,
            has_login,
            ..request
        });
        Ok(())
    }

    fn write(
        &mut self,
        bytes: &[u8],
        until: Time,
        waiter: &mut Waiter<'_, '_>,
    ) -> Result<(), SourceError> {
        let mut sent = 0;
        while sent < bytes.len() {
            match self.link.write(&bytes[sent..])? {
                Some(count) => sent += count,
                None => {
                    let event = Some(WaitFor::Fd(self.link.as_fd(), PollFlags::OUT));
                    if !waiter.sleep(event, until)? {
                        return Err(SourceError::AnswerTimeout(ANSWER_WITHIN));
                    }
                }
            }
        }
        Ok(())
    }
}

/// The error for an answer that refuses a request.
fn refused(method: Method, answer: &Answer) -> SourceError {
    let reason = answer.reason_phrase().chars();
    let reason = reason.filter(|character| !character.is_control()).collect();
    SourceError::Status(method, answer.status().into(), reason)
}
