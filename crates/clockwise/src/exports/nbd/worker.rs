//! A thread that serves connections. One edge-triggered epoll watches sockets, completions and memory, so that a
//! request needs no change of the watched set and no read of an event counter.
//!
//! A connection that has something to do waits in a queue for its turn. Turns are bounded, which limits the wait of the
//! other connections. The thread sleeps while the queue is empty.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use engine::clock;
use engine::event::EventFd;
use rustix::event::epoll;
use sched::units::{Nanos, Time};

use super::connection::Connection;
use super::exports::PoolExports;
use super::handshake::Handshake;
use super::log_lines::{self, Stage};
use super::session::{DeadlineCheck, TurnOutcome};
use super::stats::Stats;
use crate::exports::requests::volumes::Volumes;

/// The most events that one call returns.
const EVENTS: usize = 256;

/// The state that all workers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) volumes: Arc<Volumes>,
    pub(super) stats: Stats,
    pub(super) handshake_within: Nanos,
    /// No more requests are read. A connection ends once its requests have been answered.
    pub(super) is_draining: AtomicBool,
    /// Connections end at once.
    pub(super) is_stopped: AtomicBool,
}

/// A socket for a worker to serve.
#[derive(Debug)]
pub(super) struct NewConnection {
    pub(super) socket: OwnedFd,
    pub(super) name: String,
    /// Reason for which the client may not open an export.
    pub(super) refused: Option<String>,
}

/// The input of a worker.
#[derive(Debug)]
pub(super) struct Mailbox {
    arrivals: Mutex<Vec<NewConnection>>,
    event: EventFd,
    /// Connections of the worker, those in the mailbox included.
    pub(super) load: AtomicUsize,
}

impl Mailbox {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            arrivals: Mutex::new(Vec::new()),
            event: EventFd::new()?,
            load: AtomicUsize::new(0),
        })
    }

    pub(super) fn hand_over(&self, connection: NewConnection) {
        self.load.fetch_add(1, Ordering::Relaxed);
        self.arrivals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(connection);
        self.event.signal();
    }

    /// Wakes the worker after a change of the shared state.
    pub(super) fn notify(&self) {
        self.event.signal();
    }
}

/// Identifies a connection in an event. The generation tells it from a later connection in the same slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Token {
    index: u32,
    generation: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    Socket = 0,
    Completions = 1,
    Memory = 2,
}

/// Number of bits of a [`Source`].
const SOURCE_BITS: u32 = 2;

/// Epoll data of the mailbox. No connection has this index.
const MAILBOX: u64 = u64::MAX;

impl Token {
    fn data(self, source: Source) -> epoll::EventData {
        let low = u64::from(self.index) << SOURCE_BITS | source as u64;
        epoll::EventData::new_u64(u64::from(self.generation) << 32 | low)
    }

    fn from_data(data: u64) -> (Self, Source) {
        let low = data as u32;
        let source = match low & ((1 << SOURCE_BITS) - 1) {
            0 => Source::Socket,
            1 => Source::Completions,
            _ => Source::Memory,
        };
        let token = Self {
            index: low >> SOURCE_BITS,
            generation: (data >> 32) as u32,
        };
        (token, source)
    }
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    connection: Option<Connection>,
}

