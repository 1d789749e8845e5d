//! Reports requests that took longer than predicted, with the last of them.

use std::time::Instant;

use engine::status::PoolHealth;

use super::health::ErrorThrottle;
use crate::wire::events::{EventKind, EventView};
use crate::wire::service_times::OverrunView;

/// The overruns that have been reported, by the disk's number.
#[derive(Default)]
pub(super) struct ReportedOverruns(Vec<ErrorThrottle>);

impl ReportedOverruns {
    /// Returns the events that are due. `last` gets the last overrun of the disk with that number.
    pub(super) fn update(
        &mut self,
        health: &PoolHealth,
        now: Instant,
        last: impl Fn(usize) -> Option<OverrunView>,
    ) -> Vec<EventView> {
        self.0
            .resize_with(health.disks.len(), ErrorThrottle::default);
        let disks = self.0.iter_mut().zip(&health.disks).enumerate();
        let lines = disks.filter_map(|(number, (throttle, disk))| {
            let new = throttle.update(disk.overruns, now)?;
            let last = last(number)?;
            let what = format!(
                "disk {:?}: requests that took longer than predicted: {new} new, {} in all; the last: {last}",
                disk.name, disk.overruns,
            );
            Some(EventView {
                disk: Some(disk.name.clone()),
                ..EventView::new(EventKind::DiskOverruns, what)
            })
        });
        lines.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::wire::service_times::PieceView;
    use engine::status::DiskHealth;

    #[test]
    fn overruns_are_one_line_a_minute_with_the_request_before() {
        let begin = Instant::now();
        let mut reported = ReportedOverruns::default();
        let piece = |op: &str, sector: u64, length_bytes| PieceView {
            op: op.to_owned(),
            sector,
            position_bytes: sector * 512,
            length_bytes,
        };
        let mut update = |overruns, seconds| {
            let disks = vec![DiskHealth {
                name: "sda".to_owned(),
                overruns,
                ..DiskHealth::default()
            }];
            let health = PoolHealth {
                disks,
                ..PoolHealth::default()
            };
            let events = reported.update(&health, begin + Duration::from_secs(seconds), |number| {
                assert_eq!(number, 0);
                Some(OverrunView {
                    at: "2026-11-30T04:20:00Z".to_owned(),
                    piece: piece("read", 99, 256 << 10),
                    user: "stream".to_owned(),
                    predicted_ns: 42_000_000,
                    actual_ns: 61_200_000,
                    host_ns: 12_100_000,
                    before: Some(piece("write", 7, 8 << 10)),
                    idle_before_ns: 3_100_000,
                })
            });
            let whats = events.into_iter().map(|event| event.what);
            whats.collect::<Vec<_>>()
        };
        assert!(update(0, 0).is_empty());
        assert_eq!(
            update(2, 1),
            [
                "disk \"sda\": requests that took longer than predicted: 2 new, 2 in all; the last: read of 256 KiB at \
                 sector 99 (byte 50688) for a stream at 2026-11-30T04:20:00Z: predicted 42.0 ms, took 61.2 ms, \
                 12.1 ms of it by the host; before it, write of 8 KiB at sector 7 (byte 3584), which ended 3.1 ms \
                 before it began"
            ]
        );
        assert!(update(5, 30).is_empty());
        assert!(update(6, 61)[0].contains("4 new, 6 in all"));
    }
}
