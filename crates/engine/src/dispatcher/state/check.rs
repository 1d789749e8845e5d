//! Invariants, in builds with debug assertions.

use super::super::slots::index_of;
use super::{DispatcherState, Phase};

impl DispatcherState {
    /// Checks invariants. The expensive checks scan all slots, so they run on a sample of events.
    pub(super) fn check(&self) {
        assert!(
            self.on_disk <= self.disk_places,
            "more pieces on the disk than it has places"
        );
        assert!(self.on_disk <= self.live, "a piece of no request");
        if self.events.is_multiple_of(64) {
            let entries = || self.entries.iter().flatten();
            assert_eq!(self.live, entries().count());
            assert_eq!(
                self.on_disk,
                entries()
                    .filter(|entry| entry.phase == Phase::OnDisk)
                    .count()
            );
            let queued_gone = entries()
                .any(|entry| entry.phase == Phase::Queued && self.refusal(entry.class).is_some());
            assert!(
                !queued_gone || self.stopping,
                "a request waits for what will not come"
            );
            for (index, entry) in self.entries.iter().enumerate() {
                assert!(
                    entry
                        .as_ref()
                        .is_none_or(|entry| index_of(entry.id) == index)
                );
            }
        }
    }
}
