//! Media time: the time of a recording at which a packet is shown.
//!
//! The first packet of a track is shown at its arrival time, and each later one as long after it as the RTP
//! timestamps say (RFC 3550, section 5.1). So jitter, bursts and the drift of a sender's crystal change
//! nothing.
//!
//! **The rule.** A timestamp step that the arrival times do not explain re-anchors the track: time continues
//! from the last packet by as much as has passed since that one arrived. A step is not explained if
//!
//! * it goes back by more than `TOLERANCE_NS`, 10 s: reordered frames go back by less than a second;
//! * it is ahead of the arrival by more than `AHEAD_NS_MAX`, 20 s, beyond what makes up for lateness; or
//! * packets stay more than 10 s late for 10 s. After a network outage the backlog arrives faster than it is
//!   shown and so catches up. After a pause of a sender whose clock stopped as well, nothing catches up.
//!
//! Lateness counts from the latest packet so far, so a slow clock is not late. The limit ahead is twice the
//! limit of lateness because `ffmpeg -re` sends the first frame after a gap in its file at once and waits
//! then: a gap that is taken for a jump is always found again as lateness.
//!
//! A step that undoes the last shift of its track within a second is unexplained as well, so one stray
//! timestamp moves nothing for good.
//!
//! Tracks stay together: for `SHARED_FOR_NS`, 20 s, a shift is also that of each other track that is off by the
//! same within a second, even if the other track alone is within the limits. The next sender report after a
//! shift aligns the track with the others.
//!
//! Given up: a clock that is set by less than the limits is followed. A pause with a stopped clock appears 10
//! s after its place, and so does a gap of more than 20 s in a file of `ffmpeg -re`. A backlog that is still
//! 10 s late after 10 s (`ffmpeg` 6 catches up at 1.05 times the speed) is taken for a pause: all behind it
//! is later by the outage.

/// A timestamp step back by more than this is unexplained, and so is lateness that is greater for as long.
pub(super) const TOLERANCE_NS: i128 = 10_000_000_000;

/// A timestamp step that is further ahead of the arrival than this is unexplained.
const AHEAD_NS_MAX: i128 = 2 * TOLERANCE_NS;

/// Shifts of two tracks that differ by less than this differ by jitter.
const SAME_SHIFT_NS: i128 = 1_000_000_000;

/// A step that is off by more than this is nearly unexplained.
const NEAR_NS: i128 = TOLERANCE_NS - SAME_SHIFT_NS;

/// A shift of one track may be that of another for this long.
const SHARED_FOR_NS: u64 = 20_000_000_000;

fn is_same(one_ns: i128, other_ns: i128) -> bool {
    (one_ns - other_ns).abs() < SAME_SHIFT_NS
}

/// A shift, or a step that was nearly one.
#[derive(Clone, Copy, Debug)]
struct Shift {
    ns: i128,
    arrival_ns: u64,
}

impl Shift {
    /// The shift, while it may be that of another track.
    fn shared_at(self, arrival_ns: u64) -> Option<i128> {
        (arrival_ns.saturating_sub(self.arrival_ns) < SHARED_FOR_NS).then_some(self.ns)
    }
}

#[derive(Clone, Copy, Debug)]
struct Last {
    timestamp: u32,
    /// Timestamp units since the first packet.
    units: i64,
    arrival_ns: u64,
}

/// Maps the timestamps of a track, which begin anywhere and wrap, to media time.
#[derive(Clone, Copy, Default, Debug)]
struct Clock {
    /// Timestamp units per second.
    rate: u32,
    last: Option<Last>,
    /// Media time of the first packet's timestamp.
    base_ns: i128,
    /// Lateness of the last packet; negative if it came earlier than the latest one.
    late_ns: i128,
    /// Arrival of the first packet of those that were later than the tolerance, up to the last packet.
    late_since_ns: Option<u64>,
    last_shift: Option<Shift>,
    /// The last step that was within a second of the limits and was followed.
    near_shift: Option<Shift>,
    /// The next timestamp has no relation to the last one.
    is_restarted: bool,
    is_synchronised: bool,
    /// A sender report that came before the first packet.
    early_report: Option<Report>,
}

