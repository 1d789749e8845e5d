//! A connection: its requests, its session, and its packets.
//!
//! # States (RFC 2326, appendix A.2)
//!
//! ```text
//! nothing -- ANNOUNCE --> announced -- SETUP --> ready -- RECORD --> recording -- TEARDOWN --> nothing
//! nothing ------------------------- SETUP --> ready --  PLAY  --> playing   -- PAUSE --> ready
//!                                                                 recording -- PAUSE, BYE --> ready
//! ```
//!
//! The first SETUP reserves for the whole presentation, or is refused. RECORD after PAUSE reserves again, as PAUSE
//! has given the reservation back. A request that does not fit the state is refused with 455 and changes nothing.

mod answer;
mod burst;
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
mod viewing;

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
use crate::archive::{ActiveRecording, Archive, Recording};
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
use crate::session::demand::RateEstimate;
use crate::session::rate_from::RateFrom;
use crate::session::registry::Session;
use answer::{Answer, answer};
use outgoing::SentCounts;
pub(crate) use target::volumes;
use viewing::{ViewProgress, ViewedStream};

/// A request with its body.
type ClientRequest = Request<Vec<u8>>;

/// A peer that does not take a reply for this long is disconnected.
const ANSWER_WITHIN: Nanos = Nanos::from_secs(10);

/// A peer has this long for the TLS handshake.
const HANDSHAKE_WITHIN: Nanos = Nanos::from_secs(10);

/// Why a connection was closed by the server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Socket(#[from] io::Error),
    #[error("the recording failed: {0}")]
    Record(#[from] RecordError),
    #[error("playing failed: {0}")]
    Play(#[from] PlayError),
    #[error("nothing was received for {0}")]
    Silent(Nanos),
    #[error("the peer does not read its replies")]
    Slow,
    #[error("too many failed logins")]
    Guessing,
    #[error("the server is stopping")]
    Stopped,
    #[error("its session was ended")]
    SessionEnded,
}

/// The role of a session.
enum Role {
    /// It records.
    Publisher {
        destination: RecordingDestination,
        description: Box<Description>,
        /// The source of the rate that it reserves.
        rate_from: RateFrom,
        /// From the first SETUP on, except while and after it records.
        reserved: Option<RecordingReservation>,
    },
    /// It plays.
    Player {
        /// The recordings that are played together, at least one. The first one is the master.
        parts: Vec<Part>,
    },
    /// It plays live streams.
    Viewer {
        /// The streams that are played together, at least one.
        streams: Vec<ViewedStream>,
    },
}

/// A recording that is played, and its reservation.
struct Part {
    archive: Arc<Archive>,
    recording: Recording,
    description: Description,
    reserved: ReservedStream,
    member: Arc<Session>,
    /// How its reserved rate is known.
    estimate: RateEstimate,
    /// The number of its first track in the session.
    first_track: usize,
    /// The SSRC of each track for packets of further recordings.
    sources: Vec<u32>,
}

impl Part {
    /// The transports of its tracks, among those of the session.
    fn transports<'b>(&self, all: &'b [Option<Transport>]) -> &'b [Option<Transport>] {
        let tracks = self.first_track..self.first_track + self.description.tracks().len();
        all.get(tracks).unwrap_or_default()
    }
}

/// A stream of a session. Dropping it waits until its share is given back: TEARDOWN is answered after that, and the
/// client may reserve the share again.
struct ReservedStream(Stream);

impl Deref for ReservedStream {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        &self.0
    }
}

impl Drop for ReservedStream {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// The destination of what a publisher sends.
enum RecordingDestination {
    /// A recording in this archive.
    Archive(Arc<Archive>),
    /// A live stream of this name, which is not recorded.
    Live(String),
}

impl RecordingDestination {
    /// The name of the volume or of the live stream.
    fn name(&self) -> &str {
        match self {
            Self::Archive(archive) => archive.volume().name(),
            Self::Live(name) => name,
        }
    }
}

/// A recording that may begin.
struct RecordingReservation {
    /// The reservation; `None` of a stream that is live only.
    disks: Option<(ReservedStream, ActiveRecording)>,
    member: Arc<Session>,
}

/// A session.
struct RtspSession {
    id: String,
    role: Role,
    /// The transport of each track.
    transports: Vec<Option<Transport>>,
    /// Where each part of a player was paused.
    paused: Option<Vec<Option<Place>>>,
    /// Counts of each track that a player has sent.
    sent: Vec<SentCounts>,
}

impl RtspSession {
    /// Its entries in the list of sessions.
    fn members(&self) -> impl Iterator<Item = &Arc<Session>> {
        let (reserved, parts, streams): (_, &[Part], &[ViewedStream]) = match &self.role {
            Role::Publisher { reserved, .. } => (reserved.as_ref(), &[], &[]),
            Role::Player { parts } => (None, parts, &[]),
            Role::Viewer { streams } => (None, &[], streams),
        };
        let played = parts.iter().map(|part| &part.member);
        let viewed = streams.iter().map(|stream| &stream.member);
        let recorded = reserved.map(|of| &of.member);
        recorded.into_iter().chain(played).chain(viewed)
    }

