//! A connection to a camera, as an RTSP client: OPTIONS, DESCRIBE, SETUP, PLAY, keep-alive, TEARDOWN.

mod counting;
mod exchange;

use std::net::{SocketAddr, TcpStream};

use engine::clock;
use rtsp_types::Method;
use rtsp_types::headers::{ACCEPT, CONTENT_BASE, CONTENT_LOCATION, PUBLIC, TRANSPORT};
use sched::units::{Nanos, Time};

use super::address::RedirectError;
use super::answers::{base_url, channels, chosen, control_url, is_refusal, ports, redirect};
use super::connect::{Waiter, connect, resolve};
use super::keep_alive::{FirstMethod, KeepAlive};
use super::login::Login;
use super::own_host::is_own;
use super::{Address, LowerTransport, SourceError};
use crate::record::RtpRecorder;
use crate::rtsp::input::Input;
use crate::rtsp::link::Link;
use crate::rtsp::receive::Receiver;
use crate::rtsp::reports::Reports;
use crate::rtsp::tls::{self, TrustedCertificates};
use crate::rtsp::transport::{Transport, are_free};
use crate::sdp::Description;
use exchange::PendingRequest;

/// The session's timeout if the camera states none (RFC 2326, section 12.37).
const TIMEOUT_DEFAULT: Nanos = Nanos::from_secs(60);

/// The answer to DESCRIBE.
pub(super) enum Described {
    Tracks(Box<Description>),
    /// The URL of a redirect, which may be relative.
    Redirect(String),
}

/// A connection to a camera. At most one request is pending.
pub(super) struct CameraConnection {
    link: Link,
    local: SocketAddr,
    peer: SocketAddr,
    input: Input,
    /// When data arrived last, by any transport.
    pub(super) heard: Time,
    /// CSeq of the last request.
    number: u32,
    address: Address,
    login: Login,
    /// The session's identifier.
    session: Option<String>,
    /// The session's timeout.
    timeout: Nanos,
    keep_alive: KeepAlive,
    pending: Option<PendingRequest>,
    /// Late answers to requests up to this CSeq are ignored.
    given_up: u32,
    /// The camera has answered a request, so it speaks RTSP.
    is_understood: bool,
    /// The URLs of the tracks that are set up.
    tracks: Vec<String>,
    /// The receiver reports for the camera.
    reports: Reports,
    /// The URL of the presentation, and the base of its tracks' URLs.
    base: String,
}

impl CameraConnection {
    /// True if the peer is this server, which listens at these addresses.
    pub(super) fn is_at(&self, listening: &[SocketAddr]) -> bool {
        is_own(self.peer, listening)
    }

