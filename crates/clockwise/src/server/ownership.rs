//! Looks every few seconds whether the disks are still this server's.
//!
//! Changes of metadata look by themselves. This is for a server that changes none: its users want to hear
//! soon that there are two, for both write what their volumes' users write.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::end_of;
use crate::http::App;

/// How often: seldom enough that no disk has anything to do for it.
const INTERVAL: Duration = Duration::from_secs(5);

/// Looks until the server ends or its disks are another's.
pub(super) async fn watch(
    app: Arc<App>,
    ended: watch::Receiver<bool>,
    taken: watch::Sender<Option<String>>,
) {
    let mut ticks = tokio::time::interval(INTERVAL);
    // Missed ticks are not made up for.
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = end_of(ended.clone()) => return,
        }
        let looking = Arc::clone(&app);
        let looked = tokio::task::spawn_blocking(move || looking.pool.taken_over());
        match looked.await {
            Ok(None) => {}
            Ok(found) => {
                taken.send_replace(found);
                return;
            }
            Err(_) => tracing::error!("looking whether the disks are still this server's failed"),
        }
    }
}

/// Waits until that is found.
pub(super) async fn found(mut taken: watch::Receiver<Option<String>>) -> String {
    let found = taken.wait_for(Option::is_some).await;
    match found.ok().and_then(|found| found.clone()) {
        Some(found) => found,
        // Nobody looks any more.
        None => std::future::pending().await,
    }
}
