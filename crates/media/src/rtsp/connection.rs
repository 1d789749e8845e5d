//! A connection: its requests, its session, and what it moves.
//!
//! # States (RFC 2326, appendix A.2)
//!
//! ```text
//! nothing -- ANNOUNCE --> announced -- SETUP --> ready -- RECORD --> recording -- TEARDOWN --> nothing
//! nothing ------------------------- SETUP --> ready --  PLAY  --> playing   -- PAUSE --> ready
//!                                                                 recording -- PAUSE, BYE --> ready
//! ```
//!
//! The first SETUP reserves for the whole presentation: the disks carry it or not. So does RECORD after PAUSE, which has
//! given it back. A request that does not fit the
//! state is answered with 455 and changes nothing.

mod answer;
pub(crate) mod fuzzing;
mod login;
mod meanwhile;
mod outgoing;
mod parameters;
mod play_request;
mod playing;
mod range;
mod recording;
mod setup;
mod starts;
mod target;
mod unwanted;

use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::sync::Arc;

use engine::clock;
use engine::stream::Stream;
use rtsp_types::{Method, Request, Response, StatusCode};
use rustix::event::PollFlags;
use sched::units::{Nanos, Time};

use crate::archive::start::Place;
use crate::archive::{Archive, Recording, Writing};
use crate::play::PlayError;
use crate::record::RecordError;
use crate::rtsp::access::Guard;
use crate::rtsp::input::{Input, InputError, Next};
use crate::rtsp::link::Link;
use crate::rtsp::poll::Wait;
use crate::rtsp::receive::{ReceiveError, Receiver};
use crate::rtsp::server::Shared;
use crate::rtsp::transport::Transport;
use crate::sdp::Description;
use crate::session::rate_from::RateFrom;
use crate::session::registry::Session;
use answer::{Answer, answer};
use outgoing::Sent;
pub(crate) use target::volumes;

/// A request, with its body.
type Asked = Request<Vec<u8>>;

/// How long a peer may take to take what it is told.
const ANSWER_WITHIN: Nanos = Nanos::from_secs(10);

/// How long it may take until TLS is agreed on.
const HANDSHAKE_WITHIN: Nanos = Nanos::from_secs(10);

/// Why a connection ended that its peer has not ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Socket(#[from] io::Error),
    #[error("the recording: {0}")]
    Record(#[from] RecordError),
    #[error("what is played: {0}")]
    Play(#[from] PlayError),
    #[error("nothing was heard of it for {0}")]
    Silent(Nanos),
    #[error("it does not take its answers")]
    Slow,
    #[error("it has said too often who it is not")]
    Guessing,
    #[error("the server ends")]
    Stopped,
    #[error("somebody has ended its session")]
    Over,
}

/// What a session does.
enum Role {
    /// It records.
    Publisher {
        archive: Arc<Archive>,
        description: Box<Description>,
        /// Where the rate comes from that it needs.
        rate_from: RateFrom,
        /// From the first SETUP on.
        reserved: Option<Reserved>,
    },
    /// It plays.
    Player {
        /// What is played together; the first one is the master, and there is one.
        parts: Vec<Part>,
        /// It begins with what is being recorded unless it says otherwise.
        is_live: bool,
    },
}

/// A recording that is played, and what is reserved for that.
struct Part {
    archive: Arc<Archive>,
    recording: Recording,
    description: Description,
    reserved: Held,
    member: Arc<Session>,
    /// What is reserved is what somebody said it needs, or a default, not what it is known to.
    is_guess: bool,
    /// The session's number of its first track.
    first_track: usize,
    /// Under which SSRC the packets of each track are sent, if they are of several recordings.
    sources: Vec<u32>,
}

impl Part {
    /// The transports of its tracks, of those of the session.
    fn transports<'b>(&self, all: &'b [Option<Transport>]) -> &'b [Option<Transport>] {
        let tracks = self.first_track..self.first_track + self.description.tracks().len();
        all.get(tracks).unwrap_or_default()
    }
}

/// A stream of a session. Dropping it waits until its share is given back: the answer to TEARDOWN comes after that, and
/// the client may reserve the share again.
struct Held(Stream);

impl Deref for Held {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        &self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// What is reserved for a recording.
struct Reserved {
    stream: Held,
    writing: Writing,
    member: Arc<Session>,
}

/// A session.
struct RtspSession {
    id: String,
    role: Role,
    /// By track.
    transports: Vec<Option<Transport>>,
    /// Where each of what is played was paused.
    paused: Option<Vec<Option<Place>>>,
    /// By track, what has been sent.
    sent: Vec<Sent>,
}

impl RtspSession {
    /// What it has reserved, if anything.
    fn members(&self) -> impl Iterator<Item = &Arc<Session>> {
        let (reserved, parts): (_, &[Part]) = match &self.role {
            Role::Publisher { reserved, .. } => (reserved.as_ref(), &[]),
            Role::Player { parts, .. } => (None, parts),
        };
        let played = parts.iter().map(|part| &part.member);
        reserved.map(|of| &of.member).into_iter().chain(played)
    }

