//! The audit log: each request that changed, deleted or exported something, and each sign-in.
//!
//! A line of JSON for each, appended before the request is answered: `at` (RFC 3339), `who` (the user; absent if nobody
//! had to log in), `from` (the address; absent for the control socket), `does` (method and path) and `status`. Requests
//! that only read are not in it, except exports. Bodies are not in it: they may hold passwords.
//!
//! Strangers must not be able to fill it: of them it has sign-ins alone, and only some of those that fail.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use media::archive::wall_clock::now_unix_ns;
use media::rtsp::access::AccessRight;
use peers::log_throttle::SharedLogThrottle;
use serde::Serialize;

use super::SharedApp;
use super::files::{Arrival, ConnectionVisitor, SigningIn, is_safe, needed};
use crate::local_time::rfc3339;

/// The name of the file in the folder of the server's state.
const NAME: &str = "audit.jsonl";

/// A file of this length becomes the older one, in place of the one before.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// A longer method and path is cut.
const DOES_BYTES_MAX: usize = 256;

/// Sign-ins that fail, of which strangers can make many.
static FAILED: SharedLogThrottle = SharedLogThrottle::few();

/// An open audit log.
#[derive(Debug)]
pub struct Audit {
    path: PathBuf,
    file: Mutex<File>,
}

#[derive(Serialize)]
struct Line<'a> {
    at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    who: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    does: &'a str,
    status: u16,
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
}

impl Audit {
    /// Opens the log in the folder of the server's state.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn open(state: &Path) -> io::Result<Self> {
        let path = state.join(NAME);
        let file = Mutex::new(open(&path)?);
        Ok(Self { path, file })
    }

    /// Appends a line. One that cannot be written is in the server's log.
    fn append(&self, line: &Line<'_>) {
        // A file is valid after a panic.
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = self.write(&mut file, line) {
            let Line {
                who, does, status, ..
            } = line;
            tracing::error!(path = %self.path.display(), %error, who, does, status, "the audit log cannot be written");
        }
    }

    fn write(&self, file: &mut File, line: &Line<'_>) -> io::Result<()> {
        if file.metadata()?.len() >= FILE_BYTES_MAX {
            let mut older = self.path.as_os_str().to_owned();
            older.push(".1");
            std::fs::rename(&self.path, older)?;
            *file = open(&self.path)?;
        }
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        file.write_all(&text)
    }
}

/// Notes a request after its answer is known.
pub(super) async fn note(State(app): State<SharedApp>, request: Request, next: Next) -> Response {
    let (method, uri) = (request.method(), request.uri());
    let is_export = needed(method, uri.path()).is_some_and(|of| of.right == AccessRight::Export);
    let Some(audit) = app.audit.clone().filter(|_| is_export || !is_safe(method)) else {
        return next.run(request).await;
    };
    let path = uri.path();
    let is_of = |start: &str, part: &str| path.starts_with(start) && path.contains(part);
    if is_of("/v1/disks/", "/measurement/requests") || is_of("/media/", "/live/whep") {
        // They change nothing that lasts.
        return next.run(request).await;
    }
    let mut does = format!("{method} {uri}");
    does.truncate(does.floor_char_boundary(DOES_BYTES_MAX));
    let extensions = request.extensions();
    let visitor = extensions.get::<ConnectionVisitor>().cloned();
    let from = extensions.get::<Arrival>().map(|of| of.peer.to_string());
    let is_stranger = from.is_some() && visitor.is_none();
    // A client that goes away ends neither the change nor its line.
    let noted = tokio::spawn(async move {
        let response = next.run(request).await;
        let status = response.status().as_u16();
        let named = response.extensions().get::<SigningIn>();
        let named = named.map(|of| of.0.clone());
        let is_noted = match (is_stranger, &named) {
            (false, _) => true,
            (true, None) => false,
            (true, Some(_)) => {
                response.status().is_success() || FAILED.turn(Instant::now()).is_some()
            }
        };
        let append = move || {
            let who = named.or_else(|| visitor.and_then(|of| of.user()));
            audit.append(&Line {
                at: rfc3339(now_unix_ns()),
                who: who.as_deref(),
                from,
                does: &does,
                status,
            });
        };
        if is_noted && let Err(error) = tokio::task::spawn_blocking(append).await {
            tracing::error!(%error, "the audit log has lost a line");
        }
        response
    });
    match noted.await {
        Ok(response) => response,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_file_becomes_the_older_one() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::open(folder.path()).unwrap();
        let line = |does: &str| {
            audit.append(&Line {
                at: rfc3339(0),
                who: Some("anna"),
                from: None,
                does,
                status: 200,
            });
        };
        line("DELETE /v1/a");
        let path = folder.path().join(NAME);
        let text = "{\"at\":\"1970-01-01T00:00:00Z\",\"who\":\"anna\",\"does\":\"DELETE /v1/a\",\"status\":200}\n";
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(FILE_BYTES_MAX)
            .unwrap();
        line("DELETE /v1/b");
        let older = folder.path().join("audit.jsonl.1");
        assert_eq!(std::fs::metadata(older).unwrap().len(), FILE_BYTES_MAX);
        let text = text.replace("/v1/a", "/v1/b");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
}
