//! A client of the control API: HTTP/1.1 with JSON bodies over a Unix socket.
//!
//! One connection per call: calls are few and a connection to a Unix socket costs microseconds.
//!
//! A call waits for a server that is starting: until it listens (for 3 s at most), and then for as
//! long as it answers that its pool is being opened. If no server listens, the error says how to start one. A
//! call may take as long as its work does, provided that the server still answers other requests; a server
//! that was stopped or hangs is an error. Calls are never repeated once the server may have begun to execute
//! them.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::{Failure, FailureKind};
use crate::socket;
use crate::wire::{MISSING_BLOCKS, Problem, RECORDED};

/// Help for an answer that cannot be parsed.
const VERSION_HELP: &str = "the server and this command may be of different versions, or another program listens at that socket";

/// The maximum time until a starting server listens, which it does as soon as it has its disks and its
/// memory.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(3);

/// The first pause between two attempts. Each pause is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(5);

/// The longest time between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// After this time without an answer the server is probed, and the probe may take as long again.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// The path of the probe. Nothing is there, so the server answers without its pool or its disks.
const PROBE_PATH: &str = "/v1";

/// The maximum time for a server of another protocol to send its first bytes.
const PROTOCOL_TIMEOUT: Duration = Duration::from_secs(1);

/// A client of the control API. Clones share what is known of the server.
#[derive(Clone, Debug)]
pub struct ApiClient {
    socket: PathBuf,
    /// True once a connection has succeeded. From then on a refused connection is an error: the server has
    /// ended, and a new server has none of its state.
    has_connected: Arc<AtomicBool>,
    probe_after: Duration,
}

/// Result of a download.
#[derive(Clone, Debug, Default)]
pub struct Download {
    /// Its length in bytes.
    pub bytes: u64,
    /// Blocks of the recording that are damaged or overwritten, and so missing in the download.
    pub missing_blocks: u64,
    /// The times in it, if the server tells them.
    pub recorded: Option<String>,
}

/// The parsed body of the answer, or the failure that the server reports.
type Answer<T> = Result<T, Failure>;

