//! One connection in its handshake: carries bytes between a socket and a [`Negotiation`].

use std::io;
use std::os::fd::BorrowedFd;

use super::exports::PoolExports;
use super::input::{BULK_BYTES, Received};
use super::negotiate::{Negotiation, Start, Step};
use super::session::{Broken, Outcome, Session};

/// How many options one turn may have before other connections have theirs.
const OPTIONS_PER_TURN: usize = 16;

/// A connection in its handshake.
#[derive(Debug)]
pub(super) struct Handshake {
    negotiation: Negotiation,
    exports: PoolExports,
    /// Received and not yet taken in.
    input: Vec<u8>,
    out: Vec<u8>,
    /// How much of `out` has been sent.
    sent: usize,
    then: Then,
    /// The client has sent something whole, and taken what it was answered before.
    has_advanced: bool,
}

/// What follows when everything has been sent.
#[derive(Debug)]
enum Then {
    Listen,
    Transmit(Start),
    Close,
}

/// What a turn came to.
pub(super) enum Progress {
    Still(Outcome),
    /// The handshake is done.
    Done(Box<Session>),
}

impl Handshake {
    pub(super) fn new(exports: PoolExports) -> Self {
        let mut out = Vec::new();
        let negotiation = Negotiation::new(&mut out);
        Self {
            negotiation,
            exports,
            input: Vec::new(),
            out,
            sent: 0,
            then: Then::Listen,
            has_advanced: false,
        }
    }

    /// Whether the client has got further since this was last asked.
    pub(super) fn has_advanced(&mut self) -> bool {
        std::mem::take(&mut self.has_advanced)
    }

    /// Does what can be done without waiting.
    pub(super) fn turn(&mut self, socket: BorrowedFd<'_>) -> Result<Progress, Broken> {
        for _ in 0..OPTIONS_PER_TURN {
            if !self.send(socket)? {
                return Ok(Progress::Still(Outcome::Sleep));
            }
            match std::mem::replace(&mut self.then, Then::Close) {
                Then::Listen => self.then = Then::Listen,
                Then::Close => return Ok(Progress::Still(Outcome::Ended)),
                Then::Transmit(start) => {
                    let Some((client, volume)) = self.exports.take_opened() else {
                        return Ok(Progress::Still(Outcome::Ended));
                    };
                    let session = Session::new(client, volume, start.agreed, &self.input);
                    return Ok(Progress::Done(Box::new(session)));
                }
            }
            if self.input.is_empty() {
                match self.receive(socket)? {
                    Received::Bytes(_) => {}
                    Received::Nothing => return Ok(Progress::Still(Outcome::Sleep)),
                    Received::End => return Ok(Progress::Still(Outcome::Ended)),
                }
            }
            let (taken, step) =
                self.negotiation
                    .receive(&self.input, &self.exports, &mut self.out)?;
            self.input.drain(..taken);
            // Each option has an answer.
            self.has_advanced |= !self.out.is_empty();
            match step {
                Step::More => {}
                Step::Transmit(start) => self.then = Then::Transmit(start),
                Step::Close => self.then = Then::Close,
            }
        }
        Ok(Progress::Still(Outcome::Again))
    }

    /// Sends what there is; whether nothing is left.
    fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        while self.sent < self.out.len() {
            let flags = rustix::net::SendFlags::NOSIGNAL;
            match rustix::net::send(socket, &self.out[self.sent..], flags) {
                Ok(count) => self.sent += count,
                Err(rustix::io::Errno::AGAIN) => return Ok(false),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(true)
    }

    fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<Received> {
        self.input.resize(BULK_BYTES, 0);
        let result = rustix::io::read(socket, &mut self.input[..]).map_err(io::Error::from);
        let received = Received::from_result(result);
        let count = match received {
            Ok(Received::Bytes(count)) => count,
            _ => 0,
        };
        self.input.truncate(count);
        received
    }
}