    /// Of somebody who plays: what comes there says that it is there, also while nothing is sent. What a publisher sends is
    /// kept until it records.
    fn transports_of_player(&self) -> impl Iterator<Item = &Transport> {
        let is_player = matches!(self.role, Role::Player { .. });
        let transports = is_player.then_some(&self.transports);
        transports.into_iter().flatten().flatten()
    }

    /// It has made a recording, and makes none now: the first SETUP has reserved for it.
    fn has_recorded(&self) -> bool {
        let is_set_up = self.transports.iter().any(Option::is_some);
        is_set_up && matches!(self.role, Role::Publisher { reserved: None, .. })
    }
}

/// A connection and its session.
pub(crate) struct Connection<'a> {
    shared: &'a Shared,
    link: Link,
    local: SocketAddr,
    peer: SocketAddr,
    input: Input,
    /// So many bytes of a packet are passed over as they come.
    passing: usize,
    guard: Guard,
    session: Option<RtspSession>,
    /// Who is recorded at the moment.
    recorder: Option<Arc<Session>>,
    /// When something was heard last.
    heard: Time,
}

/// What an idle connection wakes for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ready {
    Socket,
    /// What comes by UDP of who plays.
    Heard,
    Stop,
    /// Somebody has ended a session of it.
    Over,
}

/// What a connection does after a request.
enum NextStep {
    /// It reads the next request.
    Read,
    Record,
    Play(Box<play_request::PlayRequest>),
}

impl<'a> Connection<'a> {
    pub(crate) fn new(shared: &'a Shared, link: Link, local: SocketAddr, peer: SocketAddr) -> Self {
        Self {
            shared,
            link,
            local,
            peer,
            input: Input::default(),
            passing: 0,
            recorder: None,
            guard: Guard::default(),
            session: None,
            heard: clock::now(),
        }
    }

    /// Serves it to its end.
    pub(crate) fn serve(mut self) -> Result<(), Ended> {
        loop {
            let Some(request) = self.idle()? else {
                return Ok(());
            };
            let (said, then) = match self.admit(&request)? {
                Some(refused) => (refused.done(), NextStep::Read),
                None => self.handle(&request),
            };
            self.tell(&said)?;
            let again = match then {
                NextStep::Read => true,
                NextStep::Record => self.record()?,
                NextStep::Play(wanted) => self.play(wanted)?,
            };
            if !again {
                return Ok(());
            }
        }
    }

    fn timeout(&self) -> Nanos {
        Nanos(u64::try_from(self.shared.config.timeout.as_nanos()).unwrap_or(u64::MAX))
    }

    /// How long it may say nothing.
    fn patience(&self) -> Nanos {
        match self.link.is_handshaking() {
            true => self.timeout().min(HANDSHAKE_WITHIN),
            false => self.timeout(),
        }
    }

    /// The next request while nothing is moved; `None`: the peer or the server has ended.
    fn idle(&mut self) -> Result<Option<Asked>, Ended> {
        loop {
            if self.passing > 0 && !self.pass() {
                if !self.wait_for_bytes()? {
                    return Ok(None);
                }
                continue;
            }
            match self.input.next_item() {
                Ok(Next::Request(request)) => {
                    self.heard = clock::now();
                    return Ok(Some(*request));
                }
                Ok(Next::Response(_)) => continue,
                Ok(Next::Packet { len, .. }) => {
                    // Of a session that moves nothing at this moment.
                    self.passing = len;
                    continue;
                }
                Ok(Next::More) => {}
                Err(error) => {
                    let said = answer(None, StatusCode::BadRequest).because(error.to_string());
                    self.tell(&said)?;
                    return Err(error.into());
                }
            }
            if !self.wait_for_bytes()? {
                return Ok(None);
            }
        }
    }

    /// Sleeps until something has come and takes it in; `false`: the peer or the server has ended.
    fn wait_for_bytes(&mut self) -> Result<bool, Ended> {
        loop {
            let until = self.heard.saturating_add(self.patience());
            let mut wait = Wait::new();
            self.link.hear(&mut wait, Ready::Socket);
            wait.readable(self.shared.stop.as_fd(), Ready::Stop);
            for member in self.session.iter().flat_map(RtspSession::members) {
                wait.readable(member.ends(), Ready::Stop);
            }
            for transport in self.transports_of_player() {
                transport.hear(&mut wait, Ready::Heard);
            }
            let ready = wait.sleep(true, Some(until))?;
            if ready.contains(&Ready::Stop) {
                return Ok(false);
            }
            if ready.contains(&Ready::Heard) {
                let said = self.transports_of_player().filter(|of| of.has_said());
                if said.count() > 0 {
                    self.heard = clock::now();
                }
            }
            if ready.contains(&Ready::Socket) {
                match self.receive(4_096)? {
                    Some(0) => return Ok(false),
                    Some(_) => return Ok(true),
                    None => {}
                }
            }
            if clock::now() >= self.heard.saturating_add(self.patience()) {
                return Err(Ended::Silent(self.patience()));
            }
        }
    }

