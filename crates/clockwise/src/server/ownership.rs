//! Checks every few seconds that no other server has opened the pool.
//!
//! Changes of metadata check this themselves. A server that changes no metadata needs these checks: both servers would
//! write the data of their clients to the same disks.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::end_of;
use crate::http::App;

/// Time between checks, long enough that their load does not matter.
const INTERVAL: Duration = Duration::from_secs(5);

/// Checks until the server ends or another server has opened the pool.
pub(super) async fn watch(
    app: Arc<App>,
    ended: watch::Receiver<bool>,
    taken: watch::Sender<Option<String>>,
) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = end_of(ended.clone()) => return,
        }
        let pool = Arc::clone(&app.pool);
        let checked = tokio::task::spawn_blocking(move || pool.taken_over());
        match checked.await {
            Ok(None) => {}
            Ok(evidence) => {
                taken.send_replace(evidence);
                return;
            }
            Err(_) => tracing::error!("the check for another server on the same disks failed"),
        }
    }
}

/// Waits until another server has opened the pool. Returns the evidence.
pub(super) async fn taken_over(mut taken: watch::Receiver<Option<String>>) -> String {
    let evidence = taken.wait_for(Option::is_some).await;
    match evidence.ok().and_then(|evidence| evidence.clone()) {
        Some(evidence) => evidence,
        // The checks have ended.
        None => std::future::pending().await,
    }
}