impl Clock {
    fn ns(&self, units: i64) -> i128 {
        i128::from(units) * 1_000_000_000 / i128::from(self.rate)
    }

    /// Units from the last timestamp to this one, which has wrapped as often as the time since then allows.
    fn units_since(&self, last: u32, timestamp: u32, waited_ns: i128) -> i64 {
        let units = i64::from(timestamp.wrapping_sub(last) as i32);
        let waited = waited_ns * i128::from(self.rate) / 1_000_000_000;
        let wraps = (waited - i128::from(units) + (1 << 31)).max(0) >> 32;
        units + ((wraps as i64) << 32)
    }

    /// Takes in a packet. Returns the shift if that re-anchors the track; `other_ns` is the last shift of
    /// another track.
    fn take(&mut self, timestamp: u32, arrival_ns: u64, other_ns: Option<i128>) -> Option<i128> {
        let packet = |units| Last {
            timestamp,
            units,
            arrival_ns,
        };
        let Some(last) = self.last else {
            self.last = Some(packet(0));
            self.base_ns = i128::from(arrival_ns);
            return None;
        };
        let waited_ns = i128::from(arrival_ns) - i128::from(last.arrival_ns);
        let units = last.units + self.units_since(last.timestamp, timestamp, waited_ns);
        let step_ns = self.ns(units) - self.ns(last.units);
        self.last = Some(packet(units));
        // Lateness ends here: time continues as if the last packet had been in time.
        let jump_ns = waited_ns - step_ns + self.late_ns.max(0);
        self.late_ns += waited_ns - step_ns;
        if self.late_ns > TOLERANCE_NS {
            self.late_since_ns.get_or_insert(arrival_ns);
        }
        let is_late_since =
            |since_ns| i128::from(arrival_ns.saturating_sub(since_ns)) >= TOLERANCE_NS;
        let shared_ns = other_ns.filter(|other_ns| is_same(*other_ns, jump_ns));
        let undone_ns = self.last_shift.map(|shift| -shift.ns);
        let shift_ns = if std::mem::take(&mut self.is_restarted) {
            Some(jump_ns)
        } else if step_ns < -TOLERANCE_NS || jump_ns < -AHEAD_NS_MAX {
            Some(shared_ns.unwrap_or(jump_ns))
        } else if self.late_ns > TOLERANCE_NS && self.late_since_ns.is_some_and(is_late_since) {
            Some(shared_ns.unwrap_or(self.late_ns))
        } else {
            shared_ns.or(undone_ns.filter(|undone_ns| is_same(*undone_ns, jump_ns)))
        };
        if let Some(shift_ns) = shift_ns {
            self.shift(shift_ns, arrival_ns);
        } else if jump_ns.abs() > NEAR_NS {
            self.near_shift = Some(Shift {
                ns: jump_ns,
                arrival_ns,
            });
        }
        if self.late_ns <= TOLERANCE_NS {
            (self.late_ns, self.late_since_ns) = (self.late_ns.min(0), None);
        }
        shift_ns
    }

    fn shift(&mut self, ns: i128, arrival_ns: u64) {
        self.base_ns += ns;
        self.late_ns -= ns;
        self.is_synchronised = false;
        self.near_shift = None;
        self.last_shift = (ns.abs() > NEAR_NS).then_some(Shift { ns, arrival_ns });
    }

    /// Takes over the shift of another track if this one was off by the same a short time ago.
    fn follow(&mut self, shift_ns: i128, arrival_ns: u64) {
        let near_ns = self.near_shift.and_then(|near| near.shared_at(arrival_ns));
        if near_ns.is_some_and(|near_ns| is_same(near_ns, shift_ns)) {
            self.shift(shift_ns, arrival_ns);
            (self.late_ns, self.late_since_ns) = (0, None);
        }
    }

    /// Media time of a timestamp near the last one; `None` before the first packet.
    fn at(&self, timestamp: u32) -> Option<i128> {
        let last = self.last?;
        let units = last.units + i64::from(timestamp.wrapping_sub(last.timestamp) as i32);
        Some(self.base_ns + self.ns(units))
    }
}

