//! The segments of the buffer: which of them a request uses.
//!
//! Segments are in the order of their last use. A request takes the best segment, and the least recently used
//! of equally good ones: for a read one that has its data, then an empty one, a clean one, the one that is
//! being read ahead into; for a write one that it continues, a clean one that it overlaps, and then the same.

use super::description::Cache;

/// The present work of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Empty,
    Clean,
    /// Being read ahead into.
    Reading,
    /// Has data that are not on the media yet.
    Writing,
}

/// Consecutive sectors in the buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    pub(super) state: State,
    pub(super) start: u64,
    /// One after the last.
    pub(super) end: u64,
    /// Whether the data came from the host.
    pub(super) is_written: bool,
    /// How far reading ahead went when it was last decided.
    pub(super) limit: u64,
    /// The sectors that are read ahead before another request is served.
    pub(super) least: u64,
}

impl Segment {
    pub(super) const EMPTY: Self = Self {
        state: State::Empty,
        start: 0,
        end: 0,
        is_written: false,
        limit: 0,
        least: 0,
    };

    fn overlaps(&self, start: u64, end: u64) -> bool {
        self.state != State::Empty && start < self.end && self.start < end
    }

    /// Drops the oldest data beyond the segment's size.
    pub(super) fn wrap(&mut self, size: u64) {
        self.start = self.start.max(self.end.saturating_sub(size));
    }
}

/// How much of a read is in a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hit {
    Miss,
    Partial,
    Whole,
}

/// A segment for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Choice<T> {
    Use(usize, T),
    /// None before the data that are being written are on the media.
    Wait,
}

/// Whether a write continues the data that are being written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Append,
    Fresh,
}

#[derive(Clone, Debug)]
pub(super) struct Segments {
    pub(super) all: Vec<Segment>,
    /// Numbers of segments, the least recently used first.
    order: Vec<usize>,
}

/// The segment of all writes, if they have one of their own.
const WRITE_SEGMENT: usize = 0;

impl Segments {
    pub(super) fn new(count: u64) -> Self {
        let count = count.max(1) as usize;
        Self {
            all: vec![Segment::EMPTY; count],
            order: (0..count).collect(),
        }
    }

    pub(super) fn most_recent(&self) -> usize {
        self.order.last().copied().unwrap_or(0)
    }

    pub(super) fn touch(&mut self, number: usize) {
        self.order.retain(|other| *other != number);
        self.order.push(number);
    }

    /// The segment for a read of the sectors from `start` to `end`.
    pub(super) fn for_read(&self, cache: &Cache, start: u64, end: u64) -> Choice<Hit> {
        let mut best: Option<(u32, usize, Hit)> = None;
        for &number in &self.order {
            let segment = &self.all[number];
            let has_first = (segment.start..segment.end).contains(&start);
            if cache.separate_write_segment && number == WRITE_SEGMENT {
                if segment.state == State::Writing && segment.overlaps(start, end) {
                    return Choice::Wait;
                }
                continue;
            }
            let (value, hit) = if segment.state == State::Empty {
                (3, Hit::Miss)
            } else if has_first {
                let value = match segment.state {
                    State::Writing if cache.enabled && cache.read_hits_on_written => 10,
                    State::Writing => return Choice::Wait,
                    State::Reading if cache.enabled => 9,
                    State::Clean if cache.read_hits_on_written || !segment.is_written => 8,
                    _ => 0,
                };
                match (value, segment.end >= end) {
                    (0, _) if segment.state == State::Clean => (2, Hit::Miss),
                    (0, _) => (1, Hit::Miss),
                    (value, true) => (value, Hit::Whole),
                    (value, false) => (value - 4, Hit::Partial),
                }
            } else {
                match segment.state {
                    State::Clean => (2, Hit::Miss),
                    State::Reading if cache.hit_on_sector_being_read && segment.end == start => {
                        (5, Hit::Partial)
                    }
                    State::Reading => (1, Hit::Miss),
                    _ if segment.overlaps(start, end) => return Choice::Wait,
                    _ => continue,
                }
            };
            if best.is_none_or(|(other, ..)| value > other) {
                best = Some((value, number, hit));
            }
        }
        match best {
            Some((_, number, hit)) => Choice::Use(number, hit),
            None => Choice::Wait,
        }
    }

    /// The segment for a write of the sectors from `start` to `end`. `room` is the number of sectors that the
    /// segment that is being written can take.
    pub(super) fn for_write(
        &self,
        cache: &Cache,
        start: u64,
        end: u64,
        room: u64,
    ) -> Choice<Place> {
        let writing = self
            .all
            .iter()
            .filter(|segment| segment.state == State::Writing);
        let may_begin = (writing.count() as u64) < cache.write_segments;
        let mut best: Option<(u32, usize, Place)> = None;
        for &number in &self.order {
            let segment = &self.all[number];
            if cache.separate_write_segment && number != WRITE_SEGMENT {
                continue;
            }
            let continues = segment.state == State::Writing
                && cache.combine_writes
                && segment.end == start
                && room > 0;
            let (value, place) = match segment.state {
                State::Writing if continues => (7, Place::Append),
                State::Writing if segment.overlaps(start, end) => return Choice::Wait,
                State::Writing => continue,
                _ if !may_begin => continue,
                State::Clean if segment.overlaps(start, end) => (4, Place::Fresh),
                State::Empty => (3, Place::Fresh),
                State::Clean => (2, Place::Fresh),
                State::Reading => (1, Place::Fresh),
            };
            if best.is_none_or(|(other, ..)| value > other) {
                best = Some((value, number, place));
            }
        }
        match best {
            Some((_, number, place)) => Choice::Use(number, place),
            None => Choice::Wait,
        }
    }

    /// Forgets what a write makes old in segments other than its own.
    pub(super) fn forget(&mut self, own: usize, start: u64, end: u64) {
        for (number, segment) in self.all.iter_mut().enumerate() {
            if number != own && segment.state == State::Clean && segment.overlaps(start, end) {
                segment.state = State::Empty;
            }
        }
    }
}
