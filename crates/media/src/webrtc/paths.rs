//! The ways to peers: UDP sockets, and connections over TCP (RFC 6544) with a length before each packet (RFC 4571).

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use str0m::Candidate;
use str0m::net::TcpType;

/// The addresses of the server, for an answer.
pub(super) type Candidates = Vec<Candidate>;

/// The longest packet in bytes.
pub(super) const PACKET_BYTES_MAX: usize = 2_000;

/// The most connections over TCP.
const CONNECTIONS_MAX: usize = 2 * super::PEERS_MAX;

/// A connection that belongs to no peer is closed after this time.
const UNKNOWN_FOR: Duration = Duration::from_secs(10);

/// A connection takes no packet while this many bytes wait to be sent.
const WAITING_BYTES_MAX: usize = 64 << 10;

/// A UDP socket of one address.
#[derive(Debug)]
pub(super) struct Udp {
    pub(super) socket: UdpSocket,
    pub(super) address: SocketAddr,
}

/// A listening socket of one address.
#[derive(Debug)]
pub(super) struct Tcp {
    pub(super) listener: TcpListener,
    pub(super) address: SocketAddr,
}

/// All sockets. Each address of the host has its own, so that answers come from the address that was asked.
#[derive(Debug)]
pub(super) struct Paths {
    /// The configured address; with the port that the first socket got.
    address: SocketAddr,
    udp: Mutex<Vec<Arc<Udp>>>,
    tcp: Mutex<Vec<Arc<Tcp>>>,
    by_tcp: bool,
}

/// Each change of a list is one step.
fn locked<T>(list: &Mutex<T>) -> MutexGuard<'_, T> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Paths {
    /// Opens a socket for `address`, or for each address of the host if it is unspecified.
    pub(super) fn open(address: SocketAddr, by_tcp: bool) -> io::Result<Self> {
        let mut paths = Self {
            address,
            udp: Mutex::default(),
            tcp: Mutex::default(),
            by_tcp,
        };
        let hosts = hosts(address.ip())?;
        let first = hosts.first().ok_or(ErrorKind::AddrNotAvailable)?;
        let socket = bind_udp(SocketAddr::new(*first, address.port()))?;
        paths.address.set_port(socket.address.port());
        locked(&paths.udp).push(Arc::new(socket));
        paths.refresh()?;
        Ok(paths)
    }

    /// Opens sockets for addresses that have none.
    fn refresh(&self) -> io::Result<()> {
        for host in hosts(self.address.ip())? {
            let address = SocketAddr::new(host, self.address.port());
            let mut udp = locked(&self.udp);
            if !udp.iter().any(|of| of.address == address) {
                udp.push(Arc::new(bind_udp(address)?));
            }
            drop(udp);
            let mut tcp = locked(&self.tcp);
            if self.by_tcp && !tcp.iter().any(|of| of.address == address) {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                tcp.push(Arc::new(Tcp { listener, address }));
            }
        }
        Ok(())
    }

    pub(super) fn udp(&self) -> Vec<Arc<Udp>> {
        locked(&self.udp).clone()
    }

    pub(super) fn tcp(&self) -> Vec<Arc<Tcp>> {
        locked(&self.tcp).clone()
    }

    /// The candidates for an answer.
    pub(super) fn candidates(&self) -> io::Result<Candidates> {
        // An address that came and went again is no reason to refuse the others.
        if let Err(error) = self.refresh() {
            tracing::debug!(%error, "an address of the host is not served");
        }
        let mut candidates = Candidates::new();
        for of in self.udp() {
            candidates.extend(Candidate::host(of.address, "udp"));
        }
        for of in self.tcp() {
            let tcp = Candidate::builder().tcp().host(of.address);
            candidates.extend(tcp.tcptype(TcpType::Passive).build());
        }
        Ok(candidates)
    }
}

