//! Best effort from traces: requests to volumes as requests to disks.

use std::collections::BTreeSet;

use sched::request::{Op, Urgency};
use sched::units::{Bytes, Nanos, Sector, Time};

use super::band::PlacedVolume;
use crate::trace::TraceRequest;

/// A request to a disk, at a time that is known beforehand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Traced {
    /// When it is issued.
    pub at: Time,
    /// The first sector.
    pub start: Sector,
    /// Number of sectors.
    pub count: u32,
    /// The request that it is one of several parts of, by its number; [`WHOLE`] if it is all of one.
    pub part_of: u32,
    /// Whose it is, an index.
    pub source: u16,
    /// The direction.
    pub op: Op,
    /// Tells if it is waited for.
    pub urgency: Urgency,
}

/// Not a part of a larger request.
pub const WHOLE: u32 = u32::MAX;

/// A trace on disks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Load {
    /// The requests to each disk, in the order of their times.
    pub disks: Vec<Vec<Traced>>,
    /// Whose they are.
    pub sources: usize,
    /// Number of requests in the trace.
    pub requests: u64,
    /// Number of parts of each request that lies on more than one extent, by its number.
    pub parts: Vec<u32>,
    /// When the last is issued.
    pub last: Time,
}

impl Load {
    /// The requests of a trace whose devices are these volumes, on so many disks. A volume that is smaller than
    /// its device was is wrapped around; a request longer than a volume is cut to it.
    #[must_use]
    pub fn new(
        requests: impl IntoIterator<Item = TraceRequest>,
        volumes: &[PlacedVolume],
        disks: usize,
    ) -> Self {
        let mut load = Self {
            disks: vec![Vec::new(); disks],
            sources: volumes.len(),
            ..Self::default()
        };
        for request in requests {
            if let Some(volume) = volumes.get(request.device as usize) {
                load.add(&request, volume);
            }
        }
        load
    }

    fn add(&mut self, request: &TraceRequest, volume: &PlacedVolume) {
        let length = request.length.min(volume.size);
        let room = volume.size.get() - length.get();
        let offset = if request.start.get() <= room {
            request.start
        } else {
            Bytes(request.start.get() % (room + 1))
        };
        let pieces = volume.parts(offset, length).count() as u32;
        let part_of = if pieces > 1 {
            self.parts.push(pieces);
            self.parts.len() as u32 - 1
        } else {
            WHOLE
        };
        for (disk, start, count) in volume.parts(offset, length) {
            self.disks[disk].push(Traced {
                at: request.at,
                start,
                count: count.get() as u32,
                part_of,
                source: request.device as u16,
                op: request.op,
                urgency: request.urgency,
            });
        }
        self.requests += 1;
        self.last = self.last.max(request.at);
    }

    /// Requests before `end`.
    #[must_use]
    pub fn until(mut self, end: Time) -> Self {
        let mut whole = 0;
        let mut in_parts = BTreeSet::new();
        for disk in &mut self.disks {
            disk.truncate(disk.partition_point(|request| request.at < end));
            for request in disk {
                if request.part_of == WHOLE {
                    whole += 1;
                } else {
                    in_parts.insert(request.part_of);
                }
            }
        }
        let last = self.disks.iter().filter_map(|disk| disk.last());
        self.last = last.map(|request| request.at).max().unwrap_or(Time::ZERO);
        self.requests = whole + in_parts.len() as u64;
        self
    }

    /// The load at this speed in percent: 200 is in half the time.
    #[must_use]
    pub fn speeded_up(mut self, percent: u64) -> Self {
        let sooner = |at: Time| {
            let at = u128::from(at.get()) * 100 / u128::from(percent.max(1));
            Time::ZERO + Nanos(u64::try_from(at).unwrap_or(u64::MAX))
        };
        for request in self.disks.iter_mut().flatten() {
            request.at = sooner(request.at);
        }
        self.last = sooner(self.last);
        self
    }
}