pub(super) struct Worker {
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    epoll: OwnedFd,
    slots: Vec<Slot>,
    free: Vec<u32>,
    ready: VecDeque<Token>,
    deadlines: BinaryHeap<Reverse<(Time, Token)>>,
    is_draining: bool,
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, mailbox: Arc<Mailbox>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(MAILBOX);
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, mailbox.event.as_fd(), data, flags)?;
        Ok(Self {
            shared,
            mailbox,
            epoll,
            slots: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            deadlines: BinaryHeap::new(),
            is_draining: false,
        })
    }

    /// Serves until the server is stopped, or is draining and has no more connections.
    pub(super) fn run(mut self) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        loop {
            if let Err(error) = self.wait(&mut events) {
                // Only an invalid descriptor fails here. The worker cannot serve anything without events.
                panic!("the block export cannot wait for events: {error}");
            }
            for event in events.drain(..) {
                self.handle(event);
            }
            for _ in 0..self.ready.len() {
                if let Some(token) = self.ready.pop_front() {
                    self.take_turn(token);
                }
            }
            // After the turns, which may find that a client met its deadline.
            self.check_deadlines();
            let is_stopped = self.shared.is_stopped.load(Ordering::Acquire);
            if is_stopped || (self.is_draining && self.free.len() == self.slots.len()) {
                return;
            }
        }
    }

    fn wait(&mut self, events: &mut Vec<epoll::Event>) -> rustix::io::Result<()> {
        let timeout = if self.ready.is_empty() {
            self.deadlines
                .peek()
                .map(|Reverse((at, _))| at.saturating_since(clock::now()))
        } else {
            Some(Nanos::ZERO)
        };
        // Epoll rounds this up to milliseconds, so that it does not return before the deadline.
        let timeout = timeout.map(clock::timespec_of);
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(events),
            timeout.as_ref(),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn handle(&mut self, event: epoll::Event) {
        let data = event.data.u64();
        if data == MAILBOX {
            self.read_mailbox();
            return;
        }
        let (token, source) = Token::from_data(data);
        let flags = event.flags;
        let Some(connection) = self.connection(token) else {
            return;
        };
        match (source, connection.session()) {
            // The handshake reads and writes the socket in every turn.
            (_, None) | (Source::Completions, _) => {}
            (Source::Socket, Some(session)) => {
                use epoll::EventFlags as F;
                let is_hung_up = flags.intersects(F::RDHUP | F::HUP | F::ERR);
                session.socket_event(flags.contains(F::IN), flags.contains(F::OUT), is_hung_up);
            }
            (Source::Memory, Some(session)) => {
                session.memory_event();
                self.schedule_check(clock::now(), token);
            }
        }
        self.enqueue(token);
    }

    fn read_mailbox(&mut self) {
        if self.shared.is_draining.load(Ordering::Acquire) && !self.is_draining {
            self.is_draining = true;
            for index in 0..self.slots.len() {
                let slot = &mut self.slots[index];
                if let Some(connection) = &mut slot.connection {
                    connection.drain();
                    let token = Token {
                        index: index as u32,
                        generation: slot.generation,
                    };
                    self.enqueue(token);
                }
            }
        }
        let arrivals = std::mem::take(
            &mut *self
                .mailbox
                .arrivals
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        arrivals.into_iter().for_each(|arrival| self.admit(arrival));
    }

    fn admit(&mut self, arrival: NewConnection) {
        let exports = PoolExports::new(Arc::clone(&self.shared), arrival.name, arrival.refused);
        let within = self.shared.handshake_within;
        let mut connection = Connection::new(arrival.socket, Handshake::new(exports), within);
        let handshake_until = connection.handshake_until();
        if self.is_draining {
            connection.drain();
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        let token = Token {
            index,
            generation: slot.generation,
        };
        use epoll::EventFlags as F;
        let flags = F::IN | F::OUT | F::RDHUP | F::ET;
        let added = epoll::add(
            &self.epoll,
            connection.socket(),
            token.data(Source::Socket),
            flags,
        );
        slot.connection = Some(connection);
        if let Err(error) = added {
            log_lines::connection_not_served(&error);
            self.remove(token);
            return;
        }
        self.schedule_check(handshake_until, token);
        self.enqueue(token);
    }

    fn connection(&mut self, token: Token) -> Option<&mut Connection> {
        let slot = self.slots.get_mut(token.index as usize)?;
        if slot.generation == token.generation {
            slot.connection.as_mut()
        } else {
            None
        }
    }

    fn enqueue(&mut self, token: Token) {
        if let Some(connection) = self.connection(token)
            && !std::mem::replace(&mut connection.is_queued, true)
        {
            self.ready.push_back(token);
        }
    }

    fn take_turn(&mut self, token: Token) {
        let Some(connection) = self.connection(token) else {
            return;
        };
        connection.is_queued = false;
        let result = connection.turn();
        let stage = connection.stage();
        if let Some(session) = connection.session() {
            let mut counts = session.take_counts();
            self.shared.stats.counters.add(&mut counts);
        }
        let report = match result {
            Ok(report) => report,
            Err(error) => return self.break_off(token, &error, stage),
        };
        if report.has_new_session && !self.watch_session(token) {
            self.remove(token);
            return;
        }
        match report.outcome {
            TurnOutcome::Ready => self.enqueue(token),
            TurnOutcome::Waiting => {}
            TurnOutcome::Ended => self.remove(token),
        }
    }

    /// Ends a connection out of order.
    fn break_off(&mut self, token: Token, error: &dyn Display, stage: Stage) {
        log_lines::connection_ended(error, stage);
        self.shared.stats.broken.fetch_add(1, Ordering::Relaxed);
        self.remove(token);
    }

    /// Adds the events of a new session to epoll. Returns false if the host lacks resources.
    fn watch_session(&mut self, token: Token) -> bool {
        let connection = self.slots[token.index as usize].connection.as_mut();
        let Some(session) = connection.and_then(Connection::session) else {
            return true;
        };
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let client = session.client();
        let (completions, memory) = (client.event(), client.account().event());
        let watch = |event: &EventFd, source| {
            epoll::add(&self.epoll, event, token.data(source), flags).is_ok()
        };
        watch(completions, Source::Completions) && watch(memory, Source::Memory)
    }

    /// Ends the connections that have missed their deadline.
    fn check_deadlines(&mut self) {
        if self.deadlines.is_empty() {
            return;
        }
        let now = clock::now();
        while let Some(Reverse((at, token))) = self.deadlines.peek().copied() {
            if at > now {
                return;
            }
            self.deadlines.pop();
            let Some(connection) = self.connection(token) else {
                continue;
            };
            if connection.next_check != Some(at) {
                // The check has been rescheduled.
                continue;
            }
            connection.next_check = None;
            match connection.check_deadline(now) {
                // The connection may have waited for this check only.
                DeadlineCheck::Clear => self.enqueue(token),
                DeadlineCheck::Pending(until) => self.schedule_check(until, token),
                DeadlineCheck::Missed => {
                    let stage = connection.stage();
                    self.break_off(token, &"the client did not make progress in time", stage);
                }
            }
        }
    }

    /// Schedules a deadline check, unless an earlier one is scheduled.
    fn schedule_check(&mut self, at: Time, token: Token) {
        let Some(connection) = self.connection(token) else {
            return;
        };
        if connection.next_check.is_none_or(|next| at < next) {
            connection.next_check = Some(at);
            self.deadlines.push(Reverse((at, token)));
        }
    }

    fn remove(&mut self, token: Token) {
        let slot = &mut self.slots[token.index as usize];
        let Some(mut connection) = slot.connection.take() else {
            return;
        };
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(token.index);
        if let Some(session) = connection.session() {
            // Requests in flight keep these events open, and so in epoll.
            let _ = epoll::delete(&self.epoll, session.client().event());
            let _ = epoll::delete(&self.epoll, session.client().account().event());
        }
        // Its resources are free before the counters say so.
        drop(connection);
        self.mailbox.load.fetch_sub(1, Ordering::Relaxed);
        self.shared
            .stats
            .connections
            .fetch_sub(1, Ordering::Relaxed);
    }
}
