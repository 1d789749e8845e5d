//! What the end of a server waits for, told while it does.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::pool::Pool;
use engine::status::PoolHealth;
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
            tracing::info!("{}", self.line());
            let pool = Arc::clone(&pool);
            // Not waited for: a disk's thread may not answer.
            tokio::task::spawn_blocking(move || {
                silent(&pool.health()).for_each(|line| tracing::warn!("{line}"));
            });
        }
    }

    /// A line for the log: the stage that the end has reached.
    fn line(&self) -> String {
        let what = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        format!("ending: waits for {what}; a second signal ends the server at once")
    }
}

/// A line for the log about each disk that does not answer.
fn silent(health: &PoolHealth) -> impl Iterator<Item = String> {
    let silent = health.disks.iter().filter(|disk| disk.stalled_ns > 0);
    silent.map(|disk| {
        let since = Nanos(disk.stalled_ns);
        format!("ending: no answer of disk {:?} for {since}", disk.name)
    })
}

#[cfg(test)]
mod tests {
    use engine::status::DiskHealth;

    use super::*;

    #[test]
    fn it_is_told_what_is_waited_for_now_and_which_disks_do_not_answer() {
        let ending = Ending::default();
        for what in ["streams to end", "what was written to be durable"] {
            ending.clone().waits_for(what);
            let line = ending.line();
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
        let told: Vec<String> = silent(&health).collect();
        assert_eq!(told, ["ending: no answer of disk \"sdb\" for 12.300 s"]);
    }
}
