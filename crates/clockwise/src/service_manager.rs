//! Messages to the service manager that started this process, such as systemd: `sd_notify(3)`.
//!
//! A message is a datagram to the socket in `NOTIFY_SOCKET`. If the manager also watches the process (`WATCHDOG_USEC`),
//! it gets `WATCHDOG=1` twice in that time, as long as the server works. The server works if its tasks run and the
//! pool's worker has done all that was posted to it before the message. A disk does not count: the server serves the
//! others when one of them stalls, and the worker never waits for a disk.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

/// The maximum time to wait for room in the manager's socket.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// The service manager of this process, if there is one.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// The time after which the manager kills a process that does not say that it works.
    watchdog: Option<Duration>,
    has_failed: AtomicBool,
}

impl ServiceManager {
    /// The manager that the environment names. An unusable name is logged, and counts as none.
    pub(crate) fn of_environment() -> Self {
        let is_other = env::var("WATCHDOG_PID")
            .is_ok_and(|pid| pid.parse::<u32>().ok() != Some(std::process::id()));
        let watchdog = env::var_os("WATCHDOG_USEC").filter(|_| !is_other);
        Self::named(env::var_os("NOTIFY_SOCKET"), watchdog.as_deref())
    }

    fn named(socket: Option<OsString>, watchdog: Option<&OsStr>) -> Self {
        let named = socket.filter(|name| !name.is_empty());
        let socket = named.and_then(|name| match open(&name) {
            Ok(socket) => Some(socket),
            Err(error) => {
                let name = name.display();
                tracing::warn!(%name, %error, "the socket in NOTIFY_SOCKET cannot be used: the service manager is told nothing");
                None
            }
        });
        let microseconds = watchdog.and_then(|text| text.to_str()?.parse().ok());
        Self {
            watchdog: microseconds
                .filter(|microseconds| *microseconds > 0 && socket.is_some())
                .map(Duration::from_micros),
            socket,
            has_failed: AtomicBool::new(false),
        }
    }

    /// The server serves; `status` says it to people.
    pub(crate) fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}"));
    }

    /// The server ends. From here on the manager's time for stopping a service counts.
    pub(crate) fn stopping(&self, status: &str) {
        self.tell(&format!("STOPPING=1\nSTATUS={status}"));
    }

    /// The server is busy with something before it is ready.
    pub(crate) fn status(&self, status: &str) {
        self.tell(&format!("STATUS={status}"));
    }

    fn tell(&self, message: &str) {
        let Some((socket, address)) = &self.socket else {
            return;
        };
        let sent = socket.send_to_addr(message.as_bytes(), address);
        if let Err(error) = sent
            && !self.has_failed.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(%error, "the service manager cannot be told how the server is");
        }
    }

    /// Says that the server works, twice in the watchdog's time. `works` waits until it is known that the server works;
    /// as long as it waits, nothing is said. Once `ending` is true it is not asked any more.
    pub(crate) async fn keep_alive(
        self: Arc<Self>,
        works: impl Fn() + Send + Sync + 'static,
        mut ending: watch::Receiver<bool>,
    ) {
        let Some(time) = self.watchdog else { return };
        let works = Arc::new(works);
        let mut ticks = tokio::time::interval(time / 2);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if !*ending.borrow() {
                let works = Arc::clone(&works);
                tokio::select! {
                    // A panic of it ends the server.
                    _ = tokio::task::spawn_blocking(move || works()) => {}
                    _ = ending.wait_for(|ending| *ending) => {}
                }
            }
            self.tell("WATCHDOG=1");
        }
    }
}

/// A socket to send from, and the address in `name`: a path, or a name of Linux's abstract namespace after `@`.
fn open(name: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(name)?,
        _ => {
            let what = "neither an absolute path nor a name after @";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(SEND_TIMEOUT))?;
    Ok((socket, address))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc;

    use super::*;

    /// Longer than any machine needs.
    const LONG: Duration = Duration::from_secs(60);

    fn received(by: &UnixDatagram) -> String {
        let mut message = [0; 256];
        let length = by.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..length]).into_owned()
    }

    #[test]
    fn manager_is_reached_by_path_and_by_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let of_path = UnixDatagram::bind(&path).unwrap();
        let name = format!("clockwise-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let of_name = UnixDatagram::bind_addr(&address).unwrap();
        for (by, name) in [
            (of_path, path.into_os_string()),
            (of_name, format!("@{name}").into()),
        ] {
            by.set_read_timeout(Some(LONG)).unwrap();
            ServiceManager::named(Some(name), None).ready("serving");
            assert_eq!(received(&by), "READY=1\nSTATUS=serving");
        }
    }

    #[test]
    fn manager_that_cannot_be_reached_is_no_failure() {
        for name in ["", "relative", "vsock:2:1234", "/nonexistent/notify"] {
            let manager = ServiceManager::named(Some(name.into()), Some(OsStr::new("1000")));
            manager.ready("serving");
            manager.stopping("ending");
        }
        let none = ServiceManager::named(None, Some(OsStr::new("1000")));
        assert_eq!(none.watchdog, None);
    }

    #[test]
    fn watchdog_is_told_nothing_while_the_worker_does_not_answer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let by = UnixDatagram::bind(&path).unwrap();
        by.set_read_timeout(Some(LONG)).unwrap();
        let manager = ServiceManager::named(Some(path.into()), Some(OsStr::new("2000")));
        let (asked, is_asked) = mpsc::channel();
        let (answer, answers) = mpsc::channel::<()>();
        let answers = Mutex::new(answers);
        let works = move || {
            asked.send(()).unwrap_or_default();
            answers.lock().unwrap().recv().unwrap_or_default();
        };
        let (end, ending) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime.spawn(Arc::new(manager).keep_alive(works, ending));
        for _ in 0..3 {
            is_asked.recv_timeout(LONG).unwrap();
            by.set_nonblocking(true).unwrap();
            let early = by.recv(&mut [0; 16]).unwrap_err();
            assert_eq!(early.kind(), io::ErrorKind::WouldBlock);
            by.set_nonblocking(false).unwrap();
            answer.send(()).unwrap();
            assert_eq!(received(&by), "WATCHDOG=1");
        }
        // At its end the server closes its pool, and the worker answers no more.
        end.send_replace(true);
        for _ in 0..3 {
            assert_eq!(received(&by), "WATCHDOG=1");
        }
        drop(answer);
        runtime.shutdown_background();
    }
}
