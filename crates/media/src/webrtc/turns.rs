//! The thread that moves the packets of all peers.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use engine::event::EventFd;
use engine::{clock, panics};
use rustix::event::PollFlags;
use sched::units::Nanos;
use str0m::Input;
use str0m::net::{Protocol, Receive, Transmit};

use super::PEERS_MAX;
use super::paths::{Connection, PACKET_BYTES_MAX, Paths, Udp};
use super::peer::{Peer, PeerEnd};
use crate::rtsp::poll::Wait;

/// Datagrams that are taken from a socket at a time, so that a flood delays no peer for long.
const DATAGRAMS_AT_A_TIME: usize = 64;

/// Places that players do not take.
const PUBLISHERS_KEPT: usize = 8;

/// The longest sleep.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// A wish of another thread.
pub(super) enum Command {
    Begin(Box<Peer>),
    /// The session with this identifier is to end.
    End(String),
    Stop,
}

/// Wishes of other threads.
pub(super) struct Inbox {
    commands: Mutex<Vec<Command>>,
    /// The identifiers of all sessions.
    ids: Mutex<BTreeSet<String>>,
    event: EventFd,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}

/// Each change of a list is one step.
fn locked<T>(list: &Mutex<T>) -> MutexGuard<'_, T> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inbox {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            commands: Mutex::default(),
            ids: Mutex::default(),
            event: EventFd::new()?,
        })
    }

    pub(super) fn send(&self, command: Command) {
        locked(&self.commands).push(command);
        self.event.signal();
    }

    /// Takes the place of a session; `None` if there are too many. Some places are for publishers only.
    pub(super) fn take(self: &Arc<Self>, id: &str, publishes: bool) -> Option<Place> {
        let mut ids = locked(&self.ids);
        let kept = if publishes { 0 } else { PUBLISHERS_KEPT };
        let is_free = ids.len() < PEERS_MAX - kept;
        (is_free && ids.insert(id.to_owned())).then(|| Place {
            id: id.to_owned(),
            inbox: Arc::clone(self),
        })
    }

    /// Begins a session.
    pub(super) fn begin(&self, peer: Peer) {
        self.send(Command::Begin(Box::new(peer)));
    }

    /// True if there is a session with this identifier.
    pub(super) fn has(&self, id: &str) -> bool {
        locked(&self.ids).contains(id)
    }
}

/// The place of a session, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    id: String,
    inbox: Arc<Inbox>,
}

impl Place {
    pub(super) fn id(&self) -> &str {
        &self.id
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        locked(&self.inbox.ids).remove(&self.id);
    }
}

/// Events that the thread wakes for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WakeEvent {
    Inbox,
    Udp(usize),
    Tcp(usize),
    Connection(usize),
    Peer(usize),
    /// The session of a peer was ended.
    Ended(usize),
}

/// The state of the thread.
pub(super) struct Turns {
    paths: Arc<Paths>,
    inbox: Arc<Inbox>,
    peers: Vec<Peer>,
    connections: Vec<Connection>,
}

impl Turns {
    pub(super) fn new(paths: Arc<Paths>, inbox: Arc<Inbox>) -> Self {
        Self {
            paths,
            inbox,
            peers: Vec::new(),
            connections: Vec::new(),
        }
    }

    /// Runs until it is stopped.
    pub(super) fn run(mut self) {
        loop {
            let (udp, tcp) = (self.paths.udp(), self.paths.tcp());
            let ready = self.sleep(&udp, &tcp);
            // Before anything that changes the places of peers.
            let now = Instant::now();
            let is_ready = |place| ready.contains(&WakeEvent::Peer(place));
            for place in (0..self.peers.len()).rev() {
                if ready.contains(&WakeEvent::Ended(place)) {
                    self.act(place, |_| Err(PeerEnd::Ended));
                } else if is_ready(place) || self.peers[place].due() <= now {
                    self.act(place, |peer| peer.turn(now));
                }
            }
            for event in &ready {
                match *event {
                    WakeEvent::Inbox => {
                        if !self.obey() {
                            return;
                        }
                    }
                    WakeEvent::Udp(place) => self.receive_udp(&udp[place]),
                    WakeEvent::Tcp(place) => {
                        let taken = self.connections.len();
                        self.connections
                            .extend(Connection::accept(&tcp[place], taken));
                    }
                    WakeEvent::Connection(place) => self.receive_tcp(place),
                    WakeEvent::Peer(_) | WakeEvent::Ended(_) => {}
                }
            }
            let now = Instant::now();
            self.flush(&udp, now);
            self.connections.retain(|of| of.is_alive(now));
        }
    }

