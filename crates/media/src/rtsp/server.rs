//! The RTSP server: what listens, who is connected, and which archives are open.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::event::EventFd;
use engine::panics;
use engine::volume_io::Client;
use sched::units::{Bytes, BytesPerSecond};

use crate::archive::archives::Archives;
use crate::rtsp::access::Access;
use crate::rtsp::connection::Connection;
use crate::rtsp::link::Link;
use crate::rtsp::poll::Wait;
use crate::rtsp::tls::{self, TlsConfig, TlsError};
use peers::connection_limits::{ConnectionLimits, Denials, Held};
use peers::log_throttle::{LogThrottle, Sparing};

/// The pause after a connection that could not be taken, for want of a descriptor as a rule.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections that end as they should not, of which anybody may have as many as they like.
static ENDED: Sparing = Sparing::few();

/// How the RTSP server works.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MediaConfig {
    /// Where it listens for what is not encrypted.
    pub listen: Option<SocketAddr>,
    /// Where it listens for TLS, and as whom.
    pub tls: Option<TlsConfig>,
    /// The rate that is reserved for a recording whose description does not say one.
    pub rate: BytesPerSecond,
    /// The size of the blocks of new archives.
    pub block: Bytes,
    /// How long a session may say nothing.
    pub timeout: Duration,
}

/// Why the RTSP server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address.
    #[error("RTSP cannot be served at {0}: {1}")]
    Listen(SocketAddr, io::Error),
    /// Memory or descriptors.
    #[error("RTSP cannot be served: {0}")]
    Host(String),
    /// Its certificate.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) archives: Arc<Archives>,
    pub(crate) config: MediaConfig,
    pub(crate) access: Option<Arc<Access>>,
    /// Reads what is not played.
    pub(crate) client: Arc<Client>,
    /// Signalled when the server ends, and never drained.
    pub(crate) stop: EventFd,
}

/// A running RTSP server. Dropping it ends it.
pub struct Server {
    shared: Arc<Shared>,
    places: Arc<ConnectionLimits>,
    address: Option<SocketAddr>,
    tls_address: Option<SocketAddr>,
    listener: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens, and serves each connection on a thread of its own, as many as there are places.
    ///
    /// # Errors
    /// When it cannot listen there, or the host has no memory for it.
    pub fn start(
        archives: Arc<Archives>,
        config: &MediaConfig,
        access: Option<Arc<Access>>,
        places: Arc<ConnectionLimits>,
    ) -> Result<Self, StartError> {
        let host = |error: &dyn std::fmt::Display| StartError::Host(error.to_string());
        let certified = config.tls.as_ref().map(tls::server).transpose()?;
        let plain = config.listen.map(listen).transpose()?;
        let secure = config
            .tls
            .as_ref()
            .map(|of| listen(of.listen))
            .transpose()?;
        let addresses = [&plain, &secure].map(|of| of.as_ref().map(|(_, address)| *address));
        for address in addresses.into_iter().flatten() {
            if access.is_none() && !address.ip().is_loopback() {
                tracing::warn!(%address, "whoever reaches this address can record and play: [rtsp] has no `users`");
            }
        }
        let client = archives.client().map_err(|error| host(&error))?;
        let shared = Arc::new(Shared {
            archives,
            config: config.clone(),
            access,
            client,
            stop: EventFd::new().map_err(|error| host(&error))?,
        });
        let mut listeners = Vec::new();
        listeners.extend(plain.map(|(socket, _)| Listener { socket, tls: None }));
        listeners.extend(secure.map(|(socket, _)| Listener {
            socket,
            tls: certified,
        }));
        let accepting = Accepting {
            shared: Arc::clone(&shared),
            places: Arc::clone(&places),
            denials: Denials::default(),
            failed: LogThrottle::default(),
        };
        let listener = std::thread::Builder::new()
            .name("rtsp".to_owned())
            .spawn(move || accepting.serve(&listeners))
            .map_err(|error| host(&error))?;
        Ok(Self {
            shared,
            places,
            address: addresses[0],
            tls_address: addresses[1],
            listener: Some(listener),
        })
    }

