//! Live streams for browsers over WebRTC: playing (WHEP, draft-ietf-wish-whep) and publishing (WHIP, RFC 9725).
//!
//! A browser sends an offer (SDP) over HTTP and gets an answer. Everything else goes over UDP or TCP: ICE (RFC 8445)
//! finds the path, DTLS makes the keys, and SRTP carries the packets. The crate `str0m` implements these protocols
//! without input or output; one thread here does that for all peers.
//!
//! The server is ICE-lite: it has addresses that browsers reach, and only answers their checks. All peers share one
//! UDP port and one TCP port.
//!
//! A player gets the packets of a [live stream](crate::live) as they arrive, with other numbers, encrypted. Packets
//! that are too long for a datagram are split. A publisher's packets go to the RTSP server by a
//! [door](crate::rtsp::door), as if they came from an RTSP publisher: reservation, names and recording are the same.
//!
//! | part | job |
//! |---|---|
//! | `offer` | chooses tracks and codecs, and makes the answer |
//! | `payload` | splits long packets, and makes packets of parameter sets |
//! | `peer` | a peer: its protocols, and the packets that wait to be sent |
//! | `watching`, `publishing` | the packets to a player, and from a publisher |
//! | `paths` | the UDP sockets, and the connections over TCP |
//! | `turns` | the thread |
//!
//! # Deliberately absent
//!
//! * Pictures that are shown in another order than they are sent (B frames): the protocol has none.
//! * Key frames on request: cameras are not asked for them. A player begins with the latest one in memory. Missing
//!   packets are sent again on request; after a longer loss the picture comes back with the next key frame.
//! * Candidates that follow the offer (trickle ICE), and other rates for slow networks.

mod offer;
mod paths;
mod payload;
mod peer;
mod publishing;
mod turns;
mod watching;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::archive::archives::Archives;
use crate::rtsp::door::Door;
use crate::session::registry::{SessionSubject, SessionUse};
use offer::{Negotiated, Wanted};
use paths::Paths;
use peer::{Peer, Role};
use publishing::Publishing;
use turns::{Command, Inbox, Place, Turns};
use watching::Watching;

pub use offer::{OfferError, carries};
pub use publishing::PublishError;

/// The most peers at a time.
pub const PEERS_MAX: usize = 64;

/// Why an offer is refused.
#[derive(Debug, thiserror::Error)]
pub enum WebRtcError {
    /// The offer cannot be answered.
    #[error(transparent)]
    Offer(#[from] OfferError),
    /// There is no such stream.
    #[error("nothing arrives for stream {0:?} now")]
    NoStream(String),
    /// The pictures of the stream cannot be carried.
    #[error(
        "stream {0:?} has pictures that are shown in another order than they are sent (B frames), which WebRTC cannot carry"
    )]
    Reordered(String),
    /// All places are taken.
    #[error("{PEERS_MAX} peers are connected, the maximum")]
    Full,
    /// The server takes no publishers.
    #[error("this server takes no publishers by WebRTC")]
    NoPublishers,
    /// The publisher is refused.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// The host has no descriptor or address left.
    #[error("the host cannot serve it: {0}")]
    Host(#[from] io::Error),
}

/// The answer to an offer.
#[derive(Clone, Debug)]
pub struct WebRtcAnswer {
    /// Names the session; it cannot be guessed.
    pub id: String,
    /// The answer (SDP).
    pub text: String,
}

/// The WebRTC service. Dropping it ends all its sessions.
#[derive(Debug)]
pub struct WebRtc {
    inbox: Arc<Inbox>,
    paths: Arc<Paths>,
    archives: Arc<Archives>,
    door: Option<Door>,
    thread: Option<JoinHandle<()>>,
}

