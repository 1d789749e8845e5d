//! Writes.

use sched::units::{Nanos, Time};

use super::background::{Arrival, Background};
use super::cache::{Choice, Place, State};
use super::media::{Latency, Pass, Purpose, Stream};
use super::{Controller, Served};

/// A drive that disconnects before the data of a write begins to write when so many sectors are in the
/// buffer: the first number for requests shorter than the third, else the second. Found by DiskSim's authors
/// on the drives that do so.
const BEGIN_SECTORS: (u64, u64, u64) = (10, 15, 45);

/// Where a write begins.
struct Begin {
    segment: usize,
    place: Place,
    /// When the arm is free for it.
    free: Time,
    /// When the first sector begins to cross the bus.
    data: Time,
    /// When the arm may move.
    ready: Time,
    /// The disconnections between command, data and media.
    is_extra: bool,
}

impl Controller {
    pub(super) fn write(&mut self, arrived: Time, start: u64, end: u64) -> Served {
        let begin = self.begin_write(arrived, start, end);
        let Begin { segment, place, .. } = begin;
        self.segments.touch(segment);
        self.segments.forget(segment, start, end);
        let size = self.segment_sectors();
        let held = &mut self.segments.all[segment];
        if place == Place::Fresh {
            held.start = start;
        }
        held.state = State::Writing;
        held.is_written = true;
        (held.limit, held.least) = (0, 0);
        held.end = end;
        held.wrap(size);
        let ready = begin.ready.max(begin.free);
        let seek_min = self.write_seek_min();
        let mut waiting = match std::mem::replace(&mut self.background, Background::Idle) {
            Background::Writing {
                stream,
                until,
                arrivals,
                ..
            } if place == Place::Append => Background::Writing {
                segment,
                stream,
                until: until.max(end),
                arrivals,
            },
            _ => Background::Writing {
                segment,
                stream: Stream::new(
                    self.arm,
                    start,
                    ready,
                    Purpose::Write,
                    self.write_latency(end),
                )
                .with_seek_min(seek_min),
                until: end,
                arrivals: std::collections::VecDeque::new(),
            },
        };
        let (last, pass) = self.transfer(&mut waiting, &begin, start, end);
        self.background = waiting;
        let overhead = &self.description.overhead;
        let completion = Nanos(overhead.write_completion_ns);
        let completed = if self.cache().fast_write {
            last + completion
        } else {
            self.when_on_media(last, begin.is_extra) + completion
        };
        Served {
            completed,
            ready,
            pass,
        }
    }

    /// The least time of a movement before a write. The head settles after it as after any other.
    fn write_seek_min(&self) -> Nanos {
        let least = self.description.overhead.write_seek_min_ns;
        let settle = self.description.mechanics.write_settle_ns;
        if least == 0 {
            return Nanos::ZERO;
        }
        Nanos(least.saturating_add_signed(settle))
    }

    fn write_latency(&self, end: u64) -> Latency {
        if self.cache().zero_latency_write {
            Latency::Zero { until: end }
        } else {
            Latency::Rotational
        }
    }

    /// The time in which the command of a write is decoded.
    fn decoding(&self) -> Nanos {
        let overhead = &self.description.overhead;
        if self.cache().fast_write {
            self.by_last(
                overhead.write_hit_after_read_ns,
                overhead.write_hit_after_write_ns,
            )
        } else {
            self.by_last(
                overhead.write_miss_after_read_ns,
                overhead.write_miss_after_write_ns,
            )
        }
    }

    /// The time from the end of a wait until data cross the bus.
    fn connecting(&self) -> Nanos {
        let overhead = &self.description.overhead;
        let arbitration = self.description.bus.arbitration_ns;
        Nanos(arbitration + overhead.first_reselect_ns + overhead.data_preparation_ns)
    }

