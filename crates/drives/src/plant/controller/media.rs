//! The mechanics: seeks, rotation, and the passage of sectors under the head.

use sched::units::{Nanos, Time};

use super::description::{Access, Mechanics};
use super::map::Map;

/// A sector is caught by up to this much too late: instants are rounded to nanoseconds.
const ROUNDING_NS: u64 = 10;

/// Everything that decides when a sector passes.
#[derive(Clone, Debug)]
pub(super) struct Media {
    pub(super) map: Map,
    mechanics: Mechanics,
    /// Distances and times; straight lines between and beyond.
    seeks: Vec<(u64, u64)>,
}

/// The way of the arm to a track, as a kind of seek.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    Read,
    Write,
}

/// The track that the head is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Arm {
    pub(super) cylinder: u64,
    pub(super) head: u64,
}

impl Media {
    pub(super) fn new(map: Map, mechanics: Mechanics, seeks: Vec<(u64, u64)>) -> Self {
        Self {
            map,
            mechanics,
            seeks,
        }
    }

    fn rotation(&self) -> u64 {
        self.mechanics.rotation_ns
    }

    /// The time in which the platters turn by `angle`, rounded.
    fn turning(&self, angle: u128) -> u64 {
        ((angle * u128::from(self.rotation()) + (1 << 63)) >> 64) as u64
    }

    /// The time in which `count` sectors of width `width` pass.
    fn passing(&self, count: u64, width: u64) -> Nanos {
        match self.mechanics.access {
            Access::Constant => Nanos::ZERO,
            _ => Nanos(self.turning(u128::from(count) * u128::from(width))),
        }
    }

    /// The angle of the platters.
    fn angle(&self, at: Time) -> u64 {
        let into = at.get() % self.rotation();
        ((u128::from(into) << 64) / u128::from(self.rotation())) as u64
    }

    /// The first instant from `at` on, but for rounding, at which `angle` is under the head.
    fn passes(&self, angle: u64, at: Time) -> Time {
        let wait = self.turning(u128::from(angle.wrapping_sub(self.angle(at))));
        if wait + ROUNDING_NS >= self.rotation() {
            at
        } else {
            at + Nanos(wait)
        }
    }

    /// The time of a seek over `distance` cylinders.
    pub(super) fn seek(&self, distance: u64) -> Nanos {
        if distance == 0 {
            return Nanos::ZERO;
        }
        let next = self.seeks.partition_point(|(of, _)| *of < distance);
        let last = self.seeks.len() - 1;
        match self.seeks.get(next) {
            Some((of, time)) if *of == distance => return Nanos(*time),
            _ => {}
        }
        if last == 0 {
            return Nanos(self.seeks[0].1);
        }
        // Below the first point the line comes from no seek at all.
        let (from, to) = match next {
            0 => ((0, 0), self.seeks[0]),
            _ => (self.seeks[next.min(last) - 1], self.seeks[next.min(last)]),
        };
        let (span, step) = (
            i128::from(to.0 - from.0),
            i128::from(distance) - i128::from(from.0),
        );
        let rise = (i128::from(to.1) - i128::from(from.1)) * step / span;
        Nanos((i128::from(from.1) + rise).clamp(0, i128::from(u64::MAX >> 8)) as u64)
    }

    /// The time to get from one track to another.
    pub(super) fn move_time(&self, from: Arm, to: Arm, purpose: Purpose) -> Nanos {
        let seek = self.seek(from.cylinder.abs_diff(to.cylinder));
        let switch = if from.head == to.head {
            Nanos::ZERO
        } else {
            Nanos(self.mechanics.head_switch_ns)
        };
        let time = seek.max(switch);
        if purpose == Purpose::Read || time == Nanos::ZERO {
            return time;
        }
        Nanos(
            time.get()
                .saturating_add_signed(self.mechanics.write_settle_ns),
        )
    }
}

/// The passage of sectors that lie behind each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pass {
    first: u64,
    count: u64,
    width: u64,
    /// The first of them that passes in time; those before it pass after the end.
    landing: u64,
    /// When the arm had come to rest.
    pub(super) sought: Time,
    /// When sector `first` begins to pass.
    pub(super) begins: Time,
}

/// Whether a track is begun wherever the head comes down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Latency {
    Rotational,
    /// Up to the sector before this one.
    Zero {
        until: u64,
    },
}

