//! The RTSP server: its listeners and its connections.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::event::EventFd;
use engine::panics;
use engine::volume_io::Client;
use sched::units::{Bytes, BytesPerSecond};

use crate::archive::archives::Archives;
use crate::rtsp::access::Access;
use crate::rtsp::connection::Connection;
use crate::rtsp::door::Door;
use crate::rtsp::link::Link;
use crate::rtsp::poll::Wait;
use crate::rtsp::tls::{self, TlsConfig, TlsError};
use peers::connection_limits::{ConnectionLimits, Denials, Held};
use peers::log_throttle::{LogThrottle, SharedLogThrottle};

/// The pause after `accept` has failed, usually for want of a descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections that end with an error, which any client can cause.
static ENDED: SharedLogThrottle = SharedLogThrottle::few();

/// The configuration of the RTSP server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MediaConfig {
    /// The address for connections that are not encrypted.
    pub listen: Option<SocketAddr>,
    /// The address for TLS, and the certificate.
    pub tls: Option<TlsConfig>,
    /// The rate that is reserved for a recording whose description has none.
    pub rate: BytesPerSecond,
    /// The size of the blocks of new archives.
    pub block: Bytes,
    /// A session ends when its peer has sent nothing for this long.
    pub timeout: Duration,
}

/// Why the RTSP server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It cannot listen at an address.
    #[error("RTSP cannot be served at {0}: {1}")]
    Listen(SocketAddr, io::Error),
    /// The host has no memory or descriptors.
    #[error("RTSP cannot be served: {0}")]
    Host(String),
    /// Its certificate or key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// State that connections share which have begun with the same configuration.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) archives: Arc<Archives>,
    pub(crate) config: MediaConfig,
    pub(crate) access: Option<Arc<Access>>,
    /// Reads of archives outside of reservations.
    pub(crate) client: Arc<Client>,
    /// Signalled when the server ends, and never drained.
    pub(crate) stop: Arc<EventFd>,
}

/// The state of connections that begin from now on.
pub(crate) struct Current(Mutex<Arc<Shared>>);

impl Current {
    pub(crate) fn get(&self) -> Arc<Shared> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn change(&self, change: impl FnOnce(&mut MediaConfig)) {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = Shared::clone(&current);
        change(&mut changed.config);
        *current = Arc::new(changed);
    }
}

/// A running RTSP server. Dropping it ends it.
pub struct Server {
    current: Arc<Current>,
    door: Door,
    limits: Arc<ConnectionLimits>,
    address: Option<SocketAddr>,
    tls_address: Option<SocketAddr>,
    listener: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens, and serves each connection on a thread of its own, within `limits`.
    ///
    /// # Errors
    /// When it cannot listen there, or the host has no memory for it.
    pub fn start(
        archives: Arc<Archives>,
        config: &MediaConfig,
        access: Option<Arc<Access>>,
        limits: Arc<ConnectionLimits>,
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
                tracing::warn!(%address, "anyone who reaches this address can record and play: there are no users ([access] or [rtsp])");
            }
        }
        let client = archives.client().map_err(|error| host(&error))?;
        let shared = Shared {
            archives,
            config: config.clone(),
            access,
            client,
            stop: Arc::new(EventFd::new().map_err(|error| host(&error))?),
        };
        let stop = Arc::clone(&shared.stop);
        let current = Arc::new(Current(Mutex::new(Arc::new(shared))));
        let mut listeners = Vec::new();
        listeners.extend(plain.map(|(socket, _)| Listener { socket, tls: None }));
        listeners.extend(secure.map(|(socket, _)| Listener {
            socket,
            tls: certified,
        }));
        let acceptor = Acceptor {
            current: Arc::clone(&current),
            stop,
            limits: Arc::clone(&limits),
            denials: Denials::default(),
            failed: LogThrottle::default(),
        };
        let listener = std::thread::Builder::new()
            .name("rtsp".to_owned())
            .spawn(move || acceptor.serve(&listeners))
            .map_err(|error| host(&error))?;
        let door = Door {
            current: Arc::clone(&current),
            threads: Arc::default(),
        };
        Ok(Self {
            current,
            door,
            limits,
            address: addresses[0],
            tls_address: addresses[1],
            listener: Some(listener),
        })
    }

    /// The address that it listens at, with the port that the host has chosen.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The address that it listens at for TLS.
    #[must_use]
    pub fn tls_address(&self) -> Option<SocketAddr> {
        self.tls_address
    }

    /// All addresses that it listens at.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        [self.address, self.tls_address]
            .into_iter()
            .flatten()
            .collect()
    }

    /// A door for other services of this process.
    #[must_use]
    pub fn door(&self) -> Door {
        self.door.clone()
    }

    /// Takes over the rate, block size and timeout of a configuration for connections that begin from now on.
    pub fn reload(&self, config: &MediaConfig) {
        self.current.change(|current| {
            (current.rate, current.block) = (config.rate, config.block);
            current.timeout = config.timeout;
        });
    }

    /// The number of connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.limits.taken()
    }
}

