//! The time of packets: from their timestamps to that of the recording.

/// A clock that differs by more from one packet to the next than the packets' arrivals do may have been set.
pub(super) const JUMP_NS: i128 = 10_000_000_000;

/// Timestamps do not go back by as much unless their clock was set. Pictures that are shown before those that they came
/// behind go back by less.
const BACK_NS: i128 = JUMP_NS / 2;

/// After so many frames nobody doubts any more that a clock was set.
const SET_AHEAD_FRAMES: u32 = 64;

/// What is late for as long, without coming any nearer, will not.
const STALL_NS: u64 = 10_000_000_000;

/// What is nearer by that is.
const NEARER_NS: i128 = 1_000_000_000;

/// Tracks whose clocks stood or were set by amounts that differ by less have one clock.
const SAME_NS: i128 = 1_000_000_000;

/// And are found to have been within that.
const TOGETHER_NS: u64 = 20_000_000_000;

/// A track's time: from its timestamps, which begin anywhere and wrap, to that of the recording.
#[derive(Clone, Copy, Debug)]
struct Clock {
    rate: u32,
    /// The last timestamp, how many units after the first it was, and when it arrived.
    last: Option<(u32, i64, u64)>,
    /// When the first is to be played, in nanoseconds of the recording.
    base_ns: i128,
    is_synchronised: bool,
    /// What was said of it before any packet came.
    early: Option<Report>,
    /// The next timestamp has nothing to do with the last.
    is_restarted: bool,
    set_ahead: Option<SetAhead>,
    /// How late the last packet was: 0 for what is as late as the latest, less for what came before its time.
    late_ns: i128,
    stall: Option<Stall>,
}

/// A clock was taken for set ahead. It was not if the frames behind the one that came first are as much later: a frame was
/// sent when the one before it was, and its sender waited then.
#[derive(Clone, Copy, Debug)]
struct SetAhead {
    ns: i128,
    /// How much later frames have come since.
    later_ns: i128,
    /// So many of them are looked at.
    frames: u32,
}

/// Packets are late that go on where those before them ended: until they have caught up, or do not.
#[derive(Clone, Copy, Debug)]
struct Stall {
    since_ns: u64,
    /// How late they were then.
    began_ns: i128,
    /// And have been since, at the least.
    least_ns: i128,
}

/// By how much a track's clock was found to have stood or been set, and when.
#[derive(Clone, Copy, Debug)]
struct Moved {
    track: usize,
    by_ns: i128,
    at_ns: u64,
}

impl Clock {
    /// Of a track with so many units in a second.
    fn new(rate: u32) -> Self {
        Self {
            rate: rate.max(1),
            last: None,
            base_ns: 0,
            is_synchronised: false,
            early: None,
            is_restarted: false,
            set_ahead: None,
            late_ns: 0,
            stall: None,
        }
    }

    /// What comes next counts from elsewhere: time goes on as it does for who receives it.
    fn restart(&mut self) {
        self.is_restarted = true;
        self.is_synchronised = false;
        self.early = None;
    }

    fn ns(&self, units: i64) -> i128 {
        i128::from(units) * 1_000_000_000 / i128::from(self.rate)
    }

    fn units(&self, timestamp: u32) -> Option<i64> {
        let (last, units, _) = self.last?;
        Some(units + i64::from(timestamp.wrapping_sub(last) as i32))
    }

