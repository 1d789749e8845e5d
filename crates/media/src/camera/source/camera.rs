//! A connection to a camera, as its client: what is asked of it, and what it answers.

mod exchange;

use std::net::{SocketAddr, TcpStream};

use engine::clock;
use rtsp_types::headers::{ACCEPT, CONTENT_BASE, CONTENT_LOCATION, PUBLIC, TRANSPORT};
use rtsp_types::{Method, Response};
use sched::units::{Nanos, Time};

use super::address::RedirectError;
use super::alive::KeepAlive;
use super::login::Login;
use super::own::is_own;
use super::reach::{Meanwhile, connected, resolve};
use super::said::{based, channels, chosen, elsewhere, named, ports, refuses};
use super::{Address, Lower, SourceError};
use crate::record::RtpRecorder;
use crate::rtsp::input::Input;
use crate::rtsp::link::Link;
use crate::rtsp::receive::Receiver;
use crate::rtsp::reports::Reports;
use crate::rtsp::tls::{self, Trusted};
use crate::rtsp::transport::{Transport, are_free};
use crate::sdp::Description;
use exchange::Asked;

/// How long a camera may take for anything that it is asked.
pub(super) const ANSWER_WITHIN: Nanos = Nanos::from_secs(10);

/// The session's timeout where the camera does not say one (RFC 2326, section 12.37).
const TIMEOUT_DEFAULT: Nanos = Nanos::from_secs(60);

/// An answer, with its body.
pub(super) type Said = Response<Vec<u8>>;

/// What a camera shows.
pub(super) enum Shows {
    /// What it has.
    Tracks(Box<Description>),
    /// What is at this URL.
    Elsewhere(String),
}

