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

/// What has come nearer by that, within it, comes nearer. What `ffmpeg` has to catch up with is sent at 1.05 times its
/// speed, and so comes half a second nearer.
const NEARER_NS: i128 = 400_000_000;

/// What is later than it was by that has been held up once more.
const LATER_NS: i128 = 1_000_000_000;

/// Tracks whose clocks seem to have stood or been set by amounts that differ by less have one clock.
const SAME_NS: i128 = 1_000_000_000;

/// If that is seen within as long, or before the track's next packet: a stall is looked at as long as it may last, from the
/// next packet on.
const TOGETHER_NS: u64 = 2 * STALL_NS;

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
    /// So many more of them are looked at.
    frames: u32,
}

/// Packets are late that go on where those before them ended: until they have caught up, or do not.
#[derive(Clone, Copy, Debug)]
struct Stall {
    since_ns: u64,
    /// When the packet before came.
    before_ns: u64,
    /// How late they were then.
    began_ns: i128,
    /// And have been since, at the least.
    least_ns: i128,
}

/// What is found of a clock.
#[derive(Clone, Copy, Debug)]
enum Found {
    /// It stood, or was set, and is moved by so much, or by nothing.
    Moved(i128),
    /// Whether it stood is still to be seen.
    Doubted,
}

/// What was found of a track's clock that seemed to have stood or been set by so much, and when.
#[derive(Clone, Copy, Debug)]
struct Verdict {
    track: usize,
    apart_ns: i128,
    found: Found,
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

    /// How many units a timestamp is after the last one; it has wrapped as often as it may have since that came.
    fn units_after(&self, last: u32, timestamp: u32, by_arrival: i128) -> i64 {
        let units = i64::from(timestamp.wrapping_sub(last) as i32);
        let went_by = by_arrival * i128::from(self.rate) / 1_000_000_000;
        let wraps = (went_by - i128::from(units) + (1 << 31)).max(0) >> 32;
        units + ((wraps as i64) << 32)
    }

    fn units(&self, timestamp: u32) -> Option<i64> {
        let (last, units, _) = self.last?;
        Some(units + i64::from(timestamp.wrapping_sub(last) as i32))
    }

    /// When a packet is to be played that arrived now, in nanoseconds of the recording.
    fn media_ns(&mut self, timestamp: u32, others: &mut Others<'_>) -> u64 {
        let arrival_ns = others.now_ns;
        let Some((last, before, arrived)) = self.last else {
            self.base_ns = i128::from(arrival_ns);
            self.last = Some((timestamp, 0, arrival_ns));
            return arrival_ns;
        };
        let by_arrival = i128::from(arrival_ns) - i128::from(arrived);
        let units = before + self.units_after(last, timestamp, by_arrival);
        self.last = Some((timestamp, units, arrival_ns));
        let by_clock = self.ns(units) - self.ns(before);
        let later_ns = by_arrival - by_clock;
        if std::mem::take(&mut self.is_restarted) {
            // What the network has kept of those before it does not come any more.
            self.base_ns += later_ns + self.late_ns.max(0);
            (self.set_ahead, self.stall, self.late_ns) = (None, None, 0);
            return self.played_ns(units);
        }
        // What makes up for being late is not ahead.
        let ahead_ns = -later_ns - self.late_ns.max(0);
        let is_set_back = later_ns > JUMP_NS && by_clock < -BACK_NS;
        // The packets of a frame come one after another.
        let undone_ns = self
            .set_ahead
            .as_mut()
            .filter(|_| units != before)
            .and_then(|of| of.is_undone_by(later_ns));
        // Those of other tracks may be further ahead.
        let set_ns = match ahead_ns > JUMP_NS - SAME_NS {
            true => -ahead_ns,
            false if is_set_back => later_ns,
            false => 0,
        };
        let moved_ns = match undone_ns {
            Some(ns) => ns,
            None if set_ns == 0 => 0,
            // As if it had gone on.
            None => {
                let is_set = set_ns.abs() > JUMP_NS;
                let found = Found::Moved(if is_set { set_ns } else { 0 });
                others.find(set_ns, arrived, found).ns()
            }
        };
        self.set_ahead = self.set_ahead.filter(|of| of.frames > 0);
        if moved_ns < 0 {
            let doubted_ns = self.set_ahead.map_or(0, |of| of.ns);
            self.set_ahead = Some(SetAhead::new(doubted_ns - moved_ns));
        } else if moved_ns > 0 {
            self.set_ahead = None;
        }
        self.late_ns += later_ns - moved_ns;
        self.base_ns += moved_ns + self.stood_ns(arrived, others);
        self.played_ns(units)
    }

