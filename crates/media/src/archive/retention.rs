//! The retention thread: deletes blocks that are too old or too many, and adjusts the length of volumes.
//!
//! It sleeps until the next block of some volume is too old, but checks each volume at most once per step,
//! usually a minute, because each check that deletes something writes to the disks. Blocks beyond the size
//! limit are hidden as soon as newer blocks are written; the check deletes them durably and discards them.
//!
//! It also grows and shrinks volumes. A recording wakes it when the writer has come to where that is due.
//!
//! It opens a volume's archive only during a check, so that the volume can be deleted otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::clock;
use engine::pool::PoolError;
use sched::units::Nanos;

use crate::archive::ArchiveError;
use crate::archive::archives::{Archives, OpenError};
use crate::archive::locks::Lock;
use crate::archive::retention_record::RetentionLimits;
use crate::archive::wall_clock;

/// Longest interval between two checks of a volume.
const STEP_MAX: Nanos = Nanos::from_secs(60);

/// Shortest interval between two checks of a volume.
const STEP_MIN: Nanos = Nanos::from_secs(1);

/// Longest sleep. The wall clock may be set during a sleep.
const SLEEP_MAX: Duration = Duration::from_secs(3_600);

/// Volumes and the times of their next checks.
#[derive(Debug, Default)]
struct PendingChecks {
    volumes: BTreeMap<String, Instant>,
    is_closing: bool,
}

/// Queue of the volumes that the retention thread checks.
#[derive(Debug, Default)]
pub struct RetentionSchedule {
    pending: Mutex<PendingChecks>,
    changed: Condvar,
}

impl RetentionSchedule {
    fn pending(&self) -> MutexGuard<'_, PendingChecks> {
        // Each value is changed in one step, so it is valid after a panic.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests a check of a volume now.
    pub fn look_at(&self, volume: &str) {
        self.pending()
            .volumes
            .insert(volume.to_owned(), Instant::now());
        self.changed.notify_all();
    }

