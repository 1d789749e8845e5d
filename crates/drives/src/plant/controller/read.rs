//! Reads.

use sched::units::{Nanos, Time};

use super::background::Background;
use super::cache::{Choice, Hit, Segment, State};
use super::description::{ReadAhead, Requested};
use super::media::{Latency, Purpose, Stream};
use super::{Controller, Served};

/// Where a read begins.
struct Begin {
    segment: usize,
    hit: Hit,
    /// When the arm is free for it.
    free: Time,
    /// Reading ahead that goes on as this request.
    stream: Option<Stream>,
    /// Whether data are sent without a disconnection.
    at_once: bool,
}

/// The passage of data over the bus, in the terms of [`Controller::send`].
struct Sending {
    /// When the drive holds the bus, or is done with its disconnection.
    from: Time,
    is_connected: bool,
    mark: u64,
    count: u64,
    disconnect: Nanos,
}

impl Controller {
    pub(super) fn read(&mut self, arrived: Time, start: u64, end: u64) -> Served {
        let overhead = &self.description.overhead;
        let decoding_miss = self.by_last(
            overhead.read_miss_after_read_ns,
            overhead.read_miss_after_write_ns,
        );
        let begin = self.begin_read(arrived, start, end);
        let Begin { segment, hit, .. } = begin;
        self.segments.touch(segment);
        let held = &mut self.segments.all[segment];
        if hit == Hit::Miss {
            *held = Segment {
                start,
                end: start,
                is_written: false,
                ..Segment::EMPTY
            };
            held.state = State::Clean;
        }
        let buffered = held.end.clamp(start, end);
        let limit = self.read_limit(segment, start, end);
        let ready = (arrived + decoding_miss).max(begin.free);
        let mut stream = begin.stream;
        if buffered < end && stream.is_none() {
            let latency = self.read_latency(limit);
            let from = self.segments.all[segment].end.max(start);
            stream = Some(Stream::new(self.arm, from, ready, Purpose::Read, latency));
        }
        let sending = self.sending(&begin, arrived, decoding_miss, end - start);
        let pass = match &mut stream {
            Some(stream) if buffered < end => Some(stream.pass(&self.media)),
            _ => None,
        };
        let sent = self.fetch_and_send(&mut stream, buffered - start, &sending);
        let completed = sent + Nanos(self.description.overhead.read_completion_ns);
        self.read_before(segment, start, hit, pass.is_some());
        self.end_read(segment, stream, start..end, limit, (ready, completed));
        Served {
            completed,
            ready: if pass.is_some() { ready } else { sending.from },
            pass,
        }
    }

    /// When the data of a read may cross the bus.
    fn sending(&self, begin: &Begin, arrived: Time, decoding_miss: Nanos, count: u64) -> Sending {
        let overhead = &self.description.overhead;
        let disconnect = self.by_last(
            overhead.read_disconnect_after_read_ns,
            overhead.read_disconnect_after_write_ns,
        );
        let from = if begin.at_once {
            let decoding = match begin.hit {
                Hit::Miss => decoding_miss,
                Hit::Partial | Hit::Whole => self.by_last(
                    overhead.read_hit_after_read_ns,
                    overhead.read_hit_after_write_ns,
                ),
            };
            arrived + decoding + Nanos(overhead.data_preparation_ns)
        } else {
            // Data that are in the buffer by now still wait for the arm that writes them.
            (arrived + decoding_miss + disconnect).max(begin.free)
        };
        Sending {
            from,
            is_connected: begin.at_once,
            mark: self.mark(self.cache().read_mark_ppm, count),
            count,
            disconnect,
        }
    }

