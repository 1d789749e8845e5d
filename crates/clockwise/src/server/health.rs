//! Tells in the log of each change of the health of disks and metadata, once.

use std::time::{Duration, Instant};

use engine::status::{DiskHealth, MetadataStatus, PoolHealth};
use sched::units::Nanos;

/// Requests that fail one after another are told together: so long nothing more is told of them.
const SILENT_FOR: Duration = Duration::from_secs(60);

/// What is to be told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum News {
    /// Something is well again.
    Good(String),
    /// Something may become well by itself.
    Bad(String),
    /// Something has failed.
    Worse(String),
}

impl News {
    pub(super) fn log(&self) {
        match self {
            Self::Good(text) => tracing::info!("{text}"),
            Self::Bad(text) => tracing::warn!("{text}"),
            Self::Worse(text) => tracing::error!("{text}"),
        }
    }
}

/// Failed requests of one kind.
#[derive(Default)]
struct Errors {
    told: u64,
    told_at: Option<Instant>,
}

impl Errors {
    /// How many have not been told, if they are to be told now.
    fn turn(&mut self, count: u64, now: Instant) -> Option<u64> {
        let is_silent = |at: Instant| now.saturating_duration_since(at) < SILENT_FOR;
        if count <= self.told || self.told_at.is_some_and(is_silent) {
            return None;
        }
        self.told_at = Some(now);
        Some(count - std::mem::replace(&mut self.told, count))
    }
}

#[derive(Default)]
struct Disk {
    before: DiskHealth,
    reads: Errors,
    writes: Errors,
}

/// What has been told.
#[derive(Default)]
pub(super) struct Told {
    disks: Vec<Disk>,
    metadata: MetadataStatus,
}

impl Told {
    /// Of how things stand at `now`, what has not been told.
    pub(super) fn news(&mut self, health: PoolHealth, now: Instant) -> Vec<News> {
        let mut news = Vec::new();
        self.disks.resize_with(health.disks.len(), Disk::default);
        for (told, disk) in self.disks.iter_mut().zip(health.disks) {
            told.news(disk, now, &mut news);
        }
        of_metadata(&self.metadata, &health.metadata, &mut news);
        self.metadata = health.metadata;
        news
    }
}

impl Disk {
    fn news(&mut self, now: DiskHealth, at: Instant, news: &mut Vec<News>) {
        let before = &self.before;
        let name = &now.name;
        let answers = || News::Good(format!("disk {name:?} answers again"));
        let is_back = now.comebacks > before.comebacks;
        let stalls_anew = now.stalls > before.stalls;
        // It may have come back from one stall and be in the next.
        if is_back && stalls_anew && now.stalled_ns > 0 {
            news.push(answers());
        }
        if stalls_anew {
            let silent = Nanos(now.stalled_ns);
            news.push(News::Bad(if silent.is_zero() {
                format!("disk {name:?} has stalled")
            } else {
                format!(
                    "disk {name:?} has stalled: no answer for {silent}; what it was asked waits"
                )
            }));
        }
        let is_given_up = now.given_ups > before.given_ups;
        if is_given_up {
            news.push(News::Worse(format!(
                "disk {name:?} is given up, for it did not answer in time: what it was asked has failed"
            )));
        }
        if let Some(reason) = &now.failed
            && now.failed != before.failed
            && !is_given_up
        {
            news.push(News::Worse(format!("disk {name:?} has failed: {reason}")));
        }
        if is_back && !(stalls_anew && now.stalled_ns > 0) {
            news.push(answers());
        }
        for (errors, count, what) in [
            (&mut self.reads, now.read_errors, "reads"),
            (&mut self.writes, now.write_errors, "writes"),
        ] {
            if let Some(untold) = errors.turn(count, at) {
                let last = now.last_error.as_deref().unwrap_or("unknown");
                news.push(News::Bad(format!(
                    "disk {name:?}: {what} that failed: {untold}, {count} in all; the last failure: {last}"
                )));
            }
        }
        self.before = now;
    }
}