    /// Connects to the first address of the camera's host that accepts.
    ///
    /// # Errors
    /// None does, or the host has no address.
    pub(super) fn connect(
        address: &Address,
        trusted: Option<&TrustedCertificates>,
        waiter: &mut Waiter<'_, '_>,
    ) -> Result<Self, SourceError> {
        let mut last = SourceError::NoAddress(address.host.clone());
        for peer in resolve(address, waiter)? {
            match connect(peer, waiter) {
                Ok(socket) => return Self::new(address, trusted, socket, peer),
                Err(error @ SourceError::Connect(..)) => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    fn new(
        address: &Address,
        trusted: Option<&TrustedCertificates>,
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
            keep_alive: KeepAlive::new("", FirstMethod::Listed),
            pending: None,
            given_up: 0,
            is_understood: false,
            tracks: Vec::new(),
            reports: Reports::new(clock::now()),
            base: address.url.as_str().to_owned(),
        })
    }

    /// The address of a redirect by this camera.
    ///
    /// # Errors
    /// The redirect must not be followed.
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

    /// True if the connection uses TLS.
    pub(super) fn is_secure(&self) -> bool {
        self.link.is_secure()
    }

    /// Sends OPTIONS and DESCRIBE. The keep-alive will begin with the method `first`.
    ///
    /// # Errors
    /// The camera refuses, or its description cannot be recorded.
    pub(super) fn describe(
        &mut self,
        first: FirstMethod,
        waiter: &mut Waiter<'_, '_>,
    ) -> Result<Described, SourceError> {
        let uri = self.address.url.as_str().to_owned();
        // A camera that refuses OPTIONS may still answer DESCRIBE.
        let options = self.ask(Method::Options, &uri, Vec::new(), waiter)?;
        let public = options.header(&PUBLIC).map_or("", |public| public.as_str());
        self.keep_alive = KeepAlive::new(public, first);
        let accept = vec![(ACCEPT, "application/sdp".to_owned())];
        let answer = self.ask(Method::Describe, &uri, accept, waiter)?;
        if let Some(to) = redirect(&answer) {
            return Ok(Described::Redirect(to.to_owned()));
        }
        let mut headers = [CONTENT_BASE, CONTENT_LOCATION].into_iter();
        let base =
            headers.find_map(|name| base_url(answer.header(&name)?.as_str(), &self.address.url));
        if let Some(base) = base {
            self.base = base;
        }
        let description = Description::of_camera(answer.body(), self.link.is_secure())?;
        Ok(Described::Tracks(Box::new(description)))
    }

    /// Sends SETUP for each track. Returns `None` for a track that the camera refuses: a microphone that is off must not
    /// prevent the recording of the picture.
    ///
    /// # Errors
    /// The main track is refused, or SETUP of any track fails for another reason.
    pub(super) fn set_up(
        &mut self,
        description: &Description,
        lower: LowerTransport,
        waiter: &mut Waiter<'_, '_>,
    ) -> Result<Vec<Option<Transport>>, SourceError> {
        let mut transports = Vec::new();
        self.tracks.clear();
        for (number, track) in description.tracks().iter().enumerate() {
            let uri = control_url(&self.base, track.control.as_deref());
            let transport = match lower {
                LowerTransport::Tcp => self.set_up_tcp(&transports, &uri, waiter),
                LowerTransport::Udp => self.set_up_udp(&uri, waiter),
            };
            let is_main = number == description.main_track();
            transports.push(match transport {
                Err(error @ SourceError::Status(_, status, _))
                    if !is_main && is_refusal(status) =>
                {
                    let url = self.address.url.as_str();
                    tracing::warn!(camera = %url, track = number, %error, "camera refuses a track; recording the others");
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
        waiter: &mut Waiter<'_, '_>,
    ) -> Result<Transport, SourceError> {
        // Fits: a description has at most 16 tracks.
        let first = 2 * others.len() as u8;
        let offered = (first, first + 1);
        let offered = Transport::free_channels(offered, others).unwrap_or(offered);
        let value = format!(
            "RTP/AVP/TCP;unicast;interleaved={}-{}",
            offered.0, offered.1
        );
        let answer = self.ask(Method::Setup, uri, vec![(TRANSPORT, value)], waiter)?;
        // Some cameras state the channels of another track, but use those offered.
        let (rtp, rtcp) = match channels(&chosen(&answer)?, offered)? {
            chosen if are_free(chosen, others) => chosen,
            _ => offered,
        };
        Ok(Transport::Interleaved { rtp, rtcp })
    }

    fn set_up_udp(
        &mut self,
        uri: &str,
        waiter: &mut Waiter<'_, '_>,
    ) -> Result<Transport, SourceError> {
        let pair = Transport::pair(self.local.ip()).map_err(SourceError::Ports)?;
        let offered = (pair.0.local_addr()?.port(), pair.1.local_addr()?.port());
        let value = format!("RTP/AVP;unicast;client_port={}-{}", offered.0, offered.1);
        let answer = self.ask(Method::Setup, uri, vec![(TRANSPORT, value)], waiter)?;
        let chosen = chosen(&answer)?;
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

    /// Sends PLAY. The answer arrives among the packets.
    ///
    /// # Errors
    /// The request cannot be sent.
    pub(super) fn play(
        &mut self,
        description: &Description,
        waiter: &mut Waiter<'_, '_>,
    ) -> Result<(), SourceError> {
        let uri = control_url(&self.base, description.control());
        self.heard = clock::now();
        self.reports = Reports::new(self.heard);
        self.send(PendingRequest::new(Method::Play, uri, Vec::new()), waiter)
    }

    /// When the next receiver report is due; `None` while the camera has not taken all of the last one.
    pub(super) fn reports_at(&self) -> Option<Time> {
        self.reports.next_at()
    }

    /// Sends receiver reports if they are due, as far as the camera takes them without blocking.
    pub(super) fn report(
        &mut self,
        recorder: &mut RtpRecorder<'_>,
        transports: &[Option<Transport>],
        now: Time,
    ) {
        self.reports.send(&mut self.link, recorder, transports, now);
    }

    /// Sends a keep-alive. The answer arrives among the packets.
    ///
    /// # Errors
    /// The request cannot be sent.
    pub(super) fn keep_alive(&mut self, waiter: &mut Waiter<'_, '_>) -> Result<(), SourceError> {
        let method = self.keep_alive.next();
        let request = PendingRequest::new(method, self.base.clone(), Vec::new());
        self.send(request.into_keep_alive(), waiter)
    }

    /// True if a keep-alive was sent in this connection.
    pub(super) fn is_kept_alive(&self) -> bool {
        self.keep_alive.is_tried()
    }

    /// Duration of the session without a keep-alive.
    pub(super) fn timeout(&self) -> Nanos {
        self.timeout
    }

    pub(super) fn keep_alive_interval(&self) -> Nanos {
        Nanos(self.timeout.get() / 2)
    }

    /// Sends TEARDOWN without waiting, if there is a session.
    pub(super) fn tear_down(&mut self) {
        if self.session.is_some() {
            let uri = self.base.clone();
            if let Ok((bytes, _)) = self.request(&Method::Teardown, &uri, &[]) {
                // A camera that does not read it notices the end of the connection.
                let _ = self.link.write(&bytes);
            }
            self.session = None;
        }
    }
}

impl Drop for CameraConnection {
    /// Frees the session in the camera.
    fn drop(&mut self) {
        self.tear_down();
    }
}