    /// Chooses a segment, and ends or continues what the arm is doing.
    fn begin_write(&mut self, arrived: Time, start: u64, end: u64) -> Begin {
        let size = self.segment_sectors();
        let room = match &self.background {
            Background::Writing { stream, until, .. } => size.saturating_sub(until - stream.next),
            _ => size,
        };
        let choice = self.segments.for_write(self.cache(), start, end, room);
        let is_writing = matches!(self.background, Background::Writing { .. });
        match choice {
            Choice::Use(segment, place) if !is_writing || place == Place::Append => {
                self.begin_at_once((segment, place), arrived, start, end)
            }
            _ => self.begin_after_others(arrived, start, end),
        }
    }

    /// A write whose segment is free, or that continues the data that are being written.
    fn begin_at_once(
        &mut self,
        (segment, place): (usize, Place),
        arrived: Time,
        start: u64,
        end: u64,
    ) -> Begin {
        let held = self.segments.all[segment];
        let is_extra = !self.description.bus.never_disconnect
            && segment == self.segments.most_recent()
            && held.is_written
            && held.end != start;
        let free = match place {
            Place::Append => arrived,
            Place::Fresh => self.stop_for_write(arrived, start, end),
        };
        let overhead = &self.description.overhead;
        let extra = overhead.extra_write_disconnect.as_ref();
        let (data, ready) = match extra.filter(|_| is_extra) {
            None => {
                let decoded = arrived + self.decoding();
                (decoded + Nanos(overhead.data_preparation_ns), decoded)
            }
            Some(extra) => {
                let command = arrived + Nanos(extra.command_ns);
                let apart = Nanos(extra.disconnect_ns + extra.between_ns);
                let data = command + apart + self.connecting();
                (data, command + Nanos(extra.seek_delay_ns))
            }
        };
        Begin {
            segment,
            place,
            free,
            data,
            ready,
            is_extra: is_extra && extra.is_some(),
        }
    }

    /// A write that waits until the data that are being written are on the media.
    fn begin_after_others(&mut self, arrived: Time, start: u64, end: u64) -> Begin {
        let free = self.drain(arrived);
        let size = self.segment_sectors();
        let segment = match self.segments.for_write(self.cache(), start, end, size) {
            Choice::Use(segment, _) => segment,
            Choice::Wait => self.segments.most_recent(),
        };
        let overhead = &self.description.overhead;
        let command = arrived + self.decoding();
        let data = if self.description.bus.never_disconnect {
            (command + Nanos(overhead.data_preparation_ns)).max(free)
        } else {
            let disconnect = if self.cache().fast_write {
                Nanos(overhead.write_disconnect_ns)
            } else {
                Nanos::ZERO
            };
            (command + disconnect).max(free) + self.connecting()
        };
        Begin {
            segment,
            place: Place::Fresh,
            free,
            data,
            ready: command,
            is_extra: false,
        }
    }

    fn stop_for_write(&mut self, arrived: Time, start: u64, end: u64) -> Time {
        let Background::Reading { segment, .. } = &self.background else {
            return arrived;
        };
        let held = &self.segments.all[*segment];
        let overlaps = start < held.end && held.start < end;
        let least = if overlaps && self.cache().write_hit_stops_read_ahead {
            0
        } else {
            held.least
        };
        self.stop_reading(arrived, least)
    }

    /// The data cross the bus, and are written as far as the buffer or the request needs it. Returns when the
    /// last sector is in the buffer, and the first passage if the media were waited for.
    fn transfer(
        &self,
        waiting: &mut Background,
        begin: &Begin,
        start: u64,
        end: u64,
    ) -> (Time, Option<Pass>) {
        let Background::Writing {
            stream, arrivals, ..
        } = waiting
        else {
            return (begin.data, None);
        };
        let sector = Nanos(self.description.bus.write_sector_ns);
        let size = self.segment_sectors();
        let count = end - start;
        let backlog = start - stream.next.min(start);
        if !self.cache().fast_write || backlog + count > size {
            let done = self.transfer_in_step(stream, begin, start, end);
            arrivals.clear();
            arrivals.push_back(Arrival {
                first: stream.next,
                begins: done.0,
                sector: Nanos::ZERO,
            });
            return done;
        }
        arrivals.push_back(Arrival {
            first: start,
            begins: begin.data,
            sector,
        });
        (begin.data + sector * count, None)
    }

