//! A camera is reached: its addresses are found and it is connected to. Whoever waits for that, or for anything of a camera,
//! ends at once when the source does, and what is recorded goes on to the disks meanwhile.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use engine::clock;
use engine::event::EventFd;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use sched::units::Time;

use super::camera::ANSWER_WITHIN;
use super::{Address, SourceError};
use crate::record::RtpRecorder;
use crate::rtsp::link::Link;
use crate::rtsp::poll::Wait;

/// Who waits for a camera, and what goes on meanwhile.
pub(super) struct Meanwhile<'w, 's> {
    /// Signalled when the source ends.
    pub(super) stop: &'w EventFd,
    /// What has been recorded is on its way to the disks.
    pub(super) tape: Option<&'w mut RtpRecorder<'s>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wakes {
    Stop,
    Disks,
    Ready,
}

/// What is waited for.
#[derive(Clone, Copy)]
pub(super) enum Ready<'a> {
    /// Something of the kernel's.
    Fd(BorrowedFd<'a>, PollFlags),
    /// What comes in a connection.
    Heard(&'a Link),
}

impl Meanwhile<'_, '_> {
    /// Sleeps until it is ready; `false`: it was not by then.
    ///
    /// # Errors
    /// When the source ends, or the disks fail.
    pub(super) fn sleep(
        &mut self,
        ready: Option<Ready<'_>>,
        until: Time,
    ) -> Result<bool, SourceError> {
        loop {
            let mut wait = Wait::new();
            let (mut armed, mut wake) = (true, until);
            wait.readable(self.stop.as_fd(), Wakes::Stop);
            match ready {
                Some(Ready::Fd(fd, flags)) => wait.add(fd, flags, Wakes::Ready),
                Some(Ready::Heard(link)) => link.hear(&mut wait, Wakes::Ready),
                None => {}
            }
            if let Some(tape) = &mut self.tape {
                tape.advance()?;
                armed = tape.writer().arm();
                wake = tape.writer().next_at().into_iter().fold(wake, Time::min);
            }
            if let Some(tape) = &self.tape {
                wait.readable(tape.writer().event(), Wakes::Disks);
                wait.readable(tape.writer().memory_event(), Wakes::Disks);
            }
            let woken = wait.sleep(armed, Some(wake))?;
            if woken.contains(&Wakes::Stop) {
                return Err(SourceError::Stopped);
            }
            if let Some(tape) = &self.tape
                && woken.contains(&Wakes::Disks)
            {
                tape.writer().drain();
            }
            if woken.contains(&Wakes::Ready) {
                return Ok(true);
            }
            if clock::now() >= until {
                return Ok(false);
            }
        }
    }
}

/// The addresses of a camera, which is asked for where it may take its time: the resolver cannot be told to stop.
pub(super) fn resolve(
    address: &Address,
    meanwhile: &mut Meanwhile<'_, '_>,
) -> Result<Vec<SocketAddr>, SourceError> {
    if let Ok(ip) = address.host.parse() {
        return Ok(vec![SocketAddr::new(ip, address.port)]);
    }
    type Found = io::Result<Vec<SocketAddr>>;
    let found: Arc<(EventFd, Mutex<Option<Found>>)> = Arc::new((EventFd::new()?, Mutex::default()));
    let (asking, asked) = (Arc::clone(&found), (address.host.clone(), address.port));
    std::thread::Builder::new()
        .name("resolver".to_owned())
        .spawn(move || {
            let addresses = asked.to_socket_addrs().map(Iterator::collect);
            *asking.1.lock().unwrap_or_else(PoisonError::into_inner) = Some(addresses);
            asking.0.signal();
        })?;
    let until = clock::now().saturating_add(ANSWER_WITHIN);
    let ready = Ready::Fd(found.0.as_fd(), PollFlags::IN);
    meanwhile.sleep(Some(ready), until)?;
    let found = found
        .1
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let unknown = |error| SourceError::Unknown(address.host.clone(), error);
    found
        .unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
        .map_err(unknown)
}

/// A connection to an address.
pub(super) fn connected(
    peer: SocketAddr,
    meanwhile: &mut Meanwhile<'_, '_>,
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
    let ready = Ready::Fd(socket.as_fd(), PollFlags::OUT);
    if !meanwhile.sleep(Some(ready), until)? {
        return Err(failed(io::ErrorKind::TimedOut.into()));
    }
    match rustix::net::sockopt::socket_error(&socket).map_err(io::Error::from)? {
        Ok(()) => Ok(socket.into()),
        Err(error) => Err(failed(error.into())),
    }
}
