//! What is asked of a camera and what it answers, and what it asks for itself.

use std::os::fd::AsFd;

use engine::clock;
use rtsp_types::headers::{
    AUTHORIZATION, CSEQ, HeaderName, RANGE, SESSION, USER_AGENT, WWW_AUTHENTICATE,
};
use rtsp_types::{Method, Request, StatusCode, Url, Version};
use rustix::event::PollFlags;
use sched::units::Time;

use super::{ANSWER_WITHIN, Camera, Said};
use crate::camera::source::reach::{Meanwhile, Ready};
use crate::camera::source::said::{elsewhere, refuses, session};
use crate::camera::source::{SourceError, asked};
use crate::rtsp::input::{InputError, Next};

/// Whether a PLAY that is refused so may be one of each track: there is none of all of them, or they are not called so.
fn is_of_tracks(status: u16) -> bool {
    matches!(status, 404 | 459)
}

/// What was asked, and not answered yet.
pub(super) struct Asked {
    number: u32,
    method: Method,
    uri: String,
    headers: Vec<(HeaderName, String)>,
    /// It is asked so that the session stays.
    keeps_alive: bool,
    /// When it was.
    at: Time,
    /// When it is too late for an answer.
    until: Time,
    /// Whether it said who asks.
    had_login: bool,
    /// How often it was repeated to say that.
    repeats: u32,
    /// Of which track it is, if not of all of them.
    track: Option<usize>,
}

impl Asked {
    /// What is to be asked.
    pub(super) fn new(method: Method, uri: String, headers: Vec<(HeaderName, String)>) -> Self {
        Self {
            number: 0,
            method,
            uri,
            headers,
            keeps_alive: false,
            at: Time::ZERO,
            until: Time::ZERO,
            had_login: false,
            repeats: 0,
            track: None,
        }
    }

    pub(super) fn that_keeps_alive(self) -> Self {
        Self {
            keeps_alive: true,
            ..self
        }
    }
}

impl Camera {
    /// When an answer is late; `None`: none is waited for.
    pub(in super::super) fn answers_by(&self) -> Option<Time> {
        self.asked.as_ref().map(|asked| asked.until)
    }

    /// It is not listened to, so neither is it silent nor does it answer late; and it is asked again meanwhile.
    pub(in super::super) fn waits(&mut self) {
        self.heard = clock::now();
        let until = |from: Time| from.saturating_add(ANSWER_WITHIN);
        let given_up = self.asked.take_if(|asked| {
            asked.until = until(self.heard);
            asked.keeps_alive && self.heard >= until(asked.at)
        });
        self.given_up = given_up.map_or(self.given_up, |asked| asked.number);
    }

    /// No answer has come in time. That is no matter where it was only to keep the session, or packets come (`has_come`): they
    /// say that the camera is there.
    ///
    /// # Errors
    /// When it is one, or it cannot be asked otherwise.
    pub(in super::super) fn goes_without_answer(
        &mut self,
        has_come: bool,
        meanwhile: &mut Meanwhile<'_, '_>,
    ) -> Result<(), SourceError> {
        let Some(asked) = self.asked.take() else {
            return Ok(());
        };
        if !asked.keeps_alive && !has_come {
            return Err(SourceError::Late(ANSWER_WITHIN));
        }
        self.given_up = asked.number;
        match asked.keeps_alive && self.keep_alive.fails() {
            true => self.keep_alive(meanwhile),
            false => Ok(()),
        }
    }

