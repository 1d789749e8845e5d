//! Looks at the pool and the cameras each second: logs what has changed, and makes events of it.
//!
//! All of it is judged by counters, so that what begins and ends between two looks is noticed as well.

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::status::PoolHealth;
use media::archive::RecordingChange;

use super::cameras::ReportedCameras;
use super::health::{ErrorThrottle, ReportedHealth};
use super::overruns::ReportedOverruns;
use super::waits::ReportedWaits;
use crate::http::App;
use crate::wire::events::{EventKind, EventView};

/// Time between two looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// Space is low below this share of the pool, in percent.
const SPACE_LOW_PERCENT: u128 = 5;

/// Space is low no more above this share, in percent.
const SPACE_ENOUGH_PERCENT: u128 = 7;

/// Everything that has been reported.
#[derive(Default)]
struct Reported {
    health: ReportedHealth,
    overruns: ReportedOverruns,
    misses: ReportedMisses,
    waits: ReportedWaits,
    space: ReportedSpace,
    cameras: ReportedCameras,
}

/// Looks until it is aborted.
pub(super) async fn watch(app: Arc<App>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    let mut reported = Reported::default();
    loop {
        ticks.tick().await;
        let looked_at = Arc::clone(&app);
        let mut before = std::mem::take(&mut reported);
        let looked = tokio::task::spawn_blocking(move || {
            before.look(&looked_at, Instant::now());
            before
        });
        match looked.await {
            Ok(now) => reported = now,
            Err(_) => tracing::error!("the check of the disks and cameras failed"),
        }
    }
}

/// Makes an event of each recording that begins or ends from now on.
pub(super) fn report_recordings(app: &App) {
    let events = Arc::clone(&app.events);
    app.archives.listen(move |change| {
        let RecordingChange {
            volume,
            number,
            has_begun,
        } = change;
        let (kind, verb) = match has_begun {
            true => (EventKind::RecordingBegun, "begun"),
            false => (EventKind::RecordingEnded, "ended"),
        };
        let what = format!("recording {number} in volume {volume:?} has {verb}");
        events.emit(EventView {
            volume: Some(volume),
            recording: Some(number),
            ..EventView::new(kind, what)
        });
    });
}

impl Reported {
    fn look(&mut self, app: &App, now: Instant) {
        let health = app.pool.health();
        let last = |number| app.watch.last_overrun(number);
        for overruns in self.overruns.update(&health, now, last) {
            tracing::warn!("{}", overruns.what);
            app.events.emit(overruns);
        }
        for missed in self.misses.update(&health, now) {
            app.events.emit(missed);
        }
        for event in self.health.update(health, now) {
            event.log();
            app.events.emit(event.into());
        }
        let waits = app.pool.waits();
        for wait in self.waits.update(&waits) {
            tracing::warn!("{wait}");
        }
        let extents: u64 = app.pool.volumes().iter().map(|volume| volume.extents).sum();
        let free = app.pool.free().get();
        let size = free.saturating_add(extents.saturating_mul(app.pool.extent().get()));
        if let Some(low) = self.space.update(free, size) {
            app.events.emit(low);
        }
        for event in self.cameras.update(&app.sources.list()) {
            app.events.emit(event);
        }
    }
}

/// The missed deadlines that have been reported, by the disk's number.
#[derive(Default)]
struct ReportedMisses(Vec<ErrorThrottle>);

impl ReportedMisses {
    fn update(&mut self, health: &PoolHealth, now: Instant) -> Vec<EventView> {
        self.0
            .resize_with(health.disks.len(), ErrorThrottle::default);
        let disks = self.0.iter_mut().zip(&health.disks);
        let missed = disks.filter_map(|(throttle, disk)| {
            let new = throttle.update(disk.misses, now)?;
            let what = format!(
                "disk {:?} has missed deadlines: {new} new, {} in all",
                disk.name, disk.misses
            );
            let disk = Some(disk.name.clone());
            Some(EventView {
                disk,
                ..EventView::new(EventKind::DeadlineMissed, what)
            })
        });
        missed.collect()
    }
}

/// Whether low space has been reported.
#[derive(Default)]
struct ReportedSpace {
    is_low: bool,
}

impl ReportedSpace {
    /// `free` and `size` are of the pool, in bytes.
    fn update(&mut self, free: u64, size: u64) -> Option<EventView> {
        let is_below = |percent: u128| u128::from(free) * 100 < u128::from(size) * percent;
        let was_low = self.is_low;
        self.is_low = match was_low {
            true => is_below(SPACE_ENOUGH_PERCENT),
            false => is_below(SPACE_LOW_PERCENT),
        };
        (self.is_low && !was_low).then(|| {
            let share = u128::from(free) * 1_000 / u128::from(size.max(1));
            let what = format!(
                "{}.{} % of the pool is free for volumes",
                share / 10,
                share % 10
            );
            EventView::new(EventKind::SpaceLow, what)
        })
    }
}

#[cfg(test)]
mod tests {
    use engine::status::DiskHealth;

    use super::*;

    #[test]
    fn low_space_is_reported_once_until_there_is_enough_again() {
        let mut space = ReportedSpace::default();
        let mut update = |free| space.update(free, 1_000).map(|event| event.what);
        assert_eq!(update(50), None);
        assert_eq!(
            update(49).as_deref(),
            Some("4.9 % of the pool is free for volumes")
        );
        assert_eq!(update(10), None);
        assert_eq!(update(69), None);
        assert_eq!(update(40), None);
        assert_eq!(update(70), None);
        assert_eq!(
            update(0).as_deref(),
            Some("0.0 % of the pool is free for volumes")
        );
        // A pool without any extent has none to be low of.
        assert_eq!(ReportedSpace::default().update(0, 0), None);
    }

    #[test]
    fn missed_deadlines_are_one_event_a_minute_for_each_disk() {
        let begin = Instant::now();
        let mut reported = ReportedMisses::default();
        let mut update = |misses, seconds| {
            let disk = DiskHealth {
                name: "sda".to_owned(),
                misses,
                ..DiskHealth::default()
            };
            let health = PoolHealth {
                disks: vec![disk],
                ..PoolHealth::default()
            };
            let events = reported.update(&health, begin + Duration::from_secs(seconds));
            let whats = events.into_iter().map(|event| event.what);
            whats.collect::<Vec<_>>()
        };
        assert_eq!(update(0, 0), [""; 0]);
        assert_eq!(
            update(2, 1),
            ["disk \"sda\" has missed deadlines: 2 new, 2 in all"]
        );
        assert_eq!(update(3, 30), [""; 0]);
        assert_eq!(
            update(3, 61),
            ["disk \"sda\" has missed deadlines: 1 new, 3 in all"]
        );
    }
}
