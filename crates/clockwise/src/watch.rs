//! Predicted against actual service times of each disk, over all restarts of the server.
//!
//! The engine counts since the pool was opened. [`Watch`] adds these counts to those of earlier runs, which it keeps
//! in a file ([`store`]), and judges from them if a disk has drifted away from its profile ([`drift`]). A history
//! belongs to one disk of the pool, one drive and one profile; with another drive or profile a new one begins.
//!
//! Deliberately absent: any effect on admission. Promises rest on the profile alone.

mod drift;
mod history;
mod moment;
mod store;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::pool::{LearnedProfile, Pool};
use sched::profile::DriveProfile;

use self::drift::DriftChange;
use self::history::{History, Subject};
use self::moment::Moment;
use self::store::Stored;
use crate::wire::service_times::{DriftView, OverrunView, ServiceTimesView};
use crate::wire::view::{StatusView, WarningView};

/// The drive behind a disk.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WatchedDrive {
    /// The disk's name.
    pub name: String,
    /// The drive's serial number.
    pub serial: Option<String>,
    /// The reason why its profile does not count as measured on it, if it states a measurement.
    pub doubt: Option<String>,
}

/// The watch over a pool's disks.
pub struct Watch {
    pool: Arc<Pool>,
    /// The pool's identity, in hexadecimal.
    pool_id: String,
    /// The file of the histories.
    path: PathBuf,
    disks: Mutex<Vec<WatchedDisk>>,
}

struct WatchedDisk {
    profile: Arc<DriveProfile>,
    doubt: Option<String>,
    /// The history before this run; its days and drifts include this run.
    base: History,
    /// The same with the present run.
    present: History,
    /// Requests and overruns of this run that days include.
    in_days: (u64, u64),
    drift: Option<DriftView>,
}

impl Watch {
    /// Begins to watch the disks of `pool`, whose histories are in `folder`. Also returns the reason why an existing
    /// file is not used, if so.
    #[must_use]
    pub fn start(
        pool: Arc<Pool>,
        drives: &[WatchedDrive],
        folder: &Path,
    ) -> (Self, Option<String>) {
        let (id, disks) = pool.identities();
        let pool_id = hex(&id);
        let path = store::path(folder, &pool_id);
        let (mut known, problem) = store::read(&path, &pool_id);
        let now = Moment::now();
        let disks = disks.into_iter().map(|disk| {
            let drive = drives.iter().find(|drive| drive.name == disk.name);
            let drive = drive.cloned().unwrap_or_default();
            let subject = Subject {
                disk: hex(&disk.id),
                serial: drive.serial,
                profile: disk.profile.name().to_owned(),
                profile_hash: hash(&disk.profile.to_toml()),
            };
            let before = known
                .iter()
                .position(|history| history.subject.disk == subject.disk)
                .map(|index| known.swap_remove(index));
            let base = match before {
                Some(before) => before.continued(subject, disk.name, now),
                None => History::new(subject, disk.name, now),
            };
            WatchedDisk {
                profile: disk.profile,
                doubt: drive.doubt,
                present: base.clone(),
                base,
                in_days: (0, 0),
                drift: None,
            }
        });
        let watch = Self {
            disks: Mutex::new(disks.collect()),
            pool,
            pool_id,
            path,
        };
        watch.update();
        (watch, problem)
    }

    fn disks(&self) -> MutexGuard<'_, Vec<WatchedDisk>> {
        self.disks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in the service times up to now. Logs each drift that has begun or ended. Asks the disks' threads, so the
    /// caller must be allowed to wait.
    pub fn update(&self) {
        let now = Moment::now();
        for (number, disk) in self.disks().iter_mut().enumerate() {
            // A disk that is not served any more keeps its history.
            let Some(run) = self.pool.service_times(number) else {
                continue;
            };
            for change in disk.update(&run, now) {
                match change {
                    DriftChange::Began(text) => tracing::warn!("{text}"),
                    DriftChange::Ended(text) => tracing::info!("{text}"),
                }
            }
        }
    }

    /// Writes the histories, durably.
    ///
    /// # Errors
    /// If the file cannot be written; the text says which, and what is lost.
    pub fn save(&self) -> Result<(), String> {
        let histories = self
            .disks()
            .iter()
            .map(|disk| disk.present.clone())
            .collect();
        let stored = Stored::new(self.pool_id.clone(), histories);
        store::write(&self.path, &stored).map_err(|error| {
            format!(
                "the statistics of service times cannot be written to {}: {error}; they are lost when the server \
                 ends. Make that folder writable, or set another as `state` in [server]",
                self.path.display()
            )
        })
    }

    /// Adds the service times, drifts, and doubts about profiles to a status.
    pub fn complete(&self, status: &mut StatusView) {
        self.update();
        let disks = self.disks();
        for (view, disk) in status.disks.iter_mut().zip(&*disks) {
            let concerned = |what| WarningView {
                what,
                concerns: vec![view.name.clone()],
            };
            let drift = disk.drift.as_ref().map(|drift| drift.what.clone());
            let warnings = disk.doubt.iter().cloned().chain(drift).map(concerned);
            status.warnings.extend(warnings);
            view.profile_doubt.clone_from(&disk.doubt);
            view.service_times = disk.view();
        }
    }

    /// The profile that a disk should have, see [`Pool::learned_profile`], and its service times.
    #[must_use]
    pub fn learned_profile(&self, number: usize) -> Option<(LearnedProfile, ServiceTimesView)> {
        self.update();
        let disks = self.disks();
        let disk = disks.get(number)?;
        let took = disk.present.took_permille_max();
        let learned = self.pool.learned_profile(number, took)?;
        Some((learned, disk.view()))
    }

    /// The last overrun of a disk.
    #[must_use]
    pub fn last_overrun(&self, number: usize) -> Option<OverrunView> {
        self.update();
        self.disks().get(number)?.present.overruns.last().cloned()
    }
}

impl WatchedDisk {
    fn update(&mut self, run: &engine::pool::ObservedTimes, now: Moment) -> Vec<DriftChange> {
        let of_run = run.times.kinds().fold((0, 0), |(count, overruns), kind| {
            (count + kind.1.count, overruns + kind.1.overruns)
        });
        let (count, overruns) = (of_run.0 - self.in_days.0, of_run.1 - self.in_days.1);
        self.in_days = of_run;
        self.base.add_to_day(now.day(), count, overruns);
        self.present = self.base.with(run, now);
        let changes;
        (self.drift, changes) = drift::judge(&mut self.present, &self.profile, now);
        self.base.slower_since = self.present.slower_since;
        self.base.faster_since = self.present.faster_since;
        changes
    }

    fn view(&self) -> ServiceTimesView {
        let history = &self.present;
        ServiceTimesView {
            since: history.since.to_string(),
            count: history.count(),
            overruns: history.overrun_count(),
            actual_over_predicted_max: history.took_permille_max() as f64 / 1e3,
            kinds: history.kind_views(),
            last_overruns: history.overruns.clone(),
            drift: self.drift.clone(),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// FNV-1a with 64 bits, in hexadecimal. It tells texts of profiles apart; nothing depends on its strength.
fn hash(text: &str) -> String {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    hex(&text.bytes().fold(0xcbf2_9ce4_8422_2325, step).to_be_bytes())
}