    /// Takes in an answer that has come: `Some` if it is a good one to what was asked.
    ///
    /// # Errors
    /// When it is a bad one.
    pub(in super::super) fn answered(
        &mut self,
        said: Said,
        meanwhile: &mut Meanwhile<'_, '_>,
    ) -> Result<Option<Said>, SourceError> {
        let number = said.header(&CSEQ);
        let number = number.and_then(|number| number.as_str().trim().parse::<u32>().ok());
        // Some do not say to what it is, or say another number. There is one request at a time.
        let is_late = |number: u32| number <= self.given_up;
        if number.is_some_and(is_late) {
            return Ok(None);
        }
        let Some(asked) = self.asked.take() else {
            return Ok(None);
        };
        self.is_understood = true;
        if said.status() == StatusCode::Unauthorized {
            return self.is_asked_who(asked, &said, meanwhile).map(|()| None);
        }
        if asked.had_login {
            self.login.is_taken();
        }
        let is_good = said.status().is_success();
        if asked.keeps_alive {
            match is_good {
                true => self.keep_alive.works(),
                false => self.is_not_kept_alive(asked, &said, meanwhile)?,
            }
        } else if asked.method == Method::Play {
            self.plays(asked, &said, meanwhile)?;
        } else {
            // What there is to be asked for need not be known.
            let is_described = asked.method == Method::Describe && elsewhere(&said).is_some();
            if !is_good && !is_described && asked.method != Method::Options {
                return Err(refused(asked.method, &said));
            }
        }
        self.note_session(&said);
        Ok(Some(said))
    }

    /// Repeats what was answered with 401, with an answer to what that asks for.
    fn is_asked_who(
        &mut self,
        asked: Asked,
        said: &Said,
        meanwhile: &mut Meanwhile<'_, '_>,
    ) -> Result<(), SourceError> {
        let challenge = said.header(&WWW_AUTHENTICATE);
        let challenge = challenge.map_or("", |value| value.as_str());
        match self.login.ask(challenge, asked.repeats) {
            Ok(()) => {
                let repeats = asked.repeats + 1;
                self.send(Asked { repeats, ..asked }, meanwhile)
            }
            Err(_) if asked.keeps_alive => self.is_not_kept_alive(asked, said, meanwhile),
            Err(error) => Err(error.into()),
        }
    }

    /// What keeps a session alive was refused: the other method is tried. A session that neither finds is none; who does not know
    /// how it is kept alive is alive.
    fn is_not_kept_alive(
        &mut self,
        asked: Asked,
        said: &Said,
        meanwhile: &mut Meanwhile<'_, '_>,
    ) -> Result<(), SourceError> {
        if self.keep_alive.fails() {
            return self.keep_alive(meanwhile);
        }
        match said.status() {
            StatusCode::SessionNotFound => Err(refused(asked.method, said)),
            _ => Ok(()),
        }
    }

    /// Goes on where a PLAY of all tracks is refused: some play each for itself, and some play nothing before they are told from
    /// where on; others would begin with the oldest that they have if they were told.
    fn plays(
        &mut self,
        asked: Asked,
        said: &Said,
        meanwhile: &mut Meanwhile<'_, '_>,
    ) -> Result<(), SourceError> {
        let status = u16::from(said.status());
        let next = match asked.track {
            None if said.status().is_success() => return Ok(()),
            Some(track) if said.status().is_success() => track + 1,
            None if is_of_tracks(status) => 0,
            None if asked.headers.is_empty() && refuses(status) => {
                let headers = vec![(RANGE, "npt=0.000-".to_owned())];
                return self.send(Asked { headers, ..asked }, meanwhile);
            }
            _ => return Err(refused(asked.method, said)),
        };
        let Some(uri) = self.tracks.get(next).cloned() else {
            return Ok(());
        };
        let track = Some(next);
        let asked = Asked::new(Method::Play, uri, Vec::new());
        self.send(Asked { track, ..asked }, meanwhile)
    }

    fn note_session(&mut self, said: &Said) {
        let Some(header) = said.header(&SESSION) else {
            return;
        };
        let (id, timeout) = session(header.as_str());
        if let Some(id) = id {
            self.session = Some(id.to_owned());
        }
        self.timeout = timeout.unwrap_or(self.timeout);
    }

    /// Answers what it asks for.
    ///
    /// # Errors
    /// When the session ends with that.
    pub(in super::super) fn is_asked(
        &mut self,
        request: &Request<Vec<u8>>,
        meanwhile: &mut Meanwhile<'_, '_>,
    ) -> Result<(), SourceError> {
        let (said, ends) = asked::answered(request);
        let mut bytes = self.reports.rest();
        // Writing into memory does not fail.
        let _ = said.write(&mut bytes);
        self.write(
            &bytes,
            clock::now().saturating_add(ANSWER_WITHIN),
            meanwhile,
        )?;
        ends.map_or(Ok(()), Err)
    }

