//! Reception statistics for receiver reports (RFC 3550, section 6.4.1 and appendices A.3 and A.8).

use sched::units::Time;

use crate::rtp::packet::{Header, Report};

/// Statistics of a track's packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reception {
    clock_rate: u32,
    ssrc: Option<u32>,
    /// First sequence number.
    first: u16,
    /// Highest sequence number, which has wrapped `wraps` times.
    highest: u16,
    wraps: u32,
    received: u32,
    /// Packets expected and received at the last report.
    reported_counts: (u32, u32),
    /// Transit time of the last packet plus a constant, in timestamp units.
    transit: Option<i64>,
    /// In sixteenths of a timestamp unit.
    jitter: u64,
    /// Middle 32 bits of the NTP time of the last sender report, and its arrival.
    reported: Option<(u32, Time)>,
}

/// A report block of RTCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiverReport {
    /// SSRC of the sender of the packets.
    pub ssrc: u32,
    /// Fraction of packets lost since the last report, in 256ths.
    pub fraction_lost: u8,
    /// Packets lost in all, at most 2^23 - 1.
    pub lost: u32,
    /// Highest sequence number; the number of wraps in the upper 16 bits.
    pub highest: u32,
    /// Interarrival jitter in timestamp units.
    pub jitter: u32,
    /// Middle 32 bits of the NTP time of the last sender report; 0 if there was none.
    pub last_report: u32,
    /// Time since that report came, in 65,536ths of a second.
    pub since_report: u32,
}

/// Largest value of a signed field of 24 bits.
const LOST_MAX: u32 = 0x7f_ffff;

impl Reception {
    /// For a track with this many timestamp units per second.
    #[must_use]
    pub fn new(clock_rate: u32) -> Self {
        Self {
            clock_rate,
            ..Self::default()
        }
    }

    /// Begins anew.
    pub fn restart(&mut self) {
        *self = Self::new(self.clock_rate);
    }

    /// Counts a packet that is no duplicate.
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
        // Less than half of all numbers ahead: a later packet.
        if header.sequence.wrapping_sub(self.highest) < 0x8000 {
            self.wraps += u32::from(header.sequence < self.highest);
            self.highest = header.sequence;
        }
        let arrival = u128::from(at.get()) * u128::from(self.clock_rate) / 1_000_000_000;
        let transit = (arrival as i64).wrapping_sub(i64::from(header.timestamp));
        if let Some(before) = self.transit.replace(transit) {
            // Timestamps wrap: the shorter distance counts.
            let apart = u64::from((transit.wrapping_sub(before) as i32).unsigned_abs());
            self.jitter = self.jitter + apart - ((self.jitter + 8) >> 4);
        }
    }

    /// Notes a sender report.
    pub fn sender_report(&mut self, report: &Report, at: Time) {
        self.reported = Some(((report.ntp >> 16) as u32, at));
    }

    /// The report block now; `None` before the first packet.
    pub fn report(&mut self, now: Time) -> Option<ReceiverReport> {
        let ssrc = self.ssrc?;
        let highest = self.wraps << 16 | u32::from(self.highest);
        let expected = highest.wrapping_sub(u32::from(self.first)).wrapping_add(1);
        let (expected_before, received_before) = self.reported_counts;
        let expected_since = u64::from(expected.wrapping_sub(expected_before));
        let received_since = u64::from(self.received.wrapping_sub(received_before));
        self.reported_counts = (expected, self.received);
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
    fn lost_packets_are_reported_since_the_last_report_and_in_all() {
        let mut reception = Reception::new(CLOCK);
        assert_eq!(reception.report(at_ms(0)), None);
        // A hundred packets whose numbers wrap: every fourth is lost, and one comes late.
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
        // The last packet was lost, which is not known yet.
        assert_eq!((report.lost, report.highest), (24, 65_536 + 62));
        assert_eq!(report.fraction_lost, (24 * 256 / 99) as u8);
        assert_eq!((report.last_report, report.since_report), (0, 0));
        reception.packet(&header(63, 0), at_ms(2_000));
        let report = reception.report(at_ms(2_500)).unwrap();
        assert_eq!((report.lost, report.fraction_lost), (24, 0));
    }

    #[test]
    fn jitter_is_the_difference_of_transit_times() {
        let (mut even, mut uneven) = (Reception::new(CLOCK), Reception::new(CLOCK));
        for number in 0..1_000_u16 {
            let packet = header(number, 160 * u32::from(number));
            let at = 20 * u64::from(number);
            even.packet(&packet, at_ms(at));
            uneven.packet(&packet, at_ms(at + if number % 2 == 0 { 5 } else { 0 }));
        }
        assert_eq!(even.report(at_ms(0)).unwrap().jitter, 0);
        // Five milliseconds between two packets.
        let jitter = uneven.report(at_ms(0)).unwrap().jitter;
        assert!((39..=41).contains(&jitter), "{jitter}");
    }

    #[test]
    fn the_last_sender_report_is_named_with_its_age() {
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
        // The statistics of another SSRC begin anew.
        let mut other = header(7, 1);
        other.ssrc = 10;
        reception.packet(&other, at_ms(4_000));
        let report = reception.report(at_ms(4_000)).unwrap();
        assert_eq!((report.ssrc, report.highest, report.lost), (10, 7, 0));
    }
}