    /// When a packet is to be played that arrived now, in nanoseconds of the recording; `alike`: by how much the clock is
    /// moved if it seems to have stood or been set by so much.
    fn media_ns(
        &mut self,
        timestamp: u32,
        arrival_ns: u64,
        mut alike: impl FnMut(i128) -> i128,
    ) -> u64 {
        let Some((_, before, arrived)) = self.last else {
            self.base_ns = i128::from(arrival_ns);
            self.last = Some((timestamp, 0, arrival_ns));
            return arrival_ns;
        };
        let units = self.units(timestamp).unwrap_or_default();
        self.last = Some((timestamp, units, arrival_ns));
        let by_clock = self.ns(units) - self.ns(before);
        let by_arrival = i128::from(arrival_ns) - i128::from(arrived);
        let later_ns = by_arrival - by_clock;
        if std::mem::take(&mut self.is_restarted) {
            // What the network has kept of those before it does not come any more.
            self.base_ns += later_ns + self.late_ns.max(0);
            (self.set_ahead, self.late_ns) = (None, 0);
            return self.played_ns(units);
        }
        let is_set = later_ns < -JUMP_NS || later_ns > JUMP_NS && by_clock < -BACK_NS;
        // The packets of a frame come one after another.
        let undone_ns = self
            .set_ahead
            .as_mut()
            .filter(|_| units != before)
            .and_then(|of| of.is_undone_by(later_ns));
        let moved_ns = match undone_ns {
            Some(ns) => ns,
            // As if it had gone on.
            None if is_set => alike(later_ns),
            None => 0,
        };
        if moved_ns < 0 {
            let doubted = self.set_ahead.filter(|of| of.frames > 0);
            let doubted_ns = doubted.map_or(0, |of| of.ns);
            self.set_ahead = Some(SetAhead::new(doubted_ns - moved_ns));
        } else if moved_ns > 0 {
            self.set_ahead = None;
        }
        self.late_ns += later_ns - moved_ns;
        self.base_ns += moved_ns + self.stood_ns(arrival_ns, alike);
        self.played_ns(units)
    }

    /// By how much the clock stood, where that is found now. A network that stood sends what it has kept, faster than it is
    /// to be shown; of a sender that stood all is as late from then on.
    fn stood_ns(&mut self, arrival_ns: u64, mut alike: impl FnMut(i128) -> i128) -> i128 {
        let mut stood_ns = 0;
        let stall = self.stall.as_mut();
        let has_lasted = stall.is_none_or(|stall| {
            stall.least_ns = stall.least_ns.min(self.late_ns);
            arrival_ns.saturating_sub(stall.since_ns) >= STALL_NS
        });
        if has_lasted {
            let stood = self.stall.take().filter(Stall::is_of_sender);
            if let Some(stall) = stood {
                stood_ns = alike(stall.least_ns);
            } else if self.late_ns > JUMP_NS {
                self.stall = Some(Stall::new(self.late_ns, arrival_ns));
            }
        }
        if self.stall.is_none() {
            self.late_ns = self.late_ns.min(0);
        }
        stood_ns
    }

    fn played_ns(&self, units: i64) -> u64 {
        u64::try_from(self.base_ns + self.ns(units)).unwrap_or(0)
    }

    /// When a packet of this timestamp would be played.
    fn at(&self, timestamp: u32) -> Option<i128> {
        Some(self.base_ns + self.ns(self.units(timestamp)?))
    }
}

impl SetAhead {
    fn new(ns: i128) -> Self {
        Self {
            ns,
            later_ns: 0,
            frames: SET_AHEAD_FRAMES,
        }
    }

    /// Another frame came, later by so much than it was to: by how much the clock is moved back if that is said by this one.
    fn is_undone_by(&mut self, later_ns: i128) -> Option<i128> {
        self.frames = self.frames.checked_sub(1)?;
        self.later_ns = self.later_ns.max(0) + later_ns;
        (self.later_ns > self.ns / 2).then_some(self.ns)
    }
}

impl Stall {
    fn new(late_ns: i128, since_ns: u64) -> Self {
        Self {
            since_ns,
            began_ns: late_ns,
            least_ns: late_ns,
        }
    }

    /// And not of the network: nothing has come nearer.
    fn is_of_sender(&self) -> bool {
        self.began_ns - self.least_ns <= NEARER_NS
    }
}

/// What a sender report says: this timestamp is that time of the sender's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// Seconds since 1900 and their fraction, as NTP has it.
    pub ntp: u64,
    /// The track's timestamp then.
    pub timestamp: u32,
}

