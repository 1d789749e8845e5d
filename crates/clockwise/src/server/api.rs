//! Connections of the control API and of browsers.
//!
//! They are closed when the server ends, or when a request head is late.

use std::future::ready;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use engine::panics;
use hyper::server::conn::http1::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::end_of;
use peers::connection_limits::{ConnectionLimits, Denials, Held};
use peers::log_throttle::LogThrottle;

/// Time for the head of a request, also on an idle connection.
pub(super) const HEAD_WITHIN: Duration = Duration::from_secs(30);

/// The limit of a request head in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// The pause after a connection could not be accepted, usually for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// A source of connections.
pub(super) trait Listener: Send {
    /// A connection of which nothing has been read.
    type Accepted: Send + 'static;
    /// A connection that is ready for a request.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Name of the destination, for the log.
    const DESTINATION: &str;

    /// Accepts a connection. Returns the address of its peer, if it has one.
    fn next(
        &self,
    ) -> impl Future<Output = std::io::Result<(Self::Accepted, Option<SocketAddr>)>> + Send;

    /// Makes a connection ready for a request.
    fn complete(
        &self,
        accepted: Self::Accepted,
    ) -> impl Future<Output = std::io::Result<Self::Stream>> + Send + 'static;
}

impl Listener for UnixListener {
    type Accepted = UnixStream;
    type Stream = UnixStream;
    const DESTINATION: &str = "the control socket";

    async fn next(&self) -> std::io::Result<(UnixStream, Option<SocketAddr>)> {
        Ok((self.accept().await?.0, None))
    }

    fn complete(
        &self,
        accepted: UnixStream,
    ) -> impl Future<Output = std::io::Result<UnixStream>> + Send + 'static {
        ready(Ok(accepted))
    }
}

impl Listener for TcpListener {
    type Accepted = TcpStream;
    type Stream = TcpStream;
    const DESTINATION: &str = "HTTP";

    async fn next(&self) -> std::io::Result<(TcpStream, Option<SocketAddr>)> {
        let (stream, peer) = self.accept().await?;
        Ok((stream, Some(peer)))
    }

    fn complete(
        &self,
        accepted: TcpStream,
    ) -> impl Future<Output = std::io::Result<TcpStream>> + Send + 'static {
        ready(Ok(accepted))
    }
}

/// Connections over TLS.
pub(super) struct TlsListener {
    pub(super) listener: TcpListener,
    pub(super) acceptor: TlsAcceptor,
}

impl Listener for TlsListener {
    type Accepted = TcpStream;
    type Stream = TlsStream<TcpStream>;
    const DESTINATION: &str = "HTTP over TLS";

    async fn next(&self) -> std::io::Result<(TcpStream, Option<SocketAddr>)> {
        self.listener.next().await
    }

    fn complete(
        &self,
        accepted: TcpStream,
    ) -> impl Future<Output = std::io::Result<TlsStream<TcpStream>>> + Send + 'static {
        self.acceptor.accept(accepted)
    }
}

