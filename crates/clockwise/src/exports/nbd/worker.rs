//! A thread that serves connections: one epoll, edge-triggered, for sockets, completions and
//! memory, so that nothing is registered, changed or drained for a request.
//!
//! A connection that has something to do waits for its turn in a queue; a turn is bounded, so none
//! keeps the others waiting. The thread sleeps when the queue is empty.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
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
use super::logged;
use super::session::{Outcome, Verdict};
use super::stats::Stats;
use crate::exports::requests::volumes::Volumes;

/// How many events are fetched at a time.
const EVENTS: usize = 256;

/// What all workers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) volumes: Arc<Volumes>,
    pub(super) stats: Stats,
    pub(super) handshake_within: Nanos,
    /// No more requests are taken; connections end when they have been answered.
    pub(super) draining: AtomicBool,
    /// Connections end now.
    pub(super) stopped: AtomicBool,
}

/// A socket for a worker to serve.
#[derive(Debug)]
pub(super) struct NewConnection {
    pub(super) socket: OwnedFd,
    pub(super) name: String,
    /// Why it may do nothing but be told so.
    pub(super) refused: Option<String>,
}

/// How a worker is reached.
#[derive(Debug)]
pub(super) struct Mailbox {
    arrivals: Mutex<Vec<NewConnection>>,
    event: EventFd,
    /// Connections that it has or is about to have.
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

    /// Makes the worker look at what it shares with the server.
    pub(super) fn notify(&self) {
        self.event.signal();
    }
}

/// What an event is about. The generation tells a connection from a later one in the same place.
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

/// Bits that a [`Source`] takes.
const SOURCE_BITS: u32 = 2;

/// The mailbox's data in epoll; no connection has this index.
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
struct Place {
    generation: u32,
    connection: Option<Connection>,
}