impl Report {
    fn ntp_ns(self) -> i128 {
        (i128::from(self.ntp) * 1_000_000_000) >> 32
    }
}

/// The clocks of a presentation's tracks, brought together by its sender's reports.
#[derive(Clone, Debug)]
pub struct Clocks {
    tracks: Vec<Clock>,
    /// A sender's time, and that of the recording.
    anchor: Option<(i128, i128)>,
    /// The last clock that was moved, and not as another one was.
    moved: Option<Moved>,
}

impl Clocks {
    /// Of tracks with these rates.
    #[must_use]
    pub fn new(rates: impl Iterator<Item = u32>) -> Self {
        Self {
            tracks: rates.map(Clock::new).collect(),
            anchor: None,
            moved: None,
        }
    }

    /// When a packet of a track is to be played; `arrival_ns` for a track that there is not.
    pub fn media_ns(&mut self, track: usize, timestamp: u32, arrival_ns: u64) -> u64 {
        let Some(clock) = self.tracks.get_mut(track) else {
            return arrival_ns;
        };
        let moved = &mut self.moved;
        let media_ns = clock.media_ns(timestamp, arrival_ns, |by_ns| {
            alike(moved, track, by_ns, arrival_ns)
        });
        let Some(report) = clock.early.take() else {
            return media_ns;
        };
        self.synchronise(track, report);
        let moved = self.tracks[track].at(timestamp);
        moved.map_or(media_ns, |at| u64::try_from(at).unwrap_or(0))
    }

    /// The same of one whose timestamp says nothing, and after which time may go on as it did before.
    #[must_use]
    pub fn media_ns_of_stray(&self, track: usize, timestamp: u32, arrival_ns: u64) -> u64 {
        let clock = self.tracks.get(track).copied();
        clock.map_or(arrival_ns, |mut of| {
            of.restart();
            of.media_ns(timestamp, arrival_ns, |by_ns| by_ns)
        })
    }

    /// A track's timestamps begin anew.
    pub fn restart(&mut self, track: usize) {
        if let Some(clock) = self.tracks.get_mut(track) {
            clock.restart();
        }
    }

    /// All do, and so does their sender's time.
    pub fn restart_all(&mut self) {
        self.tracks.iter_mut().for_each(Clock::restart);
        self.anchor = None;
    }

    /// Moves a track to where its sender says it is, once: until then its packets were played as they arrived. What is
    /// said before any packet has come counts from the first one on.
    pub fn synchronise(&mut self, track: usize, report: Report) {
        let Some(clock) = self.tracks.get_mut(track) else {
            return;
        };
        if clock.last.is_none() || clock.is_restarted {
            clock.early = Some(report);
            return;
        }
        let Some(media) = clock
            .at(report.timestamp)
            .filter(|_| !clock.is_synchronised)
        else {
            return;
        };
        let (ntp, anchor) = *self.anchor.get_or_insert((report.ntp_ns(), media));
        let off = anchor + report.ntp_ns() - ntp - media;
        clock.is_synchronised = true;
        if off.abs() <= JUMP_NS {
            clock.base_ns += off;
        }
    }
}

/// By how much a track's clock is moved that seems to have stood or been set by so much: as another one's was just now, so
/// that what belongs together does so to the nanosecond.
fn alike(moved: &mut Option<Moved>, track: usize, by_ns: i128, at_ns: u64) -> i128 {
    let is_same = |of: &Moved| {
        of.track != track
            && (of.by_ns - by_ns).abs() < SAME_NS
            && at_ns.saturating_sub(of.at_ns) < TOGETHER_NS
    };
    let of = moved.filter(is_same);
    of.unwrap_or_else(|| {
        *moved.insert(Moved {
            track,
            by_ns,
            at_ns,
        })
    })
    .by_ns
}

#[cfg(test)]
mod tests;
