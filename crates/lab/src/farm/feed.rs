//! Requests to a disk in order of time: the blocks of streams and the requests of a trace.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use sched::request::{Class, Order, Request, RequestId};
use sched::task::TaskId;
use sched::units::{SectorCount, Time};

use super::admit::StreamTask;
use super::load::Traced;
use super::{FarmRun, Stream, Track};

/// Marks the ids of best effort; below it is the number of the request in the disk's trace.
pub(super) const BEST_EFFORT_ID: u64 = 1 << 63;

/// In the ids of streams, where the index of the lane on the disk begins; below is the number of the block.
const LANE_SHIFT: u32 = 40;

/// A lane of a stream on its way through the track.
struct Walk<'a> {
    stream: &'a Stream,
    track: &'a Track,
    class: Class,
    lane: usize,
    /// The next part, and how many times the way has begun again.
    next: usize,
    laps: u64,
    /// Blocks asked for and not had yet.
    asked: u32,
}

impl<'a> Walk<'a> {
    fn new(stream: &'a Stream, of: &StreamTask) -> Self {
        let track: &Track = &stream.track;
        let first = stream.first_block % track.blocks;
        let parts = &track.lanes[of.lane].parts;
        let next = parts.partition_point(|part| part.block < first);
        Self {
            stream,
            track,
            class: of.class,
            lane: of.lane,
            next: next % parts.len(),
            laps: u64::from(next == parts.len()),
            asked: 0,
        }
    }

    /// The number of the next block of the stream that the disk has a part of, from 0.
    fn number(&self) -> u64 {
        let part = &self.track.lanes[self.lane].parts[self.next];
        let first = self.stream.first_block % self.track.blocks;
        self.laps * self.track.blocks + part.block - first
    }

    fn request(&self, lane: usize) -> Request {
        let part = &self.track.lanes[self.lane].parts[self.next];
        Request {
            id: RequestId((lane as u64) << LANE_SHIFT | self.number()),
            op: self.track.op,
            start: part.start,
            count: part.count,
            class: self.class,
            order: Order::default(),
        }
    }

    fn advance(&mut self) {
        self.next += 1;
        if self.next == self.track.lanes[self.lane].parts.len() {
            self.next = 0;
            self.laps += 1;
        }
    }
}

/// Everything that a disk is asked for, in order; what streams ask for at an instant comes first.
pub(super) struct Feed<'a> {
    walks: Vec<Walk<'a>>,
    /// The next block of each lane that has one.
    due: BinaryHeap<Reverse<(Time, usize)>>,
    traced: &'a [Traced],
    /// The class of each source's reads and writes that somebody waits for, and of the others.
    servers: Vec<Option<TaskId>>,
    next_traced: usize,
    end: Time,
}

impl<'a> Feed<'a> {
    pub(super) fn new(run: &FarmRun<'a>, number: usize) -> Self {
        let on_disk = &run.admitted.on_disk[number];
        let streams = run.admitted.streams();
        let walks = on_disk.streams.iter();
        let mut servers = vec![None; run.load.sources];
        for (source, task) in &on_disk.servers {
            if let Some(server) = servers.get_mut(*source) {
                *server = Some(*task);
            }
        }
        let mut feed = Self {
            walks: walks.map(|of| Walk::new(&streams[of.stream], of)).collect(),
            due: BinaryHeap::new(),
            traced: run.load.disks.get(number).map_or(&[], Vec::as_slice),
            servers,
            next_traced: 0,
            end: run.end,
        };
        (0..feed.walks.len()).for_each(|walk| feed.arm(walk, Time::ZERO));
        feed
    }

    /// Queues the next block of a lane, if it has a buffer for it; not before `now`.
    fn arm(&mut self, lane: usize, now: Time) {
        let walk = &self.walks[lane];
        let at = walk.stream.arrivals.at(walk.number());
        let at = at.map(|at| at.max(now)).filter(|at| *at < self.end);
        if let Some(at) = at.filter(|_| walk.asked < walk.stream.depth) {
            self.due.push(Reverse((at, lane)));
        }
    }

    /// A lane has had a block that it had asked for.
    pub(super) fn had(&mut self, lane: usize, now: Time) {
        let walk = &mut self.walks[lane];
        walk.asked -= 1;
        if walk.asked + 1 == walk.stream.depth {
            self.arm(lane, now);
        }
    }

    /// When something is asked for next.
    pub(super) fn next_at(&self) -> Option<Time> {
        let block = self.due.peek().map(|Reverse((at, _))| *at);
        let traced = self.traced.get(self.next_traced).map(|request| request.at);
        [block, traced].into_iter().flatten().min()
    }