impl WebRtc {
    /// Listens at `address`, by UDP, and by TCP if `by_tcp`. Publishers go through `door`; without one there are none.
    ///
    /// # Errors
    /// When it cannot listen there.
    pub fn start(
        address: SocketAddr,
        by_tcp: bool,
        archives: Arc<Archives>,
        door: Option<Door>,
    ) -> io::Result<Self> {
        let paths = Arc::new(Paths::open(address, by_tcp)?);
        let inbox = Arc::new(Inbox::new()?);
        let turns = Turns::new(Arc::clone(&paths), Arc::clone(&inbox));
        let thread = std::thread::Builder::new()
            .name("webrtc".to_owned())
            .spawn(move || turns.run())?;
        Ok(Self {
            inbox,
            paths,
            archives,
            door,
            thread: Some(thread),
        })
    }

    /// The addresses that browsers are told, for UDP.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.paths.udp().iter().map(|of| of.address).collect()
    }

    /// Answers the offer of a player of a live stream. A camera that is pulled on demand is waited for, at most `within`.
    ///
    /// # Errors
    /// When the stream does not arrive, or nothing of it can be carried.
    pub fn watch(
        &self,
        name: &str,
        offer: &str,
        who: &str,
        within: Duration,
    ) -> Result<WebRtcAnswer, WebRtcError> {
        let feed = self.archives.live().want(name, within);
        let feed = feed
            .filter(|feed| feed.has_picture())
            .ok_or_else(|| WebRtcError::NoStream(name.to_owned()))?;
        if watching::is_reordered(&feed)? {
            return Err(WebRtcError::Reordered(name.to_owned()));
        }
        let place = self.place(false)?;
        let negotiated = offer::answer(offer, Wanted::of(feed.description()), &self.candidates()?)?;
        let member = self.archives.registry().join_live(SessionSubject {
            who: who.to_owned(),
            does: SessionUse::Watches,
            volume: name.to_owned(),
            recording: feed.recording().unwrap_or(0),
        })?;
        let watching = Watching::new(&feed, &negotiated, member)?;
        Ok(self.begin(place, negotiated, Role::Watches(watching)))
    }

    /// Answers the offer of a publisher, which is recorded in the volume `name`, or is live only.
    ///
    /// # Errors
    /// When it is refused: the offer cannot be answered, the name has a source, or the disks cannot carry it.
    pub fn publish(
        &self,
        name: &str,
        is_live_only: bool,
        offer: &str,
        peer: SocketAddr,
    ) -> Result<WebRtcAnswer, WebRtcError> {
        let door = self.door.as_ref().ok_or(WebRtcError::NoPublishers)?;
        let place = self.place(true)?;
        let negotiated = offer::take(offer, &self.candidates()?)?;
        let publishing = Publishing::begin(door, name, is_live_only, peer, &negotiated)?;
        Ok(self.begin(place, negotiated, Role::Publishes(publishing)))
    }

    /// The candidates of an answer, also for addresses that the host got lately.
    fn candidates(&self) -> Result<paths::Candidates, WebRtcError> {
        Ok(self.paths.candidates()?)
    }

    fn place(&self, publishes: bool) -> Result<Place, WebRtcError> {
        let id = random_id()?;
        self.inbox.take(&id, publishes).ok_or(WebRtcError::Full)
    }

    fn begin(&self, place: Place, negotiated: Negotiated, role: Role) -> WebRtcAnswer {
        let id = place.id().to_owned();
        let Negotiated { rtc, text, .. } = negotiated;
        self.inbox.begin(Peer::new(place, rtc, role));
        WebRtcAnswer { id, text }
    }

    /// Ends the session with this identifier; false if there is none.
    #[must_use]
    pub fn end(&self, id: &str) -> bool {
        let is_there = self.inbox.has(id);
        if is_there {
            self.inbox.send(Command::End(id.to_owned()));
        }
        is_there
    }
}

impl Drop for WebRtc {
    fn drop(&mut self) {
        self.inbox.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Answers an offer as one of a publisher, and of a player.
pub(crate) fn answer_anything(text: &str) {
    let none = paths::Candidates::new();
    let described =
        b"v=0\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\nm=audio 0 RTP/AVP 0\r\n";
    let _ = offer::take(text, &none);
    if let Ok(described) = crate::sdp::Description::parse(described) {
        let _ = offer::answer(text, Wanted::of(&described), &none);
    }
}

/// 128 random bits in hexadecimal.
fn random_id() -> io::Result<String> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
