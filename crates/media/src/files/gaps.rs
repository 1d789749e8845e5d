//! Gaps: times in which nothing was recorded, for example because a camera was disconnected.
//!
//! The index has the begin time of each block. A block is examined only if it lasts at least as long as a
//! gap, and either a gap longer or twice as long as usual. Its entries are then read. In a recording without
//! gaps no block is read, unless it is so short that the usual duration of its blocks is unknown.

use std::ops::ControlFlow;

use super::cuts::{Cut, Place};
use super::{ExportError, Source};
use crate::archive::block::Kind;
use crate::archive::index::Index;

/// Shortest gap.
pub const GAP_MIN_NS: u64 = 8_000_000_000;

/// A gap is at least this many times as long as any interval between frames before it: one frame in ten
/// seconds is no gap.
const TIMES: u64 = 4;

/// Most blocks that are examined in a search.
const BLOCKS_MAX: usize = 64;

/// Fewer blocks do not tell how long blocks usually last.
const USUAL_BLOCKS_MIN: usize = 8;

/// A gap in a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// Time of the last packet before it, in nanoseconds of the recording's time.
    pub last_before_ns: u64,
    /// The first packet after it.
    pub first_after: Cut,
}

/// Detects a gap, packet by packet.
#[derive(Debug, Default)]
struct GapDetector {
    /// The latest time so far; `None`: the time before the next packet is unknown.
    last_ns: Option<u64>,
    /// The longest interval so far; `None`: there was none.
    longest_ns: Option<u64>,
}

impl GapDetector {
    fn take(&mut self, place: Place, media_ns: u64) -> ControlFlow<Gap> {
        let ends_ns = self.last_ns.unwrap_or(media_ns);
        self.last_ns = Some(ends_ns.max(media_ns));
        let after_ns = media_ns.saturating_sub(ends_ns);
        if after_ns == 0 {
            return ControlFlow::Continue(());
        }
        let is_usual = |longest: u64| after_ns < longest.saturating_mul(TIMES);
        if after_ns >= GAP_MIN_NS && !self.longest_ns.is_none_or(is_usual) {
            return ControlFlow::Break(Gap {
                last_before_ns: ends_ns,
                first_after: Cut { place, media_ns },
            });
        }
        self.longest_ns = self.longest_ns.max(Some(after_ns));
        ControlFlow::Continue(())
    }
}

/// True if a block with this duration may contain a gap, compared with the other blocks of its section.
fn may_have_gap(duration_ns: u64, index: &Index) -> bool {
    if duration_ns < GAP_MIN_NS {
        return false;
    }
    let intact = index.records.iter().filter(|of| of.packets > 0);
    let begins: Vec<u64> = intact.map(|of| of.media_ns).collect();
    let durations = begins.windows(2).map(|of| of[1].saturating_sub(of[0]));
    let mut usual: Vec<u64> = durations.collect();
    if usual.len() < USUAL_BLOCKS_MIN {
        return true;
    }
    usual.sort_unstable();
    let usual_ns = usual[usual.len() / 2];
    duration_ns >= usual_ns.saturating_add(usual_ns.min(GAP_MIN_NS))
}

/// Activity in a block, by the index.
enum Activity {
    /// The block may contain a gap.
    MayHaveGap,
    /// The block has no gap. The mean interval between frames in nanoseconds, if it is known.
    Steady(Option<u64>),
}

