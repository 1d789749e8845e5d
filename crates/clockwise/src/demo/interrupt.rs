//! Whether somebody wants the demo to end: Ctrl-C, SIGTERM or the end of the terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::process::{Ending, told_to_end};
use crate::failure::{Failure, host_failure};

/// The signal that came, if one did. Clones tell of the same one.
#[derive(Clone)]
pub(super) struct Interrupt {
    ending: watch::Receiver<Ending>,
    signal: Arc<AtomicU8>,
}

impl Interrupt {
    pub(super) fn listen(runtime: &Runtime) -> Result<Self, Failure> {
        let (sender, ending) = watch::channel(Ending::NotYet);
        let number = Arc::<AtomicU8>::default();
        let _guard = runtime.enter();
        let failed = |error: std::io::Error| host_failure("wait for signals", &error);
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
            sender.send_replace(Ending::AtOnce);
            // Keeps the channel, so that nobody takes its end for a signal that was not given.
            std::future::pending::<()>().await;
        });
        Ok(Self {
            ending,
            signal: number,
        })
    }

    /// The number of the signal that came.
    pub(super) fn signal(&self) -> Option<u8> {
        let is_ending = *self.ending.borrow() != Ending::NotYet;
        is_ending.then(|| self.signal.load(Ordering::Relaxed))
    }

    /// What programs are ended by.
    pub(super) fn as_ending(&self) -> watch::Receiver<Ending> {
        self.ending.clone()
    }

    /// Goes on unless a signal came.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match self.signal() {
            Some(_) => Err(Failure::failed("interrupted").help("run it again")),
            None => Ok(()),
        }
    }

    /// Waits for `time`, unless a signal comes.
    pub(super) fn wait(&self, runtime: &Runtime, time: Duration) -> Result<(), Failure> {
        let mut ending = self.ending.clone();
        // Time passes or the signal comes; the check tells which it was.
        let _ =
            runtime.block_on(async { tokio::time::timeout(time, told_to_end(&mut ending)).await });
        self.check()
    }
}
