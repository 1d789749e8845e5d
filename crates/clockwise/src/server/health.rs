//! Logs each change of the health of disks and metadata, once.

use std::time::{Duration, Instant};

use engine::status::{DiskHealth, MetadataStatus, PoolHealth};
use sched::units::Nanos;

use crate::wire::events::{EventKind, EventView};

/// Time without a further line about failed requests of the same kind, which the next line counts.
const SILENT_FOR: Duration = Duration::from_secs(60);

/// The level of an event in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    /// A fault has ended.
    Recovered,
    /// A fault that may end by itself.
    Degraded,
    /// A lasting fault.
    Failed,
}

/// A change of the health of a disk or of the metadata.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct HealthEvent {
    level: Level,
    kind: EventKind,
    /// The disk, unless it is about the metadata.
    disk: Option<String>,
    text: String,
}

impl HealthEvent {
    fn of_disk(level: Level, kind: EventKind, disk: &str, text: String) -> Self {
        let disk = Some(disk.to_owned());
        Self {
            level,
            kind,
            disk,
            text,
        }
    }

    fn of_metadata(level: Level, kind: EventKind, text: String) -> Self {
        Self {
            level,
            kind,
            disk: None,
            text,
        }
    }

    pub(super) fn log(&self) {
        let text = &self.text;
        match self.level {
            Level::Recovered => tracing::info!("{text}"),
            Level::Degraded => tracing::warn!("{text}"),
            Level::Failed => tracing::error!("{text}"),
        }
    }
}

impl From<HealthEvent> for EventView {
    fn from(event: HealthEvent) -> Self {
        let disk = event.disk;
        Self {
            disk,
            ..Self::new(event.kind, event.text)
        }
    }
}

/// Limits the lines about failed requests of one kind.
#[derive(Default)]
pub(super) struct ErrorThrottle {
    /// The count in the last line.
    reported: u64,
    reported_at: Option<Instant>,
}

impl ErrorThrottle {
    /// Returns the number of failures since the last line, if a line is due.
    pub(super) fn update(&mut self, count: u64, now: Instant) -> Option<u64> {
        let is_silent = |at: Instant| now.saturating_duration_since(at) < SILENT_FOR;
        if count <= self.reported || self.reported_at.is_some_and(is_silent) {
            return None;
        }
        self.reported_at = Some(now);
        Some(count - std::mem::replace(&mut self.reported, count))
    }
}

/// The reported health of a disk.
#[derive(Default)]
struct ReportedDisk {
    before: DiskHealth,
    reads: ErrorThrottle,
    writes: ErrorThrottle,
}

/// The health that has been reported.
#[derive(Default)]
pub(super) struct ReportedHealth {
    disks: Vec<ReportedDisk>,
    metadata: MetadataStatus,
}

impl ReportedHealth {
    /// Returns the events since the last call.
    pub(super) fn update(&mut self, health: PoolHealth, now: Instant) -> Vec<HealthEvent> {
        let mut events = Vec::new();
        self.disks
            .resize_with(health.disks.len(), ReportedDisk::default);
        for (reported, disk) in self.disks.iter_mut().zip(health.disks) {
            reported.update(disk, now, &mut events);
        }
        metadata_events(&self.metadata, &health.metadata, &mut events);
        self.metadata = health.metadata;
        events
    }
}

