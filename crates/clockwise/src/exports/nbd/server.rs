//! The server: listeners, threads, and shutdown.
//!
//! One thread accepts connections and hands each to the worker with the fewest. Above the limit, some connections are
//! accepted whose handshake refuses every export with a message. Further ones are closed.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::event::EventFd;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use sched::units::{Bytes, Nanos};

use crate::descriptors;
use crate::socket::{self, SocketFile};

use super::config::{NbdConfig, NbdStatus, StartError};
use super::log_lines;
use super::stats::Stats;
use super::worker::{Mailbox, NewConnection, Shared, Worker};
use crate::exports::requests::transfer::FIXED_BYTES;
use crate::exports::requests::volumes::Volumes;
use crate::exports::{Export, ExportStatus};
use crate::failure::Failure;

/// The most connections above the limit that are refused with a message.
const REFUSED_MAX: usize = 64;

/// The most worker threads by default. With more threads the disks are the limit.
const WORKERS_MAX_DEFAULT: usize = 4;

/// Descriptors of a connection: its socket, and the events of completions and of memory.
const DESCRIPTORS_PER_CONNECTION: usize = 3;

/// Descriptors for all other purposes of the process.
const DESCRIPTORS_RESERVED: usize = 128;

/// Pause of accepting when the process has no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A running NBD server. Dropping it ends the server at once, without waiting for requests in flight.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    mailboxes: Vec<Arc<Mailbox>>,
    accept_stop: Arc<StopSignal>,
    acceptor: Option<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
    workers_done: mpsc::Receiver<()>,
    tcp_address: Option<SocketAddr>,
    unix: Option<SocketFile>,
}

/// Stops the accepting thread.
#[derive(Debug)]
struct StopSignal {
    event: EventFd,
    is_set: AtomicBool,
}

impl StopSignal {
    fn new() -> io::Result<Self> {
        Ok(Self {
            event: EventFd::new()?,
            is_set: AtomicBool::new(false),
        })
    }

    fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        self.event.signal();
    }

    fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }
}

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Server {
    /// Starts serving every volume of a pool.
    ///
    /// # Errors
    /// If there is no address, or listening on it fails, or the process lacks resources.
    pub fn start(volumes: Arc<Volumes>, config: &NbdConfig) -> Result<Self, StartError> {
        let mut listeners = Vec::new();
        let mut tcp_address = None;
        let mut unix = None;
        if let Some(address) = config.tcp {
            let listener = listen_tcp(address).map_err(|source| StartError::Listen {
                address: address.to_string(),
                source,
            })?;
            tcp_address = Some(listener.local_addr()?);
            listeners.push(Listener::Tcp(listener));
        }
        if let Some(path) = &config.unix {
            let (listener, file) =
                socket::listen(path, config.unix_mode).map_err(StartError::Socket)?;
            listeners.push(Listener::Unix(listener));
            unix = Some(file);
        }
        if listeners.is_empty() {
            return Err(StartError::NoAddress);
        }
        let shared = Arc::new(Shared {
            volumes,
            stats: Stats::default(),
            handshake_within: Nanos(config.handshake_within.as_nanos() as u64),
            is_draining: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
        });
        let (done, workers_done) = mpsc::channel();
        // A failure below drops the server, which ends the threads that have been started.
        let mut server = Self {
            shared,
            mailboxes: Vec::new(),
            accept_stop: Arc::new(StopSignal::new()?),
            acceptor: None,
            workers: Vec::new(),
            workers_done,
            tcp_address,
            unix,
        };
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let count = config
            .workers
            .unwrap_or(processors.min(WORKERS_MAX_DEFAULT))
            .max(1);
        for number in 0..count {
            server.start_worker(number, done.clone())?;
        }
        let acceptor = Acceptor {
            listeners,
            shared: Arc::clone(&server.shared),
            mailboxes: server.mailboxes.clone(),
            stop: Arc::clone(&server.accept_stop),
            limit: ConnectionLimit::new(
                config.connections_max,
                server.shared.volumes.pool().memory().promisable(),
            ),
            accepted: 0,
        };
        server.acceptor = Some(
            std::thread::Builder::new()
                .name("nbd-accept".into())
                .spawn(move || acceptor.run())?,
        );
        Ok(server)
    }

    fn start_worker(&mut self, number: usize, done: mpsc::Sender<()>) -> io::Result<()> {
        let mailbox = Arc::new(Mailbox::new()?);
        let worker = Worker::new(Arc::clone(&self.shared), Arc::clone(&mailbox))?;
        let thread = std::thread::Builder::new()
            .name(format!("nbd-{number}"))
            .spawn(move || {
                worker.run();
                // A dropped server does not receive it.
                let _ = done.send(());
            })?;
        self.mailboxes.push(mailbox);
        self.workers.push(thread);
        Ok(())
    }

    /// The TCP address of the server with the actual port.
    #[must_use]
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp_address
    }

    /// The counters of the server.
    #[must_use]
    pub fn status(&self) -> NbdStatus {
        self.shared.stats.snapshot()
    }

    /// Shuts the server down: accepts no more connections, reads no more requests, answers requests in flight for at
    /// most the time `within`, closes every connection, and removes the unix socket.
    pub fn shutdown(mut self, within: Duration) {
        self.stop_accepting();
        self.shared.is_draining.store(true, Ordering::Release);
        self.mailboxes.iter().for_each(|mailbox| mailbox.notify());
        let until = Instant::now() + within;
        for _ in 0..self.workers.len() {
            let left = until.saturating_duration_since(Instant::now());
            if self.workers_done.recv_timeout(left).is_err() {
                break;
            }
        }
    }

    fn stop_accepting(&mut self) {
        self.accept_stop.set();
        if let Some(acceptor) = self.acceptor.take() {
            // A panic of the thread has been reported by the panic hook.
            let _ = acceptor.join();
        }
        drop(self.unix.take());
    }
}

