//! Packets of a track in order, and what they carry put together: a frame of a picture, or a piece of sound.

use std::collections::BTreeMap;

use crate::rtp::packet::Header;

/// So many packets behind a gap are kept until it is taken to be one.
const REORDERED_MAX: usize = 64;

/// Numbers that are further apart are another beginning.
const APART_MAX: i64 = 3_000;

/// A packet's payload, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// What its header says.
    pub header: Header,
    /// What it carries, without padding.
    pub payload: &'a [u8],
    /// When it is to be played, in nanoseconds of the recording.
    pub media_ns: u64,
    /// Whether packets are missing before it.
    pub is_after_loss: bool,
}

impl Packet<'_> {
    /// Its timestamp, and when it is to be played.
    #[must_use]
    pub fn at(&self) -> (u32, u64) {
        (self.header.timestamp, self.media_ns)
    }
}

/// What belongs together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Unit {
    /// Its bytes: NAL units each behind their length in four bytes, a frame of AAC, a JPEG image, or samples.
    pub data: Vec<u8>,
    /// Its timestamp.
    pub timestamp: u32,
    /// When it is to be played, in nanoseconds of the recording.
    pub media_ns: u64,
    /// Whether it can be decoded without any before it.
    pub is_key: bool,
}

/// A packet that waits for one before it.
#[derive(Debug)]
struct Held {
    header: Header,
    payload: Vec<u8>,
    media_ns: u64,
}

/// Puts packets back into the order in which they were sent, and leaves out those that come twice.
#[derive(Debug, Default)]
pub struct Reorder {
    /// The number of the packet that is due, counted on and on.
    next: Option<i64>,
    ssrc: Option<u32>,
    held: BTreeMap<i64, Held>,
}