    /// What takes in what comes.
    fn receiver(&mut self) -> Receiver<'_> {
        Receiver {
            link: &mut self.link,
            input: &mut self.input,
            heard: &mut self.heard,
        }
    }

    /// Takes in what has come, at most so much; `None`: nothing has, `Some(0)`: nothing will.
    fn receive(&mut self, most: usize) -> Result<Option<usize>, Ended> {
        Ok(self.receiver().receive(most)?)
    }

    /// Passes over what has come of a packet; whether that was all that was left of it.
    fn pass(&mut self) -> bool {
        let mut scratch = [0; 4_096];
        while self.passing > 0 {
            let most = self.passing.min(scratch.len());
            match self.input.take(&mut scratch[..most]) {
                0 => return false,
                taken => self.passing -= taken,
            }
        }
        self.heard = clock::now();
        true
    }

    /// Sends an answer, and waits until all of it has gone.
    fn tell(&mut self, said: &Response<Vec<u8>>) -> Result<(), Ended> {
        let mut bytes = Vec::new();
        said.write(&mut bytes)
            .map_err(|_| io::Error::other("an answer that is none"))?;
        self.send_all(&bytes)
    }

    fn send_all(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        let until = clock::now().saturating_add(ANSWER_WITHIN);
        let mut sent = 0;
        loop {
            let taken = match bytes.get(sent..).filter(|left| !left.is_empty()) {
                Some(left) => self.link.write(left)?,
                None if self.link.flush()? => return Ok(()),
                None => None,
            };
            sent += taken.unwrap_or(0);
            if taken.is_none() {
                let mut wait = Wait::new();
                wait.add(self.link.as_fd(), PollFlags::OUT, Ready::Socket);
                wait.readable(self.shared.stop.as_fd(), Ready::Stop);
                let members = self.session.iter().flat_map(RtspSession::members);
                for member in members.chain(&self.recorder) {
                    wait.readable(member.ends(), Ready::Over);
                }
                let ready = wait.sleep(true, Some(until))?;
                if ready.contains(&Ready::Stop) {
                    return Err(Ended::Stopped);
                }
                if ready.contains(&Ready::Over) {
                    return Err(Ended::Over);
                }
                if ready.is_empty() && clock::now() >= until {
                    return Err(Ended::Slow);
                }
            }
        }
    }

    /// What a request is answered, and what follows.
    fn handle(&mut self, request: &Asked) -> (Response<Vec<u8>>, NextStep) {
        let peer = self.peer;
        let next = |answer: Answer| (answer.log(peer, request).done(), NextStep::Read);
        if let Some(said) = self.wrong_session(request) {
            return next(said);
        }
        match request.method() {
            Method::Options => next(answer::options(request)),
            Method::Announce => next(self.announce(request)),
            Method::Describe => next(self.describe(request)),
            Method::Setup => next(self.set_up(request)),
            Method::Record => self.begin_record(request),
            Method::Play => self.begin_play(request),
            // Who has said that it leaves may pause all the same.
            Method::Pause => {
                match self.is_player()
                    || self.session.as_ref().is_some_and(RtspSession::has_recorded)
                {
                    true => next(self.in_session(request, StatusCode::Ok)),
                    false => next(self.in_session(request, StatusCode::MethodNotValidInThisState)),
                }
            }
            Method::GetParameter | Method::SetParameter => {
                next(self.parameters_in_session(request))
            }
            Method::Teardown => {
                let said = self.in_session(request, StatusCode::Ok);
                self.session = None;
                next(said)
            }
            _ => next(answer(Some(request), StatusCode::NotImplemented)),
        }
    }

    fn transports_of_player(&self) -> impl Iterator<Item = &Transport> {
        let session = self.session.as_ref();
        session
            .into_iter()
            .flat_map(RtspSession::transports_of_player)
    }

    fn is_player(&self) -> bool {
        let role = self.session.as_ref().map(|session| &session.role);
        matches!(role, Some(Role::Player { .. }))
    }

    /// An answer in the name of the session.
    fn in_session(&self, request: &Asked, status: StatusCode) -> Answer {
        let mut said = answer(Some(request), status);
        if let Some(session) = &self.session {
            said = said.session(&session.id, self.shared.config.timeout);
        }
        said
    }

    /// Whether a request names a session that is not the connection's.
    fn wrong_session(&self, request: &Asked) -> Option<Answer> {
        let named = request.header(&rtsp_types::headers::SESSION)?.as_str();
        let named = named.split(';').next().unwrap_or_default().trim();
        let is_it = self
            .session
            .as_ref()
            .is_some_and(|session| session.id == named);
        (!is_it).then(|| answer(Some(request), StatusCode::SessionNotFound))
    }
}