    /// As [`Self::transfer`], sector by sector: room in the buffer depends on what has been written.
    fn transfer_in_step(
        &self,
        stream: &mut Stream,
        begin: &Begin,
        start: u64,
        end: u64,
    ) -> (Time, Option<Pass>) {
        let bus = &self.description.bus;
        let overhead = &self.description.overhead;
        let sector = Nanos(bus.write_sector_ns);
        let size = self.segment_sectors();
        let count = end - start;
        let holds = bus.hold_for_write || bus.never_disconnect;
        let mark = self.mark(self.cache().write_mark_ppm, count);
        let again = Nanos(
            overhead.write_disconnect_ns
                + bus.arbitration_ns
                + overhead.first_reselect_ns
                + overhead.data_preparation_ns,
        );
        // The buffer already holds the data of an earlier request.
        let first = stream.next;
        let mut arrived: Vec<Time> = vec![begin.data; (start - first) as usize];
        let mut written: Vec<Time> = Vec::with_capacity((end - first) as usize);
        let total = (end - first) as usize;
        let mut free = begin.data;
        let mut pass = None;
        let mut waits_for = None;
        loop {
            while arrived.len() < total {
                let needed = match waits_for {
                    Some(needed) => needed,
                    None => (arrived.len() + 1).saturating_sub(size as usize),
                };
                if written.len() < needed {
                    if waits_for.is_none() && !holds {
                        // The drive disconnects until no more than the mark is left to write.
                        waits_for = Some(arrived.len().saturating_sub(mark as usize).max(needed));
                    }
                    break;
                }
                if let Some(needed) = waits_for.take() {
                    free =
                        free.max(needed.checked_sub(1).map_or(free, |last| written[last])) + again;
                } else if let Some(last) = needed.checked_sub(1) {
                    free = free.max(written[last]);
                }
                free += sector;
                arrived.push(free);
            }
            // Writing behind goes on after the answer.
            if written.len() == total || (self.cache().fast_write && arrived.len() == total) {
                break;
            }
            let index = written.len();
            let mut not_before = arrived.get(index).copied().unwrap_or(free);
            if overhead.extra_write_disconnect.is_some() {
                let (short, long, from) = BEGIN_SECTORS;
                let least = if count < from { count.min(short) } else { long };
                let least = (start - first + least.min(size)) as usize - 1;
                not_before = not_before.max(arrived.get(least).copied().unwrap_or(not_before));
            }
            let done = stream.done(&self.media, not_before);
            pass.get_or_insert_with(|| stream.pass(&self.media));
            stream.take(done);
            written.push(done);
        }
        (arrived.last().copied().unwrap_or(free), pass)
    }

    /// When a write without writing behind may be answered: all of it is on the media, and the drive has the
    /// bus again.
    fn when_on_media(&mut self, data_there: Time, is_extra: bool) -> Time {
        let overhead = &self.description.overhead;
        let bus = &self.description.bus;
        let (disconnect, reselect) = match &overhead.extra_write_disconnect {
            Some(extra) if is_extra => (extra.second_disconnect_ns, overhead.other_reselect_ns),
            _ => (overhead.write_disconnect_ns, overhead.first_reselect_ns),
        };
        let reconnect = Nanos(bus.arbitration_ns + reselect);
        let (disconnect, reconnect) = if bus.never_disconnect {
            (Nanos::ZERO, Nanos::ZERO)
        } else {
            (Nanos(disconnect), reconnect)
        };
        let apart = data_there + disconnect;
        let written = match &self.background {
            Background::Writing { stream, .. } => stream.free(),
            _ => data_there,
        };
        self.drain(data_there);
        apart.max(written) + reconnect
    }
}