    /// Asks and waits for the answer.
    pub(super) fn ask(
        &mut self,
        method: Method,
        uri: &str,
        headers: Vec<(HeaderName, String)>,
        meanwhile: &mut Meanwhile<'_, '_>,
    ) -> Result<Said, SourceError> {
        self.send(Asked::new(method, uri.to_owned(), headers), meanwhile)?;
        loop {
            match self.input.next_item() {
                Ok(Next::Response(said)) => {
                    if let Some(said) = self.answered(*said, meanwhile)? {
                        return Ok(said);
                    }
                }
                Ok(Next::Request(request)) => self.is_asked(&request, meanwhile)?,
                Ok(Next::Packet { len, .. }) => self.discard(len, meanwhile)?,
                Ok(Next::More) => self.wait_for_bytes(meanwhile)?,
                // The end of a description that is longer than it says, say, is passed over up to the next answer.
                Err(InputError::Syntax) if self.is_understood => {
                    self.input.take(&mut [0]);
                    self.input.pass_stray(|_, _| false);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn discard(
        &mut self,
        len: usize,
        meanwhile: &mut Meanwhile<'_, '_>,
    ) -> Result<(), SourceError> {
        let mut left = len;
        let mut scratch = [0; 4_096];
        while left > 0 {
            let most = left.min(scratch.len());
            let taken = self.input.take(&mut scratch[..most]);
            left -= taken;
            if taken == 0 {
                self.wait_for_bytes(meanwhile)?;
            }
        }
        Ok(())
    }

    fn wait_for_bytes(&mut self, meanwhile: &mut Meanwhile<'_, '_>) -> Result<(), SourceError> {
        let until = self.answers_by().unwrap_or_else(clock::now);
        loop {
            if !meanwhile.sleep(Some(Ready::Heard(&self.link)), until)? {
                return Err(SourceError::Late(ANSWER_WITHIN));
            }
            match self.receiver().receive(4_096)? {
                None => {}
                Some(0) => return Err(SourceError::Closed),
                Some(_) => return Ok(()),
            }
        }
    }

    /// A request, and whether it says who asks.
    pub(super) fn request(
        &mut self,
        method: &Method,
        uri: &str,
        headers: &[(HeaderName, String)],
    ) -> Result<(Vec<u8>, bool), SourceError> {
        self.number += 1;
        let url = Url::parse(uri).map_err(|_| SourceError::Control(uri.to_owned()))?;
        let login = self.login.header(method.into(), url.as_str())?;
        let had_login = login.is_some();
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
        Ok((bytes, had_login))
    }

    pub(super) fn send(
        &mut self,
        asked: Asked,
        meanwhile: &mut Meanwhile<'_, '_>,
    ) -> Result<(), SourceError> {
        let (request, had_login) = self.request(&asked.method, &asked.uri, &asked.headers)?;
        let bytes = [self.reports.rest(), request].concat();
        let at = clock::now();
        let until = at.saturating_add(ANSWER_WITHIN);
        self.write(&bytes, until, meanwhile)?;
        self.asked = Some(Asked {
            number: self.number,
            at,
            until,
            had_login,
            ..asked
        });
        Ok(())
    }

    fn write(
        &mut self,
        bytes: &[u8],
        until: Time,
        meanwhile: &mut Meanwhile<'_, '_>,
    ) -> Result<(), SourceError> {
        let mut sent = 0;
        while sent < bytes.len() {
            match self.link.write(&bytes[sent..])? {
                Some(count) => sent += count,
                None => {
                    let ready = Some(Ready::Fd(self.link.as_fd(), PollFlags::OUT));
                    if !meanwhile.sleep(ready, until)? {
                        return Err(SourceError::Late(ANSWER_WITHIN));
                    }
                }
            }
        }
        Ok(())
    }
}

/// What was asked is refused.
fn refused(method: Method, said: &Said) -> SourceError {
    let reason = said.reason_phrase().chars();
    let reason = reason.filter(|of| !of.is_control()).collect();
    SourceError::Status(method, said.status().into(), reason)
}