impl Export for Server {
    type Config = NbdConfig;

    fn start(volumes: Arc<Volumes>, config: &NbdConfig) -> Result<Self, Failure> {
        Self::start(volumes, config).map_err(|error| match error {
            StartError::Socket(failure) => failure,
            error => Failure::failed(error.to_string()).help(
                "set another address in [nbd], stop the program that uses it, or check the permission to use it",
            ),
        })
    }

    fn status(&self) -> ExportStatus {
        let status = self.status();
        let unix = self
            .unix
            .as_ref()
            .map(|file| file.path().display().to_string());
        let tcp = self.tcp_address.map(|address| address.to_string());
        ExportStatus {
            protocol: "nbd",
            at: unix.into_iter().chain(tcp).collect(),
            tcp: self.tcp_address,
            clients: status.connections,
            requests: status.requests,
            errors: status.errors,
            read_bytes: status.read_bytes,
            written_bytes: status.written_bytes,
        }
    }

    fn end(self: Box<Self>, within: Duration) {
        self.shutdown(within);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_accepting();
        self.shared.is_stopped.store(true, Ordering::Release);
        self.mailboxes.iter().for_each(|mailbox| mailbox.notify());
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

fn listen_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The limit of connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ConnectionLimit {
    connections_max: usize,
    /// The memory for all clients, if it is the reason for the limit.
    memory: Option<Bytes>,
}

impl ConnectionLimit {
    /// Limits `wanted` connections by descriptors and by half of the memory. The other half is for streams, also while
    /// many connections are idle.
    fn new(wanted: usize, memory: Bytes) -> Self {
        let possible = connections_possible(wanted);
        let room = usize::try_from(memory.get() / 2).unwrap_or(usize::MAX) / FIXED_BYTES;
        Self {
            connections_max: possible.min(room.max(1)),
            memory: (room < possible).then_some(memory),
        }
    }
}

/// The refusal of a further connection.
impl fmt::Display for ConnectionLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = self.connections_max;
        write!(f, "the server has {most} connections, the maximum")?;
        match self.memory {
            None => write!(f, "; try again later"),
            Some(memory) => write!(
                f,
                " for half of its memory, {memory}; close some, or ask the server's operator \
                 to raise `total` in [memory]"
            ),
        }
    }
}