    /// Where it listens, with the port that was taken.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The same for TLS.
    #[must_use]
    pub fn tls_address(&self) -> Option<SocketAddr> {
        self.tls_address
    }

    /// All of them.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        [self.address, self.tls_address]
            .into_iter()
            .flatten()
            .collect()
    }

    /// How many are connected.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.places.taken()
    }
}

impl Drop for Server {
    /// Ends sessions: recordings are closed and durable then.
    fn drop(&mut self) {
        self.shared.stop.signal();
        if let Some(listener) = self.listener.take() {
            // It does not panic; its connections have ended with it.
            let _ = listener.join();
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("address", &self.address)
            .field("tls_address", &self.tls_address)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ready {
    Stop,
    /// At a listener, by its place.
    Connection(usize),
}

/// Where connections come in, and whether by TLS.
struct Listener {
    socket: TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
}

fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |error: io::Error| StartError::Listen(address, error);
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// Who takes connections.
struct Accepting {
    shared: Arc<Shared>,
    places: Arc<ConnectionLimits>,
    /// Peers may come as fast as they like.
    denials: Denials,
    /// Of the host's making, and not drowned by what peers do.
    failed: LogThrottle,
}

impl Accepting {
    /// Takes connections until the server ends, and waits for theirs.
    fn serve(mut self, listeners: &[Listener]) {
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        loop {
            let mut wait = Wait::new();
            wait.readable(self.shared.stop.as_fd(), Ready::Stop);
            for (place, listener) in listeners.iter().enumerate() {
                wait.readable(listener.socket.as_fd(), Ready::Connection(place));
            }
            let ready = wait.sleep(true, None).unwrap_or_default();
            if ready.contains(&Ready::Stop) {
                break;
            }
            threads.retain(|thread| !thread.is_finished());
            for of in ready {
                if let Ready::Connection(place) = of {
                    threads.extend(self.take(&listeners[place]));
                }
            }
        }
        for thread in threads {
            let _ = thread.join();
        }
    }

    /// Takes a connection, if there is one and a place for it.
    fn take(&mut self, listener: &Listener) -> Option<JoinHandle<()>> {
        match listener.socket.accept() {
            Ok((socket, peer)) => match self.places.take(peer.ip()) {
                Ok(place) => spawn(socket, peer, place, listener, &self.shared)
                    .inspect_err(|error| self.fails("cannot be served", error))
                    .ok(),
                Err(full) => {
                    if let Some(untold) = self.denials.turn(full, Instant::now()) {
                        tracing::warn!(%full, untold, "an RTSP connection is closed");
                    }
                    None
                }
            },
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => {
                self.fails("could not be taken", &error);
                // Until somebody has given a descriptor back.
                std::thread::sleep(ACCEPT_PAUSE);
                None
            }
        }
    }

    fn fails(&mut self, what: &str, error: &io::Error) {
        if let Some(untold) = self.failed.turn(Instant::now()) {
            tracing::warn!(%error, untold, "an RTSP connection {what}");
        }
    }
}

/// Serves a connection on a thread of its own.
fn spawn(
    socket: TcpStream,
    peer: SocketAddr,
    place: Held,
    listener: &Listener,
    shared: &Arc<Shared>,
) -> io::Result<JoinHandle<()>> {
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    let local = socket.local_addr()?;
    let link = match &listener.tls {
        None => Link::from(socket),
        Some(server) => Link::secure(socket, tls::accept(server)?),
    };
    let shared = Arc::clone(shared);
    std::thread::Builder::new()
        .name("rtsp-session".to_owned())
        .spawn(move || {
            let connection = Connection::new(&shared, link, local, peer);
            // Of a panic all is in the log already; what it recorded or played ends as when a peer is gone.
            if let Ok(Err(error)) = panics::survive(|| connection.serve())
                && let Some(untold) = ENDED.turn(Instant::now())
            {
                tracing::info!(%peer, %error, untold, "an RTSP connection ended");
            }
            drop(place);
        })
}
