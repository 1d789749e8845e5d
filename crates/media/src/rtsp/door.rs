//! A door to the RTSP server for other services of this process, which have admitted their peers themselves.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use engine::panics;

use super::connection::Connection;
use super::link::Link;
use super::server::Current;

/// Opens connections to the RTSP server without a network and without a login.
#[derive(Clone)]
pub struct Door {
    pub(super) current: Arc<Current>,
    pub(super) threads: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").finish_non_exhaustive()
    }
}

impl Door {
    /// Opens a connection for a peer, which the log and the list of sessions name.
    ///
    /// # Errors
    /// When the host has no descriptor or thread left.
    pub fn open(&self, peer: SocketAddr) -> io::Result<UnixStream> {
        let (inside, outside) = UnixStream::pair()?;
        inside.set_nonblocking(true)?;
        let shared = self.current.get();
        let thread = std::thread::Builder::new()
            .name("rtsp-session".to_owned())
            .spawn(move || {
                let link = Link::from(inside);
                let connection = Connection::admitted(&shared, link, peer);
                // A panic has been logged; the session ends as when the peer has closed the connection.
                if let Ok(Err(error)) = panics::survive(|| connection.serve()) {
                    tracing::info!(%peer, %error, "a WebRTC publisher ended");
                }
            })?;
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        Ok(outside)
    }

    /// Waits for all connections, which end when the server stops.
    pub(super) fn join(&self) {
        let threads = self.threads.lock();
        let threads = std::mem::take(&mut *threads.unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // Its panic has been logged.
            let _ = thread.join();
        }
    }
}
