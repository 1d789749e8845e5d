//! Tells a gap from the usual time between packets.

use crate::archive::gap::GapCause;

/// Shortest silence within a session that is a gap.
const GAP_MIN_NS: u64 = 8_000_000_000;

/// A gap is at least this many times as long as any time between packets before it: one packet in ten seconds is no
/// gap.
const TIMES: u64 = 4;

/// The time since the last packet, by the arrival of packets in nanoseconds of the recording.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// Since when nothing has arrived although it could have been received; `None`: nothing was received yet.
    since_ns: Option<u64>,
    /// The longest time between two packets.
    longest_ns: u64,
    /// Why the session ended, if it ended since the last packet.
    pub(super) cause: Option<GapCause>,
}

impl Silence {
    /// True if the silence is a gap.
    pub(super) fn is_gap(&self, now_ns: u64) -> bool {
        let least_ns = GAP_MIN_NS.max(self.longest_ns.saturating_mul(TIMES));
        self.since_ns
            .is_some_and(|since| now_ns.saturating_sub(since) >= least_ns)
    }

    /// A packet has arrived. A time that is a gap does not count as usual.
    pub(super) fn end(&mut self, now_ns: u64, is_after_gap: bool) {
        if let Some(since) = self.since_ns.filter(|_| !is_after_gap) {
            self.longest_ns = self.longest_ns.max(now_ns.saturating_sub(since));
        }
        self.since_ns = Some(now_ns);
        self.cause = None;
    }

    /// Nothing can be received now, because no buffer is free.
    pub(super) fn interrupt(&mut self, now_ns: u64) {
        if let Some(since) = &mut self.since_ns {
            *since = now_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn silence_is_a_gap_unless_it_is_usual() {
        let mut silence = Silence::default();
        assert!(!silence.is_gap(100 * S));
        silence.end(100 * S, false);
        silence.end(101 * S, false);
        assert!(!silence.is_gap(108 * S) && silence.is_gap(109 * S));
        silence.end(200 * S, true);
        assert!(silence.is_gap(208 * S));
        // A time in which nothing could be received is none.
        silence.interrupt(207 * S);
        assert!(!silence.is_gap(208 * S));
        // One packet in ten seconds.
        silence.end(217 * S, false);
        assert!(!silence.is_gap(256 * S) && silence.is_gap(257 * S));
    }
}
