//! A connection to a camera, as its client: what is asked of it, and what it answers.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;

use engine::clock;
use rtsp_types::headers::{
    AUTHORIZATION, CONTENT_BASE, CONTENT_LOCATION, CSEQ, HeaderName, PUBLIC, RANGE, SESSION,
    TRANSPORT, USER_AGENT, WWW_AUTHENTICATE,
};
use rtsp_types::{Method, Request, Response, StatusCode, Url, Version};
use rustix::event::PollFlags;
use sched::units::{Nanos, Time};

use super::login::Login;
use super::own::is_own;
use super::reach::{Meanwhile, Ready, connected, resolve};
use super::said::{based, chosen, elsewhere, refuses};
use super::{Address, Lower, SourceError};
use crate::media::description::Description;
use crate::media::input::{Input, Next};
use crate::media::link::Link;
use crate::media::receive::Receiver;
use crate::media::record::Tape;
use crate::media::reports::Reports;
use crate::media::tls::{self, Trusted};
use crate::media::transport::Transport;

/// How long a camera may take for anything that it is asked.
pub(super) const ANSWER_WITHIN: Nanos = Nanos::from_secs(10);

/// The session's timeout where the camera does not say one (RFC 2326, section 12.37).
const TIMEOUT_DEFAULT: Nanos = Nanos::from_secs(60);

/// The shortest that is believed: a session is not kept alive more often than twice a second.
const TIMEOUT_MIN: Nanos = Nanos::from_secs(1);

/// The longest: who says more is asked as often as who says an hour.
const TIMEOUT_SECONDS_MAX: u64 = 3_600;

/// An answer, with its body.
pub(super) type Said = Response<Vec<u8>>;

/// What a camera shows.
pub(super) enum Shows {
    /// What it has.
    Tracks(Box<Description>),
    /// What is at this URL.
    Elsewhere(String),
}

/// What was asked, and not answered yet.
struct Asked {
    number: u32,
    method: Method,
    uri: String,
    headers: Vec<(HeaderName, String)>,
    /// When it was.
    at: Time,
    /// When it is too late for an answer.
    until: Time,
    /// Whether it said who asks.
    had_login: bool,
}

/// A camera that is connected to.
pub(super) struct Camera {
    link: Link,
    local: SocketAddr,
    peer: SocketAddr,
    input: Input,
    pub(super) heard: Time,
    number: u32,
    url: Url,
    login: Login,
    session: Option<String>,
    timeout: Nanos,
    keeps_alive_by: Method,
    asked: Option<Asked>,
    /// What it is told of its packets.
    reports: Reports,
    /// What the presentation is called, and what its tracks' names are relative to.
    base: String,
}

impl Camera {
    /// Whether it is who listens at one of these, of this host's.
    pub(super) fn is_at(&self, listening: &[SocketAddr]) -> bool {
        is_own(self.peer, listening)
    }