/// A camera that is connected to.
pub(super) struct Camera {
    link: Link,
    local: SocketAddr,
    peer: SocketAddr,
    input: Input,
    pub(super) heard: Time,
    number: u32,
    /// What is asked for, and who asks.
    address: Address,
    login: Login,
    session: Option<String>,
    timeout: Nanos,
    keep_alive: KeepAlive,
    asked: Option<Asked>,
    /// What was asked up to this number and has not been answered is not waited for.
    given_up: u32,
    /// Something that was asked has been answered.
    is_understood: bool,
    /// What the tracks that are set up are called.
    tracks: Vec<String>,
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
            address: address.clone(),
            login: Login::new(address.credentials.clone()),
            session: None,
            timeout: TIMEOUT_DEFAULT,
            keep_alive: KeepAlive::new("", false),
            asked: None,
            given_up: 0,
            is_understood: false,
            tracks: Vec::new(),
            reports: Reports::new(clock::now()),
            base: address.url.as_str().to_owned(),
        })
    }

    /// Where it says that what is asked of it is.
    ///
    /// # Errors
    /// When it is nowhere that can be gone to.
    pub(super) fn redirected(&self, to: &str) -> Result<Address, RedirectError> {
        self.address.redirected(to, self.peer)
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

    /// Whether it is asked by TLS.
    pub(super) fn is_secure(&self) -> bool {
        self.link.is_secure()
    }

    /// What it can be asked for, and what it shows. It is kept alive otherwise than it says where that has not done
    /// (`keeps_otherwise`).
    ///
    /// # Errors
    /// When it says no, or something that cannot be recorded.
    pub(super) fn describe(
        &mut self,
        keeps_otherwise: bool,
        meanwhile: &mut Meanwhile<'_, '_>,
    ) -> Result<Shows, SourceError> {
        let uri = self.address.url.as_str().to_owned();
        // A camera that refuses OPTIONS may still answer DESCRIBE.
        let options = self.ask(Method::Options, &uri, Vec::new(), meanwhile)?;
        let can = options.header(&PUBLIC).map_or("", |public| public.as_str());
        self.keep_alive = KeepAlive::new(can, keeps_otherwise);
        let accept = vec![(ACCEPT, "application/sdp".to_owned())];
        let said = self.ask(Method::Describe, &uri, accept, meanwhile)?;
        if let Some(to) = elsewhere(&said) {
            return Ok(Shows::Elsewhere(to.to_owned()));
        }
        let mut bases = [CONTENT_BASE, CONTENT_LOCATION].into_iter();
        let base = bases.find_map(|name| based(said.header(&name)?.as_str(), &self.address.url));
        if let Some(base) = base {
            self.base = base;
        }
        let description = Description::of_camera(said.body(), self.link.is_secure())?;
        Ok(Shows::Tracks(Box::new(description)))
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
        self.tracks.clear();
        for (number, track) in description.tracks().iter().enumerate() {
            let uri = named(&self.base, track.control.as_deref());
            let transport = match lower {
                Lower::Tcp => self.set_up_tcp(&transports, &uri, meanwhile),
                Lower::Udp => self.set_up_udp(&uri, meanwhile),
            };
            let is_main = number == description.main_track();
            transports.push(match transport {
                Err(error @ SourceError::Status(_, status, _)) if !is_main && refuses(status) => {
                    let url = self.address.url.as_str();
                    tracing::warn!(camera = %url, track = number, %error, "a track of a source is refused, and nothing of it is recorded");
                    None
                }
                transport => {
                    let transport = transport?;
                    self.tracks.push(uri);
                    Some(transport)
                }
            });
        }
        Ok(transports)
    }

    fn set_up_tcp(
        &mut self,
        others: &[Option<Transport>],
        uri: &str,
        meanwhile: &mut Meanwhile<'_, '_>,
    ) -> Result<Transport, SourceError> {
        // There are no more than 16 tracks.
        let first = 2 * others.len() as u8;
        let offered = (first, first + 1);
        let offered = Transport::free_channels(offered, others).unwrap_or(offered);
        let asked = format!(
            "RTP/AVP/TCP;unicast;interleaved={}-{}",
            offered.0, offered.1
        );
        let said = self.ask(Method::Setup, uri, vec![(TRANSPORT, asked)], meanwhile)?;
        // Two tracks in one channel could not be told apart: one that names those of another has not looked.
        let (rtp, rtcp) = match channels(&chosen(&said)?, offered)? {
            chosen if are_free(chosen, others) => chosen,
            _ => offered,
        };
        Ok(Transport::Interleaved { rtp, rtcp })
    }

    fn set_up_udp(
        &mut self,
        uri: &str,
        meanwhile: &mut Meanwhile<'_, '_>,
    ) -> Result<Transport, SourceError> {
        let pair = Transport::pair(self.local.ip()).map_err(SourceError::Ports)?;
        let offered = (pair.0.local_addr()?.port(), pair.1.local_addr()?.port());
        let asked = format!("RTP/AVP;unicast;client_port={}-{}", offered.0, offered.1);
        let said = self.ask(Method::Setup, uri, vec![(TRANSPORT, asked)], meanwhile)?;
        let chosen = chosen(&said)?;
        if chosen.interleaved.is_some() {
            let (rtp, rtcp) = channels(&chosen, (0, 1))?;
            return Ok(Transport::Interleaved { rtp, rtcp });
        }
        let transport = Transport::connected(pair, self.peer.ip(), ports(&chosen));
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
        let uri = named(&self.base, description.control());
        self.heard = clock::now();
        self.reports = Reports::new(self.heard);
        self.send(Asked::new(Method::Play, uri, Vec::new()), meanwhile)
    }

    /// When there is something to tell it of its packets; `None`: when it takes the rest of what it has been told.
    pub(super) fn reports_at(&self) -> Option<Time> {
        self.reports.next_at()
    }

    /// Tells it how well its packets come, if that is due and as far as it listens.
    pub(super) fn report(
        &mut self,
        tape: &mut RtpRecorder<'_>,
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
        let method = self.keep_alive.next();
        let asked = Asked::new(method, self.base.clone(), Vec::new());
        self.send(asked.that_keeps_alive(), meanwhile)
    }

    /// Whether that has been done.
    pub(super) fn is_kept_alive(&self) -> bool {
        self.keep_alive.is_tried()
    }

    /// How long its session lasts without.
    pub(super) fn timeout(&self) -> Nanos {
        self.timeout
    }

    /// How often it is kept alive.
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
}

impl Drop for Camera {
    /// One that is asked for nothing more need not keep what it has for us.
    fn drop(&mut self) {
        self.tear_down();
    }
}
