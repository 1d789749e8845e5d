//! The connections of the control API and of browsers: taken, served, and closed when the server ends or nothing comes.

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

use super::end_of;
use peers::connection_limits::{ConnectionLimits, Denials, Held};
use peers::log_throttle::LogThrottle;

/// How long the head of a request may take to come, and a connection to say nothing.
pub(super) const HEAD_WITHIN: Duration = Duration::from_secs(30);

/// The most bytes of a request's head.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// The pause after a connection that could not be taken, for want of a descriptor as a rule.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// Where connections come from.
pub(super) trait Listener: Send {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// What connects, for the log.
    const TO: &str;

    /// The next one, and who it is if that has an address.
    fn next(
        &self,
    ) -> impl Future<Output = std::io::Result<(Self::Stream, Option<SocketAddr>)>> + Send;
}

impl Listener for UnixListener {
    type Stream = UnixStream;
    const TO: &str = "the control socket";

    async fn next(&self) -> std::io::Result<(UnixStream, Option<SocketAddr>)> {
        Ok((self.accept().await?.0, None))
    }
}

impl Listener for TcpListener {
    type Stream = TcpStream;
    const TO: &str = "HTTP";

    async fn next(&self) -> std::io::Result<(TcpStream, Option<SocketAddr>)> {
        let (stream, peer) = self.accept().await?;
        Ok((stream, Some(peer)))
    }
}

/// Serves what connects until the server ends, and then what has been asked by then. `router` is for who connects, and
/// `places` for how many have an address.
pub(super) async fn serve<L: Listener>(
    listener: L,
    router: impl Fn(Option<SocketAddr>) -> Router,
    places: Option<Arc<ConnectionLimits>>,
    head_within: Duration,
    ended: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    // What is of the host's making is not drowned by what peers do.
    let (mut denials, mut failures) = (Denials::default(), LogThrottle::default());
    loop {
        tokio::select! {
            accepted = listener.next() => match accepted {
                Ok((stream, peer)) => {
                    let of = places.as_ref().zip(peer);
                    match of.map(|(places, peer)| places.take(peer.ip())).transpose() {
                        Ok(place) => {
                            let router = router(peer);
                            let served = one(stream, place, router, head_within, ended.clone());
                            connections.spawn(panics::surviving(served));
                        }
                        Err(full) => {
                            if let Some(untold) = denials.turn(full, Instant::now()) {
                                tracing::warn!(%full, untold, "a connection to {} is closed", L::TO);
                            }
                        }
                    }
                }
                Err(error) => {
                    if let Some(untold) = failures.turn(Instant::now()) {
                        tracing::warn!(%error, untold, "a connection to {} could not be taken", L::TO);
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

/// Serves one connection to its end.
async fn one<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    _place: Option<Held>,
    router: Router,
    head_within: Duration,
    ended: watch::Receiver<bool>,
) {
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

    /// Longer than it takes on any machine to notice that a moment is over.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn half_a_head_is_not_waited_for() {
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
    fn an_address_that_has_its_connections_gets_no_more() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (ending, ended) = watch::channel(false);
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let at = listener.local_addr().unwrap();
        let router = Router::new().route("/", axum::routing::get(|| async { "well" }));
        // Two, one for each address.
        let places = ConnectionLimits::of(8);
        let serving = serve(
            listener,
            move |_| router.clone(),
            Some(Arc::clone(&places)),
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
        while places.taken() > 0 {
            assert!(Instant::now() < until, "its place is not given back");
            std::thread::yield_now();
        }
        let third = std::net::TcpStream::connect(at).unwrap();
        assert!(ask(&third).ends_with("well"));
        ending.send_replace(true);
        runtime.block_on(serving).unwrap();
    }
}
