//! Name lookup and TCP connect, and the wait that all of a source's work uses: it ends at once when the source is
//! stopped, and writes blocks of the recording to the disks meanwhile.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use engine::clock;
use engine::event::EventFd;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use sched::units::{Nanos, Time};

use super::{Address, SourceError};
use crate::record::RtpRecorder;
use crate::rtsp::link::Link;
use crate::rtsp::poll::Wait;

/// Limit for a lookup, a connect, and each answer of a camera.
pub(super) const ANSWER_WITHIN: Nanos = Nanos::from_secs(10);

/// Waits for a camera.
pub(super) struct Waiter<'w, 's> {
    /// Signalled when the source is to end.
    pub(super) stop: &'w EventFd,
    /// The recording whose blocks are written meanwhile.
    pub(super) recorder: Option<&'w mut RtpRecorder<'s>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wake {
    Stop,
    Disks,
    Ready,
}

/// The event to wait for.
#[derive(Clone, Copy)]
pub(super) enum WaitFor<'a> {
    Fd(BorrowedFd<'a>, PollFlags),
    /// Data in a connection.
    Data(&'a Link),
}

impl Waiter<'_, '_> {
    /// Sleeps until the event. Returns false if it has not happened by `until`.
    ///
    /// # Errors
    /// [`SourceError::Stopped`], or the disks fail.
    pub(super) fn sleep(
        &mut self,
        event: Option<WaitFor<'_>>,
        until: Time,
    ) -> Result<bool, SourceError> {
        loop {
            let mut wait = Wait::new();
            let (mut armed, mut wake) = (true, until);
            wait.readable(self.stop.as_fd(), Wake::Stop);
            match event {
                Some(WaitFor::Fd(fd, flags)) => wait.add(fd, flags, Wake::Ready),
                Some(WaitFor::Data(link)) => link.hear(&mut wait, Wake::Ready),
                None => {}
            }
            if let Some(recorder) = &mut self.recorder {
                recorder.advance()?;
                armed = recorder.arm();
                wake = recorder.next_at().into_iter().fold(wake, Time::min);
            }
            if let Some(recorder) = &self.recorder {
                for event in recorder.events() {
                    wait.readable(event, Wake::Disks);
                }
            }
            let woken = wait.sleep(armed, Some(wake))?;
            if woken.contains(&Wake::Stop) {
                return Err(SourceError::Stopped);
            }
            if let Some(recorder) = &self.recorder
                && woken.contains(&Wake::Disks)
            {
                recorder.drain();
            }
            if woken.contains(&Wake::Ready) {
                return Ok(true);
            }
            if clock::now() >= until {
                return Ok(false);
            }
        }
    }
}

/// Looks up the addresses of a camera. The resolver cannot be interrupted, so a thread of its own asks it.
pub(super) fn resolve(
    address: &Address,
    waiter: &mut Waiter<'_, '_>,
) -> Result<Vec<SocketAddr>, SourceError> {
    type Found = io::Result<Vec<SocketAddr>>;
    if let Ok(ip) = address.host.parse() {
        return Ok(vec![SocketAddr::new(ip, address.port)]);
    }
    let found: Arc<(EventFd, Mutex<Option<Found>>)> = Arc::new((EventFd::new()?, Mutex::default()));
    let (result, name) = (Arc::clone(&found), (address.host.clone(), address.port));
    std::thread::Builder::new()
        .name("resolver".to_owned())
        .spawn(move || {
            let addresses = name.to_socket_addrs().map(Iterator::collect);
            *result.1.lock().unwrap_or_else(PoisonError::into_inner) = Some(addresses);
            result.0.signal();
        })?;
    let until = clock::now().saturating_add(ANSWER_WITHIN);
    let event = WaitFor::Fd(found.0.as_fd(), PollFlags::IN);
    waiter.sleep(Some(event), until)?;
    let found = found
        .1
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let unknown = |error| SourceError::UnknownHost(address.host.clone(), error);
    found
        .unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
        .map_err(unknown)
}

/// Connects to an address by TCP. The socket does not block.
pub(super) fn connect(
    peer: SocketAddr,
    waiter: &mut Waiter<'_, '_>,
) -> Result<TcpStream, SourceError> {
    let failed = |error: io::Error| SourceError::Connect(peer, error);
    let family = match peer {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket: OwnedFd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)
        .map_err(io::Error::from)?;
    match rustix::net::connect(&socket, &peer) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
        Err(error) => return Err(failed(error.into())),
    }
    let until = clock::now().saturating_add(ANSWER_WITHIN);
    let event = WaitFor::Fd(socket.as_fd(), PollFlags::OUT);
    if !waiter.sleep(Some(event), until)? {
        return Err(failed(io::ErrorKind::TimedOut.into()));
    }
    match rustix::net::sockopt::socket_error(&socket).map_err(io::Error::from)? {
        Ok(()) => Ok(socket.into()),
        Err(error) => Err(failed(error.into())),
    }
}
