//! One delivery of an event.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::http::uri::Scheme;
use hyper::{Request, Uri, header};
use hyper_util::rt::TokioIo;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::HookTarget;
use crate::wire::events::EventView;

/// The time that a delivery may take.
const WITHIN: Duration = Duration::from_secs(10);

/// Delivers an event.
///
/// # Errors
/// The reason why the target has not taken it.
pub(super) async fn deliver(target: &HookTarget, event: &EventView) -> Result<(), String> {
    let mut text = serde_json::to_vec(event).map_err(|error| error.to_string())?;
    text.push(b'\n');
    let delivery = async {
        match target {
            HookTarget::Run(words) => run(words, &text).await,
            HookTarget::Post(address) => post(address, text).await,
        }
    };
    let late = |_| format!("it has not taken the event within {} s", WITHIN.as_secs());
    tokio::time::timeout(WITHIN, delivery).await.map_err(late)?
}

/// A program in a process group of its own, which is killed if the delivery ends before the program does.
struct Program(Child);

impl Program {
    async fn ended(&mut self) -> std::io::Result<ExitStatus> {
        self.0.wait().await
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // There is no number once its end has been awaited.
        let pid = self.0.id().and_then(|pid| i32::try_from(pid).ok());
        if let Some(group) = pid.and_then(Pid::from_raw) {
            // It may have ended meanwhile.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

async fn run(words: &[String], text: &[u8]) -> Result<(), String> {
    let [program, arguments @ ..] = words else {
        return Err("no program is named".to_owned());
    };
    let failed = |error: std::io::Error| format!("{program} cannot be run: {error}");
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    command.stderr(Stdio::null()).process_group(0);
    let mut child = Program(command.spawn().map_err(failed)?);
    if let Some(mut input) = child.0.stdin.take() {
        // A program may end without reading it; its exit status says if it has taken the event.
        let _ = input.write_all(text).await;
    }
    let status = child.ended().await.map_err(failed)?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{program} has ended with {status}")),
    }
}

async fn post(address: &Uri, text: Vec<u8>) -> Result<(), String> {
    let host = address.host().unwrap_or_default();
    // An IPv6 address is in brackets there.
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_secure = address.scheme() == Some(&Scheme::HTTPS);
    let port = address.port_u16();
    let port = port.unwrap_or(if is_secure { 443 } else { 80 });
    let failed = |error: &dyn std::fmt::Display| format!("{address}: {error}");
    let stream = TcpStream::connect((bare, port))
        .await
        .map_err(|error| failed(&error))?;
    if !is_secure {
        return send(address, stream, text).await;
    }
    let config = media::rtsp::tls::client(None).map_err(|error| failed(&error))?;
    let name = ServerName::try_from(bare.to_owned()).map_err(|error| failed(&error))?;
    let stream = TlsConnector::from(config).connect(name, stream).await;
    send(address, stream.map_err(|error| failed(&error))?, text).await
}

/// Sends a text over a connection to its address.
async fn send(
    address: &Uri,
    connection: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    text: Vec<u8>,
) -> Result<(), String> {
    let host = address.host().unwrap_or_default();
    let failed = |error: &dyn std::fmt::Display| format!("{address}: {error}");
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(connection));
    let (mut sender, connection) = handshake.await.map_err(|error| failed(&error))?;
    let path = address.path_and_query().map_or("/", |of| of.as_str());
    let authority = address.authority().map_or(host, |of| of.as_str());
    let request = Request::post(path)
        .header(header::HOST, authority)
        .header(header::CONNECTION, "close")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(text)))
        .map_err(|error| failed(&error))?;
    // Dropping it ends the connection.
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let answer = sender.send_request(request).await;
    let status = answer.map_err(|error| failed(&error))?.status();
    match status.is_success() {
        true => Ok(()),
        false => Err(format!("{address} has answered with status {status}")),
    }
}
