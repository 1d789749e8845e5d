//! A connection in its handshake: moves bytes between a socket and a [`Negotiation`].

use std::io;
use std::os::fd::BorrowedFd;

use super::exports::PoolExports;
use super::input::{BULK_BYTES, Received};
use super::negotiate::{Negotiation, Step};
use super::session::{ConnectionError, Session, TurnOutcome};

/// The most options of one turn, which bounds the wait of other connections.
const OPTIONS_PER_TURN: usize = 16;

/// A connection in its handshake.
#[derive(Debug)]
pub(super) struct Handshake {
    negotiation: Negotiation,
    exports: PoolExports,
    /// Received and not yet parsed.
    input: Vec<u8>,
    output: Vec<u8>,
    /// Bytes of `output` that have been sent.
    sent: usize,
    /// The step after all output has been sent.
    next: Step,
    /// The client has completed a message and accepted the replies before it.
    has_advanced: bool,
}

/// The result of a turn.
pub(super) enum HandshakeOutcome {
    /// The handshake continues, or the connection ends.
    Handshake(TurnOutcome),
    /// The transmission phase begins.
    Transmission(Box<Session>),
}

impl Handshake {
    pub(super) fn new(exports: PoolExports) -> Self {
        let mut output = Vec::new();
        let negotiation = Negotiation::new(&mut output);
        Self {
            negotiation,
            exports,
            input: Vec::new(),
            output,
            sent: 0,
            next: Step::More,
            has_advanced: false,
        }
    }

    /// Returns true if the client has made progress since the last call.
    pub(super) fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.has_advanced)
    }

    /// Does everything that needs no waiting.
    pub(super) fn turn(
        &mut self,
        socket: BorrowedFd<'_>,
    ) -> Result<HandshakeOutcome, ConnectionError> {
        use HandshakeOutcome as H;
        for _ in 0..OPTIONS_PER_TURN {
            if !self.send(socket)? {
                return Ok(H::Handshake(TurnOutcome::Waiting));
            }
            match std::mem::replace(&mut self.next, Step::Close) {
                Step::More => {}
                Step::Close => return Ok(H::Handshake(TurnOutcome::Ended)),
                Step::Transmit(selected) => {
                    let Some((client, volume)) = self.exports.take_opened() else {
                        return Ok(H::Handshake(TurnOutcome::Ended));
                    };
                    let session = Session::new(client, volume, selected.parameters, &self.input);
                    return Ok(H::Transmission(Box::new(session)));
                }
            }
            self.next = Step::More;
            if self.input.is_empty() {
                match self.receive(socket)? {
                    Received::Bytes(_) => {}
                    Received::WouldBlock => return Ok(H::Handshake(TurnOutcome::Waiting)),
                    Received::End => return Ok(H::Handshake(TurnOutcome::Ended)),
                }
            }
            let (taken, step) =
                self.negotiation
                    .receive(&self.input, &self.exports, &mut self.output)?;
            self.input.drain(..taken);
            // Each option has a reply.
            self.has_advanced |= !self.output.is_empty();
            self.next = step;
        }
        Ok(H::Handshake(TurnOutcome::Ready))
    }

    /// Sends as much as the socket accepts. Returns true if nothing is left.
    fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        while self.sent < self.output.len() {
            let flags = rustix::net::SendFlags::NOSIGNAL;
            match rustix::net::send(socket, &self.output[self.sent..], flags) {
                Ok(count) => self.sent += count,
                Err(rustix::io::Errno::AGAIN) => return Ok(false),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.output.clear();
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
