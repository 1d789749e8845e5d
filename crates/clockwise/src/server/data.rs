//! Connections to the data socket: a thread for each, and a limit for those that have not sent their token.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine::panics;
use tokio::net::UnixListener;
use tokio::sync::{Semaphore, watch};

use super::end_of;
use crate::session::{Sessions, data};
use peers::log_throttle::LogThrottle;

/// Limits of connections that have not sent their token. Each of them holds a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Time to send the token.
    pub(super) within: Duration,
    /// The most such connections at a time. Further ones are refused with a message.
    pub(super) count_max: usize,
}

impl Limits {
    /// The limit is that of the block export, and at most an eighth of `descriptors`.
    pub(super) fn new(descriptors: usize) -> Self {
        let most = crate::exports::nbd::config::CONNECTIONS_MAX_DEFAULT;
        Self {
            within: Duration::from_secs(5),
            count_max: most.min(descriptors / 8).max(1),
        }
    }
}

/// Logs a refused connection. One line stands for several, as clients can cause any number.
fn warn(throttle: &Mutex<LogThrottle>, reason: &str) {
    let mut throttle = throttle.lock().unwrap_or_else(PoisonError::into_inner);
    match throttle.turn(Instant::now()) {
        None => {}
        Some(0) => tracing::warn!("a connection to the data socket is denied: {reason}"),
        Some(more) => tracing::warn!(
            "a connection to the data socket is denied: {reason} ({more} more since the last line of this kind)"
        ),
    }
}

/// Serves connections until the server ends.
pub(super) async fn serve(
    listener: UnixListener,
    sessions: Arc<Sessions>,
    limits: Limits,
    ended: watch::Receiver<bool>,
) {
    let slots = Arc::new(Semaphore::new(limits.count_max));
    let denials = Arc::new(Mutex::new(LogThrottle::default()));
    // Counted separately, so that clients cannot suppress failures of the host.
    let failures = Mutex::new(LogThrottle::default());
    loop {
        let connection = tokio::select! {
            accepted = listener.accept() => accepted,
            () = end_of(ended.clone()) => return,
        };
        let started = connection.and_then(|(connection, _)| {
            let mut connection = connection.into_std()?;
            let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
                let reason = format!(
                    "{} connections have not sent their token yet; try again later",
                    limits.count_max
                );
                warn(&denials, &reason);
                // The socket is non-blocking, so the loop does not wait for the client.
                data::deny(&mut connection, &reason);
                return Ok(());
            };
            connection.set_nonblocking(false)?;
            let (sessions, denials) = (Arc::clone(&sessions), Arc::clone(&denials));
            std::thread::Builder::new()
                .name("stream".to_owned())
                .spawn(move || {
                    let claimed = sessions.claim(&connection, limits.within);
                    drop(slot);
                    match claimed {
                        // A panic has been logged. The stream ends as after a disconnect.
                        Ok(session) => drop(panics::survive(|| session.serve(connection))),
                        Err(reason) => {
                            warn(&denials, &reason);
                            data::deny(&mut connection, &reason);
                        }
                    }
                })?;
            Ok(())
        });
        if let Err(error) = started {
            warn(&failures, &format!("it cannot be served: {error}"));
            // The host lacks descriptors or threads. Other connections may end meanwhile.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Reads a connection until it is closed.
    fn response(mut connection: &UnixStream) -> String {
        let long = Some(Duration::from_secs(60));
        connection.set_read_timeout(long).unwrap();
        let mut text = String::new();
        connection.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn silent_connections_are_limited_and_a_token_frees_a_slot() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("data.sock");
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (ending, ended) = watch::channel(false);
        let limits = Limits {
            within: Duration::from_secs(600),
            count_max: 3,
        };
        let serving = {
            let _runtime = runtime.enter();
            let listener = UnixListener::bind(&socket).unwrap();
            runtime.spawn(serve(listener, Arc::default(), limits, ended))
        };
        let connect = || UnixStream::connect(&socket).unwrap();
        let silent = [connect(), connect(), connect()];
        let refused = response(&connect());
        assert!(refused.starts_with("error 3 connections"), "{refused}");
        // One of the three sends an unknown token.
        (&silent[0]).write_all(b"clockwise-stream none\n").unwrap();
        let unknown = response(&silent[0]);
        assert!(unknown.starts_with("error no reservation"), "{unknown}");
        let another = connect();
        (&another).write_all(b"clockwise-stream none\n").unwrap();
        assert_eq!(response(&another), unknown);
        drop(silent);
        ending.send_replace(true);
        runtime.block_on(serving).unwrap();
    }

    #[test]
    fn silent_connections_leave_descriptors_for_others() {
        let counts = [1 << 20, 1024, 4].map(|descriptors| Limits::new(descriptors).count_max);
        assert_eq!(counts, [1024, 128, 1]);
    }
}