    /// By how much the clock stood, where that is found now. A network that stood sends what it has kept, faster than it is
    /// to be shown; of a sender that stood all is as late from then on.
    fn stood_ns(&mut self, arrived: u64, others: &mut Others<'_>) -> i128 {
        let (late_ns, now_ns) = (self.late_ns, others.now_ns);
        let anew = Stall::new(late_ns, now_ns, arrived);
        let found = match &mut self.stall {
            None => {
                self.stall = Some(anew).filter(Stall::is_one);
                // Of a slow track the next packet may be long after this.
                let found = others.found_since(late_ns, arrived);
                found.filter(|of| of.ns() > 0)
            }
            Some(stall) if late_ns > stall.began_ns + LATER_NS => {
                *stall = anew;
                None
            }
            Some(stall) => {
                stall.least_ns = stall.least_ns.min(late_ns);
                let has_lasted = now_ns.saturating_sub(stall.since_ns) >= STALL_NS;
                let found = stall.found(&anew);
                has_lasted.then(|| others.find(stall.began_ns, stall.before_ns, found))
            }
        };
        match found {
            None => {}
            Some(Found::Doubted) => self.stall = Some(anew),
            Some(Found::Moved(_)) => self.stall = None,
        }
        if self.stall.is_none() {
            self.late_ns = self.late_ns.min(0);
        }
        found.map_or(0, Found::ns)
    }

    fn played_ns(&self, units: i64) -> u64 {
        u64::try_from(self.base_ns + self.ns(units)).unwrap_or(0)
    }

    /// It may be found to have stood, or not to have been set.
    fn is_doubted(&self) -> bool {
        self.stall.is_some() || self.set_ahead.is_some()
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
        self.frames -= 1;
        self.later_ns = self.later_ns.max(0) + later_ns;
        (self.later_ns > self.ns / 2).then_some(self.ns)
    }
}

impl Stall {
    fn new(late_ns: i128, since_ns: u64, before_ns: u64) -> Self {
        Self {
            since_ns,
            before_ns,
            began_ns: late_ns,
            least_ns: late_ns,
        }
    }

    /// Those of other tracks may be later.
    fn is_one(&self) -> bool {
        self.began_ns > JUMP_NS - SAME_NS
    }

    /// What is found of it when it has lasted; `now`: as it would begin now.
    fn found(&self, now: &Self) -> Found {
        let comes_nearer = self.began_ns - self.least_ns > NEARER_NS;
        match comes_nearer {
            true if now.is_one() => Found::Doubted,
            false if self.began_ns > JUMP_NS => Found::Moved(self.least_ns),
            _ => Found::Moved(0),
        }
    }
}

impl Found {
    /// By how much the clock is moved.
    fn ns(self) -> i128 {
        match self {
            Self::Moved(ns) => ns,
            Self::Doubted => 0,
        }
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
    /// What was found last, of one by itself.
    verdict: Option<Verdict>,
}

impl Clocks {
    /// Of tracks with these rates.
    #[must_use]
    pub fn new(rates: impl Iterator<Item = u32>) -> Self {
        Self {
            tracks: rates.map(Clock::new).collect(),
            anchor: None,
            verdict: None,
        }
    }

    /// When a packet of a track is to be played; `arrival_ns` for a track that there is not.
    pub fn media_ns(&mut self, track: usize, timestamp: u32, arrival_ns: u64) -> u64 {
        let Some(clock) = self.tracks.get_mut(track) else {
            return arrival_ns;
        };
        let mut others = Others {
            verdict: &mut self.verdict,
            track,
            now_ns: arrival_ns,
        };
        let media_ns = clock.media_ns(timestamp, &mut others);
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
            let mut others = Others {
                verdict: &mut None,
                track,
                now_ns: arrival_ns,
            };
            of.media_ns(timestamp, &mut others)
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
        // Its time may be another one soon.
        if clock.is_doubted() {
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

/// What was found of other tracks, as one of them sees it whose packet has come: what belongs together is moved together, to
/// the nanosecond.
struct Others<'a> {
    verdict: &'a mut Option<Verdict>,
    track: usize,
    now_ns: u64,
}

impl Others<'_> {
    /// What was found of another track that seems to have stood or been set by as much, if it was then.
    fn found(&self, apart_ns: i128, is_then: impl Fn(u64) -> bool) -> Option<Found> {
        let of = self.verdict.filter(|of| of.track != self.track)?;
        let is_same = (of.apart_ns - apart_ns).abs() < SAME_NS && is_then(of.at_ns);
        is_same.then_some(of.found)
    }

    /// The same since this track's packet before.
    fn found_since(&self, apart_ns: i128, before_ns: u64) -> Option<Found> {
        self.found(apart_ns, |at_ns| at_ns >= before_ns)
    }

    /// What is found of this track's clock, that would be found of it alone, and had not been when the packet came before.
    fn find(&mut self, apart_ns: i128, before_ns: u64, alone: Found) -> Found {
        let is_then = |at_ns| at_ns >= before_ns || self.now_ns.saturating_sub(at_ns) < TOGETHER_NS;
        if let Some(found) = self.found(apart_ns, is_then) {
            return found;
        }
        *self.verdict = Some(Verdict {
            track: self.track,
            apart_ns,
            found: alone,
            at_ns: self.now_ns,
        });
        alone
    }
}

#[cfg(test)]
mod tests;
