//! Whether somebody wants the demo to end: Ctrl-C, SIGTERM or the end of the terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::failure::Failure;

/// The signal that came, if one did. Clones tell of the same one.
#[derive(Clone)]
pub(super) struct Interrupt {
    stop: watch::Receiver<bool>,
    signal: Arc<AtomicU8>,
}

impl Interrupt {
    pub(super) fn listen(runtime: &Runtime) -> Result<Self, Failure> {
        let (sender, stop) = watch::channel(false);
        let number = Arc::<AtomicU8>::default();
        let _guard = runtime.enter();
        let failed =
            |error: std::io::Error| Failure::failed(format!("cannot wait for signals: {error}"));
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let mut hang_up = signal(SignalKind::hangup()).map_err(failed)?;
        let came = Arc::clone(&number);
        runtime.spawn(async move {
            let kind = tokio::select! {
                _ = interrupt.recv() => SignalKind::interrupt(),
                _ = terminate.recv() => SignalKind::terminate(),
                _ = hang_up.recv() => SignalKind::hangup(),
            };
            came.store(kind.as_raw_value() as u8, Ordering::Relaxed);
            sender.send_replace(true);
            // Keeps the channel, so that nobody takes its end for a signal that was not given.
            std::future::pending::<()>().await;
        });
        Ok(Self {
            stop,
            signal: number,
        })
    }

    /// The number of the signal that came.
    pub(super) fn signal(&self) -> Option<u8> {
        self.stop
            .borrow()
            .then(|| self.signal.load(Ordering::Relaxed))
    }

    /// What programs are stopped by.
    pub(super) fn as_stop(&self) -> watch::Receiver<bool> {
        self.stop.clone()
    }

    /// Goes on unless a signal came.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match self.signal() {
            Some(_) => Err(Failure::failed("interrupted")),
            None => Ok(()),
        }
    }

    /// Waits for `time`, unless a signal comes.
    pub(super) fn wait(&self, runtime: &Runtime, time: Duration) -> Result<(), Failure> {
        let mut stop = self.stop.clone();
        // Time passes or the signal comes; the check tells which it was.
        let _ = runtime
            .block_on(async { tokio::time::timeout(time, stop.wait_for(|stop| *stop)).await });
        self.check()
    }
}
