//! Retention: a thread that lets go of recordings when they are older or more than is to be kept.
//!
//! It sleeps until the next block of some volume is too old, and looks no oftener than once in a step, which is a
//! minute as a rule: each look that lets go of something is a write to the disks. What is more than a volume is to keep
//! is not listed or played any more from the block on that is too much; the look makes that durable and discards it.
//!
//! It also sees to how long volumes are that grow or give space back: a recording that comes to where that has to be
//! done wakes it.
//!
//! Volumes are open only while they are looked at, so that they can be deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::clock;
use engine::pool::PoolError;
use sched::units::Nanos;

use crate::archive::ArchiveError;
use crate::archive::archives::{Archives, OpenError};
use crate::archive::retention_record::RetentionLimits;
use crate::archive::wall_clock;

/// The longest time between two looks at a volume.
const STEP_MAX: Nanos = Nanos::from_secs(60);

/// The shortest.
const STEP_MIN: Nanos = Nanos::from_secs(1);

/// The longest sleep: the wall clock may be set meanwhile.
const SLEEP_MAX: Duration = Duration::from_secs(3_600);

/// What is to be looked at when.
#[derive(Debug, Default)]
struct Due {
    volumes: BTreeMap<String, Instant>,
    is_closing: bool,
}

/// Which volumes are looked at next.
#[derive(Debug, Default)]
pub struct RetentionSchedule {
    due: Mutex<Due>,
    changed: Condvar,
}

impl RetentionSchedule {
    fn due(&self) -> MutexGuard<'_, Due> {
        // A list, changed in one step.
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A volume is looked at now.
    pub fn look_at(&self, volume: &str) {
        self.due().volumes.insert(volume.to_owned(), Instant::now());
        self.changed.notify_all();
    }

    /// Sleeps until a volume is to be looked at: its name. `None`: it is over.
    fn next(&self) -> Option<String> {
        let mut due = self.due();
        loop {
            if due.is_closing {
                return None;
            }
            let now = Instant::now();
            let first = due.volumes.iter().min_by_key(|(_, at)| **at);
            let sleep = match first {
                Some((name, at)) if *at <= now => {
                    let name = name.clone();
                    due.volumes.remove(&name);
                    return Some(name);
                }
                Some((_, at)) => at.duration_since(now),
                None => SLEEP_MAX,
            };
            let waited = self.changed.wait_timeout(due, sleep);
            due = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A volume is looked at again after that long, unless it is to be before.
    fn again(&self, volume: String, after: Duration) {
        let at = Instant::now() + after;
        self.due().volumes.entry(volume).or_insert(at);
    }

    fn close(&self) {
        self.due().is_closing = true;
        self.changed.notify_all();
    }
}

/// How long the next look waits at least, so that something is kept a sixty-fourth longer at most, or a second.
fn step(keep: RetentionLimits) -> Nanos {
    let age = keep.age.map_or(STEP_MAX, |age| Nanos(age.get() / 64));
    age.clamp(STEP_MIN, STEP_MAX)
}

/// When to look again, if the next block is too old at `next_unix_ns`; `None`: not before somebody asks for it.
fn wait(keep: RetentionLimits, now_unix_ns: u64, next_unix_ns: Option<u64>) -> Option<Duration> {
    let of_age = keep.age.map(|age| {
        // What comes from now on lasts that long.
        let due = next_unix_ns.unwrap_or(now_unix_ns.saturating_add(age.get()));
        Nanos(due.saturating_sub(now_unix_ns))
    });
    let of_size = keep.size.map(|_| STEP_MAX);
    let first = of_age.into_iter().chain(of_size).min()?;
    Some(Duration::from_nanos(first.max(step(keep)).get()).min(SLEEP_MAX))
}

/// The thread. Dropping it ends it.
#[derive(Debug)]
pub struct Retention {
    archives: Arc<Archives>,
    thread: Option<JoinHandle<()>>,
}

impl Retention {
    /// Finds the volumes that it has to do with, which reads a little of every volume that something was written to, and
    /// looks at them from then on when it is time.
    ///
    /// # Errors
    /// When the host has no thread left.
    pub fn start(archives: Arc<Archives>) -> std::io::Result<Self> {
        let looking = Arc::clone(&archives);
        for volume in archives.pool().volumes() {
            match archives.is_retained(&volume.name) {
                Ok(true) => archives.looks().look_at(&volume.name),
                Ok(false) => {}
                Err(error) => {
                    let volume = volume.name;
                    tracing::warn!(volume, %error, "it is not known how long recordings are kept there");
                }
            }
        }
        let thread = std::thread::Builder::new()
            .name("retention".to_owned())
            .spawn(move || {
                let mut seen = BTreeSet::new();
                let mut believed = wall_clock::Believed::default();
                while let Some(volume) = looking.looks().next() {
                    let is_first = seen.insert(volume.clone());
                    let was_doubted = believed.is_doubted();
                    let now = believed.look(wall_clock::now_unix_ns(), clock::now());
                    if believed.is_doubted() && !was_doubted {
                        tracing::warn!("the host's clock was set ahead: for a day recordings are as old as if it had not been");
                    }
                    if let Some(after) = look(&looking, &volume, now, is_first) {
                        looking.looks().again(volume, after);
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
            // It does not panic.
            let _ = thread.join();
        }
    }
}

/// Looks at a volume; when to look again, if ever.
fn look(
    archives: &Archives,
    volume: &str,
    now: wall_clock::Instant,
    is_first: bool,
) -> Option<Duration> {
    match try_look(archives, volume, now, is_first) {
        Ok(after) => after,
        Err(
            OpenError::Pool(PoolError::NoSuchVolume(_) | PoolError::Closed)
            | OpenError::Archive(ArchiveError::Empty(_) | ArchiveError::Foreign(_)),
        ) => None,
        Err(error) => {
            tracing::warn!(volume, %error, "what is recorded there could not be seen to: what is too old stays, and it neither grows nor shrinks");
            Some(Duration::from_nanos(STEP_MAX.get()))
        }
    }
}

fn try_look(
    archives: &Archives,
    volume: &str,
    now: wall_clock::Instant,
    is_first: bool,
) -> Result<Option<Duration>, OpenError> {
    let archive = archives.open(volume, None)?;
    let client = archives.client()?;
    if is_first {
        archive.discard_gone(&client);
    }
    let next = archive.expire(&client, now)?;
    let length = archives.see_to_length(&archive)?;
    let waits = wait(archive.retention(), now.unix_ns, next).into_iter();
    Ok(waits.chain(length).min())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_come_when_a_block_is_too_old_and_not_oftener_than_once_in_a_step() {
        let second = 1_000_000_000;
        let keep = |age_s: u64, size: Option<u64>| RetentionLimits {
            age: (age_s > 0).then_some(Nanos(age_s * second)),
            size: size.map(sched::units::Bytes),
            ..RetentionLimits::default()
        };
        for (keep, next_s, expected_s) in [
            (keep(0, None), None, None),
            (keep(0, Some(9)), None, Some(60)),
            // Nothing is there.
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