impl Drop for Server {
    /// Ends all sessions. Recordings are durable when this returns.
    fn drop(&mut self) {
        self.current.get().stop.signal();
        if let Some(listener) = self.listener.take() {
            // The listener waits for all connections.
            let _ = listener.join();
        }
        self.door.join();
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
enum ListenerEvent {
    Stop,
    /// A connection at the listener with this index.
    Connection(usize),
}

/// A listening socket, with the TLS configuration if it is for TLS.
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

/// Accepts connections.
struct Acceptor {
    current: Arc<Current>,
    stop: Arc<EventFd>,
    limits: Arc<ConnectionLimits>,
    /// Throttles warnings that peers cause.
    denials: Denials,
    /// Throttles warnings that the host causes, which must not be lost among those of peers.
    failed: LogThrottle,
}

impl Acceptor {
    /// Accepts connections until the server ends, and then waits for their threads.
    fn serve(mut self, listeners: &[Listener]) {
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        loop {
            let mut wait = Wait::new();
            wait.readable(self.stop.as_fd(), ListenerEvent::Stop);
            for (place, listener) in listeners.iter().enumerate() {
                wait.readable(listener.socket.as_fd(), ListenerEvent::Connection(place));
            }
            let ready = wait.sleep(true, None).unwrap_or_default();
            if ready.contains(&ListenerEvent::Stop) {
                break;
            }
            threads.retain(|thread| !thread.is_finished());
            for of in ready {
                if let ListenerEvent::Connection(place) = of {
                    threads.extend(self.take(&listeners[place]));
                }
            }
        }
        for thread in threads {
            let _ = thread.join();
        }
    }

    /// Accepts a connection, if there is one, within the limits.
    fn take(&mut self, listener: &Listener) -> Option<JoinHandle<()>> {
        match listener.socket.accept() {
            Ok((socket, peer)) => match self.limits.take(peer.ip()) {
                Ok(held) => spawn(socket, peer, held, listener, self.current.get())
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
                self.fails("could not be accepted", &error);
                // Until a descriptor is free.
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
    held: Held,
    listener: &Listener,
    shared: Arc<Shared>,
) -> io::Result<JoinHandle<()>> {
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    let local = socket.local_addr()?;
    let link = match &listener.tls {
        None => Link::from(socket),
        Some(server) => Link::secure(socket, tls::accept(server)?),
    };
    std::thread::Builder::new()
        .name("rtsp-session".to_owned())
        .spawn(move || {
            let connection = Connection::new(&shared, link, local, peer);
            // A panic has been logged; the session ends as when the peer has closed the connection.
            if let Ok(Err(error)) = panics::survive(|| connection.serve())
                && let Some(untold) = ENDED.turn(Instant::now())
            {
                tracing::info!(%peer, %error, untold, "an RTSP connection ended");
            }
            drop(held);
        })
}
