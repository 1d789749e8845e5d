//! Times in which nothing came, as where a camera was lost.

use std::ops::ControlFlow;

use super::super::block::{Block, Kind};
use super::cuts::{Cut, Place};
use super::{ExportError, Source};

/// Nothing comes for so long, at least.
pub const LULL_NS: u64 = 8_000_000_000;

/// And for so many times as long as between any two frames before: what is recorded once in ten seconds is no lull.
const TIMES: u64 = 4;

/// It is looked for in so many blocks: what is longer, up to a key frame, is no more than that.
const BLOCKS_MAX: u64 = 64;

/// Nothing came for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lull {
    /// When the last of what came before is played, in nanoseconds of the recording.
    pub ends_ns: u64,
    /// The first packet that came behind it.
    pub behind: Cut,
}

/// Looks for one, packet by packet.
#[derive(Debug)]
struct Look {
    /// The latest time so far.
    last_ns: u64,
    /// The longest between two times so far; `None`: there was one time.
    longest_ns: Option<u64>,
}

impl Look {
    fn take(&mut self, place: Place, media_ns: u64) -> ControlFlow<Lull> {
        let after_ns = media_ns.saturating_sub(self.last_ns);
        if after_ns == 0 {
            return ControlFlow::Continue(());
        }
        let ends_ns = std::mem::replace(&mut self.last_ns, media_ns);
        let is_usual = |longest: u64| after_ns < longest.saturating_mul(TIMES);
        if after_ns >= LULL_NS && !self.longest_ns.is_none_or(is_usual) {
            return ControlFlow::Break(Lull {
                ends_ns,
                behind: Cut { place, media_ns },
            });
        }
        self.longest_ns = self.longest_ns.max(Some(after_ns));
        ControlFlow::Continue(())
    }
}

impl Source {
    /// The first time between two places in which nothing came for long; what comes behind it may be what the other one
    /// begins with.
    ///
    /// # Errors
    /// When the recording cannot be read.
    pub fn lull(&mut self, from: Cut, to: Place) -> Result<Option<Lull>, ExportError> {
        let mut look = Look {
            last_ns: from.media_ns,
            longest_ns: None,
        };
        let end = self.recording.end.min(to.serial.saturating_add(1));
        for serial in from.place.serial..end.min(from.place.serial + BLOCKS_MAX) {
            if !self.load(serial)? {
                continue;
            }
            let kept = self.kept.as_ref();
            let Some(block) = kept.and_then(|(_, bytes)| Block::parse(bytes).ok()) else {
                continue;
            };
            let places = (0..block.len()).map(|number| Place {
                serial,
                packet: number as u32,
            });
            for place in places.filter(|place| (from.place..=to).contains(place)) {
                let Some((entry, _)) = block.packet(place.packet as usize) else {
                    continue;
                };
                if entry.kind == Kind::Rtp
                    && let ControlFlow::Break(lull) = look.take(place, entry.media_ns)
                {
                    return Ok(Some(lull));
                }
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of the packet behind the first lull among packets of these times in ms, and when it ends.
    fn found(times_ms: &[u64]) -> Option<(u32, u64)> {
        let mut look = Look {
            last_ns: times_ms[0] * 1_000_000,
            longest_ns: None,
        };
        let packets = (0..).zip(times_ms);
        let mut looks = packets.map(|(packet, at_ms)| {
            let place = Place { serial: 0, packet };
            look.take(place, at_ms * 1_000_000).break_value()
        });
        let lull = looks.find_map(|lull| lull)?;
        Some((lull.behind.place.packet, lull.ends_ns / 1_000_000))
    }

    #[test]
    fn where_nothing_came_for_long_is_a_lull_unless_it_is_always_so() {
        assert_eq!(found(&[0, 0, 40, 80, 9_000, 9_040, 30_000]), Some((4, 80)));
        assert_eq!(found(&[0, 40, 80, 8_079]), None);
        // Pictures come before those that they refer to.
        assert_eq!(found(&[0, 120, 40, 80, 20_000]), Some((4, 120)));
        // Once in ten seconds, and then not for a minute.
        assert_eq!(found(&[0, 10_000, 20_000, 59_000]), None);
        assert_eq!(found(&[0, 10_000, 20_000, 80_000]), Some((3, 20_000)));
    }
}