fn bind_udp(address: SocketAddr) -> io::Result<Udp> {
    let socket = UdpSocket::bind(address)?;
    socket.set_nonblocking(true)?;
    let address = socket.local_addr()?;
    Ok(Udp { socket, address })
}

/// The addresses to listen at. For an unspecified address these are all of the host, without those of its loopback if
/// there are others, and without those that are valid on one link only.
fn hosts(address: IpAddr) -> io::Result<Vec<IpAddr>> {
    if !address.is_unspecified() {
        return Ok(vec![address]);
    }
    let found = nix::ifaddrs::getifaddrs()?;
    let ips = found.filter_map(|of| {
        let at = of.address?;
        let v4 = at.as_sockaddr_in().map(|of| IpAddr::V4(of.ip()));
        v4.or_else(|| at.as_sockaddr_in6().map(|of| IpAddr::V6(of.ip())))
    });
    let is_served = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_link_local(),
        IpAddr::V6(ip) => address.is_ipv6() && !ip.is_unicast_link_local(),
    };
    let all: Vec<IpAddr> = ips.filter(is_served).collect();
    let others: Vec<IpAddr> = all.iter().copied().filter(|ip| !ip.is_loopback()).collect();
    Ok(if others.is_empty() { all } else { others })
}

/// A connection over TCP.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) peer: SocketAddr,
    /// The address of the server.
    pub(super) local: SocketAddr,
    input: Vec<u8>,
    output: VecDeque<u8>,
    begun: Instant,
    /// The identifier of the session that its last packet was for.
    pub(super) owner: Option<String>,
    is_over: bool,
}

impl Connection {
    /// Accepts a connection, if there is one and not too many.
    pub(super) fn accept(tcp: &Tcp, taken: usize) -> Option<Self> {
        let (stream, peer) = tcp.listener.accept().ok()?;
        let is_ready = stream.set_nonblocking(true).and(stream.set_nodelay(true));
        (taken < CONNECTIONS_MAX && is_ready.is_ok()).then(|| Self {
            stream,
            peer,
            local: tcp.address,
            input: Vec::new(),
            output: VecDeque::new(),
            begun: Instant::now(),
            owner: None,
            is_over: false,
        })
    }

    /// True until it has ended, or has not shown a peer in time.
    pub(super) fn is_alive(&self, now: Instant) -> bool {
        !self.is_over && (self.owner.is_some() || now < self.begun + UNKNOWN_FOR)
    }

    /// Reads what has arrived, and gives the next packets.
    pub(super) fn read(&mut self, give: &mut impl FnMut(&[u8])) {
        let mut buffer = [0; 16 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.is_over = true,
            Ok(count) => self.input.extend_from_slice(&buffer[..count]),
            Err(error) => self.is_over |= error.kind() != ErrorKind::WouldBlock,
        }
        let mut at = 0;
        while let Some((head, rest)) = self.input[at..].split_first_chunk() {
            let length = usize::from(u16::from_be_bytes(*head));
            if length > PACKET_BYTES_MAX {
                self.is_over = true;
                return;
            }
            let Some(packet) = rest.get(..length) else {
                break;
            };
            give(packet);
            at += 2 + length;
        }
        self.input.drain(..at);
    }

    /// Takes a packet; false if too much waits already.
    pub(super) fn send(&mut self, packet: &[u8]) -> bool {
        if self.output.len() > WAITING_BYTES_MAX {
            return false;
        }
        self.output.extend((packet.len() as u16).to_be_bytes());
        self.output.extend(packet);
        self.flush();
        true
    }

    /// Sends what the connection takes.
    pub(super) fn flush(&mut self) {
        while !self.output.is_empty() {
            let (first, _) = self.output.as_slices();
            match self.stream.write(first) {
                Ok(count) => drop(self.output.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.is_over = true;
                    return;
                }
            }
        }
    }

    /// Ends it.
    pub(super) fn close(&mut self) {
        self.is_over = true;
    }

    /// Bytes that wait to be sent.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.output.len()
    }
}