    /// The transports of a player: datagrams there show that the player is there, also while nothing is sent. Those
    /// of a publisher stay in the sockets until it records.
    fn transports_of_player(&self) -> impl Iterator<Item = &Transport> {
        let is_player = matches!(self.role, Role::Player { .. } | Role::Viewer { .. });
        let transports = is_player.then_some(&self.transports);
        transports.into_iter().flatten().flatten()
    }

    /// True if it has recorded and does not record at the moment: the reservation of the first SETUP is used up.
    fn has_recorded(&self) -> bool {
        let is_set_up = self.transports.iter().any(Option::is_some);
        is_set_up && matches!(self.role, Role::Publisher { reserved: None, .. })
    }
}

/// A connection with its session.
pub(crate) struct Connection<'a> {
    shared: &'a Shared,
    link: Link,
    local: SocketAddr,
    peer: SocketAddr,
    input: Input,
    /// Bytes of a packet that are to be skipped when they arrive.
    skipping: usize,
    guard: Guard,
    /// Another service of this process has admitted the peer.
    is_admitted: bool,
    session: Option<RtspSession>,
    /// The reservation of the recording that is being made.
    recording: Option<Arc<Session>>,
    /// The position of live play that goes on.
    view_progress: ViewProgress,
    /// When the peer was heard last.
    heard: Time,
}

/// Events that an idle connection wakes for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IdleEvent {
    Socket,
    /// A datagram of a player.
    Datagram,
    Stop,
    /// A session of it was ended.
    SessionEnded,
}

/// The activity of a connection after a request.
enum NextStep {
    /// It reads the next request.
    Read,
    Record,
    Play(Box<play_request::PlayRequest>),
    /// It plays live streams.
    View,
}

impl<'a> Connection<'a> {
    pub(crate) fn new(shared: &'a Shared, link: Link, local: SocketAddr, peer: SocketAddr) -> Self {
        Self {
            shared,
            link,
            local,
            peer,
            input: Input::default(),
            skipping: 0,
            recording: None,
            view_progress: ViewProgress::default(),
            guard: Guard::default(),
            is_admitted: false,
            session: None,
            heard: clock::now(),
        }
    }

    /// A connection whose peer another service of this process has admitted.
    pub(crate) fn admitted(shared: &'a Shared, link: Link, peer: SocketAddr) -> Self {
        Self {
            is_admitted: true,
            ..Self::new(shared, link, peer, peer)
        }
    }

    /// Serves requests until the connection ends.
    pub(crate) fn serve(mut self) -> Result<(), ConnectionError> {
        loop {
            let Some(request) = self.idle()? else {
                return Ok(());
            };
            let (said, next) = match self.admit(&request)? {
                Some(refused) => (refused.done(), NextStep::Read),
                None => self.handle(&request),
            };
            self.tell(&said)?;
            let goes_on = match next {
                NextStep::Read => true,
                NextStep::Record => self.record()?,
                next => self.play(next)?,
            };
            if !goes_on {
                return Ok(());
            }
        }
    }

    fn timeout(&self) -> Nanos {
        Nanos(u64::try_from(self.shared.config.timeout.as_nanos()).unwrap_or(u64::MAX))
    }

    /// The time after which a peer that sends nothing is disconnected.
    fn patience(&self) -> Nanos {
        match self.link.is_handshaking() {
            true => self.timeout().min(HANDSHAKE_WITHIN),
            false => self.timeout(),
        }
    }