/// Clocks of an RTCP sender report (RFC 3550, section 6.4.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// The sender's time: seconds since 1900, and their fraction in the lower 32 bits.
    pub ntp: u64,
    /// The track's timestamp at that time.
    pub timestamp: u32,
}

/// The clocks of a presentation's tracks.
#[derive(Clone, Debug)]
pub struct Clocks {
    tracks: Vec<Clock>,
    /// The sender's time in the last sender report of any track, and the media time of it.
    anchor: Option<(i128, i128)>,
    /// The track that was re-anchored last.
    last_shifted: Option<usize>,
}

impl Clocks {
    /// Clocks of tracks with these rates, in timestamp units per second.
    #[must_use]
    pub fn new(rates: impl Iterator<Item = u32>) -> Self {
        let clock = |rate: u32| Clock {
            rate: rate.max(1),
            ..Clock::default()
        };
        Self {
            tracks: rates.map(clock).collect(),
            anchor: None,
            last_shifted: None,
        }
    }

    /// Media time of the packet that has just arrived; its arrival time if there is no such track.
    pub fn media_ns(&mut self, track: usize, timestamp: u32, arrival_ns: u64) -> u64 {
        let other = self.last_shifted.filter(|other| *other != track);
        let other = other.and_then(|other| self.tracks[other].last_shift);
        let other_ns = other.and_then(|shift| shift.shared_at(arrival_ns));
        let Some(clock) = self.tracks.get_mut(track) else {
            return arrival_ns;
        };
        if let Some(shift_ns) = clock.take(timestamp, arrival_ns, other_ns) {
            self.last_shifted = Some(track);
            for (number, clock) in self.tracks.iter_mut().enumerate() {
                if number != track {
                    clock.follow(shift_ns, arrival_ns);
                }
            }
        }
        let clock = &mut self.tracks[track];
        if let Some(report) = clock.early_report.take() {
            self.synchronise(track, report);
        }
        let media_ns = self.tracks[track].at(timestamp);
        media_ns.map_or(arrival_ns, |ns| u64::try_from(ns).unwrap_or(0))
    }

    /// Media time of a packet whose timestamp has no meaning: time continues by arrival, and no clock changes.
    #[must_use]
    pub fn media_ns_of_stray(&self, track: usize, timestamp: u32, arrival_ns: u64) -> u64 {
        let mut clocks = self.clone();
        clocks.restart(track);
        clocks.media_ns(track, timestamp, arrival_ns)
    }

    /// Tells a track's clock that the next timestamp has no relation to the last one.
    pub fn restart(&mut self, track: usize) {
        if let Some(clock) = self.tracks.get_mut(track) {
            clock.is_restarted = clock.last.is_some();
            (clock.is_synchronised, clock.early_report) = (false, None);
        }
    }

    /// Restarts all tracks and the sender's time.
    pub fn restart_all(&mut self) {
        (0..self.tracks.len()).for_each(|track| self.restart(track));
        self.anchor = None;
    }

    /// Takes in a sender report. The first one of a track, and the first one after a shift, moves the track
    /// to where the last report of any track says it is, unless that is further than the tolerance.
    pub fn synchronise(&mut self, track: usize, report: Report) {
        let Some(clock) = self.tracks.get_mut(track) else {
            return;
        };
        let Some(mut media_ns) = clock.at(report.timestamp).filter(|_| !clock.is_restarted) else {
            clock.early_report = Some(report);
            return;
        };
        let report_ns = (i128::from(report.ntp) * 1_000_000_000) >> 32;
        let (ntp_ns, anchor_ns) = self.anchor.unwrap_or((report_ns, media_ns));
        let off_ns = anchor_ns + report_ns - ntp_ns - media_ns;
        if !clock.is_synchronised && off_ns.abs() <= TOLERANCE_NS {
            clock.base_ns += off_ns;
            media_ns += off_ns;
        }
        clock.is_synchronised = true;
        self.anchor = Some((report_ns, media_ns));
    }
}

#[cfg(test)]
mod tests;
