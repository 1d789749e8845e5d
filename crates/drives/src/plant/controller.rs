//! A drive with a controller: a segmented cache, reading ahead, writing behind, a bus.
//!
//! # Model
//!
//! One request at a time. Between requests the drive goes on: it reads ahead into the segment of the last read,
//! or writes data to the media that it has acknowledged. That is worked out when the next request comes, for
//! every sector whose passage lies before it ([`background`]).
//!
//! * A read that finds its first sector in a segment is sent from there at once, and what is missing follows
//!   as it is read. Any other read waits for the arm; the bus is used again when a given part of the request is
//!   in the buffer ([`read`]).
//! * A write's data cross the bus while the arm moves. It is complete when they are on the media, or with
//!   writing behind when they are in the buffer ([`write`]).
//! * The arm reads and writes sectors in the order in which they pass ([`media`]), on tracks whose sectors are
//!   where the layout says ([`map`]).
//!
//! Sources: the manuals of DiskSim 4.0 and of its disk model, whose parameters these are.

mod background;
mod cache;
pub(crate) mod check;
pub(crate) mod description;
mod map;
mod media;
mod read;
#[cfg(test)]
mod tests;
mod write;

use sched::request::Op;
use sched::units::{Nanos, Time};

use super::Breakdown;
use background::Background;
use cache::Segments;
use description::{Cache, Description, MarksOf};
use map::Map;
use media::{Arm, Media, Pass};

/// A drive with its controller.
#[derive(Clone, Debug)]
pub(super) struct Controller {
    description: Box<Description>,
    media: Media,
    arm: Arm,
    segments: Segments,
    background: Background,
    /// The operation of the last request.
    last: Op,
}

/// How a request was served.
#[derive(Clone, Copy, Debug)]
struct Served {
    completed: Time,
    /// When the mechanics or the bus began with it.
    ready: Time,
    /// The first passage of its sectors, if the media were needed.
    pass: Option<Pass>,
}

impl Controller {
    pub(super) fn new(description: Description) -> Self {
        let map = Map::new(&description);
        let media = Media::new(map, description.mechanics.clone(), description.seek.clone());
        let mut controller = Self {
            segments: Segments::new(description.cache.segments),
            description: Box::new(description),
            media,
            arm: Arm {
                cylinder: 0,
                head: 0,
            },
            background: Background::Idle,
            last: Op::Read,
        };
        controller.place(0);
        controller
    }

    pub(super) fn sectors(&self) -> u64 {
        self.media.map.sectors()
    }

    pub(super) fn cylinder(&self) -> u64 {
        self.arm.cylinder
    }

    /// Puts the arm on the track of `sector`.
    pub(super) fn place(&mut self, sector: u64) {
        let (home, _) = self.media.map.place(sector);
        self.arm = Arm {
            cylinder: home.cylinder,
            head: home.head,
        };
        self.background = Background::Idle;
    }

    /// Cylinder, head, sectors on the track, and the angle at which a sector begins as a time.
    pub(super) fn locate(&self, sector: u64) -> (u64, u64, u64, Nanos) {
        let (home, _) = self.media.map.place(sector);
        let rotation = u128::from(self.description.mechanics.rotation_ns);
        let angle = (u128::from(home.angle) * rotation) >> 64;
        (
            home.cylinder,
            home.head,
            home.sectors_per_track,
            Nanos(angle as u64),
        )
    }

    /// The first sector after those of the track of `sector`.
    pub(super) fn track_end(&self, sector: u64) -> u64 {
        self.media.map.track(sector).1
    }

    /// The first sector after those of the cylinder of `sector`.
    pub(super) fn cylinder_end(&self, sector: u64) -> u64 {
        let heads = self.description.mechanics.heads;
        self.media.map.cylinder_end(sector, heads)
    }

    /// The time of a seek over `distance` cylinders.
    pub(super) fn seek(&self, distance: u64) -> Nanos {
        self.media.seek(distance)
    }

    /// First sector, first cylinder and cylinders of each zone of a layout that lists them.
    pub(super) fn zones(&self) -> Vec<(u64, u64, u64)> {
        self.media.map.zones()
    }

    /// Serves a request: when it is complete, and the parts of the time until then.
    pub(super) fn service(
        &mut self,
        begun: Time,
        op: Op,
        start: u64,
        count: u64,
    ) -> (Time, Breakdown) {
        let arrived = begun + Nanos(self.description.overhead.request_ns);
        self.advance(arrived);
        let end = start + count;
        let served = match op {
            Op::Read => self.read(arrived, start, end),
            Op::Write => self.write(arrived, start, end),
        };
        self.last = op;
        (served.completed, served.breakdown(begun))
    }

    fn cache(&self) -> &Cache {
        &self.description.cache
    }

    fn segment_sectors(&self) -> u64 {
        self.description.cache.segment_sectors
    }

    /// The number of sectors at which the drive connects again.
    fn mark(&self, ppm: u64, count: u64) -> u64 {
        const MILLION: u64 = 1_000_000;
        let size = self.segment_sectors();
        match self.cache().marks_of {
            MarksOf::Request => (size.min(count) * ppm / MILLION).max(1),
            MarksOf::Segment => (size * ppm).div_ceil(MILLION),
        }
    }

    fn by_last(&self, after_read: u64, after_write: u64) -> Nanos {
        Nanos(match self.last {
            Op::Read => after_read,
            Op::Write => after_write,
        })
    }
}

impl Served {
    /// The parts of the time from `begun` on. What lies beside something else is counted once, where it comes
    /// first.
    fn breakdown(&self, begun: Time) -> Breakdown {
        let ready = self.ready.max(begun).min(self.completed);
        let (sought, begins) = self.pass.map_or((ready, ready), |pass| {
            let sought = pass.sought.max(ready).min(self.completed);
            (sought, pass.begins.max(sought).min(self.completed))
        });
        Breakdown {
            overhead: ready - begun,
            seek: sought - ready,
            rotation: begins - sought,
            transfer: self.completed - begins,
        }
    }
}