impl ApiClient {
    /// A client of the server that listens at `socket`. It does not connect yet.
    #[must_use]
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
            has_connected: Arc::default(),
            probe_after: PROBE_TIMEOUT,
        }
    }

    /// Sets how long an answer may take before the server is probed, and how long the probe may take.
    #[must_use]
    pub fn patient(self, probe_after: Duration) -> Self {
        Self {
            probe_after,
            ..self
        }
    }

    /// The path of the control socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Reads a resource with GET.
    ///
    /// # Errors
    /// When the server cannot be reached, does not answer, or refuses the call.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Answer<T> {
        self.call(Method::GET, path, &()).await
    }

    /// Creates a resource or starts an action with POST.
    ///
    /// # Errors
    /// As [`ApiClient::get`].
    pub async fn post<B: Serialize + Sync, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> Answer<T> {
        self.call(Method::POST, path, body).await
    }

    /// Changes a resource with PATCH.
    ///
    /// # Errors
    /// As [`ApiClient::get`].
    pub async fn patch<B: Serialize + Sync, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> Answer<T> {
        self.call(Method::PATCH, path, body).await
    }

    /// Removes a resource with DELETE.
    ///
    /// # Errors
    /// As [`ApiClient::get`].
    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> Answer<T> {
        self.call(Method::DELETE, path, &()).await
    }

    async fn call<B: Serialize + Sync, T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &B,
    ) -> Answer<T> {
        let body = if matches!(method, Method::GET | Method::DELETE) {
            Vec::new()
        } else {
            serde_json::to_vec(body)
                .map_err(|error| Failure::bug(format!("cannot write the request: {error}")))?
        };
        let (status, body) = self.exchange(method, path, body.into()).await?;
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|error| {
                Failure::failed(format!(
                    "cannot parse the server's answer to {path}: {error}"
                ))
                .help(VERSION_HELP)
            });
        }
        Err(refused(status, &body))
    }

    /// Waits until the server has opened its pool. For commands that handle signals themselves from then on:
    /// until then, Ctrl-C ends them.
    ///
    /// # Errors
    /// As [`ApiClient::get`].
    pub async fn opened(&self) -> Answer<()> {
        let probe = self.exchange(Method::GET, PROBE_PATH, Bytes::new());
        probe.await.map(drop)
    }

    /// Makes a call and returns its answer. Repeats the call while the server answers that its pool is being
    /// opened.
    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Answer<(StatusCode, Bytes)> {
        let mut backoff = Backoff::default();
        let mut was_opening = false;
        loop {
            let ready = self.ready(method.clone(), path, body.clone()).await;
            let (stream, request) = ready.map_err(|failure| match was_opening {
                true => failure.help("the server ended while it opened its pool: its log says why"),
                false => failure,
            })?;
            match self.while_responsive(answer(stream, request)).await? {
                Ok((status, body)) if is_opening(status, &body) => was_opening = true,
                Ok(answer) => return Ok(answer),
                Err(error) => return Err(self.connection_lost(&error).await),
            }
            tokio::time::sleep(backoff.next()).await;
        }
    }

    /// A connection, and the request to send on it.
    async fn ready(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Answer<(tokio::net::UnixStream, Request<Full<Bytes>>)> {
        let stream = self
            .connect()
            .await
            .map_err(|error| self.unreachable(&error))?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "clockwise")
            .header("content-type", "application/json")
            .body(Full::new(body))
            .map_err(|error| {
                Failure::bug(format!("cannot build the request for {path}: {error}"))
            })?;
        Ok((stream, request))
    }

    /// Downloads a body that is not JSON and may be long. `take` gets each piece of it.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses the call or ends the body early, or when `take` fails.
    pub async fn download(
        &self,
        path: &str,
        mut take: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Answer<Download> {
        self.opened().await?;
        let (stream, mut request) = self.ready(Method::GET, path, Bytes::new()).await?;
        let trailers = HeaderValue::from_static("trailers");
        request.headers_mut().insert(header::TE, trailers);
        let begun = self.while_responsive(begin(stream, request)).await?;
        let (response, _driver) = match begun {
            Ok(begun) => begun,
            Err(error) => return Err(self.connection_lost(&error).await),
        };
        let (head, mut body) = response.into_parts();
        if !head.status.is_success() {
            let text = match self.while_responsive(body.collect()).await? {
                Ok(text) => text.to_bytes(),
                Err(error) => return Err(self.connection_lost(&error).await),
            };
            return Err(refused(head.status, &text));
        }
        let recorded = head.headers.get(RECORDED).and_then(|of| of.to_str().ok());
        let mut download = Download {
            recorded: recorded.map(str::to_owned),
            ..Download::default()
        };
        while let Some(frame) = self.while_responsive(body.frame()).await? {
            match frame.map(hyper::body::Frame::into_data) {
                Ok(Ok(piece)) => {
                    download.bytes += piece.len() as u64;
                    take(&piece)?;
                }
                Ok(Err(frame)) => {
                    let trailers = frame.trailers_ref();
                    let missing = trailers.and_then(|of| of.get(MISSING_BLOCKS));
                    let missing = missing.and_then(|of| of.to_str().ok()?.parse().ok());
                    download.missing_blocks = missing.unwrap_or(download.missing_blocks);
                }
                Err(error) => {
                    return Err(Failure::failed(format!(
                        "the download ended early: {error}"
                    ))
                    .help(
                        "the server's log says why; `clockwise status` shows if the server still runs",
                    ));
                }
            }
        }
        Ok(download)
    }

    /// Waits for `work` as long as the server answers probes.
    async fn while_responsive<T>(&self, work: impl Future<Output = T>) -> Answer<T> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                is_responsive = self.probe() => if !is_responsive {
                    return Err(self.unresponsive());
                },
            }
        }
    }

    /// Sleeps, then probes the server. Returns false if it does not answer in time. A server that has ended
    /// counts as responsive: the awaited call itself fails then.
    async fn probe(&self) -> bool {
        tokio::time::sleep(self.probe_after).await;
        let answered = async {
            let stream = self.connect().await?;
            let request = Request::get(PROBE_PATH).header("host", "clockwise");
            let request = request.body(Full::default()).map_err(io::Error::other)?;
            answer(stream, request).await.map_err(io::Error::other)
        };
        match tokio::time::timeout(self.probe_after, answered).await {
            Ok(Err(error)) => error.kind() != ErrorKind::TimedOut,
            Ok(Ok(_)) => true,
            Err(_) => false,
        }
    }

    fn unresponsive(&self) -> Failure {
        Failure::failed(format!(
            "the server at {} has not answered for {:?}",
            self.socket.display(),
            self.probe_after * 2
        ))
        .help("it is stopped (`kill -CONT` resumes it) or hangs: its log says more; the call may still be executed")
    }

    /// The failure of a connection that ended before the answer was complete.
    async fn connection_lost(&self, error: &hyper::Error) -> Failure {
        let socket = self.socket.clone();
        let is_other = tokio::task::spawn_blocking(move || speaks_another_protocol(&socket));
        if is_other.await.unwrap_or(false) {
            return self.no_control_socket();
        }
        Failure::failed(format!("the connection to the server was lost: {error}"))
            .help("the server has ended or is ending: its log says why; `clockwise status` shows if it runs again")
    }

    /// Connects on a thread that may block: a blocking connect waits while the server's queue of connections
    /// is full; a non-blocking one would fail.
    async fn connect(&self) -> io::Result<tokio::net::UnixStream> {
        let socket = self.socket.clone();
        let has_connected = Arc::clone(&self.has_connected);
        let timeout = self.probe_after;
        let connect = move || {
            let stream = if has_connected.load(Relaxed) {
                socket::connect(&socket, timeout)?
            } else {
                connect_to_starting_server(&socket, timeout)?
            };
            has_connected.store(true, Relaxed);
            Ok::<_, io::Error>(stream)
        };
        let stream = tokio::task::spawn_blocking(connect)
            .await
            .map_err(io::Error::other)??;
        stream.set_nonblocking(true)?;
        tokio::net::UnixStream::from_std(stream)
    }

    fn no_control_socket(&self) -> Failure {
        Failure::bad_input(format!(
            "{} is not a control socket: its server speaks another protocol",
            self.socket.display()
        ))
        .help("give the server's `api` socket, not its socket for stream data or for NBD")
    }

    fn unreachable(&self, error: &io::Error) -> Failure {
        let socket = self.socket.display();
        let (what, help) = match error.kind() {
            ErrorKind::TimedOut => return self.unresponsive(),
            _ if is_not_listening(error) => (
                format!("no server answers at {socket}"),
                "start it with `systemctl start clockwise` or `clockwise serve`, or give its socket with --socket or --config",
            ),
            ErrorKind::PermissionDenied => (
                format!("no permission to connect to {socket}"),
                "the permissions of that file decide who may connect; `permissions` in the server's configuration sets them",
            ),
            _ => (
                format!("cannot connect to {socket}: {error}"),
                "check that the server is running",
            ),
        };
        Failure {
            kind: FailureKind::Failed,
            what,
            place: None,
            help: help.to_owned(),
            refusal: None,
        }
    }
}