    /// Chooses a segment, and ends or takes over what the arm is doing.
    fn begin_read(&mut self, arrived: Time, start: u64, end: u64) -> Begin {
        let cache = &self.description.cache;
        let choice = self.segments.for_read(cache, start, end);
        let never_disconnects = self.description.bus.never_disconnect;
        let is_writing = matches!(self.background, Background::Writing { .. });
        if is_writing {
            // The segment is chosen when the arm is free.
            let free = self.drain(arrived);
            let (segment, hit) = match self.segments.for_read(&self.description.cache, start, end) {
                Choice::Use(segment, hit) => (segment, hit),
                Choice::Wait => (self.segments.most_recent(), Hit::Miss),
            };
            return Begin {
                segment,
                hit,
                free,
                stream: None,
                at_once: never_disconnects,
            };
        }
        let (segment, hit) = match choice {
            Choice::Use(segment, hit) => (segment, hit),
            Choice::Wait => (self.segments.most_recent(), Hit::Miss),
        };
        let buffered = self.segments.all[segment].end.saturating_sub(start);
        let enough = cache.partial_hit_at_once
            || hit == Hit::Whole
            || buffered >= self.mark(cache.read_mark_ppm, end - start).min(end - start);
        let mut at_once = never_disconnects || (hit != Hit::Miss && enough);
        let mut stream = None;
        let mut free = arrived;
        match &mut self.background {
            Background::Reading {
                segment: of,
                stream: ahead,
                ..
            } if *of == segment && hit != Hit::Miss => {
                stream = Some(*ahead);
            }
            Background::Reading { segment: of, .. } => {
                let least = self.segments.all[*of].least;
                free = self.stop_reading(arrived, least);
                let waits = self.description.cache.finish_seek_in_background && free > arrived;
                at_once = never_disconnects || (at_once && !waits);
            }
            _ => {}
        }
        Begin {
            segment,
            hit,
            free,
            stream,
            at_once,
        }
    }

    fn read_latency(&self, limit: u64) -> Latency {
        if self.cache().zero_latency_read {
            Latency::Zero { until: limit }
        } else {
            Latency::Rotational
        }
    }

    /// One after the last sector that is read ahead after a read of `start` to `end`.
    fn read_limit(&mut self, segment: usize, start: u64, end: u64) -> u64 {
        let cache = &self.description.cache;
        let map = &self.media.map;
        let held = &self.segments.all[segment];
        let size = cache.segment_sectors;
        let most = if cache.read_ahead_max_sectors > 0 {
            end + cache.read_ahead_max_sectors
        } else if cache.read_ahead_over_requested == Requested::Kept {
            if end - start >= size || size - (end - start) < cache.read_ahead_min_sectors {
                end + cache.read_ahead_min_sectors
            } else {
                start + size
            }
        } else {
            end + size
        };
        let known = held.end.max(end);
        let limit = match cache.read_ahead {
            ReadAhead::None => end,
            ReadAhead::ToSegmentEnd => most,
            ReadAhead::ToTrackEnd => most.min(map.track(known - 1).1),
            ReadAhead::ToCylinderEnd => {
                most.min(map.cylinder_end(known - 1, self.description.mechanics.heads))
            }
            ReadAhead::TrackAhead => {
                let next = end.min(map.sectors() - 1);
                let (first, last) = map.track(next);
                if held.start < first {
                    last + map.home(next).sectors_per_track
                } else {
                    last
                }
            }
        };
        let limit = limit.clamp(end, map.sectors());
        let held = &mut self.segments.all[segment];
        held.limit = match cache.read_ahead {
            ReadAhead::ToTrackEnd | ReadAhead::ToCylinderEnd => limit,
            _ => held.limit.max(limit),
        };
        held.least = held
            .least
            .max((end + cache.read_ahead_min_sectors).min(held.limit));
        held.limit
    }

    /// Reads what is missing, and sends all of it. Returns when the last sector has left.
    fn fetch_and_send(
        &mut self,
        stream: &mut Option<Stream>,
        buffered: u64,
        sending: &Sending,
    ) -> Time {
        let count = sending.count;
        let size = self.segment_sectors();
        let sector = Nanos(self.description.bus.read_sector_ns);
        // When each missing sector is in the buffer.
        let mut read: Vec<Time> = Vec::with_capacity((count - buffered) as usize);
        // When the bus has moved each, where the room of a segment depends on that.
        let mut moved: Vec<Time> = Vec::new();
        if let Some(stream) = stream {
            let mut bus = sending.from;
            let last = stream.next + (count - buffered);
            while buffered < count && stream.next < last {
                let index = count - (last - stream.next);
                let full = index
                    .checked_sub(size)
                    .and_then(|index| moved.get(index as usize));
                let not_before = full.copied().unwrap_or(Time::ZERO);
                let done = stream.done(&self.media, not_before);
                stream.take(done);
                read.push(done);
                if count > size {
                    while (moved.len() as u64) < buffered {
                        bus += sector;
                        moved.push(bus);
                    }
                    bus = bus.max(done) + sector;
                    moved.push(bus);
                }
            }
        }
        self.send(&read, buffered, sending)
    }