/// Serves connections until the server ends, and then answers the requests received by then. `router` makes the router
/// for a peer. `limits` apply to connections whose peer has an address.
pub(super) async fn serve<L: Listener>(
    listener: L,
    router: impl Fn(Option<SocketAddr>) -> Router,
    limits: Option<Arc<ConnectionLimits>>,
    head_within: Duration,
    ended: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    // Counted separately, so that peers cannot suppress failures of the host.
    let (mut denials, mut failures) = (Denials::default(), LogThrottle::default());
    loop {
        tokio::select! {
            accepted = listener.next() => match accepted {
                Ok((stream, peer)) => {
                    let limited = limits.as_ref().zip(peer);
                    match limited.map(|(limits, peer)| limits.take(peer.ip())).transpose() {
                        Ok(slot) => {
                            let router = router(peer);
                            let stream = listener.complete(stream);
                            let served = serve_one(stream, slot, router, head_within, ended.clone());
                            connections.spawn(panics::surviving(served));
                        }
                        Err(full) => {
                            if let Some(untold) = denials.turn(full, Instant::now()) {
                                tracing::warn!(%full, untold, "a connection to {} is closed", L::DESTINATION);
                            }
                        }
                    }
                }
                Err(error) => {
                    if let Some(untold) = failures.turn(Instant::now()) {
                        tracing::warn!(%error, untold, "a connection to {} could not be accepted", L::DESTINATION);
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = end_of(ended.clone()) => break,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Serves a connection until its end.
async fn serve_one<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: impl Future<Output = std::io::Result<S>>,
    _slot: Option<Held>,
    router: Router,
    head_within: Duration,
    ended: watch::Receiver<bool>,
) {
    // A handshake has as long as a head.
    let stream = tokio::select! {
        stream = tokio::time::timeout(head_within, stream) => stream,
        () = end_of(ended.clone()) => return,
    };
    let stream = match stream.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())) {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(%error, "a connection did not begin");
            return;
        }
    };
    let connection = Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_within)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = end_of(ended) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection ended early");
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    /// Longer than any machine needs to notice the end of a time limit.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn incomplete_head_closes_the_connection() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("api.sock");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (ending, ended) = watch::channel(false);
        let listener = {
            let _within = runtime.enter();
            UnixListener::bind(&path).unwrap()
        };
        let router = Router::new().route("/", axum::routing::get(|| async { "well" }));
        let impatient = serve(
            listener,
            {
                let router = router.clone();
                move |_| router.clone()
            },
            None,
            Duration::from_millis(100),
            ended.clone(),
        );
        let impatient = runtime.spawn(impatient);
        for head in ["", "GET / HTTP/1.1\r\nhost: x\r\n"] {
            let mut connection = std::os::unix::net::UnixStream::connect(&path).unwrap();
            connection.set_read_timeout(Some(LONG)).unwrap();
            connection.write_all(head.as_bytes()).unwrap();
            let mut answer = String::new();
            connection.read_to_string(&mut answer).unwrap();
            assert!(!answer.contains("well"), "{answer}");
        }
        let path = folder.path().join("patient.sock");
        let listener = {
            let _within = runtime.enter();
            UnixListener::bind(&path).unwrap()
        };
        let patient = runtime.spawn(serve(listener, move |_| router.clone(), None, LONG, ended));
        let mut connection = std::os::unix::net::UnixStream::connect(&path).unwrap();
        connection
            .write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("well"), "{answer}");
        ending.send_replace(true);
        runtime.block_on(impatient).unwrap();
        runtime.block_on(patient).unwrap();
    }

    #[test]
    fn connections_of_an_address_are_limited() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (ending, ended) = watch::channel(false);
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let at = listener.local_addr().unwrap();
        let router = Router::new().route("/", axum::routing::get(|| async { "well" }));
        // Two connections, and one for each address.
        let limits = ConnectionLimits::of(8);
        let serving = serve(
            listener,
            move |_| router.clone(),
            Some(Arc::clone(&limits)),
            LONG,
            ended,
        );
        let serving = runtime.spawn(serving);
        let ask = |mut connection: &std::net::TcpStream| {
            connection.set_read_timeout(Some(LONG)).unwrap();
            let asked = connection.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n");
            let mut answer = [0; 1_024];
            let read = asked.and_then(|()| connection.read(&mut answer));
            String::from_utf8_lossy(&answer[..read.unwrap_or(0)]).into_owned()
        };
        let first = std::net::TcpStream::connect(at).unwrap();
        assert!(ask(&first).ends_with("well"));
        let second = std::net::TcpStream::connect(at).unwrap();
        assert_eq!(ask(&second), "");
        assert!(ask(&first).ends_with("well"));
        drop(first);
        let until = Instant::now() + LONG;
        while limits.taken() > 0 {
            assert!(Instant::now() < until, "its slot is not freed");
            std::thread::yield_now();
        }
        let third = std::net::TcpStream::connect(at).unwrap();
        assert!(ask(&third).ends_with("well"));
        ending.send_replace(true);
        runtime.block_on(serving).unwrap();
    }
}