/// The thread's state.
pub(super) struct Worker {
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    epoll: OwnedFd,
    places: Vec<Place>,
    free: Vec<u32>,
    ready: VecDeque<Token>,
    deadlines: BinaryHeap<Reverse<(Time, Token)>>,
    draining: bool,
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
            places: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            deadlines: BinaryHeap::new(),
            draining: false,
        })
    }

    /// Serves until the server is stopped, or drained and out of connections.
    pub(super) fn run(mut self) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        loop {
            if let Err(error) = self.wait(&mut events) {
                // Only a broken descriptor table does this; without events nothing can be served, and the server ends.
                panic!("the block export cannot wait for events: {error}");
            }
            for event in events.drain(..) {
                self.note(event);
            }
            for _ in 0..self.ready.len() {
                if let Some(token) = self.ready.pop_front() {
                    self.take_turn(token);
                }
            }
            // After the turns: what a client did in time counts, however late it is found.
            self.meet_deadlines();
            let stopped = self.shared.stopped.load(Ordering::Acquire);
            if stopped || (self.draining && self.free.len() == self.places.len()) {
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
        // In milliseconds for epoll, rounded up: it does not come back early for ever.
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

    fn note(&mut self, event: epoll::Event) {
        let data = event.data.u64();
        if data == MAILBOX {
            self.read_mail();
            return;
        }
        let (token, source) = Token::from_data(data);
        let flags = event.flags;
        let Some(connection) = self.connection(token) else {
            return;
        };
        match source {
            Source::Socket => {
                use epoll::EventFlags as F;
                let hung_up = flags.intersects(F::RDHUP | F::HUP | F::ERR);
                connection.socket_event(flags.contains(F::IN), flags.contains(F::OUT), hung_up);
            }
            Source::Completions => {}
            Source::Memory => {
                connection.memory_event();
                self.look_at(clock::now(), token);
            }
        }
        self.enqueue(token);
    }

    fn read_mail(&mut self) {
        if self.shared.draining.load(Ordering::Acquire) && !self.draining {
            self.draining = true;
            for index in 0..self.places.len() {
                let place = &mut self.places[index];
                if let Some(connection) = &mut place.connection {
                    connection.drain();
                    let token = Token {
                        index: index as u32,
                        generation: place.generation,
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
        for arrival in arrivals {
            self.admit(arrival);
        }
    }

    fn admit(&mut self, arrival: NewConnection) {
        let exports = PoolExports::new(Arc::clone(&self.shared), arrival.name, arrival.refused);
        let within = self.shared.handshake_within;
        let mut connection = Connection::new(arrival.socket, Handshake::new(exports), within);
        let until = connection.handshake_until();
        if self.draining {
            connection.drain();
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            (self.places.len() - 1) as u32
        });
        let place = &mut self.places[index as usize];
        let token = Token {
            index,
            generation: place.generation,
        };
        use epoll::EventFlags as F;
        let flags = F::IN | F::OUT | F::RDHUP | F::ET;
        let added = epoll::add(
            &self.epoll,
            connection.socket(),
            token.data(Source::Socket),
            flags,
        );
        place.connection = Some(connection);
        if let Err(error) = added {
            logged::unserved(&error);
            self.remove(token);
            return;
        }
        self.look_at(until, token);
        self.enqueue(token);
    }

    fn connection(&mut self, token: Token) -> Option<&mut Connection> {
        let place = self.places.get_mut(token.index as usize)?;
        if place.generation == token.generation {
            place.connection.as_mut()
        } else {
            None
        }
    }

    fn enqueue(&mut self, token: Token) {
        if let Some(connection) = self.connection(token)
            && !std::mem::replace(&mut connection.queued, true)
        {
            self.ready.push_back(token);
        }
    }

    fn take_turn(&mut self, token: Token) {
        let Some(connection) = self.connection(token) else {
            return;
        };
        connection.queued = false;
        let result = connection.turn();
        let turn = connection.session().map(|session| session.take_turn());
        let has_export = turn.is_some();
        if let Some(mut turn) = turn {
            self.shared.stats.counters.add(&mut turn);
        }
        let end = match result {
            Ok(end) => end,
            Err(error) => {
                logged::ended(&error, has_export);
                self.shared.stats.broken.fetch_add(1, Ordering::Relaxed);
                self.remove(token);
                return;
            }
        };
        if end.began && !self.watch_session(token) {
            self.remove(token);
            return;
        }
        match end.outcome {
            Outcome::Again => self.enqueue(token),
            Outcome::Sleep => {}
            Outcome::Ended => self.remove(token),
        }
    }

    /// Watches the completions and the memory of a session that has begun.
    fn watch_session(&mut self, token: Token) -> bool {
        let connection = self.places[token.index as usize].connection.as_mut();
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

    /// Ends the connections whose time is up.
    fn meet_deadlines(&mut self) {
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
            if connection.next_look != Some(at) {
                // It has been put off or forward since.
                continue;
            }
            connection.next_look = None;
            match connection.look(now) {
                // It may be waiting for nothing but this.
                Verdict::Fine => self.enqueue(token),
                Verdict::LookAt(at) => self.look_at(at, token),
                Verdict::Overdue => {
                    let had_export = connection.session().is_some();
                    logged::ended(&"it ran out of time", had_export);
                    self.shared.stats.broken.fetch_add(1, Ordering::Relaxed);
                    self.remove(token);
                }
            }
        }
    }

    /// Looks at a connection at that time, or sooner if that is foreseen.
    fn look_at(&mut self, at: Time, token: Token) {
        let Some(connection) = self.connection(token) else {
            return;
        };
        if connection.next_look.is_none_or(|next| at < next) {
            connection.next_look = Some(at);
            self.deadlines.push(Reverse((at, token)));
        }
    }

    fn remove(&mut self, token: Token) {
        let place = &mut self.places[token.index as usize];
        let Some(mut connection) = place.connection.take() else {
            return;
        };
        place.generation = place.generation.wrapping_add(1);
        self.free.push(token.index);
        if let Some(session) = connection.session() {
            // Requests in flight keep the client's event open, and with it its place in epoll.
            let _ = epoll::delete(&self.epoll, session.client().event());
            let _ = epoll::delete(&self.epoll, session.client().account().event());
        }
        // What it had is free before it counts as gone.
        drop(connection);
        self.mailbox.load.fetch_sub(1, Ordering::Relaxed);
        self.shared
            .stats
            .connections
            .fetch_sub(1, Ordering::Relaxed);
    }
}
