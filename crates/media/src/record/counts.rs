//! Counts of the packets of a recording, and the missing ones among them.

use engine::clock;
use sched::units::{Nanos, Time};

use super::missing::{LossReason, MissingLog, MissingRange, Notice};

/// Counts of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Recorded RTP packets.
    pub packets: u64,
    /// Recorded RTCP packets.
    pub reports: u64,
    /// Bytes of both, with their headers.
    pub bytes: u64,
    /// RTP packets that had not arrived when a later one did, or that arrived and could not be recorded. Some of
    /// them may have arrived late.
    pub lost: u64,
    /// Packets among `lost` that arrived, or were perhaps not sent, while no buffer was free.
    pub lost_without_buffer: u64,
    /// Packets that arrived a second time and were left out.
    pub duplicates: u64,
    /// Packets of another sender and malformed packets; those of the track's sender are also among `lost`.
    pub strangers: u64,
    /// Packets that are longer than the room in a block; those of the track's sender are also among `lost`.
    pub too_long: u64,
    /// Bytes of bodies that this program has copied.
    pub copied_bytes: u64,
}

/// The missing packets that are to be logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LogScope {
    /// Those that are due: lines are written once a second.
    Due,
    /// All of them, at the end.
    All,
}

/// Counts packets and keeps the ranges of missing ones until they are logged.
pub(super) struct PacketCounts {
    pub(super) tally: Tally,
    missing: MissingLog,
    begun: Time,
}

impl PacketCounts {
    /// Of a recording that began at `begun`.
    pub(super) fn new(begun: Time) -> Self {
        Self {
            tally: Tally::default(),
            missing: MissingLog::default(),
            begun,
        }
    }

    /// Nanoseconds since the recording began.
    pub(super) fn now_ns(&self) -> u64 {
        clock::now().saturating_since(self.begun).get()
    }

    /// Counts missing packets, and notes their numbers, `first` to `last`.
    pub(super) fn note_lost(
        &mut self,
        lost: u32,
        (track, first, last): (usize, u16, u16),
        at_ns: u64,
        why: LossReason,
    ) {
        self.tally.lost += u64::from(lost);
        self.note_range((track, first, last), at_ns, why);
    }

    /// Notes the numbers of packets that are missing, or that may be.
    pub(super) fn note_range(
        &mut self,
        (track, first, last): (usize, u16, u16),
        at_ns: u64,
        why: LossReason,
    ) {
        let range = MissingRange {
            track,
            first,
            last,
            at: Nanos(at_ns),
            why,
        };
        self.missing.note(range, clock::now());
    }

    /// A packet that was noted as missing has arrived.
    pub(super) fn note_late(&mut self, track: usize, number: u16) {
        self.missing.came(track, number);
    }

    /// The missing packets that are to be logged.
    pub(super) fn take_missing(&mut self, which: LogScope) -> Option<Notice> {
        self.missing.tell(clock::now(), which == LogScope::All)
    }
}