    /// Waits for the next request while no packets are moved; `None` if the peer has closed the connection or the
    /// server stops.
    fn idle(&mut self) -> Result<Option<ClientRequest>, ConnectionError> {
        loop {
            if self.skipping > 0 && !self.skip() {
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
                    // The session does not record.
                    self.skipping = len;
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

    /// Sleeps until bytes have arrived, and reads them; returns false if the peer has closed the connection or the
    /// server stops.
    fn wait_for_bytes(&mut self) -> Result<bool, ConnectionError> {
        loop {
            let until = self.heard.saturating_add(self.patience());
            let mut wait = Wait::new();
            self.link.hear(&mut wait, IdleEvent::Socket);
            wait.readable(self.shared.stop.as_fd(), IdleEvent::Stop);
            for member in self.session.iter().flat_map(RtspSession::members) {
                wait.readable(member.ends(), IdleEvent::Stop);
            }
            for transport in self.transports_of_player() {
                transport.hear(&mut wait, IdleEvent::Datagram);
            }
            let ready = wait.sleep(true, Some(until))?;
            if ready.contains(&IdleEvent::Stop) {
                return Ok(false);
            }
            if ready.contains(&IdleEvent::Datagram) {
                let transports = self.transports_of_player();
                if transports.filter(|of| of.take_keepalives()).count() > 0 {
                    self.heard = clock::now();
                }
            }
            if ready.contains(&IdleEvent::Socket) {
                match self.receive(4_096)? {
                    Some(0) => return Ok(false),
                    Some(_) => return Ok(true),
                    None => {}
                }
            }
            if clock::now() >= self.heard.saturating_add(self.patience()) {
                return Err(ConnectionError::Silent(self.patience()));
            }
        }
    }

    fn receiver(&mut self) -> Receiver<'_> {
        Receiver {
            link: &mut self.link,
            input: &mut self.input,
            heard: &mut self.heard,
        }
    }

    /// As [`Receiver::receive`].
    fn receive(&mut self, most: usize) -> Result<Option<usize>, ConnectionError> {
        Ok(self.receiver().receive(most)?)
    }

    /// Skips bytes of a packet that have arrived; returns true if it is complete.
    fn skip(&mut self) -> bool {
        let mut scratch = [0; 4_096];
        while self.skipping > 0 {
            let most = self.skipping.min(scratch.len());
            match self.input.take(&mut scratch[..most]) {
                0 => return false,
                taken => self.skipping -= taken,
            }
        }
        self.heard = clock::now();
        true
    }

    /// Sends a reply, and waits until all of it is sent.
    fn tell(&mut self, said: &Response<Vec<u8>>) -> Result<(), ConnectionError> {
        let mut bytes = Vec::new();
        said.write(&mut bytes)
            .map_err(|_| io::Error::other("a reply cannot be written"))?;
        self.send_all(&bytes)
    }

    fn send_all(&mut self, bytes: &[u8]) -> Result<(), ConnectionError> {
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
                wait.add(self.link.as_fd(), PollFlags::OUT, IdleEvent::Socket);
                wait.readable(self.shared.stop.as_fd(), IdleEvent::Stop);
                let members = self.session.iter().flat_map(RtspSession::members);
                for member in members.chain(&self.recording) {
                    wait.readable(member.ends(), IdleEvent::SessionEnded);
                }
                let ready = wait.sleep(true, Some(until))?;
                if ready.contains(&IdleEvent::Stop) {
                    return Err(ConnectionError::Stopped);
                }
                if ready.contains(&IdleEvent::SessionEnded) {
                    return Err(ConnectionError::SessionEnded);
                }
                if ready.is_empty() && clock::now() >= until {
                    return Err(ConnectionError::Slow);
                }
            }
        }
    }

    /// The reply to a request, and what follows it.
    fn handle(&mut self, request: &ClientRequest) -> (Response<Vec<u8>>, NextStep) {
        let peer = self.peer;
        let next = |answer: Answer| (answer.log(peer, request).done(), NextStep::Read);
        if let Some(said) = self.wrong_session(request) {
            return next(said);
        }
        if matches!(request.method(), Method::Play | Method::Record)
            && let Err(said) = self.may_begin(request)
        {
            return next(said);
        }
        match request.method() {
            Method::Options => next(answer::options(request)),
            Method::Announce => next(self.announce(request)),
            Method::Describe => next(self.describe(request)),
            Method::Setup => next(self.set_up(request)),
            Method::Record => self.begin_record(request),
            Method::Play => self.begin_play(request),
            // A publisher whose recording has ended by itself may pause as well.
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
        matches!(role, Some(Role::Player { .. } | Role::Viewer { .. }))
    }

    /// A reply with the session's identifier.
    fn in_session(&self, request: &ClientRequest, status: StatusCode) -> Answer {
        let mut said = answer(Some(request), status);
        if let Some(session) = &self.session {
            said = said.session(&session.id, self.shared.config.timeout);
        }
        said
    }

    /// The refusal of a request that names a session other than the connection's.
    fn wrong_session(&self, request: &ClientRequest) -> Option<Answer> {
        let named = request.header(&rtsp_types::headers::SESSION)?.as_str();
        let named = named.split(';').next().unwrap_or_default().trim();
        let is_it = self
            .session
            .as_ref()
            .is_some_and(|session| session.id == named);
        (!is_it).then(|| answer(Some(request), StatusCode::SessionNotFound))
    }
}
