//! How well packets come: what a receiver tells who sends (RFC 3550, sections 6.4.1 and A.8).

use sched::units::Time;

use crate::rtp::packet::{Header, Report};

/// What is known of a track's packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reception {
    clock_rate: u32,
    ssrc: Option<u32>,
    /// The first number, the highest one, and how often they have wrapped.
    first: u16,
    highest: u16,
    wraps: u32,
    received: u32,
    /// How many were expected and received when it was last told.
    told: (u32, u32),
    /// The last packet's time on the way, up to a constant, in units of its clock.
    transit: Option<i64>,
    /// In sixteenths of such units.
    jitter: u64,
    /// The middle of the last sender report's time, and when it came.
    reported: Option<(u32, Time)>,
}

/// What a receiver reports of a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiverReport {
    /// Whose packets.
    pub ssrc: u32,
    /// Of those since the last report, in 256ths.
    pub fraction_lost: u8,
    /// Of all.
    pub lost: u32,
    /// The highest number, with how often it has wrapped.
    pub highest: u32,
    /// How unevenly they come, in units of their clock.
    pub jitter: u32,
    /// The middle 32 bits of the last sender report's time; 0: there was none.
    pub last_report: u32,
    /// How long ago that came, in 65,536ths of a second.
    pub since_report: u32,
}

/// The most that 24 bits with a sign say.
const LOST_MAX: u32 = 0x7f_ffff;

impl Reception {
    /// Of a track with so many units in a second.
    #[must_use]
    pub fn new(clock_rate: u32) -> Self {
        Self {
            clock_rate,
            ..Self::default()
        }
    }

    /// What comes from now on has nothing to do with what has come.
    pub fn restart(&mut self) {
        *self = Self::new(self.clock_rate);
    }

    /// A packet has come, which is none twice.
    pub fn packet(&mut self, header: &Header, at: Time) {
        if self.ssrc != Some(header.ssrc) {
            *self = Self {
                ssrc: Some(header.ssrc),
                first: header.sequence,
                highest: header.sequence,
                ..Self::new(self.clock_rate)
            };
        }
        self.received = self.received.wrapping_add(1);
        // Ahead by less than half of all numbers, or behind.
        if header.sequence.wrapping_sub(self.highest) < 0x8000 {
            self.wraps += u32::from(header.sequence < self.highest);
            self.highest = header.sequence;
        }
        let arrival = u128::from(at.get()) * u128::from(self.clock_rate) / 1_000_000_000;
        let transit = (arrival as i64).wrapping_sub(i64::from(header.timestamp));
        if let Some(before) = self.transit.replace(transit) {
            // Timestamps wrap: what is further apart than half of them has.
            let apart = u64::from((transit.wrapping_sub(before) as i32).unsigned_abs());
            self.jitter = self.jitter + apart - ((self.jitter + 8) >> 4);
        }
    }

    /// A sender report has come.
    pub fn sender_report(&mut self, report: &Report, at: Time) {
        self.reported = Some(((report.ntp >> 16) as u32, at));
    }

    /// What is told now; `None`: nothing has come.
    pub fn report(&mut self, now: Time) -> Option<ReceiverReport> {
        let ssrc = self.ssrc?;
        let highest = self.wraps << 16 | u32::from(self.highest);
        let expected = highest.wrapping_sub(u32::from(self.first)).wrapping_add(1);
        let (expected_before, received_before) = self.told;
        let expected_since = u64::from(expected.wrapping_sub(expected_before));
        let received_since = u64::from(self.received.wrapping_sub(received_before));
        self.told = (expected, self.received);
        let lost_since = expected_since.saturating_sub(received_since);
        let fraction = (lost_since * 256).checked_div(expected_since).unwrap_or(0);
        let (last_report, since_report) = self.reported.map_or((0, 0), |(middle, at)| {
            let since = u128::from(now.saturating_since(at).get());
            (middle, ((since << 16) / 1_000_000_000) as u32)
        });
        Some(ReceiverReport {
            ssrc,
            fraction_lost: fraction.min(255) as u8,
            lost: expected.saturating_sub(self.received).min(LOST_MAX),
            highest,
            jitter: (self.jitter >> 4) as u32,
            last_report,
            since_report,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: u32 = 8_000;

    fn header(sequence: u16, timestamp: u32) -> Header {
        let [s0, s1] = sequence.to_be_bytes();
        let [t0, t1, t2, t3] = timestamp.to_be_bytes();
        Header::parse(&[0x80, 96, s0, s1, t0, t1, t2, t3, 0, 0, 0, 9]).unwrap()
    }

    fn at_ms(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    #[test]
    fn what_is_lost_is_told_once_and_in_all() {
        let mut reception = Reception::new(CLOCK);
        assert_eq!(reception.report(at_ms(0)), None);
        // A hundred, over the end of the numbers, of which every fourth is lost and one comes late.
        let mut late = None;
        for number in 0..100_u16 {
            let sequence = 65_500_u16.wrapping_add(number);
            let packet = header(
                sequence,
                4_294_967_000_u32.wrapping_add(160 * u32::from(number)),
            );
            match number {
                50 => late = Some(packet),
                52 => {
                    reception.packet(&packet, at_ms(20 * 52));
                    reception.packet(&late.unwrap(), at_ms(20 * 52));
                }
                _ if number % 4 == 3 => {}
                _ => reception.packet(&packet, at_ms(20 * u64::from(number))),
            }
        }
        let report = reception.report(at_ms(2_000)).unwrap();
        assert_eq!(report.ssrc, 9);
        // The last one was lost, and nobody knows.
        assert_eq!((report.lost, report.highest), (24, 65_536 + 62));
        assert_eq!(report.fraction_lost, (24 * 256 / 99) as u8);
        assert_eq!((report.last_report, report.since_report), (0, 0));
        reception.packet(&header(63, 0), at_ms(2_000));
        let report = reception.report(at_ms(2_500)).unwrap();
        assert_eq!((report.lost, report.fraction_lost), (24, 0));
    }

    #[test]
    fn jitter_is_how_unevenly_they_come() {
        let (mut even, mut uneven) = (Reception::new(CLOCK), Reception::new(CLOCK));
        for number in 0..1_000_u16 {
            let packet = header(number, 160 * u32::from(number));
            let at = 20 * u64::from(number);
            even.packet(&packet, at_ms(at));
            uneven.packet(&packet, at_ms(at + if number % 2 == 0 { 5 } else { 0 }));
        }
        assert_eq!(even.report(at_ms(0)).unwrap().jitter, 0);
        // Five milliseconds from one to the next.
        let jitter = uneven.report(at_ms(0)).unwrap().jitter;
        assert!((39..=41).contains(&jitter), "{jitter}");
    }

    #[test]
    fn a_senders_report_is_named_with_how_long_ago_it_came() {
        let mut reception = Reception::new(CLOCK);
        reception.packet(&header(1, 1), at_ms(0));
        let said = Report {
            ntp: 0x1122_3344_5566_7788,
            timestamp: 5,
        };
        reception.sender_report(&said, at_ms(1_000));
        let report = reception.report(at_ms(3_500)).unwrap();
        assert_eq!(report.last_report, 0x3344_5566);
        assert_eq!(report.since_report, 5 * 65_536 / 2);
        // Another source begins anew.
        let mut other = header(7, 1);
        other.ssrc = 10;
        reception.packet(&other, at_ms(4_000));
        let report = reception.report(at_ms(4_000)).unwrap();
        assert_eq!((report.ssrc, report.highest, report.lost), (10, 7, 0));
    }
}