impl ReportedDisk {
    fn update(&mut self, now: DiskHealth, at: Instant, events: &mut Vec<HealthEvent>) {
        let before = &self.before;
        let name = &now.name;
        let event = |level, kind, text| HealthEvent::of_disk(level, kind, name, text);
        let answers = || {
            let text = format!("disk {name:?} answers again");
            event(Level::Recovered, EventKind::DiskBack, text)
        };
        let is_back = now.comebacks > before.comebacks;
        let stalls_anew = now.stalls > before.stalls;
        // The disk may have recovered from one stall and be in the next.
        if is_back && stalls_anew && now.stalled_ns > 0 {
            events.push(answers());
        }
        if stalls_anew {
            let silent = Nanos(now.stalled_ns);
            let text = if silent.is_zero() {
                format!("disk {name:?} has stalled")
            } else {
                format!("disk {name:?} has stalled: no answer for {silent}; its requests wait")
            };
            events.push(event(Level::Degraded, EventKind::DiskStalled, text));
        }
        let is_given_up = now.given_ups > before.given_ups;
        let reason = now.failed.as_ref().filter(|_| now.failed != before.failed);
        let failed = if is_given_up {
            Some(format!(
                "disk {name:?} is given up because it did not answer in time: its requests have failed"
            ))
        } else {
            reason.map(|reason| format!("disk {name:?} has failed: {reason}"))
        };
        if let Some(text) = failed {
            events.push(event(Level::Failed, EventKind::DiskFailed, text));
        }
        if is_back && !(stalls_anew && now.stalled_ns > 0) {
            events.push(answers());
        }
        for (errors, count, what) in [
            (&mut self.reads, now.read_errors, "reads"),
            (&mut self.writes, now.write_errors, "writes"),
        ] {
            if let Some(new) = errors.update(count, at) {
                let last = now.last_error.as_deref().unwrap_or("unknown");
                let text = format!(
                    "disk {name:?}: failed {what}: {new} new, {count} in all; the last failure: {last}"
                );
                events.push(event(Level::Degraded, EventKind::DiskError, text));
            }
        }
        self.before = now;
    }
}

