//! Work of the drive between requests: it reads ahead, or writes acknowledged data.

use std::collections::VecDeque;

use sched::units::{Nanos, Time};

use super::Controller;
use super::cache::State;
use super::media::Stream;

/// The work of the arm that no request waits for.
#[derive(Clone, Debug)]
pub(super) enum Background {
    Idle,
    /// Reading ahead into a segment up to sector `until`.
    Reading {
        segment: usize,
        stream: Stream,
        until: u64,
        /// Sectors from `full` on have no room before `room_at`, because data of a request are there.
        full: u64,
        room_at: Time,
    },
    /// Writing a segment's data up to sector `until`.
    Writing {
        segment: usize,
        stream: Stream,
        until: u64,
        /// Arrivals of the data from the bus.
        arrivals: VecDeque<Arrival>,
    },
}

/// Consecutive sectors that arrive one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Arrival {
    pub(super) first: u64,
    /// When the bus begins.
    pub(super) begins: Time,
    pub(super) sector: Nanos,
}

/// When `sector` is in the buffer.
fn arrived(arrivals: &mut VecDeque<Arrival>, sector: u64) -> Time {
    while arrivals.len() > 1 && arrivals.get(1).is_some_and(|next| next.first <= sector) {
        arrivals.pop_front();
    }
    arrivals.front().map_or(Time::ZERO, |arrival| {
        arrival.begins + arrival.sector * (sector.saturating_sub(arrival.first) + 1)
    })
}

impl Controller {
    /// Does the work of the background up to `now`.
    pub(super) fn advance(&mut self, now: Time) {
        let mut background = std::mem::replace(&mut self.background, Background::Idle);
        let is_done = match &mut background {
            Background::Idle => true,
            Background::Reading {
                segment,
                stream,
                until,
                full,
                room_at,
            } => {
                let size = self.description.cache.segment_sectors;
                let segment = &mut self.segments.all[*segment];
                while stream.next < *until {
                    let not_before = if stream.next >= *full {
                        *room_at
                    } else {
                        Time::ZERO
                    };
                    let done = stream.done(&self.media, not_before);
                    if done > now {
                        break;
                    }
                    stream.take(done);
                    segment.end = stream.next;
                    segment.wrap(size);
                }
                self.arm = stream.arm;
                stream.next >= *until
            }
            Background::Writing {
                stream,
                until,
                arrivals,
                ..
            } => {
                while stream.next < *until {
                    let not_before = arrived(arrivals, stream.next);
                    let done = stream.done(&self.media, not_before);
                    if done > now {
                        break;
                    }
                    stream.take(done);
                }
                self.arm = stream.arm;
                stream.next >= *until
            }
        };
        self.background = background;
        if is_done {
            self.settle();
        }
    }

    /// Ends the background, and leaves its segment as the cache's rules say.
    pub(super) fn settle(&mut self) {
        let cache = &self.description.cache;
        match std::mem::replace(&mut self.background, Background::Idle) {
            Background::Idle => {}
            Background::Reading { segment, .. } => {
                self.segments.all[segment].state = if cache.enabled {
                    State::Clean
                } else {
                    State::Empty
                };
            }
            Background::Writing { segment, .. } => {
                // Data written behind give up their segment: reads of such data were slow in the traces of
                // all drives that write behind.
                let keeps = cache.enabled && cache.read_hits_on_written && !cache.fast_write;
                self.segments.all[segment].state = if keeps { State::Clean } else { State::Empty };
            }
        }
    }

    /// Ends reading ahead for a request that comes at `now`. The least that has to be read ahead is read
    /// before. Returns when the arm is free.
    pub(super) fn stop_reading(&mut self, now: Time, least: u64) -> Time {
        let within_sector = self.description.cache.stop_within_sector;
        let mut free = now;
        if let Background::Reading {
            segment,
            stream,
            until,
            ..
        } = &mut self.background
        {
            let number = *segment;
            while stream.next < least.min(*until) {
                free = free.max(stream.done(&self.media, Time::ZERO));
                stream.take(free);
                self.segments.all[number].end = stream.next;
            }
            free = stream.free_at(&self.media, free, within_sector).max(free);
            self.arm = stream.arm;
            let size = self.description.cache.segment_sectors;
            self.segments.all[number].wrap(size);
        }
        self.settle();
        free
    }

    /// Writes everything that is in the buffer. Returns when the arm is free.
    pub(super) fn drain(&mut self, now: Time) -> Time {
        let mut free = now;
        if let Background::Writing {
            stream,
            until,
            arrivals,
            ..
        } = &mut self.background
        {
            while stream.next < *until {
                let not_before = arrived(arrivals, stream.next);
                let done = stream.done(&self.media, not_before);
                stream.take(done);
                free = free.max(done);
            }
            self.arm = stream.arm;
        }
        self.settle();
        free
    }
}
