//! Movies, viewers, and the requests that they make.
//!
//! A stream makes one request per period, whether or not earlier ones are done: a run without a late request is the same as
//! one in which requests wait for each other. So the requests of all channels are known from the beginning.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use sched::units::{Nanos, Time};

use super::Server;
use crate::channel::{Arrival, Arrivals};
use crate::dice::Dice;

/// A viewer watches a movie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Session {
    pub(super) viewer: u32,
    /// The first request.
    pub(super) start: Time,
    /// The stripe unit of the first segment, counted over all disks.
    pub(super) unit: u32,
    pub(super) segments: u32,
}

fn dice(seed: u64, of: u64) -> Dice {
    let seed = seed ^ of.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    Dice(Xoshiro256PlusPlus::seed_from_u64(seed))
}

/// The first stripe unit and the segments of movies, one behind the other, as many as fit.
pub(super) fn library(server: &Server, seed: u64) -> Vec<(u32, u32)> {
    let dice = &mut dice(seed, u64::MAX);
    let (least, most) = server.movie;
    let mut movies = Vec::new();
    let mut unit = 0;
    loop {
        let length = least + Nanos(dice.below(most.get() - least.get() + 1));
        let segments = length.get().div_ceil(server.period().get()) as u32;
        if unit + segments > server.units() || movies.len() as u32 == server.library {
            return movies;
        }
        movies.push((unit, segments));
        unit += segments;
    }
}

/// The first sessions of so many viewers, in order of start. A viewer thinks before every movie.
pub(super) fn sessions(server: &Server, viewers: u32, seed: u64) -> Vec<Session> {
    let movies = library(server, seed);
    let mut dice: Vec<Dice> = (0..viewers)
        .map(|viewer| dice(seed, u64::from(viewer)))
        .collect();
    let mut next: Vec<Time> = dice
        .iter_mut()
        .map(|dice| Time::ZERO + dice.exponential(server.think))
        .collect();
    let mut sessions = Vec::new();
    while sessions.len() < server.movies as usize {
        let first = (0..next.len()).min_by_key(|viewer| next[*viewer]);
        let Some(viewer) = first else { break };
        let dice = &mut dice[viewer];
        let (unit, segments) = movies[dice.below(movies.len() as u64) as usize];
        let start = next[viewer];
        sessions.push(Session {
            viewer: viewer as u32,
            start,
            unit,
            segments,
        });
        // The last request is made `buffer` segments before the end of its play.
        let periods = u64::from(segments - 1 + server.buffer);
        next[viewer] = start + server.period() * periods + dice.exponential(server.think);
    }
    sessions
}

/// The sessions without their requests from a time on.
pub(super) fn clip(sessions: &mut Vec<Session>, until: Time, period: Nanos) {
    sessions.retain_mut(|session| {
        let left = until.saturating_since(session.start).get();
        session.segments = session.segments.min((left / period.get()) as u32);
        session.segments > 0
    });
}

/// The requests of one channel.
pub(super) struct Requests {
    /// Sessions that have not begun here, the next one last, with the times of their first requests.
    waiting: Vec<(Time, Entry)>,
    /// The sessions that run, in order of their place in the turn.
    ring: Vec<Entry>,
    place: usize,
    /// The begin of this turn.
    turn: Time,
    /// A stream's time between two requests to this channel.
    turn_length: Nanos,
    next: Time,
    disks: u32,
    life: Nanos,
}

#[derive(Clone, Copy)]
struct Entry {
    /// The time of its request within each turn.
    offset: Nanos,
    stream: u32,
    disk: u32,
    unit: u32,
    left: u32,
}

impl Requests {
    pub(super) fn new(server: &Server, sessions: &[Session], channel: u32) -> Self {
        let channels = server.channels;
        let disks = server.ids.len() as u32;
        let turn_length = server.period() * u64::from(channels);
        let first = |session: &Session| {
            // Segments before the first one of this channel.
            let before = (channel + channels - session.unit % channels) % channels;
            let left = session.segments.saturating_sub(before).div_ceil(channels);
            let time = session.start + server.period() * u64::from(before);
            let unit = session.unit + before;
            let entry = Entry {
                offset: Nanos(time.get() % turn_length.get()),
                stream: session.viewer,
                disk: unit / channels % disks,
                unit: unit / (channels * disks),
                left,
            };
            (time, entry)
        };
        let mut waiting: Vec<_> = sessions.iter().map(first).collect();
        waiting.retain(|(_, entry)| entry.left > 0);
        waiting.sort_by_key(|(time, entry)| std::cmp::Reverse((*time, entry.stream)));
        let mut requests = Self {
            waiting,
            ring: Vec::new(),
            place: 0,
            turn: Time::ZERO,
            turn_length,
            next: Time::MAX,
            disks,
            life: server.life(),
        };
        requests.find_next();
        requests
    }

    /// Finds the next request. A session joins the ring with its first one.
    fn find_next(&mut self) {
        if self.place == self.ring.len() {
            self.place = 0;
            self.turn += self.turn_length;
        }
        let entry = self.ring.get(self.place);
        self.next = entry.map_or(Time::MAX, |entry| self.turn + entry.offset);
        if let Some((time, _)) = self.waiting.last()
            && *time <= self.next
        {
            self.join();
        }
    }

    fn join(&mut self) {
        let Some((time, entry)) = self.waiting.pop() else {
            return;
        };
        let turn = Time(time.get() - entry.offset.get());
        // Behind those that have made their request of this turn, some perhaps at the same instant.
        if turn != self.turn {
            self.place = self.ring.len();
        }
        self.turn = turn;
        self.ring.insert(self.place, entry);
        self.next = time;
    }
}

impl Arrivals for Requests {
    #[inline]
    fn time(&self) -> Time {
        self.next
    }

    #[inline]
    fn take(&mut self) -> Arrival {
        let time = self.next;
        let entry = &mut self.ring[self.place];
        let arrival = Arrival {
            time,
            deadline: time + self.life,
            disk: entry.disk,
            unit: entry.unit,
            stream: entry.stream,
        };
        entry.disk += 1;
        if entry.disk == self.disks {
            entry.disk = 0;
            entry.unit += 1;
        }
        entry.left -= 1;
        if entry.left == 0 {
            self.ring.remove(self.place);
        } else {
            self.place += 1;
        }
        self.find_next();
        arrival
    }
}
