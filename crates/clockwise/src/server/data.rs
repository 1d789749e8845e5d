//! Who connects to the data socket: a thread for each, and few that have not said whose they are.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine::panics;
use tokio::net::UnixListener;
use tokio::sync::{Semaphore, watch};

use super::end_of;
use crate::session::{Sessions, data};
use peers::log_throttle::LogThrottle;

/// What clients are allowed until they have said which session is theirs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// How long they may take. A client sends its line at once; one that does not, holds a thread.
    pub(super) within: Duration,
    /// How many there may be at a time; one more is told so and closed.
    pub(super) count_max: usize,
}

impl Limits {
    /// As many as there may be connections to the block export, and an eighth of so many descriptors at most.
    pub(super) fn of(descriptors: usize) -> Self {
        let most = crate::exports::nbd::config::CONNECTIONS_MAX_DEFAULT;
        Self {
            within: Duration::from_secs(5),
            count_max: most.min(descriptors / 8).max(1),
        }
    }
}

/// Tells of a client that is denied, or of many in one line: they may come as fast as they like.
fn warn(seldom: &Mutex<LogThrottle>, reason: &str) {
    let mut seldom = seldom.lock().unwrap_or_else(PoisonError::into_inner);
    match seldom.turn(Instant::now()) {
        None => {}
        Some(0) => tracing::warn!("a connection to the data socket is denied: {reason}"),
        Some(untold) => tracing::warn!(
            "a connection to the data socket is denied: {reason} ({untold} more since the last of \
             these lines)"
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
    let places = Arc::new(Semaphore::new(limits.count_max));
    let denials = Arc::new(Mutex::new(LogThrottle::default()));
    // Of the host's making, and not drowned by what clients do.
    let failures = Mutex::new(LogThrottle::default());
    loop {
        let connection = tokio::select! {
            accepted = listener.accept() => accepted,
            () = end_of(ended.clone()) => return,
        };
        let started = connection.and_then(|(connection, _)| {
            let mut connection = connection.into_std()?;
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                let reason = format!(
                    "{} connections have not said which stream is theirs; come again when they have",
                    limits.count_max
                );
                warn(&denials, &reason);
                // It does not block yet, and neither does this: nobody else is accepted meanwhile.
                data::deny(&mut connection, &reason);
                return Ok(());
            };
            connection.set_nonblocking(false)?;
            let (sessions, denials) = (Arc::clone(&sessions), Arc::clone(&denials));
            std::thread::Builder::new()
                .name("stream".to_owned())
                .spawn(move || {
                    let claimed = sessions.claim(&connection, limits.within);
                    drop(place);
                    match claimed {
                        // Of a panic all is in the log already; its stream ends as when a client is gone.
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
            // Out of descriptors or threads: give those that there are time to end.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// What a connection is told until it is closed.
    fn told(mut connection: &UnixStream) -> String {
        let long = Some(Duration::from_secs(60));
        connection.set_read_timeout(long).unwrap();
        let mut said = String::new();
        connection.read_to_string(&mut said).unwrap();
        said
    }

    #[test]
    fn one_too_many_that_says_nothing_is_told_so_and_a_place_is_given_back() {
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
        let refused = told(&connect());
        assert!(refused.starts_with("error 3 connections"), "{refused}");
        // One of the three has said something, even if nothing good.
        (&silent[0]).write_all(b"clockwise-stream none\n").unwrap();
        let unknown = told(&silent[0]);
        assert!(unknown.starts_with("error no reservation"), "{unknown}");
        let another = connect();
        (&another).write_all(b"clockwise-stream none\n").unwrap();
        assert_eq!(told(&another), unknown);
        drop(silent);
        ending.send_replace(true);
        runtime.block_on(serving).unwrap();
    }

    #[test]
    fn those_who_say_nothing_leave_descriptors_for_the_others() {
        let counts = [1 << 20, 1024, 4].map(|descriptors| Limits::of(descriptors).count_max);
        assert_eq!(counts, [1024, 128, 1]);
    }
}
