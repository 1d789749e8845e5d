//! Progress of the shutdown for the log.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::pool::Pool;
use engine::status::PoolHealth;
use sched::units::Nanos;

/// Time between log lines.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// The current stage of the shutdown: what it waits for.
#[derive(Clone, Default)]
pub(super) struct ShutdownStage(Arc<Mutex<&'static str>>);

impl ShutdownStage {
    pub(super) fn set(&self, what: &'static str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }

    /// Logs the stage periodically, until the task is aborted.
    pub(super) async fn log(self, pool: Arc<Pool>) {
        let mut ticks = tokio::time::interval(LOG_EVERY);
        // The first tick is immediate.
        ticks.tick().await;
        loop {
            ticks.tick().await;
            tracing::info!("{}", self.line());
            let pool = Arc::clone(&pool);
            // This may block on a disk that does not answer, so the loop does not wait for it.
            tokio::task::spawn_blocking(move || {
                stalled_disks(&pool.health()).for_each(|line| tracing::warn!("{line}"));
            });
        }
    }

    fn line(&self) -> String {
        let what = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        format!("shutdown waits for {what}; a second signal ends the server at once")
    }
}

/// A log line about each disk that does not answer.
fn stalled_disks(health: &PoolHealth) -> impl Iterator<Item = String> {
    let stalled = health.disks.iter().filter(|disk| disk.stalled_ns > 0);
    stalled.map(|disk| {
        let since = Nanos(disk.stalled_ns);
        format!("shutdown: no answer from disk {:?} for {since}", disk.name)
    })
}

#[cfg(test)]
mod tests {
    use engine::status::DiskHealth;

    use super::*;

    #[test]
    fn shutdown_lines_name_the_stage_and_the_stalled_disks() {
        let stage = ShutdownStage::default();
        for what in ["streams to end", "written data to become durable"] {
            stage.clone().set(what);
            let line = stage.line();
            assert!(line.contains(&format!("waits for {what}; a second signal")));
        }
        let disk = |name: &str, stalled_ns| DiskHealth {
            name: name.to_owned(),
            stalled_ns,
            ..DiskHealth::default()
        };
        let health = PoolHealth {
            disks: vec![disk("sda", 0), disk("sdb", 12_300_000_000), disk("sdc", 0)],
            ..PoolHealth::default()
        };
        let lines: Vec<String> = stalled_disks(&health).collect();
        assert_eq!(
            lines,
            ["shutdown: no answer from disk \"sdb\" for 12.300 s"]
        );
    }
}