    fn sleep(&self, udp: &[Arc<Udp>], tcp: &[Arc<super::paths::Tcp>]) -> Vec<WakeEvent> {
        let now = Instant::now();
        let due = self.peers.iter().map(Peer::due).min();
        let left = due.map_or(SLEEP_MAX, |due| due.saturating_duration_since(now));
        let left = left.min(SLEEP_MAX).as_nanos() as u64;
        let mut wait = Wait::new();
        wait.readable(self.inbox.event.as_fd(), WakeEvent::Inbox);
        for (place, of) in udp.iter().enumerate() {
            wait.readable(of.socket.as_fd(), WakeEvent::Udp(place));
        }
        for (place, of) in tcp.iter().enumerate() {
            wait.readable(of.listener.as_fd(), WakeEvent::Tcp(place));
        }
        for (place, of) in self.connections.iter().enumerate() {
            let mut flags = PollFlags::IN;
            flags.set(PollFlags::OUT, of.waiting_bytes() > 0);
            wait.add(of.stream.as_fd(), flags, WakeEvent::Connection(place));
        }
        for (place, peer) in self.peers.iter().enumerate() {
            if let Some(event) = peer.packets() {
                wait.readable(event, WakeEvent::Peer(place));
            }
            if let Some(event) = peer.ends() {
                wait.readable(event, WakeEvent::Ended(place));
            }
        }
        let until = clock::now().saturating_add(Nanos(left));
        wait.sleep(true, Some(until)).unwrap_or_default()
    }

    /// Carries out what other threads want; false if the thread is to end.
    fn obey(&mut self) -> bool {
        self.inbox.event.drain();
        let commands = std::mem::take(&mut *locked(&self.inbox.commands));
        for command in commands {
            match command {
                Command::Begin(peer) => self.peers.push(*peer),
                Command::End(id) => {
                    if let Some(place) = self.peers.iter().position(|of| of.place.id() == id) {
                        self.remove(place, &PeerEnd::Ended);
                    }
                }
                Command::Stop => {
                    (0..self.peers.len())
                        .rev()
                        .for_each(|place| self.remove(place, &PeerEnd::Ended));
                    return false;
                }
            }
        }
        true
    }

    /// Lets a peer act, and removes it if that ends it.
    fn act(&mut self, place: usize, act: impl FnOnce(&mut Peer) -> Result<(), PeerEnd>) {
        let Some(peer) = self.peers.get_mut(place) else {
            return;
        };
        // A panic has been logged; it is the end of this peer only.
        let ended = match panics::survive(|| act(peer)) {
            Ok(Ok(())) => return,
            Ok(Err(end)) => end,
            Err(_) => PeerEnd::Left,
        };
        self.remove(place, &ended);
    }

    fn remove(&mut self, place: usize, end: &PeerEnd) {
        if let Some(peer) = self.peers.get_mut(place) {
            // Its goodbye goes before the pictures that it will not miss.
            if panics::survive(|| peer.close()).is_ok() {
                self.flush(&self.paths.udp(), Instant::now());
            }
            let peer = self.peers.swap_remove(place);
            let connections = self.connections.iter_mut();
            let its = connections.filter(|of| of.owner.as_deref() == Some(peer.place.id()));
            its.for_each(Connection::close);
            tracing::debug!(%end, "a WebRTC session has ended");
        }
    }

    fn receive_udp(&mut self, udp: &Udp) {
        let mut buffer = [0; PACKET_BYTES_MAX];
        for _ in 0..DATAGRAMS_AT_A_TIME {
            match udp.socket.recv_from(&mut buffer) {
                Ok((count, from)) => {
                    self.receive(Protocol::Udp, (from, udp.address), &buffer[..count]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // An earlier datagram was refused by its receiver; the peer's silence ends it.
                Err(_) => {}
            }
        }
    }

    fn receive_tcp(&mut self, place: usize) {
        let connection = &mut self.connections[place];
        let mut packets = Vec::new();
        connection.read(&mut |packet| packets.push(packet.to_vec()));
        connection.flush();
        let addresses = (connection.peer, connection.local);
        for packet in packets {
            let owner = self.receive(Protocol::Tcp, addresses, &packet);
            let connection = &mut self.connections[place];
            connection.owner = owner.or(connection.owner.take());
        }
    }

    /// Gives a packet to its peer, and returns the identifier of its session; `None` if it is for none.
    fn receive(
        &mut self,
        proto: Protocol,
        (source, destination): (SocketAddr, SocketAddr),
        bytes: &[u8],
    ) -> Option<String> {
        // The parser is given bytes of strangers.
        let parsed = panics::survive(|| Receive::new(proto, source, destination, bytes));
        let Ok(Ok(packet)) = parsed else {
            return None;
        };
        let now = Instant::now();
        let input = Input::Receive(now, packet);
        let place = self.peers.iter().position(|peer| peer.accepts(&input))?;
        let id = self.peers[place].place.id().to_owned();
        if let Input::Receive(_, packet) = input {
            self.act(place, |peer| peer.receive(now, packet));
        }
        Some(id)
    }

    /// Sends what may be sent now.
    fn flush(&mut self, udp: &[Arc<Udp>], now: Instant) {
        let connections = &mut self.connections;
        let mut send = |packet: &Transmit| match packet.proto {
            Protocol::Udp => {
                let Some(of) = udp.iter().find(|of| of.address == packet.source) else {
                    return true;
                };
                let sent = of.socket.send_to(&packet.contents, packet.destination);
                !sent.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
            }
            _ => {
                let is_its = |of: &&mut Connection| of.peer == packet.destination;
                connections
                    .iter_mut()
                    .find(is_its)
                    .is_none_or(|of| of.send(&packet.contents))
            }
        };
        for peer in &mut self.peers {
            peer.flush(now, &mut send);
        }
    }
}