impl Reorder {
    /// Takes a packet, and gives those that are in order now.
    pub fn push(
        &mut self,
        header: Header,
        payload: &[u8],
        media_ns: u64,
        give: &mut impl FnMut(&Packet<'_>),
    ) {
        let sequence = i64::from(header.sequence);
        let Some(next) = self.next.filter(|_| self.ssrc == Some(header.ssrc)) else {
            self.flush(give);
            self.ssrc = Some(header.ssrc);
            self.begin(sequence, header, payload, media_ns, false, give);
            return;
        };
        let ahead = i64::from(header.sequence.wrapping_sub(next as u16) as i16);
        let number = next + ahead;
        if ahead.abs() > APART_MAX {
            self.flush(give);
            self.begin(sequence, header, payload, media_ns, true, give);
        } else if ahead == 0 {
            self.begin(number, header, payload, media_ns, false, give);
            self.give_held(give);
        } else if ahead > 0 {
            let payload = payload.to_vec();
            let held = Held {
                header,
                payload,
                media_ns,
            };
            self.held.entry(number).or_insert(held);
            if self.held.len() > REORDERED_MAX {
                self.pass_gap(give);
            }
        }
    }

    fn begin(
        &mut self,
        number: i64,
        header: Header,
        payload: &[u8],
        media_ns: u64,
        is_after_loss: bool,
        give: &mut impl FnMut(&Packet<'_>),
    ) {
        self.next = Some(number + 1);
        give(&Packet {
            header,
            payload,
            media_ns,
            is_after_loss,
        });
    }

    fn give_held(&mut self, give: &mut impl FnMut(&Packet<'_>)) {
        while let Some(first) = self.held.first_entry()
            && Some(*first.key()) == self.next
        {
            let (number, held) = first.remove_entry();
            let payload = &held.payload;
            self.begin(number, held.header, payload, held.media_ns, false, give);
        }
    }

    fn pass_gap(&mut self, give: &mut impl FnMut(&Packet<'_>)) {
        if let Some((number, held)) = self.held.pop_first() {
            let payload = &held.payload;
            self.begin(number, held.header, payload, held.media_ns, true, give);
            self.give_held(give);
        }
    }

    /// Gives what is left: nothing more comes.
    pub fn flush(&mut self, give: &mut impl FnMut(&Packet<'_>)) {
        while !self.held.is_empty() {
            self.pass_gap(give);
        }
    }
}

/// A track's timestamps as times of a file: exact differences, and where they begin as the recording has it.
#[derive(Clone, Debug)]
pub struct Timeline {
    rate: u32,
    /// What is time 0, in nanoseconds of the recording.
    origin_ns: u64,
    /// A timestamp, and the time that it is.
    anchor: Option<(u32, i64)>,
}

/// Timestamps that say something else than the recording does by more than that have begun anew.
const STRAYS_MS: i64 = 5;

impl Timeline {
    /// Of timestamps of so many units in a second.
    #[must_use]
    pub fn new(rate: u32, origin_ns: u64) -> Self {
        Self {
            rate: rate.max(1),
            origin_ns,
            anchor: None,
        }
    }

    /// The same of a time, as the recording has it.
    #[must_use]
    pub fn said_ticks(&self, media_ns: u64) -> i64 {
        let rate = i128::from(self.rate);
        let since = i128::from(media_ns) - i128::from(self.origin_ns);
        (since * rate + 500_000_000).div_euclid(1_000_000_000) as i64
    }

    /// The time of a unit, in units of its track.
    pub fn ticks(&mut self, timestamp: u32, media_ns: u64) -> i64 {
        let said = self.said_ticks(media_ns);
        let strays = i64::from(self.rate) * STRAYS_MS / 1_000 + 1;
        let counted = self.anchor.map(|(first, ticks)| {
            ticks.saturating_add(i64::from(timestamp.wrapping_sub(first) as i32))
        });
        let ticks = match counted {
            Some(counted) if (counted - said).abs() <= strays => counted,
            _ => said,
        };
        // From one to the next, so that the difference never wraps.
        self.anchor = Some((timestamp, ticks));
        ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(sequence: u16) -> Header {
        let [high, low] = sequence.to_be_bytes();
        Header::parse(&[0x80, 96, high, low, 0, 0, 0, 0, 0, 0, 0, 1]).unwrap()
    }

    fn ordered(sequences: &[u16]) -> Vec<(u16, bool)> {
        let mut reorder = Reorder::default();
        let mut given = Vec::new();
        let mut give = |packet: &Packet<'_>| {
            assert_eq!(packet.payload, packet.header.sequence.to_be_bytes());
            given.push((packet.header.sequence, packet.is_after_loss));
        };
        for sequence in sequences {
            let payload = sequence.to_be_bytes();
            reorder.push(header(*sequence), &payload, 0, &mut give);
        }
        reorder.flush(&mut give);
        given
    }

    #[test]
    fn packets_come_in_order_once_and_gaps_are_known() {
        let whole = |sequences: &[u16]| -> Vec<_> {
            sequences
                .iter()
                .map(|sequence| (*sequence, false))
                .collect()
        };
        assert_eq!(ordered(&[1, 2, 3]), whole(&[1, 2, 3]));
        assert_eq!(ordered(&[1, 3, 2, 2, 4, 3]), whole(&[1, 2, 3, 4]));
        assert_eq!(
            ordered(&[65_534, 0, 65_535, 1]),
            whole(&[65_534, 65_535, 0, 1])
        );
        assert_eq!(ordered(&[1, 4, 5]), [(1, false), (4, true), (5, false)]);
        // Another beginning.
        assert_eq!(
            ordered(&[1, 20_000, 20_001]),
            [(1, false), (20_000, true), (20_001, false)]
        );
        // A gap is passed when enough has come behind it.
        let many: Vec<u16> = std::iter::once(1).chain(3..100).collect();
        let given = ordered(&many);
        assert_eq!(given.len(), many.len());
        assert_eq!(given[1], (3, true));
        assert!(given[2..].iter().all(|(_, lost)| !lost));
    }

    #[test]
    fn differences_of_timestamps_are_kept_exactly() {
        let origin = 1_234_567;
        let mut line = Timeline::new(48_000, origin);
        let first = u32::MAX - 5_000;
        let mut before = None;
        for number in 0..100_000_u32 {
            let timestamp = first.wrapping_add(number * 1_024);
            let since = u64::from(number) * 1_024 * 1_000_000_000 / 48_000;
            // To the microsecond, as entries have it.
            let media_ns = origin + 777_777 + since / 1_000 * 1_000;
            let ticks = line.ticks(timestamp, media_ns);
            assert!(
                before.is_none_or(|before| ticks == before + 1_024),
                "{number}"
            );
            before = Some(ticks);
        }
        // A clock that is set goes on as the recording says.
        let later = line.ticks(77, origin + 10_000_000_000_000);
        assert_eq!(later, 480_000_000);
    }
}
