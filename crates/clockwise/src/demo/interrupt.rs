//! Requests to end the demo: Ctrl-C, SIGTERM or the end of the terminal.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::process::{Ending, told_to_end};
use crate::failure::{Failure, host_failure};
use crate::print::Output;

/// Exit status of a process that a signal ended is this plus the signal's number.
const SIGNALLED: u8 = 128;

/// The signal that came, if one did. Clones tell of the same one.
#[derive(Clone)]
pub(super) struct Interrupt {
    ending: watch::Receiver<Ending>,
    came: Arc<Mutex<Came>>,
}

/// State of signals.
#[derive(Default)]
struct Came {
    /// The number of the first.
    signal: Option<u8>,
    /// True if everything has been taken down.
    is_clean: bool,
}

impl Came {
    /// Takes a signal. The first one ends the demo; the others are only answered, because what
    /// would end it sooner would leave mounts behind.
    fn take(&mut self, kind: SignalKind, ending: &watch::Sender<Ending>, output: &Output) {
        let number = kind.as_raw_value() as u8;
        if self.is_clean {
            std::process::exit(i32::from(exit_status(number)));
        }
        if self.signal.is_some() {
            output.note("Still cleaning up ...");
            return;
        }
        output.note("Interrupted; cleaning up ...");
        self.signal = Some(number);
        ending.send_replace(Ending::AtOnce);
    }
}

/// Nothing is done under the lock that could leave it half done.
fn locked(came: &Mutex<Came>) -> MutexGuard<'_, Came> {
    came.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The exit status of a process that a signal ended.
pub(super) fn exit_status(signal: u8) -> u8 {
    SIGNALLED + signal
}

impl Interrupt {
    pub(super) fn listen(runtime: &Runtime, output: Output) -> Result<Self, Failure> {
        let (sender, ending) = watch::channel(Ending::NotYet);
        let came = Arc::<Mutex<Came>>::default();
        let _guard = runtime.enter();
        let failed = |error: std::io::Error| host_failure("wait for signals", &error);
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let mut hang_up = signal(SignalKind::hangup()).map_err(failed)?;
        let listening = Arc::clone(&came);
        // Ends with the runtime: somebody impatient is answered until everything is down.
        runtime.spawn(async move {
            loop {
                let kind = tokio::select! {
                    _ = interrupt.recv() => SignalKind::interrupt(),
                    _ = terminate.recv() => SignalKind::terminate(),
                    _ = hang_up.recv() => SignalKind::hangup(),
                };
                locked(&listening).take(kind, &sender, &output);
            }
        });
        Ok(Self { ending, came })
    }

    /// Nothing is left to be taken down: from here on a signal ends the process at once, even while
    /// nobody reads what it writes. Returns the signal that came before.
    pub(super) fn nothing_left(&self) -> Option<u8> {
        let mut came = locked(&self.came);
        came.is_clean = true;
        came.signal
    }

    /// The event that ends programs.
    pub(super) fn as_ending(&self) -> watch::Receiver<Ending> {
        self.ending.clone()
    }

    /// Goes on unless a signal came.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match *self.ending.borrow() {
            Ending::NotYet => Ok(()),
            Ending::WithReport | Ending::AtOnce => {
                Err(Failure::failed("interrupted").help("run it again"))
            }
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