/// The arm on its way along consecutive sectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stream {
    pub(super) arm: Arm,
    /// The sector that is next, and when the head is free for it.
    pub(super) next: u64,
    at: Time,
    purpose: Purpose,
    latency: Latency,
    /// The first seek takes at least this long.
    seek_min: Nanos,
    is_first: bool,
    pass: Option<Pass>,
}

impl Stream {
    pub(super) fn new(arm: Arm, next: u64, at: Time, purpose: Purpose, latency: Latency) -> Self {
        Self {
            arm,
            next,
            at,
            purpose,
            latency,
            seek_min: Nanos::ZERO,
            is_first: true,
            pass: None,
        }
    }

    pub(super) fn with_seek_min(self, seek_min: Nanos) -> Self {
        Self { seek_min, ..self }
    }

    pub(super) fn with_latency(self, latency: Latency) -> Self {
        Self { latency, ..self }
    }

    /// The passage in which the next sector is.
    pub(super) fn pass(&mut self, media: &Media) -> Pass {
        match self.pass {
            Some(pass) => pass,
            None => {
                let pass = self.position(media);
                self.pass = Some(pass);
                pass
            }
        }
    }

    fn position(&mut self, media: &Media) -> Pass {
        let (home, count) = media.map.place(self.next);
        let width = home.width();
        let to = Arm {
            cylinder: home.cylinder,
            head: home.head,
        };
        let access = media.mechanics.access;
        let moved = match access {
            Access::Constant if self.is_first => Nanos(media.mechanics.head_switch_ns),
            Access::Constant => Nanos::ZERO,
            _ => media.move_time(self.arm, to, self.purpose),
        };
        let moved = if self.is_first {
            moved.max(self.seek_min)
        } else {
            moved
        };
        let sought = self.at + moved;
        self.arm = to;
        let mut landing = 0;
        let begins = match access {
            Access::Full => media.passes(home.angle, sought),
            Access::HalfRotation if self.is_first => sought + Nanos(media.rotation() / 2),
            Access::HalfRotation | Access::Constant => sought,
        };
        if let (Latency::Zero { until }, Access::Full) = (self.latency, access) {
            let behind = media.angle(sought).wrapping_sub(home.angle);
            let index = behind / width + u64::from(!behind.is_multiple_of(width));
            if index < count.min(until.saturating_sub(self.next)) {
                landing = index;
            }
        }
        self.is_first = false;
        Pass {
            first: self.next,
            count,
            width,
            landing,
            sought,
            begins,
        }
    }

    /// When the next sector has passed and may be used. It does not begin to pass before `not_before`: if it
    /// would, the platters turn once more.
    pub(super) fn done(&mut self, media: &Media, not_before: Time) -> Time {
        let mut pass = self.pass(media);
        let index = self.next - pass.first;
        let (from, to) = if pass.landing > 0 && index >= pass.landing {
            (pass.landing - 1, pass.landing)
        } else {
            (index, index + 1)
        };
        let begins = pass.begins + media.passing(from, pass.width);
        let late = not_before - begins.min(not_before);
        if late.get() > ROUNDING_NS && media.mechanics.access != Access::Constant {
            pass.landing = 0;
            let turns = late.get().div_ceil(media.rotation());
            pass.begins += Nanos(turns * media.rotation());
            self.pass = Some(pass);
            return pass.begins + media.passing(index + 1, pass.width);
        }
        pass.begins + media.passing(to, pass.width)
    }

    /// Goes on to the sector after the next, which has passed at `done`.
    pub(super) fn take(&mut self, done: Time) {
        self.next += 1;
        self.at = self.at.max(done);
        if self
            .pass
            .is_some_and(|pass| self.next == pass.first + pass.count)
        {
            self.pass = None;
        }
    }

    /// When the last sector that was taken had passed.
    pub(super) fn free(&self) -> Time {
        self.at
    }

    /// When the arm is free if the stream ends here, at `now`: at once within a sector if it may stop there.
    pub(super) fn free_at(&mut self, media: &Media, now: Time, within_sector: bool) -> Time {
        let pass = self.pass(media);
        if now < pass.sought {
            return pass.sought;
        }
        if within_sector {
            return now;
        }
        if now < pass.begins {
            return pass.begins;
        }
        self.done(media, Time::ZERO)
    }
}
