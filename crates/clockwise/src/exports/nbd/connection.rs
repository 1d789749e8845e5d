//! A connection from its acceptance to its end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use engine::clock;
use sched::units::{Nanos, Time};

use super::handshake::{Handshake, HandshakeOutcome};
use super::log_lines::Stage;
use super::session::{ConnectionError, DeadlineCheck, Session, TurnOutcome};

#[derive(Debug)]
pub(super) struct Connection {
    socket: OwnedFd,
    phase: Phase,
    /// Time for each step of the client in the handshake.
    handshake_within: Nanos,
    handshake_until: Time,
    /// The connection is in the worker's queue.
    pub(super) is_queued: bool,
    /// Time of the next deadline check.
    pub(super) next_check: Option<Time>,
    /// No more requests are read.
    is_draining: bool,
}

#[derive(Debug)]
enum Phase {
    Handshake(Box<Handshake>),
    Session(Box<Session>),
}

/// The result of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TurnReport {
    pub(super) outcome: TurnOutcome,
    /// The session began in this turn. Its events must be added to epoll.
    pub(super) has_new_session: bool,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd, handshake: Handshake, handshake_within: Nanos) -> Self {
        Self {
            socket,
            phase: Phase::Handshake(Box::new(handshake)),
            handshake_within,
            handshake_until: clock::now() + handshake_within,
            is_queued: false,
            next_check: None,
            is_draining: false,
        }
    }

    /// Deadline of the client's current step in the handshake.
    pub(super) fn handshake_until(&self) -> Time {
        self.handshake_until
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn session(&mut self) -> Option<&mut Session> {
        match &mut self.phase {
            Phase::Handshake(_) => None,
            Phase::Session(session) => Some(session),
        }
    }

    /// The phase of the connection, for the log.
    pub(super) fn stage(&self) -> Stage {
        match self.phase {
            Phase::Handshake(_) => Stage::Handshake,
            Phase::Session(_) => Stage::Transmission,
        }
    }

    /// Compares the client's progress with its deadline: in the handshake, or for memory that others need.
    pub(super) fn check_deadline(&mut self, now: Time) -> DeadlineCheck {
        match &mut self.phase {
            Phase::Handshake(_) if self.handshake_until <= now => DeadlineCheck::Missed,
            Phase::Handshake(_) => DeadlineCheck::Pending(self.handshake_until),
            Phase::Session(session) => session.check_deadline(now),
        }
    }

    /// Lets the connection end once the requests in flight have been answered.
    pub(super) fn drain(&mut self) {
        self.is_draining = true;
        if let Phase::Session(session) = &mut self.phase {
            session.close_input();
        }
    }

    /// Does everything that needs no waiting.
    pub(super) fn turn(&mut self) -> Result<TurnReport, ConnectionError> {
        let mut has_new_session = false;
        if let Phase::Handshake(handshake) = &mut self.phase {
            if self.is_draining {
                return Ok(TurnReport {
                    outcome: TurnOutcome::Ended,
                    has_new_session,
                });
            }
            let outcome = handshake.turn(self.socket.as_fd())?;
            if handshake.take_progress() {
                self.handshake_until = clock::now() + self.handshake_within;
            }
            match outcome {
                HandshakeOutcome::Handshake(outcome) => {
                    return Ok(TurnReport {
                        outcome,
                        has_new_session,
                    });
                }
                HandshakeOutcome::Transmission(session) => {
                    self.phase = Phase::Session(session);
                    has_new_session = true;
                }
            }
        }
        let Phase::Session(session) = &mut self.phase else {
            unreachable!("a connection past its handshake is in a session");
        };
        let outcome = session.turn(self.socket.as_fd())?;
        Ok(TurnReport {
            outcome,
            has_new_session,
        })
    }
}