    /// Sleeps until a check is due, and returns the volume; `None` after [`close`](Self::close).
    fn next(&self) -> Option<String> {
        let mut pending = self.pending();
        loop {
            if pending.is_closing {
                return None;
            }
            let now = Instant::now();
            let first = pending.volumes.iter().min_by_key(|(_, at)| **at);
            let sleep = match first {
                Some((name, at)) if *at <= now => {
                    let name = name.clone();
                    pending.volumes.remove(&name);
                    return Some(name);
                }
                Some((_, at)) => at.duration_since(now),
                None => SLEEP_MAX,
            };
            let waited = self.changed.wait_timeout(pending, sleep);
            pending = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Schedules a check of a volume, unless an earlier one is scheduled.
    fn schedule(&self, volume: String, after: Duration) {
        let at = Instant::now() + after;
        self.pending().volumes.entry(volume).or_insert(at);
    }

    fn close(&self) {
        self.pending().is_closing = true;
        self.changed.notify_all();
    }
}

/// Shortest wait for the next check: a block is retained at most 1/64 longer than the age limit, or a second.
fn wait_min(keep: RetentionLimits) -> Nanos {
    let age = keep.age.map_or(STEP_MAX, |age| Nanos(age.get() / 64));
    age.clamp(STEP_MIN, STEP_MAX)
}

/// Time until the next check, if the next block is too old at `next_unix_ns`; `None` if no check is needed
/// without a request.
fn wait(keep: RetentionLimits, now_unix_ns: u64, next_unix_ns: Option<u64>) -> Option<Duration> {
    let of_age = keep.age.map(|age| {
        // A block that is recorded from now on is too old after that long.
        let due = next_unix_ns.unwrap_or(now_unix_ns.saturating_add(age.get()));
        Nanos(due.saturating_sub(now_unix_ns))
    });
    let of_size = keep.size.map(|_| STEP_MAX);
    let first = of_age.into_iter().chain(of_size).min()?;
    Some(Duration::from_nanos(first.max(wait_min(keep)).get()).min(SLEEP_MAX))
}

/// Handle of the retention thread. Dropping it ends the thread.
#[derive(Debug)]
pub struct Retention {
    archives: Arc<Archives>,
    thread: Option<JoinHandle<()>>,
}

impl Retention {
    /// Finds the volumes with something to do, which reads the header of each written volume, and starts the
    /// thread.
    ///
    /// # Errors
    /// When the host cannot start a thread.
    pub fn start(archives: Arc<Archives>) -> std::io::Result<Self> {
        let checked = Arc::clone(&archives);
        for volume in archives.pool().volumes() {
            match archives.needs_retention(&volume.name) {
                Ok(true) => archives.looks().look_at(&volume.name),
                Ok(false) => {}
                Err(error) => {
                    let volume = volume.name;
                    tracing::warn!(volume, %error, "retention limits could not be read; they are not enforced until the volume is used");
                }
            }
        }
        let thread = std::thread::Builder::new()
            .name("retention".to_owned())
            .spawn(move || {
                let mut seen = BTreeSet::new();
                let mut trusted = wall_clock::TrustedClock::default();
                while let Some(volume) = checked.looks().next() {
                    let is_first = seen.insert(volume.clone());
                    let was_doubted = trusted.is_doubted();
                    let now = trusted.observe(wall_clock::now_unix_ns(), clock::now());
                    if trusted.is_doubted() && !was_doubted {
                        tracing::warn!("the host's clock was set ahead; for a day, retention by age ignores that step");
                    }
                    if let Some(after) = check(&checked, &volume, now, is_first) {
                        checked.looks().schedule(volume, after);
                    }
                }
            })?;
        Ok(Self {
            archives,
            thread: Some(thread),
        })
    }
}

impl Drop for Retention {
    fn drop(&mut self) {
        self.archives.looks().close();
        if let Some(thread) = self.thread.take() {
            // The thread does not panic.
            let _ = thread.join();
        }
    }
}

/// Checks a volume. Returns the time until its next check; `None` if it needs none without a request.
fn check(
    archives: &Archives,
    volume: &str,
    now: wall_clock::Instant,
    is_first: bool,
) -> Option<Duration> {
    match try_check(archives, volume, now, is_first) {
        Ok(after) => after,
        Err(
            OpenError::Pool(PoolError::NoSuchVolume(_) | PoolError::Closed)
            | OpenError::Archive(ArchiveError::Empty(_) | ArchiveError::Foreign(_)),
        ) => None,
        Err(error) => {
            tracing::warn!(volume, %error, "retention check failed and will be repeated in a minute; until then old recordings are kept, and the volume neither grows nor shrinks");
            Some(Duration::from_nanos(STEP_MAX.get()))
        }
    }
}

fn try_check(
    archives: &Archives,
    volume: &str,
    now: wall_clock::Instant,
    is_first: bool,
) -> Result<Option<Duration>, OpenError> {
    let archive = archives.open(volume, None)?;
    let client = archives.client()?;
    if let Some(lock) = archive.lock() {
        drop(archive);
        return expire(archives, volume, &lock, now);
    }
    if is_first {
        archive.discard_deleted(&client);
    }
    let next = archive.expire(&client, now)?;
    let length = archives.adjust_length(&archive)?;
    let waits = wait(archive.retention(), now.unix_ns, next).into_iter();
    Ok(waits.chain(length).min())
}

/// Deletes a lock that has expired. Returns the time until it does.
fn expire(
    archives: &Archives,
    volume: &str,
    lock: &Lock,
    now: wall_clock::Instant,
) -> Result<Option<Duration>, OpenError> {
    let Some(expires) = lock.expires_unix_ns else {
        return Ok(None);
    };
    let left = Duration::from_nanos(expires.saturating_sub(now.unix_ns));
    if !left.is_zero() {
        return Ok(Some(left.clamp(Duration::from_secs(1), SLEEP_MAX)));
    }
    archives.pool().delete_volume(volume)?;
    tracing::info!(volume, note = lock.note, "a lock has expired");
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_come_when_a_block_is_too_old_but_at_most_once_per_step() {
        let second = 1_000_000_000;
        let keep = |age_s: u64, size: Option<u64>| RetentionLimits {
            age: (age_s > 0).then_some(Nanos(age_s * second)),
            size: size.map(sched::units::Bytes),
            ..RetentionLimits::default()
        };
        for (keep, next_s, expected_s) in [
            (keep(0, None), None, None),
            (keep(0, Some(9)), None, Some(60)),
            // Nothing is recorded.
            (keep(1_000, None), None, Some(1_000)),
            (keep(1_000, None), Some(700), Some(600)),
            (keep(640, None), Some(103), Some(10)),
            (keep(86_400, None), Some(101), Some(60)),
            (keep(1, None), Some(90), Some(1)),
            (keep(86_400, None), Some(50_000), Some(3_600)),
            (keep(1_000, Some(9)), Some(700), Some(60)),
        ] {
            let next = next_s.map(|next| next * second);
            let found = wait(keep, 100 * second, next).map(|of| of.as_secs());
            assert_eq!(found, expected_s, "{keep:?}, {next_s:?}");
        }
    }
}