    /// Connects.
    ///
    /// # Errors
    /// When it cannot be reached.
    pub(super) fn connect(
        address: &Address,
        trusted: Option<&Trusted>,
        meanwhile: &mut Meanwhile<'_, '_>,
    ) -> Result<Self, SourceError> {
        let mut last = SourceError::NoAddress(address.host.clone());
        for peer in resolve(address, meanwhile)? {
            match connected(peer, meanwhile) {
                Ok(socket) => return Self::new(address, trusted, socket, peer),
                Err(error @ SourceError::Connect(..)) => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    fn new(
        address: &Address,
        trusted: Option<&Trusted>,
        socket: TcpStream,
        peer: SocketAddr,
    ) -> Result<Self, SourceError> {
        socket.set_nodelay(true)?;
        let local = socket.local_addr()?;
        let link = match address.is_secure() {
            false => Link::from(socket),
            true => Link::secure(socket, tls::connect(&address.host, trusted)?),
        };
        Ok(Self {
            local,
            link,
            peer,
            input: Input::default(),
            heard: clock::now(),
            number: 0,
            url: address.url.clone(),
            login: Login::new(address.credentials.clone()),
            session: None,
            timeout: TIMEOUT_DEFAULT,
            keeps_alive_by: Method::Options,
            asked: None,
            reports: Reports::new(clock::now()),
            base: address.url.as_str().to_owned(),
        })
    }

    /// Where it is.
    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    pub(super) fn receiver(&mut self) -> Receiver<'_> {
        Receiver {
            link: &mut self.link,
            input: &mut self.input,
            heard: &mut self.heard,
        }
    }

    /// What it can be asked for, and what it shows.
    ///
    /// # Errors
    /// When it says no, or something that cannot be recorded.
    pub(super) fn describe(
        &mut self,
        meanwhile: &mut Meanwhile<'_, '_>,
    ) -> Result<Shows, SourceError> {
        let uri = self.url.as_str().to_owned();
        let options = self.ask(Method::Options, &uri, Vec::new(), meanwhile)?;
        let can = options.header(&PUBLIC).map_or("", |public| public.as_str());
        if can
            .split(',')
            .any(|method| method.trim() == "GET_PARAMETER")
        {
            self.keeps_alive_by = Method::GetParameter;
        }
        let accept = vec![(rtsp_types::headers::ACCEPT, "application/sdp".to_owned())];
        let said = self.ask(Method::Describe, &uri, accept, meanwhile)?;
        if let Some(to) = elsewhere(&said) {
            return Ok(Shows::Elsewhere(to.to_owned()));
        }
        let base = said
            .header(&CONTENT_BASE)
            .or(said.header(&CONTENT_LOCATION));
        if let Some(base) = base.and_then(|base| based(base.as_str())) {
            base.clone_into(&mut self.base);
        }
        let description = Description::of_camera(said.body(), self.link.is_secure())?;
        Ok(Shows::Tracks(Box::new(description)))
    }

    /// What a part of the presentation is called (RFC 2326, appendix C.1.1).
    fn named(&self, control: Option<&str>) -> String {
        match control {
            None | Some("*" | "") => self.base.clone(),
            Some(control) if control.contains("://") => control.to_owned(),
            Some(control) if self.base.ends_with('/') => format!("{}{control}", self.base),
            Some(control) => format!("{}/{control}", self.base),
        }
    }

    /// A transport for each track but those that it refuses: a microphone that is off ends no picture.
    ///
    /// # Errors
    /// When it has none that can be had.
    pub(super) fn set_up(
        &mut self,
        description: &Description,
        lower: Lower,
        meanwhile: &mut Meanwhile<'_, '_>,
    ) -> Result<Vec<Option<Transport>>, SourceError> {
        let mut transports = Vec::new();
        for (number, track) in description.tracks().iter().enumerate() {
            let uri = self.named(track.control.as_deref());
            let transport = match lower {
                Lower::Tcp => self.set_up_tcp(number, &uri, meanwhile),
                Lower::Udp => self.set_up_udp(&uri, meanwhile),
            };
            let is_main = number == description.main_track();
            transports.push(match transport {
                Err(error @ SourceError::Status(_, status, _)) if !is_main && refuses(status) => {
                    let url = self.url.as_str();
                    tracing::warn!(camera = %url, track = number, %error, "a track of a source is refused, and nothing of it is recorded");
                    None
                }
                transport => Some(transport?),
            });
        }
        Ok(transports)
    }

    fn set_up_tcp(
        &mut self,
        number: usize,
        uri: &str,
        meanwhile: &mut Meanwhile<'_, '_>,
    ) -> Result<Transport, SourceError> {
        // There are no more than 16 tracks.
        let first = 2 * number as u8;
        let asked = format!("RTP/AVP/TCP;unicast;interleaved={first}-{}", first + 1);
        let said = self.ask(Method::Setup, uri, vec![(TRANSPORT, asked)], meanwhile)?;
        let (rtp, rtcp) = chosen(&said)?.interleaved.unwrap_or((first, None));
        let rtcp = rtcp.unwrap_or(rtp.wrapping_add(1));
        Ok(Transport::Interleaved { rtp, rtcp })
    }

    fn set_up_udp(
        &mut self,
        uri: &str,
        meanwhile: &mut Meanwhile<'_, '_>,
    ) -> Result<Transport, SourceError> {
        let pair = Transport::pair(self.local.ip()).map_err(SourceError::Ports)?;
        let ports = (pair.0.local_addr()?.port(), pair.1.local_addr()?.port());
        let asked = format!("RTP/AVP;unicast;client_port={}-{}", ports.0, ports.1);
        let said = self.ask(Method::Setup, uri, vec![(TRANSPORT, asked)], meanwhile)?;
        let Some((first, second)) = chosen(&said)?.server_port else {
            return Err(SourceError::NoPorts);
        };
        let ports = (first, second.unwrap_or(first.wrapping_add(1)));
        let transport = Transport::connected(pair, self.peer.ip(), ports);
        let transport = transport.map_err(SourceError::Ports)?;
        transport.widen();
        transport.open_ways();
        Ok(transport)
    }

    /// Asks it to send; the answer comes among the packets.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub(super) fn play(
        &mut self,
        description: &Description,
        meanwhile: &mut Meanwhile<'_, '_>,
    ) -> Result<(), SourceError> {
        let uri = self.named(description.control());
        self.heard = clock::now();
        self.reports = Reports::new(self.heard);
        self.send(Method::Play, uri, Vec::new(), meanwhile)
    }

    /// When there is something to tell it of its packets; `None`: when it takes the rest of what it has been told.
    pub(super) fn reports_at(&self) -> Option<Time> {
        self.reports.next_at()
    }

    /// Tells it how well its packets come, if that is due and as far as it listens.
    pub(super) fn report(
        &mut self,
        tape: &mut Tape<'_>,
        transports: &[Option<Transport>],
        now: Time,
    ) {
        self.reports.send(&mut self.link, tape, transports, now);
    }

    /// Tells it that somebody is still there; the answer comes among the packets.
    ///
    /// # Errors
    /// When it cannot be told.
    pub(super) fn keep_alive(
        &mut self,
        meanwhile: &mut Meanwhile<'_, '_>,
    ) -> Result<(), SourceError> {
        let uri = self.base.clone();
        self.send(self.keeps_alive_by.clone(), uri, Vec::new(), meanwhile)
    }

    /// How often that is.
    pub(super) fn keep_alive_interval(&self) -> Nanos {
        Nanos(self.timeout.get() / 2)
    }

    /// Says good-bye, as far as it listens.
    pub(super) fn tear_down(&mut self) {
        if self.session.is_some() {
            let uri = self.base.clone();
            if let Ok((bytes, _)) = self.request(&Method::Teardown, &uri, &[]) {
                // One that does not take it will find out.
                let _ = self.link.write(&bytes);
            }
            self.session = None;
        }
    }

    /// When an answer is late; `None`: none is waited for.
    pub(super) fn answers_by(&self) -> Option<Time> {
        self.asked.as_ref().map(|asked| asked.until)
    }

    /// It is not listened to, so neither is it silent nor does it answer late; and it is asked again meanwhile.
    pub(super) fn waits(&mut self) {
        self.heard = clock::now();
        let until = |from: Time| from.saturating_add(ANSWER_WITHIN);
        drop(self.asked.take_if(|asked| {
            let keeps_alive = matches!(asked.method, Method::Options | Method::GetParameter);
            asked.until = until(self.heard);
            keeps_alive && self.heard >= until(asked.at)
        }));
    }

    /// No answer has come; whether that is no matter, as packets come: some give none to what keeps them alive.
    pub(super) fn may_be_silent(&mut self) -> bool {
        let keeps_alive =
            |asked: &mut Asked| matches!(asked.method, Method::Options | Method::GetParameter);
        self.asked.take_if(keeps_alive).is_some()
    }

    /// Takes in an answer that has come: `Some` if it is a good one to what was asked.
    ///
    /// # Errors
    /// When it is a bad one.
    pub(super) fn answered(
        &mut self,
        said: Said,
        meanwhile: &mut Meanwhile<'_, '_>,
    ) -> Result<Option<Said>, SourceError> {
        let number = said
            .header(&CSEQ)
            .and_then(|number| number.as_str().trim().parse().ok());
        // Some do not say to what it is.
        let is_to = |asked: &mut Asked| number.is_none_or(|number: u32| number == asked.number);
        let Some(asked) = self.asked.take_if(is_to) else {
            return Ok(None);
        };
        if said.status() == StatusCode::Unauthorized {
            let challenge = said
                .header(&WWW_AUTHENTICATE)
                .map_or("", |value| value.as_str());
            self.login.ask(challenge, asked.had_login)?;
            self.send(asked.method, asked.uri, asked.headers, meanwhile)?;
            return Ok(None);
        }
        // Some play nothing before they are told from where on; others would begin with the oldest that they have.
        if asked.method == Method::Play && asked.headers.is_empty() && refuses(said.status().into())
        {
            let from = vec![(RANGE, "npt=0.000-".to_owned())];
            self.send(asked.method, asked.uri, from, meanwhile)?;
            return Ok(None);
        }
        let is_described = asked.method == Method::Describe;
        let is_good = said.status().is_success() || is_described && elsewhere(&said).is_some();
        // Who does not know how it is kept alive is alive.
        let keeps_alive = matches!(asked.method, Method::Options | Method::GetParameter);
        if !is_good && (!keeps_alive || said.status() == StatusCode::SessionNotFound) {
            let reason = said
                .reason_phrase()
                .chars()
                .filter(|of| !of.is_control())
                .collect();
            return Err(SourceError::Status(
                asked.method,
                said.status().into(),
                reason,
            ));
        }
        self.note_session(&said);
        Ok(Some(said))
    }

    fn note_session(&mut self, said: &Said) {
        let Some(session) = said.header(&SESSION).map(|session| session.as_str()) else {
            return;
        };
        let mut parts = session.split(';').map(str::trim);
        if let Some(id) = parts.next().filter(|id| !id.is_empty()) {
            self.session = Some(id.to_owned());
        }
        let said = parts.find_map(|part| part.strip_prefix("timeout=")?.trim().parse().ok());
        if let Some(seconds) = said {
            let seconds = TIMEOUT_SECONDS_MAX.min(seconds);
            self.timeout = Nanos::from_secs(seconds).max(TIMEOUT_MIN);
        }
    }

    /// Asks and waits for the answer.
    fn ask(
        &mut self,
        method: Method,
        uri: &str,
        headers: Vec<(HeaderName, String)>,
        meanwhile: &mut Meanwhile<'_, '_>,
    ) -> Result<Said, SourceError> {
        self.send(method, uri.to_owned(), headers, meanwhile)?;
        loop {
            match self.input.next_item()? {
                Next::Response(said) => {
                    if let Some(said) = self.answered(*said, meanwhile)? {
                        return Ok(said);
                    }
                }
                Next::Request(_) => {}
                Next::Packet { len, .. } => self.discard(len, meanwhile)?,
                Next::More => self.wait_for_bytes(meanwhile)?,
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
    fn request(
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

    fn send(
        &mut self,
        method: Method,
        uri: String,
        headers: Vec<(HeaderName, String)>,
        meanwhile: &mut Meanwhile<'_, '_>,
    ) -> Result<(), SourceError> {
        let (request, had_login) = self.request(&method, &uri, &headers)?;
        let bytes = [self.reports.rest(), request].concat();
        let at = clock::now();
        let until = at.saturating_add(ANSWER_WITHIN);
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
        self.asked = Some(Asked {
            number: self.number,
            method,
            uri,
            headers,
            at,
            until,
            had_login,
        });
        Ok(())
    }
}

impl Drop for Camera {
    /// One that is asked for nothing more need not keep what it has for us.
    fn drop(&mut self) {
        self.tear_down();
    }
}
