//! The time of packets: from their timestamps to that of the recording.

/// A clock that differs by more from one packet to the next than the packets' arrivals do has been set.
pub(super) const JUMP_NS: i128 = 10_000_000_000;

/// A track's time: from its timestamps, which begin anywhere and wrap, to that of the recording.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
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
    /// Whether the last timestamp came before its time.
    ahead: Option<Ahead>,
}

/// A timestamp that came before its time, by those before it.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    ns: i128,
    /// By so much that the clock was taken for set.
    is_set: bool,
}

impl Clock {
    /// Of a track with so many units in a second.
    #[must_use]
    pub fn new(rate: u32) -> Self {
        Self {
            rate: rate.max(1),
            last: None,
            base_ns: 0,
            is_synchronised: false,
            early: None,
            is_restarted: false,
            ahead: None,
        }
    }

    /// What comes next counts from elsewhere: time goes on as it does for who receives it.
    pub fn restart(&mut self) {
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

    /// When a packet is to be played that arrived now, in nanoseconds of the recording.
    pub fn media_ns(&mut self, timestamp: u32, arrival_ns: u64) -> u64 {
        let Some((_, before, arrived)) = self.last else {
            self.base_ns = i128::from(arrival_ns);
            self.last = Some((timestamp, 0, arrival_ns));
            return arrival_ns;
        };
        let units = self.units(timestamp).unwrap_or_default();
        let by_clock = self.ns(units) - self.ns(before);
        let by_arrival = i128::from(arrival_ns) - i128::from(arrived);
        let late_ns = by_arrival - by_clock;
        let is_restarted = std::mem::take(&mut self.is_restarted);
        // The packets of a frame come one after another.
        let ahead = self.ahead.take_if(|_| units != before || is_restarted);
        let moved_ns = match ahead {
            _ if is_restarted => late_ns,
            // It was not set: a frame was sent when the one before it was, and its sender waited then.
            Some(Ahead { ns, is_set: true }) if late_ns > ns / 2 => ns,
            Some(Ahead { ns, is_set: false }) if (late_ns - ns).abs() <= JUMP_NS => 0,
            // As if it had gone on.
            _ if late_ns.abs() > JUMP_NS => late_ns,
            _ => 0,
        };
        self.base_ns += moved_ns;
        if late_ns < 0 && !is_restarted {
            self.ahead = Some(Ahead {
                ns: -late_ns,
                is_set: -late_ns > JUMP_NS,
            });
        } else if moved_ns != 0 {
            self.ahead = None;
        }
        self.last = Some((timestamp, units, arrival_ns));
        u64::try_from(self.base_ns + self.ns(units)).unwrap_or(0)
    }

    /// When a packet of this timestamp would be played.
    fn at(&self, timestamp: u32) -> Option<i128> {
        Some(self.base_ns + self.ns(self.units(timestamp)?))
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
}

impl Clocks {
    /// Of tracks with these rates.
    #[must_use]
    pub fn new(rates: impl Iterator<Item = u32>) -> Self {
        Self {
            tracks: rates.map(Clock::new).collect(),
            anchor: None,
        }
    }

    /// When a packet of a track is to be played; `arrival_ns` for a track that there is not.
    pub fn media_ns(&mut self, track: usize, timestamp: u32, arrival_ns: u64) -> u64 {
        let Some(clock) = self.tracks.get_mut(track) else {
            return arrival_ns;
        };
        let media_ns = clock.media_ns(timestamp, arrival_ns);
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
            of.media_ns(timestamp, arrival_ns)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// It has the time of what comes then, and leaves the clock as it is.
    #[test]
    fn one_from_elsewhere_comes_when_the_next_one_would() {
        let second = 1_000_000_000;
        let mut clocks = Clocks::new([1_000].into_iter());
        assert_eq!(clocks.media_ns(0, 0, 5 * second), 5 * second);
        // Much faster than it is to be shown.
        assert_eq!(clocks.media_ns(0, 9_000, 6 * second), 14 * second);
        assert_eq!(
            clocks.media_ns_of_stray(0, 1 << 30, 7 * second),
            15 * second
        );
        assert_eq!(clocks.media_ns_of_stray(0, 12_000, 7 * second), 15 * second);
        assert_eq!(clocks.media_ns_of_stray(1, 0, 7 * second), 7 * second);
        assert_eq!(clocks.media_ns(0, 10_000, 7 * second), 15 * second);
    }

    #[test]
    fn time_goes_on_when_timestamps_wrap_or_are_set() {
        let mut clock = Clock::new(90_000);
        let second = 1_000_000_000;
        assert_eq!(clock.media_ns(u32::MAX - 44_999, 5 * second), 5 * second);
        assert_eq!(clock.media_ns(45_000, 6 * second), 6 * second);
        // A frame that is shown earlier than the one before it.
        assert_eq!(clock.media_ns(0, 6 * second), 5 * second + second / 2);
        // Sent faster than it is to be played.
        assert_eq!(
            clock.media_ns(450_000, 6 * second),
            10 * second + second / 2
        );
        // The sender's clock is set.
        assert_eq!(
            clock.media_ns(4_000_000_000, 7 * second),
            11 * second + second / 2
        );
        assert_eq!(
            clock.media_ns(4_000_090_000, 7 * second),
            12 * second + second / 2
        );
    }

    /// `ffmpeg -re` sends what comes behind a gap before it waits for as long. However long that is, and whether it is exactly
    /// so long or not, time is what the sender says from the next frame on.
    #[test]
    fn a_frame_that_is_sent_before_its_time_does_not_set_the_clock() {
        let ms = 1_000_000;
        for gap_ms in (9_900..10_200).step_by(10).chain([60_000, 3_600_000]) {
            for (early_ms, late_ms) in [(1, 0), (40, 0), (40, 39), (90, 2), (1, 400)] {
                let mut clock = Clock::new(1_000);
                assert_eq!(clock.media_ns(0, 0), 0);
                // In two packets.
                clock.media_ns(gap_ms, early_ms * ms);
                clock.media_ns(gap_ms, (early_ms + 1) * ms);
                let next_ms = u64::from(gap_ms) + 40;
                let how = format!("{gap_ms}, {early_ms}, {late_ms}");
                let media_ns = clock.media_ns(gap_ms + 40, (next_ms + late_ms) * ms);
                assert_eq!(media_ns, next_ms * ms, "{how}");
                let behind_ns = clock.media_ns(gap_ms + 80, (next_ms + 40) * ms);
                assert_eq!(behind_ns, (next_ms + 40) * ms, "{how}");
            }
        }
    }

    /// A clock that was set ahead stays so, also if the network is slow later.
    #[test]
    fn a_clock_that_was_set_is_not_set_back_by_what_comes_late() {
        let ms = 1_000_000;
        let mut clock = Clock::new(1_000);
        assert_eq!(clock.media_ns(0, 0), 0);
        assert_eq!(clock.media_ns(12_040, 40 * ms), 40 * ms);
        // Less than half as late as it was set ahead.
        assert_eq!(clock.media_ns(12_080, 5_000 * ms), 80 * ms);
        assert_eq!(clock.media_ns(12_120, 12_000 * ms), 120 * ms);
        // Nor by a packet of the frame that came first, which is as late.
        let mut clock = Clock::new(1_000);
        assert_eq!(clock.media_ns(0, 0), 0);
        assert_eq!(clock.media_ns(12_040, 40 * ms), 40 * ms);
        assert_eq!(clock.media_ns(12_040, 9_000 * ms), 40 * ms);
        assert_eq!(clock.media_ns(12_080, 9_000 * ms), 80 * ms);
        // Or later still, where its time is when it came.
        let mut clock = Clock::new(1_000);
        assert_eq!(clock.media_ns(0, 0), 0);
        assert_eq!(clock.media_ns(12_040, 40 * ms), 40 * ms);
        assert_eq!(clock.media_ns(12_040, 30_000 * ms), 30_000 * ms);
        assert_eq!(clock.media_ns(12_080, 38_000 * ms), 30_040 * ms);
    }

    #[test]
    fn time_goes_on_when_a_source_begins_anew() {
        let second = 1_000_000_000;
        let mut clocks = Clocks::new([1_000, 1_000].into_iter());
        assert_eq!(clocks.media_ns(0, 5_000, second), second);
        assert_eq!(clocks.media_ns(1, 9_000, second), second);
        clocks.restart_all();
        // Numbers that could be of the same clock are not taken for it.
        let report = Report {
            ntp: 1 << 32,
            timestamp: 5_500,
        };
        clocks.synchronise(0, report);
        assert_eq!(clocks.media_ns(0, 5_500, 4 * second), 4 * second);
        assert_eq!(clocks.media_ns(0, 6_500, 4 * second), 5 * second);
        // One track alone.
        clocks.restart(1);
        assert_eq!(clocks.media_ns(1, 0, 6 * second), 6 * second);
        assert_eq!(clocks.media_ns(0, 7_500, 6 * second), 6 * second);
    }

    #[test]
    fn tracks_are_brought_together_by_what_their_sender_says() {
        let second = 1_000_000_000;
        let mut clocks = Clocks::new([90_000, 48_000].into_iter());
        assert_eq!(clocks.media_ns(0, 1_000, 0), 0);
        // Sound that belongs to the picture of 0.2 s arrives at 0.5 s.
        assert_eq!(clocks.media_ns(1, 77_000, second / 2), second / 2);
        let ntp = |tenths: u64| (3_900_000_000 << 32) + (tenths << 32) / 10;
        let report = |tenths, timestamp| Report {
            ntp: ntp(tenths),
            timestamp,
        };
        clocks.synchronise(0, report(0, 1_000));
        clocks.synchronise(1, report(2, 77_000));
        let media = clocks.media_ns(1, 77_000, second / 2);
        assert!(media.abs_diff(second / 5) <= 1, "{media}");
        // Once is enough, and nonsense is not believed.
        clocks.synchronise(1, report(90, 77_000));
        clocks.synchronise(2, report(0, 0));
        assert_eq!(clocks.media_ns(1, 77_000, second / 2), media);
    }
}