fn metadata_events(before: &MetadataStatus, now: &MetadataStatus, events: &mut Vec<HealthEvent>) {
    let is_frozen_anew = now.freezes > before.freezes;
    let resumed = || {
        let text = "the pool's metadata can be written again".to_owned();
        HealthEvent::of_metadata(Level::Recovered, EventKind::MetadataResumed, text)
    };
    let has_resumed = now.resumes > before.resumes;
    if has_resumed && before.frozen.is_some() {
        events.push(resumed());
    }
    match &now.frozen {
        Some(reason) if is_frozen_anew || now.goes_on != before.goes_on => {
            let until = if now.goes_on {
                "until the disk accepts writes"
            } else {
                "until the server is restarted"
            };
            let text = format!(
                "the pool's metadata is frozen {until}, because it could not be written: {reason}. Volumes cannot be \
                 made, changed or deleted, and flushes of newly written chunks fail; everything else continues"
            );
            events.push(HealthEvent::of_metadata(
                Level::Failed,
                EventKind::MetadataFrozen,
                text,
            ));
        }
        None if is_frozen_anew => {
            let text = "the pool's metadata was frozen".to_owned();
            events.push(HealthEvent::of_metadata(
                Level::Degraded,
                EventKind::MetadataFrozen,
                text,
            ));
            events.push(resumed());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Level and text of each event.
    fn said(events: Vec<HealthEvent>) -> Vec<(Level, String)> {
        let said = events.into_iter().map(|event| (event.level, event.text));
        said.collect()
    }

    fn disk(change: impl FnOnce(&mut DiskHealth)) -> PoolHealth {
        let mut disk = DiskHealth {
            name: "sda".to_owned(),
            ..DiskHealth::default()
        };
        change(&mut disk);
        PoolHealth {
            disks: vec![disk],
            metadata: MetadataStatus::default(),
        }
    }

    #[test]
    fn change_of_a_disk_is_reported_once() {
        let begin = Instant::now();
        let mut reported = ReportedHealth::default();
        assert_eq!(said(reported.update(disk(|_| ()), begin)), []);
        let stalled = |disk: &mut DiskHealth| {
            (disk.stalls, disk.stalled_ns) = (1, 2_100_000_000);
        };
        let line = "disk \"sda\" has stalled: no answer for 2.100 s; its requests wait";
        assert_eq!(
            said(reported.update(disk(stalled), begin)),
            [(Level::Degraded, line.to_owned())]
        );
        assert_eq!(said(reported.update(disk(stalled), begin)), []);
        let given_up = |disk: &mut DiskHealth| {
            stalled(disk);
            disk.given_ups = 1;
            disk.failed = Some("it did not answer in time".to_owned());
        };
        let events = said(reported.update(disk(given_up), begin));
        assert!(
            matches!(events.as_slice(), [(Level::Failed, text)] if text.contains("given up")),
            "{events:?}"
        );
        let back = |disk: &mut DiskHealth| {
            (disk.stalls, disk.given_ups, disk.comebacks) = (1, 1, 1);
        };
        let answers = (Level::Recovered, "disk \"sda\" answers again".to_owned());
        assert_eq!(
            said(reported.update(disk(back), begin)),
            std::slice::from_ref(&answers)
        );
        // A stall that ended before an update.
        let again = |disk: &mut DiskHealth| {
            (disk.stalls, disk.given_ups, disk.comebacks) = (2, 1, 2);
        };
        let stalled = (Level::Degraded, "disk \"sda\" has stalled".to_owned());
        assert_eq!(
            said(reported.update(disk(again), begin)),
            [stalled, answers]
        );
        let torn_off = |disk: &mut DiskHealth| {
            again(disk);
            disk.failed = Some("the disk is gone".to_owned());
        };
        let gone = (
            Level::Failed,
            "disk \"sda\" has failed: the disk is gone".to_owned(),
        );
        assert_eq!(said(reported.update(disk(torn_off), begin)), [gone]);
        assert_eq!(said(reported.update(disk(torn_off), begin)), []);
    }

    #[test]
    fn failed_requests_are_counted_in_one_line_a_minute() {
        let begin = Instant::now();
        let mut reported = ReportedHealth::default();
        let mut update = |reads, writes, seconds| {
            let health = disk(|disk| {
                (disk.read_errors, disk.write_errors) = (reads, writes);
                disk.last_error = Some("read: Input/output error".to_owned());
            });
            said(reported.update(health, begin + Duration::from_secs(seconds)))
        };
        let line = |what: &str| {
            let text = "in all; the last failure: read: Input/output error";
            (Level::Degraded, format!("disk \"sda\": {what} {text}"))
        };
        assert_eq!(update(1, 0, 0), [line("failed reads: 1 new, 1")]);
        assert_eq!(update(500, 0, 30), []);
        assert_eq!(update(500, 2, 31), [line("failed writes: 2 new, 2")]);
        assert_eq!(update(501, 2, 60), [line("failed reads: 500 new, 501")]);
        assert_eq!(update(501, 2, 500), []);
    }

    #[test]
    fn freezing_and_resuming_of_metadata_are_reported() {
        let begin = Instant::now();
        let mut reported = ReportedHealth::default();
        let mut update = |frozen: Option<&str>, freezes, resumes| {
            let metadata = MetadataStatus {
                frozen: frozen.map(str::to_owned),
                frozen_ns: 0,
                goes_on: frozen.is_some(),
                freezes,
                resumes,
            };
            let disks = Vec::new();
            said(reported.update(PoolHealth { disks, metadata }, begin))
        };
        let resumed = (
            Level::Recovered,
            "the pool's metadata can be written again".to_owned(),
        );
        assert_eq!(update(None, 0, 0), []);
        let frozen = update(Some("disk \"sda\": no room"), 1, 0);
        assert!(
            matches!(
                frozen.as_slice(),
                [(Level::Failed, text)] if text.contains("until the disk accepts writes") && text.contains("no room")
            ),
            "{frozen:?}"
        );
        assert_eq!(update(Some("disk \"sda\": no room"), 1, 0), []);
        assert_eq!(update(None, 1, 1), std::slice::from_ref(&resumed));
        let was = (Level::Degraded, "the pool's metadata was frozen".to_owned());
        assert_eq!(update(None, 2, 2), [was, resumed]);
    }
}