/// The failure that an error answer reports.
fn refused(status: StatusCode, body: &[u8]) -> Failure {
    match serde_json::from_slice::<Problem>(body) {
        Ok(problem) => problem.into_failure(),
        Err(_) => Failure::failed(format!(
            "the server answers {status}: {}",
            String::from_utf8_lossy(body)
        ))
        .help(VERSION_HELP),
    }
}

/// True if an answer says that the pool is being opened.
fn is_opening(status: StatusCode, body: &[u8]) -> bool {
    let is_one = |problem: Problem| problem.opening;
    status == StatusCode::SERVICE_UNAVAILABLE && serde_json::from_slice(body).is_ok_and(is_one)
}

/// Exponentially growing pauses between attempts.
struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(FIRST_PAUSE)
    }
}

impl Backoff {
    fn next(&mut self) -> Duration {
        let next = (self.0 * 2).min(LONGEST_PAUSE);
        std::mem::replace(&mut self.0, next)
    }
}

/// The task that drives a connection. Dropping it aborts the task.
struct ConnectionTask(tokio::task::JoinHandle<Result<(), hyper::Error>>);

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends one request on a connection of its own, and returns the head of the answer and its body.
async fn begin(
    stream: tokio::net::UnixStream,
    request: Request<Full<Bytes>>,
) -> Result<(Response<Incoming>, ConnectionTask), hyper::Error> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driver = ConnectionTask(tokio::spawn(connection));
    let response = sender.send_request(request).await?;
    Ok((response, driver))
}

/// Sends one request on a connection of its own, and returns the whole answer.
async fn answer(
    stream: tokio::net::UnixStream,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), hyper::Error> {
    let (response, _driver) = begin(stream, request).await?;
    let status = response.status();
    Ok((status, response.into_body().collect().await?.to_bytes()))
}

/// True if the server at a socket answers in another protocol than HTTP, as the sockets for stream data and
/// NBD do.
fn speaks_another_protocol(socket: &Path) -> bool {
    const HTTP: &[u8] = b"HTTP/";
    let Ok(mut connection) = socket::connect(socket, PROTOCOL_TIMEOUT) else {
        return false;
    };
    let asked = connection
        .set_read_timeout(Some(PROTOCOL_TIMEOUT))
        .and_then(|()| {
            connection
                .write_all(b"GET /v1/pool HTTP/1.1\r\nhost: clockwise\r\nconnection: close\r\n\r\n")
        });
    let mut answer = Vec::with_capacity(HTTP.len());
    // A server that closes at once or sends nothing is not known to speak another protocol.
    let _ = connection.take(HTTP.len() as u64).read_to_end(&mut answer);
    asked.is_ok() && !HTTP.starts_with(&answer)
}

/// True if a connect failed because no server listens there, or not yet.
fn is_not_listening(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound | ErrorKind::ConnectionRefused
    )
}

/// Connects to a server. Retries for [`LISTEN_TIMEOUT`] while none listens.
fn connect_to_starting_server(socket: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let until = Instant::now() + LISTEN_TIMEOUT;
    let mut backoff = Backoff::default();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match socket::connect(socket, timeout) {
            Err(error) if is_not_listening(&error) && !left.is_zero() => {}
            connected => return connected,
        }
        std::thread::sleep(backoff.next().min(left));
    }
}