/// Limits `wanted` connections by the descriptors that the process can have.
fn connections_possible(wanted: usize) -> usize {
    let descriptors = descriptors::raise();
    let room = descriptors.saturating_sub(DESCRIPTORS_RESERVED);
    let possible = (room / DESCRIPTORS_PER_CONNECTION)
        .saturating_sub(REFUSED_MAX)
        .max(1);
    if possible < wanted {
        tracing::warn!(
            "the limit of open files ({descriptors}) allows {possible} block export connections"
        );
    }
    wanted.min(possible)
}

/// Send buffer of a unix socket. With the default of 208 KiB, client and server wait for each other several times
/// during a long reply. TCP sizes its buffers itself.
const SEND_BUFFER_BYTES: usize = 1 << 20;

struct Acceptor {
    listeners: Vec<Listener>,
    shared: Arc<Shared>,
    mailboxes: Vec<Arc<Mailbox>>,
    stop: Arc<StopSignal>,
    limit: ConnectionLimit,
    /// Connections accepted so far, which number their names.
    accepted: u64,
}

impl Acceptor {
    fn run(mut self) {
        while !self.stop.is_set() {
            let mut fds = vec![PollFd::new(&self.stop.event, PollFlags::IN)];
            for listener in &self.listeners {
                fds.push(match listener {
                    Listener::Unix(listener) => PollFd::new(listener, PollFlags::IN),
                    Listener::Tcp(listener) => PollFd::new(listener, PollFlags::IN),
                });
            }
            if let Err(error) = rustix::event::poll(&mut fds, None)
                && error != Errno::INTR
            {
                // Only an invalid descriptor fails here. The server cannot accept connections any more.
                panic!("the block export cannot wait for connections: {error}");
            }
            drop(fds);
            for index in 0..self.listeners.len() {
                self.accept_all(index);
            }
        }
    }

    fn accept_all(&mut self, index: usize) {
        loop {
            match accept(&self.listeners[index]) {
                Ok(socket) => self.hand_over(socket),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => {
                    // Out of descriptors or memory: the connection stays in the kernel's queue.
                    log_lines::connection_not_served(&error);
                    let until = engine::clock::now() + Nanos(ACCEPT_PAUSE.as_nanos() as u64);
                    self.stop.event.wait(Some(until));
                    return;
                }
            }
        }
    }

    fn hand_over(&mut self, socket: OwnedFd) {
        let stats = &self.shared.stats;
        let open = stats.connections.load(Ordering::Relaxed) as usize;
        let mut refused = None;
        if open >= self.limit.connections_max {
            stats.refused.fetch_add(1, Ordering::Relaxed);
            if open >= self.limit.connections_max + REFUSED_MAX {
                return;
            }
            refused = Some(self.limit.to_string());
        }
        stats.connections.fetch_add(1, Ordering::Relaxed);
        stats.accepted.fetch_add(1, Ordering::Relaxed);
        self.accepted += 1;
        let name = format!("nbd-{}", self.accepted);
        let load = |mailbox: &&Arc<Mailbox>| mailbox.load.load(Ordering::Relaxed);
        if let Some(mailbox) = self.mailboxes.iter().min_by_key(load) {
            mailbox.hand_over(NewConnection {
                socket,
                name,
                refused,
            });
        }
    }
}

fn accept(listener: &Listener) -> rustix::io::Result<OwnedFd> {
    use rustix::net::{SocketFlags, accept_with, sockopt};
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    match listener {
        Listener::Unix(listener) => {
            let socket = accept_with(listener, flags)?;
            // The system may allow less. The buffer only makes long replies faster.
            let _ = sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER_BYTES);
            Ok(socket)
        }
        Listener::Tcp(listener) => {
            let socket = accept_with(listener, flags)?;
            sockopt::set_tcp_nodelay(&socket, true)?;
            // Finds peers that have vanished, within minutes.
            sockopt::set_socket_keepalive(&socket, true)?;
            sockopt::set_tcp_keepidle(&socket, Duration::from_secs(60))?;
            sockopt::set_tcp_keepintvl(&socket, Duration::from_secs(20))?;
            Ok(socket)
        }
    }
}
