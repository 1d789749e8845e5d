//! Times in which nothing came, as where a camera was lost.
//!
//! The index says when blocks begin, so only those are looked into that last for longer than such a time, and than others
//! around them by as much, or twice as long; and of these only the entries of their packets are read. Where nothing is amiss
//! no block is, but of recordings so short that it is not known how long their blocks last.

use std::ops::ControlFlow;

use super::cuts::{Cut, Place};
use super::{ExportError, Source};
use crate::archive::block::Kind;
use crate::archive::index::Index;

/// Nothing comes for so long, at least.
pub const GAP_MIN_NS: u64 = 8_000_000_000;

/// And for so many times as long as between any two frames before: what is recorded once in ten seconds is no gap.
const TIMES: u64 = 4;

/// So many blocks are looked into for one.
const BLOCKS_MAX: usize = 64;

/// Of fewer blocks it is not known how long they usually last.
const TELLING_BLOCKS: usize = 8;

/// Nothing came for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// When the last of what came before is played, in nanoseconds of the recording.
    pub ends_ns: u64,
    /// The first packet that came behind it.
    pub behind: Cut,
}

/// Looks for one, packet by packet.
#[derive(Debug, Default)]
struct Look {
    /// The latest time so far; `None`: nothing is known to have come just before.
    last_ns: Option<u64>,
    /// The longest between two times so far; `None`: there was one time.
    longest_ns: Option<u64>,
}

impl Look {
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
                ends_ns,
                behind: Cut { place, media_ns },
            });
        }
        self.longest_ns = self.longest_ns.max(Some(after_ns));
        ControlFlow::Continue(())
    }
}

/// Whether nothing may have come for long in a block that lasts for so long, among those of its section.
fn is_long(lasts_ns: u64, index: &Index) -> bool {
    if lasts_ns < GAP_MIN_NS {
        return false;
    }
    let there = index.records.iter().filter(|of| of.packets > 0);
    let begins: Vec<u64> = there.map(|of| of.media_ns).collect();
    let last = begins.windows(2).map(|of| of[1].saturating_sub(of[0]));
    let mut usual: Vec<u64> = last.collect();
    if usual.len() < TELLING_BLOCKS {
        return true;
    }
    usual.sort_unstable();
    let usual_ns = usual[usual.len() / 2];
    lasts_ns >= usual_ns.saturating_add(usual_ns.min(GAP_MIN_NS))
}

/// What the index says of a block.
enum Says {
    /// Nothing may have come for long in it.
    MayHaveGap,
    /// Something has come all the time, on the average so often, if that is known.
    Comes(Option<u64>),
}

impl Source {
    /// The first time between two places in which nothing came for long; what comes behind it may be what the other one
    /// begins with.
    ///
    /// # Errors
    /// When the recording cannot be read.
    pub fn gap(&mut self, from: Cut, to: Cut) -> Result<Option<Gap>, ExportError> {
        let mut look = Look::default();
        let first = from.place.serial;
        // How often something came before the first one is known as well.
        if let Some(before) = first
            .checked_sub(1)
            .filter(|of| *of >= self.recording.first)
            && let Says::Comes(each_ns) = self.says(before, to)?
        {
            look.longest_ns = each_ns;
        }
        let end = self.recording.end.min(to.place.serial.saturating_add(1));
        let (mut may_gap, mut blocks) = (false, 0);
        for serial in first..end {
            let says = self.says(serial, to)?;
            // What comes first in the next one may be behind it.
            let is_behind = std::mem::replace(&mut may_gap, matches!(says, Says::MayHaveGap));
            if let Says::Comes(each_ns) = says
                && !is_behind
            {
                look.last_ns = None;
                look.longest_ns = look.longest_ns.max(each_ns);
                continue;
            }
            blocks += 1;
            if blocks > BLOCKS_MAX {
                return Ok(None);
            }
            let entries = self
                .archive
                .entries(&self.client, &self.recording, serial)?;
            for (packet, entry) in (0..).zip(entries.iter().flatten()) {
                let place = Place { serial, packet };
                if entry.kind == Kind::Rtp
                    && place <= to.place
                    && let ControlFlow::Break(gap) = look.take(place, entry.media_ns)
                    && place > from.place
                {
                    return Ok(Some(gap));
                }
            }
        }
        Ok(None)
    }

    /// What the index says of the time between the beginning of a block and that of the next one, or that place.
    fn says(&self, serial: u64, to: Cut) -> Result<Says, ExportError> {
        let (archive, client) = (&self.archive, &self.client);
        let section = |serial| archive.index_so_far_of(client, &self.recording, serial);
        let Some(index) = section(serial)? else {
            return Ok(Says::MayHaveGap);
        };
        let Some(of) = index.record_of(serial) else {
            // It is damaged.
            return Ok(Says::Comes(None));
        };
        let next = match serial < to.place.serial {
            true => section(serial + 1)?.and_then(|index| index.record_of(serial + 1)),
            false => None,
        };
        let until_ns = next.map_or(to.media_ns, |next| next.media_ns);
        let lasts_ns = until_ns.saturating_sub(of.media_ns);
        Ok(match is_long(lasts_ns, &index) {
            true => Says::MayHaveGap,
            false => Says::Comes(lasts_ns.checked_div(of.frames.into())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::index::Record;

    /// The number of the packet behind the first gap among packets of these times in ms, and when it ends.
    fn found(times_ms: &[u64]) -> Option<(u32, u64)> {
        let mut look = Look::default();
        let packets = (0..).zip(times_ms);
        let mut looks = packets.map(|(packet, at_ms)| {
            let place = Place { serial: 0, packet };
            look.take(place, at_ms * 1_000_000).break_value()
        });
        let gap = looks.find_map(|gap| gap)?;
        Some((gap.behind.place.packet, gap.ends_ns / 1_000_000))
    }

    #[test]
    fn where_nothing_came_for_long_is_a_gap_unless_it_is_always_so() {
        assert_eq!(found(&[0, 0, 40, 80, 9_000, 9_040, 30_000]), Some((4, 80)));
        assert_eq!(found(&[0, 40, 80, 8_079]), None);
        // Pictures come before those that they refer to.
        assert_eq!(found(&[0, 120, 40, 80, 20_000]), Some((4, 120)));
        // Once in ten seconds, and then not for a minute.
        assert_eq!(found(&[0, 10_000, 20_000, 59_000]), None);
        assert_eq!(found(&[0, 10_000, 20_000, 80_000]), Some((3, 20_000)));
    }

    #[test]
    fn a_block_that_lasts_no_longer_than_others_is_not_looked_into() {
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
        assert!(!is_long(7 * second_ns, &short) && is_long(8 * second_ns, &short));
        assert!(!is_long(39 * second_ns, &long) && is_long(40 * second_ns, &long));
        let usual = of(&[6; 64]);
        assert!(!is_long(11 * second_ns, &usual) && is_long(12 * second_ns, &usual));
        // Of a few nobody knows.
        assert!(is_long(32 * second_ns, &of(&[32; 5])));
    }
}
