//! One connection from its acceptance to its end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use engine::clock;
use sched::units::{Nanos, Time};

use super::handshake::{Handshake, Progress};
use super::session::{Broken, Outcome, Session, Verdict};

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    socket: OwnedFd,
    phase: Phase,
    /// How long the client has for the next step of its handshake, and until when.
    handshake_within: Nanos,
    handshake_until: Time,
    /// Whether it waits for its turn.
    pub(super) queued: bool,
    /// When the worker looks whether the client does in time what it has to.
    pub(super) next_look: Option<Time>,
    /// Whether its requests are no longer taken.
    draining: bool,
}

#[derive(Debug)]
enum Phase {
    Handshake(Box<Handshake>),
    Session(Box<Session>),
}

/// What a turn came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TurnEnd {
    pub(super) outcome: Outcome,
    /// The session has just begun: its events are to be watched.
    pub(super) began: bool,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd, handshake: Handshake, handshake_within: Nanos) -> Self {
        Self {
            socket,
            phase: Phase::Handshake(Box::new(handshake)),
            handshake_within,
            handshake_until: clock::now() + handshake_within,
            queued: false,
            next_look: None,
            draining: false,
        }
    }

    /// Until when the handshake has to go on.
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

    /// Notes what epoll said of the socket.
    pub(super) fn socket_event(&mut self, readable: bool, writable: bool, hung_up: bool) {
        if let Phase::Session(session) = &mut self.phase {
            session.readable |= readable || hung_up;
            session.writable |= writable || hung_up;
            session.hung_up |= hung_up;
        }
    }

    /// Notes that memory has been asked back, or has become free.
    pub(super) fn memory_event(&mut self) {
        if let Phase::Session(session) = &mut self.phase {
            session.memory_event();
        }
    }

    /// Looks whether the client does in time what has to be done in time: its handshake, or giving
    /// back memory that others need.
    pub(super) fn look(&mut self, now: Time) -> Verdict {
        match &mut self.phase {
            Phase::Handshake(_) if self.handshake_until <= now => Verdict::Overdue,
            Phase::Handshake(_) => Verdict::LookAt(self.handshake_until),
            Phase::Session(session) => session.look(now),
        }
    }

    /// Lets it end as soon as what is in flight has been answered.
    pub(super) fn drain(&mut self) {
        self.draining = true;
        if let Phase::Session(session) = &mut self.phase {
            session.close_input();
        }
    }

    /// Does what can be done without waiting.
    pub(super) fn turn(&mut self) -> Result<TurnEnd, Broken> {
        let mut began = false;
        if let Phase::Handshake(handshake) = &mut self.phase {
            if self.draining {
                return Ok(TurnEnd {
                    outcome: Outcome::Ended,
                    began,
                });
            }
            let progress = handshake.turn(self.socket.as_fd())?;
            if handshake.has_advanced() {
                self.handshake_until = clock::now() + self.handshake_within;
            }
            match progress {
                Progress::Still(outcome) => return Ok(TurnEnd { outcome, began }),
                Progress::Done(session) => {
                    self.phase = Phase::Session(session);
                    began = true;
                }
            }
        }
        let Phase::Session(session) = &mut self.phase else {
            unreachable!("a connection past its handshake is in a session");
        };
        let outcome = session.turn(self.socket.as_fd())?;
        Ok(TurnEnd { outcome, began })
    }
}
