//! What the end of a server waits for, told while it does.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::pool::Pool;
use sched::units::Nanos;

/// How often it is told.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// What is waited for now.
#[derive(Clone, Default)]
pub(super) struct Ending(Arc<Mutex<&'static str>>);

impl Ending {
    pub(super) fn waits_for(&self, what: &'static str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }

    /// Tells of it again and again, until it is aborted.
    pub(super) async fn tell(self, pool: Arc<Pool>) {
        let mut ticks = tokio::time::interval(TELL_EVERY);
        // The first is at once.
        ticks.tick().await;
        loop {
            ticks.tick().await;
            let what = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
            tracing::info!("ending: waits for {what}; a second signal ends the server at once");
            let pool = Arc::clone(&pool);
            // Not waited for: a disk's thread may not answer.
            tokio::task::spawn_blocking(move || {
                for disk in pool.health().disks {
                    if disk.stalled_ns > 0 {
                        let silent = Nanos(disk.stalled_ns);
                        tracing::warn!("ending: no answer of disk {:?} for {silent}", disk.name);
                    }
                }
            });
        }
    }
}