    /// The next request at or before `now`.
    pub(super) fn next(&mut self, now: Time) -> Option<Request> {
        if let Some(Reverse((at, lane))) = self.due.peek().copied()
            && at <= now
        {
            self.due.pop();
            let request = self.walks[lane].request(lane);
            self.walks[lane].advance();
            self.walks[lane].asked += 1;
            self.arm(lane, now);
            return Some(request);
        }
        let traced = self.traced.get(self.next_traced)?;
        (traced.at <= now).then(|| {
            self.next_traced += 1;
            self.best_effort(self.next_traced - 1)
        })
    }

    /// The request to the disk that is the `index`th of its trace.
    pub(super) fn best_effort(&self, index: usize) -> Request {
        let traced = &self.traced[index];
        let class = match self.servers[usize::from(traced.source)] {
            Some(server) => Class::Reserved(server, traced.urgency),
            None => Class::BestEffort(traced.urgency),
        };
        Request {
            id: RequestId(BEST_EFFORT_ID | index as u64),
            op: traced.op,
            start: traced.start,
            count: SectorCount(u64::from(traced.count)),
            class,
            order: Order::default(),
        }
    }

    pub(super) fn traced(&self, index: usize) -> &'a Traced {
        &self.traced[index]
    }

    /// Whose block it was: the index among the disk's streams.
    pub(super) fn lane_of(id: RequestId) -> usize {
        (id.0 >> LANE_SHIFT) as usize
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sched::profile::DriveProfile;
    use sched::request::Op;
    use sched::units::{Bytes, Nanos, Sector};

    use sched::disk::SchedulerConfig;
    use sched::predict::Predictor;

    use super::*;
    use crate::farm::{Arrivals, Band, Load, VolumeSpec};
    use crate::thesis::{Layout, Thesis, Times};

    /// On all disks together a stream asks for the blocks of its volume in order, each when it is due, and each disk
    /// is asked for what lies on it.
    #[test]
    fn disks_together_are_asked_for_one_block_after_another() {
        let predictor = Predictor::new(&DriveProfile::shipped("quantum-atlas-ii").unwrap());
        for (mib, block, first_block) in [(7, 256, 0), (7, 256, 9), (6, 1_024, 5), (5, 1_536, 2)] {
            let band = Band {
                sectors: Sector(0)..Sector(200_000),
                extent: Bytes::from_mib(1),
                volumes: vec![VolumeSpec {
                    name: "v".to_owned(),
                    size: Bytes::from_mib(mib),
                    disks: Vec::new(),
                }],
            };
            let volume = &band.place(3).unwrap()[0];
            let block = Bytes::from_kib(block);
            let track = Track::new(volume, block, Op::Read, &predictor, Bytes(512)).unwrap();
            let stream = Stream {
                track: Arc::new(track),
                period: Nanos(10),
                first_block,
                arrivals: Arrivals::Even {
                    first: Time(3),
                    every: Nanos(10),
                },
                depth: 2,
            };
            let blocks = stream.track.blocks;
            let mut asked = Vec::new();
            for (lane, of) in stream.track.lanes.iter().enumerate() {
                let task = StreamTask {
                    class: Class::Stream(TaskId(0)),
                    stream: 0,
                    lane,
                };
                let mut walk = Walk::new(&stream, &task);
                while walk.number() < 3 * blocks {
                    let request = walk.request(0);
                    let at = stream.arrivals.at(walk.number()).unwrap();
                    asked.push((at, of.need.disk, request.start, request.count));
                    walk.advance();
                }
            }
            asked.sort_unstable();
            let mut expected = Vec::new();
            for number in 0..3 * blocks {
                let offset = Bytes((first_block + number) % blocks * block.get());
                for (disk, start, count) in volume.parts(offset, block) {
                    expected.push((Time(3 + 10 * number), disk, start, count));
                }
            }
            expected.sort_unstable();
            assert_eq!(asked, expected, "{mib} MiB in blocks of {block}");
        }
    }

    /// However far behind the disk is, a stream has asked it for no more than it has buffers for.
    #[test]
    fn a_stream_asks_for_as_many_blocks_as_it_has_buffers() {
        let thesis = Thesis::new(Layout::MemoryOptimized, Times::Bound, 1).unwrap();
        // A video and its audio, both on the last disk.
        let (admitted, ..) = thesis.admit(1);
        let load = Load::default();
        let config = SchedulerConfig::default();
        let end = Time(3_600_000_000_000);
        let run = FarmRun {
            disks: &thesis.disks,
            admitted: &admitted,
            load: &load,
            config: &config,
            end,
            seed: 1,
            slot: None,
            slack_every: None,
        };
        let mut feed = Feed::new(&run, 2);
        let late = Time(end.get() - 1);
        let asked = |feed: &mut Feed<'_>| std::iter::from_fn(|| feed.next(late)).count();
        assert_eq!(asked(&mut feed), 4);
        feed.had(1, late);
        assert_eq!(asked(&mut feed), 1);
        feed.had(0, end);
        assert_eq!(asked(&mut feed), 0, "nothing is asked for at the end");
    }
}