impl Source {
    /// The first gap between two cuts. The packet after it may be the one that the second cut begins with.
    ///
    /// # Errors
    /// When the recording cannot be read.
    pub fn gap(&mut self, from: Cut, to: Cut) -> Result<Option<Gap>, ExportError> {
        let mut detector = GapDetector::default();
        let first = from.place.serial;
        // The interval between frames before the first block counts as well.
        if let Some(before) = first
            .checked_sub(1)
            .filter(|of| *of >= self.recording.first)
            && let Activity::Steady(each_ns) = self.activity(before, to)?
        {
            detector.longest_ns = each_ns;
        }
        let end = self.recording.end.min(to.place.serial.saturating_add(1));
        let (mut is_gap_possible, mut blocks) = (false, 0);
        for serial in first..end {
            let activity = self.activity(serial, to)?;
            // A gap at the end of a block is found at the first packet of the next one.
            let was_gap_possible = std::mem::replace(
                &mut is_gap_possible,
                matches!(activity, Activity::MayHaveGap),
            );
            if let Activity::Steady(each_ns) = activity
                && !was_gap_possible
            {
                detector.last_ns = None;
                detector.longest_ns = detector.longest_ns.max(each_ns);
                continue;
            }
            blocks += 1;
            if blocks > BLOCKS_MAX {
                return Ok(None);
            }
            let entries = self
                .archive
                .entries(&self.client, &self.recording, serial)?;
            let packets = (0..).zip(entries.iter().flatten());
            for (packet, entry) in packets.filter(|(_, entry)| entry.kind == Kind::Rtp) {
                let place = Place { serial, packet };
                // The second cut may be at reports, which come before the first packet after the gap.
                if let ControlFlow::Break(gap) = detector.take(place.min(to.place), entry.media_ns)
                    && place > from.place
                {
                    return Ok(Some(gap));
                }
                if place >= to.place {
                    break;
                }
            }
        }
        Ok(None)
    }

    /// The activity from the start of a block to the next block or to `to`.
    fn activity(&self, serial: u64, to: Cut) -> Result<Activity, ExportError> {
        let (archive, client) = (&self.archive, &self.client);
        let section = |serial| archive.index_so_far_of(client, &self.recording, serial);
        let Some(index) = section(serial)? else {
            return Ok(Activity::MayHaveGap);
        };
        let Some(of) = index.record_of(serial) else {
            // The block is damaged.
            return Ok(Activity::Steady(None));
        };
        let next = match serial < to.place.serial {
            true => section(serial + 1)?.and_then(|index| index.record_of(serial + 1)),
            false => None,
        };
        let until_ns = next.map_or(to.media_ns, |next| next.media_ns);
        let duration_ns = until_ns.saturating_sub(of.media_ns);
        Ok(match may_have_gap(duration_ns, &index) {
            true => Activity::MayHaveGap,
            false => Activity::Steady(duration_ns.checked_div(of.frames.into())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::index::Record;

    /// The packet after the first gap among packets with these times in ms, and the time before the gap in
    /// ms.
    fn found(times_ms: &[u64]) -> Option<(u32, u64)> {
        let mut detector = GapDetector::default();
        let packets = (0..).zip(times_ms);
        let mut gaps = packets.map(|(packet, at_ms)| {
            let place = Place { serial: 0, packet };
            detector.take(place, at_ms * 1_000_000).break_value()
        });
        let gap = gaps.find_map(|gap| gap)?;
        Some((gap.first_after.place.packet, gap.last_before_ns / 1_000_000))
    }

    #[test]
    fn a_long_interval_is_a_gap_unless_it_is_usual() {
        assert_eq!(found(&[0, 0, 40, 80, 9_000, 9_040, 30_000]), Some((4, 80)));
        assert_eq!(found(&[0, 40, 80, 8_079]), None);
        // Reordered pictures: sent before those that they are decoded after.
        assert_eq!(found(&[0, 120, 40, 80, 20_000]), Some((4, 120)));
        // One frame in ten seconds, and then none for a minute.
        assert_eq!(found(&[0, 10_000, 20_000, 59_000]), None);
        assert_eq!(found(&[0, 10_000, 20_000, 80_000]), Some((3, 20_000)));
    }

    #[test]
    fn a_block_of_usual_duration_has_no_gap() {
        let of = |seconds: &[u64]| {
            let mut media_ns = 0;
            let records = seconds.iter().map(|lasts| {
                media_ns += lasts * 1_000_000_000;
                Record {
                    media_ns,
                    packets: 1,
                    ..Record::default()
                }
            });
            Index {
                records: records.collect(),
                ..Index::default()
            }
        };
        let second_ns = 1_000_000_000;
        let (short, long) = (of(&[2; 64]), of(&[32; 64]));
        assert!(!may_have_gap(7 * second_ns, &short) && may_have_gap(8 * second_ns, &short));
        assert!(!may_have_gap(39 * second_ns, &long) && may_have_gap(40 * second_ns, &long));
        let usual = of(&[6; 64]);
        assert!(!may_have_gap(11 * second_ns, &usual) && may_have_gap(12 * second_ns, &usual));
        // Too few blocks to know.
        assert!(may_have_gap(32 * second_ns, &of(&[32; 5])));
    }
}