    /// The bus transfer: sectors leave in their order, as many at a time as are there.
    fn send(&self, read: &[Time], buffered: u64, sending: &Sending) -> Time {
        let bus = &self.description.bus;
        let overhead = &self.description.overhead;
        let count = sending.count;
        let sector = Nanos(bus.read_sector_ns);
        let holds = bus.hold_for_read || bus.never_disconnect;
        let reconnect =
            Nanos(bus.arbitration_ns + overhead.first_reselect_ns + overhead.data_preparation_ns);
        let available = |sector: u64| match sector.checked_sub(buffered) {
            None => Time::ZERO,
            Some(index) => read.get(index as usize).copied().unwrap_or(Time::ZERO),
        };
        let mut now = sending.from;
        let mut sent = 0;
        let mut is_connected = sending.is_connected;
        loop {
            if !is_connected {
                let mark = (sent + sending.mark.max(1)).min(count) - 1;
                now = now.max(available(mark)) + reconnect;
                is_connected = true;
            }
            let ready = read.partition_point(|done| *done <= now) as u64 + buffered;
            let ready = ready.min(count);
            if ready > sent {
                now += sector * (ready - sent);
                sent = ready;
                if sent == count {
                    return now;
                }
            } else if holds {
                now = now.max(available(sent));
            } else {
                now += sending.disconnect;
                is_connected = false;
            }
        }
    }

    /// Sectors that pass before the requested ones come into the segment too.
    fn read_before(&mut self, segment: usize, start: u64, hit: Hit, was_read: bool) {
        if !(self.cache().read_before_requested && was_read && hit == Hit::Miss) {
            return;
        }
        // The head came down somewhere on the track; on average the half before the first sector has passed.
        let (first, _) = self.media.map.track(start);
        self.segments.all[segment].start = start - (start - first) / 2;
    }

    /// Goes on reading ahead, and leaves the segment as the cache's rules say.
    fn end_read(
        &mut self,
        segment: usize,
        stream: Option<Stream>,
        request: std::ops::Range<u64>,
        limit: u64,
        (ready, completed): (Time, Time),
    ) {
        let cache = &self.description.cache;
        let size = cache.segment_sectors;
        let held = &mut self.segments.all[segment];
        let next = stream.map_or(held.end, |stream| stream.next);
        held.end = held.end.max(request.end).max(next.min(limit));
        if cache.read_ahead_over_requested == Requested::Dropped && held.start < request.end {
            held.start = request.end.min(held.end);
        }
        held.wrap(size);
        let from = held.end;
        let is_written = held.is_written;
        let goes_on = cache.enabled && cache.read_ahead != ReadAhead::None && from < limit;
        if let Some(stream) = &stream {
            self.arm = stream.arm;
        }
        let stream = match stream {
            _ if !goes_on => None,
            Some(stream) => Some(stream.with_latency(self.read_latency(limit))),
            None if cache.read_ahead_after_hit && !is_written => {
                let latency = self.read_latency(limit);
                Some(Stream::new(self.arm, from, ready, Purpose::Read, latency))
            }
            None => None,
        };
        match stream {
            Some(stream) => {
                self.segments.all[segment].state = State::Reading;
                self.background = Background::Reading {
                    segment,
                    stream,
                    until: limit,
                    full: request.start + size,
                    room_at: completed,
                };
            }
            None => {
                self.background = Background::Idle;
                let enabled = self.cache().enabled;
                self.segments.all[segment].state =
                    if enabled { State::Clean } else { State::Empty };
            }
        }
    }
}