fn of_metadata(before: &MetadataStatus, now: &MetadataStatus, news: &mut Vec<News>) {
    let is_frozen_anew = now.freezes > before.freezes;
    let goes_on = || News::Good("the pool's metadata goes on".to_owned());
    let has_gone_on = now.resumes > before.resumes;
    if has_gone_on && before.frozen.is_some() {
        news.push(goes_on());
    }
    match &now.frozen {
        Some(reason) if is_frozen_anew || now.goes_on != before.goes_on => {
            let until = if now.goes_on {
                "until the disk takes it"
            } else {
                "until the server is started again"
            };
            news.push(News::Worse(format!(
                "the pool's metadata is frozen {until}, because it could not be written: {reason}. No volume can be \
                 made, changed or deleted, and no flush of newly written chunks succeeds; all else goes on"
            )));
        }
        None if is_frozen_anew => {
            news.push(News::Bad("the pool's metadata was frozen".to_owned()));
            news.push(goes_on());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn each_change_of_a_disk_is_told_once() {
        let begin = Instant::now();
        let mut told = Told::default();
        assert_eq!(told.news(disk(|_| ()), begin), []);
        let stalled = |disk: &mut DiskHealth| {
            (disk.stalls, disk.stalled_ns) = (1, 2_100_000_000);
        };
        let line = "disk \"sda\" has stalled: no answer for 2.100 s; what it was asked waits";
        assert_eq!(
            told.news(disk(stalled), begin),
            [News::Bad(line.to_owned())]
        );
        assert_eq!(told.news(disk(stalled), begin), []);
        let given_up = |disk: &mut DiskHealth| {
            stalled(disk);
            disk.given_ups = 1;
            disk.failed = Some("it did not answer in time".to_owned());
        };
        let news = told.news(disk(given_up), begin);
        assert!(
            matches!(news.as_slice(), [News::Worse(text)] if text.contains("given up")),
            "{news:?}"
        );
        let back = |disk: &mut DiskHealth| {
            (disk.stalls, disk.given_ups, disk.comebacks) = (1, 1, 1);
        };
        let answers = News::Good("disk \"sda\" answers again".to_owned());
        assert_eq!(told.news(disk(back), begin), std::slice::from_ref(&answers));
        // One that was over before anybody looked.
        let again = |disk: &mut DiskHealth| {
            (disk.stalls, disk.given_ups, disk.comebacks) = (2, 1, 2);
        };
        let stalled = News::Bad("disk \"sda\" has stalled".to_owned());
        assert_eq!(told.news(disk(again), begin), [stalled, answers]);
        let torn_off = |disk: &mut DiskHealth| {
            again(disk);
            disk.failed = Some("the disk is gone".to_owned());
        };
        let gone = News::Worse("disk \"sda\" has failed: the disk is gone".to_owned());
        assert_eq!(told.news(disk(torn_off), begin), [gone]);
        assert_eq!(told.news(disk(torn_off), begin), []);
    }

    #[test]
    fn failed_requests_are_counted_in_a_line_a_minute() {
        let begin = Instant::now();
        let mut told = Told::default();
        let mut news = |reads, writes, seconds| {
            let health = disk(|disk| {
                (disk.read_errors, disk.write_errors) = (reads, writes);
                disk.last_error = Some("read: Input/output error".to_owned());
            });
            told.news(health, begin + Duration::from_secs(seconds))
        };
        let line = |what: &str| {
            News::Bad(format!(
                "disk \"sda\": {what} in all; the last failure: read: Input/output error"
            ))
        };
        assert_eq!(news(1, 0, 0), [line("reads that failed: 1, 1")]);
        assert_eq!(news(500, 0, 30), []);
        assert_eq!(news(500, 2, 31), [line("writes that failed: 2, 2")]);
        assert_eq!(news(501, 2, 60), [line("reads that failed: 500, 501")]);
        assert_eq!(news(501, 2, 500), []);
    }

    #[test]
    fn metadata_that_is_frozen_and_goes_on_is_told() {
        let begin = Instant::now();
        let mut told = Told::default();
        let mut news = |frozen: Option<&str>, freezes, resumes| {
            let metadata = MetadataStatus {
                frozen: frozen.map(str::to_owned),
                frozen_ns: 0,
                goes_on: frozen.is_some(),
                freezes,
                resumes,
            };
            let disks = Vec::new();
            told.news(PoolHealth { disks, metadata }, begin)
        };
        let goes_on = News::Good("the pool's metadata goes on".to_owned());
        assert_eq!(news(None, 0, 0), []);
        let frozen = news(Some("disk \"sda\": no room"), 1, 0);
        assert!(
            matches!(
                frozen.as_slice(),
                [News::Worse(text)] if text.contains("until the disk takes it") && text.contains("no room")
            ),
            "{frozen:?}"
        );
        assert_eq!(news(Some("disk \"sda\": no room"), 1, 0), []);
        assert_eq!(news(None, 1, 1), std::slice::from_ref(&goes_on));
        let was = News::Bad("the pool's metadata was frozen".to_owned());
        assert_eq!(news(None, 2, 2), [was, goes_on]);
    }
}
